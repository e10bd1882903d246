"""Queries of streams on idivm's catalog: which batch and which files are in the table, and Spark's checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from psycopg import Connection
from psycopg.errors import LockNotAvailable

from orchestrator.catalog.loads import LOCK_CLASS
from orchestrator.errors import NotFoundError, UsageError
from orchestrator.session_locks import session_lock

PATIENCE = "5s"
"""How long a session waits for another session that runs the same stream to end."""


@dataclass(frozen=True)
class Stream:
    """A stream that this session runs."""

    id: int
    name: str
    batch: int
    """The last batch in the table; -1 before the first."""


@dataclass(frozen=True)
class StreamTable:
    """A table whose rows stay in files, and how to read them."""

    id: int
    name: str
    relation: int
    paths: tuple[str, ...]
    format: str
    options: Mapping[str, str]
    op: str | None
    """The column of the files that says whether a row is inserted or deleted, if both happen."""
    where: str | None
    select: str | None
    """The condition on rows and the list of expressions, in Spark's SQL."""


@dataclass(frozen=True)
class Checkpoint:
    """The files of Spark's checkpoint of a stream: all names, and the contents that changed."""

    names: frozenset[str]
    changed: Mapping[str, bytes]


@dataclass(frozen=True)
class StreamStatus:
    """A stream, as `idivm stream list` shows it."""

    name: str
    table: str
    source: str
    running: bool
    batch: int
    files: int
    rows: int
    loaded_at: datetime | None


@contextmanager
def started(connection: Connection[Any], name: str, table: int, source: str) -> Iterator[Stream]:
    """Record a stream unless it exists, and lock it for this session while a block runs.

    A session whose process was killed may still end its last transaction, so the lock may take a moment.
    """
    connection.execute(
        "INSERT INTO idivm.streams (name, relation, source) VALUES (%s, %s::oid::regclass, %s)"
        " ON CONFLICT (name) DO NOTHING",
        [name, table, source],
    )
    with _locked(connection, name, PATIENCE) as stream:
        # After the lock, because the session that held it may have recorded a batch.
        row = connection.execute(
            "SELECT batch, relation::oid, relation::text, %s::oid::regclass::text FROM idivm.streams WHERE id = %s",
            [table, stream],
        ).fetchone()
        if row is None:
            raise NotFoundError(f"The stream {name} was removed meanwhile: start it again.")
        batch, into, before, now = row
        if into != table and before.isdecimal():
            raise UsageError(
                f"The stream {name} loaded a table that was dropped: remove the stream "
                "(idivm stream remove) to load everything into the new table."
            )
        if into != table:
            raise UsageError(
                f"The stream {name} loads {before}, not {now}: give this stream another name (--name)."
            )
        yield Stream(stream, name, batch)


@contextmanager
def _locked(connection: Connection[Any], name: str, patience: str) -> Iterator[int]:
    """Lock a stream for this session while a block runs, and yield its ID."""
    row = connection.execute("SELECT id FROM idivm.streams WHERE name = %s", [name]).fetchone()
    if row is None:
        raise NotFoundError(f"There is no stream {name}: idivm stream list shows the streams.")
    key = [LOCK_CLASS, row[0]]
    lock = session_lock(connection, "%s::integer, -%s::integer", key, patience=patience)
    with ExitStack() as stack:
        try:
            stack.enter_context(lock)
        except LockNotAvailable as error:
            raise UsageError(f"Another session runs the stream {name}: stop it first.") from error
        yield int(row[0])


def last_batch(connection: Connection[Any], stream: int) -> int:
    """Return the last batch of a stream that is in the table."""
    row = connection.execute("SELECT batch FROM idivm.streams WHERE id = %s", [stream]).fetchone()
    if row is None:
        raise NotFoundError("The stream was removed while it ran.")
    return int(row[0])


