"""Indexes on tables, which a program needs to find the rows that a change concerns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from psycopg import Connection
from psycopg.errors import InsufficientPrivilege
from psycopg.sql import SQL, Composed, Identifier

from orchestrator.deltascript.plan import Probe
from orchestrator.errors import UsageError
from orchestrator.frontend.catalog import indexes_on, relations
from orchestrator.runtime import catalog


@dataclass(frozen=True)
class Wanted:
    """An index that a program could use and that is not there."""

    table: Identifier
    columns: tuple[str, ...]

    @property
    def statement(self) -> Composed:
        """What makes it."""
        columns = SQL(", ").join(map(Identifier, self.columns))
        return SQL("CREATE INDEX ON {} ({})").format(self.table, columns)


def probes_of(plan: Mapping[str, Any]) -> list[Probe]:
    """How the script of a plan from the catalog looks for rows of tables."""
    return [Probe(one["table"], tuple(one["columns"])) for one in plan.get("probes", ())]


def missing(connection: Connection[Any], probes: Iterable[Probe]) -> list[Wanted]:
    """The indexes that no table has yet; one that begins with any probed column is enough."""
    asked = sorted(set(probes), key=lambda one: (one.table, len(one.columns), one.columns))
    tables = {one.table for one in asked}
    first = {(one.table, one.first_column) for one in indexes_on(connection, tables)}
    known = relations(connection, tables)
    found = []
    for probe in asked:
        if probe.table not in known or any((probe.table, c) in first for c in probe.columns):
            continue
        first.add((probe.table, probe.columns[0]))
        relation = known[probe.table]
        names = tuple(relation.column(column).name for column in probe.columns)
        found.append(Wanted(Identifier(relation.schema, relation.name), names))
    return found


def ensure(connection: Connection[Any], view_id: int, probes: Iterable[Probe]) -> None:
    """Makes the indexes that are missing; they go with the last view that they were made for."""
    probes = list(probes)
    tables = {probe.table for probe in probes}
    before = {one.oid for one in indexes_on(connection, tables)}
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
        made=[one.oid for one in there if one.oid not in before],
        used=[one.oid for one in there if (one.table, one.first_column) in probed],
    )
