"""Hierarchical queries over skewed tables, and changes of these tables."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

TABLES = """
CREATE TABLE r (id int PRIMARY KEY, a int, b int, d text, x numeric);
CREATE TABLE s (a int, b int, e bigint, y int);
CREATE TABLE t (id int PRIMARY KEY, a int, c int, f varchar(4), z numeric(8, 2));
CREATE TABLE u (a int, c int, w int)
"""

VIEWS = {
    "pairs": "SELECT r.d, s.e, count(*) AS n, sum(r.x * s.y) AS xy, avg(s.y) AS y"
    " FROM r JOIN s ON s.b = r.b GROUP BY r.d, s.e",
    "one_side": "SELECT r.d AS d, 2 * sum(s.y) FILTER (WHERE r.x > 1) AS y, count(*) AS n"
    " FROM r JOIN s ON s.b = r.b WHERE s.y <> 7 GROUP BY r.d",
    "nested": "SELECT t.f, r.d, s.e, sum(r.x * t.z) AS xz, count(*) AS n FROM r JOIN s ON s.a = r.a AND s.b = r.b"
    " JOIN t ON t.a = r.a JOIN u ON u.a = r.a AND u.c = t.c GROUP BY r.d, s.e, t.f",
    "branches": "SELECT r.a, r.d, t.f, count(*) AS n, sum(u.w) AS w FROM r JOIN s ON s.a = r.a AND s.b = r.b"
    " JOIN t ON t.a = r.a JOIN u ON u.a = r.a AND u.c = t.c GROUP BY r.a, r.d, t.f",
    "itself": "SELECT p.d AS d, q.d AS other, count(*) AS n FROM r AS p JOIN r AS q ON q.b = p.b GROUP BY p.d, q.d",
    "apart": "SELECT DISTINCT r.d, s.e, u.w FROM r JOIN s ON s.b = r.b CROSS JOIN u",
    "whole": "SELECT r.a, r.id, t.id AS other, r.x, t.z FROM r JOIN t ON t.a = r.a",
}
"""Theorem 3: example 4, example 5, figure 9, a free variable above two bound ones, a self-join, a
product of components, and one with nothing to divide."""


LEADING = {"pairs": ("d", "e"), "nested": ("d", "f"), "branches": ("a",), "apart": ("e", "w")}
"""Columns by which rows are found."""


def batches(rng: Random, count: int, rows: int) -> Iterator[str]:
    """Changes over skewed values that grow and shrink degrees and sizes, one row or many at a time."""
    number = 1000

    def value(most: int) -> str:
        return rng.choice(("0", "0", "0", "1", str(rng.randrange(most)), "NULL"))

    for turn in range(count):
        new: dict[str, list[str]] = {}
        for _ in range(rng.choice((1, 1, 2, rows))):
            number += 1
            x, y = rng.choice(("1", "2.50", "-1", "0", "NULL", "'NaN'")), rng.randrange(9)
            text = rng.choice(("NULL", "'p'", "'q'", f"'{number % 7}'"))
            table, row = rng.choice(
                (
                    ("r", f"({number}, {value(3)}, {value(20)}, {text}, {x})"),
                    ("s", f"({value(3)}, {value(20)}, {value(5)}, {y})"),
                    ("t", f"({number}, {value(3)}, {value(9)}, {text}, {y})"),
                    ("u", f"({value(3)}, {value(9)}, {y % 3})"),
                )
            )
            new.setdefault(table, []).append(row)
        statements = [
            f"INSERT INTO {table} VALUES {', '.join(some)}" for table, some in new.items()
        ]
        if turn % 3 == 2:
            hub, divisor = rng.randrange(2), rng.randrange(2, 5)
            statements.append(
                rng.choice(
                    (
                        f"DELETE FROM r WHERE b = {hub} AND id % {divisor} = 0",
                        f"DELETE FROM s WHERE b = {hub} AND y % {divisor} = 0",
                        f"DELETE FROM t WHERE c = {hub}; DELETE FROM u WHERE w = {hub}",
                        f"UPDATE r SET a = b, b = a WHERE id % {divisor} = 0",
                        f"UPDATE r SET d = NULL, x = x + 1 WHERE id % {divisor} = 0",
                        f"UPDATE s SET b = {hub}, e = a WHERE y < {divisor}",
                        f"DELETE FROM r WHERE id % 10 <> {hub}",
                        "DELETE FROM s",
                        "TRUNCATE t",
                    )
                )
            )
        yield "; ".join(statements)
