"""What the demo shows: measurements, and the content of the views as tables and bars."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from rich import box
from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from orchestrator.demo.views import FEATURES, VIEWS

RECENT = 24
UNICODE, ASCII = " ▁▂▃▄▅▆▇█", " .:-=+*%#"


@dataclass(frozen=True)
class Comparison:
    """What one more flight costs with a number of flights, in milliseconds."""

    flights: int
    write: float
    """Writing the flight, with the capture of the change."""
    refreshes: Mapping[str, float]
    plain: Mapping[str, float]
    """`REFRESH MATERIALIZED VIEW` of the same queries."""

    @property
    def totals(self) -> tuple[float, float]:
        """The time for all views, with idivm and with `REFRESH MATERIALIZED VIEW`."""
        return self.write + sum(self.refreshes.values()), sum(self.plain.values())

    @property
    def ratio(self) -> float:
        """How many times longer `REFRESH MATERIALIZED VIEW` takes."""
        ours, plain = self.totals
        return plain / ours


ALL = tuple(view.name for view in VIEWS)


@dataclass
class Board:
    """The state of the demo that the screen shows."""

    flights: int = 0
    clock: str = ""
    arrived: int = 0
    expected: int = 0
    doing: str = ""
    comparisons: list[Comparison] = field(default_factory=list)
    recent: dict[str, deque[float]] = field(default_factory=dict)
    """The milliseconds of the last refreshes of each view."""
    content: Mapping[str, Sequence[tuple[Any, ...]]] = field(default_factory=dict)

    def note(self, name: str, milliseconds: float) -> None:
        """Record a refresh of a view."""
        self.recent.setdefault(name, deque(maxlen=RECENT)).append(milliseconds)


def comparison_table(comparison: Comparison, board: Board, levels: str) -> Table:
    """Return the table with a row for each view: refresh, `REFRESH MATERIALIZED VIEW`, ratio."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("view", no_wrap=True)
    table.add_column("shows", no_wrap=True, style="dim", max_width=40)
    table.add_column("idivm", justify="right", no_wrap=True)
    table.add_column("REFRESH", justify="right", no_wrap=True)
    table.add_column("ratio", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    ratios = {
        name: comparison.plain[name] / comparison.refreshes[name] for name in comparison.refreshes
    }
    largest = max(ratios.values())
    for view in VIEWS:
        ratio = ratios[view.name]
        table.add_row(
            Text(view.name, style="bold"),
            view.shows,
            f"{comparison.refreshes[view.name]:,.1f} ms",
            f"{comparison.plain[view.name]:,.1f} ms",
            f"{ratio:,.0f} x",
            Text(bar(ratio / largest, 12, levels), style="green" if ratio >= 5 else "yellow"),
        )
    table.add_row("", "writing the flight", f"{comparison.write:,.1f} ms", "", "", "")
    table.add_section()
    ours, plain = comparison.totals
    table.add_row(
        Text("all ten", style="bold"),
        "",
        f"{ours:,.1f} ms",
        f"{plain:,.1f} ms",
        f"{comparison.ratio:,.0f} x",
        "",
    )
    return table


def growth_table(comparisons: Sequence[Comparison], levels: str) -> Table:
    """Return a row for each size of the data: the costs of one more flight, and their ratio."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("flights", "idivm", "REFRESH", "ratio"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    largest = max(comparison.ratio for comparison in comparisons)
    for comparison in comparisons:
        ours, plain = comparison.totals
        table.add_row(
            f"{comparison.flights:,}",
            f"{ours:,.1f} ms",
            f"{plain:,.1f} ms",
            f"{plain / ours:,.0f} x",
            Text(bar(plain / ours / largest, 30, levels), style="green"),
        )
    return table


def dashboard(content: Mapping[str, Sequence[tuple[Any, ...]]], levels: str) -> RenderableType:
    """Return what the views show: delays by weather, airlines, routes, the model and the tours."""
    skies = _bars("minutes late", content["skies"], levels, "{:.0f}")
    carriers = _bars("% punctual", content["carriers"], levels, "{:.0f}")
    busiest = _bars("busiest routes", content["busiest"], levels, "{:,.0f}")
    [(tours,)] = content["tours"]
    lines = Text()
    lines.append("model  ", style="bold").append(model_sentence(content["model"])).append("\n")
    lines.append("tours  ", style="bold").append(f"{tours:,} over three airports")
    return Group(Columns([skies, carriers, busiest], padding=(0, 2)), lines)


def model_sentence(rows: Sequence[tuple[Any, ...]]) -> str:
    """Return the regression as a sentence."""
    weights = rows[0][0] if rows else None
    if not weights or any(weight is None for weight in weights):
        return "not enough flights yet"
    of = dict(zip(("start", *FEATURES), weights, strict=True))
    terms = (
        f"{of['dep_delay']:.2f} x the delay on departure",
        f"{of['distance'] * 1000:+.1f} per 1,000 miles",
        f"{of['wind_speed'] * 10:+.1f} per 10 mph of wind",
        f"{of['precip'] / 10:+.1f} per 0.1 inch of rain",
        f"{of['visib']:+.1f} per mile of sight",
    )
    return f"minutes late on arrival = {of['start']:.1f} + {', '.join(terms)}"


def bar(share: float, width: int, levels: str) -> str:
    """Return a bar that fills a share of `width`.

    >>> bar(0.5, 4, UNICODE)
    '██'
    """
    full, part = divmod(round(max(share, 0.0) * width * 8), 8)
    return levels[-1] * full + (
        levels[part] if part and levels == ASCII else _eighths(part, levels)
    )


def _eighths(part: int, levels: str) -> str:
    return "" if levels == ASCII or not part else "▏▎▍▌▋▊▉"[part - 1]


def sparkline(values: Sequence[float], levels: str) -> str:
    """Return a line of small bars.

    >>> sparkline([1, 4, 8], UNICODE)
    '▁▄█'
    """
    top = max(values, default=0.0)
    return "".join(
        levels[max(1, round(value / top * (len(levels) - 1)))] for value in values if top
    )


def live(board: Board, levels: str, height: int) -> RenderableType:
    """Return the live part of a terminal: what happens now, the views, the ratio by size."""
    parts: list[RenderableType] = []
    head = Text(board.doing, style="bold")
    if board.expected:
        share = board.arrived / board.expected
        head = Text(f"{board.clock}  ", style="bold")
        head.append(bar(share, 30, levels).ljust(30, levels[1]), style="cyan")
        head.append(f"  {board.arrived:,} of {board.expected:,} flights of the day")
    parts.append(head)
    if board.recent:
        parts.append(_refreshes(board, levels))
    if board.content and height > 34:
        parts.append(dashboard(board.content, levels))
    if board.comparisons and height > 24:
        parts.append(Text("one more flight, by the number of flights", style="bold"))
        parts.append(growth_table(board.comparisons, levels))
    return Group(*parts)


def _refreshes(board: Board, levels: str) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    for style, justify in (("bold", "left"), ("dim", "left"), ("", "right"), ("cyan", "left")):
        table.add_column(style=style, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    table.add_column(justify="right", no_wrap=True)
    plain = board.comparisons[-1].plain if board.comparisons else {}
    for view in VIEWS:
        recent = list(board.recent.get(view.name, ()))
        if recent:
            typical = median(recent)
            ratio = f"{plain[view.name] / typical:,.0f} x" if view.name in plain else ""
            line = sparkline(recent, levels)
            table.add_row(view.name, view.shows, f"{typical:,.1f} ms", line, ratio)
    return table


def _bars(title: str, rows: Sequence[tuple[Any, ...]], levels: str, form: str) -> Table:
    table = Table(box=None, pad_edge=False, show_header=True, header_style="bold")
    table.add_column(title, no_wrap=True, max_width=24)
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True, min_width=6)
    values = [float(value) for _, value in rows]
    top = max(map(abs, values), default=0.0) or 1.0
    for (label, _), value in zip(rows, values, strict=True):
        table.add_row(label, form.format(value), Text(bar(value / top, 6, levels), style="cyan"))
    return table
