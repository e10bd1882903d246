"""No object that another role owns below a view gets its code run with the rights of the view's owner."""

from __future__ import annotations

import psycopg
import pytest
from scene import Scene

import orchestrator
from orchestrator.errors import IdivmError, RightsError

MODES = ("deferred", "eager", "on_commit")

STRATEGIES = ("auto", "recompute")


def test_a_foreign_table_of_an_untrusted_role_is_refused(scene: Scene) -> None:
    scene.admin.execute("CREATE FOREIGN DATA WRAPPER w")
    scene.admin.execute(f"GRANT USAGE ON FOREIGN DATA WRAPPER w TO {scene.attacker}")
    scene.as_mallory(
        "CREATE SERVER s FOREIGN DATA WRAPPER w; CREATE FOREIGN TABLE mallory.x (id int) SERVER s"
    )
    try:
        with pytest.raises(RightsError, match=r"foreign table mallory\.x .* does not trust"):
            scene.orc.create_view("v", "SELECT id FROM mallory.x")
    finally:
        scene.admin.execute("DROP FOREIGN DATA WRAPPER w CASCADE")


def test_who_is_a_member_of_a_role_trusts_it(scene: Scene) -> None:
    scene.admin.execute(f"GRANT {scene.attacker} TO {scene.owner}")
    scene.orc.create_view("v", "SELECT id, mallory.f(n) AS n FROM t", maintain="eager")
    scene.orc.execute("INSERT INTO t VALUES (10, 'x', 10)")
    assert scene.orc.check("v")[0].equal
    assert scene.caught() == {scene.owner}


