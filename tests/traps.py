"""Objects of an attacker that fit our own statements better than PostgreSQL's do, and that tell when they are used."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path
from typing import Any

from psycopg import Connection
from psycopg.sql import SQL, Identifier

import orchestrator

_FITTING = {
    "anyarray": ("oid[]", "text[]", "integer[]", "name[]", "smallint[]", "jsonb[]"),
    "anycompatiblearray": ("oid[]", "text[]", "integer[]", "name[]"),
    "anyelement": ("oid", "text", "integer", "name", "bigint"),
    "anynonarray": ("oid", "text", "integer", "name", "bigint"),
    "anycompatible": ("oid", "text", "integer", "name"),
    "any": ("oid", "text", "integer", "name", "regclass", "bigint"),
    "text": ("name", "character varying", "regclass"),
    "oid": ("regclass", "regtype", "regnamespace", "regprocedure"),
    "numeric": ("integer", "bigint"),
    "regclass": ("oid",),
}
"""What PostgreSQL finds no exact function for, and what an attacker can make one of."""

_OPERATORS = ("=", "<>", "<", ">", "||", "@>", "<@", "&&", "+", "->>")

_OPERANDS = (
    *("oid[]", "text[]", "integer[]", "name[]", "smallint[]"),
    *("oid", "integer", "name", "text", "character varying", '"char"', "regclass", "regtype"),
    *("regnamespace", "bigint", "smallint", "double precision", "bytea", "jsonb", "pg_snapshot"),
)


def lay(connection: Connection[Any], schema: str = "public") -> int:
    """Creates the traps in a schema, and returns how many there are.

    Each warns its caller and fails, so that neither a rollback nor a caught error hides it.
    """
    connection.execute(
        SQL(
            "CREATE FUNCTION {}.trap() RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog AS"
            " $$BEGIN RAISE WARNING 'trap: run as %', current_user;"
            " RAISE EXCEPTION 'trap: run as %', current_user; END$$"
        ).format(Identifier(schema))
    )
    statements = []
    for name, types in (*_functions(connection), *_operators(connection)):
        body = f"BEGIN PERFORM {schema}.trap(); END"
        function = name if re.match(r"\w", name) else "trap_operator"
        result = "boolean" if function != name else _RESULTS.get(name, "text")
        statement = SQL(
            "CREATE OR REPLACE FUNCTION {}.{}({}) RETURNS {} LANGUAGE plpgsql AS {}"
        ).format(Identifier(schema), Identifier(function), SQL(types), SQL(result), body)  # type: ignore[arg-type]
        statements.append(statement)
        if function != name:
            left, _, right = types.partition(", ")
            statements.append(
                SQL("CREATE OPERATOR {}.{} (LEFTARG = {}, RIGHTARG = {}, FUNCTION = {}.{})").format(
                    *(Identifier(schema), SQL(name), SQL(left), SQL(right)),  # type: ignore[arg-type]
                    *(Identifier(schema), Identifier(function)),
                )
            )
    connection.execute(SQL("; ").join(statements))
    return len(statements)


_RESULTS = {"unnest": "SETOF text", "jsonb_array_elements": "SETOF jsonb"}


def _functions(connection: Connection[Any]) -> list[tuple[str, str]]:
    """The functions that our statements call, with types that nothing in pg_catalog fits exactly."""
    folder = Path(orchestrator.__file__).parent
    words = {
        word
        for path in folder.rglob("*.py")
        for word in re.findall(r"\b([a-z_]\w+)\(", path.read_text())
    }
    rows = connection.execute(
        "SELECT proname::text, ARRAY(SELECT format_type(t, NULL) FROM unnest(proargtypes) AS t)"
        " FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace AND proname = ANY (%s)"
        " AND pronargs BETWEEN 1 AND 3 AND prokind = 'f'",
        [list(words)],
    ).fetchall()
    known = {(name, ", ".join(types)) for name, types in rows}
    wanted = {
        (name, ", ".join(types))
        for name, declared in rows
        for types in product(*((type_name, *_FITTING.get(type_name, ())) for type_name in declared))
        if not any(
            type_name in ('"any"', "any", "internal") or type_name.startswith("any")
            for type_name in types
        )
    }
    return sorted(wanted - known)


def _operators(connection: Connection[Any]) -> list[tuple[str, str]]:
    rows = connection.execute(
        "SELECT oprname::text, format_type(oprleft, NULL) || ', ' || format_type(oprright, NULL)"
        " FROM pg_operator WHERE oprnamespace = 'pg_catalog'::regnamespace AND oprleft <> 0"
    ).fetchall()
    pairs = [f"{left}, {right}" for left, right in product(_OPERANDS, _OPERANDS)]
    return sorted({(name, pair) for name in _OPERATORS for pair in pairs} - set(rows))
