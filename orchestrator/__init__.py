"""idivm maintains SQL views incrementally inside PostgreSQL."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from orchestrator.interpreted import prefer_sources

if TYPE_CHECKING:
    from orchestrator.aio import AsyncOrchestrator
    from orchestrator.api import Orchestrator, StatementResult, connect
    from orchestrator.catalog import ViewInfo
    from orchestrator.errors import (
        CancelledError,
        DatabaseError,
        IdivmError,
        MigrationError,
        NameTakenError,
        NotFoundError,
        RightsError,
        ServerError,
        UnsupportedError,
        UsageError,
    )
    from orchestrator.frontend.options import ViewOptions
    from orchestrator.runtime.diagnosis.comparison import CheckReport
    from orchestrator.runtime.explain import Explanation
    from orchestrator.runtime.feeds import Change
    from orchestrator.runtime.progress import Progress
    from orchestrator.runtime.refresh import RefreshError, RefreshReport
    from orchestrator.runtime.unplanned import PlanReport
    from orchestrator.spark.options import LoadOptions, RunStreamOptions, StreamOptions

__version__ = "0.1.0"

_HOMES = {
    "AsyncOrchestrator": "orchestrator.aio",
    "CancelledError": "orchestrator.errors",
    "DatabaseError": "orchestrator.errors",
    "MigrationError": "orchestrator.errors",
    "NameTakenError": "orchestrator.errors",
    "NotFoundError": "orchestrator.errors",
    "RightsError": "orchestrator.errors",
    "ServerError": "orchestrator.errors",
    "UnsupportedError": "orchestrator.errors",
    "UsageError": "orchestrator.errors",
    "Change": "orchestrator.runtime.feeds",
    "CheckReport": "orchestrator.runtime.diagnosis.comparison",
    "Explanation": "orchestrator.runtime.explain",
    "IdivmError": "orchestrator.errors",
    "LoadOptions": "orchestrator.spark.options",
    "ViewOptions": "orchestrator.frontend.options",
    "Orchestrator": "orchestrator.api",
    "Progress": "orchestrator.runtime.progress",
    "PlanReport": "orchestrator.runtime.unplanned",
    "RefreshError": "orchestrator.runtime.refresh",
    "RefreshReport": "orchestrator.runtime.refresh",
    "StatementResult": "orchestrator.api",
    "RunStreamOptions": "orchestrator.spark.options",
    "StreamOptions": "orchestrator.spark.options",
    "ViewInfo": "orchestrator.catalog",
    "connect": "orchestrator.api",
}

__all__ = [
    "AsyncOrchestrator",
    "CancelledError",
    "Change",
    "CheckReport",
    "DatabaseError",
    "Explanation",
    "IdivmError",
    "LoadOptions",
    "MigrationError",
    "NameTakenError",
    "NotFoundError",
    "Orchestrator",
    "PlanReport",
    "Progress",
    "RefreshError",
    "RefreshReport",
    "RightsError",
    "RunStreamOptions",
    "ServerError",
    "StatementResult",
    "StreamOptions",
    "UnsupportedError",
    "UsageError",
    "ViewInfo",
    "ViewOptions",
    "__version__",
    "connect",
]


prefer_sources()


def __getattr__(name: str) -> Any:
    # Importing one package must not load all of them.
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
