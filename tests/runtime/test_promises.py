"""Plans rely on keys and on NOT NULL; these may go at any time."""

import psycopg
import pytest
from psycopg import IsolationLevel
from stepping import Session, differences

from orchestrator import catalog
from orchestrator.errors import IdivmError
from orchestrator.runtime.installation.replanning import follow, replan

pytestmark = pytest.mark.integration

LOST = {
    "a NOT NULL": (
        "ALTER TABLE item ALTER n DROP NOT NULL",
        "UPDATE item SET n = NULL WHERE id < 3; INSERT INTO item VALUES (9, 'c', 'z', NULL)",
    ),
    "a further key": (
        "ALTER TABLE grp DROP CONSTRAINT grp_short_key",
        "INSERT INTO grp VALUES ('c2', 'z', 3), ('c3', 'z', 3); UPDATE item SET n = n + 1",
    ),
    "the NOT NULL of a further key": (
        "ALTER TABLE grp ALTER short DROP NOT NULL",
        "INSERT INTO grp VALUES ('d', NULL, 5), ('e', NULL, 5); INSERT INTO item VALUES (9, 'd', NULL, 4)",
    ),
}


@pytest.fixture(params=["id", "viewtree", "recompute"])
def shop(orc, request):
    """Views that sums, outer joins and rows of a join keep, over a key beside the primary one."""
    orc.execute(
        """
        CREATE TABLE grp (g text PRIMARY KEY, short text NOT NULL UNIQUE, factor int NOT NULL);
        CREATE TABLE item (id int PRIMARY KEY, g text, short text, n int NOT NULL);
        INSERT INTO grp VALUES ('a', 'x', 1), ('b', 'y', 2), ('c', 'z', 3);
        INSERT INTO item SELECT i, chr(97 + i % 3), chr(120 + i % 3), i FROM generate_series(1, 7) AS i
        """
    )
    sums = "SELECT i.short, sum(n) AS s, sum(n * factor) AS p, count(n) AS c FROM item AS i JOIN grp USING (short) GROUP BY i.short"
    orc.create_view("sums", sums, strategy=request.param)
    if request.param != "viewtree":
        rows = (
            "SELECT i.id, n, factor, n + factor AS both FROM item AS i LEFT JOIN grp USING (short)"
        )
        orc.create_view("rows", rows, strategy=request.param)
        orc.create_view("shorts", "SELECT short, factor FROM grp", strategy=request.param)
    return orc


@pytest.mark.parametrize("lost", LOST)
def test_what_a_table_no_longer_promises_is_noticed(shop, lost):
    alter, change = LOST[lost]
    shop.execute(alter)
    shop.execute(change)
    shop.refresh()
    views = [view.name for view in shop.views()]
    assert {name: differences(shop.connection, name) for name in views} == {n: [] for n in views}
    shop.execute("UPDATE item SET n = 7 WHERE id IN (1, 4); DELETE FROM grp WHERE g = 'b'")
    shop.refresh()
    assert {name: differences(shop.connection, name) for name in views} == {n: [] for n in views}


@pytest.mark.parametrize("strategy", ["id", "recompute"])
def test_a_key_that_may_be_null_is_none(orc, strategy):
    orc.execute(
        "CREATE TABLE t (k int NOT NULL UNIQUE, n int); INSERT INTO t VALUES (1, 1), (2, 2)"
    )
    orc.create_view("v", "SELECT k, n FROM t WHERE n > 0", strategy=strategy)
    orc.execute("ALTER TABLE t ALTER k DROP NOT NULL")
    orc.execute("INSERT INTO t VALUES (NULL, 3), (NULL, 3), (NULL, 4)")
    orc.refresh()
    assert differences(orc.connection, "v") == []
    orc.execute("UPDATE t SET n = n + 1; DELETE FROM t WHERE n = 5")
    orc.refresh()
    assert differences(orc.connection, "v") == []


