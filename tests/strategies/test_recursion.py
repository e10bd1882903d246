"""Recursive views while rows move into circles that their base does not reach."""

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
    found = sorted(orc.connection.execute(sql.SQL("TABLE {}").format(sql.Identifier(name))))
    assert found == sorted(orc.connection.execute(query)), what


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
            "SELECT (idivm.run_program(w.view, w.mark, false)).kind FROM idivm.watermarks w"
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
