"""Find the staged rows that conflict with other rows, and reject them; the other rows can be loaded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from psycopg import Connection
from psycopg.sql import SQL, Composable, Composed, Identifier

from orchestrator.catalog import loads as catalog_loads
from orchestrator.catalog.loads import PLACE, staging_table
from orchestrator.catalog.search_path import users_path
from orchestrator.frontend import catalog
from orchestrator.frontend.constraints import partition_bounds, unique_indexes
from orchestrator.frontend.facts import ForeignKey, Relation, UniqueIndex
from orchestrator.spark.loading.ledger import Load

_REPEATED = "the source has a row before it with the same key"


def table_name(connection: Connection[Any], load: Load) -> Identifier:
    """Return the name of a load's table with its schema."""
    table, name = load.target.relation, load.target.name
    if table is not None:
        return Identifier(table.schema, table.name)
    if name.schema:
        return name.identifier
    with users_path(connection):
        row = connection.execute("SELECT pg_catalog.current_schema()").fetchone()
    assert row is not None
    return Identifier(row[0], name.name)


def same(
    connection: Connection[Any],
    table: Relation,
    columns: Sequence[str],
    staged: Sequence[str] | None = None,
) -> Composed:
    """Return the condition that a row t of a table has the key of a row s, with the equality of its type."""
    types = {column.name: column.type_oid for column in table.columns}
    equal = catalog.equality_operators(connection, [types[column] for column in columns])
    return SQL(" AND ").join(
        SQL("t.{} OPERATOR({}) s.{}").format(
            Identifier(there), equal[types[there]], Identifier(here)
        )
        for there, here in zip(columns, staged or columns, strict=True)
    )


def references(load: Load) -> tuple[ForeignKey, ...]:
    """Return the foreign keys of a load's table."""
    return load.target.relation.foreign_keys if load.target.relation else ()


def reject_conflicting(connection: Connection[Any], load: Load) -> None:
    """Reject rows that are valid but conflict with other rows."""
    table = load.target.relation
    if table is None:
        _reject_nulls(connection, load, load.key)
        _reject_repeated(connection, load, load.key)
        return
    loaded = {column.name for column in load.columns}
    if load.op is not None and load.mode == "upsert":
        _reject_nulls(
            connection, load, [c.name for c in table.columns if c.not_null and c.name in loaded]
        )
    _reject_outside(connection, load, table)
    for index in unique_indexes(connection, table.oid) if load.mode != "add" else ():
        if set(index.columns) <= loaded:
            _reject_duplicates(connection, load, table, index)
    for reference in table.foreign_keys:
        names = [table.column(attnum).name for attnum in reference.columns]
        if set(names) <= loaded:
            _reject(
                connection,
                load,
                names,
                _dangling(connection, load, reference, names),
                f"the row that it refers to is missing ({reference.name})",
            )


def _reject_nulls(connection: Connection[Any], load: Load, names: Sequence[str]) -> None:
    """Reject rows with NULL in columns that the staging table does not check."""
    for name in names:
        missing = SQL("SELECT ctid FROM {} WHERE {} IS NULL").format(
            staging_table(load.id), Identifier(name)
        )
        _reject(connection, load, [name], missing, "the column must not be NULL")


def _reject_outside(connection: Connection[Any], load: Load, table: Relation) -> None:
    """Reject rows that no partition of the table accepts."""
    bounds = partition_bounds(connection, table.oid)
    if bounds is None or not set(bounds.columns) <= {column.name for column in load.columns}:
        return
    # PostgreSQL wrote these conditions.
    accepted = SQL(" OR ").join(SQL("({})").format(SQL(bound)) for bound in bounds.bounds)
    rows = SQL("SELECT ctid FROM {} WHERE ({}) IS NOT TRUE").format(
        staging_table(load.id), accepted if bounds.bounds else SQL("false")
    )
    _reject(connection, load, bounds.columns, rows, "the table has no partition for the row")


def _reject_duplicates(
    connection: Connection[Any], load: Load, table: Relation, index: UniqueIndex
) -> None:
    """Reject rows that a unique index does not accept, because of other rows of the source or of the table."""
    _reject(connection, load, index.columns, _repeated(load, index), _REPEATED)
    updates = load.mode == "upsert" and set(index.columns) != set(load.key)
    if load.mode != "append" and not updates:
        return
    equal = catalog.equality_operators(connection, index.types)
    keys = [Identifier(f"idivm: key {number}") for number, _ in enumerate(index.terms)]
    conditions = [
        SQL("(t.{0} OPERATOR({1}) s.{0} OR {2} AND t.{0} IS NULL AND s.{0} IS NULL)").format(
            key, equal[kind], index.nulls_equal
        )
        for key, kind in zip(keys, index.types, strict=True)
    ]
    if updates:
        # The row with the same key will be replaced.
        conditions.append(SQL("NOT ({})").format(same(connection, table, load.key)))
    own = load.key if updates else ()
    only = SQL("ONLY {}" if table.has_children else "{}").format(table_name(connection, load))
    conflicting = SQL("SELECT s.ctid FROM {} AS s WHERE EXISTS (SELECT FROM {} AS t WHERE {})")
    rows = conflicting.format(
        _indexed(staging_table(load.id), index, own),
        _indexed(only, index, own),
        SQL(" AND ").join(conditions),
    )
    _reject(connection, load, index.columns, rows, "the table has a row with the same key")


