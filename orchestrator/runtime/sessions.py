"""Opens idivm's own database sessions."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import Connection


def open_session(
    dsn: str, *, autocommit: bool = True, application_name: str = "idivm"
) -> Connection[Any]:
    """Connect in UTF-8, whatever the encoding of the database and of the user's clients.

    The server translates. A database in SQL_ASCII passes bytes through, which we then take for UTF-8, as psycopg
    gives no text there otherwise.
    """
    return psycopg.connect(
        dsn, autocommit=autocommit, application_name=application_name, client_encoding="UTF8"
    )
