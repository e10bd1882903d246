"""The class of a query, and what the class guarantees (papers/fivm.txt, theorems 13 and 26)."""

from __future__ import annotations

from collections.abc import Collection
from fractions import Fraction

from orchestrator.strategies.viewtree import search
from orchestrator.strategies.viewtree.hypergraph import Constraints, Fd, Hypergraph
from orchestrator.strategies.viewtree.search import NO_CONSTRAINTS
from orchestrator.strategies.viewtree.tree import View


def class_of(graph: Hypergraph, fds: tuple[Fd, ...]) -> str:
    """Return the class of a query in words, and the class of its Σ-reduct if it differs.

    >>> class_of(Hypergraph.of({"R": "AB", "S": "BC", "T": "AC"}), ())
    'cyclic'
    >>> fds = (Fd.of("S", "B", "C"), Fd.of("T", "C", "D"))
    >>> class_of(Hypergraph.of({"R": "AB", "S": "BC", "T": "CD"}, "ABCD"), fds)  # example 27
    'free-connex acyclic; q-hierarchical under functional dependencies'
    """
    plain, reduct = _name(graph), _name(graph.reduct(fds))
    return plain if plain == reduct else f"{plain}; {reduct} under functional dependencies"


def _name(graph: Hypergraph) -> str:
    if graph.q_hierarchical:
        return "q-hierarchical"
    parts = [
        "hierarchical" if graph.hierarchical else "",
        "free-connex acyclic" if graph.free_connex else "acyclic" if graph.acyclic else "cyclic",
    ]
    return ", ".join(part for part in parts if part)


def guarantee(tree: View, graph: Hypergraph, constraints: Constraints = NO_CONSTRAINTS) -> str:
    """Return in words what the costs of a tree mean, and which constraints they rely on; N is the number of rows.

    >>> from orchestrator.strategies.viewtree.hypergraph import ForeignKey
    >>> from orchestrator.strategies.viewtree.orders import parsed
    >>> from orchestrator.strategies.viewtree.tree import composed, tau
    >>> graph = Hypergraph.of({"R": "AB", "S": "BC", "T": "CD"}, "D")
    >>> tree = composed(tau(parsed("D - C - B - A"), graph))
    >>> guarantee(tree, graph)
    'a change of one row costs O(N), the first content O(N)'
    >>> keys = (Fd.of("S", "B", "C"), Fd.of("T", "C", "D"))
    >>> guarantee(tree, graph, Constraints(keys))
    'a change of one row costs O(1), the first content O(N), by keys of S and T'
    >>> alone = Hypergraph.of({"R": "AB", "S": "BC"}, "AC")
    >>> reference = ForeignKey("R", "S", frozenset("B"))
    >>> constraints = Constraints((Fd.of("S", "B", "C"),), (reference,))
    >>> print(guarantee(composed(tau(parsed("B - { A, C }"), alone)), alone, constraints))
    a change of one row costs O(N), an insert or a delete O(1), the first content O(N), by keys of S, and by \
foreign keys of R
    """

    def exponents(known: Constraints) -> tuple[Fraction, Fraction, Fraction]:
        costs = without_updates = search.cost(tree, graph, known)
        if known.foreign_keys:
            without_updates = search.cost(tree, graph, known.without_updates)
        return costs.update, without_updates.update, max(costs.width, Fraction(1))

    update, come_or_go, first = exponents(constraints)
    parts = [f"a change of one row costs {power(update)}"]
    if come_or_go < update:
        parts.append(f"an insert or a delete {power(come_or_go)}")
    parts.append(f"the first content {power(first)}")
    because = constraints.needed(exponents).described
    return ", ".join([*parts, because] if because else parts)


def power(exponent: Fraction) -> str:
    """Return the bound O(N^exponent) as text."""
    if not exponent:
        return "O(1)"
    return "O(N)" if exponent == 1 else f"O(N^{exponent})"


def drawn(tree: View, stored: Collection[View], depth: int = 0) -> str:
    """Return a tree as text, one line for each view; a star marks stored views."""
    line = f"{'  ' * depth}{tree.label}{' *' if tree in stored else ''}"
    return "\n".join([line, *(drawn(child, stored, depth + 1) for child in tree.children)])
