"""Queries of Debian's `sqlsmith` over the fuzzer's schemas, as an outside generator; skipped where it is absent.

IDIVM_SQLSMITH_QUERIES asks for more queries than a test run has time for.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
from dataclasses import replace
from random import Random

import psycopg
import pytest
from harness import TestServer
from psycopg.sql import SQL, Identifier

from orchestrator.fuzz.case import Case, Refresh, Transaction, View
from orchestrator.fuzz.generate import drafted
from orchestrator.fuzz.runner import Runner
from orchestrator.fuzz.schemas.schema import Model
from orchestrator.fuzz.steps.rows import Writer

QUERIES = int(os.environ.get("IDIVM_SQLSMITH_QUERIES", "18"))

TOGETHER = 6
"""The views that see the same changes; the first that fails hides the others."""

MODES = ("deferred", "eager", "on_commit", "on_read")


@pytest.mark.slow
def test_views_of_an_outside_generator(pg: TestServer, runner: Runner) -> None:
    if shutil.which("sqlsmith") is None:
        pytest.skip("sqlsmith is not installed")
    seed = secrets.randbelow(10**6)
    case, models = drafted(seed)
    queries = smithed(pg, case, seed)
    rng = Random(seed)
    views = tuple(
        View(
            f'public."smith {number}"',
            query,
            (("strategy", "auto"), ("maintain", rng.choice(MODES))),
            tuple(f"c{n}" for n in range(width)),
        )
        for number, (query, width) in enumerate(queries)
    )
    print(f"seed {seed}, {len(views)} queries")
    wrong = []
    for number in range(0, len(views), TOGETHER):
        group = views[number : number + TOGETHER]
        steps = tuple(step for _ in range(4) for step in changed(rng, models))
        outcome = runner.run(replace(case, views=group, steps=steps, settings=(), end="api"))
        if outcome.failure is not None:
            given = "\n\n".join(f"{view.name} {view.options}:\n{view.query}" for view in group)
            wrong.append(f"{outcome.failure}\n\n{given}")
    assert not wrong, "\n\n".join([f"seed {seed}", *wrong])


def changed(rng: Random, models: list[Model]) -> tuple[Transaction, Refresh]:
    """Return a transaction of random changes, and a refresh."""
    writer = Writer(rng, models)
    statements = tuple(writer.statement() for _ in range(rng.choice((1, 2, 4))))
    return Transaction(statements), Refresh()


def smithed(pg: TestServer, case: Case, seed: int) -> list[tuple[str, int]]:
    """Return queries over the tables of a case that can be views, and the numbers of their columns."""
    with pg.database(migrated=False) as dsn, psycopg.connect(dsn, autocommit=True) as connection:
        set_up(connection, case)
        own = ("information_schema", "pg_catalog", "pg_toast")
        unstable = {
            name
            for (name,) in connection.execute(
                "SELECT proname::text FROM pg_proc WHERE provolatile <> 'i'"
            )
        }
        command = ["sqlsmith", f"--target={dsn}", f"--seed={seed}", "--dry-run"]
        command += ["--exclude-catalog", f"--max-queries={20 * QUERIES}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        queries = []
        for text in re.split(r";\s*\n", done.stdout):
            query = text.strip()
            called = set(re.findall(r"([a-z_]\w*)\s*\(", query))
            if query[:7].lower() != "select " or called & unstable or any(s in query for s in own):
                continue
            try:
                with connection.transaction(force_rollback=True):
                    connection.execute("SET LOCAL statement_timeout = '1s'")
                    row = connection.execute(query.encode())
                    width = len(row.description or ())
                    connection.execute(view_of(query, width))
            except psycopg.Error:
                continue
            queries.append((query, width))
        return queries[:QUERIES]


def view_of(query: str, width: int) -> SQL:
    columns = ", ".join(f"c{n}" for n in range(width))
    return SQL(f"CREATE VIEW smith ({columns}) AS {query}")  # type: ignore[arg-type]


def set_up(connection: psycopg.Connection, case: Case) -> None:
    for schema in case.schemas:
        connection.execute(SQL("CREATE SCHEMA IF NOT EXISTS {}").format(Identifier(schema)))
    for statement in (*case.types, *(ddl for table in case.tables for ddl in table.ddl)):
        connection.execute(statement.encode())
    for table in case.tables:
        if table.rows:
            connection.execute(f"{table.insert} {', '.join(table.rows)}".encode())
