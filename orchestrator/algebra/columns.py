"""Columns with unique identities, so that two scans of a table do not clash."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from orchestrator.sqltext import fitted_name


@dataclass(frozen=True)
class Column:
    """A column of an intermediate result.

    `symbol` is unique in a plan: two columns are the same if and only if their symbols are equal.
    The other fields describe the type; for computed columns they are often unknown.
    """

    symbol: str
    type: str | None = field(default=None, compare=False)
    """The type as PostgreSQL writes it."""
    equality: str | None = field(default=None, compare=False)
    """A name for the default equality of the type, if it has one."""
    exact: bool = field(default=False, compare=False)
    """Whether equal values also look the same, so that functions of them are equal too."""

    def __str__(self) -> str:
        """Return the symbol."""
        return self.symbol

    def __hash__(self) -> int:
        """Return the hash of the symbol, which Python caches."""
        return hash(self.symbol)


class Symbols:
    """Gives out symbols and table aliases that are unique in a plan.

    >>> symbols = Symbols()
    >>> [symbols.fresh("pid"), symbols.fresh("pid", "p2_pid"), symbols.fresh("pid", "p2_pid")]
    ['pid', 'p2_pid', 'pid_2']
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        """Start with names that are already taken."""
        self._taken = set(taken)
        self._next: dict[str, int] = {}

    def fresh(self, *wanted: str) -> str:
        """Return the first wanted name that is free, or else the first wanted name with a number."""
        for name in wanted:
            if self._take(fitted_name(name)):
                return fitted_name(name)
        # Names are never given back, so all lower numbers are still taken.
        number = self._next.get(wanted[0], 2)
        while not self._take(name := fitted_name(wanted[0], f"_{number}")):
            number += 1
        self._next[wanted[0]] = number + 1
        return name

    def _take(self, name: str) -> bool:
        if name in self._taken:
            return False
        self._taken.add(name)
        return True


def in_order(columns: Iterable[Column], among: Iterable[Column]) -> tuple[Column, ...]:
    """Return some columns in the order of a schema, then columns outside the schema by name."""
    wanted = set(columns)
    ordered = tuple(column for column in among if column in wanted)
    return ordered + tuple(sorted(wanted - set(ordered), key=str))
