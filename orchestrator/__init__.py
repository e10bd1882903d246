"""idivm: SQL views that stay up to date by themselves inside PostgreSQL."""

from orchestrator.api import CheckReport, Orchestrator, StatementResult, connect
from orchestrator.errors import IdivmError
from orchestrator.runtime.catalog import ViewInfo
from orchestrator.runtime.explain import Explanation
from orchestrator.runtime.refresh import RefreshReport

__all__ = [
    "CheckReport",
    "Explanation",
    "IdivmError",
    "Orchestrator",
    "RefreshReport",
    "StatementResult",
    "ViewInfo",
    "connect",
]
