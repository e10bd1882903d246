"""References to common table expressions: replaced by copies, or stored once.

An expression that is used once, or that only contains joins, replaces its references. An expression
that is used several times and groups or compares rows stays shared.
"""

from __future__ import annotations

from orchestrator.algebra.columns import Symbols
from orchestrator.algebra.copies import copied
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.cte_scan import CteScan
from orchestrator.algebra.operators.join import Join
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.operators.scan import Scan
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.operators.sort import Sort
from orchestrator.algebra.operators.union_all import UnionAll
from orchestrator.algebra.operators.values import Values
from orchestrator.algebra.scalar import Scalar
from orchestrator.algebra.traversal import walk

_CHEAP = (Scan, Selection, Projection, Join, UnionAll, Sort, Values)


def is_cheap(plan: Operator) -> bool:
    """Return whether a plan is cheap enough to be maintained several times."""
    return all(
        isinstance(operator, _CHEAP) and not any(scalar.subqueries for scalar in operator.scalars)
        for operator in walk(plan)
    )


def inlined(reference: CteScan, symbols: Symbols) -> Projection:
    """Return a copy of a common table expression that replaces a reference to it.

    >>> from orchestrator.algebra.columns import Column
    >>> from orchestrator.algebra.examples import DEVICES, DID
    >>> from orchestrator.algebra.operators.set_operation import Branch
    >>> scan = CteScan("c", Branch(DEVICES, (DID,)), (Column("id"),))
    >>> inlined(scan, Symbols(["did", "category", "devices"])).label
    'π did_2 → id'
    """
    plan, new_columns = copied(reference.shared.input, symbols)
    pairs = reference.shared.renamed(reference.outputs)
    return Projection(plan, tuple(Item(new, Scalar.column(new_columns[old])) for old, new in pairs))
