"""Relations over rings (papers/fivm.txt, section 2): rows with keys and payloads, and the ring of an aggregate."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.ring import MIXED, MIXED_TYPE
from orchestrator.algebra.scalar import Scalar
from orchestrator.deltascript.leaves import StateScan
from orchestrator.deltascript.plan import StateTable
from orchestrator.strategies.request import PlanningRequest
from orchestrator.strategies.viewtree import covariance, rings, sums
from orchestrator.strategies.viewtree.form import COVARIANCE, Product
from orchestrator.strategies.viewtree.sums import Kept, Payload
from orchestrator.strategies.viewtree.tree import View


@dataclass(frozen=True)
class Relation:
    """Rows with keys and payloads: a view's definition, its state, or its delta."""

    rows: Operator
    keys: Mapping[str, Column]
    payload: Mapping[Payload, Column]
    exists: bool = False
    """Whether the payloads count as 1 wherever there is a key (definition 29)."""
    terms: tuple[Relation, ...] = ()
    """Of a delta that is a sum, its parts, each of which has a key once."""
    each: tuple[str, Scalar] | None = None
    """Of an atom's rows as they are, the atom and their signs: their columns are there too."""

    def at(self, rows: Operator) -> Relation:
        """The same columns, found elsewhere."""
        return replace(self, rows=rows, each=None)


@dataclass(frozen=True)
class Content:
    """The state that users read: the root, with what is computed from its payloads."""

    state: StateScan
    kept: tuple[Column, ...]
    computed: tuple[Item, ...]

    def shown(self, rows: Operator) -> Operator:
        """The root's rows, or those of its delta, with the computed columns."""
        return Projection(rows, (*map(Item.kept, self.kept), *self.computed))


def columns_of(relation: Relation) -> tuple[Column, ...]:
    """The columns of keys and payloads."""
    return (*relation.keys.values(), *relation.payload.values())


def summed_atoms(view: View) -> tuple[str, ...]:
    """The atoms whose factors a view's payloads hold."""
    return () if view.indicator else view.atoms


def called(view: View) -> str:
    """What a view's state and delta are called after."""
    name = f"at_{view.at or 'root'}" if view.children else view.name
    if view.children and view.part:
        name = f"{name}_{view.part}"
    if view.indicator:
        name = f"some_{name}"
    return name.encode()[:20].decode(errors="ignore")


def indexed(state: StateTable, probes: Iterable[frozenset[str]]) -> StateTable:
    """A state whose key begins with what deltas look for, and indexes for what it cannot.

    >>> from orchestrator.deltascript.plan import Query
    >>> from orchestrator.algebra.dialect import parse as read
    >>> state = StateTable("s", (), ("a", "c"), (), Query(read("SELECT 1")))
    >>> made = indexed(state, [frozenset("c"), frozenset("ac"), frozenset("a")])
    >>> made.key, made.probes
    (('a', 'c'), (('c',),))
    """
    place = {name: number for number, name in enumerate(state.key)}
    wanted = {tuple(sorted(probe, key=place.__getitem__)) for probe in probes if probe}
    key: tuple[str, ...] = ()
    rest: list[tuple[str, ...]] = []
    for probe in sorted(wanted, key=lambda names: (len(names), [place[n] for n in names])):
        if set(key) <= set(probe):
            key += tuple(name for name in probe if name not in key)
        else:
            rest.append(probe)
    key += tuple(name for name in state.key if name not in key)
    found = [probe for probe in rest if set(probe) != set(key[: len(probe)])]
    return replace(state, key=key, probes=tuple(found))


def kept(
    product: Product,
    leaves: Sequence[str],
    request: PlanningRequest,
    always: Callable[[Scalar], bool],
) -> Kept:
    """Return what is stored of an aggregate: elements of the ring that it takes its values from.

    `leaves` are the atoms of the tree in order; a factor that is `always` there is never NULL.
    """
    types, aggregate = request.types, product.aggregate
    argument = types.get(f"{aggregate.column.symbol}()")
    result = types.get(aggregate.column.symbol)
    ring = request.rings.get(aggregate.function)
    if aggregate.function == COVARIANCE and result and result.name == MIXED_TYPE:
        ring = MIXED
    if ring is not None:
        return rings.kept(product, ring, always)
    if aggregate.function == COVARIANCE:
        return covariance.kept(product, leaves, always)
    return sums.kept(
        product, argument.name if argument else None, result.name if result else None, always
    )
