"""Aggregate and window functions whose result does not depend on the order of equal rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from psycopg.sql import SQL, Composable, Composed

from orchestrator.fuzz.queries.expressions import Expr, Expressions
from orchestrator.fuzz.schemas.values import COMPARABLE, EXTREMES

if TYPE_CHECKING:
    from typing_extensions import LiteralString


@dataclass(frozen=True)
class Function:
    """A function with its result family (None: the argument's family), text, and argument families.

    A `keyed` function needs a keyable argument. The result of a `keyable` function is keyable if
    its argument is. `cast` follows FILTER or OVER.
    """

    family: str | None
    text: LiteralString
    arguments: tuple[str, ...]
    keyed: bool = False
    keyable: bool = True
    cast: LiteralString = ""

    def called(self, argument: Composable, tail: Composable) -> Composed:
        """Return the call, with FILTER or OVER as its tail."""
        return SQL("{}{}{}").format(SQL(self.text).format(argument), tail, SQL(self.cast))


ANY = (*COMPARABLE, "json")

AGGREGATES = (
    Function("int", "count({0})", ANY),
    Function("int", "count(DISTINCT {0})", COMPARABLE),
    Function("int", "sum({0})", ("int",), cast="::bigint"),
    Function("num", "sum({0})", ("int",), keyable=False),
    Function("num", "sum({0})", ("num",)),
    Function("int", "sum(DISTINCT {0})", ("int",), cast="::bigint"),
    Function("float", "sum({0})", ("float",)),
    Function("num", "avg({0})", ("int",), keyable=False),
    Function("num", "avg({0})", ("num",), keyable=False),
    Function("float", "avg({0})", ("float",)),
    Function("float", "var_pop({0})", ("float",)),
    Function("float", "stddev_samp({0})", ("float",)),
    Function("num", "avg(DISTINCT {0})", ("int",), keyable=False),
    Function(None, "min({0})", EXTREMES, keyed=True),
    Function(None, "max({0})", EXTREMES, keyed=True),
    Function(None, "max(DISTINCT {0})", EXTREMES, keyed=True),
    Function("bool", "bool_and({0})", ("bool",)),
    Function("bool", "bool_or({0})", ("bool",)),
    Function("int", "bit_or({0})", ("int",), cast="::bigint"),
    Function("num", "var_pop({0})", ("int",), keyable=False),
    Function("num", "stddev({0})", ("int", "num"), keyable=False),
    Function("num", "variance({0})", ("num",), keyable=False),
    Function("text", "string_agg({0}, ',' ORDER BY {0})", ("text",)),
    Function("text", "string_agg(DISTINCT {0}, ',' ORDER BY {0} DESC)", ("text",)),
    Function("int[]", "array_agg(({0} % 100)::integer ORDER BY {0})", ("int",)),
    Function("text[]", "array_agg({0} ORDER BY {0})", ("text",), keyed=True),
    Function(
        None,
        "percentile_disc(0.5) WITHIN GROUP (ORDER BY {0})",
        ("int", "text", "date"),
        keyed=True,
    ),
    Function("float", "percentile_cont(0.75) WITHIN GROUP (ORDER BY {0} DESC)", ("int", "float")),
    Function(None, "mode() WITHIN GROUP (ORDER BY {0})", ("int", "date"), keyed=True),
)
"""Aggregates of one argument; count(*) is added separately."""

WINDOW_FUNCTIONS = (
    Function("int", "row_number()", ()),
    Function("int", "rank()", ()),
    Function("int", "dense_rank()", ()),
    Function("int", "ntile(2)", ()),
    Function("int", "count(*)", ()),
    Function("int", "count({0})", ANY),
    Function("int", "sum({0})", ("int",), cast="::bigint"),
    Function("num", "sum({0})", ("num",)),
    Function("float", "sum({0})", ("float",)),
    Function("num", "avg({0})", ("int",), keyable=False),
    Function("bool", "bool_or({0})", ("bool",)),
    Function(None, "min({0})", EXTREMES, keyed=True),
    Function(None, "lag({0})", COMPARABLE),
    Function(None, "lag({0}, 3)", COMPARABLE),
    Function(None, "lead({0}, 2)", COMPARABLE),
    Function(None, "first_value({0})", COMPARABLE),
    Function(None, "last_value({0})", COMPARABLE),
    Function(None, "nth_value({0}, 2)", COMPARABLE),
    Function(None, "max({0})", EXTREMES, keyed=True),
)
"""Functions for use with OVER."""

DIRECTIONS: tuple[LiteralString, ...] = ("", "", " DESC", " NULLS FIRST", " DESC NULLS LAST")
"""Directions of ORDER BY."""

PEERS = (
    Function("int", "rank()", ()),
    Function("int", "dense_rank()", ()),
    Function("float", "percent_rank()", ()),
    Function("float", "cume_dist()", ()),
    Function("int", "count(*)", ()),
    Function("int", "count({0})", ANY),
    Function("int", "sum({0})", ("int",), cast="::bigint"),
    Function("num", "avg({0})", ("int",), keyable=False),
    Function("bool", "bool_or({0})", ("bool",)),
    Function(None, "min({0})", EXTREMES, keyed=True),
    Function(None, "max({0})", EXTREMES, keyed=True),
)
"""Functions with the same result for all rows that are equal in the order of a window."""

PEER_FRAMES: tuple[LiteralString, ...] = (
    "",
    "",
    " RANGE BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
    " RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING EXCLUDE GROUP",
    " GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW",
    " GROUPS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING",
)
"""Frames that include all rows that are equal in the order, or none of them."""

FRAMES: tuple[LiteralString, ...] = (
    "",
    "",
    " ROWS BETWEEN 1 PRECEDING AND CURRENT ROW",
    " ROWS BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING",
    " RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
    " GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE CURRENT ROW",
    " ROWS BETWEEN 2 PRECEDING AND 1 PRECEDING",
    " ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING EXCLUDE TIES",
)


def aggregate(rng: Random, make: Expressions, scope: Sequence[Expr]) -> Expr:
    """Return a random aggregate over the columns in scope, sometimes with a filter."""
    tail: Composable = SQL("")
    if rng.random() < 0.2:
        tail = SQL(" FILTER (WHERE {})").format(make.condition(scope, 0))
    counted = Function("int", "count(*)", ())
    return _applied(rng, make, scope, (counted, counted, *AGGREGATES), tail)


def window(rng: Random, make: Expressions, scope: Sequence[Expr], order: Composable) -> Expr:
    """Return a random window function; `order` is total except for equal rows."""
    keys = [e.sql for e in scope if e.safe and e.family in COMPARABLE]
    partition: Composable = SQL("")
    if keys and rng.random() < 0.7:
        partition = SQL("PARTITION BY {} ").format(rng.choice(keys))
    first = rng.choice([SQL(""), *(SQL("{}, ").format(key) for key in keys[:3])])
    tail = SQL(" OVER ({}ORDER BY {}{}{})").format(partition, first, order, SQL(rng.choice(FRAMES)))
    return _applied(rng, make, scope, WINDOW_FUNCTIONS, tail)


def window_of_peers(rng: Random, make: Expressions, scope: Sequence[Expr]) -> Expr:
    """Return a window function over an order that leaves rows equal, or over whole partitions."""
    keys = [e for e in scope if e.safe and e.family in COMPARABLE]
    partition: Composable = SQL("")
    if keys and rng.random() < 0.6:
        partition = SQL("PARTITION BY {} ").format(rng.choice(keys).sql)
    if not keys or rng.random() < 0.25:
        functions = [f for f in PEERS if f.arguments]
        return _applied(rng, make, scope, functions, SQL(" OVER ({})").format(partition))
    key = rng.choice(keys)
    frame = SQL(rng.choice(PEER_FRAMES))
    if key.family == "int" and rng.random() < 0.3:
        frame = SQL(" RANGE BETWEEN 1 PRECEDING AND 2 FOLLOWING")
    order = SQL("ORDER BY {}{}").format(key.sql, SQL(rng.choice(DIRECTIONS)))
    tail = SQL(" OVER ({}{}{})").format(partition, order, frame)
    return _applied(rng, make, scope, PEERS, tail)


def _applied(
    rng: Random,
    make: Expressions,
    scope: Sequence[Expr],
    functions: Sequence[Function],
    tail: Composable,
) -> Expr:
    """Return a random function, applied to a suitable argument, preferably a column."""
    function = rng.choice(functions)
    if not function.arguments:
        return Expr(function.called(SQL(""), tail), function.family or "int")
    present = [f for f in function.arguments if any(e.family == f for e in scope)]
    family = rng.choice(present or [f for f in function.arguments if f != "json"])
    argument = make.value(family, scope, 1)
    adds_floats = family == "float" and function.text.startswith(("sum", "avg", "var", "stddev"))
    drifting = [e for e in scope if e.family == "float" and not e.exact]
    if adds_floats and drifting:
        argument = rng.choice(drifting)
    if function.keyed and not argument.keyable:
        argument = make.constant(family)
    return Expr(
        function.called(argument.sql, tail),
        function.family or family,
        function.keyable and argument.keyable,
        not adds_floats,
    )