@pytest.mark.parametrize("strategy", ["id", "recompute"])
def test_a_better_key_may_come(orc, strategy):
    orc.execute("CREATE TABLE t (u int NOT NULL UNIQUE, id int, n int)")
    orc.execute("INSERT INTO t VALUES (1, 1, 1), (2, 2, 2)")
    orc.create_view("v", "SELECT u, n FROM t WHERE n > 0", strategy=strategy)
    orc.execute("ALTER TABLE t ADD PRIMARY KEY (id)")
    orc.create_view("w", "SELECT id FROM t WHERE n > 0", strategy=strategy)
    orc.create_view("x", "SELECT n, count(*) AS c FROM t GROUP BY n", strategy=strategy)
    orc.execute(
        "INSERT INTO t VALUES (3, 3, 3); DELETE FROM t WHERE id = 1; UPDATE t SET n = n + 1"
    )
    orc.execute("UPDATE t SET u = u + 10, id = 20 - id")
    orc.refresh()
    assert {name: differences(orc.connection, name) for name in "vwx"} == {n: [] for n in "vwx"}


@pytest.mark.parametrize("other", ["WITHOUT OVERLAPS", "DEFERRABLE"])
def test_a_weaker_key_replaces_a_key(orc, pg_version, other):
    if pg_version < 18 and other != "DEFERRABLE":
        pytest.skip("WITHOUT OVERLAPS exists from version 18 on")
    orc.execute("CREATE TABLE t (id int4range, at daterange, n int, PRIMARY KEY (id, at))")
    orc.execute("INSERT INTO t VALUES ('[1,2)', '[2020-01-01,2020-01-09)', 1)")
    orc.create_view("v", "SELECT id, at, n FROM t WHERE n > 0", strategy="id")
    keys = {"WITHOUT OVERLAPS": "(id, at WITHOUT OVERLAPS)", "DEFERRABLE": "(id, at) DEFERRABLE"}
    orc.execute(f"ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY {keys[other]}")
    [view] = orc.views()
    assert "lost the key" in view.trouble
    drifted = "SELECT idivm.looks_drifted(id), idivm.drifted_views(ARRAY[id]) = ARRAY[id] FROM idivm.views"
    assert orc.execute(drifted)[0].rows == [(True, True)]
    orc.refresh()
    orc.execute("INSERT INTO t VALUES ('[2,3)', '[2020-01-01,2020-01-09)', 1); UPDATE t SET n = 2")
    orc.refresh()
    assert differences(orc.connection, "v") == []
    assert not orc.view("v").plan.program.sources[0].keyed


KEYLESS = {"deferred": {}, "eager": {"maintain": "eager"}, "on_read": {"maintain": "on_read"}}


