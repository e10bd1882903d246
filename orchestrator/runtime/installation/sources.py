"""Captured tables: install their logs and triggers, and keep capture on every partition."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from psycopg import Connection
from psycopg.sql import SQL, Composable, Composed, Identifier

from orchestrator import catalog
from orchestrator.catalog import Member, wal
from orchestrator.catalog import objects as catalog_objects
from orchestrator.deltascript.capture import logs, triggers
from orchestrator.deltascript.capture.table import PLACEHOLDER, Captured
from orchestrator.deltascript.plan import Source, SourceColumn
from orchestrator.sqltext import fresh_name


def hold(
    connection: Connection[Any],
    view_ids: Sequence[int],
    *,
    changed: Iterable[Source] = (),
    kept: Iterable[Source] = (),
) -> None:
    """Lock the tables whose capture changes: `changed`, and what only these views read unless it is `kept`."""
    connection.execute(
        "SELECT idivm.hold_captures(%s, %s::oid[]::regclass[], %s::oid[]::regclass[])",
        [
            list(view_ids),
            [source.oid for source in changed],
            [source.oid for source in kept],
        ],
    )


def is_captured(connection: Connection[Any], source: Source) -> bool:
    """Return whether capture needs no change for a plan that reads a source."""
    row = connection.execute(
        "SELECT s.id, array_agg(c.attnum) FROM idivm.sources s"
        " LEFT JOIN idivm.source_columns c ON c.source = s.id WHERE s.relation = %s::oid GROUP BY s.id",
        [source.oid],
    ).fetchone()
    if row is None or not {column.attnum for column in source.columns} <= set(row[1]):
        return False
    captured = catalog.load_source(connection, row[0])
    return not _needs_key(captured, source) and not _unfit(
        connection, captured, catalog.captures_in_c(connection)
    )


def ensure_source(connection: Connection[Any], source: Source) -> int:
    """Capture at least these columns of a relation from the end of this transaction on.

    Creating a trigger or widening a log waits for the open transactions that write the table. So after the
    commit, every change is captured in full.

    A table that is captured without a key, or by a key that it has lost, is captured by the key of the source from
    then on. Views that were planned without a key compare rows by their content, and stay right.
    """
    connection.execute("LOCK TABLE idivm.sources IN SHARE ROW EXCLUSIVE MODE")
    row = connection.execute(
        "SELECT id FROM idivm.sources WHERE relation = %s::oid", [source.oid]
    ).fetchone()
    if row is None:
        return _create(connection, source)
    source_id: int = row[0]
    captured = catalog.load_source(connection, source_id)
    known = {column.attnum for column, _ in captured.columns}
    added = [column for column in source.columns if column.attnum not in known]
    if added:
        _widen(connection, source_id, added)
    elif not catalog.is_read_within_bounds(connection, source_id):
        # An earlier version captured the table.
        _run(connection, logs.read_side(captured))
    if _needs_key(captured, source):
        _start_using_key(connection, source_id, source)
    _fit_triggers(connection, source_id)
    return source_id


def switch_form(connection: Connection[Any]) -> int:
    """Change capture to the form that it should have, C or plpgsql. Return how many tables changed.

    Wait for the writers of these tables.
    """
    switched = 0
    in_c = catalog.captures_in_c(connection)
    for source_id in catalog.source_ids(connection):
        if not _unfit(connection, catalog.load_source(connection, source_id), in_c):
            continue
        with connection.transaction():
            connection.execute(
                "SELECT idivm.hold_captures('{}', ARRAY(SELECT s.relation FROM idivm.sources s WHERE s.id = %s))",
                [source_id],
            )
            connection.execute("LOCK TABLE idivm.sources IN SHARE ROW EXCLUSIVE MODE")
            switched += _fit_triggers(connection, source_id)
    return switched


def sync_members(connection: Connection[Any], source_ids: Collection[int]) -> None:
    """Add capture to new partitions and inheritance children of some sources, and remove it from lost tables.

    Before that, each refresh rebuilds the views that read these tables; afterwards, the next refresh rebuilds
    them once more. If the columns of a table differ from the captured layout, create its capture functions
    again.
    """
    for source_id in catalog.sources_without_their_key(connection, source_ids):
        with connection.transaction():
            connection.execute("LOCK TABLE idivm.sources IN SHARE ROW EXCLUSIVE MODE")
            _stop_using_key(connection, source_id)
            catalog.invalidate_readers(connection, source_id)
    for source_id in catalog.sources_with_other_members(connection, source_ids):
        with connection.transaction():
            connection.execute("LOCK TABLE idivm.sources IN SHARE ROW EXCLUSIVE MODE")
            captured = catalog.load_source(connection, source_id)
            for number, name in catalog.lost_members(connection, source_id):
                _release(connection, captured, number, name)
            _capture_members(connection, captured)
            if captured.keyed and catalog.has_children(connection, source_id):
                _stop_using_key(connection, source_id)
            # No log has the rows that these tables held when they were attached or detached.
            catalog.invalidate_readers(connection, source_id)
    for source_id in catalog.sources_with_other_layouts(connection, source_ids):
        with connection.transaction():
            connection.execute("LOCK TABLE idivm.sources IN SHARE ROW EXCLUSIVE MODE")
            _make_functions(connection, catalog.load_source(connection, source_id))
            for function in catalog.former_functions(connection, source_id):
                connection.execute(SQL("DROP FUNCTION {}").format(function))


def renew(connection: Connection[Any], source_id: int, off: Collection[int]) -> None:
    """Install the capture functions of a source again, and the triggers of some of its members."""
    captured = catalog.load_source(connection, source_id)
    in_c = catalog.captures_in_c(connection)
    _run(connection, logs.read_side(captured))
    _make_functions(connection, captured)
    for member in catalog.members(connection, source_id):
        if member.number in off:
            _run(connection, triggers.detach_triggers(captured, member.name))
            _attach(connection, captured, member, in_c)


def attach_again(connection: Connection[Any], source_id: int) -> None:
    """Attach the triggers of a table whose changes were read from the WAL."""
    captured = catalog.load_source(connection, source_id)
    in_c = catalog.captures_in_c(connection)
    _make_functions(connection, captured)
    for member in catalog.members(connection, source_id):
        _attach(connection, captured, member, in_c)
        if member.layout.partitioned and member.root:
            _run(connection, triggers.detach_routing(captured, member.name))
            _run(connection, triggers.attach_routing(captured, member.name, member.number))


def detach(connection: Connection[Any], source_id: int) -> None:
    """Drop the triggers of a table whose changes are read from the WAL from now on."""
    captured = catalog.load_source(connection, source_id)
    _run(connection, logs.read_side(captured))
    for member in catalog.members(connection, source_id):
        _run(connection, triggers.detach_triggers(captured, member.name))
        if member.layout.partitioned and member.root:
            _run(connection, triggers.detach_routing(captured, member.name))


def drop_duties(connection: Connection[Any], member: Composable, source_id: int) -> None:
    """Drop the triggers of the modes on a table, so that they can be created again."""
    for part in ("begin", "upkeep", "upkeep_rows"):
        trigger = Identifier(f"idivm_{source_id}_{part}")
        connection.execute(SQL("DROP TRIGGER IF EXISTS {} ON {}").format(trigger, member))


def _create(connection: Connection[Any], source: Source) -> int:
    row = connection.execute(
        "INSERT INTO idivm.sources (relation, keyed) VALUES (%s::oid, %s) RETURNING id",
        [source.oid, source.keyed],
    ).fetchone()
    assert row is not None
    relation = Identifier(source.schema, source.name)
    captured = Captured(
        row[0], relation, _named(source.columns, set()), placeholder=not source.columns
    )
    _run(connection, logs.create_source(captured))
    _record_columns(connection, captured)
    _capture_members(connection, captured)
    return captured.id


def _widen(connection: Connection[Any], source_id: int, added: Sequence[SourceColumn]) -> None:
    before = catalog.load_source(connection, source_id)
    taken = {name for _, name in before.columns} | {PLACEHOLDER}
    # The key of a captured table is captured already.
    more = [replace(column, in_key=False) for column in added]
    captured = replace(before, columns=(*before.columns, *_named(more, taken)))
    _run(connection, logs.widen_source(captured, added))
    _record_columns(connection, captured)
    _make_functions(connection, captured)


def _needs_key(captured: Captured, source: Source) -> bool:
    """Return whether a plan identifies the rows of a user's table by another key than capture."""
    return (
        source.keyed
        and not source.is_own
        and _key(source.columns) != _key(column for column, _ in captured.columns)
    )


