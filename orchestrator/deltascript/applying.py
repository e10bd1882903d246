"""Statements that apply a diff to a state and collect the changes (step `Apply`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations

from psycopg.sql import SQL, Composable, Composed, Literal

from orchestrator.deltascript import sizes
from orchestrator.deltascript.assigning import (
    has_no_nulls,
    hashed_where_several,
    switched_where_large,
)
from orchestrator.deltascript.costing import planned_for, size, switch
from orchestrator.deltascript.names import Names
from orchestrator.deltascript.nulls import (
    is_found_by_index,
    nullable_keys,
    where_any,
    where_without_nulls,
    with_nulls_in,
    with_records,
    without_nulls,
)
from orchestrator.deltascript.plan import (
    Apply,
    ChangeKind,
    Nulls,
    Program,
    StateTable,
)
from orchestrator.deltascript.query import (
    bare_text,
    order_of_rows,
    query_code,
    reads_variables_alone,
    stored,
)
from orchestrator.deltascript.writer import (
    Code,
    Lines,
    around,
    branches,
    dotted,
    filled,
    listed,
    merged,
    name,
    names,
)

GATHERING = ("enable_nestloop", "enable_mergejoin", "enable_indexscan", "enable_seqscan")
"""Settings that `idivm.gather_rows` turns off, so that one scan reads all rows that a diff names."""

_MOST_SPLIT = 2
"""A diff whose keys may be NULL in more columns is not split by the columns that are NULL."""

LOOKING_UP = ("enable_hashjoin", "enable_mergejoin", "enable_seqscan")
"""Settings that are off if many rows are merged, so that each is looked up by the key, in key order.

PostgreSQL would rather read the whole state, which costs more even if a tenth of its rows match."""


def applied(program: Program, called: Names, step: Apply) -> Code:
    """Return the statements of the step, followed by planning for the rows that it collected."""
    others = [other for other in program.script if isinstance(other, Apply)]
    last = next(other for other in reversed(others) if other.collect == step.collect)
    large = planned_for(program, step.collect) if step.collect and step is last else []
    return [*_guarded(program, called, step), *large]


def _guarded(program: Program, called: Names, step: Apply) -> Code:
    """Return the statements under the condition that there are rows to apply."""
    needed = listed((SQL("{} IS NOT NULL").format(name(need)) for need in step.needs), " OR ")
    if gathers(program, step, called):
        several = SQL("{} BETWEEN {} AND {}").format(
            _rows(step.needs), Literal(sizes.FEW + 1), Literal(sizes.SMALL)
        )
        gathered = [
            SQL("PERFORM idivm.gather_rows('off');"),
            *_statement(program, called, step, gathers=True),
            SQL("PERFORM idivm.gather_rows('on');"),
        ]
        statement = _unmerged(program, step, _statement(program, called, step))
        return branches([(several, gathered), (needed, statement)])
    code: Code = _by_keys(program, called, step)
    if step.bounded and not program.by_lookups:
        # PostgreSQL expects a third of the rows in any range.
        off, on = (switch((name, value) for name in LOOKING_UP) for value in ("off", "on"))
        code = [*off, *code, *on]
    elif looks_up(program, step):
        code = switched_where_large(
            program, step, code, [(setting, "off", "on") for setting in LOOKING_UP]
        )
    else:
        several_code = _for_several(program, called, step)
        code = hashed_where_several(program, step.query, code, several_code)
        code = _unmerged(program, step, code)
    return branches([(needed, code)]) if step.needs and not step.always else code


def _by_keys(program: Program, called: Names, step: Apply) -> Code:
    """Return the statement, or several statements if keys of the diff may be NULL."""
    code = _statement(program, called, step)
    if not _has_nullable_keys(step):
        return code
    among = _with_nulls(program, called, step, code)
    if not reads_variables_alone(step.query):
        return among
    plain = _statement(program, called, with_nulls_in(step, ()))
    return [*where_without_nulls(step, called), plain, SQL("ELSE"), among, SQL("END IF;")]


def _for_several(program: Program, called: Names, step: Apply) -> Code:
    """Return the statements for a diff that is looked up in a diff and may hold NULLs."""
    records = replace(step, query=with_records(step.query))
    simplified = without_nulls(step.query)
    if simplified is None:
        return _by_keys(program, called, records)
    plain, fields = simplified
    hashable = _by_keys(program, called, replace(step, query=plain))
    return branches([(has_no_nulls(fields, called), hashable)], _by_keys(program, called, records))


def gathers(program: Program, step: Apply, called: Names) -> bool:
    """Return whether a row of the diff matches many rows of a state, which one column can gather.

    PostgreSQL reads several pages at a time for gathered rows, but waits for each row that it looks
    up separately. Lookups by key match fewer rows, and the operating system reads ahead.
    """
    state = program.state(step.state)
    return (
        _matches_state(program, step)
        and len(step.keys) == 1
        and isinstance(state, StateTable)
        and state.key != tuple(column for column, _, _ in step.keys)
        and not _looks_twice(step, called)
    )


def _matches_state(program: Program, step: Apply) -> bool:
    """Return whether rows of variables name the rows of a state by equalities without NULLs."""
    return (
        step.kind in (ChangeKind.UPDATE, ChangeKind.DELETE)
        and not program.by_lookups
        and bool(step.needs)
        and not step.bounded
        and {nulls for _, _, nulls in step.keys} == {"none"}
        and reads_variables_alone(step.query)
    )


MERGING = (("enable_mergejoin", "off", "on"),)
"""The setting that is off if many rows of a state are updated or deleted.

