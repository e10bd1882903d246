"""Parts of idivm that somebody drops, moves or may no longer use: writes go on, and the doctor mends."""

import psycopg
import pytest
from psycopg import IsolationLevel
from psycopg.conninfo import make_conninfo
from psycopg.sql import SQL, Identifier
from stepping import Session, differences

import orchestrator
from orchestrator.errors import IdivmError

pytestmark = pytest.mark.integration


@pytest.fixture(params=["plpgsql", "c"])
def capture_form(request):
    return request.param


VIEWS = {"at_last": "deferred", "soon": "eager", "later": "on_commit"}

WRITES = (
    "INSERT INTO t VALUES (10, 1), (11, 2)",
    "UPDATE t SET a = a + 1 WHERE id = 10",
    "UPDATE t SET a = a + 1 WHERE id > 1",
    "UPDATE t SET id = 12 WHERE id = 11",
    "DELETE FROM t WHERE id >= 10",
    "INSERT INTO u VALUES (1), (2)",
    "UPDATE u SET x = x + 1",
    "DELETE FROM u WHERE x > 2",
)


@pytest.fixture
def plain(orc, connect):
    orc.execute(
        "CREATE TABLE t (id int PRIMARY KEY, a int); INSERT INTO t SELECT i, i FROM generate_series(1, 5) AS i;"
        "CREATE TABLE u (x int); INSERT INTO u VALUES (1)"
    )
    for name, mode in VIEWS.items():
        orc.create_view(name, "SELECT t.id, t.a, u.x FROM t JOIN u ON u.x = t.id", maintain=mode)
    return connect()


def wrong(plain):
    return {name for name in VIEWS if differences(plain, name)}


def stale(orc):
    return {
        view.name for view in orc.views() if view.status != "ready" or view.pending or view.error
    }


PARTS = {
    "the source view": "DROP VIEW idivm_def.s1 CASCADE",
    "the log's view": "DROP VIEW idivm_log.s1 CASCADE",
    "a segment": "DROP TABLE idivm_log.s1_a CASCADE",
    "both segments": "DROP TABLE idivm_log.s1_a, idivm_log.s1_b CASCADE",
    "a column of a segment": "ALTER TABLE idivm_log.s1_a DROP COLUMN n_2 CASCADE",
    "the name of a segment": "ALTER TABLE idivm_log.s1_a RENAME TO elsewhere",
    "the schema of a segment": "CREATE SCHEMA away; ALTER TABLE idivm_log.s1_a SET SCHEMA away",
    "the sequence": "DROP SEQUENCE idivm_log.s1_seq CASCADE",
    "what compares images": "DROP FUNCTION idivm_log.s1_changed CASCADE",
    "what tells the net effect": "DROP FUNCTION idivm_log.s1_net CASCADE",
    "a capture function": "DROP FUNCTION idivm_log.s1_update_1 CASCADE",
    "what tells that something is pending": "DROP FUNCTION idivm_log.s1_pending CASCADE",
    "a program": "DROP FUNCTION idivm_state.refresh_2(idivm.watermark, boolean, boolean)",
    "the log": "DROP SCHEMA idivm_log CASCADE",
}


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.sampled(4)
def test_a_part_that_is_gone(orc, plain, part):
    plain.execute(PARTS[part])
    for write in WRITES:
        plain.execute(write)
    if part == "the log":
        # A schema is more than the doctor makes; writes go on all the same.
        return
    assert wrong(plain) <= stale(orc)
    findings = orc.doctor()
    assert [f for f in findings if not f.fine and not f.mended and f.subject != "orphans"] == []
    assert wrong(plain) == set()
    for write in WRITES:
        plain.execute(write)
    orc.refresh()
    assert wrong(plain) == set()
    assert stale(orc) == set()


def test_a_part_that_went_and_came_back(orc, plain):
    """What was written meanwhile is in no log."""
    plain.execute(
        "ALTER TABLE idivm_log.s1_a RENAME TO elsewhere; INSERT INTO t VALUES (2000, 1); UPDATE t SET a = 9 WHERE id = 1"
    )
    plain.execute("ALTER TABLE idivm_log.elsewhere RENAME TO s1_a")
    assert wrong(plain) <= stale(orc)
    orc.refresh()
    assert wrong(plain) == set()


