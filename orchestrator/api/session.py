"""The base of every operation of an orchestrator: its connection, its errors, and the work before an operation."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from psycopg import Connection
from psycopg.conninfo import make_conninfo
from psycopg.errors import Diagnostic, UndefinedTable
from psycopg.pq import TransactionStatus

from orchestrator import catalog
from orchestrator.api.connecting import open_database, prepare_catalog
from orchestrator.catalog import DroppedView, ViewInfo
from orchestrator.catalog.search_path import PIN, pinned
from orchestrator.errors import (
    DatabaseError,
    IdivmError,
    UsageError,
    is_interruption,
    near_miss,
)
from orchestrator.frontend.statements import QualifiedName
from orchestrator.runtime import progress, stream_rows, unplanned
from orchestrator.runtime.errors import cascades, explained, unqualified
from orchestrator.runtime.installation import install, replanning
from orchestrator.runtime.installation.new_view import Initialiser, NewView
from orchestrator.runtime.progress import LOGGER, Progress
from orchestrator.runtime.sessions import (
    IdivmSession,
    OwnSession,
    borrow,
    borrowed,
    cancel,
    open_session,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from typing_extensions import Self


class Session:
    """A connection on which idivm works, and its state."""

    def __init__(self, connection: Any) -> None:
        """Use the session of a given connection: of psycopg 3, of a pool, of SQLAlchemy or of Django.

        The connection keeps its state and stays open. Inside its transaction, views are created and changed
        as by SQL. `prepare` installs the catalog if the database has none.
        """
        self.connection: Connection[Any] = (
            connection if isinstance(connection, OwnSession) else borrow(connection)
        )
        self._workers: list[Connection[Any]] = []
        self._idle: list[Connection[Any]] = []
        self._stack = ExitStack()
        self._spark: SparkSession | None = None
        self.on_notice: Callable[[str], None] | None = None
        """Called with each notice and warning of the database, which also go to the log."""
        self._on_progress: Callable[[Progress], None] | None = None
        self._names: Mapping[str, str] = {}
        self._is_prepared = isinstance(connection, OwnSession)
        stream_rows.provide(self.connection, self._stream_rows)
        self.connection.add_notice_handler(self._notice)

    def __enter__(self) -> Self:
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
        for worker in self._workers:
            worker.close()
        self.connection.close()

    def cancel(self) -> None:
        """Cancel the operation of another thread on this orchestrator, which then raises `CancelledError`."""
        for connection in (self.connection, *self._workers):
            if not connection.closed:
                cancel(connection, safely=True)

    def prepare(self) -> None:
        """Install or upgrade idivm's catalog. Inside a transaction, this uses a separate connection."""
        if self._in_transaction():
            open_database(self._dsn()).close()
        else:
            prepare_catalog(self.connection)

    @property
    def on_progress(self) -> Callable[[Progress], None] | None:
        """Called for each stage of a creation, in the thread that creates the view."""
        return self._on_progress

    @on_progress.setter
    def on_progress(self, listener: Callable[[Progress], None] | None) -> None:
        self._on_progress = listener
        progress.listen(self.connection, listener)

    def _dsn(self) -> str:
        info = self.connection.info
        return make_conninfo(info.dsn, password=info.password or None)

    def _open_like(self) -> Connection[Any]:
        """Open another session of the same database, whose notices arrive like those of this one."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed:
                return connection
        connection = open_session(self._dsn())
        connection.add_notice_handler(self._notice)
        connection.execute(PIN)
        self._workers = [worker for worker in self._workers if not worker.closed] + [connection]
        return connection

    def _release(self, connection: Connection[Any]) -> None:
        """Keep a session for later: it has planned the programs of its views. Close it after an error."""
        if connection.info.transaction_status == TransactionStatus.IDLE:
            self._idle.append(connection)
        else:
            connection.close()

    def _in_transaction(self) -> bool:
        return self.connection.info.transaction_status != TransactionStatus.IDLE

    def _in_failed_transaction(self) -> bool:
        return self.connection.info.transaction_status == TransactionStatus.INERROR

    def _on_standby(self) -> bool:
        return self.connection.info.parameter_status("in_hot_standby") == "on"

    def _notice(self, diagnostic: Diagnostic) -> None:
        if not diagnostic.message_primary:
            return
        level = logging.WARNING if diagnostic.severity_nonlocalized == "WARNING" else logging.INFO
        for line in cascades(diagnostic, self._names):
            LOGGER.log(level, "%s", line)
            if self.on_notice is not None:
                self.on_notice(line)

    @contextmanager
    def _ours(self, doing: str, *, writes: bool = True) -> Iterator[None]:
        """Run idivm's own statements. Turn errors into sentences that name the failed action."""
        if writes:
            self._require_primary(doing)
        LOGGER.debug("%s", doing)
        self._begin()
        with explained(doing), borrowed(self.connection), pinned(self.connection):
            self._require_catalog()
            yield

    def _begin(self) -> None:
        """Forget that an earlier call was cancelled."""
        if isinstance(self.connection, IdivmSession):
            self.connection.is_cancelled = False

    def _require_catalog(self) -> None:
        # `connect` has already prepared its database.
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

    def _stream_rows(
        self, connection: Connection[Any], streams: Sequence[int]
    ) -> AbstractContextManager[Mapping[int, stream_rows.StreamRows]]:
        """Read the files of streams for an operation that recomputes views."""
        from orchestrator.spark.loading.here import threads_of
        from orchestrator.spark.loading.progress import silent
        from orchestrator.spark.settings import default_master
        from orchestrator.spark.streams.rows import rows_of_streams

        threads = threads_of(default_master())
        return rows_of_streams(connection, streams, self._own_spark, threads, silent)

    def _initialiser(self, new: NewView, spark: SparkSession | None) -> Initialiser | None:
        """Return the function that computes the first content of a view with Spark, if the view's options ask
        for it.
        """
        if new.options.initialise != "spark":
            return None
        from orchestrator.spark.initial.states import States, dsn_of

        return States(spark or self._own_spark(), dsn_of(self.connection)).create

    def _own_spark(self) -> SparkSession:
        """Return a Spark session that ends with this object."""
        from orchestrator.spark.loading.load import OWN_SETTINGS
        from orchestrator.spark.session import spark_session
        from orchestrator.spark.settings import default_master

        if self._spark is None:
            session = spark_session(default_master(), "idivm", **OWN_SETTINGS)
            self._spark = self._stack.enter_context(session)
        return self._spark

    def _own_initialiser(self, new: NewView) -> Initialiser | None:
        return self._initialiser(new, None)

    def _restore(self, dropped: DroppedView) -> ViewInfo:
        try:
            with explained("Creating it"):
                return install.restore_view(
                    self.connection, dropped, lambda new: self._initialiser(new, None)
                )
        except DatabaseError as error:
            raise type(error)(f"Restoring {dropped.name}: {error}") from error.__cause__

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
                    if is_interruption(error):
                        raise
                    # The tables of the view may be created later.
                    replanning.warn(self.connection, str(error))
        ids = catalog.view_ids(self.connection, [name.identifier for name in names])
        return ids, replanning.follow(self.connection, ids)

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
