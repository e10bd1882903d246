"""One load: from opened sources through staging tables into tables, which one final transaction changes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import Connection

from orchestrator.catalog import loads as catalog_loads
from orchestrator.catalog import readers as catalog_readers
from orchestrator.catalog.search_path import leave_path_to_triggers
from orchestrator.frontend.constraints import check_columns
from orchestrator.runtime.diagnosis import inspection
from orchestrator.spark.errors import LoadError
from orchestrator.spark.failures import reason_of
from orchestrator.spark.initial.states import States, dsn_of
from orchestrator.spark.loading import ledger
from orchestrator.spark.loading.commit_load import (
    MissingTableError,
    Moved,
    commit_loads,
    compares,
    require_present,
)
from orchestrator.spark.loading.copying import CopyTask, copy_frame, copy_slice
from orchestrator.spark.loading.effects import (
    Change,
    Decision,
    changed_rows,
    decide,
    uncaptured,
    with_those_above,
)
from orchestrator.spark.loading.here import copy_here
from orchestrator.spark.loading.messages import described_row, public, reasons_of, sources_of
from orchestrator.spark.loading.opening import Opened, layout_of, open_table, prepared
from orchestrator.spark.loading.progress import (
    Clock,
    Say,
    watch_copying,
    watch_time_dependent,
)
from orchestrator.spark.loading.rejects import locate
from orchestrator.spark.loading.report import LoadedTable, LoadReport, RejectedRow, TableLoad
from orchestrator.spark.loading.sources import cut, layout
from orchestrator.spark.streams.tables import batch
from orchestrator.spark.types import handling

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_LISTED = 10
_VIOLATIONS = (
    psycopg.errors.IntegrityError,
    psycopg.errors.DataError,
    psycopg.errors.CardinalityViolation,
)
"""The errors that rows cause when they are moved; the last one means two rows with a key in an upsert."""
_PASSING = ("08", "25", "40", "53", "55", "57", "58", "XX")
"""The classes of errors that have nothing to do with rows: connections, locks, resources, the server."""


class Loader:
    """One run over all tables, with one connection and one Spark session that starts when needed."""

    def __init__(
        self,
        connection: Connection[Any],
        spark: Callable[[], SparkSession],
        say: Say,
        clock: Clock,
        threads: int | None,
        *,
        resumable: bool = True,
    ) -> None:
        """Use a connection; `spark` starts a session when one is needed.

        What is left of a load that is not resumable is removed by the next load.
        """
        self.connection, self.spark, self.say, self.clock = connection, spark, say, clock
        self.threads = threads
        """The number of concurrent tasks in this process; None if only Spark may run tasks."""
        self.dsn = dsn_of(connection)
        self.resumable = resumable

    def run(
        self,
        tables: Sequence[TableLoad],
        views: str,
        resume: bool,
        again: bool,
        also: Callable[[Sequence[int]], None] = lambda _: None,
    ) -> tuple[LoadReport, Decision]:
        """Load the tables, and decide what happens to the views that read them.

        The last transaction calls `also` with the IDs of the loads: what it writes is committed with the rows.
        """
        with catalog_loads.locks_given_back(self.connection):
            catalog_loads.drop_orphans(self.connection)
            with self.clock.stage("looking at the sources"):
                opened = self.open(tables)
            loads: list[tuple[Opened, ledger.Load, int]] = []
            reports: list[LoadedTable] = []
            for item in opened:
                done = _done_before(self.connection, item)
                if done is not None and item.wanted.mode in ("append", "add") and not again:
                    self.say(
                        f"{item.wanted.into}: done before, as load {done} (--again loads it once more)",
                        True,
                    )
                    reports.append(_report(item, done, Moved(0, 0, 0, 0), again=True))
                    continue
                load = self.begin(item, resume)
                with self.clock.stage("reading and copying"):
                    loads.append((item, load, self.stage(item, load)))
            decision = self._finish(loads, views, reports, also)
        return LoadReport(tuple(reports), str(decision), stages=self.clock.stages), decision

    def rebuild(self, decision: Decision, views: str) -> tuple[tuple[str, str], ...]:
        """Let Spark recompute the views that request it; return their names and how each was computed.

        The refresh that follows brings all views to one cut, and computes the remaining ones.
        """
        to_rebuild = {reader.id for reader in decision.readers}
        texts = []
        for view in inspection.in_order(self.connection):
            requested = views == "rebuild" or view.options.get("initialise") == "spark"
            if view.id not in to_rebuild or not requested:
                continue
            self.say(f"{view.name}: computing its states")
            done = States(self.spark(), self.dsn, self.say).rebuild(self.connection, view)
            texts.append((view.name, ", ".join(map(str, done))))
            self.say(f"{view.name}: {texts[-1][1]}", True)
        return tuple(texts)

    def open(self, tables: Sequence[TableLoad]) -> list[Opened]:
        """Open the sources of tables; report all that do not fit together."""
        opened, problems = [], []
        for table in tables:
            self.say(f"{table.into}: looking at the source")
            try:
                item = open_table(self.connection, self.spark, table, self.threads is not None)
            except Exception as error:
                # Errors of tasks that look at the files carry their reasons too.
                reasons = [str(error)] if isinstance(error, LoadError) else reasons_of(error)
                if not reasons and (reason := reason_of(error)):
                    paths = sources_of([table.source])
                    reasons = [f"Cannot load {paths} into {table.into}: {reason}."]
                if not reasons:
                    raise
                problems.append(reasons[-1])
                continue
            opened.append(item)
            columns = ", ".join(f"{column.name} {column.type}" for column in item.columns)
            self.say(f"{item.wanted.into} ({columns})", True)
        if problems:
            raise LoadError(" ".join(problems))
        return opened

    def begin(self, opened: Opened, resume: bool) -> ledger.Load:
        """Record a load, or find the interrupted load to resume."""
        now = layout_of(self.spark, opened) if self.resumable else None
        quarantine = opened.wanted.on_bad_row == "quarantine"
        left = ledger.unfinished(self.connection, opened.command)
        if left is not None:
            number, before = left
            if resume and now is not None and before == now:
                count = catalog_loads.progress(self.connection, number)
                self.say(
                    f"{opened.wanted.into}: going on with load {number}, {count.parts} partitions are there",
                    True,
                )
                return ledger.Load(
                    *(
                        number,
                        opened.target,
                        opened.wanted.mode,
                        opened.columns,
                        opened.key,
                        quarantine,
                        now,
                        opened.op,
                        opened.order,
                    )
                )
            if resume:
                self.say(
                    f"{opened.wanted.into}: the source or its partitions have changed, loading again",
                    True,
                )
            catalog_loads.fail(self.connection, number)
            catalog_loads.unlock(self.connection, number)
        return ledger.begin(
            self.connection,
            opened.target,
            mode=opened.wanted.mode,
            columns=opened.columns,
            key=opened.key,
            quarantine=quarantine,
            command=opened.command,
            sources=opened.frame.files
            or [{"source": public(path)} for path in opened.frame.source.paths],
            layout=now,
            op=opened.op,
            order=opened.order,
        )

    def stage(self, opened: Opened, load: ledger.Load) -> int:
        """Fill the staging table by Spark's tasks; return the number of partitions."""
        table = opened.target.relation
        task = CopyTask(
            self.dsn,
            load.id,
            tuple(column.name for column in load.columns),
            load.quarantine,
            opened.wanted.max_bad_rows,
            table=table.qualified if table else str(opened.wanted.into),
            checks=check_columns(self.connection, table.oid) if table else {},
            **({} if opened.frame.text else handling(load.columns)),
        )
        ranges, text = opened.frame.ranges, opened.frame.text
        parts: int | None = len(ranges)
        if not ranges:
            rows = prepared(opened)
            cut(self.spark(), opened.frame)
            parts = layout(rows)[1] if opened.frame.format != "frame" else None
        try:
            with watch_copying(self.dsn, load.id, str(opened.wanted.into), parts, self.say):
                if ranges and text is not None and text.lines is None:
                    return copy_here(task, text.reader, ranges, self.threads or 1)
                if ranges and text is not None:
                    slices = self.spark().sparkContext.parallelize(ranges, len(ranges))
                    return slices.mapPartitionsWithIndex(
                        partial(copy_slice, task, text.reader)
                    ).count()
                return copy_frame(task, rows)
        except Exception as error:
            self._explain_failure(opened, load, error)
            raise

    def _explain_failure(self, opened: Opened, load: ledger.Load, error: Exception) -> None:
        """Raise why a load stopped, if rows or the database caused it; otherwise it can be resumed."""
        reasons = reasons_of(error)
        if not reasons:
            last = re.findall(r"^\s*(?:psycopg\.[\w.]+): (.+)", str(error), re.MULTILINE)
            last = [str(error)] if isinstance(error, psycopg.Error) else last
            if last:
                raise LoadError(
                    f"The load into {opened.wanted.into} broke off: {last[-1].strip()}. "
                    + (
                        "What is there is kept: run the same command with --resume to go on."
                        if self.resumable
                        else "Run the same command again."
                    )
                ) from error
            if reason := reason_of(error):
                paths = sources_of([opened.frame.source])
                raise LoadError(
                    f"Nothing was loaded into {opened.wanted.into} from {paths}: {reason}."
                ) from error
            return
        catalog_loads.fail(self.connection, load.id)
        locate(self.spark, self.connection, load.id, opened.frame)
        rejected = rejected_rows(self.connection, load.id)
        rows = [row for row in rejected if not load.quarantine or row.reason in reasons[-1]]
        source = "" if rows else f" from {sources_of([opened.frame.source])}"
        problem = described_row(rows[0], [opened.frame.source]) if rows else reasons[-1].strip()
        raise LoadError(
            f"Nothing was loaded into {opened.wanted.into}{source}. {problem.rstrip('.')}."
            + (
                " To load without such rows, give --on-bad-row quarantine."
                if rejected and not load.quarantine and "--options" not in problem
                else ""
            )
        ) from error

    def _finish(
        self,
        loads: Sequence[tuple[Opened, ledger.Load, int]],
        views: str,
        reports: list[LoadedTable],
        also: Callable[[Sequence[int]], None],
    ) -> Decision:
        oids = [load.target.relation.oid for _, load, _ in loads if load.target.relation]
        if not loads:
            return Decision("leave", "nothing was loaded")
        staged = [
            (load, catalog_loads.progress(self.connection, load.id).rows) for _, load, _ in loads
        ]
        self.say(f"moving {sum(rows for _, rows in staged):,} rows into place")
        changes = self._changes(staged)
        try:
            with (
                self.clock.stage("moving into place"),
                watch_time_dependent(self.dsn, changes, self.say),
                self.connection.transaction(),
            ):
                for _, load, _ in loads:
                    require_present(self.connection, load)
                readers = catalog_readers.readers(self.connection, oids)
                decision = decide(
                    *(views, readers, changes),
                    partial(catalog_readers.recompute_is_cheaper, self.connection),
                )
                names = with_those_above(self.connection, decision.readers)
                decision = replace(decision, names=names)
                with (
                    uncaptured(self.connection, decision, oids),
                    batch(self.connection, oids),
                ):
                    moved = commit_loads(
                        self.connection, [(load, parts) for _, load, parts in loads]
                    )
                also([load.id for _, load, _ in loads])
                leave_path_to_triggers(self.connection)
        except (*_VIOLATIONS, MissingTableError) as error:
            for _, load, _ in loads:
                catalog_loads.fail(self.connection, load.id)
            if isinstance(error, MissingTableError):
                raise
            raise LoadError(self._violation(loads, error)) from error
        except psycopg.Error as error:
            # Such as the error of a trigger.
            if not error.sqlstate or error.sqlstate.startswith(_PASSING):
                raise
            for _, load, _ in loads:
                catalog_loads.fail(self.connection, load.id)
            raise LoadError(_refused(loads, error)) from error
        self.say(str(decision), True)
        for item, load, _ in loads:
            if load.quarantine and moved[load.id].rejected:
                with self.clock.stage("locating rejected rows"):
                    locate(self.spark, self.connection, load.id, item.frame)
            catalog_loads.drop_staging(self.connection, load.id)
            report = _report(item, load.id, moved[load.id])
            reports.append(replace(report, rejected_rows=rejected_rows(self.connection, load.id)))
        return decision

    def _violation(
        self, loads: Sequence[tuple[Opened, ledger.Load, int]], error: psycopg.Error
    ) -> str:
        """Return the message for a violated constraint, with the place of the first such row."""
        names = ", ".join(str(item.wanted.into) for item, _, _ in loads)
        conflict = (
            None if any(load.quarantine for _, load, _ in loads) else self._first_conflict(loads)
        )
        if conflict is not None:
            text = described_row(conflict, [item.wanted.source for item, _, _ in loads])
            return (
                f"Nothing was loaded into {names}. {text.rstrip('.')}. To load without such rows, "
                "give --on-bad-row quarantine."
                + (
                    " To load the last row of each key, name the column that orders them (--order)."
                    if isinstance(error, psycopg.errors.CardinalityViolation)
                    and all(load.mode == "upsert" for _, load, _ in loads)
                    else ""
                )
            )
        return _refused(loads, error)

    def _first_conflict(
        self, loads: Sequence[tuple[Opened, ledger.Load, int]]
    ) -> RejectedRow | None:
        """Return the first row that a quarantine would reject at the end; repeat the load and roll it back."""
        self.say("looking for the rows that violate a constraint")
        repeated: list[tuple[Opened, ledger.Load, int]] = []
        try:
            for item, _, _ in loads:
                item = replace(item, wanted=replace(item.wanted, on_bad_row="quarantine"))
                load = self.begin(item, resume=False)
                repeated.append((item, load, 0))
                repeated[-1] = (item, load, self.stage(item, load))
            with self.connection.transaction(force_rollback=True):
                commit_loads(self.connection, [(load, parts) for _, load, parts in repeated])
                for item, load, _ in repeated:
                    locate(self.spark, self.connection, load.id, item.frame)
                    if rows := rejected_rows(self.connection, load.id):
                        return rows[0]
        except (LoadError, *_VIOLATIONS):
            return None
        finally:
            for _, load, _ in repeated:
                catalog_loads.end(self.connection, load.id)
                catalog_loads.unlock(self.connection, load.id)
        return None

    def _changes(self, loads: Iterable[tuple[ledger.Load, int]]) -> list[Change]:
        """Return the tables that are about to change, with the approximate number of changed rows."""
        changes = []
        for load, staged in loads:
            if (table := load.target.relation) is not None:
                keyed = compares(load) if load.mode == "replace" else True
                rows = changed_rows(self.connection, table.oid, load.mode, staged, keyed)
                changes.append(Change(load.id, table.oid, table.qualified, staged, rows))
        return changes