@pytest.mark.parametrize("schema", ["idivm_state", "idivm_def", "idivm"])
def test_a_schema_that_is_dropped(plain, schema):
    plain.execute(SQL("DROP SCHEMA {} CASCADE").format(Identifier(schema)))
    for write in (*WRITES, "TRUNCATE t", "DROP TABLE t, u CASCADE"):
        plain.execute(write)


@pytest.fixture
def roles(plain_dsn, connect, capture_form, request):
    """A role that owns tables, and a member of it that owns the database and creates views."""
    admin = connect(plain_dsn)
    names = {label: f"{label}_{admin.info.dbname}" for label in ("owners", "ann")}
    owners, ann = (Identifier(names[label]) for label in ("owners", "ann"))
    admin.execute(
        SQL("CREATE ROLE {}; CREATE ROLE {} LOGIN; GRANT {} TO {}").format(owners, ann, owners, ann)
    )
    admin.execute(SQL("ALTER DATABASE {} OWNER TO {}").format(Identifier(admin.info.dbname), ann))
    admin.execute(SQL("CREATE SCHEMA s AUTHORIZATION {}").format(owners))
    as_ann = make_conninfo(plain_dsn, user=names["ann"])
    if capture_form == "c":
        from conftest import add_module

        orchestrator.connect(as_ann).close()
        add_module(plain_dsn, request.getfixturevalue("module"))
        admin = connect(plain_dsn)
    yield admin, owners, ann, as_ann
    admin.execute("RESET ROLE")
    for name in (ann, owners):
        admin.execute(
            SQL("REASSIGN OWNED BY {0} TO postgres; DROP OWNED BY {0}; DROP ROLE {0}").format(name)
        )


def test_a_role_that_loses_membership_in_that_of_the_tables_owner(roles):
    admin, owners, ann, as_ann = roles
    admin.execute(
        SQL(
            "GRANT USAGE ON SCHEMA s TO PUBLIC; SET ROLE {}; CREATE TABLE s.t (id int PRIMARY KEY, a int);"
            "CREATE TABLE s.kept (id int PRIMARY KEY); INSERT INTO s.t VALUES (1, 1); RESET ROLE"
        ).format(owners)
    )
    with orchestrator.connect(as_ann) as orc:
        for name, mode in VIEWS.items():
            orc.create_view(f"public.{name}", "SELECT id, a FROM s.t", maintain=mode)
        orc.create_view("public.still", "SELECT id FROM s.kept", maintain="eager")
        orc.execute("GRANT SELECT ON public.still TO PUBLIC")
        admin.execute(
            SQL("REVOKE {} FROM {}; GRANT SELECT ON s.kept TO {}; SET ROLE {}").format(
                owners, ann, ann, owners
            )
        )
        for write in (
            "INSERT INTO s.t VALUES (2, 2), (3, 3)",
            "UPDATE s.t SET a = 5 WHERE id = 1",
            "UPDATE s.t SET id = 4 WHERE id = 3",
            "DELETE FROM s.t WHERE id = 2",
            "TRUNCATE s.t",
            "INSERT INTO s.t VALUES (7, 7)",
            "INSERT INTO s.kept VALUES (1)",
        ):
            admin.execute(write)
        views = {view.name.rpartition(".")[2]: view for view in orc.views()}
        for name in VIEWS:
            assert views[name].status == "invalid"
            assert "may no longer read s.t" in views[name].trouble
        assert views["still"].status == "ready"
        assert admin.execute("TABLE public.still").fetchall() == [(1,)]
        for name in VIEWS:
            with pytest.raises(IdivmError, match=r"may not read|permission denied"):
                orc.refresh(f"public.{name}")
            orc.drop_view(f"public.{name}")
        assert [view.name.rpartition(".")[2] for view in orc.views()] == ["still"]
        admin.execute(SQL("SET ROLE {}").format(owners))
        admin.execute(
            "INSERT INTO s.t VALUES (8, 8); UPDATE s.t SET a = 1; TRUNCATE s.t; INSERT INTO s.kept VALUES (2)"
        )
        assert admin.execute("TABLE public.still ORDER BY 1").fetchall() == [(1,), (2,)]


