"""Plain SQL replaces the relation that users read, or drops it together with what it reads."""

import pytest
from psycopg.errors import ObjectNotInPrerequisiteState

from orchestrator.catalog.objects import orphans
from orchestrator.cli.main import main
from orchestrator.errors import DatabaseError, IdivmError, NotFoundError

pytestmark = pytest.mark.integration


@pytest.fixture
def base(orc):
    orc.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'a'), (2, 'b');"
        'CREATE VIEW v AS SELECT id, v AS "v s.v, AS" FROM t'
    )
    return orc


REPLACEMENTS = {
    "another query": 'CREATE OR REPLACE VIEW v AS SELECT id, v AS "v s.v, AS" FROM t WHERE id > 1',
    "one column more": 'CREATE OR REPLACE VIEW v AS SELECT id, v AS "v s.v, AS", 1 AS w FROM t',
    "a condition": 'CREATE OR REPLACE VIEW v AS SELECT id, "v s.v, AS" FROM {state} AS s'
    " WHERE (NULL::{definition})::text IS NULL AND id > 1",
}


@pytest.fixture(params=["plpgsql", "c"])
def capture_form(request):
    """The form of has_drifted, which comes with that of capture."""
    return request.param


@pytest.mark.parametrize("name", REPLACEMENTS)
@pytest.mark.parametrize("maintain", ["deferred", "eager", "on_commit"])
@pytest.mark.sampled(3)
def test_a_replaced_relation_is_noticed_and_mended(base, name, maintain, older, capture_form):
    if older and capture_form == "c":
        pytest.skip("one form is enough here")
    sql = base.connection.execute
    base.alter_view("v", maintain=maintain, shared="off")
    base.execute("CREATE VIEW other AS SELECT count(*) AS n FROM t")
    view_id = base.view("v").id
    sql("SELECT idivm.refresh('v')")
    assert base.view("v").status == "ready"
    state, definition = sql(
        "SELECT state, definition FROM idivm.views WHERE relation = 'v'::regclass"
    ).fetchone()
    sql(REPLACEMENTS[name].format(state=state, definition=definition))
    assert base.view("v").status == "invalid"
    # Writers go on.
    sql("INSERT INTO t VALUES (3, 'c')")
    sql("UPDATE t SET v = 'd' WHERE id = 1")
    if maintain == "deferred":
        (error,) = sql("SELECT error FROM idivm.refresh('v')").fetchone()
        assert "gave public.v another query" in error
        with pytest.raises(IdivmError, match=r"gave public\.v another query"):
            base.refresh("v")
    else:
        (message,) = sql("SELECT message FROM idivm.view_errors WHERE view = %s", [view_id])
        assert "another query" in message[0]
    [finding] = [finding for finding in base.doctor(contents=False) if not finding.fine]
    assert (finding.subject, finding.mended) == ("view v", True)
    assert "SELECT" in finding.sentence
    base.refresh()
    assert sql("SELECT * FROM v ORDER BY id").fetchall() == [(1, "d"), (2, "b"), (3, "c")]
    assert base.view("v").status == "ready"
    assert all(finding.fine for finding in base.doctor())
    sql("DELETE FROM t WHERE id = 2")
    base.refresh()
    assert base.check("v")[0].equal


def test_a_relation_that_is_read_keeps_its_added_column_and_the_doctor_says_so(base):
    base.connection.execute(REPLACEMENTS["one column more"])
    base.connection.execute("CREATE VIEW reader AS SELECT id FROM v")
    findings = {finding.subject: finding for finding in base.doctor(contents=False)}
    assert not findings["view v"].fine and not findings["view v"].mended
    assert "reader" in findings["view v"].sentence


def test_the_grants_of_a_replaced_relation_stay(base):
    sql = base.connection.execute
    sql("GRANT SELECT ON v TO PUBLIC")
    sql(REPLACEMENTS["one column more"])
    base.doctor(contents=False)
    assert sql(
        "SELECT relacl::text LIKE '%=r/%' FROM pg_class WHERE oid = 'v'::regclass"
    ).fetchone() == (True,)


