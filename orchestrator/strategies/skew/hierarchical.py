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

Keys have the same effect, and more. The order may be that of the Σ-reduct (definition 25 of papers/fivm.txt), in
which variables that a key determines belong to an atom as well. The views are then joins of the atoms as they are,
and each change must find its partners by lookups. Variables that free variables determine are treated as free.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product

from orchestrator.algebra.unsupported import NotModelledError, Unsupported
from orchestrator.strategies.skew.exponents import Guarantee, delta_width
from orchestrator.strategies.skew.partition.split import Split
from orchestrator.strategies.skew.union_plan import Division, Tree, UnionPlan
from orchestrator.strategies.viewtree.hypergraph import Constraints, Hypergraph, Variables
from orchestrator.strategies.viewtree.orders import Order, canonical
from orchestrator.strategies.viewtree.search import NO_CONSTRAINTS, joined_after, meets_nothing
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


def union(
    graph: Hypergraph, epsilon: Fraction, constraints: Constraints = NO_CONSTRAINTS
) -> UnionPlan | Unsupported:
    """Return the best plan of a query that is hierarchical, perhaps by its keys, or why it has none.

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
    ...     known = Constraints(static=frozenset(static))
    ...     plan = union(Hypergraph.of({"R": "AB", "S": "B"}, "A"), half, known)
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
    plan = _best(graph, epsilon, constraints)
    if isinstance(plan, Unsupported):
        return plan

    def rank(known: Constraints) -> object:
        other = _best(graph, epsilon, known)
        return isinstance(other, UnionPlan) and other.guarantee.rank

    known = constraints if plan.guarantee.changes else replace(constraints, static=frozenset())
    because = known.needed(rank).described
    return replace(plan, guarantee=replace(plan.guarantee, because=because))


def _best(
    graph: Hypergraph, epsilon: Fraction, constraints: Constraints
) -> UnionPlan | Unsupported:
    """Return the better of the plans over the order of the query and over the order of its reduct."""
    plain = _planned(graph, graph, epsilon, constraints)
    # Equality with a constant would join everything by a single row.
    wide = graph.reduct(fd for fd in constraints.fds if fd.determinant)
    if wide == graph:
        return plain
    reduct = _planned(graph, wide, epsilon, constraints)
    if isinstance(reduct, Unsupported):
        return plain if graph.hierarchical or not wide.hierarchical else reduct
    if isinstance(plain, Unsupported):
        return plain if graph.hierarchical else reduct
    return min(plain, reduct, key=lambda plan: plan.guarantee.rank)


def _planned(
    graph: Hypergraph, wide: Hypergraph, epsilon: Fraction, constraints: Constraints
) -> UnionPlan | Unsupported:
    """Return the plan over the canonical order of a reduct of the query."""
    atoms = ", ".join(f"{name}({', '.join(sorted(schema))})" for name, schema in graph.edges)
    if not wide.hierarchical:
        return Unsupported("the query is not hierarchical", atoms)
    if not graph.free and graph.hierarchical:
        return Unsupported("a hierarchical query without GROUP BY has nothing to divide", atoms)
    order = canonical(wide)
    if not graph.free and len(order) + sum(not schema for _, schema in wide.edges) > 1:
        return Unsupported("a product of counts is not kept in one tree", atoms)
    nodes = [_node(child, frozenset(), graph, wide) for child in order]
    builder = _Builder(graph, constraints)
    try:
        summands = [builder.trees(node, frozenset()) for node in nodes]
        summands += [
            [Tree(View(graph.schemas[name], (name,)))] for name, schema in wide.edges if not schema
        ]
        plan = UnionPlan(
            order,
            tuple(builder.divisions),
            tuple(product(*summands)),
            Guarantee(
                epsilon,
                *builder.widths,
                divided=bool(builder.divisions),
                changes=graph.schemas.keys() > constraints.static,
            ),
            constraints.static,
            tuple(
                v
                for node in nodes
                for operator in node.walk()
                if operator.free
                for v in operator.variables
            ),
        )
        builder.require_lookups(plan)
    except NotModelledError as error:
        return error.unsupported
    return plan


def _node(order: Order, above: Variables, graph: Hypergraph, wide: Hypergraph) -> Node:
    """Return a node; the atoms are placed by their schemas in the reduct, but keep their own variables."""
    variables = [order.variable]
    while len(order.below) == 1 and _same_kind(order, order.below[0], wide):
        order = order.below[0]
        variables.append(order.variable)
    keys = above | frozenset(variables)
    return Node(
        tuple(variables),
        order.variable in wide.free,
        tuple(View(graph.schemas[name], (name,)) for name, schema in wide.edges if schema == keys),
        tuple(_node(item, keys, graph, wide) for item in order.below),
    )


def _same_kind(order: Order, other: Order, graph: Hypergraph) -> bool:
    same_atoms = graph.rels[order.variable] == graph.rels[other.variable]
    return same_atoms and (order.variable in graph.free) == (other.variable in graph.free)


class _Builder:
    """Builds the trees, and collects the divisions and the widths."""

    def __init__(self, graph: Hypergraph, constraints: Constraints) -> None:
        self.graph, self.constraints = graph, constraints
        self.divisions: list[Division] = []
        self.lists: set[View] = set()
        """The views that list the join below a variable."""
        self.widths = Fraction(1), Fraction(0), Fraction(0)
        """w and δ (definitions 12 and 13), and δ for inserts and deletes alone."""

    def trees(self, node: Node, above: Variables) -> list[Tree]:
        """τ: return the trees whose union is the part of the query at a node, given the keys above."""
        if not node.shows:
            return [Tree(self._sum_out(node, above))]
        keys = above | frozenset(node.variables)
        if not node.free:
            listed = self._join(above | node.shows, list(self._light_inputs(node, keys)), node)
            if self._is_small(node, listed):
                self.lists.add(listed)
                return [Tree(listed)]
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

    def _is_small(self, node: Node, listed: View) -> bool:
        """Return whether the join below a node can be listed (figure 8, lines 5 to 7).

        It must be no larger than one atom, so that the query there is free-connex, and each changed row must
        match one row of all other atoms.
        """
        return any(
            listed.keys <= self.constraints.closure(atom.keys, listed.leaves)
            for atom in node.leaves
        ) and all(self._is_found(listed, child) for child in listed.children)

    def _is_found(self, view: View, child: View) -> bool:
        """Return whether each changed row of a child meets at most one row of the other children."""
        known = self.constraints
        return all(is_found for _, is_found in joined_after(child, view.children, known)) or all(
            meets_nothing(atom, child, view.children, known) for atom in child.leaves
        )

    def require_lookups(self, plan: UnionPlan) -> None:
        """Refuse a plan whose guarantee does not follow from its order, as a key is in another branch.

        Changes must be lookups, but for light views, and the first content must be linear.
        """
        light = {division.light for division in plan.divisions}
        for view in plan.views:
            if view in light or len(view.children) < 2:
                continue
            closures = (self.constraints.closure(v.keys, view.leaves) for v in view.children)
            small = view in self.lists or any(view.joined <= schema for schema in closures)
            for child in view.children:
                if not small or not self._is_found(view, child):
                    met = ", ".join(other.label for other in view.children if other is not child)
                    raise NotModelledError(
                        f"hierarchical by keys alone, but a row of {child.label} meets many rows",
                        met,
                    )

    def _divide(self, node: Node, above: Variables, keys: Variables) -> Division:
        """Divide the values of a bound variable; atoms with a single row for each value do not count."""
        inputs = list(self._light_inputs(node, keys))
        light = self._join(above | node.shows, inputs, node, LIGHT)
        on = keys.intersection(*(atom.keys for atom in node.leaves))
        named = on.issuperset(node.variables)
        if not named or not keys & light.joined <= self.constraints.closure(on, light.leaves):
            met = ", ".join(atom.label for atom in node.leaves)
            values = ", ".join(node.variables)
            raise NotModelledError(
                f"hierarchical by keys alone, but values of {values} are not in each table", met
            )
        known = self.constraints
        atoms = tuple(
            atom.atoms[0] for atom in node.leaves if not atom.keys <= known.closure(on, atom.atoms)
        )
        heavy = View(on, (f"H_{node.name}",), at=node.name, indicator=True)
        division = Division(Split(node.name, atoms, on), heavy, light)
        self.divisions.append(division)
        schemas = [known.closure(view.keys, light.leaves) for view in inputs]
        width, delta, come_or_go = self.widths
        self.widths = (
            max(width, cover(light.joined, schemas)),
            max(delta, delta_width(light, known)),
            max(come_or_go, delta_width(light, known.without_updates)),
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
        view = View(keys, atoms, tuple(below), node.name, part=part)
        return replace(view, keys=keys & view.joined)


def _project(view: View, keys: Variables) -> View:
    """Return a view over the keys of its parent only (figure 5, lines 5 and 6)."""
    if view.keys <= keys:
        return view
    return View(view.keys & keys, view.atoms, (view,), view.at)
