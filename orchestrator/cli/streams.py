"""Make standard output and error usable if they are closed or full, or if their encoding lacks characters."""

from __future__ import annotations

import os
import sys
from typing import TextIO


def make_usable() -> None:
    """Replace closed streams, and write characters that an encoding lacks as escapes."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            # A file that is opened later must not get the closed descriptor.
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115
        elif hasattr(stream, "reconfigure") and not is_unicode(stream):
            stream.reconfigure(errors="backslashreplace")


def give_up(stream: TextIO) -> None:
    """Discard the buffer of a stream and everything written to it later."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def is_unicode(stream: TextIO) -> bool:
    """Return whether a stream can encode every character."""
    return (stream.encoding or "").lower().replace("-", "").startswith("utf")
