"""Writers, refreshers, DDL, and kill -9 of everything in turn: is all right still?

Databases of two encodings have writers with prepared transactions, DDL, GRANT and REVOKE; to one of them
a publisher sends changes by logical replication; in two more the fuzzer makes tables, views and DDL. Sessions
and servers are killed and restarted, and the disk fills up. Whatever fails because of that is tried again, as
an application would. What must not be: a view that differs from its query, an error of a writer that would not
be there without views, a deadlock over views, anything that a person would have to mend.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.sql import SQL, Identifier, Literal

from orchestrator.api import connect
from orchestrator.bench.chaos import acts as chaos_acts
from orchestrator.bench.chaos import generated, published
from orchestrator.bench.chaos.shared import Outcome, Place, Shared
from orchestrator.bench.measure import machine, own_server
from orchestrator.bench.report import Bar, Report, progress
from orchestrator.errors import IdivmError, UsageError
from orchestrator.fuzz.encodings import created_with
from orchestrator.runtime.diagnosis import doctor
from orchestrator.runtime.sessions import open_session
from orchestrator.server import EmbeddedServer
from orchestrator.server.unprivileged import server_account

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


@dataclass
class _Written:
    """What goes on in a database with tables and views of its own."""

    shared: Shared
    place: Place

    def acts(self) -> list[Callable[[], None]]:
        writers = (partial(self.write, owner) for owner in range(WRITERS))
        return [self.refresh, self.change_schema, self.check, self.keep, *writers]

    def write(self, owner: int) -> None:
        chance = random.Random(f"{self.shared.seed} {self.place.name} writer {owner}")

        def work() -> None:
            with open_session(self.shared.dsn(self.place.name)) as connection:
                while not self.shared.stop.wait(0.05):
                    chaos_acts.transaction(connection, owner, chance)
                    self.shared.count("transactions of writers")

        self.shared.again(work, "writers")

    def keep(self) -> None:
        chance = random.Random(f"{self.shared.seed} {self.place.name} keeper")

        def work() -> None:
            dsn = make_conninfo(self.shared.dsn(self.place.name), user=chaos_acts.KEEPER)
            with open_session(dsn) as connection:
                while not self.shared.stop.wait(0.1):
                    chaos_acts.keep_the_ledger(connection, chance)
                    self.shared.count("transactions of writers")

        self.shared.again(work, "writers")

    def refresh(self) -> None:
        chance = random.Random(f"{self.shared.seed} {self.place.name} refresher")

        def work() -> None:
            with connect(self.shared.dsn(self.place.name)) as orc:
                while not self.shared.stop.wait(0.3):
                    kind = chance.random()
                    if kind < 0.4:
                        orc.connection.execute("CALL idivm.refresh_all()")
                    elif kind < 0.8:
                        orc.refresh(chance.choice([view.name for view in orc.views()]))
                    else:
                        orc.connection.execute("SELECT * FROM idivm.refresh('joined')")
                    self.shared.count("refreshes")

        self.shared.again(work, "refreshers")

    def change_schema(self) -> None:
        chance = random.Random(f"{self.shared.seed} {self.place.name} schema")
        number = 0

        def work() -> None:
            nonlocal number
            with connect(self.shared.dsn(self.place.name)) as orc:
                self.shared.changers.add(orc.connection.info.backend_pid)
                while not self.shared.stop.wait(1.0):
                    number += 1
                    act = chaos_acts.act(number)
                    self.shared.recent.append(f"{act.__name__.strip('_')} in {self.place.name}")
                    act(orc, number, chance)
                    self.shared.count("schema changes")

        self.shared.again(work, "schema changes")

    def check(self) -> None:
        def work() -> None:
            with connect(self.shared.dsn(self.place.name)) as orc:
                while not self.shared.stop.wait(5.0):
                    for view in chaos_acts.wrong_views(orc)[0]:
                        self.shared.found("differences", f"{self.place.name}: {view}")
                    self.shared.count("comparisons of all views")

        self.shared.again(work, "checks")


def _work(home: Path, place: Place, seed: int, seconds: float) -> Outcome:
    """What a process of its own does: everything that goes on in one database."""
    shared = Shared(EmbeddedServer(home), seed)
    acts = [lambda: generated.episodes(shared, place)]
    if place in WRITTEN:
        acts = _Written(shared, place).acts()
    _until(shared, acts, seconds)
    return shared.outcome


def _until(shared: Shared, acts: Sequence[Callable[[], None]], seconds: float) -> None:
    """Has everybody work for so long."""
    threads = [threading.Thread(target=act) for act in acts]
    for thread in threads:
        thread.start()
    try:
        shared.stop.wait(seconds)
    finally:
        shared.stop.set()
        for thread in threads:
            thread.join()


@dataclass
class _Run:
    """The server, and what strikes it."""

    shared: Shared
    disk: Path | None
    serving: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    # What goes on -------------------------------------------------------------------------------

    def administer(self) -> None:
        """Takes rights and gives them back, pauses the subscription, ends transactions that nobody does."""
        chance = random.Random(f"{self.shared.seed} rights")

        def work() -> None:
            creator = psycopg.conninfo.conninfo_to_dict(self.shared.dsn("postgres"))["user"]
            with psycopg.connect(self.shared.admin(SUBSCRIBER.name), autocommit=True) as admin:
                self.shared.changers.add(admin.info.backend_pid)
                while not self.shared.stop.wait(3.0):
                    chaos_acts.give_rights(admin, str(creator))
                    if chance.random() < 0.3:
                        self.shared.recent.append("rights are taken away")
                        chaos_acts.take_rights(admin, str(creator))
                        self.shared.count("rights taken away and given back")
                    elif chance.random() < 0.3:
                        published.pause_and_go_on(admin)
                        self.shared.count("pauses of the subscription")
                    self.finish_abandoned(chance, "3s")

        self.shared.again(work, "administrator")

    def finish_abandoned(self, chance: random.Random, age: str) -> None:
        """Ends the prepared transactions whose writers were killed."""
        for name in (*(place.name for place in WRITTEN), published.PUBLISHER):
            with psycopg.connect(self.shared.admin(name), autocommit=True) as admin:
                ended = chaos_acts.finish_abandoned(admin, chance, age)
                self.shared.count("prepared transactions that were left over", ended)

    # Blows --------------------------------------------------------------------------------------

    def strike(self) -> None:
        """Kills something, in turn."""
        chance = random.Random(f"{self.shared.seed} blows")
        blows = [
            *(self._cancel, self._serve, self._session, self._full_disk, self._backend),
            *(self._cancel, self._restart, self._session, self._full_disk, self._postmaster),
        ]
        number = 0
        while not self.shared.stop.wait(KILL_EVERY):
            blow = blows[number % len(blows)]
            number += 1
            self.shared.recent.append(f"blow at{blow.__name__}")
            try:
                blow(chance)
            except (psycopg.Error, ProcessLookupError, IdivmError):
                pass
            except Exception as error:
                self.shared.unexpected(error, f"blow at{blow.__name__}")
            # The next blow is for a server that is at work again.
            self.shared.recover()

    def _victim(self, chance: random.Random) -> tuple[psycopg.Connection[Any], int]:
        admin = psycopg.connect(self.shared.admin("postgres"), autocommit=True)
        # While nobody else has connected, as after a restart, the blow is for this session.
        return admin, chance.choice(chaos_acts.kill_targets(admin) or [admin.info.backend_pid])

    def _cancel(self, chance: random.Random) -> None:
        connection, pid = self._victim(chance)
        with connection:
            connection.execute("SELECT pg_cancel_backend(%s)", [pid])
        self.shared.count("statements cancelled")

    def _session(self, chance: random.Random) -> None:
        connection, pid = self._victim(chance)
        with connection:
            connection.execute("SELECT pg_terminate_backend(%s)", [pid])
        self.shared.count("sessions ended")

    def _backend(self, chance: random.Random) -> None:
        connection, pid = self._victim(chance)
        os.kill(pid, signal.SIGKILL)
        connection.close()
        self.shared.count("kill -9 of a backend")

    def _postmaster(self, chance: random.Random) -> None:
        endpoint = self.shared.server.status().endpoint
        if endpoint is not None:
            os.kill(endpoint.pid, signal.SIGKILL)
            self.shared.count("kill -9 of the postmaster")

    def _restart(self, chance: random.Random) -> None:
        self.shared.server.down()
        self.shared.count("restarts")

    def _full_disk(self, chance: random.Random) -> None:
        if self.disk is None:
            return
        ballast = self.disk / "ballast"
        try:
            with ballast.open("wb") as file, suppress(OSError):
                while free := shutil.disk_usage(self.disk).free:
                    os.posix_fallocate(file.fileno(), file.tell(), free)
                    file.seek(free, os.SEEK_CUR)
            self.shared.stop.wait(FULL_FOR)
        finally:
            ballast.unlink()
        self.shared.count("full disks")

    def _serve(self, chance: random.Random) -> None:
        place = chance.choice(WRITTEN)
        if place.name in self.serving:
            self.serving[place.name].kill()
            self.serving[place.name].wait()
            self.shared.count("kill -9 of serve")
        self.serve(place)

    def serve(self, place: Place) -> None:
        """Starts `idivm serve`."""
        self.serving[place.name] = subprocess.Popen(
            [sys.executable, "-m", "orchestrator.cli.main", "serve", "--json"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "IDIVM_DSN": self.shared.dsn(place.name)},
        )

    # The end ------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Compares everything once nobody writes any more; nothing is mended by hand before."""
        self.shared.recover()
        creator = psycopg.conninfo.conninfo_to_dict(self.shared.dsn("postgres"))["user"]
        with psycopg.connect(self.shared.admin(SUBSCRIBER.name), autocommit=True) as admin:
            chaos_acts.give_rights(admin, str(creator))
        self.finish_abandoned(random.Random(self.shared.seed), "0s")
        if not published.caught_up(self.shared, SUBSCRIBER.name):
            self.shared.found("manual steps", "the subscriber does not catch up with its publisher")
        for place in WRITTEN:
            self._settle(place)
        for line in self._deadlocks_of_workers():
            self.shared.found("deadlocks of writers", f"in a worker of the server: {line}")

    def _settle(self, place: Place) -> None:
        with connect(self.shared.dsn(place.name)) as orc:
            with suppress(IdivmError):
                orc.refresh()
            wrong, failing = chaos_acts.wrong_views(orc)
            for view in wrong:
                self.shared.found("differences", f"{place.name}, at the end: {view}")
            for view in failing:
                self.shared.found("manual steps", f"{place.name}: {view}")
            for view in chaos_acts.missing_views(orc):
                self.shared.found("views that are gone", f"{place.name}: {view}")
            for finding in doctor.examine(orc.connection):
                if not finding.fine:
                    self.shared.found(
                        "manual steps", f"{place.name}: {finding.subject}: {finding.sentence}"
                    )

    def _deadlocks_of_workers(self) -> list[str]:
        """The deadlocks in the log that no client was told of: those of apply workers, with what they waited for."""
        deadlocks = []
        for log in self.shared.server.log.glob("server-*.log"):
            lines = log.read_text(errors="replace").splitlines()
            deadlocks += [
                " ".join(line.strip() for line in lines[number : number + DEADLOCK_LINES])
                for number, line in enumerate(lines)
                if line.rstrip().endswith("] ERROR:  deadlock detected")
            ]
        return deadlocks


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
    with own_server(pg, published.SETTINGS) as server, ExitStack() as stack:
        disk = stack.enter_context(_small_disk(server, say))
        shared = Shared(server, seed)
        chaos = _Run(shared, disk)
        _create(shared, disk)
        with connect(shared.dsn(WRITTEN[0].name)) as orc:
            described = {**machine(orc.connection), "seed": str(seed)}
        _go_on(chaos, minutes * 60, say)
        chaos.settle()
        return _report(shared, described, say)


