"""What cannot be done is said in one sentence, and leaves nothing behind."""

import subprocess
import sys

import psycopg
import pytest

import orchestrator
from orchestrator.catalog.objects import orphans
from orchestrator.errors import (
    DatabaseError,
    IdivmError,
    NameTakenError,
    NotFoundError,
    ServerError,
    UnsupportedError,
    UsageError,
)

pytestmark = pytest.mark.integration


@pytest.fixture
def base(orc):
    orc.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'a');"
        "CREATE TEMPORARY TABLE temp_t (id int)"
    )
    return orc


@pytest.mark.parametrize(
    ("script", "error", "says"),
    [
        ("CREATE VIEW v AS SELEC 1", DatabaseError, "syntax error"),
        ("CREATE VIEW v AS SELECT * FROM nowhere", DatabaseError, '"nowhere" does not exist'),
        ("CREATE VIEW v AS SELECT nothing FROM t", DatabaseError, '"nothing" does not exist'),
        ("CREATE VIEW nowhere.v AS SELECT 1 AS a", DatabaseError, '"nowhere" does not exist'),
        ("CREATE VIEW v AS SELECT random() AS r FROM t", UnsupportedError, "random"),
        (
            "CREATE VIEW v AS SELECT id FROM t ORDER BY clock_timestamp()",
            UnsupportedError,
            "clock_timestamp",
        ),
        ("CREATE VIEW v AS SELECT id FROM temp_t", UnsupportedError, "temporary"),
        ("CREATE VIEW t AS SELECT 1 AS a", NameTakenError, "exists already"),
        ("CREATE OR REPLACE VIEW t AS SELECT 1 AS a", NameTakenError, "not maintained by idivm"),
        ("CREATE VIEW v WITH (strategy = magic) AS SELECT 1 AS a", UsageError, "magic"),
        ("CREATE VIEW v WITH (speed = high) AS SELECT 1 AS a", UsageError, "speed"),
        ("CREATE VIEW v (a, b, c) AS SELECT id FROM t", DatabaseError, "more column names"),
        ("CREATE VIEW v AS SELECT 1 / (id - 1) AS q FROM t", DatabaseError, "division by zero"),
        ("CREATE VIEW v AS INSERT INTO t VALUES (2) RETURNING id", IdivmError, "."),
        ("DROP VIEW nowhere", NotFoundError, "no view"),
        ("REFRESH VIEW t", NotFoundError, "not maintained"),
        ("CREATE VIEW idivm.v AS SELECT 1 AS a", UsageError, "idivm's own"),
        (
            "SET search_path = idivm_state; CREATE VIEW v AS SELECT 1 AS a",
            UsageError,
            "idivm's own",
        ),
        ("SELECT 1; CREATE VIEW", UsageError, "name is missing"),
        ("CREATE VIEW v WITH (maintian = eager) AS SELECT 1 AS a", UsageError, "mean maintain?"),
    ],
)
def test_one_sentence_and_nothing_left(base, script, error, says):
    with pytest.raises(error) as caught:
        base.execute(script)
    sentence = str(caught.value)
    assert says in sentence
    assert "\n" not in sentence
    base.connection.rollback()
    assert base.views() == []
    assert orphans(base.connection) == []
    assert base.execute("SELECT count(*) FROM idivm.views")[0].rows == [(0,)]
    assert base.execute("SELECT count(*) FROM idivm.sources")[0].rows == [(0,)]


def test_several_statements_are_not_a_query(base):
    with pytest.raises(UsageError, match="one statement"):
        base.create_view("v", "SELECT 1 AS a; DROP TABLE t")
    assert base.execute("TABLE t")[0].rows


def test_a_failed_replacement_keeps_the_view(base):
    base.execute("CREATE VIEW v AS SELECT id FROM t")
    with pytest.raises(DatabaseError):
        base.execute("CREATE OR REPLACE VIEW v AS SELECT 1 / (id - 1) AS id FROM t")
    base.execute("INSERT INTO t VALUES (2, 'b')")
    assert base.check("v")[0].equal
    assert orphans(base.connection) == []
    assert base.execute("TABLE v")[0].rows == [(1,), (2,)]


def test_no_rights_on_a_table_is_said(base, dsn):
    base.execute(
        "DROP ROLE IF EXISTS idivm_test_reader; CREATE ROLE idivm_test_reader;"
        "GRANT SELECT ON t TO idivm_test_reader;"
        "GRANT ALL ON SCHEMA public, idivm, idivm_def, idivm_log, idivm_state TO idivm_test_reader;"
        "GRANT ALL ON ALL TABLES IN SCHEMA idivm TO idivm_test_reader;"
        "GRANT ALL ON ALL SEQUENCES IN SCHEMA idivm TO idivm_test_reader"
    )
    base.execute("SET ROLE idivm_test_reader")
    try:
        with pytest.raises(DatabaseError, match="permission denied for table t"):
            base.execute("CREATE VIEW v AS SELECT id FROM t")
    finally:
        base.execute("RESET ROLE")
    assert orphans(base.connection) == []
    base.execute("DROP OWNED BY idivm_test_reader; DROP ROLE idivm_test_reader")


