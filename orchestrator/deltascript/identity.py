"""How PostgreSQL identifies the rows of idivm's tables if a publication includes them."""

from __future__ import annotations

from psycopg.sql import SQL, Composable, Composed, Identifier


def identify_rows(table: Composable) -> Composed:
    """Return the statement that allows updates of a table without primary key in a publication of
    all tables.
    """
    return SQL("ALTER TABLE {} REPLICA IDENTITY FULL").format(table)


def add_key(table: Composable, *columns: str) -> Composed:
    """Return the statement that adds a primary key, which then identifies the rows."""
    return SQL("ALTER TABLE {} ADD PRIMARY KEY ({}), REPLICA IDENTITY DEFAULT").format(
        table, SQL(", ").join(map(Identifier, columns))
    )
