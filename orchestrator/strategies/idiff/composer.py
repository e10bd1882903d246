"""What composition gathers while it goes through a plan: states, variables, steps.

Passes 2 and 3 of papers/idivm.txt, section 4: the rules of the operators are instantiated from the
leaves to the root, and what they give is put in the order in which it must run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from orchestrator.algebra.columns import Column, Symbols
from orchestrator.algebra.dialect import reference, write
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.function_scan import FunctionScan
from orchestrator.algebra.operators.group import Aggregate, Grouping
from orchestrator.algebra.operators.join import Join
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.operators.scan import WHOLE_ROW, Scan
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.operators.set_operation import Branch
from orchestrator.algebra.operators.union_all import UnionAll
from orchestrator.algebra.operators.values import Values
from orchestrator.algebra.rendering import Renderer
from orchestrator.algebra.scalar import Scalar, conjunction
from orchestrator.algebra.unsupported import NotModelledError
from orchestrator.deltascript.leaves import DiffScan, StateScan, called
from orchestrator.deltascript.plan import (
    CONTENT,
    Apply,
    Assign,
    ChangeClass,
    Query,
    ReadChanges,
    Shape,
    Source,
    SourceColumn,
    StateColumn,
    StateTable,
    Step,
    pairs_of,
)
from orchestrator.sqltext import fitted_name
from orchestrator.strategies.idiff.diffs import Bag, Diff, Minus, Plus, Update, shown, variables
from orchestrator.strategies.problem import ColumnType


@dataclass(frozen=True)
class Changes:
    """The variables that hold the changes of a stored state."""

    minus: str
    update: str
    plus: str
    shape: str


class Composer:
    """Gives out names, and keeps what has been composed so far."""

    def __init__(
        self,
        sources: Sequence[Source],
        symbols: Symbols,
        types: dict[str, ColumnType],
    ) -> None:
        """Starts with nothing composed."""
        self.sources = {source.oid: source for source in sources}
        self.symbols = symbols
        self.types = types
        self.states: list[StateTable | Shape] = []
        self.steps: list[Step] = []
        self.variables: list[tuple[str, str]] = []
        """All variables of the program, and the roles of their row types."""
        self.changes: dict[str, Changes] = {}
        """Of the states, by their roles."""
        self._reads: dict[tuple[int, str, frozenset[int]], ChangeClass] = {}
        self.visible: tuple[tuple[str, Column], ...] = ()
        """The view's columns: their names, and what they are."""
        self._done: set[Operator] = set()
        self._bags: dict[Operator, Bag | None] = {}
        self._names = Symbols()

    # Names

    def name(self, *wanted: str) -> str:
        """A name for a variable or a role."""
        return self._names.fresh(*wanted)

    def fresh(self, column: Column) -> Column:
        """A new column like another."""
        made = replace(column, symbol=self.symbols.fresh(f"old_{column.symbol}"))
        if column.symbol in self.types:
            self.types[made.symbol] = self.types[column.symbol]
        return made

    def comparable(self, columns: Iterable[Column]) -> None:
        """Refuses columns whose values `=` of pg_catalog does not compare."""
        for column in columns:
            known = self.types.get(column.symbol)
            if known is None or not known.comparable:
                raise NotModelledError(
                    "a column is not compared by an operator of pg_catalog", str(column)
                )

    # Leaves

    def diffs_of(
        self, leaf: Operator, conditional: Sequence[frozenset[Column]]
    ) -> tuple[Diff, ...]:
        """The diffs of a leaf: base-table i-diff schemas (section 5), or a state's changes."""
        if isinstance(leaf, Scan):
            return self._base_diffs(leaf, conditional)
        if isinstance(leaf, StateScan):
            return self._state_diffs(leaf)
        constant(leaf)
        return ()

    def bag_of(self, leaf: Operator) -> Bag | None:
        """The change of a leaf as a bag, in a variable; None of a leaf that never changes."""
        if leaf not in self._bags:
            parts = self._bag_parts(leaf)
            self._bags[leaf] = self.union(leaf.columns, parts) if parts else None
        return self._bags[leaf]

    def _bag_parts(self, leaf: Operator) -> list[tuple[int, Operator]]:
        if isinstance(leaf, Scan):
            source, columns = self._source(leaf)
            rest = frozenset(c.attnum for c in columns.values() if not c.in_key)
            gone = self._class(source, "minus", frozenset())
            come = self._class(source, "plus", frozenset())
            parts: list[tuple[int, Operator]] = [
                (-1, self._base_scan(leaf, gone, "old")),
                (1, self._base_scan(leaf, come, "new")),
            ]
            if rest:
                one = self._class(source, "update", rest)
                parts.append((-1, self._base_scan(leaf, one, "old")))
                parts.append((1, self._base_scan(leaf, one, "new")))
            return parts
        if isinstance(leaf, StateScan):
            held = self.changes[leaf.role]
            return [
                (-1, self._state_scan(leaf, held.minus, "old")),
                (-1, self._state_scan(leaf, held.update, "old")),
                (1, self._state_scan(leaf, held.update, "new")),
                (1, self._state_scan(leaf, held.plus, "new")),
            ]
        constant(leaf)
        return []

    def union(
        self, columns: Sequence[Column], parts: Sequence[tuple[int | Column | Scalar, Operator]]
    ) -> Bag:
        """Signed rows from several plans that show these columns."""
        sign = Column(self.symbols.fresh("sign"), "integer", "integer_ops", exact=True)
        branches = []
        for given, plan in parts:
            own = replace(sign, symbol=self.symbols.fresh("sign"))
            if isinstance(given, Column):
                given = Scalar.column(given)
            elif isinstance(given, int):
                given = Scalar.read(str(given))
            items = (*map(Item.kept, columns), Item(own, given))
            branches.append(Branch(Projection(plan, items), (*columns, own)))
        return Bag(UnionAll(tuple(branches), (*columns, sign)), sign)

    def held(self, wanted: str, bag: Bag) -> Bag:
        """A bag computed once, into a variable."""
        if isinstance(bag.plan, DiffScan):
            return bag
        return replace(bag, plan=self.assign(wanted, bag.plan, bag.plan.columns))

    def _base_diffs(self, scan: Scan, conditional: Sequence[frozenset[Column]]) -> tuple[Diff, ...]:
        source, columns = self._source(scan)
        ids = tuple(column for column, one in columns.items() if one.in_key)
        gone = self._class(source, "minus", frozenset())
        come = self._class(source, "plus", frozenset())
        diffs: list[Diff] = [
            Minus(self._base_scan(scan, gone, "old", ids), ids),
            Plus(self._base_scan(scan, come, "new")),
        ]
        rest = frozenset(columns) - frozenset(ids)
        sets = [one & rest for one in conditional if one & rest]
        sets.append(rest.difference(*sets))
        for touched in sets:
            if not touched:
                continue
            one = self._class(source, "update", frozenset(columns[c].attnum for c in touched))
            before = {column: self.fresh(column) for column in rest}
            outputs = [(column, f"new_{one.field(columns[column].attnum)}") for column in columns]
            outputs += [(old, f"old_{one.field(columns[c].attnum)}") for c, old in before.items()]
            plan = DiffScan(one.variable, self.symbols.fresh("d"), tuple(outputs))
            diffs.append(Update(plan, ids, before | {c: c for c in ids}, touched))
        return tuple(diffs)

    def _state_diffs(self, scan: StateScan) -> tuple[Diff, ...]:
        held = self.changes[scan.role]
        rest = [(column, name) for column, name in scan.outputs if column not in scan.ids]
        before = {column: self.fresh(column) for column, _ in rest}
        outputs = [(column, f"new_{name}") for column, name in scan.outputs]
        outputs += [(before[column], f"old_{name}") for column, name in rest]
        gone = self._state_scan(scan, held.minus, "old", scan.ids)
        diffs: list[Diff] = [
            Minus(gone, scan.ids),
            Plus(self._state_scan(scan, held.plus, "new")),
        ]
        if rest:
            plan = DiffScan(held.update, self.symbols.fresh("d"), tuple(outputs))
            touched = frozenset(before)
            diffs.append(Update(plan, scan.ids, before | {c: c for c in scan.ids}, touched))
        return tuple(diffs)

    def _state_scan(
        self, scan: StateScan, variable: str, side: str, columns: Sequence[Column] | None = None
    ) -> DiffScan:
        outputs = tuple(
            (column, f"{side}_{name}")
            for column, name in scan.outputs
            if columns is None or column in columns
        )
        return DiffScan(variable, self.symbols.fresh("d"), outputs)

    def _base_scan(
        self, scan: Scan, one: ChangeClass, side: str, columns: Sequence[Column] | None = None
    ) -> DiffScan:
        outputs = tuple(
            (output.column, f"{side}_{one.field(output.attnum)}")
            for output in scan.outputs
            if columns is None or output.column in columns
        )
        return DiffScan(one.variable, self.symbols.fresh("d"), outputs)

    def _source(self, scan: Scan) -> tuple[Source, dict[Column, SourceColumn]]:
        source = self.sources.get(scan.table.oid)
        if source is None:
            raise NotModelledError("changes of this relation come without a key", called(scan))
        by_number = {column.attnum: column for column in source.columns}
        if any(o.attnum == WHOLE_ROW or o.attnum not in by_number for o in scan.outputs):
            raise NotModelledError("a row of a table is read as one value", called(scan))
        columns = {output.column: by_number[output.attnum] for output in scan.outputs}
        keys = [column for column in source.columns if column.in_key]
        if not keys or not {k.attnum for k in keys} <= {c.attnum for c in columns.values()}:
            raise NotModelledError("a table has no key to follow its rows by", called(scan))
        if not all(column.equality for column in keys):
            raise NotModelledError(
                "a key is not compared by an operator of pg_catalog", called(scan)
            )
        if scan.only:
            raise NotModelledError("ONLY leaves out rows that are captured too", called(scan))
        return source, columns

    def _class(
        self, source: Source, kind: Literal["minus", "update", "plus"], touched: frozenset[int]
    ) -> ChangeClass:
        place = (source.oid, kind, touched)
        if place not in self._reads:
            names = {column.attnum: column.name for column in source.columns}
            sign = {"minus": "gone", "plus": "come", "update": "changed"}[kind]
            parts = [source.name, sign]
            if touched and len(touched) < sum(not c.in_key for c in source.columns):
                parts += [names[n] for n in sorted(touched)[:3]]
            self._reads[place] = ChangeClass(
                variable=self.name("_".join(parts)),
                kind=kind,
                touched=touched,
                fields=_fields(source),
            )
        return self._reads[place]

    def reads(self) -> Iterable[ReadChanges]:
        """The steps that read the captured changes, and their shapes."""
        by_source: dict[int, list[ChangeClass]] = {}
        for (oid, _, _), one in self._reads.items():
            by_source.setdefault(oid, []).append(one)
        for oid, classes in by_source.items():
            source = self.sources[oid]
            shape = self.name(f"{source.name}_diff")
            self.variables += [(one.variable, shape) for one in classes]
            yield ReadChanges(source, shape, tuple(classes))

    # States

    def store(
        self, role: str, plan: Operator, ids: Sequence[Column], watched: bool = True
    ) -> StateScan:
        """Stores a result under its IDs; if it is watched, its changes are collected."""
        shown_as = {column: name for name, column in reversed(self.visible)}
        names = Symbols()
        outputs: list[tuple[Column, str]] = []
        columns: list[StateColumn] = []
        if role == CONTENT:
            for name, column in self.visible:
                names.fresh(name)
                columns.append(StateColumn(name, hidden=False))
                if shown_as[column] == name:
                    outputs.append((column, name))
        for column in plan.columns:
            if role != CONTENT or column not in shown_as:
                name = names.fresh(column.symbol)
                columns.append(StateColumn(name, hidden=role == CONTENT))
                outputs.append((column, name))
        called = dict(outputs)
        shown_columns = [c for _, c in self.visible] if role == CONTENT else []
        selected = [*shown_columns, *(c for c in plan.columns if c not in shown_columns)]
        made = [
            self._called(n, c) for n, c in zip((x.name for x in columns), selected, strict=True)
        ]
        query = self.query(rename(plan, made), [new for _, new in made])
        self.states.append(
            StateTable(
                role=role,
                columns=tuple(columns),
                key=tuple(called[column] for column in ids),
                nullable=tuple(called[column] for column in ids if column not in plan.not_null),
                query=query,
                probes=(),
            )
        )
        state = StateScan(
            role,
            self.symbols.fresh("s"),
            tuple(outputs),
            tuple(ids),
            plan.dependencies,
            plan.keys,
            plan.not_null,
        )
        if watched and role != CONTENT:
            shape = self.name(f"{role}_row")
            self.states.append(Shape(shape, pairs_of(role, tuple(called.values()))))
            self.changes[role] = Changes(
                minus=self.name(f"{role}_gone"),
                update=self.name(f"{role}_changed"),
                plus=self.name(f"{role}_come"),
                shape=shape,
            )
            held = self.changes[role]
            self.variables += [(name, shape) for name in (held.minus, held.update, held.plus)]
        return state

    def _called(self, name: str, column: Column) -> tuple[Column, Column]:
        return column, Column(name)

    def apply(self, state: StateScan, diffs: Sequence[Diff]) -> None:
        """Applies diffs: deletions first, then updates, then insertions."""
        for diff in diffs:
            if isinstance(diff, Minus):
                self.delete(state, diff.plan, diff.ids)
        for diff in diffs:
            if isinstance(diff, Update) and diff.touched:
                sets = [
                    (column, write(reference(column.symbol, "d")))
                    for column in state.columns
                    if column in diff.touched
                ]
                self.update(state, diff.plan, diff.ids, sets)
        for diff in diffs:
            if isinstance(diff, Plus):
                self.insert(state, diff.plan)

    def apply_bag(self, state: StateScan, changed: Bag) -> None:
        """Applies a bag: for every key, at most one row remains that goes and one that comes."""
        rows = self.held("change", changed)
        total = Aggregate(self._column("net"), _summed(rows.sign))
        gone = Selection(Grouping(rows.plan, state.ids, (total,)), _is(total.column, "< 0"))
        goes = self.assign("gone", gone, state.ids)
        comes = self.assign("come", self._images(rows, state), state.columns)
        self.delete(state, goes, state.ids)
        rest = [column for column in state.columns if column not in state.ids]
        if rest:
            self.update_all(state, comes, state.ids)
        self.insert(state, comes)

    def _images(self, rows: Bag, state: StateScan) -> Operator:
        """The rows that come and do not go again on another way, told apart to the bit."""
        rest = [column for column in state.columns if column not in state.ids]
        keys: list[Item] = []
        for column in rest:
            known = self.types.get(column.symbol)
            name = known.name if known is not None else column.type or ""
            if name.endswith("[]"):
                raise NotModelledError("arrays are not netted as bags", str(column))
            texts = ["x"]
            if name not in EXACT:
                texts = ["x", "scale(x)"] if name == "numeric" else ["ROW(x)::text"]
            for text in texts:
                keys.append(
                    Item(
                        self._column("image"),
                        Scalar.read(text, [X]).substitute({X: Scalar.column(column)}),
                    )
                )
        kept = map(Item.kept, (*state.columns, rows.sign))
        wide = Projection(rows.plan, (*kept, *keys))
        renamed = [(column, self.fresh(column)) for column in rest]
        first = [
            Aggregate(
                new, Scalar.read("(array_agg(x))[1]", [X]).substitute({X: Scalar.column(old)})
            )
            for old, new in renamed
        ]
        total = Aggregate(self._column("net"), _summed(rows.sign))
        by = (*state.ids, *(item.column for item in keys))
        groups = Selection(Grouping(wide, by, (*first, total)), _is(total.column, "> 0"))
        return rename(groups, [*((c, c) for c in state.ids), *((new, old) for old, new in renamed)])

    def _column(self, wanted: str) -> Column:
        return Column(self.symbols.fresh(wanted))

    def delete(
        self, state: StateScan, plan: Operator, ids: Sequence[Column], where: str | None = None
    ) -> None:
        """Deletes the rows that a diff names."""
        query = self.query(plan, (*ids, *(c for c in plan.columns if where and c not in ids)))
        self._apply("delete", state, plan, query, ids, where=where)

    def update(
        self,
        state: StateScan,
        plan: Operator,
        ids: Sequence[Column],
        sets: Sequence[tuple[Column, str]],
        where: str | None = None,
    ) -> None:
        """Changes the rows that a diff names; in SQL texts `t` is the stored row, `d` the diff."""
        needed = {
            c
            for c in plan.columns
            if any(
                f"d.{write(reference(c.symbol))}" in t for t in (*(x for _, x in sets), where or "")
            )
        }
        query = self.query(plan, (*ids, *(c for c in plan.columns if c in needed and c not in ids)))
        named = tuple((state.called(column), text) for column, text in sets)
        self._apply("update", state, plan, query, ids, sets=named, where=where)

    def update_all(self, state: StateScan, plan: Operator, ids: Sequence[Column]) -> None:
        """Changes the rows that a diff holds whole, where they differ from what is stored."""
        rest = [column for column in state.columns if column not in ids]
        sets = [(column, write(reference(column.symbol, "d"))) for column in rest]
        images = [
            ", ".join(texts)
            for texts in ([state.text(column, "t") for column in rest], [text for _, text in sets])
        ]
        where = f"ROW({images[0]})::record *<> ROW({images[1]})::record"
        self.update(state, plan, ids, sets, where)

    def insert(self, state: StateScan, plan: Operator) -> None:
        """Inserts the rows of a diff that are not there."""
        self._apply("insert", state, plan, self.query(plan, state.columns), ())

    def _apply(
        self,
        kind: Literal["delete", "update", "insert"],
        state: StateScan,
        plan: Operator,
        query: Query,
        ids: Sequence[Column],
        sets: tuple[tuple[str, str], ...] = (),
        where: str | None = None,
    ) -> None:
        held = self.changes.get(state.role)
        collect = None
        if held is not None:
            collect = {"delete": held.minus, "update": held.update, "insert": held.plus}[kind]
        self.comparable(ids)
        keys = tuple((state.called(c), c.symbol, c not in state.not_null) for c in ids)
        self.steps.append(
            Apply(
                kind=kind,
                state=state.role,
                query=query,
                keys=keys,
                columns=tuple(name for _, name in state.outputs),
                sets=sets,
                where=where,
                collect=collect,
                shape=held.shape if held else None,
                needs=tuple(sorted(variables(plan))),
            )
        )

    def first(self, operator: Operator) -> bool:
        """Whether this is asked for the first time."""
        new = operator not in self._done
        self._done.add(operator)
        return new

    # Plans

    def identify(self, plan: Operator, rows: Operator, ids: Sequence[Column]) -> Join:
        """The rows of a result that a diff names by some of its IDs."""
        renamed = {column: self.fresh(column) for column in ids}
        pairs = list(renamed.items())
        diff = rename(shown(plan, ids), pairs)
        return Join(diff, rows, same([(new, old) for old, new in pairs], rows.not_null))

    def assign(self, wanted: str, plan: Operator, columns: Sequence[Column]) -> DiffScan:
        """Computes a diff once, into a variable, and reads it from there."""
        variable = self.name(wanted)
        shape = self.name(f"{wanted}_row")
        columns = tuple(dict.fromkeys(columns))
        query = self.query(plan, columns)
        self.states.append(Shape(shape, query))
        self.variables.append((variable, shape))
        self.steps.append(Assign(variable, shape, query, tuple(sorted(variables(plan)))))
        outputs = tuple((column, column.symbol) for column in columns)
        return DiffScan(variable, self.symbols.fresh("d"), outputs)

    def query(self, plan: Operator, columns: Sequence[Column]) -> Query:
        """A plan as a query that shows some columns by their symbols."""
        renderer = Renderer(plan)
        return Query(renderer.with_shared(renderer.query(plan, {}, columns)))


