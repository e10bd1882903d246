"""Cases whose queries take PostgreSQL itself long."""

from __future__ import annotations

from dataclasses import replace

import psycopg
import pytest

from orchestrator.fuzz.case import Case, Recreate, Refresh, Statement, Table, Transaction, View
from orchestrator.fuzz.plainly import takes_long

CASE = Case(
    seed=1,
    schemas=("s",),
    types=(),
    tables=(Table("s.t", ("CREATE TABLE s.t (n int)",), "INSERT INTO s.t (n) VALUES", ("(0)",)),),
    views=(
        View("s.below", "SELECT n FROM s.t", plain=True),
        View("s.v", "SELECT pg_sleep(n)::text AS slept FROM s.below"),
    ),
    steps=(
        Transaction((Statement("no statement"), Statement("UPDATE s.t SET n = 0"))),
        Refresh(),
        Transaction((Statement("UPDATE s.t SET n = 1000"), Statement("DELETE FROM s.t"))),
    ),
)


@pytest.mark.parametrize(("until", "long"), [(0, False), (1, False), (2, True), (None, True)])
def test_every_statement_up_to_the_step_counts(plain_dsn: str, until: int | None, long: bool):
    with psycopg.connect(plain_dsn, autocommit=True) as connection:
        assert takes_long(connection, CASE, until, "100ms") is long
        assert connection.execute("SELECT to_regnamespace('s')").fetchone() == (None,)


def test_a_view_with_other_columns_takes_the_place_of_the_one_before(plain_dsn: str):
    quick = replace(CASE, views=(View("s.v", "SELECT 1 AS one"),))
    recreated = replace(quick, steps=(Recreate(CASE.views[1]), *CASE.steps))
    recreated = replace(recreated, views=(CASE.views[0], *recreated.views))
    with psycopg.connect(plain_dsn, autocommit=True) as connection:
        assert not takes_long(connection, quick, None, "100ms")
        assert takes_long(connection, recreated, None, "100ms")
