"""What a view stores is recomputed: by parallel workers where PostgreSQL uses them, and by difference."""

from __future__ import annotations

from contextlib import suppress

import pytest
from costs import measured
from psycopg import sql
from stepping import differences

from orchestrator.errors import UnsupportedError
from orchestrator.runtime.refresh import RefreshError

pytestmark = pytest.mark.integration

PARALLEL = {
    "min_parallel_table_scan_size": "0",
    "parallel_setup_cost": "0",
    "parallel_tuple_cost": "0",
}
"""Settings under which PostgreSQL uses parallel workers for a small table."""

CREATED_TABLES = """
    CREATE TABLE created (tag text);
    CREATE FUNCTION note_table() RETURNS event_trigger LANGUAGE plpgsql AS
        'BEGIN INSERT INTO public.created VALUES (tg_tag); END';
    CREATE EVENT TRIGGER tables ON ddl_command_end WHEN TAG IN ('CREATE TABLE AS') EXECUTE FUNCTION note_table()
"""

QUERIES = {
    "a key": 'SELECT id, k AS "a %s \\", n FROM t',
    "a key that may be NULL": "SELECT k AS idivm_1, sum(n) AS idivm_2, max(n) AS m FROM t GROUP BY k",
    "an array that may be NULL": "SELECT a, count(*) AS c, max(n) AS m FROM t GROUP BY a",
    "keys that may be NULL": "SELECT k, a, nullif(id % 2, 0) AS b, max(n) AS m FROM t GROUP BY 1, 2, 3",
    "more keys than are split": (
        "SELECT k, nullif(id % 2, 0) AS b, nullif(id % 3, 0) AS c, nullif(name, 'z') AS e, max(n) AS m FROM t"
        " GROUP BY 1, 2, 3, 4"
    ),
    "more keys, with an array": (
        "SELECT k, nullif(id % 2, 0) AS b, nullif(id % 3, 0) AS c, a, max(n) AS m FROM t GROUP BY 1, 2, 3, 4"
    ),
    "two keys, one of text": "SELECT name, id % 3 AS r, max(n) AS m FROM t GROUP BY 1, 2",
    "one row": "SELECT max(n) AS m, count(DISTINCT k) AS c FROM t",
    "several states": "SELECT id, rank() OVER (PARTITION BY k ORDER BY n) AS r FROM t WHERE n <> 7",
}


@pytest.fixture
def table(orc):
    orc.execute(
        "CREATE TABLE t (id int PRIMARY KEY, k int, n numeric, a int[], name text NOT NULL)"
    )
    orc.execute(
        "INSERT INTO t SELECT i, nullif(i % 5, 0), i / 10.0, (ARRAY[NULL, '{}', '{1}', '{NULL}'])[i % 4 + 1]::int[],"
        " 'name ' || i % 6 FROM generate_series(1, 60) AS i"
    )
    return orc


@pytest.fixture
def parallel(orc):
    """Has the sessions of the database use parallel workers, and names the tables that they create."""
    orc.execute(CREATED_TABLES)
    for name, value in PARALLEL.items():
        orc.connection.execute(
            sql.SQL("SET {} = {}").format(sql.Identifier(name), sql.Literal(value))
        )


@pytest.mark.parametrize("strategy", ["auto", "recompute"])
@pytest.mark.parametrize("query", QUERIES)
def test_the_difference_is_applied(table, query, strategy):
    table.create_view("v", QUERIES[query], strategy=strategy)
    changes = (
        "UPDATE t SET n = n * 1.0, k = nullif(k, 2), name = 'name ' || id % 7 WHERE id < 20",
        "DELETE FROM t WHERE k = 3 OR a = '{1}'",
        "INSERT INTO t SELECT i, i % 9, 7, NULL, 'z' FROM generate_series(61, 80) AS i",
        "UPDATE t SET a = CASE WHEN a IS NULL THEN '{}'::int[] END",
        "DELETE FROM t",
        "INSERT INTO t SELECT i, NULL, i, NULL, 'z' FROM generate_series(1, 9) AS i",
    )
    for change in changes:
        table.execute(f"{change}; UPDATE idivm.views SET status = 'invalid'")
        [report] = table.refresh("v")
        assert report.recomputed
        assert differences(table.connection, "v") == []
    table.execute("UPDATE idivm.views SET status = 'invalid'")
    [report] = table.refresh("v")
    assert report.changed == 0 or query == "more keys, with an array"


@pytest.mark.parametrize("strategy", ["auto", "recompute"])
@pytest.mark.parametrize("mode", ["deferred", "eager", "on_commit"])
def test_parallel_workers_evaluate_the_query(table, parallel, mode, strategy):
    table.create_view(
        "v", "SELECT k, max(n) AS m FROM t GROUP BY k", maintain=mode, strategy=strategy
    )
    table.create_view("above", "SELECT count(*) AS c FROM v WHERE m > 2")
    measured(table, row_seconds=1e-12, access_seconds=1)
    table.execute("TRUNCATE created")
    for statement in (
        "BEGIN; TRUNCATE t; INSERT INTO t VALUES (1, 1, 5, NULL, 'x'); PREPARE TRANSACTION 'p'",
        "COMMIT PREPARED 'p'",
    ):
        table.connection.execute(statement)
    table.refresh()
    assert table.execute("SELECT DISTINCT tag FROM created")[0].rows == [("CREATE TABLE AS",)]
    staged = "SELECT relname FROM pg_class WHERE relname ~ '_staged$'"
    assert table.execute(staged)[0].rows == []
    for view in ("v", "above"):
        assert differences(table.connection, view) == []


