"""The hypergraph of a query, and the classes of queries (papers/fivm.txt, section 7).

The vertices are the variables, the hyperedges are the schemas of the atoms. A query is represented by
its hypergraph and its free variables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import TypeAlias

from orchestrator.caching import cached_property

Variables: TypeAlias = frozenset[str]
Fd: TypeAlias = tuple[Variables, Variables]
"""A functional dependency: the determinant and the determined variables."""


@dataclass(frozen=True)
class Hypergraph:
    """The atoms in order with their variables, and the free variables."""

    edges: tuple[tuple[str, Variables], ...]
    free: Variables = frozenset()

    @staticmethod
    def of(edges: Mapping[str, Iterable[str]], free: Iterable[str] = ()) -> Hypergraph:
        """Return a hypergraph from the atoms' schemas; a string stands for its letters."""
        edge_sets = tuple((name, frozenset(schema)) for name, schema in edges.items())
        return Hypergraph(edge_sets, frozenset(free))

    @cached_property
    def schemas(self) -> dict[str, Variables]:
        """The variables of every atom."""
        return dict(self.edges)

    @cached_property
    def variables(self) -> Variables:
        """All variables."""
        return frozenset[str]().union(*(schema for _, schema in self.edges))

    @cached_property
    def rels(self) -> dict[str, frozenset[str]]:
        """The atoms of each variable."""
        return {
            variable: frozenset(name for name, schema in self.edges if variable in schema)
            for variable in self.variables
        }

    def neighbours(self, part: Variables) -> Variables:
        """Return the variables outside a part that share an atom with a variable in it."""
        near = (schema for _, schema in self.edges if schema & part)
        return frozenset[str]().union(*near) - part

    def components(self, part: Variables) -> tuple[Variables, ...]:
        """Return the connected components of a part of the variables."""
        left, result = set(part), []
        while left:
            component = {min(left)}
            while True:
                neighbors = self.neighbours(frozenset(component)) & left - component
                if not neighbors:
                    break
                component |= neighbors
            left -= component
            result.append(frozenset(component))
        return tuple(result)

    @cached_property
    def acyclic(self) -> bool:
        """Whether the query has a join tree (definition 14).

        >>> Hypergraph.of({"R": "AB", "S": "ACE", "T": "CD"}).acyclic  # example 15
        True
        >>> Hypergraph.of({"R": "AB", "S": "BC", "T": "AC"}).acyclic
        False
        """
        return not any(reduced(schema for _, schema in self.edges))

    @cached_property
    def free_connex(self) -> bool:
        """Whether the query is acyclic, also with an additional atom of its free variables.

        >>> edges = {"R": "AB", "S": "ACE", "T": "CD"}  # example 15
        >>> Hypergraph.of(edges, "ABC").free_connex, Hypergraph.of(edges, "BC").free_connex
        (True, False)
        """
        schemas = [schema for _, schema in self.edges]
        return self.acyclic and not any(reduced([*schemas, self.free]))

    @cached_property
    def hierarchical(self) -> bool:
        """Whether the atoms of any two variables are disjoint or nested (definition 21).

        >>> Hypergraph.of({"R": "AB", "S": "ACE", "T": "CD"}).hierarchical  # example 22
        False
        >>> Hypergraph.of({"R": "AB", "S": "ACE", "T": "ACD"}).hierarchical
        True
        """
        return all(
            item <= other or other <= item or not item & other
            for item, other in combinations(self.rels.values(), 2)
        )

    @cached_property
    def q_hierarchical(self) -> bool:
        """Whether the query is hierarchical and each variable that is in more atoms than a free one is free.

        >>> edges = {"R": "AB", "S": "ACE", "T": "ACD"}  # example 22
        >>> Hypergraph.of(edges, "ABC").q_hierarchical, Hypergraph.of(edges, "BC").q_hierarchical
        (True, False)
        """
        return self.hierarchical and all(
            above in self.free
            for above in self.variables
            for below in self.free & self.variables
            if self.rels[above] > self.rels[below]
        )

    def reduct(self, fds: Iterable[Fd]) -> Hypergraph:
        """Return the Σ-reduct (definition 25): each schema extended by the variables that it determines.

        >>> chain = Hypergraph.of({"R": "AB", "S": "BC", "T": "CD"}, "ABCD")  # example 27
        >>> fds = [(frozenset("B"), frozenset("C")), (frozenset("C"), frozenset("D"))]
        >>> chain.q_hierarchical, chain.reduct(fds).q_hierarchical
        (False, True)
        """
        known = tuple(fds)

        def extended(schema: Variables) -> Variables:
            return closure(schema, known) & self.variables

        edges = tuple((name, extended(schema)) for name, schema in self.edges)
        return Hypergraph(edges, extended(self.free))


def closure(variables: Iterable[str], fds: Iterable[Fd]) -> Variables:
    """Return all variables that the given variables determine.

    >>> fds = [(frozenset("A"), frozenset("D")), (frozenset("BD"), frozenset("E"))]
    >>> "".join(sorted(closure("ABC", fds)))  # section 7.3
    'ABCDE'
    """
    known, left = set(variables), list(fds)
    while True:
        applied = [right for needed, right in left if needed <= known]
        if not applied:
            return frozenset(known)
        left = [fd for fd in left if not fd[0] <= known]
        known.update(*applied)


def reduced(schemas: Iterable[Variables]) -> tuple[Variables, ...]:
    """Return what the GYO reduction leaves of each hyperedge, in order; empty for an acyclic query.

    The reduction repeats two rules: remove a vertex that is in one hyperedge only, and remove a hyperedge
    that is contained in another.

    >>> ["".join(sorted(edge)) for edge in reduced(map(frozenset, ["AB", "BC", "AC", "CD"]))]
    ['AB', 'BC', 'AC', '']
    """
    edges = [set(schema) for schema in schemas]
    while True:
        before = [set(edge) for edge in edges]
        for number, edge in enumerate(edges):
            others = [other for n, other in enumerate(edges) if n != number]
            edge &= set().union(*others)
            if any(edge <= other for other in others):
                edge.clear()
        if edges == before:
            return tuple(map(frozenset, edges))
