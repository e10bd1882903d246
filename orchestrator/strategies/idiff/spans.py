"""Windows whose functions run along the order: a change recomputes a span of each affected partition.

A span begins with the first row in the order that is inserted, deleted or updated. The counts and sums
up to the span are read from the stored row before it. The span ends with the last such row if no later
row can differ: ranks stay if as many rows are inserted as deleted. It also ends there if all later rows
differ by the same amount, which one update adds (`shifts.py`). Otherwise it ends with the partition.
`lag` and `lead` extend it at both ends by the rows that they look away.

The state holds the columns of the input, so the rows of a span are read from the state, by an index on
partition and order, and not from the input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.algebra.columns import Column
from orchestrator.algebra.copies import copied
from orchestrator.algebra.dependencies import Columns
from orchestrator.algebra.ids import ids_of
from orchestrator.algebra.operators.antisemijoin import Antisemijoin
from orchestrator.algebra.operators.base import Operator, SortKey
from orchestrator.algebra.operators.dependent_join import DependentJoin
from orchestrator.algebra.operators.group import Aggregate, Grouping
from orchestrator.algebra.operators.join import Join
from orchestrator.algebra.operators.limit import Limit
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.operators.semijoin import Semijoin
from orchestrator.algebra.operators.set_operation import Branch
from orchestrator.algebra.operators.union_all import UnionAll
from orchestrator.algebra.scalar import TRUE, Scalar, conjunction, disjunction, filled
from orchestrator.deltascript.leaves import DiffScan
from orchestrator.engine.composer import Composer
from orchestrator.engine.diffs import Bag
from orchestrator.engine.distinguishable import image, look_alike
from orchestrator.engine.recompute_parts import AFTER, SPAN
from orchestrator.engine.states import Upkeep
from orchestrator.engine.terms import projected, same
from orchestrator.strategies.idiff.running import NEIGHBORS, RUNNING, Running
from orchestrator.strategies.idiff.shifts import Shift, needs_end, shift_rows_behind, shifts_of

_CLOSED, _OPEN = 10.0, 100.0
"""The expected maximum of rows in a span with an end, and in a span up to the end of its partition."""


def recompute_spans(upkeep: Upkeep, running: Running, changed: Bag) -> None:
    """Recompute the spans that a change of the input affects."""
    composer, state, operator = upkeep.composer, upkeep.state, running.operator
    below, ids = operator.input, ids_of(operator.input)
    rows = projected(changed.plan, (*below.columns, changed.sign))
    changed = composer.held("change", Bag(rows, changed.sign))
    deleted, inserted = upkeep.net(changed, below.columns)
    composer.probe(state, (*operator.partition, running.key.column))
    span = _find_spans(upkeep, running, changed)
    fresh = _recompute(upkeep, running, span, deleted, inserted)
    upkeep.delete(deleted, ids)
    upkeep.replace(fresh, ids)
    others = _without(inserted, fresh, ids, state.not_null, composer)
    upkeep.replace(others, ids, below.columns)
    if state.not_null.issuperset(ids):
        # All other rows of the span are stored.
        fresh_rows: Operator = _within(fresh, inserted, ids, composer)
    else:
        fresh_rows = fresh
    upkeep.insert(fresh_rows)
    if span.shifts:
        last = span.written[0 if running.key.descending else 1]
        shift_rows_behind(upkeep, running, span.rows, span.partition, last, span.shifts)


@dataclass(frozen=True)
class _Span:
    """Spans in a variable: for each affected partition, the range of rows to recompute."""

    rows: DiffScan
    partition: Mapping[Column, Column]
    """The columns of the partition, and their names in the variable."""
    read: tuple[Column, Column]
    """The least and the greatest key of the rows to read."""
    written: tuple[Column, Column]
    """The least and the greatest key of the rows to write; `lag` and `lead` read more rows."""
    nulls: Column
    """Whether the span includes the rows whose key is NULL."""
    there: Column
    """Whether a row precedes the span."""
    before: Mapping[Column, Column]
    """The columns with the functions' values in the preceding row."""
    shifts: tuple[Shift, ...]
    """By how much the functions of later rows move; empty if spans reach the ends of partitions."""