@pytest.mark.parametrize("event", ["ddl_command_start", "sql_drop"])
@pytest.mark.parametrize("strategy", ["auto", "recompute"])
def test_no_other_table_is_needed(table, parallel, event, strategy):
    """An event trigger may forbid to create tables, or to drop them."""
    query = "SELECT k, max(10 / n) AS m FROM t GROUP BY k"
    table.create_view("v", query, strategy=strategy)
    table.execute(
        "CREATE FUNCTION forbid() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''not here''; END';"
        f"CREATE EVENT TRIGGER forbidden ON {event} WHEN TAG IN ('CREATE TABLE AS', 'DROP TABLE')"
        " EXECUTE FUNCTION forbid()"
    )
    table.execute("UPDATE t SET n = n + 1; UPDATE idivm.views SET status = 'invalid'")
    table.refresh("v")
    assert differences(table.connection, "v") == []
    table.execute("UPDATE t SET n = 0 WHERE id = 1")
    with pytest.raises(RefreshError, match="division by zero"):
        table.refresh("v")


def test_a_long_log_is_freed_without_the_changes_that_come_late(table, connect):
    """A writer whose transaction began before the log moved to its other segment loses nothing."""
    table.create_view("v", "SELECT k, count(*) AS c, max(n) AS m FROM t GROUP BY k")
    sizes = "SELECT pg_relation_size('idivm_log.s1_a'), pg_relation_size('idivm_log.s1_b')"
    # A segment that a vacuum has locked is emptied after a later refresh.
    for segment in "ab":
        table.execute(f"ALTER TABLE idivm_log.s1_{segment} SET (autovacuum_enabled = off)")

    def load(first):
        table.execute(
            f"INSERT INTO t SELECT i, i % 9, i, NULL, 'x' FROM generate_series({first}, {first} + 9999) AS i"
        )

    load(100)
    table.refresh("v")
    assert table.execute(sizes)[0].rows == [(0, 0)]
    assert table.execute("SELECT turn, closed IS NOT NULL FROM idivm.sources")[0].rows == [
        (1, True)
    ]
    late = connect(autocommit=False)
    late.execute("INSERT INTO t VALUES (1000000, 1, 1000000, NULL, 'x')")
    load(20000)
    table.refresh("v")
    late.execute("INSERT INTO t VALUES (1000001, 2, 1000001, NULL, 'x')")
    late.commit()
    assert max(table.execute(sizes)[0].rows[0]) > 0
    table.refresh("v")
    assert differences(table.connection, "v") == []
    load(40000)
    table.connection.execute("CALL idivm.refresh_all()")
    assert differences(table.connection, "v") == []
    assert table.execute(sizes)[0].rows == [(0, 0)]


@pytest.mark.parametrize("strategy", ["viewtree", "id"])
def test_a_join_of_columns_of_several_types(orc, strategy):
    """A plan may take the value of another column that the join equates."""
    orc.execute(
        "CREATE TABLE a (x int, y bigint, z numeric, v varchar(9), w int); CREATE TABLE b (x smallint, v text);"
        "INSERT INTO a SELECT i, i, i, 'v' || i, i FROM generate_series(1, 5) AS i;"
        "INSERT INTO b SELECT i, 'v' || i FROM generate_series(1, 5) AS i"
    )
    for number, (outputs, on) in enumerate(
        (
            ("a.x", "a.x = b.x"),
            ("b.x, a.y", "a.y = b.x"),
            ("a.z", "a.z = b.x"),
            ("a.v, a.x", "a.v = b.v AND a.x = b.x"),
            ("a.x, a.y, a.z, a.v, a.w", "a.v = b.v AND a.x = b.x"),
        )
    ):
        query = f"SELECT {outputs}, count(*) AS c, sum(b.x) AS s FROM a JOIN b ON {on} GROUP BY {outputs}"
        with suppress(UnsupportedError):
            orc.create_view(f"v{number}", query, strategy=strategy)
    assert len(orc.views()) >= 2
    for change in (
        "UPDATE idivm.views SET status = 'invalid'",
        "TRUNCATE b; INSERT INTO b VALUES (3, 'v3'), (3, 'v3'), (4, 'v2')",
        "INSERT INTO b VALUES (2, 'v2'); UPDATE a SET w = 9, x = 4, y = 4 WHERE z = 2",
    ):
        orc.connection.execute(change)
        orc.refresh()
        assert all(report.equal for report in orc.check()), change
