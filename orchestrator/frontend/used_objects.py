"""The relations and functions that a stored view uses, from the catalog and the stored query."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Any

from psycopg import Connection
from psycopg.rows import dict_row

from orchestrator.frontend.facts import (
    FunctionUse,
    UsedRelation,
)
from orchestrator.frontend.functions import calls_of, describe
from orchestrator.frontend.node_tree import Node
from orchestrator.frontend.resolution import typed_calls

FIRST_USER_OID = 16384
"""The smallest oid of objects that users create."""

ATTNUM_OFFSET = -7
"""The offset of column numbers in stored query trees, which start with the first system column."""

_SYSTEM_COLUMNS = {-1: "ctid", -2: "xmin", -3: "cmin", -4: "xmax", -5: "cmax", -6: "tableoid"}


def used_relations(
    connection: Connection[Any], view: int, nodes: Iterable[Node]
) -> tuple[UsedRelation, ...]:
    """Return the relations and columns that a view uses, from the dependency catalog and the stored
    query.

    The dependency catalog has the columns, but not uses of whole rows. The stored query has these
    as column 0 among the columns that require the SELECT right.
    """
    columns: dict[int, set[int]] = defaultdict(set)
    for oid, attnum in connection.execute(
        "SELECT DISTINCT d.refobjid, d.refobjsubid FROM pg_rewrite r"
        " JOIN pg_depend d ON d.classid = 'pg_catalog.pg_rewrite'::regclass AND d.objid = r.oid"
        "  AND d.refclassid = 'pg_catalog.pg_class'::regclass AND d.refobjid <> r.ev_class"
        " WHERE r.ev_class = %s::oid AND r.rulename = '_RETURN'",
        [view],
    ).fetchall():
        columns[oid].add(attnum)
    for node in nodes:
        if node.tag not in ("RANGETBLENTRY", "RTEPERMISSIONINFO"):
            continue
        oid = node.oid("relid")
        if oid and oid != view:
            columns[oid] |= {number + ATTNUM_OFFSET for number in node.oids("selectedCols")}
            whole_row = -ATTNUM_OFFSET in node.oids("selectedCols")
            columns[oid] |= {WHOLE_ROW} if whole_row else set()
    return tuple(
        UsedRelation(
            oid=oid,
            columns=frozenset(number for number in used if 0 < number < WHOLE_ROW),
            whole_row=WHOLE_ROW in used,
            system_columns=frozenset(_SYSTEM_COLUMNS[number] for number in used if number < 0),
        )
        for oid, used in sorted(columns.items())
    )


WHOLE_ROW = 1 << 16
"""The number that stands for the whole row; 0 stands for the relation."""


def used_functions(
    connection: Connection[Any], nodes: Collection[Node], text: str | None = None
) -> tuple[FunctionUse, ...]:
    """Return the functions that a query calls, with the volatility of all functions behind each
    call.
    """
    calls = calls_of(nodes)
    with connection.cursor(row_factory=dict_row) as cursor:
        operators = cursor.execute(
            "SELECT o.oid, o.oprname AS name, n.nspname AS schema, o.oprcode::oid AS code"
            " FROM pg_operator o JOIN pg_namespace n ON n.oid = o.oprnamespace"
            " WHERE o.oid = ANY (%s::oid[])",
            [sorted(calls.operators)],
        ).fetchall()
        types = cursor.execute(
            "SELECT oid, typname AS name, typinput::oid AS input, typoutput::oid AS output,"
            "       typcategory = 'C' OR oid = 'record'::regtype AS is_row, typrelid::oid,"
            "       ARRAY(SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = typrelid"
            "             AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum) AS fields"
            " FROM pg_type WHERE oid = ANY (%s::oid[])",
            [
                sorted(
                    calls.read_types
                    | calls.written_types
                    | calls.constants
                    | {result for _, result in calls.results}
                )
            ],
        ).fetchall()
        wanted = (
            set(calls.functions)
            | {row["code"] for row in operators}
            | {row["input"] for row in types}
            | {row["output"] for row in types}
        )
        functions = cursor.execute(
            """
            SELECT p.oid, n.nspname AS schema, p.proname AS name, p.prosrc AS body,
                   p.provolatile::text, p.prokind::text, p.proretset AS returns_set,
                   p.oid < %s AND n.nspname = 'pg_catalog' AS builtin,
                   p.oid < %s OR EXISTS (SELECT FROM pg_cast k WHERE k.castfunc = p.oid) AS casts,
                   ARRAY(SELECT o.name FROM unnest(p.proargnames, p.proargmodes)
                             WITH ORDINALITY AS o (name, mode, place)
                         WHERE o.mode IN ('o', 'b', 't') ORDER BY o.place) AS results,
                   ARRAY(SELECT part::oid::bigint FROM pg_aggregate g, unnest(ARRAY[
                             g.aggtransfn, g.aggfinalfn, g.aggmtransfn, g.aggminvtransfn,
                             g.aggmfinalfn]) AS part
                         WHERE g.aggfnoid = p.oid AND part::oid <> 0) AS parts
            FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
            WHERE p.oid = ANY (%s::oid[]) OR p.oid IN (
                SELECT part::oid FROM pg_aggregate g, unnest(ARRAY[
                    g.aggtransfn, g.aggfinalfn, g.aggmtransfn, g.aggminvtransfn, g.aggmfinalfn])
                    AS part
                WHERE g.aggfnoid = ANY (%s::oid[]))
            """,
            [FIRST_USER_OID, FIRST_USER_OID, sorted(wanted), sorted(wanted)],
        ).fetchall()
    return describe(calls, functions, operators, types, _by_domain(connection, nodes))


FIRST_UNPINNED_OID = 12000
"""Types with smaller oids are PostgreSQL's basic types; those of information_schema include domains."""

