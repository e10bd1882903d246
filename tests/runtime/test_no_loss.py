"""A refresh that would cost more than recomputing the view recomputes it, and says so."""

from __future__ import annotations

import pytest
from costs import measured
from stepping import differences

from orchestrator.deltascript import sizes
from orchestrator.errors import DatabaseError

pytestmark = pytest.mark.integration

SUMS = "SELECT g, sum(v) AS s, max(v) AS m FROM t GROUP BY g"


@pytest.fixture(params=["deferred", "eager", "on_commit"])
def mode(request):
    return request.param


def tables(orc, rows):
    orc.execute("CREATE TABLE t (id int PRIMARY KEY, g int, v int); CREATE INDEX ON t (g)")
    orc.execute(f"INSERT INTO t SELECT i, i % 10, i FROM generate_series(1, {rows}) i; ANALYZE t")


def last(orc):
    return orc.execute("SELECT recomputed FROM idivm.watermarks")[0].rows[0][0]


def test_more_changes_than_are_worth_reading(orc, mode):
    """Whatever the view was planned for: here an empty table without statistics."""
    tables(orc, 0)
    orc.create_view("v", SUMS, maintain=mode)
    for change in (
        "INSERT INTO t SELECT i, i % 10, i FROM generate_series(1, 20000) i",
        "UPDATE t SET v = v + 1",
        "DELETE FROM t WHERE id > 10",
    ):
        orc.execute(change)
        if mode == "deferred":
            [report] = orc.refresh("v")
            assert report.recomputed
        assert last(orc) and orc.view("v").recomputed
        assert differences(orc.connection, "v") == []
    # A slow machine may have computed the content alone.
    orc.execute("UPDATE idivm.views SET status = 'invalid'")
    orc.refresh("v")
    orc.execute("UPDATE t SET v = 0 WHERE id = 1")
    orc.refresh("v")
    assert not last(orc) or mode != "deferred"
    assert differences(orc.connection, "v") == []


def test_a_diff_that_lost_is_not_tried_again_soon(orc, mode):
    tables(orc, 5000)
    # A change reads its group.
    read = "SELECT g, string_agg(v::text, ',' ORDER BY id) AS all_v FROM t GROUP BY g"
    orc.create_view("v", read, maintain=mode)
    orc.execute(
        "DELETE FROM idivm.costs;"
        " INSERT INTO idivm.costs (view, row_seconds, variant, loses_from, losses) SELECT id, 1e-9, 'id', 110, 1 FROM idivm.views"
    )
    seen = []
    for number in range(1, 4):
        orc.execute(f"UPDATE t SET v = -v WHERE id = {number}")
        orc.refresh("v")
        seen.append(last(orc))
        assert differences(orc.connection, "v") == []
    assert seen[0]
    assert "a recompute takes about" in orc.explain("v").why


def test_a_lost_refresh_is_noted_and_forgiven(orc):
    tables(orc, 100)
    orc.create_view("v", SUMS)
    orc.execute("DELETE FROM idivm.costs; SELECT idivm.note_loss(id, 500, 'id') FROM idivm.views")
    cheaper = "SELECT idivm.recompute_is_cheaper(id, 499, 1), idivm.recompute_is_cheaper(id, 500, 1) FROM idivm.views"
    assert orc.execute(cheaper)[0].rows == [(False, True)]
    assert "500 lookups and rows took longer" in orc.explain("v").why
    noted = "SELECT loses_from, losses FROM idivm.costs"
    begun = "clock_timestamp() - interval '{} seconds'"
    for _ in range(2):
        orc.execute(
            f"SELECT idivm.note_recompute(id, 1e6, {begun.format(1)}, 'id') FROM idivm.views"
        )
    assert orc.execute(noted)[0].rows == [(1125, 1)]
    for seconds, expected in ((100, (700, 2)), (0, (None, 0))):
        orc.execute(
            f"SELECT idivm.note_long(id, 700, 1e6, {begun.format(seconds)}, 'id') FROM idivm.views"
        )
        assert orc.execute(noted)[0].rows == [expected]


def test_a_rebuild_shows_keys_as_they_look_now(orc):
    orc.execute(
        "CREATE TABLE t (n numeric PRIMARY KEY, v int); INSERT INTO t VALUES (1.0, 1), (2, 2)"
    )
    orc.create_view("v", "SELECT n, v FROM t", strategy="id")
    orc.create_view("above", "SELECT n, max(v) AS v FROM v GROUP BY n")
    orc.execute(
        "UPDATE t SET n = n * 1.00; UPDATE idivm.views SET status = 'invalid' WHERE name ~ '^v'"
    )
    orc.refresh()
    for view in ("v", "above"):
        keys = orc.execute(f"SELECT n::text FROM {view} ORDER BY n")[0].rows
        assert keys == [("1.000",), ("2.00",)]


