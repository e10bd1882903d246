"""The join of tables that a query begins with, which several views may read from one maintained view.

A query begins with the join of the tables that it scans, and some conditions on single rows of it:

    γ month; sum(qty) (σ brand = 3 (sales ⋈ items ⋈ dates))

If a maintained view stores `sales ⋈ items ⋈ dates` with all columns that the query reads, the query can scan this view
instead. Conditions that do not equate columns of two tables stay in the query, so that queries with other filters read
the same view.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from sqlglot import exp

from orchestrator.algebra import Column, Operator, Plan, Scan, ScanColumn, Table, dialect
from orchestrator.algebra.ids import used_symbols
from orchestrator.algebra.operators.join import Join
from orchestrator.algebra.operators.project import Projection
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.rendering import to_sql
from orchestrator.algebra.scalar import Scalar, conjunction, unwrapped
from orchestrator.algebra.traversal import rewrite, walk
from orchestrator.frontend.facts import RelationColumn
from orchestrator.sqltext import fitted_name

Place: TypeAlias = tuple[int, int]
"""A column of a table: the oid of the table and the number of the column."""

Equalities: TypeAlias = frozenset[frozenset[Place]]


@dataclass(frozen=True)
class CommonJoin:
    """The part of a query that joins its tables by equal columns."""

    operator: Operator
    """The operator of the plan that returns the joined rows that satisfy the filters."""
    scans: tuple[Scan, ...]
    """Its tables, each in one scan."""
    equal: tuple[Scalar, ...]
    """The conditions that join the tables."""
    filters: tuple[Scalar, ...]
    """The other conditions."""

    @property
    def places(self) -> dict[Column, Place]:
        """The columns that the query reads, and where they come from."""
        return {
            output.column: (scan.table.oid, output.attnum)
            for scan in self.scans
            for output in scan.outputs
        }

    @property
    def tables(self) -> frozenset[int]:
        """The tables, by oid."""
        return frozenset(scan.table.oid for scan in self.scans)

    @property
    def equalities(self) -> Equalities:
        """The pairs of columns that the conditions equate."""
        return _equalities(self.equal, self.places)


def common_join(plan: Plan) -> CommonJoin | None:
    """Return the topmost join of a plan that another query with other filters may have in common with it."""
    for operator in walk(plan.root, subqueries=False):
        if not isinstance(operator, Join | Selection):
            continue
        parts = list(_parts(operator))
        scans = tuple(part for part in parts if isinstance(part, Scan))
        conditions = [part for part in parts if isinstance(part, Scalar)]
        if len(scans) < 2 or any(part is None for part in parts) or not _are_distinct(scans):
            continue
        places = {o.column: (s.table.oid, o.attnum) for s in scans for o in s.outputs}
        equal = tuple(c for c in conditions if _pair(c, places) is not None)
        filters = tuple(c for c in conditions if _pair(c, places) is None)
        if any(c.subqueries or not c.references <= places.keys() for c in conditions):
            continue
        join = CommonJoin(operator, scans, equal, filters)
        if _order(join) is not None:
            return join
    return None


def _are_distinct(scans: tuple[Scan, ...]) -> bool:
    # A second scan of a table would make it ambiguous whose columns a stored join has.
    return len({scan.table.oid for scan in scans}) == len(scans) and not any(
        scan.only or scan.is_clock for scan in scans
    )


def _parts(operator: Operator) -> Iterator[Scan | Scalar | None]:
    """Yield the scans and conditions of a tree of inner joins, and None for any other operator."""
    if isinstance(operator, Scan):
        yield operator
    elif isinstance(operator, Join | Selection):
        yield from operator.condition.conjuncts
        for child in operator.children:
            yield from _parts(child)
    else:
        yield None


def _pair(condition: Scalar, places: Mapping[Column, Place]) -> frozenset[Place] | None:
    """Return the columns of two tables that a condition equates."""
    if not isinstance(unwrapped(condition.tree), exp.EQ) or (sides := condition.sides) is None:
        return None
    columns = (side.as_column for side in sides)
    pair = frozenset(places[c] for c in columns if c is not None and c in places)
    return pair if len({oid for oid, _ in pair}) == 2 else None


def _tables(condition: Scalar, places: Mapping[Column, Place]) -> set[int]:
    return {places[column][0] for column in condition.references}


def _equalities(conditions: Iterable[Scalar], places: Mapping[Column, Place]) -> Equalities:
    return frozenset(pair for c in conditions if (pair := _pair(c, places)) is not None)


def _order(join: CommonJoin) -> list[Scan] | None:
    """Return the scans so that a condition joins each with one before it, or None if there is no such order."""
    first, *rest = join.scans
    ordered = [first]
    while rest:
        reached = {scan.table.oid for scan in ordered}
        following = next(
            (
                scan
                for scan in rest
                if any(
                    scan.table.oid in oids and oids & reached
                    for oids in ({oid for oid, _ in pair} for pair in join.equalities)
                )
            ),
            None,
        )
        if following is None:
            return None
        ordered.append(following)
        rest.remove(following)
    return ordered


def stored_query(join: CommonJoin, columns: Mapping[int, tuple[RelationColumn, ...]]) -> str:
    """Return the query of a view that stores a join, with some columns of each table, given by oid."""
    symbols = used_symbols(join.operator)
    scans: dict[int, Scan] = {}
    names: list[str] = []
    for scan in join.scans:
        more = tuple(
            ScanColumn(Column(symbols.fresh(c.name), c.plain_type), c.attnum, c.name)
            for c in columns[scan.table.oid]
            if scan.at(c.attnum) is None
        )
        scans[scan.table.oid] = replace(scan, outputs=(*scan.outputs, *more))
    [first, *rest] = _order(join) or []
    places = join.places
    waiting = list(join.equal)
    root: Operator = scans[first.table.oid]
    reached = {first.table.oid}
    for scan in rest:
        reached.add(scan.table.oid)
        on = [c for c in waiting if _tables(c, places) <= reached]
        waiting = [c for c in waiting if not _tables(c, places) <= reached]
        root = Join(root, scans[scan.table.oid], conjunction(on))
    outputs = [(scan.table.name, output) for scan in scans.values() for output in scan.outputs]
    plain = [output.name for _, output in outputs]
    for table, output in outputs:
        name = output.name
        if plain.count(name) > 1:
            name = fitted_name(f"{table}_{name}")
        number = 2
        while name in names:
            name, number = fitted_name(output.name, f"_{number}"), number + 1
        names.append(name)
    plan = Plan(root, tuple(names), tuple(output.column for _, output in outputs))
    return dialect.write(to_sql(plan))


@dataclass(frozen=True)
class StoredJoin:
    """A maintained view that stores a join, as a relation that queries scan."""

    table: Table
    columns: Mapping[Place, tuple[int, str]]
    """The number and name under which the view shows a column of a table."""
    equalities: Equalities

    @staticmethod
    def of(oid: int, schema: str, name: str, plan: Plan | None) -> StoredJoin | None:
        """Return what a view stores, if its plan is a join of tables without filters."""
        if plan is None:
            return None
        join = common_join(plan)
        if join is None or join.filters:
            return None
        if not (
            plan.root is join.operator
            or (
                isinstance(plan.root, Projection)
                and plan.root.input is join.operator
                and all(item.is_unchanged for item in plan.root.items)
            )
        ):
            return None
        places = join.places
        columns = {
            places[column]: (number, name)
            for number, (column, name) in enumerate(zip(plan.columns, plan.names, strict=True), 1)
            if column in places
        }
        return StoredJoin(Table(oid, schema, name), columns, join.equalities)

    def answers(self, join: CommonJoin) -> bool:
        """Return whether the rows of a join can be read from this view."""
        return (
            self.equalities == join.equalities
            and {oid for oid, _ in self.columns} == join.tables
            and self.columns.keys() >= set(join.places.values())
        )

    def read_in(self, plan: Plan, join: CommonJoin) -> str:
        """Return the query of a plan that scans this view in the place of a join."""
        outputs = tuple(
            ScanColumn(column, *self.columns[place]) for column, place in join.places.items()
        )
        alias = used_symbols(plan.root).fresh(self.table.name)
        scan: Operator = Scan(self.table, alias, outputs)
        if join.filters:
            scan = Selection(scan, conjunction(join.filters))
        root = rewrite(
            plan.root, lambda operator: scan if operator is join.operator else operator, False
        )
        return dialect.write(to_sql(replace(plan, root=root)))
