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
        made = (Dependency(frozenset(x), frozenset(y) - frozenset(x)) for x, y in items)
        pairs = frozenset(frozenset(pair) for pair in equal)
        return Dependencies(frozenset(item for item in made if item.dependent), pairs)

    @cached_property
    def _all(self) -> tuple[Dependency, ...]:
        both_ways = [
            Dependency(frozenset({one}), pair - {one}) for pair in self.equal for one in pair
        ]
        return (*self.items, *both_ways)

    def __or__(self, other: Dependencies) -> Dependencies:
        """The knowledge of both."""
        return Dependencies(self.items | other.items, self.equal | other.equal)

    def closure(self, columns: Iterable[Column]) -> Columns:
        """All columns that some columns determine."""
        known = set(columns)
        grew = True
        while grew:
            before = len(known)
            for item in self._all:
                if item.determinant <= known:
                    known |= item.dependent
            grew = len(known) > before
        return frozenset(known)

    def imply(self, determinant: Iterable[Column], dependent: Iterable[Column]) -> bool:
        """Whether X → Y follows."""
        return frozenset(dependent) <= self.closure(determinant)

    def same(self, column: Column) -> Columns:
        """All columns equal to one, itself among them."""
        found = {column}
        grew = True
        while grew:
            before = len(found)
            for pair in self.equal:
                if pair & found:
                    found |= pair
            grew = len(found) > before
        return frozenset(found)

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
            made = {
                Dependency(
                    source.determinant | (user.determinant - {column}),
                    user.dependent - source.determinant,
                )
                for source in sources
                for user in users
            }
            items = {item for item in items if column not in item.determinant} | made
            if len(items) > _MOST_ITEMS:
                break
        found = [
            (item.determinant, self.closure(item.determinant) & kept)
            for item in items
            if item.determinant <= kept
        ]
        equal = [
            (one, other)
            for one in kept
            for other in self.same(one) & kept
            if one.symbol < other.symbol
        ]
        return Dependencies.of(found, equal).tidied()

    def tidied(self) -> Dependencies:
        """The same knowledge without what follows from the rest."""
        merged: dict[Columns, Columns] = {}
        for item in self.items:
            merged[item.determinant] = merged.get(item.determinant, frozenset()) | item.dependent
        kept = {Dependency(left, right) for left, right in merged.items()}
        for item in sorted(kept, key=_weight, reverse=True):
            others = Dependencies(frozenset(kept - {item}), self.equal)
            needed = item.dependent - others.closure(item.determinant)
            kept.remove(item)
            if needed:
                kept.add(Dependency(item.determinant, needed))
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
    found = set()
    for key in keys:
        if not key <= dependencies.closure(kept):
            continue
        equals = [dependencies.same(column) & kept for column in key]
        enough = {min(same, key=str) for same in equals} if all(equals) else set(kept)
        for column in sorted(enough, key=str, reverse=True):
            if key <= dependencies.closure(enough - {column}):
                enough.remove(column)
        found.add(frozenset(enough))
    return frozenset(found)


def has_key(keys: Keys, dependencies: Dependencies, columns: Iterable[Column]) -> bool:
    """Whether no two rows agree on some columns."""
    known = dependencies.closure(columns)
    return any(key <= known for key in keys)
