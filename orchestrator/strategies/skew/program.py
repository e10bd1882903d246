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

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.operators.scan import Scan
from orchestrator.algebra.operators.set_operation import Branch
from orchestrator.algebra.operators.union_all import UnionAll
from orchestrator.algebra.scalar import TRUE
from orchestrator.algebra.traversal import walk
from orchestrator.algebra.unsupported import Unsupported
from orchestrator.deltascript.plan import (
    Enumeration,
    MaintenancePlan,
    Reason,
    StateTable,
    Strategy,
    Walk,
)
from orchestrator.strategies.factorized.shown import show
from orchestrator.strategies.request import PlanningRequest
from orchestrator.strategies.skew.exponents import curve_of
from orchestrator.strategies.skew.hierarchical import union
from orchestrator.strategies.skew.part_states import sized_by
from orchestrator.strategies.skew.part_upkeep import PartUpkeep
from orchestrator.strategies.skew.partition.degrees import Degrees
from orchestrator.strategies.skew.partition.described import with_partitioning
from orchestrator.strategies.skew.plans import exponents_of, parted, uneven
from orchestrator.strategies.skew.show import plan_text
from orchestrator.strategies.skew.skew_cost import CaseCost, TriangleCost, case_cost, triangle_cost
from orchestrator.strategies.skew.triangle import (
    Factorized,
    SkewPlan,
    triangle,
)
from orchestrator.strategies.skew.union_plan import UnionPlan
from orchestrator.strategies.skew.unions import Unions
from orchestrator.strategies.viewtree.form import NormalForm
from orchestrator.strategies.viewtree.normal import normal_form, plan_normal_form
from orchestrator.strategies.viewtree.relation import Relation, columns_of
from orchestrator.strategies.viewtree.tree import View


def plan(request: PlanningRequest) -> MaintenancePlan | Unsupported:
    """Return the maintenance plan over heavy and light parts, or why the strategy does not apply."""

    def build(form: NormalForm) -> MaintenancePlan | Unsupported:
        constraints = form.constraints(request.static, request.growing)
        union_plan = union(form.graph, request.epsilon, constraints)
        exponents = exponents_of(request, form)
        parts = parted(form.graph, exponents)
        if isinstance(union_plan, UnionPlan) and _is_better(union_plan, parts, form):
            if exponents.own:
                return uneven("a hierarchical query", exponents)
            return Unions(request, form, union_plan).plan(Strategy.SKEW)
        if isinstance(parts, Unsupported):
            reduct = form.graph.reduct(constraints.fds)
            return (
                union_plan if isinstance(union_plan, Unsupported) and reduct.hierarchical else parts
            )
        return _Program(request, form, parts).plan()

    return plan_normal_form(request, build)


def _is_better(union_plan: UnionPlan, parts: SkewPlan | Unsupported, form: NormalForm) -> bool:
    """Return whether a query that is hierarchical, perhaps by its keys, is a union rather than over parts."""
    if form.graph.hierarchical:
        return True
    if not form.free and (form.around is not None or form.having != TRUE):
        return False
    return isinstance(parts, Unsupported) or (
        not parts.exponents.own and union_plan.guarantee.update < parts.exponents.update
    )


def cost_of(request: PlanningRequest, accesses: float) -> TriangleCost | CaseCost | None:
    """Return the cost of a change over parts, if a query that costs so much without them may gain by parts.

    That is a triangle with one result row, or a join over cases. For more result rows of a triangle, parts also
    make reads more expensive, so the user must request them.
    """
    query = request.recognized or request.plan
    if query is None:
        return None
    scans = [scan for scan in walk(query.root) if isinstance(scan, Scan)]
    form = normal_form(query, request.distinct, request.types) if len(scans) >= 3 else None
    if not isinstance(form, NormalForm):
        return None
    if len(form.atoms) > 3:
        return _cost_of_cases(request, form, accesses)
    if form.groups or len(form.atoms) < 3:
        return None
    constraints = form.constraints(request.static, request.growing)
    if isinstance(union(form.graph, request.epsilon, constraints), UnionPlan):
        # By its keys, it is a join of lookups.
        return None
    skew = triangle(form.graph, exponents_of(request, form))
    return triangle_cost(request, form, skew) if isinstance(skew, SkewPlan) else None