def test_what_the_owner_may_do_to_the_relation_is_no_replacement(base):
    base.execute(
        'CREATE SCHEMA s; ALTER VIEW v RENAME COLUMN id TO "the id"; ALTER VIEW v SET SCHEMA s;'
        'ALTER VIEW s.v RENAME TO "W"; ALTER VIEW s."W" SET (security_barrier);'
        "COMMENT ON VIEW s.\"W\" IS 'mine'; SET quote_all_identifiers = on"
    )
    assert base.view('s."W"').status == "ready"
    base.execute("RESET quote_all_identifiers")
    assert [finding for finding in base.doctor(contents=False) if not finding.fine] == []


def test_views_of_every_shape_are_shown(orc):
    orc.execute(
        'CREATE TABLE t (id int PRIMARY KEY, "S" int); INSERT INTO t VALUES (1, 1);'
        'CREATE VIEW nothing AS SELECT FROM t; CREATE VIEW "a b" AS SELECT "S", count(*) FROM t GROUP BY 1;'
        'CREATE VIEW bag AS SELECT "S" FROM t; CREATE VIEW f WITH (representation = factorized) AS'
        ' SELECT a.id, b."S" FROM t a JOIN t b USING (id)'
    )
    assert [(view.name, view.status) for view in orc.views()] == [
        ("nothing", "ready"),
        ('"a b"', "ready"),
        ("bag", "ready"),
        ("f", "ready"),
    ]


@pytest.fixture
def guarded(base):
    """A database with the event triggers that come with the extension."""
    base.connection.execute("CALL idivm.guard_views()")
    return base


def test_an_event_trigger_refuses_to_replace_a_maintained_view(guarded):
    sql = guarded.connection.execute
    for name in ("another query", "one column more"):
        with pytest.raises(ObjectNotInPrerequisiteState, match="v is maintained by idivm"):
            sql(REPLACEMENTS[name])
    with pytest.raises(ObjectNotInPrerequisiteState, match="v is maintained by idivm"):
        sql(
            'CREATE OR REPLACE RULE "_RETURN" AS ON SELECT TO v DO INSTEAD SELECT id, v AS "v s.v, AS" FROM t'
        )
    assert guarded.view("v").status == "ready"
    sql("CREATE VIEW plain AS SELECT 1 AS a; CREATE OR REPLACE VIEW plain AS SELECT 2 AS a")


def test_an_event_trigger_lets_idivm_replace_what_it_maintains(guarded):
    guarded.execute(
        "CREATE OR REPLACE VIEW v AS SELECT id, v || '!' AS \"v s.v, AS\" FROM t;"
        "CREATE OR REPLACE VIEW v AS SELECT v FROM t; CREATE VIEW w AS SELECT v, count(*) AS n FROM v GROUP BY v"
    )
    guarded.alter_view("w", strategy="recompute")
    guarded.execute("ALTER TABLE t DROP CONSTRAINT t_pkey; INSERT INTO t VALUES (3, 'c')")
    guarded.refresh()
    guarded.alter_view("w", maintain="eager")
    assert all(report.equal for report in guarded.check())
    assert all(finding.fine or finding.mended for finding in guarded.doctor())
    guarded.drop_view("v", cascade=True)
    assert guarded.dropped_views() == []


def test_users_without_rights_on_idivm_may_create_and_drop_views(guarded, connect):
    sql = guarded.connection.execute
    sql(
        "DROP ROLE IF EXISTS idivm_test_plain; CREATE ROLE idivm_test_plain; GRANT CREATE ON SCHEMA public TO PUBLIC"
    )
    try:
        other = connect()
        other.execute("SET ROLE idivm_test_plain")
        other.execute(
            "CREATE VIEW theirs AS SELECT 1 AS a; CREATE OR REPLACE VIEW theirs AS SELECT 2 AS a"
        )
        other.execute("DROP VIEW theirs")
        other.close()
    finally:
        sql(
            "REVOKE CREATE ON SCHEMA public FROM PUBLIC; DROP OWNED BY idivm_test_plain; DROP ROLE idivm_test_plain"
        )


