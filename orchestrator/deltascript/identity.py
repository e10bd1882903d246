"""How PostgreSQL tells the rows of idivm's tables apart where a publication takes these in."""

from __future__ import annotations

from psycopg.sql import SQL, Composable, Composed, Identifier


def identify_rows(table: Composable) -> Composed:
    """Lets rows of a table without a primary key change while a publication of all tables takes it in."""
    return SQL("ALTER TABLE {} REPLICA IDENTITY FULL").format(table)


def add_key(table: Composable, *columns: str) -> Composed:
    """Gives a table its primary key, by which its rows are identified from now on."""
    return SQL("ALTER TABLE {} ADD PRIMARY KEY ({}), REPLICA IDENTITY DEFAULT").format(
        table, SQL(", ").join(map(Identifier, columns))
    )
