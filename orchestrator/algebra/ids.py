"""Pass 1 of papers/idivm.txt, section 4: IDs for the view and all intermediate results.

Every operator has a rule (table 1) that says which columns identify its rows, given those of its
inputs. Where a result lacks such a column, the plan is extended to carry it.
"""

from __future__ import annotations

from dataclasses import replace

from orchestrator.algebra.columns import Column, Symbols
from orchestrator.algebra.operators.base import Identified, Operator
from orchestrator.algebra.operators.cte_scan import CteScan
from orchestrator.algebra.plan import Plan, once
from orchestrator.algebra.traversal import fold, walk
from orchestrator.algebra.unsupported import NotModelledError, Unsupported


@once
def infer_ids(plan: Plan) -> Plan | Unsupported:
    """The plan extended so that every result carries its IDs.

    The view of the paper's running example has them; without `pid`, it is added.

    >>> from orchestrator.algebra.examples import running_example
    >>> plan = infer_ids(running_example("did", "price"))
    >>> [str(column) for column in plan.hidden]
    ['pid']
    >>> [str(column) for column in ids_of(plan.root)]
    ['pid', 'did']
    """
    symbols = used_symbols(plan.root)
    shared: dict[str, Identified] = {}

    def visit(operator: Operator) -> Identified:
        if isinstance(operator, CteScan):
            # All references to a shared subplan share its extension too.
            if operator.name not in shared:
                shared[operator.name] = visit(operator.shared.input)
            return operator.identified((shared[operator.name],), symbols)
        return operator.identified(tuple(map(visit, operator.children)), symbols)

    try:
        return replace(plan, root=visit(plan.root).operator)
    except NotModelledError as error:
        return error.unsupported


def ids_of(operator: Operator) -> tuple[Column, ...]:
    """The columns that identify the rows of an operator in a plan that carries its IDs.

    The rules change such a plan no more. A table without a key has none by itself.
    """
    symbols = used_symbols(operator)
    ids = fold(operator, lambda one, inputs: one.identified(inputs, symbols)).ids
    return ids if set(ids) <= set(operator.columns) else ()


def used_symbols(plan: Operator) -> Symbols:
    """What gives out further symbols for a plan."""
    taken: set[str] = set()
    for operator in walk(plan):
        taken.update(column.symbol for column in operator.columns)
        taken.update({getattr(operator, "alias", ""), getattr(operator, "name", "")})
    return Symbols(taken)
