"""From where the changes of a case's tables are captured, and what happens to the slot and the publication."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from random import Random

from psycopg.sql import SQL, Composed, Identifier, Literal

from orchestrator.catalog.wal import PUBLICATION
from orchestrator.fuzz.case import Alone, Capture, Crash, ReadWal, Statement, Step, Storm
from orchestrator.fuzz.schemas.schema import Model

_SLOTS = SQL("FROM pg_replication_slots WHERE database = current_database() AND NOT temporary")

LOSSES = (
    SQL("SELECT pg_drop_replication_slot(slot_name) {}").format(_SLOTS),
    SQL("SELECT pg_replication_slot_advance(slot_name, pg_current_wal_flush_lsn()) {}").format(
        _SLOTS
    ),
    SQL("DROP PUBLICATION IF EXISTS {}").format(Identifier(PUBLICATION)),
)
"""Statements after which the WAL no longer has all changes. Triggers capture the tables again."""

_WHILE_IN_WAL = SQL(
    "BEGIN IF EXISTS (SELECT FROM idivm.sources s WHERE s.relation = to_regclass({}) AND s.wal_since IS NOT NULL)"
    " THEN {}; END IF; END"
)

_TABLES = (
    SQL("ALTER PUBLICATION {publication} DROP TABLE {table}"),
    SQL("ALTER PUBLICATION {publication} ADD TABLE {table}"),
    SQL("ALTER TABLE {table} REPLICA IDENTITY DEFAULT"),
    SQL("ALTER TABLE {table} REPLICA IDENTITY NOTHING"),
    SQL("ALTER TABLE {table} REPLICA IDENTITY FULL"),
)


class Captures:
    """From where tables are captured while the steps of a case are generated."""

    def __init__(self, rng: Random, models: Sequence[Model]) -> None:
        """Take tables, whose changes are captured by triggers."""
        self.rng = rng
        self.models = models
        self.fitting = [m for m in models if _fits(m)] or models

    def switch(self, share: float = 0.65) -> Capture:
        """Return the step that captures a table from the WAL in this share of calls, or else by triggers."""
        models = self.fitting if self.rng.random() < 0.9 else self.models
        name = self.rng.choice(models).name.as_string(None)
        return Capture(name, "wal" if self.rng.random() < share else "triggers")

    def between(self, steps: Iterable[Step]) -> list[Step]:
        """Return steps with others in between that change how tables are captured, or that read the WAL."""
        result: list[Step] = [
            Capture(model.name.as_string(None), "wal")
            for model in self.models
            if self.rng.random() < 0.75
        ]
        for step in steps:
            if self.rng.random() < 0.5:
                result += self._step()
            result.append(self._stormy(step) if isinstance(step, Storm) else step)
        return result

    def _step(self) -> list[Step]:
        chance = self.rng.random()
        if chance < 0.5:
            return [self.switch()]
        if chance < 0.75:
            return [ReadWal()]
        if chance < 0.85:
            how = self.rng.choice(("timeout", "terminate"))
            return [Crash(how, self.rng.randint(0, 60), capture=self.switch())]
        if chance < 0.95:
            return [_alone(self._alteration())]
        return [_alone(self.rng.choice(LOSSES))]

    def _alteration(self) -> Composed:
        table = self.rng.choice(self.fitting).name
        altered = self.rng.choice(_TABLES).format(publication=Identifier(PUBLICATION), table=table)
        name = Literal(table.as_string(None))
        return SQL("DO {}").format(Literal(_WHILE_IN_WAL.format(name, altered).as_string(None)))

    def _stormy(self, storm: Storm) -> Storm:
        acts: list[Capture | ReadWal] = [
            self.switch() if self.rng.random() < 0.6 else ReadWal()
            for _ in range(self.rng.randint(0, 3))
        ]
        mixed = [*storm.refreshes, *acts]
        self.rng.shuffle(mixed)
        return replace(storm, refreshes=tuple(mixed))


def _fits(model: Model) -> bool:
    """Return whether a table can probably be captured from the WAL."""
    return not model.inherited and (not model.partitioned_by or model.key_kind == "primary")


def _alone(statement: Composed) -> Alone:
    return Alone(Statement(statement.as_string(None)))