def _repeated(load: Load, index: UniqueIndex) -> Composed:
    keys = [Identifier(f"idivm: key {number}") for number, _ in enumerate(index.terms)]
    return SQL(
        "SELECT ctid FROM (SELECT ctid, row_number() OVER (PARTITION BY {} ORDER BY {}) AS n"
        " FROM {} AS s WHERE {} OR num_nulls({}) = 0) AS s WHERE n > 1"
    ).format(
        SQL(", ").join(keys),
        Identifier(PLACE),
        _indexed(staging_table(load.id), index, [PLACE]),
        index.nulls_equal,
        SQL(", ").join(keys),
    )


def _indexed(table: Composable, index: UniqueIndex, columns: Sequence[str]) -> Composed:
    """Return the rows that an index contains: ctid, what it compares, and other columns."""
    terms = [
        # PostgreSQL wrote these expressions, with the names that it found in the index.
        SQL("{} AS {}").format(SQL(term), Identifier(f"idivm: key {number}"))
        for number, term in enumerate(index.terms)
    ]
    condition = SQL(" WHERE {}").format(SQL(index.condition)) if index.condition else SQL("")
    return SQL("(SELECT {} FROM {}{})").format(
        SQL(", ").join([SQL("ctid"), *terms, *map(Identifier, columns)]), table, condition
    )


def _reject_repeated(connection: Connection[Any], load: Load, names: Sequence[str]) -> None:
    """Reject rows that repeat the key of a table to create."""
    if names:
        repeated = SQL(
            "SELECT ctid FROM (SELECT ctid, row_number() OVER (PARTITION BY {} ORDER BY {}) AS n"
            " FROM {}) AS s WHERE n > 1"
        ).format(SQL(", ").join(map(Identifier, names)), Identifier(PLACE), staging_table(load.id))
        _reject(connection, load, names, repeated, _REPEATED)


def _dangling(
    connection: Connection[Any], load: Load, reference: ForeignKey, names: Sequence[str]
) -> Composed:
    other = catalog.relations(connection, [reference.target])[reference.target]
    targets = [other.column(attnum).name for attnum in reference.target_columns]
    tables: list[Composable] = [Identifier(other.schema, other.name)]
    if load.target.relation is not None and other.oid == load.target.relation.oid:
        tables.append(staging_table(load.id))
    if reference.period:
        *targets, period = targets
        matches = same(connection, other, targets, names[:-1])
        ranges = SQL(" UNION ALL ").join(
            SQL("SELECT t.{} AS period FROM {} AS t WHERE {}").format(
                Identifier(period), table, matches
            )
            for table in tables
        )
        referenced = SQL("(s.{} <@ (SELECT range_agg(r.period) FROM ({}) AS r)) IS TRUE").format(
            Identifier(names[-1]), ranges
        )
    else:
        matches = same(connection, other, targets, names)
        referenced = SQL(" OR ").join(
            SQL("EXISTS (SELECT FROM {} AS t WHERE {})").format(table, matches) for table in tables
        )
    return SQL("SELECT s.ctid FROM {} AS s WHERE {} AND NOT ({})").format(
        staging_table(load.id),
        SQL(" AND ").join(SQL("s.{} IS NOT NULL").format(Identifier(name)) for name in names),
        referenced,
    )


def _reject(
    connection: Connection[Any], load: Load, names: Sequence[str], rows: Composed, reason: str
) -> None:
    values = SQL(" || ', ' || ").join(
        SQL("coalesce({}::text, 'NULL')").format(Identifier(name)) for name in names
    )
    line = SQL(" || chr(9) || ").join(
        SQL("coalesce({}::text, '\\N')").format(Identifier(column.name)) for column in load.columns
    )
    texts = (
        SQL("{} || ': (' || {} || ')'").format(reason, values)
        if names
        else SQL("{}").format(reason)
    )
    catalog_loads.reject(connection, load.id, rows, ", ".join(names) or None, texts, line)
