"""Renders a maintenance plan as the SQL that installs it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from orchestrator.deltascript.capture.table import function_body
from orchestrator.deltascript.identity import add_key, identify_rows
from orchestrator.deltascript.names import Names, SourceNames
from orchestrator.deltascript.plan import (
    Apply,
    BagTable,
    Merged,
    Program,
    ReadChanges,
    Shape,
    State,
    StateTable,
    StateView,
)
from orchestrator.deltascript.query import query_text
from orchestrator.deltascript.reading import fields
from orchestrator.sqltext import SEARCH_PATH, fitted_name


def create_states(program: Program, names: Names, content: bool = True) -> Iterator[Composed]:
    """Yield the statements that create the empty state tables and the row types of the variables."""
    shapes = dict(program.variables)
    for step in program.script:
        if isinstance(step, ReadChanges) and step.classes:
            yield SQL("CREATE TABLE {} AS SELECT {} WITH NO DATA").format(
                names.state(step.shape), fields(step, names)
            )
    for state in program.states:
        if isinstance(state, StateView):
            yield create_state_view(state, names, names.state(state.role))
            continue
        if state.role == program.content and not content:
            continue
        query = _defining(state, names, shapes)
        if state.role == program.content and isinstance(state, StateTable) and program.column_names:
            query = _typed(program, state, names, query)
        yield SQL("CREATE TABLE {} AS {} WITH NO DATA").format(names.state(state.role), query)
        if not isinstance(state, Shape):
            yield identify_rows(names.state(state.role))
        if isinstance(state, StateTable) and state.arrays:
            yield _in_line(state, names)
        elif isinstance(state, StateTable) and _changes_in_place(program, state):
            yield _with_fill_factor(state, names, _first_fill_factor(state))
        if isinstance(state, StateTable) and state.elements:
            yield _compressed_quickly(state, names)


def create_state_view(state: StateView, names: Names, relation: Composable) -> Composed:
    """Return the statement that creates or replaces a view over states that shows the content."""
    columns = [
        # PostgreSQL wrote the type, with its schema.
        SQL("q.{0}::{1} AS {0}").format(Identifier(column.name), SQL(column.type))
        for column in state.columns
    ]
    columns += [SQL("q.{}").format(Identifier(name)) for name in state.keys]
    return SQL("CREATE OR REPLACE VIEW {} AS SELECT {} FROM (\n{}\n) AS q").format(
        relation, SQL(", ").join(columns), query_text(state.query, names)
    )


FILLED_FIRST: Final = 80
"""The fill factor, in percent, for the first rows of a table whose rows are updated in place."""

HALF_FILLED: Final = 50
"""The fill factor if one change updates all rows of a page, so that each new version has room."""

LONG_FILLED_FIRST: Final = 55
"""The fill factor for rows with long values: a page has few rows, and each new version is long."""

FILLED_LATER: Final = 90
"""The fill factor for rows that are inserted later.

