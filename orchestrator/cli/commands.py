"""One function for each command; it calls the Python interface and prints the result."""

from __future__ import annotations

import argparse
import dataclasses
import json
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timezone
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from orchestrator.api import Orchestrator, StatementResult, accelerate, connect, named_dsn
from orchestrator.catalog import DroppedView, ViewInfo
from orchestrator.catalog.parts import Parts
from orchestrator.catalog.unplanned import UnplannedView
from orchestrator.cli.streams import is_unicode
from orchestrator.errors import NotFoundError, UsageError
from orchestrator.runtime.refresh import RefreshError
from orchestrator.runtime.serve import Event


def sql(options: argparse.Namespace) -> int:
    """Run `idivm sql`."""
    if options.text is None and options.file is None and _is_interactive():
        return _shell(options)
    script = _script_of(options)
    with _open(options) as orchestrator:
        results: list[StatementResult] = []
        for result in orchestrator.run(script):
            results.append(result)
            if not options.json:
                _print_result(result)
    if options.json:
        _print_json([dataclasses.asdict(result) for result in results])
    return 0


def _is_interactive() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and find_spec("prompt_toolkit") is not None


def _shell(options: argparse.Namespace) -> int:
    from orchestrator.cli.shell import Shell

    with _open(options) as orchestrator:
        Shell(orchestrator, _print_result).loop()
    return 0


def refresh(options: argparse.Namespace) -> int:
    """Run `idivm refresh`."""
    failed: RefreshError | None = None
    with _open(options) as orchestrator:
        try:
            reports = orchestrator.refresh(*options.views)
        except RefreshError as error:
            failed, reports = error, error.reports
        dropped = orchestrator.dropped_views()
    _print_dropped(dropped)
    if options.json:
        _print_json([dataclasses.asdict(report) for report in reports])
    else:
        rows = [
            (
                r.view,
                "failed" if r.error else f"{r.changed:,}",
                f"{r.seconds * 1000:,.1f} ms{', recomputed' if r.recomputed else ''}",
            )
            for r in reports
        ]
        _print_table(("view", "rows changed", "took"), rows, right={1, 2})
    if failed is None:
        return 0
    if not options.json:
        print(f"idivm: {failed}", file=sys.stderr)
    return failed.exit_status


def list_views(options: argparse.Namespace) -> int:
    """Run `idivm list`."""
    with _open(options) as orchestrator:
        views = orchestrator.views()
        waiting = orchestrator.unplanned_views()
        dropped = orchestrator.dropped_views()
    _print_dropped(dropped)
    if options.json:
        _print_json([*map(_summary, views), *map(_unplanned_summary, waiting)])
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
                _ago(v.refreshed_at),
                ", ".join(v.sources),
            )
            for v in views
        ]
        rows += [
            (v.relation, "not planned", v.options.get("maintain", "deferred"), "", "", "")
            for v in waiting
        ]
        _print_table(
            ("view", "strategy", "maintain", "pending", "refreshed", "reads"), rows, right={3}
        )
        for view in views:
            if view.trouble:
                print(f"{view.name}: {_behind(view)}")
            if view.error:
                print(f"{view.name}: the last refresh failed {_ago(view.failed_at)}: {view.error}")
        for unplanned in waiting:
            reason = unplanned.refusal and f", as it could not be planned: {unplanned.refusal}"
            print(f"{unplanned.relation}: every read computes its query{reason or ''}")
    return 0


def _print_dropped(dropped: Iterable[DroppedView]) -> None:
    for view in dropped:
        print(
            f"warning: {view.cause} also dropped the maintained view {view.name}; run idivm restore"
            f" {view.name} to recreate it, or idivm drop {view.name} to remove it for good",
            file=sys.stderr,
        )


