"""Stored results: the tables that hold them, and the steps that maintain them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal

from sqlglot import exp

from orchestrator.algebra import dialect
from orchestrator.algebra.columns import Column, Symbols
from orchestrator.algebra.dialect import Tree, reference
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.group import Aggregate, Grouping
from orchestrator.algebra.operators.left_join import LeftJoin
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.operators.scan import Scan
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.scalar import FALSE, Scalar, filled
from orchestrator.algebra.traversal import walk
from orchestrator.algebra.unsupported import NotModelledError
from orchestrator.deltascript.leaves import DiffScan, StateScan
from orchestrator.deltascript.plan import (
    CONTENT,
    Apply,
    ChangeKind,
    Nulls,
    Shape,
    StateColumn,
    StateTable,
    pairs_of,
)
from orchestrator.engine.composer import Changes, Composer
from orchestrator.engine.diffs import Bag, Delete, Diff, Insert, Update, needed
from orchestrator.engine.distinguishable import EXACT, image, look_alike, refuse_arrays
from orchestrator.engine.prune_outputs import pruned
from orchestrator.engine.terms import renamed
from orchestrator.sqltext import fitted_name

INDEXED_AT_MOST = 32
"""The greatest number of columns of an index; every state has an index on its key."""


def store(
    role: str,
    plan: Operator,
    ids: Sequence[Column],
    composer: Composer,
    *,
    followed: bool = True,
    first: Operator | None = None,
) -> StateScan:
    """Store a result under its IDs, and return its scan. The content begins with the columns of the
    view.

    If the result is `followed`, later steps may read its changes. `first` computes the same rows from states
    that are stored before.
    """
    require_index(ids)
    if not plan.columns:
        raise NotModelledError("a result without columns cannot be stored", plan.label)
    visible = composer.visible if role == CONTENT else ()
    # PostgreSQL has cut these names in the encoding of the database.
    names = Symbols(name for name, _ in visible)
    visible_names = {column: name for name, column in visible}
    # Leave room for the prefixes `old_` and `new_` of the fields of changes.
    fitted = {
        c: fitted_name(c.symbol, " " * 8)[:-8] for c in plan.columns if c not in visible_names
    }
    hidden = {column: names.fresh(name) for column, name in fitted.items()}
    outputs = {**visible_names, **hidden}
    renames = [(column, Column(name)) for column, name in outputs.items()]
    composer.states.append(
        StateTable(
            role=role,
            columns=tuple(
                StateColumn(name, hidden=role == CONTENT and column in hidden)
                for column, name in outputs.items()
            ),
            key=tuple(outputs[column] for column in ids),
            nullable=tuple(outputs[column] for column in ids if column not in plan.not_null),
            query=composer.query(renamed(first or plan, renames), [new for _, new in renames]),
            not_null=tuple(name for column, name in outputs.items() if column in plan.not_null),
        )
    )
    if role != CONTENT and followed:
        shape = composer.name(f"{role}_row")
        composer.states.append(Shape(shape, pairs_of(role, both(outputs.values()))))
        deleted, updated, inserted = (
            composer.name(f"{role}_{kind.done}")
            for kind in (ChangeKind.DELETE, ChangeKind.UPDATE, ChangeKind.INSERT)
        )
        changes = composer.changes[role] = Changes(deleted, updated, inserted, shape)
        composer.variables += [(name, shape) for name in changes.variables]
    scan = StateScan(
        role,
        composer.symbols.fresh("s"),
        tuple(outputs.items()),
        tuple(ids),
        plan.dependencies,
        plan.keys,
        plan.not_null,
    )
    composer.stored[role], composer.scans[role] = plan, scan
    return scan


def require_index(ids: Sequence[Column]) -> None:
    """Reject a result with more IDs than an index can have columns."""
    if len(ids) > INDEXED_AT_MOST:
        names = ", ".join(map(str, ids))
        raise NotModelledError(f"no index has more than {INDEXED_AT_MOST} columns", names)


def both(columns: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Return columns with their old and new values: pairs of side and name."""
    names = tuple(columns)
    return tuple((side, name) for side in ("old", "new") for name in names)


