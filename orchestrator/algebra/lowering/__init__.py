"""Lowering: rewrites a plan into operators that have maintenance rules.

`lower` applies the rewrites, each of which is a module. They preserve rows, duplicates, types,
NULLs, errors, and the identities of the columns that a plan shows. An operator that no rewrite
applies to stays; a strategy without a rule for it reports that.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from orchestrator.algebra.columns import Symbols
from orchestrator.algebra.ids import used_symbols
from orchestrator.algebra.lowering.ctes import inlined, is_cheap
from orchestrator.algebra.lowering.full_joins import without_full_join
from orchestrator.algebra.lowering.grouping_sets import without_grouping_sets
from orchestrator.algebra.lowering.set_operations import without_set_operation
from orchestrator.algebra.lowering.subqueries import Subqueries
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.cte_scan import CteScan
from orchestrator.algebra.operators.dependent_join import DependentJoin
from orchestrator.algebra.operators.full_join import FullJoin
from orchestrator.algebra.operators.grouping_sets import GroupingSets
from orchestrator.algebra.operators.recursive import Recursion
from orchestrator.algebra.operators.set_operation import TwoBranches
from orchestrator.algebra.passes.push_conditions import arrange_joins
from orchestrator.algebra.plan import Plan, once
from orchestrator.algebra.traversal import walk


@once
def lower(plan: Plan) -> Plan:
    """Return the plan in terms of fewer operators.

    >>> from orchestrator.algebra.examples import DEVICES, DEVICES_PARTS, DEVICE, DID
    >>> from orchestrator.algebra.operators.select import Selection
    >>> from orchestrator.algebra.printer import print_plan
    >>> from orchestrator.algebra.scalar import Scalar, Subquery
    >>> from orchestrator.algebra import dialect
    >>> parts = Selection(DEVICES_PARTS, Scalar.read("device = did", [DEVICE, DID]))
    >>> tree = dialect.parse("SELECT did > 5 OR EXISTS ($1)").expressions[0]
    >>> either = Scalar.of(tree, [DID], (Subquery(parts, (DEVICE,)),))
    >>> print(print_plan(lower(Plan(Selection(DEVICES, either), ("did",), (DID,))), ids=False))
    view did (hidden: category)
    └─ π did, category
       └─ σ value
          └─ ⋈→ π did > 5 OR EXISTS($1) → value
             ├─ scan devices
             └─ scan devices_parts
    """
    names = [operator.name for operator in walk(plan.root) if isinstance(operator, CteScan)]
    lowering = _Lowering(used_symbols(plan.root), Counter(names))
    root = lowering.of(plan.root)
    return plan if root == plan.root else arrange_joins(replace(plan, root=root))


class _Lowering:
    def __init__(self, symbols: Symbols, uses: Counter[str]) -> None:
        self.symbols, self.uses = symbols, uses
        self.subqueries = Subqueries(symbols, self.of)
        self.shared: dict[str, Operator] = {}

    def of(self, plan: Operator) -> Operator:
        """Return the lowered plan, inputs first."""
        if isinstance(plan, Recursion):
            return plan
        if isinstance(plan, CteScan):
            return self._reference(plan)
        if isinstance(plan, DependentJoin):
            # The right side cannot be lowered separately, because it reads columns of the left
            # side.
            return self.subqueries.without(replace(plan, left=self.of(plan.left)))
        plan = plan.with_children(tuple(map(self.of, plan.children)))
        if isinstance(plan, FullJoin):
            return without_full_join(plan, self.symbols)
        if isinstance(plan, TwoBranches):
            return without_set_operation(plan, self.symbols)
        if isinstance(plan, GroupingSets):
            return without_grouping_sets(plan, self.symbols)
        return self.subqueries.without(plan)

    def _reference(self, scan: CteScan) -> Operator:
        if scan.outer_columns:
            return scan
        if self.uses[scan.name] == 1 or is_cheap(scan.shared.input):
            return self.of(inlined(scan, self.symbols))
        if scan.name not in self.shared:
            self.shared[scan.name] = self.of(scan.shared.input)
        return scan.with_children((self.shared[scan.name],))
