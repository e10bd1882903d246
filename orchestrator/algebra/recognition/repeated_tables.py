"""A table that is joined with itself by a key is read once."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.scan import Scan
from orchestrator.algebra.recognition.blocks import Block
from orchestrator.algebra.scalar import Scalar, filled, unwrapped


def drop_repeated(block: Block) -> None:
    """Replace the columns of a scan by those of another scan that has the same row.

    >>> from orchestrator.algebra.columns import Symbols
    >>> from orchestrator.algebra.copies import copied
    >>> from orchestrator.algebra.examples import DEVICES, DID
    >>> again, new = copied(DEVICES, Symbols(["did", "category", "devices"]))
    >>> block = Block([DEVICES, again], [filled("x = y", x=DID, y=new[DID])])
    >>> drop_repeated(block)
    >>> [leaf.label for leaf in block.leaves], block.conditions, block.defined[new[DID]]
    (['devices'], [], Scalar(did))
    """
    while _drop_first(block):
        pass


def _drop_first(block: Block) -> bool:
    scans = [leaf for leaf in block.leaves if isinstance(leaf, Scan)]
    for first, second in combinations(scans, 2):
        if (first.table, first.only) == (second.table, second.only) and _same_row(
            first, second, block.equal
        ):
            _merge(block, first, second)
            return True
    return False


def _same_row(first: Scan, second: Scan, equal: list[set[Column]]) -> bool:
    return any(
        all(
            any({first.at(attnum), second.at(attnum)} <= members for members in equal)
            for attnum in key
        )
        for key in first.table.keys
    )


def _merge(block: Block, first: Scan, second: Scan) -> None:
    known = {output.attnum: output.column for output in first.outputs}
    added = tuple(output for output in second.outputs if output.attnum not in known)
    block.leaves.remove(second)
    block.leaves[block.leaves.index(first)] = replace(first, outputs=(*first.outputs, *added))
    block.substitute(
        {
            output.column: Scalar.column(known[output.attnum])
            for output in second.outputs
            if output.attnum in known
        }
    )
    not_null = frozenset[Column]().union(*(leaf.not_null for leaf in block.leaves))
    conditions: dict[Scalar, None] = {}
    for condition in block.conditions:
        same = _compared_with_itself(condition)
        if same is None:
            conditions[condition] = None
        elif same not in not_null:
            conditions[filled("x IS NOT NULL", x=same)] = None
    block.conditions = list(conditions)


def _compared_with_itself(condition: Scalar) -> Column | None:
    """Return the column that an equality has on both sides."""
    sides = condition.sides if "OR" not in unwrapped(condition.tree).sql() else None
    if sides is None or sides[0].as_column != sides[1].as_column:
        return None
    return sides[0].as_column
