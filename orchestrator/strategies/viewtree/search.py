"""The search for a good variable order (papers/fivm.txt, section 4), and what an order costs.

The cost of a view is an exponent of the size of the data: how many tuples a change of one tuple
may add to the join at a variable, and how many the join may have.
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
"""Components up to so many variables are searched whole."""

_DIVISIONS = 3
"""Of larger ones, so many divisions are tried."""


@dataclass(frozen=True, order=True)
class Cost:
    """Exponents, the largest first, of the changes of all atoms and then of the joins."""

    changes: tuple[Fraction, ...] = ()
    joins: tuple[Fraction, ...] = ()

    def __add__(self, other: Cost) -> Cost:
        """The costs of two trees side by side."""
        return Cost(
            tuple(sorted(self.changes + other.changes, reverse=True)),
            tuple(sorted(self.joins + other.joins, reverse=True)),
        )

    @property
    def update(self) -> Fraction:
        """A change of one tuple takes time O(N^update)."""
        return max(self.changes, default=Fraction(0))

    @property
    def width(self) -> Fraction:
        """The first computation takes time O(N^width): the factorization width of the order."""
        return max(self.joins, default=Fraction(0))


def cost_of_join(variables: Variables, atoms: Iterable[str], wide: Hypergraph) -> Cost:
    """What one view costs: a change of an atom binds its variables, and what they determine.

    `wide` has these, the reduct of the query's hypergraph.
    """
    schemas = [schema for _, schema in wide.edges]
    changes = (cover(variables - wide.schemas[name], schemas) for name in atoms)
    return Cost(
        tuple(sorted((change for change in changes if change), reverse=True)),
        (cover(variables, schemas),) if variables else (),
    )


def cost(tree: View, graph: Hypergraph, fds: tuple[Fd, ...] = ()) -> Cost:
    """What a view tree costs.

    >>> from orchestrator.strategies.viewtree.orders import parsed
    >>> from orchestrator.strategies.viewtree.tree import composed, tau
    >>> graph = Hypergraph.of({"R": "AB", "S": "ACE", "T": "CD"})
    >>> found = cost(composed(tau(parsed("A - { B, C - { D, E } }"), graph)), graph)
    >>> str(found.update), str(found.width)  # linear for T, as example 9 has it
    ('1', '1')
    """
    total, wide = Cost(), graph.reduct(fds)
    for view in tree.walk():
        if view.children:
            total += cost_of_join(view.joined, view.atoms, wide)
    return total


def best(graph: Hypergraph, fds: tuple[Fd, ...] = (), free_top: bool = False) -> Forest:
    """A variable order of least cost: the canonical one of a q-hierarchical query, else searched.

    With `free_top`, no bound variable is above a free one, and the result is kept factorized.

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
    known: dict[Variables, tuple[Cost, Order]] = {}

    def found(part: Variables) -> tuple[Cost, Order]:
        if part not in known:
            known[part] = min(
                (rooted(name, part) for name in candidates(part)), key=lambda made: made[0]
            )
        return known[part]

    def candidates(part: Variables) -> list[str]:
        names = part & graph.free if free_top and part & graph.free else part
        ranked = sorted(names, key=lambda v: (v not in graph.free, -len(graph.rels[v]), v))
        if len(part) <= _ALL:
            return ranked
        rests = {v: graph.components(part - {v}) for v in ranked}
        # The most even divisions, as there are few of them below each other.
        divides = sorted(
            (v for v in ranked if len(rests[v]) > 1), key=lambda v: max(map(len, rests[v]))
        )
        # Of a path, next to what is joined already: the left-deep orders.
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
            more, order = found(rest)
            own += more
            below.append(order)
        return own, Order(name, tuple(below))

    return tuple(found(part)[1] for part in graph.components(graph.variables))