@contextmanager
def _small_disk(server: EmbeddedServer, say: Callable[[str], None]) -> Iterator[Path | None]:
    """A file system that may be made full, mounted below the server's home if that is allowed."""
    folder = server.home / DISK
    folder.mkdir()
    options = "size=768m,mode=0777"
    try:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "idivm-chaos", folder], capture_output=True
        ).returncode
    except OSError:
        done = 1
    if done != 0:
        say("The disk is never full in this run: only root may mount a small file system.\n")
        yield None
        return
    try:
        (folder / "data").mkdir()
        server_account(server.data, server.home).own(folder / "data")
        yield folder
    finally:
        server.down()
        subprocess.run(["umount", "--lazy", folder], check=True)


def _create(shared: Shared, disk: Path | None) -> None:
    """The databases, the roles, and the tables and views that the run begins with."""
    with psycopg.connect(shared.admin("postgres"), autocommit=True) as admin:
        creator = psycopg.conninfo.conninfo_to_dict(shared.dsn("postgres"))["user"]
        owner = Identifier(str(creator))
        keeper = Identifier(chaos_acts.KEEPER)
        admin.execute(SQL("CREATE ROLE {} LOGIN").format(keeper))
        chaos_acts.give_rights(admin, str(creator))
        where = SQL("")
        if disk is not None:
            place = Literal(str(disk / "data"))
            admin.execute(SQL("CREATE TABLESPACE {} LOCATION {}").format(Identifier(DISK), place))
            where = SQL("TABLESPACE {}").format(Identifier(DISK))  # type: ignore[assignment]
        for one in (*WRITTEN, *GENERATED):
            admin.execute(
                SQL("CREATE DATABASE {} OWNER {} TEMPLATE template0 {} {}").format(
                    Identifier(one.name), owner, created_with(one.encoding, "C"), where
                )
            )
        admin.execute(
            SQL("CREATE DATABASE {} OWNER {}").format(Identifier(published.PUBLISHER), owner)
        )
    for one in WRITTEN:
        with psycopg.connect(shared.admin(one.name), autocommit=True) as admin:
            admin.execute(SQL("GRANT CREATE ON SCHEMA public TO {}").format(keeper))
        with connect(shared.dsn(one.name)) as orc:
            chaos_acts.create(orc)
    with connect(shared.dsn(SUBSCRIBER.name)) as orc:
        orc.execute(published.TABLES)
        for name, (query, mode) in published.VIEWS.items():
            orc.create_view(name, query, maintain=mode)
    published.publish(shared, SUBSCRIBER.name)


