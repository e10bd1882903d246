"""The two functions of every rule, `propagate` and `change`; each operator's module registers them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch
from typing import Any

from orchestrator.algebra.analysis.flat import flattened
from orchestrator.algebra.columns import Column
from orchestrator.algebra.ids import ids_of
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.project import Projection
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.traversal import walk
from orchestrator.algebra.unsupported import NotModelledError
from orchestrator.engine.composer import Composer
from orchestrator.engine.diffs import Bag, Diff, Update
from orchestrator.engine.leaves import bag_of, diffs_of
from orchestrator.engine.terms import shown


@singledispatch
def propagate(
    operator: Operator, position: int, diff: Diff, composer: Composer
) -> tuple[Diff, ...]:
    """Pass 2: return the diffs of an operator's result that a diff of one input causes."""
    raise NotModelledError("there is no rule for this operator", operator.label)


@singledispatch
def propagate_both(
    operator: Operator, inputs: Sequence[tuple[Diff, ...]], composer: Composer
) -> tuple[Diff, ...]:
    """Return the diffs of a result that follow only from diffs of several inputs together."""
    return ()


@singledispatch
def change(operator: Operator, inputs: tuple[Bag | None, ...], composer: Composer) -> Bag | None:
    """Return the change of an operator's result as a bag, given the changes of its inputs."""
    raise NotModelledError("there is no rule for this operator", operator.label)


def has_rule(rule: Any, operator: Operator) -> bool:
    """Return whether a rule is registered for an operator's class."""
    return rule.dispatch(type(operator)) is not rule.dispatch(object)


@singledispatch
def conditions(operator: Operator) -> tuple[frozenset[Column], ...]:
    """Return the sets of columns whose values decide which rows an operator's result has."""
    return ()


def diffs(
    operator: Operator, conditional: dict[Operator, list[frozenset[Column]]], composer: Composer
) -> tuple[Diff, ...]:
    """Return all diffs of a linear plan's result, given the diffs of its leaves."""
    if not operator.children:
        return diffs_of(operator, conditional.get(operator, []), composer)
    if operator not in composer.diffs:
        inputs = [diffs(child, conditional, composer) for child in operator.children]
        propagated = [
            found
            for position, changes in enumerate(inputs)
            for diff in changes
            for found in propagate(operator, position, diff, composer)
        ]
        propagated += propagate_both(operator, inputs, composer)
        composer.diffs[operator] = tuple(propagated)
    return composer.diffs[operator]


def bag(operator: Operator, composer: Composer) -> Bag | None:
    """Return the change of a linear plan's result as a bag, or None if it never changes."""
    if operator not in composer.bags:
        if not operator.children:
            result = bag_of(operator, composer)
        elif composer.change_of_join is not None and len(flattened(operator).atoms) > 1:
            result = composer.change_of_join(operator, composer)
        else:
            inputs = tuple(bag(child, composer) for child in operator.children)
            result = change(operator, inputs, composer) if any(inputs) else None
        composer.bags[operator] = result
    return composer.bags[operator]


def holds_rows(rows: Operator, update: Update) -> bool:
    """Return whether an update holds exactly rows of a result, with all columns after the change."""
    return update.known_after(rows.columns) and (
        update.present
        or all(isinstance(operator, Projection) or not operator.children for operator in walk(rows))
    )


def rows_after(rows: Operator, update: Update, composer: Composer) -> Operator:
    """Return the rows of a result that an update names, with all columns after the change.

    The update may name rows that are missing from the result, because a selection or semijoin removed
    them.
    """
    if holds_rows(rows, update):
        return shown(update.plan, rows.columns)
    if update.known_after(rows.columns) and isinstance(rows, Selection):
        return Selection(rows_after(rows.input, update, composer), rows.condition)
    return shown(composer.identify(update.plan, rows, update.ids), rows.columns)


def widened(rows: Operator, update: Update, composer: Composer) -> Update:
    """Return an update that holds every column of the result after the change.

    Rows that share the update's IDs may differ in the added columns, so the update lists all of them.
    """
    if update.known_after(rows.columns) and update.present:
        return update
    olds = [old for column, old in update.before.items() if column not in update.ids]
    matched = composer.identify(update.plan, rows, update.ids)
    ids = ids_of(rows)
    before = {**update.before, **{column: column for column in ids}}
    plan = shown(matched, (*rows.columns, *olds))
    return Update(plan, ids, before, update.touched, present=True)
