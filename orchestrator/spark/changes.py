"""The feed of a view as a source of Spark, in batches and as a stream.

    spark.readStream.format("idivm").option("dsn", dsn).option("view", "totals").load()

An offset is a position in the feed: the number of a refresh. Spark records the offsets of a batch before it runs, and
asks again for the same offsets if the batch was interrupted. The changes between two positions never vary, and the rows
of the view at a position are those of now with the later changes undone, so a sink that takes each batch once has each
change once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from psycopg import Connection, Error
from psycopg.sql import SQL, Composable, Identifier, Literal
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from orchestrator.runtime.sessions import open_pinned
from orchestrator.spark.errors import LoadError
from orchestrator.spark.reading import ReadPlan, TablePart, plan_read, read_part

OPTIONS = ("view", "since", "upto", "snapshot", "consumer", "refreshes")

CHANGE_COLUMNS = ("_change_type", "_refresh", "_seq", "_at")
"""The columns that a change has beside the columns of the view."""

SNAPSHOT = -1
"""The offset of a stream that begins with the rows of the view."""

_CHANGES = """
    SELECT {columns}, i.change AS _change_type, c.refresh AS _refresh, c.seq AS _seq, c.at AS _at
    FROM idivm.changes({view}::pg_catalog.regclass, since => {since}, upto => {upto}) AS c
    CROSS JOIN LATERAL (VALUES
        (0, CASE c.kind WHEN 'update' THEN 'update_preimage' ELSE c.kind END,
         CASE c.kind WHEN 'restart' THEN NULL WHEN 'insert' THEN c.new ELSE c.old END),
        (1, 'update_postimage', c.new)) AS i (nth, change, image)
    CROSS JOIN LATERAL pg_catalog.jsonb_populate_record(NULL::{relation}, i.image) AS r
    WHERE CASE i.nth WHEN 0 THEN true ELSE c.kind OPERATOR(pg_catalog.=) 'update' END
    ORDER BY c.refresh, c.seq, i.nth
"""

_ROWS = """
    SELECT {columns}, 'insert'::pg_catalog.text AS _change_type, {upto}::pg_catalog.int8 AS _refresh,
           pg_catalog.row_number() OVER () AS _seq, NULL::pg_catalog.timestamptz AS _at
    FROM (
        (SELECT c.new FROM idivm.changes({view}::pg_catalog.regclass, snapshot => true) AS c
         UNION ALL
         SELECT c.old FROM idivm.changes({view}::pg_catalog.regclass, since => {upto}) AS c WHERE c.old IS NOT NULL)
        EXCEPT ALL
        SELECT c.new FROM idivm.changes({view}::pg_catalog.regclass, since => {upto}) AS c WHERE c.new IS NOT NULL
    ) AS images (image)
    CROSS JOIN LATERAL pg_catalog.jsonb_populate_record(NULL::{relation}, images.image) AS r
