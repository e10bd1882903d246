"""The Python interface: `connect()` returns an `Orchestrator`. The command line is a layer over it."""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from html import escape
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import Connection
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.errors import Diagnostic, UndefinedTable
from psycopg.pq import TransactionStatus
from psycopg.sql import SQL

from orchestrator import catalog, screenful
from orchestrator.catalog import DroppedView, ViewInfo
from orchestrator.catalog import take_over as catalog_take_over
from orchestrator.catalog import unplanned as catalog_unplanned
from orchestrator.catalog.parts import Parts, parts_of
from orchestrator.catalog.search_path import PIN, pin, pinned, users_path
from orchestrator.catalog.unplanned import UnplannedView
from orchestrator.errors import (
    DatabaseError,
    IdivmError,
    NameTakenError,
    NotFoundError,
    ServerError,
    UsageError,
    near_miss,
)
from orchestrator.frontend.options import OptionValues, parse_options, seconds
from orchestrator.frontend.statements import (
    AlterView,
    CreateIndex,
    CreateView,
    DropView,
    Other,
    QualifiedName,
    RefreshView,
    Statement,
    parse_name,
    parse_script,
)
from orchestrator.runtime import (
    in_transaction,
    migrate,
    progress,
    refresh,
    unplanned,
)
from orchestrator.runtime.diagnosis import doctor
from orchestrator.runtime.diagnosis.comparison import (
    CheckReport,
    compare_on_standby,
    refresh_and_compare,
)
from orchestrator.runtime.diagnosis.doctor import Finding
from orchestrator.runtime.enumeration import hop, ordered
from orchestrator.runtime.errors import cascades, explained, unqualified, unreachable
from orchestrator.runtime.explain import Explanation, explain_query, explain_view
from orchestrator.runtime.installation import (
    indexes,
    install,
    modes,
    replanning,
    sources,
    take_over,
)
from orchestrator.runtime.installation import names as view_names
from orchestrator.runtime.installation.new_view import Initialiser, NewView
from orchestrator.runtime.installation.take_over import AdoptReport
from orchestrator.runtime.progress import LOGGER, Progress
from orchestrator.runtime.refresh import RefreshReport
from orchestrator.runtime.serve import Event, Server
from orchestrator.runtime.sessions import OwnSession, borrow, borrowed, open_session
from orchestrator.runtime.unplanned import PlanReport
from orchestrator.spark.java import describe

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from typing_extensions import Unpack

    from orchestrator.server import EmbeddedServer
    from orchestrator.spark.loading.report import LoadReport


CHECKS = 5
"""How often `check` repeats a comparison because somebody replaced a function that a view calls."""


@dataclass(frozen=True)
class StatementResult:
    """The result of a statement of a script."""

    kind: str
    message: str
    columns: tuple[str, ...] = ()
    rows: list[tuple[Any, ...]] = field(default_factory=list)

    def __repr__(self) -> str:
        """Return the first rows, or the message of a statement without rows."""
        return screenful.as_text(self.columns, self.rows) if self.columns else self.message

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        if not self.columns:
            return f"<pre>{escape(self.message)}</pre>"
        return screenful.as_html(self.columns, self.rows)


def connect(database: Any = None) -> Orchestrator:
    """Connect to a database, and install or upgrade its idivm catalog.

    `database` is a connection string, or a URL or engine of SQLAlchemy. Without it, use IDIVM_DSN, then
    DATABASE_URL, then the embedded server.
    """
    return Orchestrator(_open(dsn_of(database) if database is not None else default_dsn()))


def dsn_of(database: Any) -> str:
    """Return the connection string of a database that is given as a string, or as a URL or engine of SQLAlchemy.

    >>> dsn_of("postgresql+psycopg2://me@here/db?connect_timeout=3")
    'postgresql://me@here/db?connect_timeout=3'
    """
    url = getattr(database, "url", database)
    text = url if isinstance(url, str) else url.render_as_string(hide_password=False)
    scheme, mark, rest = text.partition("://")
    kind, plus, _ = scheme.partition("+")
    if mark and kind not in ("postgresql", "postgres"):
        raise UsageError(f"idivm cannot connect to a database of {kind}: it needs PostgreSQL.")
    return f"{kind}://{rest}" if plus else text


