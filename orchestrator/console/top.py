"""`idivm top`: the views in a terminal, with keys to refresh, explain and pause."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ClassVar

import psycopg
from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen, Screen
from textual.widgets import DataTable, Footer, Header, Input, Static

from orchestrator.catalog.monitoring import ViewState
from orchestrator.console.data import Data, by_trouble, cost, lag, milliseconds, size
from orchestrator.errors import IdivmError
from orchestrator.runtime.errors import explain
from orchestrator.runtime.monitoring.sample import Sample

SECONDS = 2.0
"""Between two readings."""

COLUMNS = (
    "view",
    "state",
    "mode",
    "strategy",
    "lag",
    "pending",
    "last",
    "mean",
    "refreshes",
    "rows",
    "size",
    "log",
)

NUMBERS = 4
"""The first column of numbers."""

COLORS = {"fresh": "green", "behind": "yellow", "failed": "red", "invalid": "red"}

ORDERS: dict[str, Callable[[list[ViewState]], list[ViewState]]] = {
    "problems first": by_trouble,
    "by lag": lambda views: sorted(views, key=lambda v: -(v.lag or 0.0)),
    "by cost": lambda views: sorted(views, key=lambda v: -v.total_seconds),
    "by name": lambda views: sorted(views, key=lambda v: v.name),
}


class Explained(ModalScreen[None]):
    """A text over the table."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape,e,q", "dismiss", "Back")]

    def __init__(self, text: str) -> None:
        """Take the text."""
        super().__init__()
        self.text = text

    def compose(self) -> ComposeResult:
        """Yield the text and the keys."""
        with VerticalScroll():
            yield Static(Text(self.text), id="text")
        yield Footer()


class Top(App[None]):
    """The table of views, read again every few seconds."""

    TITLE = "idivm top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    DataTable { height: 1fr; }
    #filter { display: none; }
    #filter.shown { display: block; }
    #error { color: $error; height: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        ("r", "refresh", "Refresh"),
        ("e", "explain", "Explain"),
        ("p", "pause", "Pause or resume"),
        ("s", "sort", "Sort"),
        ("slash", "filter", "Filter"),
        ("q", "quit", "Quit"),
    ]

    def __init__(self, source: Data) -> None:
        """Take what to show."""
        super().__init__()
        self.source = source
        self.views: dict[str, ViewState] = {}
        self.order = next(iter(ORDERS))

    def compose(self) -> ComposeResult:
        """Yield the table and what surrounds it."""
        yield Header()
        yield Input(placeholder="name, state or strategy", id="filter")
        yield DataTable(cursor_type="row", zebra_stripes=True)
        yield Static(id="error")
        yield Footer()

    def on_mount(self) -> None:
        """Read the views, now and from then on."""
        table = self.query_one(DataTable)
        for name in COLUMNS:
            table.add_column(name, key=name)
        table.focus()
        self.read()
        self.set_interval(SECONDS, self.read)

    @work(exclusive=True, group="read")
    async def read(self) -> None:
        """Read a sample in a thread. The thread calls nothing of the application, which may end meanwhile."""
        try:
            sample = await asyncio.to_thread(self.source.monitor.sample)
        except (IdivmError, psycopg.Error) as error:
            self._say(_sentence(error))
        else:
            self._take(sample)

    @property
    def _base(self) -> Screen[object]:
        """The screen with the table, also while an explanation lies over it."""
        return self.screen_stack[0]

    def _take(self, sample: Sample) -> None:
        self.views = {view.name: view for view in sample.views}
        self._say("")
        self._show()

    def _say(self, sentence: str) -> None:
        self._base.query_one("#error", Static).update(Text(sentence))

    def _show(self) -> None:
        """Fill the table, and leave the cursor on its view."""
        table, chosen = self._base.query_one(DataTable), self._chosen()
        words = self._base.query_one("#filter", Input).value.lower().split()
        table.clear()
        for view in ORDERS[self.order](list(self.views.values())):
            cells = _cells(view)
            text = " ".join(cells).lower()
            if all(word in text for word in words):
                color = COLORS.get(view.state, "")
                row = [
                    Text(cell, color if n == 1 else "", justify="right" if n >= NUMBERS else "left")
                    for n, cell in enumerate(cells)
                ]
                table.add_row(*row, key=view.name)
        if chosen is not None and chosen.name in table.rows:
            table.move_cursor(row=table.get_row_index(chosen.name))
        self.sub_title = f"{len(self.views)} views, {self.order}"

    def _chosen(self) -> ViewState | None:
        table = self._base.query_one(DataTable)
        if not table.is_valid_row_index(table.cursor_row):
            return None
        key = table.coordinate_to_cell_key(table.cursor_coordinate).row_key
        return self.views.get(key.value or "")

    def action_sort(self) -> None:
        """Choose the next order."""
        names = list(ORDERS)
        self.order = names[(names.index(self.order) + 1) % len(names)]
        self._show()

    def action_filter(self) -> None:
        """Show or hide the filter."""
        field = self._base.query_one("#filter", Input)
        field.toggle_class("shown")
        field.value = ""
        (field if field.has_class("shown") else self._base.query_one(DataTable)).focus()

    def on_input_changed(self) -> None:
        """Show the views that the filter names."""
        self._show()

    def on_input_submitted(self) -> None:
        """Go back to the table."""
        self._base.query_one(DataTable).focus()

    def action_refresh(self) -> None:
        """Refresh the chosen view."""
        self._run(self.source.refresh, "refreshed")

    def action_pause(self) -> None:
        """Pause the chosen view, or end its pause."""
        self._run(self.source.pause_or_resume, "paused or resumed")

    def action_explain(self) -> None:
        """Show how the chosen view is maintained."""
        self._run(self.source.explained, None)

    def _run(self, action: Callable[[int], str | None], done: str | None) -> None:
        view = self._chosen()
        if view is None or view.id is None:
            self.notify("This view is not planned yet; run idivm plan.", severity="warning")
            return
        self._act(action, view.id, f"{view.display}: {done}")

    @work(group="act")
    async def _act(self, action: Callable[[int], str | None], view: int, done: str) -> None:
        try:
            text = await asyncio.to_thread(action, view)
            self._take(await asyncio.to_thread(self.source.monitor.sample))
        except (IdivmError, psycopg.Error) as error:
            self.notify(_sentence(error), severity="error", markup=False)
            return
        if text is None:
            self.notify(done, markup=False)
        else:
            self.push_screen(Explained(text))


def _sentence(error: IdivmError | psycopg.Error) -> str:
    return str(
        explain(error, "Reading the database") if isinstance(error, psycopg.Error) else error
    )


def _cells(view: ViewState) -> list[str]:
    """Return the cells of a view, in the order of the columns."""
    state = f"{view.state}: {view.error}" if view.error else view.state
    last = milliseconds(view.last_seconds) if view.refreshes else ""
    numbers = f"{view.pending:,}", last, cost(view), f"{view.refreshes:,}", f"{view.rows:,}"
    return [
        view.display,
        state[:60],
        view.mode,
        view.strategy or "",
        lag(view),
        *numbers,
        size(view.bytes),
        size(view.log_bytes),
    ]
