"""What PostgreSQL refuses in a COPY, in the words of the user: the row, the columns, the reason and the values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import psycopg
from psycopg.errors import CheckViolation

from orchestrator.catalog.loads import Rejected

if TYPE_CHECKING:
    from orchestrator.spark.loading.copying import CopyTask

_NULL_CHARACTER = 'invalid byte sequence for encoding "UTF8": 0x00'


def line_of(error: psycopg.Error, load: int) -> int | None:
    """Return the line at which a COPY failed, independent of the server's language."""
    # Errors in JSON values put other lines before it.
    match = re.search(rf"^COPY l{load}\D+(\d+)", error.diag.context or "", re.MULTILINE)
    return int(match[1]) if match else None


def rejected(
    error: psycopg.Error,
    position: int,
    content: str,
    task: CopyTask,
    values: Sequence[str | None] = (),
) -> Rejected:
    """Return the row that a COPY refused; `values` are its values in the order of the columns, if known."""
    context = r"^COPY l\d+\D+\d+, \S+ (.+?)(?:: (\".*\"))?$"
    match = re.search(context, error.diag.context or "", re.MULTILINE | re.DOTALL)
    column = error.diag.column_name or (match[1] if match else None)
    reason = error.diag.message_primary or str(error)
    if column in task.columns:
        value = match[2] if match else None
        if value and value not in reason:
            reason = f"{reason}: {value}"
        return Rejected(position, column, _in_users_words(reason, task), content)
    reason = _in_users_words(reason, task)
    by_name = dict(zip(task.columns, values or fields(content), strict=False))
    if len(by_name) < len(task.columns):
        by_name = {}
    if isinstance(error, CheckViolation):
        named = task.checks.get(error.diag.constraint_name or "", ())
        names = [name for name in named if name in task.columns]
        if names and by_name:
            texts = ("NULL" if by_name[name] is None else by_name[name] for name in names)
            reason = f"{reason}: ({', '.join(map(str, texts))})"
    else:
        names = [name for name, value in by_name.items() if value and "\0" in value][:1]
    return Rejected(position, ", ".join(names) or None, reason, content)


def null_character(task: CopyTask, position: int, content: str) -> Rejected:
    """Return a row, in COPY's text format, with the character 0, which PostgreSQL's texts cannot hold."""
    pairs = zip(task.columns, fields(content), strict=False)
    column = next((name for name, value in pairs if value and "\0" in value), None)
    return Rejected(position, column, _NULL_CHARACTER, content)


def fields(content: str) -> list[str | None]:
    r"""Return the fields of a row in COPY's text format.

    >>> fields("1\t\\N\tx")
    ['1', None, 'x']
    """
    return [None if value == "\\N" else value for value in content.split("\t")]


def quoted(error: psycopg.Error) -> str:
    """Return the part of the row that the message shows: the value, or the line."""
    match = re.search(r': "(.*)"$', error.diag.context or "", re.MULTILINE | re.DOTALL)
    return match[1] if match else ""


def _in_users_words(reason: str, task: CopyTask) -> str:
    """Return a server message with the name of the table instead of the staging table's name."""
    return reason.replace(f'"l{task.load}"', f'"{task.table}"') if task.table else reason
