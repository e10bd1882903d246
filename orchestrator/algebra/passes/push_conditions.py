"""Puts every condition as low as it goes, so that inner joins join on something.

`FROM a, b, c WHERE ...` is a selection over two products. The conditions that read one input are
selections on it, those that read several are join conditions, and an input is joined when some
condition connects it with what is joined already. An outer join is not crossed from outside,
except towards its preserved side.
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
    """The plan with its conditions where they belong.

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
    """The inputs of a cluster of inner joins and selections, and all its conditions."""
    if isinstance(operator, Selection):
        inputs, conditions = flattened(operator.input)
        return inputs, [*conditions, *operator.condition.conjuncts]
    if isinstance(operator, Join):
        left, above = flattened(operator.left)
        right, further = flattened(operator.right)
        own = [] if operator.condition == TRUE else operator.condition.conjuncts
        return left + right, [*above, *further, *own]
    return [operator], []


def _placed(operator: Operator, condition: Scalar) -> Operator:
    """A condition on one input, below joins that keep the columns that it reads."""
    if isinstance(operator, LeftJoin | DependentJoin | Semijoin | Antisemijoin):
        own = set(operator.columns)
        if condition.references & own <= set(operator.left.columns):
            return replace(operator, left=_arranged(Selection(operator.left, condition)))
    if isinstance(operator, Selection):
        return replace(operator, condition=conjunction([operator.condition, condition]))
    return Selection(operator, condition)


def joined_on(inputs: Sequence[Operator], conditions: Iterable[Scalar]) -> Operator:
    """The inner join of some inputs, the first one first, with every condition as low as it goes."""
    inputs = list(inputs)
    waiting = []
    conditions = list(conditions)
    implied = [found for item in conditions for found in _implied(item, inputs)]
    for condition in dict.fromkeys([*conditions, *implied]):
        readers = [n for n, item in enumerate(inputs) if condition.references & set(item.columns)]
        if len(readers) == 1:
            inputs[readers[0]] = _placed(inputs[readers[0]], condition)
        else:
            waiting.append(condition)
    return _joined(inputs, waiting)


def _implied(condition: Scalar, inputs: Sequence[Operator]) -> Iterator[Scalar]:
    """What a choice between conditions on several inputs asks of each one by itself.

    >>> from orchestrator.algebra.examples import CATEGORY, DEVICE, DEVICES, DEVICES_PARTS, PART
    >>> text = "((category = 'a') AND (part > 1)) OR ((category = 'b') AND (device = 2))"
    >>> choice = Scalar.read(text, [CATEGORY, PART, DEVICE])
    >>> [*_implied(choice, [DEVICES, DEVICES_PARTS])]
    [Scalar((category = 'a') OR (category = 'b')), Scalar((part > 1) OR (device = 2))]
    """
    choices = condition.disjuncts
    if len(choices) < 2 or condition.subqueries:
        return
    for item in inputs:
        columns = set(item.columns)
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
        following = next((item for item in rest if _connects(conditions, known, item)), rest[0])
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
    """The conditions that a join of these columns can check, and those that wait."""
    own: list[Scalar] = []
    later: list[Scalar] = []
    for condition in conditions:
        ready = not condition.subqueries and condition.references <= columns
        (own if ready and condition.references else later).append(condition)
    return own, later
