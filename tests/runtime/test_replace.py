"""CREATE OR REPLACE keeps the name readable, its grants and its readers."""

import pytest

from orchestrator.catalog.objects import orphans
from orchestrator.errors import DatabaseError, IdivmError

pytestmark = pytest.mark.integration


@pytest.fixture
def base(orc):
    orc.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text, w int); INSERT INTO t VALUES (1, 'a', 5), (2, 'b', 6);"
        "CREATE VIEW v AS SELECT id, v FROM t"
    )
    return orc


def test_the_same_columns_keep_what_reads_the_view(base):
    base.connection.execute("CREATE VIEW reader AS SELECT count(*) AS c FROM v")
    oid = base.view("v").oid
    base.execute("CREATE OR REPLACE VIEW v AS SELECT id, v || '!' AS v FROM t WHERE id > 1")
    assert base.view("v").oid == oid
    assert base.execute("TABLE v")[0].rows == [(2, "b!")]
    assert base.execute("TABLE reader")[0].rows == [(1,)]
    base.execute("INSERT INTO t VALUES (3, 'c', 7)")
    assert base.check("v")[0].equal
    assert len(base.views()) == 1
    assert orphans(base.connection) == []


def test_columns_may_be_added(base):
    base.execute(
        "CREATE OR REPLACE VIEW v AS SELECT id, v, w FROM t; UPDATE t SET w = 50 WHERE id = 1"
    )
    assert base.check("v")[0].equal
    assert (1, "a", 50) in base.execute("TABLE v")[0].rows


def test_other_columns_keep_the_grants(base):
    base.execute(
        "DROP ROLE IF EXISTS idivm_test_granted; CREATE ROLE idivm_test_granted;"
        "GRANT SELECT ON v TO idivm_test_granted WITH GRANT OPTION; GRANT SELECT ON v TO PUBLIC"
    )
    base.execute("CREATE OR REPLACE VIEW v AS SELECT w, id FROM t")
    assert base.execute("SELECT w, id FROM v ORDER BY id")[0].rows == [(5, 1), (6, 2)]
    granted = base.execute(
        "SELECT grantee::regrole::text, is_grantable FROM pg_class, aclexplode(relacl) WHERE oid = 'v'::regclass"
        " AND grantee <> relowner ORDER BY 1"
    )
    assert granted[0].rows == [("-", False), ("idivm_test_granted", True)]
    base.execute("DROP VIEW v; DROP ROLE idivm_test_granted")


def test_other_columns_are_refused_while_a_plain_view_reads_them(base):
    base.connection.execute("CREATE VIEW reader AS SELECT v FROM v")
    with pytest.raises(DatabaseError, match="other objects depend on it"):
        base.execute("CREATE OR REPLACE VIEW v AS SELECT id FROM t")
    base.execute("INSERT INTO t VALUES (3, 'c', 7)")
    assert base.check("v")[0].equal
    assert orphans(base.connection) == []


def test_readers_see_the_old_or_the_new_content_throughout(base, connect):
    reader = connect(autocommit=False)
    assert reader.execute("SELECT count(*) FROM v").fetchone() == (2,)
    reader.commit()
    # A reader that holds the view delays the swap only, and reads on.
    reader.execute("SELECT 1 FROM v")
    base.execute("SET lock_timeout = '1ms'")
    with pytest.raises(DatabaseError, match="lock timeout"):
        base.execute("CREATE OR REPLACE VIEW v AS SELECT id, v FROM t WHERE id > 1")
    assert reader.execute("SELECT count(*) FROM v").fetchone() == (2,)
    reader.commit()
    base.execute("RESET lock_timeout; CREATE OR REPLACE VIEW v AS SELECT id, v FROM t WHERE id > 1")
    assert reader.execute("SELECT count(*) FROM v").fetchone() == (1,)
    assert orphans(base.connection) == []


def test_a_maintained_view_may_follow_a_dropped_one_of_its_name(base):
    base.execute("DROP VIEW v; CREATE VIEW v AS SELECT w FROM t; INSERT INTO t VALUES (3, 'c', 7)")
    assert base.check("v")[0].equal
    assert orphans(base.connection) == []