def status(options: argparse.Namespace) -> int:
    """Run `idivm status`."""
    with _open(options) as orchestrator:
        views = [orchestrator.view(options.view)] if options.view else orchestrator.views()
        parts = {view.id: orchestrator.parts(view) for view in views}
        missing = {view.id: orchestrator.missing_indexes(view) for view in views}
    if options.json:
        _print_json(
            [
                _summary(view)
                | {"missing_indexes": [dataclasses.asdict(one) for one in missing[view.id]]}
                | _parts_summary(parts[view.id])
                for view in views
            ]
        )
        return 0
    for view in views:
        mean = view.total_seconds / view.refreshes * 1000 if view.refreshes else 0.0
        facts = [
            (
                "state",
                _behind(view)
                if view.status == "invalid" or view.pending or view.trouble or view.error
                else "up to date",
            ),
            ("strategy", f"{view.strategy}, {view.maintain}"),
            ("reads", ", ".join(view.sources) or "no table"),
            ("pending changes", f"{view.pending:,}"),
            ("last refresh", _last_refresh(view)),
            ("refreshes", f"{view.refreshes:,}, {mean:,.1f} ms on average"),
            ("rows", f"about {view.rows:,}"),
            ("size", f"{_size(view.bytes)} of content, {_size(view.log_bytes)} of change logs"),
        ]
        facts += _parts_facts(parts[view.id])
        facts += [("missing index", str(index)) for index in missing[view.id]]
        if view.error:
            facts.append(("last error", f"{view.error} ({view.sqlstate}, {_ago(view.failed_at)})"))
        if view.log_kept > view.log_limit:
            facts.append(("WARNING", _keeps_too_much(view)))
        print(view.name)
        for name, value in facts:
            print(f"  {name + ':':17}{value}")
    if not views:
        print("There are no maintained views yet.")
    return 0


def explain(options: argparse.Namespace) -> int:
    """Run `idivm explain`."""
    if (options.view is None) == (options.query is None):
        raise UsageError("Name a view, or give a query with --query.")
    with _open(options) as orchestrator:
        explanation = (
            orchestrator.explain(options.view)
            if options.view is not None
            else orchestrator.explain_query(options.query)
        )
    if options.json:
        _print_json(explanation.to_json())
        return 0
    wanted = [name for name in ("plan", "why", "script", "sql") if getattr(options, name)]
    if options.sql and options.script:
        wanted.remove("script")
    print(f"{explanation.view}: strategy {explanation.strategy}, {explanation.maintain}")
    for name in wanted or ("plan", "why"):
        print(f"\n{getattr(explanation, name)}")
    return 0


def check(options: argparse.Namespace) -> int:
    """Run `idivm check`."""
    with _open(options) as orchestrator:
        reports = orchestrator.check(*options.views)
    if options.json:
        _print_json([dataclasses.asdict(report) for report in reports])
    else:
        for report in reports:
            if report.error:
                print(f"{report.view}: NOT REFRESHED, {report.error}")
                continue
            found = (
                "equal"
                if report.equal
                else f"DIFFERENT, {report.missing:,} missing rows, {report.surplus:,} surplus rows"
            )
            print(f"{report.view}: {found}")
            for note in report.notes:
                print(f"  {note}")
            for sign, rows in (
                ("missing", report.missing_rows),
                ("surplus", report.surplus_rows),
            ):
                for row in rows:
                    print(f"  {sign}  {row}")
    return 0 if all(report.equal for report in reports) else 1


def enumerate_rows(options: argparse.Namespace) -> int:
    """Run `idivm enumerate`."""
    prefix = {}
    for one in options.prefix:
        column, sign, value = one.partition("=")
        if not sign:
            raise UsageError(f"{one!r} has no value; write --with COLUMN=VALUE.")
        prefix[column] = value
    with _open(options) as orchestrator:
        for row in islice(orchestrator.enumerate(options.view, prefix), options.limit):
            if options.json:
                print(json.dumps(row, default=str, ensure_ascii=not is_unicode(sys.stdout)))
            else:
                print("\t".join("" if value is None else str(value) for value in row))
    return 0


def drop(options: argparse.Namespace) -> int:
    """Run `idivm drop`."""
    with _open(options) as orchestrator:
        orchestrator.drop_view(options.view, cascade=options.cascade, if_exists=options.if_exists)
    _print_done(options, f"Dropped {options.view}.")
    return 0


def restore(options: argparse.Namespace) -> int:
    """Run `idivm restore`."""
    with _open(options) as orchestrator:
        views = orchestrator.restore(*options.views)
    if options.json:
        _print_json([_summary(view) for view in views])
    else:
        for view in views:
            print(f"Restored {view.name}.")
        if not views:
            print("There is nothing to restore: DROP ... CASCADE removed no maintained view.")
    return 0


def init(options: argparse.Namespace) -> int:
    """`idivm init`."""
    with _open(options) as orchestrator:
        name = orchestrator.connection.info.dbname
    _print_done(
        options,
        f"The database {name} is ready: SELECT idivm.create_view('name', 'query') works in any client.",
        database=name,
    )
    return 0