PostgreSQL prunes a page if less than a tenth of it is free, or less than this fill factor leaves. The
room between this fill factor and that of the first rows therefore takes new versions of rows without
new index entries and without pruning at each change."""


_PAGE = 8192
_ROW, _VALUE = 28, 8
"""Estimated bytes of the header of a row, and of a value."""


def _first_fill_factor(state: StateTable) -> int:
    """Return the fill factor for the first rows of a table whose rows are updated in place.

    >>> from dataclasses import replace
    >>> from sqlglot import exp
    >>> from orchestrator.deltascript.plan import Query, StateColumn
    >>> columns = tuple(StateColumn(name, hidden=False) for name in "abcd")
    >>> state = StateTable("s", columns, ("a",), (), Query(exp.select()), at_once=1)
    >>> [_first_fill_factor(replace(state, at_once=rows)) for rows in (1, 30, 60, 900)]
    [80, 78, 56, 50]
    """
    wanted = state.at_once * (_ROW + _VALUE * len(state.columns)) / _PAGE
    return max(HALF_FILLED, min(FILLED_FIRST, round(100 - 100 * wanted)))


def _changes_in_place(program: Program, state: State) -> bool:
    """Return whether the script updates only columns of a state that no index contains."""
    if not isinstance(state, StateTable):
        return False
    indexed = set(state.key).union(*state.probes)
    changed = [
        {name for name, _ in step.sets}
        for step in program.script
        if isinstance(step, Apply) and step.state == state.role and step.sets
    ]
    return any(not names & indexed for names in changed)


def _with_fill_factor(state: State, names: Names, share: int) -> Composed:
    return SQL("ALTER TABLE {} SET (fillfactor = {})").format(
        names.state(state.role), Literal(share)
    )


def _typed(program: Program, state: StateTable, names: Names, query: Composable) -> Composed:
    """Return a query with the types of the definition, whose lengths a rewritten query may lose."""
    identifiers = [Identifier(name) for name in program.column_names]
    columns = [
        SQL("{}.{}").format(
            SQL("d" if column.name in program.column_names else "q"), Identifier(column.name)
        )
        for column in state.columns
    ]
    return SQL("SELECT {} FROM {} AS d ({}), ({}) AS q").format(
        SQL(", ").join(columns), names.definition, SQL(", ").join(identifiers), query
    )


def _in_line(state: StateTable, names: Names) -> Composed:
    """Return the statement that keeps long values uncompressed in their rows, with room for new
    versions.
    """
    columns = SQL(", ").join(
        SQL("ALTER COLUMN {} SET STORAGE EXTERNAL").format(Identifier(array))
        for array in state.arrays
    )
    return SQL("ALTER TABLE {} SET (toast_tuple_target = 8160, fillfactor = {}), {}").format(
        names.state(state.role), Literal(LONG_FILLED_FIRST), columns
    )


def _compressed_quickly(state: StateTable, names: Names) -> Composed:
    """Return the statement that chooses the fastest compression for long values, if the server has
    it.
    """
    relation = Literal(names.state(state.role).as_string(None))
    columns = SQL(", ").join(map(Literal, state.elements))
    return SQL("SELECT idivm.compress_quickly({}, {})").format(relation, columns)


def _defining(
    state: BagTable | StateTable | Shape, names: Names, shapes: Mapping[str, str]
) -> Composable:
    if isinstance(state, BagTable):
        if state.identity is None:
            return SQL("SELECT d.* FROM {} AS d").format(names.definition)
        row, nth = Identifier(state.identity.row), Identifier(state.identity.nth)
        return SQL("SELECT d.*, ''::bytea AS {}, 0 AS {} FROM {} AS d").format(
            row, nth, names.definition
        )
    if isinstance(state, Shape):
        return query_text(state.query, names, shapes)
    return query_text(state.query, names)


def index_states(program: Program, names: Names, content: bool = True) -> Iterator[Composed]:
    """Yield the statements that index the state tables.

    They run after the first content is written. This is cheapest, and leaves the free space of the
    pages to new versions.
    """
    for state in program.states:
        if state.role == program.content and not content:
            continue
        if isinstance(state, BagTable):
            if state.identity is not None:
                yield add_key(names.state(state.role), state.identity.row, state.identity.nth)
        elif isinstance(state, StateTable):
            yield from _index_state(state, names)
            if _changes_in_place(program, state):
                yield _with_fill_factor(state, names, FILLED_LATER)


MERGED: Final = "merged"
"""The role of the view of the content merged with pending changes."""

AS_COMPILED: Final = frozenset({"standard_conforming_strings"})
"""Settings that only matter when a program is compiled."""

ON_READ: Final = "on_read"
"""The role of the view that chooses between the content, the merged rows, and the query."""


def readable(merging: bool, program: Program, names: Names) -> Identifier:
    """Return the table or view whose rows the relation of a view shows."""
    return names.state(ON_READ if merging else program.content)


def create_read_views(program: Program, names: Names) -> Iterator[Composed]:
    """Yield the statements that create the views through which an on_read view is read.

    The first one merges the content with pending changes. A condition of a reader that may reveal rows is not
    evaluated below it, because a log also holds rows that the view does not show. The second one decides
    once for each read which rows to compute; PostgreSQL does not start the other branches.
    """
    merged = program.merged
    assert merged is not None
    columns = [Identifier(column.name) for column in merged.columns]
    yield SQL("CREATE OR REPLACE VIEW {} ({}) WITH (security_barrier) AS\n{}").format(
        names.state(MERGED), SQL(", ").join(columns), query_text(merged.query, names)
    )

    for oid, columns_of_key in merged.lookups:
        yield from _index_images(names.sources[oid], columns_of_key)
    yield _read_kind(program, merged, names)
    # Whoever may read the view calls it.
    yield SQL("GRANT EXECUTE ON FUNCTION {}() TO PUBLIC").format(names.reading)

    def branch(relation: Composable, kind: str, values: Iterable[Composable]) -> Composed:
        return SQL(
            'SELECT {} FROM {} AS s WHERE (SELECT r.kind FROM reading AS r) = {}::"char"'
        ).format(SQL(", ").join(values), relation, Literal(kind))

    plain = [SQL("s.{}").format(column) for column in columns]
    typed = [
        # PostgreSQL wrote the type, with its schema.
        SQL("s.{0}::{1} AS {0}").format(Identifier(column.name), SQL(column.type))
        for column in merged.columns
    ]
    yield SQL(
        "CREATE OR REPLACE VIEW {} ({}) AS\n"
        "WITH reading AS MATERIALIZED (SELECT {}() AS kind)\n"
        "{}\nUNION ALL {}\nUNION ALL {}"
    ).format(
        names.state(ON_READ),
        SQL(", ").join(columns),
        names.reading,
        branch(names.state(program.content), "N", plain),
        branch(names.state(MERGED), "C", typed),
        branch(names.definition, "R", plain),
    )


def _index_images(source: SourceNames, key: Iterable[int]) -> Iterator[Composed]:
    """Yield the statements that create the indexes by which a read finds the images of a key in the logs."""
    for segment in ("_a", "_b"):
        for side in "on":
            columns = [f"{side}_{number}" for number in key]
            yield SQL("SELECT idivm.index_images({}, {}::regclass, {})").format(
                Literal(fitted_name(f"s{source.id}{segment}_{'_'.join(columns)}")),
                Literal(source.log(segment).as_string(None)),
                Literal(columns),
            )


def _read_kind(program: Program, merged: Merged, names: Names) -> Composed:
    """Return the statement that creates the function that decides how a read computes the rows of a view.

    PostgreSQL keeps its plans in a session, so that queries on the view are planned without it.
    """
    sources = [names.sources[source.oid] for source in program.sources]
    logs = [source.log(segment).as_string(None) for source in sources for segment in ("_a", "_b")]
    body = SQL(
        'DECLARE\n    kind "char";\nBEGIN\n'
        "    IF {} THEN\n        RETURN 'R';\n    END IF;\n"
        "    kind := idivm.read_kind({id}, {},\n"
        "        (SELECT idivm.is_steady({id}) WHERE NOT EXISTS (SELECT FROM {} WHERE false)), ARRAY[{}]);\n"
        "    IF kind = 'Q' THEN\n"
        # The planner calls the function when the statement first runs, so a session hears it once.
        "        RETURN CASE WHEN idivm.tell_of_query({id}) THEN 'R' END;\n    END IF;\n"
        "    RETURN kind;\nEND"
    ).format(
        SQL("\n        OR ").join(
            [
                *(
                    _pending(source.oid, names, truncated=source.oid in merged.sources)
                    for source in program.sources
                ),
                _loses_rights(sources),
                *(_differs(item) for item in program.settings if item[0] not in AS_COMPILED),
            ]
        ),
        SQL("\n        OR ").join(_may_be_pending(oid, names) for oid in merged.sources),
        names.definition,
        SQL(", ").join(SQL("{}::regclass").format(Literal(log)) for log in logs),
        id=Literal(names.id),
    )
    return SQL(
        'CREATE OR REPLACE FUNCTION {}() RETURNS "char"\n'
        "LANGUAGE plpgsql STABLE PARALLEL RESTRICTED SECURITY DEFINER\n"
        "SET search_path = {} SET plan_cache_mode = force_generic_plan SET constraint_exclusion = partition\nAS {}"
    ).format(names.reading, SQL(SEARCH_PATH), function_body(body))


def _pending(oid: int, names: Names, *, truncated: bool = False) -> Composed:
    """Return the condition that a change of a table is pending, or that it was `truncated`.

    A read cannot merge a TRUNCATE, nor any change of a table that the merged query takes for constant.
    """
    source = names.sources[oid]
    return SQL(
        "EXISTS (SELECT FROM {} AS c, idivm.watermarks AS w WHERE w.view = {}{}"
        " AND idivm.is_pending(c.xid, c.seq, w.mark, {}))"
    ).format(
        source.log(),
        Literal(names.id),
        SQL(" AND c.op = 'T'" if truncated else ""),
        Literal(source.id),
    )


def _differs(setting: tuple[str, str]) -> Composed:
    """Return the condition that a setting of the session gives another result than that of a refresh."""
    name, value = setting
    if name == "extra_float_digits":
        # Floats have all their digits with each positive value.
        return SQL("current_setting('extra_float_digits')::integer < 1").format()
    return SQL("current_setting({}) <> {}").format(Literal(name), Literal(value))


def _loses_rights(sources: Iterable[SourceNames]) -> Composed:
    """Return the condition that the owner of the view does not see all rows of a table any more.

    The query of the view then treats this owner like any query does.
    """
    return SQL(
        "EXISTS (SELECT FROM idivm.sources AS s WHERE s.id IN ({})"
        " AND (NOT has_any_column_privilege(s.relation, 'SELECT') OR row_security_active(s.relation)))"
    ).format(SQL(", ").join(Literal(source.id) for source in sources))


def _may_be_pending(oid: int, names: Names) -> Composed:
    """Return the condition that the last change in a log is not older than the watermark.

    PostgreSQL finds the last change of each segment by an index.
    """
    return SQL(
        "(SELECT max(c.xid) FROM {} AS c)"
        " >= (SELECT pg_snapshot_xmin((w.mark).snapshot) FROM idivm.watermarks AS w WHERE w.view = {})"
    ).format(names.sources[oid].log(), Literal(names.id))


def create_relation(
    program: Program,
    names: Names,
    relation: Composable,
    *,
    replacing: bool,
    options: Composable = SQL(""),  # noqa: B008
    merging: bool = False,
) -> Iterator[Composed]:
    """Yield the statements that create the view that users read.

    With `merging`, it shows the content merged with pending changes.

    The WHERE condition is constant and is evaluated at planning time. It makes the relation depend
    on the definition view, and on the view of the original query if that differs, so that all are
    dropped when a base table is dropped with CASCADE. It refers to relations and not to row types,
    because PostgreSQL refuses to alter a domain whose values a stored expression may contain.
    """
    content = readable(merging, program, names)
    yield from show(
        names, relation, program.column_names, content, replacing=replacing, options=options
    )


def show(
    names: Names,
    relation: Composable,
    columns: Iterable[str],
    content: Composable,
    *,
    replacing: bool,
    options: Composable = SQL(""),  # noqa: B008
) -> Iterator[Composed]:
    """Yield the statements with which a relation shows the rows of a state table or view."""
    queries = [names.definition, *([names.written] if names.completes_order else [])]
    yield SQL("CREATE {}VIEW {}{} AS SELECT {} FROM {} AS s WHERE {}").format(
        SQL("OR REPLACE ") if replacing else SQL(""),
        relation,
        options,
        SQL(", ").join(SQL("s.{}").format(Identifier(name)) for name in columns),
        content,
        SQL(" AND ").join(
            SQL("{}::regclass IS NOT NULL").format(Literal(query.as_string(None)))
            for query in queries
        ),
    )
    yield SQL(
        "CREATE OR REPLACE TRIGGER idivm_maintained INSTEAD OF INSERT OR UPDATE OR DELETE ON {}"
        " FOR EACH ROW EXECUTE FUNCTION idivm.refuse_write()"
    ).format(relation)
    yield SQL("SELECT idivm.note_shown({}, {}::regclass)").format(
        Literal(names.id), Literal(relation.as_string(None))
    )


def _index_state(state: StateTable, names: Names) -> Iterator[Composed]:
    """Yield a unique index on the key, and an index for each other lookup of the script."""
    table = names.state(state.role)
    if state.key and not state.nullable:
        yield add_key(table, *state.key)
    elif state.key:
        yield SQL("CREATE UNIQUE INDEX ON {} ({}) NULLS NOT DISTINCT").format(
            table, _listed(state.key)
        )
    else:
        yield SQL("CREATE UNIQUE INDEX ON {} ((true))").format(table)
    for columns in state.probes:
        yield SQL("CREATE INDEX ON {} ({})").format(table, _listed(columns))


def _listed(columns: Iterable[str]) -> Composed:
    return SQL(", ").join(map(Identifier, columns))
