"""Moves each condition as far down as possible, so that inner joins have join conditions.

`FROM a, b, c WHERE ...` is a selection over two products. Conditions that read one input become
selections on it, and conditions that read several become join conditions. An input is joined when a
condition connects it with the inputs joined before. Conditions from outside an outer join only move
to its preserved side.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.antisemijoin import Antisemijoin
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.dependent_join import DependentJoin
from orchestrator.algebra.operators.join import Join
from orchestrator.algebra.operators.left_join import LeftJoin
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.operators.semijoin import Semijoin
from orchestrator.algebra.plan import Plan
from orchestrator.algebra.scalar import TRUE, Scalar, conjunction, disjunction
from orchestrator.algebra.traversal import rewrite


def arrange_joins(plan: Plan) -> Plan:
    """Return the plan with each condition as low as possible.

    >>> from orchestrator.algebra.examples import CATEGORY, DEVICE, DEVICES, DEVICES_PARTS, DID
    >>> from orchestrator.algebra.printer import print_plan
    >>> product = Join(DEVICES_PARTS, DEVICES)
    >>> condition = Scalar.read("((device = did) AND (category = 'phone'))", [DEVICE, DID, CATEGORY])
    >>> print(print_plan(arrange_joins(Plan(Selection(product, condition), ("did",), (DID,))), ids=False))
    view did (hidden: device, part, category)
    └─ ⋈ device = did
       ├─ scan devices_parts
       └─ σ category = 'phone'
          └─ scan devices
    """
    return replace(plan, root=rewrite(plan.root, _arranged))


def _arranged(operator: Operator) -> Operator:
    if not isinstance(operator, Selection | Join):
        return operator
    return joined_on(*flattened(operator))


def flattened(operator: Operator) -> tuple[list[Operator], list[Scalar]]:
    """Return the inputs and all conditions of adjacent inner joins and selections."""
    if isinstance(operator, Selection):
        inputs, conditions = flattened(operator.input)
        return inputs, [*conditions, *operator.condition.conjuncts]
    if isinstance(operator, Join):
        left, left_conditions = flattened(operator.left)
        right, right_conditions = flattened(operator.right)
        own = [] if operator.condition == TRUE else operator.condition.conjuncts
        return left + right, [*left_conditions, *right_conditions, *own]
    return [operator], []


def _with_condition(operator: Operator, condition: Scalar) -> Operator:
    """Add a condition to an input, below joins that preserve the columns that it reads."""
    if isinstance(operator, LeftJoin | DependentJoin | Semijoin | Antisemijoin):
        own = set(operator.columns)
        if condition.references & own <= set(operator.left.columns):
            return replace(operator, left=_arranged(Selection(operator.left, condition)))
    if isinstance(operator, Selection):
        return replace(operator, condition=conjunction([operator.condition, condition]))
    return Selection(operator, condition)


def joined_on(inputs: Sequence[Operator], conditions: Iterable[Scalar]) -> Operator:
    """Return the inner join of some inputs, starting with the first, with each condition as low as
    possible.
    """
    inputs = list(inputs)
    waiting = []
    conditions = list(conditions)
    implied = [part for condition in conditions for part in _implied(condition, inputs)]
    for condition in dict.fromkeys([*conditions, *implied]):
        readers = [n for n, rows in enumerate(inputs) if condition.references & set(rows.columns)]
        if len(readers) == 1:
            inputs[readers[0]] = _with_condition(inputs[readers[0]], condition)
        else:
            waiting.append(condition)
    return _joined(inputs, waiting)


def _implied(condition: Scalar, inputs: Sequence[Operator]) -> Iterator[Scalar]:
    """Yield the conditions that a disjunction over several inputs implies for each input.

    >>> from orchestrator.algebra.examples import CATEGORY, DEVICE, DEVICES, DEVICES_PARTS, PART
    >>> text = "((category = 'a') AND (part > 1)) OR ((category = 'b') AND (device = 2))"
    >>> choice = Scalar.read(text, [CATEGORY, PART, DEVICE])
    >>> [*_implied(choice, [DEVICES, DEVICES_PARTS])]
    [Scalar((category = 'a') OR (category = 'b')), Scalar((part > 1) OR (device = 2))]
    """
    choices = condition.disjuncts
    if len(choices) < 2 or condition.subqueries:
        return
    for input_ in inputs:
        columns = set(input_.columns)
        own = [
            conjunction(
                part for part in choice.conjuncts if part.references and part.references <= columns
            )
            for choice in choices
        ]
        if TRUE not in own and not condition.references <= columns:
            yield disjunction(dict.fromkeys(own))


def _joined(inputs: Sequence[Operator], conditions: list[Scalar]) -> Operator:
    rows, *rest = inputs
    while rest:
        known = set(rows.columns)
        following = next(
            (input_ for input_ in rest if _connects(conditions, known, input_)), rest[0]
        )
        rest.remove(following)
        own, conditions = _divided(conditions, known | set(following.columns))
        rows = Join(rows, following, conjunction(own))
    return Selection(rows, conjunction(conditions)) if conditions else rows


def _connects(conditions: Sequence[Scalar], known: set[Column], other: Operator) -> bool:
    columns = set(other.columns)
    return any(
        condition.references & known and condition.references & columns for condition in conditions
    )


def _divided(
    conditions: Sequence[Scalar], columns: set[Column]
) -> tuple[list[Scalar], list[Scalar]]:
    """Return the conditions that a join with these columns can check, and the remaining conditions."""
    own: list[Scalar] = []
    later: list[Scalar] = []
    for condition in conditions:
        ready = not condition.subqueries and condition.references <= columns
        (own if ready and condition.references else later).append(condition)
    return own, later
