"""Who may create in a schema of the search path gets nothing of idivm's to run it."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from traps import lay

import orchestrator
from orchestrator.api import Orchestrator

MODES = ("deferred", "eager", "on_commit")


@pytest.fixture
def trapped(plain_dsn: str) -> tuple[str, list[str]]:
    """A database whose schema `public` is full of traps, and what they said."""
    with psycopg.connect(plain_dsn, autocommit=True) as connection:
        assert lay(connection) > 1000
    return plain_dsn, []


def heard(orc: Orchestrator, said: list[str]) -> Orchestrator:
    orc.connection.add_notice_handler(lambda notice: said.append(notice.message_primary or ""))
    return orc


@pytest.mark.slow
def test_the_life_of_views_meets_no_trap(trapped: tuple[str, list[str]], tmp_path: Path) -> None:
    dsn, said = trapped
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.add_notice_handler(lambda notice: said.append(notice.message_primary or ""))
        with pytest.raises(psycopg.errors.RaiseException, match="trap"):
            connection.execute("SELECT '{1}'::oid[] = '{1}'::oid[]")
    assert said == ["trap: run as postgres"]
    said.clear()
    with heard(orchestrator.connect(dsn), said) as orc:
        orc.execute(
            """
            CREATE TABLE t (id int PRIMARY KEY, tags text[], k text, n numeric, o oid[]);
            CREATE TABLE u (id int PRIMARY KEY, t int NOT NULL REFERENCES t, m int);
            INSERT INTO t SELECT i, ARRAY['a', 'b'], chr(97 + i % 3), i, '{1}' FROM generate_series(1, 9) AS i;
            INSERT INTO u SELECT i, 1 + i % 9, i FROM generate_series(1, 30) AS i
            """
        )
        for mode in MODES:
            orc.create_view(
                f"sums_{mode}",
                "SELECT k, sum(n) AS s, count(*) FROM t JOIN u ON u.t = t.id GROUP BY k",
                maintain=mode,
            )
            orc.create_view(
                f"bag_{mode}", "SELECT tags, k FROM t", maintain=mode, strategy="recompute"
            )
        orc.create_view(
            "tree",
            "SELECT t.id, sum(m) AS s FROM t JOIN u ON u.t = t.id GROUP BY t.id",
            strategy="viewtree",
        )
        orc.create_view("upper", "SELECT k, s FROM sums_deferred WHERE s IS NOT NULL")
        orc.execute("UPDATE t SET n = 50 WHERE id < 4; INSERT INTO u VALUES (40, 4, 9)")
        orc.execute("REFRESH MATERIALIZED VIEW sums_deferred")
        assert {report.view for report in orc.refresh("upper", "tree")} >= {"upper", "tree"}
        assert all(report.equal for report in orc.check())
        assert [
            finding for finding in orc.doctor() if not finding.fine and finding.subject != "java"
        ] == []
        assert {view.name for view in orc.views()} >= {"upper", "sums_eager", "bag_on_commit"}
        assert orc.view("upper").sources == ["sums_deferred"]
        for view in orc.views():
            orc.explain(view.name)
            assert list(orc.enumerate(view.name)) or view.name == "none"
        orc.alter_view("tree", maintain="eager")
        orc.create_view("upper", "SELECT k FROM sums_deferred", replace=True)
        orc.execute(
            "SET search_path = pg_temp; CREATE OR REPLACE VIEW public.tree AS SELECT id FROM public.t; RESET search_path"
        )
        for view in ("upper", *(f"{kind}_{mode}" for kind in ("sums", "bag") for mode in MODES)):
            orc.drop_view(view)
        orc.execute("DROP VIEW tree")
        assert orc.views() == []
    assert said == []


def test_what_the_user_writes_finds_names_in_their_path(dsn: str) -> None:
    with orchestrator.connect(dsn) as orc:
        orc.execute(
            """
            CREATE SCHEMA a; CREATE SCHEMA b; CREATE TABLE b.t (id int PRIMARY KEY);
            CREATE FUNCTION b.twice(int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT 2 * $1';
            INSERT INTO b.t VALUES (1); SET search_path = a, b
            """
        )
        orc.create_view("v", "SELECT twice(id) AS x FROM t")
        assert orc.connection.execute("SHOW search_path").fetchone() == ("a, b",)
        assert orc.execute("SELECT x FROM a.v")[0].rows == [(2,)]
        assert orc.refresh("v")[0].view == "v"
        assert orc.view("v").sources == ["t"]
        orc.execute("SET search_path = b")
        assert [view.name for view in orc.views()] == ["a.v"]
        with pytest.raises(orchestrator.IdivmError, match="There is no view"):
            orc.refresh("v")
        assert orc.connection.execute("SHOW search_path").fetchone() == ("b",)
