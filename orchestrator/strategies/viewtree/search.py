"""Search for a good variable order (papers/fivm.txt, section 4), and the cost of an order.

The cost of a view is an exponent of the size of the data: of the tuples that a change of one tuple may
add to the join at a variable, and of the tuples in the join.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType

from orchestrator.algebra.unsupported import NotModelledError
from orchestrator.errors import UsageError
from orchestrator.strategies.viewtree.hypergraph import (
    Constraints,
    Hypergraph,
    Variables,
    closure,
)
from orchestrator.strategies.viewtree.orders import (
    Forest,
    Order,
    canonical,
    check,
    is_top,
    parsed,
    paths,
)
from orchestrator.strategies.viewtree.tree import View, composed, nu
from orchestrator.strategies.viewtree.widths import cover

MOST_VARIABLES = 200
"""The maximum number of variables of a tree, because a tree may be as deep as it has variables."""

_ALL = 10
"""The maximum number of variables of a component that is searched exhaustively."""

_DIVISIONS = 3
"""The number of divisions that are tried for larger components."""

_MOST_PARTS = 500
"""After so many parts of a query, only the most even division of a larger component is tried."""

NO_CONSTRAINTS = Constraints()

NO_FREQUENCIES: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, order=True)
class Cost:
    """The exponents for changes of all atoms and for the joins, both in descending order."""

    changes: tuple[Fraction, ...] = ()
    joins: tuple[Fraction, ...] = ()
    expected: float = 0.0
    """The exponents of changes in proportion to their number, which decides between equal exponents."""

    def __add__(self, other: Cost) -> Cost:
        """Return the costs of two trees side by side."""
        return Cost(
            tuple(sorted(self.changes + other.changes, reverse=True)),
            tuple(sorted(self.joins + other.joins, reverse=True)),
            self.expected + other.expected,
        )

    @property
    def update(self) -> Fraction:
        """The exponent of the time of a change of one tuple."""
        return max(self.changes, default=Fraction(0))

    @property
    def width(self) -> Fraction:
        """The exponent of the time of the first computation: the factorization width of the order."""
        return max(self.joins, default=Fraction(0))


def cost_of_join(
    variables: Variables,
    changed: Iterable[tuple[str, Variables]],
    graph: Hypergraph,
    atoms: Collection[str],
    constraints: Constraints,
    frequencies: Mapping[str, float] = NO_FREQUENCIES,
) -> Cost:
    """Return the cost of one view over some atoms; `changed` are atoms, each with the variables that a row binds.

    A row also binds the variables that its own variables determine, by keys of these atoms. `frequencies` are
    the shares of the atoms in all changes.
    """
    schemas = [constraints.closure(graph.schemas[name], atoms) for name in sorted(atoms)]
    changes = [
        (cover(variables - constraints.closure(schema, atoms), schemas), frequencies.get(name, 0.0))
        for name, schema in changed
    ]
    return Cost(
        tuple(sorted((change for change, _ in changes if change), reverse=True)),
        (cover(variables, schemas),) if variables else (),
        sum(float(change) * frequency for change, frequency in changes),
    )


def cost(tree: View, graph: Hypergraph, constraints: Constraints = NO_CONSTRAINTS) -> Cost:
    """Return the cost of a view tree.

    >>> from orchestrator.strategies.viewtree.orders import parsed
    >>> from orchestrator.strategies.viewtree.tree import composed, tau, with_indicators
    >>> graph = Hypergraph.of({"R": "AB", "S": "ACE", "T": "CD"})
    >>> linear = cost(composed(tau(parsed("A - { B, C - { D, E } }"), graph)), graph)
    >>> str(linear.update), str(linear.width)  # linear for T, as example 9 has it
    ('1', '1')

    Keys of W match the values of A and B. So the reduct is q-hierarchical, and a change of P or Q is a lookup.
    But a new row of W meets all C that its A and B have in common:

    >>> from orchestrator.strategies.viewtree.hypergraph import Fd
    >>> graph = Hypergraph.of({"P": "AC", "Q": "BC", "W": "AB"})
    >>> matching = Constraints((Fd.of("W", "A", "B"), Fd.of("W", "B", "A")))
    >>> tree = with_indicators(composed(tau(parsed("A - B - C"), graph)), graph)
    >>> graph.reduct(matching.fds).q_hierarchical, str(cost(tree, graph, matching).update)
    (True, '1')
    """
    total = Cost()
    for view in tree.walk():
        # Readers join the trees of a fracture at the inputs' values; no change does.
        if view.children and not (graph.inputs and view.at is None):
            changed = [
                (name, leaf.keys if leaf.indicator else graph.schemas[name])
                for child in view.children
                for leaf in child.walk()
                for name in leaf.atoms[: not leaf.children]
                if not meets_nothing(name, child, view.children, constraints)
            ]
            total += cost_of_join(view.joined, changed, graph, view.leaves, constraints)
    return total


def joined_after(
    start: View, children: Collection[View], constraints: Constraints
) -> Iterator[tuple[View, bool]]:
    """Yield the views that a change of one view joins, in order, each with whether it has at most one row.

    The order is that of `Views.joined`.
    """
    bound, rest = start.keys, [view for view in children if view is not start]

    def is_found(view: View) -> bool:
        return view.keys <= constraints.closure(view.keys & bound, view.leaves)

    while rest:
        following = max(rest, key=lambda view: (is_found(view), len(view.keys & bound)))
        rest.remove(following)
        yield following, is_found(following)
        bound |= following.keys


def meets_nothing(
    atom: str, start: View, children: Collection[View], constraints: Constraints
) -> bool:
    """Return whether a change of an atom below one view has no partner, and lookups in other views tell so."""
    if atom not in constraints.static | constraints.unaltered:
        return False
    seen = start.leaves
    for view, is_found in joined_after(start, children, constraints):
        if constraints.matches_nothing(atom, seen):
            return True
        seen |= view.leaves
        if not is_found and not constraints.matches_nothing(atom, seen):
            return False
    return constraints.matches_nothing(atom, seen)


def delay(forest: Forest, graph: Hypergraph, constraints: Constraints = NO_CONSTRAINTS) -> Fraction:
    """Return the exponent of the rows that a lookup by the inputs may read before the next row of the result.

    These rows have values of variables above an input that lead to no row of the result.

    >>> from orchestrator.strategies.viewtree.orders import parsed
    >>> asked = Hypergraph.of({"R": "AB", "S": "BC"}, "ABC", "A")
    >>> [str(delay(parsed(order), asked)) for order in ("A - B - C", "B - { A, C }")]
    ['0', '1']
    """
    above = {name for path in paths(forest) if path[-1] in graph.inputs for name in path}
    wide = graph.reduct(constraints.fds)
    known = closure(graph.inputs, constraints.fds)
    return cover(frozenset(above) - known, (schema for _, schema in wide.edges))


def space(
    views: Iterable[View], graph: Hypergraph, constraints: Constraints = NO_CONSTRAINTS
) -> Fraction:
    """Return the exponent of the rows that views hold."""
    wide = graph.reduct(constraints.fds)
    sizes = (cover(v.keys, (wide.schemas[name] for name in v.leaves)) for v in views)
    return max(sizes, default=Fraction(0))


def chosen(
    graph: Hypergraph,
    constraints: Constraints,
    wanted: str | None,
    free_top: bool,
    frequencies: Mapping[str, float] = NO_FREQUENCIES,
) -> Forest:
    """Return the variable order that the user requests, or else the best."""
    if len(graph.variables) > MOST_VARIABLES:
        raise NotModelledError(
            f"variables are not ordered in trees of more than {MOST_VARIABLES}",
            f"{len(graph.variables)} variables",
        )
    if wanted is not None:
        forest = parsed(wanted)
        check(forest, graph)
        if free_top and not is_top(graph.free, forest):
            raise UsageError(
                "In the variable order of a factorized result, no variable that the view leaves out may"
                " be above one that it shows."
            )
        return forest
    without = best(graph, constraints, free_top, frequencies)
    if not graph.inputs:
        return without

    def exponents(forest: Forest) -> tuple[Fraction, Fraction]:
        tree_cost = cost(composed(nu(forest, graph)), graph, constraints)
        return tree_cost.update, tree_cost.width

    # Lookups that read rows in vain cost less than changes that read them, or than storing them.
    return min(
        best(graph, constraints, free_top, frequencies, input_top=True), without, key=exponents
    )


def best(
    graph: Hypergraph,
    constraints: Constraints = NO_CONSTRAINTS,
    free_top: bool = False,
    frequencies: Mapping[str, float] = NO_FREQUENCIES,
    input_top: bool = False,
) -> Forest:
    """Return a variable order of least cost: the canonical order of a q-hierarchical query, else by search.

    With `free_top`, no bound variable is above a free variable, and the result is stored factorized. With
    `input_top`, no other variable is above an input, so that a lookup by the inputs reads no row in vain.

    >>> from orchestrator.strategies.viewtree.orders import written
    >>> path = {"R": "AB", "S": "BC", "T": "CD", "U": "DE"}
    >>> written(best(Hypergraph.of(path)))
    'C - { B - A, D - E }'
    >>> pair = Hypergraph.of({"R": "AB", "S": "BC"}, "AC")
    >>> written(best(pair)), written(best(pair, free_top=True))
    ('B - { A, C }', 'A - C - B')
    >>> asked = Hypergraph.of({"R": "AB", "S": "BC"}, "ABC", "A")
    >>> written(best(asked, free_top=True)), written(best(asked, free_top=True, input_top=True))
    ('B - { A, C }', 'A - B - C')

    Changes that do not happen cost nothing:

    >>> linear = Hypergraph.of({"R": "A", "S": "AB", "T": "B"})
    >>> for static in "RT":
    ...     written(best(linear, Constraints(static=frozenset(static))))
    'B - A'
    'A - B'

    Between orders of equal cost, the atoms that change most often cost least:

    >>> written(best(linear, frequencies={"R": 0.9, "T": 0.1}))
    'A - B'
    >>> written(best(linear, frequencies={"R": 0.1, "T": 0.9}))
    'B - A'
    """
    if graph.q_hierarchical and (graph.input_dominant or not input_top):
        return canonical(graph)
    tops = [graph.inputs] * input_top + [graph.free] * free_top
    reduct = graph.reduct(constraints.fds)
    if len(graph.variables) > _ALL and reduct.q_hierarchical:
        order = canonical(reduct)
        if all(is_top(top, order) for top in tops):
            return order
    results: dict[Variables, tuple[Cost, Order]] = {}

    def best_order(part: Variables) -> tuple[Cost, Order]:
        if part not in results:
            results[part] = min(
                (rooted(name, part) for name in candidates(part)), key=lambda result: result[0]
            )
        return results[part]

    def candidates(part: Variables) -> list[str]:
        names = next((part & top for top in tops if part & top), part)
        ranked = sorted(names, key=lambda v: (v not in graph.free, -len(graph.rels[v]), v))
        if len(part) <= _ALL:
            return ranked
        rests = {v: graph.components(part - {v}) for v in ranked}
        # Prefer the most even divisions: they need few levels.
        divides = sorted(
            (v for v in ranked if len(rests[v]) > 1), key=lambda v: max(map(len, rests[v]))
        )
        # In a path, prefer a variable next to the joined ones: this gives the left-deep orders.
        near = [v for v in ranked if graph.neighbours(frozenset({v})) - part]
        tried = list(dict.fromkeys([*divides[:_DIVISIONS], *near[:1]])) or ranked[:1]
        return tried if len(results) < _MOST_PARTS else tried[:1]

    def rooted(name: str, part: Variables) -> tuple[Cost, Order]:
        bag = {name} | graph.neighbours(part)
        if not free_top:
            bag |= part & graph.free
        atoms = [atom for atom, schema in graph.edges if schema & part]
        changed = [
            (atom, graph.schemas[atom])
            for atom in atoms
            if not constraints.matches_nothing(atom, atoms)
        ]
        own = Cost()
        if len(atoms) > 1:
            own = cost_of_join(frozenset(bag), changed, graph, atoms, constraints, frequencies)
        below = []
        for rest in graph.components(part - {name}):
            cost_of_rest, order = best_order(rest)
            own += cost_of_rest
            below.append(order)
        return own, Order(name, tuple(below))

    return tuple(best_order(part)[1] for part in graph.components(graph.variables))
