"""Queries that grow in one direction towards PostgreSQL's own limits, for `idivm bench compile`.

The tables are empty, so a view only costs the time to plan and install it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from psycopg import sql


@dataclass(frozen=True)
class Shape:
    """A kind of query that grows, with its sizes, tables and query text."""

    name: str
    sizes: tuple[int, ...]
    tables: Callable[[int], list[sql.Composed]]
    """The statements that create the tables for a size."""
    query: Callable[[int], str]


def columns(number: int) -> str:
    """Return a query that shows a table unchanged.

    >>> columns(3)
    'SELECT * FROM wide'
    """
    return "SELECT * FROM wide"


def tables(number: int) -> str:
    """Return a chain of joins that shows its first and last table.

    >>> tables(3)
    'SELECT j1.id, j3.n FROM j1 JOIN j2 ON j2.id = j1.n JOIN j3 ON j3.id = j2.n'
    """
    joins = " ".join(f"JOIN j{n} ON j{n}.id = j{n - 1}.n" for n in range(2, number + 1))
    select = f"SELECT j1.id, j{number}.n"
    return f"{select} FROM j1 {joins}"


def branches(number: int) -> str:
    """Return a union of parts of a table.

    >>> branches(2)
    'SELECT id, n + 0 AS n FROM j1 WHERE n % 2 = 0 UNION ALL SELECT id, n + 1 AS n FROM j1 WHERE n % 2 = 1'
    """
    selects = [f"SELECT id, n + {item} AS n" for item in range(number)]
    return " UNION ALL ".join(
        f"{item} FROM j1 WHERE n % {number} = {place}" for place, item in enumerate(selects)
    )


def ctes(number: int) -> str:
    """Return a query whose common table expressions each join the previous one with its groups.

    >>> ctes(2)[:62]
    'WITH c1 AS (SELECT id, n FROM j1), c2 AS (SELECT a.id, b.n FRO'
    """
    parts = ["c1 AS (SELECT id, n FROM j1)"]
    parts += [_CTE.replace("@m", str(n - 1)).replace("@n", str(n)) for n in range(2, number + 1)]
    return " ".join(["WITH", ", ".join(parts), "SELECT id, n FROM", f"c{number}"])


_CTE = (
    "c@n AS (SELECT a.id, b.n FROM c@m AS a JOIN (SELECT id % @n AS id, sum(n) AS n FROM c@m GROUP BY 1)"
    " AS b ON b.id = a.id WHERE a.id NOT IN (SELECT id FROM j2 WHERE n = @n))"
)


def _wide(number: int) -> list[sql.Composed]:
    listed = sql.SQL(", ").join(
        sql.SQL("{} integer").format(sql.Identifier(f"c{n}")) for n in range(1, number)
    )
    table = sql.SQL("CREATE TABLE wide (id integer PRIMARY KEY, {})").format(listed)
    return [sql.SQL("DROP TABLE IF EXISTS wide").format(), table]


def _chain(number: int) -> list[sql.Composed]:
    text = sql.SQL("CREATE TABLE IF NOT EXISTS {} (id integer PRIMARY KEY, n integer)")
    return [text.format(sql.Identifier(f"j{n}")) for n in range(1, number + 1)]


SHAPES = {
    shape.name: shape
    for shape in (
        Shape("columns", (200, 400, 790, 1600), _wide, columns),
        Shape("tables", (10, 20, 40, 80, 200), _chain, tables),
        Shape("branches", (125, 250, 500, 1000), lambda number: _chain(1), branches),
        Shape("ctes", (4, 8, 16, 32), lambda number: _chain(2), ctes),
    )
}
