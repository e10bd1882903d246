"""Schedules of refreshes: an interval, or five fields as pg_cron has them.

The SQL function `idivm.schedule_pattern` accepts the same texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone, tzinfo
from typing import TypeAlias

from orchestrator.errors import UsageError

OFF = "off"
"""The value of the option for a view without a schedule."""

_UNITS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_INTERVAL = re.compile(
    r"([1-9]\d{0,8}) ?(?:(ms)|(s)(?:econds?)?|(min)(?:utes?)?|(h)(?:ours?)?|(d)ays?)"
)
_NAMED = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_MONTHS = dict(
    zip(
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
        range(1, 13),
        strict=True,
    )
)
_WEEKDAYS = dict(zip(["sun", "mon", "tue", "wed", "thu", "fri", "sat"], range(7), strict=True))
_YEARS = 9
"""A February 29 may be eight years away."""


@dataclass(frozen=True)
class Every:
    """An interval."""

    seconds: float

    def next(self, after: datetime, zone: tzinfo = timezone.utc) -> datetime | None:
        """Return the first time after a moment.

        >>> Every(90.0).next(datetime(2026, 1, 1, tzinfo=timezone.utc)).isoformat()
        '2026-01-01T00:01:30+00:00'
        """
        return after + timedelta(seconds=self.seconds)


@dataclass(frozen=True)
class Cron:
    """The times that five fields name. As in cron, a day matches one of both fields if both are restricted."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    last_day: bool
    by_day: bool
    by_weekday: bool

    def next(self, after: datetime, zone: tzinfo = timezone.utc) -> datetime | None:
        """Return the first time after a moment, by the clocks of a time zone, or None if there is none.

        >>> after = datetime(2026, 2, 27, 12, 30, tzinfo=timezone.utc)
        >>> for text in ("*/20 9-17 * * *", "0 3 * * mon", "0 12 $ * *", "0 0 13 * 5", "0 0 29 2 *", "0 0 30 2 *"):
        ...     print(parse_schedule(text).next(after))
        2026-02-27 12:40:00+00:00
        2026-03-02 03:00:00+00:00
        2026-02-28 12:00:00+00:00
        2026-03-06 00:00:00+00:00
        2028-02-29 00:00:00+00:00
        None
        """
        day = after.astimezone(zone).date()
        for _ in range(366 * _YEARS):
            if self._is_on(day):
                for hour in sorted(self.hours):
                    for minute in sorted(self.minutes):
                        at = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)
                        # Where clocks go forward, the time does not exist; this is the moment after.
                        moment = at.astimezone(timezone.utc)
                        if moment > after:
                            return moment
            day += timedelta(days=1)
        return None

    def _is_on(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        is_last = self.last_day and (day + timedelta(days=1)).day == 1
        by_day = is_last or day.day in self.days
        by_weekday = day.isoweekday() % 7 in self.weekdays
        if self.by_day and self.by_weekday:
            return by_day or by_weekday
        return by_day and by_weekday


Schedule: TypeAlias = Every | Cron


def parse_schedule(text: str) -> Schedule | None:
    """Return a schedule, or None for `off`.

    >>> parse_schedule("10 s"), parse_schedule("5min"), parse_schedule("2 days"), parse_schedule("off")
    (Every(seconds=10.0), Every(seconds=300.0), Every(seconds=172800.0), None)
    >>> parse_schedule("61 * * * *")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    orchestrator.errors.UsageError: '61 * * * *' is not a schedule; write an interval, as in 10 s or 5 min, ...
    """
    wanted = text.strip().lower()
    if wanted == OFF:
        return None
    if interval := _INTERVAL.fullmatch(wanted):
        unit = next(unit for unit in interval.groups()[1:] if unit)
        return Every(int(interval[1]) * _UNITS[unit])
    fields = _NAMED.get(wanted, wanted).split()
    try:
        if len(fields) != 5:
            raise ValueError
        minute, hour, day, month, weekday = fields
        days = frozenset(_numbers(day, 1, 31, {"$": 32}))
        return Cron(
            frozenset(_numbers(minute, 0, 59)),
            frozenset(_numbers(hour, 0, 23)),
            days - {32},
            frozenset(_numbers(month, 1, 12, _MONTHS)),
            frozenset(number % 7 for number in _numbers(weekday, 0, 7, _WEEKDAYS)),
            32 in days,
            not day.startswith("*"),
            not weekday.startswith("*"),
        )
    except ValueError:
        raise UsageError(
            f"{text!r} is not a schedule; write an interval, as in 10 s or 5 min, or five fields as cron has them, as"
            " in 0 3 * * *."
        ) from None


def _numbers(
    field: str, first: int, last: int, names: Mapping[str, int] | None = None
) -> Iterator[int]:
    """Yield the numbers that a field names. Raise a ValueError for another text."""

    def number(text: str) -> int:
        value = (names or {}).get(text)
        if value is None:
            value = int(text)
            if not text.isdecimal() or not first <= value <= last:
                raise ValueError
        return value

    for item in field.split(","):
        span, slash, step = item.partition("/")
        low, dash, high = span.partition("-")
        if slash and (not step.isdecimal() or int(step) == 0 or not (dash or span == "*")):
            raise ValueError
        if span == "*":
            yield from range(first, last + 1, int(step or 1))
        else:
            begin = number(low)
            yield from range(begin, (number(high) if dash else begin) + 1, int(step or 1))
