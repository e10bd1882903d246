"""Run a load and compare it with what COPY and INSERT do with the same rows."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import psycopg
from psycopg import Connection
from psycopg.conninfo import conninfo_to_dict
from psycopg.sql import SQL, Identifier

from orchestrator.errors import IdivmError
from orchestrator.fuzz.case import Load
from orchestrator.fuzz.loads.files import write_text, write_typed
from orchestrator.fuzz.loads.statements import TWIN, create_twin, moves, names_of
from orchestrator.fuzz.outcome import CaseError, NoAnswerError, code_of

if TYPE_CHECKING:
    from orchestrator.fuzz.acts import Acts

Contents = dict[str, Counter[str]]

SOURCE = Identifier("public", "idivm_fuzz_source")
"""The table that JDBC reads."""

_INTERNAL = re.compile(r"idivm_load|idivm_part|Py4J|java\.|\bl\d+\b")
"""What the message of a refused load must not contain."""


@dataclass(frozen=True)
class _Expected:
    """The contents of all tables after a load, or the reason why the rows cannot be loaded."""

    contents: Contents
    rejected: int = 0
    refused: str | None = None


def load(acts: Acts, step: Load, tables: Sequence[str]) -> None:
    """Load rows, and compare all tables and the views that the load refreshed."""
    connection = acts.space.orc.connection
    if acts.space.late or not _applies(connection, step):
        acts.outcome.counts["loads skipped"] += 1
        return
    if step.quarantine and _has_triggers(connection, step):
        # A trigger may change rows to which later rows refer.
        step = replace(step, quarantine=False)
    with tempfile.TemporaryDirectory(prefix="idivm-fuzz-") as name:
        folder = Path(name)
        options: dict[str, str] = {}
        try:
            with connection.transaction(force_rollback=True):
                expected = _expected(acts, step, tables, folder)
            if step.form in ("csv", "json"):
                options = write_text(step, folder, connection)
            _load(acts, step, tables, folder, options, expected)
        finally:
            connection.execute(SQL("DROP TABLE IF EXISTS {}").format(SOURCE))


def _load(
    acts: Acts,
    step: Load,
    tables: Sequence[str],
    folder: Path,
    options: dict[str, str],
    expected: _Expected,
) -> None:
    counts = acts.outcome.counts
    source = str(folder)
    if step.form == "jdbc":
        source = _url(acts.space.dsn)
        options = {"dbtable": SOURCE.as_string(None)}
    columns = [f"`{column.name.replace('`', '``')}`" for column in reversed(step.columns)]
    spark = None if step.plain and step.style % 2 else acts.spark()
    try:
        report = acts.space.orc.load(
            source,
            step.table,
            format=step.form,
            mode=step.mode,
            key=step.key,
            options=options,
            where=None if step.present is None else f"{_quoted(step.present)} IS NOT NULL",
            select=", ".join(columns) if step.select else None,
            on_bad_row="quarantine" if step.quarantine else "stop",
            views=step.views,
            again=True,
            spark=spark,
        )
    except IdivmError as error:
        message = str(error)
        if expected.refused is None:
            raise CaseError("load refused", code_of(error), message) from error
        if internal := _INTERNAL.search(message):
            raise CaseError("message", internal[0], message) from error
        counts["loads refused"] += 1
        _compare(acts, tables, expected.contents)
        return
    if expected.refused is not None:
        raise CaseError("load accepted", "", f"PostgreSQL refuses the rows: {expected.refused}")
    variant = "without Spark" if spark is None else step.form
    counts["loads"] += 1
    counts[f"loads: {variant}, {step.mode}{', quarantine' if step.quarantine else ''}"] += 1
    counts["loaded rows"] += report.tables[0].loaded
    _compare(acts, tables, expected.contents)
    if report.rejected != expected.rejected:
        text = f"{report.rejected} rows rejected, {expected.rejected} expected"
        raise CaseError("rejected rows", "", text)
    acts.after_load([name for name, _ in report.refreshed])


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _applies(connection: Connection[Any], step: Load) -> bool:
    """Return whether the table has the columns in these types; DDL may have changed them."""
    with connection.transaction(force_rollback=True):
        try:
            connection.execute(create_twin(step))
            row = connection.execute(
                "SELECT count(*) FROM pg_attribute AS a JOIN pg_attribute AS b USING (attname,"
                " atttypid, atttypmod) WHERE a.attrelid = to_regclass(%s) AND b.attnum > 0"
                " AND b.attrelid = 'pg_temp.idivm_fuzz_twin'::regclass",
                [step.table],
            ).fetchone()
        except psycopg.Error:
            return False
    return row == (len(step.columns),)


def _has_triggers(connection: Connection[Any], step: Load) -> bool:
    row = connection.execute(
        "SELECT count(*) FROM pg_trigger AS t JOIN pg_proc AS p ON p.oid = t.tgfoid"
        " JOIN pg_namespace AS n ON n.oid = p.pronamespace"
        " WHERE t.tgrelid = to_regclass(%s) AND NOT t.tgisinternal AND n.nspname !~ '^idivm'",
        [step.table],
    ).fetchone()
    return row != (0,)


def _contents(connection: Connection[Any], tables: Sequence[str]) -> Contents:
    """Return the rows of the tables that exist, as text."""
    result: Contents = {}
    for name in tables:
        exists = connection.execute("SELECT to_regclass(%s) IS NOT NULL", [name]).fetchone()
        if exists == (True,):
            rows = connection.execute(SQL("SELECT t::text FROM {} AS t").format(SQL(name)))
            result[name] = Counter(row[0] for row in rows.fetchall())
    return result


def _expected(acts: Acts, step: Load, tables: Sequence[str], folder: Path) -> _Expected:
    """Return what the load must give, from changes that the caller rolls back; write typed files."""
    connection = acts.space.orc.connection
    before = _contents(connection, tables)
    connection.execute(create_twin(step))
    rows = step.rows
    if step.present is not None:
        place = [column.name for column in step.columns].index(step.present)
        rows = tuple(row for row in rows if row[place] is not None)
    if step.form in ("parquet", "orc", "jdbc"):
        if reason := _refusal(connection, step, step.rows, move=False):
            raise CaseError("generator", "", f"a typed source with a wrong value: {reason}")
        if step.form == "jdbc":
            _fill_source(acts, step, step.rows)
        else:
            write_typed(step, folder, connection)
        if step.present is not None:
            connection.execute(
                SQL("DELETE FROM {} WHERE {} IS NULL").format(TWIN, Identifier(step.present))
            )
        rows = tuple(
            connection.execute(
                SQL("SELECT {} FROM {} ORDER BY ctid").format(
                    SQL(", ").join(
                        SQL("{}::text").format(Identifier(column.name)) for column in step.columns
                    ),
                    TWIN,
                )
            ).fetchall()
        )
        connection.execute(SQL("TRUNCATE {}").format(TWIN))
    accepted = []
    if step.quarantine:
        with connection.transaction(force_rollback=True):
            accepted = [row for row in rows if _refusal(connection, step, [row]) is None]
        reason = _refusal(connection, step, accepted)
    else:
        accepted = list(rows)
        reason = _refusal(connection, step, accepted)
    if reason is not None:
        return _Expected(before, refused=reason)
    _need_answers(acts)
    return _Expected(_contents(connection, tables), rejected=len(rows) - len(accepted))


def _refusal(
    connection: Connection[Any],
    step: Load,
    rows: Sequence[Sequence[str | None]],
    move: bool = True,
) -> str | None:
    """Load rows by COPY and INSERT; return PostgreSQL's message if it refuses them."""
    names = names_of(step)
    try:
        with connection.transaction():
            copy_rows(connection, TWIN, step, rows)
            if move:
                given = SQL("SELECT {} FROM {}").format(names, TWIN)
                for statement in moves(step, given):
                    connection.execute(statement)
                connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
                connection.execute("SET CONSTRAINTS ALL DEFERRED")
                connection.execute(SQL("TRUNCATE {}").format(TWIN))
    except psycopg.Error as error:
        return str(error)
    return None


