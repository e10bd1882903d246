"""The embedded PostgreSQL server and the search for PostgreSQL binaries."""

from __future__ import annotations

from orchestrator.server.binaries import Installation, find, installations
from orchestrator.server.embedded import EmbeddedServer, Endpoint, Status

__all__ = [
    "EmbeddedServer",
    "Endpoint",
    "Installation",
    "Status",
    "embedded_dsn",
    "find",
    "installations",
]


def embedded_dsn() -> str:
    """Return the connection string of the embedded server under `IDIVM_HOME`. Start the server if necessary."""
    return EmbeddedServer().up().dsn
