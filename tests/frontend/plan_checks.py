"""Compares what the algebra claims of a plan with what PostgreSQL finds in the data."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from psycopg import Connection, errors
from psycopg.sql import SQL, Composable, Identifier, Literal

from orchestrator.algebra import Column, Operator, Plan, Recursion, Scan
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
    # Base and step of a recursion show no IDs.
    for child in () if isinstance(plan, Recursion) else plan.children:
        yield from complete_parts(child)


def wrong_claims(connection: Connection[Any], operator: Operator, ids: bool) -> list[str]:
    """The keys, IDs, NOT NULLs, equalities and dependencies that one operator's rows refute."""
    rows = text_of(operator, operator.columns)
    checks = list(_checks(operator))
    # What is numbered has no IDs by itself.
    bare = isinstance(operator, Scan) and not operator.table.keys
    if ids and not bare and not (isinstance(operator, Recursion) and operator.all):
        checks.append(("ids", _repeated(SQL("q"), ids_of(operator))))
    try:
        return _refuted(connection, rows, checks)
    except errors.UndefinedFunction:
        # json, for one, has no equality to compare by; the other claims still count.
        refuted: list[str] = []
        for check in checks:
            with suppress(errors.UndefinedFunction):
                refuted += _refuted(connection, rows, [check])
        return refuted


Check = tuple[str, Composable]
"""A claim, and a query over `q` that returns rows if it is wrong."""


def _checks(operator: Operator) -> Iterator[Check]:
    for key in operator.keys:
        yield f"key {_text(key)}", _repeated(SQL("q"), sorted(key, key=str))
    for column in operator.not_null:
        yield (
            f"not null {column}",
            SQL("SELECT FROM q WHERE num_nulls({}) > 0").format(_name(column)),
        )
    for pair in operator.dependencies.equal:
        first, other = (_name(column) for column in pair)
        differ = SQL("SELECT FROM q WHERE {} IS DISTINCT FROM {}").format(first, other)
        yield f"equal {_text(pair)}", differ
    for item in operator.dependencies.items:
        for column in item.dependent:
            left = sorted(item.determinant, key=str)
            pairs = SQL("(SELECT DISTINCT {} FROM q) AS p").format(_names([*left, column]))
            yield f"{_text(item.determinant)} → {column}", _repeated(pairs, left)


def _repeated(rows: Composable, by: Sequence[Column]) -> Composable:
    group = SQL("GROUP BY {}").format(_names(by)) if by else SQL("")
    return SQL("SELECT FROM {} {} HAVING count(*) > 1").format(rows, group)


def _refuted(connection: Connection[Any], rows: Composable, checks: Sequence[Check]) -> list[str]:
    if not checks:
        return []
    asked = SQL(" UNION ALL ").join(
        SQL("SELECT {} WHERE EXISTS ({})").format(Literal(claim), query) for claim, query in checks
    )
    with connection.transaction(force_rollback=True):
        connection.execute("SET LOCAL search_path = ''")
        query = SQL("WITH q AS MATERIALIZED ({}) {}").format(rows, asked)
        return [row[0] for row in connection.execute(query).fetchall()]


def _name(column: Column) -> Composable:
    return Identifier(column.symbol)


def _names(columns: Sequence[Column]) -> Composable:
    return SQL(", ").join(_name(column) for column in columns)


def _text(columns: frozenset[Column]) -> str:
    return " ".join(sorted(map(str, columns)))