def _fields(source: Source) -> tuple[tuple[int, str], ...]:
    """What the columns of a source are called in its diffs, behind `old_` or `new_`."""
    names = Symbols()
    return tuple((c.attnum, names.fresh(fitted_name(c.name, " " * 8)[:-8])) for c in source.columns)


X = Column("x")

EXACT = frozenset(
    {
        *("smallint", "integer", "bigint", "oid", "boolean", "date", "uuid", "bytea"),
        *("timestamp without time zone", "timestamp with time zone", "time without time zone"),
    }
)
"""Types whose equal values are the same to the bit."""


def _summed(sign: Column) -> Scalar:
    return Scalar.read("sum(x)", [X]).substitute({X: Scalar.column(sign)})


def _is(column: Column, text: str) -> Scalar:
    return Scalar.read(f"x {text}", [X]).substitute({X: Scalar.column(column)})


def constant(leaf: Operator) -> None:
    """Refuses a leaf whose rows may change in ways that no diff tells."""
    if not isinstance(leaf, Values | FunctionScan) or leaf.outer_columns:
        raise NotModelledError("there is no rule for this leaf", leaf.label)


def rename(plan: Operator, pairs: Sequence[tuple[Column, Column]]) -> Operator:
    """A plan with other columns: pairs of what it has and what it is to have."""
    return Projection(plan, tuple(Item(new, Scalar.column(old)) for old, new in pairs))


def same(pairs: Iterable[tuple[Column, Column]], not_null: frozenset[Column]) -> Scalar:
    """The condition that pairs of columns are equal, NULL to NULL.

    The second of a pair is a stored column. Written so that an index on it is used: IS NOT
    DISTINCT FROM would not.
    """
    parts = []
    for diff, stored in pairs:
        text = "x = y" if stored in not_null else "((x = y) OR ((x IS NULL) AND (y IS NULL)))"
        x, y = Column("x"), Column("y")
        scalar = Scalar.read(text, [x, y])
        parts.append(scalar.substitute({x: Scalar.column(stored), y: Scalar.column(diff)}))
    return conjunction(parts)