def _cost_of_cases(request: PlanningRequest, form: NormalForm, accesses: float) -> CaseCost | None:
    """Return the cost of a change over cases, unless the least that it could be is more than without them."""
    if form.around is not None or form.having != TRUE:
        return None
    if case_cost(request, form, Fraction(1, 2)).parted >= accesses:
        return None
    constraints = form.constraints(request.static, request.growing)
    if isinstance(union(form.graph, request.epsilon, constraints), UnionPlan):
        return None
    parts = parted(form.graph, exponents_of(request, form))
    if not isinstance(parts, SkewPlan) or not parts.view_rules:
        return None
    return case_cost(request, form, parts.exponents.update)


class _Program(PartUpkeep):
    """Builds the states and steps of view trees over parts."""

    def plan(self) -> MaintenancePlan:
        """Return the plan: the states, and the steps that maintain them."""
        skew = self.skew
        for division in skew.divisions:
            atom = self.views.atoms[division.atom]
            self.views.defined[division.whole] = self.views.leaf(
                division.whole, atom, atom.rows(atom.scan), None
            )
        self.views.require_comparable()
        self.sharing = self._sharing()
        first = self.sharing.first
        splits = [(own, split) for own in dict.fromkeys(first.values()) for split in own.splits]
        self.degrees = Degrees(
            self.views.composer,
            {split: skew.exponents.of(division.atom) for division, split in splits},
            {split: self._values_of(split) for _, split in splits},
            sized_by([split for _, split in splits]),
        )
        for division in skew.divisions:
            self._divide(division)
        for view in skew.views:
            self.views.defined[view] = self.views.inner(
                view, [*map(self._current, view.children)], as_listed=view in skew.view_rules
            )
            self._store(view)
        listed = self._define_root()
        if skew.factorized or self.views.form.around is not None or self._hides_groups:
            self.views.store(skew.root)
            show(self.views, self._query(), sorted(skew.root.keys))
            self._note_lookups()
        else:
            self.content = self.views.store_content(listed)
        self._maintain()
        planned = self._order_buckets(self.views.plan(Strategy.SKEW))
        parts = {
            division.splits[0]: self._states_of(division.parts)
            for division in skew.divisions
            if len(division.on) == 1
            and not division.together
            and self.sharing.first[division] is division
        }
        curve = () if skew.exponents.own or skew.view_rules else curve_of(skew.exponents)
        plan = with_partitioning(self.degrees, planned, parts, curve)
        plan = replace(
            plan,
            program=replace(plan.program, by_lookups=True),
            enumeration=(
                self._enumeration() if skew.factorized and self.views.form.around is None else None
            ),
        )
        reason = Reason(Strategy.SKEW, True, f"it is {skew.kind}: {skew.described}")
        return plan.drawn(plan_text(skew)).because(reason)

    # Content

    @property
    def _hides_groups(self) -> bool:
        """Whether some groups are stored and not shown."""
        return bool(self.views.form.free) and self.views.form.having != TRUE

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

        return _with_ordered_buckets(planned, buckets)

    def _enumeration(self) -> Enumeration:
        """Return how rows are enumerated: first the listed rows, then the rows of each factorized case."""
        by_column = dict(reversed(self.views.form.groups))
        columns = ((name, scalar.as_column) for name, scalar in self.views.form.outputs)
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


def _with_ordered_buckets(
    planned: MaintenancePlan, buckets: Mapping[str, tuple[Collection[str], Sequence[str]]]
) -> MaintenancePlan:
    """Return a plan whose lookups of a bucket go on with the other columns of its rows.

    `buckets` has, for a state, the columns whose values make a bucket, and all columns in order.
    """

    def with_order(state: StateTable) -> StateTable:
        bucket, every = buckets[state.role]
        rest = tuple(name for name in every if name not in bucket)
        probes = tuple(
            (*probe, *rest) if set(probe) == set(bucket) else probe for probe in state.probes
        )
        return replace(state, probes=probes)

    states = (
        with_order(item) if isinstance(item, StateTable) and item.role in buckets else item
        for item in planned.program.states
    )
    return replace(planned, program=replace(planned.program, states=tuple(states)))
