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
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path

import psycopg
from psycopg.sql import SQL, Identifier

from orchestrator.errors import IdivmError
from orchestrator.fuzz.outcome import CaseError
from orchestrator.fuzz.replay import Replica, text_of
from orchestrator.runtime.feeds import Change, read
from orchestrator.runtime.sessions import open_session

CONSUMER = "chaos"
"""The name under which the consumer is registered."""

ERRORS, DIFFERENCES, COUNTED = "errors", "differences", "compared"
"""The files in which the consumer reports what it met, what was wrong, and how often all was right."""


def stored(file: Path) -> Replica | None:
    """Return the copy that a consumer stored in a file, if it did."""
    if not file.exists():
        return None
    position, rows = json.loads(file.read_text())
    return Replica(position, Counter(rows))


def _store(file: Path, copy: Replica) -> None:
    """Store the rows of a copy and its position, both or neither."""
    draft = file.with_suffix(".new")
    draft.write_text(json.dumps([copy.position, dict(+copy.rows)]))
    draft.replace(file)


def follow(dsn: str, view: str, folder: Path, stop: threading.Event, *, live: bool = True) -> None:
    """Keep the copy of a view in a folder, and compare it with the view whenever all changes have been read."""
    file = folder / f"{view}.json"
    while True:
        try:
            _follow(dsn, view, file, stop, live)
        except CaseError as error:
            _report(folder, DIFFERENCES, f"the feed of {view}: {error}")
            # Begin again, so that the next error is another one.
            file.unlink(missing_ok=True)
        except (psycopg.Error, IdivmError) as error:
            _report(folder, ERRORS, f"the feed of {view}: {str(error).splitlines()[0]}")
        if stop.wait(0.2) or not live:
            return


def _follow(dsn: str, view: str, file: Path, stop: threading.Event, live: bool) -> None:
    """Go on with the stored copy, or begin with the rows of the view."""
    known = stored(file)
    # A position before all others, so that the first copy is stored too.
    copy = known or Replica(-1)
    changes = read(
        lambda: open_session(dsn),
        view,
        known.position if known else None,
        snapshot=known is None,
        consumer=CONSUMER,
        live=live,
        stop=stop,
    )
    for item in changes:
        if isinstance(item, Change):
            copy.apply(item.kind, item.old, item.new)
        elif item.position != copy.position or not live:
            copy.position = item.position
            _store(file, copy)
            # The content may be replaced after the snapshot was taken.
            with suppress(psycopg.errors.SerializationFailure):
                _compare(dsn, view, copy)
                _report(file.parent, COUNTED, view)


def _compare(dsn: str, view: str, copy: Replica) -> None:
    """Compare the copy, brought up to the position of a snapshot, with the rows in that snapshot."""
    with closing(open_session(dsn)) as session, session.transaction():
        session.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        changes = session.execute(
            "SELECT kind, old, new FROM idivm.changes(%s::regclass, %s)", [view, copy.position]
        ).fetchall()
        kept = session.execute(
            "SELECT c.new FROM idivm.changes(%s::regclass, snapshot => true) AS c", [view]
        ).fetchall()
        visible = session.execute(
            SQL("SELECT to_jsonb(v) FROM {} AS v").format(Identifier(view))
        ).fetchall()
    later = Replica(copy.position, Counter(copy.rows))
    for change in changes:
        later.apply(*change)
    for name, rows in ((view, visible), (f"{view} in a snapshot of the feed", kept)):
        later.require_equal(name, Counter(text_of(row) for (row,) in rows))


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
