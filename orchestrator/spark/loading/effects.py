"""What a load does to the maintained views that read its tables: refresh, rebuild, or leave."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from psycopg import Connection
from psycopg.errors import InsufficientPrivilege
from psycopg.sql import SQL, Identifier

from orchestrator import catalog
from orchestrator.catalog import readers as catalog_readers
from orchestrator.catalog.readers import Reader, Trigger
from orchestrator.frontend.statistics import statistics

CHOICES = ("auto", "refresh", "rebuild", "leave")

_ACCESSES = 3.0
"""What a new row is taken to cost where a plan does not say: then a load of a quarter of the rows, or
more, is cheaper recomputed."""


@dataclass(frozen=True)
class Change:
    """A table that a load is about to change, and in about how many rows."""

    load: int
    table: int
    name: str
    staged: int
    rows: float


@dataclass(frozen=True)
class Decision:
    """What is to be done about the views, and why."""

    action: str
    why: str
    readers: tuple[Reader, ...] = ()
    names: tuple[str, ...] = ()
    """The views to refresh afterwards, with those that read them in turn."""

    def __str__(self) -> str:
        """A sentence for the output."""
        names = ", ".join(reader.name for reader in self.readers)
        return f"views: {self.action} of {names} ({self.why})" if names else "views: none"


def with_those_above(connection: Connection[Any], readers: Sequence[Reader]) -> tuple[str, ...]:
    """The names of views and of all maintained views that read them."""
    names = {reader.id: reader.name for reader in readers}
    for reader in readers:
        names |= dict(catalog.readers_of(connection, reader.id))
    return tuple(names.values())


def changed_rows(
    connection: Connection[Any], table: int, mode: str, staged: int, keyed: bool
) -> float:
    """About how many rows of a table a load changes, as far as can be told before it does.

    Where a key tells which rows stay as they are, they are taken to be as many as can be: in doubt the
    changes are applied.
    """
    if mode == "append":
        return staged
    before = sum(statistic.rows for statistic in statistics(connection, [table]))
    if mode == "upsert":
        return max(staged - before, 0)
    return abs(staged - before) if keyed else staged + before


def decide(
    wanted: str,
    found: Sequence[Reader],
    changes: Sequence[Change],
    recompute_is_cheaper: Callable[[int, float], bool],
) -> Decision:
    """The way to bring views up to date after tables have changed.

    >>> view, load = Reader(1, "v", "id", "deferred", {"t": 2.0}), Change(1, 16384, "t", 1000, 1000)
    >>> decide("auto", [view], [load], lambda view, accesses: accesses > 5000).action
    'refresh'
    >>> print(decide("auto", [view], [load], lambda view, accesses: accesses > 1000))
    views: rebuild of v (which costs less than to apply 1,000 changed rows)
    >>> decide("rebuild", [Reader(1, "v", "id", "eager")], [load], lambda *_: True).action
    'refresh'
    """
    readers = tuple(found)
    if not readers:
        return Decision("leave", "no maintained view reads the loaded tables")
    if any(reader.maintain != "deferred" for reader in readers):
        return Decision("refresh", "some are kept up to date within the load", readers)
    if wanted != "auto":
        return Decision(wanted, "as asked for", readers)
    rows = f"{sum(change.rows for change in changes):,.0f} changed rows"
    incremental = [reader for reader in readers if reader.strategy != "recompute"]
    if not incremental:
        return Decision("rebuild", "they are recomputed in any case", readers)
    for reader in incremental:
        # A table that it does not read costs nothing; that is rare, and the estimate a rough one.
        costs = (change.rows * reader.accesses.get(change.name, _ACCESSES) for change in changes)
        if not recompute_is_cheaper(reader.id, sum(costs)):
            return Decision(
                "refresh", f"which costs less than to recompute them, for {rows}", readers
            )
    return Decision("rebuild", f"which costs less than to apply {rows}", readers)


@contextmanager
def uncaptured(
    connection: Connection[Any], decision: Decision, tables: Collection[int]
) -> Iterator[None]:
    """For a rebuild, has the block's changes not logged, and the views recomputed instead.

    All of it is one transaction: nobody else writes the tables meanwhile, and whoever refreshes the
    views next, recomputes them.
    """
    if decision.action != "rebuild":
        yield
        return
    triggers = catalog_readers.capture_triggers(connection, tables)
    catalog_readers.invalidate(connection, [reader.id for reader in decision.readers])
    try:
        with connection.transaction():
            _switch(connection, [replace(trigger, fires="D") for trigger in triggers])
    except InsufficientPrivilege:
        triggers = []  # not the owner: then the changes are logged for nothing
    yield
    _switch(connection, triggers)


_FIRES = {"D": "DISABLE", "O": "ENABLE", "R": "ENABLE REPLICA", "A": "ENABLE ALWAYS"}


def _switch(connection: Connection[Any], triggers: Sequence[Trigger]) -> None:
    """Has each trigger fire as it says."""
    for trigger in triggers:
        connection.execute(
            SQL("ALTER TABLE {} {} TRIGGER {}").format(
                Identifier(trigger.schema, trigger.table),
                SQL(_FIRES[trigger.fires]),
                Identifier(trigger.name),
            )
        )
