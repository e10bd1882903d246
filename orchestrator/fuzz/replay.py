"""Replay the feeds of views, and compare the result with the views."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from psycopg import Connection

from orchestrator.fuzz.outcome import CaseError
from orchestrator.runtime import refresh


@dataclass
class Replica:
    """The rows of a view as its feed tells them, with multiplicities."""

    position: int
    rows: Counter[str] = field(default_factory=Counter)

    def apply(self, kind: str, old: Any, new: Any) -> None:
        """Apply a change, which must fit the rows."""
        if kind == "restart":
            self.rows.clear()
            return
        if old is not None:
            if self.rows[text_of(old)] < 1:
                raise CaseError(
                    "feed", "", f"the feed has {kind} of {text_of(old)}, which is not there"
                )
            self.rows[text_of(old)] -= 1
        if new is not None:
            self.rows[text_of(new)] += 1

    def require_equal(self, name: str, rows: Counter[str]) -> None:
        """Raise an error if the rows differ from those of the view."""
        if +self.rows != rows:
            missing, surplus = rows - self.rows, +self.rows - rows
            raise CaseError(
                "feed",
                "",
                f"the feed of {name} lacks {dict(missing)} and has {dict(surplus)} too much",
            )


class Replicas:
    """The replicas of all views with feeds."""

    def __init__(self) -> None:
        """Begin without replicas."""
        self.known: dict[int, Replica] = {}

    def follow(self, connection: Connection[Any], names: Sequence[str]) -> int:
        """Bring the replicas of the named views up to date and compare them; return their number."""
        compared = 0
        with refresh.one_snapshot(connection):
            for name in names:
                row = connection.execute(
                    "SELECT feed, position FROM idivm.feeds WHERE view = %s::regclass", [name]
                ).fetchone()
                if row is not None:
                    self._follow(connection, name, *row)
                    compared += 1
        return compared

    def _follow(self, connection: Connection[Any], name: str, feed: int, position: int) -> None:
        query = "SELECT refresh, seq, kind, old, new FROM idivm.changes(%s::regclass, %s, snapshot => %s)"
        rows = Counter(
            text_of(row[4]) for row in connection.execute(query, [name, None, True]).fetchall()
        )
        replica = self.known.get(feed)
        if replica is None:
            self.known[feed] = Replica(position, rows)
            return
        last = (replica.position, 0)
        for number, seq, kind, old, new in connection.execute(
            query, [name, replica.position, False]
        ).fetchall():
            if (number, seq) <= last:
                raise CaseError("feed", "", f"the feed of {name} has {(number, seq)} after {last}")
            last = (number, seq)
            replica.apply(kind, old, new)
        replica.position = position
        replica.require_equal(name, rows)


def text_of(row: Any) -> str:
    """Return a row in the form in which replicas count it."""
    return json.dumps(row, sort_keys=True)
