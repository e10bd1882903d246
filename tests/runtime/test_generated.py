"""Generated columns: virtual ones, which transition tables lack, and expressions that are altered."""

from __future__ import annotations

from collections import Counter

import psycopg
import pytest

from orchestrator.api import Orchestrator

pytestmark = pytest.mark.integration

MODES = ("deferred", "eager", "on_commit")

TABLES = """
CREATE TABLE t (
    id int PRIMARY KEY, a int, b varchar(9) COLLATE "C",
    d int GENERATED ALWAYS AS (a + 1) VIRTUAL,
    n numeric(8, 2) GENERATED ALWAYS AS (a * 1.5) VIRTUAL,
    u varchar(9) COLLATE "C" GENERATED ALWAYS AS (upper(b)) VIRTUAL
);
CREATE TABLE bag (a int, d int GENERATED ALWAYS AS (a % 2) VIRTUAL, c int GENERATED ALWAYS AS (7) VIRTUAL);
CREATE TABLE p (id int, k int, d int GENERATED ALWAYS AS (id * k) VIRTUAL, PRIMARY KEY (id, k)) PARTITION BY LIST (k);
CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1);
CREATE TABLE p2 (k int NOT NULL, spare int, id int NOT NULL, d int GENERATED ALWAYS AS (id * k) VIRTUAL);
ALTER TABLE p2 DROP COLUMN spare;
ALTER TABLE p ATTACH PARTITION p2 FOR VALUES IN (2);
INSERT INTO t SELECT g, nullif(g % 4, 0), 'x' || g FROM generate_series(1, 9) AS g;
INSERT INTO bag SELECT g % 3 FROM generate_series(1, 7) AS g;
INSERT INTO p SELECT g, 1 + g % 2 FROM generate_series(1, 6) AS g
"""

VIEWS = {
    "shown": "SELECT id, d, n, u FROM t",
    "alone": "SELECT d FROM t",
    "grouped": "SELECT d, count(*) AS c, sum(n) AS s, max(u) AS u FROM t GROUP BY d",
    "joined": "SELECT t.id, t.d, s.u FROM t LEFT JOIN t s ON s.id = t.d",
    "conditions": "SELECT id FROM t WHERE d > 2 AND EXISTS (SELECT FROM bag WHERE bag.a = t.d)",
    "rows": "SELECT id, to_jsonb(t) AS j FROM t",
    "renamed": "SELECT x.five, x.four FROM t AS x (one, two, three, four, five)",
    "bags": "SELECT a, d, c FROM bag",
    "bag_counts": "SELECT d, count(*) AS n FROM bag GROUP BY d",
    "parted": "SELECT id, k, d FROM p",
    "parted_sums": "SELECT k, sum(d) AS d FROM p GROUP BY k",
    "constants": "SELECT c FROM bag",
    "ranked": "SELECT id, rank() OVER (ORDER BY d) AS place FROM t",
}

CHANGES = (
    "INSERT INTO t (id, a, b) VALUES (20, 5, 'new'), (21, NULL, NULL)",
    "UPDATE t SET a = a + 1 WHERE id < 4; UPDATE t SET b = 'other' WHERE id = 5",
    "UPDATE t SET id = id + 100 WHERE id > 8",
    "INSERT INTO bag VALUES (4), (4), (NULL); DELETE FROM bag WHERE a = 1; UPDATE bag SET a = 3 WHERE a = 2",
    "INSERT INTO p VALUES (10, 1), (11, 2); UPDATE p SET id = id + 50 WHERE id < 3; UPDATE p SET k = 3 - k WHERE id > 50",
    "MERGE INTO t USING (VALUES (20, 8), (30, 9)) AS m (id, a) ON m.id = t.id"
    " WHEN MATCHED THEN UPDATE SET a = m.a WHEN NOT MATCHED THEN INSERT (id, a) VALUES (m.id, m.a)",
    "TRUNCATE p",
)


def differing(orc: Orchestrator, views: dict[str, str]) -> list[str]:
    """The views whose rows are not those of their queries."""
    with psycopg.connect(orc.connection.info.dsn) as plain:

        def bag(query: str) -> Counter[str]:
            rows = plain.execute(f"SELECT q::text FROM ({query}) AS q".encode()).fetchall()
            return Counter(text for (text,) in rows)

        return [v for v, query in views.items() if bag(f'TABLE "{v}"') != bag(query)]


def require_virtual(pg_version: int) -> None:
    if pg_version < 18:
        pytest.skip("PostgreSQL 18 brought virtual generated columns")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("maintain", "strategy", "capture_form"),
    [
        ("deferred", "id", "plpgsql"),
        ("eager", "auto", "c"),
        ("on_commit", "tuple", "plpgsql"),
        ("deferred", "recompute", "c"),
    ],
)
def test_views_follow_virtual_columns(orc, pg_version, maintain, strategy):
    require_virtual(pg_version)
    orc.execute(TABLES)
    for name, query in VIEWS.items():
        orc.create_view(f'"{name}"', query, strategy=strategy, maintain=maintain)
    assert differing(orc, VIEWS) == []
    for change in CHANGES:
        orc.execute(change)
        if maintain == "deferred":
            orc.refresh()
        assert differing(orc, VIEWS) == [], change
    assert [report.view for report in orc.check() if not report.equal] == []


