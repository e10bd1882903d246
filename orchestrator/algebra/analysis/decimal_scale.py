"""How many places a numeric expression shows, where that is the same for all its values.

PostgreSQL keeps with each numeric how many places it shows, and derives that of a sum or a product
from those of the operands alone. An expression of this kind is never infinite: a declared scale
admits no infinity, and arithmetic that leaves the range of the type is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from sqlglot import exp

from orchestrator.algebra.dialect import Tree
from orchestrator.algebra.scalar import Scalar, unwrapped

MOST = 1000
"""As many as can be declared. PostgreSQL cuts products off far beyond that."""

_NUMBER = re.compile(r"-?\d+(?:\.(\d*))?")
_DECLARED = re.compile(r"numeric\(\d+(?:,(-?\d+))?\)")
INTEGERS = ("smallint", "integer", "bigint")


def scale(scalar: Scalar, known: Mapping[str, int]) -> int | None:
    """The places that all values of an expression show, given those of columns by their symbols.

    Integers count as numbers that show none.

    >>> from orchestrator.algebra.columns import Column
    >>> price, rate = Column("price", "numeric(15,2)"), Column("rate", "numeric(4,3)")
    >>> def of(text):
    ...     return scale(Scalar.read(text, [price, rate]), {"price": 2, "rate": 3})
    >>> of("price * ((1)::numeric - rate)"), of("price / rate"), of("round((price * rate), 1)")
    (5, None, 1)
    >>> of("CASE WHEN (rate > 1) THEN price ELSE (0)::numeric END"), of("COALESCE(price, 0.00)")
    (None, 2)
    >>> of("CASE WHEN (rate > 1) THEN price ELSE NULL::numeric END")
    2
    >>> of("'0.5'::numeric"), of("(1.5e3)::numeric"), of("(other)::numeric(9,4)"), of("-(other)")
    (1, None, 4, None)
    """
    found = _of(scalar.tree, known)
    return found if found is not None and found <= MOST else None


def _of(tree: Tree, known: Mapping[str, int]) -> int | None:
    tree = unwrapped(tree)
    match tree:
        case exp.Column():
            return known.get(tree.name)
        case exp.Literal(is_string=False):
            return _written(tree.name)
        case exp.Neg():
            return _of(tree.this, known)
        case exp.Add() | exp.Sub() | exp.Mul():
            left, right = _of(tree.this, known), _of(tree.expression, known)
            if left is None or right is None:
                return None
            return left + right if isinstance(tree, exp.Mul) else max(left, right)
        case exp.Cast():
            return _cast(unwrapped(tree.this), tree.args["to"].args.get("kind"), known)
        case exp.Case():
            last = tree.args.get("default")
            found = [argument.args["true"] for argument in tree.args["ifs"]]
            return _same([*found, last] if last else found, known)
        case exp.Anonymous(name="COALESCE"):
            return _same(tree.expressions, known)
        case exp.Anonymous(name="round", expressions=[rounded, exp.Literal(is_string=False) as to]):
            return int(to.name) if _of(rounded, known) is not None else None
    return None


def _cast(tree: Tree, kind: object, known: Mapping[str, int]) -> int | None:
    type_ = str(kind)
    if declared := _DECLARED.fullmatch(type_):
        # A negative scale rounds to the left of the point, and shows no places.
        return max(0, int(declared[1] or 0))
    if type_ in INTEGERS:
        return 0
    if type_ != "numeric":
        return None
    if isinstance(tree, exp.Literal) and tree.is_string:
        return _written(tree.name)
    return _of(tree, known)


def _written(number: str) -> int | None:
    match = _NUMBER.fullmatch(number)
    return len(match[1] or "") if match else None


def _same(trees: Iterable[Tree], known: Mapping[str, int]) -> int | None:
    found = {_of(tree, known) for tree in trees if not _is_null(tree)}
    return found.pop() if len(found) == 1 else None


def _is_null(tree: Tree) -> bool:
    tree = unwrapped(tree)
    return isinstance(tree, exp.Null) or (isinstance(tree, exp.Cast) and _is_null(tree.this))
