"""Translate calls of functions and aggregates to Spark."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from orchestrator.algebra.dialect import Tree
from orchestrator.spark.initial.kinds import (
    BIGINT,
    BOOLEAN,
    INTEGER,
    TEXT,
    InexactError,
    Value,
    as_decimal,
    decimal,
)
from orchestrator.spark.initial.words import AGGREGATES, cast, only, scale_of, shown_as, spark

if TYPE_CHECKING:
    from orchestrator.spark.initial.scalars import Scalars


def filtered(scalars: Scalars, node: exp.Filter) -> Value:
    """Translate an aggregate with FILTER."""
    return aggregate(scalars, node.this, scalars.inside.condition(node.expression.this))


def function(scalars: Scalars, node: exp.Anonymous) -> Value:
    """Translate a call of a function or an aggregate."""
    name, arguments = node.name.lower(), node.expressions
    if isinstance(node.this, exp.Identifier) and node.this.name == "substring":
        return scalars.substring(*(*arguments, None, None)[:3])
    if name in AGGREGATES:
        return aggregate(scalars, node, None)
    if name == "coalesce":
        tests = [
            spark("x IS NOT NULL", x=scalars.value(argument).tree) for argument in arguments[:-1]
        ]
        return scalars.one_of(tests, arguments)
    if name == "nullif" and len(arguments) == 2:
        value = scalars.value(arguments[0])
        same = scalars.compared(exp.EQ, value, scalars.value(arguments[1]))
        tree = spark("CASE WHEN x THEN NULL ELSE y END", x=same.tree, y=value.tree)
        return replace(value, tree=tree)
    if name == "scale" and len(arguments) == 1:
        value = scalars.value(arguments[0])
        if value.kind.decimal:
            parts = {"x": value.tree, "s": scale_of(value)}
            return Value(spark("CASE WHEN x IS NOT NULL THEN s END", **parts), INTEGER)
    if name in ("length", "char_length") and len(arguments) == 1:
        value = scalars.value(arguments[0])
        if value.kind == TEXT:
            return Value(spark("CHAR_LENGTH(x)", x=value.tree), INTEGER)
    raise InexactError(f"the function {name}")


def aggregate(scalars: Scalars, node: Tree, condition: Tree | None) -> Value:
    """Translate a call of an aggregate function, over the rows of a condition if there is one."""
    if not isinstance(node, exp.Anonymous) or scalars.grouped is None:
        raise InexactError(shown_as(node))
    name, arguments = node.name.lower(), list(node.expressions)
    distinct = len(arguments) == 1 and isinstance(arguments[0], exp.Distinct)
    if distinct:
        only(arguments[0], "expressions")
        arguments = arguments[0].expressions
    if name == "count" and arguments and isinstance(arguments[0], exp.Star):
        return Value(_call("COUNT", exp.Star(), condition), BIGINT)
    if name not in AGGREGATES or len(arguments) != 1 or name == "avg":
        raise InexactError(f"the aggregate {shown_as(node)}")
    value = scalars.inside.value(arguments[0])
    kind = value.kind
    if distinct and (not kind.comparable or kind.name == "character"):
        raise InexactError(f"different values of type {kind.name}")
    if name == "count":
        return Value(_call("COUNT", value.tree, condition, distinct), BIGINT)
    if name in ("min", "max") and kind.ordered and value.scale is None:
        return Value(_call(name.upper(), value.tree, condition), kind)
    if name in ("bool_and", "bool_or", "every") and kind == BOOLEAN:
        word = "BOOL_OR" if name == "bool_or" else "BOOL_AND"
        return Value(_call(word, value.tree, condition), BOOLEAN)
    if name == "sum" and kind.integer and kind != BIGINT:
        return Value(_call("SUM", value.tree, condition, distinct), BIGINT)
    if name == "sum" and (kind.decimal or kind == BIGINT):
        if distinct and value.scale is not None:
            raise InexactError("the sum of different numerics that differ in their scale")
        wide = as_decimal(kind)
        tree = _call("SUM", cast(value.tree, wide), condition, distinct)
        result = Value(tree, decimal(wide.precision + 10, wide.scale))
        if value.scale is None:
            return result
        scale = spark("CASE WHEN x IS NOT NULL THEN s END", x=value.tree, s=value.scale)
        return replace(result, scale=_call("MAX", scale, condition), scales=value.scales)
    raise InexactError(f"the aggregate {name} of {kind.name}")


def _call(name: str, argument: Tree, condition: Tree | None, distinct: bool = False) -> Tree:
    inner = exp.Distinct(expressions=[argument]) if distinct else argument
    call = exp.Anonymous(this=name, expressions=[inner.copy()])
    if condition is None:
        return call
    return exp.Filter(this=call, expression=exp.Where(this=condition.copy()))
