"""The maintenance plan over heavy and light parts of relations.

A batch is a set of changes of each relation. Statements over sets apply it:

1. The change of each relation is summed up, and the degrees of values are updated.
2. The threshold base N follows the size. If N changes, everything is partitioned again (major
   rebalancing), otherwise the values whose degree has left the bounds (minor rebalancing).
3. The change of each relation is divided by the heavy values, and is added to the listed result, to the
   stored views, and to the relation's parts.

So values change their part before the change is applied, according to their new degrees, and no row is
written to one part only to be moved to the other. For a batch of one row this is the procedure of figure 17
in papers/ivm-eps-triangle-queries.txt with its last two steps exchanged.
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
    Strategy,
    Walk,
)
from orchestrator.strategies.request import PlanningRequest
from orchestrator.strategies.skew.buckets import with_ordered_buckets
from orchestrator.strategies.skew.degrees import Degrees, Split, rows_of
from orchestrator.strategies.skew.hierarchical import UnionPlan, union
from orchestrator.strategies.skew.plans import exponents_of, parted, uneven
from orchestrator.strategies.skew.show import shown
from orchestrator.strategies.skew.skew_cost import TriangleCost, triangle_cost
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
    """Return the maintenance plan over heavy and light parts, or why the strategy does not apply."""

    def build(form: NormalForm) -> MaintenancePlan | Unsupported:
        for product in form.products:
            if product.aggregate.function not in NUMBERS:
                raise NotModelledError(
                    "only sums and counts are kept in heavy and light parts",
                    str(product.aggregate.call),
                )
        static = frozenset(a.name for a in form.atoms if a.tables <= request.static)
        union_plan = union(form.graph, request.epsilon, static)
        exponents = exponents_of(request, form)
        if isinstance(union_plan, UnionPlan):
            if exponents.own:
                return uneven("a hierarchical query", exponents)
            return Unions(request, form, union_plan).plan(Strategy.SKEW)
        parts = parted(form.graph, exponents)
        if isinstance(parts, Unsupported):
            return union_plan if form.graph.hierarchical else parts
        return _Program(request, form, parts).plan()

    return plan_normal_form(request, build)


def cost_of_triangle(request: PlanningRequest) -> TriangleCost | None:
    """Return the cost of a change with and without parts, if the query is a triangle with one result row.

    For more result rows, parts also make reads more expensive, so the user must request them.
    """
    query = request.recognized or request.plan
    if query is None:
        return None
    scans = [scan for scan in walk(query.root) if isinstance(scan, Scan)]
    form = normal_form(query, request.distinct, request.types) if len(scans) >= 3 else None
    if not isinstance(form, NormalForm) or form.groups or len(form.atoms) != 3:
        return None
    skew = triangle(form.graph, exponents_of(request, form))
    return triangle_cost(request, form, skew) if isinstance(skew, SkewPlan) else None


class _Program:
    """Builds the states and steps of view trees over parts."""

    def __init__(self, request: PlanningRequest, form: NormalForm, skew: SkewPlan) -> None:
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

    def plan(self) -> MaintenancePlan:
        """Return the plan: the states, and the steps that maintain them."""
        skew = self.skew
        for division in skew.divisions:
            atom = self.views.atoms[division.atom]
            self.views.defined[division.whole] = self.views.leaf(
                division.whole, atom, atom.rows(atom.scan), None
            )
        self.views.require_comparable()
        splits = [(division, split) for division in skew.divisions for split in division.splits]
        self.degrees = Degrees(
            self.views.composer,
            {split: skew.exponents.of(division.atom) for division, split in splits},
            {split: self._values_of(split) for _, split in splits},
            [division.splits[0] for division in skew.divisions if division.splits],
        )
        for division in skew.divisions:
            self._divide(division)
        for view in skew.views:
            self.views.defined[view] = self.views.inner(view, [*map(self._current, view.children)])
            self.views.store(view)
        listed = self._define_root()
        if skew.factorized or self.views.form.around is not None:
            self.views.store(skew.root)
            self.views.show(self._query(), sorted(skew.root.keys))
            self._note_lookups()
        else:
            self.content = self.views.store_content(listed)
        self._maintain()
        planned = self._order_buckets(self.views.plan(Strategy.SKEW))
        parts = {
            division.splits[0]: self._states_of(division.parts)
            for division in skew.divisions
            if len(division.on) == 1
        }
        plan = self.degrees.with_partitioning(planned, parts)
        plan = replace(
            plan,
            program=replace(plan.program, by_lookups=True),
            enumeration=(
                self._enumeration() if skew.factorized and self.views.form.around is None else None
            ),
        )
        reason = Reason(Strategy.SKEW, True, f"it is {skew.kind}: {skew.described}")
        return plan.drawn(shown(skew)).because(reason)

    # States

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
            self.views.store(part)

    def _part(self, division: Division, part: View, relation: Relation) -> Relation:
        """Return the rows of a part."""
        for split, mark in zip(division.splits, part.part, strict=False):
            relation = self.degrees.divided(split, relation, heavy=mark == HEAVY)
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

    def _joined(self, rule: Rule, delta: Relation) -> Relation:
        """Return what rows of a part, joined with the other parts of a rule, add to the listed result."""
        root = self.skew.root
        view = View(root.keys, root.atoms, (rule.part, *rule.met))
        return self.views.inner(view, [delta, *map(self._current, rule.met)], as_listed=True)

    # Content

    def _query(self) -> Relation:
        """Return the query: the listed result plus the joins of the factorized cases."""
        skew, listed = self.skew, self._current(self.skew.root)
        relations = [listed, *map(self._product, skew.factorized)]
        if skew.exponents.free < 3:
            return self.views.summed(skew.root, relations)
        # No row occurs in two of the relations.
        columns = tuple(self.views.composer.fresh(column) for column in columns_of(listed))
        rows = UnionAll(tuple(Branch(item.rows, columns_of(item)) for item in relations), columns)
        count = len(listed.keys)
        return Relation(
            rows,
            dict(zip(listed.keys, columns, strict=False)),
            dict(zip(listed.payload, columns[count:], strict=True)),
        )

    def _product(self, factorized: Factorized) -> Relation:
        """Return the rows of a factorized case; a row occurs once for each of its derivations."""
        joined, whole = self._current(factorized.joined), self._current(factorized.whole)
        rows, bound = self.views.joined([self.views.copy(factorized.known), joined, whole])
        keys = {name: bound[name] for name in sorted(self.skew.root.keys)}
        payload = {part: self.views.column(part) for part in self.views.payload_of(self.skew.root)}
        both = ((factorized.joined, joined), (factorized.whole, whole))
        products = []
        for part, column in payload.items():
            parts = [(part.within(view.atoms), relation) for view, relation in both]
            factors = [(within, relation.payload[within]) for within, relation in parts]
            products.append(Item(column, part.multiplied(factors)))
        return Relation(
            Projection(rows, (*map(Item.kept, keys.values()), *products)), keys, payload
        )

    def _note_lookups(self) -> None:
        """Note the lookups on the views of factorized cases: by their free variables, in order."""
        free = self.skew.root.keys
        for item in self.skew.factorized:
            for view in (item.joined, item.known):
                keys = self.views.defined[view].keys
                self.views.note_probe(
                    self.views.states[view], (keys[name] for name in sorted(free & keys.keys()))
                )

    def _order_buckets(self, planned: MaintenancePlan) -> MaintenancePlan:
        """Return a plan whose indexes also sort the rows of a bucket."""
        buckets = {
            self.views.states[item.joined].role: (
                {self.views.states[item.joined].called(keys[name]) for name in item.known.keys},
                [self.views.states[item.joined].called(keys[name]) for name in sorted(keys)],
            )
            for item in self.skew.factorized
            for keys in [self.views.defined[item.joined].keys]
        }

        return with_ordered_buckets(planned, buckets)

    def _enumeration(self) -> Enumeration:
        """Return how rows are enumerated: first the listed rows, then the rows of each factorized case."""
        by_column = dict(reversed(self.views.form.groups))
        columns = ((name, scalar.as_column) for name, scalar in self.views.form.shown)
        return Enumeration(
            tuple(sorted(self.skew.root.keys)),
            tuple((name, by_column[c]) for name, c in columns if c is not None and c in by_column),
            (
                (self._walk(self.skew.root),),
                *(
                    (self._walk(item.known), self._walk(item.joined))
                    for item in self.skew.factorized
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

    def _maintain(self) -> None:
        """Add the steps that maintain all states."""
        changing = [
            division for division in self.skew.divisions if division.atom not in self.views.static
        ]
        deltas: dict[Division, Relation] = {}
        for division in changing:
            atom = self.views.atoms[division.atom]
            bag = self.views.change_of(atom)
            changed = self.views.leaf(division.whole, atom, atom.rows(bag.plan), bag.sign)
            deltas[division] = self.views.assigned(division.whole, changed)
        if not deltas:
            return
        splits = dict.fromkeys(split for division in changing for split in division.splits)
        for split in splits:
            self.degrees.add(split, [d for key, d in deltas.items() if key.atom in split.atoms])
        # Without a change of a divided relation no part changes.
        major = self.degrees.rebalance() if self.degrees.changes else None
        if major is not None:
            self._move_together()
        for division in self.skew.divisions:
            moves = []
            for split in () if division.together or major is None else division.splits:
                moves.append(self._move(division, split))
                self.degrees.apply_moves(split)
            self._apply_change(division, deltas.get(division), moves)
        if major is not None:
            self.degrees.end(major)

    def _move_together(self) -> None:
        """Move values of atoms that are divided together, before any of these atoms changes."""
        together = [division for division in self.skew.divisions if division.together]
        for division in together:
            moves = [self._move(division, split) for split in division.splits]
            self._apply_change(division, None, moves)
        for split in dict.fromkeys(split for division in together for split in division.splits):
            self.degrees.apply_moves(split)

    def _apply_change(
        self, division: Division, delta: Relation | None, moves: Sequence[Mapping[View, Relation]]
    ) -> None:
        """Add the steps that change the parts of a relation, and then the views over them."""
        changes: dict[View, Relation] = {}
        if delta is not None:
            for part in division.parts:
                rows = self._part(division, part, delta)
                changes[part] = delta if part == division.whole else self.views.assigned(part, rows)
                self.views.add(self.views.states[part], changes[part])

        def change_of(part: View) -> Relation | None:
            """Return the change of a part, without values that move between parts."""
            if delta is None or part == division.whole:
                return delta
            return self._union(delta, [changes[inner] for inner in division.within(part)])

        @cache
        def change_and_moves(part: View) -> Relation | None:
            # Moves between inner parts of a part are moves within it.
            moves_within = [
                moved_rows[inner]
                for position, moved_rows in enumerate(moves)
                if len(part.part) > position
                for inner in division.within(part)
            ]
            own = change_of(part)
            if not moves_within:
                return own
            both = self._union(
                self.views.defined[division.whole], [*moves_within, *([own] if own else [])]
            )
            return self.views.assigned(part, both)

        # If all cases are listed, moving rows does not change their sum.
        self._add_to_root(division, change_and_moves if self.skew.factorized else change_of)
        self._add_to_views(division, change_and_moves)

    def _add_to_root(self, division: Division, of: Callable[[View], Relation | None]) -> None:
        """Add the step that adds the change of an atom's parts to the listed result."""
        skew = self.skew
        deltas = [(rule, of(rule.part)) for rule in skew.rules[division.atom]]
        rules = [(rule, delta) for rule, delta in deltas if delta is not None]
        if not rules:
            return
        relations = [self._joined(rule, delta) for rule, delta in rules]
        by_keys = [rule.by_key for rule, _ in rules]
        if not all(by_keys):
            # A step of its own, so that these lookups are not hashed.
            relations = [
                self.views.assigned(skew.root, rows) if by_key else rows
                for rows, by_key in zip(relations, by_keys, strict=True)
            ]
        delta = self.views.assigned(skew.root, self.views.summed(skew.root, relations))
        if not all(by_keys):
            # Values that change often tend to have many rows.
            step = self.views.composer.steps[-1]
            assert isinstance(step, Assign)
            self.views.composer.steps[-1] = replace(step, hashed=True)
        state = self.content.state if self.content else self.views.states[skew.root]
        self.views.add(state, delta, self.content)

    def _add_to_views(self, division: Division, of: Callable[[View], Relation | None]) -> None:
        """Add the steps that add the change of an atom's parts to the views over them."""
        changed: dict[View, Relation] = {}
        for view in self.skew.views:
            for position, child in enumerate(view.children):
                delta = of(child) if child.atoms == (division.atom,) else changed.get(child)
                if delta is None:
                    continue
                children = [
                    delta if n == position else self._current(v)
                    for n, v in enumerate(view.children)
                ]
                rows = self.views.inner(view, children, position, as_listed=True)
                changed[view] = self.views.assigned(view, rows)
                self.views.add(self.views.states[view], changed[view])

    def _move(self, division: Division, split: Split) -> dict[View, Relation]:
        """Move the rows of values that change their part by one split; return the changes of the parts."""
        position, whole = division.splits.index(split), self.views.defined[division.whole]
        changes: dict[View, Relation] = {}
        for heavy in division.parts:
            if heavy.part[position] != HEAVY:
                continue
            light = division.part(f"{heavy.part[:position]}{LIGHT}{heavy.part[position + 1 :]}")
            rows = self.degrees.moves(
                split, whole, (self.views.states[heavy], self.views.states[light])
            )
            changes[heavy] = self.views.assigned(heavy, whole.at(rows))
            negated = [Item(column, filled("-x", x=column)) for column in whole.payload.values()]
            keys = map(Item.kept, whole.keys.values())
            rows = Projection(changes[heavy].rows, (*keys, *negated))
            changes[light] = self.views.assigned(light, whole.at(rows))
        for part, delta in changes.items():
            self.views.add(self.views.states[part], delta)
        return changes
