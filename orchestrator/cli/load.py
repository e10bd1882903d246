"""The command `idivm load`: arguments, progress and summary."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psycopg

from orchestrator.cli.signals import stop_at_signals
from orchestrator.errors import IdivmError, ServerError, UsageError


def add_arguments(sub: argparse.ArgumentParser) -> None:
    """Add the arguments of `idivm load`."""
    sub.add_argument(
        "sources",
        nargs="+",
        metavar="SOURCE",
        help="files, folders, a JDBC URL, or a load file (.toml)",
    )
    sub.add_argument("--into", metavar="TABLE", help="table to load")
    sub.add_argument(
        "--create", action="store_true", help="create the table from the columns of the source"
    )
    sub.add_argument(
        "--add-columns", action="store_true", help="add the columns that only the source has"
    )
    sub.add_argument(
        "--mode", choices=("append", "replace", "upsert", "add"), help="default: append"
    )
    sub.add_argument(
        "--key",
        metavar="COLUMNS",
        help="key columns for --mode upsert and add, or primary key for --create",
    )
    sub.add_argument(
        "--op",
        metavar="COLUMN",
        help="column of the source that says insert, update or delete (or i, u, d); with --mode upsert or add",
    )
    sub.add_argument(
        "--order",
        metavar="COLUMN",
        help="column of the source that orders the changes of a row; with --mode upsert",
    )
    sub.add_argument(
        "--format",
        metavar="NAME",
        help="auto, csv, json, parquet, orc or jdbc (default: auto); with --stream, any streaming source of Spark",
    )
    sub.add_argument(
        "--options",
        action="append",
        default=[],
        metavar="K=V",
        help="option of the reader of the source",
    )
    sub.add_argument("--where", metavar="CONDITION", help="load only these rows (Spark SQL)")
    sub.add_argument(
        "--select", metavar="LIST", help="load these expressions instead of the columns (Spark SQL)"
    )
    sub.add_argument("--partitions", type=int, metavar="N", help="approximate number of tasks")
    _add_spark(sub)
    sub.add_argument(
        "--views",
        choices=("auto", "refresh", "rebuild", "leave"),
        default="auto",
        help="how to update maintained views that read the tables (default: auto, by cost)",
    )
    sub.add_argument(
        "--on-bad-row",
        choices=("stop", "quarantine"),
        help="stop and change nothing (default), or write bad rows to idivm.rejected_rows",
    )
    sub.add_argument(
        "--max-bad-rows", type=int, metavar="N", help="stop if a partition has more bad rows"
    )
    sub.add_argument(
        "--stream", action="store_true", help="load what arrives, in batches, until stopped"
    )
    sub.add_argument(
        "--name",
        help="name of the stream, which continues after its last batch (default: TABLE from SOURCE)",
    )
    _add_pace(sub)
    sub.add_argument(
        "--resume", action="store_true", help="continue an interrupted run of the same command"
    )
    sub.add_argument(
        "--again",
        action="store_true",
        help="append or add even if the same command has loaded the same files before",
    )


def add_stream_arguments(sub: argparse.ArgumentParser) -> None:
    """Add the arguments of `idivm stream run`."""
    sub.add_argument("name", metavar="STREAM")
    _add_spark(sub)
    _add_pace(sub)


def _add_spark(sub: argparse.ArgumentParser) -> None:
    sub.add_argument(
        "--master",
        metavar="URL",
        help="Spark master (default: $IDIVM_SPARK_MASTER, then all cores of this machine)",
    )
    sub.add_argument("--config", action="append", default=[], metavar="K=V", help="Spark setting")


def _add_pace(sub: argparse.ArgumentParser) -> None:
    sub.add_argument(
        "--interval",
        default="1s",
        help="time between two looks at the source of a stream (default: 1s)",
    )
    sub.add_argument(
        "--max-files",
        type=int,
        default=1000,
        metavar="N",
        help="most files in a batch (default: 1000)",
    )
    sub.add_argument(
        "--once", action="store_true", help="end a stream when all that has arrived is loaded"
    )


def pairs(option: str, values: Sequence[str]) -> dict[str, str]:
    """Return the values of an option that is given as NAME=VALUE several times."""
    split = [value.partition("=") for value in values]
    for name, sign, _ in split:
        if not name or not sign:
            raise UsageError(f"{option} takes NAME=VALUE, not {name or '='}.")
    return {name: value for name, _, value in split}


class _Doubtful(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise UsageError(message)


_TYPED = ("parquet", "orc", "json", "jsonl", "ndjson")


def expects_spark(arguments: Sequence[str]) -> bool:
    """Return whether arguments of `idivm` certainly mean a load that starts Spark on this machine for seconds.

    It is asked before the modules of a load are imported, which takes as long as the start of Java.
    """
    if list(arguments[:1]) != ["load"]:
        return False
    from orchestrator.spark.local_files import is_small
    from orchestrator.spark.settings import default_master, is_local

    parser = _Doubtful(add_help=False)
    parser.add_argument("--dsn")
    parser.add_argument("--json", action="store_true")
    add_arguments(parser)
    try:
        options = parser.parse_args(arguments[1:])
    except UsageError:
        return False
    suffixes = {Path(source).suffix[1:] for source in options.sources}
    typed = options.format in _TYPED or suffixes <= {*_TYPED}
    return (
        options.into is not None
        and not (options.stream or options.config or options.views == "rebuild")
        and is_local(options.master or default_master())
        and bool(typed or options.where or options.select)
        and is_small(options.sources)
    )


def load(options: argparse.Namespace) -> int:
    """Run `idivm load`."""
    from orchestrator.api import LoadOptions, StreamOptions, connect

    say = _progress(options.json)
    is_job = options.into is None and [Path(source).suffix for source in options.sources] == [
        ".toml"
    ]
    if options.into is None and not is_job:
        raise UsageError("Name the table with --into, or give a single load file (.toml).")
    if options.stream:
        if is_job or options.create or options.add_columns or options.partitions:
            raise UsageError(
                "A stream loads a single table that exists, without --create, --add-columns and --partitions: "
                "give SOURCE and --into."
            )
        if options.resume or options.again:
            raise UsageError(
                "A stream always continues after its last batch: omit --resume and --again."
            )
        given = _given(options, StreamOptions, say)

        def load_stream(orchestrator: Any, **further: Any) -> None:
            orchestrator.load_stream(options.sources, options.into, **further, **given)

        return _stream(options, load_stream, say)
    if options.once or options.name:
        raise UsageError("--once and --name belong to a stream: add --stream, or omit them.")
    given = _given(options, LoadOptions, say)
    source = Path(options.sources[0]) if is_job else options.sources
    with connect(options.dsn) as orchestrator:
        report = orchestrator.load(source, options.into, **given)
    say("")
    if options.json:
        value = {**dataclasses.asdict(report), "seconds": report.seconds}
        print(json.dumps(value, indent=2, default=str, ensure_ascii=False))
    else:
        _summary(report)
    return 0


def _of_rows(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options of sources, which only a load has."""
    if "options" not in options:
        return {}
    return {
        "key": [name.strip() for name in options.key.split(",")] if options.key else [],
        "options": pairs("--options", options.options),
    }


