"""Parts of queries that the algebra does not model, as values instead of errors."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Unsupported:
    """A part of a query that a plan cannot represent, and why; the view can still be recomputed."""

    reason: str
    where: str
    """The fragment of the query that is not supported."""

    def __str__(self) -> str:
        """Return the reason and the fragment."""
        return f"{self.reason}: {self.where}"


class NotModelledError(Exception):
    """Carries an `Unsupported` out of nested calls; never leaves frontend or algebra."""

    def __init__(self, reason: str, where: str) -> None:
        """Keep the reason and the fragment."""
        super().__init__(f"{reason}: {where}")
        self.unsupported = Unsupported(reason, where)
