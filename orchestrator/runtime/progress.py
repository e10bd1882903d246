"""Report what idivm is doing to programs and logs: each stage of a creation, each command and each notice."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal
from weakref import WeakKeyDictionary

from psycopg import Connection

LOGGER = logging.getLogger("idivm")
# Without a handler, Python would print warnings, which `on_notice` reports already.
LOGGER.addHandler(logging.NullHandler())

STAGES = ("analyze", "capture", "compute", "index", "publish")
"""The stages of a creation in order. `compute` usually takes longest."""


@dataclass(frozen=True)
class Progress:
    """A stage that the creation or the planning of a view has reached."""

    view: str
    stage: Literal["analyze", "capture", "compute", "index", "publish"]

    @property
    def fraction(self) -> float:
        """The share of stages that are complete, from 0 to 1."""
        return STAGES.index(self.stage) / len(STAGES)


Listener = Callable[[Progress], None]

_listeners: WeakKeyDictionary[Connection[Any], Listener] = WeakKeyDictionary()


def listen(connection: Connection[Any], listener: Listener | None) -> None:
    """Call `listener` for each stage that a creation over this connection reaches."""
    if listener is None:
        _listeners.pop(connection, None)
    else:
        _listeners[connection] = listener


def reach(
    connection: Connection[Any],
    view: str,
    stage: Literal["analyze", "capture", "compute", "index", "publish"],
) -> None:
    """Log a stage, and report it to the listener."""
    LOGGER.info("%s: %s", view, stage)
    if listener := _listeners.get(connection):
        listener(Progress(view, stage))
