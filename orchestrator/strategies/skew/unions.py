"""The maintenance plan of a hierarchical query (papers/hierarchical-queries.txt, section 5).

The leaves of the trees, atoms and heavy indicators, change one after the other, and each change is
carried up while all other leaves stand still:

1. the change of each atom is summed up, and with it the degrees change; then N follows the size;
2. values that become heavy or light do so (figure 15): the light view loses or gains what is joined
   for them, and views over the indicator gain or lose it;
3. each atom's change is carried up (figure 14), into the light views for light values alone.

So a value changes its part before the change that makes it do so is applied.
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
from orchestrator.strategies.request import PlanningRequest
from orchestrator.strategies.skew.degrees import Degrees, rows_of
from orchestrator.strategies.skew.hierarchical import Division, Tree, UnionPlan, parents
from orchestrator.strategies.skew.show import drawn
from orchestrator.strategies.viewtree.form import NormalForm
from orchestrator.strategies.viewtree.relation import Relation
from orchestrator.strategies.viewtree.sums import COUNT, Payload
from orchestrator.strategies.viewtree.tree import View
from orchestrator.strategies.viewtree.views import Views


class Unions:
    """A union of view trees being turned into states and steps."""

    def __init__(self, request: PlanningRequest, form: NormalForm, plan: UnionPlan) -> None:
        """Starts with no view."""
        self.views = Views(request, form, plan.counting)
        self.made = plan
        self.parents = parents(plan.views)
        self.leaves = [view for view in plan.views if not view.children and not view.indicator]
        self.light = {division.light: division for division in plan.divisions}
        self.degrees: Degrees
        """Where anything is divided."""
        self.views.take_products([leaf.atoms[0] for leaf in self.leaves])

    def plan(self, name: Strategy) -> MaintenancePlan:
        """The states, and the steps that keep them."""
        made = self.made
        for leaf in self.leaves:
            atom = self.views.atoms[leaf.atoms[0]]
            self.views.defined[leaf] = _some(
                self.views.leaf(leaf, atom, atom.rows(atom.scan), None)
            )
        self.views.require_comparable()
        for leaf in self.leaves:
            if leaf in made.stored:
                self.views.store(leaf)
        if made.divisions:
            self.degrees = self._divided()
        for view in made.views:
            if view.children:
                self.views.defined[view] = self._definition(view)
                if view in made.stored:
                    self.views.store(view)
        self.views.show(self._sum(), made.variables)
        self._follow()
        plan = self.views.plan(name)
        if made.divisions:
            plan = self.degrees.shown(plan, {})
        plan = replace(
            plan,
            program=replace(plan.program, by_lookups=True),
            enumeration=self._enumeration(),
        )
        reason = Reason(name, True, f"it is hierarchical: {made.guarantee.described}")
        return plan.drawn(drawn(made)).because(reason)

    # States

    def _divided(self) -> Degrees:
        """Stores which values are heavy."""
        divisions = self.made.divisions
        degrees = Degrees(
            self.views.composer,
            {item.split: self.made.guarantee.epsilon for item in divisions},
            {item.split: self._rows_of(item) for item in divisions},
            [
                item.split
                for item in divisions
                if not any(other.split.on < item.split.on for other in divisions)
            ],
        )
        for division in divisions:
            self.views.defined[division.heavy] = degrees.heavy(division.split)
        return degrees

    def _rows_of(self, division: Division) -> Relation:
        """The values of a division, and how many rows have them."""
        found = [
            self._present(leaf) for leaf in self.leaves if leaf.atoms[0] in division.split.atoms
        ]
        return rows_of(division.split, found, self.views.composer)

    def _definition(self, view: View) -> Relation:
        """A view over what is below it."""
        below = [self._met(child, view) for child in view.children]
        return _some(self.views.inner(view, below))

    def _met(self, view: View, parent: View) -> Relation:
        """A view as it is, where its parent is first computed."""
        present = self._present(view)
        item = self.light.get(parent)
        return self.degrees.divided(item.split, present, heavy=False) if item else present

    def _present(self, view: View) -> Relation:
        """A view as it is."""
        known = self.views.defined[view]
        return known.at(self.views.states[view]) if view in self.views.states else known

    # Content

    def _sum(self) -> Relation:
        """The query: the sum of the joins of what the trees keep."""
        found = [self._product(trees) for trees in self.made.unions]
        if len(found) == 1 and not self.made.divisions:
            return found[0]
        return self.views.summed(self._root(found), found)

    def _root(self, relations: list[Relation]) -> View:
        return View(frozenset(relations[0].keys), tuple(self.views.atoms))

    def _product(self, trees: tuple[Tree, ...]) -> Relation:
        """The rows of a summand, each for a way in which it comes about."""
        views = [view for tree in trees for view in tree.frontier]
        relations = [self._present(view) for view in views]
        rows, bound = self.views.joined(relations)
        keys = {name: bound[name] for name in sorted({name for _, name in self.views.form.groups})}
        payload: dict[Payload, Column] = {}
        items = [Item.kept(column) for column in keys.values()]
        for part in self.views.payload_of(View(frozenset(keys), tuple(self.views.atoms))):
            held = (
                (part.within(view.atoms), relation)
                for view, relation in zip(views, relations, strict=True)
            )
            factors = [(own, item.payload[own]) for own, item in held if not item.exists]
            payload[part] = self.views.column(part)
            items.append(Item(payload[part], part.multiplied(factors)))
        return Relation(Projection(rows, tuple(dict.fromkeys(items))), keys, payload)

    def _enumeration(self) -> Enumeration:
        """How the rows are found one after the other."""
        by_column = dict(reversed(self.views.form.groups))
        shown = ((name, scalar.as_column) for name, scalar in self.views.form.shown)
        return Enumeration(
            self.made.variables,
            tuple((name, by_column[c]) for name, c in shown if c is not None and c in by_column),
            tuple(tuple(map(self._walk, trees)) for trees in self.made.unions),
        )

    def _walk(self, tree: Tree) -> Walk:
        """A tree as what is walked: of a heavy one the heavy values, and what is below them."""
        view, below = tree.root, tree.below
        if tree.is_heavy:
            view, below = below[0].root, below[1:]
        relation = self._present(view)
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

    def _follow(self) -> None:
        """The steps that bring all states up."""
        deltas: dict[View, Relation] = {}
        for leaf in self.leaves:
            atom = self.views.atoms[leaf.atoms[0]]
            if atom.name in self.views.static:
                continue
            bag = self.views.change_of(atom)
            changed = self.views.leaf(leaf, atom, atom.rows(bag.plan), bag.sign)
            deltas[leaf] = self.views.assigned(leaf, changed)
        major = self._rebalance(deltas) if self.made.divisions else None
        for leaf, delta in deltas.items():
            self._carry(leaf, delta)
        if major is not None:
            self.degrees.end(major)

    def _rebalance(self, deltas: Mapping[View, Relation]) -> str | None:
        """Values become heavy or light; gives the variable that holds something if N changes."""
        for division in self.made.divisions:
            changing = [d for leaf, d in deltas.items() if leaf.atoms[0] in division.split.atoms]
            if changing:
                self.degrees.add(division.split, changing)
        if not self.degrees.changes:
            return None
        major = self.degrees.rebalance()
        for division in self.made.divisions:
            self._move(division)
        return major

    def _move(self, division: Division) -> None:
        """Values become heavy or light, and the views follow."""
        rising = self.degrees.moving[division.split]
        direction = rising.payload[COUNT]
        falling = replace(rising, payload={COUNT: self.views.composer.column("falls")})
        opposite = Item(falling.payload[COUNT], filled("-x", x=direction))
        keys = map(Item.kept, rising.keys.values())
        falling = falling.at(Projection(rising.rows, (*keys, opposite)))
        # The light view, with the indicator as one more child.
        view = division.light
        wide = replace(view, children=(division.heavy, *view.children))
        self.views.defined[wide] = self.views.defined[view]
        made = self.views.inner(wide, [falling, *map(self._present, view.children)])
        self._carry(view, self.views.assigned(view, made))
        self._pass_on(division.heavy, rising)
        self.degrees.settle(division.split)

    def _carry(self, view: View, delta: Relation) -> None:
        """Adds the change of a view to it, and carries it to the views above."""
        self._pass_on(view, delta)
        if view in self.views.states:
            self.views.add(self.views.states[view], delta)

    def _pass_on(self, view: View, delta: Relation) -> None:
        for parent in self.parents.get(view, ()):
            met = [delta if child == view else self._present(child) for child in parent.children]
            place = parent.children.index(view)
            if parent in self.light:
                # Apart, so that no heavy value is joined before it is left out.
                split = self.light[parent].split
                met[place] = self.views.assigned(
                    view, self.degrees.divided(split, delta, heavy=False)
                )
            self._carry(parent, self.views.assigned(parent, self.views.inner(parent, met, place)))


def _some(relation: Relation) -> Relation:
    """Without groups there is a row even of nothing, which no join may meet."""
    if relation.keys:
        return relation
    return relation.at(Selection(relation.rows, filled("x > 0", x=relation.payload[COUNT])))
