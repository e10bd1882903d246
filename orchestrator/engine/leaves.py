"""The changes of a plan's leaves: base tables, and states that are stored below.

Base-table i-diff schemas (papers/idivm.txt, section 5), and their like for the rows that a step
changed in a state: both lie in variables, each row as it was and as it is.
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
    """The variables that hold a leaf's changes."""

    fields: dict[Column, str]
    """The leaf's columns, and what they are called behind `old_` or `new_`."""
    ids: tuple[Column, ...]
    deleted: str
    inserted: str
    updates: tuple[tuple[str, frozenset[Column]], ...]
    """With the columns that an update of the variable touches."""
    composer: Composer

    def scan(self, variable: str, outputs: Sequence[tuple[Column, str]]) -> DiffScan:
        """The rows of a variable."""
        return DiffScan(variable, self.composer.symbols.fresh("d"), tuple(outputs))

    def side(self, variable: str, side: str, columns: Iterable[Column]) -> DiffScan:
        """The rows of a variable as they were or as they are."""
        return self.scan(variable, [(c, f"{side}_{self.fields[c]}") for c in columns])

    def diffs(self) -> Iterator[Diff]:
        """As facts about the leaf's rows."""
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
        """As a bag."""
        for variable, _ in self.updates:
            yield -1, self.side(variable, "old", self.fields)
            yield 1, self.side(variable, "new", self.fields)
        yield from self.deleted_and_inserted()

    def deleted_and_inserted(self) -> Iterator[Part]:
        """What is no update, as a bag."""
        yield -1, self.side(self.deleted, "old", self.fields)
        yield 1, self.side(self.inserted, "new", self.fields)


def diffs_of(
    leaf: Operator, conditional: Sequence[frozenset[Column]], composer: Composer
) -> tuple[Diff, ...]:
    """The diffs of a leaf, with a class of updates for each set of conditional columns.

    A table without a key stands by itself only where nothing but the change as a bag is used, as at
    the right of a semijoin. There its diffs say no more than that there is a change.
    """
    changes = _changes(leaf, conditional, composer)
    return tuple(changes.diffs()) if changes else ()


def bag_of(leaf: Operator, composer: Composer) -> Bag | None:
    """The change of a leaf as a bag; None of a leaf that never changes."""
    changes = _changes(leaf, (), composer)
    return composer.union(leaf.columns, list(changes.parts())) if changes else None


def members_of(state: StateScan, composer: Composer) -> Bag | None:
    """The IDs of a stored result that come or go; None of a result that never changes."""
    changes = _changes(state, (), composer)
    return composer.union(state.columns, list(changes.deleted_and_inserted())) if changes else None


@dataclass(frozen=True)
class ChangesApart:
    """The change of a table, its updates also as such."""

    every: Bag
    rest: Bag
    """What is no update."""
    updates: tuple[Update, ...]


def changes_apart(scan: Scan, composer: Composer) -> ChangesApart:
    """The change of a table that may change."""
    changes = _of_table(scan, (), composer)
    return ChangesApart(
        composer.union(scan.columns, list(changes.parts())),
        composer.union(scan.columns, list(changes.deleted_and_inserted())),
        tuple(diff for diff in changes.diffs() if isinstance(diff, Update)),
    )


@dataclass(frozen=True)
class Sides:
    """The rows of a table that change, as they were and as they are, and those that stay."""

    gone: Bag
    come: Bag
    kept: Operator
    """The table without the rows that come or have changed."""


def sides(scan: Scan, composer: Composer) -> Sides | None:
    """The change of a table in two halves, if a key tells which of its rows have changed."""
    changes = _of_table(scan, (), composer)
    if not changes.ids:
        return None
    updates = [variable for variable, _ in changes.updates]
    gone: list[Part] = [
        (-1, changes.side(v, "old", changes.fields)) for v in (*updates, changes.deleted)
    ]
    come: list[Part] = [
        (1, changes.side(v, "new", changes.fields)) for v in (*updates, changes.inserted)
    ]
    kept: Operator = scan
    for variable in (*updates, changes.inserted):
        fresh = [(column, composer.fresh(column)) for column in changes.ids]
        outputs = [(new, f"new_{changes.fields[column]}") for column, new in fresh]
        is_changed = same([(new, column) for column, new in fresh], frozenset(changes.ids))
        kept = Antisemijoin(kept, changes.scan(variable, outputs), is_changed)
    return Sides(composer.union(scan.columns, gone), composer.union(scan.columns, come), kept)


def constant(leaf: Operator) -> None:
    """Refuses a leaf whose rows may change in ways that no diff tells."""
    if not isinstance(leaf, Values | FunctionScan) or leaf.outer_columns:
        raise NotModelledError("there is no rule for this leaf", leaf.label)