def test_a_rebuild_leaves_out_what_the_changes_do_not_reach(orc):
    orc.execute(
        "CREATE TABLE parts (id int PRIMARY KEY, price int); CREATE TABLE uses (device int, part int, PRIMARY KEY (device, part));"
        "CREATE INDEX ON uses (part); INSERT INTO parts SELECT i, i FROM generate_series(1, 8000) i;"
        "INSERT INTO uses SELECT (i + d) % 1200, i FROM generate_series(1, 8000) i, generate_series(1, 5) d; ANALYZE parts, uses"
    )
    query = "SELECT device, sum(price) AS cost FROM parts JOIN uses ON part = id GROUP BY device"
    orc.create_view("v", query, strategy="id", cache="on")
    [(cache,)] = orc.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = 'idivm_state'::regnamespace AND relkind = 'r'"
        " AND relname ~ 'cache_[0-9]+$'"
    )[0].rows
    orc.execute("UPDATE idivm.costs SET loses_from = 100, row_seconds = 1e-12")
    for change, reaches in (
        ("UPDATE parts SET price = price + 1 WHERE id < 3600", False),
        ("DELETE FROM uses WHERE part < 3600", True),
    ):
        orc.execute(f"TRUNCATE idivm_state.{cache}; {change}")
        [report] = orc.refresh("v")
        [(filled,)] = orc.execute(f"SELECT count(*) > 0 FROM idivm_state.{cache}")[0].rows
        assert (report.recomputed, filled) == (True, reaches)
    assert differences(orc.connection, "v") == []
    orc.execute("UPDATE parts SET price = 0 WHERE id = 7")
    orc.refresh("v")
    assert differences(orc.connection, "v") == []


def test_a_refresh_that_gives_up_keeps_the_states_that_it_has_completed(orc, monkeypatch):
    """It computes the rest from them, and does not read the table again."""
    monkeypatch.setattr(sizes, "PATIENCE", "0 seconds")
    orc.execute(
        "CREATE TABLE items (id int PRIMARY KEY, device int NOT NULL, part int NOT NULL, price int);"
        "INSERT INTO items SELECT i, i % 70, i % 900, i FROM generate_series(1, 9000) i; ANALYZE items"
    )
    sums = "SELECT device, part, sum(price) AS cost FROM items GROUP BY device, part"
    query = f"SELECT device, max(cost), count(DISTINCT cost) FROM ({sums}) AS q GROUP BY device"
    orc.create_view("v", query, strategy="id")
    for change in (
        "UPDATE items SET price = price + 1 WHERE id = 7",
        "DELETE FROM items WHERE id IN (8, 78)",
        "INSERT INTO items VALUES (8, 1, 8, 9), (9001, 71, 901, 1)",
    ):
        orc.execute(f"{change}; DELETE FROM idivm.costs")
        orc.execute("INSERT INTO idivm.costs (view, row_seconds) SELECT id, 1e-15 FROM idivm.views")
        with orc.connection.transaction():
            before = rows_read(orc, "items")
            orc.connection.execute("SELECT * FROM idivm.refresh('v')")
            assert rows_read(orc, "items") - before < 200
        assert orc.view("v").recomputed
        assert differences(orc.connection, "v") == []


def test_a_statement_that_takes_too_long_ends(orc):
    """Nothing predicts that all rows have the same value: the statement is already running."""
    orc.execute(
        "CREATE TABLE a (id int PRIMARY KEY, k int NOT NULL); CREATE TABLE b (id int PRIMARY KEY, k int NOT NULL);"
        "CREATE INDEX ON b (k); INSERT INTO a SELECT i, i FROM generate_series(1, 2000) i;"
        "INSERT INTO b SELECT i, i FROM generate_series(1, 2000) i; ANALYZE a, b;"
        "UPDATE b SET k = 1 WHERE id > 1000"
    )
    query = "SELECT a.k, count(*) FROM a JOIN b ON b.k = a.k GROUP BY a.k"
    orc.create_view("v", query, strategy="id", cache="off")
    orc.execute("UPDATE a SET k = 1 WHERE id <= 90; DELETE FROM idivm.costs")
    # The time is over as soon as a statement finds a row.
    orc.execute(
        "CREATE OR REPLACE FUNCTION idivm.in_time(late timestamptz, deadline timestamptz) RETURNS boolean"
        " LANGUAGE sql VOLATILE RETURN idivm.end_late_statement()"
    )
    with orc.connection.transaction():
        before = rows_read(orc, "b")
        orc.connection.execute("SELECT * FROM idivm.refresh('v')")
        assert rows_read(orc, "b") - before < 5000
    assert orc.view("v").recomputed
    assert differences(orc.connection, "v") == []


