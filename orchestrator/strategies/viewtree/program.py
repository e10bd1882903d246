"""The maintenance plan of a view tree: deltas carried from the leaves to the root.

A delta is a relation like that of its view: keys with what is to be added to their payloads. At a
view whose children change, one child after the other: its delta joins what is stored of the others
(papers/fivm.txt, section 5), and is then added to what is stored of itself. So the children before
it are met as they are afterwards and those after it as they were, and every pair of changes once.
Leaves with a sibling that may change are stored too, but for those that are no more than an indexed
table, which are read there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.algebra.columns import Column
from orchestrator.algebra.ids import used_symbols
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.group import Aggregate, Grouping
from orchestrator.algebra.operators.join import Join
from orchestrator.algebra.operators.left_join import LeftJoin
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.operators.set_operation import Branch
from orchestrator.algebra.operators.union_all import UnionAll
from orchestrator.algebra.predicates import never_null
from orchestrator.algebra.scalar import Scalar, conjunction, disjunction, filled
from orchestrator.algebra.unsupported import NotModelledError, Unsupported
from orchestrator.deltascript.leaves import StateScan, captured
from orchestrator.deltascript.plan import CONTENT, MaintenancePlan, Reason, StateTable
from orchestrator.strategies.idiff import terms
from orchestrator.strategies.idiff.access import probes
from orchestrator.strategies.idiff.compose import table_probes
from orchestrator.strategies.idiff.composer import Composer
from orchestrator.strategies.idiff.diffs import Bag
from orchestrator.strategies.idiff.leaves import bag_of, reads
from orchestrator.strategies.idiff.states import Upkeep, store
from orchestrator.strategies.problem import ColumnType, Problem, Statistics
from orchestrator.strategies.viewtree import classes, covariance, orders, search, sums
from orchestrator.strategies.viewtree.covariance import TRIPLE
from orchestrator.strategies.viewtree.hypergraph import Fd, Hypergraph, Variables
from orchestrator.strategies.viewtree.normal import (
    COVARIANCE,
    Atom,
    NormalForm,
    Product,
    normal_form,
)
from orchestrator.strategies.viewtree.sums import COUNT, Kept, Payload, Total
from orchestrator.strategies.viewtree.tree import View, composed, materialised, tau, with_indicators

NAME = "viewtree"

FEW = 16
"""Numbers of a payload that are looked at to see whether a delta adds anything."""


def plan(problem: Problem) -> MaintenancePlan | Unsupported:
    """The maintenance plan by a view tree, or why there is none."""
    if problem.plan is None:
        return Unsupported("the query is not modelled", problem.algebra)
    form = normal_form(problem.plan, problem.distinct, problem.types)
    if isinstance(form, Unsupported):
        return form
    try:
        return _Program(problem, form).plan()
    except NotModelledError as error:
        return error.unsupported


@dataclass(frozen=True)
class _Relation:
    """Rows with keys and payloads: a view's definition, its state, or its delta."""

    rows: Operator
    keys: Mapping[str, Column]
    payload: Mapping[Payload, Column]
    exists: bool = False
    """Whether the payloads count as 1 wherever there is a key (definition 29)."""
    terms: tuple[_Relation, ...] = ()
    """Of a delta that is a sum, its parts, each of which has a key once."""

    def at(self, rows: Operator) -> _Relation:
        """The same columns, found elsewhere."""
        return replace(self, rows=rows)


