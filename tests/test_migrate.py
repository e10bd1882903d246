"""The runner of migrations, on made-up ones and on those of the product."""

from __future__ import annotations

import re
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest
from harness import TestServer
from psycopg import Connection, sql

from orchestrator.errors import MigrationError
from orchestrator.resources import resource_folder
from orchestrator.runtime import migrate as runner
from orchestrator.runtime.migrate import shipped
from orchestrator.sqltext import checksum

pytestmark = pytest.mark.integration

FIRST = "CREATE TABLE idivm.one (a integer); CREATE TABLE idivm.two (b integer);"
SECOND = "ALTER TABLE idivm.one ADD COLUMN c text DEFAULT 'x; y';"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "0001_first.sql").write_text(FIRST)
    (tmp_path / "0002_second.sql").write_text(SECOND)
    (tmp_path / "functions").mkdir()
    return tmp_path


def migrate(connection: Connection[Any], folder: Path | None = None) -> list[str]:
    """Apply a folder's migrations and functions, or those of the product."""
    wanted = shipped(folder, folder / "functions") if folder else None
    return runner.migrate(connection, wanted)


@pytest.fixture
def database(plain_dsn: str) -> Iterator[Connection[Any]]:
    with psycopg.connect(plain_dsn, autocommit=True) as connection:
        yield connection


@pytest.fixture
def role(pg: TestServer, database: Connection[Any]) -> Iterator[str]:
    """A role with a name that needs quotes, and no rights but to connect."""
    name = sql.Identifier('ann "x"')
    database.execute(sql.SQL("CREATE ROLE {} LOGIN").format(name))
    yield 'ann "x"'
    database.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(name))
    database.execute(sql.SQL("DROP ROLE {}").format(name))


def tables(connection: Connection[Any]) -> list[str]:
    rows = connection.execute(
        "SELECT relname FROM pg_class"
        " WHERE relnamespace = to_regnamespace('idivm') AND relkind = 'r' ORDER BY 1"
    )
    return [row[0] for row in rows.fetchall()]


def refusal(act: Callable[[], object]) -> str:
    with pytest.raises(MigrationError) as caught:
        act()
    sentence = str(caught.value)
    assert sentence.endswith(".") and "\n" not in sentence
    return sentence


def test_applies_what_is_missing_and_records_it(folder: Path, database: Connection[Any]) -> None:
    second = folder / "0002_second.sql"
    later = second.rename(folder / "later")
    assert migrate(database, folder) == ["0001_first"]
    later.rename(second)
    assert migrate(database, folder) == ["0002_second"]
    assert migrate(database, folder) == []
    assert database.execute(
        "SELECT number, name, checksum FROM idivm.migrations ORDER BY number"
    ).fetchall() == [(1, "0001_first", checksum(FIRST)), (2, "0002_second", checksum(SECOND))]
    assert tables(database) == ["declarations", "migrations", "one", "two"]


def test_a_current_catalog_costs_one_query_that_writes_nothing(
    folder: Path, database: Connection[Any], plain_dsn: str
) -> None:
    migrate(database, folder)

    class Counting(psycopg.Connection[Any]):
        executed = 0

        def execute(self, *arguments: Any, **options: Any) -> psycopg.Cursor[Any]:
            self.executed += 1
            return super().execute(*arguments, **options)

    read_only = "-c default_transaction_read_only=on"
    with Counting.connect(plain_dsn, autocommit=True, options=read_only) as connection:
        assert migrate(connection, folder) == []
        assert connection.executed == 1


def test_a_failing_migration_leaves_all_as_it_was(folder: Path, database: Connection[Any]) -> None:
    second = folder / "0002_second.sql"
    second.unlink()
    migrate(database, folder)
    second.write_text(SECOND)
    (folder / "0003_third.sql").write_text("CREATE TABLE idivm.three (); SELECT 1 / 0;")
    with pytest.raises(psycopg.errors.DivisionByZero):
        migrate(database, folder)
    assert tables(database) == ["declarations", "migrations", "one", "two"]
    (folder / "0003_third.sql").unlink()
    assert migrate(database, folder) == ["0002_second"]