@pytest.mark.parametrize("accelerate", ["on", "off"])
@pytest.mark.parametrize("maintain", KEYLESS)
def test_a_key_that_a_captured_table_gets_is_used(orc, maintain, accelerate):
    """Views that were planned without it stay right, also with rows pending from before."""
    orc.execute(f"SET idivm.accelerate = {accelerate}")
    orc.execute("CREATE TABLE t (id int PRIMARY KEY, k int, n int)")
    orc.execute("INSERT INTO t SELECT i, i % 3, i FROM generate_series(1, 9) AS i")
    orc.create_view("old", "SELECT k, n FROM t WHERE n > 0", strategy="id", **KEYLESS[maintain])
    orc.execute("ALTER TABLE t DROP CONSTRAINT t_pkey; INSERT INTO t VALUES (1, 1, 1), (2, 7, 7)")
    orc.refresh()
    assert not orc.view("old").plan.program.sources[0].keyed
    orc.execute("INSERT INTO t VALUES (3, 8, 8), (3, 8, 8); UPDATE t SET n = n + 1 WHERE id < 4")
    orc.execute("DELETE FROM t WHERE ctid NOT IN (SELECT max(ctid) FROM t GROUP BY id)")
    orc.execute("ALTER TABLE t ADD PRIMARY KEY (id)")
    orc.create_view("new", "SELECT n, k FROM t WHERE n > 1", strategy="id")
    assert orc.view("new").plan.program.sources[0].keyed
    assert "id (key)" in str(orc.explain("new"))
    assert orc.execute("SELECT keyed FROM idivm.sources")[0].rows == [(True,)]
    for change in (
        "UPDATE t SET n = n + 1 WHERE id > 2; INSERT INTO t VALUES (20, 4, 4), (21, 4, 4)",
        "UPDATE t SET id = 40 - id; UPDATE t SET id = id + 100, n = n + 1; DELETE FROM t WHERE k = 4",
    ):
        orc.execute(change)
        orc.connection.execute("SELECT idivm.refresh('old'); SELECT idivm.refresh('new')")
        assert [differences(orc.connection, name) for name in ("old", "new")] == [[], []]
    orc.refresh()
    assert not orc.view("old").plan.program.sources[0].keyed
    [finding] = [item for item in orc.doctor() if not (item.fine or item.subject == "java")]
    assert finding.sentence.startswith("it was planned before t had a key; it was planned again")
    assert orc.view("old").plan.program.sources[0].keyed
    assert all(report.equal for report in orc.check())


def test_another_key_replaces_a_lost_one(orc):
    orc.execute("CREATE TABLE t (id int PRIMARY KEY, k int NOT NULL UNIQUE, n int)")
    orc.execute("INSERT INTO t SELECT i, -i, i FROM generate_series(1, 9) AS i")
    for name in ("v", "w"):
        orc.create_view(name, "SELECT id, n FROM t WHERE n > 0", strategy="id")
    orc.execute("ALTER TABLE t DROP CONSTRAINT t_pkey; INSERT INTO t VALUES (1, 1, 1)")
    orc.create_view("x", "SELECT k, n FROM t", strategy="id")
    assert "k (key)" in str(orc.explain("x"))
    orc.execute("UPDATE t SET n = n + 1; UPDATE t SET k = k + 100 WHERE id < 3")
    [(error,)] = orc.connection.execute("SELECT error FROM idivm.refresh('w')").fetchall()
    assert "lost its key" in error
    for names in (["v"], ["x"], []):
        orc.refresh(*names)
        orc.execute(
            "UPDATE t SET n = n + 1, id = id / 2; INSERT INTO t VALUES (1, (SELECT max(k) + 1 FROM t), 1)"
        )
    orc.refresh()
    assert {name: differences(orc.connection, name) for name in "vwx"} == {n: [] for n in "vwx"}


def test_plain_sql_is_told_what_to_do(orc):
    orc.execute("CREATE TABLE t (id int PRIMARY KEY, n int NOT NULL); INSERT INTO t VALUES (1, 1)")
    orc.create_view("v", "SELECT sum(n) AS s FROM t", strategy="id")
    orc.execute("ALTER TABLE t ALTER n DROP NOT NULL; UPDATE t SET n = NULL")
    [(error,)] = orc.connection.execute("SELECT error FROM idivm.refresh('v')").fetchall()
    assert "or a NOT NULL" in error
    orc.refresh()
    orc.connection.execute("INSERT INTO t VALUES (2, 5); SELECT idivm.refresh('v')")
    assert differences(orc.connection, "v") == []


def test_other_constraints_may_come_and_go(orc):
    orc.execute("CREATE TABLE t (id int PRIMARY KEY, k int NOT NULL, n int, UNIQUE (k, id))")
    orc.create_view("v", "SELECT id, k FROM t WHERE k > 0", strategy="id")
    orc.execute("ALTER TABLE t ADD UNIQUE (n), ADD CHECK (n > 0); INSERT INTO t VALUES (1, 1, 1)")
    orc.execute("CREATE UNIQUE INDEX again ON t (k, id); ALTER TABLE t DROP CONSTRAINT t_k_id_key")
    orc.connection.execute("SELECT idivm.refresh('v')")
    assert differences(orc.connection, "v") == []


