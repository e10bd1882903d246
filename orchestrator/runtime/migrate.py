"""Brings idivm's catalog in a database up to date, from the files in `migrations/`.

A database that has idivm as an extension is brought up to date by the extension's own update
scripts, which are built from the same files and leave the same record in `idivm.migrations`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psycopg import Connection, sql
from psycopg.errors import DuplicateSchema, InsufficientPrivilege, UndefinedTable

from orchestrator.errors import MigrationError
from orchestrator.resources import resource_folder
from orchestrator.sqltext import checksum

OLDEST_SERVER = 15

_LOCK = 5_135_427_188_730_551_917
"""The advisory lock of whoever changes the catalog; any number that others do not use."""

_FILE_NAME = re.compile(r"(\d{4})_\w+\.sql")

_OTHER_TEXTS = {20: "97a6afacf6d55bc8d855b7761d86d05f5e9c6d8a4b727f96081050fcd572bf9f"}
"""Checksums of other texts that a migration once had; what they made otherwise is made anew by later ones."""

_APPLIED = """
    SELECT m.number, m.name, m.checksum, e.extversion
    FROM idivm.migrations m
    LEFT JOIN pg_catalog.pg_extension e ON e.extname = 'idivm'
    ORDER BY m.number
"""


@dataclass(frozen=True)
class Migration:
    """One file of `migrations/`."""

    number: int
    name: str
    text: str


@dataclass(frozen=True)
class _Catalog:
    """What a database has: its migrations with their checksums, and the extension's version."""

    applied: tuple[tuple[int, str, str], ...]
    extension: str | None


def shipped_migrations(folder: Path | None = None) -> list[Migration]:
    """The migrations that this program knows, in order.

    >>> shipped_migrations()[0].name
    '0001_catalog'
    """
    paths = sorted((folder or resource_folder("migrations")).iterdir())
    found = [(match, path) for path in paths if (match := _FILE_NAME.fullmatch(path.name))]
    return [
        Migration(int(match[1]), path.stem, path.read_text(encoding="utf-8"))
        for match, path in found
    ]


def migrate(connection: Connection[Any], folder: Path | None = None) -> list[str]:
    """Applies the migrations that the database lacks, each in one transaction, and names them.

    Takes an idle connection in autocommit mode. Nothing is written when nothing is missing.
    """
    version = connection.info.server_version
    if version < OLDEST_SERVER * 10_000:
        raise MigrationError(
            f"The server is PostgreSQL {_shown_version(version)}, and idivm needs "
            f"{OLDEST_SERVER} or newer: upgrade the server or connect to another."
        )
    shipped = shipped_migrations(folder)
    try:
        catalog = _read(connection)
    except UndefinedTable:
        catalog = _Catalog((), None)
    except InsufficientPrivilege as error:
        raise _unreadable(connection) from error
    missing = _missing(catalog, shipped)
    if not missing:
        return []
    if catalog.extension is not None:
        applied = _update_extension(connection, catalog.extension, missing)
    else:
        applied = []
        while migration := _apply_next(connection, shipped, folder):
            applied.append(migration.name)
        take_module(connection)
    _bring_up_functions(connection)
    return applied


def take_module(connection: Connection[Any]) -> None:
    """Makes known what is in C, if the server has it and this role may."""
    path = resource_folder("migrations") / "module.sql"
    with connection.transaction():
        _prepare(connection)
        connection.execute(_encoded(connection, path.read_text(encoding="utf-8")))


def _bring_up_functions(connection: Connection[Any]) -> None:
    """Makes the function of each log anew, which a migration may have another text for."""
    with connection.transaction():
        _prepare(connection)
        row = connection.execute("SELECT to_regproc('idivm.create_due') IS NOT NULL").fetchone()
        if row is not None and row[0]:
            connection.execute("SELECT idivm.create_due(id) FROM idivm.sources")


