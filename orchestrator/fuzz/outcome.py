"""The outcome of running a case."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import psycopg

from orchestrator.errors import IdivmError
from orchestrator.fuzz.case import View


@dataclass(frozen=True)
class Failure:
    """A failure; two failures are the same if their `kind` and `code` are equal."""

    kind: str
    code: str
    message: str
    step: int | None = None

    def same(self, other: Failure | None) -> bool:
        """Return whether another failure is the same."""
        return other is not None and (self.kind, self.code) == (other.kind, other.code)

    def __str__(self) -> str:
        """Return the failure in one or a few lines."""
        place = "" if self.step is None else f" at step {self.step}"
        return f"{self.kind}{f' ({self.code})' if self.code else ''}{place}: {self.message}"


@dataclass
class Outcome:
    """Counts of a case's actions, what was refused, and the failure, if any.

    `refused` are the statements, by step and position, that PostgreSQL refused. `created` has the
    views that idivm refused with their own options, as it created them.
    """

    counts: Counter[str] = field(default_factory=Counter)
    refused: dict[tuple[int, int], str] = field(default_factory=dict)
    created: dict[View, View] = field(default_factory=dict)
    failure: Failure | None = None


class CaseError(Exception):
    """Ends the run of a case."""

    def __init__(self, kind: str, code: str, message: str) -> None:
        """Take the parts of a `Failure`."""
        super().__init__(message)
        self.kind = kind
        self.code = code


class NoAnswerError(Exception):
    """Raised if a view's own query fails on the current data, which is not an error of idivm."""


def code_of(error: BaseException) -> str:
    """Return the SQLSTATE behind an error, or the name of its class."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, psycopg.Error) and cause.sqlstate:
            return cause.sqlstate
        cause = cause.__cause__
    return type(error).__name__


def failed(kind: str, error: IdivmError | psycopg.Error) -> CaseError:
    """Return the exception that ends a run after an unexpected error."""
    return CaseError(kind, code_of(error), str(error))