FORMS = {
    "listing": {"strategy": "id"},
    "view tree": {"strategy": "viewtree"},
    "fresh when read": {"maintain": "on_read"},
    "eager": {"maintain": "eager"},
    "feed": {"feed": "on"},
}


@pytest.mark.parametrize("form", FORMS)
def test_a_view_that_is_planned_again_is_never_empty(orc, form):
    orc.execute("CREATE TABLE t (id int PRIMARY KEY, k int NOT NULL UNIQUE, g int, n int)")
    orc.execute("INSERT INTO t SELECT i, i, i % 3, i FROM generate_series(1, 9) AS i")
    listing = (
        "SELECT k, n FROM t WHERE n > 0"
        if form != "view tree"
        else "SELECT k, sum(n) AS n FROM t GROUP BY k"
    )
    orc.create_view("v", listing, **FORMS[form])
    orc.create_view("above", "SELECT k, n FROM v WHERE n > 0")
    before = {name: orc.execute(f"TABLE {name}")[0].rows for name in ("v", "above")}
    layouts = {view.name: view.plan.program.layout for view in orc.views()}
    orc.connection.execute("ALTER TABLE t DROP CONSTRAINT t_pkey, DROP CONSTRAINT t_k_key")
    orc.connection.execute("ALTER TABLE t ALTER k DROP NOT NULL, ALTER id DROP NOT NULL")
    follow(orc.connection, catalog.view_ids(orc.connection, []))
    assert {name: sorted(orc.execute(f"TABLE {name}")[0].rows) for name in before} == {
        name: sorted(rows) for name, rows in before.items()
    }
    assert {view.name: view.plan.program.layout for view in orc.views()} != layouts
    assert all(report.equal for report in orc.check())


def test_a_factorized_view_that_is_planned_again_is_never_empty(orc):
    orc.execute(
        """
        CREATE TABLE a (id int PRIMARY KEY, n int); INSERT INTO a VALUES (1, 1), (2, 2);
        CREATE TABLE b (id int PRIMARY KEY, a int, n int); INSERT INTO b VALUES (1, 1, 5), (2, 2, 7)
        """
    )
    query = "SELECT a.id, b.id AS b, a.n, b.n AS m FROM a JOIN b ON b.a = a.id"
    orc.create_view("v", query, representation="factorized")
    replan(orc.connection, orc.view("v"))
    assert len(orc.execute("TABLE v")[0].rows) == 2
    assert orc.check("v")[0].equal


@pytest.mark.parametrize("query", ["SELECT g, n FROM t", "SELECT g, max(n) AS n FROM t GROUP BY g"])
def test_an_older_snapshot_reads_the_old_rows_of_a_view_that_is_planned_again(orc, connect, query):
    """A new table would be empty in it."""
    orc.execute(
        'CREATE TABLE t (id int PRIMARY KEY, g text COLLATE "C", n int NOT NULL);'
        " INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2), (3, NULL, 3)"
    )
    orc.create_view("v", query, strategy="id")
    orc.execute("CREATE INDEX ON v (g)")
    before = sorted(orc.execute("TABLE v")[0].rows, key=str)
    layout = orc.view("v").plan.program.layout
    old = Session(connect(), IsolationLevel.REPEATABLE_READ)
    old("SELECT 1")
    orc.connection.execute(
        "ALTER TABLE t DROP CONSTRAINT t_pkey, ALTER id DROP NOT NULL, ALTER n DROP NOT NULL"
    )
    orc.execute("INSERT INTO t VALUES (2, 'b', 5), (NULL, 'a', NULL); DELETE FROM t WHERE id = 3")
    orc.refresh()
    if "max" in query:
        orc.execute('UPDATE idivm.views SET options = options || \'{"strategy": "recompute"}\'')
        replan(orc.connection, orc.view("v"))
    assert orc.view("v").plan.program.layout != layout
    assert sorted(old("TABLE v"), key=str) == before
    old.commit()
    assert sorted(old("TABLE v"), key=str) == sorted(
        orc.connection.execute(query).fetchall(), key=str
    )
    old.commit()
    for change in (
        "INSERT INTO t VALUES (7, 'c', 7), (7, 'c', 7)",
        "UPDATE t SET g = NULL WHERE g = 'b'",
    ):
        orc.execute(change)
        orc.refresh()
        assert orc.check("v")[0].equal
    assert all(finding.fine for finding in orc.doctor())


