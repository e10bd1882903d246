"""The maintenance plan over heavy and light parts of relations.

A batch is a set of changes of each relation, and goes through statements over sets:

1. the change of each relation is summed up; what comes and goes changes the degrees of values;
2. the threshold base N follows the size; if it changes, everything is partitioned anew
   (major rebalancing), else the values are whose degree has left the bounds (minor rebalancing);
3. each relation's change is divided by the heavy values, and adds to the result, to the views
   that are stored, and to its parts.

So values change their part before the change is applied, by the degrees that they have afterwards,
and no row is put into one part to be moved to the other. Of a batch of one row that is the procedure
of figure 4 in papers/ivm-eps-counting-triangles.txt, with its last two steps in turn.
"""

from __future__ import annotations

from dataclasses import replace

from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.scalar import filled
from orchestrator.algebra.unsupported import NotModelledError, Unsupported
from orchestrator.deltascript.leaves import StateScan
from orchestrator.deltascript.plan import Analyse, MaintenancePlan, Reason, StateTable
from orchestrator.strategies.problem import Problem
from orchestrator.strategies.skew.degrees import Degrees
from orchestrator.strategies.skew.exponents import Exponents
from orchestrator.strategies.skew.hierarchical import UnionPlan, union
from orchestrator.strategies.skew.show import shown
from orchestrator.strategies.skew.triangle import Division, SkewPlan, triangle
from orchestrator.strategies.skew.unions import Unions
from orchestrator.strategies.viewtree.normal import COVARIANCE, NormalForm
from orchestrator.strategies.viewtree.propagation import (
    Propagation,
    Relation,
    called,
    columns_of,
    planned,
)
from orchestrator.strategies.viewtree.tree import View

NAME = "skew"


def plan(problem: Problem) -> MaintenancePlan | Unsupported:
    """The maintenance plan over heavy and light parts, or why there is none."""

    def made(form: NormalForm) -> MaintenancePlan | Unsupported:
        for product in form.products:
            if product.aggregate.function == COVARIANCE:
                raise NotModelledError(
                    "a covariance is not kept in heavy and light parts", str(product.aggregate.call)
                )
        found = union(form.graph, problem.epsilon)
        if isinstance(found, UnionPlan):
            return Unions(problem, form, found).plan(NAME)
        parts = triangle(form.graph, Exponents(problem.epsilon))
        if isinstance(parts, Unsupported):
            return found if form.graph.hierarchical else parts
        return _Program(problem, form, parts).plan()

    return planned(problem, made)


class _Program(Propagation):
    """View trees over parts being turned into states and steps."""

    def __init__(self, problem: Problem, form: NormalForm, parts: SkewPlan) -> None:
        super().__init__(problem, form)
        self.parts = parts
        self._take_products([one.atom for one in parts.divisions])

    def plan(self) -> MaintenancePlan:
        """The states, and the steps that keep them."""
        parts = self.parts
        for one in parts.divisions:
            atom = self.atoms[one.atom]
            self.defined[one.whole] = self._leaf(one.whole, atom, atom.rows(atom.scan), None)
        self._comparable()
        self.degrees = Degrees(
            self.composer,
            parts.exponents.epsilon,
            {one.split: replace(self.defined[one.whole], exists=True) for one in parts.divisions},
            [one.split for one in parts.divisions],
        )
        for one in parts.divisions:
            self._divide(one)
        for view in parts.views:
            self.defined[view] = self._inner(view, [*map(self._present, view.children)])
            self._store(view)
        self.content = self._content(self._result())
        self._follow()
        made = self._planned(NAME)
        known = self.degrees.described({one.split: self._parts(one) for one in parts.divisions})
        historic = {known.state, *(one.heavy_values for one in known.partitions)}
        return replace(
            made,
            states=tuple(
                replace(one, historic=True)
                if isinstance(one, StateTable) and one.role in historic
                else one
                for one in made.states
            ),
            algebra=f"{made.algebra}\n\n{shown(parts)}",
            reasons=(Reason(NAME, True, f"it is a triangle: {parts.exponents.described}"),),
            by_lookups=True,
            partitioning=known,
        )

    # States

    def _divide(self, one: Division) -> None:
        """Stores the parts of a relation."""
        whole = self.defined[one.whole]
        for part in one.parts:
            self.defined[part] = self.degrees.divided(one.split, whole, heavy=part == one.heavy)
            self._store(part)

    def _parts(self, one: Division) -> tuple[StateScan, StateScan]:
        return self.states[one.heavy], self.states[one.light]

    def _present(self, view: View) -> Relation:
        """A view as it is stored."""
        return self.defined[view].at(self.states[view])

    def _result(self) -> Relation:
        """The sum over all choices of parts; each is met as a change of the first atom's part is."""
        first, root = self.parts.divisions[0], self.parts.root
        found = [
            made for part in first.parts for made in self._met(first, self._present(part), part)
        ]
        self.defined[root] = self._summed(root, found)
        return self.defined[root]

    def _met(self, one: Division, delta: Relation, view: View) -> list[Relation]:
        """What rows of a relation, with what they meet of the others, add to the result."""
        keys, atoms = self.parts.root.keys, self.parts.root.atoms
        return [
            self._inner(
                View(keys, atoms, (view, *rule.met)),
                [delta, *map(self._present, rule.met)],
                as_listed=True,
            )
            for rule in self.parts.rules[one.atom]
        ]

    # Deltas

    def _follow(self) -> None:
        """The steps that bring all states up."""
        changing = [one for one in self.parts.divisions if one.atom not in self.static]
        deltas: dict[Division, Relation] = {}
        for one in changing:
            atom = self.atoms[one.atom]
            bag = self._change(atom)
            changed = self._leaf(one.whole, atom, atom.rows(bag.plan), bag.sign)
            deltas[one] = self._assigned(one.whole, changed)
            self.degrees.count(one.split, deltas[one], self._parts(one))
        if not deltas:
            return
        major = self.degrees.rebalance()
        for one in self.parts.divisions:
            self._move(one)
        for one, delta in deltas.items():
            root = self.parts.root
            self._add(
                self.content.state,
                self._assigned(root, self._summed(root, self._met(one, delta, one.whole))),
                self.content,
            )
            for part in one.parts:
                rows = self.degrees.divided(one.split, delta, heavy=part == one.heavy)
                self._apply(part, self._assigned(part, rows))
            self.degrees.forget(one.split)
        # N has doubled or halved: what PostgreSQL has planned for was another size.
        self.composer.steps.append(Analyse((major,)))

    def _move(self, one: Division) -> None:
        """Moves the rows of values that change their part; the result stays as it is."""
        whole, columns = self.defined[one.whole], columns_of(self.defined[one.whole])
        rows = self.degrees.moved(one.split, whole, self._parts(one))
        comes = self._assigned(one.heavy, whole.at(rows))
        back = [Item(column, filled("-x", x=column)) for column in whole.payload.values()]
        keys = map(Item.kept, whole.keys.values())
        goes = whole.at(
            self.composer.assign(
                f"{called(one.light)}_change", Projection(comes.rows, (*keys, *back)), columns
            )
        )
        self._apply(one.heavy, comes)
        self._apply(one.light, goes)
        self.degrees.settle(one.split)

    def _apply(self, part: View, delta: Relation) -> None:
        """Adds the change of a part to the views that join it, and to itself."""
        for view in self.parts.views:
            if part in view.children:
                met = [delta if one == part else self._present(one) for one in view.children]
                made = self._inner(view, met, view.children.index(part))
                self._add(self.states[view], self._assigned(view, made))
        self._add(self.states[part], delta)
