"""What the threads of a process of a chaos run share: what was counted, and how errors are judged."""

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

from orchestrator.errors import IdivmError
from orchestrator.server import EmbeddedServer

RESOURCES = "53"
"""The class of errors that a full disk raises."""

PATIENCE = 300.0
"""Seconds that a server may take to come back."""

_CUT = ("08", "57")
"""Classes of errors of whom something was killed: lost connections, and cancels."""

_PRODUCT = re.compile(r'\bidivm(_log|_state|_def)?"?\.')
"""An object of idivm's in the context of an error; in a message, names may be the fuzzer's."""


@dataclass(frozen=True)
class Place:
    """A database of a run."""

    name: str
    encoding: str


@dataclass
class Outcome:
    """What has come of the work of one process."""

    counts: Counter[str] = field(default_factory=Counter)
    findings: dict[str, list[str]] = field(default_factory=dict)
    met: Counter[str] = field(default_factory=Counter)
    """Errors that fail nothing."""

    def add(self, other: Outcome) -> None:
        """Adds what another process did."""
        self.counts += other.counts
        self.met += other.met
        for kind, several in other.findings.items():
            self.findings.setdefault(kind, []).extend(several)


@dataclass
class Shared:
    """The server, when to end, and what happened so far, for all threads of a process to add to."""

    server: EmbeddedServer
    seed: int
    stop: threading.Event = field(default_factory=threading.Event)
    outcome: Outcome = field(default_factory=Outcome)
    recent: deque[str] = field(default_factory=lambda: deque(maxlen=8))
    """What was changed last, to tell what a difference may come from."""
    changers: set[int] = field(default_factory=set)
    """The backends that run DDL, in whose deadlocks views may have no part."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def dsn(self, database: str) -> str:
        """The connection string of a database; the server may have been killed, and is started."""
        return make_conninfo(self.server.up().dsn, dbname=database)

    def admin(self, database: str) -> str:
        """The same for the superuser."""
        return make_conninfo(self.server.up().superuser_dsn, dbname=database)

    def recover(self) -> None:
        """Waits until the server is at work."""
        late = time.monotonic() + PATIENCE
        while True:
            try:
                psycopg.connect(self.dsn("postgres")).close()
                return
            except (psycopg.Error, IdivmError):
                # A process just killed may look alive for a moment, or the recovery takes long.
                if time.monotonic() > late:
                    raise
                time.sleep(0.2)

    def count(self, what: str, times: int = 1) -> None:
        """Counts what has happened."""
        with self.lock:
            self.outcome.counts[what] += times

    def found(self, kind: str, what: str) -> None:
        """Keeps a finding, which fails the run."""
        texts = f"{time.strftime('%H:%M:%S')} {what} (after {', '.join(self.recent)})"
        with self.lock:
            self.outcome.findings.setdefault(kind, []).append(texts)
        print(f"chaos: {kind}: {texts}", file=sys.stderr, flush=True)

    def again(self, work: Callable[[], None], who: str, pause: float = 0.5) -> None:
        """Does work over and over until the end; a lost connection or a conflict is no surprise."""
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
        """Keeps an exception that no user could read, with where it was raised; it fails the run."""
        place = traceback.format_exception(error)[-4:-1]
        self.found("errors that are no sentence", f"{who}: {error!r} {''.join(place)}")

    def judge(self, error: IdivmError | psycopg.Error, who: str) -> None:
        """Counts what somebody ran into; a writer's error that is due to a view fails the run."""
        cause = error.__cause__ if isinstance(error, IdivmError) else error
        said = f"{who}: {(str(error) or repr(error)).splitlines()[0][:300]}"
        writes = who.startswith("writers")
        if was_cut(cause):
            self.count(f"interrupted, {who}")
        elif isinstance(cause, DeadlockDetected):
            self.count(f"deadlocks, {who}")
            detail = f"{cause.diag.message_detail} {cause.diag.context}"
            with_ddl = self.changers & {int(pid) for pid in re.findall(r"Process (\d+)", detail)}
            if (who == "writers" or (writes and is_over_views(detail))) and not with_ddl:
                self.found("deadlocks of writers", detail)
        elif isinstance(cause, SerializationFailure):
            self.count(f"serialization failures, {who}")
        elif writes and (who == "writers" or is_ours(cause)):
            context = cause.diag.context if isinstance(cause, psycopg.Error) else ""
            self.found("errors of writers", f"{said} {context}")
        else:
            with self.lock:
                self.outcome.met[said] += 1


def was_cut(error: BaseException | None) -> bool:
    """Whether an error comes from a kill, a restart, a cancel or a full disk."""
    if not isinstance(error, psycopg.Error):
        return False
    state = error.sqlstate
    lost = state is None and isinstance(error, psycopg.OperationalError)
    return lost or (state or "")[:2] in (*_CUT, RESOURCES)


def is_over_views(deadlock: str) -> bool:
    """Whether processes wait for the locks of views and tables alone. Writers of rows may deadlock without views.

    >>> is_over_views("Process 1 waits for ExclusiveLock on advisory lock [5,6,7,2]; blocked by process 2.")
    True
    """
    return "on advisory lock" in deadlock and "on transaction" not in deadlock


def is_ours(error: BaseException | None) -> bool:
    """Whether an error arose within what is idivm's."""
    return isinstance(error, psycopg.Error) and bool(_PRODUCT.search(error.diag.context or ""))


WRITERS = 4
"""In each database."""

SEED = 5

KILL_EVERY = 8.0
"""Seconds between two blows."""

WRITTEN = (Place("chaos_utf8", "UTF8"), Place("chaos_latin1", "LATIN1"))
"""Databases with tables and views of their own."""

SUBSCRIBER = WRITTEN[1]
"""The one that also subscribes to the publisher."""

GENERATED = (Place("generated_utf8", "UTF8"), Place("generated_latin1", "LATIN1"))
"""Databases with what the fuzzer makes."""

DISK = "small"
"""The tablespace of these databases, where the disk may be made full."""

FULL_FOR = 1.0
"""Seconds that the disk is full."""

DEADLOCK_LINES = 20
"""Lines of the log that describe a deadlock."""

KINDS = (
    "differences",
    "views that are gone",
    "errors of writers",
    "deadlocks of writers",
    "manual steps",
    "errors that are no sentence",
)
"""What fails a run."""