def _find_spans(upkeep: Upkeep, running: Running, changed: Bag) -> _Span:
    """Add the steps that find the spans and the values in the row before each span."""
    composer, operator = upkeep.composer, running.operator
    low, high = (composer.fresh(running.key.column, word) for word in ("from_", "to_"))
    nulls = composer.column("nulls")
    partition = {column: composer.fresh(column, "of_") for column in operator.partition}
    shifts = () if _may_change_twice(upkeep, running) else shifts_of(running, composer)
    changed_keys = _changed_keys(running, changed, partition, (low, high, nulls), shifts, composer)
    added = (column for shift in shifts for column in shift.columns)
    columns = (*partition.values(), low, high, nulls, *added)
    affected = composer.assign("moved", changed_keys, columns)
    composer.finds[affected.variable] = 1.0
    spans: Operator = affected
    # `lead` changes earlier rows and `lag` later rows, and both look at rows beyond these.
    written, read = [low, high], [low, high]
    for is_start, near, far in (
        (True, running.ahead, running.back),
        (False, running.back, running.ahead),
    ):
        side = 0 if is_start != running.key.descending else 1
        for count, bounds in ((near, (written, read)), (far, (read,))):
            if count:
                spans, bound = _shift_bound(
                    upkeep, running, spans, partition, read[side], count, is_start
                )
                for ends in bounds:
                    ends[side] = bound
    bounds_of = (read[0], read[1]), (written[0], written[1])
    return _read_rows_before(upkeep, running, spans, partition, *bounds_of, nulls, shifts)


def _may_change_twice(upkeep: Upkeep, running: Running) -> bool:
    """Return whether a step that moves rows could update a row again, whose changes other steps read.

    A row behind a span may have changed in columns that no function reads. Two updates of a row are right in the state,
    but an expression over both kinds of columns would be computed from either of them.
    """
    is_read = upkeep.state.role in upkeep.composer.changes
    return is_read and not set(running.operator.input.columns) <= set(running.read)


def _changed_keys(
    running: Running,
    changed: Bag,
    partition: Mapping[Column, Column],
    columns: tuple[Column, Column, Column],
    shifts: Sequence[Shift],
    composer: Composer,
) -> Operator:
    """Return the first and the last changed key of each partition, of changes that functions can see.

    It also returns by how much later rows move.
    """
    key, operator = running.key, running.operator
    coarse = look_alike(running.read, composer.types)
    looks = [Item(composer.column("image"), image(coarse))] if coarse else []
    kept = (*running.read, changed.sign)
    rows = Projection(changed.plan, (*map(Item.kept, kept), *looks))
    net = Aggregate(composer.column("net"), filled("sum(x)", x=changed.sign))
    by = (*running.read, *(item.column for item in looks))
    differ = Selection(Grouping(rows, by, (net,)), filled("x <> 0", x=net.column))
    own = [Aggregate(composer.column(n), filled(t, x=key.column)) for n, t in _OF_KEYS.items()]
    least, most, null = (call.column for call in own)
    total = Aggregate(composer.column("total"), filled("sum(x)", x=net.column))
    moves = [call for shift in shifts for call in shift.aggregates(net.column)]
    groups: Operator = Grouping(differ, operator.partition, (*own, total, *moves))
    if not operator.partition:
        groups = Selection(groups, filled("x IS NOT NULL", x=null))
    begin, end = (most, least) if key.descending else (least, most)
    first, last = running.limits[::-1] if key.descending else running.limits
    # `t = 0`: as many rows are inserted as deleted. If NULLs come last, changing them affects all later rows.
    ends = "t = 0 AND NOT n" if running.nullable and not key.nulls_first else "t = 0"
    if not running.nullable:
        starts, stops, has = "x", "x", "false"
    elif key.nulls_first:
        starts, stops, has = "CASE WHEN n THEN f ELSE x END", "coalesce(x, f)", "n"
    else:
        starts, stops, has = "coalesce(x, l)", "x", "n OR t <> 0" if running.may_end else "true"
    if not shifts:
        stops = f"CASE WHEN {ends} THEN {stops} ELSE l END" if running.may_end else "l"
    terms: dict[str, Column | Scalar] = {"t": total.column, "n": null, "f": first, "l": last}
    start, stop = _filled(starts, x=begin, **terms), _filled(stops, x=end, **terms)
    low, high = (stop, start) if key.descending else (start, stop)
    items = [Item(new, Scalar.column(old)) for old, new in partition.items()]
    values = zip(columns, (low, high, _filled(has, **terms)), strict=True)
    items += [Item(column, value) for column, value in values]
    return Projection(groups, (*items, *(Item.kept(call.column) for call in moves)))


_OF_KEYS = {"least": "min(x)", "most": "max(x)", "has_null": "bool_or(x IS NULL)"}


def _filled(text: str, **terms: Column | Scalar) -> Scalar:
    """Fill in the terms that occur in a text."""
    words = set(text.replace("(", " ").replace(")", " ").replace(",", " ").split())
    return filled(text, **{name: term for name, term in terms.items() if name in words})


