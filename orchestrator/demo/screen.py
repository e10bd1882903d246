"""Where the demo writes: a live display on a terminal, lines of text elsewhere."""

from __future__ import annotations

from types import TracebackType
from typing import TextIO

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from orchestrator.demo import board as boards

PAGE_WIDTH = 110


class Screen:
    """Print lines and tables. Without a terminal, nothing else happens."""

    live = False

    def __init__(self, console: Console) -> None:
        """Take the console to print on."""
        self.console = console
        self.board = boards.Board()
        encoding = (console.encoding or "").lower().replace("-", "")
        self.levels = boards.UNICODE if encoding.startswith("utf") else boards.ASCII
        self._step = 0

    def __enter__(self) -> Screen:
        """Start the live display, if there is any."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the live display."""

    def step(self, title: str) -> None:
        """Print the title of the next step."""
        self._step += 1
        self.say(f"\n{self._step}. {title}", style="bold")

    def say(self, text: str, style: str = "") -> None:
        """Print a line."""
        self.console.print(Text(text, style=style))

    def sql(self, text: str) -> None:
        """Print SQL."""
        self.say("\n".join(f"    {line}" for line in text.splitlines()), style="cyan")

    def show(self, what: RenderableType) -> None:
        """Print a table."""
        self.console.print(what)

    def doing(self, text: str) -> None:
        """Say what takes time now, on a terminal."""
        self.board.doing = text
        self.update()

    def update(self) -> None:
        """Show the board as it is now, on a terminal."""


class LiveScreen(Screen):
    """Show the board below the printed lines, and update it."""

    live = True

    def __enter__(self) -> LiveScreen:
        """Start the live display."""
        self._display = Live(console=self.console, auto_refresh=False, transient=True)
        self._display.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the live display; the printed lines stay."""
        self._display.stop()

    def update(self) -> None:
        """Show the board as it is now."""
        picture = boards.live(self.board, self.levels, self.console.size.height)
        self._display.update(picture, refresh=True)


def screen_for(stream: TextIO) -> Screen:
    """Return a live screen for a terminal, and plain pages for anything else."""
    console = Console(file=stream, highlight=False)
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveScreen(console)
    return Screen(Console(file=stream, highlight=False, width=PAGE_WIDTH))
