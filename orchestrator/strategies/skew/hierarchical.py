"""Hierarchical queries as unions of view trees (papers/hierarchical-queries.txt, section 3, figure 8).

In the canonical variable order, a bound variable above a free variable makes the result expensive: each of
its values may add the product of its atoms' rows. There the query is the sum of two parts:

- for its light values, with the values of the variables above, the join of all atoms below is stored;
- a heavy value is treated like a value of a free variable, and the same rule applies below it.

A value is heavy if all atoms below together have many rows with it. So one indicator lists the heavy values
and all others are light. Neither indicator trees nor parts of relations are needed.

Below a variable without free variables underneath, everything is summed up first, whatever its values. A
free variable with several children gets a view that lists its values with rows in all of them.

If tables are static, less is divided. Suppose that one atom below a bound variable has all free variables,
and the variables above. Then the join below is no larger than this atom. It is stored as a list if only
atoms change whose rows join one row of all others. Without any changes this is the paper's static mode.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

from orchestrator.algebra.unsupported import Unsupported
from orchestrator.caching import cached_property
from orchestrator.strategies.skew.degrees import Split
from orchestrator.strategies.skew.exponents import Guarantee
from orchestrator.strategies.viewtree.hypergraph import Hypergraph, Variables
from orchestrator.strategies.viewtree.orders import Forest, Order, canonical
from orchestrator.strategies.viewtree.tree import View
from orchestrator.strategies.viewtree.widths import cover

LIGHT = "l"


@dataclass(frozen=True)
class Node:
    """Variables of the canonical order with the same atoms; all of them are free or all bound."""

    variables: tuple[str, ...]
    free: bool
    atoms: tuple[View, ...]
    """The atoms whose lowest variable is here."""
    below: tuple[Node, ...]

    @property
    def name(self) -> str:
        """The name from which the names of its views derive."""
        return "_".join(self.variables)

    def walk(self) -> Iterator[Node]:
        """Yield the node and all nodes below it."""
        yield self
        for node in self.below:
            yield from node.walk()

    @property
    def leaves(self) -> tuple[View, ...]:
        """The atoms of the node and of the nodes below."""
        return tuple(atom for node in self.walk() for atom in node.atoms)

    @property
    def shows(self) -> Variables:
        """The free variables of the node and of the nodes below."""
        return frozenset(v for node in self.walk() if node.free for v in node.variables)


@dataclass(frozen=True)
class Tree:
    """A view, and the trees whose rows extend its rows; a view without trees has all free variables."""

    root: View
    below: tuple[Tree, ...] = ()

    @property
    def frontier(self) -> tuple[View, ...]:
        """The views whose join is the tree's relation."""
        if not self.below:
            return (self.root,)
        return tuple(view for tree in self.below for view in tree.frontier)

    @property
    def guides(self) -> tuple[View, ...]:
        """The views that list the values with rows below."""
        own = (self.root,) if self.below and not self.is_heavy else ()
        return (*own, *(view for tree in self.below for view in tree.guides))

    @property
    def is_heavy(self) -> bool:
        """Whether the root is a view over heavy values, which belong to no free variable."""
        return any(tree.root.indicator for tree in self.below)


@dataclass(frozen=True)
class Division:
    """The division of the values of a bound variable, with those above it, into heavy and light."""

    split: Split
    heavy: View
    """The indicator of the heavy values."""
    light: View
    """The join for the light values."""


@dataclass(frozen=True)
class UnionPlan:
    """A query as a union: the divisions, and the trees of each summand."""

    order: Forest
    divisions: tuple[Division, ...]
    """Upper divisions first."""
    unions: tuple[tuple[Tree, ...], ...]
    """For each summand, the trees whose product it is."""
    guarantee: Guarantee
    static: frozenset[str]
    """The atoms that do not change."""
    variables: tuple[str, ...]
    """The free variables, upper variables first; each tree returns its rows in this order."""

    @cached_property
    def content_views(self) -> frozenset[View]:
        """The views from which the content is computed."""
        return frozenset(v for trees in self.unions for tree in trees for v in tree.frontier)

    @cached_property
    def guides(self) -> frozenset[View]:
        """The views that list values with rows."""
        return frozenset(v for trees in self.unions for tree in trees for v in tree.guides)

    @cached_property
    def views(self) -> tuple[View, ...]:
        """All maintained views, lower views first."""
        result: dict[View, None] = {}
        for view in sorted(self.content_views | self.guides, key=lambda view: view.label):
            result.update(dict.fromkeys(reversed(list(view.walk()))))
        return tuple(result)

    @cached_property
    def stored(self) -> frozenset[View]:
        """The views that are looked up by the content, or by a change of a sibling."""
        light = {division.light for division in self.divisions} if self._values_move else ()
        siblings = (
            child
            for view in self.views
            for child in view.children
            if len(view.children) > 1
            and (view in light or any(map(self._changes, set(view.children) - {child})))
        )
        return self.content_views | self.guides | frozenset(siblings)

    @cached_property
    def _values_move(self) -> bool:
        """Whether values can become heavy or light."""
        return any(frozenset(division.split.atoms) - self.static for division in self.divisions)

    def _changes(self, view: View) -> bool:
        leaves = (inner for inner in view.walk() if not inner.children)
        return any(
            self._values_move if leaf.indicator else leaf.atoms[0] not in self.static
            for leaf in leaves
        )

    @cached_property
    def counting(self) -> frozenset[View]:
        """The views that only need to tell whether they have rows."""
        return frozenset(self.views) - {
            inner for view in self.content_views for inner in view.walk()
        }


