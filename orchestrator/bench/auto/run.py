"""Run the whole benchmark: every suite, every state of the statistics, every view."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatch

from orchestrator.api import connect
from orchestrator.bench.auto.cells import CONTENDERS, QUICK_CONTENDERS, Bench, Cell, distort, load
from orchestrator.bench.auto.changes import QUICK_SIZES, SIZES
from orchestrator.bench.auto.judge import bars, over, row, worst
from orchestrator.bench.auto.suites import GOOD, Suite, suites
from orchestrator.bench.contenders import AUTO
from orchestrator.bench.measure import STEADY, in_c_or_say, machine, own_server
from orchestrator.bench.report import Bar, Report, progress
from orchestrator.errors import UsageError

LIMIT, QUICK_LIMIT = 60.0, 10.0
PASSES, QUICK_PASSES = 3, 2
MEMORY = "1GB"


def run(
    *,
    dsn: str | None = None,
    quick: bool = False,
    views: Sequence[str] = (),
    sizes: Sequence[str] = (),
    statistics: Sequence[str] = (),
    strategies: Sequence[str] = (),
    limit: float | None = None,
    pg: int | None = None,
    say: Callable[[str], None] = progress,
) -> Report:
    """Run the benchmark on its own server, or in schema idivm_bench of the database at `dsn`."""
    limit = limit or (QUICK_LIMIT if quick else LIMIT)
    if limit <= 0:
        raise UsageError("--limit is the seconds of a refresh: give more than 0.")
    known = {item.label for item in CONTENDERS}
    if unknown := set(strategies) - known:
        raise UsageError(
            f"There is no strategy {min(unknown)!r}; choose from {', '.join(sorted(known))}."
        )
    if wrong := [size for size in sizes if not re.fullmatch(r"[1-9]\d*%?", size)]:
        raise UsageError(f"{wrong[0]!r} is no size of a change; give a number or a per cent.")
    usual = QUICK_CONTENDERS if quick else CONTENDERS
    contenders = [
        item
        for item in (CONTENDERS if strategies else usual)
        if not strategies or item.label in strategies
    ]
    if AUTO not in contenders:
        contenders.insert(0, AUTO)

    def on(at: str, superuser_dsn: str) -> Report:
        with connect(at) as orchestrator:
            bench = Bench(
                orchestrator,
                sizes or (QUICK_SIZES if quick else SIZES),
                contenders,
                limit,
                QUICK_PASSES if quick else PASSES,
                quick,
                say,
            )
            described = machine(orchestrator.connection)
            cells = list(_cells(bench, superuser_dsn, quick, views, statistics))
            if not cells and not bench.failures:
                raise UsageError(f"No view matches {', '.join(views)}.")
            rows = [row(cell) for cell in cells]
            failed = [{"view": view, "failure": text} for view, text in bench.failures.items()]
            limits = (Bar("views that failed", len(failed), "=", 0), *bars(rows))
            highlights = {
                "Worst against recomputing": worst(rows, lambda r: r["auto / again"]),
                "Worst against the best strategy": worst(
                    rows, lambda r: over(r["auto ms"], r["best ms"])
                ),
                **({"Views that failed": failed} if failed else {}),
            }
            return Report("auto", described, tuple(rows), limits, highlights)

    if dsn is not None:
        return on(dsn, dsn)
    with own_server(pg, {**STEADY, "shared_buffers": MEMORY}) as server:
        in_c_or_say(server, "So capture is measured in plpgsql.", say)
        endpoint = server.up()
        return on(endpoint.dsn, endpoint.superuser_dsn)


def _cells(
    bench: Bench,
    superuser_dsn: str,
    quick: bool,
    views: Sequence[str],
    statistics: Sequence[str],
) -> Iterator[Cell]:
    orchestrator = bench.orchestrator
    version = orchestrator.connection.info.server_version // 10_000
    for suite in suites(version):
        chosen = [view for view in suite.views if _matches(suite, view.name, views)]
        if not chosen:
            continue
        states = statistics or (GOOD, *(() if quick else suite.statistics))
        for state in states:
            if state != GOOD and state not in suite.statistics:
                continue
            bench.say(f"{suite.name}, loading")
            workload, settings = suite.workload(quick)
            with workload.tables(orchestrator, settings):
                load(orchestrator, suite)
                distort(superuser_dsn, state)
                for view in chosen:
                    yield from bench.cells(suite, view, state)


def _matches(suite: Suite, name: str, patterns: Sequence[str]) -> bool:
    """Return whether the user asked for a view, by the name of the view or of its suite.

    >>> _matches(Suite("graph", ""), "triangles", ["tri*"]), _matches(Suite("graph", ""), "x", ["tri*"])
    (True, False)
    """
    return not patterns or any(
        fnmatch(name, pattern) or fnmatch(suite.name, pattern) for pattern in patterns
    )
