"""The functions that a stored query calls, directly or through operators, aggregates and casts."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.frontend.facts import FunctionUse, Volatility
from orchestrator.frontend.node_tree import Node
from orchestrator.frontend.volatility import SQL_VALUE_FUNCTIONS, classify, worst


@dataclass(frozen=True)
class Calls:
    """The oids in a stored query, by their roles."""

    functions: frozenset[int]
    operators: frozenset[int]
    written_types: frozenset[int]
    """Types whose values a cast converts to text."""
    read_types: frozenset[int]
    """Types whose values a cast reads from text."""
    constants: frozenset[int]
    """Types of constants in the query, which are read from text when a program is compiled."""
    results: frozenset[tuple[int, int]]
    """Function and result type of every plain call."""
    casts: frozenset[int]
    """Functions whose calls are printed as casts."""
    plain: tuple[FunctionUse, ...]
    """Functions without an entry in the catalog: `CURRENT_DATE`, `TABLESAMPLE`."""


_FUNCTION_FIELDS = {
    "FUNCEXPR": ("funcid",),
    "AGGREF": ("aggfnoid",),
    "WINDOWFUNC": ("winfnoid",),
    "WINDOWCLAUSE": ("startInRangeFunc", "endInRangeFunc"),
}

_OPERATOR_FIELDS = {
    "OPEXPR": ("opno",),
    "DISTINCTEXPR": ("opno",),
    "NULLIFEXPR": ("opno",),
    "SCALARARRAYOPEXPR": ("opno",),
    "SORTGROUPCLAUSE": ("eqop", "sortop"),
}

_TYPE_FIELDS = tuple(
    re.findall(
        r"\w+",
        "vartype consttype paramtype funcresulttype aggtype wintype opresulttype resulttype casetype"
        " array_typeid row_typeid coalescetype minmaxtype typeId type refrestype",
    )
)
"""The fields in which nodes of expressions have the types of their values."""

_CAST_FORMATS = (1, 2)
"""COERCE_EXPLICIT_CAST and COERCE_IMPLICIT_CAST, which PostgreSQL prints as casts to the result type."""

_MARKERS = {
    "NEXTVALUEEXPR": FunctionUse("nextval()", Volatility.VOLATILE, proname="nextval"),
    "XMLEXPR": FunctionUse("XML functions", Volatility.SETTINGS, role="value"),
    "JSONCONSTRUCTOREXPR": FunctionUse("JSON constructors", Volatility.SETTINGS, role="value"),
    "JSONEXPR": FunctionUse("JSON query functions", Volatility.SETTINGS, role="value"),
    "TABLEFUNC": FunctionUse("XMLTABLE or JSON_TABLE", Volatility.SETTINGS, role="value"),
}


def calls_of(nodes: Iterable[Node]) -> Calls:
    """Return everything that a stored query tree calls.

    >>> from orchestrator.frontend import node_tree
    >>> tree = "{OPEXPR :opno 96 :args ({SQLVALUEFUNCTION :op 0 :type 1082})}"
    >>> calls = calls_of(node_tree.nodes(tree))
    >>> sorted(calls.operators), [use.name for use in calls.plain]
    ([96], ['CURRENT_DATE'])
    """
    functions: set[int] = set()
    operators: set[int] = set()
    written: set[int] = set()
    read: set[int] = set()
    constants: set[int] = set()
    results: set[tuple[int, int]] = set()
    casts: set[int] = set()
    plain: dict[str, FunctionUse] = {}
    for node in nodes:
        functions |= {node.oid(name) for name in _FUNCTION_FIELDS.get(node.tag, ())}
        operators |= {node.oid(name) for name in _OPERATOR_FIELDS.get(node.tag, ())}
        if node.tag == "ROWCOMPAREEXPR":
            operators |= set(node.oids("opnos"))
        elif node.tag == "FUNCEXPR":
            results.add((node.oid("funcid"), node.oid("funcresulttype")))
            if node.oid("funcformat") in _CAST_FORMATS:
                casts.add(node.oid("funcid"))
        elif node.tag == "COERCEVIAIO":
            read.add(node.oid("resulttype"))
            written.add(_type_of(node.child("arg")))
        elif node.tag == "CONST":
            constants.add(node.oid("consttype"))
        for use in _markers(node):
            plain[use.name] = use
    nothing = {0}
    return Calls(
        frozenset(functions - nothing),
        frozenset(operators - nothing),
        frozenset(written - nothing),
        frozenset(read - nothing),
        frozenset(constants - nothing),
        frozenset(results),
        frozenset(casts),
        tuple(plain.values()),
    )


def _markers(node: Node) -> Iterator[FunctionUse]:
    if node.tag in _MARKERS:
        yield _MARKERS[node.tag]
    elif node.tag == "SQLVALUEFUNCTION":
        name = SQL_VALUE_FUNCTIONS[node.oid("op")]
        yield FunctionUse(name, Volatility.TIME_DEPENDENT, role="value")
    elif node.tag == "TABLESAMPLECLAUSE":
        # With REPEATABLE, the sample still depends on the physical positions of rows.
        repeatable = node.child("repeatable") is not None
        volatility = Volatility.TIME_DEPENDENT if repeatable else Volatility.VOLATILE
        yield FunctionUse("TABLESAMPLE", volatility, role="sampling")


def _type_of(node: Node | None) -> int:
    """Return the type of an expression's value, or 0 if its own node does not have it."""
    if node is None:
        return 0
    if node.tag == "SCALARARRAYOPEXPR" or node.tag in ("BOOLEXPR", "NULLTEST", "BOOLEANTEST"):
        return 16
    for name in _TYPE_FIELDS:
        if name in node.fields:
            return node.oid(name)
    return 0


