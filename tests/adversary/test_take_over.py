"""Nobody gains a right by replacing views that others read, or by handing materialized views to idivm."""

from __future__ import annotations

import psycopg
import pytest
from scene import Scene

LOW = "SELECT id, n FROM t"


def test_whoever_replaces_a_view_changes_no_view_of_another_role(scene: Scene) -> None:
    scene.admin.execute(
        f"GRANT USAGE ON SCHEMA idivm TO {scene.attacker}; GRANT TRIGGER ON t TO {scene.attacker};"
        f"GRANT {scene.attacker} TO {scene.owner}"
    )
    scene.orc.execute(f"SELECT idivm.allow_refreshes('{scene.attacker}')")
    scene.as_mallory(f"SELECT idivm.create_view('mallory.low', '{LOW}')")
    assert [report.refusal for report in scene.orc.plan()] == [None]
    scene.admin.execute(f"GRANT SELECT ON mallory.low TO {scene.owner}")
    scene.orc.create_view("above", "SELECT sum(n) AS s FROM mallory.low")
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="must be owner of view"):
        scene.as_mallory("SELECT idivm.replace_view('mallory.low', 'SELECT 1 AS id, 1 AS n')")
    assert scene.orc.execute("TABLE above")[0].rows == [(45,)]
    scene.admin.execute(f"REVOKE {scene.attacker} FROM {scene.owner}")
    scene.orc.create_view("plain", LOW)
    scene.orc.create_view("top", "SELECT max(n) AS m FROM plain")
    scene.admin.execute(f"ALTER VIEW top OWNER TO {scene.attacker}")
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match=r"top reads public\.plain"):
        scene.orc.connection.execute("SELECT idivm.replace_view('plain', 'SELECT 1 AS id, 1 AS n')")
    assert scene.orc.execute("SELECT count(*) FROM plain")[0].rows == [(9,)]
    assert scene.caught() == set()
