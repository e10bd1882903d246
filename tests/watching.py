"""What the pages of the console show of a database of the tests."""

from collections.abc import Iterator
from contextlib import contextmanager

import orchestrator
from orchestrator.console.data import Data
from orchestrator.runtime.monitoring.sample import Monitor
from orchestrator.runtime.sessions import open_pinned


@contextmanager
def watching(dsn: str, monitor: type[Monitor] = Monitor) -> Iterator[Data]:
    """Watch a database during a block."""
    watched = monitor(lambda: open_pinned(dsn))
    source = Data(watched, lambda: orchestrator.connect(dsn))
    yield source
    source.close()
    watched.close()
