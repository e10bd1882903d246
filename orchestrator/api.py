"""The Python interface: `connect()` gives an `Orchestrator`, and the command line is a layer over it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import Connection
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.errors import Diagnostic
from psycopg.sql import SQL, Identifier

from orchestrator.deltascript.emit import SEARCH_PATH
from orchestrator.deltascript.plan import Initialised
from orchestrator.errors import NameTakenError, NotFoundError, ServerError, UsageError
from orchestrator.frontend.options import parse_options, seconds
from orchestrator.frontend.statements import (
    AlterView,
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
    catalog,
    check,
    doctor,
    install,
    migrate,
    modes,
    refresh,
    sources,
    streaming,
    walking,
)
from orchestrator.runtime.catalog import ViewInfo
from orchestrator.runtime.catalog_parts import Parts, parts_of
from orchestrator.runtime.doctor import Finding
from orchestrator.runtime.errors import explained
from orchestrator.runtime.explain import Explanation, explain_view
from orchestrator.runtime.install import Initialiser, NewView
from orchestrator.runtime.refresh import RefreshReport
from orchestrator.runtime.serve import Event, Server
from orchestrator.spark.java import describe

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from orchestrator.server import EmbeddedServer
    from orchestrator.spark.report import LoadReport


@dataclass(frozen=True)
class StatementResult:
    """What one statement of a script gave."""

    kind: str
    message: str
    columns: tuple[str, ...] = ()
    rows: list[tuple[Any, ...]] = field(default_factory=list)


@dataclass(frozen=True)
class CheckReport:
    """Whether a view shows what its query answers in the same snapshot."""

    view: str
    equal: bool
    missing: int
    surplus: int
    missing_rows: tuple[str, ...] = ()
    surplus_rows: tuple[str, ...] = ()


def connect(dsn: str | None = None) -> Orchestrator:
    """Opens a database and brings idivm's catalog in it up to date.

    Without a dsn it takes IDIVM_DSN, then DATABASE_URL, then the embedded server.
    """
    return Orchestrator(_open(dsn or default_dsn()))


def default_dsn() -> str:
    """Where to connect when nothing is said: the environment's database, or the embedded one."""
    named = os.environ.get("IDIVM_DSN") or os.environ.get("DATABASE_URL")
    if named:
        return named
    from orchestrator.server import embedded_dsn

    return embedded_dsn()


def accelerate(server: EmbeddedServer, database: str | None = None) -> None:
    """Builds capture's C form for an embedded server, and has its database, or another, use it."""
    server.add_module()
    endpoint = server.up()
    with connect(make_conninfo(endpoint.dsn, dbname=database)) as orchestrator:
        as_superuser = make_conninfo(endpoint.superuser_dsn, dbname=database)
        with psycopg.connect(as_superuser, autocommit=True) as superuser:
            migrate.take_module(superuser)
        if not catalog.captures_in_c(orchestrator.connection):
            raise ServerError(
                "The server does not take capture's C form: run idivm down, then this again, and "
                "see that the setting idivm.accelerate is not off."
            )
        with explained("Changing capture"):
            sources.switch_form(orchestrator.connection)


def _open(dsn: str) -> Connection[Any]:
    try:
        conninfo_to_dict(dsn)
    except psycopg.Error:
        # What the parser says quotes the text, which may hold a password.
        raise UsageError(
            "The connection string cannot be read; write it as postgresql://user@host/database or as"
            " host=... dbname=... user=..., with special characters escaped."
        ) from None
    try:
        connection = psycopg.connect(dsn, autocommit=True, application_name="idivm")
    except psycopg.Error as error:
        reason = str(error).strip().splitlines()[-1] if str(error).strip() else "no reason given"
        raise ServerError(
            f"Cannot connect to PostgreSQL: {reason}. Check --dsn, IDIVM_DSN or DATABASE_URL."
        ) from error
    try:
        with explained("Preparing the database"):
            migrate.migrate(connection)
    except BaseException:
        connection.close()
        raise
    return connection


