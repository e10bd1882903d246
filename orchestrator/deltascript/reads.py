"""The views and the function through which an on_read view is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from orchestrator.deltascript.capture.table import function_body
from orchestrator.deltascript.names import Names, SourceNames
from orchestrator.deltascript.plan import Merged, Program
from orchestrator.deltascript.query import query_text
from orchestrator.sqltext import SEARCH_PATH, fitted_name

MERGED: Final = "merged"
"""The role of the view of the content merged with pending changes."""

AS_COMPILED: Final = frozenset({"standard_conforming_strings"})
"""Settings that only matter when a program is compiled."""

ON_READ: Final = "on_read"
"""The role of the view that chooses between the content, the merged rows, and the query."""


def readable(merging: bool, program: Program, names: Names) -> Identifier:
    """Return the table or view whose rows the relation of a view shows."""
    return names.state(ON_READ if merging else program.content)


def create_read_views(program: Program, names: Names) -> Iterator[Composed]:
    """Yield the statements that create the views through which an on_read view is read.

    The first one merges the content with pending changes. A condition of a reader that may reveal rows is not
    evaluated below it, because a log also holds rows that the view does not show. The second one decides
    once for each read which rows to compute; PostgreSQL does not start the other branches.
    """
    merged = program.merged
    assert merged is not None
    columns = [Identifier(column.name) for column in merged.columns]
    yield SQL("CREATE OR REPLACE VIEW {} ({}) WITH (security_barrier) AS\n{}").format(
        names.state(MERGED), SQL(", ").join(columns), query_text(merged.query, names)
    )

    for oid, columns_of_key in merged.lookups:
        yield from _index_images(names.sources[oid], columns_of_key)
    yield _read_kind(program, merged, names)
    # Whoever may read the view calls it.
    yield SQL("GRANT EXECUTE ON FUNCTION {}() TO PUBLIC").format(names.reading)

    def branch(relation: Composable, kind: str, values: Iterable[Composable]) -> Composed:
        return SQL(
            'SELECT {} FROM {} AS s WHERE (SELECT r.kind FROM reading AS r) = {}::"char"'
        ).format(SQL(", ").join(values), relation, Literal(kind))

    plain = [SQL("s.{}").format(column) for column in columns]
    typed = [
        # PostgreSQL wrote the type, with its schema.
        SQL("s.{0}::{1} AS {0}").format(Identifier(column.name), SQL(column.type))
        for column in merged.columns
    ]
    yield SQL(
        "CREATE OR REPLACE VIEW {} ({}) AS\n"
        "WITH reading AS MATERIALIZED (SELECT {}() AS kind)\n"
        "{}\nUNION ALL {}\nUNION ALL {}"
    ).format(
        names.state(ON_READ),
        SQL(", ").join(columns),
        names.reading,
        branch(names.state(program.content), "N", plain),
        branch(names.state(MERGED), "C", typed),
        branch(names.definition, "R", plain),
    )


def _index_images(source: SourceNames, key: Iterable[int]) -> Iterator[Composed]:
    """Yield the statements that create the indexes by which a read finds the pending images of a key in the logs.

    A log holds consumed images too, until its segment is emptied. They belong to older transactions.
    """
    for segment in ("_a", "_b"):
        for side in "on":
            columns = [*(f"{side}_{number}" for number in key), "xid"]
            yield SQL("SELECT idivm.index_images({}, {}::regclass, {})").format(
                Literal(fitted_name(f"s{source.id}{segment}_{'_'.join(columns)}")),
                Literal(source.log(segment).as_string(None)),
                Literal(columns),
            )


_READ_BODY: Final = SQL("""\
DECLARE
    facts record;
    kind "char";
BEGIN
    IF {differing} THEN
        RETURN 'R';
    END IF;
    kind := idivm.usual_read({id}, {merged}, {constant}, idivm.small_log());
    IF kind IS NOT NULL THEN
        RETURN kind;
    END IF;
    SELECT v.status = 'ready' AND NOT (idivm.is_foreign(w) OR tables.are_on_read OR logs.recycled) AS usable,
        (SELECT idivm.is_steady({id}) WHERE NOT EXISTS (SELECT FROM {definition} WHERE false)) AS steady,
        tables.hidden
            OR {unmergeable} AS unmergeable,
        {pending} AS pending,
        logs.bytes
    INTO facts
    FROM idivm.views AS v JOIN idivm.watermarks AS w ON w.view = v.id
    CROSS JOIN LATERAL (
        -- If the owner does not see all rows any more, the query of the view treats this owner like any query does. A
        -- read of an on_read view below shows more than the content that this view was computed from.
        SELECT bool_or(NOT has_any_column_privilege(s.relation, 'SELECT') OR row_security_active(s.relation)) AS hidden,
            bool_or(EXISTS (
                SELECT FROM idivm.views AS below WHERE below.state = s.relation AND below.read_from IS NOT NULL
            )) AS are_on_read
        FROM idivm.sources AS s WHERE s.id IN ({sources})
    ) AS tables
    CROSS JOIN LATERAL (
        SELECT bool_or(pg_relation_filenode(c.oid) IS DISTINCT FROM c.relfilenode) AS recycled,
            max(pg_relation_size(c.oid)) AS bytes
        FROM pg_class AS c WHERE c.oid IN ({logs})
    ) AS logs
    WHERE v.id = {id};
    IF facts.unmergeable THEN
        RETURN 'R';
    END IF;
    IF facts.usable AND facts.steady AND (facts.bytes <= idivm.small_log() OR NOT facts.pending)
       AND pg_current_xact_id_if_assigned() IS NULL THEN
        RETURN CASE WHEN facts.pending THEN 'C' ELSE 'N' END;
    END IF;
    kind := idivm.read_kind({id}, facts.pending, facts.steady, ARRAY[{logs}]);
    IF kind = 'Q' THEN
        -- The planner calls the function when the statement first runs, so a session hears it once.
        RETURN CASE WHEN idivm.tell_of_query({id}) THEN 'R' END;
    END IF;
    RETURN kind;
