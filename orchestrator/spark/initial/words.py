"""Trees of Spark's own words, and what all translation asks of PostgreSQL's."""

from __future__ import annotations

import re

from sqlglot import exp

from orchestrator.algebra import dialect
from orchestrator.algebra.dialect import Tree
from orchestrator.spark.initial.kinds import InexactError, Kind, Value, decimal

AGGREGATES = ("count", "sum", "min", "max", "bool_and", "bool_or", "every", "avg")


def spark(text: str, **parts: Tree) -> Tree:
    """An expression of Spark's own words; names stand for parts.

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
    """Whether an expression reads nothing."""
    reads = (exp.Column, exp.Parameter, exp.Select, exp.Window, exp.Star)
    return not any(
        isinstance(node, reads)
        or (isinstance(node, exp.Anonymous) and node.name.lower() in AGGREGATES)
        for node in tree.walk()
    )


def has_aggregate(tree: Tree) -> bool:
    """Whether an expression holds a call of a known aggregate function."""
    return any(node.name.lower() in AGGREGATES for node in tree.find_all(exp.Anonymous))


def only(tree: Tree, *parts: str) -> None:
    """Refuses a tree that has more to it than these parts: it would be lost."""
    if more := {name for name, value in tree.args.items() if value} - set(parts):
        raise InexactError(f"{', '.join(sorted(name.strip('_').upper() for name in more))}")


def scale_of(value: Value) -> Tree:
    """The scale of a number, as an expression."""
    return exp.Literal.number(value.kind.scale) if value.scale is None else value.scale.copy()


def cast(tree: Tree, kind: Kind) -> Tree:
    """A value as one of another type."""
    return exp.Cast(this=tree.copy(), to=exp.DataType.build(kind.spark, dialect="spark"))


def closed(tree: Tree) -> Tree:
    """A tree that may stand in any place."""
    return tree if isinstance(tree, _CLOSED) else exp.Paren(this=tree)


def literal_kind(text: str) -> Kind:
    """The type of a number as it is written."""
    match = re.fullmatch(r"-?(\d+)(?:\.(\d+))?", text)
    if match is None:
        raise InexactError(f"the constant {text}")
    places = len(match[2] or "")
    return decimal(len(match[1].lstrip("0")) + places, places)


def shown_as(tree: Tree) -> str:
    """An expression for a reason, with what its columns are called."""

    def bare(node: Tree) -> Tree:
        if isinstance(node, exp.Column):
            return dialect.reference(node.name.partition("\0")[0])
        return node

    text = dialect.write(tree.copy().transform(bare))
    return text if len(text) <= 60 else f"{text[:57]}..."
