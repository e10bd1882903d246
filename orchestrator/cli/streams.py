"""Standard output and standard error of any kind: closed, full, or of an encoding that lacks our characters."""

from __future__ import annotations

import os
import sys
from typing import TextIO


def make_usable() -> None:
    """Replace streams that are closed, and have characters that a stream's encoding lacks written as escapes."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            # Whoever closed it does not want the output; the descriptor must not become that of another file.
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115
        elif hasattr(stream, "reconfigure") and not is_unicode(stream):
            stream.reconfigure(errors="backslashreplace")


def give_up(stream: TextIO) -> None:
    """Let nothing be written to a stream any more, not even what it still holds."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def is_unicode(stream: TextIO) -> bool:
    """Return whether a stream takes every character."""
    return (stream.encoding or "").lower().replace("-", "").startswith("utf")
