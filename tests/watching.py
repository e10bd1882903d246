"""What the pages of the console show of a database of the tests."""

from collections.abc import Iterator
from contextlib import contextmanager

import orchestrator
from orchestrator.catalog.search_path import pin
from orchestrator.console.data import Data
from orchestrator.runtime.monitoring.sample import Monitor
from orchestrator.runtime.sessions import open_session


@contextmanager
def watching(dsn: str, monitor: type[Monitor] = Monitor) -> Iterator[Data]:
    """Watch a database during a block."""

    def connect():
        connection = open_session(dsn)
        pin(connection)
        return connection

    watched = monitor(connect)
    source = Data(watched, lambda: orchestrator.connect(dsn))
    yield source
    source.close()
    watched.close()
