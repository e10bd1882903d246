"""INTERSECT and EXCEPT by counting: γ over both sides, with the number of rows from each side.

Rows are equal as in GROUP BY. R ∩ S are the groups that both sides have; R − S are the groups that
only the left side has. With ALL, a row occurs as often as the smaller count, or the difference.
"""

from __future__ import annotations

from orchestrator.algebra.columns import Column, Symbols
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.difference import Difference
from orchestrator.algebra.operators.evaluation import Expansion
from orchestrator.algebra.operators.function_scan import FunctionScan
from orchestrator.algebra.operators.group import Aggregate, Grouping
from orchestrator.algebra.operators.project import Item, Projection, over
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.operators.set_operation import Branch, TwoBranches
from orchestrator.algebra.operators.union_all import UnionAll
from orchestrator.algebra.scalar import Scalar, filled


def without_set_operation(operation: TwoBranches, symbols: Symbols) -> Operator:
    """Return INTERSECT or EXCEPT as a grouping.

    >>> from orchestrator.algebra.examples import DEVICE, DEVICES, DEVICES_PARTS, DID
    >>> from orchestrator.algebra.plan import Plan
    >>> from orchestrator.algebra.printer import print_plan
    >>> sides = Branch(DEVICES, (DID,)), Branch(DEVICES_PARTS, (DEVICE,))
    >>> plan = without_set_operation(Difference(*sides, (Column("id"),)), Symbols())
    >>> print(print_plan(Plan(plan, ("id",), plan.columns), ids=False))
    view id
    └─ π id
       └─ σ l > 0 AND r = 0
          └─ γ id; count(*) FILTER(WHERE side = 0) → l, count(*) FILTER(WHERE side = 1) → r
             └─ ∪ → id side
                ├─ π did, 0 → side_2
                │  └─ scan devices
                └─ π device, 1 → side_3
                   └─ scan devices_parts
    """
    side = _integer_column(symbols, "side", "integer")
    branches = []
    for position, branch in enumerate((operation.left, operation.right)):
        own = _integer_column(symbols, "side", "integer")
        passed = map(Item.kept, dict.fromkeys(branch.columns))
        rows = Projection(branch.input, (*passed, Item(own, Scalar.read(str(position)))))
        branches.append(Branch(rows, (*branch.columns, own)))
    both = UnionAll(tuple(branches), (*operation.outputs, side))
    left, right = (_integer_column(symbols, name, "bigint") for name in ("l", "r"))
    counts = tuple(
        Aggregate(column, filled(f"count(*) FILTER (WHERE side = {number})", side=side))
        for number, column in enumerate((left, right))
    )
    groups = Grouping(both, operation.outputs, counts)
    is_difference = isinstance(operation, Difference)
    if not operation.all:
        where = filled("l > 0 AND r = 0" if is_difference else "l > 0 AND r > 0", l=left, r=right)
        return over(Selection(groups, where), operation.outputs)
    times = filled("l - r" if is_difference else "least(l, r)", l=left, r=right)
    present = Selection(groups, filled("n > 0", n=times))
    nth = Column(symbols.fresh("copy"))
    call = filled("generate_series(1::bigint, n)", n=times)
    copies = FunctionScan((call,), symbols.fresh("copies"), (nth,))
    return over(Expansion(present, copies), operation.outputs)


def _integer_column(symbols: Symbols, wanted: str, kind: str) -> Column:
    return Column(symbols.fresh(wanted), kind, "integer_ops", exact=True)
