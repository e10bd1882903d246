"""Pass 3 of papers/idivm.txt, section 4: compose the Δ-script of a view from its plan.

The plan is divided into linear parts: σ, π, ⋈, ∪ and the operators that look for partners. A part ends
below an operator whose result is stored, or at the view. The diffs of the leaves pass through the rules
of the part's operators, and the resulting diffs are applied to the stored result. The rows that this
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
from orchestrator.deltascript.leaves import StateScan, capture
from orchestrator.deltascript.plan import (
    CACHE,
    CONTENT,
    ON_READ,
    Assign,
    MaintenancePlan,
    Merged,
    StateTable,
    Step,
    Strategy,
)
from orchestrator.engine.access import probes
from orchestrator.engine.as_written import as_written
from orchestrator.engine.composer import Composer
from orchestrator.engine.costs.cardinality import Cardinality
from orchestrator.engine.costs.script import costs
from orchestrator.engine.layout import laid_out, table_probes
from orchestrator.engine.leaves import constant, reads, relevant
from orchestrator.engine.split_joins import in_steps
from orchestrator.engine.states import Upkeep, keep_what_is_read, require_index, store
from orchestrator.engine.terms import projected
from orchestrator.engine.width import too_wide
from orchestrator.strategies.idiff import rules
from orchestrator.strategies.idiff.bags import numbered, unnumbered
from orchestrator.strategies.idiff.conditional import conditional_columns
from orchestrator.strategies.idiff.failing import may_fail
from orchestrator.strategies.idiff.first_rows import (
    maintain_first_rows,
    moved_to_window,
    picks_first_rows,
)
from orchestrator.strategies.idiff.merged import merged
from orchestrator.strategies.idiff.recursive import change_of_join
from orchestrator.strategies.idiff.rules.base import (
    bag,
    change,
    diffs,
    has_rule,
    propagate,
)
from orchestrator.strategies.idiff.rules.stored import is_whole, maintain, not_added, refer
from orchestrator.strategies.idiff.slim_cache import FEWEST, SlimCache, slim_cache
from orchestrator.strategies.request import PlanningRequest

for module in pkgutil.iter_modules(rules.__path__):
    importlib.import_module(f"{rules.__name__}.{module.name}")

MANY_LOOKUPS = 10.0
"""A step that needs at least so many lookups for each row of a diff records their number. Its cost then
depends on how many rows the diff has in a refresh."""


def plan(request: PlanningRequest) -> MaintenancePlan | Unsupported:
    """Return the maintenance plan by i-diffs, or why the strategy does not apply."""
    return _compose(request, Strategy.ID)


def plan_by_tuples(request: PlanningRequest) -> MaintenancePlan | Unsupported:
    """Return the maintenance plan by whole tuples: the same composition, with every change as a bag.

    This is the tuple-based IVM that section 6 of papers/idivm.txt compares with.
    """
    return _compose(replace(request, cache=False), Strategy.TUPLE)


def plan_recursively(request: PlanningRequest) -> MaintenancePlan | Unsupported:
    """Return the maintenance plan by whole tuples that finds partners in stored joins.

    Section 7.3 of papers/idivm.txt compares with it: SDBT-streams if all tables may change, SDBT-fixed
    if the request names tables that do not.
    """
    return _compose(replace(request, cache=False), Strategy.RECURSIVE)


def size(request: PlanningRequest) -> int:
    """Return the number of operators of a query, or 0 if the algebra does not model it."""
    return 0 if request.lowered is None else sum(1 for _ in walk(request.lowered.root))


def _compose(request: PlanningRequest, strategy: Strategy) -> MaintenancePlan | Unsupported:
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
    """One composition: the plan with IDs, and the composer that collects states and steps."""

    request: PlanningRequest
    identified: Plan
    strategy: Strategy

    def plan(self) -> MaintenancePlan:
        """Compose the script and return the maintenance plan."""
        request = self.request
        symbols = used_symbols(self.identified.root)
        identified = distinguishable(
            self.identified,
            lambda name, column: replace(column, symbol=symbols.fresh(column.symbol)),
        )
        for operator in _operators_to_compose(identified.root):
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
            request.growing,
        )
        self.composer.in_steps = self._split_joins
        self.cardinality = Cardinality(self.composer, request.statistics)
        self.composer.repeats = self.cardinality.repeats
        # Nothing asks for the names of tables from here on, so scans can turn into captured leaves.
        root = rewrite(identified.root, capture)
        self.cardinality.learn(root)
        root = rewrite(root, lambda operator: moved_to_window(operator, self.cardinality))
        identified = replace(identified, root=root)
        self.composer.visible = tuple(zip(identified.names, identified.columns, strict=True))
        self.root = identified.root
        if self.strategy != Strategy.RECURSIVE:
            # Recursive materialization stores whole tables, whatever the operators above select.
            self.composer.relevant = relevant(self.root)
        self._results: dict[Operator, Operator] = {}
        self._content(self.root)
        keep_what_is_read(self.composer)
        self._note_lookups()
        script: tuple[Step, ...] = (*reads(self.composer), *self.composer.steps)
        lookups_of_loops = (
            lookup for loop in self.composer.loops.values() for lookup in probes(loop)
        )
        lookups = list(dict.fromkeys((*lookups_of_loops, *self.composer.lookups)))
        states = [
            laid_out(self._written(state), script, lookups, self.composer, self.cardinality)
            if isinstance(state, StateTable)
            else state
            for state in self.composer.states
        ]
        maintained = request.maintained_by(self.strategy, states, script, self.composer.variables)
        read: Merged | Unsupported | None = None
        if refusal := self._not_shared(maintained):
            read = Unsupported(refusal, "")
        elif request.maintain == ON_READ or request.may_be_shared:
            read = merged(self.root, identified.columns, self.composer, request.columns)
        return replace(
            maintained,
            program=replace(
                maintained.program,
                probes=table_probes(lookups),
                costs=costs(self.composer, request.statistics),
                merged=read if isinstance(read, Merged) else None,
                not_merged=str(read) if isinstance(read, Unsupported) else "",
            ),
            evidence=replace(maintained.evidence, notes=tuple(dict.fromkeys(self.composer.notes))),
        )

    def _not_shared(self, plan: MaintenancePlan) -> str:
        """Return why writers cannot share an eager view, if they may."""
        if not self.request.may_be_shared:
            return ""
        if not plan.program.reads_log_alone:
            return "a refresh reads the table"
        if any(may_fail(operator) for operator in walk(self.root)):
            return "an expression may fail, and the view then keeps its content"
        return ""

    def _written(self, state: StateTable) -> StateTable:
        """Return a state, the content with the query as it was written if the view's own query lacks its key."""
        hidden = {column.name for column in state.columns if column.hidden}
        if state.role != CONTENT or hidden.isdisjoint(state.key) or self.request.plan is None:
            return state
        return replace(state, written=as_written(self.request.plan, self.composer))

    def _note_lookups(self) -> None:
        """Record the lookups that a step's query is expected to need for each row of a diff, if many."""
        composer = self.composer
        for place, step in enumerate(composer.steps):
            if isinstance(step, Assign) and place in composer.plans:
                loops = composer.loops[place]
                diff_variables = dict.fromkeys(
                    diff.variable for loop in loops for diff in loop.diffs
                )
                lookups = [
                    (
                        variable,
                        self.cardinality.query(composer.plans[place], loops, {variable: 1.0})[1],
                    )
                    for variable in diff_variables
                ]
                many = tuple((name, count) for name, count in lookups if count >= MANY_LOOKUPS)
                composer.steps[place] = replace(step, lookups=many)

    def _split_joins(self, plan: Operator) -> Operator:
        composer, cardinality = self.composer, self.cardinality
        cardinality.learn(plan)
        return in_steps(
            plan,
            lambda lookup: cardinality.fanout(lookup.rows, frozenset(lookup.by)),
            lambda rows: composer.assign("reached", rows, rows.columns),
        )

    def _content(self, root: Operator) -> None:
        """Store the content: the groups themselves, a numbered bag, or rows with IDs."""
        inner = root
        visible = [column for _, column in self.composer.visible]
        while isinstance(inner, Projection) and all(item.scalar.as_column for item in inner.items):
            sources = {item.column: item.scalar.as_column for item in inner.items}
            visible = [source for column in visible if (source := sources[column]) is not None]
            inner = inner.input
        picks = picks_first_rows(inner, self.cardinality)
        if (picks or has_rule(maintain, inner)) and len(set(visible)) == len(self.composer.visible):
            # The view shows exactly the stored groups or rows.
            names = (name for name, _ in self.composer.visible)
            self.composer.visible = tuple(zip(names, visible, strict=True))
            if picks:
                self._maintain_first_rows(inner, CONTENT)
            else:
                maintain(self._over_bags(inner), self.composer, CONTENT)
            return
        rows = self._unnumbered(root)
        if rows is not None:
            # The content numbers its own rows.
            bag_rows = self._linear(
                projected(rows, (c for _, c in self.composer.visible)), as_bag=True
            )
            maintain(numbered(bag_rows, self.composer.symbols), self.composer, CONTENT)
            return
        linear = self._linear(root, as_bag=self.strategy != Strategy.ID)
        self._store(linear, CONTENT)

    def _linear(self, operator: Operator, as_bag: bool) -> Operator:
        """Return a plan in which every operator has a rule; store the results of the other operators.

        With `as_bag`, the caller needs the change of the plan as a bag.
        """
        if picks_first_rows(operator, self.cardinality):
            return self._store_once(operator, self._maintain_first_rows)
        if has_rule(maintain, operator):
            return self._store_once(operator, self._maintain)
        if has_rule(refer, operator):
            [child] = operator.children
            stored = self._store_once(child, self._store_shared)
            assert isinstance(stored, StateScan)
            return refer(operator.with_children((stored,)), stored, self.composer)
        if not operator.children:
            return operator
        linear = has_rule(change, operator)
        if not linear:
            operator = self._without_numbers(operator)
        child_as_bag = [as_bag and linear] + [as_bag or not linear] * (len(operator.children) - 1)
        result = operator.with_children(
            tuple(
                self._linear(child, bag_wanted)
                for child, bag_wanted in zip(operator.children, child_as_bag, strict=True)
            )
        )
        if as_bag and not linear and operator is not self.root:
            return self._store_once(
                result, lambda rows: self._store(rows, self.composer.name("rows"))
            )
        return result

    def _over_bags(self, operator: Operator) -> Operator:
        """Return a stored operator over an input whose change is available as a bag."""
        if _is_whole(operator):
            return operator
        [child] = operator.children
        rows = self._unnumbered(child)
        if rows is not None and operator.with_children((rows,)).columns == operator.columns:
            return operator.with_children((self._linear(rows, as_bag=True),))
        return operator.with_children((self._cache_or_bags(child, operator),))

    def _unnumbered(self, plan: Operator) -> Operator | None:
        """Return the plan without numbers of equal rows, or None if it needs them or has none.

        Recursive materialization stores joins, whose rows must have IDs.
        """
        return None if self.strategy == Strategy.RECURSIVE and _joins(plan) else unnumbered(plan)

    def _without_numbers(self, operator: Operator) -> Operator:
        """Remove numbers of equal rows from all inputs but the first, if the operator shows none of them."""
        if operator.inner:
            # The evaluated plan refers to the inputs as they are.
            return operator
        first, *others = operator.children
        bare = tuple(self._unnumbered(other) or other for other in others)
        without = operator.with_children((first, *bare))
        return without if without.columns == operator.columns else operator

    def _store_once(
        self, operator: Operator, store_result: Callable[[Operator], Operator]
    ) -> Operator:
        """Return the stored result of an operator; an operator that occurs twice is stored once."""
        if operator not in self._results:
            self._results[operator] = store_result(operator)
        return self._results[operator]

    def _maintain(self, operator: Operator) -> Operator:
        role = self.composer.name(type(operator).__name__.lower())
        return maintain(self._over_bags(operator), self.composer, role)

    def _maintain_first_rows(self, operator: Operator, role: str = "") -> Operator:
        [child] = operator.children
        selects = not has_rule(maintain, operator)
        below = self._over_bags(child) if selects else self._cache_or_bags(child, operator)
        operator, role = operator.with_children((below,)), role or self.composer.name("first_rows")
        return maintain_first_rows(operator, self.composer, self.cardinality, role)

    def _store_shared(self, operator: Operator) -> Operator:
        linear = self._linear(operator, as_bag=self.strategy == Strategy.TUPLE)
        if isinstance(linear, StateScan):
            return linear
        return self._store(linear, self.composer.name("shared"))

    def _cache_or_bags(self, operator: Operator, reader: Operator) -> Operator:
        """Return the input of a stored operator: a cache if the input has joins, else a plan of bags."""
        if self.request.cache and _joins(operator):
            return self._store_once(operator, lambda rows: self._store_cache(rows, reader))
        return self._linear(operator, as_bag=True)

    def _store_cache(self, operator: Operator, reader: Operator) -> Operator:
        """Store a cache of the IDs and the columns that operators above read, and return it."""
        readers = [reader, *(reader for reader in walk(self.root) if operator in reader.children)]
        read = frozenset[Column]().union(*(_columns_read(reader, operator) for reader in readers))
        slim = self._slim_cache(operator, readers, read)
        rows = self._linear(slim.rows if slim else operator, as_bag=False)
        if slim is None:
            read |= frozenset(ids_of(rows))
            rows = projected(rows, (column for column in rows.columns if column in read))
        state = self._store(rows, self.composer.name(CACHE))
        return slim.whole(state, self.composer) if slim else state

    def _slim_cache(
        self, operator: Operator, readers: list[Operator], read: frozenset[Column]
    ) -> SlimCache | None:
        """Return a cache without the columns that the plan above only adds up, if that saves writes."""
        needed = frozenset[Column]()
        for reader in readers:
            columns = not_added(reader, self.composer)
            if columns is None:
                return None
            needed |= columns
        self.cardinality.learn(operator)

        def have_few(plan: Operator, columns: frozenset[Column]) -> bool:
            return self.cardinality.knows(plan) and self.cardinality.fanout(plan, columns) < FEWEST

        return slim_cache(operator, read, needed, have_few, self.composer)

    def _store(self, operator: Operator, role: str) -> StateScan:
        ids = ids_of(operator)
        # Fail early, before any diff is composed.
        require_index(ids)
        if self.strategy != Strategy.ID and _is_linear(operator):
            changed = bag(operator, self.composer)
            state = store(role, operator, ids, self.composer)
            if changed is not None:
                Upkeep(state, self.composer).apply_bag(changed)
            return state
        conditional = conditional_columns(operator)
        composed = diffs(operator, conditional, self.composer)
        state = store(role, operator, ids, self.composer)
        Upkeep(state, self.composer).apply(composed)
        return state


