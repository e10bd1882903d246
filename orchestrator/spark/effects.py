"""What a load does to the maintained views that read its tables: refresh, rebuild, or leave."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from psycopg import Connection
from psycopg.errors import InsufficientPrivilege
from psycopg.sql import SQL, Identifier

from orchestrator.runtime import catalog

CHOICES = ("auto", "refresh", "rebuild", "leave")

_REBUILD_FROM = 0.25
"""The share of new rows in a table from which on a rebuild is taken to cost less than a refresh."""


@dataclass(frozen=True)
class Reader:
    """A maintained view that reads a loaded table."""

    id: int
    name: str
    strategy: str
    maintain: str


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


def readers(connection: Connection[Any], tables: Collection[int]) -> tuple[Reader, ...]:
    """The maintained views that read some tables themselves."""
    rows = connection.execute(
        "SELECT DISTINCT v.id, coalesce(v.relation::text, v.name), v.strategy, v.maintain"
        " FROM idivm.views v JOIN idivm.view_sources vs ON vs.view = v.id"
        " JOIN idivm.sources s ON s.id = vs.source"
        " LEFT JOIN idivm.source_members m ON m.source = s.id"
        " WHERE v.status <> 'building'"
        "   AND (s.relation::oid = ANY (%(oids)s::oid[]) OR m.member::oid = ANY (%(oids)s::oid[]))"
        " ORDER BY v.id",
        {"oids": list(tables)},
    ).fetchall()
    return tuple(Reader(*row) for row in rows)


def with_those_above(connection: Connection[Any], found: Sequence[Reader]) -> tuple[str, ...]:
    """The names of views and of all maintained views that read them."""
    names = {reader.id: reader.name for reader in found}
    for reader in found:
        names |= dict(catalog.readers_of(connection, reader.id))
    return tuple(names.values())


def decide(wanted: str, found: Sequence[Reader], loaded: int, before: int) -> Decision:
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


def rows_of(connection: Connection[Any], tables: Collection[int]) -> int:
    """About how many rows some tables have."""
    row = connection.execute(
        "SELECT coalesce(sum(greatest(reltuples, 0)), 0)::bigint FROM pg_class"
        " WHERE oid = ANY (%s::oid[])",
        [list(tables)],
    ).fetchone()
    assert row is not None
    return int(row[0])


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
    triggers = connection.execute(
        "SELECT n.nspname, c.relname, t.tgname FROM pg_trigger t"
        " JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace"
        " JOIN pg_proc p ON p.oid = t.tgfoid"
        " WHERE t.tgrelid = ANY (%s::oid[]) AND p.pronamespace = 'idivm_log'::regnamespace"
        " ORDER BY 1, 2, 3",
        [list(tables)],
    ).fetchall()
    connection.execute(
        "UPDATE idivm.views SET status = 'invalid' WHERE id = ANY (%s) AND status = 'ready'",
        [[reader.id for reader in decision.readers]],
    )
    form = "ALTER TABLE {} {} TRIGGER {}"
    switched = True
    try:
        with connection.transaction():
            for schema, table, trigger in triggers:
                connection.execute(
                    SQL(form).format(Identifier(schema, table), SQL("DISABLE"), Identifier(trigger))
                )
    except InsufficientPrivilege:
        switched = False  # not the owner: then the changes are logged for nothing
    yield
    for schema, table, trigger in triggers if switched else ():
        connection.execute(
            SQL(form).format(Identifier(schema, table), SQL("ENABLE ALWAYS"), Identifier(trigger))
        )
