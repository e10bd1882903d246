"""Random changes of tables: one function for each kind of statement, and the list of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import TypeAlias

from psycopg.sql import SQL, Composable, Composed, Literal

from orchestrator.fuzz.case import Statement
from orchestrator.fuzz.schemas.schema import (
    ENFORCED,
    Column,
    Model,
    Row,
    any_value,
    insert_head,
    listed,
    literal,
    row_values,
)
from orchestrator.fuzz.schemas.values import INTEGER, TEXT


class Writer:
    """Makes statements that change the tables of a schema."""

    def __init__(self, rng: Random, models: Sequence[Model]) -> None:
        """Draw random numbers only from `rng`; every case has its own mix of changes."""
        self.rng = rng
        self.models = models
        self.changes = tuple(c for c in CHANGES if rng.random() < 0.7) or CHANGES

    def statement(self) -> Statement:
        """Return a statement that changes one table, or two."""
        model = self.rng.choice(self.models)
        written = self.rng.choice(self.changes)(self, model) or delete(self, model)
        return written if isinstance(written, Statement) else Statement(written.as_string(None))

    def chance(self, share: float) -> bool:
        """Return True in this share of calls."""
        return self.rng.random() < share

    def row(self, model: Model, fresh: float = 0.75) -> Row:
        """Return a row for a table; its references mostly point to rows of the initial data."""
        row: Row = {
            column.name: any_value(self.rng, column, fresh if column in model.key else 0.0)
            for column in model.columns
        }
        for reference in model.references:
            itself = reference.table.name == model.name
            targets = model.rows if itself else reference.table.rows
            if targets and self.chance(0.8) and row[reference.columns[0].name] is not None:
                target = self.rng.choice(targets)
                for column, key in zip(reference.columns, reference.table.key, strict=True):
                    row[column.name] = target[key.name]
        return row

    def where(self, model: Model) -> Composable:
        """Return a condition that holds for some rows of a table."""
        if self.chance(0.08):
            return SQL("true")
        if model.rows and model.key and self.chance(0.5):
            row = self.rng.choice(model.rows)
            return SQL(" AND ").join(
                SQL("{} = {}").format(column.sql, literal(row[column.name])) for column in model.key
            )
        usable = [c for c in model.columns if c.type.family != "json"]
        if not usable:
            return SQL("true")
        column = self.rng.choice(usable)
        shape = self.rng.choice(("{} = {}", "{} = {}", "{} <= {}", "{} > {}", "{} IN ({}, {})"))
        if column.nullable and self.chance(0.15):
            return SQL("{} IS NULL").format(column.sql)
        values = [Literal(self.rng.choice(column.type.pool)) for _ in range(2)]
        return SQL(shape).format(column.sql, *values)

    def settable(self, model: Model) -> list[Column]:
        """Return the columns outside the key that an UPDATE can set."""
        return [c for c in model.written if c not in model.key]


def insert(w: Writer, model: Model) -> Composed:
    """Return an INSERT of some rows."""
    columns = model.written
    if not columns:
        return SQL("INSERT INTO {} DEFAULT VALUES").format(model.name)
    if w.chance(0.15):
        given = [c for c in columns if c.identity is None]
        columns = tuple(given) or columns
    rows = [row_values(columns, w.row(model)) for _ in range(w.rng.choice((1, 1, 2, 3)))]
    patient = model.key_kind in ENFORCED and w.chance(0.5)
    ending = SQL(" ON CONFLICT DO NOTHING" if patient else "")
    return SQL("{} VALUES {}{}").format(insert_head(model.name, columns), listed(rows), ending)


def insert_select(w: Writer, model: Model) -> Composed:
    """Return an INSERT of rows made from existing rows."""
    columns = model.written
    if not columns:
        return insert(w, model)
    outputs = [_moved(c, 20 * w.rng.randint(1, 5)) if c in model.key else c.sql for c in columns]
    return SQL("{} SELECT {} FROM {} WHERE {}").format(
        insert_head(model.name, columns), listed(outputs), model.name, w.where(model)
    )


def update(w: Writer, model: Model) -> Composed | None:
    """Return an UPDATE of columns outside the key."""
    columns = w.settable(model)
    if not columns:
        return None
    chosen = w.rng.sample(columns, min(len(columns), w.rng.choice((1, 1, 2))))
    return SQL("UPDATE {}{} SET {} WHERE {}").format(
        SQL("ONLY ") if model.inherited and w.chance(0.2) else SQL(""),
        model.name,
        listed([SQL("{} = {}").format(c.sql, _changed(w, c)) for c in chosen]),
        w.where(model),
    )


def update_nothing(w: Writer, model: Model) -> Composed | None:
    """Return an UPDATE that sets columns to their current values."""
    columns = w.settable(model) or [c for c in model.written if not c.identity]
    if not columns:
        return None
    assignments = [SQL("{0} = {0}").format(c.sql) for c in columns[: w.rng.randint(1, 3)]]
    return SQL("UPDATE {} SET {} WHERE {}").format(model.name, listed(assignments), w.where(model))


def update_key(w: Writer, model: Model) -> Composed | None:
    """Return an UPDATE of a key; with a deferrable key, two rows mostly swap their keys."""
    keys = [c for c in model.key if c.identity != "ALWAYS"]
    if not keys:
        return None
    key = w.rng.choice(keys)
    number = key.type.family == "int"
    if number and w.chance(0.7 if model.key_kind == "deferrable" else 0.15):
        item, two = w.rng.sample(key.type.pool, 2)
        return SQL(
            "UPDATE {} SET {k} = CASE {k} WHEN {a} THEN {b} ELSE {a} END WHERE {k} IN ({a}, {b})"
        ).format(model.name, k=key.sql, a=SQL(item), b=SQL(two))
    changed = _moved(key, w.rng.choice((1, 10, 30)))
    if w.chance(0.5):
        changed = SQL("{}").format(literal(any_value(w.rng, key, 0.5)))
    return SQL("UPDATE {} SET {} = {} WHERE {}").format(
        model.name, key.sql, changed, w.where(model)
    )


def update_from(w: Writer, model: Model) -> Composed | None:
    """Return an UPDATE ... FROM another table, or the same table."""
    other = w.rng.choice(w.models)
    pairs = [(a, b) for a in w.settable(model) for b in other.columns if a.type == b.type]
    if not pairs:
        return None
    mine, theirs = w.rng.choice(pairs)
    condition = _meeting(w, model, other)
    return SQL("UPDATE {} AS mine SET {} = theirs.{} FROM {} AS theirs WHERE {}").format(
        model.name, mine.sql, theirs.sql, other.name, condition
    )


def delete(w: Writer, model: Model) -> Composed:
    """Return a DELETE."""
    only = SQL("ONLY ") if model.inherited and w.chance(0.2) else SQL("")
    return SQL("DELETE FROM {}{} WHERE {}").format(only, model.name, w.where(model))


def delete_using(w: Writer, model: Model) -> Composed:
    """Return a DELETE ... USING another table."""
    other = w.rng.choice(w.models)
    return SQL("DELETE FROM {} AS mine USING {} AS theirs WHERE {}").format(
        model.name, other.name, _meeting(w, model, other)
    )


def upsert(w: Writer, model: Model) -> Composed | None:
    """Return an INSERT ... ON CONFLICT DO UPDATE."""
    columns = w.settable(model)
    if model.key_kind not in ENFORCED or not columns:
        return None
    column = w.rng.choice(columns)
    written = model.written
    if not all(key in written for key in model.key):
        return None
    rows = [row_values(written, w.row(model, 0.3)) for _ in range(w.rng.choice((1, 1, 2)))]
    tail = SQL("EXCLUDED.{}").format(column.sql) if w.chance(0.6) else SQL("DEFAULT")
    return SQL("{} VALUES {} ON CONFLICT ({}) DO UPDATE SET {} = {}").format(
        insert_head(model.name, written),
        listed(rows),
        listed([key.sql for key in model.key]),
        column.sql,
        tail,
    )


def merge(w: Writer, model: Model) -> Composed | None:
    """Return a MERGE that updates or deletes matching rows and inserts the others."""
    columns = w.settable(model)
    keys = [c for c in (model.key or model.columns) if c.type.family in ("int", "text")]
    if not columns or not keys or any(c not in model.written for c in model.key):
        return None
    key, column = keys[0], w.rng.choice(columns)
    rows = listed(
        [
            SQL("({})").format(Literal(any_value(w.rng, replace(key, nullable=False), 0.3)))
            for _ in range(2)
        ]
    )
    row = w.row(model)
    inserted = [
        SQL("given.k::{}").format(key.type.sql) if c == key else literal(row[c.name])
        for c in model.written
    ]
    matched = SQL("DELETE")
    if w.chance(0.6):
        matched = SQL("UPDATE SET {} = {}").format(column.sql, _changed(w, column))  # type: ignore[assignment]
    return SQL(
        "MERGE INTO {} AS mine USING (VALUES {}) AS given (k) ON mine.{} = given.k::{}"
        " WHEN MATCHED THEN {} WHEN NOT MATCHED THEN INSERT ({}) VALUES ({})"
    ).format(
        model.name,
        rows,
        key.sql,
        key.type.sql,
        matched,
        listed([c.sql for c in model.written]),
        listed(inserted),
    )


def copy(w: Writer, model: Model) -> Statement | None:
    """Return a COPY ... FROM STDIN."""
    columns = model.written
    if not columns:
        return None
    rows = [w.row(model, 0.95) for _ in range(w.rng.choice((1, 2, 4)))]
    lines = ["\t".join(_copied(row[c.name]) for c in columns) for row in rows]
    head = SQL("COPY {} ({}) FROM STDIN").format(model.name, listed([c.sql for c in columns]))
    return Statement(head.as_string(None), copy="\n".join(lines) + "\n")


def truncate(w: Writer, model: Model) -> Composed:
    """Return a TRUNCATE, but rarely, because it leaves few rows for later steps."""
    if not w.chance(0.3):
        return delete(w, model)
    names: list[Composable] = [model.name]
    if w.chance(0.3):
        names.append(w.rng.choice(w.models).name)
    tail = SQL(w.rng.choice(("", " CASCADE", " RESTART IDENTITY CASCADE")))
    return SQL("TRUNCATE {}{}").format(listed(names), tail)


def in_one_statement(w: Writer, model: Model) -> Composed:
    """Return one statement with WITH that changes two tables."""
    other = w.rng.choice(w.models)
    parts = [
        w.rng.choice((insert, update, delete, update_from))(w, m) or delete(w, m)
        for m in (model, other)
    ]
    return SQL(
        "WITH one AS ({} RETURNING 1), two AS ({} RETURNING 1)"
        " SELECT (SELECT count(*) FROM one), (SELECT count(*) FROM two)"
    ).format(*parts)


def through_part(w: Writer, model: Model) -> Composed | None:
    """Return a change of a partition or an inheritance child by its own name."""
    if not model.parts:
        return None
    part = replace(model, path=w.rng.choice(model.parts), inherited=False)
    change = w.rng.choice((insert, insert, update, delete, update_key))
    if model.inherited:
        part = replace(part, key=(), key_kind="none")
    return change(w, part)


Change: TypeAlias = Callable[[Writer, Model], "Composed | Statement | None"]

CHANGES: tuple[Change, ...] = (
    insert,
    insert,
    insert,
    insert_select,
    update,
    update,
    update,
    update_nothing,
    update_key,
    update_key,
    update_from,
    delete,
    delete,
    delete_using,
    upsert,
    merge,
    copy,
    truncate,
    in_one_statement,
    through_part,
    through_part,
)
"""All kinds of changes; a kind that is listed twice occurs twice as often."""


def burst_of(model: Model) -> tuple[Statement, Statement] | None:
    """Return statements that insert and delete many rows; None if no column can number the rows."""
    key = next(
        (c for c in model.key or model.columns if c.type == INTEGER and not c.identity), None
    )
    others = [c for c in model.written if c != key and (c in model.key or not c.nullable)]
    if key is None or any(reference.columns[0] in others for reference in model.references):
        return None
    values = [SQL("g"), *(_numbered(c) for c in others)]
    insert_many = SQL("{} SELECT {} FROM generate_series(100001, 100200) AS g").format(
        insert_head(model.name, [key, *others], overriding=True), listed(values)
    )
    delete_many = SQL("DELETE FROM {} WHERE {} > 100000").format(model.name, key.sql)
    return Statement(insert_many.as_string(None)), Statement(delete_many.as_string(None))


def _numbered(column: Column) -> Composable:
    """Return a value for each of many rows, with few equal values if the type allows it."""
    if column.type.family == "int":
        return SQL("g % 60")
    if column.type == TEXT:
        return SQL("'b' || g % 60")
    return literal(column.type.pool[0])


def _moved(column: Column, distance: int) -> Composed:
    """Return an expression for a key that differs from the existing values."""
    if column.type.family == "int":
        return SQL("{} + {}").format(column.sql, Literal(distance))
    if column.type.family == "uuid":
        return SQL("md5({}::text)::uuid").format(column.sql)
    return SQL("{} || 'k'").format(column.sql)


def _changed(w: Writer, column: Column) -> Composable:
    """Return the value to which an UPDATE sets a column."""
    if column.type.family == "int" and w.chance(0.4):
        return SQL("{} + 1").format(column.sql)
    return literal(any_value(w.rng, column))


def _meeting(w: Writer, model: Model, other: Model) -> Composed | SQL:
    pairs = [
        (a, b)
        for a in model.columns
        for b in other.columns
        if a.type.family == b.type.family and a.type.family != "json"
    ]
    if not pairs:
        return SQL("false")
    mine, theirs = w.rng.choice(pairs)
    narrowed = SQL("")
    candidates = [c for c in other.columns if c.type.family in ("int", "text", "date", "bool")]
    if candidates:
        column = w.rng.choice(candidates)
        narrowed = SQL(" AND theirs.{} = {}").format(  # type: ignore[assignment]
            column.sql, Literal(w.rng.choice(column.type.pool))
        )
    return SQL("mine.{} = theirs.{}{}").format(mine.sql, theirs.sql, narrowed)


def _copied(value: str | None) -> str:
    """Return a value in COPY's text format; no pool has a tab or a line break."""
    return "\\N" if value is None else value.replace("\\", "\\\\")