def test_a_view_whose_query_fails_keeps_its_content_when_it_is_planned_again(orc):
    orc.execute("CREATE TABLE t (id int PRIMARY KEY, n int NOT NULL); INSERT INTO t VALUES (1, 1)")
    orc.execute("CREATE VIEW v AS SELECT id, 6 / n AS q FROM t")
    orc.connection.execute("ALTER TABLE t DROP CONSTRAINT t_pkey, ALTER id DROP NOT NULL")
    orc.execute("INSERT INTO t VALUES (2, 0)")
    with pytest.raises(IdivmError, match="division by zero"):
        orc.refresh()
    assert orc.execute("TABLE v")[0].rows == [(1, 6)]
    orc.execute("UPDATE t SET n = 2 WHERE n = 0")
    orc.refresh()
    assert sorted(orc.execute("TABLE v")[0].rows) == [(1, 6), (2, 3)]


def test_a_lock_of_another_session_is_no_fault_of_the_view_that_is_planned_again(orc, dsn):
    orc.execute("CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 1)")
    orc.execute("CREATE VIEW v AS SELECT id, n FROM t")
    orc.connection.execute("ALTER TABLE t DROP CONSTRAINT t_pkey, ALTER id DROP NOT NULL")
    with psycopg.connect(dsn) as reader:
        reader.execute("TABLE v")
        orc.connection.execute("SET lock_timeout = '10ms'")
        with pytest.raises(IdivmError) as raised:
            orc.refresh()
        assert isinstance(raised.value.__cause__, psycopg.errors.LockNotAvailable)
        orc.connection.execute("RESET lock_timeout")
    assert "planned again" not in str(raised.value)
    orc.execute("INSERT INTO t VALUES (1, 1)")
    orc.refresh()
    assert orc.execute("TABLE v")[0].rows == [(1, 1), (1, 1)]


def test_renamed_columns_keep_their_names_when_the_view_is_planned_again(orc):
    """Other views may read the relation, so that it cannot be dropped."""
    orc.execute(
        "CREATE TABLE t (id int PRIMARY KEY, g text, n int); INSERT INTO t VALUES (1, 'a', 1)"
    )
    orc.create_view("v", "SELECT g, n FROM t", strategy="id")
    orc.connection.execute(
        "ALTER VIEW v RENAME COLUMN n TO m; CREATE VIEW above AS SELECT m FROM v"
    )
    orc.connection.execute("ALTER TABLE t DROP CONSTRAINT t_pkey; INSERT INTO t VALUES (1, 'a', 1)")
    orc.refresh()
    assert orc.execute("SELECT g, m FROM v")[0].rows == [("a", 1)] * 2
    assert orc.execute("TABLE above")[0].rows == [(1,)] * 2
    orc.connection.execute("CREATE OR REPLACE VIEW v AS SELECT 'x'::text AS g, 1 AS m")
    assert any(finding.mended for finding in orc.doctor())
    assert orc.execute("SELECT g, m FROM v")[0].rows == [("a", 1)] * 2
    assert all(finding.fine for finding in orc.doctor())
    orc.execute("INSERT INTO t VALUES (2, 'b', 2)")
    orc.refresh()
    assert orc.check("v")[0].equal and len(orc.execute("TABLE above")[0].rows) == 3
