"""Who may do what, what nobody may do by accident, and what never shows."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.errors import InsufficientPrivilege
from psycopg.sql import SQL, Identifier, Literal
from stepping import differences, until

import orchestrator
from orchestrator.api import Orchestrator
from orchestrator.cli.main import main
from orchestrator.errors import IdivmError
from orchestrator.runtime.diagnosis.doctor import examine

pytestmark = pytest.mark.integration

MODES = ("deferred", "eager", "on_commit")


@pytest.fixture
def role(orc: Orchestrator, dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection of a role that may do nothing but log in."""
    name = f"somebody_{orc.connection.info.dbname}"
    orc.connection.execute(SQL("CREATE ROLE {} LOGIN").format(Identifier(name)))
    with psycopg.connect(make_conninfo(dsn, user=name), autocommit=True) as connection:
        yield connection
    orc.connection.execute(SQL("DROP OWNED BY {0} CASCADE; DROP ROLE {0}").format(Identifier(name)))


def grant(orc: Orchestrator, role: psycopg.Connection[Any], rights: str) -> None:
    orc.connection.execute(
        SQL("GRANT {} TO {}").format(SQL(rights), Identifier(role.info.user))  # type: ignore[arg-type]
    )


WITHDRAWN = {
    "a right": ("GRANT SELECT ON t TO {role}", "REVOKE SELECT ON t FROM {role}"),
    "a membership": (
        "CREATE ROLE {group}; GRANT SELECT ON t TO {group}; GRANT {group} TO {role}",
        "REVOKE {group} FROM {role}",
    ),
    "all rights of a superuser": ("ALTER ROLE {role} SUPERUSER", "ALTER ROLE {role} NOSUPERUSER"),
    "the owner of a function": (
        "GRANT SELECT ON t TO {role}",
        "ALTER FUNCTION next_number(int) OWNER TO {role}",
    ),
}


@pytest.mark.parametrize("capture_form", ["plpgsql", "c"])
@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ"])
@pytest.mark.parametrize("kind", WITHDRAWN)
def test_a_session_that_has_refreshed_a_view_notices_what_is_withdrawn(
    orc: Orchestrator, dsn: str, kind: str, level: str
) -> None:
    """It does not check again what it knows, until PostgreSQL tells it of a change."""
    role, group = f"reader_{orc.connection.info.dbname}", f"group_{orc.connection.info.dbname}"
    given, withdrawn = (text.format(role=role, group=group) for text in WITHDRAWN[kind])
    orc.execute(
        "CREATE TABLE t (id int PRIMARY KEY, n int);"
        "CREATE FUNCTION next_number(n int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT n + 1';"
        f"CREATE ROLE {role}; {given}"
    )
    orc.connection.execute("CREATE VIEW below AS SELECT id, n FROM t")
    orc.execute(f"ALTER VIEW below OWNER TO {role}; GRANT SELECT ON below TO PUBLIC")
    try:
        orc.create_view("v", "SELECT id, next_number(n) AS n FROM below")
        refresh = f"BEGIN ISOLATION LEVEL {level}; SELECT idivm.refresh('v'); COMMIT"
        for number in range(3):
            orc.execute(f"INSERT INTO t VALUES ({number}, 1)")
            orc.connection.execute(refresh.encode())
        with psycopg.connect(dsn, autocommit=True) as other:
            other.execute(withdrawn.encode())
        orc.execute("INSERT INTO t VALUES (7, 7)")
        orc.connection.execute(refresh.encode())
        [(message,)] = orc.execute("SELECT message FROM idivm.view_errors")[0].rows
        assert "may not read" in message or "does not trust" in message
        assert orc.execute("SELECT count(*) FROM v")[0].rows == [(3,)]
    finally:
        orc.execute("DROP TABLE t CASCADE; DROP FUNCTION next_number(int)")
        orc.execute(f"DROP ROLE {role}; DROP ROLE IF EXISTS {group}")


@pytest.fixture
def base(orc: Orchestrator) -> Orchestrator:
    orc.execute(
        "CREATE TABLE t (id int PRIMARY KEY, k text, n int);"
        "INSERT INTO t SELECT i, chr(97 + i % 3), i FROM generate_series(1, 9) AS i"
    )
    for mode in MODES:
        orc.create_view(mode, "SELECT k, sum(n) AS s FROM t GROUP BY k", maintain=mode)
        orc.create_view(
            f"{mode}_recompute_estimate", "SELECT k, n FROM t", maintain=mode, strategy="recompute"
        )
    return orc