def test_if_not_exists_leaves_the_view_alone(base):
    result = base.execute("CREATE MATERIALIZED VIEW IF NOT EXISTS v AS SELECT w FROM t")
    assert "skipping" in result[0].message
    assert base.view("v").query == "SELECT id, v FROM t"


@pytest.mark.parametrize("mode", ["deferred", "eager", "on_commit"])
def test_views_over_a_view_whose_key_is_lost_are_planned_anew_with_it(orc, mode):
    orc.execute(
        "CREATE TABLE t (id int CONSTRAINT tk PRIMARY KEY, g int); INSERT INTO t VALUES (1, 1), (2, 1), (3, 2)"
    )
    orc.create_view("low", "SELECT id, g FROM t", strategy="id", maintain=mode)
    orc.create_view("left_one", "SELECT g, count(*) AS n FROM low GROUP BY g")
    orc.create_view("right_one", "SELECT id, g FROM low WHERE g > 0", maintain=mode)
    orc.create_view("top", "SELECT id, n FROM left_one JOIN right_one USING (g)", maintain=mode)
    orc.create_view("apart", "SELECT 1 AS a")
    orc.execute("ALTER TABLE t DROP CONSTRAINT tk")
    orc.refresh()
    orc.execute("INSERT INTO t VALUES (1, 1), (2, 7)")
    orc.refresh()
    assert all(report.equal for report in orc.check())
    assert orc.execute("SELECT * FROM top ORDER BY 1, 2")[0].rows == [
        *[(1, 3), (1, 3), (2, 1), (2, 3), (3, 1)],
    ]
    orc.execute("DELETE FROM t WHERE g = 1; UPDATE t SET g = 2")
    orc.refresh()
    assert orc.execute("TABLE left_one")[0].rows == [(2, 2)]
    assert all(report.equal for report in orc.check())
    orc.drop_view("low", cascade=True)
    assert [view.name for view in orc.views()] == ["apart"]
    assert orphans(orc.connection) == []


@pytest.mark.parametrize("mode", ["deferred", "eager"])
def test_a_view_with_readers_is_replaced_with_them(base, connect, mode):
    base.create_view("sums", "SELECT v, sum(id) AS s FROM v GROUP BY v", maintain=mode)
    base.connection.execute("CREATE VIEW between AS SELECT s FROM sums")
    base.create_view("top", "SELECT max(s) AS s FROM between", maintain=mode)
    base.connection.execute("GRANT SELECT ON top TO PUBLIC")
    reader = connect()
    seen = reader.execute("SELECT 'v'::regclass::oid, 'top'::regclass::oid").fetchone()
    base.execute(
        "INSERT INTO t VALUES (3, 'c', 7);"
        "CREATE OR REPLACE VIEW v AS SELECT id * 10 AS id, v, w FROM t WHERE id > 1"
    )
    # No refresh since: the readers' contents came with the new query.
    assert reader.execute("SELECT * FROM v ORDER BY id").fetchall() == [(20, "b", 6), (30, "c", 7)]
    assert reader.execute("TABLE top").fetchall() == [(30,)]
    assert reader.execute("SELECT 'v'::regclass::oid, 'top'::regclass::oid").fetchone() == seen
    assert len(base.views()) == 3
    base.execute("INSERT INTO t VALUES (4, 'c', 8)")
    assert all(report.equal for report in base.check())
    assert reader.execute("TABLE top").fetchall() == [(70,)]
    assert orphans(base.connection) == []
    for query, said in (
        ("SELECT id FROM t", "cannot lose, rename or retype columns while .* sums, top read it"),
        ("SELECT id, v, w::text FROM t", "cannot lose, rename or retype columns"),
        ("SELECT s::int AS id, 'x' AS v, 1 AS w FROM top", "cannot read top, which reads v"),
        ("SELECT 1 / (id - id) AS id, v, w FROM t", "division by zero"),
    ):
        with pytest.raises(IdivmError, match=said):
            base.execute(f"CREATE OR REPLACE VIEW v AS {query}")
        assert all(report.equal for report in base.check())
    base.execute("ALTER VIEW v SET (strategy = recompute)")
    assert base.view("v").strategy == "recompute"
    assert all(report.equal for report in base.check())
    assert orphans(base.connection) == []
