"""The maintenance plan of a view tree: deltas carried from the leaves to the root.

A delta is a relation like that of its view: keys with what is to be added to their payloads. At a
view whose children change, one child after the other: its delta joins what is stored of the others
(papers/fivm.txt, section 5), and is then added to what is stored of itself. So the children before
it are met as they are afterwards and those after it as they were, and every pair of changes once.
Leaves with a sibling that may change are stored too, but for those that are no more than an indexed
table, which are read there, and taken back what came since where they are met as they were.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import chain, combinations

from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.join import Join
from orchestrator.algebra.operators.left_join import LeftJoin
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.scalar import TRUE, Scalar, conjunction, filled
from orchestrator.algebra.unsupported import NotModelledError, Unsupported
from orchestrator.deltascript.plan import MaintenancePlan, Reason, Strategy
from orchestrator.engine import terms
from orchestrator.engine.diffs import variables
from orchestrator.errors import UsageError
from orchestrator.strategies.request import PlanningRequest
from orchestrator.strategies.viewtree import classes, factors, levels, orders, search, sums
from orchestrator.strategies.viewtree.form import Atom, NormalForm
from orchestrator.strategies.viewtree.hypergraph import Fd, Hypergraph
from orchestrator.strategies.viewtree.normal import planned
from orchestrator.strategies.viewtree.relation import Relation, called
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

FOUND = 3
"""Leaves of one view that change and are read in their tables: their changes meet each other in 2^n ways."""


MOST_VARIABLES = 200
"""Variables of one tree, at most: it may be as deep."""


def plan(request: PlanningRequest) -> MaintenancePlan | Unsupported:
    """The maintenance plan by a view tree, or why there is none."""
    return planned(request, lambda form: _Program(request, form).plan())


class _Program:
    """One tree being turned into states and steps."""

    def __init__(self, request: PlanningRequest, form: NormalForm) -> None:
        self.views = Views(request, form)
        graph = form.graph
        self.forest = _order(graph, form.fds, request.variable_order, request.factorized)
        tree = (nu if request.factorized else tau)(self.forest, graph)
        updatable = self.views.atoms.keys() - self.views.static
        self.known = levels.Known(self.views.atoms, request.statistics)
        self.tree = with_indicators(composed(tree, graph.free), graph)
        if not (request.factorized or request.factorizable):
            self.tree = self._flattened(self.tree, updatable)
        self.views.take_products(
            [v.atoms[0] for v in self.tree.walk() if not v.children and not v.indicator]
        )
        # How often a key is there tells whether it comes or goes.
        counted = {v for v in self.tree.walk() if v.indicator and v.leaves <= updatable}
        self.stored = materialised(self.tree, updatable) | counted
        self.shown: tuple[View, ...] = ()
        if request.factorized or form.having != TRUE:
            # Groups that HAVING leaves out are kept: they may come back.
            self.shown = (self.tree,)
            if request.factorized:
                self.shown = enumerated(self.tree, graph.free, whole=bool(self.views.totals))
            self.stored = (self.stored - {self.tree}).union(self.shown)
        self.found = self._found(updatable)
        self.stored -= self.found
        self.read = {view: self._read(view) for view in self.tree.walk() if not view.children}
        self.counts: dict[View, Relation] = {}
        """What is added to states of leaves, where another delta goes up."""
        self.outers: dict[View, list[factors.Outer]] = {}
        """Deltas of views in factors, beside those that are listed."""
        self.apart = self._apart(updatable)
        self.wanted = self._wanted(self.tree, False)

    def plan(self) -> MaintenancePlan:
        """The states, and the steps that keep them."""
        root = self._definition(self.tree)
        self.views.require_comparable()
        content = None if self.shown else self.views.store_content(root)
        for view in self.tree.walk():
            if view in self.stored and (self.shown or view is not self.tree):
                self.views.store(view)
        if self.shown:
            result = self._result()
            self.views.show(result, tuple(result.keys))
        state = content.state if content else self.views.states.get(self.tree)
        delta = self._delta(self.tree)
        if delta is not None and state is not None:
            self.views.add(state, delta, content, whole=True)
            for outer in self.outers.get(self.tree, ()):
                product = factors.multiplied(self.views, self.tree, outer)
                self.views.add(state, product, content, whole=True)
        made = self.views.plan(Strategy.VIEW_TREE)
        # The size of a change says nothing of what it costs in factors.
        applied = tuple(sorted(self.views.request.factorizable))
        made = replace(made, program=replace(made.program, applied=applied))
        return made.drawn(self._drawn()).because(*self._why())

    def _drawn(self) -> str:
        order = orders.written(self.forest)
        tree = classes.drawn(self.tree, self.stored, 1)
        return f"view tree over {order}, stored where marked *:\n{tree}"

    def _why(self) -> tuple[Reason, ...]:
        graph, fds = self.views.form.graph, self.views.form.fds
        found = classes.guarantee(search.cost(self.tree, graph, fds))
        if self.views.request.factorized:
            delay = (
                "the next row is found in constant time" if graph.free_connex else "read by joins"
            )
            found = f"{found}; kept factorized, {delay}"
        return (Reason(Strategy.VIEW_TREE, True, f"it is {classes.class_of(graph, fds)}: {found}"),)

    def _wanted(self, view: View, above: bool) -> frozenset[View]:
        """The views whose deltas are asked for: those that are stored, and all below them."""
        above = above or view in self.stored
        below = (self._wanted(child, above) for child in view.children)
        return frozenset({view} if above else ()).union(*below)

    def _result(self) -> Relation:
        """The join of the views that hold the result; whoever reads the result runs it."""
        first, *others = (self.views.copy(view) for view in self.shown)
        rows, keys = first.rows, dict(first.keys)
        for view, other in zip(self.shown[1:], others, strict=True):
            shared = sorted(other.keys.keys() & keys.keys())
            pairs = [(keys[name], other.keys[name]) for name in shared]
            rows = Join(rows, other.rows, terms.same(pairs, other.rows.not_null))
            keys = {**other.keys, **keys}
            state, known = self.views.states[view], self.views.defined[view].keys
            probe = frozenset(state.called(known[name]) for name in shared)
            self.views.probes.setdefault(state.role, []).append(probe)
        # What lies above others of these holds the product of what they hold.
        factors = [
            (view, made)
            for view, made in zip(self.shown, (first, *others), strict=True)
            if not any(
                operator in self.shown for child in view.children for operator in child.walk()
            )
        ]
        payload = {total: self.views.column(total) for total in self.views.totals}
        products = []
        for total, column in payload.items():
            parts = [(total.within(view.atoms), made) for view, made in factors]
            product = total.multiplied([(part, made.payload[part]) for part, made in parts])
            products.append(Item(column, product))
        return Relation(
            Projection(rows, (*map(Item.kept, keys.values()), *products)), keys, payload
        )

    def _found(self, updatable: Collection[str]) -> frozenset[View]:
        """Leaves that need no storage: each row is a key, and an index finds it in its table.

        A table is only there as it is afterwards. So the leaf's delta must be the first of those
        that join; of several such leaves of a view, one meets those behind it less their changes.
        """
        result: list[View] = []
        for parent in self.tree.walk():
            changing = 0
            for view in parent.children:
                if view not in self.stored or view.children or view.indicator or view in self.shown:
                    continue
                ways = [
                    levels.met(parent.children, child)[view]
                    for child in parent.children
                    if child is not view and child.leaves & set(updatable)
                ]
                changes = view.leaves <= set(updatable)
                # What is taken back of a delta in factors would be added apart from it.
                many = 1 if self.views.request.factorizable else FOUND
                if changing + changes <= many and all(
                    self.known.is_found(view, keys) for keys in ways
                ):
                    result.append(view)
                    changing += changes
        return frozenset(result)

    def _flattened(self, tree: View, updatable: Collection[str]) -> View:
        """The tree without views that cost more than they save."""

        def changing(view: View) -> bool:
            return bool(view.leaves & set(updatable))

        def drops(parent: View, child: View) -> bool:
            leaves = sum(map(changing, (*parent.children, *child.children))) - 1
            return leaves <= FOUND and levels.is_dear(parent, child, self.known, changing)

        made, graph, fds = levels.flattened(tree, drops), self.views.form.graph, self.views.form.fds
        # What is promised of every change comes before what most of them cost.
        before, after = (search.cost(item, graph, fds).update for item in (tree, made))
        return made if after <= before else tree

    def _apart(self, updatable: Collection[str]) -> frozenset[View]:
        """The leaves whose deltas are taken apart into factors."""
        wanted = {
            name
            for name in updatable
            if self.views.atoms[name].scan.table.oid in self.views.request.factorizable
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
        """A view over the base tables."""
        if not view.children:
            atom = self.read[view]
            result = self.views.leaf(view, atom, atom.rows(atom.scan), None)
            result = replace(result, exists=view.indicator)
        else:
            children = [self._definition(child) for child in view.children]
            result = self.views.inner(view, children)
        if not result.keys and view is not self.tree:
            # Without groups there is a row even of nothing, which no join may meet.
            result = result.at(Selection(result.rows, filled("x > 0", x=result.payload[COUNT])))
        self.views.defined[view] = result
        return result

    def _read(self, view: View) -> Atom:
        """The atom of a leaf; an indicator reads its table once more, under other names."""
        atom = self.views.atoms[view.atoms[0]]
        if not view.indicator:
            return atom
        new = {column: self.views.composer.fresh(column) for column in atom.scan.columns}
        scan = replace(
            atom.scan,
            alias=self.views.composer.symbols.fresh(atom.scan.alias),
            outputs=tuple(replace(o, column=new[o.column]) for o in atom.scan.outputs),
        )
        renamed = {column: Scalar.column(other) for column, other in new.items()}
        binds = tuple((v, s.substitute(renamed)) for v, s in atom.binds if v in view.keys)
        return replace(atom, scan=scan, condition=atom.condition.substitute(renamed), binds=binds)

    def _each(self, view: View, atom: Atom, rows: Operator, sign: Column | None) -> Relation:
        """The same of a view whose rows need not be summed up."""
        known = self.views.defined[view]
        rows, _ = self.views.keyed(view, atom, rows)
        item = sums.ONE if sign is None else Scalar.column(sign)
        payload = [Item(c, part.of_row([(atom.name, item)])) for part, c in known.payload.items()]
        made = known.at(Projection(rows, (*map(Item.kept, rows.columns), *payload)))
        return replace(made, each=(atom.name, item))

    def _taken_back(self, view: View) -> Relation:
        """The change of a found leaf with its signs turned."""
        atom = self.views.atoms[view.atoms[0]]
        bag = self.views.change_of(atom)
        turned = replace(bag.sign, symbol=self.views.composer.symbols.fresh("sign"))
        rows = atom.rows(bag.plan)
        items = (*map(Item.kept, rows.columns), Item(turned, filled("-x", x=bag.sign)))
        return self._each(view, atom, Projection(rows, items), turned)

    # Deltas

    def _delta(self, view: View) -> Relation | None:
        """What changes a view, in a variable; the views below it are brought up on the way."""
        if not view.children:
            atom = self.read[view]
            if atom.name in self.views.static:
                return None
            bag = self.views.change_of(atom)
            if view in self.found and view not in self.apart:
                return self._each(view, atom, atom.rows(bag.plan), bag.sign)
            made = self.views.assigned(
                view, self.views.leaf(view, atom, atom.rows(bag.plan), bag.sign)
            )
            if view in self.apart:
                listed, outer = factors.taken_apart(made, called(view), self.views.composer)
                self.counts[view], self.outers[view] = made, [outer]
                return listed
            return self._appearing(view, made) if view.indicator else made
        deltas = [self._delta(child) for child in view.children]
        terms: list[Relation] = []
        first = [child in self.found for child in view.children]
        order = sorted(range(len(first)), key=lambda item: not first[item])
        for number in order:
            child, delta = view.children[number], deltas[number]
            if delta is None:
                continue
            if view in self.wanted:
                behind = [
                    later
                    for later in order[order.index(number) + 1 :]
                    if first[later] and deltas[later] is not None
                ]
                parts: list[Relation] = []
                for some in chain(*(combinations(behind, n) for n in range(len(behind) + 1))):
                    others = [
                        delta if each is child else self._present(each) for each in view.children
                    ]
                    for later in some:
                        others[later] = self._taken_back(view.children[later])
                    # All of them must have changed; mostly that of one table has not.
                    joined = [number, *some]
                    least = min(joined, key=lambda n: self.known.changes(view.children[n]))
                    needs = variables(others[least].rows)
                    parts += self._terms(view, number, others, needs)
                terms += [self._as_one(view, parts)] if behind else parts
            if child in self.views.states:
                self.views.add(self.views.states[child], self.counts.get(child, delta))
                for outer in self.outers.get(child, ()) if child.children else ():
                    self.views.add(
                        self.views.states[child], factors.multiplied(self.views, child, outer)
                    )
        if len(terms) < 2:
            return terms[0] if terms else None
        return self.views.united(view, tuple(terms))

    def _as_one(self, view: View, relations: Sequence[Relation]) -> Relation:
        """A delta and what is taken back of it: in between a count may be 0 that is not in the end."""
        summed = self.views.without_zeros(self.views.summed(view, relations))
        return summed if view is self.tree else self.views.assigned(view, summed)

    def _terms(
        self,
        view: View,
        number: int,
        others: list[Relation],
        needs: Collection[str] | None,
    ) -> list[Relation]:
        """What the delta of a child adds to a view's, beside what is carried on in factors."""
        child = view.children[number]
        listed = [others[number]]
        for outer in self.outers.get(child, ()):
            made = factors.carried(self.views, view, child, outer, others)
            if made is None:
                listed.append(
                    self.views.assigned(child, factors.multiplied(self.views, child, outer))
                )
            else:
                self.outers.setdefault(view, []).append(made)
        return [
            self.views.assigned(
                view,
                self.views.inner(view, [*others[:number], item, *others[number + 1 :]], number),
                needs,
            )
            for item in listed
        ]

    def _present(self, view: View) -> Relation:
        """A view as it is stored, or found in its table."""
        if view in self.found:
            atom = self.views.atoms[view.atoms[0]]
            return self._each(view, atom, atom.rows(atom.scan), None)
        return self.views.defined[view].at(self.views.states[view])

    def _appearing(self, view: View, counts: Relation) -> Relation:
        """The delta of an indicator: the keys that come, and those that are there no more."""
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
        came = Item(sign, filled(text, old=olds[count], new=count))
        signs = Projection(both, (*map(Item.kept, counts.keys.values()), came))
        changed = Selection(signs, filled("x <> 0", x=sign))
        relation = Relation(changed, counts.keys, {COUNT: sign})
        columns = (*counts.keys.values(), sign)
        return relation.at(composer.assign(f"{called(view)}_change", changed, columns))


def _order(
    graph: Hypergraph, fds: tuple[Fd, ...], wanted: str | None, free_top: bool
) -> orders.Forest:
    """The variable order that is asked for, or the best."""
    if len(graph.variables) > MOST_VARIABLES:
        raise NotModelledError(
            f"variables are not ordered in trees of more than {MOST_VARIABLES}",
            f"{len(graph.variables)} variables",
        )
    if wanted is None:
        return search.best(graph, fds, free_top)
    forest = orders.parsed(wanted)
    orders.check(forest, graph)
    if free_top and not orders.is_free_top(forest, graph.free):
        raise UsageError(
            "In the variable order of a factorized result, no variable that the view leaves out may"
            " be above one that it shows."
        )
    return forest