def test_the_deadline_of_a_statement_is_computed_only_when_it_is_late(orc):
    in_time = "SELECT idivm.in_time(clock_timestamp() + interval '{}', (SELECT {}))"
    fails = "('x' || clock_timestamp())::timestamptz"
    later = "clock_timestamp() + interval '1 hour'"
    assert orc.execute(in_time.format("1 hour", fails))[0].rows == [(True,)]
    assert orc.execute(in_time.format("-1 hour", later))[0].rows == [(True,)]
    with pytest.raises(DatabaseError, match="took too long"):
        orc.execute(in_time.format("-1 hour", "clock_timestamp() - interval '1 hour'"))


def rows_read(orc, table):
    [count] = orc.connection.execute(
        "SELECT coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_all_tables WHERE relname = %s",
        [table],
    ).fetchone()
    return count


VALUES = "SELECT g, count(DISTINCT v) AS n, sum(v) AS s FROM t GROUP BY g"

PARTS = "SELECT v % 500 AS r, sum(v / 2.0) AS s, avg(v::float8) AS m FROM t GROUP BY 1"
"""One state, with hidden columns for the parts of its sums."""


HIDDEN = "SELECT a.v AS x, a.g FROM t a WHERE a.v > (SELECT avg(b.v) FROM t b WHERE b.g = a.g)"
"""The key of the rows is hidden."""

NUMBERED = "SELECT a.v AS x, a.g FROM (TABLE t UNION ALL TABLE t) a WHERE a.v > (SELECT avg(b.v) FROM t b WHERE b.g = a.g)"
"""Hidden columns number equal rows."""


WIDE = (HIDDEN, NUMBERED)
"""Queries for which a change concerns all rows of its group, so that a recompute may be cheaper."""


@pytest.fixture(
    params=[VALUES, PARTS, HIDDEN, NUMBERED],
    ids=["states", "hidden columns", "hidden key", "equal rows"],
)
def query(request):
    return request.param


def costs(orc, states: float, content: float) -> None:
    """Say what a row of a recompute takes, of all states and of the content alone, and an access almost nothing."""
    measured(orc, row_seconds=states, content_row_seconds=content, access_seconds=1e-12)


def content_only(orc) -> bool:
    return orc.execute("SELECT content_only FROM idivm.watermarks")[0].rows == [(True,)]


def without_states(orc) -> None:
    """Refresh view v so that only its content is current."""
    costs(orc, 1, 1e-6)
    orc.execute("UPDATE idivm.costs SET loses_from = 1; UPDATE t SET v = v + 1 WHERE id <= 90")
    [report] = orc.refresh("v")
    assert report.recomputed and content_only(orc)


def test_a_large_diff_computes_the_content_alone(orc, query):
    """The other states follow when the refreshes without them have lost as much time as they take."""
    tables(orc, 3000)
    orc.create_view("v", query, strategy="id")
    without_states(orc)
    assert (
        "only the content" in orc.execute("SELECT reason FROM idivm.history LIMIT 1")[0].rows[0][0]
    )
    assert differences(orc.connection, "v") == []
    # Large diffs lose nothing by it.
    orc.execute("UPDATE t SET v = v + 1 WHERE id <= 90")
    orc.refresh("v")
    assert content_only(orc)
    assert orc.execute("SELECT lost_seconds FROM idivm.costs")[0].rows == [(0,)]
    # A small diff would have been faster.
    orc.execute("UPDATE idivm.costs SET loses_from = NULL; UPDATE t SET v = v + 1 WHERE id = 1")
    orc.refresh("v")
    assert content_only(orc)
    assert orc.execute("SELECT lost_seconds > 0 FROM idivm.costs")[0].rows == [(True,)]
    orc.execute("UPDATE idivm.costs SET lost_seconds = 1e9; DELETE FROM t WHERE id = 2")
    orc.refresh("v")
    assert not content_only(orc) and last(orc)
    assert "not current" in orc.execute("SELECT reason FROM idivm.history LIMIT 1")[0].rows[0][0]
    assert differences(orc.connection, "v") == [] and all(finding.fine for finding in orc.doctor())
    orc.execute("UPDATE t SET v = 7, g = NULL WHERE id = 3")
    orc.refresh("v")
    assert not last(orc)
    assert differences(orc.connection, "v") == []


