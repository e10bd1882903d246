"""Which errors of writers fail a run of chaos."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from orchestrator.bench.chaos.shared import Shared
from orchestrator.errors import IdivmError, ServerError
from orchestrator.server import EmbeddedServer

FAILING = {
    "an error of a statement": (psycopg.errors.UndefinedTable("no table"), True),
    "a lost connection": (psycopg.OperationalError("server closed the connection"), False),
    "a server that starts slowly": (ServerError("Another process starts the server."), False),
    "an error of the orchestrator": (IdivmError("wrong"), True),
}


@pytest.mark.parametrize("kind", FAILING)
def test_a_writer_s_error_fails_the_run_unless_the_server_is_down(
    kind: str, tmp_path: Path
) -> None:
    error, fails = FAILING[kind]
    shared = Shared(EmbeddedServer(tmp_path), seed=1)
    shared.judge(error, "writers")
    assert bool(shared.outcome.findings) == fails
