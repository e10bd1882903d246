"""The decimal scale of numeric expressions, if it is the same for all values.

PostgreSQL stores a decimal scale with each numeric value, and derives the scale of a sum or product
from the scales of the operands. An expression with a known scale is never infinite: a declared
scale excludes infinity, and arithmetic overflow is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from sqlglot import exp

from orchestrator.algebra.dialect import Tree
from orchestrator.algebra.scalar import Scalar, unwrapped

MOST = 1000
"""The greatest scale that can be declared. PostgreSQL truncates products far beyond it."""

_NUMBER = re.compile(r"-?\d+(?:\.(\d*))?")
_DECLARED = re.compile(r"numeric\(\d+(?:,(-?\d+))?\)")
INTEGERS = ("smallint", "integer", "bigint")


def scale(scalar: Scalar, known: Mapping[str, int]) -> int | None:
    """Return the scale of all values of an expression, given the scales of columns by their
    symbols.

    Integers have scale 0.

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
    digits = _scale_of(scalar.tree, known)
    return digits if digits is not None and digits <= MOST else None


def _scale_of(tree: Tree, known: Mapping[str, int]) -> int | None:
    tree = unwrapped(tree)
    match tree:
        case exp.Column():
            return known.get(tree.name)
        case exp.Literal(is_string=False):
            return _literal_scale(tree.name)
        case exp.Neg():
            return _scale_of(tree.this, known)
        case exp.Add() | exp.Sub() | exp.Mul():
            left, right = _scale_of(tree.this, known), _scale_of(tree.expression, known)
            if left is None or right is None:
                return None
            return left + right if isinstance(tree, exp.Mul) else max(left, right)
        case exp.Cast():
            return _cast_scale(unwrapped(tree.this), tree.args["to"].args.get("kind"), known)
        case exp.Case():
            last = tree.args.get("default")
            results = [argument.args["true"] for argument in tree.args["ifs"]]
            return _common_scale([*results, last] if last else results, known)
        case exp.Anonymous(name="COALESCE"):
            return _common_scale(tree.expressions, known)
        case exp.Anonymous(name="round", expressions=[rounded, exp.Literal(is_string=False) as to]):
            return int(to.name) if _scale_of(rounded, known) is not None else None
    return None


def _cast_scale(tree: Tree, kind: object, known: Mapping[str, int]) -> int | None:
    type_ = str(kind)
    if declared := _DECLARED.fullmatch(type_):
        # A negative scale rounds to the left of the decimal point; values then have scale 0.
        return max(0, int(declared[1] or 0))
    if type_ in INTEGERS:
        return 0
    if type_ != "numeric":
        return None
    if isinstance(tree, exp.Literal) and tree.is_string:
        return _literal_scale(tree.name)
    return _scale_of(tree, known)


def _literal_scale(number: str) -> int | None:
    match = _NUMBER.fullmatch(number)
    return len(match[1] or "") if match else None


def _common_scale(trees: Iterable[Tree], known: Mapping[str, int]) -> int | None:
    scales = {_scale_of(tree, known) for tree in trees if not _is_null(tree)}
    return scales.pop() if len(scales) == 1 else None


def _is_null(tree: Tree) -> bool:
    tree = unwrapped(tree)
    return isinstance(tree, exp.Null) or (isinstance(tree, exp.Cast) and _is_null(tree.this))


def digit_of_scale(number: str) -> str:
    """Return 10^12 to the power of the scale of a number, whose sum counts the numbers with each scale.

    A cast from text would take longer than the rest of the sum. In a function, PostgreSQL would not inline the
    expression if `number` is long.
    """
    known = " ".join(f"WHEN {scale} THEN 1e{12 * scale}::numeric" for scale in range(5))
    return f"CASE scale({number}) {known} ELSE ('1e' || (12 * scale({number})))::numeric END"
