"""Event triggers run with the rights of a superuser on the statements of every role."""

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
        "CREATE TABLE mallory.p (k int, w text, \"x ON mallory.a y\" int) PARTITION BY LIST (k);"
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
