"""Plot each cell as a point: the best strategy or recomputing on the x axis, `auto` on the y axis."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from orchestrator.bench.auto.judge import FACTOR, SLACK, over
from orchestrator.bench.report import Report

_LEAST = 0.1
"""The milliseconds at which the axes begin."""

_NAMED = 8
"""The number of views that a panel names."""


def draw(report: Report, path: Path) -> Path | None:
    """Plot `auto` against the best strategy and recomputing; return None without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    if not report.rows:
        return None
    figure = Figure(figsize=(15, 7.5), layout="constrained")
    figure.suptitle(f"Refreshes by auto, {len(report.rows)} cells, milliseconds")
    panels = (
        ("best ms", "best strategy"),
        ("again ms", "computing the query and applying the difference"),
    )
    for axes, (column, title) in zip(figure.subplots(1, 2), panels, strict=True):
        top = 2 * max(max(row["auto ms"], row[column]) for row in report.rows)
        line = [_LEAST * (top / _LEAST) ** (step / 100) for step in range(101)]
        axes.plot(line, line, color="#888888", linewidth=0.8, label="equal")
        axes.plot(
            line,
            [FACTOR * x + SLACK for x in line],
            color="#c2554f",
            linewidth=1.2,
            label=f"{FACTOR} × + {SLACK:g} ms",
        )
        for taken in dict.fromkeys(row["taken"] for row in report.rows):
            rows = [row for row in report.rows if row["taken"] == taken]
            axes.scatter(
                [max(row[column], _LEAST) for row in rows],
                [max(row["auto ms"], _LEAST) for row in rows],
                s=[30 if row["cut"] else 12 for row in rows],
                alpha=0.6,
                label=f"auto takes {taken}",
            )
        # Name each view once, at its worst cell.
        worst: dict[str, dict[str, Any]] = {}
        for row in sorted(report.rows, key=lambda r: -over(r["auto ms"], r[column])):
            worst.setdefault(row["view"], row)
        named = sorted(list(worst.values())[:_NAMED], key=lambda r: -r["auto ms"])
        for number, row in enumerate(named):
            axes.annotate(
                f"{row['view']}, {row['change']}",
                (max(row[column], _LEAST), max(row["auto ms"], _LEAST)),
                fontsize=7,
                xytext=(0.02, 0.97 - 0.035 * number),
                textcoords="axes fraction",
                arrowprops={"arrowstyle": "-", "linewidth": 0.4, "color": "#888888"},
            )
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlim(_LEAST, top)
        axes.set_ylim(_LEAST, top)
        axes.set_xlabel(title)
        axes.set_ylabel("auto")
        axes.grid(linewidth=0.4, color="#dddddd")
        axes.legend(fontsize=8, loc="lower right")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    return path
