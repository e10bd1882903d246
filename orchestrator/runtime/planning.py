"""From a definition view in the database to its maintenance plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import psycopg
from psycopg import Connection
from psycopg.sql import SQL, Identifier

from orchestrator.algebra import Column as PlanColumn
from orchestrator.algebra import (
    Grouping,
    Item,
    Operator,
    Plan,
    Projection,
    Recursion,
    Scalar,
    dialect,
    printer,
)
from orchestrator.algebra.ids import infer_ids
from orchestrator.algebra.rendering import to_sql
from orchestrator.algebra.traversal import walk
from orchestrator.deltascript.plan import Column, MaintenancePlan, Source, SourceColumn
from orchestrator.errors import UnsupportedError
from orchestrator.frontend.analysis import Analysis, SourceUse, analyse
from orchestrator.frontend.facts import RelationColumn
from orchestrator.frontend.options import ViewOptions
from orchestrator.runtime import catalog
from orchestrator.strategies import recompute
from orchestrator.strategies.choose import choose
from orchestrator.strategies.problem import ColumnType, Problem

PINNED = (
    "DateStyle",
    "IntervalStyle",
    "TimeZone",
    "bytea_output",
    "default_text_search_config",
    "lc_monetary",
    "lc_numeric",
    "lc_time",
    "xmlbinary",
)
"""Settings that results depend on; every refresh has them as the view's creator had."""


def plan_view(
    connection: Connection[Any], definition: Identifier, options: ViewOptions
) -> MaintenancePlan:
    """Analyses a definition view and chooses how to maintain it."""
    oid = catalog.relation_oid(connection, definition)
    assert oid is not None
    analysis = analyse(connection, oid)
    _refuse(analysis)
    return choose(_problem(connection, analysis, options), options.strategy)


def _refuse(analysis: Analysis) -> None:
    if analysis.volatile:
        names = ", ".join(analysis.volatile)
        raise UnsupportedError(
            f"The query calls {names}, whose result changes with every call, so that no stored"
            " content can be right; leave it out or compute it when the view is read."
        )
    if analysis.temporary:
        names = ", ".join(relation.name for relation in analysis.temporary)
        raise UnsupportedError(
            f"The query reads the temporary table {names}, which no other session can see;"
            " make it a permanent one."
        )


def _problem(connection: Connection[Any], analysis: Analysis, options: ViewOptions) -> Problem:
    sources = tuple(_source(connection, use) for use in analysis.sources)
    if analysis.plan is not None:
        algebra, tree = printer.print_plan(analysis.plan), printer.to_json(analysis.plan)
    else:
        missing = [str(unsupported) for unsupported in analysis.unsupported]
        algebra, tree = "not modelled: " + "; ".join(missing), {"unsupported": missing}
    return Problem(
        columns=tuple(Column(column.name, column.type) for column in analysis.columns),
        sources=sources,
        unkeyed=tuple(str(source) for source in sources if not source.keyed),
        inlined=tuple(relation.oid for relation in analysis.inlined),
        moving=(
            *(f"{name} changes by itself" for name in analysis.moving),
            *(
                f"changes of the {relation.kind} {relation.qualified} cannot be captured"
                for relation in analysis.uncaptured
            ),
        ),
        distinct=analysis.distinct,
        settings=_settings(connection),
        algebra=algebra,
        algebra_tree=tree,
        maintain=options.maintain,
        plan=analysis.plan,
        # Recomputation asks for none, and each operator costs a query.
        types={} if options.strategy == recompute.NAME else _types(connection, analysis.plan),
        cache=options.cache != "off",
        variable_order=options.variable_order,
        static=tuple(one.strip() for one in (options.static or "").split(",") if one.strip()),
    )


def _types(connection: Connection[Any], plan: Plan | None) -> dict[str, ColumnType]:
    """The types of a plan's columns, as PostgreSQL derives them."""
    if plan is None:
        return {}
    identified = infer_ids(plan)
    root = identified.root if isinstance(identified, Plan) else plan.root
    if any(isinstance(operator, Recursion) for operator in walk(root)):
        # Its parts stand for nothing by themselves.
        return {}
    oids: dict[str, int] = {}
    for operator in walk(root, subqueries=False):
        wanted = {c.symbol: Scalar.column(c) for c in operator.columns if c.symbol not in oids}
        if isinstance(operator, Grouping):
            rows = operator.input
            for aggregate in operator.aggregates:
                if len(aggregate.arguments) == 1:
                    _describe(
                        connection, rows, {f"{aggregate.column}()": aggregate.arguments[0]}, oids
                    )
        _describe(connection, operator, wanted, oids)
    return catalog.column_types(connection, oids)


def _describe(
    connection: Connection[Any], rows: Operator, wanted: dict[str, Scalar], oids: dict[str, int]
) -> None:
    if not wanted or rows.outer_columns:
        return
    columns = [PlanColumn(f"c{number}") for number in range(len(wanted))]
    items = tuple(map(Item, columns, wanted.values()))
    query = to_sql(Plan(Projection(rows, items), tuple(map(str, columns)), tuple(columns)))
    text = SQL("SELECT * FROM ({}) AS q LIMIT 0").format(SQL(dialect.write(query)))
    try:
        with connection.transaction():
            cursor = connection.execute(text)
    except psycopg.Error:
        # GROUP BY key shows what the key determines; not all of that can be grouped by.
        return
    assert cursor.description is not None
    for symbol, described in zip(wanted, cursor.description, strict=True):
        oids[symbol] = described.type_code


def _source(connection: Connection[Any], use: SourceUse) -> Source:
    """A captured relation; a maintained view is captured where its content is stored."""
    key = set(use.key.columns) if use.key else set()
    if catalog.is_captured_without_key(connection, use.relation.oid):
        key = set()
    columns = tuple(_column(column, column.attnum in key) for column in use.captured)
    if use.relation.maintained is None:
        return Source(use.relation.oid, use.relation.schema, use.relation.name, columns)
    stored = catalog.stored_content(connection, use.relation.maintained)
    keys = {column.attnum for column in stored.columns}
    rest = tuple(column for column in columns if column.attnum not in keys)
    return replace(stored, columns=(*rest, *stored.columns))


def _column(column: RelationColumn, in_key: bool) -> SourceColumn:
    equality = ("exact" if column.exact else "coarse") if column.builtin_equality else ""
    return SourceColumn(column.attnum, column.name, in_key, column.plain_type, equality)


def _settings(connection: Connection[Any]) -> tuple[tuple[str, str], ...]:
    rows = connection.execute(
        "SELECT name, setting FROM pg_settings WHERE name = ANY (%s) ORDER BY name", [list(PINNED)]
    ).fetchall()
    # All digits of a float, so that two values with the same image are the same.
    return (*rows, ("extra_float_digits", "1"))
