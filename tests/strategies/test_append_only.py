"""Tables declared as `append_only`: programs for inserts alone, and a recomputation after any other change."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.api import Orchestrator
from orchestrator.errors import UsageError

TABLES = """
    CREATE TABLE events (id int PRIMARY KEY, k int, v int, note text);
    CREATE TABLE kinds (k int PRIMARY KEY, name text);
    CREATE TABLE bag (k int, v int);
    INSERT INTO kinds SELECT n, 'x' || n % 3 FROM generate_series(1, 9) AS n;
    INSERT INTO events SELECT n, n % 9 + 1, n % 7 FROM generate_series(1, 500) AS n;
    INSERT INTO bag SELECT n % 5, n % 3 FROM generate_series(1, 50) AS n;
"""

QUERIES = {
    "tops": "SELECT k, max(v) AS v, count(*) AS n FROM events GROUP BY k",
    "by_name": "SELECT name, min(v) AS v, sum(v) AS s FROM events JOIN kinds USING (k) GROUP BY name",
    "big": "SELECT id, v FROM events WHERE v > 3",
    "all_in_all": "SELECT count(*) AS n, max(v) AS v FROM events",
    "seen": "SELECT DISTINCT k, v FROM bag",
    "kinds_seen": "SELECT k, name FROM kinds WHERE EXISTS (SELECT FROM events e WHERE e.k = kinds.k AND v > 5)",
    "kinds_missing": "SELECT k FROM kinds WHERE NOT EXISTS (SELECT FROM bag b WHERE b.k = kinds.k)",
    "pairs": "SELECT e.id, b.v FROM events e LEFT JOIN bag b ON b.k = e.k AND b.v = e.v",
    "reached": "WITH RECURSIVE r AS (SELECT id, k FROM events WHERE id = 1"
    " UNION SELECT e.id, e.k FROM events e JOIN r ON e.id = r.id + r.k) SELECT id FROM r",
    "firsts": "SELECT id, k, row_number() OVER (PARTITION BY k ORDER BY id) AS n FROM events",
}


def recomputed(orc: Orchestrator) -> set[str]:
    """Return the views whose last refresh recomputed them."""
    rows = orc.connection.execute(
        "SELECT v.relation::text FROM idivm.watermarks w JOIN idivm.views v ON v.id = w.view WHERE w.recomputed"
    )
    return {name for (name,) in rows}


def refreshed(orc: Orchestrator, statement: str) -> set[str]:
    """Return the views that a refresh after a statement recomputes. Compare all views with their queries."""
    orc.execute(statement)
    orc.refresh()
    assert [report.view for report in orc.check() if not report.equal] == []
    return recomputed(orc)


def create(orc: Orchestrator, **options: Any) -> None:
    orc.execute(TABLES)
    for name, query in QUERIES.items():
        tables = [table for table in ("events", "bag") if f" {table}" in query]
        orc.create_view(name, query, append_only=", ".join(tables), **options)


@pytest.mark.parametrize("strategy", ["auto", "id", "tuple", "recursive"])
def test_inserts_are_followed_and_other_changes_recompute(orc: Orchestrator, strategy: str) -> None:
    create(orc, strategy=strategy)
    insert = "INSERT INTO events VALUES (1000, 1, 100), (1001, 9, NULL); INSERT INTO bag VALUES (7, 2), (0, 0)"
    always = refreshed(orc, insert)
    assert always <= {"reached"}
    assert refreshed(orc, "UPDATE kinds SET name = 'y' WHERE k < 4") <= always
    over_events = {name for name, query in QUERIES.items() if "events" in query}
    over_values = over_events - {"reached", "firsts"}
    # Views without the column do not see its update.
    assert refreshed(orc, "UPDATE events SET note = 'seen' WHERE id < 10") <= always
    assert refreshed(orc, "UPDATE events SET v = 0 WHERE v = 100") >= over_values
    reasons = "SELECT reason FROM idivm.history WHERE view = 'all_in_all'::regclass AND recomputed"
    reason = "a table was truncated, a table changed as the option append_only excludes, or the changes were too many or took too long"
    assert orc.connection.execute(reasons).fetchall() == [(reason,)]
    # The next refresh may still have to compute other states.
    refreshed(orc, "INSERT INTO events VALUES (1002, 2, 3)")
    assert refreshed(orc, "DELETE FROM events WHERE id = 1002") >= over_events
    assert refreshed(orc, "DELETE FROM bag WHERE v = 2") >= {"seen", "pairs", "kinds_missing"}
    assert refreshed(orc, "TRUNCATE bag") >= {"seen", "pairs", "kinds_missing"}


@pytest.mark.parametrize("maintain", ["eager", "on_commit"])
def test_no_write_fails_or_is_missed(orc: Orchestrator, maintain: str) -> None:
    create(orc, maintain=maintain)
    for statement in (
        "INSERT INTO events VALUES (1000, 1, 100); DELETE FROM events WHERE id = 1000",
        "INSERT INTO events VALUES (1000, 1, 100)",
        "UPDATE events SET v = v + 1 WHERE id > 490",
        "DELETE FROM events WHERE id < 100",
        "INSERT INTO bag VALUES (3, 3); DELETE FROM bag WHERE k = 2; INSERT INTO bag VALUES (8, 1)",
    ):
        orc.execute(f"BEGIN; {statement}; COMMIT")
        assert [report.view for report in orc.check() if not report.equal] == [], statement


def test_programs_have_no_part_for_other_changes(orc: Orchestrator) -> None:
    create(orc)
    script = orc.explain("big").script
    assert script == (
        "read Δ⁺events; recompute if rows of events were updated or deleted\n"
        "insert into content: σ[v > 3](Δ⁺events)"
    )
    script = orc.explain("tops").script
    assert "delete from" not in script
    # A change never leaves in doubt which value is the greatest.
    assert "content_after" not in script


def test_what_the_option_takes(orc: Orchestrator) -> None:
    orc.execute(TABLES)
    query = QUERIES["big"]
    with pytest.raises(UsageError, match="append_only names 'kinds', which is no table"):
        orc.create_view("v", query, append_only="kinds")
    with pytest.raises(UsageError, match="append_only is not available with maintain = on_read"):
        orc.create_view("v", query, append_only="events", maintain="on_read")
    orc.connection.execute(
        "SELECT idivm.create_view('v', %s, options => %s)", [query, '{"append_only": "events"}']
    )
    orc.refresh()
    assert "were updated or deleted" in orc.explain("v").script
