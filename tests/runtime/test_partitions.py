"""Partitions that come and go below views that writers keep: what is followed at once, and what is said before."""

import pytest

from orchestrator import catalog

pytestmark = pytest.mark.integration


@pytest.fixture(params=["plpgsql", "c"])
def capture_form(request):
    return request.param


@pytest.fixture
def plain(orc, connect):
    """A partitioned table, a view of each mode over it, and a session that knows nothing of idivm."""
    orc.execute(
        """
        CREATE TABLE p (k int PRIMARY KEY, w int) PARTITION BY RANGE (k);
        CREATE TABLE first PARTITION OF p FOR VALUES FROM (0) TO (100);
        CREATE TABLE second PARTITION OF p FOR VALUES FROM (100) TO (200);
        INSERT INTO p VALUES (1, 1), (101, 101);
        CREATE VIEW soon WITH (maintain = eager, shared = off) AS SELECT k, w FROM p;
        CREATE VIEW common WITH (maintain = eager) AS SELECT k FROM p;
        CREATE VIEW later WITH (maintain = on_commit) AS SELECT count(*) AS n, sum(w) AS w FROM p;
        CREATE VIEW at_last AS SELECT k FROM p WHERE w > 0;
        """
    )
    return connect()


def rows_of_soon(plain):
    return [row[0] for row in plain.execute("SELECT k FROM soon ORDER BY k").fetchall()]


def total(plain):
    return plain.execute("TABLE later").fetchone()


COMES = "CREATE TABLE third PARTITION OF p FOR VALUES FROM (200) TO (300)"


def test_rows_written_to_a_new_partition_directly(orc, plain):
    plain.execute(COMES)
    plain.execute("INSERT INTO third VALUES (201, 201)")
    assert rows_of_soon(plain) == [1, 101]
    # Reads of a view that writers share notice it themselves.
    assert plain.execute("SELECT k FROM common ORDER BY k").fetchall() == [(1,), (101,), (201,)]
    view = orc.view("soon")
    assert view.status == "invalid"
    assert "third does not carry capture yet" in view.trouble
    # A statement on any other member finds out.
    plain.execute("UPDATE first SET w = 2")
    assert rows_of_soon(plain) == [1, 101, 201]
    assert orc.view("soon").status == "invalid"
    orc.refresh()
    assert {v.name: (v.status, v.trouble) for v in orc.views()} == dict.fromkeys(
        ("soon", "common", "later", "at_last"), ("ready", None)
    )
    plain.execute("INSERT INTO third VALUES (202, 202)")
    assert rows_of_soon(plain) == [1, 101, 201, 202]
    assert total(plain) == (4, 506)


def test_a_partition_that_is_detached(orc, plain):
    plain.execute("ALTER TABLE p DETACH PARTITION second")
    assert rows_of_soon(plain) == [1, 101]
    assert "a partition or an inheritance child of public.p is gone" in orc.view("soon").trouble
    plain.execute("SELECT idivm.refresh('soon')")
    assert rows_of_soon(plain) == [1]
    orc.refresh()
    assert all(view.trouble is None for view in orc.views())
    plain.execute("INSERT INTO second VALUES (102, 102)")
    assert (rows_of_soon(plain), total(plain)) == ([1], (1, 1))


@pytest.fixture
def watched(orc, plain):
    """The same with the event trigger that the extension makes."""
    orc.connection.execute("CALL idivm.watch_partitions()")
    return plain


def test_the_event_trigger_follows_at_once(orc, watched):
    plain = watched
    plain.execute(COMES)
    plain.execute(
        "INSERT INTO third VALUES (201, 201); UPDATE third SET w = 7; INSERT INTO p VALUES (202, 0)"
    )
    assert (rows_of_soon(plain), total(plain)) == ([1, 101, 201, 202], (4, 109))
    plain.execute(
        "CREATE TABLE loose (w int, k int NOT NULL); INSERT INTO loose VALUES (1, 301), (2, 302);"
        "ALTER TABLE p ATTACH PARTITION loose FOR VALUES FROM (300) TO (400)"
    )
    assert rows_of_soon(plain) == [1, 101, 201, 202, 301, 302]
    plain.execute("ALTER TABLE p DETACH PARTITION second; DROP TABLE first")
    assert rows_of_soon(plain) == [201, 202, 301, 302]
    plain.execute(
        "DELETE FROM loose WHERE k = 301; INSERT INTO second VALUES (102, 1); TRUNCATE third"
    )
    assert (rows_of_soon(plain), total(plain)) == ([302], (1, 2))
    with plain.transaction():
        plain.execute(
            "CREATE TABLE sub PARTITION OF p FOR VALUES FROM (400) TO (600) PARTITION BY RANGE (k)"
        )
        plain.execute("CREATE TABLE low PARTITION OF sub FOR VALUES FROM (400) TO (500)")
        plain.execute("INSERT INTO low VALUES (401, 401); INSERT INTO sub VALUES (402, 402)")
    assert (rows_of_soon(plain), total(plain)) == ([302, 401, 402], (3, 805))
    plain.execute("ALTER TABLE p DETACH PARTITION loose CONCURRENTLY")
    assert rows_of_soon(plain) == [401, 402]
    # Nothing but its functions is left to do for a refresh, and nothing for the doctor.
    assert catalog.sources_with_other_members(orc.connection, [1]) == []
    orc.refresh()
    assert all(view.status == "ready" for view in orc.views())
    assert [f for f in orc.doctor() if not f.fine] == []
    plain.execute("UPDATE low SET w = 1; DELETE FROM p WHERE k = 402")
    assert (rows_of_soon(plain), total(plain)) == ([401], (1, 1))
    assert all(report.equal for report in orc.check())


def test_after_the_event_trigger_writes_are_followed_without_a_rebuild(orc, watched):
    plain = watched
    plain.execute(COMES)
    orc.connection.execute("CALL idivm.refresh_all()")
    assert [v.status for v in orc.views()] == ["ready"] * 4
    plain.execute("INSERT INTO p VALUES (203, 3); INSERT INTO third VALUES (204, 4)")
    kinds = plain.execute(
        "SELECT DISTINCT op::text FROM idivm_log.s1 WHERE seq > (SELECT max(seq) - 2 FROM idivm_log.s1)"
    )
    assert kinds.fetchall() == [("I",)]
    assert rows_of_soon(plain) == [1, 101, 203, 204]
