"""Recursive views while rows move into circles that their base does not reach."""

from random import Random

import pytest
from psycopg import sql

from orchestrator.strategies.idiff.rules import recursive as rules

PATHS = (
    "WITH RECURSIVE t AS (SELECT id, name AS path FROM d WHERE p IS NULL UNION ALL"
    " SELECT d.id, t.path || '>' || d.name FROM d JOIN t ON d.p = t.id) SELECT id, path FROM t"
)
EDGES = (
    "WITH RECURSIVE t AS (SELECT id, name AS path FROM d WHERE p IS NULL UNION ALL"
    " SELECT e.b, t.path || '>' || d.name FROM t JOIN e ON e.a = t.id JOIN d ON d.id = e.b)"
    " SELECT id, path FROM t"
)
SUMS = (
    "WITH RECURSIVE t AS (SELECT id, id AS root, 0 AS far FROM d WHERE p IS NULL UNION ALL"
    " SELECT d.id, t.root, t.far + 1 FROM d JOIN t ON d.p = t.id)"
    " SELECT root, count(*) AS n, sum(far) AS far FROM t GROUP BY root"
)

CHANGES = {
    "a circle of two": "UPDATE d SET p = 3 WHERE id = 2",
    "a circle that stays while others move": "UPDATE d SET p = 3 WHERE id = 5",
    "out of the circle again": "UPDATE d SET p = 1 WHERE id = 2",
    "a row that is its own parent": "UPDATE d SET p = 2 WHERE id = 2",
    "a name in it": "UPDATE d SET name = name || '!' WHERE id IN (1, 2, 3)",
    "the way back": "UPDATE d SET p = 1 WHERE id = 2",
    "a long circle": "UPDATE d SET p = 39 WHERE id = 10",
    "a row beside it": "INSERT INTO d VALUES (100, 39, 'new')",
    "another root for it": "UPDATE d SET p = 1 WHERE id = 20",
    "a new circle": "INSERT INTO d VALUES (201, 202, 'x'), (202, 203, 'y'), (203, 201, 'z')",
    "what hangs on it": "UPDATE d SET p = 202 WHERE id = 5",
    "no longer": "DELETE FROM d WHERE id = 202",
    "parent and child change places": "UPDATE d SET p = CASE id WHEN 2 THEN 3 ELSE 1 END WHERE id IN (2, 3)",
    "other keys": "UPDATE d SET id = id + 1000 WHERE id IN (3, 30)",
    "no root": "DELETE FROM d WHERE id = 1",
    "a root in the middle": "UPDATE d SET p = NULL WHERE id = 15",
}


def fill(orc, key):
    orc.execute(
        f"CREATE TABLE d (id int {key}, p int, name text);"
        "INSERT INTO d VALUES (1, NULL, 'root'), (2, 1, 'a'), (3, 2, 'b'), (4, 3, 'c'), (5, 1, 'd');"
        "INSERT INTO d SELECT g, CASE g WHEN 10 THEN 1 ELSE g - 1 END, 'n' || g"
        " FROM generate_series(10, 39) AS g"
    )
    # Instead of a refresh that does not end.
    orc.execute("SET statement_timeout = '60s'")


def assert_right(orc, name, query, what):
    content = sorted(orc.connection.execute(sql.SQL("TABLE {}").format(sql.Identifier(name))))
    assert content == sorted(orc.connection.execute(query)), what


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.parametrize("mode", ["deferred", "eager", "on_commit"])
def test_a_circle_that_hangs_on_nothing_is_not_entered(orc, mode):
    fill(orc, "PRIMARY KEY")
    views = {"paths": PATHS, "sums": SUMS}
    for name, query in views.items():
        orc.create_view(name, query, maintain=mode, strategy="id")
    for what, change in CHANGES.items():
        orc.execute(change)
        orc.refresh()
        for name, query in views.items():
            assert_right(orc, name, query, what)


def rebuilds(orc, change):
    """Whether the refresh after a change gives up its diffs."""
    orc.execute(change)
    with orc.connection.transaction(force_rollback=True):
        row = orc.connection.execute(
            "SELECT (idivm.run_program(w.view, w.mark, false, false)).kind FROM idivm.watermarks w"
        ).fetchone()
    orc.refresh()
    return row == ("R",)


@pytest.mark.parametrize("strategy", ["id", "tuple", "recursive"])
def test_what_is_carried_on_is_no_more_than_what_goes_and_comes(orc, monkeypatch, strategy):
    """36 derivations are stored, so no change has more than 36 that go or 36 that come."""
    monkeypatch.setattr(rules, "MOST", 36)
    fill(orc, "PRIMARY KEY")
    orc.create_view("paths", PATHS, strategy=strategy)
    for what, change in CHANGES.items():
        assert not rebuilds(orc, change), what
        assert_right(orc, "paths", PATHS, what)


def test_changes_of_several_tables_at_once(orc, monkeypatch):
    monkeypatch.setattr(rules, "MOST", 200)
    fill(orc, "PRIMARY KEY")
    orc.execute("CREATE TABLE e (a int, b int, PRIMARY KEY (a, b))")
    orc.execute("INSERT INTO e SELECT p, id FROM d WHERE p IS NOT NULL")
    orc.create_view("paths", EDGES, strategy="id")
    for what, change in {
        "a circle of two": "UPDATE e SET a = 3 WHERE b = 2; UPDATE d SET name = name || '?' WHERE id < 4",
        "a root in it": "UPDATE d SET p = NULL WHERE id = 3; DELETE FROM e WHERE a = 3 AND b = 2",
        "two ways": "INSERT INTO e VALUES (1, 11), (1, 12); UPDATE d SET name = 'm' WHERE id > 20",
        "another circle": "DELETE FROM e WHERE b IN (11, 12); INSERT INTO e VALUES (39, 12);"
        " DELETE FROM d WHERE id = 5",
    }.items():
        with orc.connection.transaction():
            orc.execute(change)
        assert not rebuilds(orc, "SELECT 1"), what
        assert_right(orc, "paths", EDGES, what)


