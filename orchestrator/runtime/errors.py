"""Turns what PostgreSQL and psycopg raise into a sentence for the user."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from orchestrator.errors import DatabaseError, IdivmError, ServerError


@contextmanager
def explained(doing: str) -> Iterator[None]:
    """Raises errors of the database as an `IdivmError` that says what was being done."""
    try:
        yield
    except IdivmError:
        raise
    except psycopg.Error as error:
        raise explain(error, doing) from error


def explain(error: psycopg.Error, doing: str) -> IdivmError:
    """The sentence for an error of the database."""
    primary = error.diag.message_primary
    if primary is None:
        lost = str(error).strip().splitlines()
        return ServerError(
            f"{doing}: the connection to PostgreSQL was lost ({lost[0] if lost else 'no reason given'});"
            " whatever was not committed is undone, so try again."
        )
    parts = [f"{doing}: {primary}"]
    if error.diag.message_detail:
        parts.append(error.diag.message_detail)
    if error.diag.message_hint:
        parts.append(error.diag.message_hint)
    return DatabaseError(". ".join(part.rstrip(".") for part in parts) + ".")
