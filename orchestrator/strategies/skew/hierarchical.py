"""Hierarchical queries as unions of view trees (papers/hierarchical-queries.txt, section 3, figure 8).

In the canonical variable order a bound variable above a free one makes the result dear: each of its
values may add as many rows as its atoms have, multiplied. There the query is the sum of two:

- of its light values, with those above it, the join of all that is below is stored;
- a heavy value is kept as if it were free, and what is below it follows the same rule.

Values are heavy if the rows of all atoms below have them often enough together. So one indicator says
which are; the light ones are the others, and neither indicator trees nor parts of relations are needed.

What is below a variable with no free ones below it is summed up first, whatever its values. A free
variable with several children gets a view that says for which of its values all of them have rows.

Where tables are static, less is divided. If one atom below a bound variable has all free variables, and
those above, what is below is no more than its rows: then the result is listed as it is, if only atoms
change whose row finds one row of all others. With no changes at all that is the paper's static mode.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import product

from orchestrator.algebra.unsupported import Unsupported
from orchestrator.strategies.skew.degrees import Split
from orchestrator.strategies.skew.exponents import Guarantee
from orchestrator.strategies.viewtree.hypergraph import Hypergraph, Variables
from orchestrator.strategies.viewtree.orders import Forest, Order, canonical
from orchestrator.strategies.viewtree.tree import View
from orchestrator.strategies.viewtree.widths import cover

LIGHT = "l"


@dataclass(frozen=True)
class Node:
    """Variables of the canonical order that the same atoms have, all free or all bound."""

    variables: tuple[str, ...]
    free: bool
    atoms: tuple[View, ...]
    """Those whose lowest variable this is."""
    below: tuple[Node, ...]

    @property
    def name(self) -> str:
        """What its views are called after."""
        return "_".join(self.variables)

    def walk(self) -> Iterator[Node]:
        """The node and all below it."""
        yield self
        for node in self.below:
            yield from node.walk()

    @property
    def leaves(self) -> tuple[View, ...]:
        """The atoms here and below."""
        return tuple(atom for node in self.walk() for atom in node.atoms)

    @property
    def shows(self) -> Variables:
        """The free variables here and below."""
        return frozenset(v for node in self.walk() if node.free for v in node.variables)


@dataclass(frozen=True)
class Tree:
    """A view with the trees whose rows extend its rows; without any, it has all free variables."""

    root: View
    below: tuple[Tree, ...] = ()

    @property
    def frontier(self) -> tuple[View, ...]:
        """The views whose join is what the tree stands for."""
        if not self.below:
            return (self.root,)
        return tuple(view for tree in self.below for view in tree.frontier)

    @property
    def guides(self) -> tuple[View, ...]:
        """The views that say for which values there are rows below."""
        own = (self.root,) if self.below and not self.is_heavy else ()
        return (*own, *(view for tree in self.below for view in tree.guides))

    @property
    def is_heavy(self) -> bool:
        """Whether the root is a view over heavy values, which are no free variables."""
        return any(tree.root.indicator for tree in self.below)


@dataclass(frozen=True)
class Division:
    """Values of a bound variable, and of those above it, that are heavy or light."""

    split: Split
    heavy: View
    """The indicator."""
    light: View
    """What the light ones give."""


@dataclass(frozen=True)
class UnionPlan:
    """A query as a union: what is divided, and the trees of each summand."""

    order: Forest
    divisions: tuple[Division, ...]
    """Upper ones first."""
    unions: tuple[tuple[Tree, ...], ...]
    """For each summand the trees whose product it is."""
    guarantee: Guarantee
    static: frozenset[str]
    """The atoms that do not change."""
    variables: tuple[str, ...]
    """The free ones, upper ones first: every tree has its rows in this order."""

    @cached_property
    def shown(self) -> frozenset[View]:
        """The views that the content is computed from."""
        return frozenset(v for trees in self.unions for tree in trees for v in tree.frontier)

    @cached_property
    def guides(self) -> frozenset[View]:
        """The views that say for which values there are rows."""
        return frozenset(v for trees in self.unions for tree in trees for v in tree.guides)

    @cached_property
    def views(self) -> tuple[View, ...]:
        """All that are to be kept, lower ones first."""
        result: dict[View, None] = {}
        for view in sorted(self.shown | self.guides, key=lambda view: view.label):
            result.update(dict.fromkeys(reversed(list(view.walk()))))
        return tuple(result)

    @cached_property
    def stored(self) -> frozenset[View]:
        """Those that something looks into: the content, or the change of a sibling."""
        light = {division.light for division in self.divisions} if self._moves else ()
        siblings = (
            child
            for view in self.views
            for child in view.children
            if len(view.children) > 1
            and (view in light or any(map(self._changes, set(view.children) - {child})))
        )
        return self.shown | self.guides | frozenset(siblings)

    @cached_property
    def _moves(self) -> bool:
        """Whether values may become heavy or light."""
        return any(frozenset(division.split.atoms) - self.static for division in self.divisions)

    def _changes(self, view: View) -> bool:
        leaves = (operator for operator in view.walk() if not operator.children)
        return any(
            self._moves if leaf.indicator else leaf.atoms[0] not in self.static for leaf in leaves
        )

    @cached_property
    def counting(self) -> frozenset[View]:
        """Those of which it only matters whether they have rows."""
        return frozenset(self.views) - {operator for view in self.shown for operator in view.walk()}


def union(
    graph: Hypergraph, epsilon: Fraction, static: frozenset[str] = frozenset()
) -> UnionPlan | Unsupported:
    """The plan of a hierarchical query, some of whose atoms may be static, or why a query has none.

    Examples 4 and 5 of the paper, and its figure 9:

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
    >>> made = union(Hypergraph.of(edges, "CDEF"), half)
    >>> for (tree,) in made.unions:
    ...     print(" ⋈ ".join(view.label for view in tree.frontier))
    ∃H_A[A] ⋈ ∃H_B[A, B] ⋈ R[A, B, D] ⋈ S[A, B, E] ⋈ T[A, C, F] ⋈ V@G(U)[A, C]
    ∃H_A[A] ⋈ V@B_l(R, S)[A, D, E] ⋈ T[A, C, F] ⋈ V@G(U)[A, C]
    V@A_l(R, S, T, U)[C, D, E, F]
    >>> str(made.guarantee.width), str(made.guarantee.delta)
    ('3', '3')

    Example 5 in static mode, and as well if R alone changes:

    >>> for static in ("RS", "S"):
    ...     made = union(Hypergraph.of({"R": "AB", "S": "B"}, "A"), half, frozenset(static))
    ...     print(drawn(made), made.guarantee.changes, made.guarantee.delta)
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
    where = ", ".join(f"{name}({', '.join(sorted(schema))})" for name, schema in graph.edges)
    if not graph.hierarchical:
        return Unsupported("the query is not hierarchical", where)
    if not graph.free:
        return Unsupported("a hierarchical query without GROUP BY has nothing to divide", where)
    order = canonical(graph)
    nodes = [_node(item, frozenset(), graph) for item in order]
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
    while len(order.below) == 1 and _alike(order, order.below[0], graph):
        order = order.below[0]
        variables.append(order.variable)
    keys = above | frozenset(variables)
    return Node(
        tuple(variables),
        order.variable in graph.free,
        tuple(View(schema, (name,)) for name, schema in graph.edges if schema == keys),
        tuple(_node(item, keys, graph) for item in order.below),
    )


