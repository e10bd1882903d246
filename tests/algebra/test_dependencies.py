"""Functional dependencies against their definition, on random relations."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.algebra.columns import Column
from orchestrator.algebra.dependencies import Dependencies, minimal_keys, visible_keys

COLUMNS = tuple(Column(name) for name in "abcd")
Row = tuple[int, ...]

rows = st.lists(st.tuples(*[st.integers(0, 1)] * len(COLUMNS)), max_size=6)
subsets = st.sets(st.sampled_from(COLUMNS))
pairs = st.lists(st.tuples(subsets, subsets), max_size=5)


def holds(data: list[Row], left: set[Column], right: set[Column]) -> bool:
    """Whether rows that agree on `left` agree on `right`."""

    def values(row: Row, columns: set[Column]) -> Row:
        return tuple(row[n] for n, column in enumerate(COLUMNS) if column in columns)

    return all(
        values(first, right) == values(other, right)
        for first, other in product(data, data)
        if values(first, left) == values(other, left)
    )


def satisfied(data: list[Row], known: Dependencies) -> bool:
    return all(holds(data, set(i.determinant), set(i.dependent)) for i in known.items) and all(
        row[COLUMNS.index(column)] == row[COLUMNS.index(other)]
        for row in data
        for column, other in map(sorted_pair, known.equal)
    )


def sorted_pair(pair: frozenset[Column]) -> tuple[Column, Column]:
    column, other = sorted(pair, key=str)
    return column, other


@given(rows, pairs, subsets)
def test_a_closure_holds_wherever_its_premises_do(
    data: list[Row], given_pairs: list[tuple[set[Column], set[Column]]], start: set[Column]
) -> None:
    known = Dependencies.of([pair for pair in given_pairs if holds(data, *pair)])
    assert holds(data, start, set(known.closure(start)))


@given(rows, pairs, subsets)
def test_what_is_kept_under_a_projection_follows(
    data: list[Row], given_pairs: list[tuple[set[Column], set[Column]]], kept: set[Column]
) -> None:
    known = Dependencies.of([pair for pair in given_pairs if holds(data, *pair)])
    assert satisfied(data, known.restricted(kept))


@given(pairs, subsets, subsets)
def test_a_projection_loses_nothing_about_what_it_keeps(
    given_pairs: list[tuple[set[Column], set[Column]]], kept: set[Column], start: set[Column]
) -> None:
    known = Dependencies.of(given_pairs)
    start &= kept
    assert known.restricted(kept).closure(start) == known.closure(start) & kept


@given(pairs, subsets)
def test_tidying_changes_no_closure(
    given_pairs: list[tuple[set[Column], set[Column]]], start: set[Column]
) -> None:
    known = Dependencies.of(given_pairs, [(COLUMNS[0], COLUMNS[1])])
    assert known.tidied().closure(start) == known.closure(start)


@given(rows, pairs)
def test_a_renaming_to_several_names_makes_them_equal(
    data: list[Row], given_pairs: list[tuple[set[Column], set[Column]]]
) -> None:
    known = Dependencies.of(given_pairs)
    new = [Column(name) for name in ("x", "y", "z")]
    renamed = known.renamed([(COLUMNS[0], new[0]), (COLUMNS[0], new[1]), (COLUMNS[1], new[2])])
    assert renamed.same(new[0]) == {new[0], new[1]}
    implied = COLUMNS[1] in known.closure([COLUMNS[0]])
    assert renamed.imply([new[1]], [new[2]]) == implied


def test_minimal_keys_drop_what_follows() -> None:
    a, b, c, d = COLUMNS
    known = Dependencies.of([({a}, {b, c}), ({b}, {a})])
    keys = minimal_keys([frozenset({a, b, c}), frozenset({c, d}), frozenset({c, d, a})], known)
    assert frozenset({a}) in keys and frozenset({c, d}) in keys


def test_a_key_stays_visible_through_what_determines_it() -> None:
    a, b, c, d = COLUMNS
    known = Dependencies.of([({b, c}, {a})])
    assert visible_keys(frozenset({frozenset({a})}), known, [b, c, d]) == {frozenset({b, c})}
    assert not visible_keys(frozenset({frozenset({a})}), known, [b, d])