def keep_what_is_read(composer: Composer) -> None:
    """Remove unread fields from the changes of stored results; called after all steps."""
    read: dict[str, set[str]] = {}
    for plan in composer.plans.values():
        for scan in walk(plan):
            if isinstance(scan, DiffScan):
                read.setdefault(scan.variable, set()).update(name for _, name in scan.outputs)
    for role, held in composer.changes.items():
        read_fields = set[str]().union(*(read.get(item, ()) for item in held.variables))
        all_fields = both(name for _, name in composer.scans[role].outputs)
        fields = (
            tuple(item for item in all_fields if "_".join(item) in read_fields) or all_fields[:1]
        )
        composer.states = [
            Shape(item.role, pairs_of(role, fields)) if item.role == held.shape else item
            for item in composer.states
        ]
        composer.steps = [
            replace(step, fields=fields)
            if isinstance(step, Apply) and step.state == role and step.collect
            else step
            for step in composer.steps
        ]


@dataclass(frozen=True)
class Upkeep:
    """Adds the steps that maintain a stored result."""

    state: StateScan
    composer: Composer
    _before: dict[Column, Column] = field(default_factory=dict)
    _stored: dict[str, str] = field(default_factory=dict)
    """The names of these columns in the table, by their symbols."""

    def stored(self, column: Column) -> Column:
        """Return a column of the stored row, which differs from the same column of the diff."""
        if column not in self._before:
            copy = self._before[column] = self.composer.fresh(column)
            self._stored[copy.symbol] = self.state.called(column)
        return self._before[column]

    def apply(self, diffs: Sequence[Diff]) -> None:
        """Apply diffs: first deletes, then updates, then inserts.

        If a column comes directly from a table, the diff of an update knows its stored value.
        """
        plan = self.composer.stored[self.state.role]
        own = {c for operator in walk(plan) if isinstance(operator, Scan) for c in operator.columns}
        for diff in diffs:
            if isinstance(diff, Delete):
                self.delete(diff.plan, diff.ids)
        for diff in diffs:
            if isinstance(diff, Update) and diff.touched:
                touched = [column for column in self.state.columns if column in diff.touched]
                sets = [(column, Scalar.column(column)) for column in touched]
                before = {c: old for c, old in diff.before.items() if c in touched and c in own}
                self.update(diff.plan, diff.ids, sets, before=before)
        for diff in diffs:
            if isinstance(diff, Insert):
                self.insert(diff.plan)

    def apply_bag(self, changed: Bag) -> None:
        """Apply a bag."""
        deleted, inserted = self.net(changed)
        self.delete(deleted, self.state.ids)
        self.replace(inserted, self.state.ids)
        self.insert(inserted)

    def net(
        self, changed: Bag, columns: Sequence[Column] | None = None
    ) -> tuple[DiffScan, DiffScan]:
        """Return the net change of a bag: the deleted IDs and the inserted rows, at most one for
        each key.

        The bag has the columns in `columns`, by default all columns of the state.
        """
        ids, composer = self.state.ids, self.composer
        columns = self.state.columns if columns is None else columns
        rows = composer.held("change", changed)
        net = Aggregate(composer.column("net"), filled("sum(x)", x=rows.sign))
        negative = Selection(Grouping(rows.plan, ids, (net,)), filled("x < 0", x=net.column))
        deleted = composer.assign("deleted", negative, ids)
        return deleted, composer.assign("inserted", self._images(rows, columns), columns)

    def _images(self, rows: Bag, columns: Sequence[Column]) -> Operator:
        """Return the inserted rows that are not deleted again, compared by identity."""
        composer, state = self.composer, self.state
        rest = [column for column in columns if column not in state.ids]
        refuse_arrays(rest, composer.types)
        keys = [
            Item(composer.column("image"), scalar)
            for column in rest
            for scalar in self._image(column)
        ]
        if coarse := look_alike(state.ids, composer.types):
            keys.append(Item(composer.column("image"), image(coarse)))
        wide = Projection(rows.plan, (*map(Item.kept, (*columns, rows.sign)), *keys))
        representatives = [(composer.fresh(column), column) for column in rest]
        values = [
            Aggregate(copy, filled("(array_agg(x))[1]", x=column))
            for copy, column in representatives
        ]
        net = Aggregate(composer.column("net"), filled("sum(x)", x=rows.sign))
        by = (*state.ids, *(item.column for item in keys))
        groups = Selection(Grouping(wide, by, (*values, net)), filled("x > 0", x=net.column))
        return renamed(groups, [*((c, c) for c in state.ids), *representatives])

    def _image(self, column: Column) -> list[Scalar]:
        """Return expressions that are equal only for identical values."""
        known = self.composer.types.get(column.symbol)
        name = known.name if known is not None else column.type or ""
        if name == "numeric":
            return [Scalar.column(column), filled("scale(x)", x=column)]
        return [Scalar.column(column) if name in EXACT else filled("ROW(x)::text", x=column)]

    def delete(
        self,
        plan: Operator,
        ids: Sequence[Column],
        where: Scalar | None = None,
        needs: Iterable[str] | None = None,
    ) -> None:
        """Delete the rows that a diff names; `needs` is as in `Composer.assign`."""
        self._apply(ChangeKind.DELETE, plan, ids, where=where, needs=needs)

    def update(
        self,
        plan: Operator,
        ids: Sequence[Column],
        sets: Sequence[tuple[Column, Scalar]],
        where: Scalar | None = None,
        before: Mapping[Column, Column] = MappingProxyType({}),
        *,
        bounded: Column | None = None,
        always: bool = False,
    ) -> None:
        """Update the rows that a diff names.

        The expressions read the columns of the diff and, through `stored`, those of the row.
        `before` gives the columns of the diff that hold stored values of the row. `where` may bound a
        range of a column that follows the IDs in an index. With `always`, the query also runs if no
        variable that it reads holds rows.
        """
        self._apply(
            ChangeKind.UPDATE, plan, ids, sets, where, before=before, bounded=bounded, always=always
        )

    def replace(
        self, plan: Operator, ids: Sequence[Column], columns: Sequence[Column] | None = None
    ) -> None:
        """Update the rows whose complete new values a diff holds, if they differ from the stored
        ones.

        A row whose ID looks different (1.00 for 1.0) is deleted and inserted again later, because
        an update does not change IDs. If `columns` are given, the diff has only these, and its IDs
        look unchanged.
        """
        coarse = look_alike(ids, self.composer.types)
        if coarse and columns is None:
            differ = filled("x <> y", x=image(map(self.stored, coarse)), y=image(coarse))
            self.delete(plan, ids, differ)
        rest = [column for column in columns or self.state.columns if column not in ids]
        if not rest:
            return
        casts = [self._base_cast(column) for column in rest]
        olds, news = (
            ", ".join(f"{side}{n}{cast}" for n, cast in enumerate(casts)) for side in ("x", "y")
        )
        differ = filled(
            f"ROW({olds})::record OPERATOR(pg_catalog.*<>) ROW({news})::record",
            **{f"x{n}": self.stored(column) for n, column in enumerate(rest)},
            **{f"y{n}": column for n, column in enumerate(rest)},
        )
        self.update(plan, ids, [(column, Scalar.column(column)) for column in rest], differ)

    def _base_cast(self, column: Column) -> str:
        """Return the cast from a domain to its base type, which values have after aggregation."""
        known = self.composer.types.get(column.symbol)
        return f"::{known.name}" if known is not None and known.domain else ""

    def insert(self, plan: Operator) -> None:
        """Insert the rows of a diff that do not exist."""
        self._apply(ChangeKind.INSERT, plan, ())

    def merge(
        self,
        plan: Operator,
        sets: Sequence[tuple[Column, Scalar]],
        count: Column | None = None,
    ) -> None:
        """Insert rows, or update existing rows by their IDs; nothing may read the changes of the
        state.

        The expressions read the columns of the new row and, through `stored`, those of the old row.
        `count` is added up; a row is deleted if it becomes 0.
        """
        ids = self.state.ids
        nullable = count is not None and not self.state.not_null.issuperset(ids)
        self._apply("merge", plan, ids, sets, count=None if nullable else count)
        if count is not None and nullable:
            not_positive = Selection(plan, filled("x <= 0", x=count))
            self.delete(not_positive, ids, filled("x = 0", x=self.stored(count)))

    def _apply(
        self,
        kind: ChangeKind | Literal["merge"],
        plan: Operator,
        ids: Sequence[Column],
        sets: Sequence[tuple[Column, Scalar]] = (),
        where: Scalar | None = None,
        needs: Iterable[str] | None = None,
        count: Column | None = None,
        before: Mapping[Column, Column] = MappingProxyType({}),
        bounded: Column | None = None,
        always: bool = False,
    ) -> None:
        state, composer = self.state, self.composer
        held = composer.changes.get(state.role)
        before = before if held is not None else {}
        composer.comparable(ids)
        given, plan = plan, composer.prepared(plan)
        columns = list(state.columns)
        if kind in (ChangeKind.DELETE, ChangeKind.UPDATE):
            read = frozenset[Column]().union(*(value.references for _, value in sets))
            read |= where.references if where else frozenset()
            read |= frozenset(before.values())
            columns = list(dict.fromkeys([*ids, *(c for c in plan.columns if c in read)]))
        plan = pruned(plan, columns)
        collect = None
        if held is not None:
            assert kind != "merge"
            collect = held.of(kind)
        composer.add(
            plan,
            Apply(
                kind=kind,
                state=state.role,
                query=composer.query(plan, columns),
                keys=tuple(
                    (state.called(place), c.symbol, _nulls(c, place, state, plan))
                    for c, place in zip(ids, map(self._indexed_column, ids), strict=True)
                ),
                columns=tuple(name for _, name in state.outputs),
                sets=tuple(
                    (state.called(column), self._text(value, kind == "merge"))
                    for column, value in sets
                ),
                where=self._text(where) if where else None,
                collect=collect,
                shape=held.shape if held else None,
                fields=both(name for _, name in state.outputs) if held else (),
                before=tuple((state.called(c), old.symbol) for c, old in before.items()),
                needs=tuple(sorted(needed(given, plan) if needs is None else needs)),
                always=always,
                counted=state.called(count) if count else None,
                bounded=state.called(bounded) if bounded else None,
            ),
        )

    def _indexed_column(self, column: Column) -> Column:
        """Return the column, or an ID that is equal to it, so that one index serves both."""
        state = self.state
        equal = state.dependencies.same(column)
        return next(
            (
                candidate
                for candidate in (column, *state.ids)
                if candidate in equal & set(state.ids)
            ),
            column,
        )

    def _text(self, scalar: Scalar, merging: bool = False) -> str:
        """Return an expression as SQL: `t` is the stored row, `d` the row of the diff.

        In a merge, the rows of the diff have the columns of the state and are named `excluded`.
        """

        def qualified(node: Tree) -> Tree:
            if not isinstance(node, exp.Column):
                return node
            if node.name in self._stored:
                return reference(self._stored[node.name], "t")
            if merging:
                return reference(self.state.called(Column(node.name)), "excluded")
            return reference(node.name, "d")

        return dialect.write(scalar.tree.transform(qualified, copy=False), own=True)


def _nulls(column: Column, place: Column, state: StateScan, plan: Operator) -> Nulls:
    """Return which NULLs a step must handle when it looks up rows of a diff in a state."""
    if {column, place} & (state.not_null | plan.not_null):
        return "none"
    return "all" if _is_padding(column, plan) else "some"


def _is_padding(column: Column, plan: Operator) -> bool:
    """Return whether a column of a plan is NULL in all rows, because no row of a join has a partner."""
    while isinstance(plan, Projection):
        [source] = (item.scalar.as_column for item in plan.items if item.column == column)
        if source is None:
            return False
        column, plan = source, plan.input
    return isinstance(plan, LeftJoin) and plan.condition == FALSE and column in plan.right.columns
