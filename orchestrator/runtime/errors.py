"""Turns what PostgreSQL and psycopg raise into a sentence for the user."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg.errors import DependentObjectsStillExist

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
        reason = _one_line(str(error)) or "no reason given"
        if isinstance(error, psycopg.OperationalError):
            return ServerError(
                f"{doing}: the connection to PostgreSQL was lost ({reason});"
                " whatever was not committed is undone, so try again."
            )
        return DatabaseError(f"{doing}: {reason}.")
    detail = error.diag.message_detail or ""
    if isinstance(error, DependentObjectsStillExist):
        detail = _dependents(detail)
    parts = [f"{doing}: {primary}", detail, error.diag.message_hint or ""]
    sentence = ". ".join(_one_line(part).rstrip(".") for part in parts if part)
    return DatabaseError(f"{sentence}.")


def _dependents(detail: str) -> str:
    """What depends on an object, without the objects behind maintained views.

    >>> _dependents('''view idivm_def.v1 depends on table t
    ... view v depends on type idivm_def.v1''')
    'view v depends on it'
    """
    names = re.findall(r"^(\S.*?) depends on ", detail, re.MULTILINE)
    shown = [name for name in names if not re.search(r"\bidivm_(def|log|state)\.", name)]
    if not shown:
        return detail
    return f"{', '.join(shown)} {'depends' if len(shown) == 1 else 'depend'} on it"


def _one_line(text: str) -> str:
    return "; ".join(line.strip() for line in text.strip().splitlines() if line.strip())
