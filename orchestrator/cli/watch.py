"""`idivm watch`: the changes of a view in the terminal."""

from __future__ import annotations

import argparse
import dataclasses
import json
from typing import Any

from orchestrator.cli.output import open_orchestrator
from orchestrator.cli.signals import stop_at_signals
from orchestrator.runtime.feeds import Caught, Change

_SIGNS = {"snapshot": " ", "insert": "+", "delete": "-", "update": "~", "restart": "="}


def watch(options: argparse.Namespace) -> int:
    """Run `idivm watch`."""
    stop = stop_at_signals()
    with open_orchestrator(options) as orchestrator:
        for item in orchestrator.follow(
            options.view,
            options.since,
            snapshot=options.snapshot,
            consumer=options.consumer,
            live=not options.once,
            stop=stop,
        ):
            if isinstance(item, Caught):
                continue
            print(_as_json(item) if options.json else line(item), flush=True)
    return 0


def _as_json(change: Change) -> str:
    return json.dumps(
        {**dataclasses.asdict(change), "at": change.at.isoformat()}, ensure_ascii=False
    )


def line(change: Change) -> str:
    """Return a change as a line: its refresh, a sign, and the row; for an update what it changed.

    >>> from datetime import datetime
    >>> print(line(Change(7, 1, "update", datetime.now(), {"id": 1, "n": 2}, {"id": 1, "n": 3})))
    7 ~ id=1 n=2->3
    >>> print(line(Change(8, 2, "delete", datetime.now(), {"id": 1, "n": None}, None)))
    8 - id=1 n=null
    """
    if change.kind == "restart":
        columns = ", ".join(change.new) if change.new else "the rows"
        return f"{change.refresh} = begins again with {columns}"
    row = change.old if change.new is None else change.new
    fields = (f"{name}={_field(change, name, value)}" for name, value in row.items())
    return f"{change.refresh} {_SIGNS[change.kind]} {' '.join(fields)}"


def _field(change: Change, name: str, value: Any) -> str:
    if change.kind == "update" and change.old[name] != value:
        return f"{_as_text(change.old[name])}->{_as_text(value)}"
    return _as_text(value)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
