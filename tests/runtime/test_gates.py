"""Refresh groups show one cut to readers; gates hold refreshes until batches are complete."""

from __future__ import annotations

import subprocess
import threading

import psycopg
import pytest
from psycopg import sql
from stepping import Session, until

import orchestrator
from orchestrator.cli.main import main
from orchestrator.errors import IdivmError, UsageError
from orchestrator.runtime.refresh import RefreshError

pytestmark = pytest.mark.integration

TABLES = """
CREATE TABLE t (id int PRIMARY KEY, n int); CREATE TABLE u (id int PRIMARY KEY, n int);
INSERT INTO t VALUES (1, 1); INSERT INTO u VALUES (1, 1);
"""


def rows(connection, query):
    return connection.execute(query).fetchall()


def values_of(orc, *views):
    """The single values that views show, read in one statement."""
    query = ", ".join(f"(SELECT * FROM {view})" for view in views)
    return rows(orc.connection, f"SELECT {query}")[0]


@pytest.fixture
def board(orc):
    """Three views of a group, of which one reads another, and a view beside it."""
    orc.execute(
        f"""{TABLES}
        CREATE VIEW ts WITH (refresh_group = 'board') AS SELECT sum(n) AS s FROM t;
        CREATE VIEW us WITH (refresh_group = 'board') AS SELECT sum(10 / n) AS s FROM u;
        CREATE VIEW above WITH (refresh_group = 'board', strategy = recompute) AS SELECT s + 1 AS s FROM ts;
        CREATE VIEW beside AS SELECT count(*) AS c FROM t
        """
    )
    return orc


CALLS = {
    "function": "SELECT FROM idivm.refresh('us')",
    "procedure": "CALL idivm.refresh_all('us')",
    "all": "CALL idivm.refresh_all()",
    "repeatable read": "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM idivm.refresh('us'); COMMIT",
}


def test_whoever_refreshes_a_member_refreshes_the_group(board):
    connection = board.connection
    ways = [lambda call=call: connection.execute(call) for call in CALLS.values()]
    ways += [lambda: board.refresh("us"), lambda: board.refresh("us", "beside", jobs=2)]
    for number, refresh in enumerate(ways, 2):
        connection.execute(
            f"INSERT INTO t VALUES ({number}, 1); INSERT INTO u VALUES ({number}, 10)"
        )
        refresh()
        assert values_of(board, "ts", "us", "above") == (number, 9 + number, number + 1)
    reports = {report.view: report.changed for report in board.refresh("us")}
    assert reports == {"ts": 0, "us": 0, "above": 0}


def test_a_member_that_fails_leaves_the_whole_group_as_it_was(board, capsys):
    connection = board.connection
    before = values_of(board, "ts", "us", "above")
    connection.execute("INSERT INTO t VALUES (2, 5); INSERT INTO u VALUES (2, 0)")
    for call in CALLS.values():
        try:
            connection.execute(call)
        except psycopg.Error as error:
            assert "us" in str(error)
        assert values_of(board, "ts", "us", "above") == before
    with pytest.raises(RefreshError, match="division by zero"):
        board.refresh()
    # What does not belong to the group is refreshed.
    assert values_of(board, "ts", "us", "above", "beside") == (*before, 2)
    errors = dict(
        rows(connection, "SELECT view::text, last_error FROM idivm.status WHERE state = 'failed'")
    )
    assert errors["us"] == "division by zero"
    assert (
        errors["ts"]
        == errors["above"]
        == (
            "it belongs to the refresh group board, whose member public.us could not be refreshed: division by zero"
        )
    )
    connection.execute("UPDATE u SET n = 2 WHERE id = 2")
    board.refresh("above")
    assert values_of(board, "ts", "us", "above") == (6, 15, 7)
    assert rows(connection, "SELECT DISTINCT state, last_error, refresh_group FROM idivm.status ORDER BY 3") == [
        ("fresh", None, "board"), ("fresh", None, None)
    ]  # fmt: skip
    assert all(report.equal for report in board.check())


def test_a_group_names_the_failure_behind_the_others(orc):
    orc.execute(
        f"""{TABLES}
        CREATE VIEW a WITH (refresh_group = 'g') AS SELECT sum(10 / n) AS s FROM t;
        CREATE VIEW b WITH (refresh_group = 'g', strategy = recompute) AS SELECT s + 1 AS s FROM a;
        CREATE VIEW c WITH (refresh_group = 'g', strategy = recompute) AS SELECT s + 1 AS s FROM b;
        CREATE VIEW mate WITH (refresh_group = 'g') AS SELECT count(*) AS c FROM u;
        INSERT INTO t VALUES (2, 0)
        """
    )
    errors = dict(rows(orc.connection, "SELECT view, error FROM idivm.refresh('mate')"))
    assert errors["a"] == "division by zero"
    assert errors["mate"].endswith("whose member public.a could not be refreshed: division by zero")


