"""The options of `CREATE VIEW ... WITH (...)`: names, allowed values, defaults."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.errors import UsageError

_ALLOWED: dict[str, tuple[str, ...]] = {
    "maintain": ("deferred",),
    "strategy": ("auto", "id", "tuple", "recompute"),
    "cache": ("auto", "on", "off"),
}


@dataclass(frozen=True)
class ViewOptions:
    """How the user wants a view maintained."""

    maintain: str = "deferred"
    strategy: str = "auto"
    cache: str = "auto"

    def to_json(self) -> dict[str, str]:
        """The options as the catalog keeps them."""
        return {"maintain": self.maintain, "strategy": self.strategy, "cache": self.cache}


def parse_options(given: Iterable[tuple[str, object]]) -> ViewOptions:
    """The options given by name, checked.

    >>> parse_options([("strategy", "recompute")])
    ViewOptions(maintain='deferred', strategy='recompute', cache='auto')
    >>> parse_options([("stratgy", "recompute")])
    Traceback (most recent call last):
    orchestrator.errors.UsageError: There is no option 'stratgy'; a maintained view takes maintain, strategy, cache.
    """
    chosen: dict[str, str] = {}
    for name, value in given:
        if name not in _ALLOWED:
            known = ", ".join(_ALLOWED)
            raise UsageError(f"There is no option {name!r}; a maintained view takes {known}.")
        if name in chosen:
            raise UsageError(f"The option {name!r} is given twice.")
        text = str(value).lower()
        if text not in _ALLOWED[name]:
            allowed = " or ".join(_ALLOWED[name])
            raise UsageError(f"{name} = {value} is not available; it can be {allowed}.")
        chosen[name] = text
    return ViewOptions(**chosen)
