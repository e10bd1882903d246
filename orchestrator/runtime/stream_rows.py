"""The rows of streams, whose rows stay in files: put back for the transactions that recompute a view.

A provider reads the files into a temporary table. For the length of a transaction, this table is an inheritance child
of the stream, so that every query over the stream finds the rows. Other sessions never see them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from psycopg import Connection
from psycopg.sql import SQL, Identifier

from orchestrator.errors import UsageError


@dataclass(frozen=True)
class StreamRows:
    """A stream, and the table of this session with its rows."""

    stream: Identifier
    rows: Identifier


Provider = Callable[
    [Connection[Any], Sequence[int]], AbstractContextManager[Mapping[int, StreamRows]]
]
"""Reads the files of streams, given by oid. No batch is committed while the context is open."""

_providers: WeakKeyDictionary[Connection[Any], Provider] = WeakKeyDictionary()
_read: WeakKeyDictionary[Connection[Any], Mapping[int, StreamRows]] = WeakKeyDictionary()


def provide(connection: Connection[Any], provider: Provider) -> None:
    """Let `provider` read files for this connection."""
    _providers[connection] = provider


def has_read(connection: Connection[Any]) -> bool:
    """Return whether rows are read on this connection, so that it must not load a batch."""
    return connection in _read


@contextmanager
def rows_read(connection: Connection[Any], streams: Collection[int]) -> Iterator[bool]:
    """Read the rows of streams, given by oid, for the transactions of a block; yield whether there are any."""
    before = _read.get(connection, {})
    missing = sorted(set(streams) - before.keys())
    if not missing:
        yield bool(streams)
        return
    provider = _providers.get(connection)
    if provider is None:
        raise UsageError("The rows of a stream are in files, which only an orchestrator can read.")
    with provider(connection, missing) as tables:
        _read[connection] = {**before, **tables}
        try:
            yield True
        finally:
            if before:
                _read[connection] = before
            else:
                del _read[connection]


@contextmanager
def rows_in_place(connection: Connection[Any]) -> Iterator[None]:
    """Show the rows that were read in the open transaction, for a block."""
    tables = list(_read.get(connection, {}).values())
    for table in tables:
        connection.execute(SQL("ALTER TABLE {} INHERIT {}").format(table.rows, table.stream))
    yield
    # After an error the transaction undoes this itself.
    for table in tables:
        connection.execute(SQL("ALTER TABLE {} NO INHERIT {}").format(table.rows, table.stream))
