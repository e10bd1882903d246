"""Connect for commands, and print their results."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from orchestrator.api import Orchestrator, StatementResult, connect, named_dsn
from orchestrator.catalog import DroppedView
from orchestrator.cli.streams import is_unicode
from orchestrator.errors import UsageError
from orchestrator.runtime.serve import Event

STARTING = ("sql", "up")
"""The commands that start the embedded server."""


def open_orchestrator(options: argparse.Namespace) -> Orchestrator:
    """Connect to the database that the options or the environment name, or else to the embedded server."""
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


def print_dropped(dropped: Iterable[DroppedView]) -> None:
    """Print on standard error which views DROP ... CASCADE removed."""
    for view in dropped:
        print(
            f"warning: {view.cause} also dropped the maintained view {view.name}; run idivm restore"
            f" {view.name} to recreate it, or idivm drop {view.name} to remove it for good",
            file=sys.stderr,
        )


def print_result(result: StatementResult) -> None:
    """Print the rows of a statement, or its message."""
    if result.columns:
        rows = [tuple("" if value is None else str(value) for value in row) for row in result.rows]
        print_table(result.columns, rows)
        print(f"({len(rows)} row{'' if len(rows) == 1 else 's'})")
    else:
        print(result.message)


_LEVELS = {"failed": "error", "disconnected": "warning", "standing by": "warning"}
"""The log levels of the events of `serve`; all other events have the level `info`."""


def print_log(event: str, **facts: object) -> None:
    """Print an event as a line of a structured log."""
    moment = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    line = {"time": moment, "level": _LEVELS.get(event, "info"), "event": event, **facts}
    print(json.dumps(line, ensure_ascii=not is_unicode(sys.stdout)), flush=True)


def print_event(event: Event, options: argparse.Namespace) -> None:
    """Print an event of `idivm serve`."""
    facts = {k: v for k, v in dataclasses.asdict(event).items() if v is not None}
    if options.log_format == "json":
        print_log(**facts)
    elif options.json:
        print(json.dumps(facts, ensure_ascii=not is_unicode(sys.stdout)), flush=True)
    elif event.event == "refreshed":
        took = (event.seconds or 0) * 1000
        print(f"{event.view}: {event.changed:,} rows in {took:,.1f} ms", flush=True)
    else:
        print(
            ": ".join(str(facts[k]) for k in ("event", "view", "message") if k in facts), flush=True
        )


def print_table(
    names: Sequence[str],
    rows: Iterable[Sequence[str]],
    right: frozenset[int] | set[int] = frozenset(),
) -> None:
    """Print rows below the names of their columns."""
    rows = list(rows)
    console = Console(width=None if sys.stdout.isatty() else 10_000)
    lines = None if console.options.ascii_only else unfolded(names, rows, right, console.width)
    if lines is not None:
        console.print(*lines[:1], Text(lines[1], style="bold"), sep="\n", soft_wrap=True)
        print("\n".join(lines[2:]))
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, name in enumerate(names):
        table.add_column(
            Text(name), justify="right" if number in right else "left", overflow="fold"
        )
    for row in rows:
        table.add_row(*(Text(value) for value in row))
    console.print(table)


def unfolded(
    names: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: frozenset[int] | set[int],
    width: int,
) -> list[str] | None:
    """Return the lines of a table as rich prints it, or None if a value needs several lines.

    For thousands of rows, rich takes a second.

    >>> unfolded(("a", "bb"), [("x", "1")], {1}, 80)
    ['        ', ' a   bb ', ' ────── ', ' x    1 ', '        ']
    >>> unfolded(("a",), [("two\\nlines",)], set(), 80) is unfolded(("a",), [("long",)], set(), 4)
    True
    """
    columns = list(zip(names, *rows, strict=True))
    if not columns or not all(value.isprintable() for column in columns for value in column):
        return None
    widths = [max(map(cell_len, column)) for column in columns]
    inner = sum(widths) + 3 * (len(widths) - 1)
    if not all(widths) or inner + 2 > width:
        return None
    padded = [
        [
            " " * (size - cell_len(text)) + text
            if number in right
            else text + " " * (size - cell_len(text))
            for text in (map(str.rstrip, column) if number in right else column)
        ]
        for number, (column, size) in enumerate(zip(columns, widths, strict=True))
    ]
    head, *body = (f" {'   '.join(row)} " for row in zip(*padded, strict=True))
    blank = " " * (inner + 2)
    return [blank, head, f" {'─' * inner} ", *body, blank]


def print_json(value: object) -> None:
    """Print a value as JSON."""
    print(json.dumps(value, indent=2, default=str, ensure_ascii=not is_unicode(sys.stdout)))


def print_done(options: argparse.Namespace, sentence: str, **facts: object) -> None:
    """Print that a command has finished, with facts for programs."""
    if options.json:
        print_json({"message": sentence, **facts})
    else:
        print(sentence)


def ago(moment: datetime | None) -> str:
    """Return how long ago a moment was, in words."""
    if moment is None:
        return "never"
    seconds = (datetime.now(timezone.utc) - moment).total_seconds()
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            number = int(seconds // length)
            return f"{number} {unit}{'s' if number > 1 else ''} ago"
    return f"{max(seconds, 0):.0f} s ago"


def size(number: float) -> str:
    """Return a number of bytes in words."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if number < 10240 or unit == "GB":
            break
        number /= 1024
    return f"{number:,.0f} {unit}"
