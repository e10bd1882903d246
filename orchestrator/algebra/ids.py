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
    ids = _identified(operator).ids
    return ids if set(ids) <= set(operator.columns) else ()


def _identified(operator: Operator) -> Identified:
    """Return what the rules make of an operator; kept with it, as every operator above asks again."""

    if _KEPT in operator.__dict__:
        known: Identified = operator.__dict__[_KEPT]
        return known

    def kept(item: Operator, inputs: tuple[Identified, ...]) -> Identified:
        if _KEPT not in item.__dict__:
            made = item.identified(inputs, _Used(item))
            # What is known of the operator is computed already.
            item.__dict__[_KEPT] = Identified(item, made.ids) if made.operator == item else made
        result: Identified = item.__dict__[_KEPT]
        return result

    return fold(operator, kept)


_KEPT = "made_by_rules"


class _Used(Symbols):
    """Symbols that look at what a plan uses when one is wanted, as seldom one is."""

    def __init__(self, plan: Operator) -> None:
        super().__init__()
        self._plan: Operator | None = plan

    def fresh(self, *wanted: str) -> str:
        """The same as of any symbols."""
        if self._plan is not None:
            self._taken = used_symbols(self._plan)._taken
            self._plan = None
        return super().fresh(*wanted)


def used_symbols(plan: Operator) -> Symbols:
    """What gives out further symbols for a plan."""
    taken: set[str] = set()
    for operator in walk(plan):
        taken.update(column.symbol for column in operator.columns)
        taken.update({getattr(operator, "alias", ""), getattr(operator, "name", "")})
    return Symbols(taken)
