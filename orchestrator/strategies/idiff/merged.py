"""The stored content merged with pending changes: what a read shows with `maintain = on_read`.

A refresh runs statements; a read is a single query, which PostgreSQL evaluates in one snapshot. The query
is built from the same rules: `change` returns the change of a result as a bag of signed rows, here over the
images that are pending in the logs. Three forms merge this bag with the content:

- Groups with added aggregates: the parts of stored and of changed groups are added up by group, and groups
  without rows are left out. Selections and projections above the groups are evaluated over the sums.
- Rows with IDs: stored rows without those that the net change deletes, and the rows that it inserts.
- Bags: the same, for numbered copies of equal rows.

The keys of groups and rows are plain columns of each part, so PostgreSQL applies a reader's conditions on
them to the content and to the logs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from orchestrator.algebra.columns import Column
from orchestrator.algebra.ids import ids_of
from orchestrator.algebra.operators.antisemijoin import Antisemijoin
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.dependent_join import DependentJoin
from orchestrator.algebra.operators.distinct import Distinct
from orchestrator.algebra.operators.function_scan import FunctionScan
from orchestrator.algebra.operators.group import Aggregate, Grouping
from orchestrator.algebra.operators.numbered import Numbered
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.operators.scan import Scan
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.operators.set_operation import Branch
from orchestrator.algebra.operators.union_all import UnionAll
from orchestrator.algebra.scalar import Scalar, conjunction, filled
from orchestrator.algebra.traversal import walk
from orchestrator.algebra.unsupported import NotModelledError, Unsupported
from orchestrator.deltascript.leaves import DiffScan, PendingScan, StateScan
from orchestrator.deltascript.plan import CONTENT, Merged
from orchestrator.deltascript.plan import Column as ShownColumn
from orchestrator.engine.composer import Composer
from orchestrator.engine.diffs import Bag
from orchestrator.engine.distinguishable import look_alike, refuse_arrays
from orchestrator.engine.terms import projected, renamed, same
from orchestrator.strategies.idiff.bags import unnumbered
from orchestrator.strategies.idiff.failing import fails_above_a_join, may_fail
from orchestrator.strategies.idiff.rules.base import bag
from orchestrator.strategies.idiff.rules.grouping import Groups

MOST_JOINED = 6
"""The most tables of a query whose pending changes a read merges: each may have changed, and the query has a
part for each combination."""


class _Reader(Composer):
    """Composes a single query: what a script would hold in a variable is a part of the query."""

    def __init__(self, script: Composer) -> None:
        """Share the names and types of a script's composer."""
        super().__init__(
            tuple(script.sources.values()), script.symbols, script.types, script.static, None, False
        )
        self.key: tuple[Column, ...] = ()
        """The columns that identify the groups or rows of the view."""

    def held(self, wanted: str, bag: Bag) -> Bag:
        """Return the bag itself."""
        return bag

    def assign_apart(self, wanted: str, *_: object, **__: object) -> tuple[DiffScan, ...]:
        """Reject a change that takes several statements."""
        raise NotModelledError("the change of the view takes several statements", wanted)


def merged(
    root: Operator,
    visible: Sequence[Column],
    script: Composer,
    columns: Sequence[ShownColumn],
) -> Merged | Unsupported:
    """Return the query that merges the content with pending changes, or why there is none.

    `script` has composed the refresh of the view; `root` is the plan of the view over captured tables,
    whose visible columns are the view's `columns`.
    """
    if not columns:
        return Unsupported("the view shows no columns", "")
    if sum(isinstance(leaf, Scan) for leaf in walk(root)) > MOST_JOINED:
        return Unsupported(f"the query reads more than {MOST_JOINED} tables", "")
    reader = _Reader(script)
    try:
        plan = _merged(root, script, reader, visible)
    except NotModelledError as error:
        return error.unsupported
    scans = [leaf for leaf in walk(plan) if isinstance(leaf, PendingScan)]
    sources = sorted({scan.oid for scan in scans})
    lookups = sorted({lookup for scan in scans for lookup in _lookups(scan, reader)})
    return Merged(reader.query(plan, visible), tuple(columns), tuple(sources), tuple(lookups))


