"""The report of a benchmark: bars, JSON, table, plot."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.bench.report import Bar, Report, plot, show

MACHINE = {"cpu": "abacus", "cores": "2", "fsync": "on"}
ROWS = ({"measured": "[a] b", "ms": 12345.6, "n": 1234567}, {"measured": "c", "ms": None, "n": 0})
GOOD = Bar("fast enough", 1.5, "<=", 1.5)
BAD = Bar("writes nothing", 3, "=", 0)


@pytest.mark.parametrize(
    ("value", "op", "limit", "holds"),
    [
        (0.9, ">=", 0.9, True),
        (0.89, ">=", 0.9, False),
        (2.2, "<=", 2.2, True),
        (2.3, "<=", 2.2, False),
        (2, "<", 2, False),
        (3, ">", 2, True),
        (0, "=", 0, True),
        (1, "=", 0, False),
    ],
)
def test_a_bar_holds_or_does_not(value: float, op: str, limit: float, holds: bool) -> None:
    assert Bar("bar", value, op, limit).holds is holds


def test_one_bar_that_does_not_hold_is_a_finding() -> None:
    assert Report("b", MACHINE, ROWS, (GOOD,)).exit_status == 0
    assert Report("b", MACHINE, ROWS, (GOOD, BAD)).exit_status == 1


def test_json_is_what_programs_were_promised(capsys: pytest.CaptureFixture[str]) -> None:
    assert show(Report("capture", MACHINE, ROWS, (GOOD, BAD)), as_json=True) == 1
    assert json.loads(capsys.readouterr().out) == {
        "bench": "capture",
        "machine": MACHINE,
        "rows": list(ROWS),
        "bars": [
            {"name": "fast enough", "value": 1.5, "op": "<=", "limit": 1.5, "holds": True},
            {"name": "writes nothing", "value": 3, "op": "=", "limit": 0, "holds": False},
        ],
    }


def test_the_table_shows_every_row_and_bar(capsys: pytest.CaptureFixture[str]) -> None:
    assert show(Report("capture", MACHINE, ROWS, (GOOD, BAD))) == 1
    printed = capsys.readouterr().out
    for text in ("abacus", "fsync = on", "[a] b", "12,346", "1,234,567", "fast enough"):
        assert text in printed
    assert printed.count("DOES NOT HOLD") == 1


def test_a_plot_shows_every_bar_that_has_a_length(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "new" / "plot.svg"
    assert plot(Report("b", MACHINE, ROWS, (GOOD, GOOD, BAD)), path) == path
    drawn = path.read_text()
    assert 'id="axes_2"' in drawn and 'id="axes_3"' not in drawn
    assert plot(Report("b", MACHINE, ROWS, ()), path) is None


def test_without_matplotlib_there_is_no_plot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    assert plot(Report("b", MACHINE, ROWS, (GOOD,)), tmp_path / "plot.png") is None
