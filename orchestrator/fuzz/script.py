"""Print a case as a readable script, which `idivm sql` can replay."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping

from psycopg.sql import SQL, Composable, Identifier, Literal

from orchestrator.fuzz.case import (
    Alone,
    Capture,
    Case,
    Crash,
    Late,
    LateEnd,
    Load,
    ReadWal,
    Recreate,
    Refresh,
    Replace,
    Statement,
    Step,
    Storm,
    Time,
    Transaction,
    View,
)
from orchestrator.fuzz.loads.statements import as_command, as_statements
from orchestrator.fuzz.outcome import Outcome
from orchestrator.fuzz.steps.times import clock


def script(case: Case, outcome: Outcome) -> str:
    """Return the case as SQL; actions of further connections are in comments.

    The views have the options with which the run could create them. The statements that PostgreSQL
    refused in the run, and those that were rolled back with them, are commented out, because a
    script ends at its first error.
    """
    return "\n".join(_lines(_as_created(case, outcome.created), outcome.refused)) + "\n"


def _as_created(case: Case, created: Mapping[View, View]) -> Case:
    steps = tuple(
        dataclasses.replace(step, view=created.get(step.view, step.view))
        if isinstance(step, Replace | Recreate)
        else step
        for step in case.steps
    )
    views = tuple(created.get(view, view) for view in case.views)
    return dataclasses.replace(case, views=views, steps=steps)


def _lines(case: Case, refused: Collection[tuple[int, int]]) -> Iterator[str]:
    yield f"-- seed {case.seed}" + (f", {case.encoding}, {case.locale}" if case.encoding else "")
    for schema in case.schemas:
        yield _text(SQL("CREATE SCHEMA {};").format(Identifier(schema)))
    for statement in case.types:
        yield f"{statement};"
    for table in case.tables:
        for statement in table.ddl:
            yield f"{statement};"
    for table in case.tables:
        if table.rows:
            yield f"{table.insert}"
            yield ",\n".join(f"    {row}" for row in table.rows) + ";"
    if case.time:
        yield _text(SQL("{};").format(clock(case.time)))
    if case.zone:
        yield _text(SQL("SET TimeZone = {};").format(Literal(case.zone)))
    for view in case.views:
        yield view_statement(view)
    yield from (f"{setting};" for setting in case.settings)
    for number, step in enumerate(case.steps):
        yield f"\n-- step {number}"
        yield from _step(number, step, refused)
    yield "\n-- the end"
    yield _text(SQL("SELECT view, changed FROM idivm.refresh({});").format(_names(_all(case))))


def _all(case: Case) -> tuple[str, ...]:
    return tuple(view.name for view in case.views if not view.plain)


def view_statement(view: View, replace: bool = False) -> str:
    """Return the statement that creates a view, for `idivm sql`."""
    head = SQL("CREATE {}VIEW {}").format(SQL("OR REPLACE " if replace else ""), SQL(view.name))
    if view.columns is not None:
        head = SQL("{} ({})").format(head, SQL(", ").join(map(Identifier, view.columns)))
    if view.plain:
        # `idivm sql` would take a bare CREATE VIEW for the statement of a maintained view.
        plain = SQL("{} AS {}").format(head, SQL(view.query)).as_string(None)
        body = Literal(f"BEGIN EXECUTE {Literal(plain).as_string(None)}; END")
        return _text(SQL("DO {};").format(body))
    options = SQL(", ").join(
        SQL("{} = {}").format(SQL(name), Literal(value)) for name, value in view.options
    )
    given = SQL(" WITH ({})").format(options) if view.options else SQL("")
    return _text(SQL("{}{} AS\n  {};").format(head, given, SQL(view.query)))


def _step(number: int, step: Step, refused: Collection[tuple[int, int]]) -> Iterator[str]:
    if isinstance(step, Transaction):
        yield from _transaction(number, step, refused)
    elif isinstance(step, Refresh):
        yield _refresh(step)
    elif isinstance(step, Replace):
        yield view_statement(step.view, replace=True)
    elif isinstance(step, Recreate):
        yield _text(SQL("DROP VIEW {};").format(SQL(step.view.name)))
        yield view_statement(step.view)
    elif isinstance(step, Alone):
        refused_one = (number, 0) in refused
        lines = _statement(step.statement).split("\n")
        yield from _commented(["refused:", *lines]) if refused_one else lines
    elif isinstance(step, Time):
        yield _text(SQL("{};").format(clock(step.at)))
    elif isinstance(step, Storm):
        yield "-- all at once:"
        for at, writer in enumerate(step.writers):
            yield f"-- writer {at}"
            for transaction in writer:
                yield from _commented("\n".join(_transaction(-1, transaction, ())).split("\n"))
        yield "-- and beside them"
        for act in step.refreshes:
            yield from _commented([_refresh(act) if isinstance(act, Refresh) else _act(act)])
    elif isinstance(step, Capture | ReadWal):
        yield f"-- {_act(step)}"
    elif isinstance(step, Late):
        kind = "and prepares it" if step.prepared else "without a commit yet"
        yield f"-- a second connection does this, {kind}:"
        lines = ["BEGIN;", *(_statement(statement) for statement in step.statements)]
        yield from _commented("\n".join(lines).split("\n"))
    elif isinstance(step, LateEnd):
        yield f"-- the second connection: {step.end.upper()};"
    elif isinstance(step, Load):
        yield from _commented([as_command(step), "does the same as:"])
        yield from (f"{_text(statement)};" for statement in as_statements(step))
    elif isinstance(step, Crash):
        what = "a refresh of all views" if step.capture is None else _act(step.capture)
        if step.view is not None:
            what = view_statement(step.view, replace=True)
        yield f"-- a third connection, cut short by {step.how} after {step.milliseconds} ms:"
        yield from _commented(what.split("\n"))


def _transaction(
    number: int, step: Transaction, refused: Collection[tuple[int, int]]
) -> Iterator[str]:
    yield f"BEGIN ISOLATION LEVEL {step.isolation.upper()};"
    savepoint = False
    for at, statement in enumerate(step.statements):
        if (number, at) not in refused:
            yield _statement(statement)
            savepoint = statement.savepoint(savepoint)
            continue
        yield from _commented(["refused:", *_statement(statement).split("\n")])
        if not savepoint:
            yield "ROLLBACK;"
            return
        yield "ROLLBACK TO SAVEPOINT sp;"
    if step.end == "crash":
        yield "-- the backend is terminated here"
    yield "COMMIT;" if step.end == "commit" else "ROLLBACK;"


def _statement(statement: Statement) -> str:
    if statement.copy is None:
        return f"{statement.sql};"
    target = statement.sql.removeprefix("COPY ").removesuffix(" FROM STDIN")
    rows = SQL(", ").join(
        SQL("({})").format(SQL(", ").join(Literal(_uncopied(field)) for field in line.split("\t")))
        for line in statement.copy.splitlines()
    )
    insert = SQL("-- as {}:\nINSERT INTO {} VALUES {};")
    return _text(insert.format(SQL(statement.sql), SQL(target), rows))


def _uncopied(field: str) -> str | None:
    """Return a value from COPY's text format."""
    return None if field == "\\N" else field.replace("\\\\", "\\")


def _refresh(step: Refresh) -> str:
    names = _names(step.views)
    if step.how == "call":
        return _text(SQL("CALL idivm.refresh_all({});").format(names))
    if not step.views:
        return "CALL idivm.refresh_all();"
    return f"{refresh_statement(step.views)};"


def refresh_statement(views: Iterable[str]) -> str:
    """Return a REFRESH VIEW statement for `idivm sql`."""
    return _text(SQL("REFRESH VIEW {}").format(SQL(", ").join(SQL(name) for name in views)))


def _act(step: Capture | ReadWal) -> str:
    """Return an act on the WAL as a command."""
    if isinstance(step, ReadWal):
        return "idivm serve reads the WAL"
    return f"idivm capture {shlex.quote(step.table)} --from {step.way}"


def _names(views: tuple[str, ...]) -> Composable:
    return SQL(", ").join(Literal(name) for name in views)


def _commented(lines: Iterable[str]) -> Iterator[str]:
    return (f"-- {line}" for line in lines)


def _text(statement: Composable) -> str:
    return statement.as_string(None)
