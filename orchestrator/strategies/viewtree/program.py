"""The maintenance plan of a view tree: deltas are propagated from the leaves to the root.

A delta is a relation with the same columns as its view: keys, and the payloads to add. If several
children of a view change, the changes are propagated in sequence. The delta of a child joins what is
stored of the other children (papers/fivm.txt, section 5) and is then added to the child's own state. So it
joins the new state of earlier children and the old state of later children, and each pair of changes is
counted once. A leaf with a sibling that may change is stored too, unless it is just an indexed table. Such
a leaf is read in its table, and its change is subtracted where the old state is needed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import chain, combinations

from orchestrator.algebra.columns import Column
from orchestrator.algebra.copies import copied
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.left_join import LeftJoin
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.scalar import TRUE, Scalar, conjunction, filled
from orchestrator.algebra.unsupported import NotModelledError, Unsupported
from orchestrator.deltascript.leaves import StateScan
from orchestrator.deltascript.plan import MaintenancePlan, Reason, Strategy
from orchestrator.engine import terms
from orchestrator.engine.diffs import variables
from orchestrator.strategies.factorized.ranked import First, ranked_result
from orchestrator.strategies.factorized.result import joined_result
from orchestrator.strategies.factorized.shown import show
from orchestrator.strategies.request import PlanningRequest
from orchestrator.strategies.viewtree import classes, factors, levels, orders, search, sums
from orchestrator.strategies.viewtree.form import Atom, NormalForm
from orchestrator.strategies.viewtree.normal import plan_normal_form
from orchestrator.strategies.viewtree.relation import Content, Relation, state_name, united
from orchestrator.strategies.viewtree.sums import COUNT, Total
from orchestrator.strategies.viewtree.tree import (
    View,
    composed,
    enumerated,
    materialised,
    nu,
    tau,
    with_indicators,
)
from orchestrator.strategies.viewtree.views import Views

MOST_IN_TABLES = 3
"""The maximum number of changing leaves of a view that are read in tables: n changes join in 2^n ways."""


def plan(request: PlanningRequest) -> MaintenancePlan | Unsupported:
    """Return the maintenance plan by a view tree, or why the strategy does not apply."""
    first = plan_first_rows(request)
    if isinstance(first, MaintenancePlan):
        return first
    columns = [column.name for column in request.columns]
    planned = plan_normal_form(
        request, lambda form: _Program(request, form.asked_by(request.inputs, columns)).plan()
    )
    return planned if first is None or isinstance(planned, MaintenancePlan) else first


def plan_first_rows(request: PlanningRequest) -> MaintenancePlan | Unsupported | None:
    """Return the plan of a query for first rows that readers find one after the other, or None for other queries."""
    first = request.first_rows
    if first is None or request.inputs or request.ranked is not None:
        return None
    if isinstance(first, Unsupported):
        return first
    whole = replace(request, recognized=first.query, distinct=first.distinct, factorized=True)
    visible, keys = len(request.columns), len(first.order)

    def build(form: NormalForm) -> MaintenancePlan:
        sorted_by = tuple(scalar for _, scalar in form.outputs[visible : visible + keys])
        form = replace(form, outputs=form.outputs[:visible])
        return _Program(whole, form, First(first, sorted_by)).plan()

    return plan_normal_form(whole, build)


class _Program:
    """Builds the states and steps of one tree."""

    def __init__(
        self, request: PlanningRequest, form: NormalForm, first: First | None = None
    ) -> None:
        self.first = first
        self.views = Views(request, form)
        self.constraints = form.constraints(request.static, request.growing)
        self.graph = graph = form.graph_of_tree(self.constraints, request.factorized)
        self.facts = levels.TableFacts(self.views.atoms, request.statistics)
        self.forest = search.chosen(
            graph,
            self.constraints,
            request.variable_order,
            request.factorized,
            self.facts.frequencies(),
        )
        tree = (nu if request.factorized else tau)(self.forest, graph)
        updatable = self.views.atoms.keys() - self.views.static
        self.tree = with_indicators(composed(tree, graph.free), graph)
        if not (request.factorized or request.factorizable):
            self.tree = self._drop_views(self.tree, updatable)
        self.views.take_products(
            [v.atoms[0] for v in self.tree.walk() if not v.children and not v.indicator]
        )
        # The count of a key tells whether the key appears or disappears.
        counted = {v for v in self.tree.walk() if v.indicator and v.leaves <= updatable}
        self.stored = materialised(self.tree, updatable) | counted
        self.result_views: tuple[View, ...] = ()
        if request.factorized or form.having != TRUE or form.around is not None:
            # Groups that HAVING excludes are stored, because they may satisfy it later.
            self.result_views = (self.tree,)
            if request.factorized:
                self.result_views = enumerated(
                    self.tree, graph.free, bool(self.views.totals), graph.inputs
                )
            self.stored = (self.stored - {self.tree}).union(self.result_views)
        self.in_tables = self._leaves_in_tables(updatable)
        self.stored -= self.in_tables
        self.leaf_atoms = {
            view: self._leaf_atom(view) for view in self.tree.walk() if not view.children
        }
        self.counts: dict[View, Relation] = {}
        """The deltas to add to states of leaves whose propagated delta differs from it."""
        self.outers: dict[View, list[factors.Outer]] = {}
        """The parts of views' deltas that are in factors."""
        self.factorized_leaves = self._leaves_to_factorize(updatable)
        self.needed = self._views_with_deltas(self.tree, False)

    def plan(self) -> MaintenancePlan:
        """Return the plan: the states, and the steps that maintain them."""
        root = self._definition(self.tree)
        self.views.require_comparable()
        content = None if self.result_views else self.views.store_content(root)
        ranked = self.ranked = ranked_result(
            self.views, self.tree, self.result_views, self.graph, self.first
        )
        for view in self.tree.walk():
            is_stored = view in self.stored and (self.result_views or view is not self.tree)
            if is_stored and not (ranked and ranked.store(view)):
                self.views.store(view)
        if self.result_views:
            result = joined_result(self.views, self.result_views)
            if ranked is not None and ranked.first:
                ranked.show_first(result)
            else:
                show(self.views, result, tuple(result.keys))
        if ranked is not None:
            ranked.store_best()
        state = content.state if content else self.views.states.get(self.tree)
        delta = self._delta(self.tree)
        if delta is not None and state is not None:
            self._add(self.tree, state, delta, content, whole=True)
            for outer in self.outers.get(self.tree, ()):
                product = factors.multiply(self.views, self.tree, outer)
                self.views.add(state, product, content, whole=True)
        if ranked is not None:
            ranked.maintain()
        maintained = self.views.plan(Strategy.VIEW_TREE)
        if ranked is not None:
            maintained = ranked.with_ranking(maintained, tuple(result.keys))
        # The cost of a delta in factors does not depend on its number of rows.
        applied = tuple(sorted(self.views.request.factorizable))
        maintained = replace(maintained, program=replace(maintained.program, applied=applied))
        return maintained.drawn(self._drawing()).because(*self._reasons())

    def _drawing(self) -> str:
        order, inputs = orders.written(self.forest), self.views.form.inputs
        tree = classes.drawn(self.tree, self.stored, 1)
        over = f"over the fracture by {', '.join(inputs)}, {order}" if inputs else f"over {order}"
        return f"view tree {over}, stored where marked *:\n{tree}"

    def _reasons(self) -> tuple[Reason, ...]:
        form, graph, constraints = self.views.form, self.graph, self.constraints
        if graph.inputs:
            exponents = (
                search.delay(self.forest, graph, constraints),
                search.space(self.stored, graph, constraints),
            )
            costs = classes.lookups(form, self.tree, graph, constraints, *exponents)
            asked = ", ".join(self.views.request.inputs)
            return (Reason(Strategy.VIEW_TREE, True, f"for lookups by {asked} it is {costs}"),)
        guarantee = classes.guarantee(self.tree, graph, constraints)
        if self.views.request.factorized:
            delay = (
                "the next row is found in constant time" if graph.free_connex else "read by joins"
            )
            guarantee = f"{guarantee}; kept factorized, {delay}"
            if self.ranked is not None:
                guarantee = self.ranked.guarantee(guarantee)
        name = classes.class_of(form.graph, self.constraints.fds)
        return (Reason(Strategy.VIEW_TREE, True, f"it is {name}: {guarantee}"),)

    def _views_with_deltas(self, view: View, above: bool) -> frozenset[View]:
        """Return the views whose deltas are needed: stored views and all views below them."""
        above = above or view in self.stored
        needed_below = (self._views_with_deltas(child, above) for child in view.children)
        return frozenset({view} if above else ()).union(*needed_below)

    def _leaves_in_tables(self, updatable: Collection[str]) -> frozenset[View]:
        """Return the leaves that need no state: each row has its own key, and an index finds it.

        A table only has its new state. So the leaf's delta must be the first of the deltas that join. If
        several such leaves of a view change, a delta joins the later leaves minus their changes.
        """
        result: list[View] = []
        for parent in self.tree.walk():
            changing = 0
            for view in parent.children:
                if (
                    view not in self.stored
                    or view.children
                    or view.indicator
                    or view in self.result_views
                ):
                    continue
                lookups = [
                    levels.join_keys(parent.children, child)[view]
                    for child in parent.children
                    if child is not view and child.leaves & set(updatable)
                ]
                changes = view.leaves <= set(updatable)
                # What is subtracted from a delta in factors would have to be added separately.
                limit = 1 if self.views.request.factorizable else MOST_IN_TABLES
                if changing + changes <= limit and all(
                    self.facts.has_lookup(view, keys) for keys in lookups
                ):
                    result.append(view)
                    changing += changes
        return frozenset(result)

    def _drop_views(self, tree: View, updatable: Collection[str]) -> View:
        """Return the tree without views that cost more than they save."""

        def changing(view: View) -> bool:
            return bool(view.leaves & set(updatable))

        def drops(parent: View, child: View) -> bool:
            leaves = sum(map(changing, (*parent.children, *child.children))) - 1
            return leaves <= MOST_IN_TABLES and levels.costs_more_than_joins(
                parent, child, self.facts, changing
            )

        smaller = levels.drop_views(tree, drops)
        # The guarantee for every change takes precedence over the expected cost.
        before, after = (
            search.cost(item, self.graph, self.constraints).update for item in (tree, smaller)
        )
        return smaller if after <= before else tree

    def _leaves_to_factorize(self, updatable: Collection[str]) -> frozenset[View]:
        """Return the leaves whose deltas are divided into factors."""
        wanted = {
            name
            for name in updatable
            if self.views.atoms[name].tables & self.views.request.factorizable
        }
        paths = [path for path in factors.paths_of(self.tree) if path[-1].atoms[0] in wanted]
        result = {path[-1] for path in paths if factors.gains(path)}
        for name in sorted(wanted - {view.atoms[0] for view in result}):
            raise NotModelledError(
                "factors of a table's changes meet no other table, each on its side", name
            )
        if result and not all(isinstance(total, Total) for total in self.views.totals):
            raise NotModelledError("only sums and counts are kept up in factors", "idivm.covar")
        return frozenset(result)

    # Definitions

    def _definition(self, view: View) -> Relation:
        """Return the definition of a view over the base tables."""
        if not view.children:
            atom = self.leaf_atoms[view]
            result = self.views.leaf(view, atom, atom.rows(atom.scan), None)
            result = replace(result, exists=view.indicator)
        else:
            children = [self._definition(child) for child in view.children]
            result = self.views.inner(view, children)
        if not result.keys and view is not self.tree:
            # Without GROUP BY the definition has a row even for no input, which must not join.
            result = result.at(Selection(result.rows, filled("x > 0", x=result.payload[COUNT])))
        self.views.defined[view] = result
        return result

    def _leaf_atom(self, view: View) -> Atom:
        """Return the atom of a leaf; an indicator gets a second scan of its table, with fresh names."""
        atom = self.views.atoms[view.atoms[0]]
        if not view.indicator:
            return atom
        composer = self.views.composer
        scan, new = copied(atom.scan, composer.symbols)
        composer.types |= {
            other.symbol: composer.types[column.symbol]
            for column, other in new.items()
            if column.symbol in composer.types
        }
        renamed = {column: Scalar.column(other) for column, other in new.items()}
        binds = tuple((v, s.substitute(renamed)) for v, s in atom.binds if v in view.keys)
        return replace(atom, scan=scan, condition=atom.condition.substitute(renamed), binds=binds)

    def _unsummed(self, view: View, atom: Atom, rows: Operator, sign: Column | None) -> Relation:
        """Return a leaf's rows as a relation without grouping; each row has its own key."""
        known = self.views.defined[view]
        rows, _ = self.views.keyed(view, atom, rows)
        sign_value = sums.ONE if sign is None else Scalar.column(sign)
        payload = [
            Item(c, part.of_row([(atom.name, sign_value)])) for part, c in known.payload.items()
        ]
        relation = known.at(Projection(rows, (*map(Item.kept, rows.columns), *payload)))
        return replace(relation, unsummed=(atom.name, sign_value))

    def _negated_change(self, view: View) -> Relation:
        """Return the change of a leaf that is read in its table, with opposite signs."""
        atom = self.views.atoms[view.atoms[0]]
        bag = self.views.change_of(atom)
        negated = replace(bag.sign, symbol=self.views.composer.symbols.fresh("sign"))
        rows = atom.rows(bag.plan)
        items = (*map(Item.kept, rows.columns), Item(negated, filled("-x", x=bag.sign)))
        return self._unsummed(view, atom, Projection(rows, items), negated)

    # Deltas

    def _delta(self, view: View) -> Relation | None:
        """Add the steps that compute a view's delta and maintain the views below it; return the delta."""
        if not view.children:
            atom = self.leaf_atoms[view]
            if atom.name in self.views.static:
                return None
            bag = self.views.change_of(atom)
            if view in self.in_tables and view not in self.factorized_leaves:
                return self._unsummed(view, atom, atom.rows(bag.plan), bag.sign)
            leaf_delta = self.views.assigned(
                view, self.views.leaf(view, atom, atom.rows(bag.plan), bag.sign)
            )
            if view in self.factorized_leaves:
                listed, outer = factors.factorize(leaf_delta, state_name(view), self.views.composer)
                self.counts[view], self.outers[view] = leaf_delta, [outer]
                return listed
            return self._indicator_delta(view, leaf_delta) if view.indicator else leaf_delta
        deltas = [self._delta(child) for child in view.children]
        terms: list[Relation] = []
        first = [child in self.in_tables for child in view.children]
        order = sorted(range(len(first)), key=lambda number: not first[number])
        for number in order:
            child, delta = view.children[number], deltas[number]
            if delta is None:
                continue
            if view in self.needed:
                behind = [
                    later
                    for later in order[order.index(number) + 1 :]
                    if first[later] and deltas[later] is not None
                ]
                parts: list[Relation] = []
                for some in chain(*(combinations(behind, n) for n in range(len(behind) + 1))):
                    others = [
                        delta if sibling is child else self._stored(sibling)
                        for sibling in view.children
                    ]
                    for later in some:
                        others[later] = self._negated_change(view.children[later])
                    # All of them must have changed; run only if the table that changes least did.
                    joined = [number, *some]
                    least = min(joined, key=lambda n: self.facts.changes(view.children[n]))
                    needs = variables(others[least].rows)
                    parts += self._terms(view, number, others, needs)
                terms += [self._combine(view, parts)] if behind else parts
            if child in self.views.states:
                self._add(child, self.views.states[child], self.counts.get(child, delta))
                for outer in self.outers.get(child, ()) if child.children else ():
                    self.views.add(
                        self.views.states[child], factors.multiply(self.views, child, outer)
                    )
        if len(terms) < 2:
            return terms[0] if terms else None
        return united(self.views.defined[view], tuple(terms))

    def _add(
        self,
        view: View,
        state: StateScan,
        delta: Relation,
        content: Content | None = None,
        whole: bool = False,
    ) -> None:
        """Add a delta to the state of a view; a ranked result follows it."""
        if self.ranked is not None:
            content = self.ranked.follow(view, delta)
        self.views.add(state, delta, content, whole)

    def _combine(self, view: View, relations: Sequence[Relation]) -> Relation:
        """Add up a delta and what is subtracted from it: a count may be 0 only before the subtraction."""
        summed = self.views.without_zeros(self.views.summed(view, relations))
        return summed if view is self.tree else self.views.assigned(view, summed)

    def _terms(
        self,
        view: View,
        number: int,
        others: list[Relation],
        needs: Collection[str] | None,
    ) -> list[Relation]:
        """Return what a child's delta adds to a view's delta; parts in factors are noted in `outers`."""
        child = view.children[number]
        listed = [others[number]]
        for outer in self.outers.get(child, ()):
            carried = factors.carry_up(self.views, view, child, outer, others)
            if carried is None:
                listed.append(
                    self.views.assigned(child, factors.multiply(self.views, child, outer))
                )
            else:
                self.outers.setdefault(view, []).append(carried)
        return [
            self.views.assigned(
                view,
                self.views.inner(view, [*others[:number], relation, *others[number + 1 :]], number),
                needs,
            )
            for relation in listed
        ]

    def _stored(self, view: View) -> Relation:
        """Return a view as it is stored, or as its table holds it."""
        if view in self.in_tables:
            atom = self.views.atoms[view.atoms[0]]
            return self._unsummed(view, atom, atom.rows(atom.scan), None)
        return self.views.defined[view].at(self.views.states[view])

    def _indicator_delta(self, view: View, counts: Relation) -> Relation:
        """Return the delta of an indicator: the keys that appear, and the keys that disappear."""
        self.counts[view] = counts
        state, composer = self.views.states[view], self.views.composer
        olds = {column: composer.fresh(column) for column in state.columns}
        stored = terms.renamed(state, olds.items())
        keys = [(counts.keys[name], olds[counts.keys[name]]) for name in sorted(view.keys)]
        equal = conjunction(filled("x = y", x=key, y=old) for key, old in keys)
        count = counts.payload[COUNT]
        both = LeftJoin(counts.rows, stored, equal)
        sign = composer.column("sign")
        text = "CASE WHEN coalesce(old, 0) = 0 THEN 1 WHEN old + new = 0 THEN -1 ELSE 0 END"
        appears = Item(sign, filled(text, old=olds[count], new=count))
        signs = Projection(both, (*map(Item.kept, counts.keys.values()), appears))
        changed = Selection(signs, filled("x <> 0", x=sign))
        relation = Relation(changed, counts.keys, {COUNT: sign})
        columns = (*counts.keys.values(), sign)
        return relation.at(composer.assign(f"{state_name(view)}_change", changed, columns))