@pytest.fixture(params=["with event triggers", "without"])
def staged(request, orc):
    """A maintained view over a staging view, and another one over that."""
    if request.param == "with event triggers":
        orc.connection.execute("CALL idivm.guard_views()")
    orc.execute(
        "CREATE SCHEMA mart; CREATE TABLE t (id int PRIMARY KEY, g int); INSERT INTO t VALUES (1, 1), (2, 1)"
    )
    orc.connection.execute("CREATE VIEW stg AS SELECT id, g FROM t")
    orc.create_view("mart.low", "SELECT g, count(*) AS n FROM stg GROUP BY g", columns=["a", "b"])
    orc.create_view("mart.high", "SELECT sum(b) AS total FROM mart.low", maintain="eager")
    return orc


REBUILT = "DROP VIEW stg CASCADE; CREATE VIEW stg AS SELECT id, g + 1 AS g FROM t"


def heard(orc):
    notices = []
    orc.on_notice = notices.append
    return notices


def test_views_that_go_by_cascade_are_named_and_restored(staged):
    notices = heard(staged)
    staged.connection.execute(REBUILT)
    assert staged.views() == []
    named = [notice for notice in notices if "the maintained view" in notice]
    assert [notice.split(" was")[0] for notice in sorted(named)] == [
        "the maintained view mart.high",
        "the maintained view mart.low",
    ]
    assert [view.name for view in staged.dropped_views()] == ["mart.low", "mart.high"]
    assert all("CASCADE" in view.cause for view in staged.dropped_views())
    with pytest.raises(NotFoundError, match=r"any more: DROP .*CASCADE.*idivm restore mart\.low"):
        staged.refresh("mart.low")
    findings = [finding for finding in staged.doctor(contents=False) if not finding.fine]
    assert [finding.subject for finding in findings] == ["view mart.low", "view mart.high"]
    assert all("idivm restore" in finding.sentence for finding in findings)
    # It is told once.
    assert staged.views() == []
    assert len([notice for notice in notices if "the maintained view" in notice]) == 2

    staged.connection.execute("SET search_path = mart")
    assert [view.name for view in staged.restore()] == ["low", "high"]
    assert staged.connection.execute("SHOW search_path").fetchone() == ("mart",)
    assert staged.execute("TABLE low")[0].rows == [(2, 2)]
    assert staged.view("high").maintain == "eager"
    assert staged.dropped_views() == []
    staged.connection.execute("INSERT INTO public.t VALUES (3, 5)")
    assert all(report.equal for report in staged.check())
    assert all(finding.fine for finding in staged.doctor())
    assert orphans(staged.connection) == []


def test_a_view_can_be_restored_by_itself_and_forgotten(staged, connect):
    admin = connect()
    for role in ("drift_reader", "drift_leaver"):
        admin.execute(f"DROP ROLE IF EXISTS {role}")
        admin.execute(f"CREATE ROLE {role}")
        admin.execute(f"GRANT SELECT ON mart.low TO {role}")
    admin.execute("GRANT SELECT ON mart.low TO PUBLIC")
    staged.refresh()
    staged.connection.execute(REBUILT)
    admin.execute("DROP ROLE drift_leaver")
    assert [view.name for view in staged.restore("mart.low")] == ["mart.low"]
    readers = "SELECT grantee, privilege_type FROM information_schema.role_table_grants"
    assert admin.execute(
        f"{readers} WHERE table_name = 'low' AND grantee <> grantor ORDER BY 1"
    ).fetchall() == [
        ("PUBLIC", "SELECT"),
        ("drift_reader", "SELECT"),
    ]
    with pytest.raises(NotFoundError, match=r"No DROP \.\.\. CASCADE"):
        staged.restore("mart.low")
    staged.drop_view("mart.high")
    assert staged.dropped_views() == []
    assert [view.name for view in staged.views()] == ["mart.low"]