PostgreSQL would read the whole state in the order of an index, and touch a page for each of its rows."""


def is_unmerged(program: Program, step: Apply) -> bool:
    """Return whether a large diff is joined with its state by hashing or by lookups.

    The rows of the state lie in the order of a column that the diff does not name rows by.
    """
    state = program.state(step.state)
    return (
        _matches_state(program, step)
        and isinstance(state, StateTable)
        and bool(state.together)
        and state.together[0] not in {column for column, _, _ in step.keys}
    )


def _unmerged(program: Program, step: Apply, code: Code) -> Code:
    if not is_unmerged(program, step):
        return code
    return switched_where_large(program, step, code, MERGING)


def looks_up(program: Program, step: Apply) -> bool:
    """Return whether merged rows are looked up by their key even if they are many.

    The rows must be in a single variable: if they are many, the statement is planned for them.
    """
    return (
        step.kind == "merge"
        and not program.by_lookups
        and len(step.needs) == 1
        and {nulls for _, _, nulls in step.keys} == {"none"}
        and reads_variables_alone(step.query)
    )


def _rows(variables: tuple[str, ...]) -> Composed:
    if len(variables) == 1:
        return SQL("cardinality({})").format(name(variables[0]))
    return size(variables)


def _statement(
    program: Program,
    called: Names,
    step: Apply,
    *,
    gathers: bool = False,
    merges: bool = False,
    null: Iterable[str] = (),
) -> Lines:
    """Return the statement, with code that counts or collects the rows that it changed.

    With `gathers`, one column gathers the rows of the state. With `merges`, columns that may be NULL
    are compared as a record. The columns in `null` must be NULL in the diff.
    """
    query: Code = query_code(step.query, called)
    ahead: list[Lines] = []
    if gathers:
        ahead = [around(SQL("diff AS MATERIALIZED ("), query, SQL(")"))]
        query = []
    else:
        query = [*query, *order_of_rows(program, step)]
    write = _merged if step.kind == "merge" else _WRITERS[step.kind]
    conditions = _conditions(step, gathers, merges)
    conditions += [SQL("{} IS NULL").format(dotted("d", column)) for column in null]
    statement = write(step, called, query, conditions)
    if step.collect is None:
        code = [*_with(ahead), *_ended(statement, ";")]
        if step.state in program.shown_states:
            code.append(SQL("GET DIAGNOSTICS applied = ROW_COUNT; changed := changed + applied;"))
        return code
    assert step.shape is not None
    old = "WITH (OLD AS b) " if _overwrites(step) and called.returns_old else ""
    values = (_collected_value(step, side, column) for side, column in step.fields)
    shape = stored(called, step.shape).as_string(None)
    returning = filled(f"RETURNING {old}ROW(", values, f")::{shape} AS change")
    return [
        *_with([*ahead, [SQL("written AS ("), merged([*statement, *returning]), SQL(")")]]),
        SQL("SELECT {} || array_agg(w.change) INTO {} FROM written AS w;").format(
            dotted(called.program, step.collect), name(step.collect)
        ),
    ]


def _with(tables: list[Lines]) -> Lines:
    """Return the common table expressions that precede a statement."""
    code: Lines = []
    for table in tables:
        (first, *inner) = table
        assert isinstance(first, Composable)
        if code:
            code = _ended(code, ",")
        head = SQL("WITH {}") if not code else SQL("{}")
        code += [head.format(first), *inner]
    return code


def _ended(code: Lines, ending: str) -> Lines:
    """Return lines with an ending after the last line."""
    *before, last = code
    if isinstance(last, Composable):
        return [*before, SQL("{}{}").format(last, SQL(ending))]
    return [*before, _ended(list(last), ending)]


def _conditions(step: Apply, gathers: bool, merges: bool) -> list[Composed]:
    """Return the conditions that match a row `t` of the state with a row `d` of the diff."""
    alone = [key for key in step.keys if not (merges and key[2] == "some")]
    conditions = [_equal(dotted("t", k), dotted("d", d), nulls) for k, d, nulls in alone]
    if merges:
        pairs = [(k, d) for k, d, nulls in step.keys if nulls == "some"]
        conditions.append(
            SQL("ROW({})::record OPERATOR(pg_catalog.=) ROW({})::record").format(
                listed(dotted("t", k) for k, _ in pairs), listed(dotted("d", d) for _, d in pairs)
            )
        )
    if gathers:
        conditions += [
            SQL("{} = ANY (ARRAY(SELECT {} FROM diff AS d))").format(dotted("t", k), dotted("d", d))
            for k, d, _ in step.keys
        ]
    if step.where:
        conditions.append(SQL("{}").format(SQL(bare_text(step.where, within="AND"))))
    return conditions or [SQL("true").format()]


def _inserted(step: Apply, called: Names, query: Code, where: list[Composed]) -> Lines:
    head = SQL("INSERT INTO {} AS t ").format(stored(called, step.state)).as_string(None)
    columns = filled(f"{head}(", names(step.columns), ")")
    *rows, last = query
    return [*columns, *rows, *merged([last, SQL("ON CONFLICT DO NOTHING")])]


def _deleted(step: Apply, called: Names, query: Code, where: list[Composed]) -> Lines:
    diff = around(SQL("USING ("), query, SQL(") AS d")) if query else [SQL("USING diff AS d")]
    head = SQL("DELETE FROM {} AS t").format(stored(called, step.state))
    return merged([head, *diff, *filled("WHERE ", where, separator=" AND ")])


def _updated(step: Apply, called: Names, query: Code, where: list[Composed]) -> Lines:
    table = stored(called, step.state)
    before: Composable = SQL("")
    ranges: Lines = []
    if step.bounded:
        # PostgreSQL does not flatten a sorted subquery, so it goes from the diff to the range by the index.
        rows = filled("WHERE ", where, separator=" AND ")
        rows = [SQL("SELECT t.ctid AS place FROM {} AS t").format(table), *rows]
        rows.append(SQL("ORDER BY {}").format(dotted("t", step.bounded)))
        ranges = around(SQL("CROSS JOIN LATERAL ("), merged(rows), SQL(") AS r"))
        where = [SQL("t.ctid = r.place").format()]
    if _looks_twice(step, called):
        # The additional scan must see the same row version.
        before = SQL("{}, {} AS b").format(before, table)
        where = [*where, SQL("b.ctid = t.ctid").format()]
    diff = around(SQL("FROM ("), query, SQL(") AS d{}").format(before))
    diff = diff if query else [SQL("FROM diff AS d{}").format(before)]
    head = merged([SQL("UPDATE {} AS t").format(table), *filled("SET ", _assignments(step))])
    return [*head, *merged([*diff, *ranges, *filled("WHERE ", where, separator=" AND ")])]


def _merged(step: Apply, called: Names, query: Code, where: list[Composed]) -> Lines:
    """Add rows to the rows with the same keys, or insert them; a row whose count becomes 0 is
    deleted.
    """
    table = stored(called, step.state)
    columns = names(step.columns)
    keys = names(key for key, _, _ in step.keys)
    if any(nulls != "none" for _, _, nulls in step.keys):
        # A join cannot use an index for several columns that may be NULL, but ON CONFLICT uses the
        # unique index.
        head = SQL("INSERT INTO {} AS t (").format(table).as_string(None)
        return [
            *filled(head, columns, ")"),
            *query,
            SQL("ON CONFLICT ({}) DO UPDATE").format(listed(keys)),
            *filled("SET ", _assignments(step)),
        ]
    same = listed((SQL("t.{0} = excluded.{0}").format(key) for key in keys), " AND ")
    count = name(step.counted) if step.counted else None
    delete_empty: Lines = []
    matched: Composable = SQL("WHEN NOT MATCHED THEN INSERT")
    if count is not None:
        delete_empty = [SQL("WHEN MATCHED AND t.{0} + excluded.{0} = 0 THEN DELETE").format(count)]
        matched = SQL("WHEN NOT MATCHED AND excluded.{} <> 0 THEN INSERT").format(count)
    return [
        SQL("MERGE INTO {} AS t USING (").format(table),
        query,
        *filled(") AS excluded (", columns, ")"),
        SQL("ON {}").format(same if step.keys else SQL("true")),
        *delete_empty,
        *filled("WHEN MATCHED THEN UPDATE SET ", _assignments(step)),
        *filled(f"{matched.as_string(None)} (", columns, ")"),
        *filled("VALUES (", names(step.columns, "excluded"), ")"),
    ]


_WRITERS = {
    ChangeKind.INSERT: _inserted,
    ChangeKind.UPDATE: _updated,
    ChangeKind.DELETE: _deleted,
}


def _has_nullable_keys(step: Apply) -> bool:
    """Return whether it may pay to check that the keys of a diff hold no NULL."""
    return (
        step.kind in (ChangeKind.UPDATE, ChangeKind.DELETE)
        and bool(step.needs)
        and any(nulls == "some" for _, _, nulls in step.keys)
    )


def _with_nulls(program: Program, called: Names, step: Apply, code: Lines) -> Code:
    """Return code for a diff that may hold NULLs in its keys, given the statement for any diff.

    If a column may be NULL and there are others, no index finds the rows, and no join can be hashed
    or merged by that column. Therefore few such columns get a statement for each set of columns that
    are NULL, which names rows by plain equalities. Many such columns are compared as a record, in
    which NULLs are equal and by which PostgreSQL can merge. So are those of a diff that reads tables,
    because each further statement would compute it again.
    """
    nullable = nullable_keys(step)
    if is_found_by_index(step):
        return code
    if len(nullable) > _MOST_SPLIT or not reads_variables_alone(step.query):
        several = SQL("{} > {}").format(size(step.needs), Literal(sizes.FEW))
        return branches([(several, _statement(program, called, step, merges=True))], code)
    result: Lines = []
    for number in range(len(nullable) + 1):
        for null in combinations(nullable, number):
            rows = listed(
                (
                    SQL("{} IS {}NULL").format(
                        dotted("d", column), SQL("" if column in null else "NOT ")
                    )
                    for column in nullable
                ),
                " AND ",
            )
            split = _statement(program, called, with_nulls_in(step, null), null=null)
            result += [*where_any(SQL("EXISTS"), step, called, rows), split, SQL("END IF;")]
    return result


def _looks_twice(step: Apply, called: Names) -> bool:
    """Return whether an update needs a second scan of its rows to find their old values."""
    return bool(step.collect) and _overwrites(step) and not called.returns_old


def _overwrites(step: Apply) -> bool:
    """Return whether an update collects old values that it overwrites and that the diff lacks."""
    return any(_is_overwritten(step, *field) for field in step.fields)


def _collected_value(step: Apply, side: str, column: str) -> Composable:
    """Return a column of a changed row, before or after the change."""
    if (step.kind, side) in ((ChangeKind.INSERT, "old"), (ChangeKind.DELETE, "new")):
        return SQL("NULL")
    if side == "old" and column in dict(step.before):
        return dotted("d", dict(step.before)[column])
    return dotted("b" if _is_overwritten(step, side, column) else "t", column)


def _is_overwritten(step: Apply, side: str, column: str) -> bool:
    """Return whether the old value of a column is neither kept by the change nor in the diff."""
    changed = dict(step.sets).keys() - dict(step.before).keys()
    return step.kind is ChangeKind.UPDATE and side == "old" and column in changed


def _assignments(step: Apply) -> Iterable[Composed]:
    for column, text in step.sets:
        yield SQL("{} = {}").format(name(column), SQL(bare_text(text)))


def _equal(row: Composable, diff: Composable, nulls: Nulls) -> Composed:
    """Return a condition that two values are the same. For NULLs, it is written so that an index
    can be used.
    """
    if nulls == "none":
        return SQL("{} = {}").format(row, diff)
    if nulls == "all":
        return SQL("{} IS NULL").format(row)
    return SQL("({0} = {1} OR {0} IS NULL AND {1} IS NULL)").format(row, diff)
