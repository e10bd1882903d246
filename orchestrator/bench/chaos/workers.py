"""The work in a storm until time is up: writes, refreshes and schema changes."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from psycopg.conninfo import make_conninfo
from psycopg.sql import SQL, Identifier

from orchestrator.api import connect
from orchestrator.bench.chaos import acts as chaos_acts
from orchestrator.bench.chaos import generated
from orchestrator.bench.chaos.shared import WRITERS, WRITTEN, Outcome, Place, Shared
from orchestrator.runtime.sessions import open_session
from orchestrator.server import EmbeddedServer


@dataclass
class WrittenTables:
    """The activity in a database with its own tables and views."""

    shared: Shared
    place: Place

    def acts(self) -> list[Callable[[], None]]:
        """Return the endless tasks that run concurrently."""
        writers = (partial(self.write, owner) for owner in range(WRITERS))
        return [self.refresh, self.change_schema, self.check, self.read, self.keep, *writers]

    def write(self, owner: int) -> None:
        """Run transactions of one writer, which has its own rows."""
        chance = random.Random(f"{self.shared.seed} {self.place.name} writer {owner}")

        def work() -> None:
            with open_session(self.shared.dsn(self.place.name)) as connection:
                while not self.shared.stop.wait(0.05):
                    if stale := chaos_acts.transaction(connection, owner, chance):
                        self.shared.record("differences", f"{self.place.name}: {stale}")
                    self.shared.count("transactions of writers")

        self.shared.repeat(work, "writers")

    def keep(self) -> None:
        """Change the ledger as a role with few rights."""
        chance = random.Random(f"{self.shared.seed} {self.place.name} keeper")

        def work() -> None:
            dsn = make_conninfo(self.shared.dsn(self.place.name), user=chaos_acts.KEEPER)
            with open_session(dsn) as connection:
                while not self.shared.stop.wait(0.1):
                    chaos_acts.keep_the_ledger(connection, chance)
                    self.shared.count("transactions of writers")

        self.shared.repeat(work, "writers")

    def refresh(self) -> None:
        """Refresh some views, or all views."""
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

        self.shared.repeat(work, "refreshers")

    def change_schema(self) -> None:
        """Change tables and views."""
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

        self.shared.repeat(work, "schema changes")

    def check(self) -> None:
        """Compare the views with their queries."""

        def work() -> None:
            with connect(self.shared.dsn(self.place.name)) as orc:
                while not self.shared.stop.wait(5.0):
                    for view in chaos_acts.wrong_views(orc)[0]:
                        self.shared.record("differences", f"{self.place.name}: {view}")
                    self.shared.count("comparisons of all views")

        self.shared.repeat(work, "checks")

    def read(self) -> None:
        """Read views, which are never empty: neither while they are planned again nor while they are refreshed."""
        chance = random.Random(f"{self.shared.seed} {self.place.name} reader")

        def work() -> None:
            with open_session(self.shared.dsn(self.place.name)) as connection:
                while not self.shared.stop.wait(0.05):
                    view = chance.choice(chaos_acts.NEVER_EMPTY)
                    query = SQL("SELECT EXISTS (SELECT FROM {})").format(Identifier(view))
                    if connection.execute(query).fetchone() != (True,):
                        self.shared.record("differences", f"{self.place.name}: {view} is empty")
                    self.shared.count("reads of views")

        self.shared.repeat(work, "readers")


def work(home: Path, place: Place, seed: int, seconds: float) -> Outcome:
    """Run all activity of one database in this process."""
    shared = Shared(EmbeddedServer(home), seed)
    acts = [lambda: generated.episodes(shared, place)]
    if place in WRITTEN:
        acts = WrittenTables(shared, place).acts()
    act_until(shared, acts, seconds)
    return shared.outcome


def act_until(shared: Shared, acts: Sequence[Callable[[], None]], seconds: float) -> None:
    """Run all tasks in threads for this many seconds."""
    threads = [threading.Thread(target=act) for act in acts]
    for thread in threads:
        thread.start()
    try:
        shared.stop.wait(seconds)
    finally:
        shared.stop.set()
        for thread in threads:
            thread.join()
