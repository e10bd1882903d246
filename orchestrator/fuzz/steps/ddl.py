"""Random DDL on the tables that views read, and the DDL that undoes it after some other steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TypeAlias

from psycopg.sql import SQL, Composed, Identifier, Literal

from orchestrator.fuzz.case import Alone, Statement
from orchestrator.fuzz.schemas.schema import Column, Model, listed

Statements: TypeAlias = "tuple[Composed, ...] | None"
"""Statements with other steps between them; None if the change does not apply to the table."""


def schema_change(rng: Random, models: Sequence[Model]) -> list[Alone]:
    """Return a random change of a suitable table, and the statements that undo it."""
    change = rng.choice(SCHEMA_CHANGES)
    fitting = [step for model in models if (step := change(rng, model))]
    chosen = rng.choice(fitting or [rewritten(rng, models[0])])
    return [Alone(Statement(statement.as_string(None))) for statement in chosen]


def table_renamed(rng: Random, model: Model) -> Statements:
    """Rename a table for a while; statements with the old name are refused meanwhile."""
    other = "renamed for a while"
    return (
        SQL("ALTER TABLE {} RENAME TO {}").format(model.name, Identifier(other)),
        SQL("ALTER TABLE {} RENAME TO {}").format(
            Identifier(model.path[0], other), Identifier(model.path[1])
        ),
    )


def column_renamed(rng: Random, model: Model) -> Statements:
    """Swap the names of two columns of one type, or rename a column for a while."""
    column = rng.choice(model.columns)
    alter = SQL("ALTER TABLE {} RENAME COLUMN {} TO {}")
    other = Identifier("renamed for a while")
    twins = [c for c in model.columns if _twins(column, c)]
    if not twins:
        return (
            alter.format(model.name, column.sql, other),
            alter.format(model.name, other, column.sql),
        )
    twin = rng.choice(twins)
    return (
        alter.format(model.name, column.sql, other),
        alter.format(model.name, twin.sql, column.sql),
        alter.format(model.name, other, twin.sql),
    )


def part_moved(rng: Random, model: Model) -> Statements:
    """Detach a partition or an inheritance child from its table for a while."""
    if not model.parts:
        return None
    place = rng.randrange(len(model.parts))
    part = Identifier(*model.parts[place])
    if model.inherited:
        return (
            SQL("ALTER TABLE {} NO INHERIT {}").format(part, model.name),
            SQL("ALTER TABLE {} INHERIT {}").format(part, model.name),
        )
    return (
        SQL("ALTER TABLE {} DETACH PARTITION {}").format(model.name, part),
        SQL("ALTER TABLE {} ATTACH PARTITION {} {}").format(model.name, part, model.bounds[place]),
    )


def child_added(rng: Random, model: Model) -> Statements:
    """Create a new inheritance child with the rows of its parent, and drop it again."""
    if model.partitioned_by:
        return None
    child = Identifier(model.path[0], "late child")
    return (
        SQL("CREATE TABLE {} () INHERITS ({})").format(child, model.name),
        SQL("INSERT INTO {} ({columns}) SELECT {columns} FROM ONLY {}").format(
            child, model.name, columns=_stored(model)
        ),
        SQL("DROP TABLE {}").format(child),
    )


def partition_added(rng: Random, model: Model) -> Statements:
    """Add a partition for new values for a while."""
    if model.partitioned_by != "LIST":
        return None
    added = Identifier(model.path[0], "late partition")
    return (
        SQL("CREATE TABLE {} PARTITION OF {} FOR VALUES IN (7, 40, 50)").format(added, model.name),
        SQL("DROP TABLE {}").format(added),
    )


def key_dropped(rng: Random, model: Model) -> Statements:
    """Drop the key permanently, and insert rows that repeat it."""
    if not model.key:
        return None
    dropped = SQL("ALTER TABLE {} DROP CONSTRAINT {} CASCADE").format(model.name, model.key_name)
    if model.key_kind == "index":
        dropped = SQL("DROP INDEX {} CASCADE").format(model.key_index)
    return (
        dropped,
        SQL("INSERT INTO {} ({columns}) OVERRIDING SYSTEM VALUE SELECT {columns} FROM {}").format(
            model.name, model.name, columns=_stored(model)
        ),
    )


def null_allowed(rng: Random, model: Model) -> Statements:
    """Drop NOT NULL of a column permanently, and set some of its values to NULL."""
    sure = [c for c in model.written if not (c.nullable or c.identity or c in model.key)]
    if not sure:
        return None
    column = rng.choice(sure)
    return (
        SQL("ALTER TABLE {} ALTER COLUMN {} DROP NOT NULL").format(model.name, column.sql),
        SQL(
            "UPDATE {} SET {column} = NULL WHERE {column} IN (SELECT min({column}) FROM {})"
        ).format(model.name, model.name, column=column.sql),
    )


def rewritten(rng: Random, model: Model) -> tuple[Composed, ...]:
    """Return statements that do not change the rows: a rewrite, an additional column, statistics."""
    extra = Identifier("extra")
    texts = rng.choice(
        (
            ("VACUUM FULL {}",),
            ("ANALYZE {}",),
            ("REINDEX TABLE {}",),
            ("ALTER TABLE {} ADD COLUMN {} integer DEFAULT 7", "ALTER TABLE {} DROP COLUMN {}"),
            ("ALTER TABLE {} SET UNLOGGED", "ALTER TABLE {} SET LOGGED"),
        )
    )
    return tuple(SQL(text).format(model.name, extra) for text in texts)


def column_dropped(rng: Random, model: Model) -> Statements:
    """Drop a column with everything that reads it, and add it again without its values."""
    free = [c for c in model.columns if c.computed is None and c.identity is None]
    if not free:
        return None
    column = rng.choice(free)
    return (
        SQL("ALTER TABLE {} DROP COLUMN {} CASCADE").format(model.name, column.sql),
        SQL("ALTER TABLE {} ADD COLUMN {} {}").format(model.name, column.sql, column.type.sql),
    )


def column_retyped(rng: Random, model: Model) -> Statements:
    """Change the type of a column but not its values; PostgreSQL refuses it if a view reads it."""
    wider = {"int": SQL("bigint"), "text": SQL("varchar"), "num": SQL("numeric")}
    fitting = [c for c in model.columns if c.type.family in wider and c.computed is None]
    if not fitting:
        return None
    column = rng.choice(fitting)
    return (
        SQL("ALTER TABLE {} ALTER COLUMN {} TYPE {}").format(
            model.name, column.sql, wider[column.type.family]
        ),
    )


def constraint_added(rng: Random, model: Model) -> Statements:
    """Add a constraint that some rows may violate, validate it, and drop it."""
    column, name = rng.choice(model.columns), Identifier("passing constraint")
    return (
        SQL("ALTER TABLE {} ADD CONSTRAINT {} CHECK ({} IS NOT NULL) NOT VALID").format(
            model.name, name, column.sql
        ),
        SQL("ALTER TABLE {} VALIDATE CONSTRAINT {}").format(model.name, name),
        SQL("ALTER TABLE {} DROP CONSTRAINT {}").format(model.name, name),
    )


def type_changed(rng: Random, model: Model) -> Statements:
    """Add and rename a label of an enum for a while, or add a constraint to a domain for a while."""
    own = [c.type for c in model.columns if isinstance(c.type.sql, Identifier)]
    if not own:
        return None
    kind = rng.choice(own)
    name = Identifier("passing constraint")
    if kind.family != "enum":
        return (
            SQL("ALTER DOMAIN {} ADD CONSTRAINT {} CHECK (VALUE::text <> '7')").format(
                kind.sql, name
            ),
            SQL("ALTER DOMAIN {} DROP CONSTRAINT {}").format(kind.sql, name),
        )
    label, other = Literal(rng.choice(kind.pool)), Literal("for a while")
    return (
        SQL("ALTER TYPE {} ADD VALUE IF NOT EXISTS 'between' BEFORE {}").format(kind.sql, label),
        SQL("ALTER TYPE {} RENAME VALUE {} TO {}").format(kind.sql, label, other),
        SQL("ALTER TYPE {} RENAME VALUE {} TO {}").format(kind.sql, other, label),
    )


SCHEMA_CHANGES: tuple[Callable[[Random, Model], Statements], ...] = (
    table_renamed,
    column_renamed,
    part_moved,
    part_moved,
    child_added,
    partition_added,
    key_dropped,
    null_allowed,
    rewritten,
    column_dropped,
    column_retyped,
    constraint_added,
    type_changed,
)
"""All kinds of DDL on a table."""


def _twins(column: Column, other: Column) -> bool:
    return (
        column != other and column.type == other.type and column.computed is other.computed is None
    )


def _stored(model: Model) -> Composed:
    return listed([column.sql for column in model.columns if column.computed is None])
