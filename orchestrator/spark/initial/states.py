"""Let Spark compute the first content of a view's states, under the watermark protocol.

Capture starts before anything is read. Then one transaction takes a snapshot, which becomes the view's
watermark, and shares it with Spark's tasks. The tasks read the tables as of the snapshot and copy their results
into staging tables. States that Spark cannot compute exactly are computed in the same transaction, or from other
states. A last transaction moves the rows into the states. Concurrent writes are in the change logs and not in the
snapshot, so the next refresh applies them.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import Connection, IsolationLevel
from psycopg.sql import SQL, Composed, Identifier

from orchestrator import catalog
from orchestrator.algebra import dialect
from orchestrator.catalog import ViewInfo, streams
from orchestrator.catalog import loads as catalog_loads
from orchestrator.catalog.loads import staging_table
from orchestrator.catalog.search_path import PIN
from orchestrator.catalog.streams import StreamTable
from orchestrator.deltascript import emit
from orchestrator.deltascript.names import Names
from orchestrator.deltascript.plan import Initialised, MaintenancePlan, StateTable
from orchestrator.deltascript.program import create_program
from orchestrator.deltascript.recomputing import refill
from orchestrator.errors import RightsError, is_interruption
from orchestrator.frontend import catalog as facts
from orchestrator.frontend.facts import Relation
from orchestrator.frontend.statements import QualifiedName
from orchestrator.runtime.diagnosis import inspection
from orchestrator.runtime.installation import locks, modes
from orchestrator.runtime.installation.new_view import Prepared
from orchestrator.runtime.sessions import open_session
from orchestrator.spark.errors import SparkError
from orchestrator.spark.initial import stream_frames
from orchestrator.spark.initial.division import Division, divide, tables_of
from orchestrator.spark.initial.kinds import InexactError, Kind, kind_or_reason, read_as
from orchestrator.spark.initial.queries import Emitted, source_name, state_name
from orchestrator.spark.initial.state_columns import ROW
from orchestrator.spark.loading import ledger
from orchestrator.spark.loading.commit_load import lock_and_verify
from orchestrator.spark.loading.copying import CopyTask, copy_frame
from orchestrator.spark.loading.progress import Say, silent, watch_copying
from orchestrator.spark.session import set_for_a_block
from orchestrator.spark.types import Column
from orchestrator.sqltext import SEARCH_PATH

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PAGES = 2048
"""The number of pages of a table that one task reads."""

_WAIT = "10s"
"""The lock timeout of a task. A session that blocks the task may itself wait for the transaction that waits for
the task, so the task must give up."""

_SETTINGS = {
    # An overflow is an error and not NULL, and no decimal place is dropped.
    "spark.sql.ansi.enabled": "true",
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",
    "spark.sql.session.timeZone": "UTC",
    # Text such as ${this} is not substituted.
    "spark.sql.variable.substitute": "false",
}


@dataclass(frozen=True)
class States:
    """Computes the states of views in a Spark session."""

    spark: SparkSession
    dsn: str
    say: Say = silent

    def create(self, connection: Connection[Any], plan: MaintenancePlan, names: Names) -> Prepared:
        """Create the state tables of a new view, and compute their content."""
        refused = _refused(plan) or self._refused_over_streams(connection, plan)
        if refused:
            return Prepared(None, refused, lambda: None)
        with connection.transaction():
            for statement in emit.create_states(plan.program, names):
                connection.execute(statement)
            for statement in create_program(plan.program, names):
                connection.execute(statement)
        return self._prepare(connection, plan, names)

    def rebuild(self, connection: Connection[Any], view: ViewInfo) -> tuple[Initialised, ...]:
        """Compute the states of a view that waits for a rebuild; return what computed each state.

        The next refresh computes states that are not computed here.
        """
        if modes.is_synchronous(connection, view.id):
            return (Initialised(view.name, "PostgreSQL", "its writers keep it up to date"),)
        try:
            catalog.refuse_forbidden(connection, view.id, view.name)
        except RightsError as reason:
            return (Initialised(view.name, "PostgreSQL", str(reason)),)
        with locks.held(connection, view.id):
            names = inspection.installed_names(connection, view)
            with connection.transaction(force_rollback=True):
                plan = inspection.installed_plan(connection, view)
            if plan is None or catalog.has_drifted(connection, view.id):
                return (Initialised(view.name, "PostgreSQL", "it is to be planned again"),)
            if refused := _refused(plan) or self._refused_over_streams(connection, plan):
                return refused
            prepared = self._prepare(connection, plan, names)
            assert prepared.snapshot is not None
            with connection.transaction():
                prepared.finish()
                catalog.rebuilt_as_of(connection, view.id, prepared.snapshot)
                catalog.note_initialised(connection, view.id, prepared.initialised)
            return prepared.initialised

    def _refused_over_streams(
        self, connection: Connection[Any], plan: MaintenancePlan
    ) -> tuple[Initialised, ...]:
        """Return why Spark cannot compute a state over a stream, whose rows PostgreSQL does not have."""
        oids = [source.oid for source in plan.program.sources]
        known = streams.stream_tables(connection, oids)
        tables = tables_of(plan)
        assert tables is not None
        if not known:
            return ()
        division = divide(
            tables,
            _kinds(facts.relations(connection, oids), known),
            lambda text: _fold(connection, text),
        )
        for state in division.before:
            if not state.query.sources.isdisjoint(known):
                because = f"{state.role}: {division.reasons[state.role]}"
                return (Initialised(plan.program.content, "PostgreSQL", because),)
        return ()

    def _prepare(
        self, connection: Connection[Any], plan: MaintenancePlan, names: Names
    ) -> Prepared:
        tables = tables_of(plan)
        assert tables is not None
        level = connection.isolation_level
        connection.isolation_level = IsolationLevel.REPEATABLE_READ
        try:
            oids = [source.oid for source in plan.program.sources]
            with connection.transaction():
                seen = facts.relations(connection, oids)
            with connection.transaction():
                # Without a lock before the snapshot, a table may be truncated that the snapshot shows full.
                known = streams.stream_tables(connection, oids)
                for oid in sorted(seen.keys() - known.keys()):
                    name = Identifier(seen[oid].schema, seen[oid].name)
                    connection.execute(SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(name))
                snapshot, exported = export_snapshot(connection)
                connection.execute("SELECT idivm.discard_foreign_log(%s)", [names.id])
                relations = facts.relations(connection, oids)
                with _as_in_a_refresh(connection, plan):
                    in_snapshot = self._in_snapshot(
                        connection, plan, names, tables, relations, exported
                    )
                return replace(in_snapshot, snapshot=snapshot)
        finally:
            if not connection.closed:
                connection.isolation_level = level

    def _in_snapshot(
        self,
        connection: Connection[Any],
        plan: MaintenancePlan,
        names: Names,
        tables: tuple[StateTable, ...],
        relations: Mapping[int, Relation],
        exported: str,
    ) -> Prepared:
        known = streams.stream_tables(connection, relations)
        kinds = _kinds(relations, known)
        division = divide(tables, kinds, lambda text: _fold(connection, text))
        for state in division.before:
            connection.execute(refill(state, names))
        copied: dict[str, tuple[ledger.Load, int]] = {}
        initialised = division.initialised
        try:
            copied = self._copied(connection, division, names, relations, exported)
        except (SparkError, psycopg.Error) as error:
            reason = " ".join(str(error).split())
        except Exception as error:  # the many classes of Spark's errors
            reason = _reason(error)
        if not copied and division.by_spark and known:
            raise SparkError(f"Spark could not read the files of a stream: {reason.rstrip('.')}.")
        if not copied and division.by_spark:
            # In the same transaction, so that all states have the same snapshot.
            for state, _ in division.by_spark:
                connection.execute(refill(state, names))
            initialised = tuple(
                replace(item, by="PostgreSQL", because=f"Spark could not: {reason}")
                if item.by == "Spark"
                else item
                for item in initialised
            )

        def finish() -> None:
            with _as_in_a_refresh(connection, plan):
                for state, emitted in division.by_spark if copied else ():
                    load, parts = copied[state.role]
                    lock_and_verify(connection, load, parts)
                    connection.execute(refill(state, names, _rows_from_spark(load, emitted)))
                for state in division.after:
                    connection.execute(refill(state, names))
            for load, _ in copied.values():
                catalog_loads.end(connection, load.id)
                catalog_loads.unlock(connection, load.id, shared=True)

        return Prepared(None, initialised, finish)

    def _copied(
        self,
        connection: Connection[Any],
        division: Division,
        names: Names,
        relations: Mapping[int, Relation],
        exported: str,
    ) -> dict[str, tuple[ledger.Load, int]]:
        """Let Spark fill a staging table for each of its states."""
        if not division.by_spark:
            return {}
        from orchestrator.spark.postgres_copy import register

        session = self.spark
        done: dict[str, tuple[ledger.Load, int]] = {}
        with ExitStack() as stack:
            stack.enter_context(set_for_a_block(session, _SETTINGS))
            register(session)
            control = stack.enter_context(open_session(self.dsn))
            control.execute(PIN)
            catalog_loads.drop_orphans(control)
            stack.callback(_drop_views, session, division)
            self._register(connection, division, relations, exported)
            wanted = {role for _, emitted in division.by_spark for role in emitted.states}
            try:
                for state, emitted in division.by_spark:
                    frame = session.sql(emitted.query)
                    if state.role in wanted:
                        # Other states read it, so compute it once; a large result goes to disk.
                        frame = frame.persist()
                        stack.callback(frame.unpersist)
                        frame.createOrReplaceTempView(state_name(state.role))
                    done[state.role] = self._write(control, frame, state, emitted, names)
            except BaseException:
                for load, _ in done.values():
                    catalog_loads.end(control, load.id)
                raise
            for load, _ in done.values():
                catalog_loads.hand_over(load.id, control, connection)
        return done

    def _register(
        self,
        connection: Connection[Any],
        division: Division,
        relations: Mapping[int, Relation],
        exported: str,
    ) -> None:
        from orchestrator.spark.postgres_copy import TASKS

        session = self.spark
        used = sorted({source for _, emitted in division.by_spark for source in emitted.sources})
        known = streams.stream_tables(connection, relations)
        for oid in {oid for oid, _ in used}:
            relation = relations[oid]
            attnums = [attnum for item, attnum in used if item == oid]
            if oid in known:
                rows = stream_frames.frame(connection, session, known[oid], relation, attnums)
                rows.createOrReplaceTempView(source_name(oid))
                continue
            columns = [relation.column(attnum) for attnum in attnums]
            carried = [column.name for column in columns if read_as(column).carried]
            reader = session.read.format(TASKS).option("dsn", self.dsn)
            reader = reader.option("table", Identifier(relation.schema, relation.name).as_string())
            reader = reader.option("columns", json.dumps([column.name for column in columns]))
            reader = reader.option("astext", json.dumps(carried)).option("whole", "true")
            reader = reader.option("snapshot", exported).option("pages", str(_PAGES))
            reader = reader.option("locktimeout", _WAIT)
            frame = reader.load().toDF(*(f"c{column.attnum}" for column in columns))
            frame.createOrReplaceTempView(source_name(oid))

    def _write(
        self,
        control: Connection[Any],
        frame: Any,
        state: StateTable,
        emitted: Emitted,
        names: Names,
    ) -> tuple[ledger.Load, int]:
        columns = tuple(Column(item.name, item.name, item.type) for item in emitted.staged)
        table = names.table(state.role)
        load = ledger.begin(
            control,
            ledger.Target(QualifiedName(table, "idivm_state"), None),
            mode="append",
            columns=columns,
            key=(),
            quarantine=False,
            command=secrets.token_hex(16),
            sources=[{"state": table}],
            layout=catalog_loads.STATE,
        )
        try:
            task = CopyTask(self.dsn, load.id, tuple(column.name for column in columns))
            with watch_copying(self.dsn, load.id, table, None, self.say):
                return load, copy_frame(task, frame)
        except BaseException:
            catalog_loads.end(control, load.id)
            raise


def dsn_of(connection: Connection[Any]) -> str:
    """Return the connection string with which Spark's tasks reach a connection's database."""
    parameters = connection.info.get_parameters()
    password = connection.info.password
    return psycopg.conninfo.make_conninfo(
        **{**parameters, **({"password": password} if password else {})}
    )


def _drop_views(session: SparkSession, division: Division) -> None:
    for state, emitted in division.by_spark:
        session.catalog.dropTempView(state_name(state.role))
        for oid, _ in emitted.sources:
            session.catalog.dropTempView(source_name(oid))


def _refused(plan: MaintenancePlan) -> tuple[Initialised, ...]:
    """Return why Spark computes none of a plan's states; empty if it can compute some."""
    reason = ""
    if plan.program.time_dependent:
        reason = plan.program.time_dependent[0]
    elif tables_of(plan) is None:
        reason = f"the strategy {plan.strategy} tells rows apart by PostgreSQL's digests"
    return (Initialised(plan.program.content, "PostgreSQL", reason),) if reason else ()


