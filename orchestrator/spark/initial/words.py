"""Build trees of Spark's SQL, and check trees of PostgreSQL's SQL."""

from __future__ import annotations

import re

from sqlglot import exp

from orchestrator.algebra import dialect
from orchestrator.algebra.dialect import Tree
from orchestrator.spark.initial.kinds import InexactError, Kind, Value, decimal

AGGREGATES = ("count", "sum", "min", "max", "bool_and", "bool_or", "every", "avg")


def spark(text: str, **parts: Tree) -> Tree:
    """Return an expression of Spark's SQL, with parts in the place of names.

    >>> spark("RTRIM(x) = 'a'", x=exp.column("name")).sql("spark")
    "RTRIM(name) = 'a'"
    """
    template: Tree = exp.maybe_parse(text, dialect="spark")

    def replaced(node: Tree) -> Tree:
        if isinstance(node, exp.Column) and not node.table and node.name in parts:
            part = parts[node.name].copy()
            return part if isinstance(part, _CLOSED) else exp.Paren(this=part)
        return node

    result: Tree = template.copy().transform(replaced)
    return result


_CLOSED = (exp.Column, exp.Literal, exp.Paren, exp.Cast, exp.Boolean, exp.Null, exp.Case)


def is_constant(tree: Tree) -> bool:
    """Return whether an expression reads nothing."""
    reads = (exp.Column, exp.Parameter, exp.Select, exp.Window, exp.Star)
    return not any(
        isinstance(node, reads)
        or (isinstance(node, exp.Anonymous) and node.name.lower() in AGGREGATES)
        for node in tree.walk()
    )


def has_aggregate(tree: Tree) -> bool:
    """Return whether an expression contains a call of a known aggregate function."""
    return any(node.name.lower() in AGGREGATES for node in tree.find_all(exp.Anonymous))


def only(tree: Tree, *parts: str) -> None:
    """Refuse a tree with other parts than these, because they would be lost."""
    if more := {name for name, value in tree.args.items() if value} - set(parts):
        raise InexactError(f"{', '.join(sorted(name.strip('_').upper() for name in more))}")


def scale_of(value: Value) -> Tree:
    """Return the scale of a number, as an expression."""
    return exp.Literal.number(value.kind.scale) if value.scale is None else value.scale.copy()


def cast(tree: Tree, kind: Kind) -> Tree:
    """Return a value cast to another type."""
    return exp.Cast(this=tree.copy(), to=exp.DataType.build(kind.spark, dialect="spark"))


def closed(tree: Tree) -> Tree:
    """Return a tree that can be an operand, in parentheses if necessary."""
    return tree if isinstance(tree, _CLOSED) else exp.Paren(this=tree)


def literal_kind(text: str) -> Kind:
    """Return the type of a number as it is written."""
    match = re.fullmatch(r"-?(\d+)(?:\.(\d+))?", text)
    if match is None:
        raise InexactError(f"the constant {text}")
    places = len(match[2] or "")
    return decimal(len(match[1].lstrip("0")) + places, places)


def shown_as(tree: Tree) -> str:
    """Return an expression for a message, with the names of its columns."""

    def bare(node: Tree) -> Tree:
        if isinstance(node, exp.Column):
            return dialect.reference(node.name.partition("\0")[0])
        return node

    text = dialect.write(tree.copy().transform(bare))
    return text if len(text) <= 60 else f"{text[:57]}..."
