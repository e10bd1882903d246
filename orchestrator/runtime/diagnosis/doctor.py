"""Diagnose an installation: find damage that users can cause, repair it, and report it.

Changes made while capture was broken are lost, so the views are rebuilt then. The order of the checks
matters: a reader is examined after what it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import Connection
from psycopg.errors import InsufficientPrivilege
from psycopg.sql import SQL

from orchestrator import catalog
from orchestrator.catalog import ViewInfo, wal
from orchestrator.catalog import loads as catalog_loads
from orchestrator.catalog import objects as catalog_objects
from orchestrator.catalog.streams import streams_below
from orchestrator.errors import IdivmError
from orchestrator.runtime import refresh
from orchestrator.runtime.diagnosis import inspection
from orchestrator.runtime.errors import explain
from orchestrator.runtime.installation import install, modes, replanning, sources
from orchestrator.runtime.migrate import drop_module, take_module
from orchestrator.runtime.sessions import end_if_cancelled
from orchestrator.runtime.stream_rows import rows_read
from orchestrator.runtime.wal import reading, switching


@dataclass(frozen=True)
class Finding:
    """The result of examining one subject."""

    subject: str
    fine: bool
    sentence: str
    mended: bool = False


def examine(connection: Connection[Any], contents: bool = True) -> list[Finding]:
    """Examine server, catalog, capture and views, with `contents` every row too. Repair damage where possible."""
    checks: list[Callable[[Connection[Any]], Iterator[Finding]]] = [
        _leftovers,
        _dropped,
        _loads,
        _left_behind,
        _orphans,
        _logs,
        _slot,
        _partitions,
        _capture,
        _form,
        _views,
        _duties,
        _refreshed,
    ]
    findings = [_server(connection)]
    for check in checks:
        for finding in check(connection):
            findings.append(finding)
            end_if_cancelled(connection)
    broken = {finding.subject for finding in findings if not finding.fine and not finding.mended}
    views = [view for view in catalog.all_views(connection) if f"view {view.name}" not in broken]
    read = streams_below(connection, [view.id for view in views]) if contents else []
    with rows_read(connection, read):
        for view in views:
            findings.append(_view(connection, view, contents))
            end_if_cancelled(connection)
    return findings


def _mended(
    connection: Connection[Any],
    subject: str,
    text: str,
    mend: Callable[[], object],
    done: str,
    otherwise: str = "",
) -> Finding:
    """Repair damage. If that fails, the finding contains the reason."""
    try:
        mend()
    except (IdivmError, psycopg.Error) as error:
        end_if_cancelled(connection, error)
        reason = explain(error, "mending it") if isinstance(error, psycopg.Error) else error
        return Finding(subject, False, f"{text}; {reason} {otherwise}".strip())
    return Finding(subject, False, f"{text}; {done}", mended=True)


def _server(connection: Connection[Any]) -> Finding:
    version = connection.info.server_version
    return Finding(
        "server",
        version >= 150000,
        f"PostgreSQL {version // 10000}.{version % 10000}, database {connection.info.dbname}",
    )


def _form(connection: Connection[Any]) -> Iterator[Finding]:
    """Switch to the module in C if it is available, and away from it if it is refused."""
    take_module(connection)
    try:
        switched = sources.switch_form(connection)
        drop_module(connection)
    except InsufficientPrivilege as error:
        sentence = f"this role may not change its form ({error.diag.message_primary})"
        yield Finding("capture's form", True, f"{sentence}; run idivm doctor as the tables' owner")
        return
    form = "C" if catalog.captures_in_c(connection) else "plpgsql"
    yield Finding(
        "capture's form",
        True,
        f"{form}, from now on, for {switched} more tables" if switched else form,
    )


def _leftovers(connection: Connection[Any]) -> Iterator[Finding]:
    """Remove leftovers of views that plain SQL dropped or that were half created. Every command removes these."""
    before = catalog_objects.names_in_catalog(connection)
    install.drop_orphans(connection)
    after = catalog_objects.names_in_catalog(connection)
    removed = ", ".join(name for number, name in before.items() if number not in after)
    yield Finding("leftovers", True, f"removed what was left of {removed}" if removed else "none")


def _dropped(connection: Connection[Any]) -> Iterator[Finding]:
    """Report views that DROP ... CASCADE removed. Only their owner knows whether that was intended."""
    for view in catalog.dropped_views(connection):
        yield Finding(
            f"view {view.name}",
            False,
            f"{view.cause} dropped it at {view.at:%Y-%m-%d %H:%M:%S %Z}: run idivm restore {view.name}"
            f" to create it again, or idivm drop {view.name} to forget it",
        )


def _loads(connection: Connection[Any]) -> Iterator[Finding]:
    """Remove staging tables of loads that failed. Loads that can be resumed are left to the user."""
    dropped = ", ".join(map(str, catalog_loads.drop_orphans(connection)))
    sentence = f"removed what was left of load {dropped}" if dropped else "none was broken off"
    kept = catalog_loads.broken_off(connection)
    for load in kept:
        yield Finding(
            "loads",
            True,
            f"load {load.id} into {load.name} was broken off after {load.started} and keeps {load.size}: "
            "run its command again, with --resume to go on, or delete its row of idivm.loads",
        )
    if dropped or not kept:
        yield Finding("loads", True, sentence)


def _left_behind(connection: Connection[Any]) -> Iterator[Finding]:
    for left in catalog_objects.left_behind(connection):
        subject = f"view {catalog.visible_names(connection, [left.relation])[0]}"
        reason = "the catalog knows nothing of it, so it is stale"
        if left.id is None:
            yield Finding(
                subject, False, f"{reason}, and its definition is gone; drop and create it"
            )
            continue

        def adopt(left: catalog_objects.LeftBehind = left) -> None:
            assert left.id is not None
            catalog_objects.adopt(connection, left)
            replanning.replan(connection, catalog.view_by_id(connection, left.id), afresh=True)

        yield _mended(
            connection,
            subject,
            reason,
            adopt,
            "it is maintained again, with the options that are the default, and was rebuilt",
        )


def _orphans(connection: Connection[Any]) -> Iterator[Finding]:
    dropped: list[str] = []
    while True:
        lost = catalog_objects.orphans(connection)
        gone = [orphan.name for orphan in lost if _drops(connection, orphan)]
        dropped += gone
        if not gone:
            break
    if dropped:
        yield Finding("orphans", False, f"dropped {', '.join(dropped)}, of no view", mended=True)
    if lost:
        names = ", ".join(orphan.name for orphan in lost)
        yield Finding("orphans", False, f"{names} belong to no view; drop or move them")
    if not dropped and not lost:
        yield Finding("orphans", True, "none")


def _drops(connection: Connection[Any], orphan: catalog_objects.Orphan) -> bool:
    if orphan.drop is None:
        return False
    try:
        with connection.transaction():
            connection.execute(orphan.drop)
    except psycopg.Error as error:
        end_if_cancelled(connection, error)
        # Something depends on it. It may be dropped in the next round.
        return False
    return True


def _slot(connection: Connection[Any]) -> Iterator[Finding]:
    """Have triggers capture again what the WAL no longer holds, and drop a slot that nothing needs."""
    before = set(wal.sources_in_wal(connection))
    if before:
        with reading.locked(connection):
            switching.settle(connection)
    switching.drop_unused_slot(connection)
    slot = wal.wal_status(connection)
    if before > set(wal.sources_in_wal(connection)):
        yield Finding(
            "slot",
            False,
            "the WAL does not hold all changes of some tables; triggers capture them again",
            mended=True,
        )
    elif slot is not None:
        kept = "unknown" if slot.kept is None else f"{slot.kept // 1024:,} kB"
        yield Finding(
            "slot", slot.is_fine, f"{slot.slot} is {slot.state} and keeps {kept} of the WAL"
        )


def _partitions(connection: Connection[Any]) -> Iterator[Finding]:
    every = catalog.source_ids(connection)
    behind = catalog.sources_with_other_members(connection, every)
    sources.sync_members(connection, every)
    yield Finding(
        "partitions",
        True,
        f"capture follows the partitions of {len(behind)} tables again"
        if behind
        else "every partition of a captured table carries capture",
    )


def _logs(connection: Connection[Any]) -> Iterator[Finding]:
    """Recreate incomplete logs, and plan their readers again."""
    for source_id, name in catalog_objects.all_sources(connection):
        if catalog_objects.log_is_whole(connection, source_id):
            continue

        def renew(source_id: int = source_id) -> None:
            replanning.renew_capture(connection, source_id)

        yield _mended(
            connection,
            "capture",
            f"the change log of {catalog.visible_names(connection, [name])[0]} lacks a part",
            renew,
            "it was made again, and the views that read the table are rebuilt",
        )


def _capture(connection: Connection[Any]) -> Iterator[Finding]:
    """Repair the functions and triggers of capture. Changes made meanwhile are lost, so the readers are rebuilt."""
    fine = True
    for source_id, name in catalog_objects.all_sources(connection):
        if not catalog_objects.log_is_whole(connection, source_id):
            continue
        damaged = inspection.damaged_routines(connection, source_id)
        off = [m for m in catalog_objects.members_without_triggers(connection) if m[0] == source_id]
        if not damaged and not off:
            continue
        fine = False
        wanted = [member for _, _, member in off] or [name]
        tables = ", ".join(catalog.visible_names(connection, wanted))
        what = (
            f"triggers of {tables} are missing or disabled"
            if off
            else f"{', '.join(damaged)} are missing or were edited"
        )

        def renew(source_id: int = source_id, off: list[tuple[int, int, str]] = off) -> None:
            with connection.transaction():
                sources.renew(connection, source_id, [number for _, number, _ in off])
                catalog.invalidate_readers(connection, source_id)

        yield _mended(
            connection,
            "capture",
            f"{what}, so changes may be lost",
            renew,
            "they are as they were, and the views that read the table are rebuilt",
        )
    if fine:
        yield Finding("capture", True, "every captured table has its triggers, enabled")


def _views(connection: Connection[Any]) -> Iterator[Finding]:
    """Repair the objects of each view, lower views first."""
    for view in inspection.in_order(connection):
        try:
            damage = inspection.damage(connection, view)
        except IdivmError as error:
            end_if_cancelled(connection, error)
            yield Finding(f"view {view.name}", False, f"it cannot be looked at: {error}")
            continue
        if damage is None:
            continue

        def mend(view: ViewInfo = view, damage: inspection.Damage = damage) -> None:
            inspection.mend(connection, view, damage)

        yield _mended(connection, f"view {view.name}", damage.sentence, mend, damage.remedy)


def _duties(connection: Connection[Any]) -> Iterator[Finding]:
    """Repair the triggers by which writers maintain synchronous views."""
    broken = catalog_objects.broken_duties(connection)
    if not broken:
        return

    def renew() -> None:
        with connection.transaction():
            for member, source_id in broken:
                sources.drop_duties(connection, SQL(member), source_id)
            modes.sync(connection)

    tables = ", ".join(catalog.visible_names(connection, [member for member, _ in broken]))
    yield _mended(
        connection,
        "modes",
        f"triggers of {tables} are missing or disabled, so writers do not keep its views",
        renew,
        "they are there again, and the views were brought up to date",
    )


def _refreshed(connection: Connection[Any]) -> Iterator[Finding]:
    """Rebuild the views that were marked above, each alone so that one failure does not stop the others."""
    for view in inspection.in_order(connection):
        try:
            with rows_read(connection, streams_below(connection, [view.id], of_broken=True)):
                refresh.refresh(connection, [view.id])
        except (IdivmError, psycopg.Error) as error:
            end_if_cancelled(connection, error)
            reason = explain(error, "refreshing it") if isinstance(error, psycopg.Error) else error
            yield Finding(f"view {view.name}", False, str(reason))


def _view(connection: Connection[Any], view: ViewInfo, contents: bool) -> Finding:
    subject = f"view {view.name}"
    if not contents:
        return Finding(subject, True, f"{view.pending:,} changes pending")
    wrong = inspection.wrong_states(connection, view)
    if not wrong:
        return Finding(subject, True, "holds what its query answers")

    def rebuild() -> None:
        with connection.transaction():
            catalog_objects.invalidate(connection, view.id)
        refresh.refresh(connection, [view.id])
        if inspection.wrong_states(connection, view):
            # The rows were not the cause, so the relation itself or the program is.
            replanning.replan(connection, view, afresh=True)
            refresh.refresh(connection, [view.id])
        if still := inspection.wrong_states(connection, catalog.view_by_id(connection, view.id)):
            raise IdivmError(f"{', '.join(still)} is wrong still; drop and create the view.")

    return _mended(
        connection,
        subject,
        f"{', '.join(wrong)} held other rows than it should",
        rebuild,
        "rebuilt",
    )
