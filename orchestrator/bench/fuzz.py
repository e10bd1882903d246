"""`idivm bench fuzz`: check random views and changes against their queries for a given time."""

from __future__ import annotations

import itertools
import json
import logging
import secrets
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg

from orchestrator.api import default_dsn
from orchestrator.errors import NotFoundError, UsageError
from orchestrator.fuzz.campaign import Finding, Totals, run_cases, summary
from orchestrator.fuzz.case import Case, from_json, to_json
from orchestrator.fuzz.encodings import ENCODINGS, combinations, in_database
from orchestrator.fuzz.generate import generate
from orchestrator.fuzz.options import MODES, STRATEGIES, TEMPORAL_SHARE
from orchestrator.fuzz.outcome import Failure
from orchestrator.runtime.errors import explained

TURN = 8
"""The cases in a row in databases of the same kind."""

FINDINGS = 5
"""This many failures end a run, because further ones mostly have the same cause."""


def run(
    *,
    minutes: float = 1,
    seed: int | None = None,
    dsn: str | None = None,
    strategies: Sequence[str] | None = None,
    modes: Sequence[str] | None = None,
    encodings: Sequence[str] | None = None,
    locales: Sequence[str] | None = None,
    cases: int | None = None,
    loads: bool = False,
    temporal: bool = False,
    wal: bool = False,
    replay: Path | None = None,
    save: Path | None = None,
    as_json: bool = False,
) -> int:
    """Run the cases of consecutive seeds and print totals and failures; return 1 if there are any.

    The user must be allowed to create databases and end backends on the server, best as a
    superuser: every run has its own databases. `cases` limits the number of cases, `loads` adds
    loads to each case, `temporal` moves the time in each case, `wal` captures tables from the WAL,
    which the server must be able to decode, and `replay` runs a saved case instead. `save` names a
    folder for the shrunken case of every failure, as JSON. The databases
    alternate between the encodings and locales.
    """
    _known("strategy", strategies, STRATEGIES)
    _known("mode", modes, tuple(MODES))
    _known("encoding", encodings, tuple(ENCODINGS))
    first = secrets.randbelow(10**9) if seed is None else seed
    target = dsn or default_dsn()
    kinds = [("", "")]
    with explained("Fuzzing"), psycopg.connect(target, autocommit=True) as connection:
        if wal and connection.execute("SHOW wal_level").fetchone() != ("logical",):
            raise UsageError("The server has wal_level below logical: omit --dsn.")
        version = connection.info.parameter_status("server_version")
        if encodings or locales:
            kinds = combinations(connection, encodings or ["UTF8"], locales or ["C"])
    given = (
        iter([_saved(replay)])
        if replay
        else _cases(
            first, strategies or STRATEGIES, modes or tuple(MODES), kinds, loads, temporal, wal
        )
    )
    if not as_json:
        print(f"fuzz: PostgreSQL {version}, seeds from {first}, {minutes:g} minutes", flush=True)
        if encodings or locales:
            print(f"fuzz: databases with {'; '.join(map(' '.join, kinds))}", flush=True)
    # psycopg warns of every connection that a case cuts on purpose.
    logging.getLogger("psycopg").setLevel(logging.ERROR)
    progress = _Progress(minutes, cases, quiet=as_json)
    with explained("Fuzzing"):
        totals = run_cases(target, given, progress.go_on, failed=progress.failed)
    after = first + totals.counts["cases"]
    if save is not None:
        for finding in totals.findings:
            save.mkdir(parents=True, exist_ok=True)
            (save / f"seed_{finding.seed}.json").write_text(to_json(finding.case))
    if as_json:
        print(json.dumps(_report(totals, str(version), first, after), indent=2, ensure_ascii=False))
    else:
        for finding in totals.findings:
            _show(finding)
        for name, count in summary(totals.counts):
            print(f"  {count:>9,} {name}")
        print(f"  {len(totals.findings):>9,} failures; go on with --seed {after}")
    return 1 if totals.findings else 0


class _Progress:
    """Decides when to stop, and reports the progress every minute."""

    def __init__(self, minutes: float, cases: int | None, quiet: bool) -> None:
        self.start = self.last_report = time.monotonic()
        self.seconds = minutes * 60
        self.cases = cases
        self.quiet = quiet

    def failed(self, seed: int, failure: Failure) -> None:
        """Report a failure; its smallest case follows at the end."""
        if not self.quiet:
            print(f"fuzz: seed {seed} failed: {failure}", flush=True)

    def go_on(self, totals: Totals) -> bool:
        """Return whether to run another case."""
        now = time.monotonic()
        if not self.quiet and now - self.last_report > 60:
            self.last_report = now
            print(f"fuzz: {totals.counts['cases']:,} cases", file=sys.stderr, flush=True)
        if self.cases is not None and totals.counts["cases"] >= self.cases:
            return False
        return len(totals.findings) < FINDINGS and now - self.start < self.seconds


def _cases(
    first: int,
    strategies: Sequence[str],
    modes: Sequence[str],
    kinds: Sequence[tuple[str, str]],
    loads: bool,
    temporal: bool,
    wal: bool,
) -> Iterator[Case]:
    share = 1 if temporal else TEMPORAL_SHARE
    for seed in itertools.count(first):
        kind = kinds[(seed - first) // TURN % len(kinds)]
        yield in_database(generate(seed, strategies, modes, loads, share, wal), *kind)


def _saved(path: Path) -> Case:
    try:
        return from_json(path.read_text())
    except OSError as error:
        raise NotFoundError(f"Cannot read the saved case {path}: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError, AssertionError) as error:
        raise UsageError(f"{path} is not a case that the fuzzer has saved.") from error


def _known(what: str, given: Sequence[str] | None, known: Sequence[str]) -> None:
    for name in given or ():
        if name not in known:
            raise UsageError(f"There is no {what} {name!r}; the fuzzer knows {', '.join(known)}.")


def _show(finding: Finding) -> None:
    print(f"\n== seed {finding.seed}: {finding.failure.kind}")
    print(finding.script)
    print(f"{finding.failure}\n")


def _report(totals: Totals, version: str, first: int, after: int) -> dict[str, Any]:
    return {
        "bench": "fuzz",
        "postgresql": version,
        "first_seed": first,
        "next_seed": after,
        "counts": dict(summary(totals.counts)),
        "failures": [
            {
                "seed": finding.seed,
                "failure": str(finding.failure),
                "script": finding.script,
                "case": json.loads(to_json(finding.case)),
            }
            for finding in totals.findings
        ],
        "bars": [
            {
                "name": "differences",
                "value": len(totals.findings),
                "op": "<=",
                "limit": 0,
                "holds": not totals.findings,
            }
        ],
    }
