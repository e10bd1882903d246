"""Compares what the algebra claims of a plan with what PostgreSQL finds in the data."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from psycopg import Connection, errors
from psycopg.sql import SQL, Composable, Identifier

from orchestrator.algebra import Column, Operator, Plan
from orchestrator.algebra.ids import ids_of
from orchestrator.algebra.operators.recursive import open_recursions
from orchestrator.algebra.rendering import to_text

FIXTURES = Path(__file__).parent / "fixtures"


def named_views(file: str = "views.sql") -> dict[str, str]:
    """The views of a fixture file, by name."""
    parts = re.split(r"^-- (\w+)\n", (FIXTURES / file).read_text(), flags=re.MULTILINE)
    return {name: query.strip() for name, query in zip(parts[1::2], parts[2::2], strict=True)}


def bag(connection: Connection[Any], query: Composable) -> Counter[str]:
    """The rows of a query as text, with how often each is there."""
    with connection.transaction(force_rollback=True):
        connection.execute("SET LOCAL search_path = ''")
        rows = connection.execute(SQL("SELECT (q.*)::text FROM ({}) AS q").format(query))
        return Counter(row[0] for row in rows.fetchall())


def text_of(operator: Operator, columns: Sequence[Column]) -> Composable:
    """The query of a part of a plan, with its columns by their symbols."""
    plan = Plan(operator, tuple(c.symbol for c in columns), tuple(columns))
    return SQL(to_text(plan))  # type: ignore[arg-type]


def complete_parts(plan: Operator) -> Iterator[Operator]:
    """Every part of a plan that is a query by itself."""
    if plan.columns and not plan.outer_columns and not open_recursions(plan):
        yield plan
    for child in plan.children:
        yield from complete_parts(child)


def wrong_claims(connection: Connection[Any], operator: Operator) -> list[str]:
    """The keys, NOT NULLs, equalities and dependencies that the data of one operator refute."""
    rows = text_of(operator, operator.columns)
    found = []
    for key in operator.keys:
        if _some(connection, _repeated(rows, sorted(key, key=str), SQL("*"))):
            found.append(f"key {_shown(key)}")
    for column in operator.not_null:
        condition = SQL("num_nulls({}) > 0").format(_name(column))
        if _some(connection, SQL("SELECT 1 FROM ({}) AS q WHERE {}").format(rows, condition)):
            found.append(f"not null {column}")
    for pair in operator.dependencies.equal:
        one, other = (_name(column) for column in pair)
        condition = SQL("{} IS DISTINCT FROM {}").format(one, other)
        if _some(connection, SQL("SELECT 1 FROM ({}) AS q WHERE {}").format(rows, condition)):
            found.append(f"equal {_shown(pair)}")
    for item in operator.dependencies.items:
        for column in item.dependent:
            left = sorted(item.determinant, key=str)
            pairs = SQL("SELECT DISTINCT {} FROM ({}) AS q").format(_names([*left, column]), rows)
            if _some(connection, _repeated(pairs, left, SQL("*"))):
                found.append(f"{_shown(item.determinant)} → {column}")
    return found


def repeated_ids(connection: Connection[Any], operator: Operator) -> bool:
    """Whether two rows of an operator share their IDs."""
    rows = text_of(operator, operator.columns)
    return _some(connection, _repeated(rows, ids_of(operator), SQL("*")))


def _repeated(rows: Composable, by: Sequence[Column], counted: SQL) -> Composable:
    group = SQL("GROUP BY {}").format(_names(by)) if by else SQL("")
    return SQL("SELECT 1 FROM ({}) AS q {} HAVING count(*) > 1").format(rows, group)


def _some(connection: Connection[Any], query: Composable) -> bool:
    try:
        with connection.transaction(force_rollback=True):
            connection.execute("SET LOCAL search_path = ''")
            return connection.execute(query).fetchone() is not None
    except errors.UndefinedFunction:
        # json, for one, has no equality to compare by.
        return False


def _name(column: Column) -> Composable:
    return Identifier(column.symbol)


def _names(columns: Sequence[Column]) -> Composable:
    return SQL(", ").join(_name(column) for column in columns)


def _shown(columns: frozenset[Column]) -> str:
    return " ".join(sorted(map(str, columns)))
