"""The oracle: compare the rows of a view with the rows of its definition, as bags, in the current snapshot.

Rows are compared by the text image of each column. So types without equality (json, xml, point) take part,
1.0 is not 1.00, NULL equals NULL, and every duplicate counts. The images are printed under the current
settings, because the definition's own answer may depend on them.

A column whose type contains float4 or float8 anywhere (arrays, composites, ranges, geometry) may drift when a
sum is maintained. In such a column, numbers are equal within a tolerance.

Where the query has several correct answers, the caller gives how far two of them agree on each column
(`algebra/analysis/nondeterminism.py`). Only that much is compared.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import psycopg
from psycopg import Connection
from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from orchestrator.planning.agreement import Kind
from orchestrator.sqltext import fresh_name

SAMPLES = 5
"""How many missing and surplus rows a result shows."""

ABSOLUTE = 1e-9
"""Floats whose difference is smaller are equal, which matters around zero."""

RELATIVE = {"float4": 1e-5, "float8": 1e-9}
"""Floats are equal if they differ by at most this part of the greater float."""


@dataclass(frozen=True)
class CheckResult:
    """The result of comparing two relations as bags. Only the definition has the `missing` rows."""

    equal: bool
    missing: int
    surplus: int
    missing_samples: tuple[str, ...] = ()
    surplus_samples: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """What was not compared exactly, and why."""


@dataclass(frozen=True)
class _Column:
    name: str
    type: str
    tolerance: float | None
    kind: Kind = Kind.SAME
    slack: float = 0.0
    """The absolute error that its numbers may have beyond the general tolerance."""

    @property
    def drifts(self) -> bool:
        """Return whether its numbers are compared within a tolerance."""
        return self.kind is Kind.NEAR or (self.kind is Kind.SAME and self.tolerance is not None)


@dataclass(frozen=True)
class _Row:
    """A row that one side has more often, with its numbers that may differ."""

    image: str
    numbers: tuple[float, ...]
    tolerances: tuple[float, ...]
    slacks: tuple[float, ...]
    """The absolute error that each number may have."""
    copies: int

    def near(self, other: _Row) -> bool:
        pairs = zip(
            self.numbers, other.numbers, self.tolerances, self.slacks, other.slacks, strict=True
        )
        return all(math.isclose(a, b, rel_tol=t, abs_tol=min(c, d)) for a, b, t, c, d in pairs)


def compare(
    connection: Connection[Any],
    *,
    view: Composable,
    definition: Composable,
    kinds: Sequence[Kind] = (),
    slacks: Sequence[float] = (),
    refresh: Composable | None = None,
) -> CheckResult:
    """Compare a relation with its definition. One statement reads both.

    `kinds` gives how far two correct answers agree on each column, if not exactly, and `slacks` the absolute
    differences that their numbers may have. `refresh` is a statement that is sent together with the
    comparison, so that statement_timestamp() gives the same result in both.
    """
    actual, wanted = _columns(connection, view), _columns(connection, definition)
    if {column.name for column in actual} == {column.name for column in wanted}:
        # A table that users read may have its columns in another order.
        by_name = {column.name: column for column in actual}
        actual = [by_name[column.name] for column in wanted]
    if [column.type for column in actual] != [column.type for column in wanted]:
        return CheckResult(False, 1, 1, (_heading(wanted),), (_heading(actual),))
    if kinds:
        allowed = slacks or [0.0] * len(kinds)
        wanted = [
            replace(column, kind=_comparable(connection, definition, column, kind), slack=slack)
            for column, kind, slack in zip(wanted, kinds, allowed, strict=True)
        ]
    drifting = [column for column in wanted if column.drifts]
    difference = SQL(_DIFFERENCE).format(
        _images(_side(definition, wanted, wanted, 1), _side(view, actual, wanted, -1), wanted),
        SQL("true") if drifting else SQL("place <= {}").format(Literal(SAMPLES)),
    )
    cursor = connection.execute(SQL("; ").join([refresh, difference] if refresh else [difference]))
    while cursor.nextset():
        pass
    rows: list[tuple[str, str, list[str], int, int]] = cursor.fetchall()
    if drifting:
        tolerances = [item.tolerance or RELATIVE["float8"] for item in drifting]
        rounded = [item.tolerance is None for item in drifting]
        allowed = [max(ABSOLUTE, item.slack) for item in drifting]
        return _result(*_unmatched(rows, tolerances, rounded, allowed))
    sides = [[row for row in rows if (row[3] > 0) == missing] for missing in (True, False)]
    missing, surplus = (abs(side[0][4]) if side else 0 for side in sides)
    samples = (_samples(row[0] for row in side for _ in range(abs(row[3]))) for side in sides)
    return CheckResult(not rows, missing, surplus, *samples)


def _comparable(
    connection: Connection[Any], relation: Composable, column: _Column, kind: Kind
) -> Kind:
    """Return how to compare a column: exactly if its type has no order, which finding equal values needs.

    The only floats that are equal and look different are 0 and -0, which the tolerance covers.
    """
    if kind is not Kind.EQUAL:
        return kind
    if column.tolerance is not None:
        return Kind.SAME
    query = SQL("SELECT FROM {} AS r ORDER BY r.{} LIMIT 0").format(
        relation, Identifier(column.name)
    )
    try:
        with connection.transaction():
            connection.execute(query)
    except psycopg.errors.UndefinedFunction:
        return Kind.SAME
    return kind


# For every row image, return how many copies the definition has more than the view, and the total of its
# side. Return no more rows than are shown, unless floats must be matched.
_DIFFERENCE = """
    SELECT image, exact, drifting, net, total
    FROM (
        SELECT image, exact, drifting, net, (sum(net) OVER side)::bigint AS total,
               row_number() OVER (side ORDER BY image COLLATE "C") AS place
        FROM (
            SELECT coalesce(min(image COLLATE "C"), exact) AS image, exact, drifting, sum(sign) AS net
            FROM ({}) AS both_sides
            GROUP BY exact, drifting HAVING sum(sign) <> 0
        ) AS difference
        WINDOW side AS (PARTITION BY net > 0)
    ) AS numbered
    WHERE {}
    ORDER BY place
