"""A runner of cases on the server at hand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from harness import TestServer

from orchestrator.fuzz.runner import Runner


@pytest.fixture(scope="module")
def runner(pg: TestServer) -> Iterator[Runner]:
    with pg.database(migrated=True) as dsn:
        opened = Runner(dsn)
        yield opened
        opened.close()
