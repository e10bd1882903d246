"""Capture from the WAL: each change reaches a view exactly once, whatever the order in which transactions end."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import psycopg
import pytest
from harness import TestServer, found_versions
from interrupting import after, interrupted
from psycopg import Connection, sql
from replication import LOGICAL
from stepping import until

import orchestrator
from orchestrator.api import Orchestrator
from orchestrator.catalog import wal
from orchestrator.errors import IdivmError
from orchestrator.runtime.refresh import RefreshError, refresh
from orchestrator.runtime.sessions import IdivmSession
from orchestrator.runtime.wal import reading

pytestmark = pytest.mark.integration

# Sessions with synchronous_commit = on wait for a standby that does not exist: their commit records are in the WAL, and
# no snapshot sees them.
ARGUMENTS = f"{LOGICAL} -c synchronous_commit=local -c synchronous_standby_names=nobody -c max_slot_wal_keep_size=1GB"

TABLE = """
CREATE TABLE t (id int PRIMARY KEY, g int, n numeric, s text);
INSERT INTO t SELECT i, i % 5, i, 'a' || i FROM generate_series(1, 50) i;
CREATE TABLE bag (g int, d date);
INSERT INTO bag SELECT i % 5, '2020-01-01'::date + i FROM generate_series(1, 20) i;
CREATE VIEW sums AS SELECT g, sum(n) AS n, count(*) AS c FROM t GROUP BY g;
CREATE VIEW texts AS SELECT id, s FROM t WHERE g < 3;
CREATE VIEW joined AS SELECT t.id, t.n, bag.d FROM t JOIN bag USING (g);
CREATE VIEW above AS SELECT max(n) AS m FROM sums
"""


@pytest.fixture(scope="module")
def logical(scratch: Any, pg_version: int) -> Iterator[TestServer]:
    """A server whose WAL can be decoded."""
    server = TestServer(found_versions()[pg_version], scratch / f"wal{pg_version}", ARGUMENTS)
    yield server
    server.stop()


@pytest.fixture
def own(logical: TestServer) -> Iterator[str]:
    with logical.database(migrated=True) as dsn:
        yield dsn


@pytest.fixture
def orc(own: str) -> Iterator[Orchestrator]:
    """An orchestrator on a database with two tables that are captured from the WAL."""
    with orchestrator.connect(own) as connected:
        connected.execute(TABLE)
        connected.capture("t", "wal")
        connected.capture("bag", "wal")
        yield connected


@pytest.fixture
def writer(own: str) -> Iterator[Connection[Any]]:
    with psycopg.connect(own, autocommit=True) as connection:
        yield connection


def right(orc: Orchestrator) -> None:
    """Every view equals its query in the snapshot of one more refresh."""
    assert [(r.view, r.error) for r in orc.check() if not r.equal] == []


def recomputed(orc: Orchestrator) -> set[str]:
    """The views that a refresh recomputes, unless it only expects that to take less time."""
    views = {report.view for report in orc.refresh() if report.recomputed}
    last = """
        SELECT DISTINCT ON (view) view::text, reason LIKE 'recomputing was%' OR reason LIKE 'applying%'
        FROM idivm.history ORDER BY view, at DESC
    """
    cheaper = {
        view.split(".")[-1] for view, is_cheaper in orc.connection.execute(last) if is_cheaper
    }
    return views - cheaper


def scalar(connection: Connection[Any], query: str) -> Any:
    row = connection.execute(sql.SQL(query)).fetchone()
    assert row is not None
    return row[0]


CHANGES = {
    "rows": "INSERT INTO t VALUES (100, 1, 5, E'x\\ty\\\\z\\n\\\\N'), (101, NULL, NULL, NULL); DELETE FROM t WHERE id = 7",
    "update": "UPDATE t SET n = n + 1, g = g + 1 WHERE id % 3 = 0",
    "key": "UPDATE t SET id = id + 1000 WHERE id < 9",
    "no key": "UPDATE bag SET g = g + 1 WHERE g = 2; DELETE FROM bag WHERE g = 0; INSERT INTO bag VALUES (1, '0044-03-15 BC')",
    "unused": "UPDATE bag SET g = g",
    "savepoints": "BEGIN; SAVEPOINT a; DELETE FROM t; ROLLBACK TO a; SAVEPOINT b; DELETE FROM t WHERE g = 1; COMMIT",
    "rolled back": "BEGIN; DELETE FROM t; ROLLBACK",
    "twice": "BEGIN; INSERT INTO t VALUES (200, 2, 1, 'a'); UPDATE t SET n = 7 WHERE id = 200; DELETE FROM t WHERE id = 3; COMMIT",
    "merge": "MERGE INTO t USING bag ON t.id = bag.g WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN DO NOTHING",
}


def test_changes_reach_views_without_triggers(orc: Orchestrator, writer: Connection[Any]) -> None:
    writer.execute("SET datestyle = 'SQL, DMY'; SET intervalstyle = sql_standard")
    assert scalar(writer, "SELECT count(*) FROM pg_trigger WHERE tgrelid = 't'::regclass") == 0
    for change in CHANGES.values():
        writer.execute(sql.SQL(change), prepare=False)
        assert recomputed(orc) == set()
        right(orc)
    writer.execute("TRUNCATE t; INSERT INTO t VALUES (1, 1, 1, 'z')")
    assert {"sums", "texts", "joined"} <= {r.view for r in orc.refresh() if r.recomputed}
    right(orc)


def test_more_changes_than_a_reading_logs(
    orc: Orchestrator, writer: Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MOST", 30)
    writer.execute("UPDATE t SET n = n + 1; UPDATE bag SET g = 1 WHERE g = 2")
    assert {"texts", "joined"} <= {report.view for report in orc.refresh() if report.recomputed}
    right(orc)
    writer.execute("UPDATE t SET n = n + 1 WHERE id < 10")
    assert recomputed(orc) == set()
    right(orc)


def test_large_values_that_updates_leave_alone(orc: Orchestrator, writer: Connection[Any]) -> None:
    writer.execute("ALTER TABLE t ALTER s SET STORAGE EXTERNAL")
    writer.execute("INSERT INTO t VALUES (500, 1, 1, repeat('large ', 100000))")
    writer.execute("UPDATE t SET n = 2, id = 501 WHERE id = 500")
    writer.execute("UPDATE t SET g = 2 WHERE id = 501")
    assert recomputed(orc) == set()
    right(orc)


def test_a_commit_that_no_snapshot_sees_yet(
    own: str, orc: Orchestrator, writer: Connection[Any]
) -> None:
    """Its changes are in the logs before snapshots see it, and later transactions are seen earlier."""
    with psycopg.connect(own) as connection:
        connection.execute("SET synchronous_commit = on")
        connection.execute("UPDATE t SET n = n + 100 WHERE g = 1")
        connection.execute("DELETE FROM bag WHERE g = 2")
        pid = connection.info.backend_pid
        commit = threading.Thread(target=connection.commit)
        commit.start()
        waits = "SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = %s"
        until(lambda: writer.execute(waits, [pid]).fetchone() == (True,))
        writer.execute("INSERT INTO t VALUES (300, 1, 1, 'b')")
        assert recomputed(orc) == set()
        logged = "SELECT count(DISTINCT xid) FROM idivm_log.s1"
        assert scalar(writer, logged) == 2
        for _ in range(2):
            right(orc)
        writer.execute("UPDATE t SET n = n + 1 WHERE id = 300")
        right(orc)
        writer.execute("SELECT pg_cancel_backend(%s)", [pid])
        commit.join(60)
        assert recomputed(orc) == set()
        right(orc)


@pytest.mark.parametrize("seed", [1])
def test_writers_beside_refreshes_and_switches(own: str, orc: Orchestrator, seed: int) -> None:
    def write(number: int) -> None:
        chance = random.Random(seed * 100 + number)
        with psycopg.connect(own, autocommit=True) as connection:
            connection.execute(
                sql.SQL("SET synchronous_commit = {}").format(
                    sql.Literal(("local", "off")[number % 2])
                )
            )
            for step in range(60):
                name = f"p{number}_{step}"
                key = 1000 + number * 1000 + step
                connection.execute("BEGIN")
                connection.execute(
                    "INSERT INTO t VALUES (%s, %s, 1, 'w')", [key, chance.randrange(5)]
                )
                connection.execute(
                    "UPDATE t SET n = n + 1, g = (g + 1) %% 5 WHERE id = %s",
                    [1000 + number * 1000 + chance.randrange(step + 1)],
                )
                connection.execute(
                    "INSERT INTO bag VALUES (%s, now()::date)", [chance.randrange(5)]
                )
                connection.execute(
                    "DELETE FROM bag WHERE ctid = (SELECT min(ctid) FROM bag WHERE g = 3)"
                )
                ending = chance.choice(["COMMIT", "COMMIT", "ROLLBACK", "PREPARE"])
                if ending == "PREPARE":
                    connection.execute(sql.SQL("PREPARE TRANSACTION {}").format(sql.Literal(name)))
                    ending = chance.choice(["COMMIT PREPARED", "ROLLBACK PREPARED"])
                    connection.execute(sql.SQL(ending + " {}").format(sql.Literal(name)))  # type: ignore[arg-type]
                else:
                    connection.execute(ending)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    ways = iter(["triggers", "wal"] * 2)
    while any(thread.is_alive() for thread in threads):
        right(orc)
        if (way := next(ways, None)) is not None:
            orc.capture("t", way)
    for thread in threads:
        thread.join()
    right(orc)


def test_plain_sql_recomputes_and_refuses_own_changes(
    orc: Orchestrator, writer: Connection[Any]
) -> None:
    writer.execute("INSERT INTO t VALUES (300, 1, 1, 'b')")
    state = "SELECT state FROM idivm.status WHERE view = 'sums'::regclass"
    assert scalar(writer, state) == "behind"
    with writer.transaction():
        writer.execute("SELECT idivm.refresh('sums')")
        writer.execute("UPDATE t SET n = n + 1 WHERE id = 300")
        error = scalar(writer, "SELECT error FROM idivm.refresh('sums')")
        assert "this transaction has changed public.t" in error
    right(orc)
    writer.execute("DELETE FROM t WHERE id = 300")
    writer.execute("CALL idivm.refresh_all()")
    assert scalar(writer, "SELECT sum(c) FROM sums") == scalar(writer, "SELECT count(*) FROM t")
    right(orc)
    assert scalar(writer, state) == "fresh"


def test_a_status_decodes_the_wal_once(orc: Orchestrator, writer: Connection[Any]) -> None:
    with writer.transaction():
        writer.execute("SET LOCAL track_functions = 'pl'")
        assert scalar(writer, "SELECT count(*) FROM idivm.status") == 4
        calls = "SELECT calls FROM pg_stat_xact_user_functions WHERE funcname = 'has_unread_wal'"
        assert scalar(writer, calls) == 1


def test_a_setting_alone_does_not_say_that_the_wal_was_read(
    own: str, orc: Orchestrator, writer: Connection[Any]
) -> None:
    writer.execute("CREATE ROLE other LOGIN; SELECT idivm.allow_refreshes('other')")
    try:
        with psycopg.connect(own, user="other") as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.execute(
                "SELECT set_config('idivm.read_wal', pg_current_snapshot()::text, true)"
            )
            assert not scalar(connection, "SELECT idivm.has_read_wal()")
    finally:
        writer.execute("DROP OWNED BY other; DROP ROLE other")


DDL = {
    "add": "ALTER TABLE t ADD extra int DEFAULT 3; INSERT INTO t VALUES (300, 1, 1, 'b', 2)",
    "drop": "ALTER TABLE t ADD more int; UPDATE t SET more = id; ALTER TABLE t DROP more; DELETE FROM t WHERE id = 4",
    "rename": "INSERT INTO t VALUES (301, 1, 1, 'b'); ALTER TABLE t RENAME n TO m; UPDATE t SET m = 3 WHERE id = 301",
    "swap": "ALTER TABLE t ADD p numeric; UPDATE t SET p = -id; ALTER TABLE t RENAME m TO q; ALTER TABLE t RENAME p TO m;"
    "ALTER TABLE t RENAME q TO p; UPDATE t SET m = m - 1, p = p + 7",
    "retype": "ALTER TABLE t ALTER m TYPE text; UPDATE t SET m = 'x' WHERE id = 1",
    "rewrite": "VACUUM FULL t",
    "republish": "ALTER PUBLICATION idivm_capture DROP TABLE t; DELETE FROM t WHERE id = 5;"
    "ALTER PUBLICATION idivm_capture ADD TABLE t",
    "identity": "ALTER TABLE t REPLICA IDENTITY DEFAULT; DELETE FROM t WHERE id = 6; UPDATE t SET p = 9 WHERE id = 8;"
    "ALTER TABLE t REPLICA IDENTITY FULL",
}


def test_changed_definitions_of_a_table(orc: Orchestrator, writer: Connection[Any]) -> None:
    for change in DDL.values():
        for statement in change.split(";"):
            writer.execute(sql.SQL(statement))
        right(orc)
        orc.execute("UPDATE t SET g = g + 1 WHERE id < 20")
        right(orc)
    orc.create_view("wide", "SELECT id, p, g FROM t")
    writer.execute("UPDATE t SET p = 0 WHERE id < 30")
    right(orc)
    assert {table.capture for table in orc.captures()} == {"wal"}


def _lose_slot(connection: Connection[Any]) -> None:
    connection.execute(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()"
    )


def _read_slot(connection: Connection[Any]) -> None:
    connection.execute(
        "SELECT pg_replication_slot_advance(slot_name, pg_current_wal_flush_lsn()) FROM pg_replication_slots"
        " WHERE database = current_database()"
    )


LOSSES: dict[str, Callable[[Connection[Any]], object]] = {
    "slot": _lose_slot,
    "others": _read_slot,
    "identity": lambda connection: connection.execute("ALTER TABLE t REPLICA IDENTITY DEFAULT"),
    "publication": lambda connection: connection.execute("DROP PUBLICATION idivm_capture"),
    "child": lambda connection: connection.execute("CREATE TABLE child () INHERITS (t)"),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_triggers_take_over_what_the_wal_has_lost(
    orc: Orchestrator, writer: Connection[Any], loss: str
) -> None:
    writer.execute("INSERT INTO t VALUES (300, 1, 1, 'b'); DELETE FROM bag WHERE g = 1")
    LOSSES[loss](writer)
    writer.execute("UPDATE t SET n = 5 WHERE id = 300")
    right(orc)
    ways = {table.table: table.capture for table in orc.captures()}
    assert ways["t"] == "triggers"
    writer.execute("INSERT INTO t VALUES (301, 1, 1, 'b')")
    right(orc)


def test_the_last_table_takes_the_slot_along(orc: Orchestrator, writer: Connection[Any]) -> None:
    slots = "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()"
    assert orc.wal_status() is not None
    writer.execute("INSERT INTO t VALUES (300, 1, 1, 'b'); DELETE FROM bag WHERE g = 1")
    orc.capture("t", "triggers")
    writer.execute("INSERT INTO t VALUES (301, 1, 1, 'b'); DELETE FROM bag WHERE g = 2")
    assert recomputed(orc) == set()
    right(orc)
    assert scalar(writer, slots) == 1
    orc.drop_view("joined")
    assert scalar(writer, slots) == 0
    assert orc.wal_status() is None
    identity = (
        "SELECT string_agg(relreplident::text, '') FROM pg_class WHERE relname IN ('t', 'bag')"
    )
    assert scalar(writer, identity) == "dd"


def test_serve_reads_the_wal(orc: Orchestrator, own: str, writer: Connection[Any]) -> None:
    stop = threading.Event()
    with orchestrator.connect(own) as serving:
        thread = threading.Thread(target=serving.serve, args=("50ms",), kwargs={"stop": stop})
        thread.start()
        try:
            writer.execute("INSERT INTO t VALUES (300, 1, 1, 'b')")
            has_row = "SELECT EXISTS (SELECT FROM texts WHERE id = 300)"
            until(lambda: scalar(writer, has_row))
            writer.execute("DELETE FROM t WHERE id = 300")
            until(lambda: not scalar(writer, has_row))
        finally:
            stop.set()
            thread.join(60)
    reasons = "SELECT count(*) FROM idivm.history WHERE reason LIKE 'only idivm%'"
    assert scalar(writer, reasons) == 0
    right(orc)


def test_what_cannot_be_read_from_the_wal(orc: Orchestrator, writer: Connection[Any]) -> None:
    with pytest.raises(IdivmError, match="needs triggers on"):
        orc.create_view("live", "SELECT count(*) FROM t", maintain="eager")
    with pytest.raises(IdivmError, match="needs triggers on"):
        orc.alter_view("sums", maintain="on_read")
    right(orc)
    orc.execute(
        """
        CREATE TABLE u (id int PRIMARY KEY, n int, c regclass); CREATE VIEW eager WITH (maintain = eager) AS SELECT sum(n) FROM u;
        CREATE TABLE r (id int PRIMARY KEY, c regclass); CREATE VIEW classes AS SELECT id, c FROM r;
        CREATE UNLOGGED TABLE l (id int PRIMARY KEY); CREATE VIEW lost AS SELECT id FROM l;
        CREATE TABLE p (id int) PARTITION BY RANGE (id); CREATE VIEW parts AS SELECT id FROM p
        """
    )
    for table, reason in {
        "u": "eager with maintain = eager needs triggers",
        "r": "column c of ",
        "l": "unlogged",
        "p": "has no primary key",
    }.items():
        with pytest.raises(IdivmError, match=reason):
            orc.capture(table, "wal")
    with pytest.raises(IdivmError, match="No maintained view reads"):
        orc.capture("nothing", "wal")
    writer.execute("UPDATE u SET n = 2; INSERT INTO r VALUES (1, 'r'); INSERT INTO l VALUES (1)")
    right(orc)


def test_a_server_that_cannot_decode_its_wal(dsn: str) -> None:
    with orchestrator.connect(dsn) as orc:
        orc.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE VIEW v AS SELECT id FROM t")
        with pytest.raises(IdivmError, match="set wal_level = logical"):
            orc.capture("t", "wal")
        right(orc)


def test_a_view_that_fails_keeps_its_changes(orc: Orchestrator, writer: Connection[Any]) -> None:
    orc.create_view("quotients", "SELECT id, 100 / n AS q FROM t")
    writer.execute("UPDATE t SET n = 0 WHERE id = 1")
    writer.execute("UPDATE t SET n = 6 WHERE id = 2")
    with pytest.raises(RefreshError, match="division by zero"):
        orc.refresh()
    writer.execute("UPDATE t SET n = 4 WHERE id = 1")
    right(orc)


def test_a_switch_whose_session_ends_is_undone(
    own: str, orc: Orchestrator, writer: Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for table in ("t", "bag"):
        orc.capture(table, "triggers")
    create_slot = wal.create_slot

    def end(connection: Connection[Any], slot: str) -> None:
        create_slot(connection, slot)
        connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    monkeypatch.setattr(wal, "create_slot", end)
    with orchestrator.connect(own) as other, pytest.raises(IdivmError):
        other.capture("t", "wal")
    assert scalar(writer, "SELECT relreplident FROM pg_class WHERE oid = 't'::regclass") == "f"
    writer.execute("INSERT INTO t VALUES (300, 1, 1, 'b')")
    right(orc)
    writer.execute("SELECT idivm.drop_orphans()")
    assert scalar(writer, "SELECT relreplident FROM pg_class WHERE oid = 't'::regclass") == "d"
    left = "SELECT (SELECT count(*) FROM pg_publication_rel), (SELECT count(*) FROM pg_replication_slots)"
    assert writer.execute(sql.SQL(left)).fetchone() == (0, 0)


PARTS = """
CREATE TABLE parts (id int, k int, n int, PRIMARY KEY (id, k)) PARTITION BY LIST (k);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES IN (1);
CREATE TABLE parts_2 (n int, dropped text, k int NOT NULL, id int NOT NULL);
ALTER TABLE parts_2 DROP dropped; ALTER TABLE parts ATTACH PARTITION parts_2 FOR VALUES IN (2);
CREATE TABLE parts_3 PARTITION OF parts FOR VALUES IN (3, 4) PARTITION BY LIST (k);
CREATE TABLE parts_31 PARTITION OF parts_3 FOR VALUES IN (3, 4);
INSERT INTO parts SELECT i, 1 + i % 3, i FROM generate_series(1, 30) i;
CREATE VIEW part_sums AS SELECT k, sum(n) AS n, count(*) AS c FROM parts GROUP BY k;
CREATE VIEW part_rows AS SELECT id, k, n FROM parts WHERE n > 5
"""

PART_CHANGES = {
    "insert": "INSERT INTO parts VALUES (100, 1, 1), (101, 2, 2), (102, 3, 3)",
    "directly": "UPDATE parts_2 SET n = n + 1; DELETE FROM parts_31 WHERE id < 9",
    "moved": "UPDATE parts SET k = 1 + k % 3 WHERE id % 2 = 0",
    "moved back": "BEGIN; UPDATE parts SET k = 3 WHERE k = 1; UPDATE parts SET k = 4 WHERE k = 3; COMMIT",
    "merged": "MERGE INTO parts USING (VALUES (100), (300)) v (id) ON parts.id = v.id WHEN MATCHED THEN DELETE"
    " WHEN NOT MATCHED THEN INSERT VALUES (v.id, 2, 9)",
}


def test_partitions(orc: Orchestrator, writer: Connection[Any]) -> None:
    orc.execute(PARTS)
    orc.capture("parts", "wal")
    triggers = "SELECT count(*) FROM pg_trigger WHERE tgrelid::regclass::text LIKE 'parts%' AND NOT tgisinternal"
    assert scalar(writer, triggers) == 0
    for change in PART_CHANGES.values():
        writer.execute(sql.SQL(change), prepare=False)
        assert recomputed(orc) == set()
        right(orc)
    for change in (
        "TRUNCATE parts_2; INSERT INTO parts VALUES (400, 2, 6)",
        "CREATE TABLE parts_5 PARTITION OF parts FOR VALUES IN (5); INSERT INTO parts VALUES (500, 5, 7), (501, 5, 7)",
        "UPDATE parts SET n = n + 1 WHERE k = 5; DELETE FROM parts WHERE id = 500",
        "UPDATE parts SET id = id + 1000 WHERE k = 1",
        "UPDATE parts SET n = 0 WHERE k = 5; ALTER TABLE parts DETACH PARTITION parts_5; UPDATE parts_5 SET n = 1",
        "ALTER TABLE parts ATTACH PARTITION parts_5 FOR VALUES IN (5); UPDATE parts SET n = 8 WHERE k = 5",
        "TRUNCATE parts",
    ):
        writer.execute(sql.SQL(change), prepare=False)
        right(orc)
    assert {table.capture for table in orc.captures() if table.table == "parts"} == {"wal"}
    writer.execute("INSERT INTO parts VALUES (1, 1, 9), (2, 5, 9)")
    orc.capture("parts", "triggers")
    writer.execute("INSERT INTO parts VALUES (3, 3, 9); UPDATE parts SET k = 2 WHERE id = 2")
    assert recomputed(orc) == set()
    right(orc)
    identities = "SELECT string_agg(DISTINCT relreplident::text, '') FROM pg_class WHERE relname LIKE 'parts%'"
    assert scalar(writer, identities + " AND relkind = 'r'") == "d"


def test_ctrl_c_just_after_the_switch_comes_too_late(own: str, writer: Connection[Any]) -> None:
    """Undoing the switch would leave a table whose changes nobody captures."""
    with orchestrator.connect(own) as orc:
        orc.execute(TABLE)
        with (
            pytest.raises(KeyboardInterrupt),
            interrupted(after("refuse_wal_modes", "COMMIT"), KeyboardInterrupt),
        ):
            orc.capture("t", "wal")
        writer.execute("UPDATE t SET n = n + 1")
        orc.capture("t", "wal")
        orc.refresh()
        right(orc)


def test_a_session_with_another_form_of_dates(orc: Orchestrator, writer: Connection[Any]) -> None:
    orc.connection.execute("SET datestyle = 'German'")
    writer.execute("UPDATE t SET n = n + 1")
    orc.refresh()
    right(orc)
    orc.capture("t", "triggers")


def test_another_session_decodes_the_wal_if_there_is_room(
    orc: Orchestrator, own: str, writer: Connection[Any]
) -> None:
    with (
        psycopg.connect(own, autocommit=True) as other,
        IdivmSession.connect(own, autocommit=True) as session,
    ):
        ids = [view_id for (view_id,) in session.execute("SELECT id FROM idivm.views")]
        for room in (other, None):
            session.decode_in = partial(lambda decoder: decoder, room)
            writer.execute("UPDATE t SET n = n + 1")
            assert any(report.changed for report in refresh(session, ids))
        last = sql.SQL("SELECT query FROM pg_stat_activity WHERE pid = {}")
        query = writer.execute(last.format(other.info.backend_pid)).fetchone()
        assert query is not None and "slot" in query[0]
    right(orc)


def test_a_table_that_gets_a_key(orc: Orchestrator, writer: Connection[Any]) -> None:
    writer.execute("UPDATE bag SET g = g + 1; DELETE FROM bag WHERE d > '2020-01-15'")
    writer.execute("ALTER TABLE bag ADD PRIMARY KEY (d)")
    writer.execute("UPDATE bag SET g = g + 1 WHERE g < 3")
    orc.execute("CREATE VIEW days AS SELECT d, g FROM bag WHERE g < 9")
    assert orc.view("days").plan.program.sources[0].keyed
    # The table was altered, so that its changes until now are not read.
    right(orc)
    for change in ("UPDATE bag SET g = g + 1", "UPDATE bag SET d = d + 100, g = g - 1"):
        writer.execute(sql.SQL(change))
        assert not {"joined", "days"} & recomputed(orc)
        right(orc)
    assert wal.sources_in_wal(orc.connection)
