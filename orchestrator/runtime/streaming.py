"""The rows of a view without a table, as its states have them and each once (section 2.4 of
papers/ivm-eps-triangle-queries.txt).

The summands follow each other. A row that an earlier summand has is passed over, and so is one that
the summand itself has for lesser values of the variables that are not shown: so rows are shown where
they are first met, and nothing has to be remembered. The paper bounds the time between two rows by
pointers that hop over what has been shown. Here a row is met as often as there are such values for it,
which are as many as the paper's candidate buckets; so the n-th row comes after at most n times as many
lookups, no later than if the paper's rows were handed out evenly. All is one query that PostgreSQL runs
by lookups, as far as its rows are fetched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from psycopg import Connection
from psycopg.sql import SQL, Composable, Composed, Identifier, Placeholder

from orchestrator.deltascript.plan import Walk
from orchestrator.runtime.walking import Known, Order, by_lookups, variables_of


def rows(
    connection: Connection[Any], order: Order, prefix: Mapping[str, object]
) -> Iterator[tuple[Any, ...]]:
    """The rows as of one snapshot, over a connection that nobody uses besides."""
    query = stream(order, variables_of(order, prefix))
    given = {f"fixed_{n}": value for n, value in enumerate(prefix.values())}
    with connection.transaction():
        by_lookups(connection)
        with connection.cursor("idivm_rows") as cursor:
            yield from cursor.execute(query, given)


def stream(
    order: Order, fixed: Sequence[str] = (), places: Sequence[int] | None = None
) -> Composed:
    """The query that finds the rows, those with some variables `fixed_0` and so on, or of some summands."""
    writer = _Writer(order, {v: Placeholder(f"fixed_{n}") for n, v in enumerate(fixed)})
    found = map(writer.summand, range(len(order.unions)) if places is None else places)
    conditions = (
        SQL("c.{} = k.{}").format(Identifier(column), writer.names[v])
        for v, column in order.keys.items()
    )
    # What a row is compared with must not be taken apart and joined otherwise.
    return SQL(
        "SELECT c.* FROM (\n{}\n) AS k, LATERAL (SELECT {} FROM {} AS c WHERE {} OFFSET 0) AS c"
    ).format(
        SQL("\nUNION ALL ").join(found),
        SQL(", ").join(SQL("c.{}").format(Identifier(name)) for name in order.shown),
        order.content,
        SQL(" AND ").join(conditions),
    )


class _Writer:
    """Writes the summands of a stream."""

    def __init__(self, order: Order, fixed: Known) -> None:
        self.order, self.fixed = order, fixed
        self.names = {variable: Identifier(f"v{n}") for n, variable in enumerate(order.keys)}
        self.aliases = (Identifier(f"e{n}") for n in count())

    def summand(self, place: int) -> Composed:
        """The keys of a summand's rows that none before it has."""
        walks = self.order.unions[place]
        tables, columns = self._joined(walks, self.fixed)
        key = {variable: columns[variable] for variable in self.order.keys}
        shown = (SQL("{} AS {}").format(key[v], self.names[v]) for v in self.order.keys)
        conditions: list[Composable] = [
            SQL("{} = {}").format(columns[v], value) for v, value in self.fixed.items()
        ]
        conditions += [self._lacks(other, key) for other in self.order.unions[:place]]
        hidden = sorted(columns.keys() - self.order.keys.keys())
        if hidden:
            conditions.append(self._lacks(walks, key, {v: columns[v] for v in hidden}))
        return SQL("SELECT {} FROM {} WHERE {}").format(
            SQL(", ").join(shown), tables, SQL(" AND ").join(conditions or [SQL("true")])
        )

    def _joined(self, walks: Sequence[Walk], fixed: Known) -> tuple[Composed, Known]:
        """States that extend each other, each looked up by the ones before, and their variables.

        If some are fixed, whichever order finds these best.
        """
        columns: dict[str, Composable] = {}
        tables = []
        for walk in walks:
            alias, inner = next(self.aliases), next(self.aliases)
            own = {v: SQL("{}.{}").format(inner, Identifier(name)) for v, name in walk.columns}
            same = (SQL("{} = {}").format(own[v], columns[v]) for v in own.keys() & columns.keys())
            tables.append(
                SQL("LATERAL (SELECT * FROM {} AS {} WHERE {}{}) AS {}").format(
                    self.order.names.state(walk.state),
                    inner,
                    SQL(" AND ").join([SQL("true"), *same]),
                    SQL("" if fixed else " OFFSET 0"),
                    alias,
                )
            )
            for v, name in walk.columns:
                columns.setdefault(v, SQL("{}.{}").format(alias, Identifier(name)))
        return SQL(", ").join(tables), columns

    def _lacks(self, walks: Sequence[Walk], key: Known, below: Known | None = None) -> Composed:
        """That a summand has no row with a key, or none with lesser values of other variables."""
        tables, columns = self._joined(walks, key)
        conditions = [SQL("{} = {}").format(columns[v], value) for v, value in key.items()]
        if below:
            here, there = (SQL(", ").join(side[v] for v in below) for side in (columns, below))
            conditions.append(SQL("ROW({}) < ROW({})").format(here, there))
        return SQL("NOT EXISTS (SELECT FROM {} WHERE {})").format(
            tables, SQL(" AND ").join(conditions)
        )
