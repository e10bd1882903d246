"""From a definition view to its maintenance plan (provisional analysis)."""

from __future__ import annotations

from typing import Any

from psycopg import Connection
from psycopg.sql import Identifier

from orchestrator.deltascript.plan import Column, MaintenancePlan, Source, SourceColumn
from orchestrator.frontend.options import ViewOptions
from orchestrator.strategies.choose import choose
from orchestrator.strategies.problem import Problem


def plan_view(
    connection: Connection[Any], definition: Identifier, options: ViewOptions
) -> MaintenancePlan:
    """The plan of a definition view."""

    def rows(q: str, *a: object) -> list[Any]:
        return connection.execute(q, a).fetchall()  # type: ignore[arg-type]

    d = rows("select to_regclass(%s)::oid", definition.as_string(connection))[0][0]
    cols = rows(
        "select attname, format_type(atttypid,atttypmod) from pg_attribute where attrelid=%s and attnum>0 and not attisdropped order by attnum",
        d,
    )
    rels: dict[int, set[int]] = {}
    todo = [d]
    while todo:
        v = todo.pop()
        for oid, sub, kind, st in rows(
            """select distinct refobjid, refobjsubid, c.relkind, v.state::oid from pg_depend d join pg_rewrite r on r.oid=d.objid and d.classid='pg_rewrite'::regclass join pg_class c on c.oid=refobjid left join idivm.views v on v.relation=c.oid where r.ev_class=%s and refclassid='pg_class'::regclass and refobjid<>%s and deptype='n'""",
            v,
            v,
        ):
            if st:
                rels.setdefault(st, set()).add(sub)
            elif kind == "v":
                todo.append(oid)
            else:
                rels.setdefault(oid, set()).add(sub)
    srcs = []
    for oid, subs in rels.items():
        name = rows("select %s::oid::regclass::text", oid)[0][0]
        keys = rows(
            "select indkey::int2[] from pg_index where indrelid=%s and indisprimary and indimmediate",
            oid,
        )
        key = set(keys[0][0]) if keys else set()
        cs = [
            SourceColumn(n, a, n in key, bt or t, builtin)
            for n, a, t, bt, builtin in rows(
                "select attnum,attname,format_type(atttypid,atttypmod), (select format_type(typbasetype,typtypmod) from pg_type where oid=atttypid and typtype='d'), (select typnamespace::regnamespace::text='pg_catalog' from pg_type where oid=atttypid) from pg_attribute where attrelid=%s and attnum>0 and not attisdropped order by attnum",
                oid,
            )
            if n in subs or 0 in subs or n in key
        ]
        srcs.append(Source(oid, name, tuple(cs)))
    settings = rows(
        "select name, setting from pg_settings where name in ('TimeZone','DateStyle','IntervalStyle')"
    )
    moving = (
        ("now() changes",) if "now()" in rows("select pg_get_viewdef(%s::oid)", d)[0][0] else ()
    )
    return choose(
        Problem(
            tuple(Column(*x) for x in cols), tuple(srcs), (), moving, False, tuple(settings), "-"
        ),
        options.strategy,
    )
