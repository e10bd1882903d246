"""Signals that stop commands which otherwise run forever."""

from __future__ import annotations

import signal
import threading


def stop_at_signals() -> threading.Event:
    """Return an event that SIGTERM and SIGINT set."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop
