"""What a run of a case came to."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import psycopg

from orchestrator.errors import IdivmError


@dataclass(frozen=True)
class Failure:
    """What went wrong: `kind` and `code` say whether two failures are the same."""

    kind: str
    code: str
    message: str
    step: int | None = None

    def same(self, other: Failure | None) -> bool:
        """Whether another failure is of the same kind."""
        return other is not None and (self.kind, self.code) == (other.kind, other.code)

    def __str__(self) -> str:
        """The failure in a line or a few."""
        place = "" if self.step is None else f" at step {self.step}"
        return f"{self.kind}{f' ({self.code})' if self.code else ''}{place}: {self.message}"


@dataclass
class Outcome:
    """Counts of what a case did, the statements that PostgreSQL refused, and a failure if any."""

    counts: Counter[str] = field(default_factory=Counter)
    refused: dict[tuple[int, int], str] = field(default_factory=dict)
    failure: Failure | None = None


class CaseError(Exception):
    """Ends the run of a case."""

    def __init__(self, kind: str, code: str, message: str) -> None:
        """Takes the parts of a `Failure`."""
        super().__init__(message)
        self.kind = kind
        self.code = code


class NoAnswerError(Exception):
    """A view's query itself raises an error on the data that there now are; no fault of idivm's."""


def code_of(error: BaseException) -> str:
    """The SQLSTATE behind an error, or the name of its class."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, psycopg.Error) and cause.sqlstate:
            return cause.sqlstate
        cause = cause.__cause__
    return type(error).__name__


def failed(kind: str, error: IdivmError | psycopg.Error) -> CaseError:
    """The end of a run by an error that should not have been."""
    return CaseError(kind, code_of(error), str(error))