def test_writing_to_a_view_is_refused(base):
    base.execute("CREATE VIEW v AS SELECT id, v FROM t")
    for statement in ("INSERT INTO v VALUES (5, 'x')", "UPDATE v SET v = 'x'", "DELETE FROM v"):
        with pytest.raises(DatabaseError, match="maintained from its query"):
            base.execute(statement)


def test_used_columns_are_protected(base):
    base.execute("CREATE VIEW v AS SELECT v FROM t")
    with pytest.raises(DatabaseError, match="view v depends on it"):
        base.execute("ALTER TABLE t DROP COLUMN v")
    base.connection.execute("CREATE VIEW plain AS SELECT v FROM v")
    with pytest.raises(DatabaseError) as caught:
        base.execute("DROP TABLE t")
    assert "view v, view plain depend on it" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_copy_from_the_client_is_refused_and_the_session_lives_on(base):
    with pytest.raises(UsageError, match="psql"):
        base.execute("COPY t (id) FROM STDIN WITH (FORMAT csv)")
    base.execute("COPY (SELECT 1) TO PROGRAM 'cat > /dev/null'")
    assert base.execute("TABLE t")[0].rows == [(1, "a")]


def test_a_dropped_table_takes_the_view_along(base):
    base.execute(
        "CREATE VIEW v AS SELECT v FROM t; CREATE VIEW w AS SELECT v FROM v; DROP TABLE t CASCADE"
    )
    assert base.views() == []
    assert orphans(base.connection) == []
    with pytest.raises(NotFoundError):
        base.refresh("v")


def test_a_view_dropped_in_plain_sql_is_cleared_away(base):
    base.execute("CREATE VIEW v AS SELECT v FROM t")
    base.connection.execute("DROP VIEW v")
    base.execute("INSERT INTO t VALUES (2, 'b')")
    assert base.refresh() == []
    assert base.views() == []
    assert orphans(base.connection) == []


def test_a_view_that_others_read_is_not_dropped_by_mistake(base):
    base.execute("CREATE VIEW v AS SELECT v FROM t; CREATE VIEW w AS SELECT v FROM v")
    with pytest.raises(UsageError, match=r"read by the maintained views w"):
        base.drop_view("v")
    with pytest.raises(UsageError, match="cannot lose"):
        base.create_view("v", "SELECT id FROM t", replace=True)
    base.drop_view("v", cascade=True)
    assert base.views() == []
    assert orphans(base.connection) == []


def test_a_lost_connection_is_one_sentence(base, connect):
    base.execute("CREATE VIEW v AS SELECT v FROM t")
    connect().execute("SELECT pg_terminate_backend(%s)", [base.connection.info.backend_pid])
    with pytest.raises(IdivmError) as caught:
        base.execute("SELECT 1")
    assert "\n" not in str(caught.value)
    with pytest.raises(IdivmError):
        base.refresh()


def test_a_creation_that_was_cut_short_is_cleared_away(base, connect, dsn):
    blocker = connect(autocommit=False)
    blocker.execute("LOCK TABLE t IN SHARE MODE")
    creator = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "orchestrator.cli.main",
            "sql",
            "--dsn",
            dsn,
            "-c",
            "CREATE VIEW v AS SELECT id FROM t",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    watcher = connect()
    while watcher.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone() == (0,):
        assert creator.poll() is None
    creator.kill()
    creator.communicate()
    blocker.commit()
    base.execute("DROP VIEW IF EXISTS v")
    base.execute("CREATE VIEW v AS SELECT id FROM t")
    assert base.check("v")[0].equal
    assert orphans(base.connection) == []


def test_an_unreachable_server_is_one_sentence():
    with pytest.raises(ServerError) as caught:
        orchestrator.connect("host=127.0.0.1 port=1 connect_timeout=1 user=nobody")
    assert "\n" not in str(caught.value)


def test_a_password_is_not_in_the_message():
    with pytest.raises(ServerError) as caught:
        orchestrator.connect("postgresql://me:secret@127.0.0.1:1/db?connect_timeout=1")
    assert "secret" not in str(caught.value)


def test_half_a_creation_of_a_dead_creator_is_swept(base, connect):
    # What is committed between the two transactions of a creation whose client then died.
    dead = connect()
    dead.execute(
        "INSERT INTO idivm.views (id, name, strategy, maintain, query) VALUES (999, 'v', 'recompute', 'deferred', 'x');"
        "CREATE VIEW idivm_def.v999 AS SELECT 1 AS a"
    )
    held = connect()
    held.execute("SELECT pg_advisory_lock(idivm.lock_class(), 999)")
    base.execute("SELECT idivm.drop_orphans()")
    assert base.execute("SELECT count(*) FROM idivm.views")[0].rows == [(1,)]
    held.close()
    with pytest.raises(psycopg.OperationalError):
        held.execute("SELECT 1")
    base.execute(
        "SELECT pg_advisory_lock(idivm.lock_class(), 999), pg_advisory_unlock(idivm.lock_class(), 999)"
    )
    base.execute("SELECT idivm.drop_orphans()")
    assert base.execute("SELECT count(*) FROM idivm.views")[0].rows == [(0,)]
    assert orphans(base.connection) == []