def export_snapshot(connection: Connection[Any]) -> tuple[str, str]:
    """Return the snapshot of the open transaction, and the name under which others can use it."""
    # The transaction is idle while Spark works.
    connection.execute(
        "SELECT set_config(s, '0', true) FROM unnest(%s::text[]) AS s"
        " WHERE current_setting(s, true) IS NOT NULL",
        [["idle_in_transaction_session_timeout", "transaction_timeout"]],
    )
    row = connection.execute("SELECT pg_current_snapshot()::text, pg_export_snapshot()").fetchone()
    assert row is not None
    return row[0], row[1]


@contextmanager
def _as_in_a_refresh(connection: Connection[Any], plan: MaintenancePlan) -> Iterator[None]:
    """Set the settings of a refresh in the open transaction, for a block."""
    settings = {
        **dict(plan.program.settings),
        "search_path": SEARCH_PATH,
        "row_security": "off",
    }
    before = connection.execute(
        "SELECT s, current_setting(s) FROM unnest(%s::text[]) AS s", [list(settings)]
    ).fetchall()
    change = "SELECT set_config(%s, %s, true)"
    for name, value in settings.items():
        connection.execute(change, [name, value])
    yield
    for name, value in before:
        connection.execute(change, [name, value])


def _kinds(
    relations: Mapping[int, Relation], known: Mapping[int, StreamTable]
) -> dict[int, Mapping[int, Kind | InexactError]]:
    """Return how the columns of tables and of known streams are read, or why they are not."""
    return {
        oid: stream_frames.kinds(known[oid], relation)
        if oid in known
        else {column.attnum: kind_or_reason(column) for column in relation.columns}
        for oid, relation in relations.items()
    }


