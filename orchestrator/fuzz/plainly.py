"""Run a case in PostgreSQL alone: with plain views and without idivm."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import Any

import psycopg
from psycopg import Connection
from psycopg.sql import SQL, Composed, Identifier, Literal

from orchestrator.fuzz.case import (
    Alone,
    Case,
    Late,
    Load,
    Recreate,
    Replace,
    Statement,
    Step,
    Storm,
    Time,
    Transaction,
    View,
)
from orchestrator.fuzz.loads.statements import as_statements
from orchestrator.fuzz.steps.times import as_of


def plain_view(view: View) -> Composed:
    """Return the statement that creates a view as a plain view."""
    columns = SQL(" ({})").format(SQL(", ").join(map(Identifier, view.columns or ())))
    return SQL("CREATE OR REPLACE VIEW {}{} AS {}").format(
        SQL(view.name), columns if view.columns is not None else SQL(""), SQL(view.query)
    )


def takes_long(connection: Connection[Any], case: Case, until: int | None, patience: str) -> bool:
    """Return whether a view takes PostgreSQL longer than `patience` after any change up to a step.

    A few equal rows that are joined again and again soon become millions. The function rolls
    everything back.
    """
    with connection.transaction(force_rollback=True):
        for schema in case.schemas:
            _try(connection, SQL("CREATE SCHEMA {}").format(Identifier(schema)))
        for text in (*case.types, *(ddl for table in case.tables for ddl in table.ddl)):
            _try(connection, SQL(text))
        for table in case.tables:
            if table.rows:
                rows = SQL(", ").join(map(SQL, table.rows))
                _try(connection, SQL("{} {}").format(SQL(table.insert), rows))
        steps = case.steps if until is None else case.steps[: until + 1]
        for view in case.views:
            _try(connection, plain_view(_in_time(view, case.time)))
        for change in chain.from_iterable(_changes_of(case, steps)):
            _try(connection, change)
            if any(_is_slow(connection, view, patience) for view in case.views):
                return True
    return False


def _in_time(view: View, time: str) -> View:
    return replace(view, query=as_of(view.query, time)) if time else view


def _changes_of(case: Case, steps: Iterable[Step]) -> Iterator[Iterator[SQL | Composed]]:
    """Yield the changes of each step."""
    views = {view.name: view for view in case.views}
    time = case.time
    for step in steps:
        if isinstance(step, Time):
            time = step.at
        elif isinstance(step, Replace | Recreate):
            views[step.view.name] = step.view
            step = replace(step, view=_in_time(step.view, time))
        yield _changes(step, [_in_time(view, time) for view in views.values()])


def _changes(step: Step, views: Iterable[View]) -> Iterator[SQL | Composed]:
    """Yield the changes of a step to the tables and plain views; `views` are as of its time."""
    if isinstance(step, Time):
        yield from map(plain_view, views)
    elif isinstance(step, Transaction | Late):
        yield from _texts(step.statements)
    elif isinstance(step, Alone):
        yield from _texts([step.statement])
    elif isinstance(step, Replace | Recreate):
        if isinstance(step, Recreate):
            # The new view may have other columns and thus not replace the old one.
            yield SQL("DROP VIEW IF EXISTS {} CASCADE").format(SQL(step.view.name))
        yield plain_view(step.view)
    elif isinstance(step, Load):
        yield from as_statements(step)
    elif isinstance(step, Storm):
        for transactions in step.writers:
            for transaction in transactions:
                yield from _texts(transaction.statements)


def _texts(statements: Iterable[Statement]) -> Iterator[SQL | Composed]:
    return (
        SQL(statement.sql)
        for statement in statements
        if statement.copy is None and statement.refreshes is None
    )


def _try(connection: Connection[Any], statement: SQL | Composed) -> None:
    """Execute a statement; skip it if PostgreSQL refuses it, for example inside a transaction."""
    with suppress(psycopg.Error), connection.transaction():
        connection.execute(statement)


def _is_slow(connection: Connection[Any], view: View, patience: str) -> bool:
    try:
        with connection.transaction(force_rollback=True):
            connection.execute(SQL("SET LOCAL statement_timeout = {}").format(Literal(patience)))
            connection.execute(SQL("SELECT v::text FROM {} AS v").format(SQL(view.name)))
    except psycopg.errors.QueryCanceled:
        return True
    except psycopg.Error:
        return False
    return False
