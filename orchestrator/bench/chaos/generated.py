"""The generated part of a chaos run: random tables and views with concurrent changes and DDL.

An episode creates the tables and views of a seed. Two sessions write, one session changes the
schema of the tables, and one session refreshes. Then all sessions stop. After a refresh of all
views, every view must hold the rows of its query.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from typing import Any

import psycopg
from psycopg import Connection
from psycopg.sql import SQL, Composed, Identifier, Literal

from orchestrator.api import Orchestrator, connect
from orchestrator.bench.chaos.shared import Place, Shared, was_cut
from orchestrator.errors import IdivmError, UnsupportedError
from orchestrator.fuzz.case import Case, Statement, View
from orchestrator.fuzz.encodings import in_database, in_encoding
from orchestrator.fuzz.generate import drafted
from orchestrator.fuzz.outcome import CaseError, NoAnswerError
from orchestrator.fuzz.plainly import plain_view
from orchestrator.fuzz.schemas.schema import Model
from orchestrator.fuzz.steps.ddl import schema_change
from orchestrator.fuzz.steps.rows import Writer
from orchestrator.fuzz.workspace import SLOW, Workspace
from orchestrator.runtime.sessions import open_session

SECONDS = 10.0
"""The seconds for which an episode writes."""

ATTEMPTS = 30
"""How often an action is tried if kills or restarts interrupt it."""

REFUSALS = 6
"""How often an action is tried if it fails for other reasons."""


def episodes(shared: Shared, place: Place) -> None:
    """Run episodes one after the other, each with the next seed."""
    numbers = iter(range(shared.seed * 1000, shared.seed * 1000 + 1_000_000))
    chance = random.Random(f"{shared.seed} {place.name}")

    def work() -> None:
        seed = next(numbers)
        case, models = drafted(seed)
        episode = _Episode(shared, place, seed)
        # The case holds the generator's tables as text, so `_moved` converts their changes in the
        # same way.
        episode.run(in_database(case, place.encoding, "C"), models, chance)
        shared.count("generated cases")

    shared.repeat(work, "episodes")


class _Episode:
    def __init__(self, shared: Shared, place: Place, seed: int) -> None:
        self.shared, self.place, self.seed = shared, place, seed
        self.over = threading.Event()

    @property
    def dsn(self) -> str:
        return self.shared.dsn(self.place.name)

    def run(self, case: Case, models: Sequence[Model], chance: random.Random) -> None:
        """Run one episode: set up, write, and compare."""
        with connect(self.dsn) as orc:
            self._clean(orc)
            self._set_up(orc, case)
        acts: list[tuple[str, Callable[[Connection[Any]], None]]] = [
            ("writers of generated tables", self._writer(models, chance.random())),
            ("writers of generated tables", self._writer(models, chance.random())),
            ("generated DDL", self._changer(models, chance.random())),
            ("generated refreshes", self._refresher()),
        ]
        threads = [threading.Thread(target=self._keep_on, args=act) for act in acts]
        for thread in threads:
            thread.start()
        self.shared.stop.wait(SECONDS)
        self.over.set()
        for thread in threads:
            thread.join()
        self._verify()

    def _clean(self, orc: Orchestrator) -> None:
        """Drop the remains of an earlier episode."""
        for (schema,) in orc.connection.execute(
            "SELECT nspname FROM pg_namespace WHERE nspname NOT LIKE 'pg\\_%'"
            " AND nspname NOT LIKE 'idivm%' AND nspname NOT IN ('public', 'information_schema')"
        ).fetchall():
            orc.connection.execute(SQL("DROP SCHEMA {} CASCADE").format(Identifier(schema)))
        orc.connection.execute("SELECT idivm.drop_orphans()")
        for dropped in orc.dropped_views():
            orc.drop_view(dropped.name)

    def _set_up(self, orc: Orchestrator, case: Case) -> None:
        statements: list[SQL | Composed] = [
            *(SQL("CREATE SCHEMA {}").format(Identifier(schema)) for schema in case.schemas),
            *map(SQL, case.types),
            *(SQL(ddl) for table in case.tables for ddl in table.ddl),
        ]
        statements += [
            SQL("{} {}").format(SQL(table.insert), SQL(", ").join(map(SQL, table.rows)))
            for table in case.tables
            if table.rows
        ]
        for statement in statements:
            orc.connection.execute(statement)
        for view in case.views:
            if not self._answers_soon(orc.connection, view):
                continue
            if view.plain:
                orc.connection.execute(plain_view(view))
            else:
                self._create(orc, view)

    def _answers_soon(self, connection: Connection[Any], view: View) -> bool:
        try:
            with connection.transaction(force_rollback=True):
                connection.execute(SQL("SET LOCAL statement_timeout = {}").format(Literal(SLOW)))
                connection.execute(plain_view(view))
                connection.execute(SQL("SELECT v::text FROM {} AS v").format(SQL(view.name)))
        except psycopg.Error:
            return False
        return True

    def _create(self, orc: Orchestrator, view: View) -> None:
        given: dict[str, object] = dict(view.options)
        for options in (given, {"maintain": given["maintain"]}, {}):
            with suppress(UnsupportedError):
                # The options belong to the view, and none of them has the name of a parameter.
                orc.create_view(view.name, view.query, columns=view.columns, **options)  # type: ignore[arg-type]
                self.shared.count("generated views")
                return

    # Activity -----------------------------------------------------------------------------------

    def _keep_on(self, who: str, act: Callable[[Connection[Any]], None]) -> None:
        while not (self.over.is_set() or self.shared.stop.is_set()):
            try:
                with open_session(self.dsn) as connection:
                    connection.execute("SET statement_timeout = '20s'")
                    if "DDL" in who:
                        self.shared.changers.add(connection.info.backend_pid)
                    while not self.over.wait(0.02):
                        act(connection)
            except (IdivmError, psycopg.Error) as error:
                self.shared.judge(error, f"{who}, seed {self.seed}")
                self.over.wait(0.3)
            except Exception as error:
                self.shared.unexpected(error, f"{who}, seed {self.seed}")
                self.over.wait(0.3)

    def _tried(self, connection: Connection[Any], statement: Statement, who: str) -> None:
        """Run a statement of the fuzzer, which PostgreSQL may refuse."""
        try:
            if statement.copy is None:
                connection.execute(SQL(statement.sql))
            else:
                with connection.cursor().copy(SQL(statement.sql)) as copying:
                    copying.write(statement.copy)
        except psycopg.Error as error:
            if was_cut(error):
                raise
            self.shared.judge(error, f"{who}, seed {self.seed}")

    def _writer(self, models: Sequence[Model], seed: float) -> Callable[[Connection[Any]], None]:
        chance = random.Random(seed)
        writer = Writer(chance, models)

        def act(connection: Connection[Any]) -> None:
            self._tried(connection, self._moved(writer.statement()), "writers of generated tables")
            self.shared.count("statements on generated tables")

        return act

    def _changer(self, models: Sequence[Model], seed: float) -> Callable[[Connection[Any]], None]:
        chance = random.Random(seed)

        def act(connection: Connection[Any]) -> None:
            for alone in schema_change(chance, models):
                self._tried(connection, self._moved(alone.statement), "generated DDL")
                self.shared.count("generated DDL")
                self.over.wait(0.2)

        return act

    def _refresher(self) -> Callable[[Connection[Any]], None]:
        def act(connection: Connection[Any]) -> None:
            self.over.wait(0.5)
            connection.execute("CALL idivm.refresh_all()")

        return act

    def _moved(self, statement: Statement) -> Statement:
        return Statement(
            in_encoding(statement.sql, self.place.encoding),
            None if statement.copy is None else in_encoding(statement.copy, self.place.encoding),
        )

    # End -----------------------------------------------------------------------------------------

    def _verify(self) -> None:
        """Refresh and compare all views; try again after a kill or a full disk."""
        refusals = 0
        for attempt in range(ATTEMPTS):
            self.shared.recover()
            try:
                with closing(Workspace(self.dsn)) as space:
                    self._compare(space)
                return
            except NoAnswerError:
                self.shared.count("generated cases whose queries have no answer")
                return
            except (CaseError, IdivmError, psycopg.Error) as error:
                is_different = isinstance(error, CaseError) and error.kind == "difference"
                cause = error.__cause__ if isinstance(error, IdivmError) else error
                refusals += not was_cut(cause)
                if is_different or refusals == REFUSALS or attempt == ATTEMPTS - 1:
                    kind = "differences" if is_different else "manual steps"
                    self.shared.record(kind, f"generated seed {self.seed}: {error}")
                    return
                time.sleep(1.0)

    def _compare(self, space: Workspace) -> None:
        try:
            space.orc.refresh()
        except IdivmError:
            # A user would also try again after this error.
            self._refresh_each(space)
        for view in space.orc.views():
            space.compare([view.name])
            self.shared.count("comparisons of generated views")

    def _refresh_each(self, space: Workspace) -> None:
        for view in space.orc.views():
            try:
                space.orc.refresh(view.name)
            except IdivmError as error:
                if was_cut(error.__cause__):
                    raise
                space.need_answers([view.name])
                raise
