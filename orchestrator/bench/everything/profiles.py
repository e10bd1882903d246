"""`idivm bench all`: run the benchmarks of a profile one after the other, and write a report."""

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
    """A benchmark of a profile: its options, and the seconds reserved for it."""

    name: str
    options: str = ""
    seconds: float = float("inf")
    part: str = ""
    """The name of the part, if the profile runs a benchmark in several parts."""

    @property
    def title(self) -> str:
        """The title in the report."""
        return f"{self.name} {self.part}".strip()

    @property
    def arguments(self) -> list[str]:
        """The options as arguments of the command line."""
        return self.options.split()


PROFILES: dict[str, tuple[Entry, ...]] = {
    "quick": (
        Entry("parts", "--scale 0.1 --repeat 2 --d 100 5000 --j 4 --s 100 --f", 100),
        Entry(
            "parts",
            "--cold --scale 0.1 --repeat 1 --d 200 --j --s 6 100 --f --strategy id --strategy tuple",
            40,
            "cold",
        ),
        Entry("bsma", "--scale 0.002 --repeat 2", 65),
        Entry(
            "skew", "--graph worst --sizes 2000 8000 --epsilon 0 1/2 1 --updates 12", 40, "worst"
        ),
        Entry(
            "skew",
            "--graph triangles pairs lookups ranked four_path in_a_row --sizes 4000 16000 --epsilon 1/2 --updates 8",
            105,
            "pairs",
        ),
        Entry("fivm", "--part updates --sizes 4000 40000", 25, "updates"),
        Entry("fivm", "--part training --rows 5000 --repeat 2", 50, "training"),
        Entry(
            "fivm",
            "--part stream --part triangles --rows 2000 --features 3 --batches 200 --limit 3",
            80,
            "streams",
        ),
        Entry(
            "fivm",
            "--part joins --part sum --rows 2000 --intervals 1 8 --scales 2 --limit 3 --repeat 2",
            85,
            "joins",
        ),
        Entry(
            "fivm", "--part housing --part matrices --postcodes 10 --matrices 16 32", 50, "matrices"
        ),
        Entry("tpch", "--scale 0.01 --rounds 2", 75),
        Entry("eager", "--parts 20000 --repeat 15", 25),
        Entry("compile", "--tables 5 8 --repeat 1 --shapes", 35),
        Entry("capture", "--seconds 1 --rows 10000 --repeat 2", 55),
        Entry(
            "fivm",
            "--part covariance --features 6 --rows 5000 --batches --repeat 2 --limit 10",
            65,
            "covariance",
        ),
    ),
    "full": (
        Entry("parts"),
        Entry("parts", "--cold", part="cold"),
        Entry("bsma"),
        Entry("fivm"),
        Entry("skew"),
        Entry("capture"),
        Entry("tpch"),
        Entry("auto"),
        Entry("load"),
        Entry("lake"),
        Entry("eager"),
        Entry("feed"),
        Entry("jobs"),
        Entry("many"),
        Entry("writers"),
        Entry("fresh"),
        Entry("orders"),
        Entry("logs"),
        Entry("temporal"),
        Entry("adopt"),
        Entry("entry"),
        Entry("console"),
        Entry("compile"),
    ),
}


@dataclass(frozen=True)
class Outcome:
    """The result of a benchmark: a report, or the reason why it is missing."""

    name: str
    command: str
    seconds: float
    report: Report | None = None
    error: str = ""
    figure: str | None = None
    """The file of the plot, in the folder of the report."""

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
    """Run the benchmarks of a profile and write the pages; return 1 if a bar does not hold.

    Each benchmark runs in its own process, so a failed or slow benchmark does not affect the
    others.
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
        progress(f"{number} of {len(entries)}: {entry.title}")
        # This benchmark may also use the time that earlier benchmarks did not need.
        later = sum(other.seconds for other in entries[number:]) if profile == "quick" else 0
        outcomes.append(_run(entry, folder, deadline - later, pg))
        # Write after each benchmark, so that an interrupted run keeps its results.
        write(profile, outcomes, folder)
    progress("")
    print(f"{folder / 'index.html'}\n{folder / 'results.md'}\n{folder / 'results.json'}")
    reports = [outcome.report for outcome in outcomes]
    return 0 if all(report is not None and report.holds for report in reports) else 1


def _run(entry: Entry, folder: Path, deadline: float, pg: int | None) -> Outcome:
    given = [*entry.arguments, *(["--pg", str(pg)] if pg else [])]
    command = " ".join(["idivm bench", entry.name, *given])
    figure = folder / f"{entry.title.replace(' ', '-')}.svg"
    has_plot = entry.name not in (
        "eager",
        "feed",
        "fresh",
        "jobs",
        "lake",
        "logs",
        "temporal",
        "adopt",
        "entry",
        "console",
        "compile",
    )
    started = time.monotonic()
    limit = deadline - started
    if limit < 10:
        return Outcome(entry.title, command, 0, error="left out, because the time ran out")
    output, complaint, stopped = _output(
        [entry.name, *given, "--json", *(["--plot", str(figure)] if has_plot else [])], limit
    )
    seconds = time.monotonic() - started
    if stopped:
        return Outcome(entry.title, command, seconds, error=f"stopped after {seconds:,.0f} seconds")
    try:
        value = json.loads(output)
    except ValueError:
        value = {"error": (complaint.strip().splitlines() or ["it ended without a report"])[-1]}
    if "error" in value:
        return Outcome(entry.title, command, seconds, error=value["error"])
    report = Report.from_json(value)
    name = figure.name if has_plot and figure.exists() else None
    return Outcome(entry.title, command, seconds, report, figure=name)


def _output(arguments: Sequence[str], limit: float) -> tuple[str, str, bool]:
    """Return the output of a benchmark, its error output, and whether it took too long."""
    process = subprocess.Popen(
        [sys.executable, "-m", "orchestrator.cli.main", "bench", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_listen_to_interrupts,
    )
    try:
        output, complaint = process.communicate(timeout=None if limit == float("inf") else limit)
        return output, complaint, False
    except subprocess.TimeoutExpired:
        # Stop it like Ctrl-C does: the benchmark stops its server and removes its files.
        process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        return "", "", True


def _listen_to_interrupts() -> None:
    """Restore SIGINT, which a shell without job control ignores in background commands."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
