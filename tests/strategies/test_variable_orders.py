"""Variable orders, widths and trees of random queries have the properties that the paper gives them."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from random import Random

import pytest

from orchestrator.strategies.viewtree.hypergraph import Constraints, Fd, Hypergraph, closure
from orchestrator.strategies.viewtree.orders import check, is_top, paths, written
from orchestrator.strategies.viewtree.orders import parsed as read
from orchestrator.strategies.viewtree.search import best, cost
from orchestrator.strategies.viewtree.tree import composed, materialised, nu, tau, with_indicators
from orchestrator.strategies.viewtree.widths import cover


def random_query(seed: int, most: int = 3) -> Hypergraph:
    rng = Random(seed)
    variables = "ABCDEF"[: rng.randint(1, 6)]
    edges = {
        name: rng.sample(variables, min(len(variables), rng.randint(1, most)))
        for name in "RSTUV"[: rng.randint(1, 5)]
    }
    used = sorted({v for schema in edges.values() for v in schema})
    return Hypergraph.of(edges, [v for v in used if rng.random() < 0.4])


@pytest.mark.parametrize("seed", range(40))
def test_an_order_is_one_and_its_text_says_it(seed):
    graph = random_query(seed)
    for free_top in (False, True):
        forest = best(graph, free_top=free_top)
        check(forest, graph)
        assert read(written(forest)) == forest
        assert not free_top or is_top(graph.free, forest)


@pytest.mark.parametrize("seed", range(40))
def test_a_tree_holds_every_atom_once_and_joins_what_it_must(seed):
    graph = random_query(seed)
    forest = best(graph, free_top=True)
    for tree in (tau(forest, graph), composed(tau(forest, graph)), nu(forest, graph)):
        leaves = [view.atoms[0] for view in tree.walk() if not view.children]
        assert sorted(leaves) == sorted(graph.schemas)
        for view in tree.walk():
            if view.children:
                assert view.keys <= view.joined
                kept_out = view.joined - view.keys - graph.free
                outside = {n for n in graph.schemas if n not in view.atoms}
                assert not any(graph.schemas[name] & kept_out for name in outside)
    assert tau(forest, graph).keys == graph.free
    whole = composed(tau(forest, graph))
    assert len(materialised(whole, graph.schemas)) <= 2 * len(graph.edges)


@pytest.mark.parametrize("seed", range(60))
def test_q_hierarchical_queries_cost_nothing_but_a_look(seed):
    graph = random_query(seed)
    if graph.q_hierarchical:
        tree = composed(nu(best(graph, free_top=True), graph), graph.free)
        assert cost(tree, graph).update == 0
        assert graph.hierarchical
    if graph.q_hierarchical and len(graph.components(graph.variables)) == 1:
        assert graph.free_connex


@pytest.mark.parametrize("seed", range(30))
def test_fractional_covers_of_graphs_are_half_integral(seed):
    graph = random_query(seed, most=2)
    schemas = [schema for _, schema in graph.edges]
    halves = (Fraction(0), Fraction(1, 2), Fraction(1))
    least = min(
        sum(weights)
        for weights in product(halves, repeat=len(schemas))
        if all(
            sum(w for w, schema in zip(weights, schemas, strict=True) if v in schema) >= 1
            for v in graph.variables
        )
    )
    assert cover(graph.variables, schemas) == least


def test_what_determines_everything_makes_chains_cheap():
    chain = Hypergraph.of({"R": "AB", "S": "BC", "T": "CD"}, "ABCD")
    fds = (Fd.of("S", "B", "C"), Fd.of("T", "C", "D"))
    tree = composed(nu(best(chain, Constraints(fds), free_top=True), chain), chain.free)
    assert cost(tree, chain, Constraints(fds)).update == 0
    assert cost(tree, chain).update == 1
    assert closure("B", fds) == frozenset("BCD")


def test_indicators_come_only_with_cycles():
    triangle = Hypergraph.of({"R": "AB", "S": "BC", "T": "AC"})
    tree = with_indicators(tau(best(triangle), triangle), triangle)
    assert sum(view.indicator for view in tree.walk()) == 1
    for seed in range(40):
        graph = random_query(seed)
        if graph.acyclic:
            tree = tau(best(graph), graph)
            assert with_indicators(tree, graph) == tree


def test_a_chain_of_twenty_tables_is_ordered_soon():
    graph = Hypergraph.of({f"R{n}": [f"x{n:02}", f"x{n + 1:02}"] for n in range(20)})
    forest = best(graph)
    check(forest, graph)
    assert cost(composed(tau(forest, graph)), graph).width == 1
    assert max(len(path) for path in paths(forest)) < 21
