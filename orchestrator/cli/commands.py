"""The commands of the command line: each function calls the Python interface and prints the result."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

from orchestrator.api import StatementResult, accelerate, connect
from orchestrator.cli import load
from orchestrator.cli.output import (
    open_orchestrator,
    print_done,
    print_dropped,
    print_event,
    print_json,
    print_log,
    print_result,
    print_table,
)
from orchestrator.cli.overview import summary
from orchestrator.cli.pictures import print_picture
from orchestrator.cli.signals import stop_at_signals
from orchestrator.cli.streams import is_unicode
from orchestrator.drawing import text
from orchestrator.errors import NotFoundError, UsageError
from orchestrator.runtime.refresh import RefreshError


def sql(options: argparse.Namespace) -> int:
    """Run `idivm sql`."""
    if options.text is None and options.file is None and _is_interactive():
        return _shell(options)
    script = _script_of(options)
    with open_orchestrator(options) as orchestrator:
        results: list[StatementResult] = []
        for result in orchestrator.run(script):
            results.append(result)
            if not options.json:
                print_result(result)
    if options.json:
        print_json([dataclasses.asdict(result) for result in results])
    return 0


def _is_interactive() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and find_spec("prompt_toolkit") is not None


def _shell(options: argparse.Namespace) -> int:
    from orchestrator.cli.shell import Shell

    with open_orchestrator(options) as orchestrator:
        Shell(orchestrator, print_result).loop()
    return 0


def refresh(options: argparse.Namespace) -> int:
    """Run `idivm refresh`."""
    failed: RefreshError | None = None
    with open_orchestrator(options) as orchestrator:
        try:
            reports = orchestrator.refresh(*options.views, jobs=options.jobs)
        except RefreshError as error:
            failed, reports = error, error.reports
        dropped = orchestrator.dropped_views()
    print_dropped(dropped)
    if options.json:
        print_json([dataclasses.asdict(report) for report in reports])
    else:
        rows = [
            (
                r.view,
                "failed" if r.error else f"{r.changed:,}",
                f"waits for its gate: {r.waits_for}"
                if r.waits_for
                else f"{r.seconds * 1000:,.1f} ms{', recomputed' if r.recomputed else ''}",
            )
            for r in reports
        ]
        print_table(("view", "rows changed", "took"), rows, right={1, 2})
    if failed is None:
        return 0
    if not options.json:
        print(f"idivm: {failed}", file=sys.stderr)
    return failed.exit_status


def explain(options: argparse.Namespace) -> int:
    """Run `idivm explain`."""
    if (options.view is None) == (options.query is None):
        raise UsageError("Name a view, or give a query with --query.")
    with open_orchestrator(options) as orchestrator:
        explanation = (
            orchestrator.explain(options.view)
            if options.view is not None
            else orchestrator.explain_query(options.query)
        )
    if options.format is not None:
        print_picture(explanation, options)
        return 0
    if options.json:
        print_json(explanation.to_json())
        return 0
    wanted = [name for name in ("plan", "why", "script", "sql") if getattr(options, name)]
    if options.sql and options.script:
        wanted.remove("script")
    print(f"{explanation.view}: strategy {explanation.strategy}, {explanation.maintain}")
    for name in wanted or (() if options.tree else ("plan", "why")):
        print(f"\n{getattr(explanation, name)}")
    if options.tree:
        print(f"\n{text(explanation.graphs['tree'])}")
    return 0


def check(options: argparse.Namespace) -> int:
    """Run `idivm check`."""
    with open_orchestrator(options) as orchestrator:
        reports = orchestrator.check(*options.views)
    if options.json:
        print_json([dataclasses.asdict(report) for report in reports])
    else:
        for report in reports:
            if report.error:
                print(f"{report.view}: NOT COMPARED, {report.error}")
                continue
            outcome = (
                "equal"
                if report.equal
                else f"DIFFERENT, {report.missing:,} missing rows, {report.surplus:,} surplus rows"
            )
            print(f"{report.view}: {outcome}")
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
    for item in options.prefix:
        column, sign, value = item.partition("=")
        if not sign:
            raise UsageError(f"{item!r} has no value; write --with COLUMN=VALUE.")
        prefix[column] = value
    with open_orchestrator(options) as orchestrator:
        for row in islice(orchestrator.enumerate(options.view, prefix), options.limit):
            if options.json:
                print(json.dumps(row, default=str, ensure_ascii=not is_unicode(sys.stdout)))
            else:
                print("\t".join("" if value is None else str(value) for value in row))
    return 0


def drop(options: argparse.Namespace) -> int:
    """Run `idivm drop`."""
    with open_orchestrator(options) as orchestrator:
        orchestrator.drop_view(options.view, cascade=options.cascade, if_exists=options.if_exists)
    print_done(options, f"Dropped {options.view}.")
    return 0


def restore(options: argparse.Namespace) -> int:
    """Run `idivm restore`."""
    with open_orchestrator(options) as orchestrator:
        views = orchestrator.restore(*options.views)
    if options.json:
        print_json([summary(view) for view in views])
    else:
        for view in views:
            print(f"Restored {view.name}.")
        if not views:
            print("There is nothing to restore: DROP ... CASCADE removed no maintained view.")
    return 0


def init(options: argparse.Namespace) -> int:
    """Run `idivm init`."""
    with open_orchestrator(options) as orchestrator:
        name = orchestrator.connection.info.dbname
    print_done(
        options,
        f"The database {name} is ready: SELECT idivm.create_view('name', 'query') works in any client.",
        database=name,
    )
    return 0


def plan(options: argparse.Namespace) -> int:
    """Run `idivm plan`."""
    with open_orchestrator(options) as orchestrator:
        reports = orchestrator.plan(*options.views)
    if options.json:
        print_json([dataclasses.asdict(report) for report in reports])
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
    with open_orchestrator(options) as orchestrator:
        reports = orchestrator.adopt(
            *options.views, dry_run=options.dry_run, jobs=options.jobs, **given
        )
    if options.json:
        print_json([dataclasses.asdict(report) for report in reports])
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
    with open_orchestrator(options) as orchestrator:
        orchestrator.release(options.view)
    print_done(options, f"{options.view} is a materialized view.", view=options.view)
    return 0


def serve(options: argparse.Namespace) -> int:
    """Run `idivm serve`."""
    with open_orchestrator(options) as orchestrator:
        if options.log_format == "json":
            orchestrator.on_notice = lambda text: print_log("notice", message=text)
        orchestrator.serve(
            options.interval,
            metrics=options.metrics,
            console=options.console,
            traces=options.traces,
            workers=options.workers,
            stop=stop_at_signals(),
            report=lambda event: print_event(event, options),
        )
    return 0


def console(options: argparse.Namespace) -> int:
    """Run `idivm console`."""
    with open_orchestrator(options) as orchestrator:
        orchestrator.console(
            options.listen,
            allow_refresh=options.allow_refresh,
            stop=stop_at_signals(),
            report=lambda event: print_done(options, str(event.message), url=event.message),
        )
    return 0


def top(options: argparse.Namespace) -> int:
    """Run `idivm top`."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "idivm top needs a terminal; idivm status --json prints the same facts once."
        )
    with open_orchestrator(options) as orchestrator:
        orchestrator.top()
    return 0