_KINDS = {"a": "aggregate", "w": "window"}


def describe(
    calls: Calls,
    functions: Iterable[Mapping[str, Any]],
    operators: Iterable[Mapping[str, Any]],
    types: Iterable[Mapping[str, Any]],
    by_domain: Collection[tuple[bool, int]] = (),
) -> tuple[FunctionUse, ...]:
    """Return the calls with their names and volatilities, from rows of the catalog.

    `by_domain` has the operators (True) and functions (False) that are called with a domain.
    """
    by_oid = {row["oid"]: row for row in functions}
    types = list(types)
    rows = {row["oid"]: tuple(row["fields"]) for row in types if row["is_row"]}
    returning_rows = {function for function, result in calls.results if result in rows}

    def fields(function: int) -> tuple[str, ...]:
        named = tuple(by_oid[function]["results"])
        # The declaration of a function names the columns of a record.
        [*several] = {rows[r] or named for f, r in calls.results if f == function and r in rows}
        return several[0] if len(several) == 1 else ()

    composite = {row["oid"]: row["typrelid"] for row in types if row["typrelid"]}

    def volatility(oid: int) -> Volatility:
        row = by_oid.get(oid)
        if row is None:
            return Volatility.IMMUTABLE
        own = classify(row["builtin"], row["name"], row["body"], row["provolatile"])
        return worst(own, *(volatility(part) for part in row["parts"]))

    def display_name(oid: int) -> str:
        row = by_oid[oid]
        return f"{_prefix(row)}{row['name']}()"

    uses = list(calls.plain)
    for oid in sorted(calls.functions & by_oid.keys()):
        row = by_oid[oid]
        uses.append(
            FunctionUse(
                name=display_name(oid),
                volatility=volatility(oid),
                schema=row["schema"],
                proname=row["name"],
                role=_KINDS.get(row["prokind"], "function"),
                returns_set=row["returns_set"],
                returns_row=oid in returning_rows,
                fields=fields(oid),
                is_lost_cast=oid in calls.casts and not row["casts"],
                is_by_domain=(False, oid) in by_domain,
                row_types=tuple(
                    sorted({composite[r] for f, r in calls.results if f == oid and r in composite})
                ),
            )
        )
    for row in operators:
        operator_volatility = volatility(row["code"])
        implementation = f" (function {display_name(row['code'])})" if row["code"] in by_oid else ""
        name = f"operator {_prefix(row)}{row['name']}{implementation}"
        sets = row["code"] in by_oid and by_oid[row["code"]]["returns_set"]
        uses.append(
            FunctionUse(
                name,
                operator_volatility,
                row["schema"],
                row["name"],
                "operator",
                returns_set=sets,
                is_by_domain=(True, row["oid"]) in by_domain,
            )
        )
    for row in types:
        for kind, oids in (("input", calls.read_types), ("output", calls.written_types)):
            if row["oid"] in oids and row[kind] in by_oid:
                code = by_oid[row[kind]]
                name = f"cast through {_prefix(code)}{code['name']}()"
                uses.append(
                    FunctionUse(name, volatility(row[kind]), code["schema"], code["name"], "cast")
                )
        if row["oid"] in calls.constants and volatility(row["input"]) != Volatility.IMMUTABLE:
            # A constant does not change after it is read, but how it is read depends on the
            # session.
            uses.append(
                FunctionUse(f"constants of {row['name']}", Volatility.SETTINGS, role="value")
            )
    return tuple(uses)


def _prefix(row: Mapping[str, Any]) -> str:
    return "" if row["schema"] == "pg_catalog" else f"{row['schema']}."