def test_the_first_migration_failing_leaves_nothing(
    folder: Path, database: Connection[Any]
) -> None:
    (folder / "0001_first.sql").write_text("SELECT 1 / 0;")
    with pytest.raises(psycopg.errors.DivisionByZero):
        migrate(database, folder)
    assert database.execute("SELECT to_regnamespace('idivm')").fetchone() == (None,)


def test_refuses_a_database_newer_than_the_program(folder: Path, database: Connection[Any]) -> None:
    migrate(database, folder)
    (folder / "0002_second.sql").unlink()
    sentence = refusal(lambda: migrate(database, folder))
    assert "0002_second" in sentence and "upgrade idivm" in sentence


def test_refuses_a_file_edited_after_it_was_applied(
    folder: Path, database: Connection[Any]
) -> None:
    migrate(database, folder)
    (folder / "0001_first.sql").write_text(FIRST + " ")
    (folder / "0003_third.sql").write_text("CREATE TABLE idivm.three ();")
    sentence = refusal(lambda: migrate(database, folder))
    assert "0001_first was edited" in sentence and "new migration" in sentence
    assert "three" not in tables(database)


def test_refuses_a_catalog_from_before_functions_were_declared(
    folder: Path, database: Connection[Any]
) -> None:
    migrate(database, folder)
    database.execute("DROP TABLE idivm.declarations")
    assert "before its first release" in refusal(lambda: migrate(database, folder))


def routines(connection: Connection[Any]) -> list[str]:
    rows = connection.execute(
        "SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = 'idivm'::regnamespace ORDER BY 1"
    )
    return [row[0] for row in rows]


def test_functions_are_declared_again_when_their_text_changes(
    folder: Path, database: Connection[Any]
) -> None:
    declarations = folder / "functions" / "declarations.sql"
    declare = "CREATE OR REPLACE FUNCTION idivm.{}() RETURNS integer LANGUAGE sql AS 'SELECT {}';"
    declarations.write_text(declare.format("f", 1) + declare.format("g", "idivm.f()"))
    migrate(database, folder)
    user = "CREATE FUNCTION idivm.of_the_user() RETURNS integer LANGUAGE sql AS 'SELECT 0'"
    database.execute(user)
    before = database.execute(
        "SELECT 'idivm.g'::regproc::oid, xmin FROM idivm.declarations"
    ).fetchone()
    assert migrate(database, folder) == []
    assert (
        database.execute("SELECT 'idivm.g'::regproc::oid, xmin FROM idivm.declarations").fetchone()
        == before
    )
    declarations.write_text(declare.format("g", 2) + declare.format("h", "idivm.g()"))
    assert migrate(database, folder) == []
    assert routines(database) == ["idivm.g()", "idivm.h()", "idivm.of_the_user()"]
    assert database.execute("SELECT idivm.h(), 'idivm.g'::regproc::oid").fetchone() == (
        2,
        before[0],
    )


def test_each_routine_is_declared_once() -> None:
    declared = re.findall(
        r"^\s*CREATE (?:OR REPLACE )?(FUNCTION|PROCEDURE|AGGREGATE|VIEW) (idivm\.\w+\s*\([^)]*\)|idivm\.\w+)",
        shipped().declarations,
        re.MULTILINE,
    )
    assert len(declared) > 150
    assert [routine for routine, times in Counter(declared).items() if times > 1] == []
    for migration in shipped().migrations:
        assert not re.search(
            r"CREATE (OR REPLACE )?(FUNCTION|PROCEDURE|AGGREGATE)", migration.text
        ), migration.name


def test_refuses_a_schema_of_somebody_else(folder: Path, database: Connection[Any]) -> None:
    database.execute("CREATE SCHEMA idivm")
    assert "schema idivm exists already" in refusal(lambda: migrate(database, folder))
    assert tables(database) == []


def test_refuses_a_read_only_server_unless_the_catalog_is_current(
    folder: Path, database: Connection[Any], plain_dsn: str
) -> None:
    read_only = "-c default_transaction_read_only=on"
    with psycopg.connect(plain_dsn, autocommit=True, options=read_only) as connection:
        assert "takes no changes" in refusal(lambda: migrate(connection, folder))
        migrate(database, folder)
        assert migrate(connection, folder) == []
        (folder / "0003_third.sql").write_text("CREATE TABLE idivm.three ();")
        assert "takes no changes" in refusal(lambda: migrate(connection, folder))


