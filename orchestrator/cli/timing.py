"""The commands that say when views are refreshed: `idivm schedule`, `idivm unschedule` and `idivm gate`."""

from __future__ import annotations

import argparse
import dataclasses

from orchestrator.catalog.serving import Timing
from orchestrator.cli.output import ago, open_orchestrator, print_done, print_json, print_table
from orchestrator.errors import UsageError


def schedule(options: argparse.Namespace) -> int:
    """Run `idivm schedule`."""
    if options.view is not None:
        if options.every is None:
            raise UsageError(
                f"Say when to refresh {options.view}, as in: idivm schedule {options.view} '10 s'."
            )
        with open_orchestrator(options) as orchestrator:
            timing = orchestrator.schedule(options.view, options.every)
        print_done(
            options,
            f"{timing.runner} refreshes {timing.view}: {timing.schedule}.",
            **dataclasses.asdict(timing),
        )
        return 0
    with open_orchestrator(options) as orchestrator:
        timings = orchestrator.timings()
    if options.json:
        print_json([dataclasses.asdict(timing) for timing in timings])
    elif not timings:
        print("No view has a schedule, a refresh group or a gate.")
    else:
        names = ("view", "schedule", "by", "refresh group", "gate", "waits for")
        rows = [
            tuple(
                value or ""
                for value in (t.view, t.schedule, t.runner, t.refresh_group, t.gate, t.waits_for)
            )
            for t in timings
        ]
        print_table(names, rows)
    return 0


def unschedule(options: argparse.Namespace) -> int:
    """Run `idivm unschedule`."""
    with open_orchestrator(options) as orchestrator:
        orchestrator.unschedule(options.view)
    print_done(options, f"{options.view} has no schedule.", view=options.view)
    return 0


def gate(options: argparse.Namespace) -> int:
    """Run `idivm gate`."""
    if options.table is not None:
        if options.batch is None:
            raise UsageError(
                f"Name the batch that is complete, as in: idivm gate {options.table} 'batch 42'."
            )
        with open_orchestrator(options) as orchestrator:
            orchestrator.gate(options.table, options.batch)
        print_done(
            options,
            f"{options.table}: {options.batch} is complete.",
            table=options.table,
            batch=options.batch,
        )
        return 0
    with open_orchestrator(options) as orchestrator:
        gates = orchestrator.gates()
    if options.json:
        print_json([dataclasses.asdict(item) for item in gates])
    elif not gates:
        print("No table has completed a batch.")
    else:
        rows = [(item.source, item.batch, ago(item.at), item.role) for item in gates]
        print_table(("table", "batch", "completed", "by"), rows)
    return 0


def facts(timing: Timing | None) -> list[tuple[str, str]]:
    """Return the facts about when a view is refreshed, for `idivm status`."""
    if timing is None:
        return []
    result = []
    if timing.schedule is not None:
        result.append(("schedule", f"{timing.schedule}, by {timing.runner}"))
    if timing.refresh_group is not None:
        result.append(("refresh group", timing.refresh_group))
    if timing.gate is not None:
        result.append(("gate", timing.gate))
    if timing.waits_for is not None:
        since = f" (since {ago(timing.waits_since)})" if timing.waits_since else ""
        result.append(("waits for", f"{timing.waits_for}{since}"))
    return result
