"""The errors a user of idivm meets: one hierarchy, each with one sentence that says what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class IdivmError(Exception):
    """Something the user asked for cannot be done; the message is a sentence for that user."""

    exit_status = 2


class UsageError(IdivmError):
    """The request itself is malformed: an unknown option, a bad value, a statement out of place."""


VIEW_DROPPED = "The view was dropped meanwhile; `idivm list` shows those there are."


class NotFoundError(IdivmError):
    """A named view, table or file does not exist."""


class NameTakenError(IdivmError):
    """The name of a new view belongs to another relation."""


class UnsupportedError(IdivmError):
    """The query is valid SQL but cannot be maintained in the way that was asked for."""


class RightsError(IdivmError):
    """The owner of a view may not read what it reads, or does not trust the code that it calls."""


class DatabaseError(IdivmError):
    """PostgreSQL refused; the message carries its sentence."""


class ServerError(IdivmError):
    """A PostgreSQL server cannot be found, started, reached or used."""


class MigrationError(IdivmError):
    """The catalog in the database and the program do not fit each other."""


class CancelledError(DatabaseError):
    """Another thread cancelled the work with `Orchestrator.cancel`, or somebody cancelled the query."""


def state_of(error: Exception) -> str:
    """Return the SQLSTATE of an error of the database, or of its sentence for the user.

    The classes of psycopg do not tell: QueryCanceled is no OperatorIntervention.
    """
    return getattr(error.__cause__ or error, "sqlstate", None) or ""


def is_interruption(error: Exception) -> bool:
    """Return whether a view did not cause an error: a cancelled query, a conflict with another transaction.

    `idivm.ends_refresh` decides the same in SQL.
    """
    state = state_of(error)
    return state[:2] in ("25", "40", "57") or state == "55P03"


def near_miss(name: str, known: Iterable[str]) -> str:
    """Ask whether the user meant another name, if one is nearly the same.

    >>> near_miss("totls", ["totals", "orders"])
    ' Did you mean totals?'
    """
    near = difflib.get_close_matches(name, list(known), 1, 0.75)
    return f" Did you mean {near[0]}?" if near else ""