def _key(columns: Iterable[SourceColumn]) -> list[int]:
    return sorted(column.attnum for column in columns if column.in_key)


def _start_using_key(connection: Connection[Any], source_id: int, source: Source) -> None:
    """Capture by the key of a source from the end of this transaction on, unless the table has lost it by now."""
    if catalog.load_source(connection, source_id).keyed:
        if not catalog.sources_without_their_key(connection, [source_id]):
            return
        _stop_using_key(connection, source_id)
        catalog.invalidate_readers(connection, source_id)
    if not catalog.take_key(connection, source_id, _key(source.columns)):
        return
    captured = catalog.load_source(connection, source_id)
    _run(connection, logs.read_side(captured))
    _make_functions(connection, captured)
    if any(
        owner == source_id for owner, *_ in catalog_objects.members_without_triggers(connection)
    ):
        # The triggers are attached again, and nothing would show any more that changes were lost.
        catalog.invalidate_readers(connection, source_id)
    in_c = catalog.captures_in_c(connection)
    attached = catalog.trigger_arguments(connection, source_id)
    for member in catalog.members(connection, source_id):
        # This waits for open writers, whose changes were captured without the key.
        if member.number in attached:
            _attach(connection, captured, member, in_c)


def _stop_using_key(connection: Connection[Any], source_id: int) -> None:
    """Stop using the key, because a child may repeat a key of its parent. Rows are identified by content then."""
    catalog.clear_key(connection, source_id)
    captured = catalog.load_source(connection, source_id)
    _run(connection, logs.read_side(captured))
    _make_functions(connection, captured)
    _fit_triggers(connection, source_id)