def _fold(connection: Connection[Any], text: str) -> tuple[str, str | None]:
    """Return the type and the text of a constant expression."""
    try:
        with connection.transaction():
            row = connection.execute(
                SQL("SELECT pg_typeof(c)::text, c::text FROM (SELECT {} AS c) AS q").format(
                    SQL(text)
                )
            ).fetchone()
    except psycopg.Error as error:
        if is_interruption(error):
            raise
        raise InexactError(f"{text}, which is no value") from error
    assert row is not None
    return row[0], row[1]


def _rows_from_spark(load: ledger.Load, emitted: Emitted) -> Composed:
    """Return the query for the rows of a state from Spark's results."""
    return SQL("SELECT {} FROM {} AS {}").format(
        # The generator writes trees, so each name is quoted if necessary.
        SQL(", ").join(SQL(dialect.write(tree)) for tree in emitted.outputs),
        staging_table(load.id),
        Identifier(ROW),
    )


def _reason(error: Exception) -> str:
    """Return the message of a failed job in one line."""
    from orchestrator.spark.failures import failed

    # The error of a task, or of planning a source, is at the end of a trace.
    texts = re.findall(r"^\s*(?:psycopg|pyarrow)\.[\w.]+: (.+)", str(error), re.MULTILINE)
    message = texts[-1] if texts else str(failed(error) or error)
    return " ".join(message.split())[:300]
