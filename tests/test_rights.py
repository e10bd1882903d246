"""The rights to idivm's own functions are those that the documentation lists."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from psycopg.errors import InsufficientPrivilege

from orchestrator.api import Orchestrator

DOCUMENT = Path(__file__).parents[1] / "docs" / "rights.md"

CALLERS = {
    (True, False): "everybody, with their own rights",
    (True, True): "everybody, with the rights of the catalog's owner",
    (False, False): "the catalog's owner",
    (False, True): "those allowed to refresh, with the rights of the catalog's owner",
}


def listed(connection: psycopg.Connection[tuple[str, bool, bool]]) -> list[str]:
    """The lines of the table of functions, as the documentation has them."""
    rows = connection.execute(
        """
        SELECT p.proname, bool_and(EXISTS (
                   SELECT FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
                   WHERE a.grantee = 0 AND a.privilege_type = 'EXECUTE')),
               p.prosecdef AND (p.prokind <> 'f' OR position('idivm.' || p.proname || '(' IN a.prosrc) > 0 OR bool_or(
                   has_function_privilege('public', p.oid, 'EXECUTE'))),
               p.prorettype IN ('trigger'::regtype, 'event_trigger'::regtype)
        FROM pg_proc p, pg_proc a
        WHERE p.pronamespace = 'idivm'::regnamespace AND a.oid = 'idivm.allow_refreshes'::regproc
        GROUP BY p.proname, p.prosecdef, p.prokind, p.prorettype, a.prosrc ORDER BY p.proname COLLATE "C"
        """
    ).fetchall()
    lines = (
        f"| `{name}` | {'triggers' if trigger else CALLERS[public, definer]} |"
        for name, public, definer, trigger in rows
    )
    return list(dict.fromkeys(lines))


def test_the_documentation_lists_who_may_call_each_function(orc: Orchestrator) -> None:
    lines = DOCUMENT.read_text().splitlines()
    written = lines[lines.index("| function | who may call it |") + 2 :]
    assert listed(orc.connection) == written


@pytest.mark.integration
def test_whoever_may_use_the_schema_acts_for_nobody_else(orc: Orchestrator) -> None:
    orc.execute("CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 1)")
    orc.create_view("v", "SELECT id, n FROM t")
    orc.execute("INSERT INTO t VALUES (2, 2)")
    view = orc.view("v")
    known = orc.execute("TABLE idivm.costs")[0].rows
    role = f"stranger_{orc.connection.info.dbname}"
    orc.execute(f"CREATE ROLE {role}; GRANT USAGE ON SCHEMA idivm TO {role}; SET ROLE {role}")
    try:
        for call in (
            f"idivm.note_recompute({view.id}, 5, now(), 'x')",
            f"idivm.note_diff({view.id}, 5, now() - interval '1 day', 'x', true)",
            f"idivm.recompute_is_cheaper({view.id}, 1)",
            f"idivm.refresh_views(ARRAY[{view.id}])",
            "idivm.collect()",
            "idivm.collect_source(1)",
            f"idivm.collectable(ARRAY[{view.id}])",
            "idivm.refresh('v')",
            f"idivm.lock_views(ARRAY[{view.id}])",
            f"idivm.allow_refreshes('{role}')",
        ):
            with pytest.raises(InsufficientPrivilege):
                orc.connection.execute(f"SELECT {call}".encode())
    finally:
        orc.execute(f"RESET ROLE; DROP OWNED BY {role}; DROP ROLE {role}")
    assert orc.view("v").pending == 1
    assert orc.execute("TABLE idivm.costs")[0].rows == known


@pytest.mark.parametrize("nonsense", ["'NaN'", "0", "-1", "1e300", "'Infinity'", "NULL"])
def test_nonsense_is_not_noted(orc: Orchestrator, nonsense: str) -> None:
    orc.execute("CREATE TABLE t (id int PRIMARY KEY, n int)")
    orc.create_view("v", "SELECT id, n FROM t")
    before = orc.execute("TABLE idivm.costs")[0].rows
    view = orc.view("v").id
    for call in (
        f"idivm.note_diff({view}, {nonsense}, now() - interval '1 day', 'x', true)",
        f"idivm.note_diff({view}, 1, now() + interval '1 day', 'x', true)",
        f"idivm.note_diff({view}, 1, '-infinity', 'x', true)",
        *([f"idivm.note_recompute({view}, {nonsense}, now(), 'x')"] if nonsense != "0" else []),
        f"idivm.note_recompute({view}, 1, 'infinity', 'x')",
    ):
        orc.execute(f"SELECT {call}")
    assert orc.execute("TABLE idivm.costs")[0].rows == before
