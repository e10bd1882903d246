"""Turn errors of PostgreSQL and psycopg into sentences for the user."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

import psycopg
from psycopg.errors import (
    DependentObjectsStillExist,
    Diagnostic,
    QueryCanceled,
    UndefinedFunction,
    UndefinedObject,
    UndefinedTable,
)

from orchestrator.errors import CancelledError, DatabaseError, IdivmError, ServerError


@contextmanager
def explained(
    doing: str,
    text: str = "",
    ahead: int = 0,
    names: Mapping[str, str] = MappingProxyType({}),
    leaving: type[psycopg.Error] | tuple[type[psycopg.Error], ...] = (),
) -> Iterator[None]:
    """Raise errors of the database as an `IdivmError` that names the failed action.

    `text` is the user's part of the statement, and `ahead` the number of characters before it. `names` gives
    the user's names for the objects behind views. Errors of the kinds in `leaving` pass unchanged.
    """
    try:
        yield
    except IdivmError:
        raise
    except psycopg.Error as error:
        if isinstance(error, leaving):
            raise
        raise explain(error, doing, text, ahead, names) from error


def explain(
    error: psycopg.Error,
    doing: str,
    text: str = "",
    ahead: int = 0,
    names: Mapping[str, str] = MappingProxyType({}),
) -> IdivmError:
    """Return the sentence for an error of the database."""
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
        detail = _dependents(detail, names)
    primary, detail = users_words(primary, names), users_words(detail, names)
    place = position(text, int(error.diag.statement_position or 0) - ahead)
    hint = error.diag.message_hint or unqualified(error) or ""
    parts = [f"{doing}: {primary}{place}", detail, hint]
    sentence = ". ".join(_one_line(part).rstrip(".") for part in parts if part)
    kind = CancelledError if isinstance(error, QueryCanceled) else DatabaseError
    return kind(f"{sentence}.")


def unqualified(error: psycopg.Error) -> str | None:
    """Return a hint if the body of a user's function uses a name without its schema."""
    if not isinstance(error, UndefinedTable | UndefinedFunction | UndefinedObject):
        return None
    called = re.match(r'(?:PL/pgSQL|SQL) function "?([^\s"(]+)', error.diag.context or "")
    if called is None or called[1].startswith("idivm"):
        return None
    return (
        f"The function {called[1]} is called with search_path = pg_catalog, pg_temp: write schema.name in its"
        f" body, or run ALTER FUNCTION {called[1]} SET search_path TO the schema of its tables"
    )


def position(text: str, place: int) -> str:
    """Return where PostgreSQL found an error in the user's text. `place` counts characters from 1.

    >>> position("SELECT a\\nFROM t WHRE b", 17)
    " (line 2, column 8, at 'WHRE b')"
    """
    if not 0 < place <= len(text):
        return ""
    before, rest = text[: place - 1], text[place - 1 :]
    line, column = before.count("\n") + 1, len(before.rpartition("\n")[2]) + 1
    excerpt = rest.partition("\n")[0].rstrip()
    excerpt = excerpt if len(excerpt) <= 30 else f"{excerpt[:27]}..."
    return f" (line {line}, column {column}, at '{excerpt}')"


def users_words(message: str, names: Mapping[str, str]) -> str:
    """Replace the names of objects behind views by the user's names in a message of PostgreSQL.

    >>> users_words("drop cascades to view idivm_def.v10", {"idivm_def.v10": "totals"})
    'drop cascades to view totals'
    """
    return re.sub(
        r"\bidivm_(?:def|state)\.\w+", lambda match: names.get(match[0], match[0]), message
    )


def cascades(diagnostic: Diagnostic, names: Mapping[str, str]) -> list[str]:
    """Return the lines of a notice. For a DROP ... CASCADE, return one line for each object that the user knows."""
    primary = diagnostic.message_primary or ""
    if not primary.startswith("drop cascades to "):
        return [primary]
    lines = (diagnostic.message_detail or primary).splitlines()
    named = [users_words(line, names) for line in lines]
    return list(
        dict.fromkeys(line for line in named if not re.search(r"\bidivm_(def|log|state)\.", line))
    )


def unreachable(error: psycopg.Error) -> str:
    """Return why a connection failed: each server tried, with its reason."""
    reasons = [
        re.sub(r"^(- host: .*?: )?(connection (failed|is bad): )?", "", line.strip()).rstrip(".")
        for line in str(error).splitlines()
        if not re.match(r"\s*(Is the server running|Multiple connection attempts|$)", line)
    ]
    return "; ".join(dict.fromkeys(reasons)) or "no reason given"


def _dependents(detail: str, names: Mapping[str, str]) -> str:
    """Return what depends on an object, in terms of the user's views.

    >>> _dependents('''view idivm_def.v1 depends on table t
    ... view v depends on type idivm_def.v1''', {})
    'view v depends on it'
    >>> _dependents("view idivm_def.s3 depends on table t", {"idivm_def.s3": "a, b"})
    'maintained view a, b depends on it'
    """
    objects = re.findall(r"^(\S.*?) depends on ", detail, re.MULTILINE)
    ours = [
        match for item in objects if (match := re.search(r"\bidivm_(def|log|state)\.\w+", item))
    ]
    dependents = [item for item in objects if not re.search(r"\bidivm_(def|log|state)\.", item)]
    if not dependents:
        dependents = [
            f"maintained view {names[name]}"
            for name in dict.fromkeys(our[0] for our in ours)
            if name in names
        ]
    if not dependents:
        return detail
    dependents = list(dict.fromkeys(dependents))
    return f"{', '.join(dependents)} {'depends' if len(dependents) == 1 else 'depend'} on it"


def _one_line(text: str) -> str:
    return "; ".join(line.strip() for line in text.strip().splitlines() if line.strip())
