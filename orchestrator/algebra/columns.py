"""Columns with identities of their own, so that two scans of one table do not clash."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from orchestrator.sqltext import fitted_name


@dataclass(frozen=True)
class Column:
    """A column of an intermediate result.

    `symbol` is unique in a plan: two columns are the same if and only if their symbols are. The
    rest is what is known of the type; computed columns know little.
    """

    symbol: str
    type: str | None = field(default=None, compare=False)
    """As PostgreSQL writes it."""
    equality: str | None = field(default=None, compare=False)
    """Names the default equality of the type, if it has one."""
    exact: bool = field(default=False, compare=False)
    """Whether equal values look equal too, so that a function of them is equal as well."""

    def __str__(self) -> str:
        """The symbol."""
        return self.symbol

    def __hash__(self) -> int:
        """The symbol's, which is computed once."""
        return hash(self.symbol)


class Symbols:
    """Gives out symbols and table aliases that nothing else in a plan uses.

    >>> symbols = Symbols()
    >>> [symbols.fresh("pid"), symbols.fresh("pid", "p2_pid"), symbols.fresh("pid", "p2_pid")]
    ['pid', 'p2_pid', 'pid_2']
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        """Starts with names that are taken already."""
        self._taken = set(taken)
        self._next: dict[str, int] = {}

    def fresh(self, *wanted: str) -> str:
        """The first wanted name that is free, or the first one with a number."""
        for name in wanted:
            if self._take(fitted_name(name)):
                return fitted_name(name)
        # All numbers below are taken, as no name is ever given back.
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
    """Some columns in the order of a schema, those outside it last and by name."""
    wanted = set(columns)
    listed = tuple(column for column in among if column in wanted)
    return listed + tuple(sorted(wanted - set(listed), key=str))
