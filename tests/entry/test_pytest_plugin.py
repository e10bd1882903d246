"""The fixture that idivm gives to the tests of its users."""

from __future__ import annotations

import psycopg
import pytest

from orchestrator.api import Orchestrator


@pytest.fixture(scope="session")
def idivm_server(pg) -> str:  # type: ignore[no-untyped-def]
    """The server of the other tests, as a user would name it in IDIVM_DSN."""
    conninfo: str = pg.conninfo("postgres")
    return conninfo


seen: list[str] = []


@pytest.mark.parametrize("_", range(2))
def test_each_test_has_a_database_of_its_own(idivm_database: Orchestrator, _: int) -> None:
    idivm_database.execute("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)")
    view = idivm_database.create_view("v", "SELECT count(*) AS n FROM t", maintain="eager")
    assert view.strategy == "id"
    seen.append(idivm_database.connection.info.dbname)


def test_the_databases_are_dropped(idivm_server: str) -> None:
    with psycopg.connect(idivm_server) as connection:
        rows = connection.execute("SELECT datname FROM pg_database").fetchall()
    assert not set(seen) & {name for (name,) in rows}
