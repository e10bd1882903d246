"""Bring idivm's catalog in a database up to date with the files of this program.

Tables and types come from the numbered files in `migrations/`, each applied once. Routines, views and triggers come
from `sql/functions/`, where each is declared once; they are applied again whenever their text changes. A database
that has idivm as an extension is updated by the extension's scripts, which are built from the same files and leave
the same record.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psycopg import Connection, sql
from psycopg.errors import DuplicateSchema, InsufficientPrivilege, UndefinedTable
from psycopg.pq import TransactionStatus

from orchestrator.errors import MigrationError
from orchestrator.resources import resource_folder
from orchestrator.sqltext import checksum

OLDEST_SERVER = 15

_LOCK = 5_135_427_188_730_551_917
"""The advisory lock of sessions that change the catalog; an arbitrary number that others do not use."""

_FILE_NAME = re.compile(r"(\d{4})_\w+\.sql")

_APPLIED = """
    SELECT array(SELECT ROW(m.number, m.name, m.checksum) FROM idivm.migrations m ORDER BY m.number),
           (SELECT d.checksum FROM idivm.declarations d),
           (SELECT e.extversion FROM pg_catalog.pg_extension e WHERE e.extname = 'idivm')
"""


@dataclass(frozen=True)
class Migration:
    """A file of `migrations/`."""

    number: int
    name: str
    text: str


@dataclass(frozen=True)
class Shipped:
    """The files of this program: numbered migrations, declarations of functions, and their forms in C."""

    migrations: tuple[Migration, ...]
    declarations: str
    module: str


@dataclass(frozen=True)
class _Catalog:
    """The state of a database: applied migrations, the checksum of its declarations, the extension's version."""

    applied: tuple[tuple[int, str, str], ...] = ()
    declarations: str | None = None
    extension: str | None = None


def shipped(migrations: Path | None = None, functions: Path | None = None) -> Shipped:
    """Read the migrations and declarations from two folders, by default those of the product.

    >>> shipped().migrations[0].name
    '0001_baseline'
    """
    folder = migrations or resource_folder("migrations")
    paths = sorted(folder.iterdir())
    numbered = [(match, path) for path in paths if (match := _FILE_NAME.fullmatch(path.name))]
    declaring = sorted((functions or resource_folder("sql") / "functions").glob("*.sql"))
    return Shipped(
        tuple(Migration(int(match[1]), path.stem, _text(path)) for match, path in numbered),
        "\n".join(map(_text, declaring)),
        _text(module) if (module := folder / "module.sql").exists() else "",
    )


def migrate(connection: Connection[Any], wanted: Shipped | None = None) -> list[str]:
    """Apply everything that the database lacks in one transaction. Return the names of the applied
    migrations.

    The connection must be idle and in autocommit mode. Write nothing if nothing is missing.
    """
    version = connection.info.server_version
    if version < OLDEST_SERVER * 10_000:
        raise MigrationError(
            f"The server is PostgreSQL {_shown_version(version)}, and idivm needs "
            f"{OLDEST_SERVER} or newer: upgrade the server or connect to another."
        )
    wanted = wanted or shipped()
    try:
        catalog = _read(connection)
    except UndefinedTable:
        catalog = _Catalog()
    except InsufficientPrivilege as error:
        raise _unreadable(connection) from error
    if _is_current(catalog, wanted):
        return []
    with _prepared(connection):
        # Another program may have applied everything while this one waited for the lock.
        catalog = _read(connection) if _has_catalog(connection) else _Catalog()
        if _is_current(catalog, wanted):
            return []
        _refuse_read_only(connection)
        missing = _missing(catalog, wanted.migrations)
        try:
            if catalog.extension is not None and missing:
                _update_extension(connection, catalog.extension, missing)
                catalog = _read(connection)
            if not _is_current(catalog, wanted):
                _apply(connection, catalog, wanted)
        except InsufficientPrivilege as error:
            lacks = (
                f"lacks migration {missing[0].name}"
                if missing
                else "has functions of another version"
            )
            raise MigrationError(
                f"The catalog of idivm in this database {lacks}, which "
                f"this role may not change ({error.diag.message_primary}): connect once as the "
                "owner of schema idivm to bring it up to date."
            ) from error
        row = connection.execute("SELECT to_regproc('idivm.create_pending') IS NOT NULL").fetchone()
        if row is not None and row[0]:
            # The functions of each log are generated from a text that may have changed.
            connection.execute("SELECT idivm.create_pending(id) FROM idivm.sources")
    return [migration.name for migration in missing]


def take_module(connection: Connection[Any]) -> None:
    """Install the C forms if the server has them, this role may, and the setting allows it. Else install the
    SQL forms.
    """
    with _prepared(connection):
        row = connection.execute(_NEEDS_SQL_FORMS).fetchone()
        wanted = shipped()
        if row is not None and row[0]:
            _declare(connection, wanted)
        else:
            _execute(connection, wanted.module)


