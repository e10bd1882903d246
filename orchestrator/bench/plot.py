"""Figures like the paper's: the times of each strategy, and the ratios to ID."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from orchestrator.bench.fivm.stream import ALONG, STORED, WHOLE
from orchestrator.bench.parts.breakdown import COMPONENTS
from orchestrator.bench.report import Report

Row = dict[str, Any]

_COLOURS = {
    "id": "#1b7837",
    "tuple": "#c2554f",
    "SDBT-fixed": "#5a8fc4",
    "SDBT-streams": "#1f3f77",
    "auto": "#7b5ba6",
    "recompute": "#8a8a8a",
    "by hand": "#d9a441",
    "REFRESH MATERIALIZED VIEW": "#8a8a8a",
    "time": "#1b7837",
    "buffers": "#8fc49a",
    "the paper": "#c9c9c9",
}

_LETTERS = {"id": "A", "tuple": "B", "SDBT-fixed": "C", "SDBT-streams": "D"}
"""The columns of figure 12."""
_STACK = ("#b8b8b8", "#c2554f", "#5a8fc4", "#1b7837")
"""The colors of the components of a refresh."""

_AXES = {
    "d": ("d", "price updates (d)"),
    "j": ("j", "joins (j)"),
    "s": ("s %", "selectivity (s), %"),
    "f": ("f", "fanout (f)"),
}


def draw_parts(report: Report, path: Path) -> Path | None:
    """Draw figure 12, times and their components beside each other, and the comparison with SQL."""
    panels: list[Callable[[Any], None]] = []
    cold = report.bench.endswith("cold")
    for name, (column, title) in _AXES.items():
        if rows := [row for row in report.rows if row["varied"] == name and _is_drawn(row)]:
            panels += [
                partial(_draw_axis, rows=rows, column=column, title=title),
                partial(_draw_pages, rows=rows, column=column, title=title, cold=cold),
            ]
    if rows := [row for row in report.rows if row["varied"] == "against" and _is_drawn(row)]:
        panels.append(partial(_draw_against, rows=rows))
    if not panels:
        return None

    def draw(figure: Any) -> None:
        title = "Refresh of the running example after price updates"
        figure.suptitle(f"{title}, with empty caches" if cold else title, fontsize=13)
        for axes, panel in zip(_grid(figure, len(panels)), panels, strict=True):
            panel(axes)

    return figure(path, (13, 3.9 * ((len(panels) + 1) // 2) + 0.5), draw)


def _is_drawn(row: Row) -> bool:
    return row["ms"] is not None and (row["varied"] == "against" or row["view"] == "V'")


def _grid(figure: Any, panels: int, columns: int = 2) -> list[Any]:
    """Return the axes of the panels, so many in a line; the last panel fills its line."""
    lines = math.ceil(panels / columns)
    grid = figure.add_gridspec(lines, columns)
    places = [grid[number // columns, number % columns] for number in range(panels)]
    if panels % columns:
        places[-1] = grid[lines - 1, (panels - 1) % columns :]
    return [figure.add_subplot(place) for place in places]


def _draw_axis(axes: Any, rows: Sequence[Row], column: str, title: str) -> None:
    """Draw the times at each value, with the ratio of tuple-based to ID and the formula above them."""
    values = _in_order(row[column] for row in rows)
    labels = _in_order(row["strategy"] for row in rows)
    _bars(axes, values, labels, {(r[column], r["strategy"]): r["ms"] for r in rows})
    notes = {}
    for row in rows:
        if row["strategy"] == "tuple" and row["time / id"] is not None:
            notes[row[column]] = f"{row['time / id']:.1f}×\n({row['formula']:.1f})"
    _write_above(axes, values, rows, column, notes)
    axes.set_xlabel(title)
    axes.set_ylabel("ms")
    caption = "tuple / id above, (formula) below it" if notes else ""
    axes.set_title(caption, fontsize=9, color="#444444")
    axes.legend(fontsize=8, ncols=len(labels), loc="upper center", bbox_to_anchor=(0.5, -0.16))


def _draw_pages(axes: Any, rows: Sequence[Row], column: str, title: str, *, cold: bool) -> None:
    """Draw the pages of each component on top of each other, with a letter for each strategy."""
    rows = [row for row in rows if row["strategy"] in _LETTERS and row[COMPONENTS[0]] is not None]
    values = _in_order(row[column] for row in rows)
    labels = [label for label in _LETTERS if any(row["strategy"] == label for row in rows)]
    width = 0.8 / max(len(labels), 1)
    places = {
        (value, label): place + (number - (len(labels) - 1) / 2) * width
        for place, value in enumerate(values)
        for number, label in enumerate(labels)
    }
    xs = [places[row[column], row["strategy"]] for row in rows]
    below = [0] * len(rows)
    for component, color in zip(COMPONENTS, _STACK, strict=True):
        heights = [row[component] for row in rows]
        axes.bar(xs, heights, 0.94 * width, bottom=below, label=component, color=color)
        below = [low + height for low, height in zip(below, heights, strict=True)]
    for x, top, row in zip(xs, below, rows, strict=True):
        axes.text(x, top, _LETTERS[row["strategy"]], ha="center", va="bottom", fontsize=7)
    axes.set_xticks(range(len(values)), [f"{value:,}" for value in values])
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.set_xlabel(title)
    axes.set_ylabel("pages read from the system" if cold else "pages touched")
    letters = ", ".join(f"{_LETTERS[label]}: {label}" for label in labels)
    axes.set_title(letters, fontsize=9, color="#444444")
    axes.grid(axis="y", linewidth=0.4, color="#dddddd")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.16))


def _write_above(
    axes: Any, values: Sequence[Any], rows: Sequence[Row], column: str, notes: dict[Any, str]
) -> None:
    low, high = axes.get_ylim()
    axes.set_ylim(low, high * (4 if notes else 1.5))
    for place, value in enumerate(values):
        if value in notes:
            top = max(row["ms"] for row in rows if row[column] == value)
            axes.text(place, top * 1.15, notes[value], ha="center", va="bottom", fontsize=8)


def _draw_against(axes: Any, rows: Sequence[Row]) -> None:
    def group(row: Row) -> str:
        return f"{row['view']}\n{row['parts']:,} parts"

    groups = _in_order(map(group, rows))
    labels = _in_order(row["strategy"] for row in rows)
    _bars(axes, groups, labels, {(group(r), r["strategy"]): r["ms"] for r in rows}, numbers=True)
    low, high = axes.get_ylim()
    axes.set_ylim(low, high * 1.8)
    axes.set_ylabel("ms")
    updates = rows[0]["d"]
    axes.set_title(f"the views after {updates} price updates", fontsize=9, color="#444444")
    axes.legend(fontsize=8, ncols=len(labels), loc="upper center", bbox_to_anchor=(0.5, -0.16))


def draw_bsma(report: Report, path: Path) -> Path | None:
    """Draw figure 10: the ratios of tuple-based to ID refreshes, and the times."""
    rows = [row for row in report.rows if row["ms"] is not None]
    if not rows:
        return None
    views = _in_order(row["view"] for row in rows)
    ratios: dict[tuple[Any, str], float] = {}
    for row in rows:
        if row["strategy"] == "tuple" and row["time / id"] is not None:
            ratios[row["view"], "time"] = row["time / id"]
            ratios[row["view"], "buffers"] = row["buffers / id"]
            ratios[row["view"], "the paper"] = row["paper"]

    def draw(figure: Any) -> None:
        figure.suptitle(f"{report.bench}: refresh after 100 updates of users", fontsize=13)
        panels = figure.subplots(2 if ratios else 1, squeeze=False)[:, 0]
        if ratios:
            axes = panels[0]
            _bars(axes, views, ["time", "buffers", "the paper"], ratios, numbers=True, unit="×")
            low, high = axes.get_ylim()
            axes.set_ylim(min(low, 0.7), high * 1.6)
            axes.axhline(1, color="black", linewidth=0.8)
            axes.set_ylabel("tuple / id")
            axes.legend(fontsize=8, ncols=3, loc="upper right")
        axes = panels[-1]
        # If `auto` chooses a strategy that is shown anyway, it gets no separate bar.
        times = [row for row in rows if row["strategy"] != "auto" or not _repeats(row, rows)]
        labels = _in_order(row["strategy"] for row in times)
        heights = {(row["view"], row["strategy"]): row["ms"] for row in times}
        _bars(axes, views, labels, heights, numbers=True)
        low, high = axes.get_ylim()
        axes.set_ylim(low, high * 1.6)
        axes.set_ylabel("ms")
        axes.legend(fontsize=8, ncols=len(labels), loc="upper right")

    return figure(path, (12, 7.5 if ratios else 4.2), draw)


def draw_tpch(report: Report, path: Path) -> Path | None:
    """Draw the ratios of recomputing to refreshing, in time and pages, and the times."""
    rows = [row for row in report.rows if row.get("ms") is not None]
    if not rows:
        return None
    views = _in_order(row["view"] for row in rows)
    ratios = {(row["view"], "time"): row["materialized / refresh"] for row in rows}
    ratios |= {(row["view"], "buffers"): row["buffers / refresh"] for row in rows}
    times = {(row["view"], row["strategy"]): row["ms"] for row in rows}
    times |= {(row["view"], "REFRESH MATERIALIZED VIEW"): row["materialized ms"] for row in rows}

    def draw(figure: Any) -> None:
        figure.suptitle(f"{report.bench}: refresh after changes of all eight tables", fontsize=13)
        above, below = figure.subplots(2)
        _bars(above, views, ["time", "buffers"], ratios, numbers=True)
        above.axhline(1, color="black", linewidth=0.8)
        above.set_ylabel("recomputed / refreshed")
        above.legend(fontsize=8, ncols=2, loc="upper right")
        _bars(below, views, _in_order(label for _, label in times), times, numbers=True)
        below.set_ylabel("ms")
        below.legend(fontsize=8, ncols=4, loc="upper right")
        for axes in (above, below):
            low, high = axes.get_ylim()
            axes.set_ylim(low, high * 2)

    return figure(path, (15, 8), draw)


def draw_skew(report: Report, path: Path) -> Path | None:
    """Draw the cost of a change and the stored rows as the graphs grow, with a line for each ε.

    Of several kinds of change, the most expensive one is drawn.
    """
    graphs = _in_order(row["graph"] for row in report.rows)
    if not graphs:
        return None

    def measures(rows: Sequence[Row]) -> dict[str, str]:
        known = {name for row in rows for name in row}
        changes = next((name for name in ("steps", "with rebalancing") if name in known), "buffers")
        last = {"delay": "buffers to the next row"} if "delay" in known else _TIMES
        touched = "steps" if changes == "steps" else "buffers touched"
        return {changes: f"{touched} by a change", "stored": "rows stored", **last}

    def draw(figure: Any) -> None:
        figure.suptitle("Queries over heavy and light parts", fontsize=13)
        panels = figure.subplots(len(graphs), 3, squeeze=False)
        for graph, line in zip(graphs, panels, strict=True):
            of_graph = [row for row in report.rows if row["graph"] == graph]
            most: dict[tuple[str, int], float] = {}
            for row in of_graph:
                key = row["side"], row["rows"]
                most[key] = max(most.get(key, 0), row.get("steps", 0))
            cheaper = [
                row
                for row in of_graph
                if "steps" in row and row["steps"] < most[row["side"], row["rows"]]
            ]
            for (measure, title), axes in zip(measures(of_graph).items(), line, strict=True):
                drawn = [row for row in of_graph if measure in row and row not in cheaper]
                _draw_lines(axes, drawn, lambda row: row["rows"], measure, "rows (N)")
                axes.set_title(f"{title}, {graph}", fontsize=9, color="#444444")

    return figure(path, (14, 4.2 * len(graphs) + 0.5), draw)


def draw_fivm(report: Report, path: Path) -> Path | None:
    """Draw a panel for each measurement: lines over growing data, batches or paths, or bars.

    Along a stream, one panel has the throughput and one the stored data. The text above a side says
    how many times slower it is than the view tree, or how much more it stores, here and in the
    paper.
    """
    groups: dict[str, list[Row]] = {}
    for row in report.rows:
        groups.setdefault(_NUMBER.sub("…", row["name"]), []).append(row)
    streams = {title.removesuffix(ALONG) for title in groups if title.endswith(ALONG)}
    panels = [
        (title, rows, measure)
        for title, rows in groups.items()
        # What is stored at the end of a stream is the end of another panel's lines.
        if title.removesuffix(STORED) not in streams
        for measure in _measures(rows)
    ]
    if not panels:
        return None
    columns = 3 if streams else 2

    def draw(figure: Any) -> None:
        figure.suptitle("View trees over rings", fontsize=13)
        grid = _grid(figure, len(panels), columns)
        for axes, (title, rows, measure) in zip(grid, panels, strict=True):
            drawn = [row for row in rows if row[measure]]
            names = _in_order(row["name"] for row in drawn)
            grown = "rows" if len(names) == 1 else None
            size: Callable[[Row], float] = (lambda row: row["rows"]) if grown else _size
            xs = _in_order(map(size, drawn))
            along = title.endswith(ALONG)
            # Sides of a whole stream differ in rows if one was stopped.
            if along or len(names) > 1 or (len(xs) > 1 and not title.endswith(WHOLE)):
                label = grown or _numbered(title)
                _draw_lines(axes, drawn, size, measure, label, logarithmic=not along)
                if not along:
                    axes.set_xticks(xs, [f"{x:,.0f}" for x in xs])
                    axes.set_xticks([], minor=True)
            else:
                _draw_sides(axes, drawn, measure)
            axes.set_ylabel(measure)
            axes.set_title(names[0] if grown else title, fontsize=9, color="#444444")

    size = (6.5 * columns, 3.9 * math.ceil(len(panels) / columns) + 0.5)
    return figure(path, size, draw)


_NUMBER = re.compile(r"(?<= of )[\d,]+(?=$|,| batches)|(?<=each )\d+(?=$|,)|(?<=rank )\d+$")
"""The number that grows, in the name of a measurement."""


_NUMBERED = {
    "each": "batches between two reads",
    "rank": "rank",
    "batches": "rows of a batch",
    "matrices": "rows of a matrix",
    "path": "joined tables",
}
"""The number that grows, by the word before it."""


def _numbered(title: str) -> str:
    words = re.findall(r"(\w+)(?: of)? …", title)
    return _NUMBERED.get(words[-1], "…") if words else "…"


def _size(row: Row) -> float:
    """Return the number that grows, from the name of a measurement."""
    *_, last = _NUMBER.findall(row["name"])
    return float(last.replace(",", ""))


def _measures(rows: Sequence[Row]) -> list[str]:
    """Return the measures by which the sides of a measurement are compared."""
    known: tuple[str, ...] = ("rounds", "milliseconds", "stored kB")
    if rows[0]["name"].endswith((ALONG, WHOLE)):
        known = ("rows/s", "stored kB")
    there = [item for item in known if any(row[item] for row in rows)]
    return there if rows[0]["name"].endswith(ALONG) else there[:1]


def _draw_lines(
    axes: Any,
    rows: Sequence[Row],
    size: Callable[[Row], float],
    measure: str,
    title: str,
    *,
    logarithmic: bool = True,
) -> None:
    """Draw a line for each side, on logarithmic scales, or over a linear one."""
    for side in _in_order(row["side"] for row in rows):
        points = [(size(row), row[measure]) for row in rows if row["side"] == side]
        axes.plot(*zip(*points, strict=True), marker="o", label=side, color=_COLOURS.get(side))
    if logarithmic:
        axes.set_xscale("log")
    axes.set_yscale("log", subs=[])
    axes.yaxis.get_major_locator().set_params(subs=(1.0, 2.0, 5.0))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.set_xlabel(title)
    axes.grid(linewidth=0.4, color="#dddddd")
    axes.legend(fontsize=8)


def _draw_sides(axes: Any, rows: Sequence[Row], measure: str) -> None:
    sides = _in_order(row["side"] for row in rows)
    _bars(axes, sides, [measure], {(row["side"], measure): row[measure] for row in rows})
    for place, side in enumerate(sides):
        row = next(item for item in rows if item["side"] == side)
        note = _number(row[measure])
        if row["ratio"]:
            note += f"\n{_number(row['ratio'])}×"
        if row["paper"]:
            note += f" ({_number(row['paper'])}×)"
        axes.text(place, row[measure] * 1.1, note, ha="center", va="bottom", fontsize=8)
    low, high = axes.get_ylim()
    axes.set_ylim(low, high * 4)
    axes.tick_params("x", labelsize=7)


_TIMES = {"ms": "ms of a change"}


def _repeats(row: Row, rows: Sequence[Row]) -> bool:
    return any(
        item is not row and item["view"] == row["view"] and item["ms"] == row["ms"] for item in rows
    )


def _bars(
    axes: Any,
    groups: Sequence[Any],
    labels: Sequence[str],
    values: dict[tuple[Any, str], float],
    *,
    numbers: bool = False,
    unit: str = "",
) -> None:
    """Draw groups of bars on a logarithmic scale, with a color for each label."""
    width = 0.8 / len(labels)
    lowest = min(values.values())
    for number, label in enumerate(labels):
        places = [place for place, group in enumerate(groups) if (group, label) in values]
        heights = [values[groups[place], label] for place in places]
        shifted = [place + (number - (len(labels) - 1) / 2) * width for place in places]
        drawn = axes.bar(shifted, heights, 0.94 * width, label=label, color=_COLOURS.get(label))
        if numbers:
            texts = [f"{_number(height)}{unit}" for height in heights]
            axes.bar_label(drawn, texts, fontsize=7, padding=1)
    axes.set_yscale("log", subs=[])
    axes.yaxis.get_major_locator().set_params(subs=(1.0, 2.0, 5.0))
    axes.set_ylim(bottom=lowest / 2)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.set_xticks(range(len(groups)))
    axes.set_xticklabels(
        [f"{group:,}" if isinstance(group, int) else str(group) for group in groups]
    )
    axes.grid(axis="y", linewidth=0.4, color="#dddddd")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _in_order(values: Any) -> list[Any]:
    return list(dict.fromkeys(values))


def figure(path: Path, size: tuple[float, float], draw: Callable[[Any], None]) -> Path | None:
    """Draw a figure into a file; return None without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    canvas = Figure(figsize=size, layout="constrained")
    draw(canvas)
    path.parent.mkdir(parents=True, exist_ok=True)
    canvas.savefig(path, dpi=120)
    return path