def _read(connection: Connection[Any]) -> _Catalog:
    rows = connection.execute(_APPLIED).fetchall()
    return _Catalog(tuple(row[:3] for row in rows), rows[0][3] if rows else None)


def _missing(catalog: _Catalog, shipped: Sequence[Migration]) -> list[Migration]:
    """What is to be applied, after a check that what was applied is what the program knows."""
    for number, name, _ in catalog.applied[len(shipped) :]:
        raise MigrationError(
            f"The database has migration {name}, and this idivm knows none after {len(shipped)}: "
            f"a newer version prepared the database for {number}, so upgrade idivm "
            "(pip install --upgrade idivm)."
        )
    for (number, name, applied_checksum), migration in zip(catalog.applied, shipped, strict=False):
        texts = (checksum(migration.text), _OTHER_TEXTS.get(number))
        if number != migration.number or applied_checksum not in texts:
            raise MigrationError(
                f"Migration {migration.name} was edited after {name} was applied to this "
                "database: give the file its old content back, and make the change in a new "
                "migration."
            )
    return list(shipped[len(catalog.applied) :])


def _apply_next(
    connection: Connection[Any], shipped: Sequence[Migration], folder: Path | None
) -> Migration | None:
    with connection.transaction():
        _prepare(connection)
        row = connection.execute("SELECT to_regclass('idivm.migrations') IS NOT NULL").fetchone()
        is_there = row is not None and row[0]
        missing = _missing(_read(connection) if is_there else _Catalog((), None), shipped)
        if not missing:
            return None
        _refuse_read_only(connection)
        if not is_there:
            _bootstrap(connection, folder)
        try:
            _run(connection, missing[0])
        except InsufficientPrivilege as error:
            raise MigrationError(
                f"The catalog of idivm in this database lacks migration {missing[0].name}, which "
                f"this role may not apply ({error.diag.message_primary}): connect once as the "
                "owner of schema idivm to bring it up to date."
            ) from error
        return missing[0]


def _prepare(connection: Connection[Any]) -> None:
    """Waits for others that migrate; what is read afterwards is what they left."""
    # A fixed snapshot would be older than the wait for the lock.
    connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
    # As in the script of an extension: nobody's objects stand in for PostgreSQL's own.
    connection.execute("SET LOCAL search_path = pg_catalog, pg_temp")
    connection.execute("SET LOCAL client_min_messages = warning")
    connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])


def _bootstrap(connection: Connection[Any], folder: Path | None) -> None:
    path = (folder or resource_folder("migrations")) / "bootstrap.sql"
    try:
        with connection.transaction():
            connection.execute(_encoded(connection, path.read_text(encoding="utf-8")))
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
    connection.execute(_encoded(connection, migration.text))
    connection.execute(
        "INSERT INTO idivm.migrations (number, name, checksum) VALUES (%s, %s, %s)",
        [migration.number, migration.name, checksum(migration.text)],
    )


def _update_extension(
    connection: Connection[Any], installed: str, missing: Sequence[Migration]
) -> list[str]:
    wanted = str(missing[-1].number)
    _refuse_read_only(connection)
    try:
        with connection.transaction():
            _prepare(connection)
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
            connection.execute(
                sql.SQL("ALTER EXTENSION idivm UPDATE TO {}").format(sql.Literal(wanted))
            )
    except InsufficientPrivilege as error:
        raise MigrationError(
            f"The extension idivm in this database is at version {installed} and this program "
            f"needs {wanted}: let its owner run ALTER EXTENSION idivm UPDATE TO '{wanted}'."
        ) from error
    return [migration.name for migration in missing]


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


def _encoded(connection: Connection[Any], text: str) -> bytes:
    return text.encode(connection.info.encoding)


def _shown_version(version: int) -> str:
    if version >= 100_000:
        return f"{version // 10_000}.{version % 10_000}"
    return f"{version // 10_000}.{version // 100 % 100}"