def reads(composer: Composer) -> Iterator[ReadChanges]:
    """The steps that read the captured changes; they come before all others.

    What no step asks for is not read.
    """
    by_source: dict[int, list[ChangeClass]] = {}
    for (oid, _, _), change_class in composer.classes.items():
        by_source.setdefault(oid, []).append(change_class)
    wanted = _wanted(composer)
    for oid, classes in by_source.items():
        source = composer.sources[oid]
        shape = composer.name(f"{source.name}_diff")
        composer.variables += [(item.variable, shape) for item in classes]
        found = [
            replace(item, where=_where(source, item, composer))
            for item in classes
            if item.variable in wanted
        ]
        asked = {name for item in found for name in wanted[item.variable]}
        asked |= {
            c.name for item in found if item.where for c in item.where.tree.find_all(exp.Column)
        }
        # To tell which class a change is of.
        compared = {column.attnum for column in source.columns if column.in_key}
        compared = compared.union(*(item.touched for item in found))
        fields = tuple(
            (attnum, name)
            for attnum, name in fields_of(source)
            if attnum in compared or asked & {f"old_{name}", f"new_{name}"}
        )
        if found:
            yield ReadChanges(source, shape, fields, tuple(found), reading(source, found))
    for oid in sorted(composer.static):
        source = composer.sources[oid]
        yield ReadChanges(source, "", (), (), reading(source, ()))


def relevant(plan: Operator) -> dict[Operator, Scalar]:
    """For every scan that stands nowhere but below selections, their conditions.

    A row that does not satisfy them, neither before its change nor after, changes nothing above.
    """
    found: dict[Operator, list[Scalar]] = {}
    everywhere = Counter(walk(plan))
    tops = {id(item.input) for item in walk(plan) if isinstance(item, Selection)}
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
            found.setdefault(below, []).append(conjunction(parts))
    return {
        scan: disjunction(dict.fromkeys(conditions))
        for scan, conditions in found.items()
        if TRUE not in conditions and everywhere[scan] == len(conditions)
    }


def _where(source: Source, change_class: ChangeClass, composer: Composer) -> Query | None:
    """The condition of a class: that of any leaf that reads it, before or after the change."""
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
    trees = [
        at(side, *found) for found in dict.fromkeys(filter(None, conditions)) for side in sides
    ]
    return Query(exp.or_(*dict.fromkeys(trees), copy=False)) if trees else None


def _wanted(composer: Composer) -> dict[str, set[str]]:
    """The variables that steps need or read, and the fields that these read of them."""
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
        return _of_table(leaf, conditional, composer)
    if isinstance(leaf, StateScan):
        if not any(isinstance(step, Apply) and step.state == leaf.role for step in composer.steps):
            return None
        held = composer.changes[leaf.role]
        rest = frozenset(leaf.columns) - frozenset(leaf.ids)
        updates = ((held.updated, rest),) if rest else ()
        return _Changes(
            dict(leaf.outputs), leaf.ids, held.deleted, held.inserted, updates, composer
        )
    constant(leaf)
    return None


def _of_table(scan: Scan, conditional: Sequence[frozenset[Column]], composer: Composer) -> _Changes:
    source, columns = _captured(scan, composer)
    names = dict(fields_of(source))
    ids = tuple(column for column, item in columns.items() if item.in_key)
    # Without a key nothing tells which old row a new one was.
    rest = frozenset(columns) - frozenset(ids) if ids else frozenset()
    sets = [item & rest for item in conditional]
    sets.append(rest.difference(*sets))

    condition = composer.relevant.get(scan)

    def variable(kind: ChangeKind, touched: frozenset[Column] = frozenset()) -> str:
        numbers = frozenset(columns[column].attnum for column in touched)
        conditions = composer.conditions.setdefault((source.oid, kind, numbers), [])
        conditions.append((condition, scan) if condition else None)
        return _class(source, kind, numbers, composer).variable

    return _Changes(
        {column: names[item.attnum] for column, item in columns.items()},
        ids,
        variable(ChangeKind.DELETE),
        variable(ChangeKind.INSERT),
        tuple((variable(ChangeKind.UPDATE, touched), touched) for touched in sets if touched),
        composer,
    )


def _captured(scan: Scan, composer: Composer) -> tuple[Source, dict[Column, SourceColumn]]:
    """The source of a scan's changes, and what its columns are there."""
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
    place = (source.oid, kind, touched)
    if place not in composer.classes:
        rest = [column for column in source.columns if not column.in_key]
        name = [source.name, kind.done]
        if len(touched) < len(rest):
            name += [column.name for column in rest if column.attnum in touched][:3]
        composer.classes[place] = ChangeClass(composer.name("_".join(name)), kind, touched)
    return composer.classes[place]
