"""The distinct elements of sets that overlap: unions, and iterators that hop over what has been shown
(sections 2.4.2 to 2.4.4 of papers/ivm-eps-triangle-queries.txt).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Generic, TypeVar

Value = TypeVar("Value", bound=Hashable)
Row = TypeVar("Row")


class Hops(Generic[Value]):
    """What an iterator over a collection passes over (figure 4); nothing stands for the end.

    Neighbours that are excluded are kept as one range, by its first value and the one behind it.

    >>> hops = Hops()
    >>> [hops.exclude(2, following=3), hops.exclude(4, following=5), hops.exclude(3, following=4)]
    [False, False, False]
    >>> hops.hop(2), hops.hop(5), hops.leaves(1), hops.ranges
    (5, 5, True, 1)
    >>> hops.exclude(5, following=None), hops.exclude(1, following=2), hops.leaves(first=1)
    (True, True, False)
    """

    def __init__(self) -> None:
        """Nothing is excluded at first."""
        self._to: dict[Value, Value | None] = {}
        self._from: dict[Value | None, Value] = {}

    @property
    def ranges(self) -> int:
        """How many there are."""
        return len(self._to)

    def hop(self, value: Value | None) -> Value | None:
        """The value, or the first one behind it that is not excluded; the one before must not be."""
        return None if value is None else self._to.get(value, value)

    def exclude(self, value: Value, following: Value | None) -> bool:
        """Excludes a value, which one follows that may be excluded; says if nothing is left behind it."""
        end = None if following is None else self._to.pop(following, following)
        start = self._from.pop(value, value)
        self._to[start] = end
        self._from[end] = start
        return end is None

    def leaves(self, first: Value) -> bool:
        """Whether anything is left of a collection that begins so."""
        return self.hop(first) is not None


def united(sources: Sequence[Iterator[Row]], is_in: Callable[[Row, int], bool]) -> Iterator[Row]:
    """The rows of several sets, each once (figure 3), told which later sets a row is in.

    Where the next set has a row too, one of that set is given in its stead: it has so many.

    >>> sets = [[1, 2, 3], [2, 3, 4], [3, 5]]
    >>> list(united([*map(iter, sets)], lambda row, place: row in sets[place]))
    [1, 2, 3, 4, 5]
    """
    *before, last = sources
    if not before:
        yield from last
        return
    for row in united(before, is_in):
        yield next(last) if is_in(row, len(before)) else row
    yield from last
