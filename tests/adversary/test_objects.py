"""No object that another role owns below a view gets its code run with the rights of the view's owner."""

from __future__ import annotations

import psycopg
import pytest
from scene import Scene

import orchestrator
from orchestrator.errors import IdivmError, RightsError

MODES = ("deferred", "eager", "on_commit")

STRATEGIES = ("auto", "recompute")

HOSTILE = {
    "function": ("", "SELECT id, mallory.f(n) AS n FROM t"),
    "function of a constant": ("", "SELECT id, mallory.f(1) AS n FROM t"),
    "condition": ("", "SELECT id FROM t WHERE mallory.ok(n)"),
    "aggregate": (
        "CREATE FUNCTION mallory.step(a int, b int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS"
        " $$BEGIN PERFORM mallory.trap(); RETURN a; END$$;"
        "CREATE AGGREGATE mallory.agg(int) (SFUNC = mallory.step, STYPE = int, INITCOND = '0')",
        "SELECT k, mallory.agg(n) AS n FROM t GROUP BY k",
    ),
    "operator": (
        "CREATE FUNCTION mallory.near(a int, b int) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS"
        " $$BEGIN PERFORM mallory.trap(); RETURN true; END$$;"
        "CREATE OPERATOR mallory.=== (LEFTARG = int, RIGHTARG = int, FUNCTION = mallory.near)",
        "SELECT id FROM t WHERE n OPERATOR(mallory.===) id",
    ),
    "cast": (
        "CREATE TYPE mallory.e AS ENUM ('1');"
        "CREATE FUNCTION mallory.to_e(n int) RETURNS mallory.e IMMUTABLE LANGUAGE plpgsql AS"
        " $$BEGIN PERFORM mallory.trap(); RETURN '1'; END$$;"
        "CREATE CAST (int AS mallory.e) WITH FUNCTION mallory.to_e(int)",
        "SELECT id, n::mallory.e AS e FROM t",
    ),
    "domain": (
        "CREATE DOMAIN mallory.d AS int CHECK (mallory.ok(VALUE))",
        "SELECT id, n::mallory.d AS n FROM t",
    ),
    "domain of a column": (
        "CREATE DOMAIN mallory.d AS int CHECK (mallory.ok(VALUE));"
        "CREATE TABLE mallory.x (id int PRIMARY KEY, n mallory.d)",
        "SELECT id, n FROM mallory.x",
    ),
    "domain of a key": (
        "CREATE DOMAIN mallory.d AS int CHECK (mallory.ok(VALUE));"
        "CREATE TABLE mallory.x (id mallory.d PRIMARY KEY, n int)",
        "SELECT n FROM mallory.x",
    ),
    "domain without a constraint yet": (
        "CREATE DOMAIN mallory.d AS int; CREATE TABLE mallory.x (id int PRIMARY KEY, n mallory.d)",
        "SELECT id, n FROM mallory.x",
    ),
    "domain in a row": (
        "CREATE DOMAIN mallory.d AS int CHECK (mallory.ok(VALUE)); CREATE TYPE mallory.c AS (a mallory.d);"
        "CREATE TABLE mallory.x (id int PRIMARY KEY, c mallory.c[])",
        "SELECT id, c FROM mallory.x",
    ),
    "domain in a whole row": (
        "CREATE DOMAIN mallory.d AS int CHECK (mallory.ok(VALUE));"
        "CREATE TABLE mallory.x (id int PRIMARY KEY, n mallory.d)",
        "SELECT id, to_jsonb(x) AS j FROM mallory.x",
    ),
    "range": (
        "CREATE FUNCTION mallory.gap(a int, b int) RETURNS float8 IMMUTABLE LANGUAGE plpgsql AS"
        " $$BEGIN PERFORM mallory.trap(); RETURN a - b; END$$;"
        "CREATE TYPE mallory.r AS RANGE (SUBTYPE = int, SUBTYPE_DIFF = mallory.gap);"
        "CREATE TABLE mallory.x (id int PRIMARY KEY, r mallory.r)",
        "SELECT id, r FROM mallory.x",
    ),
    "plain view": (
        "CREATE VIEW mallory.v AS SELECT id, mallory.f(n) AS n FROM t",
        "SELECT id, n FROM mallory.v",
    ),
    "plain views": (
        "CREATE VIEW mallory.w AS SELECT id, n FROM t WHERE mallory.ok(n);"
        "CREATE VIEW mallory.v WITH (security_invoker) AS SELECT id, n FROM mallory.w",
        "SELECT id, n FROM mallory.v",
    ),
    "barrier view": (
        "CREATE VIEW mallory.v WITH (security_barrier) AS SELECT id, n FROM t WHERE mallory.ok(n)",
        "SELECT id, n FROM mallory.v",
    ),
    "function with a query": (
        "CREATE VIEW mallory.v AS SELECT mallory.f(n) AS n FROM t;"
        "CREATE FUNCTION mallory.many() RETURNS bigint STABLE LANGUAGE sql"
        " BEGIN ATOMIC SELECT sum(n) FROM mallory.v; END",
        "SELECT id, mallory.many() AS n FROM t",
    ),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_code_of_an_untrusted_role_is_refused_and_not_run(scene: Scene, kind: str) -> None:
    made, query = HOSTILE[kind]
    scene.as_mallory(made)
    for mode in MODES:
        for strategy in STRATEGIES if mode == "deferred" else ("auto",):
            with pytest.raises(RightsError, match=f"{scene.attacker}.* does not trust"):
                scene.orc.create_view("v", query, maintain=mode, strategy=strategy)
    assert scene.orc.views() == []
    assert scene.caught() == set()


HARMLESS = {
    "table": (
        # Everything of a table that runs when it is written.
        """
        CREATE SEQUENCE mallory.s;
        CREATE TABLE mallory.x (
            id int PRIMARY KEY, n int DEFAULT mallory.f(1) CHECK (mallory.ok(n)),
            g int GENERATED ALWAYS AS (mallory.f(n)) STORED);
        CREATE INDEX ON mallory.x (mallory.f(n));
        CREATE FUNCTION mallory.fires() RETURNS trigger LANGUAGE plpgsql AS
        $$BEGIN PERFORM mallory.trap(); RETURN NEW; END$$;
        CREATE TRIGGER before BEFORE INSERT ON mallory.x FOR EACH ROW EXECUTE FUNCTION mallory.fires();
        CREATE TRIGGER zz AFTER INSERT ON mallory.x FOR EACH STATEMENT EXECUTE FUNCTION mallory.fires();
        CREATE CONSTRAINT TRIGGER late AFTER INSERT ON mallory.x DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION mallory.fires();
        CREATE RULE also AS ON INSERT TO mallory.x DO ALSO SELECT mallory.trap();
        """,
        "SELECT n, sum(g) AS g FROM mallory.x GROUP BY n",
    ),
    "partitioned table": (
        """
        CREATE TABLE mallory.x (id int PRIMARY KEY, n int) PARTITION BY RANGE (id);
        CREATE TABLE mallory.x1 PARTITION OF mallory.x (n DEFAULT mallory.f(1)) FOR VALUES FROM (0) TO (10);
        """,
        "SELECT id, n FROM mallory.x",
    ),
    "enum, composite and collation": (
        """
        CREATE TYPE mallory.e AS ENUM ('a', 'b');
        CREATE TYPE mallory.c AS (a int, e mallory.e);
        CREATE COLLATION mallory.col FROM "C";
        CREATE TABLE mallory.x (id int PRIMARY KEY, n int, e mallory.e, c mallory.c, w text COLLATE mallory.col);
        """,
        "SELECT id, e, c, w FROM mallory.x",
    ),
    "text search configuration": (
        "CREATE TEXT SEARCH CONFIGURATION mallory.ts (COPY = simple); CREATE TABLE mallory.x (id int PRIMARY KEY, n int)",
        "SELECT id, to_tsvector('mallory.ts', n::text) AS words FROM mallory.x",
    ),
    "plain view": (
        "CREATE TABLE mallory.x (id int PRIMARY KEY, n int);"
        "CREATE VIEW mallory.v AS SELECT id, n + 1 AS n FROM mallory.x WHERE n > 0",
        "SELECT id, n FROM mallory.v",
    ),
}


@pytest.mark.parametrize("kind", HARMLESS)
def test_what_runs_in_the_attackers_own_writes_runs_as_the_attacker(high: Scene, kind: str) -> None:
    made, query = HARMLESS[kind]
    high.as_mallory(made)
    # Nobody but a superuser captures tables of a role without being a member of it.
    orc = high.orc
    for mode in MODES:
        orc.create_view(mode, query, maintain=mode)
        orc.create_view(f"{mode}_recompute_estimate", query, maintain=mode, strategy="recompute")
    high.as_mallory("INSERT INTO mallory.x (id, n) VALUES (1, 1), (2, 2), (3, 3)")
    high.as_mallory(
        "BEGIN; UPDATE mallory.x SET n = n + 1 WHERE id < 3; DELETE FROM mallory.x WHERE id = 3; COMMIT"
    )
    orc.refresh()
    assert all(report.equal for report in orc.check())
    assert [
        finding for finding in orc.doctor() if not finding.fine and finding.subject != "java"
    ] == []
    assert high.caught() == set()


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


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("kind", LATER)
def test_code_that_comes_later_is_not_run(scene: Scene, kind: str, strategy: str) -> None:
    made, query, later = LATER[kind]
    scene.as_mallory(made or "SELECT")
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
    told = scene.caught() - ({"postgres"} if "domain" in kind else set())
    assert told == set()
    for name in MODES:
        with pytest.raises(IdivmError, match="does not trust"):
            scene.orc.refresh(name)
    assert all("does not trust" in (report.error or "") for report in scene.orc.check())
    findings = {one.subject: one for one in scene.orc.doctor()}
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


def test_a_superuser_does_not_run_what_the_owner_of_a_view_trusts(
    scene: Scene, plain_dsn: str
) -> None:
    scene.admin.execute(f"GRANT {scene.attacker} TO {scene.owner}")
    scene.orc.create_view("v", "SELECT id, mallory.f(n) AS n FROM t")
    with orchestrator.connect(plain_dsn) as above:
        assert "does not trust" in (above.check("v")[0].error or "")
        assert not {one.subject: one for one in above.doctor()}["view v"].fine
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