def up(options: argparse.Namespace) -> int:
    """Run `idivm up`."""
    from orchestrator.server import embedded

    server = embedded.EmbeddedServer()
    if options.accelerate:
        accelerate(server)
    endpoint = server.up()
    # Connecting installs the catalog, so that SQL alone can create views.
    connect(endpoint.dsn).close()
    print_done(options, endpoint.dsn, dsn=endpoint.dsn)
    return 0


def demo(options: argparse.Namespace) -> int:
    """Run `idivm demo`."""
    from orchestrator.demo import main

    return main()


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
    print_done(
        options,
        "Stopped the embedded server." if stopped else "The embedded server was not running.",
        stopped=stopped,
    )
    return 0


def doctor(options: argparse.Namespace) -> int:
    """Run `idivm doctor`."""
    if options.max_lag is not None and not options.health:
        raise UsageError("--max-lag needs --health.")
    with open_orchestrator(options) as orchestrator:
        findings = (
            orchestrator.health(options.max_lag)
            if options.health
            else orchestrator.doctor(contents=not options.quick)
        )
    if options.json:
        print_json([dataclasses.asdict(finding) for finding in findings])
    else:
        for finding in findings:
            mark = "ok   " if finding.fine else "fixed" if finding.mended else "WRONG"
            print(f"{mark} {finding.subject}: {finding.sentence}")
    return 0 if all(finding.fine for finding in findings) else 1


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


def stream(options: argparse.Namespace) -> int:
    """Run `idivm stream`."""
    if options.action == "run":
        return load.run_stream(options)
    with open_orchestrator(options) as orchestrator:
        if options.action == "create":
            orchestrator.create_stream(
                options.name,
                options.columns,
                *options.paths,
                format=options.format,
                options=load.pairs("--options", options.options),
                op=options.op,
                where=options.where,
                select=options.select,
            )
            print_done(options, f"CREATE STREAM {options.name}")
            return 0
        if options.action == "drop":
            orchestrator.drop_stream(options.name)
            print_done(options, f"DROP STREAM {options.name}; its files stay.")
            return 0
        if options.action == "remove":
            orchestrator.remove_stream(options.name)
            print_done(options, f"The stream {options.name} is removed; its rows stay.")
            return 0
        streams = orchestrator.streams()
    if options.json:
        print_json([dataclasses.asdict(item) for item in streams])
    elif not streams:
        print("There are no streams; idivm load --stream begins one.")
    else:
        titles = ("stream", "table", "state", "batch", "files", "rows", "last batch")
        rows = [
            (
                *(item.name, item.table, "running" if item.running else "stopped"),
                *(str(item.batch), f"{item.files:,}", f"{item.rows:,}"),
                f"{item.loaded_at:%Y-%m-%d %H:%M:%S}" if item.loaded_at else "",
            )
            for item in streams
        ]
        print_table(titles, rows)
    return 0
