"""Spans of OpenTelemetry: one for each refresh by `idivm serve`.

The exporter reads the usual environment variables, such as OTEL_EXPORTER_OTLP_ENDPOINT and OTEL_SERVICE_NAME.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode

from orchestrator.runtime.serve import Event

SECONDS = 3
"""The timeout of an export, in seconds."""


class Traces:
    """Turns events of `serve` into spans."""

    def __init__(self, processor: SpanProcessor) -> None:
        """Take the processor that exports spans."""
        service = os.environ.get("OTEL_SERVICE_NAME") or "idivm"
        self.provider = TracerProvider(resource=Resource.create({SERVICE_NAME: service}))
        self.provider.add_span_processor(processor)
        self._tracer = self.provider.get_tracer("idivm")

    def note(self, event: Event) -> None:
        """Export a refresh that has ended, or that has failed."""
        if event.event not in ("refreshed", "failed") or event.view is None:
            return
        facts = {
            "db.system.name": "postgresql",
            "idivm.view": event.view,
            "idivm.rows_changed": event.changed,
            "idivm.staleness_seconds": event.staleness,
        }
        ended = time.time_ns()
        span = self._tracer.start_span(
            "idivm.refresh",
            kind=SpanKind.CLIENT,
            start_time=ended - int((event.seconds or 0.0) * 1e9),
            attributes={name: value for name, value in facts.items() if value is not None},
        )
        if event.event == "failed":
            span.set_status(Status(StatusCode.ERROR, event.message))
        span.end(ended)


@contextmanager
def exported() -> Iterator[Traces]:
    """Export spans by OTLP over HTTP during a block."""
    # The default of 10 s would delay the end of `serve` by that time if no collector answers.
    timeout = None if "OTEL_EXPORTER_OTLP_TIMEOUT" in os.environ else SECONDS
    traces = Traces(BatchSpanProcessor(OTLPSpanExporter(timeout=timeout)))
    try:
        yield traces
    finally:
        traces.provider.shutdown()