class _Program:
    """One tree being turned into states and steps."""

    def __init__(self, problem: Problem, form: NormalForm) -> None:
        assert problem.plan is not None
        self.problem = problem
        self.atoms = {atom.name: replace(atom, scan=captured(atom.scan)) for atom in form.atoms}
        self.form = form
        self.composer = Composer(
            problem.sources, used_symbols(problem.plan.root), problem.types, problem.static
        )
        for column, _ in form.groups:
            if column.symbol not in self.composer.types and column.type == "text":
                # Made by the normal form, to tell rows apart by how their values look.
                self.composer.symbols.fresh(column.symbol)
                self.composer.types[column.symbol] = ColumnType("text", comparable=True)
        graph = form.graph
        self.static = {a.name for a in form.atoms if a.scan.table.oid in problem.static}
        self.forest = _order(graph, form.fds, problem.variable_order)
        self.tree = with_indicators(composed(tau(self.forest, graph), graph.free), graph)
        self.kept = [self._kept(product) for product in form.products]
        self.totals = tuple(dict.fromkeys(t for one in self.kept for t in one.totals))
        updatable = self.atoms.keys() - self.static
        # How often a key is there tells whether it comes or goes.
        counted = {v for v in self.tree.walk() if v.indicator and v.leaves <= updatable}
        self.stored = materialised(self.tree, updatable) | counted
        self.found = self._found(updatable)
        self.stored -= self.found
        self.read = {view: self._read(view) for view in self.tree.walk() if not view.children}
        self.counts: dict[View, _Relation] = {}
        self.defined: dict[View, _Relation] = {}
        self.states: dict[View, StateScan] = {}
        self.probes: dict[str, list[frozenset[str]]] = {}

    def plan(self) -> MaintenancePlan:
        """The states, and the steps that keep them."""
        problem = self.problem
        root = self._definition(self.tree)
        self.composer.comparable(
            column for one in self.defined.values() for column in one.keys.values()
        )
        for view in self.tree.walk():
            if view in self.stored and view is not self.tree:
                self._store(view)
        self._content(root)
        states = [
            replace(_indexed(state, self.probes.get(state.role, ())), arrays=self._arrays(state))
            if isinstance(state, StateTable)
            else state
            for state in self.composer.states
        ]
        script = (*reads(self.composer), *self.composer.steps)
        made = problem.maintained_by(NAME, states, script, self.composer.variables)
        lookups = (lookup for one in self.composer.loops.values() for lookup in probes(one))
        made = replace(made, probes=table_probes(list(dict.fromkeys(lookups))))
        return replace(made, algebra=f"{problem.algebra}\n\n{self._drawn()}", reasons=self._why())

    def _drawn(self) -> str:
        order = orders.written(self.forest)
        tree = classes.drawn(self.tree, self.stored, 1)
        return f"view tree over {order}, stored where marked *:\n{tree}"

    def _why(self) -> tuple[Reason, ...]:
        graph, fds = self.form.graph, self.form.fds
        found = classes.guarantee(search.cost(self.tree, graph, fds))
        return (Reason(NAME, True, f"it is {classes.class_of(graph, fds)}: {found}"),)

    def _change(self, atom: Atom) -> Bag:
        """The change of an atom's table as a bag."""
        bag = bag_of(atom.scan, self.composer)
        assert bag is not None
        return bag

    def _arrays(self, state: StateTable) -> tuple[str, ...]:
        """The columns of a state that hold triples."""
        scan = self.composer.scans[state.role]
        return tuple(name for column, name in scan.outputs if column.type == TRIPLE)

    def _found(self, updatable: Collection[str]) -> frozenset[View]:
        """Leaves that need no storage: each row is a key, and an index finds it in its table.

        A table is only there as it is afterwards. So the leaf's delta must be the first of those
        that join, and of the children of a view one leaf of a table that changes can be such.
        """
        found: list[View] = []
        for parent in self.tree.walk():
            for view in parent.children:
                if view not in self.stored or view.children or view.indicator:
                    continue
                others = [
                    one.keys & view.keys
                    for one in parent.children
                    if one is not view and one.leaves & set(updatable)
                ]
                if all(self._finds(view, keys) for keys in others):
                    found.append(view)
                    if view.leaves <= set(updatable):
                        break
        return frozenset(found)

    def _finds(self, view: View, keys: Variables) -> bool:
        """Whether a leaf's rows are all apart, and found by some of its keys."""
        atom = self.atoms[view.atoms[0]]
        oid = atom.scan.table.oid
        columns = {s.as_column: v for v, s in atom.binds if v in view.keys}
        known = self.problem.statistics.get(oid, Statistics(0))
        return any(key <= columns.keys() for key in atom.scan.keys) and any(
            columns.get(output.column) in keys and output.attnum in known.indexed
            for output in atom.scan.outputs
        )

    # Definitions

    def _kept(self, product: Product) -> Kept:
        types, column = self.problem.types, product.aggregate.column
        argument = types.get(f"{column.symbol}()")
        result = types.get(column.symbol)
        not_null = frozenset(
            one for atom in self.atoms.values() for one in atom.rows(atom.scan).not_null
        )

        def always(factor: Scalar) -> bool:
            return never_null(factor, not_null)

        if product.aggregate.function == COVARIANCE:
            leaves = [v.atoms[0] for v in self.tree.walk() if not v.children and not v.indicator]
            return covariance.kept(product, leaves, always)
        return sums.kept(
            product,
            argument.name if argument else None,
            result.name if result else None,
            always,
        )

    def _definition(self, view: View) -> _Relation:
        """A view over the base tables."""
        if not view.children:
            atom = self.read[view]
            made = self._leaf(view, atom, atom.rows(atom.scan), None)
            made = replace(made, exists=view.indicator)
        else:
            children = [self._definition(child) for child in view.children]
            made = self._inner(view, children)
        if not made.keys and view is not self.tree:
            # Without groups there is a row even of nothing, which no join may meet.
            made = made.at(Selection(made.rows, filled("x > 0", x=made.payload[COUNT])))
        self.defined[view] = made
        return made

    def _read(self, view: View) -> Atom:
        """The atom of a leaf; an indicator reads its table once more, under other names."""
        atom = self.atoms[view.atoms[0]]
        if not view.indicator:
            return atom
        new = {column: self.composer.fresh(column) for column in atom.scan.columns}
        scan = replace(
            atom.scan,
            alias=self.composer.symbols.fresh(atom.scan.alias),
            outputs=tuple(replace(o, column=new[o.column]) for o in atom.scan.outputs),
        )
        renamed = {column: Scalar.column(other) for column, other in new.items()}
        binds = tuple((v, s.substitute(renamed)) for v, s in atom.binds if v in view.keys)
        return replace(atom, scan=scan, condition=atom.condition.substitute(renamed), binds=binds)

    def _leaf(self, view: View, atom: Atom, rows: Operator, sign: Column | None) -> _Relation:
        """An atom's rows, or those of its change with their signs, summed up by the keys."""
        rows, keys = self._keyed(view, atom, rows)
        one = Scalar.read("1") if sign is None else Scalar.column(sign)
        return self._grouped(view, rows, keys, lambda payload: payload.lifted(atom.name, one))

    def _each(self, view: View, atom: Atom, rows: Operator, sign: Column | None) -> _Relation:
        """The same of a view whose rows need not be summed up."""
        known = self.defined[view]
        rows, _ = self._keyed(view, atom, rows)
        one = sums.ONE if sign is None else Scalar.column(sign)
        payload = [Item(c, part.of_row(atom.name, one)) for part, c in known.payload.items()]
        return known.at(Projection(rows, (*map(Item.kept, known.keys.values()), *payload)))

    def _keyed(self, view: View, atom: Atom, rows: Operator) -> tuple[Operator, dict[str, Column]]:
        """An atom's rows with the keys of its view."""
        known = self.defined.get(view)
        keys = dict(known.keys) if known else {}
        computed: list[Item] = []
        called = {variable: column for column, variable in reversed(self.form.groups)}
        for variable, scalar in atom.binds:
            if variable not in view.keys:
                continue
            column = scalar.as_column
            if column is None:
                column = keys.get(variable, called[variable])
                computed.append(Item(column, scalar))
            keys[variable] = column
        if computed:
            rows = Projection(rows, (*map(Item.kept, rows.columns), *computed))
        return rows, keys

    def _inner(self, view: View, children: Sequence[_Relation], first: int = 0) -> _Relation:
        """The join of a view's children, beginning with one of them, summed up by its keys."""
        rows, bound = children[first].rows, dict(children[first].keys)
        rest = [child for number, child in enumerate(children) if number != first]
        while rest:
            following = max(rest, key=lambda one: len(one.keys.keys() & bound.keys()))
            rest.remove(following)
            shared = sorted(following.keys.keys() & bound.keys())
            equal = (filled("x = y", x=bound[name], y=following.keys[name]) for name in shared)
            rows = Join(rows, following.rows, conjunction(equal))
            if isinstance(following.rows, StateScan):
                names = (following.rows.called(following.keys[name]) for name in shared)
                self.probes.setdefault(following.rows.role, []).append(frozenset(names))
            bound = {**following.keys, **bound}
        known = self.defined.get(view)
        keys = known.keys if known else {name: bound[name] for name in sorted(view.keys)}

        def joined(payload: Payload) -> Scalar:
            parts = [
                (payload.within(_summed_atoms(child)), relation)
                for child, relation in zip(view.children, children, strict=True)
                if not relation.exists
            ]
            return payload.joined([(part, relation.payload[part]) for part, relation in parts])

        return self._grouped(view, rows, keys, joined)

    def _grouped(
        self,
        view: View,
        rows: Operator,
        keys: Mapping[str, Column],
        call: Callable[[Payload], Scalar],
    ) -> _Relation:
        known = self.defined.get(view)
        totals = sums.parts(self.totals, _summed_atoms(view))
        payload = known.payload if known else {total: self._column(total) for total in totals}
        aggregates = tuple(Aggregate(column, call(part)) for part, column in payload.items())
        by = tuple(keys[name] for name in sorted(view.keys))
        return _Relation(
            Grouping(rows, by, aggregates),
            {name: keys[name] for name in sorted(view.keys)},
            payload,
        )

    def _column(self, part: Payload) -> Column:
        name = "idivm_n" if part == COUNT else "idivm_sum"
        return Column(self.composer.symbols.fresh(name), part.type)

    # States

    def _store(self, view: View) -> None:
        """Stores a view below the root."""
        made = self.defined[view]
        role = self.composer.name(_called(view))
        self.states[view] = store(
            role, made.rows, tuple(made.keys.values()), self.composer, followed=False
        )

    def _content(self, root: _Relation) -> None:
        """Stores the root with what the view shows, and adds the root's delta to it."""
        values = {
            one.aggregate.column: sums.value(one, [root.payload[total] for total in one.totals])
            for one in self.kept
        }
        values |= {column: Scalar.column(root.keys[name]) for column, name in self.form.groups}
        visible: list[tuple[str, Column]] = []
        computed: list[Item] = []
        for name, scalar in self.form.shown:
            item = Item(Column(self.composer.symbols.fresh(name)), scalar.substitute(values))
            same = item.scalar.as_column
            if same is not None and same not in (column for _, column in visible):
                visible.append((name, same))
            else:
                visible.append((name, item.column))
                computed.append(item)
        self.composer.visible = tuple(visible)
        kept = (*root.keys.values(), *root.payload.values())

        def shown(rows: Operator) -> Operator:
            return Projection(rows, (*map(Item.kept, kept), *computed))

        state = store(CONTENT, shown(root.rows), tuple(root.keys.values()), self.composer)
        delta = self._delta(self.tree)
        if delta is not None:
            self._add(state, delta, computed, shown)

    # Deltas

    def _delta(self, view: View) -> _Relation | None:
        """What changes a view, in a variable; the views below it are brought up on the way."""
        if not view.children:
            atom = self.read[view]
            if atom.name in self.static:
                return None
            bag = self._change(atom)
            if view in self.found:
                return self._each(view, atom, atom.rows(bag.plan), bag.sign)
            made = self._assigned(view, self._leaf(view, atom, atom.rows(bag.plan), bag.sign))
            return self._appearing(view, made) if view.indicator else made
        deltas = [self._delta(child) for child in view.children]
        terms: list[_Relation] = []
        first = [child in self.found for child in view.children]
        for number in sorted(range(len(first)), key=lambda one: not first[one]):
            child, delta = view.children[number], deltas[number]
            if delta is None:
                continue
            others = [delta if one is child else self._present(one) for one in view.children]
            terms.append(self._assigned(view, self._inner(view, others, number)))
            if child in self.states:
                self._add(self.states[child], self.counts.get(child, delta))
        if len(terms) < 2:
            return terms[0] if terms else None
        return self._united(view, tuple(terms))

    def _present(self, view: View) -> _Relation:
        """A view as it is stored, or found in its table."""
        if view in self.found:
            atom = self.atoms[view.atoms[0]]
            return self._each(view, atom, atom.rows(atom.scan), None)
        return self.defined[view].at(self.states[view])

    def _appearing(self, view: View, counts: _Relation) -> _Relation:
        """The delta of an indicator: the keys that come, and those that are there no more."""
        self.counts[view] = counts
        state, composer = self.states[view], self.composer
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
        made = _Relation(changed, counts.keys, {COUNT: sign})
        columns = (*counts.keys.values(), sign)
        return made.at(composer.assign(f"{_called(view)}_change", changed, columns))

    def _united(self, view: View, terms: tuple[_Relation, ...]) -> _Relation:
        """Several deltas of a view as one, in which a key may be more than once."""
        made = self.defined[view]
        columns = (*made.keys.values(), *made.payload.values())
        branches = tuple(Branch(term.rows, columns) for term in terms)
        return replace(made, rows=UnionAll(branches, columns), terms=terms)

    def _assigned(self, view: View, made: _Relation) -> _Relation:
        """A delta computed once, without what adds nothing where that is soon said."""
        rows, payload = made.rows, made.payload.values()
        if len(payload) <= FEW and all(isinstance(part, Total) for part in made.payload):
            rows = Selection(rows, disjunction(filled("x <> 0", x=column) for column in payload))
        columns = (*made.keys.values(), *payload)
        return made.at(self.composer.assign(f"{_called(view)}_change", rows, columns))

    def _add(
        self,
        state: StateScan,
        delta: _Relation,
        computed: Sequence[Item] = (),
        shown: Callable[[Operator], Operator] = lambda rows: rows,
    ) -> None:
        """V := V + δV; keys whose count becomes 0 go."""
        for term in delta.terms:
            self._add(state, term, computed, shown)
        if delta.terms:
            return
        upkeep, ids = Upkeep(state, self.composer), tuple(delta.keys.values())
        grown = {
            column: part.added(upkeep.stored(column), column)
            for part, column in delta.payload.items()
        }
        values = [(item.column, item.scalar.substitute(grown)) for item in computed]
        if not ids and state.role == CONTENT:
            upkeep.update(delta.rows, ids, [*grown.items(), *values])
            return
        upkeep.merge(shown(delta.rows), [*grown.items(), *values])
        count = delta.payload[COUNT]
        fewer = Selection(delta.rows, filled("x <= 0", x=count))
        upkeep.delete(fewer, ids, filled("x = 0", x=upkeep.stored(count)))