@pytest.mark.parametrize("mode", ["deferred", "eager"])
def test_a_table_without_a_key(orc, mode):
    """Nothing tells which rows stay, so what may be carried round in a circle is given up early."""
    fill(orc, "")
    orc.create_view("paths", PATHS, maintain=mode, strategy="id")
    for what, change in CHANGES.items():
        orc.execute(change)
        orc.refresh()
        assert_right(orc, "paths", PATHS, what)


def test_a_table_without_a_key_needs_little_room_for_a_circle(orc):
    fill(orc, "")
    orc.execute("UPDATE d SET name = repeat('x', 500)")
    orc.create_view("paths", PATHS, strategy="id")
    orc.execute("SET temp_file_limit = '600MB'; UPDATE d SET p = 3 WHERE id = 2")
    orc.refresh()
    assert_right(orc, "paths", PATHS, "a circle of two")


UNIONS = {
    "reached": "WITH RECURSIVE t AS (SELECT node FROM starts UNION"
    " SELECT e.b FROM t JOIN e ON e.a = t.node) SELECT node FROM t",
    "pairs": "WITH RECURSIVE t AS (SELECT a, b FROM e WHERE a IS NOT NULL UNION"
    " SELECT t.a, e.b FROM t JOIN e ON e.a = t.b) SELECT a, count(*) AS n FROM t GROUP BY a",
    "by_two": "WITH RECURSIVE t AS (SELECT node, 'x' AS kind FROM starts UNION"
    " SELECT f.b, e.kind FROM t JOIN e ON e.a = t.node JOIN e f ON f.a = e.b AND f.id <> e.id)"
    " SELECT node, kind FROM t",
    "from_one_table": "WITH RECURSIVE t AS (SELECT a, b FROM e WHERE kind = 'x' UNION"
    " SELECT t.a, e.b FROM e JOIN t ON e.a = t.b AND t.a <> e.b) SELECT a, b FROM t",
}


def edges(rng, ids):
    """Edges that often make circles and second ways; some lead to nothing."""
    ends = [(n, rng.randrange(12), rng.choice((None, *range(12)))) for n in ids]
    return ", ".join(
        f"({n}, {a}, {'NULL' if b is None else b}, {rng.choice(('NULL', repr('x'), repr('y')))})"
        for n, a, b in ends
    )


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.parametrize("key", ["PRIMARY KEY", ""])
@pytest.mark.parametrize("mode", ["deferred", "eager"])
def test_rows_that_go_take_along_what_no_other_way_reaches(orc, mode, key):
    rng = Random(f"{mode}{key}")
    orc.execute(
        f"CREATE TABLE e (id int {key}, a int, b int, kind text); CREATE TABLE starts (node int {key});"
        f"INSERT INTO e VALUES {edges(rng, range(20))}; INSERT INTO starts VALUES (0), (3);"
        "SET statement_timeout = '60s'"
    )
    for name, query in UNIONS.items():
        orc.create_view(name, query, maintain=mode, strategy="id")
    for turn in range(25):
        some = f"id % {rng.randrange(2, 9)} = {rng.randrange(3)}"
        orc.execute(
            rng.choice(
                (
                    f"DELETE FROM e WHERE {some}",
                    f"UPDATE e SET b = {rng.randrange(12)} WHERE {some}",
                    f"UPDATE e SET a = b, b = a WHERE b IS NOT NULL AND {some}",
                    f"DELETE FROM starts WHERE node % 2 = {rng.randrange(2)}",
                    f"UPDATE e SET kind = 'x' WHERE {some}",
                )
            )
        )
        first = 100 * (turn + 1)
        orc.execute(f"INSERT INTO e VALUES {edges(rng, range(first, first + rng.randrange(1, 5)))}")
        orc.execute(f"INSERT INTO starts VALUES ({rng.randrange(12)}) ON CONFLICT DO NOTHING")
        orc.refresh()
        different = [report.view for report in orc.check() if not report.equal]
        assert different == [], turn


def test_a_deleted_row_is_followed_to_what_it_reaches(orc):
    orc.execute(
        "CREATE TABLE d (id int PRIMARY KEY, p int);"
        "INSERT INTO d SELECT n, CASE WHEN n > 10 THEN n / 3 END FROM generate_series(1, 6000) AS n;"
        "CREATE INDEX ON d (p); ANALYZE d"
    )
    query = (
        "WITH RECURSIVE t AS (SELECT p, id FROM d WHERE p IS NOT NULL UNION"
        " SELECT t.p, d.id FROM t JOIN d ON d.p = t.id) SELECT p, count(*) AS n FROM t GROUP BY p"
    )
    orc.create_view("led", query, strategy="id")
    orc.execute("ANALYZE; SET random_page_cost = 1.1")
    for change in ("DELETE FROM d WHERE id = 2000", "UPDATE d SET p = 7 WHERE id = 1000"):
        orc.execute(change)
        with orc.connection.transaction():
            before = rows_read(orc)
            orc.connection.execute("SELECT * FROM idivm.refresh('led')")
            assert rows_read(orc) - before < 12_000, change
        assert not orc.view("led").recomputed
    assert all(report.equal for report in orc.check())


def rows_read(orc):
    [count] = orc.connection.execute(
        "SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))::int FROM pg_stat_xact_all_tables"
        " WHERE schemaname = 'idivm_state' OR relname = 'd'"
    ).fetchone()
    return count