"""


@dataclass(frozen=True)
class Feed:
    """A feed to read, and how."""

    dsn: str
    view: str
    """The qualified name of the view, in SQL."""
    columns: tuple[str, ...]
    since: int | None
    upto: int | None
    snapshot: bool
    consumer: str | None
    refreshes: int | None

    def query(self, since: int | None, upto: int | None) -> str:
        """Return the query of the changes after a position, or of the rows of the view at a position."""
        values: dict[str, Composable] = {
            "columns": SQL(", ").join(
                SQL("r.{}").format(Identifier(name)) for name in self.columns
            ),
            "view": Literal(self.view),
            "relation": SQL(self.view),
            "since": Literal(since),
            "upto": Literal(upto),
        }
        return SQL(_ROWS if since == SNAPSHOT else _CHANGES).format(**values).as_string()


def feed_named(options: Mapping[str, str]) -> Feed:
    """Return the feed that the options of a read name."""
    from orchestrator.catalog import relation_oid
    from orchestrator.frontend.statements import parse_name

    numbers = {}
    for name in ("since", "upto", "refreshes"):
        text = options.get(name)
        if text is not None and not text.isdecimal():
            raise LoadError(f"The option {name} is a number, not {text!r}.")
        numbers[name] = None if text is None else int(text)
    if numbers["refreshes"] == 0:
        raise LoadError("The option refreshes is at least 1.")
    given = options["view"]
    with open_pinned(options["dsn"]) as connection:
        oid = relation_oid(connection, parse_name(given).identifier)
        if oid is None:
            raise LoadError(f"There is no view {given} to read.")
        row = _row(
            connection,
            "SELECT pg_catalog.format('%%I.%%I', n.nspname, c.relname), (idivm.feed_of(c.oid::regclass)).columns"
            " FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = %s",
            [oid],
        )
    if clash := set(row[1]) & set(CHANGE_COLUMNS):
        raise LoadError(
            f"{given} has a column {min(clash)}, which changes have too: read a view that renames it."
        )
    snapshot = options.get("snapshot", "false" if numbers["since"] is not None else "true")
    return Feed(
        options["dsn"],
        row[0],
        tuple(row[1]),
        numbers["since"],
        numbers["upto"],
        snapshot == "true",
        options.get("consumer"),
        numbers["refreshes"],
    )


def plan_changes(feed: Feed, since: int | None, upto: int | None) -> ReadPlan:
    """Return how to read a part of a feed."""
    return plan_read(feed.dsn, query=feed.query(since, upto))


class FeedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a feed as a stream. Each batch is one task, which keeps the order of the changes."""

    def __init__(self, feed: Feed) -> None:
        """Take the feed. The connection is opened when it is needed."""
        self.feed = feed
        self.plan = plan_changes(feed, feed.since, feed.upto)
        self.last: int | None = None
        """The position where a run with the trigger `availableNow` ends."""
        self._connection: Connection[Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return what tasks need."""
        return {**self.__dict__, "_connection": None}

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """Return where the stream begins. This is the same after a restart before the first batch was done."""
        if self.feed.consumer is not None:
            self._ask(
                "SELECT idivm.advance(%s, %s::regclass)", [self.feed.consumer, self.feed.view]
            )
        if self.feed.snapshot:
            return {"refresh": SNAPSHOT}
        if self.feed.since is None:
            raise LoadError("A stream without a snapshot needs the option since.")
        return {"refresh": self.feed.since}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: N802
        """Return the position up to which there are changes."""
        since = start["refresh"]
        head = self._head() if self.last is None else self.last
        if self.feed.refreshes is None or since == SNAPSHOT or head <= since:
            return {"refresh": max(head, since)}
        (upto,) = self._ask(
            "SELECT max(refresh) FROM (SELECT DISTINCT refresh FROM idivm.changes(%s::regclass, %s, %s)"
            " ORDER BY refresh LIMIT %s) AS next",
            [self.feed.view, since, head, self.feed.refreshes],
        )
        return {"refresh": head if upto is None else int(upto)}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Let this run end with the changes that there are now."""
        self.last = self._head()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Return one task for the changes between two offsets."""
        since, upto = start["refresh"], end["refresh"]
        if since == upto:
            return []
        columns, restarts = self._ask(
            "SELECT (idivm.feed_of(%(view)s::regclass)).columns, count(*)"
            " FROM idivm.changes(%(view)s::regclass, %(from)s)"
            " WHERE kind = 'restart' AND (%(since)s < 0 OR refresh <= %(upto)s)",
            {
                "view": self.feed.view,
                "since": since,
                "from": upto if since == SNAPSHOT else since,
                "upto": upto,
            },
        )
        if tuple(columns) != self.feed.columns or (restarts and since == SNAPSHOT):
            raise LoadError(
                f"{self.feed.view} has other columns since this query began: begin a new query, with a new checkpoint."
            )
        return [InputPartition((since, upto))]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the changes in batches."""
        since, upto = partition.value
        return read_part(
            replace(self.plan, source=f"({self.feed.query(since, upto)})"), TablePart()
        )

    def commit(self, end: dict[str, int]) -> None:
        """Move the consumer: the sink has all changes up to this offset."""
        if self.feed.consumer is not None and end["refresh"] != SNAPSHOT:
            self._ask(
                "SELECT idivm.advance(%s, %s::regclass, %s)",
                [self.feed.consumer, self.feed.view, end["refresh"]],
            )

    def stop(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _head(self) -> int:
        (head,) = self._ask("SELECT (idivm.feed_of(%s::regclass)).position", [self.feed.view])
        return int(head)

    def _ask(self, query: str, values: Any) -> tuple[Any, ...]:
        """Return the row of a query, over a connection that is opened again when it was lost."""
        for attempt in (1, 2):
            if self._connection is None or self._connection.closed:
                self._connection = open_pinned(self.feed.dsn)
            try:
                return _row(self._connection, query, values)
            except LoadError:
                if not self._connection.closed or attempt == 2:
                    raise
        raise AssertionError


def _row(connection: Connection[Any], query: str, values: Any) -> tuple[Any, ...]:
    from orchestrator.runtime.errors import explain

    try:
        row: tuple[Any, ...] | None = connection.execute(query.encode(), values).fetchone()
    except Error as error:
        raise LoadError(str(explain(error, "Reading the feed"))) from None
    assert row is not None
    return row