def union(
    graph: Hypergraph, epsilon: Fraction, static: frozenset[str] = frozenset()
) -> UnionPlan | Unsupported:
    """Return the plan of a hierarchical query, or why it has none; the `static` atoms do not change.

    The example shows examples 4 and 5 of the paper, and its figure 9:

    >>> from orchestrator.strategies.skew.show import drawn
    >>> half = Fraction(1, 2)
    >>> print(drawn(union(Hypergraph.of({"R": "AB", "S": "BC"}, "AC"), half)))
    divided at N^1/2:
      R, S by B: H_B *
    the sum of 2 joins:
      ∃H_B[B] ⋈ R[A, B] ⋈ S[B, C]
      V@B_l(R, S)[A, C]
    stored:
      R[A, B] *
      S[B, C] *
      V@B_l(R, S)[A, C] *
        R[A, B]
        S[B, C]
    >>> small = union(Hypergraph.of({"R": "AB", "S": "B"}, "A"), half).guarantee
    >>> str(small.width), str(small.delta)
    ('1', '1')
    >>> edges = {"R": "ABD", "S": "ABE", "T": "ACF", "U": "ACG"}
    >>> plan = union(Hypergraph.of(edges, "CDEF"), half)
    >>> for (tree,) in plan.unions:
    ...     print(" ⋈ ".join(view.label for view in tree.frontier))
    ∃H_A[A] ⋈ ∃H_B[A, B] ⋈ R[A, B, D] ⋈ S[A, B, E] ⋈ T[A, C, F] ⋈ V@G(U)[A, C]
    ∃H_A[A] ⋈ V@B_l(R, S)[A, D, E] ⋈ T[A, C, F] ⋈ V@G(U)[A, C]
    V@A_l(R, S, T, U)[C, D, E, F]
    >>> str(plan.guarantee.width), str(plan.guarantee.delta)
    ('3', '3')

    Example 5 in static mode, and with changes of R alone:

    >>> for static in ("RS", "S"):
    ...     plan = union(Hypergraph.of({"R": "AB", "S": "B"}, "A"), half, frozenset(static))
    ...     print(drawn(plan), plan.guarantee.changes, plan.guarantee.delta)
    the join:
      V@B(R, S)[A]
    stored:
      V@B(R, S)[A] *
        S[B]
        R[A, B] False 0
    the join:
      V@B(R, S)[A]
    stored:
      S[B] *
      V@B(R, S)[A] *
        S[B]
        R[A, B] True 0
    """
    atoms = ", ".join(f"{name}({', '.join(sorted(schema))})" for name, schema in graph.edges)
    if not graph.hierarchical:
        return Unsupported("the query is not hierarchical", atoms)
    if not graph.free:
        return Unsupported("a hierarchical query without GROUP BY has nothing to divide", atoms)
    order = canonical(graph)
    nodes = [_node(child, frozenset(), graph) for child in order]
    builder = _Builder(graph, static)
    summands = [builder.trees(node, frozenset()) for node in nodes]
    summands += [[Tree(View(schema, (name,)))] for name, schema in graph.edges if not schema]
    return UnionPlan(
        order,
        tuple(builder.divisions),
        tuple(product(*summands)),
        Guarantee(epsilon, *builder.widths, bool(builder.divisions), graph.schemas.keys() > static),
        static,
        tuple(
            v
            for node in nodes
            for operator in node.walk()
            if operator.free
            for v in operator.variables
        ),
    )


def _node(order: Order, above: Variables, graph: Hypergraph) -> Node:
    variables = [order.variable]
    while len(order.below) == 1 and _same_kind(order, order.below[0], graph):
        order = order.below[0]
        variables.append(order.variable)
    keys = above | frozenset(variables)
    return Node(
        tuple(variables),
        order.variable in graph.free,
        tuple(View(schema, (name,)) for name, schema in graph.edges if schema == keys),
        tuple(_node(item, keys, graph) for item in order.below),
    )


