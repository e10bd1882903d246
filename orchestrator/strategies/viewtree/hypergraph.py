"""The hypergraph of a query, and the classes of queries (papers/fivm.txt, section 7).

The vertices are the variables, the hyperedges are the schemas of the atoms. A query is represented by
its hypergraph and its free variables. If readers ask for rows by key, some free variables are inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import TypeAlias

from orchestrator.caching import cached_property

Variables: TypeAlias = frozenset[str]

MOST_NAMED = 12
"""The maximum number of tables that are named as the reason of a guarantee."""


@dataclass(frozen=True)
class Fd:
    """A functional dependency: the determinant, the determined variables, and the atom that implies it."""

    determinant: Variables
    dependent: Variables
    atom: str

    @staticmethod
    def of(atom: str, determinant: Iterable[str], dependent: Iterable[str]) -> Fd:
        """Return a dependency of an atom; a string stands for its letters."""
        return Fd(frozenset(determinant), frozenset(dependent), atom)


@dataclass(frozen=True)
class ForeignKey:
    """A foreign key between two atoms that are joined by it."""

    atom: str
    target: str
    variables: Variables


@dataclass(frozen=True)
class Constraints:
    """What is known of the atoms besides the query: their keys, and which changes cannot happen.

    A dependency holds in a join that includes its atom, and not elsewhere: other atoms with the same variables
    may contain pairs of values that this atom does not have.
    """

    fds: tuple[Fd, ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    static: frozenset[str] = frozenset()
    """The atoms that do not change."""
    unaltered: frozenset[str] = frozenset()
    """The atoms whose rows may come and go, but are never updated."""
    tables: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The names of the tables of atoms, for people."""

    def fds_of(self, atoms: Collection[str]) -> tuple[Fd, ...]:
        """Return the dependencies that hold in a join of some atoms."""
        return tuple(fd for fd in self.fds if fd.atom in atoms)

    def closure(self, variables: Iterable[str], atoms: Collection[str]) -> Variables:
        """Return all variables that some variables determine in a join of some atoms."""
        return closure(variables, self.fds_of(atoms))

    def matches_nothing(self, atom: str, atoms: Collection[str]) -> bool:
        """Return whether no change of an atom has a partner among some atoms.

        Either the atom does not change, or one of them refers to it by a foreign key: no row refers to a row
        that comes or goes.
        """
        if atom in self.static:
            return True
        return atom in self.unaltered and any(
            key.target == atom and key.atom in atoms for key in self.foreign_keys
        )

    @property
    def without_updates(self) -> Constraints:
        """The same constraints for inserts and deletes alone."""
        return replace(self, unaltered=frozenset(key.target for key in self.foreign_keys))

    def needed(self, outcome: Callable[[Constraints], object]) -> Constraints:
        """Return only the constraints that affect an outcome.

        Of many constraints of a kind, it returns all if any of them does.
        """
        result, wanted = self, outcome(self)
        kinds = (
            ([fd.atom for fd in self.fds], Constraints._without_keys),
            (sorted(self.static), Constraints._without_static),
            ([key.atom for key in self.foreign_keys], Constraints._without_references),
        )
        for names, without in kinds:
            atoms = tuple(dict.fromkeys(names))
            single = [(atom,) for atom in atoms] if len(atoms) <= MOST_NAMED else []
            for dropped in [atoms, *single]:
                less = without(result, dropped)
                if less != result and outcome(less) == wanted:
                    result = less
        return result

    def _without_keys(self, atoms: Collection[str]) -> Constraints:
        return replace(self, fds=tuple(fd for fd in self.fds if fd.atom not in atoms))

    def _without_static(self, atoms: Collection[str]) -> Constraints:
        return replace(self, static=self.static.difference(atoms))

    def _without_references(self, atoms: Collection[str]) -> Constraints:
        keys = tuple(key for key in self.foreign_keys if key.atom not in atoms)
        return replace(self, foreign_keys=keys)

    @property
    def described(self) -> str:
        """The constraints in words.

        >>> print(Constraints((Fd.of("S", "B", "C"),), static=frozenset("TU")).described)
        by keys of S, and as T and U are static
        """
        parts = []
        if keys := self._named(fd.atom for fd in self.fds):
            parts.append(f"by keys of {_listed(keys)}")
        if referring := self._named(key.atom for key in self.foreign_keys):
            parts.append(f"by foreign keys of {_listed(referring)}")
        if static := self._named(self.static):
            parts.append(f"as {_listed(static)} {'are' if len(static) > 1 else 'is'} static")
        return ", and ".join(parts)

    def _named(self, atoms: Iterable[str]) -> list[str]:
        """Return the names of the tables of some atoms, sorted."""
        return sorted({table for atom in atoms for table in self.tables.get(atom, (atom,))})