def test_refuses_a_server_that_is_too_old(folder: Path) -> None:
    # No such server is at hand, and nothing but its version is to be asked of it.
    for number, version in ((140_005, "14.5"), (90_624, "9.6")):
        old = SimpleNamespace(info=SimpleNamespace(server_version=number))
        sentence = refusal(lambda old=old: migrate(cast(Any, old), folder))
        assert f"PostgreSQL {version}" in sentence and "15 or newer" in sentence


def test_names_the_right_that_is_needed_to_create_the_catalog(
    folder: Path, database: Connection[Any], plain_dsn: str, role: str
) -> None:
    with psycopg.connect(plain_dsn, user=role, autocommit=True) as connection:
        sentence = refusal(lambda: migrate(connection, folder))
        grant = sentence[sentence.index("GRANT") : -1]
        assert grant.startswith("GRANT CREATE ON DATABASE")
        database.execute(grant)
        assert migrate(connection, folder) == ["0001_first", "0002_second"]


def test_needs_no_superuser(database: Connection[Any], plain_dsn: str, role: str) -> None:
    database.execute(
        sql.SQL("GRANT CREATE ON DATABASE {} TO {}").format(
            sql.Identifier(database.info.dbname), sql.Identifier(role)
        )
    )
    with psycopg.connect(plain_dsn, user=role, autocommit=True) as connection:
        assert migrate(connection) == [migration.name for migration in shipped().migrations]


def test_says_what_a_role_without_rights_needs(
    folder: Path, database: Connection[Any], plain_dsn: str, role: str
) -> None:
    migrate(database, folder)
    with psycopg.connect(plain_dsn, user=role, autocommit=True) as connection:
        sentence = refusal(lambda: migrate(connection, folder))
        database.execute(sentence[sentence.index("GRANT") : -1])
        assert migrate(connection, folder) == []
        (folder / "0003_third.sql").write_text("CREATE TABLE idivm.three ();")
        sentence = refusal(lambda: migrate(connection, folder))
        assert "0003_third" in sentence and "owner of schema idivm" in sentence


def test_two_programs_at_once(folder: Path, database: Connection[Any], plain_dsn: str) -> None:
    """The second waits for the first and applies only what that one has left."""
    (folder / "0001_first.sql").write_text(
        FIRST + " SELECT pg_advisory_lock_shared(1), pg_advisory_unlock_shared(1);"
    )
    results: list[list[str]] = []

    def run() -> None:
        # A snapshot taken before the wait would show a database without a catalog.
        with psycopg.connect(
            plain_dsn,
            autocommit=True,
            options="-c default_transaction_isolation=serializable",
        ) as connection:
            results.append(migrate(connection, folder))

    database.execute("SELECT pg_advisory_lock(1)")
    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    # One has come as far as the first migration and waits there, the other waits for that one.
    while database.execute(
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    ).fetchone() != (2,):
        assert all(thread.is_alive() for thread in threads)
    database.execute("SELECT pg_advisory_unlock(1)")
    for thread in threads:
        thread.join()
    assert sorted(name for names in results for name in names) == ["0001_first", "0002_second"]


def test_nobodys_objects_stand_in_for_those_of_postgresql(
    folder: Path, database: Connection[Any], plain_dsn: str
) -> None:
    database.execute(
        "CREATE SCHEMA evil; CREATE FUNCTION evil.length(text) RETURNS integer RETURN -1"
    )
    (folder / "0001_first.sql").write_text(
        "CREATE FUNCTION idivm.size(t text) RETURNS integer LANGUAGE sql RETURN length(t);"
    )
    (folder / "0002_second.sql").unlink()
    options = "-c search_path=evil,pg_catalog"
    with closing(psycopg.connect(plain_dsn, autocommit=True, options=options)) as connection:
        migrate(connection, folder)
        assert connection.execute("SELECT idivm.size('abc')").fetchone() == (3,)
        assert connection.execute("SHOW search_path").fetchone() == ("evil,pg_catalog",)


