"""Pass 1 of papers/idivm.txt, section 4: infer IDs for the view and all intermediate results.

Each operator has a rule (table 1) that derives its IDs from those of its inputs. If a result lacks
an ID column, the plan is extended to carry it.
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
    """Return the plan, extended so that each result carries its IDs.

    The view of the paper's running example carries its IDs; without `pid`, the column is added.

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
            # All references to a shared subplan share its extension.
            if operator.name not in shared:
                shared[operator.name] = visit(operator.shared.input)
            return operator.identified((shared[operator.name],), symbols)
        return operator.identified(tuple(map(visit, operator.children)), symbols)

    try:
        return replace(plan, root=visit(plan.root).operator)
    except NotModelledError as error:
        return error.unsupported


def ids_of(operator: Operator) -> tuple[Column, ...]:
    """Return the columns that identify the rows of an operator in a plan that carries its IDs.

    The rules do not change such a plan again. A scan of a table without a key has no IDs.
    """
    ids = _identified(operator).ids
    return ids if set(ids) <= set(operator.columns) else ()


def _identified(operator: Operator) -> Identified:
    """Return an operator with its IDs.

    The result is cached in the operator, because each operator above needs it again.
    """

    if _CACHE_NAME in operator.__dict__:
        cached_ids: Identified = operator.__dict__[_CACHE_NAME]
        return cached_ids

    def identify(node: Operator, inputs: tuple[Identified, ...]) -> Identified:
        if _CACHE_NAME not in node.__dict__:
            identified = node.identified(inputs, _LazySymbols(node))
            # Keep this object, whose derived facts are already computed.
            node.__dict__[_CACHE_NAME] = (
                Identified(node, identified.ids) if identified.operator == node else identified
            )
        result: Identified = node.__dict__[_CACHE_NAME]
        return result

    return fold(operator, identify)


_CACHE_NAME = "cached_identified"


class _LazySymbols(Symbols):
    """Symbols that collect the names used in a plan only when a name is needed, which is rare."""

    def __init__(self, plan: Operator) -> None:
        super().__init__()
        self._plan: Operator | None = plan

    def fresh(self, *wanted: str) -> str:
        """Return a free name, as `Symbols.fresh` does."""
        if self._plan is not None:
            self._taken = used_symbols(self._plan)._taken
            self._plan = None
        return super().fresh(*wanted)


def used_symbols(plan: Operator) -> Symbols:
    """Return the symbols for a plan, with all its names taken."""
    taken: set[str] = set()
    for operator in walk(plan):
        taken.update(column.symbol for column in operator.columns)
        taken.update({getattr(operator, "alias", ""), getattr(operator, "name", "")})
    return Symbols(taken)
