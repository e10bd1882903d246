"""Queries on the heavy and light parts of relations that a view keeps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from psycopg import Connection
from psycopg.sql import SQL, Composed, Identifier

from orchestrator.deltascript.names import Names
from orchestrator.deltascript.plan import MaintenancePlan, Partition, TurnDial

HEAVIEST = 5
"""How many heavy values are shown."""


@dataclass(frozen=True)
class RelationParts:
    """A relation that is divided into two parts."""

    relation: str
    on: list[str]
    epsilon: str
    threshold: float
    """N^ε"""
    heavy_values: int
    heavy_rows: int
    light_values: int
    light_rows: int
    heaviest: dict[str, int]
    """The values with the most rows, and their numbers of rows."""


@dataclass(frozen=True)
class Parts:
    """The parts of all relations, and their threshold base."""

    base: int
    """N: the number of rows is below N and at least a quarter of N."""
    size: int
    minor: int
    """How many values changed their part since the view was last recomputed."""
    major: int
    """How often all rows were divided again since the view was last recomputed."""
    relations: list[RelationParts]

    @property
    def threshold(self) -> float:
        """The threshold of the first relation. All have the same unless some have an ε of their own."""
        return self.relations[0].threshold


def dial_of(plan: MaintenancePlan) -> TurnDial | None:
    """Return the step that chooses ε, if the plan has one."""
    return next((step for step in plan.program.script if isinstance(step, TurnDial)), None)


def parts_of(connection: Connection[Any], names: Names, plan: MaintenancePlan) -> Parts | None:
    """Return the parts of a view with this plan. Return None without a partitioning or the right to read it."""
    known, dial = plan.partitioning, dial_of(plan)
    if known is None:
        return None
    state = names.state(known.state)
    row = connection.execute(
        "SELECT has_table_privilege(%s, 'SELECT')", [state.as_string(connection)]
    ).fetchone()
    if row != (True,):
        return None
    columns = [Identifier(column) for column in (known.base, known.size, known.minor, known.major)]
    values = connection.execute(
        SQL("SELECT {} FROM {}").format(SQL(", ").join(columns), state)
    ).fetchone()
    if values is None:
        return None
    partitions = known.partitions
    if dial is not None:
        dial_row = connection.execute(
            SQL("SELECT {} FROM {}").format(Identifier(dial.epsilon), names.state(dial.dial))
        ).fetchone()
        assert dial_row is not None
        partitions = tuple(replace(each, epsilon=str(Fraction(dial_row[0]))) for each in partitions)
    relations = [_relation(connection, names, state, each) for each in partitions]
    base, size, minor, major = values
    return Parts(base, size, minor, major, relations)


def _relation(
    connection: Connection[Any], names: Names, state: Identifier, partition: Partition
) -> RelationParts:
    row = connection.execute(_counts(names, partition)).fetchone()
    held = SQL("SELECT {} FROM {}").format(Identifier(partition.threshold), state)
    threshold = connection.execute(held).fetchone()
    heaviest = connection.execute(_heaviest(names, partition), [HEAVIEST]).fetchall()
    assert row is not None
    assert threshold is not None
    heavy, heavy_rows, light, light_rows = row
    return RelationParts(
        partition.relation,
        list(partition.on),
        partition.epsilon,
        threshold[0],
        heavy,
        heavy_rows,
        light,
        light_rows,
        dict(heaviest),
    )


def _counts(names: Names, partition: Partition) -> Composed:
    return SQL(
        "SELECT count(*) FILTER (WHERE h), coalesce(sum(n) FILTER (WHERE h), 0)::bigint,"
        " count(*) FILTER (WHERE NOT h), coalesce(sum(n) FILTER (WHERE NOT h), 0)::bigint"
        " FROM (SELECT d.{degree} AS n, EXISTS (SELECT FROM {heavy} AS h WHERE {same}) AS h"
        " FROM {degrees} AS d) AS v"
    ).format(**_named(names, partition))


def _heaviest(names: Names, partition: Partition) -> Composed:
    return SQL(
        "SELECT concat_ws(', ', {values}), d.{degree} FROM {heavy} AS h JOIN {degrees} AS d ON {same}"
        " ORDER BY d.{degree} DESC, {values} LIMIT %s"
    ).format(**_named(names, partition))


def _named(names: Names, partition: Partition) -> dict[str, Composed | Identifier]:
    values = [Identifier(name) for name in partition.values]
    return {
        "degree": Identifier(partition.degree),
        "degrees": names.state(partition.degrees),
        "heavy": names.state(partition.heavy_values),
        "same": SQL(" AND ").join(SQL("h.{0} = d.{0}").format(value) for value in values),
        "values": SQL(", ").join(SQL("d.{}").format(value) for value in values),
    }
