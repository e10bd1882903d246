"""`x IS NOT DISTINCT FROM y` between tables, as an equality."""

from __future__ import annotations

from sqlglot import exp

from orchestrator.algebra.predicates import never_null
from orchestrator.algebra.recognition.blocks import Block
from orchestrator.algebra.scalar import Scalar, filled, unwrapped

_WRITTEN = frozenset(
    {"smallint", "integer", "bigint", "text", "character varying", "boolean", "uuid"}
)
"""Types whose values are equal if and only if their texts are."""


def without_null_equality(block: Block) -> None:
    """Replace comparisons in which NULL equals NULL.

    If one side is never NULL, NULLs do not matter. Otherwise the sides are compared as SQL constants.

    >>> from orchestrator.algebra.examples import DEVICES, DEVICES_PARTS, DEVICE, DID
    >>> same = Scalar.read("NOT (device IS DISTINCT FROM did)", [DEVICE, DID])
    >>> block = Block([DEVICES_PARTS, DEVICES], [same])
    >>> without_null_equality(block)
    >>> block.conditions
    [Scalar(device = did)]
    """
    block.conditions = [_replaced(condition, block) for condition in block.conditions]


def _replaced(condition: Scalar, block: Block) -> Scalar:
    tree = unwrapped(condition.tree)
    if not isinstance(tree, exp.Not):
        return condition
    tree = unwrapped(tree.this)
    if not isinstance(tree, exp.NullSafeNEQ):
        return condition
    left, right = condition.part(tree.this), condition.part(tree.expression)
    if len(block.owners(condition)) < 2:
        return condition
    if any(never_null(side, block.not_null) for side in (left, right)):
        return filled("x = y", x=left, y=right)
    columns = (left.as_column, right.as_column)
    types = [(c.type or "").partition("(")[0] for c in columns if c is not None and c.exact]
    if len(types) < 2 or not _WRITTEN.issuperset(types):
        return condition
    return filled("quote_nullable(x::text) = quote_nullable(y::text)", x=left, y=right)
