"""The pytest plugin of idivm: the fixture `idivm_database`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from orchestrator.api import Orchestrator


@pytest.fixture(scope="session")
def idivm_server() -> str:
    """Return the connection string of the server for `idivm_database`: IDIVM_DSN, or the embedded server."""
    from orchestrator.api import default_dsn

    return default_dsn()


@pytest.fixture
def idivm_database(idivm_server: str) -> Iterator[Orchestrator]:
    """Yield an orchestrator on a database of its own, which is dropped after the test."""
    from uuid import uuid4

    from psycopg.conninfo import make_conninfo
    from psycopg.sql import SQL, Identifier

    from orchestrator.api import connect
    from orchestrator.runtime.sessions import open_session

    name = Identifier(f"idivm_test_{uuid4().hex[:12]}")
    with open_session(idivm_server) as admin:
        admin.execute(SQL("CREATE DATABASE {} TEMPLATE template0").format(name))
        try:
            with connect(
                make_conninfo(idivm_server, dbname=name.as_string().strip('"'))
            ) as database:
                yield database
        finally:
            admin.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(name))
