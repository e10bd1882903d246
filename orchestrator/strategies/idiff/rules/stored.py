"""Operators whose result is stored, because its change is not a matter of the diffs alone."""

from __future__ import annotations

from functools import singledispatch

from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.unsupported import NotModelledError
from orchestrator.deltascript.leaves import StateScan
from orchestrator.engine.composer import Composer


@singledispatch
def maintain(operator: Operator, composer: Composer, role: str) -> StateScan:
    """Stores an operator's result, adds the steps that keep it, and says where it is.

    The input is linear by then: its change can be had as a bag.
    """
    raise NotModelledError("there is no rule for this operator", operator.label)


@singledispatch
def is_whole(operator: Operator) -> bool:
    """Whether the rule of an operator that is stored sees to all that is below it."""
    return len(operator.children) > 1


@singledispatch
def refer(operator: Operator, stored: StateScan, composer: Composer) -> StateScan:
    """A reference to a result that is stored once and read at several places."""
    raise NotModelledError("there is no rule for this operator", operator.label)


@singledispatch
def not_added(operator: Operator, composer: Composer) -> frozenset[Column] | None:
    """The columns that an operator does more with than adding up; None if it may look at all again."""
    return None