def test_a_view_that_cannot_be_restored_yet_says_why_and_stays_known(staged):
    staged.connection.execute("DROP TABLE t CASCADE")
    with pytest.raises(DatabaseError, match=r"Restoring mart\.low: .*stg.* does not exist"):
        staged.restore()
    assert len(staged.dropped_views()) == 2


def test_views_with_that_option_come_back_by_themselves(staged):
    staged.alter_view("mart.low", on_drop="restore")
    staged.alter_view("mart.high", on_drop="restore")
    notices = heard(staged)
    staged.connection.execute("DROP VIEW stg CASCADE")
    staged.refresh()
    assert any("Restoring mart.low" in notice for notice in notices)
    staged.connection.execute("CREATE VIEW stg AS SELECT id, g + 1 AS g FROM t")
    staged.refresh()
    assert [view.name for view in staged.views()] == ["mart.low", "mart.high"]
    assert staged.execute("TABLE mart.low")[0].rows == [(2, 2)]
    assert staged.view("mart.low").options["on_drop"] == "restore"


def test_a_new_view_of_the_name_takes_the_place_of_the_dropped_one(staged):
    staged.connection.execute(REBUILT)
    staged.create_view("mart.low", "SELECT 1 AS a")
    assert [view.name for view in staged.dropped_views()] == ["mart.high"]


def test_a_view_that_is_dropped_by_its_name_is_not_remembered(staged):
    notices = heard(staged)
    staged.connection.execute("DROP VIEW mart.high")
    staged.execute("DROP VIEW mart.low")
    assert staged.views() == []
    assert staged.dropped_views() == []
    assert [notice for notice in notices if "maintained view" in notice] == []


def test_the_command_line_tells_of_dropped_views_and_restores_them(staged, dsn, capsys):
    staged.connection.execute(REBUILT)
    for verb in (["list"], ["refresh"]):
        assert main([*verb, "--dsn", dsn]) == 0
        assert "run idivm restore mart.low to recreate it" in capsys.readouterr().err
    assert main(["doctor", "--quick", "--dsn", dsn]) == 1
    assert "WRONG view mart.low" in capsys.readouterr().out
    assert main(["restore", "--dsn", dsn]) == 0
    assert capsys.readouterr().out == "Restored mart.low.\nRestored mart.high.\n"
    assert main(["restore", "--dsn", dsn, "--json"]) == 0
    assert capsys.readouterr().out == "[]\n"
    assert main(["doctor", "--quick", "--dsn", dsn]) == 0


@pytest.mark.parametrize("strategy", ["id", "recompute"])
def test_a_view_follows_when_its_order_loses_the_key_that_decides_it(base, strategy):
    # Planning completes the order afterward, and stores the original query in a view of its own.
    base.execute("CREATE TABLE parents (k text); INSERT INTO parents VALUES ('a'), ('c')")
    base.create_view(
        "few",
        "SELECT f.id, f.v FROM parents AS p CROSS JOIN LATERAL"
        " (SELECT t.id, t.v FROM t WHERE v >= k ORDER BY t.id LIMIT 1) AS f",
        strategy=strategy,
    )
    base.create_view("above", "SELECT count(*) AS n, max(id) AS m FROM few")
    base.execute("ALTER TABLE t DROP CONSTRAINT t_pkey; INSERT INTO t VALUES (0, 'c'), (1, 'd')")
    for _ in range(2):
        base.refresh()
        assert all(view.status == "ready" for view in base.views())
        assert all(finding.fine for finding in base.doctor())
        base.execute("INSERT INTO t VALUES (-1, 'e')")
    base.connection.execute("CALL idivm.refresh_all()")
    base.connection.execute("CREATE OR REPLACE VIEW few AS SELECT id, v FROM t")
    assert [finding.mended for finding in base.doctor() if not finding.fine] == [True]
    base.refresh()
    assert all(finding.fine for finding in base.doctor())