def _given(options: argparse.Namespace, kind: type, say: Callable[..., None]) -> dict[str, Any]:
    """Return the options of a load or a stream as keywords."""
    values = {
        **vars(options),
        **_of_rows(options),
        "config": pairs("--config", options.config),
        "most_files": options.max_files,
        "say": say,
    }
    return {name: values[name] for name in kind.__annotations__ if name in values}


_ATTEMPTS = 5
"""How often a stream starts again, without a batch in between, after Spark has failed."""


def run_stream(options: argparse.Namespace) -> int:
    """Run `idivm stream run`."""
    from orchestrator.api import RunStreamOptions

    say = _progress(options.json)
    given = _given(options, RunStreamOptions, say)

    def run(orchestrator: Any, **further: Any) -> None:
        orchestrator.run_stream(options.name, **further, **given)

    return _stream(options, run, say)


def _stream(
    options: argparse.Namespace, load_batches: Callable[..., None], say: Callable[..., None]
) -> int:
    """Load batches until a signal ends that; start again if the server or Java goes away."""
    from orchestrator.api import connect

    stop, failures, batches = stop_at_signals(), 0, 0

    def print_batch(batch: Any) -> None:
        nonlocal failures, batches
        failures, batches = 0, batches + 1
        say("")
        if options.json:
            value = {
                **dataclasses.asdict(batch.report),
                "stream": batch.stream,
                "batch": batch.number,
                "files": batch.files,
                "waiting": batch.waiting,
            }
            print(json.dumps(value, default=str, ensure_ascii=False), flush=True)
        else:
            _print_batch(batch)

    def run() -> Exception | None:
        """Run the stream; return an error after which it can start again."""
        with connect(options.dsn) as orchestrator:
            try:
                load_batches(orchestrator, on_batch=print_batch, stop=stop)
            except (IdivmError, psycopg.Error) as error:
                ended = orchestrator.ended_by(error)
                if ended == "server" or (ended == "spark" and batches and failures < _ATTEMPTS):
                    return error
                raise
        return None

    while not stop.is_set():
        try:
            failed = run()
        except (IdivmError, psycopg.OperationalError) as error:
            # The server may still be starting.
            if not failures or not isinstance(error, (psycopg.OperationalError, ServerError)):
                raise
            failed = error
        if failed is None:
            break
        failures += 1
        say(f"idivm: {failed} The stream starts again.", True)
        stop.wait(min(30.0, 0.1 * 2**failures))
    return 0