_NEEDS_SQL_FORMS = """
    SELECT EXISTS (SELECT FROM idivm.declarations d, unnest(d.routines) AS r WHERE to_regprocedure(r) IS NULL)
        OR current_setting('idivm.accelerate', true) IS NOT DISTINCT FROM 'off' AND EXISTS (
            SELECT FROM idivm.declarations d, unnest(d.routines) AS r
            JOIN pg_proc p ON p.oid = to_regprocedure(r) JOIN pg_language l ON l.oid = p.prolang
            WHERE l.lanname = 'c')
"""


def drop_module(connection: Connection[Any]) -> None:
    """Drop the C functions that no SQL form replaces, if the setting refuses them and nothing calls them.

    pg_upgrade checks that the new server has the module of every function in C.
    """
    with _prepared(connection):
        for function, of_extension in connection.execute(_DROPPABLE).fetchall():
            # PostgreSQL itself wrote the name.
            name = sql.SQL(function)
            if of_extension:
                connection.execute(sql.SQL("ALTER EXTENSION idivm DROP FUNCTION {}").format(name))
            connection.execute(sql.SQL("DROP FUNCTION {}").format(name))


_DROPPABLE = """
    SELECT p.oid::regprocedure::text, EXISTS (
               SELECT FROM pg_depend d
               WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e')
    FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
    WHERE p.pronamespace = 'idivm'::regnamespace AND l.lanname = 'c' AND pg_has_role(p.proowner, 'USAGE')
      AND current_setting('idivm.accelerate', true) IS NOT DISTINCT FROM 'off'
      AND NOT EXISTS (
          SELECT FROM pg_depend d
          WHERE d.refclassid = 'pg_proc'::regclass AND d.refobjid = p.oid AND d.deptype = 'n')
"""


def _is_current(catalog: _Catalog, wanted: Shipped) -> bool:
    missing = _missing(catalog, wanted.migrations)
    return not missing and catalog.declarations == checksum(wanted.declarations)


def _has_catalog(connection: Connection[Any]) -> bool:
    """Return whether the database has a catalog. Refuse a catalog from before there were declarations."""
    row = connection.execute(
        "SELECT to_regclass('idivm.migrations') IS NOT NULL, to_regclass('idivm.declarations') IS NOT NULL"
    ).fetchone()
    assert row is not None
    if row[0] and not row[1]:
        raise MigrationError(
            "The catalog in this database was made by a version of idivm from before its first "
            "release, which this version cannot take over: note the queries of your views "
            "(SELECT name, query, options FROM idivm.views), drop the schemas idivm, idivm_def, "
            "idivm_feed, idivm_log, idivm_state and idivm_load with CASCADE, which drops the views as well, and "
            "create the views again."
        )
    return bool(row[0])


def _apply(connection: Connection[Any], catalog: _Catalog, wanted: Shipped) -> None:
    if not catalog.applied:
        _bootstrap(connection)
    for migration in _missing(catalog, wanted.migrations):
        _run(connection, migration)
    _declare(connection, wanted)


def _declare(connection: Connection[Any], wanted: Shipped) -> None:
    # Functions may name others that a later file declares.
    connection.execute("SET LOCAL check_function_bodies = off")
    _execute(connection, wanted.declarations)
    _execute(connection, _text(resource_folder("migrations") / "declared.sql"))
    connection.execute(
        "UPDATE idivm.declarations SET checksum = %s", [checksum(wanted.declarations)]
    )
    _execute(connection, wanted.module)


def _execute(connection: Connection[Any], text: str) -> None:
    if text:
        connection.execute(text.encode(connection.info.encoding))


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _read(connection: Connection[Any]) -> _Catalog:
    row = connection.execute(_APPLIED).fetchone()
    assert row is not None
    return _Catalog(tuple((int(number), *rest) for number, *rest in row[0]), row[1], row[2])


def _missing(catalog: _Catalog, shipped: Sequence[Migration]) -> list[Migration]:
    """Return the migrations to apply. Check first that the applied migrations are known to the program."""
    for number, name, _ in catalog.applied[len(shipped) :]:
        raise MigrationError(
            f"The database has migration {name}, and this idivm knows none after {len(shipped)}: "
            f"a newer version prepared the database for {number}, so upgrade idivm "
            "(pip install --upgrade idivm)."
        )
    for (number, name, applied_checksum), migration in zip(catalog.applied, shipped, strict=False):
        if number != migration.number or applied_checksum != checksum(migration.text):
            raise MigrationError(
                f"Migration {migration.name} was edited after {name} was applied to this "
                "database. If another version of idivm prepared the database before the first release, run "
                "idivm release for each view with that version, drop the schemas idivm, idivm_def, idivm_log "
                "and idivm_state with CASCADE, and adopt the views again. If you edited the file, give it its "
                "old content back, and make the change in a new migration."
            )
    return list(shipped[len(catalog.applied) :])


