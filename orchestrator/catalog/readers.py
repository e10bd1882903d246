"""What a load asks of idivm's catalog about the views that read its tables, and how these are captured."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from psycopg import Connection

from orchestrator.catalog import shown
from orchestrator.deltascript.plan import ChangeKind


@dataclass(frozen=True)
class Reader:
    """A maintained view that reads a loaded table."""

    id: int
    name: str
    strategy: str
    maintain: str
    accesses: Mapping[str, float] = field(default_factory=dict)
    """By table, what its plan expects one more row to cost."""


@dataclass(frozen=True)
class Trigger:
    """A trigger, and the table that it is on."""

    schema: str
    table: str
    name: str
    fires: str
    """In which sessions, as `pg_trigger.tgenabled` says it."""


def readers(connection: Connection[Any], tables: Collection[int]) -> tuple[Reader, ...]:
    """The maintained views that read some tables themselves."""
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
    names = shown(connection, [row[1] for row in rows])
    return tuple(
        Reader(view_id, name, *facts)
        for name, (view_id, _, *facts) in zip(names, rows, strict=True)
    )


def recompute_is_cheaper(connection: Connection[Any], view: int, accesses: float) -> bool:
    """Whether to recompute a view is expected to take less than so many lookups and rows."""
    row = connection.execute(
        "SELECT idivm.recompute_is_cheaper(id, %(accesses)s, CASE"
        "    WHEN idivm.recompute_is_cheaper(id, %(accesses)s) THEN idivm.query_work(definition) ELSE 0 END)"
        " FROM idivm.views WHERE id = %(view)s",
        {"view": view, "accesses": accesses},
    ).fetchone()
    return row is not None and bool(row[0])


def capture_triggers(connection: Connection[Any], tables: Collection[int]) -> list[Trigger]:
    """The triggers by which changes of some tables are captured."""
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
    """Has the next refresh recompute some views."""
    connection.execute(
        "UPDATE idivm.views SET status = 'invalid' WHERE id = ANY (%s) AND status = 'ready'",
        [list(views)],
    )
