"""Functional dependencies and keys.

Values are compared as in GROUP BY: by the default equality of their type, and NULL equals NULL. A
dependency X → Y says that rows that agree on X agree on Y. A key says more: no two rows agree on
it. In a bag of rows, a dependency of all columns on X does not make X a key.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from orchestrator.algebra.columns import Column
from orchestrator.caching import cached_property

Columns: TypeAlias = frozenset[Column]
Keys: TypeAlias = frozenset[Columns]

_MOST_ITEMS = 128
_MOST_KEYS = 8


@dataclass(frozen=True)
class Dependency:
    """The columns `determinant` determine the columns `dependent`; for constants the former are
    empty.
    """

    determinant: Columns
    dependent: Columns


@dataclass(frozen=True)
class Dependencies:
    """Functional dependencies, and the pairs of columns that are equal in every row.

    >>> a, b, c, d = (Column(name) for name in "abcd")
    >>> known = Dependencies.of([({a}, {b}), ({b, c}, {d})])
    >>> sorted(map(str, known.closure({a, c})))
    ['a', 'b', 'c', 'd']
    >>> print(known.restricted([a, c, d]))
    a c → d
    """

    items: frozenset[Dependency] = frozenset()
    equal: frozenset[Columns] = frozenset()
    """Pairs of columns that hold the same value, or both NULL, in every row."""

    @staticmethod
    def of(
        items: Iterable[tuple[Iterable[Column], Iterable[Column]]],
        equal: Iterable[tuple[Column, Column]] = (),
    ) -> Dependencies:
        """Return the dependencies of pairs (X, Y); trivial dependencies are left out."""
        dependencies = (Dependency(frozenset(x), frozenset(y) - frozenset(x)) for x, y in items)
        pairs = frozenset(frozenset(pair) for pair in equal)
        return Dependencies(frozenset(item for item in dependencies if item.dependent), pairs)

    @cached_property
    def _all(self) -> tuple[Dependency, ...]:
        return (*self.items, *_both_ways(self.equal))

    def __or__(self, other: Dependencies) -> Dependencies:
        """Return the dependencies and equalities of both."""
        return Dependencies(self.items | other.items, self.equal | other.equal)

    def closure(self, columns: Iterable[Column]) -> Columns:
        """Return all columns that some columns determine."""
        return self._index.closure(columns)

    @cached_property
    def _index(self) -> _Index:
        return _Index(self._all)

    def imply(self, determinant: Iterable[Column], dependent: Iterable[Column]) -> bool:
        """Return whether X → Y follows."""
        return frozenset(dependent) <= self.closure(determinant)

    def same(self, column: Column) -> Columns:
        """Return all columns equal to a column, including itself."""
        return self._classes.get(column) or frozenset({column})

    @cached_property
    def _classes(self) -> dict[Column, Columns]:
        """The class of equal columns for each column that is equal to another column."""
        classes: dict[Column, set[Column]] = {}
        for pair in self.equal:
            parts = [classes.setdefault(member, {member}) for member in pair]
            largest = max(parts, key=len)
            for part in parts:
                if part is not largest:
                    largest |= part
                    classes.update(dict.fromkeys(part, largest))
        frozen = {id(members): frozenset(members) for members in classes.values()}
        return {column: frozen[id(members)] for column, members in classes.items()}

    def minimal(self, columns: Iterable[Column]) -> Columns:
        """Return a minimal subset of some columns that determines all of them."""
        needed = set(columns)
        for column in sorted(needed, key=str, reverse=True):
            if column in self.closure(needed - {column}):
                needed.remove(column)
        return frozenset(needed)

    def restricted(self, columns: Iterable[Column]) -> Dependencies:
        """Return the dependencies that still hold if all other columns are removed."""
        remaining = frozenset(columns)
        items = set(self._all)
        dropped = (
            frozenset().union(*(item.determinant | item.dependent for item in items)) - remaining
        )
        for column in sorted(dropped, key=str):
            # If the column c is removed, X → c and cY → Z leave XY → Z.
            sources = [item for item in items if column in item.dependent]
            users = [item for item in items if column in item.determinant]
            combined = {
                Dependency(
                    source.determinant | (user.determinant - {column}),
                    user.dependent - source.determinant,
                )
                for source in sources
                for user in users
            }
            items = {item for item in items if column not in item.determinant} | combined
            if len(items) > _MOST_ITEMS:
                break
        closures = [
            (item.determinant, self.closure(item.determinant) & remaining)
            for item in items
            if item.determinant <= remaining
        ]
        equal = [
            (first, second)
            for first in remaining
            for second in self.same(first) & remaining
            if first.symbol < second.symbol
        ]
        return Dependencies.of(closures, equal).tidied()

    def tidied(self) -> Dependencies:
        """Return equivalent dependencies without those that follow from the others."""
        merged: dict[Columns, Columns] = {}
        for item in self.items:
            merged[item.determinant] = merged.get(item.determinant, frozenset()) | item.dependent
        remaining = {Dependency(left, right) for left, right in merged.items()}
        index = _Index((*remaining, *_both_ways(self.equal)))
        for item in sorted(remaining, key=_size_and_text, reverse=True):
            needed = item.dependent - index.without(item).closure(item.determinant)
            remaining.remove(item)
            if needed:
                remaining.add(index.added(Dependency(item.determinant, needed)))
        return Dependencies(frozenset(remaining), self.equal)

    def renamed(self, names: Iterable[tuple[Column, Column]]) -> Dependencies:
        """Return the dependencies under the new names of (old, new) pairs; an old column may have
        several.
        """
        pairs = list(names)
        known = self.restricted(old for old, _ in pairs)
        first: dict[Column, Column] = {}
        equal: list[tuple[Column, Column]] = []
        for old, new in pairs:
            if first.setdefault(old, new) != new:
                equal.append((first[old], new))

        def new_names(columns: Columns) -> Columns:
            return frozenset(first[column] for column in columns)

        return Dependencies(
            frozenset(
                Dependency(new_names(i.determinant), new_names(i.dependent)) for i in known.items
            ),
            frozenset(new_names(pair) for pair in known.equal)
            | {frozenset(pair) for pair in equal},
        )

    def __str__(self) -> str:
        """Return all dependencies in a fixed order."""
        lines = [f"{_listed(i.determinant)} → {_listed(i.dependent)}".strip() for i in self.items]
        lines += [" = ".join(sorted(map(str, pair))) for pair in self.equal]
        return "; ".join(sorted(lines))


class _Index:
    """Dependencies indexed by the columns of their determinants, for fast closures."""

    def __init__(self, items: Iterable[Dependency]) -> None:
        self._by_column: dict[Column, dict[Dependency, None]] = {}
        self._constant: dict[Dependency, None] = {}
        for item in items:
            self.added(item)

    def added(self, item: Dependency) -> Dependency:
        """Add a dependency and return it."""
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
                missing_count = missing[item] = missing.get(item, len(item.determinant)) - 1
                if not missing_count and not item.dependent <= known:
                    waiting += item.dependent - known
                    known |= item.dependent
        return frozenset(known)


def _both_ways(equal: Iterable[Columns]) -> list[Dependency]:
    return [Dependency(frozenset({item}), pair - {item}) for pair in equal for item in pair]


def _size_and_text(item: Dependency) -> tuple[int, str]:
    return len(item.determinant), f"{_listed(item.determinant)} {_listed(item.dependent)}"


def _listed(columns: Columns) -> str:
    return " ".join(sorted(map(str, columns)))


def minimal_keys(keys: Iterable[Columns], dependencies: Dependencies) -> Keys:
    """Return the keys without columns that the rest of the key determines, and without superkeys.

    >>> a, b, c = (Column(name) for name in "abc")
    >>> keys = minimal_keys([frozenset({a, b, c})], Dependencies.of([({a}, {b})]))
    >>> [sorted(map(str, key)) for key in keys]
    [['a', 'c']]
    """
    reduced = {dependencies.minimal(key) for key in keys}
    smallest = {key for key in reduced if not any(other < key for other in reduced)}
    ranked = sorted(smallest, key=lambda key: (len(key), _listed(key)))
    return frozenset(ranked[:_MOST_KEYS])


def visible_keys(keys: Keys, dependencies: Dependencies, columns: Iterable[Column]) -> Keys:
    """Return the keys among some columns, which replace columns that they equal or determine.

    >>> a, b, c = (Column(name) for name in "abc")
    >>> equal = Dependencies.of([], [(a, b)])
    >>> [sorted(map(str, key)) for key in visible_keys(frozenset({frozenset({a})}), equal, [b, c])]
    [['b']]
    """
    visible = frozenset(columns)
    result = set()
    for key in keys:
        if not key <= dependencies.closure(visible):
            continue
        equals = [dependencies.same(column) & visible for column in key]
        enough = {min(same, key=str) for same in equals} if all(equals) else set(visible)
        for column in sorted(enough, key=str, reverse=True):
            if key <= dependencies.closure(enough - {column}):
                enough.remove(column)
        result.add(frozenset(enough))
    return frozenset(result)


def has_key(keys: Keys, dependencies: Dependencies, columns: Iterable[Column]) -> bool:
    """Return whether no two rows agree on some columns."""
    known = dependencies.closure(columns)
    return any(key <= known for key in keys)
