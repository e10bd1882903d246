"""Queries of a load on the views that read its tables, and on the capture of these tables."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from psycopg import Connection

from orchestrator.catalog import visible_names
from orchestrator.deltascript.plan import ChangeKind


@dataclass(frozen=True)
class Reader:
    """A maintained view that reads a loaded table."""

    id: int
    name: str
    strategy: str
    maintain: str
    accesses: Mapping[str, float] = field(default_factory=dict)
    """The expected cost of one more row, by table."""


@dataclass(frozen=True)
class Trigger:
    """A trigger and its table."""

    schema: str
    table: str
    name: str
    fires: str
    """The sessions in which it fires, as in `pg_trigger.tgenabled`."""


def readers(connection: Connection[Any], tables: Collection[int]) -> tuple[Reader, ...]:
    """Return the maintained views that read the given tables directly."""
    rows = connection.execute(
        "SELECT DISTINCT v.id, coalesce(v.relation::text, v.name), v.strategy, v.maintain,"
        "  (SELECT coalesce(jsonb_object_agg(c ->> 'source', c -> 'accesses'), '{}')"
        "   FROM jsonb_array_elements(v.plan -> 'program' -> 'costs') AS c WHERE c ->> 'kind' = %(kind)s)"
        " FROM idivm.views v JOIN idivm.view_sources vs ON vs.view = v.id"
        " JOIN idivm.sources s ON s.id = vs.source"
        " LEFT JOIN idivm.source_members m ON m.source = s.id"
        " WHERE v.status <> 'building'"
        "   AND (s.relation::oid = ANY (%(oids)s::oid[]) OR m.member::oid = ANY (%(oids)s::oid[]))"
        " ORDER BY v.id",
        {"oids": list(tables), "kind": ChangeKind.INSERT.value},
    ).fetchall()
    names = visible_names(connection, [row[1] for row in rows])
    return tuple(
        Reader(view_id, name, *facts)
        for name, (view_id, _, *facts) in zip(names, rows, strict=True)
    )


def spark_initialises(connection: Connection[Any]) -> bool:
    """Return whether Spark may compute the states of a view because of the view's option."""
    row = connection.execute(
        "SELECT EXISTS (SELECT FROM idivm.views WHERE options ->> 'initialise' = 'spark')"
    ).fetchone()
    return row == (True,)


def recompute_is_cheaper(connection: Connection[Any], view: int, accesses: float) -> bool:
    """Return whether recomputing a view is expected to take less time than the given number of accesses."""
    row = connection.execute(
        "SELECT idivm.recompute_is_cheaper(id, %(accesses)s, CASE"
        "    WHEN idivm.recompute_is_cheaper(id, %(accesses)s) THEN idivm.query_work(definition) ELSE 0 END)"
        " FROM idivm.views WHERE id = %(view)s",
        {"view": view, "accesses": accesses},
    ).fetchone()
    return row is not None and bool(row[0])


def capture_triggers(connection: Connection[Any], tables: Collection[int]) -> list[Trigger]:
    """Return the triggers that capture changes of the given tables."""
    rows = connection.execute(
        "SELECT n.nspname, c.relname, t.tgname, t.tgenabled::text FROM pg_trigger t"
        " JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace"
        " JOIN pg_proc p ON p.oid = t.tgfoid"
        " WHERE t.tgrelid = ANY (%s::oid[]) AND (p.pronamespace = 'idivm_log'::regnamespace"
        "   OR p.oid = to_regprocedure('idivm.capture_rows()')) ORDER BY 1, 2, 3",
        [list(tables)],
    ).fetchall()
    return [Trigger(*row) for row in rows]


def invalidate(connection: Connection[Any], views: Sequence[int]) -> None:
    """Make the next refresh recompute the given views."""
    connection.execute(
        "UPDATE idivm.views SET status = 'invalid' WHERE id = ANY (%s) AND status = 'ready'",
        [list(views)],
    )
