"""What cannot be maintained, or only by recomputing, is said with the remedy when a view is created."""

from __future__ import annotations

import pytest

from orchestrator.api import Orchestrator
from orchestrator.errors import IdivmError

OBJECTS = """
    CREATE SCHEMA w; SET search_path = w, public;
    CREATE TABLE t (id int PRIMARY KEY, n int, at timestamptz);
    INSERT INTO t VALUES (1, 2, '2026-01-01');
    CREATE FUNCTION volatile_one(x int) RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN x + 1; END';
    CREATE FUNCTION in_plpgsql(x int) RETURNS bigint LANGUAGE plpgsql IMMUTABLE
        AS 'BEGIN RETURN (SELECT count(*) + x FROM t); END';
    CREATE FUNCTION in_sql(x int) RETURNS bigint LANGUAGE sql STABLE AS 'SELECT count(*) + x FROM t';
    CREATE MATERIALIZED VIEW other AS SELECT id FROM t;
"""


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT volatile_one(n) FROM t", "ALTER FUNCTION w.volatile_one IMMUTABLE."),
        ("SELECT id, random() FROM t", "leave it out or compute it when the view is read."),
        (
            "SELECT in_plpgsql(n) FROM t",
            "The function in_plpgsql is called with search_path = pg_catalog",
        ),
        ("SELECT in_sql(n) FROM t", "The function in_sql is called with search_path = pg_catalog"),
        (
            "SELECT id, now() - at FROM t",
            "now() - at. Leave that out of the query",
        ),
        ("SELECT relname FROM pg_class", "cannot be captured. Read ordinary tables instead"),
        ("SELECT t FROM t", "List the columns instead of the whole row."),
    ],
)
def test_the_remedy_is_named(orc: Orchestrator, query: str, said: str) -> None:
    orc.execute(OBJECTS)
    sentences: list[str] = []
    orc.on_notice = sentences.append
    try:
        assert orc.create_view("v", query).strategy == "recompute"
    except IdivmError as error:
        sentences.append(str(error))
    assert said in sentences[-1]
    assert "Did you mean" not in sentences[-1]


def test_a_strategy_that_was_asked_for_is_not_announced(orc: Orchestrator) -> None:
    orc.execute("CREATE TABLE t (id int PRIMARY KEY)")
    sentences: list[str] = []
    orc.on_notice = sentences.append
    orc.create_view("v", "SELECT id FROM t", strategy="recompute")
    orc.create_view("w", "SELECT id FROM t")
    assert sentences == []
