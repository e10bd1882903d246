"""Run many cases in a row with totals; shrink every failure before it is shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import Connection
from psycopg.conninfo import make_conninfo
from psycopg.errors import InsufficientPrivilege
from psycopg.sql import SQL, Identifier

from orchestrator.fuzz.case import Case
from orchestrator.fuzz.encodings import created_with
from orchestrator.fuzz.loads.loading import spark_when_needed
from orchestrator.fuzz.outcome import Failure
from orchestrator.fuzz.runner import Runner
from orchestrator.fuzz.script import script
from orchestrator.fuzz.shrink import shrink

FRESH_DATABASE = 40
"""After this many cases, a new database replaces the old one.

Much DDL makes catalogs slow, and sessions keep compiled code of dropped functions.
"""


@dataclass(frozen=True)
class Finding:
    """A failure, its smallest case, and that case as a script."""

    seed: int
    case: Case
    failure: Failure
    script: str


@dataclass
class Totals:
    """The results of a campaign so far."""

    counts: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)


@contextmanager
def scratch_database(dsn: str, encoding: str = "", locale: str = "") -> Iterator[str]:
    """Create a new database on the server of `dsn` and yield its dsn; drop it at the end."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        name = f"idivm_fuzz_{connection.info.backend_pid}"
        target = Identifier(name)
        _drop(connection, target)
        connection.execute(
            SQL("CREATE DATABASE {} TEMPLATE template0 {}").format(
                target, created_with(encoding, locale)
            )
        )
        try:
            # libpq escapes literals without a connection in the encoding of the last connection.
            yield make_conninfo(dsn, dbname=name, client_encoding="UTF8")
        finally:
            _drop(connection, target)


def _drop(connection: Connection[Any], database: Identifier) -> None:
    drop = SQL("DROP DATABASE IF EXISTS {}").format(database)
    try:
        connection.execute(SQL("{} WITH (FORCE)").format(drop))
    except InsufficientPrivilege:
        # An autovacuum worker is connected, and this role may not end it. Without FORCE, PostgreSQL
        # ends it.
        connection.execute(drop)


def run_cases(
    dsn: str,
    cases: Iterator[Case],
    go_on: Callable[[Totals], bool],
    tries: int = 500,
    failed: Callable[[int, Failure], None] = lambda seed, failure: None,
) -> Totals:
    """Run cases in scratch databases on a server while `go_on` returns true.

    The function calls `failed` as soon as a case fails, before it shrinks the case.
    """
    totals = Totals()
    case = next(cases, None)
    with spark_when_needed() as spark:
        while case is not None and go_on(totals):
            kind = case.encoding, case.locale
            with scratch_database(dsn, *kind) as scratch, closing(Runner(scratch, spark)) as runner:
                for _ in range(FRESH_DATABASE):
                    if case is None or (case.encoding, case.locale) != kind or not go_on(totals):
                        break
                    _run(runner, case, totals, tries, failed)
                    case = next(cases, None)
    return totals


def _run(
    runner: Runner,
    case: Case,
    totals: Totals,
    tries: int,
    failed: Callable[[int, Failure], None],
) -> None:
    outcome = runner.run(case)
    totals.counts += outcome.counts
    if outcome.failure is not None:
        failed(case.seed, outcome.failure)
        totals.findings.append(examined(runner, case, outcome.failure, tries))


def examined(runner: Runner, case: Case, failure: Failure, tries: int = 500) -> Finding:
    """Return a failure with the smallest case that shows it."""
    smallest = shrink(case, lambda smaller: failure.same(runner.run(smaller).failure), tries)
    outcome = runner.run(smallest)
    # A failure that depends on the moment of a crash may not repeat.
    reported = outcome.failure or failure
    return Finding(case.seed, smallest, reported, script(smallest, outcome))


def summary(counts: Counter[str]) -> Sequence[tuple[str, int]]:
    """Return the counts, with the most interesting ones first."""
    first = ("cases", "views", "batches", "refreshes", "comparisons", "crashes")
    return [(name, counts[name]) for name in first] + sorted(
        (name, count) for name, count in counts.items() if name not in first
    )
