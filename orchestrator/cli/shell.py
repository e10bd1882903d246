"""The shell of `idivm sql` on a terminal: history, completion, multi-line statements, \\d and \\timing."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from psycopg.sql import SQL, Literal

from orchestrator.api import Orchestrator, StatementResult
from orchestrator.errors import IdivmError

HELP = """\\d           list tables and views; maintained views with mode and strategy
\\d NAME      show the columns of a relation
\\timing      switch the display of times on or off
\\?           show this help
\\q           quit, also with Ctrl-D
A statement ends with a semicolon. CREATE VIEW, DROP VIEW and REFRESH manage maintained views."""

_KEYWORDS = """
    ALTER AND AS BEGIN BY CASCADE COMMIT COUNT CREATE DELETE DISTINCT DROP EXISTS FROM GROUP HAVING IN INSERT INTO
    IS JOIN LEFT LIMIT MATERIALIZED NOT NULL ON OR ORDER REFRESH REPLACE ROLLBACK SELECT SET SUM TABLE UNION UPDATE
    USING VALUES VIEW WHERE WITH
"""

_RELATIONS = """
    SELECT n.nspname AS schema, c.relname AS name,
           CASE WHEN v.id IS NOT NULL THEN 'maintained view' WHEN u.relation IS NOT NULL THEN 'view, not planned'
                WHEN c.relkind = 'v' THEN 'view' WHEN c.relkind = 'm' THEN 'materialized view'
                WHEN c.relkind = 'f' THEN 'foreign table' ELSE 'table' END AS kind,
           v.maintain, v.strategy
    FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    LEFT JOIN idivm.views v ON v.relation = c.oid
    LEFT JOIN idivm.unplanned_views u ON u.relation = c.oid
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname !~ '^(pg_|information_schema$|idivm)'
    ORDER BY 1, 2
"""

_COLUMNS = SQL("""
    SELECT a.attname AS column, pg_catalog.format_type(a.atttypid, a.atttypmod) AS type,
           CASE WHEN a.attnotnull THEN 'not null' END AS constraint
    FROM pg_catalog.pg_attribute a
    WHERE a.attrelid = {}::pg_catalog.regclass AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY a.attnum
""")

_WORDS = """
    SELECT c.relname FROM pg_catalog.pg_class c
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND pg_catalog.pg_table_is_visible(c.oid)
      AND c.relnamespace <> 'pg_catalog'::pg_catalog.regnamespace
    UNION
    SELECT a.attname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND pg_catalog.pg_table_is_visible(c.oid) AND a.attnum > 0
      AND c.relnamespace <> 'pg_catalog'::pg_catalog.regnamespace AND NOT a.attisdropped
"""


def is_complete(text: str) -> bool:
    """Return whether Enter runs a text instead of beginning another line.

    >>> is_complete("SELECT 1"), is_complete("SELECT 1; "), is_complete("\\\\d"), is_complete("")
    (False, True, True, True)
    """
    text = text.strip()
    return not text or text.startswith("\\") or text.endswith(";")


class Shell:
    """Reads statements from a terminal and prints their results."""

    def __init__(
        self,
        orchestrator: Orchestrator,
        show: Callable[[StatementResult], None],
        history: Path | None = None,
    ) -> None:
        """Take an orchestrator, and a function `show` that prints a result."""
        self.orchestrator = orchestrator
        self.show = show
        self.history = history or Path.home() / ".idivm_history"
        self.timing = False
        self.words: list[str] = []

    def loop(self) -> None:
        """Run what the user types until the end of the input."""
        from prompt_toolkit import PromptSession
        from prompt_toolkit.application import get_app
        from prompt_toolkit.completion import DynamicCompleter, WordCompleter
        from prompt_toolkit.filters import Condition
        from prompt_toolkit.history import FileHistory

        session: PromptSession[str] = PromptSession(
            history=FileHistory(str(self.history)),
            completer=DynamicCompleter(lambda: WordCompleter(self.words, ignore_case=True)),
            complete_while_typing=False,
            multiline=Condition(lambda: not is_complete(get_app().current_buffer.text)),
            prompt_continuation="    -> ",
        )
        print("idivm: \\? shows help, \\q quits")
        self.learn()
        while True:
            try:
                if not self.run(session.prompt("idivm> ")):
                    return
            except KeyboardInterrupt:
                continue
            except EOFError:
                return

    def run(self, text: str) -> bool:
        """Run a line; return False if it ends the shell."""
        text = text.strip()
        if text in ("\\q", "quit", "exit"):
            return False
        started = time.perf_counter()
        try:
            self._run(text)
        except IdivmError as error:
            print(f"error: {error}")
        if self.timing and text and not text.startswith("\\"):
            print(f"time: {(time.perf_counter() - started) * 1000:,.1f} ms")
        if not text.upper().startswith("SELECT"):
            self.learn()
        return True

    def _run(self, text: str) -> None:
        command, _, name = text.partition(" ")
        if command == "\\d" and name.strip(" ;"):
            columns = _COLUMNS.format(Literal(name.strip(" ;"))).as_string()
            self._show(columns)
        elif command == "\\d":
            self._show(_RELATIONS)
        elif command == "\\timing":
            self.timing = not self.timing
            print(f"Timing is {'on' if self.timing else 'off'}.")
        elif command.startswith("\\"):
            print(HELP)
        else:
            self._show(text)

    def _show(self, script: str) -> None:
        for result in self.orchestrator.run(script):
            self.show(result)

    def learn(self) -> None:
        """Read the names that Tab completes."""
        try:
            rows = self.orchestrator.execute(_WORDS)[0].rows
        except IdivmError:
            # In a failed transaction, keep the words.
            return
        self.words = [*_KEYWORDS.split(), *sorted(str(name) for (name,) in rows)]
