"""The maintenance plan over heavy and light parts of relations.

A batch is a set of changes of each relation, and goes through statements over sets:

1. the change of each relation is summed up, and with it the degrees of values change;
2. the threshold base N follows the size; if it changes, everything is partitioned again
   (major rebalancing), else the values are whose degree has left the bounds (minor rebalancing);
3. each relation's change is divided by the heavy values, and adds to what is listed, to the views
   that are stored, and to its parts.

So values change their part before the change is applied, by the degrees that they have afterwards,
and no row is put into one part to be moved to the other. Of a batch of one row that is the procedure
of figure 17 in papers/ivm-eps-triangle-queries.txt, with its last two steps in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache

from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.operators.scan import Scan
from orchestrator.algebra.operators.set_operation import Branch
from orchestrator.algebra.operators.union_all import UnionAll
from orchestrator.algebra.scalar import filled
from orchestrator.algebra.traversal import walk
from orchestrator.algebra.unsupported import NotModelledError, Unsupported
from orchestrator.deltascript.leaves import StateScan
from orchestrator.deltascript.plan import (
    Assign,
    Enumeration,
    MaintenancePlan,
    Reason,
    StateTable,
    Strategy,
    Walk,
)
from orchestrator.strategies.request import PlanningRequest
from orchestrator.strategies.skew.degrees import Degrees, Split, rows_of
from orchestrator.strategies.skew.hierarchical import UnionPlan, union
from orchestrator.strategies.skew.plans import exponents_of, parted, uneven
from orchestrator.strategies.skew.show import shown
from orchestrator.strategies.skew.skew_cost import Weight, weight
from orchestrator.strategies.skew.triangle import (
    HEAVY,
    LIGHT,
    Division,
    Factorized,
    Rule,
    SkewPlan,
    triangle,
)
from orchestrator.strategies.skew.unions import Unions
from orchestrator.strategies.viewtree.form import NUMBERS, NormalForm
from orchestrator.strategies.viewtree.normal import normal_form, plan_normal_form
from orchestrator.strategies.viewtree.relation import Content, Relation, columns_of
from orchestrator.strategies.viewtree.tree import View
from orchestrator.strategies.viewtree.views import Views


def plan(request: PlanningRequest) -> MaintenancePlan | Unsupported:
    """The maintenance plan over heavy and light parts, or why there is none."""

    def made(form: NormalForm) -> MaintenancePlan | Unsupported:
        for product in form.products:
            if product.aggregate.function not in NUMBERS:
                raise NotModelledError(
                    "only sums and counts are kept in heavy and light parts",
                    str(product.aggregate.call),
                )
        static = frozenset(a.name for a in form.atoms if a.scan.table.oid in request.static)
        found = union(form.graph, request.epsilon, static)
        exponents = exponents_of(request, form)
        if isinstance(found, UnionPlan):
            if exponents.own:
                return uneven("a hierarchical query", exponents)
            return Unions(request, form, found).plan(Strategy.SKEW)
        parts = parted(form.graph, exponents)
        if isinstance(parts, Unsupported):
            return found if form.graph.hierarchical else parts
        return _Program(request, form, parts).plan()

    return plan_normal_form(request, made)


def weighed(request: PlanningRequest) -> Weight | None:
    """What a change costs with parts and without, if the query is a triangle that shows one row.

    Where more rows are shown, parts make reading dearer too: who wants that has to ask for it.
    """
    if request.plan is None:
        return None
    scans = [operator for operator in walk(request.plan.root) if isinstance(operator, Scan)]
    form = normal_form(request.plan, request.distinct, request.types) if len(scans) == 3 else None
    if not isinstance(form, NormalForm) or form.groups:
        return None
    made = triangle(form.graph, exponents_of(request, form))
    return weight(request, form, made) if isinstance(made, SkewPlan) else None


class _Program:
    """View trees over parts being turned into states and steps."""

    def __init__(self, request: PlanningRequest, form: NormalForm, skew_plan: SkewPlan) -> None:
        # Heavy values are handled apart. The degrees of the light ones differ little.
        even = {oid: replace(known, common={}) for oid, known in request.statistics.items()}
        self.views = Views(request, form, skew_plan.counting, even)
        self.made = skew_plan
        self.division = {item.atom: item for item in skew_plan.divisions}
        self.views.take_products([item.atom for item in skew_plan.divisions])
        self.content: Content | None = None
        """The root, where nothing has to be added to what it lists."""

    def plan(self) -> MaintenancePlan:
        """The states, and the steps that keep them."""
        made = self.made
        for division in made.divisions:
            atom = self.views.atoms[division.atom]
            self.views.defined[division.whole] = self.views.leaf(
                division.whole, atom, atom.rows(atom.scan), None
            )
        self.views.require_comparable()
        self.degrees = Degrees(
            self.views.composer,
            {
                split: made.exponents.of(item.atom)
                for item in made.divisions
                for split in item.splits
            },
            {split: self._divided(split) for item in made.divisions for split in item.splits},
            [item.splits[0] for item in made.divisions if item.splits],
        )
        for division in made.divisions:
            self._divide(division)
        for view in made.views:
            self.views.defined[view] = self.views.inner(view, [*map(self._present, view.children)])
            self.views.store(view)
        listed = self._listed()
        if made.factorized:
            self.views.store(made.root)
            self.views.show(self._sum(), sorted(made.root.keys))
            self._look_by_keys()
        else:
            self.content = self.views.store_content(listed)
        self._follow()
        planned = self._ordered(self.views.plan(Strategy.SKEW))
        parts = {
            item.splits[0]: self._stored(item.parts) for item in made.divisions if len(item.on) == 1
        }
        plan = self.degrees.shown(planned, parts)
        plan = replace(
            plan,
            program=replace(plan.program, by_lookups=True),
            enumeration=self._enumeration() if made.factorized else None,
        )
        reason = Reason(Strategy.SKEW, True, f"it is {made.kind}: {made.described}")
        return plan.drawn(shown(made)).because(reason)

    # States

    def _divided(self, split: Split) -> Relation:
        """The values that atoms are divided by, alone or together."""
        found = [self.views.defined[self.division[atom].whole] for atom in split.atoms]
        return found[0] if len(found) == 1 else rows_of(split, found, self.views.composer)

    def _divide(self, division: Division) -> None:
        """Stores the parts of a relation."""
        for part in division.parts:
            self.views.defined[part] = self._part(
                division, part, self.views.defined[division.whole]
            )
            self.views.store(part)

    def _part(self, division: Division, part: View, relation: Relation) -> Relation:
        """The rows of a part."""
        for split, mark in zip(division.splits, part.part, strict=False):
            relation = self.degrees.divided(split, relation, heavy=mark == HEAVY)
        return relation

    def _stored(self, views: Iterable[View]) -> tuple[StateScan, ...]:
        return tuple(self.views.states[view] for view in views)

    def _present(self, view: View) -> Relation:
        """A view as it is stored, or what is stored of it."""
        if view in self.views.states:
            return self.views.defined[view].at(self.views.states[view])
        item = self.division[view.atoms[0]]
        whole = self.views.defined[item.whole]
        return self._all(whole, [whole.at(scan) for scan in self._stored(item.within(view))])

    def _all(self, like: Relation, relations: Sequence[Relation]) -> Relation:
        """The rows of several relations with the same columns, no two of which have a key."""
        if len(relations) == 1:
            return relations[0]
        columns = columns_of(like)
        return like.at(UnionAll(tuple(Branch(item.rows, columns) for item in relations), columns))

    def _listed(self) -> Relation:
        """What is listed; the parts are met as a change of the first atom's are."""
        root = self.made.root
        rules = self.made.rules[self.made.divisions[0].atom]
        found = [self._met(rule, self._present(rule.part)) for rule in rules]
        self.views.defined[root] = self.views.summed(root, found)
        return self.views.defined[root]

    def _met(self, rule: Rule, delta: Relation) -> Relation:
        """What rows of a part, with what they meet of the others, add to what is listed."""
        root = self.made.root
        view = View(root.keys, root.atoms, (rule.part, *rule.met))
        return self.views.inner(view, [delta, *map(self._present, rule.met)], as_listed=True)

    # Content

    def _sum(self) -> Relation:
        """The query: what is listed, and the joins of what is not."""
        made, listed = self.made, self._present(self.made.root)
        found = [listed, *map(self._product, made.factorized)]
        if made.exponents.free < 3:
            return self.views.summed(made.root, found)
        # No row is in two of them.
        columns = tuple(self.views.composer.fresh(column) for column in columns_of(listed))
        rows = UnionAll(tuple(Branch(item.rows, columns_of(item)) for item in found), columns)
        count = len(listed.keys)
        return Relation(
            rows,
            dict(zip(listed.keys, columns, strict=False)),
            dict(zip(listed.payload, columns[count:], strict=True)),
        )

    def _product(self, factorized: Factorized) -> Relation:
        """The rows of a case that is not listed, each for a way in which it comes about."""
        joined, whole = self._present(factorized.joined), self._present(factorized.whole)
        rows, bound = self.views.joined([self.views.copy(factorized.known), joined, whole])
        keys = {name: bound[name] for name in sorted(self.made.root.keys)}
        payload = {part: self.views.column(part) for part in self.views.payload_of(self.made.root)}
        both = ((factorized.joined, joined), (factorized.whole, whole))
        products = []
        for part, column in payload.items():
            parts = [(part.within(view.atoms), relation) for view, relation in both]
            factors = [(within, relation.payload[within]) for within, relation in parts]
            products.append(Item(column, part.multiplied(factors)))
        return Relation(
            Projection(rows, (*map(Item.kept, keys.values()), *products)), keys, payload
        )

    def _look_by_keys(self) -> None:
        """Has rows of the joins found by what a row of the result has of them, and as they are streamed.

        That is, the values that go with what is shown of them, in order.
        """
        free = self.made.root.keys
        for item in self.made.factorized:
            for view in (item.joined, item.known):
                keys = self.views.defined[view].keys
                self.views.note_probe(
                    self.views.states[view], (keys[name] for name in sorted(free & keys.keys()))
                )

    def _ordered(self, planned: MaintenancePlan) -> MaintenancePlan:
        """Has what is looked up by the values of a bucket lie in order there."""
        buckets = {
            self.views.states[item.joined].role: (
                {self.views.states[item.joined].called(keys[name]) for name in item.known.keys},
                [self.views.states[item.joined].called(keys[name]) for name in sorted(keys)],
            )
            for item in self.made.factorized
            for keys in [self.views.defined[item.joined].keys]
        }

        def ordered(state: StateTable) -> StateTable:
            bucket, every = buckets[state.role]
            rest = tuple(name for name in every if name not in bucket)
            return replace(
                state,
                probes=tuple(
                    (*probe, *rest) if set(probe) == bucket else probe for probe in state.probes
                ),
            )

        states = (
            ordered(item) if isinstance(item, StateTable) and item.role in buckets else item
            for item in planned.program.states
        )
        return replace(planned, program=replace(planned.program, states=tuple(states)))

    def _enumeration(self) -> Enumeration:
        """How the rows are found: those that are listed, then those of each other case."""
        by_column = dict(reversed(self.views.form.groups))
        columns = ((name, scalar.as_column) for name, scalar in self.views.form.shown)
        return Enumeration(
            tuple(sorted(self.made.root.keys)),
            tuple((name, by_column[c]) for name, c in columns if c is not None and c in by_column),
            (
                (self._walk(self.made.root),),
                *(
                    (self._walk(item.known), self._walk(item.joined))
                    for item in self.made.factorized
                ),
            ),
            streamed=True,
        )

    def _walk(self, view: View) -> Walk:
        scan = self.views.states[view]
        keys = self.views.defined[view].keys
        return Walk(
            scan.role, tuple((name, scan.called(keys[name])) for name in sorted(keys)), (), ()
        )

    # Deltas

    def _follow(self) -> None:
        """The steps that bring all states up."""
        changing = [
            division for division in self.made.divisions if division.atom not in self.views.static
        ]
        deltas: dict[Division, Relation] = {}
        for item in changing:
            atom = self.views.atoms[item.atom]
            bag = self.views.change_of(atom)
            changed = self.views.leaf(item.whole, atom, atom.rows(bag.plan), bag.sign)
            deltas[item] = self.views.assigned(item.whole, changed)
        if not deltas:
            return
        splits = dict.fromkeys(split for each in changing for split in each.splits)
        for split in splits:
            self.degrees.add(split, [d for key, d in deltas.items() if key.atom in split.atoms])
        # Where nothing that is divided changes, none of its parts does.
        major = self.degrees.rebalance() if self.degrees.changes else None
        if major is not None:
            self._move_together()
        for item in self.made.divisions:
            moves = []
            for split in () if item.together or major is None else item.splits:
                moves.append(self._move(item, split))
                self.degrees.settle(split)
            self._bring_up(item, deltas.get(item), moves)
        if major is not None:
            self.degrees.end(major)

    def _move_together(self) -> None:
        """What is divided together moves before any of it changes."""
        together = [division for division in self.made.divisions if division.together]
        for item in together:
            self._bring_up(item, None, [self._move(item, split) for split in item.splits])
        for split in dict.fromkeys(split for each in together for split in each.splits):
            self.degrees.settle(split)

    def _bring_up(
        self, division: Division, delta: Relation | None, moves: Sequence[Mapping[View, Relation]]
    ) -> None:
        """The parts of a relation change, and then what joins them; all else stands still."""
        changes: dict[View, Relation] = {}
        if delta is not None:
            for part in division.parts:
                rows = self._part(division, part, delta)
                changes[part] = delta if part == division.whole else self.views.assigned(part, rows)
                self.views.add(self.views.states[part], changes[part])

        def changing(part: View) -> Relation | None:
            """What comes and goes, but does not move."""
            if delta is None or part == division.whole:
                return delta
            return self._all(delta, [changes[some] for some in division.within(part)])

        @cache
        def every(part: View) -> Relation | None:
            # What moves between the parts of one moves within it.
            found = [
                moved[some]
                for place, moved in enumerate(moves)
                if len(part.part) > place
                for some in division.within(part)
            ]
            own = changing(part)
            if not found:
                return own
            both = self._all(self.views.defined[division.whole], [*found, *([own] if own else [])])
            return self.views.assigned(part, both)

        # Where all cases are listed, their sum stays as it is when rows move.
        self._list(division, every if self.made.factorized else changing)
        self._join(division, every)

    def _list(self, division: Division, of: Callable[[View], Relation | None]) -> None:
        """Adds the change of an atom's parts to what is listed."""
        made = self.made
        deltas = [(rule, of(rule.part)) for rule in made.rules[division.atom]]
        rules = [(rule, delta) for rule, delta in deltas if delta is not None]
        if not rules:
            return
        found = [self._met(rule, delta) for rule, delta in rules]
        looked_up = [rule.by_key for rule, _ in rules]
        if not all(looked_up):
            # Those are not to be hashed.
            found = [
                self.views.assigned(made.root, rows) if by_key else rows
                for rows, by_key in zip(found, looked_up, strict=True)
            ]
        delta = self.views.assigned(made.root, self.views.summed(made.root, found))
        if not all(looked_up):
            # Values that change often are those that many rows have.
            step = self.views.composer.steps[-1]
            assert isinstance(step, Assign)
            self.views.composer.steps[-1] = replace(step, hashed=True)
        state = self.content.state if self.content else self.views.states[made.root]
        self.views.add(state, delta, self.content)

    def _join(self, division: Division, of: Callable[[View], Relation | None]) -> None:
        """Adds it to the views that join them."""
        changed: dict[View, Relation] = {}
        for view in self.made.views:
            for place, child in enumerate(view.children):
                known = of(child) if child.atoms == (division.atom,) else changed.get(child)
                if known is None:
                    continue
                met = [
                    known if n == place else self._present(v) for n, v in enumerate(view.children)
                ]
                rows = self.views.inner(view, met, place, as_listed=True)
                changed[view] = self.views.assigned(view, rows)
                self.views.add(self.views.states[view], changed[view])

    def _move(self, division: Division, split: Split) -> dict[View, Relation]:
        """Moves the rows of values that change their part by some variables: the changes of parts."""
        place, whole = division.splits.index(split), self.views.defined[division.whole]
        moved: dict[View, Relation] = {}
        for heavy in division.parts:
            if heavy.part[place] != HEAVY:
                continue
            light = division.part(f"{heavy.part[:place]}{LIGHT}{heavy.part[place + 1 :]}")
            rows = self.degrees.moved(
                split, whole, (self.views.states[heavy], self.views.states[light])
            )
            moved[heavy] = self.views.assigned(heavy, whole.at(rows))
            back = [Item(column, filled("-x", x=column)) for column in whole.payload.values()]
            keys = map(Item.kept, whole.keys.values())
            rows = Projection(moved[heavy].rows, (*keys, *back))
            moved[light] = self.views.assigned(light, whole.at(rows))
        for part, delta in moved.items():
            self.views.add(self.views.states[part], delta)
        return moved
