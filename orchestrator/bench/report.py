"""The result of a benchmark: a table for people, a plot, JSON, and bars that hold or do not."""

from __future__ import annotations

import json
import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

NEAR = 0.1
"""How far a measured exponent may be from the exponent of a theorem, in both directions."""

WIDE = 14
"""The number of columns of a table that a terminal can show."""

_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "≈": lambda value, limit: round(abs(value - limit), 4) <= NEAR,
}


@dataclass(frozen=True)
class Bar:
    """A limit that a measured value must keep, or with ≈ an exponent that it must be near.

    >>> Bar("slope", 0.42, "≈", 0.5).holds, Bar("slope", 0.38, "≈", 0.5).holds
    (True, False)
    >>> Bar("bulk insert, times bare", 1.7, "<=", 1.8).holds
    True
    """

    name: str
    value: float
    op: str
    limit: float

    @property
    def holds(self) -> bool:
        """Whether the value keeps the limit."""
        return _OPERATORS[self.op](self.value, self.limit)


@dataclass(frozen=True)
class Report:
    """The result of one benchmark; rows of one kind have the same keys."""

    bench: str
    machine: dict[str, str]
    rows: tuple[dict[str, Any], ...]
    bars: tuple[Bar, ...]
    highlights: Mapping[str, Sequence[dict[str, Any]]] = field(default_factory=dict)
    """Rows that a reader should look at first, by the reason; they are printed after all rows."""
    assumes: str = ""
    """The larger sizes that the limits assume, if this run is smaller."""

    @property
    def holds(self) -> bool:
        """Whether every bar that this run can judge holds."""
        return all(bar.holds or not self.judges(bar) for bar in self.bars)

    def judges(self, bar: Bar) -> bool:
        """Return whether this run can judge a bar; bars on exact numbers apply at every size."""
        return bar.holds or bar.op == "=" or not self.assumes

    def verdict(self, bar: Bar) -> str:
        """Return whether a bar holds, in words."""
        if bar.holds:
            return "holds"
        return "DOES NOT HOLD" if self.judges(bar) else "needs a larger run"

    @property
    def exit_status(self) -> int:
        """The exit status of the command line: 1 if a bar does not hold."""
        return 0 if self.holds else 1

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values."""
        assumes = {"assumes": self.assumes} if self.assumes else {}
        return {
            "bench": self.bench,
            **assumes,
            "machine": self.machine,
            "rows": list(self.rows),
            "bars": [
                {
                    "name": bar.name,
                    "value": bar.value,
                    "op": bar.op,
                    "limit": bar.limit,
                    "holds": bar.holds,
                }
                for bar in self.bars
            ],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Report:
        """Return the report that `to_json` wrote."""
        return cls(
            value["bench"],
            value["machine"],
            tuple(value["rows"]),
            tuple(Bar(b["name"], b["value"], b["op"], b["limit"]) for b in value["bars"]),
            assumes=value.get("assumes", ""),
        )


def progress(text: str) -> None:
    """Show the current measurement on a terminal; print nothing to a program or a file."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def show(
    report: Report,
    *,
    as_json: bool = False,
    plot_to: Path | None = None,
    draw: Callable[[Report, Path], Path | None] | None = None,
) -> int:
    """Print a report, draw it if matplotlib is installed, and return the exit status."""
    progress("")
    drawn = (draw or plot)(report, plot_to) if plot_to is not None else None
    if as_json:
        print(json.dumps(report.to_json(), indent=2, ensure_ascii=False))
        return report.exit_status
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 200
    console.print(f"[bold]{report.bench}[/bold]")
    for name in ("server", "cpu", "cores", "memory"):
        if name in report.machine:
            console.print(Text(f"  {name}: {report.machine[name]}"))
    described = ("server", "cpu", "cores", "memory", "system")
    settings = [f"{k} = {v}" for k, v in report.machine.items() if k not in described]
    console.print(Text(f"  settings: {', '.join(settings)}"))
    for of_kind in by_columns(report.rows):
        console.print(_rows(of_kind))
    for title, rows in report.highlights.items():
        console.print(Text(title, "bold"))
        console.print(_rows(rows))
    if report.bars:
        console.print(_bars(report))
        if not all(bar.holds for bar in report.bars) and report.assumes:
            console.print(Text(f"The limits assume a larger run: {report.assumes}."))
    if drawn is not None:
        console.print(Text(f"plot: {drawn}"))
    return report.exit_status


def plot(report: Report, path: Path) -> Path | None:
    """Draw the bars with their limits into a file; return None without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    # A bar on an exact number has no length to show.
    bars = [bar for bar in report.bars if bar.op != "="]
    if not bars:
        return None
    figure = Figure(figsize=(7, 0.9 * len(bars) + 0.6), layout="constrained")
    figure.suptitle(f"{report.bench}: measured, and the limit as a line")
    for bar, axes in zip(bars, figure.subplots(len(bars), squeeze=False), strict=True):
        axes[0].barh([0], [bar.value], color="tab:green" if bar.holds else "tab:red")
        axes[0].axvline(bar.limit, color="black")
        axes[0].set_xlim(0, 1.15 * max(bar.value, bar.limit) or 1)
        axes[0].set_yticks([])
        axes[0].set_title(
            f"{bar.name}: {number(bar.value)} {bar.op} {number(bar.limit)}", fontsize=9
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    return path


def shown_columns(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return the columns of a table of rows, without the details that only the JSON has."""
    columns = dict.fromkeys(name for row in rows for name in row)
    columns |= {name: value for row in reversed(rows) for name, value in row.items()}
    return [name for name, value in columns.items() if not isinstance(value, dict)]


def by_columns(rows: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return all rows, or if they have too many columns for a table, those with equal columns together.

    >>> wide = {str(number): number for number in range(WIDE)}
    >>> [len(rows) for rows in by_columns([{"a": 1}, {"b": 2}])]
    [2]
    >>> [len(rows) for rows in by_columns([{"a": 1}, wide, {"a": 3}])]
    [2, 1]
    """
    if len(shown_columns(rows)) <= WIDE:
        return [list(rows)]
    kinds: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        kinds.setdefault(tuple(row), []).append(row)
    return list(kinds.values())


def _rows(rows: Sequence[dict[str, Any]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    columns = {name: value for row in reversed(rows) for name, value in row.items()}
    names = shown_columns(rows)
    for name in names:
        table.add_column(Text(name), justify="left" if isinstance(columns[name], str) else "right")
    for row in rows:
        table.add_row(*(Text(number(row.get(name))) for name in names))
    return table


def _bars(report: Report) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("bar")
    table.add_column("measured", justify="right")
    table.add_column("limit", justify="right")
    table.add_column("")
    for bar in report.bars:
        style = "green" if bar.holds else "bold red" if report.judges(bar) else "yellow"
        table.add_row(
            Text(bar.name),
            number(bar.value),
            f"{bar.op} {number(bar.limit)}",
            Text(report.verdict(bar), style),
        )
    return table


def number(value: object) -> str:
    """Return a value formatted for people.

    >>> number(12345.6), number(0.12345), number(1234567), number(None)
    ('12,346', '0.123', '1,234,567', '')
    """
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value if value is not None else "")
