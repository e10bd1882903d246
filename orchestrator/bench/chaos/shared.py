"""The state that the threads of a chaos process share: counts, findings, and how errors are judged."""

from __future__ import annotations

import re
import sys
import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.errors import DeadlockDetected, SerializationFailure

from orchestrator.errors import IdivmError, ServerError
from orchestrator.server import EmbeddedServer

RESOURCES = "53"
"""The class of the errors that a full disk raises."""

PATIENCE = 300.0
"""The seconds that a server may take to come back."""

_CUT = ("08", "57")
"""The classes of the errors after a kill: lost connections and cancels."""

_PRODUCT = re.compile(r'\bidivm(_log|_state|_def)?"?\.')
"""An object of idivm in the context of an error; a message may contain names of the fuzzer."""


@dataclass(frozen=True)
class Place:
    """A database of a run."""

    name: str
    encoding: str


@dataclass
class Outcome:
    """The results of one process."""

    counts: Counter[str] = field(default_factory=Counter)
    findings: dict[str, list[str]] = field(default_factory=dict)
    met: Counter[str] = field(default_factory=Counter)
    """Errors that do not fail the run."""

    def add(self, other: Outcome) -> None:
        """Add the results of another process."""
        self.counts += other.counts
        self.met += other.met
        for kind, several in other.findings.items():
            self.findings.setdefault(kind, []).extend(several)


@dataclass
class Shared:
    """The server, the event that ends the run, and the results, for all threads of a process."""

    server: EmbeddedServer
    seed: int
    stop: threading.Event = field(default_factory=threading.Event)
    outcome: Outcome = field(default_factory=Outcome)
    recent: deque[str] = field(default_factory=lambda: deque(maxlen=8))
    """The last changes, which may explain a difference."""
    changers: set[int] = field(default_factory=set)
    """The backends that run DDL; a deadlock with one of them does not fail the run."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def dsn(self, database: str) -> str:
        """Return the connection string of a database; start the server if a kill stopped it."""
        return make_conninfo(self.server.up().dsn, dbname=database)

    def admin(self, database: str) -> str:
        """Return the superuser's connection string of a database."""
        return make_conninfo(self.server.up().superuser_dsn, dbname=database)

    def recover(self) -> None:
        """Wait until the server accepts connections."""
        late = time.monotonic() + PATIENCE
        while True:
            try:
                psycopg.connect(self.dsn("postgres")).close()
                return
            except (psycopg.Error, IdivmError):
                # A killed process may look alive for a moment, and a recovery may take long.
                if time.monotonic() > late:
                    raise
                time.sleep(0.2)

    def count(self, what: str, times: int = 1) -> None:
        """Count an event."""
        with self.lock:
            self.outcome.counts[what] += times

    def record(self, kind: str, what: str) -> None:
        """Record a finding, which fails the run."""
        texts = f"{time.strftime('%H:%M:%S')} {what} (after {', '.join(self.recent)})"
        with self.lock:
            self.outcome.findings.setdefault(kind, []).append(texts)
        print(f"chaos: {kind}: {texts}", file=sys.stderr, flush=True)

    def repeat(self, work: Callable[[], None], who: str, pause: float = 0.5) -> None:
        """Repeat work until the run ends; judge each error and go on."""
        while not self.stop.is_set():
            try:
                work()
            except (IdivmError, psycopg.Error) as error:
                self.judge(error, who)
                self.stop.wait(pause)
            except Exception as error:
                self.unexpected(error, who)
                self.stop.wait(pause)

    def unexpected(self, error: Exception, who: str) -> None:
        """Record an exception that is no readable error, with its location; it fails the run."""
        place = traceback.format_exception(error)[-4:-1]
        self.record("errors that are no sentence", f"{who}: {error!r} {''.join(place)}")

    def _statements(self, deadlock: str) -> str:
        """Return the statements of the processes of a deadlock, which only the server's log has."""
        pids = "|".join(re.findall(r"^Process (\d+)", deadlock, re.MULTILINE))
        statement = re.compile(rf"^\s*Process (?:{pids}): .*", re.MULTILINE)
        logs = (log.read_text(errors="replace") for log in self.server.log.glob("server-*.log"))
        return " ".join(line.strip() for text in logs for line in statement.findall(text))

    def judge(self, error: IdivmError | psycopg.Error, who: str) -> None:
        """Count an error; an error of a writer that a view caused fails the run."""
        cause = error.__cause__ if isinstance(error, IdivmError) else error
        said = f"{who}: {(str(error) or repr(error)).splitlines()[0][:300]}"
        writes = who.startswith("writers")
        if isinstance(error, ServerError):
            # Another process starts the server, or has to start it again; `recover` gives up after a while.
            self.count(f"starts of the server waited for, {who}")
        elif was_cut(cause):
            self.count(f"interrupted, {who}")
        elif isinstance(cause, DeadlockDetected):
            self.count(f"deadlocks, {who}")
            detail = f"{cause.diag.message_detail} {cause.diag.context}"
            with_ddl = self.changers & {int(pid) for pid in re.findall(r"Process (\d+)", detail)}
            if (who == "writers" or (writes and is_over_views(detail))) and not with_ddl:
                self.record("deadlocks of writers", f"{detail} {self._statements(detail)}")
        elif isinstance(cause, SerializationFailure):
            self.count(f"serialization failures, {who}")
        elif writes and (who == "writers" or is_ours(cause)):
            context = cause.diag.context if isinstance(cause, psycopg.Error) else ""
            self.record("errors of writers", f"{said} {context}")
        else:
            with self.lock:
                self.outcome.met[said] += 1


def was_cut(error: BaseException | None) -> bool:
    """Return whether an error comes from a kill, a restart, a cancel or a full disk."""
    if not isinstance(error, psycopg.Error):
        return False
    state = error.sqlstate
    lost = state is None and isinstance(error, psycopg.OperationalError)
    return lost or (state or "")[:2] in (*_CUT, RESOURCES)


def is_over_views(deadlock: str) -> bool:
    """Return whether a deadlock involves views; writers may deadlock over rows without views.

    >>> is_over_views("Process 1 waits for ExclusiveLock on advisory lock [5,6,7,2]; blocked by process 2.")
    True
    """
    return "on advisory lock" in deadlock and "on transaction" not in deadlock


def is_ours(error: BaseException | None) -> bool:
    """Return whether an error arose inside an object of idivm."""
    return isinstance(error, psycopg.Error) and bool(_PRODUCT.search(error.diag.context or ""))


WRITERS = 4
"""The writers in each database."""

SEED = 5

KILL_EVERY = 8.0
"""The seconds between two strikes."""

WRITTEN = (Place("chaos_utf8", "UTF8"), Place("chaos_latin1", "LATIN1"))
"""The databases with their own tables and views."""

SUBSCRIBER = WRITTEN[1]
"""The database that also subscribes to the publisher."""

GENERATED = (Place("generated_utf8", "UTF8"), Place("generated_latin1", "LATIN1"))
"""The databases with tables and views of the fuzzer."""

DISK = "small"
"""The tablespace of these databases, on the disk that may be filled."""

FULL_FOR = 1.0
"""The seconds for which the disk stays full."""

DEADLOCK_LINES = 20
"""The lines of the log that describe a deadlock."""

KINDS = (
    "differences",
    "views that are gone",
    "errors of writers",
    "deadlocks of writers",
    "manual steps",
    "errors that are no sentence",
)
"""The kinds of findings; each of them fails a run."""