def test_a_paused_member_pauses_its_group(board):
    connection = board.connection
    connection.execute("SELECT idivm.pause_view('us'); INSERT INTO t VALUES (2, 5)")
    connection.execute("CALL idivm.refresh_all()")
    board.refresh()
    assert values_of(board, "ts", "above", "beside") == (1, 2, 2)
    board.refresh("ts")
    assert values_of(board, "ts", "above") == (6, 7)


def test_a_group_is_of_one_owner_and_of_deferred_views(board):
    connection = board.connection
    role = f"other_{connection.info.dbname}"
    connection.execute(sql.SQL("CREATE ROLE {}").format(sql.Identifier(role)))
    try:
        connection.execute(sql.SQL("ALTER VIEW us OWNER TO {}").format(sql.Identifier(role)))
        assert rows(connection, "SELECT v.relation::text FROM idivm.views v WHERE v.id IN"
                    " (SELECT idivm.mates(id) FROM idivm.views WHERE relation = 'ts'::regclass) ORDER BY v.id") == [("ts",), ("above",)]  # fmt: skip
    finally:
        connection.execute(
            sql.SQL("ALTER VIEW us OWNER TO postgres; DROP ROLE {}").format(sql.Identifier(role))
        )
    for maintain in ("eager", "on_commit", "on_read"):
        with pytest.raises(UsageError, match="refresh_group is not available with maintain"):
            board.alter_view("us", maintain=maintain)
        with pytest.raises(
            psycopg.errors.InvalidParameterValue, match="refresh_group is not available"
        ):
            connection.execute(f"SELECT idivm.alter_view('us', maintain => '{maintain}')")
    with pytest.raises(IdivmError, match="no eager or on_commit view can read it"):
        board.create_view("eager_above", "SELECT s FROM ts", maintain="eager")
    board.alter_view("above", refresh_group="")
    connection.execute("INSERT INTO t VALUES (2, 5)")
    board.refresh("us")
    assert values_of(board, "ts", "above") == (6, 2)


GATED = """
CREATE VIEW sums WITH (gate = 't, public.u') AS SELECT t.n * u.n AS p FROM t JOIN u USING (id);
CREATE VIEW mate WITH (refresh_group = 'g') AS SELECT count(*) AS c FROM u;
CREATE VIEW gated WITH (refresh_group = 'g', gate = 't') AS SELECT count(*) AS c FROM t;
"""


def waits(orc, view="sums"):
    return rows(
        orc.connection,
        f"SELECT state, waits_for, waits_since IS NOT NULL FROM idivm.status WHERE view = '{view}'::regclass",
    )[0]


def test_a_gate_opens_when_all_tables_have_completed_the_same_batch(orc, dsn, connect, capsys):
    orc.execute(TABLES + GATED)
    connection = orc.connection
    before = values_of(orc, "sums")
    connection.execute("UPDATE t SET n = 7")
    assert waits(orc) == (
        "behind",
        "t has completed no batch, public.u has completed no batch",
        False,
    )
    for call in ("SELECT FROM idivm.refresh('sums')", "CALL idivm.refresh_all('sums')"):
        connection.execute(call)
        assert values_of(orc, "sums") == before
    assert waits(orc)[2]
    [report] = orc.refresh("sums")
    assert (report.changed, report.error) == (0, None)
    assert report.waits_for == "t has completed no batch, public.u has completed no batch"
    orc.gate("t", "batch 1")
    assert waits(orc)[1] == "public.u has completed no batch"
    # The transaction that completes a batch belongs to it, and so do its changes after the call.
    writer = Session(connect())
    writer("UPDATE u SET n = 2")
    writer("SELECT idivm.gate('u', 'batch 1')")
    writer("UPDATE u SET n = 3")
    assert orc.refresh("sums")[0].waits_for
    writer.commit()
    assert waits(orc)[:2] == ("behind", None)
    connection.execute("CALL idivm.refresh_all('sums')")
    assert values_of(orc, "sums") == (21,)
    assert waits(orc) == ("fresh", None, False)
    # A part of the next batch closes it.
    connection.execute("UPDATE u SET n = 10")
    assert orc.refresh("sums")[0].waits_for == "public.u has changes since batch 1"
    assert main(["status", "sums", "--dsn", dsn]) == 0
    assert main(["refresh", "sums", "--dsn", dsn]) == 0
    assert main(["gate", "u", "batch 2", "--dsn", dsn]) == 0
    assert main(["gate", "--dsn", dsn]) == 0
    out = capsys.readouterr().out
    assert "public.u has changes since batch 1 (since " in out
    assert "waits for its gate: public.u has changes since batch 1" in out
    assert "u: batch 2 is complete." in out
    assert waits(orc)[1] == "t is at batch 1, public.u is at batch 2"
    assert values_of(orc, "sums") == (21,)
    orc.gate("t", "batch 2")
    # Changes of a transaction that began before the batch was complete, and committed later, come after it.
    late = Session(connect())
    late("INSERT INTO t VALUES (5, 5)")
    orc.gate("t", "batch 2")
    late.commit()
    assert orc.refresh("sums")[0].waits_for == "t has changes since batch 2"
    orc.gate("t", "batch 2")
    orc.refresh("sums")
    assert values_of(orc, "sums") == (70,)
    assert all(report.equal for report in orc.check("sums"))


