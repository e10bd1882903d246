"""Enumerate the distinct elements of overlapping sets: unions, and iterators that hop over shown elements
(sections 2.4.2 to 2.4.4 of papers/ivm-eps-triangle-queries.txt).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Generic, TypeVar

Value = TypeVar("Value", bound=Hashable)
Row = TypeVar("Row")


class Hops(Generic[Value]):
    """The excluded values that an iterator over a collection skips (figure 4). None stands for the end.

    Adjacent excluded values are kept as one range, by its first value and the value after it.

    >>> hops = Hops()
    >>> [hops.exclude(2, following=3), hops.exclude(4, following=5), hops.exclude(3, following=4)]
    [False, False, False]
    >>> hops.hop(2), hops.hop(5), hops.leaves(1), hops.ranges
    (5, 5, True, 1)
    >>> hops.exclude(5, following=None), hops.exclude(1, following=2), hops.leaves(first=1)
    (True, True, False)
    """

    def __init__(self) -> None:
        """Start without excluded values."""
        self._to: dict[Value, Value | None] = {}
        self._from: dict[Value | None, Value] = {}

    @property
    def ranges(self) -> int:
        """Return the number of ranges."""
        return len(self._to)

    def hop(self, value: Value | None) -> Value | None:
        """Return the value, or the first later value that is not excluded. The value before must not be excluded."""
        return None if value is None else self._to.get(value, value)

    def exclude(self, value: Value, following: Value | None) -> bool:
        """Exclude a value; `following` comes next and may be excluded. Return whether nothing is left after it."""
        end = None if following is None else self._to.pop(following, following)
        start = self._from.pop(value, value)
        self._to[start] = end
        self._from[end] = start
        return end is None

    def leaves(self, first: Value) -> bool:
        """Return whether a collection with this first value has anything left."""
        return self.hop(first) is not None


def united(sources: Sequence[Iterator[Row]], is_in: Callable[[Row, int], bool]) -> Iterator[Row]:
    """Yield the distinct rows of several sets (figure 3). `is_in` tells which later sets contain a row.

    If the next set also contains a row, yield the next row of that set instead, because it has enough rows.

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
