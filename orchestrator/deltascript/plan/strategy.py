"""The names of the strategies."""

from __future__ import annotations

from enum import Enum


class Strategy(str, Enum):
    """The strategies that maintain views; `auto` chooses one of them."""

    ID = "id"
    TUPLE = "tuple"
    RECURSIVE = "recursive"
    VIEW_TREE = "viewtree"
    SKEW = "skew"
    RECOMPUTE = "recompute"

    def __str__(self) -> str:
        """Return the name as users write it."""
        return str(self.value)