def test_a_gate_holds_the_whole_group_and_is_followed_by_serve(orc, dsn):
    orc.execute(TABLES + GATED)
    orc.connection.execute("INSERT INTO u VALUES (2, 2); INSERT INTO t VALUES (2, 2)")
    assert [r.waits_for for r in orc.refresh("mate")] == ["t has completed no batch"] * 2
    stop = threading.Event()
    with orchestrator.connect(dsn) as server:
        thread = threading.Thread(target=server.serve, args=("20ms",), kwargs={"stop": stop})
        thread.start()
        try:
            until(lambda: waits(orc, "gated")[2])
            assert values_of(orc, "mate", "gated") == (1, 1)
            orc.gate("t", "b")
            until(lambda: values_of(orc, "mate", "gated") == (2, 2))
        finally:
            stop.set()
            thread.join(60)


def test_a_gate_is_for_tables_of_the_view_and_for_their_writers(orc, connect):
    orc.execute(TABLES)
    for gate in ("nothing", "u"):
        with pytest.raises(
            IdivmError, match=f"gate of .* names {gate}, which the view does not read"
        ):
            orc.create_view("v", "SELECT n FROM t", gate=gate)
    orc.create_view("v", "SELECT n FROM t")
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="which the view does not read"):
        orc.connection.execute("SELECT idivm.alter_view('v', options => '{\"gate\": \"u\"}')")
    with pytest.raises(UsageError, match="gate is not available with maintain = eager"):
        orc.alter_view("v", gate="t", maintain="eager")
    orc.alter_view("v", gate="t")
    role = sql.Identifier(f"writer_{orc.connection.info.dbname}")
    writer = connect()
    writer.execute(
        sql.SQL(
            "CREATE ROLE {0}; GRANT USAGE ON SCHEMA idivm TO {0}; GRANT INSERT ON t TO {0}; SET ROLE {0}"
        ).format(role)
    )
    try:
        writer.execute("INSERT INTO t VALUES (2, 2); SELECT idivm.gate('t', '1')")
        for statement in (
            "SELECT idivm.gate('u', '1')",
            "INSERT INTO idivm.gates VALUES ('u', '1', ROW(NULL, NULL, NULL, NULL), 0)",
        ):
            with pytest.raises(
                psycopg.errors.InsufficientPrivilege, match=r"may not write (public\.)?u"
            ):
                writer.execute(statement)
        # Nobody can give a cut of their own.
        writer.execute("UPDATE idivm.gates SET cut = ROW(NULL, NULL, NULL, NULL), cluster = 0")
        orc.refresh("v")
        assert rows(orc.connection, "SELECT count(*) FROM v") == [(2,)]
        assert [(g.source, g.batch) for g in orc.gates()] == [("t", "1")]
    finally:
        writer.execute(sql.SQL("RESET ROLE; DROP OWNED BY {0}; DROP ROLE {0}").format(role))


def test_gates_and_schedules_are_in_a_dump(orc, dsn, pg, tmp_path):
    orc.execute(TABLES + GATED)
    orc.schedule("gated", "1 h")
    orc.gate("t", "b")
    said = []
    orc.on_notice = said.append
    orc.connection.execute("INSERT INTO t VALUES (2, 2)")
    assert {report.view for report in orc.check()} == {"mate"}
    assert "gated was not compared: it waits for its gate: t has changes since b." in said
    programs, dump = pg.installation.bindir, tmp_path / "dump.sql"
    subprocess.run([programs / "pg_dump", "-f", dump, dsn], check=True)
    with pg.database(migrated=False) as conninfo:
        command = [programs / "psql", "-q", "-X", "-v", "ON_ERROR_STOP=1", "-f", dump, conninfo]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        with orchestrator.connect(conninfo) as restored:
            assert [(t.view, t.schedule, t.refresh_group) for t in restored.timings()] == [
                ("gated", "1 h", "g"), ("mate", None, "g"), ("sums", None, None)
            ]  # fmt: skip
            # A cut means nothing in another cluster or copy.
            assert restored.refresh("mate")[0].waits_for == "t has completed no batch"
            for table in ("t", "u"):
                restored.gate(table, "c")
            restored.refresh()
            assert values_of(restored, "gated", "mate") == (2, 1)
            assert len(restored.check()) == 3