def test_the_migrations_of_the_product_are_fit_to_be_run() -> None:
    migrations = shipped().migrations
    assert [migration.number for migration in migrations] == list(range(1, len(migrations) + 1))
    for migration in migrations:
        # Read in whatever encoding a database has, and as a part of another transaction.
        assert migration.text.isascii(), migration.name
        assert not re.search(r"^(BEGIN;|COMMIT;|ROLLBACK;)", migration.text, re.MULTILINE)
    assert shipped().declarations.isascii()


def test_functions_that_idivm_made_are_as_the_newest_migration_has_them(orc, tmp_path):
    orc.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE VIEW v AS SELECT count(*) AS n FROM t")
    look = "SELECT prosrc FROM pg_proc WHERE proname = 's1_any'"
    [source] = orc.connection.execute(look).fetchone()
    orc.connection.execute(
        "CREATE OR REPLACE FUNCTION idivm_log.s1_any(since idivm.watermark) RETURNS boolean"
        " LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS 'BEGIN RETURN true; END'"
    )
    shutil.copytree(resource_folder("migrations"), tmp_path, dirs_exist_ok=True)
    shutil.copytree(resource_folder("sql") / "functions", tmp_path / "functions")
    (tmp_path / f"{len(shipped().migrations) + 1:04}_more.sql").write_text("SELECT 1")
    assert len(migrate(orc.connection, tmp_path)) == 1
    assert orc.connection.execute(look).fetchone() == (source,)


def test_a_catalog_whose_functions_have_former_names_of_parameters_is_brought_up_to_date(orc):
    connection = orc.connection
    connection.execute(
        "DROP FUNCTION idivm.has_entries(regclass, regclass), idivm.table_columns(regclass);"
        "CREATE FUNCTION idivm.has_entries(one regclass, other regclass) RETURNS boolean LANGUAGE sql RETURN true;"
        "CREATE FUNCTION idivm.table_columns(shown regclass) RETURNS text[] LANGUAGE sql RETURN '{}'::text[];"
        "ALTER TABLE idivm.costs DROP known_work, DROP known_rows, DROP known_size;"
        "ALTER TYPE idivm.watermark DROP ATTRIBUTE upto CASCADE; ALTER TABLE idivm.watermarks DROP quiet_until;"
        "ALTER TABLE idivm.views DROP common_join CASCADE;"
        "ALTER TABLE idivm.sources DROP wal_since CASCADE; ALTER TABLE idivm.source_members DROP identity, DROP wal_columns;"
        "DROP TABLE idivm.wal_slots CASCADE;"
        "DELETE FROM idivm.migrations WHERE number >= 5; UPDATE idivm.declarations SET checksum = ''"
    )
    assert "0005_parameter_names" in migrate(connection)
    names = connection.execute(
        "SELECT proargnames[1] FROM pg_proc WHERE pronamespace = 'idivm'::regnamespace"
        " AND proname IN ('has_entries', 'table_columns') ORDER BY proname"
    ).fetchall()
    assert names == [("segment",), ("view",)]


def test_comparisons_of_images_that_a_dump_cannot_restore_are_replaced(orc):
    orc.execute(
        "CREATE TABLE t (id int PRIMARY KEY, a float, b json, n int);"
        "CREATE VIEW v AS SELECT id, a, b, n FROM t"
    )
    connection = orc.connection
    look = "SELECT pg_get_functiondef('idivm_log.s1_changed'::regproc)"
    [definition] = connection.execute(look).fetchone()
    left, right = ("ROW((o).a, (o).b)", "ROW((n).a, (n).b)")
    assert f"record_image_ne({left}, {right})" in definition
    former = definition.replace(
        f"record_image_ne({left}, {right})", f"({left}::record *<> {right}::record)"
    )
    connection.execute(former)
    assert f"({left} *<> {right})" in connection.execute(look).fetchone()[0]
    connection.execute("DELETE FROM idivm.migrations WHERE name LIKE '%\\_compared\\_images'")
    assert migrate(connection) == [shipped().migrations[9].name]
    assert connection.execute(look).fetchone() == (definition,)
