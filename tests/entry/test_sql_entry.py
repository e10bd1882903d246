"""Views that SQL alone creates, changes and drops, and that the next orchestrator plans."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest
from harness import TestServer
from psycopg.conninfo import make_conninfo
from psycopg.errors import (
    DependentObjectsStillExist,
    DuplicateTable,
    FeatureNotSupported,
    InsufficientPrivilege,
    InvalidParameterValue,
)
from stepping import differences, until

import orchestrator
from orchestrator.api import Orchestrator
from orchestrator.catalog.objects import orphans
from orchestrator.catalog.unplanned import unplanned_views
from orchestrator.cli.main import main
from orchestrator.errors import IdivmError
from orchestrator.frontend.options import _ALLOWED, _FREE
from orchestrator.planning.facts import PINNED
from orchestrator.runtime.unplanned import PlanReport

TOTALS = "SELECT k, sum(n) AS s FROM t GROUP BY k"


@pytest.fixture
def client(orc: Orchestrator, connect: Any) -> psycopg.Connection[Any]:
    """A connection that knows nothing of the orchestrator, with a table."""
    connection: psycopg.Connection[Any] = connect()
    connection.execute(
        "CREATE TABLE t (id int PRIMARY KEY, k text, n int);"
        "INSERT INTO t SELECT i, chr(97 + i % 3), i FROM generate_series(1, 9) AS i"
    )
    return connection


def create(connection: psycopg.Connection[Any], name: str, query: str, **options: Any) -> str:
    arguments = "".join(f", {key} => %s" for key in options)
    row = connection.execute(
        f"SELECT idivm.create_view(%s, %s{arguments})::text", [name, query, *options.values()]
    ).fetchone()
    assert row is not None
    return str(row[0])


def totals(connection: psycopg.Connection[Any], name: str = "v") -> list[Any]:
    return sorted(connection.execute(f"TABLE {name}").fetchall())


RIGHT = [("a", 18), ("b", 12), ("c", 15)]


@pytest.mark.integration
@pytest.mark.parametrize("mode", ["deferred", "eager", "on_commit"])
def test_a_view_is_right_at_once_and_incremental_after_a_plan(
    orc: Orchestrator, client: psycopg.Connection[Any], mode: str
) -> None:
    with client.transaction():
        assert create(client, "v", TOTALS, maintain=mode) == "v"
        assert totals(client) == RIGHT
        client.execute("UPDATE t SET n = n + 1 WHERE k = 'a'")
        assert totals(client)[0] == ("a", 21)
        with pytest.raises(psycopg.Error, match="change the tables"), client.transaction():
            client.execute("INSERT INTO v VALUES ('z', 1)")
    client.execute("GRANT SELECT ON v TO PUBLIC; COMMENT ON VIEW v IS 'sums'")
    [report] = orc.plan()
    assert (report.view, report.strategy, report.refusal) == ("v", "id", None)
    view = orc.view("v")
    assert (view.maintain, view.oid) == (
        mode,
        client.execute("SELECT 'v'::regclass::oid").fetchone()[0],
    )
    client.execute("INSERT INTO t VALUES (20, 'z', 5); SELECT FROM idivm.refresh('v')")
    assert differences(orc.connection, "v") == []
    assert totals(client)[-1] == ("z", 5)
    assert orc.plan() == []
    assert all(report.equal for report in orc.check())
    assert client.execute(
        "SELECT obj_description('v'::regclass), relacl IS NOT NULL FROM pg_class WHERE oid = 'v'::regclass"
    ).fetchone() == ("sums", True)


def test_options_and_settings_are_those_of_the_orchestrator(
    client: psycopg.Connection[Any],
) -> None:
    patterns = dict(client.execute("SELECT * FROM idivm.option_patterns()").fetchall())
    assert list(patterns) == list(_ALLOWED)
    assert {name for name, pattern in patterns.items() if not pattern} == set(_FREE)
    for name, values in _ALLOWED.items():
        if values:
            assert patterns[name] == f"^({'|'.join(values)})$"
    [(settings,)] = client.execute("SELECT idivm.session_settings()").fetchall()
    assert sorted(settings) == sorted(PINNED)


def test_what_cannot_be_maintained_is_refused_in_sentences(client: psycopg.Connection[Any]) -> None:
    client.execute("CREATE TEMP TABLE mine (a int); CREATE VIEW dice AS SELECT random() AS r")
    for error, said, query, options in (
        (FeatureNotSupported, r"calls random\(\)", "SELECT random() AS r", {}),
        (FeatureNotSupported, r"calls random\(\)", "SELECT r FROM dice", {}),
        (FeatureNotSupported, "temporary table", "TABLE mine", {}),
        (InvalidParameterValue, "no option 'maintian'", TOTALS, {"options": '{"maintian": 1}'}),
        (InvalidParameterValue, "it can be deferred or eager", TOTALS, {"maintain": "always"}),
        (InvalidParameterValue, "as in 500ms", TOTALS, {"staleness": "soon"}),
        (psycopg.errors.SyntaxError, "syntax error", "SELECT 1 AS a; DROP TABLE t", {}),
        (psycopg.errors.UndefinedTable, "nowhere", "SELECT a FROM nowhere", {}),
    ):
        with pytest.raises(error, match=said):
            create(client, "v", query, **options)
    create(client, "v", f"{TOTALS};  ")
    with pytest.raises(DuplicateTable, match=r"idivm\.replace_view"):
        create(client, "v", TOTALS)
    assert create(client, "v", TOTALS, if_not_exists=True) == "v"
    assert client.execute("SELECT count(*) FROM idivm.unplanned_views").fetchone() == (1,)


@pytest.mark.integration
@pytest.mark.parametrize("planned", [False, True], ids=["unplanned", "planned"])
def test_a_view_is_altered_replaced_paused_and_dropped(
    orc: Orchestrator, client: psycopg.Connection[Any], planned: bool
) -> None:
    create(client, '"The View"', TOTALS)
    client.execute('GRANT SELECT ON "The View" TO PUBLIC')
    if planned:
        client.execute("CALL idivm.guard_views()")
        orc.plan()
    client.execute(
        """CREATE SCHEMA other; SELECT idivm.alter_view('"The View"', maintain => 'eager')"""
    )
    client.execute("""SELECT idivm.alter_view('"The View"', name => 'v', schema => 'other')""")
    client.execute("SELECT idivm.alter_view('other.v', owner => current_user::regrole)")
    client.execute("INSERT INTO t VALUES (20, 'z', 5)")
    assert totals(client, "other.v")[-1] == ("z", 5)
    client.execute("SELECT idivm.pause_view('other.v'); SELECT idivm.resume_view('other.v')")
    client.execute("UPDATE t SET n = 6 WHERE id = 20")
    assert totals(client, "other.v")[-1] == ("z", 6)
    # A wish for another plan, and then another query with other columns.
    client.execute("SELECT idivm.alter_view('other.v', strategy => 'recompute')")
    client.execute("UPDATE t SET n = 7 WHERE id = 20")
    assert totals(client, "other.v")[-1] == ("z", 7)
    assert orc.refresh("other.v")[0].view == "other.v"
    view = orc.view("other.v")
    assert (view.strategy, view.maintain) == ("recompute", "eager")
    client.execute("SELECT idivm.replace_view('other.v', 'SELECT n, k FROM t', strategy => 'auto')")
    assert len(totals(client, "other.v")) == 10
    assert len(orc.views()) == 0
    orc.refresh()
    assert (orc.view("other.v").strategy, orc.view("other.v").maintain) == ("id", "eager")
    assert differences(orc.connection, "other.v") == []
    assert client.execute(
        "SELECT has_table_privilege('public', 'other.v', 'SELECT')"
    ).fetchone() == (True,)
    client.execute(
        "SELECT idivm.drop_view('other.v'); SELECT idivm.drop_view('other.v', if_exists => true)"
    )
    assert orc.views() == []
    assert orphans(orc.connection) == []
    assert client.execute("SELECT FROM pg_trigger WHERE tgrelid = 't'::regclass").fetchall() == []


@pytest.mark.integration
def test_a_paused_view_stays_as_it_is(orc: Orchestrator, client: psycopg.Connection[Any]) -> None:
    create(client, "v", TOTALS, maintain="eager", options='{"shared": "off"}')
    orc.plan()
    client.execute(
        "SELECT idivm.pause_view('v'); SELECT idivm.pause_view('v'); DELETE FROM t WHERE k = 'a'"
    )
    orc.refresh()
    client.execute("CALL idivm.refresh_all()")
    assert totals(client) == RIGHT
    client.execute("SELECT idivm.resume_view('v')")
    assert totals(client) == RIGHT[1:]
    client.execute("DELETE FROM t WHERE k = 'b'")
    assert totals(client) == RIGHT[2:]


def test_a_view_that_others_read_is_changed_with_them(
    orc: Orchestrator, client: psycopg.Connection[Any]
) -> None:
    create(client, "v", TOTALS)
    create(client, "above", "SELECT max(s) AS s FROM v")
    assert [report.strategy for report in orc.plan()] == ["id", "id"]
    assert orc.view("above").sources == ["v"]
    with pytest.raises(
        DependentObjectsStillExist, match=r"the maintained views public\.above read"
    ):
        client.execute("SELECT idivm.drop_view('v')")
    for query, said in (
        ("SELECT k FROM t", "cannot lose, rename or retype columns while"),
        ("SELECT 'x' AS k, s FROM above", r"cannot read the maintained views public\.above"),
    ):
        with pytest.raises(psycopg.Error, match=said):
            client.execute("SELECT idivm.replace_view('v', %s)", [query])
    with client.transaction():
        client.execute("SELECT idivm.replace_view('v', %s)", [f"{TOTALS} HAVING sum(n) < 18"])
        assert client.execute("TABLE above").fetchall() == [(15,)]
    assert [report.view for report in orc.plan()] == ["v", "above"]
    assert orc.view("above").sources == ["v"]
    client.execute("SELECT idivm.alter_view('v', strategy => 'tuple')")
    orc.refresh()
    assert orc.view("v").strategy == "tuple"
    assert (len(orc.views()), orphans(orc.connection)) == (2, [])
    assert all(report.equal for report in orc.check())
    client.execute("SELECT idivm.drop_view('v', cascade => true)")
    assert orc.views() == []


def test_without_data_a_view_waits_for_its_first_refresh(
    orc: Orchestrator, client: psycopg.Connection[Any]
) -> None:
    create(client, "v", TOTALS, with_data=False)
    create(client, "w", TOTALS)
    orc.refresh()
    assert [view.name for view in orc.views()] == ["w"]
    assert "not planned yet" in client.execute("SELECT idivm.explain('v')").fetchone()[0]
    assert client.execute("SELECT view, changed FROM idivm.refresh('v')").fetchall() == [("v", 0)]
    orc.refresh()
    explained = client.execute("SELECT idivm.explain('v')").fetchone()[0]
    assert "strategy id" in explained and "\N{GREEK SMALL LETTER GAMMA}" in explained
    assert (
        client.execute("SELECT idivm.plan_text('5 %% \\ %d83d%de00')").fetchone()[0]
        == "5 % \\ \U0001f600"
    )


def test_a_view_that_cannot_be_planned_stays_right_and_says_why(
    orc: Orchestrator,
    client: psycopg.Connection[Any],
    dsn: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    notices: list[str] = []
    orc.on_notice = notices.append
    create(client, "v", "SELECT k FROM t WHERE n > extract(epoch FROM now())", maintain="eager")
    assert orc.refresh("v") == []
    assert "could not be planned: The content of" in notices[-1]
    assert main(["list", "--dsn", dsn]) == 0
    assert "\nv: every read computes its query, as it could not" in capsys.readouterr().out
    explained = client.execute("SELECT idivm.explain('v')").fetchone()[0]
    assert "the last attempt to plan it failed: The content of" in explained
    assert (totals(client), orc.views()) == ([], [])
    client.execute("SELECT idivm.alter_view('v', maintain => 'deferred')")
    assert [report.refusal for report in orc.plan("v")] == [None]


def test_two_hundred_views_in_one_transaction(
    orc: Orchestrator, client: psycopg.Connection[Any]
) -> None:
    with client.transaction():
        client.execute(
            "SELECT idivm.create_view('v' || i, 'SELECT id, n + ' || i || ' AS n FROM t')"
            " FROM generate_series(1, 200) AS i"
        )
    assert client.execute("SELECT sum(n) FROM v200").fetchone() == (45 + 9 * 200,)
    assert len(unplanned_views(orc.connection)) == 200
    client.execute("SELECT idivm.drop_view('v' || i) FROM generate_series(1, 200) AS i")
    assert unplanned_views(orc.connection) == []


@pytest.mark.integration
def test_an_orchestrator_that_serves_plans_at_once(
    orc: Orchestrator, client: psycopg.Connection[Any], dsn: str
) -> None:
    said: list[str] = []
    client.add_notice_handler(lambda notice: said.append(notice.message_primary or ""))
    client.execute("CALL idivm.create_view_now('v', %s)", [TOTALS])
    assert said == ["v computes its query at every read, as no orchestrator serves this database"]
    stop = threading.Event()
    with orchestrator.connect(dsn) as other:
        server = threading.Thread(target=other.serve, args=("50ms",), kwargs={"stop": stop})
        server.start()
        try:
            until(lambda: client.execute("SELECT idivm.is_served()").fetchone() == (True,))
            client.execute("CALL idivm.create_view_now('w', %s)", [TOTALS])
            assert orc.view("w").strategy == "id"
            client.execute(
                "CALL idivm.create_view_now('n', 'SELECT now() AS t', maintain => 'eager')"
            )
            assert "could not be planned" in said[-1]
        finally:
            stop.set()
            server.join()


@pytest.mark.integration
def test_an_ordinary_role_creates_views_and_gains_no_right(
    orc: Orchestrator, client: psycopg.Connection[Any], dsn: str, connect: Any
) -> None:
    role = f"somebody_{orc.connection.info.dbname}"
    client.execute(
        f"CREATE ROLE {role} LOGIN; CREATE SCHEMA his AUTHORIZATION {role}; CREATE TABLE secret AS SELECT 1 AS a;"
        f"GRANT SELECT ON t TO {role}; GRANT USAGE ON SCHEMA idivm TO {role}; ALTER SCHEMA public OWNER TO postgres"
    )
    create(client, "foreign_view", TOTALS)
    theirs = connect(make_conninfo(dsn, user=role))
    try:
        theirs.execute("SET search_path = his, public")
        create(theirs, "v", TOTALS, maintain="eager", options='{"shared": "off"}')
        create(theirs, "leak", "SELECT a FROM secret")
        theirs.execute(
            "CREATE FUNCTION his.who() RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT current_user::text'"
        )
        create(theirs, "code", "SELECT id, his.who() AS w FROM t")
        for statement in (
            "SELECT idivm.create_view('public.x', 'TABLE t')",
            "INSERT INTO idivm.unplanned_views VALUES ('secret')",
            "UPDATE idivm.unplanned_views SET relation = 'secret'",
            "UPDATE idivm.unplanned_views SET relation = 'his.v' WHERE relation = 'foreign_view'::regclass",
            "DELETE FROM idivm.unplanned_views WHERE relation = 'foreign_view'::regclass",
            "SELECT idivm.note_shown(1, 'his.v')",
        ):
            with pytest.raises(InsufficientPrivilege):
                theirs.execute(statement)
        assert f"GRANT TRIGGER ON public.t TO {role}" in (orc.plan("his.v")[0].refusal or "")
        client.execute(f"GRANT TRIGGER ON t TO {role}")
        reports = {report.view: report.refusal or "" for report in orc.plan()}
        assert reports["his.v"] == ""
        assert f"{role} may not read" in reports["his.leak"]
        assert "does not trust" in reports["his.code"]
        client.execute("INSERT INTO t VALUES (20, 'z', 5)")
        assert totals(theirs, "his.v")[-1] == ("z", 5)
        with pytest.raises(InsufficientPrivilege):
            totals(theirs, "his.leak")
        # The rights of the owner are asked at every refresh, as for an ordinary view.
        client.execute(f"REVOKE SELECT ON t FROM {role}")
        client.execute("INSERT INTO t VALUES (21, 'z', 5)")
        assert totals(client, "his.v")[-1] == ("z", 5)
        with pytest.raises(IdivmError, match=f"{role} may not read"):
            orc.refresh("his.v")
        client.execute(f"GRANT SELECT ON t TO {role}")
        theirs.execute("SELECT idivm.create_view('w', 'SELECT k FROM t')")
        orc.refresh("his.w", "his.v")
        assert totals(theirs, "his.v")[-1] == ("z", 10)
        client.execute(f"SELECT idivm.allow_refreshes('{role}')")
        theirs.execute(
            "SELECT idivm.replace_view('w', 'SELECT id FROM t'); SELECT idivm.drop_view('v')"
        )
        assert len(totals(theirs, "w")) == 11
        orc.refresh("his.w")
        orc.drop_view("foreign_view")
        assert sorted(view.name for view in orc.views()) == ["his.w"]
        assert differences(orc.connection, "his.w") == []
    finally:
        theirs.close()
        client.execute("SELECT idivm.drop_view('his.w', if_exists => true)")
        client.execute(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}")


@pytest.mark.integration
def test_a_dump_restores_into_a_database_that_works(
    orc: Orchestrator, client: psycopg.Connection[Any], dsn: str, pg: TestServer, tmp_path: Path
) -> None:
    for number in range(5):
        create(
            client, f"v{number}", f"SELECT k, sum(n + {number}) AS s FROM t GROUP BY k, id % 2, id"
        )
    create(client, "above", "SELECT count(*) AS c FROM v1", maintain="eager")
    orc.plan("v0")
    programs = pg.installation.bindir
    dump = tmp_path / "dump.sql"
    subprocess.run([programs / "pg_dump", "-f", dump, dsn], check=True)
    with pg.database(migrated=False) as conninfo:
        subprocess.run(
            [programs / "psql", "-q", "-X", "-v", "ON_ERROR_STOP=1", "-f", dump, conninfo],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        with orchestrator.connect(conninfo) as restored:
            assert [report.refusal for report in restored.plan()] == [None] * 5
            restored.execute("INSERT INTO t VALUES (20, 'z', 5)")
            assert len(restored.views()) == 6
            assert all(report.equal for report in restored.check())


@pytest.mark.parametrize("mode", ["deferred", "eager"])
def test_a_reader_who_writes_next_does_not_fail_while_a_view_is_planned(
    orc: Orchestrator, client: psycopg.Connection[Any], connect: Any, mode: str
) -> None:
    create(client, "v", TOTALS, maintain=mode)
    watcher = connect()
    reports: list[PlanReport] = []
    planner = threading.Thread(target=lambda: reports.extend(orc.plan()))
    with client.transaction():
        assert totals(client) == RIGHT
        planner.start()
        until(
            lambda: watcher.execute(
                "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'v'::regclass"
            ).fetchone()
        )
        client.execute("INSERT INTO t VALUES (20, 'z', 5)")
    planner.join()
    assert [report.refusal for report in reports] == [None]
    orc.refresh()
    assert differences(orc.connection, "v") == []
    assert len(totals(client)) == 4


def test_the_orchestrator_replaces_and_drops_what_sql_created(
    orc: Orchestrator, client: psycopg.Connection[Any]
) -> None:
    create(client, "v", TOTALS)
    orc.create_view("v", "SELECT id, k FROM t", replace=True)
    assert (len(totals(client)), unplanned_views(orc.connection)) == (9, [])
    create(client, "w", TOTALS)
    orc.drop_view("w")
    assert orc.plan() == []
