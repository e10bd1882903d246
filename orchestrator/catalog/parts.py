"""Queries on the heavy and light parts that a view keeps of relations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from psycopg import Connection
from psycopg.sql import SQL, Composed, Identifier

from orchestrator.deltascript.names import Names
from orchestrator.deltascript.plan import Partition, Partitioning

SHOWN = 5
"""Of the heavy values, how many are named."""


@dataclass(frozen=True)
class RelationParts:
    """A relation in two parts."""

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
    """The values that most rows have, and how many these are."""


@dataclass(frozen=True)
class Parts:
    """The parts of all relations, and the threshold at which they are divided."""

    base: int
    """N: the rows are fewer, and a quarter of it at least."""
    size: int
    minor: int
    """How many values have changed their part since everything was last computed."""
    major: int
    """How often all rows were divided again since then."""
    relations: list[RelationParts]

    @property
    def threshold(self) -> float:
        """That of the first relation; they have the same, unless some have an ε of their own."""
        return self.relations[0].threshold


def parts_of(connection: Connection[Any], names: Names, known: Partitioning | None) -> Parts | None:
    """The parts of a view with this partitioning; nothing without any, or without the right to see them."""
    if known is None:
        return None
    state = names.state(known.state)
    row = connection.execute(
        "SELECT has_table_privilege(%s, 'SELECT')", [state.as_string(connection)]
    ).fetchone()
    if row != (True,):
        return None
    columns = [Identifier(column) for column in (known.base, known.size, known.minor, known.major)]
    found = connection.execute(
        SQL("SELECT {} FROM {}").format(SQL(", ").join(columns), state)
    ).fetchone()
    if found is None:
        return None
    relations = [_relation(connection, names, state, each) for each in known.partitions]
    base, size, minor, major = found
    return Parts(base, size, minor, major, relations)


def _relation(
    connection: Connection[Any], names: Names, state: Identifier, partition: Partition
) -> RelationParts:
    row = connection.execute(_counts(names, partition)).fetchone()
    held = SQL("SELECT {} FROM {}").format(Identifier(partition.threshold), state)
    threshold = connection.execute(held).fetchone()
    heaviest = connection.execute(_heaviest(names, partition), [SHOWN]).fetchall()
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
