"""The asynchronous interface: each call runs in a thread, over a session that no other call uses meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from orchestrator.api import Orchestrator, StatementResult, connect
from orchestrator.catalog import ViewInfo
from orchestrator.catalog.serving import Timing
from orchestrator.catalog.unplanned import UnplannedView
from orchestrator.frontend.options import ViewOptions
from orchestrator.runtime.diagnosis.comparison import CheckReport
from orchestrator.runtime.explain import Explanation
from orchestrator.runtime.feeds import Caught, Change
from orchestrator.runtime.refresh import RefreshReport
from orchestrator.runtime.unplanned import PlanReport

if TYPE_CHECKING:
    from typing_extensions import Unpack

Result = TypeVar("Result")

ROWS = 1000
"""How many rows of an enumeration a thread fetches before it hands them over."""


class AsyncOrchestrator:
    """Does what `Orchestrator` does, for programs that use asyncio."""

    def __init__(self, connection: Any) -> None:
        """Use the session of anybody's connection, such as an `AsyncConnection`, or an `Orchestrator`."""
        is_own = isinstance(connection, Orchestrator)
        self.orchestrator = connection if is_own else Orchestrator(connection)
        lock = getattr(connection, "lock", None)
        # Nobody else may use an AsyncConnection while a thread uses its session.
        self._lock = lock if isinstance(lock, asyncio.Lock) else asyncio.Lock()

    @classmethod
    async def connect(cls, database: Any = None) -> AsyncOrchestrator:
        """Connect to a database as `idivm.connect` does."""
        return cls(await asyncio.to_thread(connect, database))

    async def __aenter__(self) -> AsyncOrchestrator:
        """Return the orchestrator itself."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connection if `connect` opened it."""
        await self.close()

    async def close(self) -> None:
        """Close the connection if `connect` opened it."""
        await self._call(self.orchestrator.close)

    def cancel(self) -> None:
        """Cancel the call that is running, which then raises `CancelledError`."""
        self.orchestrator.cancel()

    async def _call(self, action: Callable[[], Result]) -> Result:
        async with self._lock:
            running = asyncio.ensure_future(asyncio.to_thread(action))
            try:
                return await asyncio.shield(running)
            except asyncio.CancelledError:
                # The session is free once the server has given the query up.
                while not running.done():
                    self.orchestrator.cancel()
                    await asyncio.wait([running], timeout=1)
                running.exception()
                raise

    async def execute(self, script: str) -> list[StatementResult]:
        """Run a script. CREATE VIEW, DROP VIEW and REFRESH manage maintained views."""
        return await self._call(partial(self.orchestrator.execute, script))

    async def prepare(self) -> None:
        """Install or upgrade idivm's catalog."""
        await self._call(self.orchestrator.prepare)

    async def create_view(
        self,
        name: str,
        query: str,
        *,
        columns: Sequence[str] | None = None,
        replace: bool = False,
        **options: Unpack[ViewOptions],
    ) -> ViewInfo:
        """Create a maintained view of a query."""
        create = partial(self.orchestrator.create_view, name, query, columns=columns)
        return await self._call(partial(create, replace=replace, **options))

    async def alter_view(self, name: str, **options: Unpack[ViewOptions]) -> ViewInfo:
        """Change the options of a maintained view."""
        return await self._call(partial(self.orchestrator.alter_view, name, **options))

    async def drop_view(self, name: str, *, cascade: bool = False, if_exists: bool = False) -> None:
        """Drop a maintained view and everything that only this view uses."""
        drop = partial(self.orchestrator.drop_view, name, cascade=cascade, if_exists=if_exists)
        await self._call(drop)

    async def refresh(self, *names: str, jobs: int = 1) -> list[RefreshReport]:
        """Refresh the named views, or all views, in one snapshot, in `jobs` sessions at once."""
        return await self._call(partial(self.orchestrator.refresh, *names, jobs=jobs))

    async def schedule(self, view: str, every: str) -> Timing:
        """Refresh a view at an interval, or at the times of five fields as cron has them."""
        return await self._call(partial(self.orchestrator.schedule, view, every))

    async def unschedule(self, view: str) -> None:
        """End the schedule of a view."""
        await self._call(partial(self.orchestrator.unschedule, view))

    async def gate(self, source: str, batch: str) -> None:
        """Say that a batch of changes of a table is complete, together with the open transaction."""
        await self._call(partial(self.orchestrator.gate, source, batch))

    async def plan(self, *names: str) -> list[PlanReport]:
        """Plan the named views, or all, that SQL created."""
        return await self._call(partial(self.orchestrator.plan, *names))

    async def check(self, *names: str) -> list[CheckReport]:
        """Refresh the named views, or all views, and compare each with the result of its query."""
        return await self._call(partial(self.orchestrator.check, *names))

    async def explain(self, name: str) -> Explanation:
        """Explain how a view is maintained."""
        return await self._call(partial(self.orchestrator.explain, name))

    async def explain_query(self, query: str, **options: Unpack[ViewOptions]) -> Explanation:
        """Explain how a view of a query would be maintained, without creating it."""
        return await self._call(partial(self.orchestrator.explain_query, query, **options))

    async def view(self, name: str) -> ViewInfo:
        """Return the maintained view of this name."""
        return await self._call(partial(self.orchestrator.view, name))

    async def views(self) -> list[ViewInfo]:
        """Return all maintained views."""
        return await self._call(self.orchestrator.views)

    async def unplanned_views(self) -> list[UnplannedView]:
        """Return the views that SQL created and that no orchestrator has planned yet."""
        return await self._call(self.orchestrator.unplanned_views)

    async def enumerate(
        self, name: str, prefix: Mapping[str, object] | None = None
    ) -> AsyncIterator[tuple[Any, ...]]:
        """Yield the rows of a view without refreshing it, over a separate connection."""
        rows: Iterator[tuple[Any, ...]] = self.orchestrator.enumerate(name, prefix)
        while batch := await self._call(lambda: list(islice(rows, ROWS))):
            for row in batch:
                yield row

    async def subscribe(
        self,
        view: str,
        since: int | None = None,
        *,
        snapshot: bool = False,
        consumer: str | None = None,
        live: bool = True,
    ) -> AsyncIterator[Change]:
        """Yield each change of a view with feed = on once, in order, as `Orchestrator.subscribe` does."""
        stop = threading.Event()
        items = await self._call(
            partial(
                self.orchestrator.follow,
                view,
                since,
                snapshot=snapshot,
                consumer=consumer,
                live=live,
                stop=stop,
            )
        )
        running: asyncio.Future[list[Change | Caught]] | None = None
        try:
            while True:
                # A separate connection waits for changes, so that other calls can go on.
                running = asyncio.ensure_future(asyncio.to_thread(_until_caught, items))
                batch = await asyncio.shield(running)
                for item in batch:
                    if isinstance(item, Change):
                        yield item
                if not batch:
                    return
        finally:
            stop.set()
            if running is not None:
                await asyncio.wait([running])


def _until_caught(items: Iterator[Change | Caught]) -> list[Change | Caught]:
    """Return the next changes, at most to the point where there are no more; an empty list at the end."""
    batch: list[Change | Caught] = []
    for item in items:
        batch.append(item)
        if isinstance(item, Caught) or len(batch) == ROWS:
            break
    return batch
