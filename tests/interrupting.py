"""Interruptions of idivm's sessions at any statement: a cancel, or Ctrl-C."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import psycopg
import pytest
from psycopg.errors import QueryCanceled

from orchestrator.runtime.sessions import IdivmSession

_CANCELLED = (
    b"DO $$ BEGIN RAISE query_canceled USING MESSAGE = 'canceling statement due to user request';"
    b" END $$"
)

When: TypeAlias = Callable[[int, str], bool]
"""Decides by its number and its text whether a statement is interrupted."""


class Moment:
    """Whether the statement that is interrupted has come."""

    def __init__(self, when: When) -> None:
        self.when = when
        self.statements = 0
        self.has_come = False

    def comes(self, text: str) -> bool:
        """Count a statement, and return whether it is interrupted."""
        self.statements += 1
        comes = not self.has_come and self.when(self.statements, text)
        self.has_come = self.has_come or comes
        return comes


@contextmanager
def interrupted(when: When, kind: type[BaseException] = QueryCanceled) -> Iterator[Moment]:
    """Cancel the first statement of idivm's sessions for which `when` holds, or press Ctrl-C after it."""
    moment = Moment(when)
    execute, command = psycopg.Cursor.execute, IdivmSession._exec_command

    def executed(cursor: Any, query: Any, *args: Any, **options: Any) -> Any:
        text = query if isinstance(query, str | bytes) else query.as_string(cursor)
        text = text if isinstance(text, str) else text.decode()
        comes = isinstance(cursor.connection, IdivmSession) and moment.comes(text)
        if comes and kind is QueryCanceled:
            return execute(cursor, _CANCELLED)
        result = execute(cursor, query, *args, **options)
        if comes:
            raise kind
        return result

    def commanded(connection: Any, text: bytes, *args: Any) -> Any:
        comes = moment.comes(text.decode())
        cancels = comes and kind is QueryCanceled
        result = yield from command(connection, _CANCELLED if cancels else text, *args)
        if comes:
            raise kind
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(psycopg.Cursor, "execute", executed)
        patch.setattr(IdivmSession, "_exec_command", commanded)
        yield moment


def after(seen: str, then: str) -> When:
    """Return whether a statement contains a text, and an earlier one contained another."""
    past: list[str] = []

    def has_come(_: int, text: str) -> bool:
        if past:
            return then in text
        past.extend([text] if seen in text else [])
        return False

    return has_come
