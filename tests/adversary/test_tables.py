"""What others put on the table of a view (relation = table) runs with no rights that they did not have."""

from __future__ import annotations

import contextlib

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from scene import Scene

pytestmark = pytest.mark.integration

TRAP = """
CREATE FUNCTION mallory.told() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM mallory.trap(); RETURN NULL; END $$
"""


@pytest.mark.parametrize("maintain", ["deferred", "eager", "on_commit"])
def test_a_trigger_of_another_role_is_not_called(high: Scene, maintain: str) -> None:
    high.orc.create_view("v", "SELECT id, n FROM t", relation="table", maintain=maintain)
    high.orc.connection.execute(f"GRANT TRIGGER ON v TO {high.attacker}")
    high.as_mallory(
        f"{TRAP}; CREATE TRIGGER x AFTER INSERT OR UPDATE ON v FOR EACH ROW EXECUTE FUNCTION mallory.told()"
    )
    high.orc.execute("UPDATE t SET n = n + 1")
    high.orc.connection.execute("SELECT idivm.refresh('v')")
    [(error,)] = high.orc.connection.execute("SELECT message FROM idivm.view_errors").fetchall()
    assert f"calls mallory.told() of the role {high.attacker}" in error
    assert high.caught() == set()
    high.orc.connection.execute("DROP TRIGGER x ON v")
    high.orc.refresh()
    assert all(report.equal for report in high.orc.check())


DEFERRED = """
CREATE TABLE mallory.told_later (id int);
CREATE FUNCTION mallory.later() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN INSERT INTO mallory.told_later VALUES (1); SET CONSTRAINTS ALL DEFERRED; RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER later AFTER INSERT ON mallory.told_later DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION mallory.told();
CREATE TRIGGER x AFTER INSERT OR UPDATE OR DELETE ON mallory.v FOR EACH ROW EXECUTE FUNCTION mallory.later()
"""


@pytest.mark.parametrize("maintain", ["deferred", "eager"])
def test_the_code_of_the_owner_of_a_table_runs_as_nobody_else(
    high: Scene, plain_dsn: str, maintain: str
) -> None:
    """Neither in the refresh, nor in deferred triggers that it queues for the commit of whoever refreshes."""
    high.admin.execute(f"GRANT USAGE ON SCHEMA idivm TO {high.attacker}")
    high.as_mallory(
        f"SELECT idivm.create_view('mallory.v', 'SELECT id, n FROM mallory.m', relation => 'table', maintain => '{maintain}');"
    )
    high.orc.plan()
    high.as_mallory(f"{TRAP}; {DEFERRED}")
    kinds = high.admin.execute("SELECT relkind FROM pg_class WHERE oid = 'mallory.v'::regclass")
    assert kinds.fetchone() == ("r",)
    high.admin.execute("UPDATE mallory.m SET n = n + 1; INSERT INTO mallory.m VALUES (77, 1)")
    high.admin.execute("SELECT idivm.refresh('mallory.v')")
    with contextlib.suppress(psycopg.Error):
        high.orc.connection.execute("CALL idivm.refresh_all()")
    assert high.caught() == set()
    with pytest.raises(psycopg.Error):
        high.as_mallory("DELETE FROM mallory.v")
    for attempt in ("SELECT idivm.set_table(1, true)", "SELECT idivm.show_table(1, true)"):
        with pytest.raises(psycopg.Error):
            high.as_mallory(attempt)
    high.as_mallory("DROP TRIGGER x ON mallory.v")
    high.orc.refresh()
    assert all(report.equal for report in high.orc.check())


def test_a_new_owner_of_the_table_writes_it_from_then_on(scene: Scene, plain_dsn: str) -> None:
    scene.orc.create_view("v", "SELECT id, n FROM t", relation="table")
    scene.admin.execute(
        f"GRANT {scene.attacker} TO {scene.owner}; GRANT CREATE ON SCHEMA public TO {scene.attacker}"
    )
    scene.orc.connection.execute(f"ALTER TABLE v OWNER TO {scene.attacker}")
    scene.as_mallory(
        f"{TRAP}; CREATE TRIGGER x AFTER INSERT OR UPDATE ON v FOR EACH ROW EXECUTE FUNCTION mallory.told()"
    )
    scene.orc.execute("UPDATE t SET n = n + 1")
    scene.orc.connection.execute("SELECT idivm.refresh('v')")
    assert scene.orc.connection.execute("SELECT message FROM idivm.view_errors").fetchall() == []
    with psycopg.connect(make_conninfo(plain_dsn), autocommit=True) as admin:
        assert admin.execute(
            "SELECT last_value IS NOT NULL FROM pg_sequences WHERE sequencename = %s",
            [scene.attacker],
        ).fetchone() == (True,)
    assert scene.caught() == set()
    assert all(report.equal for report in scene.orc.check())