END""")


def _read_kind(program: Program, merged: Merged, names: Names) -> Composed:
    """Return the statement that creates the function that decides how a read computes the rows of a view.

    PostgreSQL keeps its plans in a session, so that queries on the view are planned without it. A single query asks all
    that decides most reads; `idivm.read_kind` decides the others.
    """
    sources = [names.sources[source.oid] for source in program.sources]
    logs = [source.log(segment).as_string(None) for source in sources for segment in ("_a", "_b")]
    differing: list[Composable] = [
        _differs(item) for item in program.settings if item[0] not in AS_COMPILED
    ]

    def ids(merges: bool) -> Composed:
        chosen = (s for s in program.sources if (s.oid in merged.sources) == merges)
        numbers = ", ".join(str(names.sources[s.oid].id) for s in chosen)
        return SQL("{}::integer[]").format(Literal(f"{{{numbers}}}"))

    body = _READ_BODY.format(
        differing=SQL("\n        OR ").join(differing or [Literal(False)]),
        unmergeable=SQL("\n            OR ").join(
            _pending(source.oid, names, truncated=source.oid in merged.sources)
            for source in program.sources
        ),
        pending=SQL("\n            OR ").join(_any_pending(oid, names) for oid in merged.sources),
        merged=ids(True),
        constant=ids(False),
        definition=names.definition,
        sources=SQL(", ").join(Literal(source.id) for source in sources),
        logs=SQL(", ").join(SQL("{}::regclass").format(Literal(log)) for log in logs),
        id=Literal(names.id),
    )
    return SQL(
        'CREATE OR REPLACE FUNCTION {}() RETURNS "char"\n'
        "LANGUAGE plpgsql STABLE PARALLEL RESTRICTED SECURITY DEFINER\n"
        "SET search_path = {} SET plan_cache_mode = force_generic_plan SET constraint_exclusion = partition\nAS {}"
    ).format(names.reading, SQL(SEARCH_PATH), function_body(body))


def _pending(oid: int, names: Names, *, truncated: bool = False) -> Composed:
    """Return the condition that a change of a table is pending, or that it was `truncated`.

    A read cannot merge a TRUNCATE, nor any change of a table that the merged query takes for constant.
    """
    source = names.sources[oid]
    return SQL(
        "EXISTS (SELECT FROM {} AS c WHERE {}idivm.is_pending(c.xid, c.seq, w.mark, {}))"
    ).format(source.log(), SQL("c.op = 'T' AND " if truncated else ""), Literal(source.id))


def _differs(setting: tuple[str, str]) -> Composed:
    """Return the condition that a setting of the session gives another result than that of a refresh."""
    name, value = setting
    if name == "extra_float_digits":
        # Floats have all their digits with each positive value.
        return SQL("current_setting('extra_float_digits')::integer < 1").format()
    return SQL("current_setting({}) <> {}").format(Literal(name), Literal(value))


_ANY_PENDING: Final = SQL("""\
CASE WHEN (SELECT max(c.xid) FROM {log} AS c) < pg_snapshot_xmin((w.mark).snapshot) THEN false
            WHEN (w.mark).own_xid IS NULL THEN EXISTS (SELECT FROM {log} AS c WHERE {pending})
            ELSE EXISTS (SELECT FROM {log} AS c WHERE c.xid > (w.mark).own_xid AND {pending})
                OR EXISTS (SELECT FROM {log} AS c WHERE c.xid < (w.mark).own_xid AND {pending})
                OR EXISTS (
                    SELECT FROM {log} AS c
                    WHERE c.xid = (w.mark).own_xid AND c.seq > coalesce(((w.mark).own_marks ->> {name})::bigint, 0)
                )
        END""")


def _any_pending(oid: int, names: Names) -> Composed:
    """Return the condition that a change of a table is pending.

    PostgreSQL finds the last change of each segment by an index. If it is not older than the watermark, the changes are
    looked up that the last refresh may have missed, but not all that its own transaction had written before.
    """
    source = names.sources[oid]
    pending = SQL("idivm.is_pending(c.xid, c.seq, w.mark, {})").format(Literal(source.id))
    return _ANY_PENDING.format(log=source.log(), pending=pending, name=Literal(str(source.id)))