def _listed(names: list[str]) -> str:
    if len(names) > MOST_NAMED:
        return f"{len(names)} tables"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


@dataclass(frozen=True)
class Hypergraph:
    """The atoms in order with their variables, and the free variables."""

    edges: tuple[tuple[str, Variables], ...]
    free: Variables = frozenset()
    inputs: Variables = frozenset()
    """The free variables whose values readers give."""

    @staticmethod
    def of(
        edges: Mapping[str, Iterable[str]], free: Iterable[str] = (), inputs: Iterable[str] = ()
    ) -> Hypergraph:
        """Return a hypergraph from the atoms' schemas; a string stands for its letters."""
        edge_sets = tuple((name, frozenset(schema)) for name, schema in edges.items())
        return Hypergraph(edge_sets, frozenset(free), frozenset(inputs))

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
        return self.hierarchical and self._dominates(self.free)

    @cached_property
    def input_dominant(self) -> bool:
        """Whether each variable that is in more atoms than an input is an input.

        A lookup by the inputs of a q-hierarchical query then finds each next row in constant time.

        >>> Hypergraph.of({"R": "AB", "S": "BC"}, "ABC", "B").input_dominant
        True
        >>> Hypergraph.of({"R": "AB", "S": "BC"}, "ABC", "A").input_dominant
        False
        """
        return self._dominates(self.inputs)

    def _dominates(self, part: Variables) -> bool:
        """Return whether each variable that is in more atoms than a variable of the part is in the part."""
        return all(
            above in part
            for above in self.variables
            for below in part & self.variables
            if self.rels[above] > self.rels[below]
        )

    def reduct(self, fds: Iterable[Fd]) -> Hypergraph:
        """Return the Σ-reduct (definition 25): each schema extended by the variables that it determines.

        >>> chain = Hypergraph.of({"R": "AB", "S": "BC", "T": "CD"}, "ABCD")  # example 27
        >>> fds = [Fd.of("S", "B", "C"), Fd.of("T", "C", "D")]
        >>> chain.q_hierarchical, chain.reduct(fds).q_hierarchical
        (False, True)
        """
        known = tuple(fds)

        def extended(schema: Variables) -> Variables:
            return closure(schema, known) & self.variables

        edges = tuple((name, extended(schema)) for name, schema in self.edges)
        return Hypergraph(edges, extended(self.free), self.inputs)

    def fracture(self) -> dict[str, str]:
        """Return for each atom the first atom of its component in the query without the inputs.

        >>> triangle = {"R": "AB", "S": "BC", "T": "CA"}
        >>> Hypergraph.of(triangle, "ABC", "ABC").fracture()
        {'R': 'R', 'S': 'S', 'T': 'T'}
        >>> Hypergraph.of(triangle, "ABC", "AB").fracture()
        {'R': 'R', 'S': 'S', 'T': 'S'}
        """
        parts = self.components(self.variables - self.inputs)
        first: dict[Variables, str] = {}
        return {
            name: first.setdefault(
                next((part for part in parts if part & schema), frozenset({name})), name
            )
            for name, schema in self.edges
        }


def closure(variables: Iterable[str], fds: Iterable[Fd]) -> Variables:
    """Return all variables that the given variables determine.

    >>> fds = [Fd.of("R", "A", "D"), Fd.of("S", "BD", "E")]
    >>> "".join(sorted(closure("ABC", fds)))  # section 7.3
    'ABCDE'
    """
    known, left = set(variables), list(fds)
    while True:
        rest = []
        for fd in left:
            if fd.determinant <= known:
                known |= fd.dependent
            else:
                rest.append(fd)
        if len(rest) == len(left):
            return frozenset(known)
        left = rest


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