def right(orc: Orchestrator) -> bool:
    return all(differences(orc.connection, view.name) == [] for view in orc.views())


def test_functions_with_their_owners_rights_pin_the_search_path(base: Orchestrator) -> None:
    rows = base.connection.execute(
        "SELECT p.oid::regprocedure::text, p.proconfig FROM pg_proc p"
        " JOIN pg_namespace n ON n.oid = p.pronamespace"
        " WHERE n.nspname LIKE 'idivm%' AND p.prosecdef"
    ).fetchall()
    assert len(rows) > 10
    for name, settings in rows:
        assert "search_path=pg_catalog, pg_temp" in (settings or []), name


def test_a_writer_needs_rights_on_the_table_alone(
    base: Orchestrator, role: psycopg.Connection[Any]
) -> None:
    grant(base, role, "INSERT, UPDATE, DELETE, SELECT, TRUNCATE ON t")
    role.execute("INSERT INTO t VALUES (20, 'z', 5)")
    role.execute("UPDATE t SET n = n + 1")
    role.execute("DELETE FROM t WHERE id = 3")
    base.refresh()
    assert right(base)
    role.execute("TRUNCATE t")
    base.refresh()
    assert right(base)


def test_a_reader_needs_what_a_reader_of_a_plain_view_needs(
    base: Orchestrator, role: psycopg.Connection[Any]
) -> None:
    with pytest.raises(InsufficientPrivilege):
        role.execute("TABLE eager")
    grant(base, role, "SELECT ON eager")
    assert len(role.execute("TABLE eager").fetchall()) == 3
    for hidden in ("t", "deferred", "idivm.views", "idivm_state.eager_3", "idivm_def.v3"):
        with pytest.raises(InsufficientPrivilege):
            role.execute(SQL("SELECT FROM {}").format(SQL(hidden)))  # type: ignore[arg-type]


def test_nobody_writes_what_idivm_keeps(base: Orchestrator, role: psycopg.Connection[Any]) -> None:
    base.connection.execute("ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO PUBLIC")
    base.create_view("late", "SELECT id, n FROM t")
    grant(base, role, "ALL ON late")
    for statement in (
        "DELETE FROM idivm_state.late_7",
        "INSERT INTO idivm_log.s1_a SELECT * FROM idivm_log.s1_b",
        "TRUNCATE idivm_log.s1_a",
        "UPDATE idivm.views SET status = 'ready'",
        "SELECT nextval('idivm_log.s1_seq')",
    ):
        with pytest.raises(InsufficientPrivilege):
            role.execute(statement)
    for statement in (
        "DELETE FROM late",
        "INSERT INTO late VALUES (1, 1)",
        "UPDATE late SET n = 1",
    ):
        with pytest.raises(psycopg.Error, match="change the tables that it reads instead"):
            role.execute(statement)
        with pytest.raises(psycopg.Error, match="change the tables that it reads instead"):
            base.connection.execute(statement)
    assert right(base)


@pytest.mark.parametrize("capture_form", ["plpgsql", "c"])
def test_the_schema_alone_gives_no_power(base: Orchestrator, role: psycopg.Connection[Any]) -> None:
    base.connection.execute("CREATE TABLE secret AS SELECT 1 AS a")
    grant(base, role, "USAGE ON SCHEMA idivm")
    for statement in (
        "SELECT idivm.free_segment(1, 'secret', NULL)",
        "SELECT idivm.uninstall(1)",
        "SELECT idivm.drop_orphans()",
        "SELECT idivm.set_mode(1, 'deferred')",
        "SELECT idivm.refresh_one(1, false)",
        "SELECT idivm.run_program(1, NULL, true, false)",
        "SELECT idivm.discard_foreign_log(1)",
        "SELECT idivm.mind_limits(1)",
        "INSERT INTO idivm.commits VALUES ('{1}', '{1}')",
        "SELECT idivm_state.refresh_1(NULL, true)",
    ):
        with pytest.raises(psycopg.Error) as refused:
            role.execute(statement)
        assert isinstance(refused.value, InsufficientPrivilege), (statement, refused.value)
    # What calls a program asks for the right to the program itself.
    calls = "idivm.run_program(integer, idivm.watermark, boolean, boolean)"
    grant(base, role, f"EXECUTE ON FUNCTION {calls}")
    with pytest.raises(InsufficientPrivilege):
        role.execute("SELECT idivm.run_program(1, NULL, true, false)")
    assert base.connection.execute("TABLE secret").fetchall() == [(1,)]
    assert right(base)