def _print_batch(batch: Any) -> None:
    if not batch.report.tables:
        print(
            f"batch {batch.number}: {batch.files:,} files are known ({batch.report.views})",
            flush=True,
        )
        return
    table = batch.report.tables[0]
    counts = [
        f"{batch.files:,} files" if batch.files else "",
        f"{table.read:,} rows read",
        f"{table.loaded:,} loaded",
        f"{table.removed:,} removed" if table.removed else "",
        f"{table.rejected:,} rejected" if table.rejected else "",
    ]
    waiting = f"; {batch.waiting:,} files wait" if batch.waiting else ""
    listed = ", ".join(filter(None, counts))
    print(f"batch {batch.number}: {listed} in {batch.report.seconds:.1f} s{waiting}", flush=True)


def _summary(report: Any) -> None:
    for table in report.tables:
        if table.again:
            print(f"{table.table}: already loaded by load {table.load}; nothing to do")
            continue
        removed = f", {table.removed:,} removed" if table.removed else ""
        print(
            f"{table.table}: {table.read:,} rows read, {table.loaded:,} loaded{removed}, "
            f"{table.rejected:,} rejected (load {table.load}, {table.mode})"
        )
        for row in table.rejected_rows:
            print(f"  rejected  {row}")
        if table.rejected > len(table.rejected_rows):
            print(f"  and more; idivm.rejected_rows has all of them, with load = {table.load}")
    print(report.views)
    for name, changed in report.refreshed:
        print(f"  {name}: {changed:,} rows changed")
    stages = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in report.stages.items())
    print(f"{report.seconds:.1f} s ({stages})")


def _progress(as_json: bool) -> Callable[..., None]:
    """Return a printer that writes permanent lines always, and temporary lines only to a terminal."""
    terminal = sys.stderr.isatty()

    def say(text: str, stays: bool = False) -> None:
        if terminal:
            end = "\n" if stays else ""
            print(f"\r\x1b[K{text}", end=end, file=sys.stderr, flush=True)
        elif stays and not as_json:
            print(text, file=sys.stderr, flush=True)

    return say
