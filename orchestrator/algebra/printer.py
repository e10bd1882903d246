"""Plans for people and for programs.

As in figure 5a of papers/idivm.txt, every operator stands with the IDs of its result, here in
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
    """The plan as an indented tree, extended by its IDs where it can be.

    Subqueries of expressions hang below the operator that evaluates them, as `$1`, `$2`, ...
    """
    found = infer_ids(plan) if ids else plan
    shown = plan if isinstance(found, Unsupported) else found
    marks = _ids_text if ids and not isinstance(found, Unsupported) else None
    lines = [(_header(shown), ""), *_tree(shown.root, "", True, "", marks, set())]
    width = max(len(text) for text, _ in lines[1:]) + _GAP
    text = [f"{line.ljust(width)}{mark}".rstrip() for line, mark in lines]
    if isinstance(found, Unsupported):
        text.append(f"(no IDs: {found})")
    return "\n".join(text)


def _header(plan: Plan) -> str:
    pairs = zip(plan.names, plan.columns, strict=True)
    shown = [name if name == str(column) else f"{name} = {column}" for name, column in pairs]
    hidden = f" (hidden: {listed(plan.hidden)})" if plan.hidden else ""
    return f"view {', '.join(shown)}{hidden}".rstrip()


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
    shown, subqueries = _numbered(operator)
    label = f"scan {shown.label}" if isinstance(shown, Scan) else shown.label
    yield f"{indent}{'└─ ' if last else '├─ '}{title}{label}", marks(operator) if marks else ""
    below = indent + ("   " if last else "│  ")
    inner = [(f"${number}: ", plan) for number, plan in enumerate(subqueries, 1)]
    if not (isinstance(operator, CteScan) and operator.name in printed):
        inner += [("", child) for child in operator.children]
    if isinstance(operator, CteScan):
        printed.add(operator.name)
    for position, (name, child) in enumerate(inner, 1):
        # A subquery identifies no rows of the view; its own IDs would only distract. The parts of
        # a recursion have none.
        bare = name or isinstance(operator, Recursion)
        yield from _tree(
            child, below, position == len(inner), name, None if bare else marks, printed
        )


def _numbered(operator: Operator) -> tuple[Operator, list[Operator]]:
    """The operator with all its subqueries numbered through, and their plans."""
    plans: list[Operator] = []

    def numbered(scalar: Scalar) -> Scalar:
        first = len(plans) + 1
        plans.extend(subquery.plan for subquery in scalar.subqueries)
        return scalar.numbered_from(first) if first > 1 and scalar.subqueries else scalar

    return operator.map_scalars(numbered), plans


def to_json(plan: Plan) -> dict[str, Any]:
    """The plan as plain values. What references to a common table expression share stands with the first.

    >>> from orchestrator.algebra.examples import running_example
    >>> made = to_json(running_example("did"))
    >>> made["hidden"], made["root"]["operator"], made["root"]["ids"]
    (['pid'], 'Projection', ['pid', 'did'])
    """
    found = infer_ids(plan)
    identified = not isinstance(found, Unsupported)
    shown = plan if isinstance(found, Unsupported) else found
    value: dict[str, Any] = {
        "names": list(shown.names),
        "columns": _symbols(shown.columns),
        "hidden": _symbols(shown.hidden),
        "root": _operator_json(shown.root, identified, set()),
    }
    if isinstance(found, Unsupported):
        value["no_ids"] = {"reason": found.reason, "where": found.where}
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
