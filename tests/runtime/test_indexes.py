"""Indexes on tables: those that programs look for, named and made."""

from __future__ import annotations

import psycopg
import pytest

pytestmark = pytest.mark.integration

TABLES = """
CREATE TABLE parts (pid int PRIMARY KEY, price numeric);
CREATE TABLE "Uses" (did int, pid int, n int, PRIMARY KEY (did, pid))
"""
VIEW = 'SELECT u.did, p.price FROM parts p JOIN "Uses" u ON u.pid = p.pid'
WANTED = 'CREATE INDEX ON "public"."Uses" ("pid")'


def indexes(orc):
    return {
        row[0]
        for row in orc.execute(
            "SELECT pg_get_indexdef(i.indexrelid) FROM pg_index i"
            " WHERE NOT i.indisprimary AND i.indrelid = '\"Uses\"'::regclass"
        )[0].rows
    }


def test_explain_shows_the_columns_that_are_captured_of_each_table(orc):
    """Whichever table was captured first."""
    orc.connection.execute(
        "CREATE TABLE early (a int PRIMARY KEY, x int); CREATE TABLE late (b int PRIMARY KEY, y int)"
    )
    orc.create_view("one", "SELECT y FROM late")
    orc.create_view("both", "SELECT x, y FROM early JOIN late ON a = b")
    captured = orc.explain("both").plan.partition("captured:\n")[2].splitlines()[:2]
    assert captured == ["  early (a (key), x)", "  late (b (key), y)"]


def test_explain_names_what_is_missing(orc):
    orc.execute(TABLES)
    orc.create_view("v", VIEW, strategy="tuple")
    assert orc.explain("v").missing_indexes == [WANTED]
    assert f"  {WANTED};" in orc.explain("v").plan
    orc.execute('ALTER TABLE "Uses" RENAME pid TO part')
    [renamed] = orc.explain("v").missing_indexes
    orc.execute(renamed)
    assert orc.explain("v").missing_indexes == []
    assert "missing" not in orc.explain("v").plan


def test_a_diff_that_needs_no_join_needs_no_index(orc):
    orc.execute(TABLES)
    orc.create_view("v", 'SELECT did, n FROM "Uses" WHERE n > 3', strategy="id")
    assert orc.explain("v").missing_indexes == []


def test_indexes_go_with_the_last_view_that_they_were_made_for(orc):
    orc.execute(TABLES)
    for name in ("v", "w"):
        orc.create_view(name, VIEW, create_indexes="on")
    assert len(indexes(orc)) == 1
    orc.execute(f"CREATE OR REPLACE VIEW v WITH (create_indexes = on) AS {VIEW}")
    orc.drop_view("v")
    assert len(indexes(orc)) == 1
    orc.drop_view("w")
    assert indexes(orc) == set()


def test_an_index_of_the_users_own_stays(orc):
    orc.execute(TABLES)
    orc.execute('CREATE INDEX mine ON "Uses" (pid)')
    orc.create_view("v", VIEW, create_indexes="on")
    orc.drop_view("v")
    assert len(indexes(orc)) == 1


def test_a_dropped_table_takes_its_index_along(orc):
    orc.execute(TABLES)
    orc.create_view("v", VIEW, create_indexes="on")
    orc.execute('DROP TABLE "Uses" CASCADE')
    orc.drop_view("v")
    assert all(finding.fine for finding in orc.doctor())
    with pytest.raises(psycopg.Error):
        orc.connection.execute("SELECT FROM v")


def test_stored_joins_are_indexed_for_what_is_looked_up(orc):
    orc.execute(TABLES)
    orc.execute("CREATE TABLE devices (did int PRIMARY KEY, category text)")
    orc.create_view(
        "v",
        'SELECT * FROM parts NATURAL JOIN "Uses" NATURAL JOIN devices',
        strategy="recursive",
        updatable="parts",
    )
    [join] = [s for s in orc.view("v").plan["states"] if s["role"] == "join"]
    assert join["probes"] == [["Uses_pid"]]
