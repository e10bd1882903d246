"""The states of a plan over heavy and light parts: the parts, the views over them, and the listed result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from orchestrator.algebra.operators.set_operation import Branch
from orchestrator.algebra.operators.union_all import UnionAll
from orchestrator.deltascript.leaves import StateScan
from orchestrator.strategies.request import PlanningRequest
from orchestrator.strategies.skew.partition.degrees import Degrees
from orchestrator.strategies.skew.partition.split import Split, rows_of
from orchestrator.strategies.skew.shared import twin_state
from orchestrator.strategies.skew.sharing import Sharing, shared_states
from orchestrator.strategies.skew.triangle import (
    HEAVY,
    UNDECIDED,
    Division,
    Rule,
    SkewPlan,
)
from orchestrator.strategies.viewtree.form import NormalForm
from orchestrator.strategies.viewtree.relation import Content, Relation, columns_of
from orchestrator.strategies.viewtree.sums import COUNT
from orchestrator.strategies.viewtree.tree import View
from orchestrator.strategies.viewtree.views import Views


def sized_by(splits: Sequence[Split]) -> list[Split]:
    """Return splits that together count the rows of each atom, and few rows twice.

    >>> splits = [Split(name, tuple(atoms), frozenset(name)) for name, atoms in (("b", "st"), ("a", "s"), ("c", "rt"))]
    >>> [split.name for split in sized_by(splits)]
    ['b', 'c']
    """
    counted: set[str] = set()
    result = []
    for split in sorted(splits, key=lambda split: -len(split.atoms)):
        if not counted.issuperset(split.atoms):
            counted |= set(split.atoms)
            result.append(split)
    return result


class PartStates:
    """Stores the parts of atoms and the views over them."""

    degrees: Degrees
    sharing: Sharing

    def __init__(self, request: PlanningRequest, form: NormalForm, skew: SkewPlan) -> None:
        """Start without states and steps."""
        # Heavy values are handled separately, and the degrees of light values differ little.
        without_common = {
            oid: replace(statistics, common={}) for oid, statistics in request.statistics.items()
        }
        self.views = Views(request, form, skew.counting, without_common)
        self.skew = skew
        self.division = {division.atom: division for division in skew.divisions}
        self.views.take_products([division.atom for division in skew.divisions])
        self.content: Content | None = None
        """The root, if the view shows exactly what the root lists."""
        self.met: Callable[[View], Relation] = self._current
        """What a change meets of a view."""

    def _values_of(self, split: Split) -> Relation:
        """Return the relation by whose values one atom is divided, or several atoms together."""
        relations = [self.views.defined[self.division[atom].whole] for atom in split.atoms]
        if len(relations) == 1:
            return relations[0]
        return rows_of(split, relations, self.views.composer)

    def _divide(self, division: Division) -> None:
        """Store the parts of a relation."""
        for part in division.parts:
            self.views.defined[part] = self._part(
                division, part, self.views.defined[division.whole]
            )
            self._store(part)

    def _sharing(self) -> Sharing:
        """Return which atoms and views are equal."""
        parts = [part for d in self.skew.divisions for part in (d.whole, *d.parts)]
        counting = {v for v in (*parts, *self.skew.views) if self.views.payload_of(v) == (COUNT,)}
        sharing = shared_states(self.skew, self.views.atoms, counting)
        return sharing or Sharing(first={division: division for division in self.skew.divisions})

    def _store(self, view: View) -> None:
        """Store a view, unless an equal view is stored."""
        if view in self.sharing.twins:
            self.views.states[view] = twin_state(self.views, view, self.sharing)
        else:
            self.views.store(view)

    def _part(self, division: Division, part: View, relation: Relation) -> Relation:
        """Return the rows of a part."""
        splits = zip(self.sharing.first[division].splits, division.on, part.part, strict=False)
        for split, on, mark in splits:
            if mark != UNDECIDED:
                relation = self.degrees.divided(split, relation, heavy=mark == HEAVY, on=on)
        return relation

    def _states_of(self, views: Iterable[View]) -> tuple[StateScan, ...]:
        return tuple(self.views.states[view] for view in views)

    def _current(self, view: View) -> Relation:
        """Return a view over its state, or over the stored parts that it consists of."""
        if view in self.views.states:
            return self.views.defined[view].at(self.views.states[view])
        division = self.division[view.atoms[0]]
        whole = self.views.defined[division.whole]
        return self._union(
            whole, [whole.at(scan) for scan in self._states_of(division.within(view))]
        )

    def _union(self, like: Relation, relations: Sequence[Relation]) -> Relation:
        """Return the union of relations with the same columns and disjoint keys."""
        if len(relations) == 1:
            return relations[0]
        columns = columns_of(like)
        return like.at(UnionAll(tuple(Branch(item.rows, columns) for item in relations), columns))

    def _define_root(self) -> Relation:
        """Define the listed result; the parts join as for a change of the first atom."""
        root = self.skew.root
        rules = self.skew.rules[self.skew.divisions[0].atom]
        relations = [self._joined(rule, self._current(rule.part)) for rule in rules]
        self.views.defined[root] = self.views.summed(root, relations)
        return self.views.defined[root]

    def _joined(self, rule: Rule, delta: Relation, root: View | None = None) -> Relation:
        """Return what rows of a part, joined with the other parts of a rule, add to a view.

        Without a view, this is what they add to the listed result.
        """
        above = root or self.skew.root
        view = View(above.keys, above.atoms, (rule.part, *rule.met))
        if root is not None:
            self.views.defined[view] = self.views.defined[root]
        return self.views.inner(view, [delta, *map(self.met, rule.met)], as_listed=True)
