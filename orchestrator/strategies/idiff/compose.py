"""Pass 3 of papers/idivm.txt, section 4: from the plan of a view to its Δ-script.

A plan falls into linear parts: σ, π, ⋈, ∪ and what rows with partners are. Each ends below an
operator whose result is stored, or at the view. The diffs of the leaves go through the rules of
the part's operators, and what arrives is applied to what is stored there; the rows that this
changes are the diffs of the next part.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from orchestrator.algebra.analysis.duplicate_columns import distinguishable
from orchestrator.algebra.columns import Column
from orchestrator.algebra.ids import ids_of, used_symbols
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.project import Projection
from orchestrator.algebra.operators.scan import Scan
from orchestrator.algebra.plan import Plan
from orchestrator.algebra.traversal import rewrite, walk
from orchestrator.algebra.unsupported import NotModelledError, Unsupported
from orchestrator.deltascript.leaves import StateScan, captured
from orchestrator.deltascript.plan import (
    CACHE,
    CONTENT,
    Assign,
    MaintenancePlan,
    StateTable,
    Step,
    Strategy,
)
from orchestrator.engine.access import probes
from orchestrator.engine.composer import Composer
from orchestrator.engine.costs.cardinality import Cardinality
from orchestrator.engine.costs.script import costs
from orchestrator.engine.layout import laid_out, table_probes
from orchestrator.engine.leaves import constant, reads, relevant
from orchestrator.engine.split_joins import in_steps
from orchestrator.engine.states import Upkeep, keep_what_is_read, require_index, store
from orchestrator.engine.terms import shown
from orchestrator.engine.width import too_wide
from orchestrator.strategies.idiff import rules
from orchestrator.strategies.idiff.bags import numbered, unnumbered
from orchestrator.strategies.idiff.recursive import change_of_join
from orchestrator.strategies.idiff.rules.base import (
    bag,
    change,
    conditions,
    diffs,
    has_rule,
    propagate,
)
from orchestrator.strategies.idiff.rules.stored import is_whole, maintain, not_added, refer
from orchestrator.strategies.idiff.slim_cache import FEWEST, Slim, slimmed
from orchestrator.strategies.request import PlanningRequest

for module in pkgutil.iter_modules(rules.__path__):
    importlib.import_module(f"{rules.__name__}.{module.name}")

DEAR = 10.0
"""A step that looks up more for each row of a diff is weighed by how many rows the diff turns out to have."""


def plan(request: PlanningRequest) -> MaintenancePlan | Unsupported:
    """The maintenance plan by i-diffs, or why there is none."""
    return _planned(request, Strategy.ID)


def plan_by_tuples(request: PlanningRequest) -> MaintenancePlan | Unsupported:
    """The maintenance plan by whole tuples: the same composition, with every change as a bag.

    This is the tuple-based IVM that section 6 of papers/idivm.txt compares with.
    """
    return _planned(replace(request, cache=False), Strategy.TUPLE)


def plan_recursively(request: PlanningRequest) -> MaintenancePlan | Unsupported:
    """The maintenance plan by whole tuples that finds partners in stored joins.

    It is what section 7.3 of papers/idivm.txt compares with: SDBT-streams where all tables may
    change, SDBT-fixed where the problem names those that do not.
    """
    return _planned(replace(request, cache=False), Strategy.RECURSIVE)


def size(request: PlanningRequest) -> int:
    """Return how many operators a query has, as far as it is modelled."""
    return 0 if request.lowered is None else sum(1 for _ in walk(request.lowered.root))


def _planned(request: PlanningRequest, strategy: Strategy) -> MaintenancePlan | Unsupported:
    if request.lowered is None or request.identified is None:
        return request.unmodelled
    if isinstance(request.identified, Unsupported):
        return request.identified
    if (wide := too_wide(request.lowered)) is not None:
        return wide
    try:
        return _Composition(request, request.identified, strategy).plan()
    except NotModelledError as error:
        return error.unsupported


@dataclass
class _Composition:
    request: PlanningRequest
    identified: Plan
    strategy: Strategy

    def plan(self) -> MaintenancePlan:
        """Composes everything."""
        request = self.request
        symbols = used_symbols(self.identified.root)
        identified = distinguishable(
            self.identified,
            lambda name, column: replace(column, symbol=symbols.fresh(column.symbol)),
        )
        for operator in _composed(identified.root):
            if any(scalar.subqueries for scalar in operator.scalars):
                raise NotModelledError(
                    "a subquery in an expression has no rule yet", operator.label
                )
            if operator.outer_columns:
                raise NotModelledError("a correlated subquery has no rule yet", operator.label)
            _require_rule(operator)
        self.composer = Composer(
            request.sources,
            symbols,
            request.types,
            request.static,
            change_of_join if self.strategy == Strategy.RECURSIVE else None,
            request.minimise,
        )
        self.composer.in_steps = self._in_steps
        self.cardinality = Cardinality(self.composer, request.statistics)
        # What has been asked of the tables' names by now is all that there is to ask.
        identified = replace(identified, root=rewrite(identified.root, _captured))
        self.composer.visible = tuple(zip(identified.names, identified.columns, strict=True))
        self.root = identified.root
        if self.strategy != Strategy.RECURSIVE:
            # Recursive materialisation stores tables whole, whatever is asked of them above.
            self.composer.relevant = relevant(self.root)
        self._made: dict[Operator, Operator] = {}
        self._content(self.root)
        keep_what_is_read(self.composer)
        self._weigh_steps()
        script: tuple[Step, ...] = (*reads(self.composer), *self.composer.steps)
        found = (lookup for loop in self.composer.loops.values() for lookup in probes(loop))
        lookups = list(dict.fromkeys((*found, *self.composer.lookups)))
        states = [
            laid_out(state, script, lookups, self.composer, self.cardinality)
            if isinstance(state, StateTable)
            else state
            for state in self.composer.states
        ]
        maintained = request.maintained_by(self.strategy, states, script, self.composer.variables)
        return replace(
            maintained,
            program=replace(
                maintained.program,
                probes=table_probes(lookups),
                costs=costs(self.composer, request.statistics),
            ),
            evidence=replace(maintained.evidence, notes=tuple(dict.fromkeys(self.composer.notes))),
        )

    def _weigh_steps(self) -> None:
        """Note what the queries of steps are expected to cost for each row of the diffs that they read."""
        composer = self.composer
        for place, step in enumerate(composer.steps):
            if isinstance(step, Assign) and place in composer.plans:
                ways = composer.loops[place]
                held = dict.fromkeys(diff.variable for way in ways for diff in way.diffs)
                each = [
                    (item, self.cardinality.query(composer.plans[place], ways, {item: 1.0})[1])
                    for item in held
                ]
                dear = tuple((name, found) for name, found in each if found >= DEAR)
                composer.steps[place] = replace(step, lookups=dear)

    def _in_steps(self, plan: Operator) -> Operator:
        composer, cardinality = self.composer, self.cardinality
        cardinality.learn(plan)
        return in_steps(
            plan,
            lambda lookup: cardinality.fanout(lookup.rows, frozenset(lookup.by)),
            lambda found: composer.assign("reached", found, found.columns),
        )

    def _content(self, root: Operator) -> None:
        inner = root
        visible = [column for _, column in self.composer.visible]
        while isinstance(inner, Projection) and all(item.scalar.as_column for item in inner.items):
            was = {item.column: item.scalar.as_column for item in inner.items}
            visible = [found for column in visible if (found := was[column]) is not None]
            inner = inner.input
        if has_rule(maintain, inner) and len(set(visible)) == len(self.composer.visible):
            # The groups are the view.
            names = (name for name, _ in self.composer.visible)
            self.composer.visible = tuple(zip(names, visible, strict=True))
            maintain(self._over_bags(inner), self.composer, CONTENT)
            return
        rows = self._unnumbered(root)
        if rows is not None:
            # The content numbers its rows itself.
            bare = self._linear(shown(rows, (c for _, c in self.composer.visible)), as_bag=True)
            maintain(numbered(bare, self.composer.symbols), self.composer, CONTENT)
            return
        linear = self._linear(root, as_bag=self.strategy != Strategy.ID)
        self._store(linear, CONTENT)

    def _linear(self, operator: Operator, as_bag: bool) -> Operator:
        """A plan in which every operator has a rule, after storing what has none.

        With `as_bag`, its change is wanted as a bag.
        """
        if has_rule(maintain, operator):
            return self._once(operator, self._maintained)
        if has_rule(refer, operator):
            [child] = operator.children
            stored = self._once(child, self._stored)
            assert isinstance(stored, StateScan)
            return refer(operator.with_children((stored,)), stored, self.composer)
        if not operator.children:
            return operator
        linear = has_rule(change, operator)
        if not linear:
            operator = self._without_numbers(operator)
        wants = [as_bag and linear] + [as_bag or not linear] * (len(operator.children) - 1)
        result = operator.with_children(
            tuple(
                self._linear(child, want)
                for child, want in zip(operator.children, wants, strict=True)
            )
        )
        if as_bag and not linear and operator is not self.root:
            return self._once(result, lambda item: self._store(item, self.composer.name("rows")))
        return result

    def _over_bags(self, operator: Operator) -> Operator:
        """An operator whose result is stored, over an input whose change can be had as a bag."""
        if _is_whole(operator):
            return operator
        [child] = operator.children
        rows = self._unnumbered(child)
        if rows is not None and operator.with_children((rows,)).columns == operator.columns:
            return operator.with_children((self._linear(rows, as_bag=True),))
        return operator.with_children((self._below(child, operator),))

    def _unnumbered(self, plan: Operator) -> Operator | None:
        """The plan without numbers, unless joins of it are stored, whose rows are told apart."""
        return None if self.strategy == Strategy.RECURSIVE and _joins(plan) else unnumbered(plan)

    def _without_numbers(self, operator: Operator) -> Operator:
        """An operator whose inputs, but for the first, carry no numbers if it shows none of them."""
        if operator.inner:
            # What the operator evaluates reads its inputs as they are.
            return operator
        first, *others = operator.children
        bare = tuple(self._unnumbered(other) or other for other in others)
        made = operator.with_children((first, *bare))
        return made if made.columns == operator.columns else operator

    def _once(self, operator: Operator, make: Callable[[Operator], Operator]) -> Operator:
        """What is stored for an operator, which a plan may hold more than once."""
        if operator not in self._made:
            self._made[operator] = make(operator)
        return self._made[operator]

    def _maintained(self, operator: Operator) -> Operator:
        role = self.composer.name(type(operator).__name__.lower())
        return maintain(self._over_bags(operator), self.composer, role)

    def _stored(self, operator: Operator) -> Operator:
        linear = self._linear(operator, as_bag=self.strategy == Strategy.TUPLE)
        if isinstance(linear, StateScan):
            return linear
        return self._store(linear, self.composer.name("shared"))

    def _below(self, operator: Operator, reader: Operator) -> Operator:
        """The input of an operator whose result is stored: a cache, or a plan of bags."""
        if self.request.cache and _joins(operator):
            return self._once(operator, lambda item: self._cached(item, reader))
        return self._linear(operator, as_bag=True)

    def _cached(self, operator: Operator, reader: Operator) -> Operator:
        """A cache, of the IDs and what anything above reads: what conditions compared is not kept."""
        readers = [reader, *(item for item in walk(self.root) if operator in item.children)]
        read = frozenset[Column]().union(*(_read(item, operator) for item in readers))
        slim = self._slim(operator, readers, read)
        rows = self._linear(slim.rows if slim else operator, as_bag=False)
        if slim is None:
            read |= frozenset(ids_of(rows))
            rows = shown(rows, (column for column in rows.columns if column in read))
        state = self._store(rows, self.composer.name(CACHE))
        return slim.whole(state, self.composer) if slim else state

    def _slim(
        self, operator: Operator, readers: list[Operator], read: frozenset[Column]
    ) -> Slim | None:
        """A cache without what nobody reads but sums."""
        kept = frozenset[Column]()
        for reader in readers:
            columns = not_added(reader, self.composer)
            if columns is None:
                return None
            kept |= columns
        self.cardinality.learn(operator)

        def have_few(plan: Operator, columns: frozenset[Column]) -> bool:
            return self.cardinality.knows(plan) and self.cardinality.fanout(plan, columns) < FEWEST

        return slimmed(operator, read, kept, have_few, self.composer)

    def _store(self, operator: Operator, role: str) -> StateScan:
        ids = ids_of(operator)
        # Before all diffs are made in vain.
        require_index(ids)
        if self.strategy != Strategy.ID and _is_linear(operator):
            changed = bag(operator, self.composer)
            state = store(role, operator, ids, self.composer)
            if changed is not None:
                Upkeep(state, self.composer).apply_bag(changed)
            return state
        conditional = _conditional(operator)
        found = diffs(operator, conditional, self.composer)
        state = store(role, operator, ids, self.composer)
        Upkeep(state, self.composer).apply(found)
        return state


def _read(reader: Operator, rows: Operator) -> frozenset[Column]:
    """The columns of an input that an operator asks for: all, if it shows some that it does not read."""
    columns = frozenset(rows.columns)
    return (
        columns & reader.references
        if columns & set(reader.columns) <= reader.references
        else columns
    )


def _is_whole(operator: Operator) -> bool:
    """Whether an operator's rule sees to all that is below it."""
    return has_rule(maintain, operator) and is_whole(operator)


