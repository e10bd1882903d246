"""`idivm bench all`: the profiles, and the report as HTML, Markdown and JSON."""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from orchestrator.bench import names
from orchestrator.bench.everything import pages, profiles
from orchestrator.bench.everything.profiles import PROFILES, Entry, Outcome
from orchestrator.bench.report import Bar, Report
from orchestrator.errors import UsageError

MACHINE = {"cpu": "abacus", "cores": "2", "load before": "0.5"}
BARS = (Bar("fast <enough>", 1.5, "<=", 1.5), Bar("saves", 2.0, ">=", 15), Bar("errors", 1, "=", 0))
ROW = {"view": "q1", "strategy": "tuple", "ms": 2.5, "time / id": 3.0, "paper": 4.0, "more": {}}


def outcomes(folder: Path) -> list[Outcome]:
    (folder / "bsma.svg").write_text('<?xml version="1.0"?>\n<svg><text>drawn</text></svg>')
    report = Report("bsma", MACHINE, (ROW, ROW | {"paper": None}), BARS, assumes="scale 1")
    return [
        Outcome("bsma", "idivm bench bsma --scale 0.1", 12, report, figure="bsma.svg"),
        Outcome("tpch", "idivm bench tpch", 3, error="no <space> left"),
    ]


@pytest.mark.parametrize("profile", PROFILES)
def test_the_options_of_a_profile_are_options_of_the_benchmarks(profile: str) -> None:
    common = argparse.ArgumentParser(add_help=False)
    parser = argparse.ArgumentParser()
    names.add_arguments(parser, common)
    for entry in PROFILES[profile]:
        assert parser.parse_args([entry.name, *entry.arguments]).bench == entry.name
    limits = sum(entry.seconds for entry in PROFILES["quick"])
    assert limits <= profiles.QUICK_MINUTES * 60


def test_a_missed_limit_needs_a_larger_run_unless_it_is_an_exact_number() -> None:
    small, large = (Report("b", MACHINE, (), BARS, assumes=text) for text in ("scale 1", ""))
    assert [small.verdict(bar) for bar in BARS] == ["holds", "needs a larger run", "DOES NOT HOLD"]
    assert [large.verdict(bar) for bar in BARS] == ["holds", "DOES NOT HOLD", "DOES NOT HOLD"]
    assert Report("b", MACHINE, (), BARS[:2], assumes="scale 1").exit_status == 0
    assert Report.from_json(json.loads(json.dumps(small.to_json()))) == small


class Structure(HTMLParser):
    """The tags that are open at the end, and every address that the page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_pages_show_bars_figures_and_errors(tmp_path: Path) -> None:
    pages.write("quick", outcomes(tmp_path), tmp_path)
    html = (tmp_path / "index.html").read_text()
    structure = Structure()
    structure.feed(html)
    assert (structure.open, structure.loads) == ([], [])
    for text in ("fast &lt;enough&gt;", "no &lt;space&gt; left", "drawn", "figure 10", "abacus"):
        assert text in html
    assert html.count("needs a larger run</td>") == 1
    markdown = (tmp_path / "results.md").read_text()
    assert "| q1, tuple / id | 3 | 4 |" in markdown
    assert "![bsma](bsma.svg)" in markdown
    assert "| bsma | 1 | 1 | 1 | 12 s |" in markdown
    assert "provisional" not in markdown
    results = json.loads((tmp_path / "results.json").read_text())
    assert [benchmark["error"] for benchmark in results["benchmarks"]] == ["", "no <space> left"]


def test_a_busy_machine_has_no_results(tmp_path: Path) -> None:
    report = Report("eager", MACHINE | {"load before": "9.5"}, (), ())
    pages.write("quick", [Outcome("eager", "idivm bench eager", 1, report)], tmp_path)
    assert "provisional" in (tmp_path / "results.md").read_text()


def test_a_benchmark_that_fails_or_takes_too_long_leaves_the_others_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = iter([("", "", True), ("", "Traceback:\nValueError: a reason", False)])
    monkeypatch.setattr(profiles, "_output", lambda arguments, limit: next(ends))
    entries = (Entry("eager", "", 20), Entry("skew", "", 20, "worst"))
    monkeypatch.setitem(profiles.PROFILES, "quick", entries)
    assert profiles.run_all("quick", tmp_path) == 1
    markdown = (tmp_path / "results.md").read_text()
    assert "stopped after" in markdown
    assert "## skew worst" in markdown and "ValueError: a reason" in markdown
    with pytest.raises(UsageError, match="has no benchmark nothing; it has eager, skew"):
        profiles.run_all("quick", tmp_path, only=["nothing"])


def test_a_benchmark_in_the_background_can_be_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(process: subprocess.Popen[str]) -> None:
        raise AssertionError("the benchmark did not listen")

    monkeypatch.setattr(subprocess.Popen, "kill", killed)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert profiles._output(["logs"], 0.1) == ("", "", True)
    finally:
        signal.signal(signal.SIGINT, before)
