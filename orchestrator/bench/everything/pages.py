"""The report of `idivm bench all`: one page of HTML, the same as Markdown, and the results as JSON."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator import __version__
from orchestrator.bench.fivm.stream import STORED
from orchestrator.bench.report import Report, number, shown_columns

if TYPE_CHECKING:
    from orchestrator.bench.everything.profiles import Outcome

Row = dict[str, Any]
PACKAGES = ("psycopg", "sqlglot", "pyspark")
LONG = 40
"""A longer table appears only in the JSON, not in the Markdown page."""


@dataclass(frozen=True)
class Table:
    """A table of texts; columns of numbers are aligned right."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Paper:
    """The place of a benchmark's figures in a paper, and the label of a row in the comparison."""

    title: Callable[[Row], str]
    call: Callable[[Row], str]


def _point(row: Row) -> str:
    column = "s %" if row["varied"] == "s" else row["varied"]
    return f"{row['strategy']} / id, {column} = {row.get(column, '')}"


def _view(row: Row) -> str:
    return f"{row['view']}, {row['strategy']} / id"


def _fivm(row: Row) -> str:
    how = "the space" if row["name"].endswith(STORED) else "the time"
    return f"F-IVM, figure {row['figure']}: how many times {how} of the view tree"


PAPERS: Mapping[str, Paper] = {
    "parts": Paper(lambda row: "idIVM, figure 12: how many times as long", _point),
    "parts, cold": Paper(lambda row: "idIVM, figure 12, cold: how many times as long", _point),
    "bsma": Paper(lambda row: "idIVM, figure 10: how many times as long", _view),
    "bsma, cold": Paper(lambda row: "idIVM, figure 10, cold: how many times as long", _view),
    "fivm": Paper(_fivm, lambda row: f"{row['name']}: {row['side']}"),
}
"""The benchmarks whose rows have a figure in a paper."""

SLOPES = {
    "pairs": "Hierarchical queries, theorem 3: exponent",
    "triangles": "Triangle counting: exponent",
    "unary": "Triangle queries with a free variable: exponent",
    "binary": "Triangle queries with free variables: exponent",
    "ternary": "Triangle queries with free variables: exponent",
    "four_path": "Counting queries: exponent",
    "loomis_whitney": "Counting queries: exponent",
    "in_a_row": "Counting queries: exponent",
    "lookups": "Queries with access patterns: exponent",
    "ranked": "Ranked enumeration: exponent",
}
"""The results of papers for which slopes are measured, by the first word of the bar's name."""


def beside_papers(report: Report) -> Iterator[tuple[str, str, str, str]]:
    """Yield the figures that a paper also gives: paper, subject, our figure, the paper's figure."""
    paper = PAPERS.get(report.bench)
    for row in report.rows if paper else ():
        ours = row.get("time / id", row.get("ratio"))
        if paper and row.get("paper") is not None and ours is not None:
            yield paper.title(row), paper.call(row), number(ours), number(row["paper"])
    for bar in report.bars if report.bench == "skew" else ():
        title = SLOPES.get(bar.name.split()[0].rstrip(","))
        if title and "slope" in bar.name and bar.op in ("<=", "≈"):
            bound = "at most " if bar.op == "<=" else ""
            yield title, bar.name, number(bar.value), f"{bound}{number(bar.limit)}"


def bars_table(report: Report) -> Table:
    """Return the table of the bars with their verdicts."""
    rows = tuple(
        (bar.name, number(bar.value), f"{bar.op} {number(bar.limit)}", report.verdict(bar))
        for bar in report.bars
    )
    return Table(("bar", "measured", "limit", ""), rows, frozenset({1, 2}))


def rows_table(rows: Sequence[Row]) -> Table:
    """Return the table of a report's rows."""
    names = shown_columns(list(rows))
    cells = tuple(tuple(number(row.get(name)) for name in names) for row in rows)
    numeric = {
        place
        for place, name in enumerate(names)
        if all(not isinstance(row.get(name), str) for row in rows)
    }
    return Table(tuple(names), cells, frozenset(numeric))


