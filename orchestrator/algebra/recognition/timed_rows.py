"""Conditions on the time belong to the rows of the table that they compare with the clock of the view."""

from __future__ import annotations

from orchestrator.algebra.columns import Symbols
from orchestrator.algebra.copies import copied
from orchestrator.algebra.operators.join import Join
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.operators.scan import Scan
from orchestrator.algebra.recognition.blocks import Block
from orchestrator.algebra.scalar import Scalar, conjunction
from orchestrator.algebra.unsupported import NotModelledError


def join_clocks(block: Block, symbols: Symbols) -> None:
    """Replace each table that is compared with the time by its rows that satisfy these conditions.

    >>> from dataclasses import replace
    >>> from orchestrator.algebra.examples import DEVICES, DEVICES_PARTS, DEVICE, DID
    >>> from orchestrator.algebra.columns import Column
    >>> from orchestrator.algebra.operators.scan import ScanColumn, Table
    >>> bound = Column("e1")
    >>> clock = Scan(Table(0, "s", "c1", keys=((),)), "clock", (ScanColumn(bound, 3, "e1"),))
    >>> conditions = [Scalar.read("device = did", [DEVICE, DID]), Scalar.read("did > e1", [DID, bound])]
    >>> block = Block([DEVICES_PARTS, DEVICES, clock], conditions)
    >>> join_clocks(block, Symbols(["e1"]))
    >>> [leaf.label for leaf in block.leaves], block.conditions
    (['devices_parts', 'π did, category'], [Scalar(device = did)])
    >>> block.leaves[1].input.label
    '⋈ did > e1_2'
    """
    for clock in [leaf for leaf in block.leaves if isinstance(leaf, Scan) and leaf.is_clock]:
        number = block.leaves.index(clock)
        timed: dict[int, list[Scalar]] = {}
        for condition in block.conditions:
            owners = block.owners(condition)
            if number not in owners:
                continue
            if len(owners) != 2:
                raise NotModelledError(
                    "a condition compares several tables with the current time", str(condition)
                )
            [compared] = owners - {number}
            timed.setdefault(compared, []).append(condition)
        for compared, conditions in timed.items():
            leaf = block.leaves[compared]
            single, new = copied(clock, symbols)
            renamed = {column: Scalar.column(other) for column, other in new.items()}
            joined = Join(leaf, single, conjunction(c.substitute(renamed) for c in conditions))
            block.leaves[compared] = Projection(joined, tuple(map(Item.kept, leaf.columns)))
        done = [condition for conditions in timed.values() for condition in conditions]
        block.conditions = [c for c in block.conditions if c not in done]
        block.leaves.remove(clock)