def _fit_triggers(connection: Connection[Any], source_id: int) -> int:
    """Attach triggers again that have another form or another key. Return their number."""
    captured = catalog.load_source(connection, source_id)
    in_c = catalog.captures_in_c(connection)
    unfit = _unfit(connection, captured, in_c)
    for member in unfit:
        _attach(connection, captured, member, in_c)
    return len(unfit)


def _unfit(connection: Connection[Any], captured: Captured, in_c: bool) -> list[Member]:
    """Return the members of a source whose triggers should have another form or another key."""
    present = catalog.trigger_arguments(connection, captured.id)
    unfit = []
    for member in catalog.members(connection, captured.id):
        wanted = in_c and _may_be_in_c(member)
        arguments = captured.arguments(member.number) if wanted else ()
        if present.get(member.number, arguments) != arguments:
            unfit.append(member)
    return unfit


def _attach(connection: Connection[Any], captured: Captured, member: Member, in_c: bool) -> None:
    wanted = in_c and _may_be_in_c(member)
    _run(
        connection,
        triggers.attach_triggers(
            captured, member.name, member.number, wanted, partitioned=member.layout.partitioned
        ),
    )


def _may_be_in_c(member: Member) -> bool:
    """Return whether a member can use the form in C. Only plpgsql handles MERGE on a partitioned table."""
    return not member.layout.partitioned


def _named(
    columns: Iterable[SourceColumn], taken: set[str]
) -> tuple[tuple[SourceColumn, str], ...]:
    result = []
    for column in columns:
        name = fresh_name(column.name, taken)
        taken.add(name)
        result.append((column, name))
    return tuple(result)


def _record_columns(connection: Connection[Any], captured: Captured) -> None:
    connection.cursor().executemany(
        "INSERT INTO idivm.source_columns (source, attnum, name, in_key, equality)"
        " VALUES (%s, %s, %s, %s, %s) ON CONFLICT (source, attnum) DO NOTHING",
        [
            (captured.id, column.attnum, name, column.in_key, column.equality)
            for column, name in captured.columns
        ],
    )


def _capture_members(connection: Connection[Any], captured: Captured) -> None:
    in_c = catalog.captures_in_c(connection)
    new = catalog.new_members(connection, captured.id)
    _make_functions(connection, captured)
    members = catalog.members(connection, captured.id)
    if captured.id in wal.sources_in_wal(connection):
        wal.publish(connection, captured.id, next(member.name for member in members if member.root))
        return
    for member in members:
        if member.number not in new:
            continue
        _attach(connection, captured, member, in_c)
        if member.layout.partitioned and member.root:
            _run(connection, triggers.attach_routing(captured, member.name, member.number))


def _make_functions(connection: Connection[Any], captured: Captured) -> None:
    for member in catalog.members(connection, captured.id):
        _run(connection, triggers.capture_member(captured, member.layout, member.number))
        catalog.note_layout(connection, captured.id, member.number)


def _release(
    connection: Connection[Any], captured: Captured, number: int, name: Composable | None
) -> None:
    if name is not None:
        _run(connection, triggers.detach_triggers(captured, name))
        wal.give_identity_back(connection, captured.id, number)
    _run(connection, triggers.drop_member(captured, number))
    connection.execute(
        "DELETE FROM idivm.source_members WHERE source = %s AND number = %s", [captured.id, number]
    )


def _run(connection: Connection[Any], statements: Iterable[Composed]) -> None:
    for statement in statements:
        connection.execute(statement)
