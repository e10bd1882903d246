"""Nobody reads through a maintained view what PostgreSQL would not let them read through a plain one."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.errors import InsufficientPrivilege
from scene import Scene

from orchestrator.errors import IdivmError, RightsError

pytestmark = pytest.mark.integration

MODES = ("deferred", "eager", "on_commit")


def asked_of_postgresql(scene: Scene, query: str) -> bool:
    """Whether PostgreSQL answers a query of the owner of the views."""
    try:
        scene.orc.connection.execute(query.encode())
    except InsufficientPrivilege:
        return False
    except psycopg.errors.UndefinedObject:
        raise
    return True


ALLOWED = {
    "columns that were granted": (
        "GRANT SELECT (id) ON secret TO {0}",
        "SELECT id FROM public.secret",
        "",
    ),
    "an invoker's view": ("SELECT", "SELECT word FROM public.secret", "WITH (security_invoker)"),
    "an invoker's view below another's": (
        "SELECT",
        "SELECT word FROM mallory.below",
        "",
    ),
    "rows without any column": (
        "GRANT SELECT (id) ON secret TO {0}",
        "SELECT count(*) FROM public.secret",
        "",
    ),
    "policies that hide nothing from the view's owner": (
        "GRANT SELECT ON secret TO {0}; ALTER TABLE secret ENABLE ROW LEVEL SECURITY",
        "SELECT word FROM public.secret",
        "WITH (security_invoker)",
    ),
}

FORBIDDEN = {
    "a table": ("SELECT", "SELECT word FROM public.secret", ""),
    "a column": ("GRANT SELECT (id) ON secret TO {0}", "SELECT id, word FROM public.secret", ""),
    "a column in a condition": (
        "GRANT SELECT (id) ON secret TO {0}",
        "SELECT id FROM public.secret WHERE number > 0",
        "",
    ),
    "a whole row": (
        "GRANT SELECT (id, word) ON secret TO {0}",
        "SELECT to_jsonb(s) AS j FROM public.secret AS s",
        "",
    ),
    "a subquery": (
        "SELECT",
        "SELECT id, (SELECT count(*) FROM public.secret) AS n FROM public.t",
        "",
    ),
    "no column at all": ("SELECT", "SELECT count(*) FROM public.secret", ""),
    "a view of the attacker": ("SELECT", "SELECT word FROM mallory.deep", ""),
    "a barrier": ("SELECT", "SELECT word FROM public.secret", "WITH (security_barrier)"),
    "rows that a policy hides": (
        "GRANT SELECT ON secret TO {0}; ALTER TABLE secret ENABLE ROW LEVEL SECURITY",
        "SELECT word FROM public.secret",
        "",
    ),
}


def lay_out(scene: Scene, given: str, query: str, options: str) -> None:
    scene.orc.execute(given.format(scene.attacker))
    scene.as_mallory(
        "CREATE VIEW mallory.below WITH (security_invoker) AS SELECT word FROM public.secret"
    )
    scene.as_mallory("CREATE VIEW mallory.deep AS SELECT word FROM public.secret")
    scene.as_mallory(f"CREATE VIEW mallory.v {options} AS {query}")


@pytest.mark.parametrize("kind", ALLOWED)
def test_what_postgresql_allows_is_maintained(scene: Scene, kind: str) -> None:
    lay_out(scene, *ALLOWED[kind])
    assert asked_of_postgresql(scene, "SELECT * FROM mallory.v")
    for mode in MODES:
        scene.orc.create_view(mode, "SELECT * FROM mallory.v", maintain=mode)
    scene.orc.execute("INSERT INTO secret VALUES (2, 'y', 2)")
    scene.orc.refresh()
    assert all(report.equal for report in scene.orc.check())


@pytest.mark.parametrize("kind", FORBIDDEN)
def test_what_postgresql_forbids_is_refused(scene: Scene, kind: str) -> None:
    lay_out(scene, *FORBIDDEN[kind])
    if "policy" not in kind:
        assert not asked_of_postgresql(scene, "SELECT * FROM mallory.v")
    for strategy in ("auto", "recompute"):
        with pytest.raises(RightsError, match=f"{scene.attacker} may not read"):
            scene.orc.create_view("v", "SELECT * FROM mallory.v", strategy=strategy)
    assert scene.orc.views() == []


LATER = {
    "the right is revoked": "REVOKE SELECT ON secret FROM {0}",
    "the view changes hands": "ALTER VIEW own OWNER TO {0}; REVOKE SELECT ON secret FROM {0}",
    "a policy hides rows": "ALTER TABLE secret ENABLE ROW LEVEL SECURITY",
}


@pytest.mark.parametrize("strategy", ["auto", "recompute"])
@pytest.mark.parametrize("kind", LATER)
def test_what_is_forbidden_later_is_not_read_any_more(
    scene: Scene, kind: str, strategy: str
) -> None:
    orc = scene.orc
    orc.execute(
        f"GRANT SELECT ON secret TO {scene.attacker}; GRANT CREATE ON SCHEMA public TO {scene.attacker}"
    )
    orc.connection.execute("CREATE VIEW own AS SELECT id, word FROM secret")
    orc.execute("GRANT SELECT ON own TO PUBLIC")
    scene.as_mallory("CREATE VIEW mallory.v AS SELECT id, word FROM public.secret")
    below = "own" if "hands" in kind else "mallory.v"
    for mode in MODES:
        orc.create_view(
            mode,
            f"SELECT word, count(*) AS n FROM {below} GROUP BY word",
            maintain=mode,
            strategy=strategy,
            shared="off",
        )
    scene.admin.execute(LATER[kind].format(scene.attacker).encode())
    # Writers go on.
    orc.execute("INSERT INTO secret VALUES (5, 'new', 5)")
    for mode in MODES:
        with pytest.raises(IdivmError, match=f"{scene.attacker} may not read"):
            orc.refresh(mode)
        assert orc.execute(f"SELECT word FROM {mode}")[0].rows == [("x",)]
    assert {view.status for view in orc.views() if view.maintain != "deferred"} == {"invalid"}
    scene.admin.execute(
        f"GRANT SELECT ON public.secret TO {scene.attacker}; ALTER TABLE public.secret DISABLE ROW LEVEL SECURITY".encode()
    )
    orc.refresh()
    assert all(report.equal for report in orc.check())
    assert orc.execute("SELECT count(*) FROM deferred")[0].rows == [(2,)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("strategy", ["auto", "recompute"])
def test_a_plain_view_that_is_replaced_reads_no_more_than_its_owner_may(
    scene: Scene, mode: str, strategy: str
) -> None:
    scene.as_mallory("CREATE VIEW mallory.v AS SELECT k AS word FROM public.t")
    scene.orc.create_view("v", "SELECT word FROM mallory.v", maintain=mode, strategy=strategy)
    scene.as_mallory("CREATE OR REPLACE VIEW mallory.v AS SELECT word FROM public.secret")
    scene.orc.execute("INSERT INTO t VALUES (20, 'b', 1); INSERT INTO secret VALUES (2, 'y', 2)")
    for _ in range(2):
        with pytest.raises(
            IdivmError, match=f"{scene.attacker} may not read|permission denied for table secret"
        ):
            scene.orc.refresh("v")
    assert scene.orc.check("v")[0].error
    read = "SELECT word FROM v WHERE word IN ('x', 'y')"
    if scene.orc.execute("SELECT read_from IS NOT NULL FROM idivm.views")[0].rows == [(True,)]:
        # The view has no current content, so a read runs the query, with the rights of the owner.
        with pytest.raises(IdivmError, match="permission denied for table secret"):
            scene.orc.execute(read)
    else:
        assert scene.orc.execute(read)[0].rows == []
    assert not {finding.subject: finding for finding in scene.orc.doctor()}["view v"].fine
    scene.orc.drop_view("v")


@pytest.mark.parametrize("strategy", ["auto", "recompute"])
def test_a_function_that_may_not_be_called_any_more_stops_no_writer(
    scene: Scene, strategy: str
) -> None:
    scene.admin.execute(
        "CREATE FUNCTION public.high(n int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT n + 1'"
    )
    for mode in MODES:
        scene.orc.create_view(
            mode, "SELECT id, high(n) AS n FROM t", maintain=mode, strategy=strategy
        )
    scene.orc.create_view("above", "SELECT n FROM eager WHERE n > 2", maintain="eager")
    scene.admin.execute("REVOKE EXECUTE ON FUNCTION public.high FROM PUBLIC")
    scene.orc.execute("INSERT INTO t VALUES (30, 'x', 30)")
    with pytest.raises(IdivmError, match=f"{scene.owner} may not call"):
        scene.orc.refresh()
    assert {view.status for view in scene.orc.views() if view.maintain != "deferred"} == {"invalid"}
    with pytest.raises(RightsError, match="may not call"):
        scene.orc.create_view("late", "SELECT id, high(n) AS n FROM t", strategy=strategy)
    scene.admin.execute("GRANT EXECUTE ON FUNCTION public.high TO PUBLIC")
    scene.orc.refresh()
    assert all(report.equal for report in scene.orc.check())
    assert {view.status for view in scene.orc.views()} == {"ready"}
