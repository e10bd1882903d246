"""Relations of a view tree: leaves, joins, states, deltas and their application (papers/fivm.txt, section 5).

A relation has keys and, for each key, elements of rings. A view sums up an atom's rows by its keys, or joins its
children and sums out the variables that are not among its keys. The delta of a view is computed in the same way from
a child's delta and the stored states of the other children, and is then added to the view's own state.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby

from orchestrator.algebra.column_type import ColumnType
from orchestrator.algebra.columns import Column
from orchestrator.algebra.ids import used_symbols
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.group import Aggregate, Grouping
from orchestrator.algebra.operators.limit import Limit
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.operators.set_operation import Branch
from orchestrator.algebra.operators.union_all import UnionAll
from orchestrator.algebra.predicates import never_null
from orchestrator.algebra.ring import MIXED, MIXED_TYPE
from orchestrator.algebra.scalar import TRUE, Scalar, conjunction, disjunction, filled
from orchestrator.algebra.traversal import rewrite
from orchestrator.algebra.unsupported import NotModelledError
from orchestrator.deltascript.leaves import StateScan, capture
from orchestrator.deltascript.plan import (
    CONTENT,
    MaintenancePlan,
    StateTable,
    Statistics,
    Strategy,
)
from orchestrator.engine import terms
from orchestrator.engine.access import probes
from orchestrator.engine.composer import Composer
from orchestrator.engine.costs.script import costs
from orchestrator.engine.diffs import Bag
from orchestrator.engine.layout import table_probes
from orchestrator.engine.leaves import reads
from orchestrator.engine.linear import linear_change
from orchestrator.engine.states import Upkeep, store
from orchestrator.strategies.idiff.rules.join import timed_change
from orchestrator.strategies.request import PlanningRequest
from orchestrator.strategies.viewtree import sums
from orchestrator.strategies.viewtree.covariance import COVARIANCE_TYPE, TRIPLE
from orchestrator.strategies.viewtree.form import Atom, NormalForm
from orchestrator.strategies.viewtree.relation import (
    Content,
    Relation,
    closeness,
    columns_of,
    indexed,
    joined_apart,
    ring_aggregate,
    scans_of,
    state_name,
    summed_atoms,
)
from orchestrator.strategies.viewtree.sums import COUNT, Payload, Total
from orchestrator.strategies.viewtree.tree import View

FEW = 16
"""The maximum number of payload columns that are compared with 0 to drop rows of a delta."""


class Views:
    """Builds relations, states and steps for the views over a query's atoms."""

    def __init__(
        self,
        request: PlanningRequest,
        form: NormalForm,
        counting: Collection[View] = (),
        statistics: Mapping[int, Statistics] | None = None,
    ) -> None:
        """Start without views; the `counting` views hold only a count.

        Cost estimates use the request's statistics unless others are given.
        """
        assert request.plan is not None
        self.request = request
        self.statistics = request.statistics if statistics is None else statistics
        self.counting = counting
        self.atoms = {
            atom.name: replace(atom, scan=rewrite(atom.scan, capture)) for atom in form.atoms
        }
        self.form = form
        symbols = used_symbols((request.recognized or request.plan).root)
        self.composer = Composer(
            *(request.sources, symbols, request.types, request.static), growing=request.growing
        )
        for column, _ in form.groups:
            if column.symbol not in self.composer.types and column.type == "text":
                # The normal form added this column to distinguish values by their text.
                self.composer.symbols.fresh(column.symbol)
                self.composer.types[column.symbol] = ColumnType("text", comparable=True)
        self.static = form.atoms_over(request.static)
        self.defined: dict[View, Relation] = {}
        self.states: dict[View, StateScan] = {}
        self.probes: dict[str, list[frozenset[str]]] = {}

    def take_products(self, leaves: Sequence[str]) -> None:
        """Set the payloads of the query's aggregates for a tree with these leaves."""
        not_null = frozenset(
            column for atom in self.atoms.values() for column in atom.rows(atom.scan).not_null
        )
        always = partial(never_null, not_null=not_null)
        self.aggregates = [
            ring_aggregate(product, leaves, self.request, always) for product in self.form.products
        ]
        self.totals = tuple(dict.fromkeys(t for item in self.aggregates for t in item.totals))

    def require_comparable(self) -> None:
        """Refuse views with keys that `=` of pg_catalog does not compare."""
        self.composer.comparable(
            column for item in self.defined.values() for column in item.keys.values()
        )

    def plan(self, name: Strategy) -> MaintenancePlan:
        """Return the maintenance plan of the collected states and steps."""
        states = [
            replace(
                indexed(state, self.probes.get(state.role, ())),
                arrays=self._columns_of_type(state, TRIPLE, COVARIANCE_TYPE),
                elements=self._columns_of_type(state, MIXED.element, MIXED_TYPE),
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
        """Return the change of an atom's rows as a bag."""
        bag = linear_change(atom.scan, self.composer, timed_change)
        assert bag is not None
        return bag

    def _columns_of_type(self, state: StateTable, *types: str) -> tuple[str, ...]:
        """Return the columns of a state that have one of these types."""
        scan = self.composer.scans[state.role]
        return tuple(name for column, name in scan.outputs if column.type in types)

    def leaf(self, view: View, atom: Atom, rows: Operator, sign: Column | None) -> Relation:
        """Return an atom's rows, or the signed rows of its change, summed up by the view's keys."""
        rows, keys = self.keyed(view, atom, rows)
        sign_value = Scalar.read("1") if sign is None else Scalar.column(sign)
        return self.grouped(
            view, rows, keys, lambda payload: payload.lifted([(atom.name, sign_value)])
        )

    def keyed(self, view: View, atom: Atom, rows: Operator) -> tuple[Operator, dict[str, Column]]:
        """Return an atom's rows with the columns of the view's keys, and these columns by variable."""
        known = self.defined.get(view)
        keys, computed = dict(known.keys) if known else {}, list[Item]()
        for variable, scalar in atom.binds:
            if variable not in view.keys:
                continue
            column = scalar.as_column
            if column is None:
                column = keys.get(variable) or self._computed(atom, variable, view)
                computed.append(Item(column, scalar))
            keys[variable] = column
        if computed:
            rows = Projection(rows, (*map(Item.kept, rows.columns), *computed))
        return rows, keys

    def _computed(self, atom: Atom, variable: str, view: View) -> Column:
        """Return the column of a computed variable of an atom."""
        groups = (column for column, name in self.form.groups if name == variable)
        column = self.form.computed.get((atom.name, variable)) or next(groups)
        return self.composer.fresh(column) if view.indicator else column

    # Joins

    def inner(
        self, view: View, children: Sequence[Relation], first: int = 0, *, as_listed: bool = False
    ) -> Relation:
        """Return the join of a view's children, starting with one of them, summed up by the view's keys.

        Next follows a child with at most one row for the variables of those before it, otherwise the child
        that shares most variables with them, or with `as_listed` the next child. With `as_listed`, the
        planner must treat the rows joined so far as one relation. Otherwise it would look up rows by only
        some of their columns if values had few rows on average.
        """
        rows, bound = self.joined(children, first, as_listed=as_listed)
        known = self.defined.get(view)
        keys = known.keys if known else {name: bound[name] for name in sorted(view.keys)}

        if all(child.unsummed for child in children):
            plain = [child.unsummed for child in children if child.unsummed]
            return self.grouped(view, rows, keys, lambda payload: payload.lifted(plain))
        factors = [
            (summed_atoms(child), relation)
            for child, relation in zip(view.children, children, strict=True)
            if not relation.exists
        ]
        rows, factors = self._merge_unsummed(view, rows, factors)

        def joined(payload: Payload) -> Scalar:
            parts = [(payload.within(atoms), relation) for atoms, relation in factors]
            return payload.joined([(part, relation.payload[part]) for part, relation in parts])

        return self.grouped(view, rows, keys, joined)

    def _merge_unsummed(
        self, view: View, rows: Operator, factors: Sequence[tuple[tuple[str, ...], Relation]]
    ) -> tuple[Operator, list[tuple[tuple[str, ...], Relation]]]:
        """Combine the factors of neighboring atoms whose rows are not summed up into one factor.

        One product over the columns of all atoms is cheaper than several products and their product.
        """
        merged: list[tuple[tuple[str, ...], Relation]] = []
        computed: list[Item] = []
        for plain, run in groupby(factors, lambda item: item[1].unsummed is not None):
            neighbors = list(run)
            if not plain or len(neighbors) == 1:
                merged += neighbors
                continue
            atoms = tuple(name for names, _ in neighbors for name in names)
            signs = [relation.unsummed for _, relation in neighbors if relation.unsummed]
            payload = {
                part: self.column(part)
                for part in dict.fromkeys(entry.within(atoms) for entry in self.payload_of(view))
            }
            computed += [Item(column, part.of_row(signs)) for part, column in payload.items()]
            merged.append((atoms, Relation(rows, {}, payload)))
        if computed:
            rows = Projection(rows, (*map(Item.kept, rows.columns), *computed))
        return rows, merged

    def joined(
        self, children: Sequence[Relation], first: int = 0, *, as_listed: bool = False
    ) -> tuple[Operator, dict[str, Column]]:
        """Return the join of relations, in the order of `inner`, and the columns of its variables."""
        rows, bound = children[first].rows, dict(children[first].keys)
        rest = [child for number, child in enumerate(children) if number != first]
        while rest:
            following = max(rest, key=lambda item: closeness(item, bound))
            following = rest[0] if as_listed else following
            rest.remove(following)
            if as_listed and rows is not children[first].rows:
                rows = Limit(rows, offset=Scalar.read("0"))
            shared = sorted(following.keys.keys() & bound.keys())
            equal = (filled("x = y", x=bound[name], y=following.keys[name]) for name in shared)
            rows = joined_apart(rows, following.rows, conjunction(equal))
            for scan in scans_of(following.rows):
                self.note_probe(scan, (following.keys[name] for name in shared))
            bound = {**following.keys, **bound}
        return rows, bound

    def note_probe(self, scan: StateScan, columns: Iterable[Column]) -> None:
        """Note that rows of a state are looked up by some columns."""
        names = frozenset(map(scan.called, columns))
        self.probes.setdefault(scan.role, []).append(names)

    def summed(self, root: View, relations: Sequence[Relation]) -> Relation:
        """Return the sum of relations, with the keys and payloads of a root."""
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
        """Return rows summed up by a view's keys; `call` gives the aggregate for each payload part."""
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
        """Return the payload parts that a view holds for each key."""
        return (COUNT,) if view in self.counting else sums.parts(self.totals, summed_atoms(view))

    def column(self, part: Payload) -> Column:
        """Return a new column for a part of a payload."""
        name = "idivm_n" if part == COUNT else "idivm_sum"
        return Column(self.composer.symbols.fresh(name), part.type)

    # States

    def store(self, view: View) -> None:
        """Store a view below the root."""
        relation = self.defined[view]
        role = self.composer.name(state_name(view))
        self.states[view] = store(
            role, relation.rows, tuple(relation.keys.values()), self.composer, followed=False
        )

    def copy(self, view: View) -> Relation:
        """Return a stored view with fresh column names."""
        known, state = self.defined[view], self.states[view]
        new = {column: self.composer.fresh(column) for column in state.columns}
        return Relation(
            terms.renamed(state, new.items()),
            {name: new[column] for name, column in known.keys.items()},
            {part: new[column] for part, column in known.payload.items()},
        )

    def values(self, root: Relation) -> dict[Column, Scalar]:
        """Return the query's aggregates and grouping columns as expressions over a root's columns."""
        values = {
            item.aggregate.column: sums.value(item, [root.payload[total] for total in item.totals])
            for item in self.aggregates
        }
        return values | {c: Scalar.column(root.keys[name]) for c, name in self.form.groups}

    def store_content(self, root: Relation) -> Content:
        """Store the root together with the columns that the view shows."""
        if self.form.having != TRUE:
            raise NotModelledError("HAVING is not kept with the rows", str(self.form.having))
        values = self.values(root)
        covariances = {
            aggregate.aggregate.column: {TRIPLE: COVARIANCE_TYPE, MIXED.element: MIXED_TYPE}[
                part.type
            ]
            for aggregate in self.aggregates
            for part in aggregate.totals
            if part.type in (TRIPLE, MIXED.element)
        }
        visible: list[tuple[str, Column]] = []
        computed: list[Item] = []
        for name, scalar in self.form.outputs:
            covariance_type = covariances.get(scalar.as_column) if scalar.as_column else None
            column = Column(self.composer.symbols.fresh(name), covariance_type)
            item = Item(column, scalar.substitute(values))
            same = item.scalar.as_column
            if same is not None and same not in (column for _, column in visible):
                visible.append((name, same))
            else:
                visible.append((name, item.column))
                computed.append(item)
        self.composer.visible = tuple(visible)
        stored_columns = columns_of(root)
        rows = Projection(root.rows, (*map(Item.kept, stored_columns), *computed))
        state = store(CONTENT, rows, tuple(root.keys.values()), self.composer)
        return Content(state, stored_columns, tuple(computed))

    # Deltas

    def assigned(
        self, view: View, relation: Relation, needs: Iterable[str] | None = None
    ) -> Relation:
        """Return a delta that is computed once; `needs` is as in `Composer.assign`."""
        rows, name = self.without_zeros(relation).rows, f"{state_name(view)}_change"
        return relation.at(self.composer.assign(name, rows, columns_of(relation), needs))

    def without_zeros(self, relation: Relation) -> Relation:
        """Return a delta without rows that add nothing, if the payload has few columns to compare."""
        payload = relation.payload.values()
        if len(payload) > FEW or not all(isinstance(part, Total) for part in relation.payload):
            return relation
        nonzero = disjunction(filled("x <> 0", x=column) for column in payload)
        return relation.at(Selection(relation.rows, nonzero))

    def add(
        self, state: StateScan, delta: Relation, content: Content | None = None, whole: bool = False
    ) -> None:
        """V := V + δV; delete keys whose count becomes 0, but not the single row of a `whole` result."""
        for term in delta.terms:
            self.add(state, term, content, whole)
        if delta.terms:
            return
        upkeep, ids = Upkeep(state, self.composer), tuple(delta.keys.values())
        sums_of = {
            column: part.added(upkeep.stored(column), column)
            for part, column in delta.payload.items()
        }
        values = list(sums_of.items())
        if content is not None:
            values += [(i.column, i.scalar.substitute(sums_of)) for i in content.computed]
        if not ids and (whole or content is not None):
            upkeep.update(delta.rows, ids, values)
            return
        rows = content.with_computed(delta.rows) if content else delta.rows
        upkeep.merge(rows, values, delta.payload[COUNT])