_RECORDS = frozenset({2249, 2287})
"""The types record and record[], whose fields the query does not determine."""


def _by_domain(connection: Connection[Any], nodes: Iterable[Node]) -> set[tuple[bool, int]]:
    """Return the operators (True) and functions (False) that a program might resolve differently.

    A program has no domains, so no user-defined function may take one. Built-in functions treat a
    domain as its base type, but several polymorphic arguments must have the same type.
    """
    calls = list(typed_calls(nodes))
    used = {type_ for call in calls for types in call.passed for type_ in types}
    domains = _with_domains(connection, [item for item in used if item >= FIRST_UNPINNED_OID])
    if not domains:
        return set()
    domains |= _RECORDS
    domain_arguments = {call: sum(bool(domains & types) for types in call.passed) for call in calls}
    affected = [call for call in calls if domain_arguments[call]]
    rows = connection.execute(
        """
        SELECT c.is_operator, c.oid,
               p.provariadic = '"any"'::regtype OR '"any"'::regtype = ALL (p.proargtypes::oid[])
        FROM unnest(%s::boolean[], %s::oid[]) AS c (is_operator, oid)
        LEFT JOIN pg_operator o ON c.is_operator AND o.oid = c.oid
        JOIN pg_proc p ON p.oid = CASE WHEN c.is_operator THEN o.oprcode::oid ELSE c.oid END
        WHERE p.oid < %s
        """,
        [
            [item.is_operator for item in affected],
            [item.called for item in affected],
            FIRST_USER_OID,
        ],
    ).fetchall()
    takes_any = {(is_operator, oid): any_type for is_operator, oid, any_type in rows}
    return {
        called
        for item in affected
        for called in [(item.is_operator, item.called)]
        if called not in takes_any or (domain_arguments[item] > 1 and not takes_any[called])
    }


def _with_domains(connection: Connection[Any], types: list[int]) -> frozenset[int]:
    """Return those types that are domains or contain a domain."""
    rows = connection.execute(
        """
        WITH RECURSIVE parts(type, part) AS (
            SELECT t, t FROM unnest(%s::oid[]) AS t
          UNION
            SELECT p.type, one.part
            FROM parts p JOIN pg_type t ON t.oid = p.part
            CROSS JOIN LATERAL (
                SELECT t.typelem AS part WHERE t.typelem <> 0
              UNION ALL
                SELECT a.atttypid FROM pg_attribute a
                WHERE t.typrelid <> 0 AND a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
              UNION ALL
                SELECT r.rngsubtype FROM pg_range r WHERE t.oid IN (r.rngtypid, r.rngmultitypid)
            ) AS one
        )
        SELECT DISTINCT p.type::bigint FROM parts p JOIN pg_type t ON t.oid = p.part AND t.typtype = 'd'
        """,
        [types],
    ).fetchall()
    return frozenset(row[0] for row in rows)