def _lookups(scan: PendingScan, reader: _Reader) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield the columns of a table that are in the key of the groups or rows."""
    numbers = {column: int(name.removeprefix("i_")) for column, name in scan.images}
    key = [numbers[column] for column in reader.key if column in numbers]
    comparable = all(
        (known := reader.types.get(column.symbol)) is not None and known.comparable
        for column in reader.key
    )
    if key and comparable:
        yield scan.oid, tuple(key)


def _merged(
    root: Operator, script: Composer, reader: _Reader, visible: Sequence[Column]
) -> Operator:
    content = script.scans[CONTENT]
    above: list[Operator] = []
    inner = root
    while isinstance(inner, Projection | Selection):
        above.append(inner)
        inner = inner.input
    if isinstance(inner, Grouping | Distinct):
        role = next((r for r, g in script.groups.items() if _is_stored(g, inner)), None)
        if role is None:
            raise NotModelledError("an aggregate of the query cannot be added up", inner.label)
        plan = _groups(inner, script.groups[role], script.scans[role], reader)
        for operator in reversed(above):
            plan = operator.with_children((plan,))
        return plan
    stored = script.stored[CONTENT]
    if isinstance(stored, Numbered):
        return _copies(root, stored, content, reader)
    change = _change(root, reader)
    net = _net(change, root.columns, reader)
    reader.key = ids = ids_of(root)
    deleted = Selection(net.plan, filled("x < 0", x=net.sign))
    inserted = Selection(net.plan, filled("x > 0", x=net.sign))
    kept = _without(content, deleted, [(column, column) for column in ids], reader)
    return _union([kept, inserted], list(dict.fromkeys(visible)))


def _is_stored(groups: Groups, operator: Grouping | Distinct) -> bool:
    """Return whether stored groups are the result of an operator."""
    if isinstance(operator, Distinct):
        return set(groups.by) == set(operator.columns)
    return groups.by == operator.by and {item.aggregate for item in groups.added} >= set(
        operator.aggregates
    )


def _change(plan: Operator, reader: _Reader, above: Grouping | None = None) -> Bag:
    """Return the pending change of a plan, for the groups `above`.

    If an expression may fail, images that cancel are left out first.
    """
    whole = plan if above is None else above.with_children((plan,))
    if fails_above_a_join(whole):
        raise NotModelledError(
            "an expression over several tables may fail for pairs of rows that the query never computes",
            plan.label,
        )
    fails = any(may_fail(operator) for operator in walk(whole))
    for leaf in walk(plan):
        if isinstance(leaf, Scan) and leaf.table.oid not in reader.static:
            sign = Column(reader.symbols.fresh("sign"), "integer", "integer_ops", exact=True)
            scan = PendingScan.of(leaf, sign, reader.symbols)
            images = Bag(scan, sign)
            reader.bags[leaf] = (
                _single(_net(images, leaf.columns, reader), reader) if fails else images
            )
    change = bag(plan, reader)
    if change is None:
        raise NotModelledError("no table of the query changes", "")
    return change


def _groups(
    operator: Grouping | Distinct, groups: Groups, stored: StateScan, reader: _Reader
) -> Operator:
    """Return groups whose parts are the sums of stored and changed parts."""
    if groups.may_lose or groups.ordered or any(item.distinct for item in groups.added):
        raise NotModelledError("an aggregate of the query cannot be added up", operator.label)
    below = unnumbered(operator.input) or operator.input
    reader.key = groups.by
    changed = _change(below, reader, operator if isinstance(operator, Grouping) else None)
    calls = [Aggregate(groups.rows, filled("coalesce(sum(s), 0)::bigint", s=changed.sign))]
    calls += [c for item in groups.added for c in item.deltas(changed.sign, groups.rows)]
    delta = Grouping(changed.plan, groups.by, tuple(dict.fromkeys(calls)))
    parts = {column: reader.fresh(column, "") for column in groups.numbers}
    branches = [
        Branch(projected(side, (*groups.by, *parts)), (*groups.by, *parts))
        for side in (stored, delta)
    ]
    both = UnionAll(tuple(branches), (*groups.by, *parts.values()))
    sums = {column: reader.fresh(column, "") for column in groups.numbers}
    calls = [
        Aggregate(total, filled(f"sum(x)::{total.type or 'numeric'}", x=parts[column]))
        for column, total in sums.items()
    ]
    totals: Operator = Grouping(both, groups.by, tuple(calls))
    if groups.by:
        totals = Selection(totals, filled("x <> 0", x=sums[groups.rows]))
    values = {column: Scalar.column(total) for column, total in sums.items()}
    items = [Item(item.aggregate.column, item.value_of(values)) for item in groups.added]
    return Projection(totals, (*map(Item.kept, groups.by), *items))


def _net(change: Bag, columns: Sequence[Column], reader: _Reader) -> Bag:
    """Return the rows of a change that do not cancel, with their numbers of copies.

    Equal values that look different make different rows.
    """
    known = [reader.types.get(column.symbol) for column in columns]
    by = [c for c, type_ in zip(columns, known, strict=True) if type_ and type_.comparable]
    coarse = look_alike(columns, reader.types)
    plan = projected(change.plan, (*columns, change.sign))
    if coarse:
        image = Column(reader.symbols.fresh("image"), "text")
        names = {f"c{number}": column for number, column in enumerate(coarse)}
        text = filled(f"ROW({', '.join(names)})::text", **names)
        plan = Projection(plan, (*map(Item.kept, plan.columns), Item(image, text)))
        by.append(image)
    rest = [column for column in columns if column not in by]
    refuse_arrays(rest, reader.types)
    net = reader.column("net")
    calls = [Aggregate(net, filled("sum(x)", x=change.sign))]
    given = {column: reader.fresh(column, "") for column in rest}
    calls += [Aggregate(given[c], filled("(array_agg(x))[1]", x=c)) for c in rest]
    grouped = Selection(Grouping(plan, tuple(by), tuple(calls)), filled("x <> 0", x=net))
    items = [Item(c, Scalar.column(given.get(c, c))) for c in columns]
    return Bag(Projection(grouped, (*items, Item.kept(net))), net)


def _single(net: Bag, reader: _Reader) -> Bag:
    """Return net rows with a row for each copy."""
    sign = Column(reader.symbols.fresh("sign"), "integer", "integer_ops", exact=True)
    number = reader.column("copy")
    numbers = FunctionScan(
        (filled("generate_series(1, abs(x)::bigint)", x=net.sign),),
        reader.symbols.fresh("g"),
        (number,),
    )
    copies = DependentJoin(net.plan, numbers)
    kept = (column for column in net.plan.columns if column != net.sign)
    signed = Item(sign, filled("sign(x)::integer", x=net.sign))
    return Bag(Projection(copies, (*map(Item.kept, kept), signed)), sign)


def _without(
    rows: Operator,
    deleted: Operator,
    pairs: Iterable[tuple[Column, Column]],
    reader: _Reader,
    *conditions: tuple[str, Column, Column],
) -> Operator:
    """Return rows without those that another plan names by some columns."""
    named = {column: reader.fresh(column) for _, column in pairs}
    further = {column: reader.fresh(column) for _, _, column in conditions}
    other = renamed(deleted, [*named.items(), *further.items()])
    equal = same([(named[theirs], ours) for ours, theirs in pairs], rows.not_null)
    more = [filled(text, x=ours, y=further[theirs]) for text, ours, theirs in conditions]
    return Antisemijoin(rows, other, conjunction([equal, *more]))


def _copies(root: Operator, stored: Numbered, content: StateScan, reader: _Reader) -> Operator:
    """Return a bag whose equal rows are numbered."""
    rows = unnumbered(root) or root
    change = _change(projected(rows, stored.input.columns), reader)
    digested = stored.with_digest(change.plan)
    net = _net(Bag(digested, change.sign), (*stored.input.columns, stored.row), reader)
    deleted = Selection(net.plan, filled("x < 0", x=net.sign))
    inserted = Selection(net.plan, filled("x > 0", x=net.sign))
    kept = _without(
        content, deleted, [(stored.row, stored.row)], reader, ("x <= -y", stored.nth, net.sign)
    )
    number = reader.column("copy")
    numbers = FunctionScan(
        (filled("generate_series(1, x::bigint)", x=net.sign),),
        reader.symbols.fresh("g"),
        (number,),
    )
    return _union([kept, DependentJoin(inserted, numbers)], stored.input.columns)


def _union(sides: Sequence[Operator], columns: Sequence[Column]) -> Operator:
    wanted = tuple(columns)
    return UnionAll(tuple(Branch(projected(side, wanted), wanted) for side in sides), wanted)
