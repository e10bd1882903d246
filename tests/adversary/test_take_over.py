"""Nobody gains a right by replacing views that others read, or by handing materialized views to idivm."""

from __future__ import annotations

import psycopg
import pytest
from scene import Scene

from orchestrator.errors import IdivmError

LOW = "SELECT id, n FROM t"


def test_whoever_replaces_a_view_changes_no_view_of_another_role(scene: Scene) -> None:
    scene.admin.execute(
        f"GRANT USAGE ON SCHEMA idivm TO {scene.attacker}; GRANT TRIGGER ON t TO {scene.attacker};"
        f"GRANT {scene.attacker} TO {scene.owner}"
    )
    scene.orc.execute(f"SELECT idivm.allow_refreshes('{scene.attacker}')")
    scene.as_mallory(f"SELECT idivm.create_view('mallory.low', '{LOW}')")
    assert [report.refusal for report in scene.orc.plan()] == [None]
    scene.admin.execute(f"GRANT SELECT ON mallory.low TO {scene.owner}")
    scene.orc.create_view("above", "SELECT sum(n) AS s FROM mallory.low")
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="must be owner of view"):
        scene.as_mallory("SELECT idivm.replace_view('mallory.low', 'SELECT 1 AS id, 1 AS n')")
    assert scene.orc.execute("TABLE above")[0].rows == [(45,)]
    scene.admin.execute(f"REVOKE {scene.attacker} FROM {scene.owner}")
    scene.orc.create_view("plain", LOW)
    scene.orc.create_view("top", "SELECT max(n) AS m FROM plain")
    scene.admin.execute(f"ALTER VIEW top OWNER TO {scene.attacker}")
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match=r"top reads public\.plain"):
        scene.orc.connection.execute("SELECT idivm.replace_view('plain', 'SELECT 1 AS id, 1 AS n')")
    assert scene.orc.execute("SELECT count(*) FROM plain")[0].rows == [(9,)]
    assert scene.caught() == set()


READERS = {
    "view": "CREATE VIEW mallory.d AS SELECT mallory.f(n) AS n FROM m",
    "materialized view": "CREATE MATERIALIZED VIEW mallory.d AS SELECT mallory.f(n) AS n FROM m WITH NO DATA",
    "constant of a domain": (
        "CREATE DOMAIN mallory.d1 AS int CHECK (mallory.ok(VALUE)); CREATE TYPE mallory.c AS (a mallory.d1);"
        "CREATE VIEW mallory.d AS SELECT '(1)'::mallory.c AS c, n FROM m"
    ),
    "function": (
        "CREATE FUNCTION mallory.d() RETURNS int BEGIN ATOMIC SELECT mallory.f(n) FROM m; END"
    ),
}


@pytest.mark.parametrize("reader", READERS)
def test_code_that_reads_a_materialized_view_is_not_parsed_by_its_owner(
    high: Scene, reader: str
) -> None:
    high.admin.execute(
        f"CREATE MATERIALIZED VIEW m AS SELECT id, n FROM t; GRANT SELECT ON m TO {high.attacker}"
    )
    high.as_mallory(READERS[reader])
    [report] = high.orc.adopt("m")
    assert "does not trust" in (report.refusal or "")
    assert high.caught() == set()
    assert high.orc.views() == []
    assert high.admin.execute(
        "SELECT relkind FROM pg_class WHERE oid = 'm'::regclass"
    ).fetchone() == ("m",)


def test_materialized_views_of_others_bring_no_code_along(high: Scene) -> None:
    high.as_mallory(
        """
        CREATE MATERIALIZED VIEW mallory.code AS SELECT id, mallory.f(n) AS n FROM mallory.m WITH NO DATA;
        CREATE MATERIALIZED VIEW mallory.plain AS SELECT id, n FROM mallory.m;
        CREATE INDEX by_code ON mallory.plain (mallory.f(n)); CREATE INDEX by_n ON mallory.plain (n)
        """
    )
    high.admin.execute(f"GRANT CREATE ON SCHEMA mallory TO {high.attacker}")
    for dry_run in (True, False):
        plain, code = high.orc.adopt("mallory.plain", "mallory.code", dry_run=dry_run)
        assert "does not trust" in (code.refusal or "")
        assert plain.refusal is None and "index mallory.by_code" in plain.lost[0]
    high.as_mallory("INSERT INTO mallory.m VALUES (6, 6)")
    high.orc.refresh()
    assert len(high.mallory.execute("TABLE mallory.plain").fetchall()) == 6
    assert high.caught() == set()


def test_a_false_catalog_of_pg_ivm_is_not_read(high: Scene) -> None:
    high.admin.execute(f"CREATE SCHEMA pgivm AUTHORIZATION {high.attacker}")
    high.as_mallory(
        """
        CREATE TABLE pgivm.pg_ivm_immv AS SELECT 'mallory.m'::regclass AS immvrelid;
        CREATE FUNCTION pgivm.get_immv_def(regclass) RETURNS text LANGUAGE plpgsql AS
        $$BEGIN PERFORM mallory.trap(); RETURN 'SELECT * FROM public.secret'; END$$
        """
    )
    assert high.orc.adopt() == []
    with pytest.raises(IdivmError, match=r"no view of pg_ivm"):
        high.orc.adopt("mallory.m")
    assert high.caught() == set()


def test_nobody_else_exchanges_or_releases_a_relation(scene: Scene) -> None:
    scene.orc.create_view("v", LOW)
    scene.orc.connection.execute("CREATE MATERIALIZED VIEW m AS SELECT id FROM t")
    scene.orc.execute(f"SELECT idivm.allow_refreshes('{scene.attacker}')")
    scene.as_mallory(
        "CREATE MATERIALIZED VIEW mallory.own AS SELECT id FROM t;"
        "SELECT idivm.create_view('mallory.low', 'SELECT id FROM t')"
    )
    for call in (
        "idivm.release('v')",
        "idivm.exchange('m', 'VIEW', 'SELECT 1 AS id')",
        "idivm.exchange('mallory.own', 'VIEW', 'SELECT id FROM secret')",
        "idivm.make_indexes('mallory.own', 1, 't')",
        "idivm.note_index('v', 't_pkey')",
        "idivm.create_index('v', '(id)')",
        "idivm.create_index('mallory.low', '(mallory.f(id))')",
        "idivm.drop_index('v', 'x')",
        "idivm.revoke_defaults('m', true)",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            scene.as_mallory(f"SELECT {call}")
    # A member of the owner of a view acts for the owner, and needs the catalog as well.
    scene.admin.execute(f"ALTER MATERIALIZED VIEW m OWNER TO {scene.attacker}")
    [report] = scene.orc.adopt("m")
    assert "must be owner" in (report.refusal or "")
