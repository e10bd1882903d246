"""Stored results: the tables that hold them, and the steps that keep them right."""

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
from orchestrator.engine.diffs import Bag, Delete, Diff, Insert, Update, variables
from orchestrator.engine.distinguishable import EXACT, image, look_alike
from orchestrator.engine.prune_outputs import pruned
from orchestrator.engine.terms import renamed
from orchestrator.sqltext import fitted_name

INDEXED_AT_MOST = 32
"""Columns of an index; every state has one over its key."""


def store(
    role: str,
    plan: Operator,
    ids: Sequence[Column],
    composer: Composer,
    *,
    followed: bool = True,
) -> StateScan:
    """Stores a result under its IDs; of the content, first the columns that the view shows.

    If it is `followed`, further steps may ask for its changes.
    """
    require_index(ids)
    if not plan.columns:
        raise NotModelledError("a result without columns cannot be stored", plan.label)
    names = Symbols()
    shown = composer.visible if role == CONTENT else ()
    called = {column: names.fresh(name) for name, column in shown}
    # Changes of the state put `old_` and `new_` before these names.
    short = {c: fitted_name(c.symbol, " " * 8)[:-8] for c in plan.columns if c not in called}
    hidden = {column: names.fresh(name) for column, name in short.items()}
    outputs = {**called, **hidden}
    made = [(column, Column(name)) for column, name in outputs.items()]
    composer.states.append(
        StateTable(
            role=role,
            columns=tuple(
                StateColumn(name, hidden=role == CONTENT and column in hidden)
                for column, name in outputs.items()
            ),
            key=tuple(outputs[column] for column in ids),
            nullable=tuple(outputs[column] for column in ids if column not in plan.not_null),
            query=composer.query(renamed(plan, made), [new for _, new in made]),
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
    """Refuse a result with more IDs than an index can have columns."""
    if len(ids) > INDEXED_AT_MOST:
        listed = ", ".join(map(str, ids))
        raise NotModelledError(f"no index has more than {INDEXED_AT_MOST} columns", listed)


def both(columns: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Columns before and after a change."""
    names = tuple(columns)
    return tuple((side, name) for side in ("old", "new") for name in names)


def keep_what_is_read(composer: Composer) -> None:
    """Leaves out of the changes of stored results what no step reads; called after all steps."""
    read: dict[str, set[str]] = {}
    for plan in composer.plans.values():
        for scan in walk(plan):
            if isinstance(scan, DiffScan):
                read.setdefault(scan.variable, set()).update(name for _, name in scan.outputs)
    for role, held in composer.changes.items():
        asked = set[str]().union(*(read.get(item, ()) for item in held.variables))
        every = both(name for _, name in composer.scans[role].outputs)
        fields = tuple(item for item in every if "_".join(item) in asked) or every[:1]
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
    """Adds the steps that keep a stored result."""

    state: StateScan
    composer: Composer
    _before: dict[Column, Column] = field(default_factory=dict)
    _stored: dict[str, str] = field(default_factory=dict)
    """What such columns are called in the table, by their symbols."""

    def stored(self, column: Column) -> Column:
        """A column of the row that a step finds, to be told from the same column of its diff."""
        if column not in self._before:
            made = self._before[column] = self.composer.fresh(column)
            self._stored[made.symbol] = self.state.called(column)
        return self._before[column]

    def apply(self, diffs: Sequence[Diff]) -> None:
        """Applies diffs: deletions first, then updates, then insertions.

        A column of a table is stored as it was before the change, which an update's diff tells.
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
        """Applies a bag."""
        goes, comes = self.net(changed)
        self.delete(goes, self.state.ids)
        self.replace(comes, self.state.ids)
        self.insert(comes)

    def net(
        self, changed: Bag, columns: Sequence[Column] | None = None
    ) -> tuple[DiffScan, DiffScan]:
        """What remains of a bag: for every key, at most one row that goes or one that comes.

        The bag has some `columns` of the state: all, unless others are named.
        """
        ids, composer = self.state.ids, self.composer
        columns = self.state.columns if columns is None else columns
        rows = composer.held("change", changed)
        net = Aggregate(composer.column("net"), filled("sum(x)", x=rows.sign))
        gone = Selection(Grouping(rows.plan, ids, (net,)), filled("x < 0", x=net.column))
        goes = composer.assign("deleted", gone, ids)
        return goes, composer.assign("inserted", self._images(rows, columns), columns)

    def _images(self, rows: Bag, columns: Sequence[Column]) -> Operator:
        """The rows that come and do not go again on another way, told apart to the bit."""
        composer, state = self.composer, self.state
        rest = [column for column in columns if column not in state.ids]
        keys = [
            Item(composer.column("image"), scalar)
            for column in rest
            for scalar in self._image(column)
        ]
        if coarse := look_alike(state.ids, composer.types):
            keys.append(Item(composer.column("image"), image(coarse)))
        wide = Projection(rows.plan, (*map(Item.kept, (*columns, rows.sign)), *keys))
        some = [(composer.fresh(column), column) for column in rest]
        first = [Aggregate(each, filled("(array_agg(x))[1]", x=column)) for each, column in some]
        net = Aggregate(composer.column("net"), filled("sum(x)", x=rows.sign))
        by = (*state.ids, *(item.column for item in keys))
        groups = Selection(Grouping(wide, by, (*first, net)), filled("x > 0", x=net.column))
        return renamed(groups, [*((c, c) for c in state.ids), *some])

    def _image(self, column: Column) -> list[Scalar]:
        """What two values share that are the same to the bit."""
        known = self.composer.types.get(column.symbol)
        name = known.name if known is not None else column.type or ""
        if name.endswith("[]"):
            raise NotModelledError("arrays are not netted as bags", str(column))
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
        """Deletes the rows that a diff names; `needs` is as in `Composer.assign`."""
        self._apply(ChangeKind.DELETE, plan, ids, where=where, needs=needs)

    def update(
        self,
        plan: Operator,
        ids: Sequence[Column],
        sets: Sequence[tuple[Column, Scalar]],
        where: Scalar | None = None,
        before: Mapping[Column, Column] = MappingProxyType({}),
    ) -> None:
        """Changes the rows that a diff names.

        The expressions are over the columns of the diff and, by `stored`, those of the row. Of some
        columns the diff may hold what the row has `before` the change.
        """
        self._apply(ChangeKind.UPDATE, plan, ids, sets, where, before=before)

    def replace(
        self, plan: Operator, ids: Sequence[Column], columns: Sequence[Column] | None = None
    ) -> None:
        """Change the rows that a diff holds whole, where they differ from what is stored.

        A row whose ID looks different (1.00 for 1.0) is deleted, for the insertion that follows: an
        update leaves IDs as they are. If `columns` are named, the diff has only these, and its IDs look
        as they did.
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
        """What makes a value of a domain one of its base type, as it becomes when aggregated."""
        known = self.composer.types.get(column.symbol)
        return f"::{known.name}" if known is not None and known.domain else ""

    def insert(self, plan: Operator) -> None:
        """Inserts the rows of a diff that are not there."""
        self._apply(ChangeKind.INSERT, plan, ())

    def merge(
        self,
        plan: Operator,
        sets: Sequence[tuple[Column, Scalar]],
        count: Column | None = None,
    ) -> None:
        """Inserts rows, or changes those that are there by their IDs; nobody follows the state.

        The expressions are over the columns of the new row and, by `stored`, those of the old one.
        A row whose `count`, which is added up, becomes 0 goes.
        """
        ids = self.state.ids
        nullable = count is not None and not self.state.not_null.issuperset(ids)
        self._apply("merge", plan, ids, sets, count=None if nullable else count)
        if count is not None and nullable:
            fewer = Selection(plan, filled("x <= 0", x=count))
            self.delete(fewer, ids, filled("x = 0", x=self.stored(count)))

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
    ) -> None:
        state, composer = self.state, self.composer
        held = composer.changes.get(state.role)
        before = before if held is not None else {}
        composer.comparable(ids)
        plan = composer.prepared(plan)
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
                    for c, place in zip(ids, map(self._place, ids), strict=True)
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
                needs=tuple(sorted(variables(plan) if needs is None else needs)),
                counted=state.called(count) if count else None,
            ),
        )

    def _place(self, column: Column) -> Column:
        """A column, or the ID that is equal to it: one index then serves both."""
        state = self.state
        equal = state.dependencies.same(column)
        return next(
            (item for item in (column, *state.ids) if item in equal & set(state.ids)), column
        )

    def _text(self, scalar: Scalar, merging: bool = False) -> str:
        """An expression as SQL: `t` is the row that the step finds, `d` the diff.

        In a merge the diff's rows are those of the state, and called `excluded`.
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
    """Which NULLs a step must see to that looks for a diff's rows in a state."""
    while isinstance(plan, Projection) and all(item.is_unchanged for item in plan.items):
        plan = plan.input
    if isinstance(plan, LeftJoin) and plan.condition == FALSE and column in plan.right.columns:
        return "all"
    return "none" if {column, place} & (state.not_null | plan.not_null) else "some"