def advance(
    connection: Connection[Any],
    stream: Stream,
    batch: int,
    load: int,
    files: Iterable[Mapping[str, Any]] = (),
    checkpoint: Checkpoint | None = None,
) -> None:
    """Record a batch in the transaction that moves its rows; fail if another session has recorded it.

    The previous load of the stream is deleted unless it rejected rows, so that idivm.loads does not grow.
    """
    row = connection.execute(
        "UPDATE idivm.streams s SET batch = %s, load = %s, rows = s.rows + l.rows_loaded, loaded_at = now()"
        " FROM idivm.streams former, idivm.loads l"
        " WHERE s.id = %s AND former.id = s.id AND s.batch < %s AND l.id = %s RETURNING former.load",
        [batch, load, stream.id, batch, load],
    ).fetchone()
    if row is None:
        raise UsageError(f"Batch {batch} of the stream {stream.name} is in the table already.")
    connection.execute(
        "DELETE FROM idivm.loads l WHERE l.id = %s AND l.rows_rejected = 0 AND l.id <> %s",
        [row[0], load],
    )
    _keep_files(connection, stream.id, batch, files)
    if checkpoint is not None:
        _keep_checkpoint(connection, stream.id, checkpoint)


def _keep_files(
    connection: Connection[Any], stream: int, batch: int, files: Iterable[Mapping[str, Any]]
) -> None:
    connection.cursor().executemany(
        "INSERT INTO idivm.stream_files (stream, file, bytes, modified, batch)"
        " VALUES (%s, %s, %s, to_timestamp(%s / 1000.0), %s)",
        [(stream, file["file"], file["bytes"], file["time"], batch) for file in files],
    )


def _keep_checkpoint(connection: Connection[Any], stream: int, checkpoint: Checkpoint) -> None:
    connection.execute(
        "DELETE FROM idivm.stream_checkpoint WHERE stream = %s AND path <> ALL (%s)",
        [stream, list(checkpoint.names)],
    )
    connection.cursor().executemany(
        "INSERT INTO idivm.stream_checkpoint (stream, path, content) VALUES (%s, %s, %s)"
        " ON CONFLICT (stream, path) DO UPDATE SET content = excluded.content",
        [(stream, path, content) for path, content in checkpoint.changed.items()],
    )


def checkpoint_of(connection: Connection[Any], stream: int) -> dict[str, bytes]:
    """Return the files of Spark's checkpoint."""
    return dict(
        connection.execute(
            "SELECT path, content FROM idivm.stream_checkpoint WHERE stream = %s", [stream]
        ).fetchall()
    )


def files_loaded(connection: Connection[Any], stream: int) -> dict[str, int]:
    """Return the files of a stream that are in the table, with their sizes."""
    return dict(
        connection.execute(
            "SELECT file, bytes FROM idivm.stream_files WHERE stream = %s", [stream]
        ).fetchall()
    )


def register(
    connection: Connection[Any], stream: Stream, batch: int, files: Iterable[Mapping[str, Any]]
) -> None:
    """Record files whose rows no view needs yet, in the open transaction."""
    row = connection.execute(
        "UPDATE idivm.streams SET batch = %s, loaded_at = now() WHERE id = %s AND batch < %s RETURNING id",
        [batch, stream.id, batch],
    ).fetchone()
    if row is None:
        raise UsageError(f"Batch {batch} of the stream {stream.name} is there already.")
    _keep_files(connection, stream.id, batch, files)


def stream_tables(connection: Connection[Any], relations: Iterable[int]) -> dict[int, StreamTable]:
    """Return those of the tables whose rows stay in files, by oid."""
    rows = connection.execute(
        "SELECT s.id, s.name, s.relation::oid, s.reading FROM idivm.streams s"
        " WHERE s.reading IS NOT NULL AND s.relation::oid = ANY (%s) ORDER BY s.id",
        [list(relations)],
    ).fetchall()
    return {
        relation: StreamTable(
            number,
            name,
            relation,
            tuple(reading["paths"]),
            reading["format"],
            reading["options"],
            *map(reading.get, ("op", "where", "select")),
        )
        for number, name, relation, reading in rows
    }


