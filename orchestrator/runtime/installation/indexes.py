"""Indexes on tables that a program needs to find the rows that a change concerns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from psycopg import Connection
from psycopg.errors import InsufficientPrivilege
from psycopg.sql import SQL, Composed, Identifier

from orchestrator import catalog
from orchestrator.deltascript.plan import Evidence, MaintenancePlan, Probe
from orchestrator.errors import UsageError
from orchestrator.frontend.catalog import relations
from orchestrator.frontend.statistics import indexes_on


@dataclass(frozen=True)
class Wanted:
    """A missing index that a program could use."""

    table: Identifier
    columns: tuple[str, ...]
    factor: float | None = None
    """How many times as much a change costs without it, if the difference is large."""
    is_partitioned: bool = False
    """Whether PostgreSQL can create it only while nobody writes the table."""

    @property
    def statement(self) -> Composed:
        """Return the statement that creates it in a transaction."""
        return self._create(SQL("CREATE INDEX ON"))

    @property
    def advice(self) -> Composed:
        """Return the statement that creates it without blocking writers, if PostgreSQL has one."""
        if self.is_partitioned:
            return self.statement
        return self._create(SQL("CREATE INDEX CONCURRENTLY ON"))

    def _create(self, verb: SQL) -> Composed:
        columns = SQL(", ").join(map(Identifier, self.columns))
        return SQL("{} {} ({})").format(verb, self.table, columns)


@dataclass(frozen=True)
class MissingIndex:
    """A missing index, as text for people."""

    statement: str
    factor: float | None

    def __str__(self) -> str:
        """Return the statement, and how much it saves if that is much."""
        if self.factor is None:
            return f"{self.statement};"
        return f"{self.statement}; -- a change costs {_times(self.factor)} as much without it"


def missing_for(connection: Connection[Any], plan: MaintenancePlan) -> list[MissingIndex]:
    """Return the indexes that the plan of a view would use, the most important first."""
    factors = {each.probe: each.factor for each in plan.evidence.missing}
    wanted = missing(connection, [*factors, *plan.program.probes], factors)
    wanted.sort(key=lambda item: -(item.factor or 0.0))
    return [MissingIndex(each.advice.as_string(connection), each.factor) for each in wanted]


def notices(connection: Connection[Any], name: str, plan: MaintenancePlan) -> Iterator[str]:
    """Yield notices about missing indexes for the creator of a view."""
    factors = {item.probe: item.factor for item in plan.evidence.missing}
    for wanted in missing(connection, factors, factors):
        yield (
            f"A change of {wanted.table.as_string(connection)} costs {name} about"
            f" {_times(wanted.factor or 1.0)} as much as it would with an index. Create it with:"
            f" {wanted.advice.as_string(connection)}"
        )


def _times(factor: float) -> str:
    """Return a factor in words.

    >>> _times(12345.6)
    '12,300 times'
    """
    digits = max(0, len(str(int(factor))) - 3)
    return f"{round(factor, -digits):,.0f} times"


def missing(
    connection: Connection[Any],
    probes: Iterable[Probe],
    factors: Mapping[Probe, float] = MappingProxyType({}),
) -> list[Wanted]:
    """Return the missing indexes. An existing index that begins with any probed column is enough."""
    asked = sorted(set(probes), key=lambda item: (item.table, len(item.columns), item.columns))
    tables = {each.table for each in asked}
    first = {(each.table, each.first_column) for each in indexes_on(connection, tables)}
    known = relations(connection, tables)
    result = []
    for probe in asked:
        if probe.table not in known or any((probe.table, c) in first for c in probe.columns):
            continue
        first.add((probe.table, probe.columns[0]))
        relation = known[probe.table]
        names = tuple(relation.column(column).name for column in probe.columns)
        result.append(
            Wanted(
                Identifier(relation.schema, relation.name),
                names,
                _factor(probe, factors),
                relation.relkind == "p",
            )
        )
    return result


def _factor(probe: Probe, factors: Mapping[Probe, float]) -> float | None:
    """Return the factor that an index beginning with a probe's first column saves."""
    served = (
        factor
        for other, factor in factors.items()
        if other.table == probe.table and probe.columns[0] in other.columns
    )
    return max(served, default=None)


def views_to_reconsider(connection: Connection[Any], among: Sequence[int]) -> list[int]:
    """Return the views whose tables have other indexes than when the views were planned.

    Only indexes that begin with a column that the view reads count.
    """
    rows = connection.execute(
        """
        SELECT v.id
        FROM idivm.views v,
             jsonb_array_elements(v.plan -> 'program' -> 'sources') WITH ORDINALITY AS source (value, nth),
             LATERAL (SELECT v.plan #> ARRAY['evidence', 'statistics', (nth - 1)::text, 'indexed']) AS known (indexed),
             LATERAL (
                 SELECT coalesce(jsonb_agg(DISTINCT i.indkey[0]::integer), '[]') AS indexed
                 FROM pg_index i
                 JOIN pg_class c ON c.oid = i.indexrelid
                 JOIN pg_am am ON am.oid = c.relam AND am.amname IN ('btree', 'hash')
                 WHERE i.indrelid = (source.value ->> 'oid')::oid AND i.indisvalid AND i.indpred IS NULL
             ) AS today,
             jsonb_array_elements(source.value -> 'columns') AS used (value)
        WHERE v.id = ANY (%s) AND v.status <> 'building' AND known.indexed IS NOT NULL
          AND v.options ->> 'create_indexes' IS DISTINCT FROM 'on'
          AND (known.indexed @> (used.value -> 'attnum')) <> (today.indexed @> (used.value -> 'attnum'))
        GROUP BY v.id ORDER BY v.id
        """,
        [list(among)],
    ).fetchall()
    return [view_id for (view_id,) in rows]


def as_indexed(connection: Connection[Any], plan: MaintenancePlan) -> Evidence:
    """Return the facts that a plan was made from, with the present indexes of its tables."""
    tables = [source.oid for source in plan.program.sources]
    there = indexes_on(connection, tables)
    statistics = tuple(
        known
        and replace(known, indexed=frozenset(i.first_column for i in there if i.table == table))
        for table, known in zip(tables, plan.evidence.statistics, strict=True)
    )
    return replace(plan.evidence, statistics=statistics)


def ensure(connection: Connection[Any], view_id: int, probes: Iterable[Probe]) -> None:
    """Create the missing indexes. They are dropped with the last view that they were created for."""
    probes = list(probes)
    tables = {probe.table for probe in probes}
    before = {item.oid for item in indexes_on(connection, tables)}
    for wanted in missing(connection, probes):
        try:
            connection.execute(wanted.statement)
        except InsufficientPrivilege as error:
            raise UsageError(
                f"create_indexes = on needs the owner of {wanted.table.as_string(connection)}; ask"
                f" for {wanted.statement.as_string(connection)} and leave the option out."
            ) from error
    probed = {(probe.table, column) for probe in probes for column in probe.columns}
    there = indexes_on(connection, tables)
    catalog.record_indexes(
        connection,
        view_id,
        created=[item.oid for item in there if item.oid not in before],
        used=[item.oid for item in there if (item.table, item.first_column) in probed],
    )
