"""Tells a person who waits how far the copying is: rows, rows a second, time left."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import psycopg

from orchestrator.runtime import catalog_loads
from orchestrator.runtime.catalog_loads import Progress

_EVERY = 1.0


class Say(Protocol):
    """Takes a line; one that is to stay, or one that the next may overwrite."""

    def __call__(self, text: str, stays: bool = False, /) -> None:
        """Shows the line."""


def silent(text: str, stays: bool = False, /) -> None:
    """Shows nothing."""


@contextmanager
def watch(dsn: str, load: int, name: str, parts: int | None, say: Say) -> Iterator[None]:
    """Says once a second how far the tasks of a load are, over a connection of its own."""
    if say is silent:
        yield
        return
    ended = threading.Event()

    def look() -> None:
        started = time.monotonic()
        try:
            with psycopg.connect(dsn, autocommit=True) as connection:
                first = catalog_loads.progress(connection, load)
                while not ended.wait(_EVERY):
                    now = catalog_loads.progress(connection, load)
                    say(f"{name}: {describe(now, first, parts, time.monotonic() - started)}")
        except psycopg.Error:
            return  # the tasks will say what is wrong with the server

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(5)


def describe(now: Progress, first: Progress, parts: int | None, seconds: float) -> str:
    """Progress in words; the time left is known once partitions have ended.

    >>> describe(Progress(5, 600), Progress(0, 0), 10, 2.0)
    '5 of 10 partitions, 600 rows, 300 rows/s, about 2 s left'
    """
    rate = (now.rows - first.rows) / max(seconds, 0.001)
    of = "" if parts is None else f" of {parts}"
    told = f"{now.parts}{of} partitions, {now.rows:,} rows, {rate:,.0f} rows/s"
    ended = now.parts - first.parts
    if ended and parts is not None:
        told += f", about {(parts - now.parts) * seconds / ended:.0f} s left"
    return told
