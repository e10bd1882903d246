"""Any role can give triggers of its tables the names of idivm's triggers."""

from __future__ import annotations

import pytest
from scene import Scene

TRIGGERS = {
    "condition": "AFTER INSERT ON mallory.a FOR EACH ROW WHEN (NEW.w = ' ON mallory.a ')",
    "column": 'AFTER UPDATE OF "x ON mallory.a y" ON mallory.a FOR EACH ROW',
}
"""Triggers whose definitions contain the name of their table a second time."""

SAYS = {
    "condition": "'))EXECUTE FUNCTION mallory.o();SELECT mallory.trap();--",
    "column": '"ON mallory.b EXECUTE FUNCTION mallory.o();CALL mallory.q()--',
}
"""Names of partitions that end a constant or a name in these definitions and begin another statement."""


@pytest.mark.parametrize("name", ["idivm_1_more", "idivm_1_insert"])
@pytest.mark.parametrize("kind", TRIGGERS)
def test_a_new_partition_runs_no_text_of_its_owner(high: Scene, kind: str, name: str) -> None:
    partition = SAYS[kind].replace('"', '""')
    high.as_mallory(
        'CREATE TABLE mallory.p (k int, w text, "x ON mallory.a y" int) PARTITION BY LIST (k);'
        "CREATE TABLE mallory.a PARTITION OF mallory.p FOR VALUES IN (1);"
        'CREATE TABLE mallory.b (k int, "x ON mallory.""" int);'
        "CREATE FUNCTION mallory.o() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';"
        "CREATE PROCEDURE mallory.q() LANGUAGE plpgsql AS 'BEGIN PERFORM mallory.trap(); END'"
    )
    high.orc.create_view("v", "SELECT k, w FROM mallory.p")
    high.admin.execute("CALL idivm.watch_partitions()")
    high.as_mallory(
        f"CREATE OR REPLACE TRIGGER {name} {TRIGGERS[kind]} EXECUTE FUNCTION mallory.o()"
    )
    high.as_mallory(f'CREATE TABLE mallory."{partition}" PARTITION OF mallory.p FOR VALUES IN (2)')
    assert high.caught() == set()
    high.as_mallory("INSERT INTO mallory.p VALUES (1, 'x'), (2, 'y')")
    high.orc.refresh()
    assert [report.equal for report in high.orc.check()] == [True]
    copied = "SELECT count(*) FROM pg_trigger t WHERE t.tgfoid = 'mallory.o'::regproc"
    assert high.admin.execute(copied).fetchone() == (1,)


@pytest.mark.parametrize("arguments", ["'{1}', '{}'", "'x', 'y'", ""])
def test_triggers_of_others_with_such_names_stop_no_change_of_mode(
    scene: Scene, arguments: str
) -> None:
    scene.orc.create_view("v", "SELECT k, sum(n) AS s FROM t GROUP BY k")
    scene.as_mallory(
        "CREATE FUNCTION mallory.o() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';"
        "CREATE TRIGGER idivm_9_upkeep AFTER INSERT ON mallory.m EXECUTE FUNCTION mallory.o("
        + arguments
        + ")"
    )
    scene.orc.alter_view("v", maintain="eager")
    scene.orc.execute("UPDATE t SET n = n + 1")
    assert [report.equal for report in scene.orc.check()] == [True]
    scene.orc.drop_view("v")


@pytest.mark.parametrize(
    "put",
    [
        "AFTER INSERT ON mallory.m EXECUTE FUNCTION mallory.o()",
        "AFTER INSERT ON mallory.m WHEN (false) EXECUTE FUNCTION idivm_log.s1_truncate_1()",
    ],
)
def test_another_trigger_in_the_place_of_capture_is_noticed(high: Scene, put: str) -> None:
    high.orc.create_view("v", "SELECT count(*) AS c FROM mallory.m")
    high.as_mallory(
        "CREATE FUNCTION mallory.o() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'"
    )
    as_owner = high.admin if "idivm_log" in put else high.mallory
    as_owner.execute(f"CREATE OR REPLACE TRIGGER idivm_1_insert {put}".encode())
    high.as_mallory("INSERT INTO mallory.m VALUES (6, 6)")
    high.admin.execute("CALL idivm.refresh_all()")
    assert high.admin.execute("TABLE v").fetchall() == [(6,)]
    assert any(not finding.fine for finding in high.orc.doctor())
    high.as_mallory("INSERT INTO mallory.m VALUES (7, 7)")
    high.orc.refresh()
    assert high.admin.execute("TABLE v").fetchall() == [(7,)]


def test_the_name_of_a_trigger_leaves_no_writer_out_of_a_lock(scene: Scene) -> None:
    """A refresh waits for the writers of a table that do not take the lock of eager views."""
    scene.orc.create_view(
        "v", "SELECT k, sum(n) AS s FROM t GROUP BY k", maintain="eager", shared="off"
    )
    scene.as_mallory(
        "CREATE FUNCTION mallory.o() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';"
        "CREATE TRIGGER idivm_9_begin BEFORE INSERT ON mallory.m EXECUTE FUNCTION mallory.o('{1}');"
        "ALTER TABLE mallory.m ENABLE ALWAYS TRIGGER idivm_9_begin"
    )
    in_turn = "SELECT idivm.written_in_turn('{t, mallory.m}')::text"
    assert scene.orc.execute(in_turn)[0].rows == [("{t}",)]
