"""The Python interface: `connect()` returns an `Orchestrator`. The command line is a layer over it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from psycopg import Connection

from orchestrator import catalog
from orchestrator.api.capturing import Capturing
from orchestrator.api.connecting import default_dsn, dsn_of, open_database
from orchestrator.api.loading import Loads
from orchestrator.api.scheduling import Scheduling
from orchestrator.api.statements import StatementResult
from orchestrator.api.subscribing import Subscriptions
from orchestrator.api.watching import show_top, watched
from orchestrator.catalog import DroppedView, ViewInfo
from orchestrator.catalog import unplanned as catalog_unplanned
from orchestrator.catalog.parts import Parts, parts_of
from orchestrator.catalog.search_path import PIN, pin
from orchestrator.catalog.streams import streams_below
from orchestrator.catalog.unplanned import UnplannedView
from orchestrator.errors import NotFoundError, UsageError
from orchestrator.frontend.options import ViewOptions, parse_options, seconds
from orchestrator.frontend.statements import (
    AlterView,
    CreateView,
    DropView,
    QualifiedName,
    parse_name,
    parse_script,
)
from orchestrator.runtime import refresh, unplanned
from orchestrator.runtime.diagnosis import doctor
from orchestrator.runtime.diagnosis.comparison import (
    CheckReport,
    compare_on_standby,
    refresh_and_compare,
)
from orchestrator.runtime.diagnosis.doctor import Finding
from orchestrator.runtime.enumeration import hop, merged, ordered, ranked
from orchestrator.runtime.enumeration.buckets import buckets_of
from orchestrator.runtime.enumeration.order import is_through_hidden, order_of
from orchestrator.runtime.errors import explained
from orchestrator.runtime.explain import Explanation, explain_query, explain_view
from orchestrator.runtime.installation import indexes, install, take_over
from orchestrator.runtime.installation import names as view_names
from orchestrator.runtime.installation.new_view import NewView
from orchestrator.runtime.installation.take_over import AdoptReport
from orchestrator.runtime.monitoring import health
from orchestrator.runtime.refresh import RefreshReport
from orchestrator.runtime.serve import WORKERS, Event, Server
from orchestrator.runtime.sessions import end_if_cancelled, open_session
from orchestrator.runtime.side_by_side import Sessions
from orchestrator.runtime.stream_rows import rows_read
from orchestrator.runtime.unplanned import PlanReport
from orchestrator.spark.java import describe

if TYPE_CHECKING:
    from typing_extensions import Unpack


CHECKS = 5
"""How often `check` repeats a comparison if a function that a view calls was replaced meanwhile."""


def connect(database: Any = None) -> Orchestrator:
    """Connect to a database, and install or upgrade its idivm catalog.

    `database` is a connection string, or a URL or engine of SQLAlchemy. Without it, use IDIVM_DSN, then
    DATABASE_URL, then the embedded server.
    """
    return Orchestrator(open_database(dsn_of(database) if database is not None else default_dsn()))


class Orchestrator(Loads, Subscriptions, Scheduling, Capturing):
    """Creates, refreshes, explains, checks and drops maintained views over one connection."""

    def execute(self, script: str) -> list[StatementResult]:
        """Run a script. CREATE VIEW, DROP VIEW and REFRESH manage maintained views."""
        return list(self.run(script))

    def run(self, script: str) -> Iterator[StatementResult]:
        """Run a script like `execute`, and yield the result of each statement when it is available."""
        self._begin()
        for statement in parse_script(script):
            yield self._run(statement)
            end_if_cancelled(self.connection)

    def create_view(
        self,
        name: str,
        query: str,
        *,
        columns: Sequence[str] | None = None,
        replace: bool = False,
        spark: Any = None,
        **options: Unpack[ViewOptions],
    ) -> ViewInfo:
        """Create a maintained view of a query. `spark` is the session for initialise = spark.

        Inside a transaction, the status of the view is `not planned`. Every read computes the query until
        `plan`, a refresh of the view or `idivm serve` plans the view after the commit.
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

    def alter_view(self, name: str, **options: Unpack[ViewOptions]) -> ViewInfo:
        """Change the options of a maintained view while reads and writes continue."""
        given = tuple((key, str(value)) for key, value in options.items())
        return self._alter(AlterView(f"ALTER VIEW {name}", parse_name(name), given))

    def refresh(self, *names: str, jobs: int = 1) -> list[RefreshReport]:
        """Refresh the named views, or all views, in one snapshot. Refresh views that others read first.

        `jobs` sessions refresh views that do not read each other at once, and commit together. Raise
        `RefreshError` if the refresh of a view fails. The other views are refreshed nevertheless.
        """
        return self._refresh([parse_name(name) for name in names], jobs)

    def views(self) -> list[ViewInfo]:
        """Return all maintained views."""
        with self._ours("Listing views", writes=False):
            if not self._on_standby():
                install.drop_orphans(self.connection)
            return catalog.all_views(self.connection)

    def unplanned_views(self) -> list[UnplannedView]:
        """Return the views that SQL created and that no orchestrator has planned yet."""
        with self._ours("Listing views", writes=False):
            return [
                replace(view, relation=catalog_unplanned.user_name(self.connection, view))
                for view in catalog_unplanned.unplanned_views(self.connection)
            ]

    def view(self, name: str) -> ViewInfo:
        """Return the maintained view of this name."""
        with self._ours(f"Looking up {name}", writes=False):
            return catalog.view_named(self.connection, parse_name(name).identifier)

    def missing_indexes(self, view: ViewInfo) -> list[indexes.MissingIndex]:
        """Return the indexes without which changes cost a view many times as much, most expensive first."""
        if not view.plan.evidence.missing:
            return []
        with self._ours(f"Looking at the indexes of {view.name}", writes=False):
            wanted = indexes.missing_for(self.connection, view.plan)
        return [index for index in wanted if index.factor is not None]

    def parts(self, view: ViewInfo) -> Parts | None:
        """Return the heavy and light parts of the relations of a view with the strategy `skew`."""
        with self._ours(f"Looking at the parts of {view.name}", writes=False):
            return parts_of(self.connection, view_names.names_of(view), view.plan)

    def enumerate(
        self, name: str, prefix: Mapping[str, object] | None = None
    ) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a view without refreshing it, over a separate connection.

        `prefix` gives values of some columns: yield only rows with these values. If no table holds the
        rows of the view, compute each row when it is requested. The rows of a view with the option `ranked`
        come in its order.
        """
        with self._ours(f"Enumerating {name}", writes=False):
            view = catalog.view_named(self.connection, parse_name(name).identifier)
            relation = catalog.relation_name(self.connection, view)
            names, ranking = view_names.names_of(view), view.plan.ranking
            is_ranked = ranking is not None and ranking.excerpt is None
            order = order_of(self.connection, names, view.plan)
        given = prefix or {}
        with explained(f"Enumerating {name}"), open_session(self._dsn()) as connection:
            connection.execute(PIN)
            if is_ranked and not given:
                yield from ranked.rows(connection, names)
            # No lookup of a state finds NULL.
            elif order is None or None in given.values() or is_through_hidden(order, given):
                joined = parse_options(view.options.items()).is_factorized
                sort = ranked.order_by(connection, relation)
                yield from ordered.stored_rows(connection, relation, given, joined, sort)
            else:
                by_lookups = hop.rows if order.streamed else ordered.rows
                rows = by_lookups if buckets_of(order) is None else merged.rows
                yield from rows(connection, order, given)

    def dropped_views(self) -> list[DroppedView]:
        """Return the views that were removed by DROP ... CASCADE of a table or plain view."""
        with self._ours("Listing views", writes=False):
            if not self._on_standby():
                install.drop_orphans(self.connection)
            return catalog.dropped_views(self.connection)

    def restore(self, *names: str) -> list[ViewInfo]:
        """Recreate the named views, or all views, that were removed by DROP ... CASCADE of a table or plain view."""
        with self._ours("Restoring"):
            install.drop_orphans(self.connection)
            dropped = catalog.dropped_views(self.connection)
            if names:
                wanted = [self._dropped(parse_name(name)) for name in names]
                dropped = [view for view in dropped if view in wanted]
            restored = []
            for view in dropped:
                end_if_cancelled(self.connection)
                restored.append(self._restore(view))
            return restored

    def _dropped(self, name: QualifiedName) -> DroppedView:
        result = catalog.dropped_view(self.connection, name.identifier)
        if result is None:
            raise NotFoundError(
                f"No DROP ... CASCADE has removed a maintained view {name}."
                " Run `idivm list` for the existing views."
            )
        return result

    def explain(self, name: str) -> Explanation:
        """Explain how a view is maintained: plan, script and reasons."""
        with self._ours(f"Explaining {name}", writes=False):
            return explain_view(
                self.connection, catalog.view_named(self.connection, parse_name(name).identifier)
            )

    def explain_query(self, query: str, **options: Unpack[ViewOptions]) -> Explanation:
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
                _, refused = self._follow(())
                ids = catalog.view_ids(
                    self.connection, [parse_name(name).identifier for name in names]
                )
                with rows_read(self.connection, streams_below(self.connection, ids)):
                    reports = refresh.in_one_cut(
                        self.connection,
                        ids,
                        partial(refresh_and_compare, self.connection, ids, some=bool(names)),
                    )
                # A function may be replaced between the refresh and the comparison, in any snapshot.
                if not any(
                    not report.equal
                    and not report.error
                    and catalog.has_other_code(self.connection, item)
                    for item, report in reports
                ):
                    break
            return [
                replace(report, error=refused[item]) if report.error and item in refused else report
                for item, report in reports
            ]

    def _check_on_standby(self, names: Sequence[QualifiedName]) -> list[CheckReport]:
        with self._ours("Checking", writes=False), refresh.one_snapshot(self.connection):
            ids = catalog.view_ids(self.connection, [name.identifier for name in names])
            return compare_on_standby(self.connection, ids, self.on_notice or (lambda notice: None))

    def serve(
        self,
        interval: str = "500ms",
        *,
        metrics: str | None = None,
        console: str | None = None,
        traces: bool = False,
        workers: int = WORKERS,
        stop: threading.Event | None = None,
        report: Callable[[Event], None] = lambda event: None,
    ) -> None:
        """Refresh deferred views, each within its staleness bound, until `stop` is set.

        Use separate connections, `workers` of them for refreshes, and reopen lost connections. `metrics` and
        `console` are the addresses, as `[HOST:]PORT`, of an endpoint for Prometheus and of the console. With
        `traces`, export spans of OpenTelemetry.
        """
        self._require_primary("Serving")
        connect, operate = self._connectors()
        with watched(connect, operate, report, metrics, console, traces=traces) as listener:
            Server(
                connect,
                lambda connection: Orchestrator(connection)._tidy(plan=False),
                lambda connection: unplanned.plan_ready(connection, self._own_initialiser),
                listener,
                seconds(interval),
                stop or threading.Event(),
                workers,
            ).run()

    def console(
        self,
        address: str = "9188",
        *,
        allow_refresh: bool = False,
        stop: threading.Event | None = None,
        report: Callable[[Event], None] = lambda event: None,
    ) -> None:
        """Serve the console at an address, `[HOST:]PORT`, until `stop` is set. Report its URL in an event."""
        connect, operate = self._connectors()
        with watched(connect, operate, report, None, address, allow_refresh=allow_refresh):
            (stop or threading.Event()).wait()

    def top(self) -> None:
        """Show the views in the terminal until the user quits."""
        show_top(*self._connectors())

    def _connectors(self) -> tuple[Callable[[], Connection[Any]], Callable[[], Orchestrator]]:
        """Return functions that open further sessions of the same database: a pinned connection, and an
        orchestrator.
        """
        dsn = self._dsn()

        def connect() -> Connection[Any]:
            connection = open_database(dsn)
            pin(connection)
            return connection

        return connect, lambda: Orchestrator(open_database(dsn))

    def doctor(self, *, contents: bool = True) -> list[Finding]:
        """Examine server, catalog, capture, views and Java. Repair problems and return all findings.

        With `contents`, also refresh each view and compare it with the result of its query.
        """
        with self._ours("Examining"):
            return [*doctor.examine(self.connection, contents), Finding("java", *describe())]

    def health(self, max_lag: str | None = None) -> list[Finding]:
        """Report the state of capture and of each view, without changing anything or reading tables.

        A view is a problem if it is older than `max_lag`, for example `5min`, if it failed, or if it is
        invalid.
        """
        allowed = None if max_lag is None else seconds(max_lag)
        with self._ours("Checking the health", writes=False):
            return list(health.health(self.connection, allowed))

    @contextmanager
    def snapshot(self) -> Iterator[str]:
        """Keep a snapshot of the database for a block, and return its name.

        With the option `snapshot`, reads of `spark.read.format("idivm")` then show this snapshot.
        """
        from orchestrator.spark.initial.states import dsn_of, export_snapshot

        with open_session(dsn_of(self.connection)) as keeper:
            pin(keeper)
            keeper.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            yield export_snapshot(keeper)[1]

    def drop_view(self, name: str, *, cascade: bool = False, if_exists: bool = False) -> None:
        """Drop a maintained view and everything that only this view uses."""
        self._drop(DropView(f"DROP VIEW {name}", (parse_name(name),), if_exists, cascade))

    def plan(self, *names: str) -> list[PlanReport]:
        """Plan the named views that SQL created, or all of them, so that they become incremental."""
        with self._ours("Planning"):
            chosen = unplanned.waiting(self.connection, [parse_name(name) for name in names])
            return list(unplanned.plan_views(self.connection, chosen, self._own_initialiser))

    def adopt(
        self, *names: str, dry_run: bool = False, jobs: int = 2, **options: object
    ) -> list[AdoptReport]:
        """Turn the named materialized views and views of pg_ivm, or all that you own, into maintained views.

        Each keeps its name, owner, rights, indexes, comments and readers, and is adopted in a transaction of
        its own. `jobs` sessions adopt views at once. With `dry_run`, plan each and change nothing.
        """
        given = {key: str(value) for key, value in options.items()}
        at_once = not self._in_transaction() and given.get("initialise") != "spark"
        with self._ours("Adopting"):
            return take_over.adopt(
                self.connection,
                [parse_name(name) for name in names],
                given,
                self._own_initialiser,
                dry_run=dry_run,
                sessions=Sessions(jobs, self._open_like, self._release) if at_once else None,
            )

    def release(self, name: str) -> None:
        """Turn a maintained view into a materialized view with the same name, rights, indexes and readers."""
        with self._ours(f"Releasing {name}"):
            take_over.release(self.connection, parse_name(name))


def _one_query(text: str) -> str:
    statements = parse_script(text)
    if len(statements) != 1:
        raise UsageError(f"The query must be one statement, not {len(statements)}.")
    return statements[0].text
