"""The plans of the fixtures' views, in print, with their IDs (papers/idivm.txt, table 1).

`fixtures/plans.txt` holds a plan for each view named there. To add a case, add its `-- name` line
and run the test with WRITE_PLANS=1; then read what it wrote.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from frontend.plan_checks import FIXTURES, named_views
from harness import TestServer
from psycopg.sql import SQL, Identifier

from orchestrator.algebra.printer import print_plan
from orchestrator.frontend.analysis import analyse

Connection = psycopg.Connection[Any]
VIEWS = named_views()
PLANS = named_views("plans.txt")


@pytest.fixture(scope="module")
def world(pg: TestServer) -> Iterator[Connection]:
    with pg.database(migrated=False) as dsn, psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute((FIXTURES / "schema.sql").read_text())
        connection.execute("CREATE SCHEMA d")
        yield connection


def printed(connection: Connection, name: str) -> str:
    view = Identifier("d", name)
    with connection.transaction(force_rollback=True):
        connection.execute(SQL("CREATE VIEW {} AS {}").format(view, SQL(VIEWS[name])))  # type: ignore[arg-type]
        row = connection.execute(
            "SELECT to_regclass(%s)::oid", [view.as_string(connection)]
        ).fetchone()
        assert row is not None
        analysis = analyse(connection, row[0])
    assert analysis.plan is not None, analysis.unsupported
    return print_plan(analysis.plan)


@pytest.mark.integration
@pytest.mark.parametrize("name", PLANS)
def test_plan_in_print(world: Connection, name: str) -> None:
    assert printed(world, name) == PLANS[name]


@pytest.mark.skipif("WRITE_PLANS" not in os.environ, reason="writes the expected plans")
def test_write_plans(world: Connection) -> None:
    text = "\n\n".join(f"-- {name}\n{printed(world, name)}" for name in PLANS)
    (FIXTURES / "plans.txt").write_text(text + "\n")
