"""What can watch a running `idivm serve`: metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from psycopg import Connection

from orchestrator.runtime.monitoring.address import parse_address, require
from orchestrator.runtime.monitoring.sample import Monitor
from orchestrator.runtime.serve import Event

Listener: TypeAlias = Callable[[Event], None]


@contextmanager
def watched(
    connect: Callable[[], Connection[Any]], report: Listener, metrics: str | None
) -> Iterator[Listener]:
    """Serve metrics during a block, and give it the listener for the events of `serve`."""
    if metrics is None:
        yield report
        return
    require("serve --metrics", "metrics", "prometheus_client")
    from orchestrator.runtime.monitoring import metrics as exposition

    monitor = Monitor(connect)
    server, thread = exposition.start(monitor, *parse_address(metrics))

    def listener(event: Event) -> None:
        monitor.note(event)
        report(event)

    report(Event("metrics", message=f"http://{server.server_name}:{server.server_port}/metrics"))
    try:
        yield listener
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        monitor.close()
