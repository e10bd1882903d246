"""Open pages in a Chromium of the machine, without a window."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

_ALONE = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
)
"""Options by which Chromium sends nothing of its own."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start Chromium during a block."""
    program = next(filter(None, map(shutil.which, _PROGRAMS)), None)
    if program is None:
        raise UsageError(
            "No Chromium is found: install it (on Debian and Ubuntu the package chromium)."
        )
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        raise UsageError("Playwright is not installed: pip install playwright") from error
    # Chromium refuses a sandbox to root.
    alone = [*_ALONE, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=alone)
        try:
            yield browser
        finally:
            browser.close()