LATER = {
    "replaced view": (
        "CREATE VIEW mallory.v AS SELECT id, n FROM t",
        "SELECT id, n FROM mallory.v",
        "CREATE OR REPLACE VIEW mallory.v AS SELECT id, mallory.f(n) AS n FROM t",
    ),
    "function that changed hands": (
        "",
        "SELECT id, own(n) AS n FROM t",
        "CREATE OR REPLACE FUNCTION public.own(n int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS"
        " $$BEGIN PERFORM mallory.trap(); RETURN n; END$$",
    ),
    "domain that changed hands": (
        "",
        "SELECT id, d FROM domains",
        "ALTER DOMAIN public.small ADD CHECK (mallory.ok(VALUE)) NOT VALID",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("kind", LATER)
def test_code_that_comes_later_is_not_run(scene: Scene, kind: str, strategy: str) -> None:
    objects, query, later = LATER[kind]
    scene.as_mallory(objects or "SELECT")
    scene.orc.execute(
        """
        CREATE FUNCTION own(n int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$BEGIN RETURN n; END$$;
        CREATE DOMAIN small AS int CHECK (VALUE < 1000);
        CREATE TABLE domains (was int, id int PRIMARY KEY, d small); INSERT INTO domains VALUES (0, 1, 1)
        """
    )
    for mode in MODES:
        scene.orc.create_view(mode, query, maintain=mode, strategy=strategy)
    scene.admin.execute(
        f"GRANT CREATE ON SCHEMA public TO {scene.attacker};"
        f"ALTER FUNCTION public.own OWNER TO {scene.attacker}; ALTER DOMAIN public.small OWNER TO {scene.attacker}"
    )
    scene.as_mallory(later)
    # From now on capture finds the columns by name.
    scene.orc.execute("ALTER TABLE domains DROP COLUMN was")
    # The owner's own statements run a domain's constraint, as they would without any view.
    writer = scene.admin if "domain" in kind else scene.orc.connection
    write = "INSERT INTO {} SELECT i, {} FROM generate_series(100, 103) AS i"
    writer.execute(
        (
            write.format("public.domains", "i")
            if "domain" in kind
            else write.format("public.t", "'x', i")
        ).encode()
    )
    caught = scene.caught() - ({"postgres"} if "domain" in kind else set())
    assert caught == set()
    for name in MODES:
        with pytest.raises(IdivmError, match="does not trust"):
            scene.orc.refresh(name)
    assert all("does not trust" in (report.error or "") for report in scene.orc.check())
    findings = {finding.subject: finding for finding in scene.orc.doctor()}
    assert not any(findings[f"view {name}"].fine for name in MODES)
    assert {view.status for view in scene.orc.views() if view.maintain != "deferred"} == {"invalid"}
    assert scene.caught() - ({"postgres"} if "domain" in kind else set()) == set()
    for name in MODES:
        scene.orc.drop_view(name)


def test_a_view_cannot_be_replaced_between_the_look_at_it_and_its_use(
    scene: Scene, plain_dsn: str
) -> None:
    scene.as_mallory("CREATE VIEW mallory.v AS SELECT id, n FROM public.t")
    scene.orc.create_view("v", "SELECT id, n FROM mallory.v", strategy="recompute")
    replace = "CREATE OR REPLACE VIEW mallory.v AS SELECT id, mallory.f(n) AS n FROM public.t"
    with psycopg.connect(plain_dsn, autocommit=True) as reader:
        # A snapshot that is older than the replacement does not see it; PostgreSQL runs it all the same.
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class")
        scene.as_mallory(replace)
        with pytest.raises(psycopg.errors.SerializationFailure, match="plain view was replaced"):
            reader.execute("SELECT idivm.forbidden(id) FROM idivm.views")
        reader.execute("ROLLBACK")
        scene.as_mallory(
            "CREATE OR REPLACE VIEW mallory.v AS SELECT id, n FROM public.t WHERE n > 0"
        )
        scene.orc.refresh("v")
        with reader.transaction():
            assert reader.execute("SELECT idivm.forbidden(id) FROM idivm.views").fetchall() == [
                (None,)
            ]
            scene.as_mallory("SET lock_timeout = '10ms'")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                scene.as_mallory(replace)
        with reader.transaction(force_rollback=True):
            # One that comes to nothing is no replacement.
            reader.execute("CREATE OR REPLACE VIEW mallory.v AS SELECT id, n FROM public.t")
    with psycopg.connect(plain_dsn, autocommit=True) as reader:
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        assert reader.execute("SELECT idivm.forbidden(id) FROM idivm.views").fetchall() == [(None,)]
    scene.orc.execute("INSERT INTO t VALUES (50, 'a', 50)")
    assert scene.orc.check("v")[0].equal
    assert scene.caught() == set()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_view_that_a_superuser_plans_again_keeps_its_owner(
    scene: Scene, plain_dsn: str, strategy: str
) -> None:
    scene.orc.connection.execute("CREATE VIEW below AS SELECT id, n FROM t")
    scene.orc.create_view("v", "SELECT id, n FROM below", strategy=strategy)
    scene.orc.connection.execute("CREATE OR REPLACE VIEW below AS SELECT id, n + 1 AS n FROM t")
    with orchestrator.connect(plain_dsn) as above:
        above.refresh("v")
        assert above.check("v")[0].equal
    owners = scene.admin.execute(
        "SELECT DISTINCT o::regrole::text FROM ("
        " SELECT relowner FROM pg_class WHERE relnamespace = 'idivm_state'::regnamespace UNION ALL"
        " SELECT proowner FROM pg_proc WHERE pronamespace = 'idivm_state'::regnamespace) AS x (o)"
    ).fetchall()
    assert owners == [(scene.owner,)]
    scene.orc.execute("INSERT INTO t VALUES (70, 'a', 70)")
    assert scene.orc.check("v")[0].equal


@pytest.mark.slow
def test_a_superuser_does_not_run_what_the_owner_of_a_view_trusts(
    scene: Scene, plain_dsn: str
) -> None:
    scene.admin.execute(f"GRANT {scene.attacker} TO {scene.owner}")
    scene.orc.create_view("v", "SELECT id, mallory.f(n) AS n FROM t")
    with orchestrator.connect(plain_dsn) as above:
        assert "does not trust" in (above.check("v")[0].error or "")
        assert not {finding.subject: finding for finding in above.doctor()}["view v"].fine
        with pytest.raises(RightsError, match="does not trust"):
            above.create_view("w", "SELECT id, mallory.f(n) AS n FROM t")
    assert scene.caught() <= {scene.owner}
    assert scene.orc.check("v")[0].equal


def test_the_images_of_rows_are_not_checked_again(scene: Scene) -> None:
    scene.orc.execute(
        """
        CREATE SEQUENCE calls;
        CREATE FUNCTION counted(n int) RETURNS boolean LANGUAGE sql AS $$SELECT nextval('public.calls') > 0$$;
        CREATE DOMAIN d AS int CHECK (public.counted(VALUE));
        CREATE TABLE x (was int, id int PRIMARY KEY, n d)
        """
    )
    scene.orc.create_view("v", "SELECT id, n FROM x")
    calls = "SELECT last_value FROM calls"
    scene.orc.execute("INSERT INTO x VALUES (0, 1, 1)")
    assert scene.orc.execute(calls)[0].rows == [(1,)]
    scene.orc.execute(
        "UPDATE x SET n = 2; ALTER TABLE x DROP COLUMN was; INSERT INTO x VALUES (2, 2)"
    )
    assert scene.orc.execute(calls)[0].rows == [(3,)]
    assert scene.orc.check("v")[0].equal


def test_a_ranked_view_does_not_run_code_that_comes_later(scene: Scene) -> None:
    """Its rows are found, and its columns computed, with the rights of the owner."""
    scene.orc.execute(
        """
        CREATE FUNCTION own(n int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$BEGIN RETURN n; END$$;
        CREATE TABLE prices (id int, price int NOT NULL, PRIMARY KEY (id, price));
        INSERT INTO prices SELECT i % 9 + 1, i FROM generate_series(1, 40) AS i
        """
    )
    scene.orc.create_view(
        "best",
        "SELECT t.id, p.price, own(t.n) AS n FROM t JOIN prices p USING (id)",
        ranked="price DESC",
    )
    scene.admin.execute(
        f"GRANT SELECT ON best TO {scene.attacker}; GRANT USAGE ON SCHEMA idivm TO {scene.attacker};"
        f"GRANT CREATE ON SCHEMA public TO {scene.attacker}"
    )
    with scene.mallory.transaction():
        scene.as_mallory("SELECT idivm.enumerate('best')")
        assert len(scene.mallory.execute("FETCH 3 FROM idivm_rows").fetchall()) == 3
    scene.admin.execute(f"ALTER FUNCTION public.own OWNER TO {scene.attacker}")
    scene.as_mallory(
        "CREATE OR REPLACE FUNCTION public.own(n int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS"
        " $$BEGIN PERFORM mallory.trap(); RETURN n; END$$"
    )
    for read in ("SELECT idivm.enumerate('best')", "SELECT * FROM idivm.first_rows(NULL::best, 3)"):
        with (
            pytest.raises(psycopg.errors.InsufficientPrivilege, match="does not trust"),
            scene.mallory.transaction(),
        ):
            scene.as_mallory(read)
            scene.mallory.execute("FETCH 3 FROM idivm_rows")
    assert scene.caught() == set()