def _same_kind(order: Order, other: Order, graph: Hypergraph) -> bool:
    same_atoms = graph.rels[order.variable] == graph.rels[other.variable]
    return same_atoms and (order.variable in graph.free) == (other.variable in graph.free)


class _Builder:
    """Builds the trees, and collects the divisions and the widths."""

    def __init__(self, graph: Hypergraph, static: frozenset[str]) -> None:
        self.graph, self.static = graph, static
        self.divisions: list[Division] = []
        self.widths = Fraction(1), Fraction(0)
        """w and δ (definitions 12 and 13)."""

    def trees(self, node: Node, above: Variables) -> list[Tree]:
        """τ: return the trees whose union is the part of the query at a node, given the keys above."""
        if not node.shows:
            return [Tree(self._sum_out(node, above))]
        keys = above | frozenset(node.variables)
        if not node.free and self._is_small(node, above, keys):
            return [
                Tree(self._join(above | node.shows, list(self._light_inputs(node, keys)), node))
            ]
        division = None if node.free else self._divide(node, above, keys)
        choices = [[Tree(atom)] for atom in node.atoms]
        choices += [self.trees(item, keys) for item in node.below]
        if division is None:
            return [self._with_guide(node, keys, combination) for combination in product(*choices)]
        heavy = Tree(division.heavy)
        return [
            *(
                self._with_guide(node, keys, (heavy, *combination))
                for combination in product(*choices)
            ),
            Tree(division.light),
        ]

    def _with_guide(self, node: Node, keys: Variables, below: tuple[Tree, ...]) -> Tree:
        """Return a tree with a view of the keys that have rows in all trees below; one tree needs no view."""
        if len(below) == 1:
            return below[0]
        return Tree(self._join(keys, [_project(tree.root, keys) for tree in below], node), below)

    def _sum_out(self, node: Node, above: Variables) -> View:
        """FactVT (figure 4) without free variables: return the sum of the part below for the keys above."""
        keys = above | frozenset(node.variables)
        below = [*node.atoms, *(self._sum_out(item, keys) for item in node.below)]
        return self._join(above, below, node)

    def _is_small(self, node: Node, above: Variables, keys: Variables) -> bool:
        """Return whether a node can be listed (figure 8, lines 5 to 7).

        The part below must be no larger than one atom, so that the query there is free-connex, and each
        changed row must match one row of all other atoms.
        """
        every = frozenset[str]().union(*(view.keys for view in self._light_inputs(node, keys)))
        return any(above | node.shows <= atom.keys for atom in node.leaves) and all(
            every <= atom.keys for atom in node.leaves if atom.atoms[0] not in self.static
        )

    def _divide(self, node: Node, above: Variables, keys: Variables) -> Division:
        """Divide the values of a bound variable; atoms with a single row for each value do not count."""
        inputs = list(self._light_inputs(node, keys))
        light = self._join(above | node.shows, inputs, node, LIGHT)
        atoms = tuple(atom.atoms[0] for atom in node.leaves if atom.keys > keys)
        heavy = View(keys, (f"H_{node.name}",), at=node.name, indicator=True)
        division = Division(Split(node.name, atoms, keys), heavy, light)
        self.divisions.append(division)
        schemas = [view.keys for view in inputs]
        every = light.keys.union(*schemas)
        changing = [view.keys for view in inputs if view.leaves - self.static]
        width, delta = self.widths
        self.widths = (
            max(width, cover(every, schemas)),
            max((delta, *(cover(every - schema, schemas) for schema in changing))),
        )
        return division

    def _light_inputs(self, node: Node, keys: Variables) -> Iterator[View]:
        """Yield the views to join for light values: atoms, and sums where no variable is free."""
        yield from node.atoms
        for item in node.below:
            if item.shows:
                yield from self._light_inputs(item, keys | frozenset(item.variables))
            else:
                yield self._sum_out(item, keys)

    def _join(self, keys: Variables, below: Sequence[View], node: Node, part: str = "") -> View:
        under = {name for view in below if not view.indicator for name in view.atoms}
        atoms = tuple(name for name, _ in self.graph.edges if name in under)
        return View(keys, atoms, tuple(below), node.name, part=part)


def _project(view: View, keys: Variables) -> View:
    """Return a view over the keys of its parent only (figure 5, lines 5 and 6)."""
    if view.keys == keys:
        return view
    return View(keys, view.atoms, (view,), view.at)


def parents(views: Sequence[View]) -> Mapping[View, tuple[View, ...]]:
    """Return for each view the views that join it."""
    result: dict[View, list[View]] = {view: [] for view in views}
    for view in views:
        for child in view.children:
            result[child].append(view)
    return {view: tuple(above) for view, above in result.items()}