@pytest.mark.parametrize("maintain", MODES)
def test_a_renamed_column_stays_in_the_expression_of_a_virtual_one(orc, pg_version, maintain):
    require_virtual(pg_version)
    orc.execute(TABLES)
    views = {name: VIEWS[name] for name in ("shown", "grouped", "parted_sums")}
    for name, query in views.items():
        orc.create_view(f'"{name}"', query, maintain=maintain)
    orc.execute("ALTER TABLE t RENAME COLUMN a TO aa; UPDATE t SET aa = aa - 2 WHERE id IN (1, 2)")
    orc.execute("ALTER TABLE p RENAME COLUMN id TO i; UPDATE p SET i = i + 7 WHERE i = 3")
    orc.execute("SELECT idivm.refresh('shown', 'grouped', 'parted_sums')")
    views["parted_sums"] = "SELECT k, sum(d) AS d FROM p GROUP BY k"
    assert differing(orc, views) == []


def test_another_expression_of_a_virtual_column_has_views_planned_again(orc, pg_version):
    require_virtual(pg_version)
    orc.execute(TABLES)
    views = {name: VIEWS[name] for name in ("shown", "grouped", "bags", "parted")}
    for name, query in views.items():
        orc.create_view(f'"{name}"', query, strategy="id")
    orc.create_view("recomputed", VIEWS["shown"], strategy="recompute")
    views["recomputed"] = VIEWS["shown"]
    orc.execute("ALTER TABLE t ALTER COLUMN d SET EXPRESSION AS (a * 10)")
    row = orc.connection.execute("SELECT error FROM idivm.refresh('shown')").fetchone()
    assert "a virtual generated column that shown reads has another expression" in row[0]
    orc.execute("SELECT idivm.refresh('recomputed', 'bags')")
    assert differing(orc, {"recomputed": VIEWS["shown"], "bags": VIEWS["bags"]}) == []
    orc.execute("ALTER TABLE p ALTER COLUMN d SET EXPRESSION AS (id - k)")
    orc.execute("ALTER TABLE bag ALTER COLUMN c SET EXPRESSION AS (a * a)")
    orc.refresh()
    assert differing(orc, views) == []
    for change in CHANGES:
        orc.execute(change)
        orc.execute("SELECT idivm.refresh('shown', 'grouped', 'bags', 'parted', 'recomputed')")
        assert differing(orc, views) == [], change


@pytest.mark.parametrize("maintain", MODES)
def test_another_expression_of_a_stored_column_has_views_computed_again(orc, pg_version, maintain):
    """Its content is rewritten, and no trigger fires."""
    if pg_version < 17:
        pytest.skip("PostgreSQL 17 brought SET EXPRESSION")
    orc.execute(
        "CREATE TABLE t (id int PRIMARY KEY, a int, d int GENERATED ALWAYS AS (a + 1) STORED);"
        "CREATE TABLE p (id int, k int, d int GENERATED ALWAYS AS (id + k) STORED) PARTITION BY LIST (k);"
        "CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1); CREATE TABLE p2 PARTITION OF p FOR VALUES IN (2);"
        "INSERT INTO t SELECT g, g FROM generate_series(1, 9) AS g;"
        "INSERT INTO p SELECT g, 1 + g % 2 FROM generate_series(1, 9) AS g"
    )
    views = {
        "shown": "SELECT id, d FROM t",
        "summed": "SELECT id % 2 AS odd, sum(d) AS d FROM t GROUP BY id % 2",
        "parted": "SELECT id, d FROM p",
        "others": "SELECT id, a FROM t",
    }
    for name, query in views.items():
        orc.create_view(name, query, maintain=maintain)

    def require(change: str) -> None:
        orc.execute(change)
        orc.execute("SELECT idivm.refresh('shown', 'summed', 'parted', 'others')")
        assert differing(orc, views) == [], change

    refreshes = "SELECT refreshes FROM idivm.watermarks w JOIN idivm.views v ON v.id = w.view WHERE v.name LIKE '%others%'"
    before = orc.connection.execute(refreshes).fetchone()
    require("ALTER TABLE t ALTER COLUMN d SET EXPRESSION AS (a * 10)")
    # It does not read the column.
    assert orc.connection.execute(refreshes).fetchone() == before
    require("UPDATE t SET a = a + 1 WHERE id < 3")
    require("ALTER TABLE p ALTER COLUMN d SET EXPRESSION AS (id * k)")
    require("ALTER TABLE p2 ALTER COLUMN d SET EXPRESSION AS (id * k * 5)")
    require("UPDATE p SET id = id + 10 WHERE id < 3")
    require("ALTER TABLE t ALTER COLUMN d DROP EXPRESSION")
    require("INSERT INTO t VALUES (30, 1, 2); UPDATE t SET d = 0 WHERE id = 4")
    assert orc.connection.execute("SELECT count(*) FROM idivm.changed_expressions").fetchone() == (
        0,
    )


def test_a_writer_has_an_eager_view_follow_another_expression_of_a_stored_column(orc, pg_version):
    if pg_version < 17:
        pytest.skip("PostgreSQL 17 brought SET EXPRESSION")
    orc.execute(
        "CREATE TABLE t (id int PRIMARY KEY, a int, d int GENERATED ALWAYS AS (a + 1) STORED)"
    )
    orc.execute("INSERT INTO t VALUES (1, 1), (2, 2)")
    orc.create_view("v", "SELECT id, d FROM t", maintain="eager")
    orc.execute("ALTER TABLE t ALTER COLUMN d SET EXPRESSION AS (a * 10)")
    orc.execute("INSERT INTO t VALUES (3, 3)")
    assert differing(orc, {"v": "SELECT id, d FROM t"}) == []