def copy_rows(
    connection: Connection[Any],
    table: Identifier,
    step: Load,
    rows: Sequence[Sequence[str | None]],
) -> None:
    """Copy rows into a table with the columns of a load."""
    statement = SQL("COPY {} ({}) FROM STDIN").format(table, names_of(step))
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        for row in rows:
            copy.write_row(row)


def _fill_source(acts: Acts, step: Load, rows: Sequence[Sequence[str | None]]) -> None:
    """Fill the table for JDBC, in a transaction of its own."""
    with acts.space.connection() as connection:
        connection.execute(SQL("DROP TABLE IF EXISTS {}").format(SOURCE))
        connection.execute(create_twin(step, SOURCE))
        copy_rows(connection, SOURCE, step, rows)


def _need_answers(acts: Acts) -> None:
    """Raise `NoAnswerError` if a view's own query fails on the rows that the load is about to add."""
    connection = acts.space.orc.connection
    for definition in acts.space.definitions(acts.views):
        try:
            with connection.transaction():
                connection.execute(SQL("SELECT d::text FROM {} AS d").format(definition))
        except psycopg.Error as error:
            raise NoAnswerError(str(error)) from error


def _compare(acts: Acts, tables: Sequence[str], wanted: Contents) -> None:
    actual = _contents(acts.space.orc.connection, tables)
    for name, rows in wanted.items():
        if actual.get(name) != rows:
            have = actual.get(name, Counter())
            lines = [
                f"{name}: the load gives other rows than INSERT",
                *(f"  missing  {row}" for row in list((rows - have).elements())[:5]),
                *(f"  surplus  {row}" for row in list((have - rows).elements())[:5]),
            ]
            raise CaseError("load", "", "\n".join(lines))


def _url(dsn: str) -> str:
    """Return the JDBC URL of a database on this machine."""
    values = conninfo_to_dict(dsn)
    host = str(values.get("host") or "127.0.0.1")
    host = "127.0.0.1" if host.startswith("/") else host
    given = {name: str(values[name]) for name in ("user", "password") if values.get(name)}
    return (
        f"jdbc:postgresql://{host}:{values.get('port', 5432)}/{values['dbname']}?{urlencode(given)}"
    )


@contextmanager
def spark_when_needed() -> Iterator[Any]:
    """Yield a function that returns a Spark session, which starts at the first call."""
    from contextlib import ExitStack
    from functools import cache

    with ExitStack() as stack:

        @cache
        def session() -> Any:
            from orchestrator.spark.formats.jdbc import with_driver
            from orchestrator.spark.loading.load import SETTINGS
            from orchestrator.spark.session import spark_session

            settings = with_driver(SETTINGS, ["jdbc:postgresql:"])
            return stack.enter_context(spark_session("local[2]", "idivm bench fuzz", **settings))

        yield session