def plan(options: argparse.Namespace) -> int:
    """`idivm plan`."""
    with _open(options) as orchestrator:
        reports = orchestrator.plan(*options.views)
    if options.json:
        _print_json([dataclasses.asdict(report) for report in reports])
    else:
        for report in reports:
            print(f"{report.view}: {report.refusal or f'strategy {report.strategy}'}")
        if not reports:
            print("No view waits to be planned.")
    return 1 if any(report.refusal for report in reports) else 0


def adopt(options: argparse.Namespace) -> int:
    """Run `idivm adopt`."""
    if bool(options.views) == options.all:
        raise UsageError("Name the materialized views to adopt, or use --all.")
    given = {} if options.maintain is None else {"maintain": options.maintain}
    with _open(options) as orchestrator:
        reports = orchestrator.adopt(*options.views, dry_run=options.dry_run, **given)
    if options.json:
        _print_json([dataclasses.asdict(report) for report in reports])
    else:
        for report in reports:
            if report.refusal is not None:
                print(f"{report.view}: stays as it is: {report.refusal}")
                continue
            print(f"{report.view}: strategy {report.strategy}: {report.cost}")
            for lost in report.lost:
                print(f"{report.view}: without {lost}")
        if not reports:
            print("There is no materialized view of yours.")
    return 1 if any(report.refusal for report in reports) else 0


def release(options: argparse.Namespace) -> int:
    """Run `idivm release`."""
    with _open(options) as orchestrator:
        orchestrator.release(options.view)
    _print_done(options, f"{options.view} is a materialized view.", view=options.view)
    return 0


