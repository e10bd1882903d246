"""Statements that match many rows of a diff with rows whose keys may be NULL, or with other diffs."""

from __future__ import annotations

import pytest


def program(orc, view):
    [(source,)] = orc.connection.execute(
        "SELECT prosrc FROM pg_proc WHERE pronamespace = 'idivm_state'::regnamespace AND proname = %s",
        [f"refresh_{orc.view(view).id}"],
    ).fetchall()
    return source


def writes(source, state):
    """Return the statements that update or delete rows of a state."""
    statements = source.split(";")
    return [
        s
        for s in statements
        if f"UPDATE idivm_state.{state}" in s or f"DELETE FROM idivm_state.{state}" in s
    ]


def differences(orc, changes):
    for change in changes:
        orc.execute(change)
        orc.refresh()
        yield from (f"{r.view} after {change}" for r in orc.check() if not r.equal)


SIDES = """
CREATE TABLE a (id int PRIMARY KEY, p int);
CREATE TABLE b (id int PRIMARY KEY, q int);
INSERT INTO a SELECT i, i % 9 FROM generate_series(1, 300) AS i;
INSERT INTO b SELECT i + 150, i % 9 FROM generate_series(1, 300) AS i;
ANALYZE a, b;
"""


@pytest.mark.parametrize("strategy", ["id", "tuple"])
def test_two_keys_that_may_be_null_are_split_by_the_null_ones(orc, strategy):
    orc.execute(SIDES)
    query = (
        "SELECT a.k, b.k AS other, a.p, b.q FROM (SELECT nullif(id, 7) AS k, max(p) AS p FROM a GROUP BY 1) AS a"
        " FULL JOIN (SELECT nullif(id, 160) AS k, max(q) AS q FROM b GROUP BY 1) AS b ON a.k = b.k"
    )
    orc.create_view("v", query, strategy=strategy)
    statements = writes(program(orc, "v"), "v_")
    assert any("t.k IS NULL" in s and "d.k IS NULL" in s and " OR t." not in s for s in statements)
    changes = (
        "UPDATE a SET p = p + 1; UPDATE b SET q = q + 1",
        "UPDATE a SET p = p + 1 WHERE id = 4; UPDATE b SET q = 0 WHERE id = 444",
        "DELETE FROM b WHERE id < 200; DELETE FROM a WHERE id % 7 = 0",
        "INSERT INTO b SELECT i, 1 FROM generate_series(1, 180) AS i",
        "UPDATE a SET id = id + 1000 WHERE id % 5 = 0",
    )
    assert list(differences(orc, changes)) == []


def test_padded_rows_are_not_compared_with_every_row_of_a_state(orc):
    """A refresh after many changes reads each row of the content a few times, not once for each change."""
    orc.execute(
        "CREATE TABLE customers (id int PRIMARY KEY);"
        "CREATE TABLE orders (id int PRIMARY KEY, customer int, status text NOT NULL);"
        "INSERT INTO customers SELECT generate_series(1, 1000);"
        "INSERT INTO orders SELECT i, i % 1100, CASE WHEN i % 3 = 0 THEN 'sent' ELSE 'open' END"
        " FROM generate_series(1, 5000) AS i; ANALYZE customers, orders"
    )
    orc.create_view(
        "v",
        'SELECT c.id, o.id AS "order" FROM customers c'
        " FULL JOIN orders o ON o.customer = c.id AND o.status = 'sent'",
        strategy="id",
    )
    assert not any("OR t." in statement for statement in writes(program(orc, "v"), "v_"))
    orc.execute("UPDATE idivm.costs SET row_seconds = 1, access_seconds = 1e-12")
    orc.execute(
        "UPDATE orders SET status = CASE status WHEN 'open' THEN 'sent' ELSE 'open' END WHERE id % 12 = 0"
    )
    with orc.connection.transaction():
        orc.connection.execute("SELECT * FROM idivm.refresh('v')")
        [read] = orc.connection.execute(
            "SELECT sum(seq_tup_read + idx_tup_fetch)::int FROM pg_stat_xact_all_tables"
            " WHERE schemaname = 'idivm_state'"
        ).fetchone()
    assert read < 100_000
    assert not orc.view("v").recomputed
    changes = ("DELETE FROM customers WHERE id % 3 = 1", "DELETE FROM orders WHERE id < 2000")
    assert list(differences(orc, changes)) == []