def named_dsn() -> str | None:
    """Return the connection string from the environment."""
    return os.environ.get("IDIVM_DSN") or os.environ.get("DATABASE_URL") or None


def default_dsn() -> str:
    """Return the connection string from the environment, or of the embedded server."""
    if named := named_dsn():
        return named
    from orchestrator.server import embedded_dsn

    return embedded_dsn()


def accelerate(server: EmbeddedServer, database: str | None = None) -> None:
    """Build the C modules for an embedded server, and use them in its database or in the named database."""
    server.add_module()
    endpoint = server.up()
    with connect(make_conninfo(endpoint.dsn, dbname=database)) as orchestrator:
        as_superuser = make_conninfo(endpoint.superuser_dsn, dbname=database)
        with open_session(as_superuser) as superuser:
            superuser.execute(PIN)
            migrate.take_module(superuser)
        with explained("Changing capture"), pinned(orchestrator.connection):
            if not catalog.captures_in_c(orchestrator.connection):
                raise ServerError(
                    "The server cannot use the C modules. Run idivm down and then this command again, and "
                    "check that the setting idivm.accelerate is not off."
                )
            sources.switch_form(orchestrator.connection)


def _open(dsn: str) -> Connection[Any]:
    try:
        conninfo_to_dict(dsn)
    except psycopg.Error:
        # The message of the parser quotes the text, which may contain a password.
        raise UsageError(
            "Cannot read the connection string. Write it as postgresql://user@host/database or as"
            " host=... dbname=... user=..., with special characters escaped."
        ) from None
    try:
        connection = open_session(dsn)
    except psycopg.Error as error:
        raise ServerError(
            f"Cannot connect to PostgreSQL: {unreachable(error)}. Check --dsn, IDIVM_DSN or DATABASE_URL."
        ) from error
    try:
        _migrate(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _migrate(connection: Connection[Any]) -> None:
    with explained("Preparing the database"), borrowed(connection), pinned(connection):
        migrate.migrate(connection)


class Orchestrator:
    """Creates, refreshes, explains, checks and drops maintained views over one connection."""

    def __init__(self, connection: Any) -> None:
        """Use the session of anybody's connection: of psycopg 3, of a pool, of SQLAlchemy or of Django.

        The connection stays as it is, and stays open. Inside its transaction, views are created and changed as
        SQL does it, and `prepare` installs the catalog if the database has none.
        """
        self.connection: Connection[Any] = (
            connection if isinstance(connection, OwnSession) else borrow(connection)
        )
        self._stack = ExitStack()
        self._spark: SparkSession | None = None
        self.on_notice: Callable[[str], None] | None = None
        """Called with each notice and warning of the database, which also go to the log."""
        self._on_progress: Callable[[Progress], None] | None = None
        self._names: Mapping[str, str] = {}
        self._is_prepared = isinstance(connection, OwnSession)
        self.connection.add_notice_handler(self._notice)

    def __enter__(self) -> Orchestrator:
        """Return the orchestrator itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connection if `connect` opened it."""
        self.close()

    def close(self) -> None:
        """Close the connection if `connect` opened it, and stop Spark if a view has started it."""
        self._spark = None
        self._stack.close()
        self.connection.close()

    def cancel(self) -> None:
        """Cancel what another thread is doing with this orchestrator, which then raises `CancelledError`."""
        self.connection.cancel_safe()

    def prepare(self) -> None:
        """Install or upgrade idivm's catalog. Inside a transaction, use a separate connection."""
        if self._in_transaction():
            _open(self._dsn()).close()
        else:
            _migrate(self.connection)

    def _dsn(self) -> str:
        info = self.connection.info
        return make_conninfo(info.dsn, password=info.password or None)

    def _in_transaction(self) -> bool:
        return self.connection.info.transaction_status != TransactionStatus.IDLE

    def _notice(self, diagnostic: Diagnostic) -> None:
        if not diagnostic.message_primary:
            return
        level = logging.WARNING if diagnostic.severity_nonlocalized == "WARNING" else logging.INFO
        for line in cascades(diagnostic, self._names):
            LOGGER.log(level, "%s", line)
            if self.on_notice is not None:
                self.on_notice(line)

    @property
    def on_progress(self) -> Callable[[Progress], None] | None:
        """Called for each stage of a creation, in the thread that creates the view."""
        return self._on_progress

    @on_progress.setter
    def on_progress(self, listener: Callable[[Progress], None] | None) -> None:
        self._on_progress = listener
        progress.listen(self.connection, listener)

    @contextmanager
    def _ours(self, doing: str, *, writes: bool = True) -> Iterator[None]:
        """Run idivm's own statements. Turn errors into sentences that name the failed action."""
        if writes:
            self._require_primary(doing)
        LOGGER.debug("%s", doing)
        with explained(doing), borrowed(self.connection), pinned(self.connection):
            self._require_catalog()
            yield

    def _require_catalog(self) -> None:
        # `connect` has prepared its database.
        if self._is_prepared or self._in_failed_transaction():
            return
        row = self.connection.execute("SELECT pg_catalog.to_regclass('idivm.views')").fetchone()
        if row == (None,):
            raise UsageError(
                f"The database {self.connection.info.dbname} has no catalog of idivm: run idivm init, or call"
                " prepare() of the orchestrator."
            )
        self._is_prepared = True

    def _require_primary(self, doing: str) -> None:
        if self._on_standby():
            raise DatabaseError(
                f"{doing} is not possible on this server: it is a standby, which is read-only. "
                "Connect to the primary. The commands list, status, explain, enumerate and check work here."
            )

    def _on_standby(self) -> bool:
        return self.connection.info.parameter_status("in_hot_standby") == "on"

    def execute(self, script: str) -> list[StatementResult]:
        """Run a script. CREATE VIEW, DROP VIEW and REFRESH manage maintained views."""
        return list(self.run(script))

    def run(self, script: str) -> Iterator[StatementResult]:
        """Run a script like `execute`, and yield the result of each statement when it is available."""
        for statement in parse_script(script):
            yield self._run(statement)

    def create_view(
        self,
        name: str,
        query: str,
        *,
        columns: Sequence[str] | None = None,
        replace: bool = False,
        spark: Any = None,
        **options: Unpack[OptionValues],
    ) -> ViewInfo:
        """Create a maintained view of a query. `spark` is the session for initialise = spark.

        Inside a transaction, the status of the view is `not planned`: every read computes the query until `plan`,
        a refresh of the view or `idivm serve` plans it after the commit.
        """
        return self._create(
            CreateView(
                text=query,
                name=parse_name(name),
                query=_one_query(query),
                columns=tuple(columns) if columns is not None else None,
                options=tuple((key, str(value)) for key, value in options.items()),
                replace=replace,
            ),
            spark,
        )

    def alter_view(self, name: str, **options: Unpack[OptionValues]) -> ViewInfo:
        """Change the options of a maintained view. Reads and writes go on meanwhile."""
        given = tuple((key, str(value)) for key, value in options.items())
        return self._alter(AlterView(f"ALTER VIEW {name}", parse_name(name), given))

    def refresh(self, *names: str) -> list[RefreshReport]:
        """Refresh the named views, or all views, in one snapshot. Views that others read come first.

        Raise `RefreshError` if the refresh of a view fails. The other views are refreshed all the same.
        """
        return self._refresh([parse_name(name) for name in names])

    def views(self) -> list[ViewInfo]:
        """Return all maintained views."""
        with self._ours("Listing views", writes=False):
            if not self._on_standby():
                install.drop_orphans(self.connection)
            return catalog.all_views(self.connection)

    def unplanned_views(self) -> list[UnplannedView]:
        """The views that SQL created and that no orchestrator has planned yet."""
        with self._ours("Listing views", writes=False):
            return catalog_unplanned.unplanned_views(self.connection)

    def view(self, name: str) -> ViewInfo:
        """Return the maintained view of this name."""
        with self._ours(f"Looking up {name}", writes=False):
            return catalog.view_named(self.connection, parse_name(name).identifier)

    def missing_indexes(self, view: ViewInfo) -> list[indexes.MissingIndex]:
        """Return the indexes without which changes cost a view many times as much, dearest first."""
        if not view.plan.evidence.missing:
            return []
        with self._ours(f"Looking at the indexes of {view.name}", writes=False):
            wanted = indexes.missing_for(self.connection, view.plan)
        return [index for index in wanted if index.factor is not None]

    def parts(self, view: ViewInfo) -> Parts | None:
        """Return the heavy and light parts of the relations of a view with the strategy `skew`."""
        with self._ours(f"Looking at the parts of {view.name}", writes=False):
            return parts_of(self.connection, view_names.names_of(view), view.plan.partitioning)

    def enumerate(
        self, name: str, prefix: Mapping[str, object] | None = None
    ) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a view without refreshing it, over a separate connection.

        `prefix` gives values of some columns: yield only rows with these values. If no table holds the
        rows of the view, compute each row when it is requested.
        """
        with self._ours(f"Enumerating {name}", writes=False):
            view = catalog.view_named(self.connection, parse_name(name).identifier)
            shown = catalog.relation_name(self.connection, view)
            order = ordered.order_of(self.connection, view_names.names_of(view), view.plan)
        with explained(f"Enumerating {name}"), open_session(self._dsn()) as connection:
            connection.execute(PIN)
            if order is None:
                joined = view.options.get("representation") == "factorized"
                yield from ordered.stored_rows(connection, shown, prefix or {}, joined)
            else:
                rows = hop.rows if order.streamed else ordered.rows
                yield from rows(connection, order, prefix or {})

    def dropped_views(self) -> list[DroppedView]:
        """Return the views that DROP ... CASCADE of a table or plain view removed."""
        with self._ours("Listing views", writes=False):
            if not self._on_standby():
                install.drop_orphans(self.connection)
            return catalog.dropped_views(self.connection)

    def restore(self, *names: str) -> list[ViewInfo]:
        """Recreate the named views, or all views, that DROP ... CASCADE of a table or plain view removed."""
        with self._ours("Restoring"):
            install.drop_orphans(self.connection)
            dropped = catalog.dropped_views(self.connection)
            if names:
                wanted = [self._dropped(parse_name(name)) for name in names]
                dropped = [view for view in dropped if view in wanted]
            return [self._restore(view) for view in dropped]

    def _dropped(self, name: QualifiedName) -> DroppedView:
        found = catalog.dropped_view(self.connection, name.identifier)
        if found is None:
            raise NotFoundError(
                f"No DROP ... CASCADE has removed a maintained view {name}."
                " Run `idivm list` for the existing views."
            )
        return found

    def _restore(self, dropped: DroppedView) -> ViewInfo:
        try:
            with explained("Creating it"):
                return install.restore_view(
                    self.connection, dropped, lambda new: self._initialiser(new, None)
                )
        except DatabaseError as error:
            raise DatabaseError(f"Restoring {dropped.name}: {error}") from error

    def explain(self, name: str) -> Explanation:
        """Explain how a view is maintained: plan, script and reasons."""
        with self._ours(f"Explaining {name}", writes=False):
            return explain_view(
                self.connection, catalog.view_named(self.connection, parse_name(name).identifier)
            )

    def explain_query(self, query: str, **options: Unpack[OptionValues]) -> Explanation:
        """Explain how a view of a query would be maintained, without creating it."""
        given = tuple((key, str(value)) for key, value in options.items())
        new = NewView(QualifiedName("query"), _one_query(query), None, parse_options(given))
        with self._ours("Explaining the query"):
            return explain_query(self.connection, new)

    def check(self, *names: str) -> list[CheckReport]:
        """Refresh the named views, or all views, and compare each with the result of its query.

        A standby cannot refresh. There, compare only the views without pending changes.
        """
        if self._on_standby():
            return self._check_on_standby([parse_name(name) for name in names])
        with self._ours("Checking"):
            for _ in range(CHECKS):
                self._tidy()
                ids = catalog.view_ids(
                    self.connection, [parse_name(name).identifier for name in names]
                )
                reports = refresh.in_one_cut(
                    self.connection,
                    ids,
                    partial(refresh_and_compare, self.connection, ids, some=bool(names)),
                )
                # A function may have been replaced between the refresh and the comparison, in any snapshot.
                if not any(
                    not report.equal
                    and not report.error
                    and catalog.has_other_code(self.connection, one)
                    for one, report in reports
                ):
                    break
            return [report for _, report in reports]

    def _check_on_standby(self, names: Sequence[QualifiedName]) -> list[CheckReport]:
        with self._ours("Checking", writes=False), refresh.one_snapshot(self.connection):
            ids = catalog.view_ids(self.connection, [name.identifier for name in names])
            return compare_on_standby(self.connection, ids, self.on_notice or (lambda notice: None))

    def serve(
        self,
        interval: str = "500ms",
        *,
        stop: threading.Event | None = None,
        report: Callable[[Event], None] = lambda event: None,
    ) -> None:
        """Refresh deferred views, each within its staleness bound, until `stop` is set.

        Use separate connections, and reopen lost connections.
        """
        dsn = self._dsn()
        self._require_primary("Serving")

        def connect() -> Connection[Any]:
            connection = _open(dsn)
            pin(connection)
            return connection

        Server(
            connect,
            lambda connection: Orchestrator(connection)._tidy(plan=False),
            lambda connection: unplanned.plan_ready(connection, self._own_initialiser),
            report,
            seconds(interval),
            stop or threading.Event(),
        ).run()

    def doctor(self, *, contents: bool = True) -> list[Finding]:
        """Examine server, catalog, capture, views and Java. Repair problems and return all findings.

        With `contents`, also refresh each view and compare it with the result of its query.
        """
        with self._ours("Examining"):
            findings = doctor.examine(self.connection, contents)
        return [*findings, Finding("java", *describe())]

    @contextmanager
    def snapshot(self) -> Iterator[str]:
        """Keep a snapshot of the database for a block, and return its name.

        Reads of `spark.read.format("idivm")` with the option `snapshot` then show this moment.
        """
        from orchestrator.spark.initial.states import dsn_of, export_snapshot

        with open_session(dsn_of(self.connection)) as keeper:
            pin(keeper)
            keeper.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            yield export_snapshot(keeper)[1]

    def load(
        self,
        source: str | Path | Sequence[str | Path] | DataFrame,
        into: str | None = None,
        *,
        create: bool = False,
        add_columns: bool = False,
        mode: str | None = None,
        key: Sequence[str] = (),
        format: str | None = None,  # noqa: A002 - as Spark calls it
        options: Mapping[str, str] | None = None,
        where: str | None = None,
        select: str | None = None,
        partitions: int | None = None,
        on_bad_row: str | None = None,
        max_bad_rows: int | None = None,
        views: str = "auto",
        master: str | None = None,
        config: Mapping[str, object] | None = None,
        resume: bool = False,
        again: bool = False,
        spark: SparkSession | None = None,
        say: Callable[..., None] | None = None,
    ) -> LoadReport:
        """Load files, a database or a DataFrame into a table with Spark, each row exactly once.

        Without `into`, `source` is a load file (TOML) that names several tables. Spark runs at
        `master`, else at IDIVM_SPARK_MASTER, else on all cores of this machine.
        """
        from orchestrator.spark.loading.job import tables_of
        from orchestrator.spark.loading.load import run
        from orchestrator.spark.loading.progress import silent

        said = {
            "create": create or None,
            "add_columns": add_columns or None,
            "mode": mode,
            "key": list(key) or None,
            "format": format,
            "options": dict(options) if options else None,
            "where": where,
            "select": select,
            "partitions": partitions,
            "on_bad_row": on_bad_row,
            "max_bad_rows": max_bad_rows,
        }
        tables = tables_of(source, into, {k: v for k, v in said.items() if v is not None})
        with self._ours("Loading"):
            report, decision = run(
                self.connection,
                tables,
                master=master,
                config=config,
                views=views,
                resume=resume,
                again=again,
                spark=spark,
                say=say or silent,
            )
        if decision.action == "leave":
            return report
        started = time.perf_counter()
        refreshed = self.refresh(*decision.names)
        stages = {**report.stages, "views": time.perf_counter() - started}
        changed = tuple((one.view, one.changed) for one in refreshed)
        return replace(report, refreshed=changed, stages=stages)

    def drop_view(self, name: str, *, cascade: bool = False, if_exists: bool = False) -> None:
        """Drop a maintained view and everything that only this view uses."""
        self._drop(DropView(f"DROP VIEW {name}", (parse_name(name),), if_exists, cascade))

    def _run(self, statement: Statement) -> StatementResult:
        if isinstance(statement, CreateView):
            try:
                view = self._create(statement)
            except NameTakenError:
                if not statement.if_not_exists:
                    raise
                return StatementResult("CREATE VIEW", f"{statement.name} exists already, skipping")
            told = f"CREATE VIEW {_summary(view)}"
            if view.is_planned and (initialised := view.plan.evidence.initialised):
                told += f"; initial states: {', '.join(map(str, initialised))}"
            return StatementResult("CREATE VIEW", told)
        if isinstance(statement, AlterView):
            try:
                view = self._alter(statement)
            except NotFoundError:
                if not statement.if_exists:
                    raise
                return StatementResult("ALTER VIEW", f"{statement.name} does not exist, skipping")
            return StatementResult("ALTER VIEW", f"ALTER VIEW {_summary(view)}")
        if isinstance(statement, DropView):
            self._drop(statement)
            return StatementResult("DROP VIEW", "DROP VIEW")
        if isinstance(statement, RefreshView) and not self._is_materialized(statement.names[0]):
            reports = self._refresh(list(statement.names))
            changed = sum(report.changed for report in reports)
            return StatementResult("REFRESH", f"REFRESH: {changed} rows changed")
        if isinstance(statement, RefreshView):
            return self._pass_on(Other(statement.text, "REFRESH"))
        if isinstance(statement, CreateIndex):
            return self._create_index(statement)
        return self._pass_on(statement)

    def _create_index(self, statement: CreateIndex) -> StatementResult:
        """Create an index on the content of a maintained view, or pass the statement on."""
        with self._ours(f"Indexing {statement.name}"):
            oid = catalog.relation_oid(self.connection, statement.name.identifier)
            if oid is not None and catalog_take_over.is_maintained(self.connection, oid):
                catalog_take_over.create_index(
                    self.connection, oid, statement.definition, statement.index, statement.unique
                )
                return StatementResult("CREATE INDEX", "CREATE INDEX")
        return self._pass_on(Other(statement.text, "CREATE"))

    def _is_materialized(self, name: QualifiedName) -> bool:
        """Whether a name means a materialized view of PostgreSQL's."""
        with self._ours("Looking up names", writes=False):
            oid = catalog.relation_oid(self.connection, name.identifier)
            return catalog_take_over.is_materialized_view(self.connection, oid)

    def _create(self, statement: CreateView, spark: SparkSession | None = None) -> ViewInfo:
        new = NewView(
            statement.name,
            statement.query,
            statement.columns,
            parse_options(statement.options),
            statement.replace,
        )
        try:
            with self._ours(f"Creating {statement.name}"):
                if self._in_transaction():
                    return in_transaction.create_view(self.connection, new)
                return install.create_view(self.connection, new, self._initialiser(new, spark))
        except DatabaseError as error:
            raise self._with_near_miss(error) from error.__cause__

    def _initialiser(self, new: NewView, spark: SparkSession | None) -> Initialiser | None:
        """Return the function that computes the first content of a view with Spark, if the view asks for it."""
        if new.options.initialise != "spark":
            return None
        from orchestrator.spark.initial.states import States, dsn_of
        from orchestrator.spark.loading.load import SETTINGS
        from orchestrator.spark.session import default_master, spark_session

        if spark is None and self._spark is None:
            session = spark_session(default_master(), "idivm", **SETTINGS)
            self._spark = self._stack.enter_context(session)
        spark = spark or self._spark
        assert spark is not None
        return States(spark, dsn_of(self.connection)).create

    def _alter(self, statement: AlterView) -> ViewInfo:
        with self._ours(f"Altering {statement.name}"):
            if self._in_transaction():
                return in_transaction.alter_view(self.connection, statement.name, statement.options)
            self._tidy()
            view = catalog.view_named(self.connection, statement.name.identifier)
            options = modes.altered(view, statement.options)
            if modes.asks_for_another_plan(view, options):
                new = NewView(
                    parse_name(view.relation),
                    view.query,
                    modes.columns_of(self.connection, view),
                    options,
                    replace=True,
                )
                return install.create_view(self.connection, new, self._initialiser(new, None))
            modes.alter(self.connection, view, options)
            return catalog.view_by_id(self.connection, view.id)

    def plan(self, *names: str) -> list[PlanReport]:
        """Plan the named views, or all, that SQL created, so that they are incremental from then on."""
        with self._ours("Planning"):
            chosen = unplanned.waiting(self.connection, [parse_name(name) for name in names])
            return list(unplanned.plan_views(self.connection, chosen, self._own_initialiser))

    def adopt(self, *names: str, dry_run: bool = False, **options: object) -> list[AdoptReport]:
        """Make maintained views of the named materialized views and views of pg_ivm, or of all that are yours.

        Each keeps its name, owner, rights, indexes, comments and readers, and is taken over in a transaction of its
        own. With `dry_run`, plan each and change nothing.
        """
        given = {key: str(value) for key, value in options.items()}
        with self._ours("Adopting"):
            return list(
                take_over.adopt(
                    self.connection,
                    [parse_name(name) for name in names],
                    given,
                    self._own_initialiser,
                    dry_run=dry_run,
                )
            )

    def release(self, name: str) -> None:
        """Give a maintained view back as a materialized view with the same name, rights, indexes and readers."""
        with self._ours(f"Releasing {name}"):
            take_over.release(self.connection, parse_name(name))

    def _own_initialiser(self, new: NewView) -> Initialiser | None:
        return self._initialiser(new, None)

    def _tidy(self, names: Sequence[QualifiedName] = (), *, plan: bool = True) -> list[int]:
        """Follow changes by plain SQL: dropped tables, new partitions, replaced views.

        Examine the sources of the named views, or of all views. Return the IDs of these views.
        """
        ids, _ = self._follow(names, plan=plan)
        return ids

    def _follow(
        self, names: Sequence[QualifiedName], *, plan: bool = True
    ) -> tuple[list[int], dict[int, str]]:
        """Do the work of `_tidy`. Also return why some views could not be planned again."""
        install.drop_orphans(self.connection)
        if plan:
            planned = unplanned.plan_first(self.connection, names, self._own_initialiser)
            if names and not planned:
                return [], {}
            names = planned
        for dropped in catalog.dropped_views(self.connection):
            if dropped.options.get("on_drop") == "restore":
                try:
                    self._restore(dropped)
                except IdivmError as error:
                    # Its tables may be created later.
                    replanning.warn(self.connection, str(error))
        ids = catalog.view_ids(self.connection, [name.identifier for name in names])
        return ids, replanning.follow(self.connection, ids)

    def _refresh(self, names: list[QualifiedName]) -> list[RefreshReport]:
        with self._ours("Refreshing"):
            if self._in_transaction():
                return in_transaction.refresh_views(self.connection, names)
            ids, failed = self._follow(names)
            if names and not ids:
                return []
            try:
                return refresh.refresh(self.connection, ids, failed)
            except refresh.RefreshError:
                # A program may contain a name that is no longer valid, for example after ALTER TYPE ... RENAME.
                concerned = catalog.refresh_order(self.connection, ids)
                if failed or not catalog.views_to_replan(self.connection, concerned):
                    raise
            return refresh.refresh(self.connection, *self._follow(names))

    def _drop(self, statement: DropView) -> None:
        with self._ours("Removing what was dropped"):
            install.drop_orphans(self.connection)
        for name in statement.names:
            with self._ours(f"Dropping {name}"):
                try:
                    view = catalog.view_named(self.connection, name.identifier)
                except NotFoundError:
                    oid = catalog.relation_oid(self.connection, name.identifier)
                    if oid is None and catalog.clear_dropped(self.connection, name.identifier):
                        continue
                    if oid is None and statement.if_exists:
                        continue
                    if oid is None:
                        raise
                    self._drop_plain(name, statement.cascade)
                    continue
                install.drop_view(self.connection, view, statement.cascade)

    def _drop_plain(self, name: QualifiedName, cascade: bool) -> None:
        kind = SQL("MATERIALIZED VIEW" if self._is_materialized(name) else "VIEW")
        tail = SQL(" CASCADE") if cascade else SQL("")
        with users_path(self.connection):
            self.connection.execute(SQL("DROP {} {}{}").format(kind, name.identifier, tail))
        install.drop_orphans(self.connection)

    def _pass_on(self, statement: Other) -> StatementResult:
        if statement.verb in ("ALTER", "DROP") and not self._in_failed_transaction():
            # After the statement, the catalog no longer shows which views the dropped objects belonged to.
            with self._ours("Looking up names", writes=False):
                self._names = catalog.names_behind(self.connection)
        try:
            with (
                explained(f"{statement.verb} failed", statement.text, names=self._names),
                borrowed(self.connection),
            ):
                cursor = self.connection.execute(statement.text.encode())
        except DatabaseError as error:
            raise self._with_near_miss(error) from error.__cause__
        message = cursor.statusmessage or statement.verb
        if statement.verb == "DROP":
            with self._ours("Removing what was dropped"):
                install.drop_orphans(self.connection)
        if cursor.description is None:
            return StatementResult(statement.verb, message)
        names = tuple(column.name for column in cursor.description)
        return StatementResult(statement.verb, message, names, cursor.fetchall())

    def _in_failed_transaction(self) -> bool:
        return self.connection.info.transaction_status == TransactionStatus.INERROR

    def _with_near_miss(self, error: DatabaseError) -> DatabaseError:
        """Add a similar name to the error if a table or view does not exist."""
        cause = error.__cause__
        missing = re.search(r'"([^"]+)" does not exist', str(cause))
        if not isinstance(cause, UndefinedTable) or not missing or self._in_failed_transaction():
            return error
        if unqualified(cause):
            return error
        name = missing[1].rpartition(".")[2]
        with explained("Looking up names"), borrowed(self.connection):
            return DatabaseError(
                f"{error}{near_miss(name, catalog.visible_relations(self.connection))}"
            )


def _one_query(text: str) -> str:
    statements = parse_script(text)
    if len(statements) != 1:
        raise UsageError(f"The query must be one statement, not {len(statements)}.")
    return statements[0].text


def _summary(view: ViewInfo) -> str:
    if view.status == "not planned":
        return (
            f"{view.name}: {view.maintain}, and every read computes the query until it is planned"
        )
    return f"{view.name}: {view.maintain}, strategy {view.strategy}"