def _go_on(chaos: _Run, seconds: float, say: Callable[[str], None]) -> None:
    """Has everybody work for so long; planning in Python would hold up the other threads of a process."""
    shared = chaos.shared
    places = (*WRITTEN, *GENERATED)
    with ProcessPoolExecutor(len(places), get_context("spawn")) as pool:
        working = [
            pool.submit(_work, shared.server.home, place, shared.seed, seconds) for place in places
        ]
        for place in WRITTEN:
            chaos.serve(place)
        try:
            say(f"{seconds / 60:g} minutes of chaos, seed {shared.seed}")
            acts = [chaos.strike, chaos.administer, lambda: published.write(shared)]
            _until(shared, acts, seconds)
        finally:
            for process in chaos.serving.values():
                process.terminate()
                process.wait()
        # The server may be down by the last blow, and they wait for it.
        shared.recover()
        while wait(working, timeout=1.0).not_done:
            # Writers may wait for a transaction that somebody prepared and did not end.
            with suppress(psycopg.Error, IdivmError):
                chaos.finish_abandoned(random.Random(shared.seed), "0s")
        for one in working:
            shared.outcome.add(one.result())


def _totals(shared: Shared) -> str:
    done = (
        *("transactions of writers", "transactions of the publisher"),
        *("statements on generated tables", "generated views", "schema changes", "generated DDL"),
        *("kill -9 of a backend", "kill -9 of the postmaster", "restarts", "full disks"),
    )
    found = (f"{len(shared.outcome.findings.get(kind, ()))} {kind}" for kind in KINDS)
    counted = (f"{shared.outcome.counts[what]:,} {what}" for what in done)
    return f"seed {shared.seed}: {', '.join((*counted, *found))}"


def _report(shared: Shared, described: dict[str, str], say: Callable[[str], None]) -> Report:
    for sentence, times in shared.outcome.met.most_common(30):
        say(f"met with {times} times: {sentence}\n")
    print(_totals(shared), file=sys.stderr)
    counted = [{"what": what, "times": n} for what, n in sorted(shared.outcome.counts.items())]
    found = [
        {"what": f"{kind}: {one}", "times": 1}
        for kind, several in shared.outcome.findings.items()
        for one in several
    ]
    bars = [Bar(kind, len(shared.outcome.findings.get(kind, ())), "=", 0) for kind in KINDS]
    bars += [
        Bar(what, shared.outcome.counts[what], ">", 0)
        for what in (
            *("transactions of writers", "transactions of the publisher"),
            *("comparisons of all views", "comparisons of generated views"),
        )
    ]
    return Report("chaos", described, (*counted, *found), tuple(bars))
