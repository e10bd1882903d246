"""Say when views are refreshed: schedules, and the batches that gates wait for."""

from __future__ import annotations

from psycopg.sql import SQL, Literal

from orchestrator.api.statements import Statements
from orchestrator.catalog import serving
from orchestrator.catalog.search_path import users_path
from orchestrator.catalog.serving import Gate, Timing
from orchestrator.frontend.schedules import OFF
from orchestrator.frontend.statements import AlterView, parse_name


class Scheduling(Statements):
    """Schedules refreshes."""

    def schedule(self, view: str, every: str) -> Timing:
        """Refresh a view at an interval, as in `10 s`, or at the times of five fields as cron has them.

        Return who does that: pg_cron, or `idivm serve`.
        """
        name = parse_name(view)
        altered = self._alter(AlterView(f"ALTER VIEW {view}", name, (("schedule", every),)))
        return next(timing for timing in self.timings() if timing.view == altered.name)

    def unschedule(self, view: str) -> None:
        """End the schedule of a view."""
        self._alter(AlterView(f"ALTER VIEW {view}", parse_name(view), (("schedule", OFF),)))

    def timings(self) -> list[Timing]:
        """Return the views with a schedule, a refresh group or a gate, and what they wait for."""
        with self._ours("Listing schedules", writes=False):
            return serving.timings(self.connection)

    def gate(self, source: str, batch: str) -> None:
        """Say that a batch of changes of a table is complete, together with the open transaction.

        Views with the option `gate` wait for this.
        """
        call = SQL("SELECT idivm.gate({}, {})").format(Literal(source), Literal(batch))
        with self._ours(f"Completing a batch of {source}"), users_path(self.connection):
            self.connection.execute(call)

    def gates(self) -> list[Gate]:
        """Return the last complete batch of each table that has any."""
        with self._ours("Listing gates", writes=False):
            return serving.gates(self.connection)