def serve(options: argparse.Namespace) -> int:
    """Run `idivm serve`."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with _open(options) as orchestrator:
        orchestrator.serve(
            options.interval, stop=stop, report=lambda event: _print_event(event, options.json)
        )
    return 0


def up(options: argparse.Namespace) -> int:
    """Run `idivm up`."""
    from orchestrator.server import embedded

    server = embedded.EmbeddedServer()
    if options.accelerate:
        accelerate(server)
    endpoint = server.up()
    _print_done(options, endpoint.dsn, dsn=endpoint.dsn)
    return 0


def demo(options: argparse.Namespace) -> int:
    """Run `idivm demo`."""
    from orchestrator import demo

    return demo.main()


def completion(options: argparse.Namespace) -> int:
    """Run `idivm completion`."""
    from orchestrator.cli.completion import script
    from orchestrator.cli.main import build_parser

    print(script(build_parser(), options.shell), end="")
    return 0


def down(options: argparse.Namespace) -> int:
    """Run `idivm down`."""
    from orchestrator.server import embedded

    stopped = embedded.EmbeddedServer().down()
    _print_done(
        options,
        "Stopped the embedded server." if stopped else "The embedded server was not running.",
        stopped=stopped,
    )
    return 0


def doctor(options: argparse.Namespace) -> int:
    """Run `idivm doctor`."""
    with _open(options) as orchestrator:
        findings = orchestrator.doctor(contents=not options.quick)
    if options.json:
        _print_json([dataclasses.asdict(finding) for finding in findings])
    else:
        for finding in findings:
            mark = "ok   " if finding.fine else "fixed" if finding.mended else "WRONG"
            print(f"{mark} {finding.subject}: {finding.sentence}")
    return 0 if all(finding.fine for finding in findings) else 1


STARTING = ("sql", "up")
"""The commands that start the embedded server."""


def _open(options: argparse.Namespace) -> Orchestrator:
    from orchestrator.server import EmbeddedServer

    if options.dsn is None and not named_dsn() and options.verb not in STARTING:
        server = EmbeddedServer()
        if server.status().endpoint is None:
            raise UsageError(
                "No database is named, and the embedded server is not running. idivm up starts it; --dsn,"
                " IDIVM_DSN or DATABASE_URL names another database."
            )
    orchestrator = connect(options.dsn)
    orchestrator.on_notice = lambda text: print(f"notice: {text}", file=sys.stderr)
    return orchestrator


def _script_of(options: argparse.Namespace) -> str:
    if options.text is not None and options.file is not None:
        raise UsageError("Give the SQL with -c or as a file, not both.")
    if options.text is not None:
        return str(options.text)
    name = "standard input" if options.file in (None, "-") else options.file
    try:
        binary = sys.stdin.buffer.read() if name == "standard input" else Path(name).read_bytes()
    except OSError as error:
        raise NotFoundError(f"Cannot read {name}: {error.strerror}.") from error
    try:
        return binary.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = binary[: error.start].count(b"\n") + 1
        raise UsageError(f"{name} is not UTF-8 text (line {line}): save it as UTF-8.") from error


def _summary(view: ViewInfo) -> dict[str, Any]:
    value = dataclasses.asdict(view)
    for name in ("stored_plan", "settings", "oid", "id", "base"):
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
    at = {one.epsilon: one.threshold for one in parts.relations}
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
    for one in parts.relations:
        heaviest = ", ".join(f"{value} ({rows:,})" for value, rows in one.heaviest.items())
        yield (
            f"{one.relation} by {', '.join(one.on)}"
            + (f" at N^{one.epsilon}" if at.keys() > {one.epsilon} else ""),
            f"{one.heavy_values:,} heavy values with {one.heavy_rows:,} rows,"
            f" {one.light_values:,} light values with {one.light_rows:,} rows"
            + (f"; heaviest: {heaviest}" if heaviest else ""),
        )


def _behind(view: ViewInfo) -> str:
    if view.trouble:
        return f"invalid: {view.trouble}"
    if view.status == "invalid":
        return "the next refresh recomputes it"
    return f"stale by {view.pending:,} change{'' if view.pending == 1 else 's'}"


def _keeps_too_much(view: ViewInfo) -> str:
    what = {
        "warn": "refresh the view, or run idivm serve",
        "refresh": "the next refresh of any view also refreshes this view",
        "rebuild": "its change logs will be discarded, and its next refresh recomputes it",
    }
    return (
        f"it holds {_size(view.log_kept)} of change logs, more than its log_limit of"
        f" {_size(view.log_limit)}; {what[view.on_log_limit]}"
    )


def _last_refresh(view: ViewInfo) -> str:
    if not view.refreshes:
        return f"none since it was created {_ago(view.created_at)}"
    rows = "row" if view.changed == 1 else "rows"
    took = f"{view.changed:,} {rows} in {view.seconds * 1000:,.1f} ms"
    return f"{_ago(view.refreshed_at)}, {took}{', recomputed' if view.recomputed else ''}"


def _ago(moment: datetime | None) -> str:
    if moment is None:
        return "never"
    seconds = (datetime.now(timezone.utc) - moment).total_seconds()
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            number = int(seconds // length)
            return f"{number} {unit}{'s' if number > 1 else ''} ago"
    return f"{max(seconds, 0):.0f} s ago"


def _size(number: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if number < 10240 or unit == "GB":
            break
        number /= 1024
    return f"{number:,.0f} {unit}"


def _print_result(result: StatementResult) -> None:
    if result.columns:
        rows = [tuple("" if value is None else str(value) for value in row) for row in result.rows]
        _print_table(result.columns, rows)
        print(f"({len(rows)} row{'' if len(rows) == 1 else 's'})")
    else:
        print(result.message)


def _print_event(event: Event, as_json: bool) -> None:
    facts = {k: v for k, v in dataclasses.asdict(event).items() if v is not None}
    if as_json:
        print(json.dumps(facts, ensure_ascii=not is_unicode(sys.stdout)), flush=True)
    elif event.event == "refreshed":
        took = (event.seconds or 0) * 1000
        print(f"{event.view}: {event.changed:,} rows in {took:,.1f} ms", flush=True)
    else:
        print(
            ": ".join(str(facts[k]) for k in ("event", "view", "message") if k in facts), flush=True
        )


def _print_table(
    names: Sequence[str],
    rows: Iterable[Sequence[str]],
    right: frozenset[int] | set[int] = frozenset(),
) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, name in enumerate(names):
        table.add_column(
            Text(name), justify="right" if number in right else "left", overflow="fold"
        )
    for row in rows:
        table.add_row(*(Text(value) for value in row))
    width = None if sys.stdout.isatty() else 10_000
    Console(width=width).print(table)


def _print_json(value: object) -> None:
    print(json.dumps(value, indent=2, default=str, ensure_ascii=not is_unicode(sys.stdout)))


def _print_done(options: argparse.Namespace, sentence: str, **facts: object) -> None:
    if options.json:
        _print_json({"message": sentence, **facts})
    else:
        print(sentence)
