"""Renders a maintenance plan as the SQL that installs it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from orchestrator.deltascript.capture.table import add_key, identify_rows
from orchestrator.deltascript.names import Names
from orchestrator.deltascript.plan import (
    Apply,
    BagTable,
    Program,
    ReadChanges,
    Shape,
    Sorted,
    State,
    StateTable,
    StateView,
    direction,
)
from orchestrator.deltascript.query import query_text
from orchestrator.deltascript.reading import fields
from orchestrator.deltascript.reads import readable


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
        in_line = isinstance(state, StateTable) and bool(state.arrays)
        room: Composable = SQL("")
        if isinstance(state, StateTable) and not in_line and _changes_in_place(program, state):
            room = SQL(" WITH (fillfactor = {})").format(Literal(_first_fill_factor(state)))
        yield SQL("CREATE TABLE {}{} AS {} WITH NO DATA").format(
            names.state(state.role), room, query
        )
        if not isinstance(state, Shape):
            yield identify_rows(names.state(state.role))
        if isinstance(state, StateTable) and in_line:
            yield _in_line(state, names)
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
    indexed = set(state.key).union(*state.probes, (item.column for item in state.sorted))
    changed = [
        {name for name, _ in step.sets}
        for step in program.script
        if isinstance(step, Apply) and step.state == state.role and step.sets
    ]
    return any(not names & indexed for names in changed)


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
            in_place = _changes_in_place(program, state)
            yield from _index_state(state, names, FILLED_LATER if in_place else None)


def create_relation(
    program: Program,
    names: Names,
    relation: Composable,
    *,
    replacing: bool,
    options: Composable = SQL(""),  # noqa: B008
    merging: bool = False,
    called: Sequence[str] = (),
) -> Iterator[Composed]:
    """Yield the statements that create the view that users read.

    With `merging`, it shows the content merged with pending changes. `called` are the names of its columns if
    they differ.

    The WHERE condition is constant and is evaluated at planning time. It makes the relation depend
    on the definition view, and on the view of the original query if that differs, so that all are
    dropped when a base table is dropped with CASCADE. It refers to relations and not to row types,
    because PostgreSQL refuses to alter a domain whose values a stored expression may contain.
    """
    content = readable(merging, program, names)
    columns = program.column_names
    yield from show(
        names, relation, columns, content, replacing=replacing, options=options, called=called
    )


def show(
    names: Names,
    relation: Composable,
    columns: Sequence[str],
    content: Composable,
    *,
    replacing: bool,
    options: Composable = SQL(""),  # noqa: B008
    called: Sequence[str] = (),
) -> Iterator[Composed]:
    """Yield the statements with which a relation shows the rows of a state table or view.

    `called` are the names of its columns if they differ.
    """
    queries = [names.definition, *([names.written] if names.completes_order else [])]
    yield SQL("CREATE {}VIEW {}{} AS SELECT {} FROM {} AS s WHERE {}").format(
        SQL("OR REPLACE ") if replacing else SQL(""),
        relation,
        options,
        SQL(", ").join(
            SQL("s.{}").format(Identifier(name))
            if name == other
            else SQL("s.{} AS {}").format(Identifier(name), Identifier(other))
            for name, other in zip(columns, called or columns, strict=True)
        ),
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


def _index_state(state: StateTable, names: Names, fill_factor: int | None) -> Iterator[Composed]:
    """Yield a unique index on the key, an index for each other lookup of the script, and a new fill factor."""
    table = names.state(state.role)
    room = SQL("SET (fillfactor = {})").format(Literal(fill_factor))
    if fill_factor and (state.nullable or not state.key):
        yield SQL("ALTER TABLE {} {}").format(table, room)
    if state.key and not state.nullable:
        yield add_key(table, *state.key, further=(room,) if fill_factor else ())
    elif state.key:
        yield SQL("CREATE UNIQUE INDEX ON {} ({}) NULLS NOT DISTINCT").format(
            table, _listed(state.key)
        )
    else:
        yield SQL("CREATE UNIQUE INDEX ON {} ((true))").format(table)
    for columns in state.probes:
        yield SQL("CREATE INDEX ON {} ({})").format(table, _listed(columns))
    if state.sorted:
        yield SQL("CREATE INDEX ON {} ({})").format(table, order_list(state.sorted))


def order_list(columns: Iterable[Sorted], qualifier: str = "") -> Composed:
    """Return columns with their directions, as in ORDER BY and in indexes."""
    before = (qualifier,) if qualifier else ()
    return SQL(", ").join(
        SQL("{}{}").format(
            Identifier(*before, item.column), SQL(direction(item.descending, item.nulls_first))
        )
        for item in columns
    )


def _listed(columns: Iterable[str]) -> Composed:
    return SQL(", ").join(map(Identifier, columns))
