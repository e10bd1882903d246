"""`idivm bench console` with a few views: the page shows them, and `serve` is watched."""

import pytest

from orchestrator.bench.console import browser
from orchestrator.bench.console.run import run
from orchestrator.errors import UsageError


@pytest.mark.slow
@pytest.mark.sampled(4)
def test_the_page_and_serve_are_measured(pg_version):
    try:
        report = run(views=3, seconds=0.2, repeat=1, pg=pg_version, say=lambda text: None)
    except UsageError as reason:
        pytest.skip(str(reason))
    [row] = report.rows
    assert row["views"] == 3
    assert all(bar.value > 0 for bar in report.bars if "core" not in bar.name)


def test_without_a_browser_a_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setattr(browser, "_PROGRAMS", ())
    with pytest.raises(UsageError, match="the package chromium"):
        run()
