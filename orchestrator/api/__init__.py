"""The Python interface: `connect()` returns an `Orchestrator`."""

from orchestrator.api.connecting import accelerate, default_dsn, dsn_of, named_dsn
from orchestrator.api.orchestrator import Orchestrator, connect
from orchestrator.api.statements import StatementResult
from orchestrator.spark.options import LoadOptions, RunStreamOptions, StreamOptions

__all__ = [
    "LoadOptions",
    "Orchestrator",
    "RunStreamOptions",
    "StatementResult",
    "StreamOptions",
    "accelerate",
    "connect",
    "default_dsn",
    "dsn_of",
    "named_dsn",
]
