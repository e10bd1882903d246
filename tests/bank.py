"""A bank whose views merge pending changes when they are read, with changes and comparisons."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.sql import SQL, Identifier

TABLES = """
CREATE TABLE branch (bid int PRIMARY KEY, city text);
CREATE TABLE teller (tid int PRIMARY KEY, bid int, balance numeric(9,2), note text);
CREATE TABLE visit (bid int, what text);
INSERT INTO branch SELECT g, 'c' || g % 3 FROM generate_series(1, 6) AS g;
INSERT INTO teller SELECT g, g % 7, g * 1.25, 'n' || g % 4 FROM generate_series(1, 40) AS g;
INSERT INTO visit SELECT g % 5, 'w' || g % 3 FROM generate_series(1, 30) AS g
"""

VIEWS = {
    "sums": "SELECT bid, sum(balance) AS total, count(*) AS n, avg(balance) AS mean FROM teller GROUP BY bid",
    "cities": "SELECT city, sum(balance) AS total, count(note) AS n FROM teller JOIN branch USING (bid) GROUP BY city",
    "rich": "SELECT bid, sum(balance) / count(*) AS mean FROM teller GROUP BY bid HAVING count(*) > 4",
    "whole": "SELECT count(*) AS n, sum(balance) AS total FROM teller WHERE note <> 'n1'",
    "joined": "SELECT tid, city, balance, note FROM teller JOIN branch USING (bid) WHERE balance > 5",
    "bag": "SELECT city, note FROM teller JOIN branch USING (bid)",
    "visits": "SELECT what, bid FROM visit WHERE bid > 1",
    "kinds": "SELECT DISTINCT what FROM visit",
    "both": "SELECT bid AS id, city AS name FROM branch UNION ALL SELECT tid, note FROM teller",
}

CHANGES = (
    "INSERT INTO teller VALUES (100, 1, 7.5, 'new'), (101, 77, 1, NULL), (102, NULL, 2, 'n1')",
    "UPDATE teller SET balance = balance + 1 WHERE tid < 9",
    "UPDATE teller SET bid = 3 WHERE bid = 2",
    "UPDATE branch SET city = 'moved' WHERE bid IN (1, 3)",
    "DELETE FROM teller WHERE bid = 4",
    "UPDATE teller SET tid = tid + 1000 WHERE tid < 5",
    "INSERT INTO branch VALUES (77, 'late')",
    "DELETE FROM branch WHERE bid = 5",
    "INSERT INTO visit SELECT 2, 'w1' FROM generate_series(1, 3)",
    "DELETE FROM visit WHERE what = 'w2'",
    "UPDATE teller SET note = 'n1' WHERE note = 'n2'",
    "UPDATE teller SET note = 'n2' WHERE tid % 2 = 0",
    "DELETE FROM teller; INSERT INTO teller VALUES (1, 1, 1, 'n2')",
)


def number_of(connection: psycopg.Connection[Any], name: str) -> int:
    """Return the number of a view."""
    row = connection.execute(
        "SELECT id FROM idivm.views WHERE relation = %s::regclass", [name]
    ).fetchone()
    assert row is not None
    return int(row[0])


def wrong(connection: psycopg.Connection[Any], *names: str) -> dict[str, list[Any]]:
    """Return the rows in which views differ from their queries, each compared in one statement."""
    result = {}
    for name in names or VIEWS:
        definition = Identifier("idivm_def", f"v{number_of(connection, name)}")
        rows = connection.execute(
            SQL(
                "(SELECT 'surplus', ROW(x.*)::text FROM {0} AS x EXCEPT ALL SELECT 'surplus', ROW(y.*)::text FROM {1} AS y)"
                " UNION ALL"
                " (SELECT 'missing', ROW(y.*)::text FROM {1} AS y EXCEPT ALL SELECT 'missing', ROW(x.*)::text FROM {0} AS x)"
            ).format(Identifier(name), definition)
        ).fetchall()
        if rows:
            result[name] = rows
    return result


def kind(connection: psycopg.Connection[Any], name: str) -> str:
    """Return how a read would compute the rows of a view."""
    row = connection.execute(
        SQL("SELECT {}()").format(Identifier("idivm_state", f"read_{number_of(connection, name)}"))
    ).fetchone()
    assert row is not None
    return str(row[0])
