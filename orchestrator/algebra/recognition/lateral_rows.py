"""Rows that LATERAL computes from each row, as computed columns or as a union."""

from __future__ import annotations

from orchestrator.algebra.columns import Symbols
from orchestrator.algebra.copies import copied
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.evaluation import Expansion
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.operators.scan import Scan
from orchestrator.algebra.operators.set_operation import Branch
from orchestrator.algebra.operators.union_all import UnionAll
from orchestrator.algebra.operators.values import Values
from orchestrator.algebra.scalar import Scalar


def without_expansion(rows: Expansion, symbols: Symbols) -> Operator:
    """Return each row with what a plan without tables returns for it.

    One row of expressions is a projection. Several rows are a union of as many copies of a table.

    >>> from orchestrator.algebra.columns import Column
    >>> from orchestrator.algebra.examples import DEVICES, DID
    >>> key = Projection(Values(((),), ()), (Item(Column("k"), Scalar.read("did + 1", [DID])),))
    >>> without_expansion(Expansion(DEVICES, key), Symbols()).label
    'π did, category, did + 1 → k'
    """
    plan = rows.plan
    kept = tuple(map(Item.kept, rows.input.columns))
    simple = not any(scalar.subqueries for scalar in plan.scalars)
    if isinstance(plan, Projection) and is_single_row(plan.input) and simple:
        return Projection(rows.input, (*kept, *plan.items))
    if not isinstance(plan, Values) or plan.number is not None or not isinstance(rows.input, Scan):
        return rows
    if rows.columns != (*rows.input.columns, *plan.outputs) or not plan.rows:
        return rows
    branches = []
    for values in plan.rows:
        scan, new = copied(rows.input, symbols)
        became = {old: Scalar.column(column) for old, column in new.items()}
        columns = tuple(new[column] for column in rows.input.columns)
        computed = tuple(
            Item(type(column)(symbols.fresh(column.symbol), column.type), value.substitute(became))
            for column, value in zip(plan.outputs, values, strict=True)
        )
        branch = Projection(scan, (*map(Item.kept, columns), *computed))
        branches.append(Branch(branch, branch.columns))
    return UnionAll(tuple(branches), rows.columns)


def is_single_row(rows: Operator) -> bool:
    """Return whether a plan is the one row without columns of a query without FROM."""
    return isinstance(rows, Values) and rows.rows == ((),)