def test_a_granted_role_refreshes_without_other_rights(
    base: Orchestrator, role: psycopg.Connection[Any]
) -> None:
    base.connection.execute(SQL("SELECT idivm.allow_refreshes({})").format(role.info.user))
    base.execute("UPDATE t SET n = 100 WHERE id = 1")
    role.execute("SELECT * FROM idivm.refresh('deferred')")
    assert differences(base.connection, "deferred") == []
    base.execute("UPDATE t SET n = 200 WHERE id = 1")
    role.execute("CALL idivm.refresh_all()")
    assert right(base)


def test_what_a_session_puts_in_the_way_is_not_found(
    base: Orchestrator, role: psycopg.Connection[Any]
) -> None:
    grant(base, role, "INSERT, UPDATE, DELETE, SELECT ON t")
    grant(base, role, "USAGE, CREATE ON SCHEMA public")
    base.connection.execute(SQL("SELECT idivm.allow_refreshes({})").format(role.info.user))
    role.execute(
        """
        CREATE TEMP TABLE pg_class (oid oid, relname text);
        CREATE FUNCTION public.bad(anyelement, anyelement) RETURNS boolean LANGUAGE plpgsql AS $$
        BEGIN RAISE EXCEPTION 'caught, as %', current_user; END $$;
        CREATE FUNCTION public.bad_text(text, text) RETURNS boolean LANGUAGE sql
        AS 'SELECT public.bad(1, 1)';
        CREATE OPERATOR public.= (LEFTARG = text, RIGHTARG = text, FUNCTION = public.bad_text);
        CREATE FUNCTION public.coalesce_sum(bigint) RETURNS bigint LANGUAGE sql AS 'SELECT 1 / 0';
        SET search_path = public, pg_temp, pg_catalog
        """
    )
    role.execute("UPDATE t SET n = n + 1, k = 'q' WHERE id < 4")
    role.execute("SELECT * FROM idivm.refresh('deferred')")
    role.execute("CALL idivm.refresh_all()")
    role.execute("RESET search_path")
    assert right(base)


@pytest.fixture
def guarded(orc: Orchestrator, role: psycopg.Connection[Any]) -> Orchestrator:
    """A table of which everybody but its owner sees their own rows."""
    orc.execute(
        """
        CREATE TABLE notes (id int PRIMARY KEY, tenant text, body text);
        INSERT INTO notes VALUES (1, 'a', 'x'), (2, 'b', 'y');
        ALTER TABLE notes ENABLE ROW LEVEL SECURITY;
        CREATE POLICY own ON notes USING (tenant = current_setting('app.tenant', true))
        """
    )
    grant(orc, role, "SELECT, TRIGGER ON notes")
    return orc


def test_row_security_that_hides_rows_from_the_owner_is_refused(
    guarded: Orchestrator, role: psycopg.Connection[Any], dsn: str
) -> None:
    grant(guarded, role, f"CREATE ON DATABASE {guarded.connection.info.dbname}")
    owner = make_conninfo(dsn, user=role.info.user)
    guarded.connection.execute(
        SQL("DROP SCHEMA idivm, idivm_def, idivm_feed, idivm_log, idivm_state, idivm_load CASCADE")
    )
    guarded.connection.execute(
        SQL(
            "ALTER TABLE notes OWNER TO {}; ALTER TABLE notes FORCE ROW LEVEL SECURITY;"
            "GRANT CREATE ON SCHEMA public TO {}"
        ).format(Identifier(role.info.user), Identifier(role.info.user))
    )
    role.execute(SQL("CREATE SCHEMA mine"))
    with orchestrator.connect(owner) as orc:
        orc.connection.execute("SET app.tenant = 'a'")
        with pytest.raises(IdivmError, match="row-level security"):
            orc.create_view("mine.v", "SELECT id, body FROM notes")
        with pytest.raises(IdivmError, match="row-level security"):
            orc.create_view("mine.v", "SELECT id, body FROM notes", strategy="recompute")
        assert orc.views() == []


