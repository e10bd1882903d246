"""Operators whose result is stored, because their change cannot be computed from diffs alone."""

from __future__ import annotations

from functools import singledispatch

from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.unsupported import NotModelledError
from orchestrator.deltascript.leaves import StateScan
from orchestrator.engine.composer import Composer


@singledispatch
def maintain(operator: Operator, composer: Composer, role: str) -> StateScan:
    """Store an operator's result, add the steps that maintain it, and return a scan of the state.

    The input must be linear, so its change is available as a bag.
    """
    raise NotModelledError("there is no rule for this operator", operator.label)


@singledispatch
def is_whole(operator: Operator) -> bool:
    """Return whether the rule of a stored operator handles the whole plan below it."""
    return len(operator.children) > 1


@singledispatch
def refer(operator: Operator, stored: StateScan, composer: Composer) -> StateScan:
    """Return a reference to a result that is stored once and read in several places."""
    raise NotModelledError("there is no rule for this operator", operator.label)


@singledispatch
def not_added(operator: Operator, composer: Composer) -> frozenset[Column] | None:
    """Return the columns that an operator does not only add up; None if it may read all columns again."""
    return None
