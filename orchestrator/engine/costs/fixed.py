"""The columns of a diff that have a single value for each changed row of a table.

All rows that such a changed row joins with then belong to one group, which is read once.
"""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.algebra.analysis.flat import flattened
from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.union_all import UnionAll
from orchestrator.algebra.traversal import walk
from orchestrator.caching import cached_property
from orchestrator.deltascript.leaves import DiffScan
from orchestrator.engine.access import known_by
from orchestrator.engine.composer import Composer


class _PlanShape:
    """Facts about a plan that are needed repeatedly."""

    def __init__(self, plan: Operator) -> None:
        self.plan = plan
        self.variables = [
            operator.variable for operator in walk(plan) if isinstance(operator, DiffScan)
        ]
        atoms = flattened(plan, probing=True).atoms
        self.changes = [atom for atom in atoms if isinstance(atom, DiffScan | UnionAll)]
        self._known: dict[frozenset[Column], frozenset[Column]] = {}

    def known_by(self, given: frozenset[Column]) -> frozenset[Column]:
        """Return the columns that some columns of the plan's changes determine."""
        if given not in self._known:
            self._known[given] = known_by(self.plan, given)
        return self._known[given]


class Fixed:
    """The columns that a changed row determines, in a run of a program."""

    def __init__(self, composer: Composer) -> None:
        """Start with only the variables that hold the changes of tables."""
        self.composer = composer
        self.fields: dict[str, frozenset[str]] = {}
        """The fields of other variables that have one value for each changed row."""
        self._shapes: dict[int, _PlanShape] = {}
        """The shapes by the ids of their plans. Storing the plan keeps its id valid."""

    def columns(self, plan: Operator, held: Mapping[str, float]) -> frozenset[Column]:
        """Return the columns of a plan that have a single value for each changed row of a table.

        `held` gives the rows of variables.
        """
        if isinstance(plan, UnionAll):
            branches = [
                {new for old, new in branch.renamed(plan.outputs) if old in fixed}
                for branch in plan.branches
                if all(map(held.get, self._shape(branch.input).variables))
                for fixed in [self.columns(branch.input, held)]
            ]
            return frozenset(set.intersection(*branches)) if branches else frozenset()
        if isinstance(plan, DiffScan):
            if plan.variable in self.changed:
                return frozenset(plan.columns)
            fields = self.fields.get(plan.variable, frozenset())
            return frozenset(column for column, name in plan.outputs if name in fields)
        shape = self._shape(plan)
        fixed = [self.columns(change, held) for change in shape.changes]
        return shape.known_by(frozenset().union(*fixed)) if any(fixed) else frozenset()

    def _shape(self, plan: Operator) -> _PlanShape:
        if id(plan) not in self._shapes:
            self._shapes[id(plan)] = _PlanShape(plan)
        return self._shapes[id(plan)]

    @cached_property
    def changed(self) -> frozenset[str]:
        """The variables that hold the changes of tables."""
        return frozenset(change.variable for change in self.composer.classes.values())
