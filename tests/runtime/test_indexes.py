"""Indexes on tables: those that programs look for, named and made."""

from __future__ import annotations

import psycopg
import pytest
from stepping import differences

from orchestrator import catalog
from orchestrator.deltascript.plan import StateTable

pytestmark = pytest.mark.integration

TABLES = """
CREATE TABLE parts (pid int PRIMARY KEY, price numeric);
CREATE TABLE "Uses" (did int, pid int, n int, PRIMARY KEY (did, pid))
"""
VIEW = 'SELECT u.did, p.price FROM parts p JOIN "Uses" u ON u.pid = p.pid'
WANTED = 'CREATE INDEX CONCURRENTLY ON "public"."Uses" ("pid")'


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
    assert [index.statement for index in orc.explain("v").missing_indexes] == [WANTED]
    assert f"  {WANTED};" in orc.explain("v").plan
    orc.execute('ALTER TABLE "Uses" RENAME pid TO part')
    [renamed] = orc.explain("v").missing_indexes
    orc.execute(renamed.statement)
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
    join = orc.view("v").plan.program.state("join")
    assert isinstance(join, StateTable) and join.probes == (("Uses_pid",),)


BIG = """
CREATE TABLE big (id int PRIMARY KEY, g int, v int);
INSERT INTO big SELECT i, i % 2000, i FROM generate_series(1, 40000) AS i;
ANALYZE big
"""
MOST = "SELECT g, max(v) AS most FROM big GROUP BY g"
ADVICE = 'CREATE INDEX CONCURRENTLY ON "public"."big" ("g")'


def test_an_index_whose_lack_is_dear_is_announced_with_its_factor(orc):
    orc.execute(BIG)
    notices: list[str] = []
    orc.on_notice = notices.append
    orc.create_view("v", MOST)
    [notice] = [text for text in notices if "INDEX" in text]
    assert notice.endswith(ADVICE)
    [index] = orc.missing_indexes(orc.view("v"))
    assert index.statement == ADVICE
    assert index.factor is not None and index.factor > 10
    assert f"{ADVICE}; -- a change costs" in orc.explain("v").plan
    orc.execute(ADVICE)
    assert orc.missing_indexes(orc.view("v")) == []
    orc.create_view("w", MOST)
    assert len([text for text in notices if "INDEX" in text]) == 1


def test_a_small_table_needs_no_index(orc):
    orc.execute(BIG + "; DELETE FROM big WHERE id > 300; ANALYZE big")
    notices: list[str] = []
    orc.on_notice = notices.append
    orc.create_view("v", MOST)
    assert notices == []


def test_the_plan_follows_indexes_that_come_and_go(orc):
    """Without the index, storing the join saves the scan; with it, looking rows up is cheaper."""
    orc.execute(
        "CREATE TABLE kinds (kind int PRIMARY KEY, weight int);"
        "CREATE TABLE items (id int PRIMARY KEY, kind int, n int);"
        "INSERT INTO kinds SELECT i, i FROM generate_series(1, 20000) AS i;"
        "INSERT INTO items SELECT i, 1 + i % 20000, i FROM generate_series(1, 60000) AS i;"
        "ANALYZE kinds, items"
    )
    query = "SELECT kind, weight, count(*) AS items FROM kinds JOIN items USING (kind) GROUP BY kind, weight"
    orc.create_view("v", query)
    without = orc.view("v").plan.program.variant
    orc.execute("CREATE INDEX by_kind ON items (kind)")
    change = "UPDATE items SET kind = kind % 20000 + 1 WHERE id < 4"
    orc.execute(change)
    orc.refresh("v")
    assert orc.view("v").plan.program.variant != without
    orc.execute(f"DROP INDEX by_kind; {change}")
    orc.refresh("v")
    assert orc.view("v").plan.program.variant == without
    # An index that changes no more than what is known leaves the content alone.
    orc.execute(f"CREATE INDEX ON items (n); CREATE INDEX ON kinds (weight); {change}")
    [report] = orc.refresh("v")
    assert not report.recomputed
    assert orc.refresh("v")[0].changed == 0
    assert all(report.equal for report in orc.check())


def test_a_key_that_is_lost_while_indexes_are_compared(orc, monkeypatch):
    orc.execute(
        "CREATE TABLE t (id int PRIMARY KEY, k int); CREATE TABLE u (k int PRIMARY KEY, n int);"
        "INSERT INTO t VALUES (1, 1), (2, 1); INSERT INTO u VALUES (1, 5)"
    )
    orc.create_view("v", "SELECT t.id, u.n FROM t JOIN u USING (k)", strategy="viewtree")
    orc.connection.execute("ALTER TABLE t DROP CONSTRAINT t_pkey; INSERT INTO t VALUES (2, 1)")
    # As if the key had gone after this question.
    monkeypatch.setattr(catalog, "views_to_replan", lambda connection, among: [])
    orc.refresh()
    assert differences(orc.connection, "v") == []
    assert orc.view("v").strategy != "viewtree"