def test_row_security_that_lets_the_owner_see_all_is_that_of_a_plain_view(
    guarded: Orchestrator, role: psycopg.Connection[Any]
) -> None:
    guarded.create_view("v", "SELECT id, body FROM notes")
    guarded.connection.execute("CREATE VIEW plain AS SELECT id, body FROM notes")
    grant(guarded, role, "SELECT ON v, plain")
    rows = role.execute("SELECT * FROM v ORDER BY id").fetchall()
    assert rows == role.execute("SELECT * FROM plain ORDER BY id").fetchall()


HOSTILE = ('a"b', "it's", "x; DROP TABLE t; --", "$$ $1 %s {} \\", "É\n", "n" * 63, "select")


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_and_values(orc: Orchestrator, name: str) -> None:
    table, column, key = Identifier(name, name), Identifier(name), Identifier(name[:-1] + "k")
    orc.connection.execute(SQL("CREATE SCHEMA {}").format(Identifier(name)))
    orc.connection.execute(
        SQL("CREATE TABLE {} ({} text PRIMARY KEY, {} text)").format(table, key, column)
    )
    for number, mode in enumerate(MODES):
        view = Identifier(name, f"{name[:50]}{number}").as_string(orc.connection)
        query = SQL("SELECT {0}, count(*) AS {1} FROM {2} WHERE {1} <> {3} GROUP BY {0}").format(
            key, column, table, Literal(name + "'")
        )
        orc.create_view(view, query.as_string(orc.connection), maintain=mode)
    for value in HOSTILE:
        orc.connection.execute(
            SQL("INSERT INTO {} VALUES ({}, {})").format(
                table, Literal(value), Literal(value[::-1])
            )
        )
    orc.connection.execute(SQL("UPDATE {} SET {} = {}").format(table, column, Literal(name)))
    orc.connection.execute(
        SQL("DELETE FROM {} WHERE {} = {}").format(table, key, Literal(HOSTILE[0]))
    )
    orc.refresh()
    assert len(orc.views()) == len(MODES)
    assert right(orc)
    assert [f for f in examine(orc.connection) if not f.fine] == []
    for view in orc.views():
        orc.drop_view(view.name)


SECRET = "hunter2-and/more"


@pytest.mark.parametrize(
    "dsn",
    [
        f"postgresql://me:{SECRET}@nowhere.invalid:1/db",
        f"postgresql://me:{SECRET} x@[nowhere/db",
        f"host=nowhere.invalid password='{SECRET}' dbname=db nonsense",
        f"password={SECRET} nonsense=1",
        f"postgres://me:{SECRET}@127.0.0.1:1/db?sslmode={SECRET}",
    ],
)
@pytest.mark.parametrize("given", ["argument", "environment"])
def test_errors_show_no_password(
    dsn: str, given: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["list", "--dsn", dsn]
    if given == "environment":
        arguments = ["list"]
        monkeypatch.setenv("IDIVM_DSN", dsn)
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert "hunter2" not in printed.out + printed.err
    assert printed.err


def test_what_runs_and_what_is_stored_shows_no_password(dsn: str, tmp_path: Path) -> None:
    secret = make_conninfo(dsn, password=SECRET)
    environment = {**os.environ, "IDIVM_DSN": secret}
    said = tmp_path / "said"
    with orchestrator.connect(secret) as orc, said.open("w") as output:
        orc.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE VIEW v AS SELECT id FROM t")
        process = subprocess.Popen(
            [sys.executable, "-m", "orchestrator.cli.main", "serve", "--json"],
            stdout=output,
            stderr=output,
            env=environment,
        )
        try:
            until(lambda: "connected" in said.read_text())
            if Path("/proc/self/cmdline").exists():
                line = Path(f"/proc/{process.pid}/cmdline").read_text()
                assert "serve" in line
                assert SECRET not in line
            rows = orc.connection.execute(
                "SELECT v::text FROM idivm.views v UNION ALL"
                " SELECT a::text FROM pg_stat_activity a UNION ALL"
                " SELECT pg_get_functiondef(p.oid) FROM pg_proc p"
                " JOIN pg_namespace n ON n.oid = p.pronamespace"
                " WHERE n.nspname LIKE 'idivm%' AND p.prokind <> 'a'"
            ).fetchall()
            assert not any(SECRET in row[0] for row in rows)
        finally:
            process.terminate()
            process.wait()
    assert SECRET not in said.read_text()
