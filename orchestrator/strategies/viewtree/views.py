"""What carries deltas through views: leaves, joins, states, and their upkeep (papers/fivm.txt, section 5).

A relation has keys and, for each, elements of rings. A view sums up an atom's rows by its keys, or
joins its children and sums out what its keys lack; the delta of a view is made in the same way from
a child's delta and what is stored of the other children, and added to what is stored of the view.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby

from orchestrator.algebra.column_type import ColumnType
from orchestrator.algebra.columns import Column, Symbols
from orchestrator.algebra.ids import used_symbols
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.group import Aggregate, Grouping
from orchestrator.algebra.operators.join import Join
from orchestrator.algebra.operators.limit import Limit
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.operators.set_operation import Branch
from orchestrator.algebra.operators.union_all import UnionAll
from orchestrator.algebra.predicates import never_null
from orchestrator.algebra.ring import MIXED, MIXED_TYPE
from orchestrator.algebra.scalar import TRUE, Scalar, conjunction, disjunction, filled
from orchestrator.algebra.unsupported import NotModelledError
from orchestrator.deltascript.leaves import StateScan, captured
from orchestrator.deltascript.plan import (
    CONTENT,
    MaintenancePlan,
    StateTable,
    StateView,
    Statistics,
    Strategy,
)
from orchestrator.engine import terms
from orchestrator.engine.access import probes
from orchestrator.engine.composer import Composer
from orchestrator.engine.costs.script import costs
from orchestrator.engine.diffs import Bag
from orchestrator.engine.layout import table_probes
from orchestrator.engine.leaves import bag_of, reads
from orchestrator.engine.states import Upkeep, store
from orchestrator.strategies.request import PlanningRequest
from orchestrator.strategies.viewtree import sums
from orchestrator.strategies.viewtree.covariance import COVARIANCE_TYPE, TRIPLE
from orchestrator.strategies.viewtree.form import Atom, NormalForm
from orchestrator.strategies.viewtree.relation import (
    Content,
    Relation,
    called,
    columns_of,
    indexed,
    kept,
    summed_atoms,
)
from orchestrator.strategies.viewtree.sums import COUNT, Payload, Total
from orchestrator.strategies.viewtree.tree import View

FEW = 16
"""Numbers of a payload that are looked at to see whether a delta adds anything."""


class Views:
    """Views over the atoms of a query, being turned into states and steps."""

    def __init__(
        self,
        request: PlanningRequest,
        form: NormalForm,
        counting: Collection[View] = (),
        statistics: Mapping[int, Statistics] | None = None,
    ) -> None:
        """Start with no view; `counting` are the views that hold a count alone.

        Costs are those of the request's statistics, or of others.
        """
        assert request.plan is not None
        self.request = request
        self.statistics = request.statistics if statistics is None else statistics
        self.counting = counting
        self.atoms = {atom.name: replace(atom, scan=captured(atom.scan)) for atom in form.atoms}
        self.form = form
        self.composer = Composer(
            request.sources, used_symbols(request.plan.root), request.types, request.static
        )
        for column, _ in form.groups:
            if column.symbol not in self.composer.types and column.type == "text":
                # Made by the normal form, to tell rows apart by how their values look.
                self.composer.symbols.fresh(column.symbol)
                self.composer.types[column.symbol] = ColumnType("text", comparable=True)
        self.static = {a.name for a in form.atoms if a.scan.table.oid in request.static}
        self.defined: dict[View, Relation] = {}
        self.states: dict[View, StateScan] = {}
        self.probes: dict[str, list[frozenset[str]]] = {}

    def take_products(self, leaves: Sequence[str]) -> None:
        """Says what is kept of the aggregates in a tree with these leaves."""
        not_null = frozenset(
            column for atom in self.atoms.values() for column in atom.rows(atom.scan).not_null
        )
        always = partial(never_null, not_null=not_null)
        self.kept = [kept(product, leaves, self.request, always) for product in self.form.products]
        self.totals = tuple(dict.fromkeys(t for item in self.kept for t in item.totals))

    def require_comparable(self) -> None:
        """Refuses views with keys that `=` of pg_catalog does not compare."""
        self.composer.comparable(
            column for item in self.defined.values() for column in item.keys.values()
        )

    def plan(self, name: Strategy) -> MaintenancePlan:
        """The plan of all that was made."""
        states = [
            replace(
                indexed(state, self.probes.get(state.role, ())),
                arrays=self._of_type(state, TRIPLE, COVARIANCE_TYPE),
                elements=self._of_type(state, MIXED.element, MIXED_TYPE),
            )
            if isinstance(state, StateTable)
            else state
            for state in self.composer.states
        ]
        script = (*reads(self.composer), *self.composer.steps)
        maintained = self.request.maintained_by(name, states, script, self.composer.variables)
        lookups = (lookup for loop in self.composer.loops.values() for lookup in probes(loop))
        program = replace(
            maintained.program,
            probes=table_probes(list(dict.fromkeys(lookups))),
            costs=costs(self.composer, self.statistics),
        )
        return replace(maintained, program=program)

    # Rows of atoms

    def change_of(self, atom: Atom) -> Bag:
        """The change of an atom's table as a bag."""
        bag = bag_of(atom.scan, self.composer)
        assert bag is not None
        return bag

    def _of_type(self, state: StateTable, *types: str) -> tuple[str, ...]:
        """The columns of a state that hold elements of such types, or what is shown of them."""
        scan = self.composer.scans[state.role]
        return tuple(name for column, name in scan.outputs if column.type in types)

    def leaf(self, view: View, atom: Atom, rows: Operator, sign: Column | None) -> Relation:
        """An atom's rows, or those of its change with their signs, summed up by the keys."""
        rows, keys = self.keyed(view, atom, rows)
        item = Scalar.read("1") if sign is None else Scalar.column(sign)
        return self.grouped(view, rows, keys, lambda payload: payload.lifted([(atom.name, item)]))

    def keyed(self, view: View, atom: Atom, rows: Operator) -> tuple[Operator, dict[str, Column]]:
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

    # Joins

    def inner(
        self, view: View, children: Sequence[Relation], first: int = 0, *, as_listed: bool = False
    ) -> Relation:
        """The join of a view's children, beginning with one of them, summed up by its keys.

        The others follow as they share most with those before, or `as_listed`. Then what was joined
        before is one relation to the planner: it would look up rows by a part of what is known of
        them, if values had few rows on average.
        """
        rows, bound = self.joined(children, first, as_listed=as_listed)
        known = self.defined.get(view)
        keys = known.keys if known else {name: bound[name] for name in sorted(view.keys)}

        if all(child.each for child in children):
            plain = [child.each for child in children if child.each]
            return self.grouped(view, rows, keys, lambda payload: payload.lifted(plain))
        factors = [
            (summed_atoms(child), relation)
            for child, relation in zip(view.children, children, strict=True)
            if not relation.exists
        ]
        rows, factors = self._at_once(view, rows, factors)

        def joined(payload: Payload) -> Scalar:
            parts = [(payload.within(atoms), relation) for atoms, relation in factors]
            return payload.joined([(part, relation.payload[part]) for part, relation in parts])

        return self.grouped(view, rows, keys, joined)

    def _at_once(
        self, view: View, rows: Operator, factors: Sequence[tuple[tuple[str, ...], Relation]]
    ) -> tuple[Operator, list[tuple[tuple[str, ...], Relation]]]:
        """Factors of which those that are rows of neighbouring atoms, as they are, are one.

        One product of the columns of all takes less than those of each, and the product of these.
        """
        made: list[tuple[tuple[str, ...], Relation]] = []
        computed: list[Item] = []
        for plain, run in groupby(factors, lambda item: item[1].each is not None):
            found = list(run)
            if not plain or len(found) == 1:
                made += found
                continue
            atoms = tuple(name for names, _ in found for name in names)
            signs = [relation.each for _, relation in found if relation.each]
            payload = {
                part: self.column(part)
                for part in dict.fromkeys(entry.within(atoms) for entry in self.payload_of(view))
            }
            computed += [Item(column, part.of_row(signs)) for part, column in payload.items()]
            made.append((atoms, Relation(rows, {}, payload)))
        if computed:
            rows = Projection(rows, (*map(Item.kept, rows.columns), *computed))
        return rows, made

    def joined(
        self, children: Sequence[Relation], first: int = 0, *, as_listed: bool = False
    ) -> tuple[Operator, dict[str, Column]]:
        """The join of relations, in the order of `_inner`, and the columns of its variables."""
        rows, bound = children[first].rows, dict(children[first].keys)
        rest = [child for number, child in enumerate(children) if number != first]
        while rest:
            following = max(rest, key=lambda item: len(item.keys.keys() & bound.keys()))
            following = rest[0] if as_listed else following
            rest.remove(following)
            if as_listed and isinstance(rows, Join):
                rows = Limit(rows, offset=Scalar.read("0"))
            shared = sorted(following.keys.keys() & bound.keys())
            equal = (filled("x = y", x=bound[name], y=following.keys[name]) for name in shared)
            rows = Join(rows, following.rows, conjunction(equal))
            for scan in _scans(following.rows):
                self.note_probe(scan, (following.keys[name] for name in shared))
            bound = {**following.keys, **bound}
        return rows, bound

    def note_probe(self, scan: StateScan, columns: Iterable[Column]) -> None:
        """Notes that rows of a state are looked for by some columns."""
        names = frozenset(map(scan.called, columns))
        self.probes.setdefault(scan.role, []).append(names)

    def summed(self, root: View, relations: Sequence[Relation]) -> Relation:
        """The sum of relations with the keys and payloads of a root."""
        known = self.defined.get(root)
        columns = tuple(self.composer.fresh(column) for column in columns_of(relations[0]))
        columns = columns_of(known) if known else columns
        branches = tuple(Branch(item.rows, columns_of(item)) for item in relations)
        names = tuple(relations[0].keys)
        keys = dict(zip(names, columns, strict=False))
        payload = dict(zip(relations[0].payload, columns[len(names) :], strict=True))
        return self.grouped(
            root,
            UnionAll(branches, columns),
            keys,
            lambda part: part.joined([(part, payload[part])]),
        )

    def grouped(
        self,
        view: View,
        rows: Operator,
        keys: Mapping[str, Column],
        call: Callable[[Payload], Scalar],
    ) -> Relation:
        """Rows summed up by a view's keys, each part of the payload as its call says."""
        known = self.defined.get(view)
        totals = self.payload_of(view)
        payload = known.payload if known else {total: self.column(total) for total in totals}
        aggregates = tuple(Aggregate(column, call(part)) for part, column in payload.items())
        by = tuple(keys[name] for name in sorted(view.keys))
        return Relation(
            Grouping(rows, by, aggregates),
            {name: keys[name] for name in sorted(view.keys)},
            payload,
        )

    def payload_of(self, view: View) -> tuple[Payload, ...]:
        """What a view holds for each of its keys."""
        return (COUNT,) if view in self.counting else sums.parts(self.totals, summed_atoms(view))

    def column(self, part: Payload) -> Column:
        """A new column for a part of a payload."""
        name = "idivm_n" if part == COUNT else "idivm_sum"
        return Column(self.composer.symbols.fresh(name), part.type)

    # States

    def store(self, view: View) -> None:
        """Stores a view below the root."""
        made = self.defined[view]
        role = self.composer.name(called(view))
        self.states[view] = store(
            role, made.rows, tuple(made.keys.values()), self.composer, followed=False
        )

    def copy(self, view: View) -> Relation:
        """A stored view under names of its own."""
        known, state = self.defined[view], self.states[view]
        new = {column: self.composer.fresh(column) for column in state.columns}
        return Relation(
            terms.renamed(state, new.items()),
            {name: new[column] for name, column in known.keys.items()},
            {part: new[column] for part, column in known.payload.items()},
        )

    def values(self, root: Relation) -> dict[Column, Scalar]:
        """What the aggregates and grouping columns of the query are in terms of a root's columns."""
        values = {
            item.aggregate.column: sums.value(item, [root.payload[total] for total in item.totals])
            for item in self.kept
        }
        return values | {c: Scalar.column(root.keys[name]) for c, name in self.form.groups}

    def show(self, root: Relation, order: Sequence[str]) -> None:
        """Has the view show what it computes from a root over states; nothing is stored of it.

        Behind what users see there are the keys, in an order.
        """
        values = self.values(root)
        having = self.form.having.substitute(values)
        root = root.at(Selection(root.rows, having)) if having != TRUE else root
        items = [
            Item(Column(self.composer.symbols.fresh(name)), scalar.substitute(values))
            for name, scalar in self.form.shown
        ]
        keys = [
            Item(self.composer.fresh(root.keys[name]), Scalar.column(root.keys[name]))
            for name in order
        ]
        rows = Projection(root.rows, (*items, *keys))
        names = Symbols()
        called = [
            (item.column, Column(names.fresh(column.name)))
            for item, column in zip(items, self.request.columns, strict=True)
        ]
        called += [
            (item.column, Column(names.fresh(f"idivm_{name}")))
            for item, name in zip(keys, order, strict=True)
        ]
        query = self.composer.query(terms.renamed(rows, called), [new for _, new in called])
        hidden = tuple(new.symbol for _, new in called[len(items) :])
        self.composer.states.append(StateView(CONTENT, self.request.columns, hidden, query))

    def store_content(self, root: Relation) -> Content:
        """Stores the root with what the view shows."""
        if self.form.having != TRUE:
            raise NotModelledError("HAVING is not kept with the rows", str(self.form.having))
        values = self.values(root)
        covariances = {
            each.aggregate.column: {TRIPLE: COVARIANCE_TYPE, MIXED.element: MIXED_TYPE}[part.type]
            for each in self.kept
            for part in each.totals
            if part.type in (TRIPLE, MIXED.element)
        }
        visible: list[tuple[str, Column]] = []
        computed: list[Item] = []
        for name, scalar in self.form.shown:
            held = covariances.get(scalar.as_column) if scalar.as_column else None
            column = Column(self.composer.symbols.fresh(name), held)
            item = Item(column, scalar.substitute(values))
            same = item.scalar.as_column
            if same is not None and same not in (column for _, column in visible):
                visible.append((name, same))
            else:
                visible.append((name, item.column))
                computed.append(item)
        self.composer.visible = tuple(visible)
        kept = columns_of(root)
        rows = Projection(root.rows, (*map(Item.kept, kept), *computed))
        state = store(CONTENT, rows, tuple(root.keys.values()), self.composer)
        return Content(state, kept, tuple(computed))

    # Deltas

    def united(self, view: View, terms: tuple[Relation, ...]) -> Relation:
        """Several deltas of a view as one, in which a key may be more than once."""
        made = self.defined[view]
        columns = columns_of(made)
        branches = tuple(Branch(term.rows, columns) for term in terms)
        return replace(made, rows=UnionAll(branches, columns), terms=terms)

    def assigned(
        self, view: View, relation: Relation, needs: Iterable[str] | None = None
    ) -> Relation:
        """A delta computed once; `needs` is as in `Composer.assign`."""
        rows, name = self.without_zeros(relation).rows, f"{called(view)}_change"
        return relation.at(self.composer.assign(name, rows, columns_of(relation), needs))

    def without_zeros(self, relation: Relation) -> Relation:
        """A delta without what adds nothing, where that is soon said."""
        payload = relation.payload.values()
        if len(payload) > FEW or not all(isinstance(part, Total) for part in relation.payload):
            return relation
        some = disjunction(filled("x <> 0", x=column) for column in payload)
        return relation.at(Selection(relation.rows, some))

    def add(
        self,
        state: StateScan,
        delta: Relation,
        content: Content | None = None,
        whole: bool = False,
    ) -> None:
        """V := V + δV; keys whose count becomes 0 go, but not the one row of a `whole` result."""
        for term in delta.terms:
            self.add(state, term, content, whole)
        if delta.terms:
            return
        upkeep, ids = Upkeep(state, self.composer), tuple(delta.keys.values())
        grown = {
            column: part.added(upkeep.stored(column), column)
            for part, column in delta.payload.items()
        }
        values = list(grown.items())
        if content is not None:
            values += [(i.column, i.scalar.substitute(grown)) for i in content.computed]
        if not ids and (whole or content is not None):
            upkeep.update(delta.rows, ids, values)
            return
        rows = content.shown(delta.rows) if content else delta.rows
        upkeep.merge(rows, values, delta.payload[COUNT])


def _scans(rows: Operator) -> Iterator[StateScan]:
    """The states, if rows are those of a state, or of several with the same columns."""
    if isinstance(rows, StateScan):
        yield rows
    elif isinstance(rows, UnionAll):
        for branch in rows.branches:
            if branch.columns == rows.outputs:
                yield from _scans(branch.input)
