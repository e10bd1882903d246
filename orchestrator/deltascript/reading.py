"""Statements that read net changes from the logs into variables (step `ReadChanges`).

A log is read column by column, and only the columns that the view uses. Usually each key has a
single pending change, which is its net change, so that nothing is grouped or joined. A source with
keys that have several pending changes is read again, through its function of net changes. Values
are compared only in the columns that the view reads, because changes of other columns do not
matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from psycopg.sql import SQL, Composable, Composed, Literal
from sqlglot import exp

from orchestrator.algebra import dialect
from orchestrator.algebra.dialect import Tree, reference
from orchestrator.deltascript import sizes
from orchestrator.deltascript.capture.images import differ
from orchestrator.deltascript.names import Names, SourceNames
from orchestrator.deltascript.notation import comment
from orchestrator.deltascript.plan import (
    ChangeClass,
    ChangeKind,
    Program,
    ReadChanges,
    Source,
    SourceColumn,
)
from orchestrator.deltascript.query import bare_text, stored
from orchestrator.deltascript.writer import WIDTH, Code, Lines, dotted, filled, listed, name, when

_OUTER, _INNER = 112, 108
"""Width of the lines that read a log first, and of those that read it again, without indentation."""


def fields(step: ReadChanges, names: Names) -> Composed:
    """Return the fields of a source's diffs, with their collations and with types without
    constraints.
    """
    if not step.fields:
        return SQL("NULL::boolean AS present").format()
    types = {column.attnum: column.plain_type for column in step.source.columns}
    source = names.sources[step.source.oid]
    view = dotted("idivm_def", f"s{source.id}")
    return listed(
        SQL("(NULL::{}).{}::{} AS {}").format(
            view, name(source.columns[attnum]), SQL(types[attnum]), name(f"{side}_{field}")
        )
        for side in ("old", "new")
        for attnum, field in step.fields
    )


def read_logs(program: Program, names: Names) -> Code:
    """Return the statements that read the logs of all sources, and request a recomputation if
    necessary.
    """
    steps = {step.source: step for step in program.script if isinstance(step, ReadChanges)}
    code: Lines = []
    code += when(SQL("NOT rebuild AND since.own_xid = own"), [SQL("marks := since.own_marks;")])
    for source in program.sources:
        code += _read_log(program, source, steps.get(source), names)
    return code


def _read_log(program: Program, source: Source, step: ReadChanges | None, names: Names) -> Code:
    """Return code that reads the log of a source; without a step, it only checks whether the log
    has changes.

    Most tables rarely change, so an empty log is detected without a query.
    """
    known = names.sources[source.oid]
    read = step is not None and bool(step.classes)
    # The table may have lost its key since the plan was made, or received one.
    keyed = read and source.keyed and bool(known.key)
    unread = SQL("c.op <> 'I'") if step is not None and step.growing else _TRUNCATION
    counted = _into(_counts(unread), [SQL("FROM {};").format(_pending(known))])
    code = [
        *(_by_key(step, known, names) if step is not None and keyed else counted),
        SQL("pending := pending + taken; rebuild := coalesce(truncated, false);"),
        *when(
            SQL("last IS NOT NULL"),
            [
                SQL("marks := coalesce(marks, '{{}}') || jsonb_build_object({}, last);").format(
                    Literal(known.id)
                )
            ],
        ),
    ]
    if step is not None and not keyed:
        code += when(SQL("taken > 0 AND NOT rebuild"), _by_content(step, known, names))
    lines: Lines = []
    if step is not None:
        lines += map(SQL, comment(step.notation))
    segments = [Literal(f"idivm_log.s{known.id}{suffix}") for suffix in ("_a", "_b")]
    lines.append(SQL("bytes := idivm.log_bytes({}, {});").format(*segments))
    if step is not None and not program.by_lookups:
        more = _has_more(program, step, known, names)
        lines += when(SQL("bytes > {}").format(Literal(sizes.LONG_LOG)), more)
    return [*lines, *when(SQL("bytes > 0 AND NOT rebuild"), code)]


def _has_more(program: Program, step: ReadChanges, source: SourceNames, names: Names) -> Code:
    """Return code that requests a recomputation if it is faster than applying the log.

    It decides before any row of the log is read.
    """
    costs = [program.cost(change.variable) for change in step.classes]
    accesses = [cost.least if cost else 1.0 for cost in costs]
    # The kinds of the pending changes are not known yet.
    least = 0.0 if step.source.oid in program.applied else round(min(accesses, default=0.0), 1)
    more = SQL("rebuild := rebuild OR idivm.log_is_too_long({}, {}, since, {});")
    return [more.format(Literal(names.id), Literal(source.id), Literal(least))]


_TRUNCATION = SQL("c.op = 'T'")


def _counts(unread: Composable, key: Composable | None = None) -> list[tuple[Composable, str]]:
    """Return the values that are computed for every log, and the variables that receive them.

    `unread` is the condition on changes that no diff holds, so that they lead to a recomputation.
    """
    counts: list[tuple[Composable, str]] = [(SQL("count(*)"), "taken")]
    if key is not None:
        counts.append((SQL("count(DISTINCT {})").format(key), "keys"))
    return [
        *counts,
        (SQL("max(c.seq) FILTER (WHERE c.xid = own)"), "last"),
        (SQL("bool_or({})").format(unread), "truncated"),
    ]


def _pending(source: SourceNames) -> Composed:
    return SQL("{}(since, floor, ceiling, consumer) AS c").format(_log(source, "_pending_changes"))


def _log(source: SourceNames, suffix: str) -> Composed:
    return dotted("idivm_log", f"s{source.id}{suffix}")


def _into(wanted: Sequence[tuple[Composable, str]], rows: Code, width: int = _OUTER) -> Lines:
    """Return code that computes values of rows `c` into variables."""
    return [
        *filled("SELECT ", (value for value, _ in wanted), width=width),
        *filled("INTO ", (name(variable) for _, variable in wanted), width=width),
        *rows,
    ]


def _with_change(
    step: ReadChanges, source: SourceNames, names: Names, rows: Composable, width: int = _OUTER
) -> Lines:
    """Return code for rows `c` with the row of the diff as an additional column."""
    values = [
        dotted("c", source.changed(side, number))
        for side in ("old", "new")
        for number, _ in step.fields
    ]
    shape = stored(names, step.shape).as_string(None)
    return [
        *filled("FROM (SELECT c.*, ROW(", values, f")::{shape} AS change", width=width),
        [SQL("FROM {}) AS c;").format(rows)],
    ]


def _collected(
    step: ReadChanges, conditions: Sequence[Sequence[Composable]], called: dict[str, str]
) -> list[tuple[Composable, str]]:
    """Return the rows of each class and the variables for them. A class without rows is NULL.

    The first condition of a class checks the kind of a change. The others are more expensive than
    the check whether the row matters to the view, and follow it.
    """
    return [
        (_collected_rows([kind, *_relevant(change, called), *further]), change.variable)
        for change, (kind, *further) in zip(step.classes, conditions, strict=True)
    ]


def _collected_rows(conditions: Sequence[Composable]) -> Composed:
    rows = SQL("array_agg(c.change) FILTER (WHERE {})")
    text = rows.format(listed(conditions, " AND "))
    is_long = len(text.as_string(None)) > WIDTH
    return rows.format(listed(conditions, f"\n{' ' * 16}AND ")) if is_long else text


def _by_content(step: ReadChanges, source: SourceNames, names: Names) -> Lines:
    net = _log(source, "_net")
    if not step.classes:
        return [SQL("rebuild := rebuild OR EXISTS (SELECT FROM {}(since));").format(net)]
    values = [
        (f"{side}_{field}", SQL("(n.{}).{}").format(SQL(side), name(source.columns[number])))
        for side in ("old", "new")
        for number, field in step.fields
    ]
    change = SQL("ROW({})::{} AS change").format(
        listed([value for _, value in values] or [SQL("true")]), stored(names, step.shape)
    )
    kind = SQL("CASE WHEN n.old IS DISTINCT FROM NULL THEN 'D' ELSE 'I' END AS op")
    columns = [SQL("{} AS {}").format(value, name(field)) for field, value in values]
    kinds = [[_KINDS[change.kind]] for change in step.classes]
    collected = _collected(step, kinds, {field: field for field, _ in values})
    return [
        *filled("SELECT ", (value for value, _ in collected)),
        *filled("INTO ", (name(variable) for _, variable in collected)),
        SQL("FROM ("),
        [
            *filled("SELECT ", [kind, change, *columns]),
            SQL("FROM {}(since) AS n CROSS JOIN generate_series(1, n.times)").format(net),
        ],
        SQL(") AS c;"),
    ]


_KINDS = {
    ChangeKind.INSERT: SQL("c.op = 'I'"),
    ChangeKind.UPDATE: SQL("c.op = 'U'"),
    ChangeKind.DELETE: SQL("c.op = 'D'"),
}


def _by_key(step: ReadChanges, source: SourceNames, names: Names) -> Lines:
    """Return the statement for keys with a single change each, and the statement for other cases."""
    in_key = [column for column in step.source.columns if column.in_key]

    def field(side: str, column: SourceColumn) -> Composed:
        return dotted("c", source.changed(side, column.attnum))

    def differing(columns: Iterable[SourceColumn]) -> Composed:
        old, new = (lambda column, side=side: field(side, column) for side in ("old", "new"))
        tests = differ(columns, old, new)
        return listed(tests) if len(tests) == 1 else SQL("({})").format(listed(tests, " OR "))

    # Keys may be equal by `=` and look different: such an update is a delete and an insert.
    coarse = [column for column in in_key if column.equality != "exact"]

    def condition(change: ChangeClass) -> list[Composable]:
        kind = _KINDS[change.kind]
        if change.kind is not ChangeKind.UPDATE:
            if not coarse:
                return [kind]
            updated = _KINDS[ChangeKind.UPDATE]
            return [SQL("({} OR {} AND {})").format(kind, updated, differing(coarse))]
        touched = (c for c in step.source.columns if c.attnum in change.touched)
        same = [SQL("NOT {}").format(differing(coarse))] if coarse else []
        return [listed([kind, *same], " AND "), differing(touched)]

    called = {
        f"{side}_{field}": source.changed(side, number)
        for side in ("old", "new")
        for number, field in step.fields
    }
    collected = _collected(step, [condition(change) for change in step.classes], called)
    key = [SQL("coalesce({}, {})").format(field("new", k), field("old", k)) for k in in_key]
    net = SQL("{}(since) AS c").format(_log(source, "_net_changes"))
    unread: Composable = _TRUNCATION
    if step.growing:
        # An update of other columns changes nothing that the view reads.
        read = {attnum for attnum, _ in step.fields}
        differs = differing(c for c in step.source.columns if c.attnum in read)
        unread = SQL("c.op IN ('D', 'T') OR c.op = 'U' AND {}").format(differs)
    return [
        *_into(
            [*collected, *_counts(unread, _distinguished(key, in_key))],
            _with_change(step, source, names, _pending(source)),
        ),
        *when(
            SQL("keys < taken AND NOT truncated"),
            _into(collected, _with_change(step, source, names, net, _INNER), _INNER),
        ),
    ]


_HASHED = frozenset(
    {
        *("smallint", "integer", "bigint", "numeric", "oid", "boolean", "bytea"),
        *("text", "character varying", "character", "real", "double precision"),
        *("uuid", "date", "timestamp", "timestamp without time zone", "timestamp with time zone"),
    }
)
"""Types with a hash function, under which equal values have equal hashes."""

_INTEGERS = {
    "smallint": "hashint2extended",
    "integer": "hashint4extended",
    "bigint": "hashint8extended",
}
"""Functions that hash integers without a row around them."""


def _distinguished(key: Sequence[Composable], columns: Sequence[SourceColumn]) -> Composable:
    """Return a value that is the same for equal keys.

    Numbers are sorted faster than rows. Different keys with the same number only lead to a closer
    look.
    """
    if len(key) == 1:
        return key[0]
    row = SQL("ROW({})").format(listed(key))
    types = [column.plain_type.partition("(")[0].strip() for column in columns]
    if all(type_ in _INTEGERS for type_ in types):
        number: Composable = SQL("0")
        for part, type_ in zip(key, types, strict=True):
            is_long = len(number.as_string(None)) > WIDTH // 3
            gap = SQL(f"\n{' ' * 20}" if is_long else " ")
            number = SQL("{}({},{}{})").format(SQL(_INTEGERS[type_]), part, gap, number)
        return number
    if all(type_ in _HASHED for type_ in types):
        return SQL("hash_record_extended({}, 0)").format(row)
    return row


def _relevant(change: ChangeClass, called: dict[str, str]) -> list[SQL]:
    """Return the condition on the rows of a class, over the columns of `c`."""
    if change.where is None:
        return []

    def field(node: Tree) -> Tree:
        return reference(called[node.name], "c") if isinstance(node, exp.Column) else node

    tree = change.where.tree.transform(field)
    return [SQL(bare_text(dialect.write(tree), within="AND"))]
