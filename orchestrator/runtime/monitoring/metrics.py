"""Metrics of a database for Prometheus, in its text format and as OpenMetrics.

`docs/metrics.md` lists them; `docker/grafana` and `docker/prometheus` use them.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from threading import Thread
from typing import Any
from wsgiref.simple_server import WSGIServer

import psycopg
from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from orchestrator.errors import IdivmError, ServerError
from orchestrator.runtime.monitoring.sample import Counters, Histogram, Monitor, Sample
from orchestrator.runtime.progress import LOGGER

VIEW = ("view",)
TABLE = ("table",)


class ViewMetrics(Collector):
    """Collects the metrics of all views and tables when Prometheus asks for them."""

    def __init__(self, monitor: Monitor) -> None:
        """Take the source of samples."""
        self.monitor = monitor

    def describe(self) -> list[Metric]:
        """Return no metric: registration must not read the database."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of a sample."""
        yield _gauge(
            "idivm_build_info", "The version of idivm", ("version",), [((version("idivm"),), 1)]
        )
        active = int(self.monitor.is_active)
        yield _gauge(
            "idivm_serve_active", "1 if this process refreshes views now", (), [((), active)]
        )
        try:
            sample = self.monitor.sample()
        except (IdivmError, psycopg.Error) as error:
            LOGGER.warning("Metrics lack the views: the catalog cannot be read: %s", error)
            yield _gauge("idivm_up", "1 if the catalog could be read", (), [((), 0)])
            return
        yield _gauge("idivm_up", "1 if the catalog could be read", (), [((), 1)])
        text = "How long reading the catalog took"
        yield _gauge("idivm_sample_seconds", text, (), [((), sample.seconds)])
        yield from _of_views(sample)
        yield from _of_refreshes(self.monitor.counted(sample.views))
        yield from _of_tables(sample)


def _of_views(sample: Sample) -> Iterator[Metric]:
    views = sample.views
    yield _gauge(
        "idivm_view_info",
        "Mode and strategy of a view",
        ("view", "mode", "strategy"),
        [((v.name, v.mode, v.strategy or ""), 1) for v in views],
    )
    yield _gauge(
        "idivm_view_state",
        "1 for the state of a view: fresh, behind, invalid, failed, paused or not planned",
        ("view", "state"),
        [((v.name, v.state), 1) for v in views],
    )
    numbers = {
        "idivm_view_lag_seconds": ("Age of the content of a view", "lag"),
        "idivm_view_pending_changes": ("Log rows that a view has yet to consume", "pending"),
        "idivm_view_rows": ("Estimated rows of the content", "rows"),
        "idivm_view_bytes": ("Size of the content", "bytes"),
        "idivm_view_log_bytes": ("Change logs that a view has yet to consume", "log_bytes"),
        "idivm_view_log_limit_bytes": ("The option log_limit of a view", "log_limit"),
        "idivm_view_last_refresh_seconds": ("Duration of the last refresh", "last_seconds"),
    }
    for name, (text, attribute) in numbers.items():
        values = [((v.name,), getattr(v, attribute)) for v in views]
        yield _gauge(name, text, VIEW, [(key, value) for key, value in values if value is not None])
    yield _gauge(
        "idivm_view_last_refresh_timestamp_seconds",
        "Time of the last refresh",
        VIEW,
        [((v.name,), v.refreshed_at.timestamp()) for v in views if v.refreshed_at],
    )
    yield _counter(
        "idivm_view_refreshes",
        "Refreshes since the view was planned",
        VIEW,
        [((v.name,), v.refreshes) for v in views],
    )


def _of_refreshes(counted: list[tuple[str, Counters, Histogram | None]]) -> Iterator[Metric]:
    durations = HistogramMetricFamily(
        "idivm_view_refresh_duration_seconds",
        "Duration of the refreshes in idivm.history since this process started",
        labels=VIEW,
    )
    staleness = HistogramMetricFamily(
        "idivm_view_staleness_seconds",
        "How long the oldest change waited, for the refreshes by this process",
        labels=VIEW,
    )
    for name, counters, waited in counted:
        durations.add_metric((name,), counters.durations.buckets(), counters.durations.sum)
        if waited is not None:
            staleness.add_metric((name,), waited.buckets(), waited.sum)
    yield durations
    yield staleness
    yield _counter(
        "idivm_view_changed_rows",
        "Rows that refreshes changed, since this process started",
        VIEW,
        [((name,), counters.changed) for name, counters, _ in counted],
    )
    yield _counter(
        "idivm_view_errors",
        "Refreshes that failed, since this process started",
        VIEW,
        [((name,), counters.errors) for name, counters, _ in counted],
    )
    yield _counter(
        "idivm_view_recomputes",
        "Refreshes that recomputed the view, since this process started",
        ("view", "reason"),
        [
            ((name, reason), number)
            for name, counters, _ in counted
            for reason, number in sorted(counters.recomputes.items())
        ],
    )


def _of_tables(sample: Sample) -> Iterator[Metric]:
    yield _counter(
        "idivm_table_captured_statements",
        "Statements that capture logged",
        TABLE,
        [((table.name,), table.statements) for table in sample.tables],
    )
    yield _counter(
        "idivm_table_captured_rows",
        "Rows that capture wrote into the change log",
        TABLE,
        [((table.name,), table.captured) for table in sample.tables],
    )
    yield _gauge(
        "idivm_table_log_bytes",
        "Size of the change log of a table",
        TABLE,
        [((table.name,), table.log_bytes) for table in sample.tables],
    )


Values = list[tuple[tuple[str, ...], Any]]


def _gauge(name: str, text: str, labels: tuple[str, ...], values: Values) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=labels)
    for key, value in values:
        family.add_metric(key, value)
    return family


def _counter(name: str, text: str, labels: tuple[str, ...], values: Values) -> CounterMetricFamily:
    family = CounterMetricFamily(name, text, labels=labels)
    for key, value in values:
        family.add_metric(key, value)
    return family


def registry(monitor: Monitor) -> CollectorRegistry:
    """Return a registry with the metrics of the database and of this process."""
    metrics = CollectorRegistry()
    ProcessCollector(registry=metrics)
    metrics.register(ViewMetrics(monitor))
    return metrics


def start(monitor: Monitor, host: str, port: int) -> tuple[WSGIServer, Thread]:
    """Serve the metrics over HTTP until the server is shut down."""
    try:
        return start_http_server(port, host, registry(monitor))
    except OSError as error:
        raise ServerError(
            f"Cannot serve metrics at {host}:{port}: {error.strerror or error}. Choose another port."
        ) from error
