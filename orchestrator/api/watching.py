"""Watch a database while it is served: metrics, spans and the console."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeAlias

from psycopg import Connection

from orchestrator.runtime.monitoring.address import Address, parse_address, require
from orchestrator.runtime.monitoring.sample import Monitor
from orchestrator.runtime.serve import Event

Listener: TypeAlias = Callable[[Event], None]

TOKEN = "IDIVM_CONSOLE_TOKEN"
"""The environment variable with the token of the console. Without it, each start creates a token."""


@contextmanager
def watched(
    connect: Callable[[], Connection[Any]],
    operate: Callable[[], Any],
    report: Listener,
    metrics: str | None,
    console: str | None,
    *,
    traces: bool = False,
    allow_refresh: bool = False,
) -> Iterator[Listener]:
    """Serve metrics and the console, and export spans, during a block. Yield the listener for events of
    `serve`.

    `operate` opens an orchestrator for the console.
    """
    monitor = Monitor(connect)
    listeners: list[Listener] = [monitor.note, report]

    def listener(event: Event) -> None:
        for each in listeners:
            each(event)

    with ExitStack() as stack:
        stack.callback(monitor.close)
        if traces:
            require("serve --traces", "otel", "opentelemetry.sdk", "opentelemetry.exporter.otlp")
            from orchestrator.runtime.monitoring.traces import exported

            listeners.append(stack.enter_context(exported()).note)
        if metrics is not None:
            url = stack.enter_context(_metrics(monitor, parse_address(metrics)))
            report(Event("metrics", message=url))
        if console is not None:
            url = stack.enter_context(
                _console(monitor, operate, parse_address(console), allow_refresh)
            )
            report(Event("console", message=url))
        yield listener


@contextmanager
def _metrics(monitor: Monitor, address: Address) -> Iterator[str]:
    require("serve --metrics", "metrics", "prometheus_client")
    from orchestrator.runtime.monitoring import metrics

    server, thread = metrics.start(monitor, *address)
    try:
        yield f"http://{server.server_name}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def _console(
    monitor: Monitor, operate: Callable[[], Any], address: Address, allow_refresh: bool
) -> Iterator[str]:
    require("The console", "console", "starlette", "uvicorn", "jinja2", "multipart")
    from orchestrator.console.app import served
    from orchestrator.console.data import Data

    token = os.environ.get(TOKEN) or None
    with served(Data(monitor, operate), address, token=token, allow_refresh=allow_refresh) as url:
        yield url


def show_top(connect: Callable[[], Connection[Any]], operate: Callable[[], Any]) -> None:
    """Show the views in the terminal until the user quits."""
    require("idivm top", "console", "textual", "markupsafe")
    from orchestrator.console.data import Data
    from orchestrator.console.top import Top

    monitor = Monitor(connect)
    source = Data(monitor, operate)
    try:
        Top(source).run()
    finally:
        source.close()
        monitor.close()
