"""PostgreSQL compiles queries of a high expected cost. For queries on the catalog this takes a second and saves nothing."""

from __future__ import annotations

import json

import psycopg
import pytest

from orchestrator.api import Orchestrator

pytestmark = pytest.mark.integration


def test_no_query_on_the_catalog_is_compiled(orc: Orchestrator) -> None:
    connection = orc.connection
    try:
        connection.execute("LOAD 'auto_explain'")
    except psycopg.errors.UndefinedFile:
        pytest.skip("the server has no auto_explain")
    compiled_from = float(connection.execute("SHOW jit_above_cost").fetchone()[0])
    compiled = []

    def note(diagnostic: psycopg.errors.Diagnostic) -> None:
        _, _, plan = (diagnostic.message_primary or "").partition("plan:\n")
        if plan:
            explained = json.loads(plan)
            # Settings are shown unless they have PostgreSQL's default, which is to compile.
            is_off = explained.get("Settings", {}).get("jit") == "off"
            if explained["Plan"]["Total Cost"] > compiled_from and not is_off:
                compiled.append(explained["Query Text"])

    connection.add_notice_handler(note)
    for setting in ("log_nested_statements = on", "log_settings = on", "log_min_duration = 0"):
        connection.execute(f"SET auto_explain.{setting}")
    connection.execute("SET auto_explain.log_format = json; SET auto_explain.log_level = log")
    connection.execute("SET client_min_messages = log; SET jit = on")
    orc.execute("CREATE TABLE t (id int PRIMARY KEY, g int, x text)")
    orc.create_view("v", "SELECT g, count(*), max(x) FROM t GROUP BY g")
    orc.create_view("above", "SELECT v.g, upper(t.x) FROM v FULL JOIN t USING (g)")
    orc.execute("INSERT INTO t SELECT i, i % 3, i FROM generate_series(1, 100) AS i")
    connection.execute("SELECT * FROM idivm.status")
    connection.execute("SELECT * FROM idivm.refresh('v')")
    connection.execute("CALL idivm.refresh_all()")
    orc.check()
    orc.doctor()
    orc.explain("v")
    orc.drop_view("above")
    assert compiled == []