def test_diffs_of_outer_joins_with_keys_that_may_be_null(orc):
    """Rows of tables and diffs together are compared as records, where the columns may be NULL."""
    orc.execute(
        "CREATE TABLE a (id int PRIMARY KEY, x int); CREATE TABLE b (id int PRIMARY KEY, a int, x int);"
        "CREATE TABLE c (id int PRIMARY KEY, b int, y text);"
        "INSERT INTO a SELECT i, i % 7 FROM generate_series(1, 400) AS i;"
        "INSERT INTO b SELECT i, i % 500, i % 9 FROM generate_series(1, 400) AS i;"
        "INSERT INTO c SELECT i, i % 600, 'y' || i % 5 FROM generate_series(1, 400) AS i; ANALYZE a, b, c"
    )
    orc.create_view(
        "v",
        "SELECT a.id, b.id AS b, c.id AS c, a.x, b.x AS bx, coalesce(c.y, a.x::text) AS y"
        " FROM a LEFT JOIN (b LEFT JOIN c ON c.b = b.id) ON b.a = a.id AND b.x < a.x + 4",
        strategy="id",
    )
    changes = (
        "UPDATE c SET y = y || 'z'",
        "UPDATE a SET x = x + 1",
        "UPDATE b SET x = x + 2; UPDATE c SET b = b + 1 WHERE id % 2 = 0",
        "DELETE FROM c WHERE id % 3 = 0; DELETE FROM b WHERE id % 4 = 0",
        "UPDATE a SET id = id + 1000 WHERE id % 5 = 0; UPDATE b SET a = a + 1000 WHERE a % 5 = 0",
    )
    assert list(differences(orc, changes)) == []


def test_many_keys_that_may_be_null_are_compared_as_a_record(orc):
    orc.execute(
        "CREATE TABLE r (id int PRIMARY KEY, a int, b text, c date, v int);"
        "INSERT INTO r SELECT i, nullif(i % 6, 0), nullif('b' || i % 5, 'b0'),"
        " nullif(date '2030-01-01' + i % 4, '2030-01-01'), i FROM generate_series(1, 2000) AS i; ANALYZE r"
    )
    orc.create_view("v", "SELECT a, b, c, max(v) AS most FROM r GROUP BY a, b, c", strategy="id")
    record = "ROW(t.a, t.b, t.c)::record OPERATOR(pg_catalog.=)"
    assert any(record in statement for statement in writes(program(orc, "v"), "v_"))
    changes = (
        "UPDATE r SET v = v + 5",
        "DELETE FROM r WHERE v % 3 = 0",
        "UPDATE r SET a = NULL, b = NULL WHERE id < 50",
        "UPDATE r SET v = 0 WHERE a IS NULL AND b IS NULL",
        "DELETE FROM r WHERE a IS NULL",
        "DELETE FROM r WHERE id % 60 <> 7",
    )
    assert list(differences(orc, changes)) == []


def test_rows_are_not_compared_with_every_row_of_a_diff(orc):
    orc.execute(
        "CREATE TABLE r (id int PRIMARY KEY, k int NOT NULL, v int NOT NULL);"
        "INSERT INTO r SELECT i, i % 5, i % 37 FROM generate_series(1, 2000) AS i; ANALYZE r"
    )
    orc.create_view(
        "v", "SELECT id, rank() OVER (PARTITION BY k ORDER BY v) AS n FROM r", strategy="id"
    )
    source = program(orc, "v")
    # No statement looks up rows in a variable by a condition that cannot be hashed.
    assert " IS NULL AND d" not in source
    hashed = source.count("set_config('enable_nestloop', 'off', true)")
    assert 0 < hashed == source.count("set_config('enable_nestloop', 'on', true)")
    changes = (
        "UPDATE r SET v = v + 1 WHERE id % 20 = 0",
        "UPDATE r SET v = v + 1 WHERE id = 33",
        "DELETE FROM r WHERE id % 30 = 1; INSERT INTO r SELECT i, 2, i % 5 FROM generate_series(3000, 3100) AS i",
        "UPDATE r SET k = 1 WHERE id < 100",
    )
    assert list(differences(orc, changes)) == []


def test_spans_of_groups_whose_keys_may_be_null(orc):
    orc.execute(
        "CREATE TABLE r (id int PRIMARY KEY, k int, g int, v int);"
        "INSERT INTO r SELECT i, nullif(i % 5, 0), nullif(i % 101, 0), i * 7 % 37"
        " FROM generate_series(1, 2000) AS i; ANALYZE r"
    )
    orc.create_view(
        "v",
        "SELECT k, g, total, rank() OVER (PARTITION BY k ORDER BY total DESC) AS n"
        " FROM (SELECT k, g, sum(v) AS total FROM r GROUP BY k, g) AS sums",
        strategy="id",
    )
    assert "ROW(d_" in program(orc, "v")
    changes = (
        "UPDATE r SET v = v + 1 WHERE id % 20 = 0",
        "UPDATE r SET v = v + 9 WHERE k IS NULL OR g IS NULL",
        "DELETE FROM r WHERE g IS NULL AND k = 2",
        "UPDATE r SET g = NULL WHERE id < 60",
        "UPDATE r SET v = v - 5 WHERE k IS NOT NULL AND g IS NOT NULL",
    )
    assert list(differences(orc, changes)) == []
