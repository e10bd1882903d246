"""A consumer that keeps copies of views by their feeds, until the run kills it.

It stores each copy together with its position, as an application does, and goes on there when it is started again. A
lost, repeated or reordered change makes the copy differ from the view.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from psycopg.sql import SQL, Identifier

from orchestrator.errors import IdivmError
from orchestrator.runtime.feeds import Caught, Change, read
from orchestrator.runtime.sessions import open_session

CONSUMER = "chaos"
"""The name under which the consumer is registered."""

ERRORS, DIFFERENCES, COUNTED = "errors", "differences", "compared"
"""The files in which the consumer reports what it met, what was wrong, and how often all was right."""


@dataclass
class Copy:
    """The copy of a view, and the file that holds it with its position."""

    file: Path
    position: int | None = None
    rows: Counter[str] = field(default_factory=Counter)

    @classmethod
    def stored(cls, file: Path) -> Copy:
        """Return the copy in a file, or an empty one."""
        if not file.exists():
            return cls(file)
        position, rows = json.loads(file.read_text())
        return cls(file, position, Counter(rows))

    def store(self, position: int) -> None:
        """Store the rows as of a position, both or neither."""
        self.position = position
        draft = self.file.with_suffix(".new")
        draft.write_text(json.dumps([position, dict(self.rows)]))
        draft.replace(self.file)

    def follow(self, change: Change) -> None:
        """Apply a change."""
        if change.kind == "restart":
            self.rows.clear()
        if change.kind in ("update", "delete"):
            old = _written(change.old)
            self.rows[old] -= 1
            if self.rows[old] < 0:
                raise _WrongError(
                    f"refresh {change.refresh} takes away a row that was not there: {old}"
                )
        if change.kind in ("snapshot", "insert", "update"):
            self.rows[_written(change.new)] += 1


class _WrongError(Exception):
    """A feed that does not lead to the rows of its view."""


def _written(row: Any) -> str:
    return json.dumps(row, sort_keys=True, ensure_ascii=False)


def follow(dsn: str, view: str, folder: Path, stop: threading.Event, *, live: bool = True) -> None:
    """Keep the copy of a view in a folder, and compare it with the view whenever all changes have been read."""
    while True:
        copy = Copy.stored(folder / f"{view}.json")
        try:
            for item in _items(dsn, view, copy, stop, live):
                if isinstance(item, Change):
                    copy.follow(item)
                elif item.position != copy.position or not live:
                    copy.store(item.position)
                    _compare(dsn, view, copy)
                    _report(folder, COUNTED, view)
        except _WrongError as error:
            _report(folder, DIFFERENCES, f"the feed of {view}: {error}")
            # Begin again, so that the next error is another one.
            copy.file.unlink(missing_ok=True)
        except (psycopg.Error, IdivmError) as error:
            _report(folder, ERRORS, f"the feed of {view}: {str(error).splitlines()[0]}")
        if stop.wait(0.2) or not live:
            return


def _items(
    dsn: str, view: str, copy: Copy, stop: threading.Event, live: bool
) -> Iterator[Change | Caught]:
    return read(
        lambda: open_session(dsn),
        view,
        copy.position,
        snapshot=copy.position is None,
        consumer=CONSUMER,
        live=live,
        stop=stop,
    )


def _compare(dsn: str, view: str, copy: Copy) -> None:
    """Compare the copy, brought up to the position of a snapshot, with the rows in that snapshot."""
    with closing(open_session(dsn)) as session, session.transaction():
        session.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        changes = session.execute(
            "SELECT * FROM idivm.changes(%s::regclass, %s)", [view, copy.position]
        ).fetchall()
        rows = session.execute(
            "SELECT c.new FROM idivm.changes(%s::regclass, snapshot => true) AS c", [view]
        ).fetchall()
        shown = session.execute(
            SQL("SELECT to_jsonb(v) FROM {} AS v").format(Identifier(view))
        ).fetchall()
    later = Copy(copy.file, copy.position, Counter(copy.rows))
    for change in changes:
        later.follow(Change(*change))
    for what, found in (("the view", shown), ("the snapshot", rows)):
        right = Counter(_written(row) for (row,) in found)
        if +later.rows != right:
            missing, surplus = right - later.rows, later.rows - right
            raise _WrongError(
                f"after refresh {copy.position} the copy differs from {what} by {missing.total()} rows missing"
                f" and {surplus.total()} too many, as {next(iter(missing or surplus))}"
            )


def _report(folder: Path, kind: str, line: str) -> None:
    with (folder / kind).open("a") as file:
        file.write(line + "\n")


def reported(folder: Path, kind: str) -> list[str]:
    """Return the lines of a kind that consumers wrote."""
    file = folder / kind
    return file.read_text().splitlines() if file.exists() else []


def follow_all(dsn: str, views: Iterable[str], folder: Path, *, live: bool) -> None:
    """Keep the copies of several views, each in its own thread."""
    stop = threading.Event()
    threads = [
        threading.Thread(target=follow, args=(dsn, view, folder, stop), kwargs={"live": live})
        for view in views
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    follow_all(os.environ["IDIVM_DSN"], sys.argv[2:], Path(sys.argv[1]), live=True)
