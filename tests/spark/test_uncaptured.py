"""Tables that a load writes without capture, because it has the views recomputed."""

from __future__ import annotations

import psycopg
import pytest

from orchestrator.api import Orchestrator
from orchestrator.spark.loading.effects import Decision, uncaptured


@pytest.mark.parametrize("role", ["origin", "replica"])
def test_capture_is_as_it_was_afterwards(orc: Orchestrator, role: str) -> None:
    orc.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE VIEW v AS SELECT id FROM t")
    connection: psycopg.Connection[object] = orc.connection
    query = "SELECT 't'::regclass::oid::int, idivm.carries_capture(1, 't')"
    row = connection.execute(query).fetchone()
    assert row is not None
    table, carried = row  # type: ignore[misc]
    assert carried
    with connection.transaction(), uncaptured(connection, Decision("rebuild", ""), [table]):
        connection.execute("INSERT INTO t VALUES (1)")
        assert connection.execute("SELECT count(*) FROM idivm_log.s1").fetchone() == (0,)
    assert connection.execute(query).fetchone() == (table, True)
    connection.execute(f"SET session_replication_role = {role}")
    connection.execute("INSERT INTO t VALUES (2)")
    assert connection.execute("SELECT count(*) FROM idivm_log.s1").fetchone() == (1,)
