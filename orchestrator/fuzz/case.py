"""A test case as a value: a schema, rows, views and steps, all as SQL text.

The case holds text instead of trees, so that a saved case stays valid when the generator changes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True)
class Table:
    """A table or partition: its statements, and its rows, which share one INSERT."""

    name: str
    ddl: tuple[str, ...]
    insert: str = ""
    rows: tuple[str, ...] = ()


@dataclass(frozen=True)
class View:
    """A view; idivm does not maintain a plain view."""

    name: str
    query: str
    options: tuple[tuple[str, str], ...] = ()
    columns: tuple[str, ...] | None = None
    plain: bool = False

    @property
    def mode(self) -> str:
        """The mode of maintenance."""
        return dict(self.options).get("maintain", "deferred")


@dataclass(frozen=True)
class Statement:
    """One statement; `copy` is its input for STDIN, and `refreshes` is the view that it refreshes."""

    sql: str
    copy: str | None = None
    refreshes: str | None = None

    def savepoint(self, before: bool) -> bool:
        """Return whether a savepoint exists after the statement, given whether one existed before."""
        return self.sql.startswith("SAVEPOINT") or (before and not self.sql.startswith("RELEASE"))


@dataclass(frozen=True)
class Transaction:
    """The statements of a transaction that ends by commit, rollback, or a killed backend ("crash")."""

    statements: tuple[Statement, ...]
    end: str = "commit"
    isolation: str = "read committed"


@dataclass(frozen=True)
class Refresh:
    """A refresh of all or some views: by "api", "jobs" (two sessions), "sql", "call" of the procedure, or "check"."""

    views: tuple[str, ...] = ()
    how: str = "api"


@dataclass(frozen=True)
class Replace:
    """CREATE OR REPLACE of a view."""

    view: View


@dataclass(frozen=True)
class Recreate:
    """Drop and create a view."""

    view: View


@dataclass(frozen=True)
class Late:
    """A transaction on a second connection, which is still uncommitted during later steps.

    A prepared transaction no longer belongs to a connection.
    """

    statements: tuple[Statement, ...]
    prepared: bool = False


@dataclass(frozen=True)
class LateEnd:
    """The end of the second connection's transaction, by commit or by rollback."""

    end: str = "commit"


@dataclass(frozen=True)
class Capture:
    """The changes of a table are captured from the "wal" or by "triggers" from now on."""

    table: str
    way: str


@dataclass(frozen=True)
class ReadWal:
    """The WAL is read into the logs without a refresh, as `idivm serve` does."""


@dataclass(frozen=True)
class Crash:
    """A refresh (or, with `view`, a creation, or a `capture`) that a timeout or a kill of its backend interrupts."""

    how: str
    milliseconds: int
    view: View | None = None
    capture: Capture | None = None


@dataclass(frozen=True)
class Alone:
    """A statement outside of a transaction: DDL, VACUUM, collection of the logs."""

    statement: Statement


@dataclass(frozen=True)
class Time:
    """The time moves: refreshes take `at` for the current time from now on."""

    at: str


@dataclass(frozen=True)
class Storm:
    """Concurrent writers and refreshers; the result depends on which comes first."""

    writers: tuple[tuple[Transaction, ...], ...]
    refreshes: tuple[Refresh | Capture | ReadWal, ...]


@dataclass(frozen=True)
class Load:
    """A load of rows from files or from a database, with options of `idivm load`.

    The values of the rows are PostgreSQL's texts; `form` is "csv", "json", "parquet", "orc" or "jdbc".
    """

    table: str
    columns: tuple[LoadColumn, ...]
    rows: tuple[tuple[str | None, ...], ...]
    form: str = "csv"
    mode: str = "append"
    key: tuple[str, ...] = ()
    """The names of the key's columns, for `upsert`, or if `replace` compares rows."""
    quarantine: bool = False
    views: str = "auto"
    packed: bool = False
    multiline: bool = False
    files: int = 1
    present: str | None = None
    """Only rows are loaded that have a value in this column."""
    select: bool = False
    style: int = 0
    """The seed of the choices that must not matter, such as quotes and the order of keys."""

    @property
    def plain(self) -> bool:
        """Whether the command copies the files itself, without Spark."""
        shaped = self.packed or self.multiline or self.present is not None or self.select
        return self.form == "csv" and not shaped and self.views != "rebuild"


@dataclass(frozen=True)
class LoadColumn:
    """A column that is loaded: its name, its type, and the family of the type."""

    name: str
    type: str
    family: str


Step: TypeAlias = (
    Transaction
    | Refresh
    | Replace
    | Recreate
    | Late
    | LateEnd
    | Capture
    | ReadWal
    | Crash
    | Alone
    | Time
    | Storm
    | Load
)


@dataclass(frozen=True)
class Case:
    """All inputs of a run except a database."""

    seed: int
    schemas: tuple[str, ...]
    types: tuple[str, ...]
    tables: tuple[Table, ...]
    views: tuple[View, ...]
    steps: tuple[Step, ...]
    settings: tuple[str, ...] = ()
    """The settings in which the writer's session differs from the session of the views' creator."""
    end: str = "api"
    """How the views are dropped: by "api", by plain "sql", or with the "schemas"."""
    encoding: str = ""
    locale: str = ""
    """The encoding and the locale of the database; by default, the server's."""
    time: str = ""
    """The time that idivm takes for the current time at the start; by default, the server's."""
    zone: str = ""
    """The time zone in which the views are created; by default, the server's."""
    reserve: int | None = None
    """How many rows plans store beyond needed first rows, whatever the statistics; by default, as many as always."""


_KINDS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        Case,
        Table,
        View,
        Statement,
        Transaction,
        Refresh,
        Replace,
        Recreate,
        Late,
        LateEnd,
        Capture,
        ReadWal,
        Crash,
        Alone,
        Time,
        Storm,
        Load,
        LoadColumn,
    )
}


def to_json(case: Case) -> str:
    """Return a case as JSON text.

    >>> case = Case(7, ("s",), (), (), (View("s.v", "SELECT 1"),), (Refresh(), LateEnd("rollback")))
    >>> from_json(to_json(case)) == case
    True
    """
    return json.dumps(_plain(case), indent=1, ensure_ascii=False) + "\n"


def from_json(text: str) -> Case:
    """Return the case that `to_json` wrote."""
    case = _typed(json.loads(text))
    assert isinstance(case, Case)
    return case


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        given = {f.name: getattr(value, f.name) for f in fields(value)}
        defaults = {f.name: f.default for f in fields(value) if f.default is not MISSING}
        kept = {
            name: _plain(item)
            for name, item in given.items()
            if name not in defaults or defaults[name] != item
        }
        return {"kind": type(value).__name__, **kept}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def _typed(value: Any) -> Any:
    if isinstance(value, dict):
        return _KINDS[value["kind"]](
            **{name: _typed(item) for name, item in value.items() if name != "kind"}
        )
    if isinstance(value, list):
        return tuple(_typed(item) for item in value)
    return value


def maintained(views: Iterable[View]) -> list[View]:
    """Return the views that idivm maintains."""
    return [view for view in views if not view.plain]