@pytest.mark.parametrize(
    "level", [IsolationLevel.READ_COMMITTED, IsolationLevel.REPEATABLE_READ], ids=["rc", "rr"]
)
def test_a_truncation_and_a_refresh_that_may_not_read_the_table_wait_in_no_circle(roles, level):
    admin, owners, ann, as_ann = roles
    admin.execute(
        SQL(
            "GRANT USAGE ON SCHEMA s TO PUBLIC; SET ROLE {}; CREATE TABLE s.t (id int PRIMARY KEY, a int);"
            "INSERT INTO s.t VALUES (1, 1); RESET ROLE"
        ).format(owners)
    )
    with orchestrator.connect(as_ann) as orc:
        orc.execute("CREATE SCHEMA own; CREATE TABLE own.t (id int PRIMARY KEY)")
        orc.create_view("own.first", "SELECT id FROM own.t")
        orc.create_view("own.soon", "SELECT id FROM own.t", maintain="eager", shared="off")
        orc.create_view("own.eager", "SELECT id, a FROM s.t", maintain="eager", shared="off")
        orc.create_view("own.most", "SELECT max(a) AS m FROM s.t")
        admin.execute(SQL("REVOKE {} FROM {}; SET ROLE {}").format(owners, ann, owners))
        admin.execute("INSERT INTO s.t VALUES (2, 2)")
        assert orc.view("own.eager").status == "invalid"
        orc.execute("INSERT INTO own.t VALUES (1)")
        orc.connection.execute(
            "UPDATE idivm.views SET status = 'invalid' WHERE relation = 'own.soon'::regclass"
        )
        [state] = orc.connection.execute(
            "SELECT state::regclass::text FROM idivm.views WHERE relation = 'own.first'::regclass"
        ).fetchone()
        with psycopg.connect(as_ann) as other, psycopg.connect(as_ann) as second:
            reader, refresher, writer = Session(other), Session(second, level), Session(admin)
            reader(f"LOCK TABLE {state} IN SHARE MODE")
            refresher.starts(
                "SELECT idivm.refresh_views(ARRAY(SELECT id FROM idivm.views ORDER BY id))",
                orc.connection,
            )
            writer.starts("TRUNCATE s.t", orc.connection)
            reader.rollback()
            assert refresher.ends() is None
            refresher.commit()
            assert writer.ends() is None
            writer.commit()
        admin.autocommit = True
        assert orc.execute("SELECT count(*) FROM own.first")[0].rows == [(1,)]
        assert orc.execute("SELECT count(*) FROM own.soon")[0].rows == [(1,)]
        assert [view.name for view in orc.views() if view.trouble] == ["own.eager", "own.most"]


def test_views_whose_owner_changes(roles):
    admin, owners, ann, as_ann = roles
    with orchestrator.connect(as_ann) as orc:
        orc.execute(
            "CREATE SCHEMA own; CREATE TABLE own.t (id int PRIMARY KEY, a int); CREATE TABLE own.u (x int)"
        )
        for name, mode in VIEWS.items():
            orc.create_view(f"own.{name}", "SELECT id, a FROM own.t", maintain=mode, shared="off")
        admin.execute(SQL("REASSIGN OWNED BY {} TO {}").format(ann, owners))
        admin.execute(
            "INSERT INTO own.t VALUES (1, 1); UPDATE own.t SET a = 2; UPDATE own.t SET id = 3"
        )
        admin.execute("REVOKE ALL ON SCHEMA idivm, idivm_def, idivm_log, idivm_state FROM PUBLIC")
        admin.execute(
            SQL(
                "ALTER SCHEMA idivm_log OWNER TO postgres; REVOKE ALL ON SCHEMA idivm_log FROM {}"
            ).format(owners)
        )
        admin.execute(
            "INSERT INTO own.t VALUES (2, 1); UPDATE own.t SET a = 3; DELETE FROM own.t WHERE id = 3"
        )
    said = admin.execute(
        "SELECT v.name FROM idivm.views v LEFT JOIN idivm.view_errors e ON e.view = v.id"
        " WHERE v.status = 'invalid' OR idivm.trouble(v.id) IS NOT NULL OR e.view IS NOT NULL"
        " OR idivm.pending_changes(v.id) > 0"
    ).fetchall()
    wrong = {f'"own"."{name}"' for name in VIEWS if differences(admin, f"own.{name}")}
    assert wrong <= {name for (name,) in said}
    admin.execute("DROP SCHEMA own CASCADE")
