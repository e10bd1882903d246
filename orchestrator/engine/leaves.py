"""The changes of a plan's leaves: base tables, and states that are stored below.

Base tables have the i-diff schemas of papers/idivm.txt, section 5. The rows that a step changed in
a state have similar diffs. Both are held in variables, with old and new values of each row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from orchestrator.algebra.columns import Column
from orchestrator.algebra.dialect import Tree, reference
from orchestrator.algebra.operators.antisemijoin import Antisemijoin
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.function_scan import FunctionScan
from orchestrator.algebra.operators.scan import Scan
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.operators.values import Values
from orchestrator.algebra.scalar import TRUE, Scalar, conjunction, disjunction
from orchestrator.algebra.traversal import walk
from orchestrator.algebra.unsupported import NotModelledError
from orchestrator.deltascript.leaves import DiffScan, StateScan, called
from orchestrator.deltascript.notation import reading
from orchestrator.deltascript.plan import (
    Apply,
    Assign,
    ChangeClass,
    ChangeKind,
    Query,
    ReadChanges,
    Source,
    SourceColumn,
    Step,
)
from orchestrator.engine.composer import Composer, Part, fields_of
from orchestrator.engine.diffs import Bag, Delete, Diff, Insert, Update
from orchestrator.engine.terms import same


@dataclass(frozen=True)
class _Changes:
    """The variables that hold the changes of a leaf."""

    fields: dict[Column, str]
    """The columns of the leaf, and the names of their fields without the prefix `old_` or
    `new_`."""
    not_null: frozenset[str]
    """The fields, without prefix, that are never NULL on the side of a change that has them."""
    ids: tuple[Column, ...]
    deleted: str | None
    """None for a table to which rows are only added."""
    inserted: str
    updates: tuple[tuple[str, frozenset[Column]], ...]
    """The variables of updates, with the columns that they touch."""
    composer: Composer

    def scan(self, variable: str, outputs: Sequence[tuple[Column, str]]) -> DiffScan:
        """Return the rows of a variable."""
        sure = (column for column, field in outputs if field.partition("_")[2] in self.not_null)
        return DiffScan(variable, self.composer.symbols.fresh("d"), tuple(outputs), frozenset(sure))

    def side(self, variable: str, side: str, columns: Iterable[Column]) -> DiffScan:
        """Return the old or the new rows of a variable."""
        return self.scan(variable, [(c, f"{side}_{self.fields[c]}") for c in columns])

    def diffs(self) -> Iterator[Diff]:
        """Yield the changes as diffs."""
        if self.deleted is not None:
            yield Delete(self.side(self.deleted, "old", self.ids), self.ids)
        yield Insert(self.side(self.inserted, "new", self.fields))
        rest = [column for column in self.fields if column not in self.ids]
        for variable, touched in self.updates:
            before = {column: self.composer.fresh(column) for column in rest}
            outputs = [(column, f"new_{name}") for column, name in self.fields.items()]
            outputs += [(old, f"old_{self.fields[column]}") for column, old in before.items()]
            plan = self.scan(variable, outputs)
            yield Update(plan, self.ids, before | {c: c for c in self.ids}, touched)

    def parts(self) -> Iterator[Part]:
        """Yield the changes as parts of a bag."""
        for variable, _ in self.updates:
            yield -1, self.side(variable, "old", self.fields)
            yield 1, self.side(variable, "new", self.fields)
        yield from self.deleted_and_inserted()

    def deleted_and_inserted(self) -> Iterator[Part]:
        """Yield the deletes and inserts as parts of a bag."""
        if self.deleted is not None:
            yield -1, self.side(self.deleted, "old", self.fields)
        yield 1, self.side(self.inserted, "new", self.fields)


def diffs_of(
    leaf: Operator, conditional: Sequence[frozenset[Column]], composer: Composer
) -> tuple[Diff, ...]:
    """Return the diffs of a leaf, with a class of updates for each set of conditional columns.

    A table without a key is used directly only where the rule needs just its change as a bag, for
    example on the right of a semijoin. Its diffs then only say that there is a change.
    """
    changes = _changes(leaf, conditional, composer)
    return tuple(changes.diffs()) if changes else ()


def bag_of(leaf: Operator, composer: Composer) -> Bag | None:
    """Return the change of a leaf as a bag, or None if the leaf never changes."""
    changes = _changes(leaf, (), composer)
    return composer.union(leaf.columns, list(changes.parts())) if changes else None


def members_of(state: StateScan, composer: Composer) -> Bag | None:
    """Return the inserted and deleted IDs of a stored result, or None if it never changes."""
    changes = _changes(state, (), composer)
    return composer.union(state.columns, list(changes.deleted_and_inserted())) if changes else None


@dataclass(frozen=True)
class ChangesApart:
    """The change of a table as a bag, with its updates also as diffs."""

    every: Bag
    rest: Bag
    """The deletes and inserts."""
    updates: tuple[Update, ...]


def changes_apart(scan: Scan, composer: Composer) -> ChangesApart:
    """Return the change of a table that may change."""
    changes = _table_changes(scan, (), composer)
    return ChangesApart(
        composer.union(scan.columns, list(changes.parts())),
        composer.union(scan.columns, list(changes.deleted_and_inserted())),
        tuple(diff for diff in changes.diffs() if isinstance(diff, Update)),
    )


@dataclass(frozen=True)
class Sides:
    """The old and the new versions of the changed rows of a table, and the unchanged rows."""

    old: Bag
    new: Bag
    unchanged: Operator
    """The table without the rows that were inserted or updated."""


def sides(scan: Scan, composer: Composer) -> Sides | None:
    """Return both versions of the changed rows of a table, or None if no key identifies its rows."""
    changes = _table_changes(scan, (), composer, every_kind=True)
    if not changes.ids:
        return None
    updates = [variable for variable, _ in changes.updates]
    old: list[Part] = [
        (-1, changes.side(v, "old", changes.fields)) for v in (*updates, changes.deleted) if v
    ]
    new: list[Part] = [
        (1, changes.side(v, "new", changes.fields)) for v in (*updates, changes.inserted)
    ]
    unchanged: Operator = scan
    for variable in (*updates, changes.inserted):
        ids = [(column, composer.fresh(column)) for column in changes.ids]
        outputs = [(copy, f"new_{changes.fields[column]}") for column, copy in ids]
        is_changed = same([(copy, column) for column, copy in ids], frozenset(changes.ids))
        unchanged = Antisemijoin(unchanged, changes.scan(variable, outputs), is_changed)
    return Sides(composer.union(scan.columns, old), composer.union(scan.columns, new), unchanged)


def constant(leaf: Operator) -> None:
    """Reject a leaf whose rows may change without a diff."""
    if not isinstance(leaf, Values | FunctionScan) or leaf.outer_columns:
        raise NotModelledError("there is no rule for this leaf", leaf.label)


def reads(composer: Composer) -> Iterator[ReadChanges]:
    """Yield the steps that read the captured changes, which precede all other steps.

    Classes that no step needs are not read.
    """
    by_source: dict[int, list[ChangeClass]] = {}
    for (oid, _, _), change_class in composer.classes.items():
        by_source.setdefault(oid, []).append(change_class)
    wanted_fields = _wanted(composer)
    for oid, classes in by_source.items():
        source = composer.sources[oid]
        shape = composer.name(f"{source.name}_diff")
        composer.variables += [(change.variable, shape) for change in classes]
        needed = [
            replace(change, where=_where(source, change, composer))
            for change in classes
            if change.variable in wanted_fields
        ]
        read_fields = {name for change in needed for name in wanted_fields[change.variable]}
        read_fields |= {
            c.name
            for change in needed
            if change.where
            for c in change.where.tree.find_all(exp.Column)
        }
        # The touched and key columns are needed to find the class of a change.
        compared = {column.attnum for column in source.columns if column.in_key}
        compared = compared.union(*(change.touched for change in needed))
        fields = tuple(
            (attnum, name)
            for attnum, name in fields_of(source)
            if attnum in compared or read_fields & {f"old_{name}", f"new_{name}"}
        )
        if needed:
            grows = oid in composer.growing
            line = reading(source, needed, grows)
            yield ReadChanges(source, shape, fields, tuple(needed), line, grows)
    for oid in sorted(composer.static):
        source = composer.sources[oid]
        yield ReadChanges(source, "", (), (), reading(source, ()))


def relevant(plan: Operator) -> dict[Operator, Scalar]:
    """Return the conditions of every scan that only occurs below selections.

    A row that does not satisfy them, before and after its change, changes nothing above.
    """
    conditions_of: dict[Operator, list[Scalar]] = {}
    occurrences = Counter(walk(plan))
    tops = {id(selection.input) for selection in walk(plan) if isinstance(selection, Selection)}
    for operator in walk(plan):
        parts: list[Scalar] = []
        below: Operator = operator
        while isinstance(below, Selection) and id(operator) not in tops:
            own = frozenset(below.columns)
            parts += [
                c for c in below.condition.conjuncts if not c.subqueries and c.references <= own
            ]
            below = below.input
        if isinstance(below, Scan) and below is not operator:
            conditions_of.setdefault(below, []).append(conjunction(parts))
    return {
        scan: disjunction(dict.fromkeys(conditions))
        for scan, conditions in conditions_of.items()
        if TRUE not in conditions and occurrences[scan] == len(conditions)
    }


def _where(source: Source, change_class: ChangeClass, composer: Composer) -> Query | None:
    """Return the condition of a class: any leaf that reads it needs the row, before or after the
    change.
    """
    conditions = composer.conditions[source.oid, change_class.kind, change_class.touched]
    if None in conditions:
        return None
    names = dict(fields_of(source))

    def at(side: str, condition: Scalar, scan: Scan) -> Tree:
        called = {o.column.symbol: f"{side}_{names[o.attnum]}" for o in scan.outputs}

        def field(node: Tree) -> Tree:
            return reference(called[node.name]) if isinstance(node, exp.Column) else node

        return exp.Paren(this=condition.tree.transform(field))

    sides = {ChangeKind.DELETE: ["old"], ChangeKind.INSERT: ["new"]}.get(
        change_class.kind, ["old", "new"]
    )
    trees = [at(side, *pair) for pair in dict.fromkeys(filter(None, conditions)) for side in sides]
    return Query(exp.or_(*dict.fromkeys(trees), copy=False)) if trees else None


def _wanted(composer: Composer) -> dict[str, set[str]]:
    """Return the variables that steps need or read, and the fields of them that steps read."""
    result: dict[str, set[str]] = {need: set() for step in composer.steps for need in _needs(step)}
    for plan in composer.plans.values():
        for scan in walk(plan):
            if isinstance(scan, DiffScan):
                fields = result.setdefault(scan.variable, set())
                fields |= {name for _, name in scan.outputs}
    return result


def _needs(step: Step) -> tuple[str, ...]:
    return step.needs if isinstance(step, Apply | Assign) else ()


def _changes(
    leaf: Operator, conditional: Sequence[frozenset[Column]], composer: Composer
) -> _Changes | None:
    if isinstance(leaf, Scan):
        if leaf.table.oid in composer.static:
            return None
        return _table_changes(leaf, conditional, composer)
    if isinstance(leaf, StateScan):
        if not any(isinstance(step, Apply) and step.state == leaf.role for step in composer.steps):
            return None
        held = composer.changes[leaf.role]
        rest = frozenset(leaf.columns) - frozenset(leaf.ids)
        updates = ((held.updated, rest),) if rest else ()
        return _Changes(
            dict(leaf.outputs),
            frozenset(map(leaf.called, leaf.not_null)),
            leaf.ids,
            held.deleted,
            held.inserted,
            updates,
            composer,
        )
    constant(leaf)
    return None


def _table_changes(
    scan: Scan,
    conditional: Sequence[frozenset[Column]],
    composer: Composer,
    *,
    every_kind: bool = False,
) -> _Changes:
    """Return the changes of a table; with `every_kind`, also the kinds that lead to a recomputation."""
    grows = scan.table.oid in composer.growing and not every_kind
    source, columns = _captured(scan, composer)
    names = dict(fields_of(source))
    ids = tuple(column for column, captured in columns.items() if captured.in_key)
    # Without a key, the old version of a new row is unknown.
    rest = frozenset(columns) - frozenset(ids) if ids else frozenset()
    sets = [touched & rest for touched in conditional]
    sets.append(rest.difference(*sets))

    condition = composer.relevant.get(scan)

    def variable(kind: ChangeKind, touched: frozenset[Column] = frozenset()) -> str:
        numbers = frozenset(columns[column].attnum for column in touched)
        conditions = composer.conditions.setdefault((source.oid, kind, numbers), [])
        conditions.append((condition, scan) if condition else None)
        return _class(source, kind, numbers, composer).variable

    return _Changes(
        {column: names[captured.attnum] for column, captured in columns.items()},
        frozenset(names[columns[column].attnum] for column in scan.not_null & columns.keys()),
        ids,
        None if grows else variable(ChangeKind.DELETE),
        variable(ChangeKind.INSERT),
        ()
        if grows
        else tuple((variable(ChangeKind.UPDATE, touched), touched) for touched in sets if touched),
        composer,
    )


def _captured(scan: Scan, composer: Composer) -> tuple[Source, dict[Column, SourceColumn]]:
    """Return the source of a scan's changes, and the captured column for each column of the scan."""
    source = composer.sources.get(scan.table.oid)
    if source is None:
        raise NotModelledError("changes of this relation come without a key", called(scan))
    by_number = {column.attnum: column for column in source.columns}
    if any(output.attnum not in by_number for output in scan.outputs):
        raise NotModelledError("a column is read that is not captured", called(scan))
    columns = {output.column: by_number[output.attnum] for output in scan.outputs}
    keys = [column for column in source.columns if column.in_key]
    if not {k.attnum for k in keys} <= {c.attnum for c in columns.values()}:
        raise NotModelledError("a table has no key to follow its rows by", called(scan))
    if not {k.attnum for k in keys} <= {c.attnum for c in columns.values()}:
        raise NotModelledError("a table's key is not read", called(scan))
    if not all(column.equality for column in keys):
        raise NotModelledError("a key is not compared by an operator of pg_catalog", called(scan))
    if scan.only:
        raise NotModelledError("ONLY leaves out rows that are captured too", called(scan))
    return source, columns


def _class(
    source: Source, kind: ChangeKind, touched: frozenset[int], composer: Composer
) -> ChangeClass:
    key = (source.oid, kind, touched)
    if key not in composer.classes:
        rest = [column for column in source.columns if not column.in_key]
        name = [source.name, kind.done]
        if len(touched) < len(rest):
            name += [column.name for column in rest if column.attnum in touched][:3]
        composer.classes[key] = ChangeClass(composer.name("_".join(name)), kind, touched)
    return composer.classes[key]
