"""A view that nobody refreshes: how much log it may keep, who notices, and what happens then."""

import pytest
from stepping import differences

from orchestrator.cli.main import main
from orchestrator.errors import UsageError

pytestmark = pytest.mark.integration


@pytest.fixture
def logged(orc):
    """A table with a log of some hundred kilobytes, and a view that has yet to consume it."""
    orc.execute(
        "CREATE TABLE t (id int PRIMARY KEY, k int, note text);"
        "INSERT INTO t SELECT i, i % 7, 'x' FROM generate_series(1, 2000) AS i"
    )

    def build(**options):
        orc.create_view("late", "SELECT k, count(*) AS n FROM t GROUP BY k", **options)
        orc.create_view("prompt", "SELECT id, note FROM t WHERE k = 3")
        return orc

    return build


def change(orc):
    for _ in range(3):
        orc.execute("UPDATE t SET k = (k + 1) % 7, note = note || 'y'")


def log_bytes(orc):
    row = orc.connection.execute(
        "SELECT pg_relation_size('idivm_log.s1_a') + pg_relation_size('idivm_log.s1_b')"
    ).fetchone()
    return row[0]


def status(orc, name):
    return orc.connection.execute(
        "SELECT status FROM idivm.views WHERE relation = %s::regclass", [name]
    ).fetchone()[0]


def test_sizes_and_actions_are_checked(orc):
    for options in ({"log_limit": "lots"}, {"log_limit": "-1MB"}, {"on_log_limit": "panic"}):
        with pytest.raises(UsageError):
            orc.create_view("v", "SELECT 1 AS a", **options)
    orc.create_view("v", "SELECT 1 AS a", log_limit="10 MB", on_log_limit="refresh")
    orc.alter_view("v", log_limit="20MB")
    assert orc.view("v").log_limit == 20 << 20
    assert orc.view("v").on_log_limit == "refresh"


def test_what_a_view_keeps_is_what_it_has_not_consumed(logged):
    orc = logged()
    change(orc)
    orc.connection.execute("SELECT * FROM idivm.refresh('prompt')")
    sizes = "SELECT idivm.log_kept(id) FROM idivm.views ORDER BY id"
    late, prompt = (row[0] for row in orc.connection.execute(sizes).fetchall())
    assert late == log_bytes(orc)
    assert prompt == 0
    orc.execute("UPDATE t SET k = 0 WHERE id = 1")
    late, prompt = (row[0] for row in orc.connection.execute(sizes).fetchall())
    # To a page of each segment.
    assert prompt <= 16384 < late


def test_status_warns(logged, capsys, dsn):
    orc = logged(log_limit="100kB")
    assert main(["status", "late", "--dsn", dsn]) == 0
    assert "WARNING" not in capsys.readouterr().out
    change(orc)
    orc.refresh("prompt")
    assert main(["status", "late", "--dsn", dsn]) == 0
    assert "more than its log_limit" in capsys.readouterr().out
    assert main(["status", "prompt", "--dsn", dsn]) == 0
    assert "WARNING" not in capsys.readouterr().out
    assert status(orc, "late") == "ready"
    orc.refresh("late")
    assert main(["status", "late", "--dsn", dsn]) == 0
    assert "WARNING" not in capsys.readouterr().out


def test_a_view_that_keeps_too_much_is_left_to_a_rebuild(logged):
    orc = logged(log_limit="100kB", on_log_limit="rebuild")
    change(orc)
    orc.refresh("prompt")
    assert status(orc, "late") == "invalid"
    assert status(orc, "prompt") == "ready"
    orc.execute("SELECT idivm.collect(0)")
    assert log_bytes(orc) == 0
    orc.execute("DELETE FROM t WHERE id < 100")
    orc.refresh()
    assert differences(orc.connection, "late") == []
    assert differences(orc.connection, "prompt") == []


@pytest.mark.parametrize(
    "refresh",
    [lambda o: o.refresh("prompt"), lambda o: o.execute("CALL idivm.refresh_all('prompt')")],
)
def test_a_view_that_keeps_too_much_comes_along(logged, refresh):
    orc = logged(log_limit="100kB", on_log_limit="refresh")
    orc.execute("UPDATE t SET note = 'z' WHERE id = 5")
    refresh(orc)
    assert orc.view("late").pending == 1
    change(orc)
    refresh(orc)
    assert orc.view("late").pending == 0
    assert differences(orc.connection, "late") == []


def test_the_database_has_a_say(logged, connect):
    orc = logged()
    name = orc.connection.info.dbname
    orc.execute(f"ALTER DATABASE {name} SET idivm.log_limit = '100kB'")
    orc.execute(f"ALTER DATABASE {name} SET idivm.on_log_limit = 'rebuild'")
    # A session has none.
    orc.execute("SET idivm.log_limit = '1TB'")
    change(orc)
    orc.refresh("prompt")
    assert status(orc, "late") == "invalid"
    orc.execute(f"ALTER DATABASE {name} RESET idivm.log_limit")
    assert orc.view("late").log_limit == 1 << 30


def test_writers_look_when_nobody_else_does(logged):
    orc = logged(log_limit="100kB", on_log_limit="rebuild")
    change(orc)
    assert status(orc, "late") == "ready"
    orc.execute("SELECT setval('idivm_log.s1_seq', 1023); UPDATE t SET k = 5 WHERE id = 8")
    assert status(orc, "late") == "invalid"
    orc.refresh()
    assert differences(orc.connection, "late") == []


def test_a_refresh_under_way_keeps_its_log(logged, connect):
    orc = logged(log_limit="100kB", on_log_limit="rebuild")
    change(orc)
    other = connect(autocommit=False)
    other.execute("SELECT idivm.lock_views(ARRAY[1])")
    orc.refresh("prompt")
    orc.execute("SELECT idivm.collect(0)")
    assert status(orc, "late") == "ready"
    assert log_bytes(orc) > 0
    other.execute("SELECT * FROM idivm.refresh('late')")
    other.commit()
    assert differences(orc.connection, "late") == []
