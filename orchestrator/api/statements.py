"""Run the statements of a script: idivm runs statements on maintained views, PostgreSQL all others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.sql import SQL

from orchestrator import catalog, screenful
from orchestrator.api.session import Session
from orchestrator.catalog import ViewInfo, serving
from orchestrator.catalog import take_over as catalog_take_over
from orchestrator.catalog.search_path import users_path
from orchestrator.catalog.streams import broken_over_streams, streams_below
from orchestrator.errors import DatabaseError, NameTakenError, NotFoundError, UsageError
from orchestrator.frontend.options import parse_options
from orchestrator.frontend.statements import (
    AlterView,
    CreateIndex,
    CreateView,
    DropIndex,
    DropView,
    Other,
    QualifiedName,
    RefreshView,
    RenameIndex,
    Statement,
    parse_name,
)
from orchestrator.runtime import in_transaction, refresh
from orchestrator.runtime.errors import explained
from orchestrator.runtime.installation import install, modes
from orchestrator.runtime.installation.new_view import NewView
from orchestrator.runtime.refresh import RefreshReport
from orchestrator.runtime.sessions import borrowed
from orchestrator.runtime.side_by_side import Sessions
from orchestrator.runtime.stream_rows import rows_read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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


class Statements(Session):
    """Runs single statements."""

    def _run(self, statement: Statement) -> StatementResult:
        if isinstance(statement, CreateView):
            try:
                view = self._create(statement)
            except NameTakenError:
                if not statement.if_not_exists:
                    raise
                return StatementResult("CREATE VIEW", f"{statement.name} exists already, skipping")
            texts = f"CREATE VIEW {_summary(view)}"
            if view.is_planned and (initialised := view.plan.evidence.initialised):
                texts += f"; initial states: {', '.join(map(str, initialised))}"
            return StatementResult("CREATE VIEW", texts)
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
        if isinstance(statement, DropIndex):
            return self._drop_index(statement)
        if isinstance(statement, RenameIndex):
            return self._rename_index(statement)
        return self._pass_on(statement)

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
                view = install.create_view(self.connection, new, self._initialiser(new, spark))
                return self._timed(view, statement.options)
        except DatabaseError as error:
            raise self._with_near_miss(error) from error.__cause__

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
                view = install.create_view(self.connection, new, self._initialiser(new, None))
            else:
                modes.alter(self.connection, view, options)
            return self._timed(catalog.view_by_id(self.connection, view.id), statement.options)

    def _timed(self, view: ViewInfo, given: Iterable[tuple[str, str]]) -> ViewInfo:
        """Follow the schedule of a view that was created or changed, and bring its refresh group into one cut."""
        if "schedule" in dict(given):
            serving.follow_schedule(self.connection, view.id)
        if not view.options.get("refresh_group"):
            return view
        with suppress(DatabaseError, psycopg.Error):
            # What fails is in the status of the views.
            refresh.refresh(self.connection, [view.id])
        return catalog.view_by_id(self.connection, view.id)

    def _refresh(self, names: list[QualifiedName], jobs: int = 1) -> list[RefreshReport]:
        if jobs < 1:
            raise UsageError(f"A refresh needs at least 1 job, not {jobs}.")
        sessions = Sessions(jobs, self._open_like, self._release)
        with self._ours("Refreshing"):
            if self._in_transaction():
                if jobs > 1:
                    raise UsageError(
                        "A refresh inside a transaction cannot use several jobs, because other sessions do not see"
                        " its changes: end the transaction first, or leave jobs out."
                    )
                return in_transaction.refresh_views(self.connection, names)
            ids, failed = self._follow(names)
            if names and not ids:
                return []
            try:
                refresh.complete_states(self.connection, ids)
                # Other sessions do not see the rows of streams that this one reads.
                with rows_read(self.connection, self._streams_to_read(ids)) as read:
                    return refresh.refresh(self.connection, ids, failed, None if read else sessions)
            except refresh.RefreshError:
                # A program may contain a name that is no longer valid, for example after ALTER TYPE ... RENAME.
                concerned = catalog.refresh_order(self.connection, ids)
                if failed or not catalog.views_to_replan(self.connection, concerned):
                    raise
            return refresh.refresh(self.connection, *self._follow(names), sessions)

    def _streams_to_read(self, ids: Sequence[int]) -> list[int]:
        """Return the streams, by oid, without whose rows a refresh cannot recompute views.

        Before that, Spark recomputes the views whose options ask for it.
        """
        broken = broken_over_streams(self.connection, ids)
        if not broken:
            return []
        views = (catalog.view_by_id(self.connection, view_id) for view_id in broken)
        wanted = [view for view in views if view.options.get("initialise") == "spark"]
        if wanted:
            from orchestrator.spark.initial.states import States, dsn_of

            states = States(self._own_spark(), dsn_of(self.connection))
            for view in wanted:
                states.rebuild(self.connection, view)
        return streams_below(self.connection, ids, of_broken=True)

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

    def _create_index(self, statement: CreateIndex) -> StatementResult:
        """Create an index on the content of a maintained view, or pass the statement on."""
        with self._ours(f"Indexing {statement.name}"):
            oid = catalog.relation_oid(self.connection, statement.name.identifier)
            if oid is not None and catalog_take_over.is_maintained(self.connection, oid):
                catalog_take_over.create_index(
                    self.connection,
                    oid,
                    statement.definition,
                    statement.index,
                    statement.unique,
                    statement.if_not_exists,
                )
                return StatementResult("CREATE INDEX", "CREATE INDEX")
        return self._pass_on(Other(statement.text, "CREATE"))

    def _drop_index(self, statement: DropIndex) -> StatementResult:
        """Drop indexes on the contents of maintained views, and other indexes as PostgreSQL does."""
        if self._in_failed_transaction():
            return self._pass_on(Other(statement.text, "DROP"))
        with self._ours("Dropping an index"):
            views = {name: self._view_with_index(name) for name in statement.names}
            if any(oid is not None for oid in views.values()):
                exists = SQL("IF EXISTS " if statement.if_exists else "")
                tail = SQL(" CASCADE" if statement.cascade else "")
                with self.connection.transaction():
                    for name, oid in views.items():
                        if oid is not None:
                            catalog_take_over.drop_index(self.connection, oid, name.name)
                            continue
                        drop = SQL("DROP INDEX {}{}{}").format(exists, name.identifier, tail)
                        with users_path(self.connection):
                            self.connection.execute(drop)
                return StatementResult("DROP INDEX", "DROP INDEX")
        return self._pass_on(Other(statement.text, "DROP"))

    def _rename_index(self, statement: RenameIndex) -> StatementResult:
        """Rename an index on the content of a maintained view, or pass the statement on."""
        name = statement.name
        if self._in_failed_transaction():
            return self._pass_on(Other(statement.text, "ALTER"))
        with self._ours(f"Renaming {name}"):
            oid = self._view_with_index(name)
            if oid is not None:
                catalog_take_over.rename_index(self.connection, oid, name.name, statement.renamed)
                return StatementResult("ALTER INDEX", "ALTER INDEX")
        return self._pass_on(Other(statement.text, "ALTER"))

    def _view_with_index(self, name: QualifiedName) -> int | None:
        """Return the maintained view with an index of this name, unless another relation has the name."""
        if catalog.relation_oid(self.connection, name.identifier) is not None:
            return None
        views = catalog_take_over.views_with_index(self.connection, name.schema, name.name)
        if len(views) > 1:
            raise UsageError(
                f"Several maintained views have an index {name}; name the view, as in"
                f" SELECT idivm.drop_index('view', '{name.name}')."
            )
        return views[0] if views else None

    def _is_materialized(self, name: QualifiedName) -> bool:
        """Return whether a name means a materialized view of PostgreSQL."""
        with self._ours("Looking up names", writes=False):
            oid = catalog.relation_oid(self.connection, name.identifier)
            return catalog_take_over.is_materialized_view(self.connection, oid)

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


def _summary(view: ViewInfo) -> str:
    if view.status == "not planned":
        return (
            f"{view.name}: {view.maintain}, and every read computes the query until it is planned"
        )
    return f"{view.name}: {view.maintain}, strategy {view.strategy}"