@contextmanager
def _prepared(connection: Connection[Any]) -> Iterator[None]:
    """Wait for other sessions that migrate, and run a block in a transaction whose queries read their result."""
    is_nested = connection.info.transaction_status != TransactionStatus.IDLE
    with connection.transaction():
        if not is_nested:
            # A fixed snapshot would be older than the wait for the lock.
            connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        # As in the script of an extension: no user's object may replace an object of PostgreSQL.
        connection.execute("SET LOCAL search_path = pg_catalog, pg_temp")
        before = connection.execute(
            "SELECT current_setting('client_min_messages'), current_setting('check_function_bodies')"
        ).fetchone()
        connection.execute("SET LOCAL client_min_messages = warning")
        connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        yield
        if is_nested:
            # The end of a savepoint restores no setting.
            connection.execute(
                "SELECT set_config('client_min_messages', %s, true),"
                " set_config('check_function_bodies', %s, true)",
                before,
            )


def _bootstrap(connection: Connection[Any]) -> None:
    try:
        with connection.transaction():
            _execute(connection, _text(resource_folder("migrations") / "bootstrap.sql"))
    except DuplicateSchema as error:
        raise MigrationError(
            "The schema idivm exists already and does not hold idivm's catalog: rename it "
            "(ALTER SCHEMA idivm RENAME TO ...) or drop it."
        ) from error
    except InsufficientPrivilege as error:
        grant = sql.SQL("GRANT CREATE ON DATABASE {} TO {}").format(
            sql.Identifier(connection.info.dbname), sql.Identifier(_role(connection))
        )
        raise MigrationError(
            f"Role {_role(connection)} may not create schemas in this database, where idivm keeps "
            f"its catalog: let the database's owner run {grant.as_string(connection)}."
        ) from error


def _run(connection: Connection[Any], migration: Migration) -> None:
    _execute(connection, migration.text)
    connection.execute(
        "INSERT INTO idivm.migrations (number, name, checksum) VALUES (%s, %s, %s)",
        [migration.number, migration.name, checksum(migration.text)],
    )


def _update_extension(
    connection: Connection[Any], installed: str, missing: Sequence[Migration]
) -> None:
    wanted = str(missing[-1].number)
    path = connection.execute(
        "SELECT FROM pg_available_extension_versions v,"
        " pg_extension_update_paths(v.name) p WHERE v.name = 'idivm' AND v.version = %s"
        " AND p.source = %s AND p.target = v.version AND p.path IS NOT NULL",
        [wanted, installed],
    ).fetchone()
    if path is None:
        raise MigrationError(
            f"The extension idivm in this database is at version {installed}, this program "
            f"needs {wanted}, and the server has no files for it: install them there "
            "(make -C pg_extension install), then run ALTER EXTENSION idivm UPDATE."
        )
    try:
        connection.execute(
            sql.SQL("ALTER EXTENSION idivm UPDATE TO {}").format(sql.Literal(wanted))
        )
    except InsufficientPrivilege as error:
        raise MigrationError(
            f"The extension idivm in this database is at version {installed} and this program "
            f"needs {wanted}: let its owner run ALTER EXTENSION idivm UPDATE TO '{wanted}'."
        ) from error


def _refuse_read_only(connection: Connection[Any]) -> None:
    row = connection.execute("SHOW transaction_read_only").fetchone()
    if row == ("on",):
        raise MigrationError(
            "The catalog of idivm in this database is missing or older than this program, and the "
            "server takes no changes here (a standby, or a read-only session): connect once to "
            "the primary, for writing."
        )


def _unreadable(connection: Connection[Any]) -> MigrationError:
    role = sql.Identifier(_role(connection))
    grants = sql.SQL(
        "GRANT USAGE ON SCHEMA idivm TO {0}; GRANT SELECT ON ALL TABLES IN SCHEMA idivm TO {0}"
    ).format(role)
    return MigrationError(
        f"Role {_role(connection)} may not read idivm's catalog in this database: let the owner of "
        f"schema idivm run {grants.as_string(connection)}."
    )


def _role(connection: Connection[Any]) -> str:
    row = connection.execute("SELECT current_user").fetchone()
    assert row is not None
    return str(row[0])


def _shown_version(version: int) -> str:
    if version >= 100_000:
        return f"{version // 10_000}.{version % 10_000}"
    return f"{version // 10_000}.{version // 100 % 100}"
