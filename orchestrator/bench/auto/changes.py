"""Changes of a table: updates, deletes and inserts of a number of rows, chosen at random."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg.sql import SQL, Identifier, Literal

from orchestrator.api import Orchestrator

SIZES = ("1", "10", "100", "1%", "10%", "50%")
QUICK_SIZES = ("1", "10%")
KINDS = ("update", "delete", "insert")
TRANSACTIONS = "transactions"


@dataclass(frozen=True)
class Change:
    """A kind of change and its size."""

    kind: str
    size: str

    def __str__(self) -> str:
        """Return the kind and the size as text."""
        return self.kind if self.kind == TRANSACTIONS else f"{self.kind} {self.size}"


@dataclass(frozen=True)
class Table:
    """A table whose rows change."""

    name: str
    rows: int
    columns: tuple[str, ...]
    """The columns that an insert can set."""
    referenced: bool
    """Whether a foreign key refers to the table, so that its rows cannot be deleted."""

    def count(self, size: str) -> int:
        """Return the number of rows that a size stands for.

        >>> Table("t", 5000, (), False).count("10%"), Table("t", 50, (), False).count("100")
        (500, 50)
        """
        part = self.rows * int(size[:-1]) // 100 if size.endswith("%") else int(size)
        return max(1, min(part, self.rows))


def changes_of(table: Table, sizes: Sequence[str]) -> list[Change]:
    """Return the changes of a table; each insert brings back the rows of the delete before it."""
    kinds = KINDS[:1] if table.referenced else KINDS
    return [Change(kind, size) for size in sizes for kind in kinds]


def describe(orchestrator: Orchestrator, name: str) -> Table:
    """Return a table with its number of rows, its columns, and whether a foreign key refers to it."""
    connection = orchestrator.connection
    row = connection.execute(SQL("SELECT count(*) FROM {}").format(Identifier(name))).fetchone()
    columns = connection.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0"
        " AND NOT attisdropped AND attgenerated = '' ORDER BY attnum",
        [name],
    ).fetchall()
    referenced = connection.execute(
        "SELECT FROM pg_constraint WHERE confrelid = to_regclass(%s) AND contype = 'f'", [name]
    ).fetchone()
    assert row is not None
    return Table(name, row[0], tuple(column for (column,) in columns), referenced is not None)


_CHOSEN = Identifier("pg_temp", "chosen")
_DELETED = Identifier("pg_temp", "deleted")


def make(orchestrator: Orchestrator, table: Table, change: Change, update: str, seed: int) -> None:
    """Change rows of a table; each seed chooses different rows."""
    connection = orchestrator.connection
    relation = Identifier(table.name)
    columns = SQL(", ").join(map(Identifier, table.columns))
    if change.kind == "insert":
        # The rows of an inheritance child come back as rows of the parent.
        connection.execute(
            SQL("INSERT INTO {} ({}) SELECT {} FROM {}").format(
                relation, columns, columns, _DELETED
            )
        )
        return
    _choose(orchestrator, table, table.count(change.size), seed)
    chosen = SQL("(t.tableoid, t.ctid) IN (SELECT part, place FROM {})").format(_CHOSEN)
    if change.kind == "update":
        # The assignments come from a file of the benchmark.
        connection.execute(
            SQL("UPDATE {} AS t SET {} WHERE {}").format(relation, SQL(update), chosen)
        )
        return
    connection.execute(SQL("DROP TABLE IF EXISTS {}").format(_DELETED))
    connection.execute(
        SQL("CREATE TEMP TABLE deleted AS SELECT {} FROM {} AS t WHERE {}").format(
            columns, relation, chosen
        )
    )
    connection.execute(SQL("DELETE FROM {} AS t WHERE {}").format(relation, chosen))


def _choose(orchestrator: Orchestrator, table: Table, count: int, seed: int) -> None:
    connection = orchestrator.connection
    # Sample some more rows than needed, so that there are enough.
    share = 130 * count / max(table.rows, 1) + 2000 / max(table.rows, 1)
    chosen = -1
    # The seed names places of the table, from which updated rows move away: with the same seed, the
    # next view would find fewer rows.
    while chosen < count and share < 200:
        connection.execute(SQL("DROP TABLE IF EXISTS {}").format(_CHOSEN))
        chosen = connection.execute(
            SQL(
                "CREATE TEMP TABLE chosen AS SELECT tableoid AS part, ctid AS place"
                " FROM {} TABLESAMPLE BERNOULLI ({}) REPEATABLE ({})"
                " ORDER BY hashtext(ctid::text) LIMIT {}"
            ).format(
                Identifier(table.name), Literal(min(share, 100.0)), Literal(seed), Literal(count)
            )
        ).rowcount
        share *= 2
