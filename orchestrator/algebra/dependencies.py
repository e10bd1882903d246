"""Functional dependencies and keys.

Values are compared as GROUP BY does: by the default equality of their type, NULL equal to NULL.
A dependency X → Y says that rows that agree on X agree on Y. A key says more: no two rows agree on
it. In a bag of rows the first does not imply the second.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from orchestrator.algebra.columns import Column

Columns: TypeAlias = frozenset[Column]
Keys: TypeAlias = frozenset[Columns]

_MOST_ITEMS = 128
_MOST_KEYS = 8


@dataclass(frozen=True)
class Dependency:
    """`determinant` → `dependent`; a constant has an empty determinant."""

    determinant: Columns
    dependent: Columns


@dataclass(frozen=True)
class Dependencies:
    """What determines what, and which columns are equal in every row.

    >>> a, b, c, d = (Column(name) for name in "abcd")
    >>> known = Dependencies.of([({a}, {b}), ({b, c}, {d})])
    >>> sorted(map(str, known.closure({a, c})))
    ['a', 'b', 'c', 'd']
    >>> print(known.restricted([a, c, d]))
    a c → d
    """

    items: frozenset[Dependency] = frozenset()
    equal: frozenset[Columns] = frozenset()
    """Pairs of columns that hold the same value, or NULL both, in every row."""

    @staticmethod
    def of(
        items: Iterable[tuple[Iterable[Column], Iterable[Column]]],
        equal: Iterable[tuple[Column, Column]] = (),
    ) -> Dependencies:
        """The dependencies of pairs (X, Y); those that say nothing are left out."""
        dependencys = (Dependency(frozenset(x), frozenset(y) - frozenset(x)) for x, y in items)
        pairs = frozenset(frozenset(pair) for pair in equal)
        return Dependencies(frozenset(item for item in dependencys if item.dependent), pairs)

    @cached_property
    def _all(self) -> tuple[Dependency, ...]:
        return (*self.items, *_both_ways(self.equal))

    def __or__(self, other: Dependencies) -> Dependencies:
        """The knowledge of both."""
        return Dependencies(self.items | other.items, self.equal | other.equal)

    def closure(self, columns: Iterable[Column]) -> Columns:
        """All columns that some columns determine."""
        return self._index.closure(columns)

    @cached_property
    def _index(self) -> _Index:
        return _Index(self._all)

    def imply(self, determinant: Iterable[Column], dependent: Iterable[Column]) -> bool:
        """Whether X → Y follows."""
        return frozenset(dependent) <= self.closure(determinant)

    def same(self, column: Column) -> Columns:
        """All columns equal to one, itself among them."""
        return self._classes.get(column) or frozenset({column})

    @cached_property
    def _classes(self) -> dict[Column, Columns]:
        """The columns that are equal to others, with all that they are equal to."""
        classes: dict[Column, set[Column]] = {}
        for pair in self.equal:
            parts = [classes.setdefault(item, {item}) for item in pair]
            largest = max(parts, key=len)
            for part in parts:
                if part is not largest:
                    largest |= part
                    classes.update(dict.fromkeys(part, largest))
        made = {id(change_class): frozenset(change_class) for change_class in classes.values()}
        return {column: made[id(change_class)] for column, change_class in classes.items()}

    def minimal(self, columns: Iterable[Column]) -> Columns:
        """A smallest part of some columns that determines them all."""
        kept = set(columns)
        for column in sorted(kept, key=str, reverse=True):
            if column in self.closure(kept - {column}):
                kept.remove(column)
        return frozenset(kept)

    def restricted(self, columns: Iterable[Column]) -> Dependencies:
        """What remains known when all other columns are cut off."""
        kept = frozenset(columns)
        items = set(self._all)
        dropped = frozenset().union(*(item.determinant | item.dependent for item in items)) - kept
        for column in sorted(dropped, key=str):
            # X → c and cY → Z leave XY → Z behind.
            sources = [item for item in items if column in item.dependent]
            users = [item for item in items if column in item.determinant]
            dependencys = {
                Dependency(
                    source.determinant | (user.determinant - {column}),
                    user.dependent - source.determinant,
                )
                for source in sources
                for user in users
            }
            items = {item for item in items if column not in item.determinant} | dependencys
            if len(items) > _MOST_ITEMS:
                break
        found = [
            (item.determinant, self.closure(item.determinant) & kept)
            for item in items
            if item.determinant <= kept
        ]
        equal = [
            (each, other)
            for each in kept
            for other in self.same(each) & kept
            if each.symbol < other.symbol
        ]
        return Dependencies.of(found, equal).tidied()

    def tidied(self) -> Dependencies:
        """The same knowledge without what follows from the rest."""
        merged: dict[Columns, Columns] = {}
        for item in self.items:
            merged[item.determinant] = merged.get(item.determinant, frozenset()) | item.dependent
        kept = {Dependency(left, right) for left, right in merged.items()}
        index = _Index((*kept, *_both_ways(self.equal)))
        for item in sorted(kept, key=_weight, reverse=True):
            needed = item.dependent - index.without(item).closure(item.determinant)
            kept.remove(item)
            if needed:
                kept.add(index.added(Dependency(item.determinant, needed)))
        return Dependencies(frozenset(kept), self.equal)

    def renamed(self, names: Iterable[tuple[Column, Column]]) -> Dependencies:
        """The dependencies under (old, new) names; an old column may get several new ones."""
        pairs = list(names)
        known = self.restricted(old for old, _ in pairs)
        first: dict[Column, Column] = {}
        equal: list[tuple[Column, Column]] = []
        for old, new in pairs:
            if first.setdefault(old, new) != new:
                equal.append((first[old], new))

        def moved(columns: Columns) -> Columns:
            return frozenset(first[column] for column in columns)

        return Dependencies(
            frozenset(Dependency(moved(i.determinant), moved(i.dependent)) for i in known.items),
            frozenset(moved(pair) for pair in known.equal) | {frozenset(pair) for pair in equal},
        )

    def __str__(self) -> str:
        """All of them in a fixed order."""
        lines = [f"{_listed(i.determinant)} → {_listed(i.dependent)}".strip() for i in self.items]
        lines += [" = ".join(sorted(map(str, pair))) for pair in self.equal]
        return "; ".join(sorted(lines))


class _Index:
    """Dependencies by what they need, so that a closure looks only at those that it reaches."""

    def __init__(self, items: Iterable[Dependency]) -> None:
        self._by_column: dict[Column, dict[Dependency, None]] = {}
        self._constant: dict[Dependency, None] = {}
        for item in items:
            self.added(item)

    def added(self, item: Dependency) -> Dependency:
        """Add a dependency."""
        if not item.determinant:
            self._constant[item] = None
        for column in item.determinant:
            self._by_column.setdefault(column, {})[item] = None
        return item

    def without(self, item: Dependency) -> _Index:
        """Remove a dependency."""
        self._constant.pop(item, None)
        for column in item.determinant:
            self._by_column[column].pop(item, None)
        return self

    def closure(self, columns: Iterable[Column]) -> Columns:
        """Return all columns that some columns determine."""
        known = set(columns).union(*(item.dependent for item in self._constant))
        missing: dict[Dependency, int] = {}
        waiting = list(known)
        while waiting:
            for item in self._by_column.get(waiting.pop(), ()):
                left = missing[item] = missing.get(item, len(item.determinant)) - 1
                if not left and not item.dependent <= known:
                    waiting += item.dependent - known
                    known |= item.dependent
        return frozenset(known)


def _both_ways(equal: Iterable[Columns]) -> list[Dependency]:
    return [Dependency(frozenset({item}), pair - {item}) for pair in equal for item in pair]


def _weight(item: Dependency) -> tuple[int, str]:
    return len(item.determinant), f"{_listed(item.determinant)} {_listed(item.dependent)}"


def _listed(columns: Columns) -> str:
    return " ".join(sorted(map(str, columns)))


def minimal_keys(keys: Iterable[Columns], dependencies: Dependencies) -> Keys:
    """Keys without the columns that the rest of them determines, and without larger ones.

    >>> a, b, c = (Column(name) for name in "abc")
    >>> found = minimal_keys([frozenset({a, b, c})], Dependencies.of([({a}, {b})]))
    >>> [sorted(map(str, key)) for key in found]
    [['a', 'c']]
    """
    reduced = {dependencies.minimal(key) for key in keys}
    smallest = {key for key in reduced if not any(other < key for other in reduced)}
    ranked = sorted(smallest, key=lambda key: (len(key), _listed(key)))
    return frozenset(ranked[:_MOST_KEYS])


def visible_keys(keys: Keys, dependencies: Dependencies, columns: Iterable[Column]) -> Keys:
    """The keys that some columns still hold, themselves or through what determines them.

    >>> a, b, c = (Column(name) for name in "abc")
    >>> equal = Dependencies.of([], [(a, b)])
    >>> [sorted(map(str, key)) for key in visible_keys(frozenset({frozenset({a})}), equal, [b, c])]
    [['b']]
    """
    kept = frozenset(columns)
    result = set()
    for key in keys:
        if not key <= dependencies.closure(kept):
            continue
        equals = [dependencies.same(column) & kept for column in key]
        enough = {min(same, key=str) for same in equals} if all(equals) else set(kept)
        for column in sorted(enough, key=str, reverse=True):
            if key <= dependencies.closure(enough - {column}):
                enough.remove(column)
        result.add(frozenset(enough))
    return frozenset(result)


def has_key(keys: Keys, dependencies: Dependencies, columns: Iterable[Column]) -> bool:
    """Whether no two rows agree on some columns."""
    known = dependencies.closure(columns)
    return any(key <= known for key in keys)
