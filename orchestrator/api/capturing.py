"""Say from where the changes of tables are captured: by triggers, or from the WAL."""

from __future__ import annotations

from orchestrator.api.statements import Statements
from orchestrator.catalog import wal
from orchestrator.catalog.wal import CapturedTable, WalStatus
from orchestrator.frontend.statements import parse_name
from orchestrator.runtime.wal import switching


class Capturing(Statements):
    """Changes how tables are captured."""

    def capture(self, table: str, way: str) -> None:
        """Capture the changes of a table by `triggers`, or from the `wal`, through a replication slot, from now on.

        Writers of the table wait until open transactions on it have ended. docs/how-to/wal.md says what it needs.
        """
        with self._ours(f"Changing how {table} is captured"):
            switching.capture(self.connection, parse_name(table), way)

    def captures(self) -> list[CapturedTable]:
        """Return the tables whose changes are captured, each with how."""
        with self._ours("Listing captured tables", writes=False):
            return wal.captured_tables(self.connection)

    def wal_status(self) -> WalStatus | None:
        """Return how far the WAL is read, and what the slot keeps of it; None if no table is captured from it."""
        with self._ours("Reading the state of the slot", writes=False):
            return wal.wal_status(self.connection)
