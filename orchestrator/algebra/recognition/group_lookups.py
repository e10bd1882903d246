"""Left joins with keyed tables below a grouping: dropped, or done for each group."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.group import Grouping
from orchestrator.algebra.operators.left_join import LeftJoin
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.recognition.blocks import Block, Lookup
from orchestrator.algebra.scalar import Scalar
from orchestrator.algebra.unsupported import NotModelledError


def lift_lookups(rows: Operator, block: Block) -> Operator:
    """Return the groups of a block's rows, given as a grouping below projections.

    A left join finds at most one row. If nothing reads that row, the join is dropped. If only grouping
    columns read it, and other grouping columns determine it, the groups are joined instead.
    """
    if isinstance(rows, Projection):
        return replace(rows, input=lift_lookups(rows.input, block))
    assert isinstance(rows, Grouping)
    looked_up = frozenset[Column]().union(*(item.columns for item in block.lookups))
    for aggregate in rows.aggregates:
        if _read(aggregate.call, block) & looked_up:
            raise NotModelledError("an aggregate reads a left join", str(aggregate.call))
    inner = tuple(c for c in rows.by if not _read(Scalar.column(c), block) & looked_up)
    outer = {c: block.defined.get(c, Scalar.column(c)) for c in rows.by if c not in inner}
    read = frozenset(inner).union(*(aggregate.call.references for aggregate in rows.aggregates))
    grouped: Operator = Grouping(block.rows(sorted(read, key=str)), inner, rows.aggregates)
    if not outer:
        return grouped
    for item in block.lookups:
        grouped = LeftJoin(grouped, item.rows, _over_groups(item, inner, block))
    own = {column: Scalar.column(column) for column in rows.columns}
    return Projection(grouped, tuple(Item(c, outer.get(c, own[c])) for c in rows.columns))


def _read(scalar: Scalar, block: Block) -> frozenset[Column]:
    return scalar.substitute(block.defined).references


def _over_groups(item: Lookup, inner: tuple[Column, ...], block: Block) -> Scalar:
    """Return the condition of a left join over grouping columns."""
    replacements: dict[Column, Scalar] = {}
    for column in item.condition.references - item.columns:
        if column in inner:
            continue
        members = next((members for members in block.equal if column in members), {column})
        twin = next(
            (c for c in inner if block.defined.get(c, Scalar.column(c)).as_column in members), None
        )
        if twin is None:
            raise NotModelledError(
                "groups do not determine the row of a left join", item.rows.label
            )
        replacements[column] = Scalar.column(twin)
    return item.condition.substitute(replacements)
