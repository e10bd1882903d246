"""`idivm bench all`: run many benchmarks one after the other, and write a report."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.bench.report import Report, progress
from orchestrator.errors import UsageError

QUICK_MINUTES = 15


@dataclass(frozen=True)
class Entry:
    """A benchmark of a profile: its options, and the seconds after which it is stopped."""

    name: str
    options: str = ""
    seconds: float = float("inf")

    @property
    def arguments(self) -> list[str]:
        """The options as arguments of the command line."""
        return self.options.split()


PROFILES: dict[str, tuple[Entry, ...]] = {
    "quick": (
        Entry(
            "parts", "--scale 0.1 --repeat 3 --d 100 500 5000 --j 2 4 6 --s 12 100 --f 5 20", 150
        ),
        Entry("bsma", "--scale 0.002 --repeat 3", 120),
        Entry(
            "fivm",
            "--part updates --part covariance --part houses --part training --part sum --part housing"
            " --part matrices --sizes 10000 100000 --rows 10000 --batches 100 --scales 1 5 --repeat 3"
            " --matrices 128 256 --limit 20",
            180,
        ),
        Entry(
            "skew",
            "--graph worst pairs four_path --sizes 2000 8000 --epsilon 0 1/2 1 --updates 12",
            150,
        ),
        Entry("capture", "--seconds 2 --rows 20000 --repeat 3", 60),
        Entry("tpch", "--scale 0.01 --rounds 3", 100),
        Entry("eager", "--parts 20000 --repeat 15", 40),
        Entry("writers", "--seconds 5 --scale 2 --clients 4", 40),
        Entry("compile", "--tables 5 10 --repeat 1 --shapes", 60),
    ),
    "full": (
        Entry("parts"),
        Entry("bsma"),
        Entry("fivm"),
        Entry("skew"),
        Entry("capture"),
        Entry("tpch"),
        Entry("auto"),
        Entry("load"),
        Entry("eager"),
        Entry("writers"),
        Entry("orders"),
        Entry("logs"),
        Entry("adopt"),
        Entry("compile"),
    ),
}


@dataclass(frozen=True)
class Outcome:
    """What became of a benchmark: a report, or the reason why there is none."""

    name: str
    command: str
    seconds: float
    report: Report | None = None
    error: str = ""
    figure: str | None = None
    """The file with the plot, in the folder of the report."""

    def to_json(self) -> dict[str, Any]:
        """Return the outcome as plain values."""
        return {
            "name": self.name,
            "command": self.command,
            "seconds": round(self.seconds, 1),
            "error": self.error,
            "report": self.report.to_json() if self.report else None,
        }


def run_all(profile: str, folder: Path, *, only: Sequence[str] = (), pg: int | None = None) -> int:
    """Run the benchmarks of a profile, and write the pages. Return 1 if a bar does not hold.

    Each benchmark is a process of its own, so that one that fails or takes too long leaves the others alone.
    """
    from orchestrator.bench.everything.pages import write

    entries = [entry for entry in PROFILES[profile] if not only or entry.name in only]
    if unknown := set(only) - {entry.name for entry in entries}:
        raise UsageError(
            f"The profile {profile} has no benchmark {', '.join(sorted(unknown))}; it has"
            f" {', '.join(entry.name for entry in PROFILES[profile])}."
        )
    folder.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + (QUICK_MINUTES * 60 if profile == "quick" else float("inf"))
    outcomes: list[Outcome] = []
    for number, entry in enumerate(entries, 1):
        progress(f"{number} of {len(entries)}: {entry.name}")
        outcomes.append(_run(entry, folder, deadline, pg))
        # Whoever stops the run keeps what is measured already.
        write(profile, outcomes, folder)
    progress("")
    print(f"{folder / 'index.html'}\n{folder / 'results.md'}\n{folder / 'results.json'}")
    reports = [outcome.report for outcome in outcomes]
    return 0 if all(report is not None and report.holds for report in reports) else 1


def _run(entry: Entry, folder: Path, deadline: float, pg: int | None) -> Outcome:
    given = [*entry.arguments, *(["--pg", str(pg)] if pg else [])]
    command = " ".join(["idivm bench", entry.name, *given])
    figure = folder / f"{entry.name}.svg"
    has_plot = entry.name not in ("eager", "logs", "adopt", "compile")
    started = time.monotonic()
    limit = min(entry.seconds, deadline - started)
    if limit < 10:
        return Outcome(entry.name, command, 0, error="left out, because the time ran out")
    output, stopped = _output(
        [entry.name, *given, "--json", *(["--plot", str(figure)] if has_plot else [])], limit
    )
    seconds = time.monotonic() - started
    if stopped:
        return Outcome(entry.name, command, seconds, error=f"stopped after {seconds:,.0f} seconds")
    try:
        value = json.loads(output)
        report = Report.from_json(value)
    except (ValueError, KeyError):
        lines = output.strip().splitlines() or ["it ended without a report"]
        error = value["error"] if output.startswith("{") and "error" in value else lines[-1]
        return Outcome(entry.name, command, seconds, error=str(error))
    name = figure.name if has_plot and figure.exists() else None
    return Outcome(entry.name, command, seconds, report, figure=name)


def _output(arguments: Sequence[str], limit: float) -> tuple[str, bool]:
    """Return what a benchmark printed, and whether it took too long."""
    process = subprocess.Popen(
        [sys.executable, "-m", "orchestrator.cli.main", "bench", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        output, _ = process.communicate(timeout=None if limit == float("inf") else limit)
        return output, False
    except subprocess.TimeoutExpired:
        # As Ctrl-C does: the benchmark stops its server and removes its files.
        process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        return "", True
