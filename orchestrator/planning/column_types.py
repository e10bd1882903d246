"""The types and decimal scales of the columns of a plan, as PostgreSQL determines them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import psycopg
from psycopg import Connection
from psycopg.sql import SQL, Identifier

from orchestrator import catalog
from orchestrator.algebra import Column as PlanColumn
from orchestrator.algebra import (
    Grouping,
    Item,
    Operator,
    Plan,
    Projection,
    Scalar,
    dialect,
)
from orchestrator.algebra.analysis.decimal_scale import INTEGERS, MOST, scale
from orchestrator.algebra.column_type import ColumnType
from orchestrator.algebra.operators.cte_scan import CteScan
from orchestrator.algebra.operators.recursive import open_recursions
from orchestrator.algebra.operators.values import Values
from orchestrator.algebra.rendering import to_sql
from orchestrator.algebra.traversal import fold, rewrite
from orchestrator.engine.distinguishable import has_own_collations
from orchestrator.errors import is_interruption

DESCRIBED = 800
"""The largest number of columns whose types a single query requests."""


def types_of(connection: Connection[Any], plan: Plan, *further: Plan) -> dict[str, ColumnType]:
    """Return the types of a plan's columns, as PostgreSQL derives them.

    `further` are plans of the same query, of which only the other columns are described.
    """
    root = plan.root
    oids: dict[str, int] = {}
    declared: dict[str, int] = {}
    operators: list[Operator] = []
    # Inputs come first.
    fold(root, lambda operator, _: operators.append(operator))
    for other in further:
        if other.root != root:
            fold(other.root, lambda operator, _: operators.append(operator))
    for operator in operators:
        wanted = {c.symbol: Scalar.column(c) for c in operator.columns if c.symbol not in oids}
        if isinstance(operator, Grouping):
            for name, argument in _arguments(operator).items():
                if name not in oids:
                    _describe(connection, operator.input, {name: argument}, oids, declared)
        for batch in _batches(wanted):
            _describe(connection, operator, batch, oids, declared)
    types = catalog.column_types(connection, oids, declared)
    _infer_scale(operators, types)
    if not has_own_collations(root):
        plain = {
            symbol for symbol, type_ in types.items() if type_.name in TEXTS and not type_.domain
        }
        types.update({symbol: replace(types[symbol], plain=True) for symbol in plain})
    return types


TEXTS = frozenset({"text", "character varying", "name"})
"""Types whose equal values are identical unless a collation treats different texts as equal."""


def _batches(wanted: dict[str, Scalar]) -> Iterator[dict[str, Scalar]]:
    """Yield parts that one query can describe: it has each column twice, and PostgreSQL allows
    1,664 columns.
    """
    items = list(wanted.items())
    for start in range(0, len(items), DESCRIBED):
        yield dict(items[start : start + DESCRIBED])


def _arguments(grouping: Grouping) -> dict[str, Scalar]:
    """Return the arguments of aggregates with a single argument, by the names of their types in
    `types_of`. For aggregates with WITHIN GROUP, these are the ordered expressions.
    """
    arguments = {
        f"{aggregate.column}()": [item for item, _ in aggregate.within] or aggregate.arguments
        for aggregate in grouping.aggregates
    }
    return {name: given[0] for name, given in arguments.items() if len(given) == 1}


def _infer_scale(operators: Iterable[Operator], types: dict[str, ColumnType]) -> None:
    """Add the decimal scales of computed columns; inputs come first."""
    known = {symbol: type_.scale for symbol, type_ in types.items() if type_.scale is not None}
    known |= {symbol: 0 for symbol, type_ in types.items() if type_.name in INTEGERS}
    for operator in operators:
        computed: dict[str, Scalar] = {}
        if isinstance(operator, Projection):
            computed = {
                str(item.column): item.scalar for item in operator.items if not item.is_unchanged
            }
        elif isinstance(operator, Grouping):
            computed = _arguments(operator)
        for symbol, scalar in computed.items():
            if symbol in types and types[symbol].name == "numeric" and symbol not in known:
                digits = scale(scalar, known)
                if digits is not None:
                    known[symbol] = digits
                    types[symbol] = replace(types[symbol], scale=digits)


def _describe(
    connection: Connection[Any],
    rows: Operator,
    wanted: dict[str, Scalar],
    oids: dict[str, int],
    declared: dict[str, int],
) -> None:
    # The step of a recursion is not a complete query.
    if not wanted or rows.outer_columns or open_recursions(rows):
        return
    columns = [PlanColumn(f"c{number}") for number in range(len(wanted))]
    items = tuple(map(Item, columns, wanted.values()))
    rows = _without_shared(rows, oids, declared)
    query = to_sql(Plan(Projection(rows, items), tuple(map(str, columns)), tuple(columns)))
    # The description of a result has the base types of domains.
    text = SQL(
        "SELECT {}, q.* FROM (VALUES (1)) AS one LEFT JOIN (SELECT * FROM ({}) AS q LIMIT 0) AS q ON true"
    ).format(
        SQL(", ").join(
            SQL("pg_typeof(q.{})::oid").format(Identifier(str(column))) for column in columns
        ),
        SQL(dialect.write(query)),
    )
    try:
        with connection.transaction():
            cursor = connection.execute(text)
            row = cursor.fetchone()
    except psycopg.Error as error:
        if is_interruption(error):
            raise
        # With GROUP BY a key, a query may show columns that depend on the key and that cannot be
        # grouped by.
        return
    assert row is not None and cursor.description is not None
    oids.update(zip(wanted, row[: len(wanted)], strict=True))
    described = cursor.description[len(wanted) :]
    for name, item in zip(wanted, described, strict=True):
        if item.scale is not None:
            # The scale is unsigned here; a value beyond the maximum is a negative scale, which
            # shows no digits.
            declared[name] = item.scale if item.scale <= MOST else 0


def _without_shared(
    rows: Operator, oids: Mapping[str, int], declared: Mapping[str, int]
) -> Operator:
    """Return a plan with NULLs in place of common table expressions whose types are known.

    These expressions read each other, so the text of the whole query would be long for each
    operator.
    """

    def without(operator: Operator) -> Operator:
        if isinstance(operator, CteScan):
            kinds = [_name_of(column.symbol, oids, declared) for column in operator.shared.columns]
            if None not in kinds:
                nulls = tuple(Scalar.read(f"CAST(NULL AS {kind})") for kind in kinds)
                return Values((nulls,), operator.outputs)
        return operator

    return rewrite(rows, without, subqueries=False)


def _name_of(symbol: str, oids: Mapping[str, int], declared: Mapping[str, int]) -> str | None:
    """Return the type of a column in SQL, if it is one of the common types."""
    name = _COMMON_TYPES.get(oids.get(symbol, 0))
    return f"numeric({MOST}, {declared[symbol]})" if symbol in declared else name


_COMMON_TYPES = {
    16: "boolean",
    20: "bigint",
    21: "smallint",
    23: "integer",
    25: "text",
    114: "json",
    700: "real",
    701: "double precision",
    1043: "varchar",
    1082: "date",
    1114: "timestamp",
    1184: "timestamptz",
    1700: "numeric",
    2950: "uuid",
    3802: "jsonb",
}
