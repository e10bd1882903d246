"""References to common table expressions: inlined, or to be stored once.

An expression that is used once, or that is made of joins alone, takes the place of its references.
One that groups or looks at its rows together, and is used several times, stays a shared one.
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
    """Whether a plan may as well be maintained several times."""
    return all(
        isinstance(operator, _CHEAP) and not any(scalar.subqueries for scalar in operator.scalars)
        for operator in walk(plan)
    )


def inlined(reference: CteScan, symbols: Symbols) -> Projection:
    """A reference to a common table expression as a copy of it.

    >>> from orchestrator.algebra.columns import Column
    >>> from orchestrator.algebra.examples import DEVICES, DID
    >>> from orchestrator.algebra.operators.set_operation import Branch
    >>> scan = CteScan("c", Branch(DEVICES, (DID,)), (Column("id"),))
    >>> inlined(scan, Symbols(["did", "category", "devices"])).label
    'π did_2 → id'
    """
    plan, became = copied(reference.shared.input, symbols)
    pairs = reference.shared.renamed(reference.outputs)
    return Projection(plan, tuple(Item(new, Scalar.column(became[old])) for old, new in pairs))