def _columns_read(reader: Operator, rows: Operator) -> frozenset[Column]:
    """Return the columns of an input that an operator reads: all, if it passes on columns unread."""
    columns = frozenset(rows.columns)
    return (
        columns & reader.references
        if columns & set(reader.columns) <= reader.references
        else columns
    )


def _is_whole(operator: Operator) -> bool:
    """Return whether the operator's rule handles the whole plan below it."""
    return has_rule(maintain, operator) and is_whole(operator)


def _operators_to_compose(plan: Operator) -> Iterator[Operator]:
    """Yield the operators of a plan that need a rule; a shared operator only once."""
    seen: set[int] = set()
    waiting = [plan]
    while waiting:
        operator = waiting.pop()
        if id(operator) not in seen:
            seen.add(id(operator))
            yield operator
            waiting += () if _is_whole(operator) else reversed(operator.children)


def _is_linear(plan: Operator) -> bool:
    parts = walk(plan, subqueries=False)
    return all(not part.children or has_rule(change, part) for part in parts)


def _require_rule(operator: Operator) -> None:
    """Raise an error for an operator without a rule."""
    if not operator.children:
        if not isinstance(operator, Scan):
            constant(operator)
    elif not any(has_rule(rule, operator) for rule in (propagate, maintain, refer)):
        raise NotModelledError("there is no rule for this operator", operator.label)


def _joins(operator: Operator) -> bool:
    return any(len(part.children) > 1 for part in walk(operator, subqueries=False))
