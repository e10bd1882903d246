"""The events of a storm: kills, cancels, restarts, a full disk, and the final check."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from orchestrator.api import connect
from orchestrator.bench.chaos import acts as chaos_acts
from orchestrator.bench.chaos import follow, published
from orchestrator.bench.chaos.shared import (
    DEADLOCK_LINES,
    FULL_FOR,
    KILL_EVERY,
    SUBSCRIBER,
    WRITTEN,
    Place,
    Shared,
)
from orchestrator.errors import IdivmError
from orchestrator.runtime.diagnosis import doctor


@dataclass
class Storm:
    """The server, and the events that disturb it."""

    shared: Shared
    disk: Path | None
    serving: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    following: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    # Activity -----------------------------------------------------------------------------------

    def administer(self) -> None:
        """Revoke and grant rights, pause the subscription, and end abandoned prepared transactions."""
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

        self.shared.repeat(work, "administrator")

    def finish_abandoned(self, chance: random.Random, age: str) -> None:
        """End the prepared transactions whose writers were killed."""
        for name in (*(place.name for place in WRITTEN), published.PUBLISHER):
            with psycopg.connect(self.shared.admin(name), autocommit=True) as admin:
                ended = chaos_acts.finish_abandoned(admin, chance, age)
                self.shared.count("prepared transactions that were left over", ended)

    # Strikes ------------------------------------------------------------------------------------

    def strike(self) -> None:
        """Strike repeatedly, each kind of strike in turn."""
        chance = random.Random(f"{self.shared.seed} blows")
        blows = [
            *(self._cancel, self._serve, self._session, self._full_disk, self._backend),
            *(self._consumer, self._restart, self._session, self._full_disk, self._postmaster),
            self._consumer,
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
            # The next strike needs a running server.
            self.shared.recover()

    def _victim(self, chance: random.Random) -> tuple[psycopg.Connection[Any], int]:
        admin = psycopg.connect(self.shared.admin("postgres"), autocommit=True)
        # If no other session is connected, as after a restart, the strike hits this session.
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
        """Start `idivm serve`."""
        self.serving[place.name] = subprocess.Popen(
            [sys.executable, "-m", "orchestrator.cli.main", "serve", "--json"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "IDIVM_DSN": self.shared.dsn(place.name)},
        )

    def _consumer(self, chance: random.Random) -> None:
        place = chance.choice(WRITTEN)
        self.following[place.name].kill()
        self.following[place.name].wait()
        self.shared.count("kill -9 of a consumer of feeds")
        self.follow(place)

    def follow(self, place: Place) -> None:
        """Start a consumer of the feeds of a database."""
        copies = self._copies(place)
        copies.mkdir(parents=True, exist_ok=True)
        self.following[place.name] = subprocess.Popen(
            [sys.executable, "-m", follow.__name__, str(copies), *chaos_acts.FOLLOWED],
            env={**os.environ, "IDIVM_DSN": self.shared.dsn(place.name)},
        )

    def _copies(self, place: Place) -> Path:
        """Return the folder with the consumer's copies of views."""
        return self.shared.server.home / "copies" / place.name

    # End ----------------------------------------------------------------------------------------

    def compare_all(self) -> None:
        """Compare everything after all writers stopped, without repairing anything by hand."""
        self.shared.recover()
        creator = psycopg.conninfo.conninfo_to_dict(self.shared.dsn("postgres"))["user"]
        with psycopg.connect(self.shared.admin(SUBSCRIBER.name), autocommit=True) as admin:
            chaos_acts.give_rights(admin, str(creator))
        self.finish_abandoned(random.Random(self.shared.seed), "0s")
        if not published.caught_up(self.shared, SUBSCRIBER.name):
            self.shared.record(
                "manual steps", "the subscriber does not catch up with its publisher"
            )
        for place in WRITTEN:
            self._compare(place)
            self._compare_copies(place)
        for line in self._deadlocks_of_workers():
            self.shared.record("deadlocks of writers", f"in a worker of the server: {line}")

    def _compare(self, place: Place) -> None:
        with connect(self.shared.dsn(place.name)) as orc:
            with suppress(IdivmError):
                orc.refresh()
            wrong, failing = chaos_acts.wrong_views(orc)
            for view in wrong:
                self.shared.record("differences", f"{place.name}, at the end: {view}")
            for view in failing:
                self.shared.record("manual steps", f"{place.name}: {view}")
            for view in chaos_acts.missing_views(orc):
                self.shared.record("views that are gone", f"{place.name}: {view}")
            for finding in doctor.examine(orc.connection):
                if not finding.fine:
                    self.shared.record(
                        "manual steps", f"{place.name}: {finding.subject}: {finding.sentence}"
                    )

    def _compare_copies(self, place: Place) -> None:
        """Compare the copies that the consumer kept by the feeds, and count what it reported."""
        copies, dsn = self._copies(place), self.shared.dsn(place.name)
        follow.follow_all(dsn, chaos_acts.FOLLOWED, copies, live=False)
        for line in follow.reported(copies, follow.DIFFERENCES):
            self.shared.record("differences", f"{place.name}: {line}")
        for line in follow.reported(copies, follow.ERRORS):
            self.shared.outcome.met[f"consumers: {line}"] += 1
        compared = follow.reported(copies, follow.COUNTED)
        self.shared.count("comparisons of copies by feeds", len(compared))

    def _deadlocks_of_workers(self) -> list[str]:
        """Return the deadlocks of apply workers from the log; no client receives these errors."""
        deadlocks = []
        for log in self.shared.server.log.glob("server-*.log"):
            lines = log.read_text(errors="replace").splitlines()
            deadlocks += [
                " ".join(line.strip() for line in lines[number : number + DEADLOCK_LINES])
                for number, line in enumerate(lines)
                if line.rstrip().endswith("] ERROR:  deadlock detected")
            ]
        return deadlocks
