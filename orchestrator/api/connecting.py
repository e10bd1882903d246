"""Connection strings, and connections to databases whose catalog is ready."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import Connection
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from orchestrator import catalog
from orchestrator.catalog.search_path import PIN, pinned
from orchestrator.errors import ServerError, UsageError
from orchestrator.runtime import migrate
from orchestrator.runtime.errors import explained, unreachable
from orchestrator.runtime.installation import sources
from orchestrator.runtime.sessions import borrowed, open_session

if TYPE_CHECKING:
    from orchestrator.server import EmbeddedServer


def dsn_of(database: Any) -> str:
    """Return the connection string of a database, given as a string or as a URL or engine of SQLAlchemy.

    >>> dsn_of("postgresql+psycopg2://me@here/db?connect_timeout=3")
    'postgresql://me@here/db?connect_timeout=3'
    """
    url = getattr(database, "url", database)
    text = url if isinstance(url, str) else url.render_as_string(hide_password=False)
    scheme, mark, rest = text.partition("://")
    kind, plus, _ = scheme.partition("+")
    if mark and kind not in ("postgresql", "postgres"):
        raise UsageError(f"idivm cannot connect to a database of {kind}: it needs PostgreSQL.")
    return f"{kind}://{rest}" if plus else text


def named_dsn() -> str | None:
    """Return the connection string from the environment."""
    return os.environ.get("IDIVM_DSN") or os.environ.get("DATABASE_URL") or None


def default_dsn() -> str:
    """Return the connection string from the environment, or else of the embedded server."""
    if named := named_dsn():
        return named
    from orchestrator.server import embedded_dsn

    return embedded_dsn()


def open_database(dsn: str) -> Connection[Any]:
    """Open a connection, and install or upgrade the catalog of its database."""
    try:
        conninfo_to_dict(dsn)
    except psycopg.Error:
        # The message of the parser quotes the text, which may contain a password.
        raise UsageError(
            "Cannot read the connection string. Write it as postgresql://user@host/database or as"
            " host=... dbname=... user=..., with special characters escaped."
        ) from None
    try:
        connection = open_session(dsn)
    except psycopg.Error as error:
        raise ServerError(
            f"Cannot connect to PostgreSQL: {unreachable(error)}. Check --dsn, IDIVM_DSN or DATABASE_URL."
        ) from error
    try:
        prepare_catalog(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def prepare_catalog(connection: Connection[Any]) -> None:
    """Install or upgrade the catalog of a connection's database."""
    with explained("Preparing the database"), borrowed(connection), pinned(connection):
        migrate.migrate(connection)


def accelerate(server: EmbeddedServer, database: str | None = None) -> None:
    """Build the C modules for an embedded server, and use them in its database or in the named database."""
    server.add_module()
    endpoint = server.up()
    with open_database(make_conninfo(endpoint.dsn, dbname=database)) as connection:
        as_superuser = make_conninfo(endpoint.superuser_dsn, dbname=database)
        with open_session(as_superuser) as superuser:
            superuser.execute(PIN)
            migrate.take_module(superuser)
        with explained("Changing capture"), pinned(connection):
            if not catalog.captures_in_c(connection):
                raise ServerError(
                    "The server cannot use the C modules. Run idivm down and then this command again, and "
                    "check that the setting idivm.accelerate is not off."
                )
            sources.switch_form(connection)
