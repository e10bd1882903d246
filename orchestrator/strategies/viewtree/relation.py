"""Relations over rings (papers/fivm.txt, section 2): rows with keys and payloads, and the ring of an aggregate."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.algebra.columns import Column
from orchestrator.algebra.dependencies import has_key
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.join import Join
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.operators.set_operation import Branch
from orchestrator.algebra.operators.union_all import UnionAll
from orchestrator.algebra.ring import MIXED, MIXED_TYPE
from orchestrator.algebra.scalar import Scalar
from orchestrator.deltascript.leaves import StateScan
from orchestrator.deltascript.plan import StateTable
from orchestrator.strategies.request import PlanningRequest
from orchestrator.strategies.viewtree import covariance, rings, sums
from orchestrator.strategies.viewtree.form import COVARIANCE, Product
from orchestrator.strategies.viewtree.sums import Payload, RingAggregate
from orchestrator.strategies.viewtree.tree import View


@dataclass(frozen=True)
class Relation:
    """Rows with keys and payloads: a view's definition, its state, or its delta."""

    rows: Operator
    keys: Mapping[str, Column]
    payload: Mapping[Payload, Column]
    exists: bool = False
    """Whether the payload counts as 1 for each key (definition 29)."""
    terms: tuple[Relation, ...] = ()
    """The summands of a delta that is a sum; each of them has a key at most once."""
    unsummed: tuple[str, Scalar] | None = None
    """For rows of an atom without grouping: the atom and the rows' signs; the rows keep all columns."""

    def at(self, rows: Operator) -> Relation:
        """Return the same relation over other rows with the same columns."""
        return replace(self, rows=rows, unsummed=None)


@dataclass(frozen=True)
class Content:
    """The state that users read: the root, and columns computed from its payloads."""

    state: StateScan
    kept: tuple[Column, ...]
    computed: tuple[Item, ...]

    def with_computed(self, rows: Operator) -> Operator:
        """Return the root's rows, or the rows of its delta, with the computed columns."""
        return Projection(rows, (*map(Item.kept, self.kept), *self.computed))


def columns_of(relation: Relation) -> tuple[Column, ...]:
    """Return the columns of keys and payloads."""
    return (*relation.keys.values(), *relation.payload.values())


def closeness(relation: Relation, bound: Collection[str]) -> tuple[bool, int]:
    """Return whether given variables determine a relation's row, and how many of them it has."""
    shared = relation.keys.keys() & set(bound)
    columns = [relation.keys[name] for name in shared]
    rows = relation.rows
    is_single = len(shared) == len(relation.keys) or has_key(rows.keys, rows.dependencies, columns)
    return is_single, len(shared)


def summed_atoms(view: View) -> tuple[str, ...]:
    """Return the atoms whose factors a view's payloads hold."""
    return () if view.indicator else view.atoms


def state_name(view: View) -> str:
    """Return the name from which the names of a view's state and delta derive."""
    name = f"at_{view.at or 'root'}" if view.children else view.name
    if view.children and view.part:
        name = f"{name}_{view.part}"
    if view.indicator:
        name = f"some_{name}"
    return name.encode()[:20].decode(errors="ignore")


def indexed(state: StateTable, probes: Iterable[frozenset[str]]) -> StateTable:
    """Return a state whose key begins with the columns of a lookup, with indexes for other lookups.

    >>> from orchestrator.deltascript.plan import Query
    >>> from orchestrator.algebra.dialect import parse as read
    >>> state = StateTable("s", (), ("a", "c"), (), Query(read("SELECT 1")))
    >>> with_indexes = indexed(state, [frozenset("c"), frozenset("ac"), frozenset("a")])
    >>> with_indexes.key, with_indexes.probes
    (('a', 'c'), (('c',),))
    """
    position = {name: number for number, name in enumerate(state.key)}
    wanted = {tuple(sorted(probe, key=position.__getitem__)) for probe in probes if probe}
    key: tuple[str, ...] = ()
    rest: list[tuple[str, ...]] = []
    for probe in sorted(wanted, key=lambda names: (len(names), [position[n] for n in names])):
        if set(key) <= set(probe):
            key += tuple(name for name in probe if name not in key)
        else:
            rest.append(probe)
    key += tuple(name for name in state.key if name not in key)
    indexes = [probe for probe in rest if set(probe) != set(key[: len(probe)])]
    return replace(state, key=key, probes=tuple(indexes))


def ring_aggregate(
    product: Product,
    leaves: Sequence[str],
    request: PlanningRequest,
    always: Callable[[Scalar], bool],
) -> RingAggregate:
    """Return the payloads of an aggregate: elements of the ring that its values belong to.

    `leaves` are the atoms of the tree in order; `always` says whether a factor is never NULL.
    """
    types, aggregate = request.types, product.aggregate
    argument = types.get(f"{aggregate.column.symbol}()")
    result = types.get(aggregate.column.symbol)
    ring = request.rings.get(aggregate.function)
    if aggregate.function == COVARIANCE and result and result.name == MIXED_TYPE:
        ring = MIXED
    if ring is not None:
        return rings.ring_aggregate(product, ring, always)
    if aggregate.function == COVARIANCE:
        return covariance.ring_aggregate(product, leaves, always)
    return sums.ring_aggregate(
        product, argument.name if argument else None, result.name if result else None, always
    )


def united(definition: Relation, terms: tuple[Relation, ...]) -> Relation:
    """Return several deltas of a view as one, in which a key may occur more than once."""
    columns = columns_of(definition)
    branches = tuple(Branch(term.rows, columns) for term in terms)
    return replace(definition, rows=UnionAll(branches, columns), terms=terms)


def scans_of(rows: Operator) -> Iterator[StateScan]:
    """Yield the states that the rows scan: a state, or the branches of a union with the same columns."""
    if isinstance(rows, StateScan):
        yield rows
    elif isinstance(rows, UnionAll):
        for branch in rows.branches:
            if branch.columns == rows.outputs:
                yield from scans_of(branch.input)


def joined_apart(left: Operator, right: Operator, condition: Scalar) -> Operator:
    """Return a join whose right side is looked up by index where it is stored.

    PostgreSQL looks up the rows of a union by index only if it can do so in each branch. A union of stored rows
    and the rows of a variable is therefore joined in two parts.
    """
    parts: list[Operator] = [right]
    if isinstance(right, UnionAll) and all(b.columns == right.outputs for b in right.branches):
        stored = tuple(b for b in right.branches if isinstance(b.input, StateScan))
        held = tuple(b for b in right.branches if b not in stored)
        if stored and held:
            parts = [
                replace(right, branches=some) if len(some) > 1 else some[0].input
                for some in (stored, held)
            ]
    joins = [Join(left, part, condition) for part in parts]
    if len(joins) == 1:
        return joins[0]
    return UnionAll(tuple(Branch(join, joins[0].columns) for join in joins), joins[0].columns)
