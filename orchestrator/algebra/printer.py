"""Plans as text for people and as JSON for programs.

As in figure 5a of papers/idivm.txt, each operator is printed with the IDs of its result, here in
angle brackets.

>>> from orchestrator.algebra.examples import extended_example
>>> print(print_plan(extended_example()))
view did, cost
└─ γ did; sum(price) → cost        ⟨did⟩
   └─ ⋈ device = did               ⟨pid, device⟩
      ├─ ⋈ part = pid              ⟨pid, device⟩
      │  ├─ scan parts             ⟨pid⟩
      │  └─ scan devices_parts     ⟨device, part⟩
      └─ σ category = 'phone'      ⟨did⟩
         └─ scan devices           ⟨did⟩
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from orchestrator.algebra.columns import Column, in_order
from orchestrator.algebra.ids import ids_of, infer_ids
from orchestrator.algebra.operators.base import Operator, listed
from orchestrator.algebra.operators.cte_scan import CteScan
from orchestrator.algebra.operators.recursive import Recursion
from orchestrator.algebra.operators.scan import Scan
from orchestrator.algebra.plan import Plan
from orchestrator.algebra.scalar import Scalar
from orchestrator.algebra.unsupported import Unsupported

_GAP = 5


def print_plan(plan: Plan, ids: bool = True) -> str:
    """Return the plan as an indented tree, extended by its IDs if possible.

    Subqueries of expressions are printed below the operator that evaluates them, as `$1`, `$2`, ...
    """
    with_ids = infer_ids(plan) if ids else plan
    printed_plan = plan if isinstance(with_ids, Unsupported) else with_ids
    marks = _ids_text if ids and not isinstance(with_ids, Unsupported) else None
    lines = [(_header(printed_plan), ""), *_tree(printed_plan.root, "", True, "", marks, set())]
    width = max(len(text) for text, _ in lines[1:]) + _GAP
    text = [f"{line.ljust(width)}{mark}".rstrip() for line, mark in lines]
    if isinstance(with_ids, Unsupported):
        text.append(f"(no IDs: {with_ids})")
    return "\n".join(text)


def _header(plan: Plan) -> str:
    pairs = zip(plan.names, plan.columns, strict=True)
    outputs = [name if name == str(column) else f"{name} = {column}" for name, column in pairs]
    hidden = f" (hidden: {listed(plan.hidden)})" if plan.hidden else ""
    return f"view {', '.join(outputs)}{hidden}".rstrip()


def _ids_text(operator: Operator) -> str:
    if isinstance(operator, Scan) and not operator.table.keys:
        return ""
    return f"⟨{listed(ids_of(operator))}⟩"


Lines = Iterator[tuple[str, str]]


def _tree(
    operator: Operator,
    indent: str,
    last: bool,
    title: str,
    marks: Callable[[Operator], str] | None,
    printed: set[str],
) -> Lines:
    numbered, subqueries = _numbered(operator)
    label = f"scan {numbered.label}" if isinstance(numbered, Scan) else numbered.label
    yield f"{indent}{'└─ ' if last else '├─ '}{title}{label}", marks(operator) if marks else ""
    below = indent + ("   " if last else "│  ")
    inner = [(f"${number}: ", plan) for number, plan in enumerate(subqueries, 1)]
    if not (isinstance(operator, CteScan) and operator.name in printed):
        inner += [("", child) for child in operator.children]
    if isinstance(operator, CteScan):
        printed.add(operator.name)
    for position, (name, child) in enumerate(inner, 1):
        # The IDs of a subquery would distract, because they identify no rows of the view. The parts
        # of a recursion have no IDs.
        bare = name or isinstance(operator, Recursion)
        yield from _tree(
            child, below, position == len(inner), name, None if bare else marks, printed
        )


def _numbered(operator: Operator) -> tuple[Operator, list[Operator]]:
    """Return the operator with its subqueries numbered, and the plans of the subqueries."""
    plans: list[Operator] = []

    def numbered(scalar: Scalar) -> Scalar:
        first = len(plans) + 1
        plans.extend(subquery.plan for subquery in scalar.subqueries)
        return scalar.numbered_from(first) if first > 1 and scalar.subqueries else scalar

    return operator.map_scalars(numbered), plans


def to_json(plan: Plan) -> dict[str, Any]:
    """Return the plan as plain values. A shared subplan is printed at its first reference.

    >>> from orchestrator.algebra.examples import running_example
    >>> value = to_json(running_example("did"))
    >>> value["hidden"], value["root"]["operator"], value["root"]["ids"]
    (['pid'], 'Projection', ['pid', 'did'])
    """
    with_ids = infer_ids(plan)
    identified = not isinstance(with_ids, Unsupported)
    printed_plan = plan if isinstance(with_ids, Unsupported) else with_ids
    value: dict[str, Any] = {
        "names": list(printed_plan.names),
        "columns": _symbols(printed_plan.columns),
        "hidden": _symbols(printed_plan.hidden),
        "root": _operator_json(printed_plan.root, identified, set()),
    }
    if isinstance(with_ids, Unsupported):
        value["no_ids"] = {"reason": with_ids.reason, "where": with_ids.where}
    return value


def _operator_json(operator: Operator, identified: bool, printed: set[str]) -> dict[str, Any]:
    inputs = operator.children
    if isinstance(operator, CteScan):
        inputs = () if operator.name in printed else inputs
        printed.add(operator.name)
    known = operator.dependencies.tidied()
    value: dict[str, Any] = {
        "operator": type(operator).__name__,
        "symbol": operator.symbol,
        "label": operator.label,
        "columns": [
            {"name": c.symbol, "type": c.type, "not_null": c in operator.not_null}
            for c in operator.columns
        ],
        "keys": sorted(_symbols(in_order(key, operator.columns)) for key in operator.keys),
        "dependencies": sorted(str(known).split("; ")) if str(known) else [],
        "inputs": [_operator_json(child, identified, printed) for child in inputs],
        "subqueries": [
            {
                "correlated": sorted(_symbols(q.correlated)),
                "plan": _operator_json(q.plan, False, printed),
            }
            for scalar in operator.scalars
            for q in scalar.subqueries
        ],
    }
    if identified:
        value["ids"] = _symbols(ids_of(operator))
    return value


def _symbols(columns: Iterable[Column]) -> list[str]:
    return [column.symbol for column in columns]