def _composed(plan: Operator) -> Iterator[Operator]:
    """The operators of a plan that composition goes through; what references share, once."""
    seen: set[int] = set()
    waiting = [plan]
    while waiting:
        operator = waiting.pop()
        if id(operator) not in seen:
            seen.add(id(operator))
            yield operator
            waiting += () if _is_whole(operator) else reversed(operator.children)


def _captured(operator: Operator) -> Operator:
    return captured(operator) if isinstance(operator, Scan) else operator


def _is_linear(plan: Operator) -> bool:
    parts = walk(plan, subqueries=False)
    return all(not part.children or has_rule(change, part) for part in parts)


def _require_rule(operator: Operator) -> None:
    """Refuses an operator that no rule is for."""
    if not operator.children:
        if not isinstance(operator, Scan):
            constant(operator)
    elif not any(has_rule(rule, operator) for rule in (propagate, maintain, refer)):
        raise NotModelledError("there is no rule for this operator", operator.label)


def _joins(operator: Operator) -> bool:
    return any(len(item.children) > 1 for item in walk(operator, subqueries=False))


def _conditional(plan: Operator) -> dict[Operator, list[frozenset[Column]]]:
    """For every leaf, the sets of its columns that conditions read; those that overlap are one."""
    made: dict[Column, frozenset[Column]] = {}
    wanted: list[frozenset[Column]] = []
    for operator in walk(plan, subqueries=False):
        wanted += conditions(operator)
        if isinstance(operator, Projection):
            made.update(
                (i.column, i.scalar.references) for i in operator.items if not i.is_unchanged
            )
        for branch in getattr(operator, "branches", ()):
            for old, new in branch.renamed(operator.columns):
                made[new] = made.get(new, frozenset()) | {old}

    def origins(column: Column, seen: frozenset[Column]) -> frozenset[Column]:
        if column not in made or column in seen:
            return frozenset({column})
        return frozenset({column}).union(*(origins(c, seen | {column}) for c in made[column]))

    sets = [frozenset().union(*(origins(c, frozenset()) for c in each)) for each in wanted if each]
    result: dict[Operator, list[frozenset[Column]]] = {}
    for leaf in walk(plan, subqueries=False):
        if leaf.children:
            continue
        groups: list[frozenset[Column]] = []
        for item in sets:
            part = item & frozenset(leaf.columns)
            if not part:
                continue
            apart = [group for group in groups if not group & part]
            merged = part.union(*(group for group in groups if group & part))
            groups = [*apart, merged]
        result[leaf] = groups
    return result