def _order(graph: Hypergraph, fds: tuple[Fd, ...], wanted: str | None) -> orders.Forest:
    """The variable order that is asked for, or the best."""
    if wanted is None:
        return search.best(graph, fds)
    forest = orders.parsed(wanted)
    orders.check(forest, graph)
    return forest


def _summed_atoms(view: View) -> tuple[str, ...]:
    """The atoms whose factors a view's payloads hold."""
    return () if view.indicator else view.atoms


def _called(view: View) -> str:
    """What a view's state and delta are called after."""
    name = f"at_{view.at or 'root'}" if view.children else view.atoms[0]
    if view.indicator:
        name = f"some_{name}"
    return name.encode()[:20].decode(errors="ignore")


def _indexed(state: StateTable, probes: Iterable[frozenset[str]]) -> StateTable:
    """A state whose key begins with what deltas look for, and indexes for what it cannot.

    >>> from orchestrator.deltascript.plan import Query
    >>> from orchestrator.algebra.dialect import parse as read
    >>> state = StateTable("s", (), ("a", "c"), (), Query(read("SELECT 1")))
    >>> made = _indexed(state, [frozenset("c"), frozenset("ac"), frozenset("a")])
    >>> made.key, made.probes
    (('a', 'c'), (('c',),))
    """
    place = {name: number for number, name in enumerate(state.key)}
    wanted = {tuple(sorted(probe, key=place.__getitem__)) for probe in probes if probe}
    key: tuple[str, ...] = ()
    rest: list[tuple[str, ...]] = []
    for probe in sorted(wanted, key=lambda names: (len(names), [place[n] for n in names])):
        if set(key) <= set(probe):
            key += tuple(name for name in probe if name not in key)
        else:
            rest.append(probe)
    key += tuple(name for name in state.key if name not in key)
    found = [probe for probe in rest if set(probe) != set(key[: len(probe)])]
    return replace(state, key=key, probes=tuple(found))
