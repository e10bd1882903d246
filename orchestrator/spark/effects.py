"""What a load does to the maintained views that read its tables: refresh, rebuild, or leave."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from psycopg import Connection
from psycopg.errors import InsufficientPrivilege
from psycopg.sql import SQL, Identifier

from orchestrator.frontend import catalog as facts
from orchestrator.runtime import catalog, catalog_loads
from orchestrator.runtime.catalog_loads import Reader, Trigger

CHOICES = ("auto", "refresh", "rebuild", "leave")

_REBUILD_FROM = 0.25
"""The share of new rows in a table from which on a rebuild is taken to cost less than a refresh."""


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


def with_those_above(connection: Connection[Any], found: Sequence[Reader]) -> tuple[str, ...]:
    """The names of views and of all maintained views that read them."""
    names = {reader.id: reader.name for reader in found}
    for reader in found:
        names |= dict(catalog.readers_of(connection, reader.id))
    return tuple(names.values())


def decide(wanted: str, found: Sequence[Reader], loaded: int, before: float) -> Decision:
    """The way to bring views up to date after `loaded` rows came to `before` rows.

    >>> view = Reader(1, "v", "id", "deferred")
    >>> decide("auto", [view], 10, 1000).action, decide("auto", [view], 900, 1000).action
    ('refresh', 'rebuild')
    >>> decide("rebuild", [Reader(1, "v", "id", "eager")], 10, 1000).action
    'refresh'
    """
    readers = tuple(found)
    if not readers:
        return Decision("leave", "no maintained view reads the loaded tables")
    if any(reader.maintain != "deferred" for reader in readers):
        return Decision("refresh", "some are kept up to date within the load", readers)
    if wanted != "auto":
        return Decision(wanted, "as asked for", readers)
    share = loaded / max(loaded + before, 1)
    if all(reader.strategy == "recompute" for reader in readers):
        return Decision("rebuild", "they are computed anew in any case", readers)
    if share >= _REBUILD_FROM:
        return Decision("rebuild", f"the load is {share:.0%} of the rows", readers)
    return Decision("refresh", f"the load is {share:.0%} of the rows", readers)


def rows_of(connection: Connection[Any], tables: Collection[int]) -> float:
    """About how many rows some tables have."""
    return sum(one.rows for one in facts.statistics(connection, tables))


@contextmanager
def uncaptured(
    connection: Connection[Any], decision: Decision, tables: Collection[int]
) -> Iterator[None]:
    """For a rebuild, has the block's changes not logged, and the views computed anew instead.

    All of it is one transaction: nobody else writes the tables meanwhile, and whoever refreshes the
    views next, computes them anew.
    """
    if decision.action != "rebuild":
        yield
        return
    triggers = catalog_loads.capture_triggers(connection, tables)
    catalog_loads.invalidate(connection, [reader.id for reader in decision.readers])
    try:
        with connection.transaction():
            _switch(connection, triggers, SQL("DISABLE"))
    except InsufficientPrivilege:
        triggers = []  # not the owner: then the changes are logged for nothing
    yield
    _switch(connection, triggers, SQL("ENABLE ALWAYS"))


def _switch(connection: Connection[Any], triggers: Sequence[Trigger], how: SQL) -> None:
    for one in triggers:
        connection.execute(
            SQL("ALTER TABLE {} {} TRIGGER {}").format(
                Identifier(one.schema, one.table), how, Identifier(one.name)
            )
        )