"""

_IMAGE = {
    Kind.SAME: SQL("r.{0}"),
    # The least of the texts of all equal values.
    Kind.EQUAL: SQL('min(ROW(r.{0})::text COLLATE "C") OVER (PARTITION BY r.{0})'),
    # The same elements in another order have the same characters.
    Kind.BAG: SQL(
        """(SELECT string_agg(c, '' ORDER BY c COLLATE "C")"""
        """ FROM regexp_split_to_table(ROW(r.{0})::text, '') AS c)"""
    ),
}


def _side(
    relation: Composable, own: Sequence[_Column], names: Sequence[_Column], sign: int
) -> Composed:
    """Return the rows of a relation, with the column names of the definition."""
    listed = [
        SQL("r.{} AS {}").format(Identifier(item.name), Identifier(two.name))
        for item, two in zip(own, names, strict=True)
    ]
    sign_first = [SQL("{} AS {}").format(Literal(sign), Identifier(_sign(names))), *listed]
    return SQL("SELECT {} FROM {} AS r").format(SQL(", ").join(sign_first), relation)


def _sign(columns: Sequence[_Column]) -> str:
    return fresh_name("sign", {column.name for column in columns})


def _images(composed: Composed, other: Composed, columns: Sequence[_Column]) -> Composed:
    """Return each row as one text, as the text of its exact columns, and as texts of its drifting columns."""
    every = [SQL("r.{}").format(Identifier(column.name)) for column in columns]
    exact = [
        _IMAGE[column.kind].format(Identifier(column.name))
        for column in columns
        if column.kind is not Kind.OPEN and not column.drifts
    ]
    drifting = [
        SQL("ROW(r.{})::text").format(Identifier(column.name))
        for column in columns
        if column.drifts
    ]
    row = SQL("ROW({})::text")
    all_exact = all(column.kind is Kind.SAME and not column.drifts for column in columns)
    return SQL(
        "SELECT r.{} AS sign, {} AS image, {} AS exact, ARRAY[{}]::text[] AS drifting"
        " FROM ({} UNION ALL {}) AS r"
    ).format(
        Identifier(_sign(columns)),
        SQL("NULL::text") if all_exact else row.format(SQL(", ").join(every)),
        row.format(SQL(", ").join(exact)),
        SQL(", ").join(drifting),
        composed,
        other,
    )


def _columns(connection: Connection[Any], relation: Composable) -> list[_Column]:
    rows = connection.execute(
        """
        WITH RECURSIVE part(attnum, type) AS (
            SELECT a.attnum, a.atttypid FROM pg_attribute a
            WHERE a.attrelid = %(relation)s::regclass AND a.attnum > 0 AND NOT a.attisdropped
          UNION
            SELECT part.attnum, inner_type.oid
            FROM part JOIN pg_type t ON t.oid = part.type
            CROSS JOIN LATERAL (
                SELECT t.typelem AS oid UNION ALL SELECT t.typbasetype
                UNION ALL SELECT a.atttypid FROM pg_attribute a
                          WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
                UNION ALL SELECT r.rngsubtype FROM pg_range r WHERE t.oid IN (r.rngtypid, r.rngmultitypid)
            ) AS inner_type WHERE inner_type.oid <> 0
        ), drift AS (
            SELECT attnum, bool_or(type = 'float4'::regtype) AS coarse FROM part
            WHERE type IN ('float4'::regtype, 'float8'::regtype, 'path'::regtype, 'polygon'::regtype, 'circle'::regtype)
            GROUP BY attnum
        )
        SELECT a.attname, concat_ws(' ', format_type(coalesce(nullif(t.typbasetype, 0), t.oid),
                                                     CASE WHEN t.typbasetype = 0 THEN a.atttypmod ELSE t.typtypmod END),
                                    'COLLATE ' || nullif(a.attcollation, 0)::regcollation),
               CASE WHEN drift.coarse THEN 'float4' WHEN NOT drift.coarse THEN 'float8' END
        FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid LEFT JOIN drift ON drift.attnum = a.attnum
        WHERE a.attrelid = %(relation)s::regclass AND a.attnum > 0 AND NOT a.attisdropped
        ORDER BY a.attnum
        """,
        {"relation": relation.as_string(connection)},
    )
    return [
        _Column(name, type_name, RELATIVE[drift] if drift else None)
        for name, type_name, drift in rows.fetchall()
    ]


def _heading(columns: Iterable[_Column]) -> str:
    return f"columns ({', '.join(f'{column.name} {column.type}' for column in columns)})"


_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]\d+)?")


def _unmatched(
    rows: Iterable[tuple[str, str, list[str], int, int]],
    tolerances: Sequence[float],
    rounded: Sequence[bool] = (),
    allowed: Sequence[float] = (),
) -> tuple[list[str], list[str]]:
    """Return the images without a partner on the other side, of the definition and of the view.

    Numbers that the query has `rounded` or printed may differ by one in the last place that both show. All
    numbers may differ by the value in `allowed` for their column.
    """
    rounded = rounded or [False] * len(tolerances)
    allowed = allowed or [ABSOLUTE] * len(tolerances)
    groups: dict[tuple[str, ...], tuple[list[_Row], list[_Row]]] = defaultdict(lambda: ([], []))
    for image, exact, drifting, net, _ in rows:
        digits = [_NUMBER.findall(text) for text in drifting]
        row = _Row(
            image,
            tuple(float(number) for numbers in digits for number in numbers),
            tuple(t for numbers, t in zip(digits, tolerances, strict=True) for _ in numbers),
            tuple(
                max(slack, _last_place(number)) if is_rounded else slack
                for numbers, is_rounded, slack in zip(digits, rounded, allowed, strict=True)
                for number in numbers
            ),
            abs(net),
        )
        like = (exact, *(_NUMBER.sub("#", text) for text in drifting))
        groups[like][0 if net > 0 else 1].append(row)
    missing: list[str] = []
    surplus: list[str] = []
    for wanted, actual in groups.values():
        matching = _Matching(wanted, actual)
        missing += _copies(matching.wanted, matching.lacking)
        surplus += _copies(matching.actual, matching.spare)
    return missing, surplus


def _last_place(number: str) -> float:
    """Return one unit in the last place of a number, and a little more.

    >>> _last_place("-12.5") > 0.1, _last_place("7") < 1.1
    (True, True)
    """
    digits, _, exponent = number.partition("e")
    return 1.000001 * 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2]))


def _copies(rows: Sequence[_Row], counts: Sequence[int]) -> Iterator[str]:
    return (row.image for row, count in zip(rows, counts, strict=True) for _ in range(count))


class _Matching:
    """Pairs as many copies of rows that are near each other as possible (by augmenting paths).

    Nearness is not transitive, so another row may need the first partner found.
    """

    def __init__(self, wanted: list[_Row], rows: list[_Row]) -> None:
        self.wanted, self.actual = (
            sorted(side, key=lambda r: r.numbers) for side in (wanted, rows)
        )
        self.firsts = [row.numbers[:1] for row in self.actual]
        self.lacking = [row.copies for row in self.wanted]
        self.spare = [row.copies for row in self.actual]
        self.paired: dict[int, Counter[int]] = defaultdict(Counter)
        for number in range(len(self.wanted)):
            while self.lacking[number] and self._pair(number):
                pass

    def _pair(self, number: int) -> bool:
        """Pair more copies of a wanted row, if necessary by giving other rows new partners."""
        came_from: dict[int, int] = {}
        row_before = {number: -1}
        queue = deque([number])
        while queue:
            row = queue.popleft()
            for at in self._near(row):
                if at in came_from:
                    continue
                came_from[at] = row
                if self.spare[at]:
                    self._shift(number, at, came_from, row_before)
                    return True
                for other, copies in self.paired[at].items():
                    if copies and other not in row_before:
                        row_before[other] = at
                        queue.append(other)
        return False

    def _shift(
        self, number: int, at: int, came_from: dict[int, int], row_before: dict[int, int]
    ) -> None:
        path = [(came_from[at], at)]
        while path[-1][0] != number:
            before = row_before[path[-1][0]]
            path.append((came_from[before], before))
        moved = min(
            self.lacking[number],
            self.spare[at],
            *(self.paired[row_before[row]][row] for row, _ in path[:-1]),
        )
        self.lacking[number] -= moved
        self.spare[at] -= moved
        for row, place in path:
            self.paired[place][row] += moved
            if row != number:
                self.paired[row_before[row]][row] -= moved

    def _near(self, number: int) -> Iterator[int]:
        row = self.wanted[number]
        low, high = 0, len(self.actual)
        if row.numbers:
            # The other number may be greater, so search within twice the tolerance.
            first = row.numbers[0]
            reach = row.slacks[0] + 2 * row.tolerances[0] * abs(first)
            low = bisect_left(self.firsts, (first - reach,))
            high = bisect_right(self.firsts, (first + reach,))
        return (at for at in range(low, high) if row.near(self.actual[at]))


def _result(missing: list[str], surplus: list[str]) -> CheckResult:
    return CheckResult(
        not missing and not surplus,
        len(missing),
        len(surplus),
        _samples(sorted(missing)),
        _samples(sorted(surplus)),
    )


def _samples(images: Iterable[str]) -> tuple[str, ...]:
    return tuple(islice(images, SAMPLES))
