"""Parts of the queries of hop enumeration."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count

from psycopg.sql import SQL, Composable, Composed, Identifier

from orchestrator.deltascript.plan import Walk
from orchestrator.runtime.enumeration.order import Known, Order


def hidden_of(order: Order, walks: Sequence[Walk]) -> list[str]:
    """Return the variables of a summand that are not shown."""
    return sorted({v for walk in walks for v, _ in walk.columns} - order.keys.keys())


def compared(operator: str, known: Known, other: Known, variables: Sequence[str]) -> Composed:
    """Return a comparison of two rows of variables."""
    if not variables:
        return SQL("true").format()
    return SQL("ROW({}) {} ROW({})").format(
        listed(known[v] for v in variables), SQL(operator), listed(other[v] for v in variables)
    )


def all_of(conditions: Sequence[Composable]) -> Composable:
    """Return the conjunction of conditions."""
    return SQL(" AND ").join(conditions) if conditions else SQL("true")


def listed(parts: Iterable[Composable]) -> Composed:
    """Return parts with commas between them."""
    return SQL(", ").join(parts)


class Writer:
    """Writes queries for summands, for rows that summands share, and for rows of the content."""

    def __init__(self, order: Order, fixed: Known) -> None:
        """Take an order and the values of its fixed variables."""
        self.order, self.fixed = order, fixed
        self.names = {variable: Identifier(f"v{n}") for n, variable in enumerate(order.keys)}
        self.aliases = (Identifier(f"e{n}") for n in count())

    @property
    def content(self) -> Known:
        """Return the columns of the content by variable."""
        return {v: SQL("c.{}").format(Identifier(name)) for v, name in self.order.keys.items()}

    @property
    def columns(self) -> Composed:
        """Return the columns of the content that are shown."""
        return listed(SQL("c.{}").format(Identifier(name)) for name in self.order.visible)

    def content_rows(self, composeds: Sequence[Composed], place: int | None = None) -> Composed:
        """Return a query for the rows with given keys. With `place`, also return which later summands have
        each row.
        """
        keys = {v: SQL("k.{}").format(name) for v, name in self.names.items()}
        others = [] if place is None else [self.others(place, keys)]
        # OFFSET 0 keeps the planner from merging the lookups and choosing another join.
        return SQL(
            "SELECT {} FROM (\n{}\n) AS k, LATERAL (SELECT {} FROM {} AS c WHERE {} OFFSET 0) AS c"
        ).format(
            listed([SQL("c.*"), *others]),
            SQL("\nUNION ALL ").join(composeds),
            self.columns,
            self.order.content,
            compared("=", self.content, keys, list(self.order.keys)),
        )

    def others(self, place: int, key: Known) -> Composed:
        """Return, for each later summand, whether it has a key."""
        later = self.order.unions[place + 1 :]
        return SQL("ARRAY[{}]::boolean[]").format(listed(self._has(walks, key) for walks in later))

    def plain(self, place: int) -> Composed:
        """Return a query for the keys of a summand's rows."""
        tables, columns = self._joined(self.order.unions[place], self.fixed)
        return SQL("SELECT {} FROM {}").format(self._keys(columns), tables)

    def summand(self, place: int) -> Composed:
        """Return a query for the distinct keys of a summand's rows that no earlier summand has."""
        walks = self.order.unions[place]
        tables, columns = self._joined(walks, self.fixed)
        key = {variable: columns[variable] for variable in self.order.keys}
        conditions: list[Composable] = [
            SQL("{} = {}").format(columns[v], value) for v, value in self.fixed.items()
        ]
        absent = [self._has(other, key) for other in self.order.unions[:place]]
        hidden = hidden_of(self.order, walks)
        if hidden:
            absent.append(self._has(walks, key, {v: columns[v] for v in hidden}))
        conditions += (SQL("NOT {}").format(item) for item in absent)
        return SQL("SELECT {} FROM {} WHERE {}").format(
            self._keys(columns), tables, all_of(conditions)
        )

    def _keys(self, columns: Known) -> Composed:
        return listed(SQL("{} AS {}").format(columns[v], self.names[v]) for v in self.order.keys)

    def _joined(self, walks: Sequence[Walk], fixed: Known) -> tuple[Composed, Known]:
        """Return a join of states, each looked up by the earlier states, and the columns of their variables.

        If some variables are fixed, PostgreSQL chooses the join order.
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
                    all_of(list(same)),
                    SQL("" if fixed else " OFFSET 0"),
                    alias,
                )
            )
            for v, name in walk.columns:
                columns.setdefault(v, SQL("{}.{}").format(alias, Identifier(name)))
        return listed(tables), columns

    def _has(self, walks: Sequence[Walk], key: Known, below: Known | None = None) -> Composed:
        """Return whether a summand has a row with a key and, with `below`, with lesser values of other variables."""
        tables, columns = self._joined(walks, key)
        conditions = [SQL("{} = {}").format(columns[v], value) for v, value in key.items()]
        if below:
            conditions.append(compared("<", columns, below, list(below)))
        return SQL("EXISTS (SELECT FROM {} WHERE {})").format(tables, all_of(conditions))