def _nearest_row(
    upkeep: Upkeep,
    running: Running,
    partition: Mapping[Column, Column],
    wanted: Sequence[Column],
    bound: Column | None,
    skip: int,
    is_start: bool,
) -> tuple[Operator, dict[Column, Column]]:
    """Return the row before the start of a span, or after its end, after skipping some rows.

    Without a bound, the row is the last row whose key is NULL.
    """
    composer, state, key = upkeep.composer, upkeep.state, running.key
    order = running.operator.order
    columns = dict.fromkeys((*partition, *(sort.column for sort in order), *wanted))
    names = {column: composer.fresh(column, "near_") for column in columns}
    rows, _ = copied(projected(state, columns), composer.symbols, names)
    not_null = frozenset(names[column] for column in columns if column in state.not_null)
    parts = same(((new, names[old]) for old, new in partition.items()), not_null)
    near = names[key.column]
    if bound is None:
        place = filled("x IS NULL", x=near)
    else:
        side = ">" if is_start == key.descending else "<"
        place = filled(f"x {side} y", x=near, y=bound)
    order_of_search = [
        SortKey(names[sort.column], sort.descending != is_start, sort.nulls_first != is_start)
        for sort in order
    ]
    # Without NULLs, any index on the key has the order.
    order_of_search[0] = replace(order_of_search[0], nulls_first=order_of_search[0].descending)
    count, offset = Scalar.read("1"), Scalar.read(str(skip)) if skip else None
    nearest = Limit(
        Selection(rows, conjunction([parts, place])), tuple(order_of_search), count, offset
    )
    return nearest, names


def _shift_bound(
    upkeep: Upkeep,
    running: Running,
    spans: Operator,
    partition: Mapping[Column, Column],
    bound: Column,
    count: int,
    is_start: bool,
) -> tuple[Operator, Column]:
    """Return spans with one bound moved outwards by some rows, and the column of the new bound."""
    composer, key = upkeep.composer, running.key
    nearest, names = _nearest_row(upkeep, running, partition, (), bound, count - 1, is_start)
    joined = DependentJoin(spans, projected(nearest, [names[key.column]]), TRUE, True)
    new = composer.fresh(bound, "")
    farthest = running.limits[0 if is_start != key.descending else 1]
    value = filled("coalesce(x, y)", x=names[key.column], y=farthest)
    return Projection(joined, (*map(Item.kept, spans.columns), Item(new, value))), new


def _read_rows_before(
    upkeep: Upkeep,
    running: Running,
    spans: Operator,
    partition: Mapping[Column, Column],
    read: tuple[Column, Column],
    written: tuple[Column, Column],
    nulls: Column,
    shifts: tuple[Shift, ...],
) -> _Span:
    """Add the step that reads the functions' values in the row before each span."""
    composer, key = upkeep.composer, running.key
    functions = running.stored.functions
    wanted = [function.column for function in functions if function.function not in NEIGHBORS]
    wanted = [c for c in wanted if not _is_rank(c, functions)]
    start = read[1] if key.descending else read[0]
    bounds = [start, None] if running.nullable and key.nulls_first else [start]
    candidates: list[tuple[Column, dict[Column, Column]]] = []
    for bound in bounds:
        nearest, names = _nearest_row(upkeep, running, partition, wanted, bound, 0, True)
        there = composer.column("there")
        items = (*map(Item.kept, (names[c] for c in wanted)), Item(there, TRUE))
        condition = TRUE if bound is not None else filled("NOT x", x=nulls)
        spans = DependentJoin(spans, Projection(nearest, items), condition, True)
        candidates.append((there, names))
    exists, names = candidates[0]
    before = {column: composer.fresh(column, "before_") for column in wanted}
    values = [Item(before[c], Scalar.column(names[c])) for c in wanted]
    there = composer.column("precedes")
    is_there = filled("x IS NOT NULL", x=exists)
    if len(candidates) > 1:
        other, others = candidates[1]
        text = "CASE WHEN t THEN x ELSE y END"
        values = [Item(before[c], filled(text, t=exists, x=names[c], y=others[c])) for c in wanted]
        is_there = filled("coalesce(x, y) IS NOT NULL", x=exists, y=other)
    added = [column for shift in shifts for column in shift.columns]
    kept = dict.fromkeys((*partition.values(), *read, *written, nulls, *added))
    plan: Operator = Projection(spans, (*map(Item.kept, kept), *values, Item(there, is_there)))
    if open_ended := needs_end(shifts, before):
        side = 0 if key.descending else 1
        end = composer.fresh(read[side])
        text = "CASE WHEN c THEN l ELSE x END"
        value = filled(text, c=open_ended, l=running.limits[side], x=read[side])
        plan = Projection(plan, (*map(Item.kept, plan.columns), Item(end, value)))
        read = written = (end, read[1]) if key.descending else (read[0], end)
    rows = composer.assign(SPAN, plan, plan.columns)
    ends = bool(running.may_end or shifts)
    composer.finds[rows.variable] = _CLOSED if ends else _OPEN
    composer.spans[rows.variable] = not ends
    return _Span(rows, partition, read, written, nulls, there, before, shifts)