class Orchestrator:
    """Creates, refreshes, explains, checks and drops maintained views over one connection."""

    def __init__(self, connection: Connection[Any]) -> None:
        """Takes a connection in autocommit mode to a database with idivm's catalog."""
        self.connection = connection
        self._stack = ExitStack()
        self._spark: SparkSession | None = None
        self.on_notice: Callable[[str], None] | None = None
        connection.add_notice_handler(self._notice)

    def __enter__(self) -> Orchestrator:
        """The orchestrator itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes the connection."""
        self.close()

    def close(self) -> None:
        """Closes the connection, and ends Spark if a view has started it."""
        self._spark = None
        self._stack.close()
        self.connection.close()

    def _notice(self, diagnostic: Diagnostic) -> None:
        if self.on_notice is not None and diagnostic.message_primary:
            self.on_notice(diagnostic.message_primary)

    def execute(self, script: str) -> list[StatementResult]:
        """Runs a script; CREATE VIEW, DROP VIEW and REFRESH act on maintained views."""
        return list(self.run(script))

    def run(self, script: str) -> Iterator[StatementResult]:
        """Runs a script like `execute`, giving each statement's result as soon as it is there."""
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
        **options: object,
    ) -> ViewInfo:
        """Creates a maintained view of a query; `spark` is the session for initialise = spark."""
        statements = parse_script(query)
        if len(statements) != 1:
            raise UsageError(f"The query of {name} must be one statement, not {len(statements)}.")
        return self._create(
            CreateView(
                text=query,
                name=parse_name(name),
                query=statements[0].text,
                columns=tuple(columns) if columns is not None else None,
                options=tuple((key, str(value)) for key, value in options.items()),
                replace=replace,
            ),
            spark,
        )

    def alter_view(self, name: str, **options: object) -> ViewInfo:
        """Gives a maintained view other options, while its tables are written and it is read."""
        given = tuple((key, str(value)) for key, value in options.items())
        return self._alter(AlterView(f"ALTER VIEW {name}", parse_name(name), given))

    def refresh(self, *names: str) -> list[RefreshReport]:
        """Brings the named views, or all, up to date in one snapshot, lower ones first."""
        return self._refresh([parse_name(name) for name in names])

    def views(self) -> list[ViewInfo]:
        """Every maintained view."""
        with explained("Listing views"):
            install.sweep(self.connection)
            return catalog.all_views(self.connection)

    def view(self, name: str) -> ViewInfo:
        """One maintained view."""
        with explained(f"Looking up {name}"):
            return catalog.view_named(self.connection, parse_name(name).identifier)

    def parts(self, view: ViewInfo) -> Parts | None:
        """The heavy and light parts that a view of the strategy `skew` keeps of its relations."""
        with explained(f"Looking at the parts of {view.name}"):
            return parts_of(self.connection, install.names_of(view), view.plan)

    def enumerate(
        self, name: str, prefix: Mapping[str, object] | None = None
    ) -> Iterator[tuple[Any, ...]]:
        """The rows of a view as it is, one after the other, over a connection of its own.

        With `prefix`, values of some columns, only the rows that have them. What no table holds is
        found row by row; nothing is computed that is not asked for.
        """
        with explained(f"Enumerating {name}"):
            view = catalog.view_named(self.connection, parse_name(name).identifier)
            shown = catalog.relation_name(self.connection, view)
            order = walking.order_of(self.connection, install.names_of(view), view.plan)
            info = self.connection.info
            with psycopg.connect(
                make_conninfo(info.dsn, password=info.password or None), autocommit=True
            ) as connection:
                if order is None:
                    joined = view.options.get("representation") == "factorized"
                    yield from walking.stored_rows(connection, shown, prefix or {}, joined)
                else:
                    rows = streaming.rows if order.streamed else walking.rows
                    yield from rows(connection, order, prefix or {})

    def explain(self, name: str) -> Explanation:
        """How a view is maintained: plan, script and reasons."""
        with explained(f"Explaining {name}"):
            return explain_view(
                self.connection, catalog.view_named(self.connection, parse_name(name).identifier)
            )

    def check(self, *names: str) -> list[CheckReport]:
        """Refreshes the named views, or all, and compares each with its query's own answer."""
        with explained("Checking"):
            self._tidy()
            ids = catalog.view_ids(self.connection, [parse_name(name).identifier for name in names])

            def compare() -> list[CheckReport]:
                refresh.refresh_here(self.connection, ids)
                refresh.pin_tables(self.connection, ids)
                here = {view.id: view for view in catalog.all_views(self.connection)}
                return [
                    self._compare(here.get(one) or catalog.view_by_id(self.connection, one))
                    for one in ids
                    if one in here or names
                ]

            return refresh.in_one_cut(self.connection, ids, compare)

    def serve(
        self,
        interval: str = "500ms",
        *,
        stop: threading.Event | None = None,
        report: Callable[[Event], None] = lambda event: None,
    ) -> None:
        """Keeps deferred views fresh, each within its bound, until `stop` is set.

        It works over connections of its own, and opens new ones when they are lost.
        """
        info = self.connection.info
        dsn = make_conninfo(info.dsn, password=info.password or None)
        Server(
            lambda: _open(dsn),
            lambda connection: Orchestrator(connection)._tidy(),
            report,
            seconds(interval),
            stop or threading.Event(),
        ).run()

    def doctor(self, *, contents: bool = True) -> list[Finding]:
        """Looks at server, catalog, capture, views and Java; mends what it can and says so.

        With `contents` each view is brought up to date and compared with its query's answer.
        """
        with explained("Examining"):
            findings = doctor.examine(self.connection, contents)
        return [*findings, Finding("java", *describe())]

    def load(
        self,
        source: str | Path | Sequence[str | Path] | DataFrame,
        into: str | None = None,
        *,
        create: bool = False,
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
        """Loads files, a database or a DataFrame into a table by Spark, each row once.

        Without `into`, `source` is a load file (TOML) that names several tables. Spark runs where
        `master` says, else IDIVM_SPARK_MASTER, else on all cores of this machine.
        """
        from orchestrator.spark.job import tables_of
        from orchestrator.spark.load import run
        from orchestrator.spark.progress import silent

        said = {
            "create": create or None,
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
        with explained("Loading"):
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
        """Drops a maintained view and everything that only it used."""
        self._drop(DropView(f"DROP VIEW {name}", (parse_name(name),), if_exists, cascade))

    def _run(self, statement: Statement) -> StatementResult:
        if isinstance(statement, CreateView):
            try:
                view = self._create(statement)
            except NameTakenError:
                if not statement.if_not_exists:
                    raise
                return StatementResult("CREATE VIEW", f"{statement.name} exists already, skipping")
            told = f"CREATE VIEW {view.name}: {view.maintain}, strategy {view.strategy}"
            if initialised := view.plan.get("initialised"):
                told += (
                    f"; initial states: {', '.join(str(Initialised(**one)) for one in initialised)}"
                )
            return StatementResult("CREATE VIEW", told)
        if isinstance(statement, AlterView):
            try:
                view = self._alter(statement)
            except NotFoundError:
                if not statement.if_exists:
                    raise
                return StatementResult("ALTER VIEW", f"{statement.name} does not exist, skipping")
            return StatementResult(
                "ALTER VIEW", f"ALTER VIEW {view.name}: {view.maintain}, strategy {view.strategy}"
            )
        if isinstance(statement, DropView):
            self._drop(statement)
            return StatementResult("DROP VIEW", "DROP VIEW")
        if isinstance(statement, RefreshView):
            reports = self._refresh(list(statement.names))
            changed = sum(report.changed for report in reports)
            return StatementResult("REFRESH", f"REFRESH: {changed} rows changed")
        return self._pass_on(statement)

    def _create(self, statement: CreateView, spark: SparkSession | None = None) -> ViewInfo:
        new = NewView(
            statement.name,
            statement.query,
            statement.columns,
            parse_options(statement.options),
            statement.replace,
        )
        with explained(f"Creating {statement.name}"):
            return install.create_view(self.connection, new, self._initialiser(new, spark))

    def _initialiser(self, new: NewView, spark: SparkSession | None) -> Initialiser | None:
        """What computes the first content of a view, if PostgreSQL alone is not to."""
        if new.options.initialise != "spark":
            return None
        from orchestrator.spark.initial import States, dsn_of
        from orchestrator.spark.load import SETTINGS
        from orchestrator.spark.session import default_master, spark_session

        if spark is None and self._spark is None:
            session = spark_session(default_master(), "idivm", **SETTINGS)
            self._spark = self._stack.enter_context(session)
        spark = spark or self._spark
        assert spark is not None
        return States(spark, dsn_of(self.connection)).create

    def _alter(self, statement: AlterView) -> ViewInfo:
        with explained(f"Altering {statement.name}"):
            self._tidy()
            view = catalog.view_named(self.connection, statement.name.identifier)
            options = modes.altered(view, statement.options)
            if modes.asks_for_another_plan(view, options):
                new = NewView(
                    parse_name(view.name),
                    view.query,
                    modes.columns_of(self.connection, view),
                    options,
                    replace=True,
                )
                return install.create_view(self.connection, new, self._initialiser(new, None))
            modes.alter(self.connection, view, options)
            return catalog.view_by_id(self.connection, view.id)

    def _tidy(self, names: Sequence[QualifiedName] = ()) -> list[int]:
        """Follows what plain SQL did meanwhile: tables dropped, partitions added, views replaced.

        It looks at what the named views read, or all, and gives their numbers.
        """
        install.sweep(self.connection)
        ids = catalog.view_ids(self.connection, [name.identifier for name in names])
        install.follow(self.connection, ids)
        return ids

    def _refresh(self, names: list[QualifiedName]) -> list[RefreshReport]:
        with explained("Refreshing"):
            return refresh.refresh(self.connection, self._tidy(names))

    def _drop(self, statement: DropView) -> None:
        for name in statement.names:
            with explained(f"Dropping {name}"):
                try:
                    view = catalog.view_named(self.connection, name.identifier)
                except NotFoundError:
                    oid = catalog.relation_oid(self.connection, name.identifier)
                    if oid is None and statement.if_exists:
                        continue
                    if oid is None:
                        raise
                    self._drop_plain(name, statement.cascade)
                    continue
                install.drop_view(self.connection, view, statement.cascade)

    def _drop_plain(self, name: QualifiedName, cascade: bool) -> None:
        tail = SQL(" CASCADE") if cascade else SQL("")
        self.connection.execute(SQL("DROP VIEW {}{}").format(name.identifier, tail))
        install.sweep(self.connection)

    def _pass_on(self, statement: Other) -> StatementResult:
        with explained(f"{statement.verb} failed"):
            cursor = self.connection.execute(statement.text.encode())
        message = cursor.statusmessage or statement.verb
        if statement.verb == "DROP":
            with explained("Removing what was dropped"):
                install.sweep(self.connection)
        if cursor.description is None:
            return StatementResult(statement.verb, message)
        names = tuple(column.name for column in cursor.description)
        return StatementResult(statement.verb, message, names, cursor.fetchall())

    def _compare(self, view: ViewInfo) -> CheckReport:
        # The definition answers as it does in a refresh; its settings go back with the savepoint.
        with self.connection.transaction(force_rollback=True):
            catalog.take_settings(self.connection, {**view.settings, "search_path": SEARCH_PATH})
            shown = catalog.relation_name(self.connection, view)
            definition = Identifier("idivm_def", f"v{view.id}")
            result = check.compare(self.connection, view=shown, definition=definition)
        return CheckReport(
            view.name,
            result.equal,
            result.missing,
            result.surplus,
            result.missing_samples,
            result.surplus_samples,
        )
