"""A database with three roles: the owner of the catalog and of views, an attacker, and a writer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.sql import SQL, Identifier

import orchestrator
from orchestrator.api import Orchestrator


@dataclass
class Scene:
    """Connections of the roles, and what the attacker's code was run as."""

    admin: psycopg.Connection[Any]
    orc: Orchestrator
    """Of the owner of the catalog, who creates the views."""
    mallory: psycopg.Connection[Any]
    owner: str
    attacker: str

    def caught(self) -> set[str]:
        """The roles that the attacker's code was run as, but for the attacker."""
        rows = self.admin.execute(
            "SELECT sequencename FROM pg_sequences WHERE schemaname = 'mallory' AND last_value IS NOT NULL"
        ).fetchall()
        return {row[0] for row in rows} - {self.attacker}

    def as_mallory(self, statements: str) -> None:
        """Runs statements of the attacker."""
        self.mallory.execute(statements.encode())


@contextmanager
def set_scene(plain_dsn: str, *, superuser: bool = False) -> Iterator[Scene]:
    """The owner, or else a superuser, has tables and a catalog; the attacker a schema, and a function that tells its caller.

    It tells by a sequence for each role, which no rollback takes back.
    """
    with psycopg.connect(plain_dsn, autocommit=True) as admin:
        database = admin.info.dbname
        owner, attacker = f"owner_{database}", f"mallory_{database}"
        for role in (owner, attacker):
            admin.execute(SQL("CREATE ROLE {} LOGIN").format(Identifier(role)))
        try:
            admin.execute(
                SQL("ALTER DATABASE {} OWNER TO {}").format(Identifier(database), Identifier(owner))
            )
            admin.execute(
                SQL("CREATE SCHEMA mallory AUTHORIZATION {}").format(Identifier(attacker))
            )
            admin.execute(SQL("GRANT ALL ON SCHEMA public TO {}").format(Identifier(owner)))
            as_owner = plain_dsn if superuser else make_conninfo(plain_dsn, user=owner)
            with (
                psycopg.connect(
                    make_conninfo(plain_dsn, user=attacker), autocommit=True
                ) as mallory,
                orchestrator.connect(as_owner) as orc,
            ):
                mallory.execute(SET_UP)
                for role in (owner, attacker, "postgres"):
                    mallory.execute(
                        SQL(
                            "CREATE SEQUENCE mallory.{0}; GRANT ALL ON SEQUENCE mallory.{0} TO PUBLIC"
                        ).format(Identifier(role))
                    )
                orc.execute(
                    f"""
                    CREATE TABLE t (id int PRIMARY KEY, k text, n int);
                    INSERT INTO t SELECT i, chr(97 + i % 3), i FROM generate_series(1, 9) AS i;
                    CREATE TABLE secret (id int PRIMARY KEY, word text, number int);
                    INSERT INTO secret VALUES (1, 'x', 1);
                    GRANT SELECT ON t TO {attacker}
                    """
                )
                yield Scene(admin, orc, mallory, orc.connection.info.user, attacker)
        finally:
            admin.execute(
                SQL(
                    "REASSIGN OWNED BY {0}, {1} TO postgres; DROP OWNED BY {0}, {1} CASCADE"
                ).format(Identifier(owner), Identifier(attacker))
            )
            admin.execute(SQL("DROP ROLE {}, {}").format(Identifier(owner), Identifier(attacker)))


SET_UP = """
    GRANT USAGE ON SCHEMA mallory TO PUBLIC;
    -- Immutable functions are called by the planner, too: these lie about what they are.
    CREATE FUNCTION mallory.trap() RETURNS void LANGUAGE plpgsql IMMUTABLE AS
    $$ BEGIN PERFORM pg_catalog.nextval(pg_catalog.format('mallory.%I', current_user)); END $$;
    CREATE FUNCTION mallory.f(n int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
    $$ BEGIN PERFORM mallory.trap(); RETURN n; END $$;
    CREATE FUNCTION mallory.ok(n int) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS
    $$ BEGIN PERFORM mallory.trap(); RETURN true; END $$;
    CREATE TABLE mallory.m (id int PRIMARY KEY, n int);
    INSERT INTO mallory.m SELECT i, i FROM generate_series(1, 5) AS i;
    GRANT SELECT, TRIGGER ON ALL TABLES IN SCHEMA mallory TO PUBLIC;
    ALTER DEFAULT PRIVILEGES IN SCHEMA mallory GRANT SELECT, TRIGGER ON TABLES TO PUBLIC;
"""
