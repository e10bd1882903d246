"""The commands that show all views, and the state of each: `idivm list` and `idivm status`."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from orchestrator.catalog import ViewInfo, relations
from orchestrator.catalog.parts import Parts
from orchestrator.catalog.unplanned import UnplannedView
from orchestrator.cli import timing
from orchestrator.cli.output import (
    ago,
    open_orchestrator,
    print_dropped,
    print_json,
    print_table,
    size,
)


def list_views(options: argparse.Namespace) -> int:
    """Run `idivm list`."""
    with open_orchestrator(options) as orchestrator:
        views = orchestrator.views()
        waiting = orchestrator.unplanned_views()
        dropped = orchestrator.dropped_views()
    print_dropped(dropped)
    if options.json:
        print_json([*map(summary, views), *map(_unplanned_summary, waiting)])
    elif not views and not waiting:
        print(
            "There are no maintained views yet. Create a view with: idivm sql -c 'CREATE VIEW name AS SELECT ...'"
        )
    else:
        rows = [
            (
                v.name,
                v.strategy,
                v.maintain,
                f"{v.pending:,}",
                ago(v.refreshed_at),
                ", ".join(v.sources),
            )
            for v in views
        ]
        rows += [
            (v.relation, "not planned", v.options.get("maintain", "deferred"), "", "", "")
            for v in waiting
        ]
        print_table(
            ("view", "strategy", "maintain", "pending", "refreshed", "reads"), rows, right={3}
        )
        for view in views:
            if view.trouble:
                print(f"{view.name}: {_state(view)}")
            elif view.misses_wal and not view.pending:
                print(f"{view.name} is {_state(view)}")
            elif view.stale_below and not view.pending:
                print(f"{view.name} reads {_and(view.stale_below)} stale")
            if view.error:
                print(f"{view.name}: the last refresh failed {ago(view.failed_at)}: {view.error}")
        for unplanned in waiting:
            reason = unplanned.refusal and f", as it could not be planned: {unplanned.refusal}"
            print(f"{unplanned.relation}: every read computes its query{reason or ''}")
    return 0


def status(options: argparse.Namespace) -> int:
    """Run `idivm status`."""
    with open_orchestrator(options) as orchestrator:
        views = [orchestrator.view(options.view)] if options.view else orchestrator.views()
        parts = {view.id: orchestrator.parts(view) for view in views}
        timings = {item.view: item for item in orchestrator.timings()}
        missing = {view.id: orchestrator.missing_indexes(view) for view in views}
        reads = {
            view.id: relations.reads_by(orchestrator.connection, view.id)
            for view in views
            if view.read_from
        }
    if options.json:
        print_json(
            [
                summary(view)
                | {"missing_indexes": [dataclasses.asdict(item) for item in missing[view.id]]}
                | _parts_summary(parts[view.id])
                | ({"read_uses": reads[view.id]} if view.id in reads else {})
                | (
                    {"timing": dataclasses.asdict(timings[view.name])}
                    if view.name in timings
                    else {}
                )
                for view in views
            ]
        )
        return 0
    for view in views:
        mean = view.total_seconds / view.refreshes * 1000 if view.refreshes else 0.0
        facts = [
            (
                "state",
                _state(view),
            ),
            ("strategy", f"{view.strategy}, {view.maintain}"),
            ("reads", ", ".join(view.sources) or "no table"),
            ("pending changes", f"{view.pending:,}"),
            *([("a read uses", reads[view.id] or "")] if view.read_from else []),
            ("last refresh", _last_refresh(view)),
            ("refreshes", f"{view.refreshes:,}, {mean:,.1f} ms on average"),
            ("rows", f"about {view.rows:,}"),
            ("size", f"{size(view.bytes)} of content, {size(view.log_bytes)} of change logs"),
        ]
        facts += timing.facts(timings.get(view.name))
        facts += _parts_facts(parts[view.id])
        facts += [("missing index", str(index)) for index in missing[view.id]]
        if view.error:
            facts.append(("last error", f"{view.error} ({view.sqlstate}, {ago(view.failed_at)})"))
        if view.log_kept > view.log_limit:
            facts.append(("WARNING", _keeps_too_much(view)))
        print(view.name)
        for name, value in facts:
            print(f"  {name + ':':17}{value}")
    if not views:
        print("There are no maintained views yet.")
    return 0


def summary(view: ViewInfo) -> dict[str, Any]:
    """Return the facts about a view for programs."""
    value = dataclasses.asdict(view)
    for name in ("plan_text", "settings", "oid", "id", "base", "read_from"):
        del value[name]
    return value


def _unplanned_summary(view: UnplannedView) -> dict[str, Any]:
    return {
        "name": view.relation,
        "status": "not planned",
        "options": view.options,
        "error": view.refusal,
    }


def _parts_summary(parts: Parts | None) -> dict[str, Any]:
    return {} if parts is None else {"parts": dataclasses.asdict(parts)}


def _parts_facts(parts: Parts | None) -> Iterator[tuple[str, str]]:
    """Yield facts about the heavy and light parts of the relations."""
    if parts is None:
        return
    at = {each.epsilon: each.threshold for each in parts.relations}
    heavy = (f"{threshold:,.1f} rows: N^{epsilon}" for epsilon, threshold in at.items())
    yield (
        "heavy from",
        f"about {', or '.join(heavy)}, N = {parts.base:,}, over {parts.size:,} rows",
    )
    yield (
        "rebalanced",
        f"{parts.minor:,} {'value' if parts.minor == 1 else 'values'} moved singly,"
        f" all values {parts.major:,} times",
    )
    for item in parts.relations:
        heaviest = ", ".join(f"{value} ({rows:,})" for value, rows in item.heaviest.items())
        yield (
            f"{item.relation} by {', '.join(item.on)}"
            + (f" at N^{item.epsilon}" if at.keys() > {item.epsilon} else ""),
            f"{item.heavy_values:,} heavy values with {item.heavy_rows:,} rows,"
            f" {item.light_values:,} light values with {item.light_rows:,} rows"
            + (f"; heaviest: {heaviest}" if heaviest else ""),
        )


def _state(view: ViewInfo) -> str:
    if view.trouble:
        return f"invalid: {view.trouble}"
    if view.status == "invalid":
        return "the next refresh recomputes it"
    if view.pending:
        return f"stale by {view.pending:,} change{'' if view.pending == 1 else 's'}"
    if view.misses_wal:
        return "stale: the WAL has changes that nobody has read yet"
    if view.stale_below:
        return f"stale: it reads {_and(view.stale_below)} stale"
    if view.time_dependent or view.clock_moved:
        return "as of its last refresh: its content changes with time"
    return "the last refresh failed" if view.error else "up to date"


def _and(names: Sequence[str]) -> str:
    """Return names with commas between them, and the verb of a relative clause."""
    return f"{', '.join(names)}, which {'is' if len(names) == 1 else 'are'}"


def _keeps_too_much(view: ViewInfo) -> str:
    what = {
        "warn": "refresh the view, or run idivm serve",
        "refresh": "the next refresh of any view also refreshes this view",
        "rebuild": "its change logs will be discarded, and its next refresh recomputes it",
    }
    return (
        f"it holds {size(view.log_kept)} of change logs, more than its log_limit of"
        f" {size(view.log_limit)}; {what[view.on_log_limit]}"
    )


def _last_refresh(view: ViewInfo) -> str:
    if not view.refreshes:
        return f"none since it was created {ago(view.created_at)}"
    rows = "row" if view.changed == 1 else "rows"
    took = f"{view.changed:,} {rows} in {view.seconds * 1000:,.1f} ms"
    return f"{ago(view.refreshed_at)}, {took}{', recomputed' if view.recomputed else ''}"