def _alike(order: Order, other: Order, graph: Hypergraph) -> bool:
    same_atoms = graph.rels[order.variable] == graph.rels[other.variable]
    return same_atoms and (order.variable in graph.free) == (other.variable in graph.free)


class _Builder:
    """Builds trees, and notes on the way what is divided."""

    def __init__(self, graph: Hypergraph, static: frozenset[str]) -> None:
        self.graph, self.static = graph, static
        self.divisions: list[Division] = []
        self.widths = Fraction(1), Fraction(0)
        """w and δ (definitions 12 and 13)."""

    def trees(self, node: Node, above: Variables) -> list[Tree]:
        """τ: the trees whose union is what is at a node and below, given what is above it."""
        if not node.shows:
            return [Tree(self._summed(node, above))]
        keys = above | frozenset(node.variables)
        if not node.free and self._is_small(node, above, keys):
            return [Tree(self._join(above | node.shows, list(self._met(node, keys)), node))]
        division = None if node.free else self._divided(node, above, keys)
        choices = [[Tree(atom)] for atom in node.atoms]
        choices += [self.trees(item, keys) for item in node.below]
        if division is None:
            return [self._guided(node, keys, combination) for combination in product(*choices)]
        heavy = Tree(division.heavy)
        return [
            *(self._guided(node, keys, (heavy, *combination)) for combination in product(*choices)),
            Tree(division.light),
        ]

    def _guided(self, node: Node, keys: Variables, below: tuple[Tree, ...]) -> Tree:
        """A view with the keys for which all trees below have rows; one tree says that itself."""
        if len(below) == 1:
            return below[0]
        return Tree(self._join(keys, [_narrowed(tree.root, keys) for tree in below], node), below)

    def _summed(self, node: Node, above: Variables) -> View:
        """FactVT (figure 4) where nothing is free: for the keys above, the sum of what is below."""
        keys = above | frozenset(node.variables)
        below = [*node.atoms, *(self._summed(item, keys) for item in node.below)]
        return self._join(above, below, node)

    def _is_small(self, node: Node, above: Variables, keys: Variables) -> bool:
        """Whether what is below is no more than one atom's rows (the query there is free-connex), and
        each change finds one row of all that it meets (figure 8, lines 5 to 7)."""
        every = frozenset[str]().union(*(view.keys for view in self._met(node, keys)))
        return any(above | node.shows <= atom.keys for atom in node.leaves) and all(
            every <= atom.keys for atom in node.leaves if atom.atoms[0] not in self.static
        )

    def _divided(self, node: Node, above: Variables, keys: Variables) -> Division:
        """What is heavy or light at a bound variable; a row that is all of a value counts for none."""
        met = list(self._met(node, keys))
        light = self._join(above | node.shows, met, node, LIGHT)
        atoms = tuple(atom.atoms[0] for atom in node.leaves if atom.keys > keys)
        heavy = View(keys, (f"H_{node.name}",), at=node.name, indicator=True)
        division = Division(Split(node.name, atoms, keys), heavy, light)
        self.divisions.append(division)
        schemas = [view.keys for view in met]
        every = light.keys.union(*schemas)
        changing = [view.keys for view in met if view.leaves - self.static]
        width, delta = self.widths
        self.widths = (
            max(width, cover(every, schemas)),
            max((delta, *(cover(every - schema, schemas) for schema in changing))),
        )
        return division

    def _met(self, node: Node, keys: Variables) -> Iterator[View]:
        """What is joined for light values: the atoms, and sums where nothing is free."""
        yield from node.atoms
        for item in node.below:
            if item.shows:
                yield from self._met(item, keys | frozenset(item.variables))
            else:
                yield self._summed(item, keys)

    def _join(self, keys: Variables, below: Sequence[View], node: Node, part: str = "") -> View:
        under = {name for view in below if not view.indicator for name in view.atoms}
        atoms = tuple(name for name, _ in self.graph.edges if name in under)
        return View(keys, atoms, tuple(below), node.name, part=part)


def _narrowed(view: View, keys: Variables) -> View:
    """A view without what is no key of its parent (figure 5, lines 5 and 6)."""
    if view.keys == keys:
        return view
    return View(keys, view.atoms, (view,), view.at)


def parents(views: Sequence[View]) -> Mapping[View, tuple[View, ...]]:
    """For each view those that join it."""
    found: dict[View, list[View]] = {view: [] for view in views}
    for view in views:
        for child in view.children:
            found[child].append(view)
    return {view: tuple(above) for view, above in found.items()}
