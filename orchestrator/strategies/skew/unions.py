"""The maintenance plan of a hierarchical query (papers/hierarchical-queries.txt, section 5).

The leaves of the trees, atoms and heavy indicators, change in sequence. Each change is carried up while all
other leaves stay as they are:

1. The change of each atom is summed up, and the degrees are updated; then N follows the size.
2. Values become heavy or light (figure 15): the light view loses or gains the join for these values, and
   views over the indicator gain or lose it.
3. The change of each atom is carried up (figure 14), into the light views for light values only.

So a value changes its part before the change that causes this is applied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.scalar import filled
from orchestrator.deltascript.leaves import StateScan
from orchestrator.deltascript.plan import (
    Enumeration,
    MaintenancePlan,
    Reason,
    Strategy,
    Walk,
)
from orchestrator.strategies.factorized.shown import show
from orchestrator.strategies.request import PlanningRequest
from orchestrator.strategies.skew.exponents import curve_of
from orchestrator.strategies.skew.partition.degrees import Degrees
from orchestrator.strategies.skew.partition.described import with_partitioning
from orchestrator.strategies.skew.partition.split import rows_of
from orchestrator.strategies.skew.show import drawn
from orchestrator.strategies.skew.union_plan import Division, Tree, UnionPlan, parents
from orchestrator.strategies.viewtree.form import NormalForm
from orchestrator.strategies.viewtree.relation import Content, Relation
from orchestrator.strategies.viewtree.sums import COUNT, Payload
from orchestrator.strategies.viewtree.tree import View
from orchestrator.strategies.viewtree.views import Views


class Unions:
    """Builds the states and steps of a union of view trees."""

    def __init__(self, request: PlanningRequest, form: NormalForm, plan: UnionPlan) -> None:
        """Start without states and steps."""
        self.views = Views(request, form, plan.counting)
        self.union = plan
        self.parents = parents(plan.views)
        self.leaves = [view for view in plan.views if not view.children and not view.indicator]
        self.light = {division.light: division for division in plan.divisions}
        self.degrees: Degrees
        """Set only if the query is divided."""
        self.root = None if plan.variables else plan.unions[0][0].root
        """The view that is the content, if the query has no groups."""
        self.content: Content | None = None
        self.views.take_products([leaf.atoms[0] for leaf in self.leaves])

    def plan(self, name: Strategy) -> MaintenancePlan:
        """Return the plan: the states, and the steps that maintain them."""
        union = self.union
        for leaf in self.leaves:
            atom = self.views.atoms[leaf.atoms[0]]
            self.views.defined[leaf] = _without_empty_total(
                self.views.leaf(leaf, atom, atom.rows(atom.scan), None)
            )
        self.views.require_comparable()
        for leaf in self.leaves:
            if leaf in union.stored:
                self.views.store(leaf)
        if union.divisions:
            self.degrees = self._store_heavy_values()
        for view in union.views:
            if view.children:
                self.views.defined[view] = self._definition(view)
                if view in union.stored and view != self.root:
                    self.views.store(view)
        if self.root is None:
            show(self.views, self._query(), union.variables)
        else:
            self.content = self.views.store_content(self.views.defined[self.root])
        self._maintain()
        if union.divisions:
            self._turn()
        plan = self.views.plan(name)
        if union.divisions:
            plan = with_partitioning(self.degrees, plan, {}, curve_of(union.guarantee))
        plan = replace(
            plan,
            program=replace(plan.program, by_lookups=True),
            enumeration=(
                self._enumeration()
                if self.root is None and self.views.form.around is None
                else None
            ),
        )
        reason = Reason(name, True, f"it is hierarchical: {union.guarantee.described}")
        return plan.drawn(drawn(union)).because(reason)

    # States

    def _store_heavy_values(self) -> Degrees:
        """Store the degrees and the heavy values."""
        divisions = self.union.divisions
        degrees = Degrees(
            self.views.composer,
            {division.split: self.union.guarantee.epsilon for division in divisions},
            {division.split: self._rows_of(division) for division in divisions},
            [
                division.split
                for division in divisions
                if not any(other.split.on < division.split.on for other in divisions)
            ],
            is_open=self.views.request.epsilon_is_open and self.union.guarantee.changes,
        )
        for division in divisions:
            self.views.defined[division.heavy] = degrees.heavy(division.split)
        return degrees

    def _rows_of(self, division: Division) -> Relation:
        """Return the values of a division with the number of their rows in each atom."""
        relations = [
            self._current(leaf) for leaf in self.leaves if leaf.atoms[0] in division.split.atoms
        ]
        return rows_of(division.split, relations, self.views.composer)

    def _definition(self, view: View) -> Relation:
        """Return the definition of a view over its children."""
        below = [self._as_child(child, view) for child in view.children]
        joined = self.views.inner(view, below)
        return joined if view == self.root else _without_empty_total(joined)

    def _as_child(self, view: View, parent: View) -> Relation:
        """Return a child for the first computation of its parent: light views only join light values."""
        present = self._current(view)
        division = self.light.get(parent)
        return self.degrees.divided(division.split, present, heavy=False) if division else present

    def _current(self, view: View) -> Relation:
        """Return a view over its state, or else its definition."""
        known = self.views.defined[view]
        return known.at(self.views.states[view]) if view in self.views.states else known

    # Content

    def _query(self) -> Relation:
        """Return the query: the sum of the joins of the views in the trees."""
        summands = [self._product(trees) for trees in self.union.unions]
        if len(summands) == 1 and not self.union.divisions:
            return summands[0]
        return self.views.summed(self._root(summands), summands)

    def _root(self, relations: list[Relation]) -> View:
        return View(frozenset(relations[0].keys), tuple(self.views.atoms))

    def _product(self, trees: tuple[Tree, ...]) -> Relation:
        """Return the rows of a summand; a row occurs once for each of its derivations."""
        views = [view for tree in trees for view in tree.frontier]
        relations = [self._current(view) for view in views]
        rows, bound = self.views.joined(relations)
        keys = {name: bound[name] for name in sorted(self.union.variables)}
        payload: dict[Payload, Column] = {}
        items = [Item.kept(column) for column in keys.values()]
        for part in self.views.payload_of(View(frozenset(keys), tuple(self.views.atoms))):
            parts = (
                (part.within(view.atoms), relation)
                for view, relation in zip(views, relations, strict=True)
            )
            factors = [(own, item.payload[own]) for own, item in parts if not item.exists]
            payload[part] = self.views.column(part)
            items.append(Item(payload[part], part.multiplied(factors)))
        return Relation(Projection(rows, tuple(dict.fromkeys(items))), keys, payload)

    def _enumeration(self) -> Enumeration:
        """Return how the rows are enumerated in sequence."""
        by_column = dict(reversed(self.views.form.groups))
        outputs = ((name, scalar.as_column) for name, scalar in self.views.form.outputs)
        return Enumeration(
            self.union.variables,
            tuple((name, by_column[c]) for name, c in outputs if c is not None and c in by_column),
            tuple(tuple(map(self._walk, trees)) for trees in self.union.unions),
        )

    def _walk(self, tree: Tree) -> Walk:
        """Return a tree as a part of an enumeration; a heavy tree starts with the heavy values."""
        view, below = tree.root, tree.below
        if tree.is_heavy and not tree.is_listed:
            view, below = below[0].root, below[1:]
        relation = self._current(view)
        scan = relation.rows
        assert isinstance(scan, StateScan)
        columns = {name: relation.keys[name] for name in sorted(view.keys)}
        return Walk(
            scan.role,
            tuple((name, scan.called(column)) for name, column in columns.items()),
            tuple(name for name, column in columns.items() if column not in scan.not_null),
            tuple(map(self._walk, below)),
        )

    # Deltas

    def _maintain(self) -> None:
        """Add the steps that maintain all states."""
        deltas: dict[View, Relation] = {}
        for leaf in self.leaves:
            atom = self.views.atoms[leaf.atoms[0]]
            if atom.name in self.views.static:
                continue
            bag = self.views.change_of(atom)
            changed = self.views.leaf(leaf, atom, atom.rows(bag.plan), bag.sign)
            deltas[leaf] = self.views.assigned(leaf, changed)
        major = self._rebalance(deltas) if self.union.divisions else None
        for leaf, delta in deltas.items():
            self._carry(leaf, delta)
        if major is not None:
            self.degrees.end(major)

    def _turn(self) -> None:
        """Add the step that chooses ε by the changes and reads, if it is open."""
        guarantee, views = self.union.guarantee, self.union.content_views
        read, light = (
            sorted(scan.role for scan in scans if isinstance(scan, StateScan))
            for scans in (
                [self._current(view).rows for view in views],
                [self._current(view).rows for view in views if view in self.light],
            )
        )
        self.degrees.turn(read, light or read[:1], guarantee.delta, guarantee.width)

    def _rebalance(self, deltas: Mapping[View, Relation]) -> str | None:
        """Move values between heavy and light; return the variable that has rows if N changes."""
        for division in self.union.divisions:
            changing = [d for leaf, d in deltas.items() if leaf.atoms[0] in division.split.atoms]
            if changing:
                self.degrees.add(division.split, changing)
        if not self.degrees.changes:
            return None
        major = self.degrees.rebalance()
        for division in self.union.divisions:
            self._move(division)
        return major

    def _move(self, division: Division) -> None:
        """Add the steps that move the values of a division, and that update the views."""
        rising = self.degrees.moving[division.split]
        direction = rising.payload[COUNT]
        falling = replace(rising, payload={COUNT: self.views.composer.column("falls")})
        opposite = Item(falling.payload[COUNT], filled("-x", x=direction))
        keys = map(Item.kept, rising.keys.values())
        falling = falling.at(Projection(rising.rows, (*keys, opposite)))
        # Join the light view's children with the change of the indicator.
        view = division.light
        wide = replace(view, children=(division.heavy, *view.children))
        self.views.defined[wide] = self.views.defined[view]
        change = self.views.inner(wide, [falling, *map(self._current, view.children)])
        self._carry(view, self.views.assigned(view, change))
        self._pass_on(division.heavy, rising)
        self.degrees.apply_moves(division.split)

    def _carry(self, view: View, delta: Relation) -> None:
        """Add the steps that apply the change of a view and carry it to the views above."""
        self._pass_on(view, delta)
        if self.content is not None and view == self.root:
            self.views.add(self.content.state, delta, self.content, whole=True)
        elif view in self.views.states:
            self.views.add(self.views.states[view], delta)

    def _pass_on(self, view: View, delta: Relation) -> None:
        for parent in self.parents.get(view, ()):
            children = [
                delta if child == view else self._current(child) for child in parent.children
            ]
            position = parent.children.index(view)
            if parent in self.light:
                # A step of its own, so that heavy values are removed before the join.
                split = self.light[parent].split
                children[position] = self.views.assigned(
                    view, self.degrees.divided(split, delta, heavy=False)
                )
            self._carry(
                parent, self.views.assigned(parent, self.views.inner(parent, children, position))
            )


def _without_empty_total(relation: Relation) -> Relation:
    """Remove the row that a relation without groups has even for no input, because it must not join."""
    if relation.keys:
        return relation
    return relation.at(Selection(relation.rows, filled("x > 0", x=relation.payload[COUNT])))
