"""What the algebra does not model, as a value and not as an error."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Unsupported:
    """A part of a query that has no place in a plan, and why; the view can still be recomputed."""

    reason: str
    where: str
    """The fragment of the query that is to blame."""

    def __str__(self) -> str:
        """Reason and place."""
        return f"{self.reason}: {self.where}"


class NotModelledError(Exception):
    """Carries an Unsupported out of a nested construction; never leaves frontend or algebra."""

    def __init__(self, reason: str, where: str) -> None:
        """Keeps the reason and the fragment."""
        super().__init__(f"{reason}: {where}")
        self.unsupported = Unsupported(reason, where)
