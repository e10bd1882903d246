"""A load as ordinary statements, and as a command for readers."""

from __future__ import annotations

from collections.abc import Sequence

from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from orchestrator.fuzz.case import Load

TWIN = Identifier("pg_temp", "idivm_fuzz_twin")
"""A table with the rows of a load, in the types of its columns and without constraints."""


def names_of(step: Load) -> Composed:
    """Return the names of the loaded columns."""
    return SQL(", ").join(Identifier(column.name) for column in step.columns)


def create_twin(step: Load, name: Identifier = TWIN) -> Composed:
    """Return the statement that creates a table for the rows of a load."""
    temporary = SQL("TEMP " if name is TWIN else "")
    return SQL("CREATE {}TABLE {} ({})").format(
        temporary,
        name,
        SQL(", ").join(
            SQL("{} {}").format(Identifier(column.name), SQL(column.type))
            for column in step.columns
        ),
    )


def moves(step: Load, rows: Composable) -> list[Composed]:
    """Return the statements that change the table as the load must, given a query for its rows."""
    table, names = SQL(step.table), names_of(step)
    insert = SQL("INSERT INTO {} ({}) OVERRIDING SYSTEM VALUE {}").format(table, names, rows)
    if step.mode == "append":
        return [insert]
    key = SQL(", ").join(map(Identifier, step.key))
    if step.key:
        rest = [column.name for column in step.columns if column.name not in step.key]
        change = SQL(", ").join(SQL("{0} = excluded.{0}").format(Identifier(name)) for name in rest)
        insert += SQL(" ON CONFLICT ({}) DO {}").format(
            key, SQL("UPDATE SET {}").format(change) if rest else SQL("NOTHING")
        )
    if step.mode == "upsert":
        return [insert]
    delete = SQL("DELETE FROM {}").format(table)
    if step.key:
        delete += SQL(" WHERE ({}) NOT IN (SELECT {} FROM ({}) AS given ({}))").format(
            key, key, rows, names
        )
    return [delete, insert]


def as_statements(step: Load) -> list[Composed]:
    """Return statements with the rows as constants."""
    kept = [
        row
        for row in step.rows
        if step.present is None or row[_place(step, step.present)] is not None
    ]
    if not kept:
        return [] if step.mode != "replace" else [SQL("DELETE FROM {}").format(SQL(step.table))]
    rows = SQL(", ").join(
        SQL("({})").format(
            SQL(", ").join(
                SQL("CAST({} AS {})").format(Literal(value), SQL(column.type))
                for value, column in zip(row, step.columns, strict=True)
            )
        )
        for row in kept
        if not any(value and "\0" in value for value in row)
    )
    return moves(step, SQL("VALUES {}").format(rows))


def as_command(step: Load) -> str:
    """Return the command of a load, to be read and not to be run."""
    options: Sequence[tuple[bool, str]] = (
        (step.mode != "append", f"--mode {step.mode}"),
        (bool(step.key), f"--key {' '.join(step.key)}"),
        (step.quarantine, "--on-bad-row quarantine"),
        (step.views != "auto", f"--views {step.views}"),
        (step.multiline, "--options multiLine=true"),
        (step.present is not None, f"--where {step.present} IS NOT NULL"),
        (step.select, "--select (all columns)"),
    )
    listed = " ".join(text for given, text in options if given)
    packed = " packed" if step.packed else ""
    return f"idivm load {step.files} file(s) of{packed} {step.form} --into {step.table} {listed}".strip()


def _place(step: Load, name: str) -> int:
    return [column.name for column in step.columns].index(name)