def test_the_content_alone_reads_what_the_query_reads(orc):
    """A correlated subquery is computed for the few rows that the view shows, also if their key is hidden."""
    tables(orc, 3000)
    orc.create_view(
        "v",
        "SELECT a.v AS x FROM t a WHERE a.id <= 3 AND a.v < (SELECT 2 * avg(b.v) FROM t b WHERE b.g = a.g)",
        strategy="id",
    )
    read = []
    for statement in ("SELECT count(*) FROM idivm_def.v1", "SELECT idivm_state.content_1()"):
        with orc.connection.transaction():
            before = rows_read(orc, "t")
            orc.connection.execute(statement)
            read.append(rows_read(orc, "t") - before)
    assert read[0] < 1000 and read[1] < 1000


def test_the_states_follow_when_nothing_else_is_to_do(orc, query):
    """A refresh inside a transaction does not compute them: writers would wait."""
    tables(orc, 3000)
    orc.create_view("v", query, strategy="id")
    without_states(orc)
    orc.execute("SELECT idivm.refresh('v')")
    assert content_only(orc)
    for refresh in (lambda: orc.refresh("v"), lambda: orc.execute("CALL idivm.refresh_all()")):
        orc.execute("UPDATE idivm.costs SET loses_from = 1; UPDATE t SET v = v + 2 WHERE id <= 90")
        refresh()
        assert content_only(orc)
        refresh()
        assert not content_only(orc)
    assert "not current" in orc.execute("SELECT reason FROM idivm.history LIMIT 1")[0].rows[0][0]
    orc.execute("UPDATE idivm.costs SET loses_from = NULL; UPDATE t SET v = 7 WHERE id = 3")
    orc.refresh("v")
    assert not last(orc) and differences(orc.connection, "v") == []


def test_unknown_costs_of_the_states_follow_those_of_the_content(orc, query):
    """Without them, a small diff after a large one would compute the states, for three times the time."""
    tables(orc, 3000)
    orc.create_view("v", query, strategy="id")
    without_states(orc)
    orc.execute(
        "UPDATE idivm.costs SET row_seconds = NULL, loses_from = NULL, content_row_seconds = 1, content_share = 0.3;"
        "UPDATE t SET v = 7 WHERE id = 3"
    )
    orc.execute("SELECT idivm.refresh('v')")
    assert content_only(orc)


@pytest.mark.parametrize("mode", ["eager", "on_commit", "on_read"])
def test_another_mode_has_all_states(orc, query, mode):
    if mode == "on_read" and query != PARTS:
        pytest.skip("no read can merge distinct values, nor joins with groups")
    tables(orc, 3000)
    orc.create_view("v", query, strategy="id")
    without_states(orc)
    orc.execute(f"ALTER VIEW v SET (maintain = {mode})")
    assert not content_only(orc)
    orc.execute("UPDATE t SET v = 7, g = NULL WHERE id = 3")
    assert differences(orc.connection, "v") == []
    assert query in WIDE or not last(orc)


def test_a_requested_recompute_has_all_states(orc, query):
    tables(orc, 3000)
    orc.create_view("v", query, strategy="id")
    without_states(orc)
    orc.execute("UPDATE idivm.views SET status = 'invalid'")
    orc.refresh("v")
    assert not content_only(orc)
    orc.execute("UPDATE t SET v = 7, g = NULL WHERE id = 3")
    orc.refresh("v")
    assert differences(orc.connection, "v") == []
    assert query in WIDE or not last(orc)


def test_a_feed_and_a_table_follow_the_content_alone(orc, query):
    tables(orc, 3000)
    orc.create_view("v", query, strategy="id", feed="on", relation="table")
    without_states(orc)
    orc.execute("TRUNCATE t; INSERT INTO t SELECT i, i % 3, i % 5 FROM generate_series(1, 2000) i")
    orc.refresh("v")
    assert content_only(orc)
    assert differences(orc.connection, "v") == []
    replayed = "SELECT count(*) FROM idivm.changes('v')"
    assert orc.execute(replayed)[0].rows[0][0] > 0


def test_the_doctor_makes_the_function_of_the_content_again(orc, query):
    tables(orc, 3000)
    orc.create_view("v", query, strategy="id")
    orc.execute(f"DROP FUNCTION idivm_state.content_{orc.view('v').id}()")
    [finding] = [finding for finding in orc.doctor() if not finding.fine]
    assert finding.mended and "refresh function" in finding.sentence
    without_states(orc)
    assert differences(orc.connection, "v") == []
