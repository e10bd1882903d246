"""The effect of a load on the maintained views that read its tables: refresh, rebuild, or leave."""

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
"""The cost of a new row if a plan does not state it; with it, a load of a quarter of the rows or more is
cheaper recomputed."""


@dataclass(frozen=True)
class Change:
    """A table that a load is about to change, and the approximate number of changed rows."""

    load: int
    table: int
    name: str
    staged: int
    rows: float


@dataclass(frozen=True)
class Decision:
    """What happens to the views, and why."""

    action: str
    why: str
    readers: tuple[Reader, ...] = ()
    names: tuple[str, ...] = ()
    """The views to refresh afterwards, with the views above them."""

    def __str__(self) -> str:
        """Return a sentence for the output."""
        names = ", ".join(reader.name for reader in self.readers)
        return f"views: {self.action} of {names} ({self.why})" if names else "views: none"


def with_those_above(connection: Connection[Any], readers: Sequence[Reader]) -> tuple[str, ...]:
    """Return the names of views and of all maintained views above them."""
    names = {reader.id: reader.name for reader in readers}
    for reader in readers:
        names |= dict(catalog.readers_of(connection, reader.id))
    return tuple(names.values())


def changed_rows(
    connection: Connection[Any], table: int, mode: str, staged: int, keyed: bool
) -> float:
    """Return about how many rows of a table a load will change.

    If a key tells which rows stay the same, the estimate assumes as many such rows as possible, which favors
    applying the changes.
    """
    if mode == "append":
        return staged
    before = sum(table_statistics.rows for table_statistics in statistics(connection, [table]))
    if mode in ("upsert", "add"):
        return max(staged - before, 0)
    return abs(staged - before) if keyed else staged + before


def decide(
    wanted: str,
    readers_found: Sequence[Reader],
    changes: Sequence[Change],
    recompute_is_cheaper: Callable[[int, float], bool],
) -> Decision:
    """Return how to update the views after their tables have changed.

    >>> view, load = Reader(1, "v", "id", "deferred", {"t": 2.0}), Change(1, 16384, "t", 1000, 1000)
    >>> decide("auto", [view], [load], lambda view, accesses: accesses > 5000).action
    'refresh'
    >>> print(decide("auto", [view], [load], lambda view, accesses: accesses > 1000))
    views: rebuild of v (which costs less than to apply 1,000 changed rows)
    >>> decide("rebuild", [Reader(1, "v", "id", "eager")], [load], lambda *_: True).action
    'refresh'
    """
    readers = tuple(readers_found)
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
        # A table that the view does not read should cost nothing, but that is rare and the estimate rough.
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
    """For a rebuild, do not log the block's changes, and mark the views to be recomputed.

    All of this is one transaction: nobody else can write the tables meanwhile, and the next refresh of the
    views recomputes them.
    """
    if decision.action != "rebuild":
        yield
        return
    triggers = catalog_readers.capture_triggers(connection, tables)
    catalog_readers.invalidate(connection, [reader.id for reader in decision.readers])
    try:
        with connection.transaction():
            _set_triggers(connection, [replace(trigger, fires="D") for trigger in triggers])
    except InsufficientPrivilege:
        triggers = []  # only the owner may do so; the changes are logged although nothing needs them
    yield
    _set_triggers(connection, triggers)


_FIRES = {"D": "DISABLE", "O": "ENABLE", "R": "ENABLE REPLICA", "A": "ENABLE ALWAYS"}


def _set_triggers(connection: Connection[Any], triggers: Sequence[Trigger]) -> None:
    """Set when each trigger fires."""
    for trigger in triggers:
        connection.execute(
            SQL("ALTER TABLE {} {} TRIGGER {}").format(
                Identifier(trigger.schema, trigger.table),
                SQL(_FIRES[trigger.fires]),
                Identifier(trigger.name),
            )
        )
