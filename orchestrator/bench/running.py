"""Run benchmarks by name, with the options of the command line."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any


def measurement(name: str) -> Callable[..., Any]:
    """Return the function `run` of the module with this name, or of its submodule `run`."""
    module = import_module(f"orchestrator.bench.{name}")
    if hasattr(module, "__path__"):
        module = import_module(f"{module.__name__}.run")
    run: Callable[..., Any] = module.run
    return run


def measure(options: argparse.Namespace) -> int:
    """Run the module of the benchmark; its `run` takes the options by name."""
    from dataclasses import replace

    from orchestrator.bench import plot
    from orchestrator.bench.report import plot as plot_bars
    from orchestrator.bench.report import progress, show
    from orchestrator.bench.scale import assumed
    from orchestrator.errors import UsageError

    run = measurement(options.bench)
    wanted = inspect.signature(run).parameters
    if options.dsn and "dsn" not in wanted:
        raise UsageError("This benchmark starts its own server: omit --dsn.")
    given = {name: value for name, value in vars(options).items() if value is not None}
    values = {name: given[name] for name in wanted if name in given}
    report = replace(run(**values, say=progress), assumes=assumed(run, values))
    own = import_module(f"orchestrator.bench.{options.bench}")
    draw = getattr(own, "draw", None) or getattr(plot, f"draw_{options.bench}", plot_bars)
    return show(report, as_json=options.json, plot_to=given.get("plot"), draw=draw)


def run_all_benchmarks(options: argparse.Namespace) -> int:
    """Run the benchmarks of a profile, and write their report."""
    from orchestrator.bench.everything.profiles import run_all
    from orchestrator.errors import UsageError

    if options.dsn:
        raise UsageError("These benchmarks start servers of their own: omit --dsn.")
    return run_all(options.profile, options.report, only=options.only or (), pg=options.pg)


def run_fuzzer(options: argparse.Namespace) -> int:
    """Run the fuzzer on a given server, or on a server of its own."""

    from orchestrator.bench.fuzz import run
    from orchestrator.bench.measure import logical_server, own_server, with_password
    from orchestrator.errors import UsageError

    def on(dsn: str) -> int:
        return run(
            dsn=dsn,
            minutes=options.minutes,
            seed=options.seed,
            cases=options.cases,
            strategies=options.strategies,
            modes=options.modes,
            encodings=options.encodings,
            locales=options.locales,
            loads=options.load,
            temporal=options.temporal,
            wal=options.wal,
            replay=options.replay,
            save=options.save,
            as_json=options.json,
        )

    if options.dsn:
        if options.in_c:
            raise UsageError("--in-c starts its own server: omit --dsn.")
        return on(options.dsn)
    own = logical_server if options.wal else own_server
    with own(options.pg, {"max_prepared_transactions": "10"}) as server:
        if options.in_c:
            server.add_module()
        # Only a superuser may create C functions.
        endpoint = server.up()
        dsn = endpoint.superuser_dsn if options.in_c else endpoint.dsn
        return on(with_password(dsn) if options.load else dsn)
