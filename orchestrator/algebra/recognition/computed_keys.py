"""Equalities between expressions of two tables, as equalities of computed columns."""

from __future__ import annotations

from sqlglot import exp

from orchestrator.algebra.columns import Column, Symbols
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.predicates import facts
from orchestrator.algebra.recognition.blocks import Block
from orchestrator.algebra.scalar import Scalar, filled, unwrapped


def compute_keys(block: Block, symbols: Symbols) -> None:
    """Compute the sides of an equality in the tables that they read.

    >>> from orchestrator.algebra.examples import DEVICES, DEVICES_PARTS, DEVICE, DID
    >>> same = Scalar.read("lower(device) = did", [DEVICE, DID])
    >>> block = Block([DEVICES_PARTS, DEVICES], [same])
    >>> compute_keys(block, Symbols(["device", "part", "did"]))
    >>> block.leaves[0].label, block.conditions
    ('π device, part, lower(device) → key', [Scalar(key = did)])
    """
    computed: dict[Scalar, Column] = {}
    block.conditions = [
        _with_columns(condition, block, symbols, computed) for condition in block.conditions
    ]


def _with_columns(
    condition: Scalar, block: Block, symbols: Symbols, computed: dict[Scalar, Column]
) -> Scalar:
    tree = unwrapped(condition.tree)
    if not isinstance(tree, exp.EQ) or tree.find(exp.Collate, exp.Any, exp.All, exp.Tuple):
        return condition
    sides = (condition.part(tree.this), condition.part(tree.expression))
    owners = [block.owners(side) for side in sides]
    if any(len(own) != 1 for own in owners) or owners[0] == owners[1]:
        return condition
    if facts(condition, condition.references).equal:
        return condition
    columns = []
    for side, own in zip(sides, owners, strict=True):
        column = side.as_column or computed.get(side)
        if column is None:
            column = computed[side] = Column(symbols.fresh("key"))
            [number] = own
            leaf = block.leaves[number]
            kept = tuple(map(Item.kept, leaf.columns))
            block.leaves[number] = Projection(leaf, (*kept, Item(column, side)))
        columns.append(column)
    return filled("x = y", x=columns[0], y=columns[1])
