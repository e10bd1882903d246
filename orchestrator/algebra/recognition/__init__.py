"""Recognition: rewrites joins and groupings, so that different writings of a query have one plan.

`recognize` rewrites a lowered plan. View trees and heavy and light parts read the result. Each rewrite
preserves rows, duplicates and types, and the identities of the columns that a plan shows. What no rewrite
applies to stays, and the strategies say why they cannot read it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from orchestrator.algebra.columns import Column
from orchestrator.algebra.ids import used_symbols
from orchestrator.algebra.lowering.ctes import inlined, is_cheap
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.cte_scan import CteScan
from orchestrator.algebra.operators.distinct import Distinct
from orchestrator.algebra.operators.evaluation import Expansion
from orchestrator.algebra.operators.group import Grouping
from orchestrator.algebra.operators.join import Join
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.operators.scan import Scan
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.operators.sort import Sort
from orchestrator.algebra.plan import Plan, once
from orchestrator.algebra.recognition.blocks import Block, flattened
from orchestrator.algebra.recognition.computed_keys import compute_keys
from orchestrator.algebra.recognition.group_lookups import lift_lookups
from orchestrator.algebra.recognition.lateral_rows import is_single_row, without_expansion
from orchestrator.algebra.recognition.local_conditions import make_local
from orchestrator.algebra.recognition.null_equality import without_null_equality
from orchestrator.algebra.recognition.repeated_tables import drop_repeated
from orchestrator.algebra.recognition.split_sums import split_sums
from orchestrator.algebra.recognition.timed_rows import join_clocks
from orchestrator.algebra.scalar import TRUE
from orchestrator.algebra.traversal import rewrite, walk
from orchestrator.algebra.unsupported import NotModelledError


@once
def recognize(plan: Plan) -> Plan:
    """Return the plan with its joins and groupings in the form that normal forms are read from.

    >>> from orchestrator.algebra.examples import DEVICES, DEVICES_PARTS, DEVICE, DID
    >>> from orchestrator.algebra.operators.semijoin import Semijoin
    >>> from orchestrator.algebra.printer import print_plan
    >>> from orchestrator.algebra.scalar import Scalar
    >>> rows = Semijoin(DEVICES_PARTS, DEVICES, Scalar.read("device = did", [DEVICE, DID]))
    >>> print(print_plan(recognize(Plan(rows, ("device",), (DEVICE,))), ids=False))
    view device (hidden: part)
    └─ π device, part
       └─ σ device = did
          └─ ×
             ├─ scan devices_parts
             └─ scan devices
    """
    symbols = used_symbols(plan.root)

    def as_block(rows: Operator) -> Block:
        """Return a join as a block on which all rewrites of joins were done."""
        block = flattened(rows)
        join_clocks(block, symbols)
        without_null_equality(block)
        drop_repeated(block)
        make_local(block)
        compute_keys(block, symbols)
        return block

    def changed(operator: Operator) -> Operator:
        if isinstance(operator, Join) and is_single_row(operator.left):
            # A scalar subquery in SELECT without FROM joins the empty row.
            rows = operator.right
            return rows if operator.condition == TRUE else Selection(rows, operator.condition)
        if isinstance(operator, CteScan) and is_cheap(operator.shared.input):
            return inlined(operator, symbols)
        if isinstance(operator, Expansion) and not operator.watched:
            return without_expansion(operator, symbols)
        if isinstance(operator, Distinct) and operator.input.keys:
            return operator.input
        if not isinstance(operator, Grouping):
            return operator
        if not operator.aggregates and operator.input.keys & {frozenset(operator.by)}:
            return Projection(operator.input, tuple(map(_kept, operator.by)))
        try:
            block = as_block(operator.input)
            return lift_lookups(split_sums(operator, block, symbols), block)
        except NotModelledError:
            return operator

    root = rewrite(plan.root, changed, subqueries=False)
    if not any(isinstance(operator, Grouping) for operator in walk(root, subqueries=False)):
        root = _rows(root, as_block)
    return plan if root == plan.root else replace(plan, root=root)


def _kept(column: Column) -> Item:
    return Item.kept(column)


def _rows(root: Operator, as_block: Callable[[Operator], Block]) -> Operator:
    """Return a query without groups with its joins rewritten."""
    if isinstance(root, Sort | Projection):
        below = root.children[0]
        if isinstance(below, Sort | Projection):
            return root.with_children((_rows(below, as_block),))
        columns, rows = below.columns, below
    else:
        columns, rows = root.columns, root
    try:
        block = as_block(rows)
    except NotModelledError:
        return root
    if block.lookups:
        return root
    # Nothing above shows a column of a clock, which is part of a leaf now.
    clocks = (scan for scan in walk(rows) if isinstance(scan, Scan) and scan.is_clock)
    hidden = {column for clock in clocks for column in clock.columns}
    rewritten = block.rows(column for column in columns if column not in hidden)
    return root.with_children((rewritten,)) if rows is not root else rewritten
