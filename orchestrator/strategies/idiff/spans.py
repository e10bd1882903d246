"""Windows whose functions run along the order: a change recomputes a span of the rows of a partition.

The span begins with the first row in the order that comes, goes or changes. What the functions have
counted or added up before it is read from the row before, which is stored. The span ends with the last
such row if no later row can differ: ranks stay when as many rows come as go. Otherwise it ends with the
partition. `lag` and `lead` reach over its ends by as many rows as they look away.

The state holds the columns of the input, so the rows of a span are read from the state, by an index on
partition and order, and not from the input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.algebra.columns import Column
from orchestrator.algebra.copies import copied
from orchestrator.algebra.ids import ids_of
from orchestrator.algebra.operators.antisemijoin import Antisemijoin
from orchestrator.algebra.operators.base import Operator, SortKey
from orchestrator.algebra.operators.dependent_join import DependentJoin
from orchestrator.algebra.operators.group import Aggregate, Grouping
from orchestrator.algebra.operators.join import Join
from orchestrator.algebra.operators.limit import Limit
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.operators.set_operation import Branch
from orchestrator.algebra.operators.union_all import UnionAll
from orchestrator.algebra.scalar import TRUE, Scalar, conjunction, disjunction, filled
from orchestrator.deltascript.leaves import DiffScan
from orchestrator.engine.composer import Composer
from orchestrator.engine.diffs import Bag
from orchestrator.engine.distinguishable import image, look_alike
from orchestrator.engine.recompute_parts import AFTER, SPAN
from orchestrator.engine.states import Upkeep
from orchestrator.engine.terms import same, shown
from orchestrator.strategies.idiff.running import NEIGHBORS, RUNNING, Running

_CLOSED, _OPEN = 10.0, 100.0
"""The rows that a span is expected to have at most."""


def recompute_spans(upkeep: Upkeep, running: Running, changed: Bag) -> None:
    """Recompute the spans that a change of the input affects."""
    composer, state, operator = upkeep.composer, upkeep.state, running.operator
    below, ids = operator.input, ids_of(operator.input)
    rows = shown(changed.plan, (*below.columns, changed.sign))
    changed = composer.held("change", Bag(rows, changed.sign))
    goes, comes = upkeep.net(changed, below.columns)
    composer.probe(state, (*operator.partition, running.key.column))
    span = _spans(upkeep, running, changed)
    fresh = _recomputed(upkeep, running, span, goes, comes)
    upkeep.delete(goes, ids)
    upkeep.replace(fresh, ids)
    others = _without(comes, fresh, ids, composer)
    upkeep.replace(others, ids, below.columns)
    upkeep.insert(fresh)


@dataclass(frozen=True)
class _Span:
    """Spans in a variable: for each affected partition, from where to where rows are recomputed."""

    rows: DiffScan
    partition: Mapping[Column, Column]
    """The columns of the partition, and what they are called here."""
    read: tuple[Column, Column]
    """The least and the greatest key of the rows that are read."""
    written: tuple[Column, Column]
    """The same of the rows that may be written: `lag` and `lead` read more."""
    nulls: Column
    """Whether the rows with NULL as their key belong to it."""
    there: Column
    """Whether there is a row before it."""
    before: Mapping[Column, Column]
    """The values of functions in that row."""


def _spans(upkeep: Upkeep, running: Running, changed: Bag) -> _Span:
    """Add the steps that find the spans, and what is stored in the row before each of them."""
    composer, operator = upkeep.composer, running.operator
    low, high = (composer.fresh(running.key.column, word) for word in ("from_", "to_"))
    nulls = composer.column("nulls")
    partition = {column: composer.fresh(column, "of_") for column in operator.partition}
    moved = _moved(running, changed, partition, (low, high, nulls), composer)
    columns = (*partition.values(), low, high, nulls)
    affected = composer.assign("moved", moved, columns)
    composer.finds[affected.variable] = 1.0
    held: Operator = affected
    # `lead` changes in rows before, `lag` in rows behind; and each of these looks at further rows.
    written, read = [low, high], [low, high]
    for is_start, near, far in (
        (True, running.ahead, running.back),
        (False, running.back, running.ahead),
    ):
        place = 0 if is_start != running.key.descending else 1
        for count, bounds in ((near, (written, read)), (far, (read,))):
            if count:
                held, bound = _shifted(
                    upkeep, running, held, partition, read[place], count, is_start
                )
                for ends in bounds:
                    ends[place] = bound
    return _with_rows_before(
        upkeep, running, held, partition, (read[0], read[1]), (written[0], written[1]), nulls
    )


def _moved(
    running: Running,
    changed: Bag,
    partition: Mapping[Column, Column],
    columns: tuple[Column, Column, Column],
    composer: Composer,
) -> Operator:
    """Return the first and the last changed key of each partition, for changes that matter to functions."""
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
    groups: Operator = Grouping(differ, operator.partition, (*own, total))
    if not operator.partition:
        groups = Selection(groups, filled("x IS NOT NULL", x=null))
    begin, end = (most, least) if key.descending else (least, most)
    first, last = running.limits[::-1] if key.descending else running.limits
    # As many rows come as go. Where NULLs come last, a change of them affects all rows behind the first.
    ends = "t = 0 AND NOT n" if running.nullable and not key.nulls_first else "t = 0"
    if not running.nullable:
        starts, stops, has = "x", "x", "false"
    elif key.nulls_first:
        starts, stops, has = "CASE WHEN n THEN f ELSE x END", "coalesce(x, f)", "n"
    else:
        starts, stops, has = "coalesce(x, l)", "x", "n OR t <> 0" if running.may_end else "true"
    stops = f"CASE WHEN {ends} THEN {stops} ELSE l END" if running.may_end else "l"
    terms: dict[str, Column | Scalar] = {"t": total.column, "n": null, "f": first, "l": last}
    start, stop = _filled(starts, x=begin, **terms), _filled(stops, x=end, **terms)
    low, high = (stop, start) if key.descending else (start, stop)
    items = [Item(new, Scalar.column(old)) for old, new in partition.items()]
    values = zip(columns, (low, high, _filled(has, **terms)), strict=True)
    return Projection(groups, (*items, *(Item(column, value) for column, value in values)))


_OF_KEYS = {"least": "min(x)", "most": "max(x)", "has_null": "bool_or(x IS NULL)"}


def _filled(text: str, **terms: Column | Scalar) -> Scalar:
    """Fill in the terms that a text has."""
    words = set(text.replace("(", " ").replace(")", " ").replace(",", " ").split())
    return filled(text, **{name: term for name, term in terms.items() if name in words})


def _beyond(
    upkeep: Upkeep,
    running: Running,
    partition: Mapping[Column, Column],
    wanted: Sequence[Column],
    bound: Column | None,
    skip: int,
    is_start: bool,
) -> tuple[Operator, dict[Column, Column]]:
    """Return the row before the start of a span, or behind its end, with some rows between them.

    Without a bound, it is the last row with NULL as its key.
    """
    composer, state, key = upkeep.composer, upkeep.state, running.key
    order = running.operator.order
    columns = dict.fromkeys((*partition, *(sort.column for sort in order), *wanted))
    names = {column: composer.fresh(column, "near_") for column in columns}
    rows, _ = copied(shown(state, columns), composer.symbols, names)
    not_null = frozenset(names[column] for column in columns if column in state.not_null)
    parts = same(((new, names[old]) for old, new in partition.items()), not_null)
    near = names[key.column]
    if bound is None:
        place = filled("x IS NULL", x=near)
    else:
        side = ">" if is_start == key.descending else "<"
        place = filled(f"x {side} y", x=near, y=bound)
    turned = [
        SortKey(names[sort.column], sort.descending != is_start, sort.nulls_first != is_start)
        for sort in order
    ]
    # Without NULLs any index on the key gives the order.
    turned[0] = replace(turned[0], nulls_first=turned[0].descending)
    count, offset = Scalar.read("1"), Scalar.read(str(skip)) if skip else None
    nearest = Limit(Selection(rows, conjunction([parts, place])), tuple(turned), count, offset)
    return nearest, names


def _shifted(
    upkeep: Upkeep,
    running: Running,
    held: Operator,
    partition: Mapping[Column, Column],
    bound: Column,
    count: int,
    is_start: bool,
) -> tuple[Operator, Column]:
    """Return spans with a bound some rows farther, and what it is called."""
    composer, key = upkeep.composer, running.key
    nearest, names = _beyond(upkeep, running, partition, (), bound, count - 1, is_start)
    joined = DependentJoin(held, shown(nearest, [names[key.column]]), TRUE, True)
    new = composer.fresh(bound, "")
    farthest = running.limits[0 if is_start != key.descending else 1]
    value = filled("coalesce(x, y)", x=names[key.column], y=farthest)
    return Projection(joined, (*map(Item.kept, held.columns), Item(new, value))), new


def _with_rows_before(
    upkeep: Upkeep,
    running: Running,
    held: Operator,
    partition: Mapping[Column, Column],
    read: tuple[Column, Column],
    written: tuple[Column, Column],
    nulls: Column,
) -> _Span:
    """Add the step that reads the values of functions in the row before each span."""
    composer, key = upkeep.composer, running.key
    functions = running.stored.functions
    wanted = [function.column for function in functions if function.function not in NEIGHBORS]
    wanted = [c for c in wanted if not _is_rank(c, functions)]
    start = read[1] if key.descending else read[0]
    bounds = [start, None] if running.nullable and key.nulls_first else [start]
    options: list[tuple[Column, dict[Column, Column]]] = []
    for bound in bounds:
        nearest, names = _beyond(upkeep, running, partition, wanted, bound, 0, True)
        there = composer.column("there")
        items = (*map(Item.kept, (names[c] for c in wanted)), Item(there, TRUE))
        condition = TRUE if bound is not None else filled("NOT x", x=nulls)
        held = DependentJoin(held, Projection(nearest, items), condition, True)
        options.append((there, names))
    exists, names = options[0]
    before = {column: composer.fresh(column, "before_") for column in wanted}
    values = [Item(before[c], Scalar.column(names[c])) for c in wanted]
    there = composer.column("precedes")
    is_there = filled("x IS NOT NULL", x=exists)
    if len(options) > 1:
        other, others = options[1]
        text = "CASE WHEN t THEN x ELSE y END"
        values = [Item(before[c], filled(text, t=exists, x=names[c], y=others[c])) for c in wanted]
        is_there = filled("coalesce(x, y) IS NOT NULL", x=exists, y=other)
    kept = dict.fromkeys((*partition.values(), *read, *written, nulls))
    plan = Projection(held, (*map(Item.kept, kept), *values, Item(there, is_there)))
    rows = composer.assign(SPAN, plan, plan.columns)
    composer.finds[rows.variable] = _CLOSED if running.may_end else _OPEN
    return _Span(rows, partition, read, written, nulls, there, before)


def _is_rank(column: Column, functions: Sequence[Aggregate]) -> bool:
    return any(function.column == column and function.function == "rank" for function in functions)


def _recomputed(
    upkeep: Upkeep, running: Running, span: _Span, goes: DiffScan, comes: DiffScan
) -> DiffScan:
    """Add the step that computes the rows of the spans, and return where they are."""
    composer, state, operator = upkeep.composer, upkeep.state, running.operator
    below, key = operator.input, running.key.column
    ids = ids_of(below)
    low, high = span.read
    between = filled("x >= y AND x <= z", x=key, y=low, z=high)
    among_nulls = filled("x IS NULL AND n", x=key, n=span.nulls)
    stored = shown(state, below.columns)
    places = [between, among_nulls] if running.nullable else [between]
    parts = []
    for place in places:
        # In a subquery, PostgreSQL expects a range to hold few rows, and reads it by the index.
        condition = conjunction([_same_part(span, state), place])
        within = Limit(Selection(stored, condition), (running.key,))
        unchanged = _without(DependentJoin(span.rows, within), goes, ids, composer)
        parts.append(_without(unchanged, comes, ids, composer))
    condition = conjunction([_same_part(span, below), disjunction(places)])
    parts.append(Join(span.rows, comes, condition))
    carried = (*dict.fromkeys((*span.written, span.nulls, span.there, *span.before.values())),)
    wide = (*below.columns, *carried)
    rows = UnionAll(tuple(Branch(shown(part, wide), wide) for part in parts), wide)
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


def _same_part(span: _Span, rows: Operator) -> Scalar:
    """Return whether a row is in the partition of a span."""
    return same(((new, old) for old, new in span.partition.items()), rows.not_null)


def _without(
    rows: Operator, others: DiffScan, ids: Sequence[Column], composer: Composer
) -> Operator:
    """Return the rows whose IDs others do not have."""
    names = {column: composer.fresh(column) for column in ids}
    named, _ = copied(shown(others, ids), composer.symbols, names)
    return Antisemijoin(
        rows, named, same(((new, old) for old, new in names.items()), rows.not_null)
    )


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
