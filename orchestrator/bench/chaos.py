"""Eight writers, refreshers, schema changes, and kill -9 of everything in turn: is all right still?

Whatever fails because something was killed is tried again, as an application would. What must not
be: a view that differs from its query, a view that is gone, a deadlock that a writer sees, anything
that a person would have to mend.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg.errors import DeadlockDetected, SerializationFailure

from orchestrator.api import Orchestrator, connect
from orchestrator.bench import chaos_acts
from orchestrator.bench.measure import machine, own_server
from orchestrator.bench.report import Bar, Report, progress
from orchestrator.errors import IdivmError, UsageError
from orchestrator.runtime import doctor
from orchestrator.server import EmbeddedServer

WRITERS = 8
SEED = 5

KILL_EVERY = 8.0
"""Seconds between two blows."""

PATIENCE = 300.0
"""Seconds that a server may take to come back."""


@dataclass
class _Run:
    """What all threads share."""

    server: EmbeddedServer
    seed: int
    say: Callable[[str], None]
    stop: threading.Event = field(default_factory=threading.Event)
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    recent: deque[str] = field(default_factory=lambda: deque(maxlen=8))
    """What was changed and killed last, to tell what a difference may come from."""
    met: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    serving: subprocess.Popen[bytes] | None = None
    dsn: str = ""

    def count(self, what: str) -> None:
        with self.lock:
            self.counts[what] += 1

    def again(self, work: Callable[[], None], who: str) -> None:
        """Does work over and over until the end; a lost connection or a conflict is no surprise."""
        while not self.stop.is_set():
            try:
                work()
            except (IdivmError, psycopg.Error) as error:
                cause = error.__cause__ if isinstance(error, IdivmError) else error
                if isinstance(cause, DeadlockDetected):
                    self.count(f"deadlocks, {who}")
                    self.count(f"{who}: {cause.diag.message_detail} {cause.diag.context}")
                elif isinstance(cause, SerializationFailure):
                    self.count(f"serialization failures, {who}")
                else:
                    self.count(f"interrupted, {who}")
                    with self.lock:
                        self.met[f"{who}: {str(error).splitlines()[0][:200]}"] += 1
                self.stop.wait(0.5)
            except Exception as error:
                with self.lock:
                    self.failures.append(f"{who}: {error!r}")
                self.say(f"{who}: {error!r}")

    def write(self, owner: int) -> None:
        chance = random.Random(self.seed * 100 + owner)

        def work() -> None:
            with psycopg.connect(self.dsn, autocommit=True) as connection:
                while not self.stop.is_set():
                    chaos_acts.transaction(connection, owner, chance)
                    self.count("transactions of writers")

        self.again(work, "writers")

    def refresh(self, number: int) -> None:
        chance = random.Random(self.seed * 200 + number)

        def work() -> None:
            with connect(self.dsn) as orc:
                while not self.stop.wait(0.3):
                    kind = chance.random()
                    if kind < 0.4:
                        orc.connection.execute("CALL idivm.refresh_all()")
                    elif kind < 0.8:
                        orc.refresh(chance.choice([view.name for view in orc.views()]))
                    else:
                        orc.connection.execute("SELECT * FROM idivm.refresh('joined')")
                    self.count("refreshes")

        self.again(work, "refreshers")

    def change_schema(self) -> None:
        chance = random.Random(self.seed * 300)
        number = 0

        def work() -> None:
            nonlocal number
            with connect(self.dsn) as orc:
                while not self.stop.wait(1.0):
                    number += 1
                    self.recent.append(chaos_acts.act(number).__name__.strip("_"))
                    chaos_acts.act(number)(orc, number, chance)
                    self.count("schema changes")

        self.again(work, "schema changes")

    def check(self) -> None:
        def work() -> None:
            with connect(self.dsn) as orc:
                while not self.stop.wait(5.0):
                    self.note(chaos_acts.wrong_views(orc))

        self.again(work, "checks")

    def note(self, wrong: list[str]) -> None:
        """Notes the outcome of one comparison of all views."""
        self.count("comparisons of all views")
        for view in wrong:
            self.wrong.append(view)
            self.count(f"{view}, after {', '.join(self.recent)}")

    def strike(self) -> None:
        """Kills something, in turn."""
        chance = random.Random(self.seed * 400)
        blows = (self._cancel, self._serve, self._session, self._backend, self._postmaster)
        number = 0
        while not self.stop.wait(KILL_EVERY):
            blow = blows[number % len(blows)]
            number += 1
            self.recent.append(f"blow at{blow.__name__}")
            with suppress(psycopg.Error, ProcessLookupError, IdivmError):
                blow(chance)
            # The next blow is for a server that is at work again.
            self.recover()

    def recover(self) -> None:
        """Waits until the server is at work."""
        late = time.monotonic() + PATIENCE
        while True:
            try:
                self.dsn = self.server.up().dsn
                psycopg.connect(self.dsn).close()
                return
            except (psycopg.Error, IdivmError):
                # A process just killed may look alive for a moment, or the recovery takes long.
                if time.monotonic() > late:
                    raise
                time.sleep(0.2)

    def _victim(self, chance: random.Random) -> tuple[psycopg.Connection[Any], int]:
        connection = psycopg.connect(self.dsn, autocommit=True)
        return connection, chance.choice(chaos_acts.kill_targets(connection))

    def _cancel(self, chance: random.Random) -> None:
        connection, pid = self._victim(chance)
        with connection:
            connection.execute("SELECT pg_cancel_backend(%s)", [pid])
        self.count("statements cancelled")

    def _session(self, chance: random.Random) -> None:
        connection, pid = self._victim(chance)
        with connection:
            connection.execute("SELECT pg_terminate_backend(%s)", [pid])
        self.count("sessions ended")

    def _backend(self, chance: random.Random) -> None:
        connection, pid = self._victim(chance)
        self.say("kill -9 of a backend")
        os.kill(pid, signal.SIGKILL)
        connection.close()
        self.count("kill -9 of a backend")

    def _postmaster(self, chance: random.Random) -> None:
        endpoint = self.server.status().endpoint
        if endpoint is not None:
            self.say("kill -9 of the postmaster")
            os.kill(endpoint.pid, signal.SIGKILL)
            self.count("kill -9 of the postmaster")

    def _serve(self, chance: random.Random) -> None:
        self.say("kill -9 of serve")
        if self.serving is not None:
            self.serving.kill()
            self.serving.wait()
            self.count("kill -9 of serve")
        self.serve()

    def serve(self) -> None:
        """Starts `idivm serve`."""
        self.serving = subprocess.Popen(
            [sys.executable, "-m", "orchestrator.cli.main", "serve", "--json"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "IDIVM_DSN": self.dsn},
        )


def run(
    *,
    minutes: float = 15,
    seed: int = SEED,
    pg: int | None = None,
    say: Callable[[str], None] = progress,
) -> Report:
    """Runs on a server of its own, which it kills."""
    if minutes <= 0:
        raise UsageError(f"The run needs --minutes of more than 0, not {minutes:g}.")
    with own_server(pg) as server:
        chaos = _Run(server, seed, say, dsn=server.up().dsn)
        with connect(chaos.dsn) as orc:
            described = machine(orc.connection)
            chaos_acts.create(orc)
        chaos.serve()
        work: list[Callable[[], None]] = [chaos.change_schema, chaos.check, chaos.strike]
        work += [lambda owner=owner: chaos.write(owner) for owner in range(WRITERS)]  # type: ignore[misc]
        work += [lambda number=number: chaos.refresh(number) for number in range(2)]  # type: ignore[misc]
        threads = [threading.Thread(target=one) for one in work]
        for thread in threads:
            thread.start()
        try:
            _wait(chaos, minutes * 60)
        finally:
            chaos.stop.set()
            for thread in threads:
                thread.join()
            if chaos.serving is not None:
                chaos.serving.terminate()
                chaos.serving.wait()
        chaos.recover()
        with connect(chaos.dsn) as orc:
            return _report(chaos, orc, described)


def _wait(chaos: _Run, seconds: float) -> None:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        chaos.say(f"{left / 60:.1f} minutes left; {chaos.counts['transactions of writers']:,} done")
        chaos.stop.wait(min(30.0, left))


def _report(chaos: _Run, orc: Orchestrator, described: dict[str, str]) -> Report:
    chaos.note(chaos_acts.wrong_views(orc))
    gone = chaos_acts.missing_views(orc)
    findings = [f for f in doctor.examine(orc.connection) if not f.fine]
    for finding in findings:
        chaos.say(f"doctor: {finding.subject}: {finding.sentence}")
    for sentence, times in chaos.met.most_common(20):
        chaos.say(f"met with {times} times: {sentence}")
    rows = tuple({"what": what, "times": n} for what, n in sorted(chaos.counts.items()))
    bars = (
        Bar("views that differed from their queries", len(chaos.wrong), "=", 0),
        Bar("views that are gone", len(gone), "=", 0),
        Bar("deadlocks that a writer saw", chaos.counts["deadlocks, writers"], "=", 0),
        Bar("things that a person would have to mend", len(findings), "=", 0),
        Bar("errors that are no sentence", len(chaos.failures), "=", 0),
        Bar("transactions of writers", chaos.counts["transactions of writers"], ">", 0),
        Bar("comparisons of all views", chaos.counts["comparisons of all views"], ">", 0),
    )
    return Report("chaos", described, rows, bars)