def _is_rank(column: Column, functions: Sequence[Aggregate]) -> bool:
    return any(function.column == column and function.function == "rank" for function in functions)


def _recompute(
    upkeep: Upkeep, running: Running, span: _Span, deleted: DiffScan, inserted: DiffScan
) -> DiffScan:
    """Add the step that computes the rows of the spans, and return its variable."""
    composer, state, operator = upkeep.composer, upkeep.state, running.operator
    below, key = operator.input, running.key.column
    ids = ids_of(below)
    low, high = span.read
    between = filled("x >= y AND x <= z", x=key, y=low, z=high)
    among_nulls = filled("x IS NULL AND n", x=key, n=span.nulls)
    stored = projected(state, below.columns)
    in_span = [between, among_nulls] if running.nullable else [between]
    parts = []
    for condition_on_key in in_span:
        # In a subquery, PostgreSQL expects a range to hold few rows and reads it by the index.
        condition = conjunction([_same_partition(span, state), condition_on_key])
        within: Operator = Limit(Selection(stored, condition), (running.key,))
        within = DependentJoin(span.rows, within)
        unchanged = _without(within, deleted, ids, state.not_null, composer)
        parts.append(_without(unchanged, inserted, ids, state.not_null, composer))
    condition = conjunction([_same_partition(span, below), disjunction(in_span)])
    parts.append(Join(span.rows, inserted, condition))
    carried = (*dict.fromkeys((*span.written, span.nulls, span.there, *span.before.values())),)
    wide = (*below.columns, *carried)
    rows = UnionAll(tuple(Branch(projected(part, wide), wide) for part in parts), wide)
    functions = running.stored.functions
    own = {function.column: composer.fresh(function.column, "span_") for function in functions}
    window = replace(
        running.stored,
        input=rows,
        functions=tuple(replace(function, column=own[function.column]) for function in functions),
    )
    items = [Item(function.column, _value(function, own, span, running)) for function in functions]
    plan: Operator = window
    if span.written != span.read:
        low, high = span.written
        plan = Selection(window, filled("x >= y AND x <= z", x=key, y=low, z=high))
    plan = Projection(plan, (*map(Item.kept, below.columns), *items))
    needs = (span.rows.variable,)
    return composer.assign(f"{state.role}{AFTER}", plan, state.columns, needs)


def _same_partition(span: _Span, rows: Operator) -> Scalar:
    """Return the condition that a row is in the partition of a span."""
    return same(((new, old) for old, new in span.partition.items()), rows.not_null)


def _without(
    rows: Operator,
    others: DiffScan,
    ids: Sequence[Column],
    not_null: Columns,
    composer: Composer,
) -> Operator:
    """Return the rows whose IDs do not occur in `others`."""
    return Antisemijoin(rows, *_matching(others, ids, not_null, composer))


def _within(
    rows: Operator, others: DiffScan, ids: Sequence[Column], composer: Composer
) -> Operator:
    """Return the rows whose IDs, which are never NULL, occur in `others`."""
    return Semijoin(rows, *_matching(others, ids, frozenset(ids), composer))


def _matching(
    others: DiffScan, ids: Sequence[Column], not_null: Columns, composer: Composer
) -> tuple[Operator, Scalar]:
    """Return the IDs in `others`, and the condition that rows have them."""
    names = {column: composer.fresh(column) for column in ids}
    fields = dict(others.outputs)
    # A projection would count as rows that the join looks up.
    keys = replace(
        others,
        outputs=tuple((column, fields[column]) for column in ids),
        known_not_null=others.known_not_null & set(ids),
    )
    named, _ = copied(keys, composer.symbols, names)
    return named, same(((new, old) for old, new in names.items()), not_null)


def _value(
    function: Aggregate, own: Mapping[Column, Column], span: _Span, running: Running
) -> Scalar:
    """Return the value of a function in a row, from the span and the row before it."""
    inner = own[function.column]
    if function.function in NEIGHBORS:
        return Scalar.column(inner)
    counted = function.column
    if function.function == "rank":
        assert running.upto is not None
        counted = running.upto.column
    terms = {"b": span.before[counted], "w": inner, "t": span.there}
    return _filled(RUNNING[function.function], **terms)
