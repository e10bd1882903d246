"""The time of a case: how it moves, and a query as of a given time."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from random import Random

from psycopg.sql import SQL, Composed, Literal

from orchestrator.fuzz.case import Step, Time

ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC")
"""Time zones in which views with temporal filters are created."""

_MOMENTS = tuple(
    datetime.fromisoformat(f"{text}+00:00")
    for text in (
        *("2024-03-31 00:00:00", "2024-03-31 00:30:00", "2024-03-31 01:00:00"),
        *("2024-03-31 01:30:00", "2024-04-01 00:00:00", "2024-02-29 12:00:00"),
        *("2024-03-10 07:00:00", "2024-03-30 23:59:59.999999"),
    )
)
"""Values of rows, as `TEMPORAL` of the values has them, and times at which clocks change."""

_AHEAD = tuple(
    timedelta(**{unit: number})
    for unit, number in (
        *(("hours", 0), ("minutes", 30), ("hours", 1), ("days", 1), ("days", 7), ("days", 31)),
    )
)
"""How long after such a value a row may leave or enter a view."""

_STEPS = (
    *(timedelta(microseconds=1), timedelta(seconds=1), timedelta(minutes=30), timedelta(hours=1)),
    *(timedelta(hours=1), timedelta(days=1), timedelta(days=1), timedelta(days=40)),
    *(timedelta(hours=-1), timedelta(days=-3)),
)

_TIME = re.compile(
    r"\b(?:(?:now|transaction_timestamp)\(\)|CURRENT_TIMESTAMP\b|CURRENT_DATE\b|LOCALTIMESTAMP\b|LOCALTIME\b)",
    re.IGNORECASE,
)

_CASTS = {
    "current_date": "::date",
    "localtimestamp": "::timestamp without time zone",
    "localtime": "::time without time zone",
}


class Times:
    """The time of a case while its steps are generated."""

    def __init__(self, rng: Random) -> None:
        """Begin at a random time."""
        self.rng = rng
        self.now = rng.choice(_MOMENTS)

    @property
    def text(self) -> str:
        """The time as PostgreSQL reads it."""
        return self.now.isoformat(" ")

    def moved(self) -> Time:
        """Return a step that moves the time: a little, far, back, or to where rows come or go."""
        if self.rng.random() < 0.4:
            self.now = self.rng.choice(_MOMENTS) + self.rng.choice(_AHEAD)
            self.now += timedelta(microseconds=self.rng.choice((-1, 0, 0, 1)))
        else:
            self.now += self.rng.choice(_STEPS)
        return Time(self.text)

    def between(self, steps: Iterable[Step]) -> list[Step]:
        """Return steps with others in between that move the time."""
        result: list[Step] = []
        for step in steps:
            if self.rng.random() < 0.4:
                result.append(self.moved())
            result.append(step)
        return result


def as_of(query: str, at: str) -> str:
    """Return a query with a time in place of the current time.

    >>> as_of("SELECT a FROM t WHERE a > now()", "2024-03-31 00:00:00+00:00")
    "SELECT a FROM t WHERE a > ('2024-03-31 00:00:00+00:00'::timestamptz)"
    """

    def value(call: re.Match[str]) -> str:
        return f"('{at}'::timestamptz){_CASTS.get(call[0].lower(), '')}"

    return _TIME.sub(value, query)


def clock(time: str) -> Composed:
    """Return the statement that lets idivm take a time for the current time."""
    value = SQL("{}::timestamptz").format(Literal(time)) if time else SQL("pg_catalog.now()")
    return SQL(
        "CREATE OR REPLACE FUNCTION idivm.clock() RETURNS timestamptz LANGUAGE sql STABLE RETURN {}"
    ).format(value)
