"""Search for a good variable order (papers/fivm.txt, section 4), and the cost of an order.

The cost of a view is an exponent of the size of the data: of the tuples that a change of one tuple may
add to the join at a variable, and of the tuples in the join.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from orchestrator.strategies.viewtree.hypergraph import Fd, Hypergraph, Variables
from orchestrator.strategies.viewtree.orders import Forest, Order, canonical
from orchestrator.strategies.viewtree.tree import View
from orchestrator.strategies.viewtree.widths import cover

_ALL = 10
"""The maximum number of variables of a component that is searched exhaustively."""

_DIVISIONS = 3
"""The number of divisions that are tried for larger components."""


@dataclass(frozen=True, order=True)
class Cost:
    """The exponents for changes of all atoms and for the joins, both in descending order."""

    changes: tuple[Fraction, ...] = ()
    joins: tuple[Fraction, ...] = ()

    def __add__(self, other: Cost) -> Cost:
        """Return the costs of two trees side by side."""
        return Cost(
            tuple(sorted(self.changes + other.changes, reverse=True)),
            tuple(sorted(self.joins + other.joins, reverse=True)),
        )

    @property
    def update(self) -> Fraction:
        """The exponent of the time of a change of one tuple."""
        return max(self.changes, default=Fraction(0))

    @property
    def width(self) -> Fraction:
        """The exponent of the time of the first computation: the factorization width of the order."""
        return max(self.joins, default=Fraction(0))


def cost_of_join(variables: Variables, atoms: Iterable[str], wide: Hypergraph) -> Cost:
    """Return the cost of one view; a change of an atom binds its variables and the variables they determine.

    `wide` is the reduct of the query's hypergraph, whose schemas include the determined variables.
    """
    schemas = [schema for _, schema in wide.edges]
    changes = (cover(variables - wide.schemas[name], schemas) for name in atoms)
    return Cost(
        tuple(sorted((change for change in changes if change), reverse=True)),
        (cover(variables, schemas),) if variables else (),
    )


def cost(tree: View, graph: Hypergraph, fds: tuple[Fd, ...] = ()) -> Cost:
    """Return the cost of a view tree.

    >>> from orchestrator.strategies.viewtree.orders import parsed
    >>> from orchestrator.strategies.viewtree.tree import composed, tau
    >>> graph = Hypergraph.of({"R": "AB", "S": "ACE", "T": "CD"})
    >>> linear = cost(composed(tau(parsed("A - { B, C - { D, E } }"), graph)), graph)
    >>> str(linear.update), str(linear.width)  # linear for T, as example 9 has it
    ('1', '1')
    """
    total, wide = Cost(), graph.reduct(fds)
    for view in tree.walk():
        if view.children:
            total += cost_of_join(view.joined, view.atoms, wide)
    return total


def best(graph: Hypergraph, fds: tuple[Fd, ...] = (), free_top: bool = False) -> Forest:
    """Return a variable order of least cost: the canonical order of a q-hierarchical query, else by search.

    With `free_top`, no bound variable is above a free variable, and the result is stored factorized.

    >>> from orchestrator.strategies.viewtree.orders import written
    >>> path = {"R": "AB", "S": "BC", "T": "CD", "U": "DE"}
    >>> written(best(Hypergraph.of(path)))
    'C - { B - A, D - E }'
    >>> pair = Hypergraph.of({"R": "AB", "S": "BC"}, "AC")
    >>> written(best(pair)), written(best(pair, free_top=True))
    ('B - { A, C }', 'A - C - B')
    """
    if graph.q_hierarchical:
        return canonical(graph)
    wide = graph.reduct(fds)
    results: dict[Variables, tuple[Cost, Order]] = {}

    def best_order(part: Variables) -> tuple[Cost, Order]:
        if part not in results:
            results[part] = min(
                (rooted(name, part) for name in candidates(part)), key=lambda result: result[0]
            )
        return results[part]

    def candidates(part: Variables) -> list[str]:
        names = part & graph.free if free_top and part & graph.free else part
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
        return list(dict.fromkeys([*divides[:_DIVISIONS], *near[:1]])) or ranked[:1]

    def rooted(name: str, part: Variables) -> tuple[Cost, Order]:
        bag = {name} | graph.neighbours(part)
        if not free_top:
            bag |= part & graph.free
        atoms = [atom for atom, schema in graph.edges if schema & part]
        own = cost_of_join(frozenset(bag), atoms, wide) if len(atoms) > 1 else Cost()
        below = []
        for rest in graph.components(part - {name}):
            cost_of_rest, order = best_order(rest)
            own += cost_of_rest
            below.append(order)
        return own, Order(name, tuple(below))

    return tuple(best_order(part)[1] for part in graph.components(graph.variables))