def streams_below(
    connection: Connection[Any], view_ids: Iterable[int], *, of_broken: bool = False
) -> list[int]:
    """Return the stream tables, by oid, that views read; with `of_broken`, only of views that must be recomputed."""
    rows = connection.execute(
        f"SELECT DISTINCT s.relation::oid {_OVER_STREAMS} AND (NOT %s OR {_BROKEN}) ORDER BY 1",
        [list(view_ids), of_broken],
    )
    return [relation for (relation,) in rows.fetchall()]


def broken_over_streams(connection: Connection[Any], view_ids: Iterable[int]) -> list[int]:
    """Return the views over streams that must be recomputed, of these views and those below."""
    rows = connection.execute(
        f"SELECT DISTINCT v.id {_OVER_STREAMS} AND {_BROKEN} ORDER BY 1", [list(view_ids)]
    )
    return [view_id for (view_id,) in rows.fetchall()]


_OVER_STREAMS: Final = (
    "FROM idivm.refresh_order(%s) AS id JOIN idivm.views v USING (id)"
    " JOIN idivm.view_sources vs ON vs.view = v.id JOIN idivm.sources s ON s.id = vs.source"
    # Without streams, this condition alone is evaluated.
    " WHERE idivm.has_streams() AND idivm.is_stream(s.relation)"
)

_BROKEN: Final = "(v.status = 'invalid' OR idivm.trouble(v.id) IS NOT NULL)"


def is_captured(connection: Connection[Any], relation: int) -> bool:
    """Return whether a view reads a table."""
    row = connection.execute(
        "SELECT EXISTS (SELECT FROM idivm.sources s WHERE s.relation::oid = %s)", [relation]
    ).fetchone()
    return row == (True,)


def open_batch(connection: Connection[Any], relation: int) -> None:
    """Let the open transaction write to a stream table."""
    connection.execute("SELECT idivm.open_batch(%s::oid)", [relation])


def close_batch(connection: Connection[Any], relation: int) -> None:
    """Empty a stream table after the rows of a batch were logged for the views."""
    connection.execute("SELECT idivm.close_batch(%s::oid)", [relation])


@contextmanager
def batches_held(connection: Connection[Any], streams: Iterable[int]) -> Iterator[None]:
    """Let batches of streams wait while a block runs."""
    with ExitStack() as stack:
        for stream in sorted(streams):
            stack.enter_context(
                session_lock(connection, "idivm.lock_class(), -%s::integer", [stream])
            )
        yield


def list_streams(connection: Connection[Any]) -> list[StreamStatus]:
    """Return all streams, by name."""
    rows = connection.execute(
        "SELECT s.name, coalesce((SELECT c.oid::regclass::text FROM pg_class c WHERE c.oid = s.relation), '(dropped)'),"
        " s.source, EXISTS (SELECT FROM pg_locks k WHERE k.locktype = 'advisory'"
        "   AND k.classid = %s AND k.objid = (4294967296 - s.id)::oid AND k.database ="
        "       (SELECT oid FROM pg_database WHERE datname = current_database())),"
        " s.batch, (SELECT count(*) FROM idivm.stream_files f WHERE f.stream = s.id), s.rows, s.loaded_at"
        " FROM idivm.streams s ORDER BY s.name",
        [LOCK_CLASS],
    ).fetchall()
    return [StreamStatus(*row) for row in rows]


def remove(connection: Connection[Any], name: str) -> None:
    """Forget a stream: a stream of this name then begins with all files or from the first offset."""
    row = connection.execute(
        "SELECT reading IS NOT NULL FROM idivm.streams WHERE name = %s", [name]
    ).fetchone()
    if row == (True,):
        raise UsageError(
            f"The rows of {name} are in files alone, so that it cannot go on without its stream: drop both"
            f" (idivm stream drop {name})."
        )
    with _locked(connection, name, "1ms") as stream:
        connection.execute("DELETE FROM idivm.streams WHERE id = %s", [stream])
