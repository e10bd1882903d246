"""The generator: one seed, one case; every construct comes; PostgreSQL takes what it makes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from itertools import pairwise

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from orchestrator.fuzz.case import Case, Time, View, from_json, to_json
from orchestrator.fuzz.encodings import in_database
from orchestrator.fuzz.generate import generate
from orchestrator.fuzz.plainly import plain_view

SEEDS = (*range(800), 909)
"""The last one renames a value of an enum, which is rare."""


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return [generate(seed) for seed in SEEDS]


def test_a_seed_gives_the_same_case_in_every_process() -> None:
    program = (
        "import hashlib, orchestrator.fuzz.generate as g, orchestrator.fuzz.case as c\n"
        "text = ''.join(c.to_json(g.generate(seed)) for seed in range(20))\n"
        "print(hashlib.sha256(text.encode()).hexdigest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(digests) == 1


def test_seeds_give_different_cases(cases: list[Case]) -> None:
    assert len({case.views for case in cases}) == len(cases)


def test_the_time_moves_in_the_given_share_of_the_cases(cases: list[Case]) -> None:
    assert 0 < sum(bool(case.time) for case in cases) < len(cases) / 2
    assert all(generate(seed, temporal_share=1).time for seed in SEEDS[:20])
    assert not any(generate(seed, temporal_share=0).time for seed in SEEDS[:20])


def test_strategies_and_modes_change_nothing_but_options(cases: list[Case]) -> None:
    for case in cases[:20]:
        other = generate(case.seed, ["id"], ["eager"])
        assert [view.query for view in other.views] == [view.query for view in case.views]
        assert other.tables == case.tables
        for view in other.views:
            if not view.plain:
                assert view.options[:2] == (("strategy", "id"), ("maintain", "eager"))


def test_cases_survive_json(cases: list[Case]) -> None:
    for case in cases:
        assert from_json(to_json(case)) == case


@pytest.mark.parametrize(
    ("encoding", "codec"),
    [("LATIN1", "latin-1"), ("EUC_JP", "euc_jp"), ("WIN1251", "cp1251"), ("UTF8", "utf-8")],
)
def test_an_encoding_has_all_letters_of_its_cases(
    cases: list[Case], encoding: str, codec: str
) -> None:
    letters = [to_json(in_database(case, encoding, "C")).encode(codec) for case in cases]
    assert any(not text.isascii() for text in letters)


CONSTRUCTS = (
    r"PARTITION OF",
    r"INHERITS",
    r"GENERATED ALWAYS AS \(",
    r"AS IDENTITY",
    r"ON DELETE CASCADE",
    r"ON DELETE SET NULL",
    r"ON UPDATE CASCADE",
    r"DEFERRABLE",
    r"CREATE INDEX",
    r"CREATE UNIQUE INDEX",
    r"DROP INDEX",
    r"CREATE TYPE",
    r"CREATE DOMAIN",
    r"é{31}",
    r"n{63}",
    r"LEFT JOIN",
    r"RIGHT JOIN",
    r"FULL JOIN",
    r"CROSS JOIN",
    r"NATURAL",
    r"USING \(",
    r"GROUP BY",
    r"HAVING",
    r"FILTER \(WHERE",
    r"GROUPING SETS",
    r"ROLLUP",
    r"count\(DISTINCT",
    r"SELECT DISTINCT ON",
    r"UNION ALL",
    r"INTERSECT",
    r"EXCEPT ALL",
    r"NOT EXISTS",
    r"NOT IN \(SELECT",
    r"<= ALL \(",
    r"LATERAL \(VALUES",
    r"LATERAL \(SELECT [^()]* WHERE",
    r"unnest\(",
    r"SELECT [^;]*upper\(unnest\(",
    r"jsonb_to_recordset\(",
    r"WITH RECURSIVE [^;]* UNION SELECT",
    r"WITH RECURSIVE [^;]* UNION ALL SELECT",
    r"AS MATERIALIZED",
    r"OVER \(",
    r"EXCLUDE TIES",
    r"cume_dist\(\) OVER",
    r'row_number\(\) OVER .* WHERE \\"ranked',
    r"NULLS LAST",
    r'WITH \\"shared',
    r"EXISTS \(SELECT FROM [^()]* EXISTS",
    r"\) NOT IN \(SELECT [^ ]*, ",
    r"LIMIT",
    r"WITH TIES",
    r"\(VALUES",
    r"percentile_disc",
    r"ON CONFLICT \(",
    r"MERGE INTO",
    r"COPY .* FROM STDIN",
    r"TRUNCATE",
    r"WITH one AS",
    r"SAVEPOINT",
    r"idivm\.refresh\(",
    r'"isolation": "serializable"',
    r'"end": "rollback"',
    r'"end": "crash"',
    r'"how": "call"',
    r'"how": "check"',
    r'"kind": "Late"',
    r'"kind": "Replace"',
    r'"kind": "Storm"',
    r'"prepared": true',
    r'"settings"',
    r"CREATE TRIGGER own",
    r"DETACH PARTITION",
    r"NO INHERIT",
    r"late child",
    r"RENAME COLUMN",
    r"RENAME TO",
    r"DROP CONSTRAINT",
    r"DROP COLUMN .* CASCADE",
    r"ALTER COLUMN .* TYPE",
    r"VALIDATE CONSTRAINT",
    r"RENAME VALUE",
    r"ALTER DOMAIN",
    r"VACUUM FULL",
    r"idivm\.collect\(0\)",
    r"generate_series\(100001",
    r'"kind": "Recreate"',
    r'"how": "timeout"',
    r'"how": "terminate"',
    r'"plain": true',
    r'"kind": "Time"',
    r" WHERE [^;]*now\(\)",
    r" ON [^;]*now\(\)",
    r"HAVING [^;]*(now\(\)|CURRENT_DATE)",
    r"FILTER \(WHERE [^;]*now\(\)",
    r"CASE WHEN [^;]*now\(\)",
    r"date_trunc\('day', now\(\)\)",
    r"CURRENT_DATE - 7",
    r"LOCALTIMESTAMP - ",
)


def test_every_construct_comes(cases: list[Case]) -> None:
    text = "".join(to_json(case) for case in cases)
    assert [wanted for wanted in CONSTRUCTS if not re.search(wanted, text)] == []


WAL_CONSTRUCTS = (
    r'"way": "wal"',
    r'"way": "triggers"',
    r'"kind": "ReadWal"',
    r'"milliseconds": \d+,\s+"capture"',
    r'"refreshes": \[[^]]*"kind": "Capture"',
    r"pg_drop_replication_slot",
    r"pg_replication_slot_advance",
    r"DROP PUBLICATION",
    r"ALTER PUBLICATION .* DROP TABLE",
    r"REPLICA IDENTITY NOTHING",
)


def test_capture_from_the_wal_comes_where_it_is_wanted(cases: list[Case]) -> None:
    text = "".join(to_json(generate(seed, wal=True)) for seed in SEEDS[:200])
    assert [wanted for wanted in WAL_CONSTRUCTS if not re.search(wanted, text)] == []
    assert not any("Capture" in to_json(case) for case in cases)


def test_views_stand_upon_views(cases: list[Case]) -> None:
    def lower(case: Case, query: str) -> set[str]:
        return {view.name for view in case.views if view.name in query}

    read = [len(lower(case, view.query)) for case in cases for view in case.views]
    assert Counter(read)[1] > 20
    assert max(read) > 1
    assert any(
        sum(base.name in reader.query for reader in readers) > 1
        and any(sum(reader.name in top.query for reader in readers) > 1 for top in case.views)
        for case in cases
        for base in case.views
        if (readers := [view for view in case.views if base.name in view.query])
    ), "no two views over one below a view over both"


def test_time_goes_on_and_sometimes_back(cases: list[Case]) -> None:
    ahead, back = 0, 0
    for case in cases:
        times = [case.time, *(step.at for step in case.steps if isinstance(step, Time))]
        assert bool(case.time) == bool(case.zone)
        assert case.time or times == [""]
        ahead += sum(a < b for a, b in pairwise(times))
        back += sum(a > b for a, b in pairwise(times))
    assert 0 < back < ahead


@pytest.mark.integration
def test_postgresql_takes_what_is_made(dsn: str, cases: list[Case]) -> None:
    counts: Counter[str] = Counter()
    with psycopg.connect(dsn, autocommit=True) as connection:
        # Views upon views that nobody maintains may take very long.
        connection.execute("SET statement_timeout = '2s'")
        for case in cases[:60]:
            with connection.transaction(force_rollback=True):
                counts["rows refused"] += set_up(connection, case)
                for view in case.views:
                    counts["views"] += 1
                    try:
                        with connection.transaction():
                            counts["with rows"] += has_rows(connection, view)
                    except psycopg.errors.QueryCanceled:
                        counts["slow"] += 1
                    except psycopg.Error:
                        counts["refused"] += 1
    assert counts["rows refused"] <= 2
    assert counts["slow"] <= counts["views"] * 0.03
    assert counts["refused"] <= counts["views"] * 0.03
    assert counts["with rows"] >= counts["views"] * 0.4


def set_up(connection: psycopg.Connection[object], case: Case) -> int:
    """Makes the tables of a case; the number of those whose rows a trigger of theirs refuses."""
    refused = 0
    for schema in case.schemas:
        connection.execute(SQL("CREATE SCHEMA {}").format(Identifier(schema)))
    for statement in (*case.types, *(ddl for table in case.tables for ddl in table.ddl)):
        connection.execute(SQL(statement))
    for table in case.tables:
        if table.rows:
            rows = SQL(", ").join(SQL(row) for row in table.rows)
            try:
                with connection.transaction():
                    connection.execute(SQL("{} {}").format(SQL(table.insert), rows))
            except psycopg.IntegrityError:
                refused += 1
    return refused


def has_rows(connection: psycopg.Connection[object], view: View) -> bool:
    connection.execute(plain_view(view))
    rows = connection.execute(SQL("SELECT v::text FROM {} AS v").format(SQL(view.name)))
    return bool(rows.fetchall())