def summary(outcomes: Sequence[Outcome]) -> Table:
    """Return a table with a row for each benchmark: how many bars hold, and how long it took."""

    def row(outcome: Outcome) -> tuple[str, ...]:
        if outcome.report is None:
            return (outcome.name, "", "", "", f"{outcome.seconds:,.0f} s", outcome.error)
        verdicts = [outcome.report.verdict(bar) for bar in outcome.report.bars]
        counts = [verdicts.count(v) for v in ("holds", "DOES NOT HOLD", "needs a larger run")]
        return (outcome.name, *map(str, counts), f"{outcome.seconds:,.0f} s", "")

    columns = ("benchmark", "hold", "do not hold", "need a larger run", "took", "")
    return Table(columns, tuple(map(row, outcomes)), frozenset({1, 2, 3, 4}))


def papers_table(outcomes: Sequence[Outcome]) -> Table:
    """Return the table that compares the papers' figures with ours."""
    rows = tuple(
        row for outcome in outcomes if outcome.report for row in beside_papers(outcome.report)
    )
    return Table(("paper", "measured", "idivm", "the paper"), rows, frozenset({2, 3}))


def facts(outcomes: Sequence[Outcome]) -> dict[str, str]:
    """Return the machine and the versions."""
    machine = next((outcome.report.machine for outcome in outcomes if outcome.report), {})
    versions = {"idivm": __version__, "Python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return {**machine, **versions}


def busy(outcomes: Sequence[Outcome]) -> str:
    """Return a warning if other programs kept the machine busy before a benchmark."""
    loads = [
        (float(report.machine["load before"]), int(report.machine["cores"]))
        for report in (outcome.report for outcome in outcomes)
        if report is not None and {"load before", "cores"} <= report.machine.keys()
    ]
    worst, cores = max(loads, default=(0.0, 1))
    if worst <= cores:
        return ""
    return (
        f"The machine was busy: up to {worst:,.1f} processes wanted {cores} cores before a benchmark"
        " began. All times here are provisional, and no result."
    )


def write(profile: str, outcomes: Sequence[Outcome], folder: Path) -> None:
    """Write `index.html`, `results.md` and `results.json` into the folder."""
    date = time.strftime("%Y-%m-%d")
    (folder / "results.json").write_text(
        json.dumps(
            {
                "profile": profile,
                "date": date,
                "facts": facts(outcomes),
                "benchmarks": [outcome.to_json() for outcome in outcomes],
            },
            indent=1,
            ensure_ascii=False,
        ),
        encoding="utf-8",
    )
    (folder / "results.md").write_text(_markdown(profile, date, outcomes), encoding="utf-8")
    (folder / "index.html").write_text(_html(profile, date, outcomes, folder), encoding="utf-8")


LEAD = (
    "Measured with {command} on {date}. The limits belong to the default sizes of the"
    " benchmarks. If a smaller or shorter run misses a limit, the page says “needs a larger run”: the miss proves"
    " nothing."
)


def _markdown(profile: str, date: str, outcomes: Sequence[Outcome]) -> str:
    lead = LEAD.format(command=f"`idivm bench all --profile {profile}`", date=date)
    parts = ["# Results", lead]
    if warning := busy(outcomes):
        parts.append(f"**{warning}**")
    parts += ["## Summary", _markdown_table(summary(outcomes))]
    if (papers := papers_table(outcomes)).rows:
        parts += ["## The papers' figures beside ours", _markdown_table(papers)]
    for outcome in outcomes:
        parts += [f"## {outcome.name}", f"    {outcome.command}"]
        if outcome.report is None:
            parts.append(f"No report: {outcome.error}")
            continue
        if outcome.report.assumes:
            parts.append(f"The limits assume a larger run: {outcome.report.assumes}.")
        if outcome.figure:
            parts.append(f"![{outcome.name}]({outcome.figure})")
        if outcome.report.bars:
            parts.append(_markdown_table(bars_table(outcome.report)))
        rows = rows_table(outcome.report.rows)
        if len(rows.rows) <= LONG:
            parts.append(_markdown_table(rows))
        else:
            parts.append(f"`results.json` has the {len(rows.rows)} measurements.")
    machine = Table(("", ""), tuple(facts(outcomes).items()))
    parts += ["## Machine and versions", _markdown_table(machine)]
    return "\n\n".join(parts) + "\n"


def _markdown_table(table: Table) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    rule = ["---:" if place in table.right else "---" for place in range(len(table.columns))]
    return "\n".join([line(table.columns), line(rule), *map(line, table.rows)])


STYLE = """
:root { color-scheme: light dark; --line: #d0d7de; --soft: #6b7280; --page: #fff; --ink: #1f2328; }
@media (prefers-color-scheme: dark) {
  :root { --line: #3d444d; --soft: #9ca3af; --page: #0d1117; --ink: #e6edf3; }
}
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1100px; margin: 2rem auto; padding: 0 1rem;
       background: var(--page); color: var(--ink); }
table { border-collapse: collapse; margin: 1rem 0; font-size: 13px; display: block; overflow-x: auto; }
th, td { padding: .3rem .7rem; border-bottom: 1px solid var(--line); text-align: left; white-space: nowrap; }
.right { text-align: right; font-variant-numeric: tabular-nums; }
.good { color: #1a7f37; } .bad { color: #cf222e; font-weight: 600; } .open { color: #9a6700; }
.note { border-left: 4px solid #d4a72c; padding: .5rem 1rem; }
code { font-size: 13px; } summary { cursor: pointer; color: var(--soft); }
figure { margin: 1rem 0; background: #fff; padding: .5rem; border-radius: 6px; overflow-x: auto; }
figure svg { max-width: 100%; height: auto; }
"""

CLASSES = {"holds": "good", "DOES NOT HOLD": "bad", "needs a larger run": "open"}


def _html(profile: str, date: str, outcomes: Sequence[Outcome], folder: Path) -> str:
    command = f"<code>idivm bench all --profile {escape(profile)}</code>"
    parts = [f"<h1>idivm: results</h1><p>{LEAD.format(command=command, date=date)}</p>"]
    if warning := busy(outcomes):
        parts.append(f'<p class="note">{escape(warning)}</p>')
    parts.append("<h2>Summary</h2>" + _html_table(summary(outcomes)))
    if (papers := papers_table(outcomes)).rows:
        parts.append("<h2>The papers’ figures beside ours</h2>" + _html_table(papers))
    for outcome in outcomes:
        parts.append(_html_section(outcome, folder))
    machine = Table(("", ""), tuple(facts(outcomes).items()))
    parts.append("<h2>Machine and versions</h2>" + _html_table(machine))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>idivm: results</title><style>{STYLE}</style></head><body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def _html_section(outcome: Outcome, folder: Path) -> str:
    name = escape(outcome.name)
    parts = [f'<h2 id="{name}">{name}</h2><p><code>{escape(outcome.command)}</code></p>']
    report = outcome.report
    if report is None:
        return parts[0] + f'<p class="bad">No report: {escape(outcome.error)}</p>'
    if report.assumes:
        parts.append(f"<p>The limits assume a larger run: {escape(report.assumes)}.</p>")
    if outcome.figure:
        drawing = (folder / outcome.figure).read_text(encoding="utf-8")
        # The page embeds the drawing without the XML header, which only belongs in files.
        parts.append(f"<figure>{drawing[drawing.index('<svg') :]}</figure>")
    if report.bars:
        parts.append(_html_table(bars_table(report)))
    rows = rows_table(report.rows)
    table = _html_table(rows)
    parts.append(f"<details><summary>{len(rows.rows)} measurements</summary>{table}</details>")
    return "\n".join(parts)


def _html_table(table: Table) -> str:
    def cell(tag: str, place: int, text: str) -> str:
        kinds = [CLASSES[text]] if text in CLASSES else []
        kinds += ["right"] if place in table.right else []
        kind = f' class="{" ".join(kinds)}"' if kinds else ""
        return f"<{tag}{kind}>{escape(text)}</{tag}>"

    def line(tag: str, cells: Sequence[str]) -> str:
        return (
            "<tr>" + "".join(cell(tag, place, text) for place, text in enumerate(cells)) + "</tr>"
        )

    body = "".join(line("td", row) for row in table.rows)
    return f"<table><thead>{line('th', table.columns)}</thead><tbody>{body}</tbody></table>"
