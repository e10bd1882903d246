"""Show the progress of a load: rows, rows per second, time left."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import psycopg
from psycopg import Connection

from orchestrator.catalog import loads as catalog_loads
from orchestrator.catalog.loads import Progress
from orchestrator.catalog.search_path import PIN
from orchestrator.frontend import statistics
from orchestrator.runtime.sessions import open_session
from orchestrator.spark.loading.effects import Change

_EVERY = 1.0


class Say(Protocol):
    """Shows a line of progress; the next line may overwrite it unless it `stays`."""

    def __call__(self, text: str, stays: bool = False, /) -> None:
        """Show the line."""


def silent(text: str, stays: bool = False, /) -> None:
    """Show nothing."""


class Clock:
    """Measures the stages of a load."""

    def __init__(self) -> None:
        """Start without stages."""
        self.stages: dict[str, float] = {}
        self._within: list[float] = []
        """For each stage that runs: the time of the stages within it."""

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the time of a block to a stage, without the time of stages within the block."""
        started = time.perf_counter()
        self._within.append(0.0)
        try:
            yield
        finally:
            seconds = time.perf_counter() - started
            own = seconds - self._within.pop()
            self.stages[name] = self.stages.get(name, 0.0) + own
            if self._within:
                self._within[-1] += seconds


@contextmanager
def watch_copying(dsn: str, load: int, name: str, parts: int | None, say: Say) -> Iterator[None]:
    """Show once a second how far the tasks of a load are."""

    def begin(connection: Connection[Any]) -> Callable[[float], str]:
        first = catalog_loads.progress(connection, load)

        def tell(seconds: float) -> str:
            now = catalog_loads.progress(connection, load)
            return f"{name}: {describe(now, first, parts, seconds)}"

        return tell

    with _watched(dsn, begin, say):
        yield


@contextmanager
def watch_time_dependent(dsn: str, changes: Sequence[Change], say: Say) -> Iterator[None]:
    """Show once a second how far the last transaction is, estimated from the sizes of its tables."""

    def begin(connection: Connection[Any]) -> Callable[[float], str]:
        first = [statistics.pages(connection, item.table) for item in changes]
        whole = [catalog_loads.staged_pages(connection, item.load) for item in changes]
        total = sum(item.staged for item in changes)

        def tell(seconds: float) -> str:
            rows = 0.0
            for change, before, pages in zip(changes, first, whole, strict=True):
                pages_added = statistics.pages(connection, change.table) - before
                rows += change.staged * min(1.0, max(pages_added, 0) / max(pages, 1))
            return f"moving rows into place: {describe_time_dependent(rows, total, seconds)}"

        return tell

    with _watched(dsn, begin, say):
        yield


@contextmanager
def _watched(
    dsn: str, begin: Callable[[Connection[Any]], Callable[[float], str]], say: Say
) -> Iterator[None]:
    """Show a line once a second; a connection of its own reads the progress."""
    if say is silent:
        yield
        return
    ended = threading.Event()

    def look() -> None:
        started = time.monotonic()
        try:
            with open_session(dsn) as connection:
                connection.execute(PIN)
                tell = begin(connection)
                while not ended.wait(_EVERY):
                    say(tell(time.monotonic() - started))
        except psycopg.Error:
            return  # the session that does the work reports the server's problem

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(5)


def describe(now: Progress, first: Progress, parts: int | None, seconds: float) -> str:
    """Return the progress in words; the time left is known once partitions have ended.

    >>> describe(Progress(5, 600), Progress(0, 0), 10, 2.0)
    '5 of 10 partitions, 600 rows, 300 rows/s, about 2 s left'
    """
    rate = (now.rows - first.rows) / max(seconds, 0.001)
    of = "" if parts is None else f" of {parts}"
    texts = f"{now.parts}{of} partitions, {now.rows:,} rows, {rate:,.0f} rows/s"
    ended = now.parts - first.parts
    if ended and parts is not None:
        texts += f", about {(parts - now.parts) * seconds / ended:.0f} s left"
    return texts


def describe_time_dependent(rows: float, total: int, seconds: float) -> str:
    """Return the progress of the last transaction in words.

    >>> describe_time_dependent(250.4, 1000, 2.0)
    'about 250 of 1,000 rows, 125 rows/s, about 6 s left'
    """
    texts = f"about {rows:,.0f} of {total:,} rows, {rows / max(seconds, 0.001):,.0f} rows/s"
    if rows:
        texts += f", about {(total - rows) * seconds / rows:.0f} s left"
    return texts