def rejected_rows(connection: Connection[Any], load: int) -> tuple[RejectedRow, ...]:
    """Return the first rows that a load rejected; all of them are in idivm.rejected_rows."""
    rows = catalog_loads.rejected_rows(connection, load, _LISTED)
    return tuple(RejectedRow(*row) for row in rows)


def _refused(loads: Sequence[tuple[Opened, ledger.Load, int]], error: psycopg.Error) -> str:
    """Return PostgreSQL's reason why the rows cannot be moved, with the names of tables and sources."""
    names = ", ".join(str(item.wanted.into) for item, _, _ in loads)
    sources = sources_of([item.wanted.source for item, _, _ in loads])
    diag = error.diag
    reason = f"{diag.message_primary or error}".rstrip(".")
    detail = f" ({diag.message_detail.rstrip('.')})" if diag.message_detail else ""
    where = ", or the constraint" if isinstance(error, _VIOLATIONS) else ", or the trigger"
    return f"Nothing was loaded into {names} from {sources}: {reason}{detail}. Correct the rows{where}."


def _done_before(connection: Connection[Any], opened: Opened) -> int | None:
    """Return the load that already carried out the same command, if any."""
    table = opened.target.relation
    return None if table is None else catalog_loads.finished(connection, opened.command, table.oid)


def _report(opened: Opened, load: int, moved: Moved, again: bool = False) -> LoadedTable:
    return LoadedTable(
        table=str(opened.wanted.into),
        load=load,
        mode=opened.wanted.mode,
        read=moved.read,
        loaded=moved.loaded,
        removed=moved.removed,
        rejected=moved.rejected,
        again=again,
        columns=tuple((column.name, column.type) for column in opened.columns),
    )
