"""Enumerate the distinct rows of a view without a table, in the order of its variables (section 4 of
papers/hierarchical-queries.txt).

The paper opens iterators on buckets that may overlap, and its union algorithm looks up each row of one bucket
in the others. Here every bucket is read in the order of the grouping columns, and the next row is the least
of the rows that follow the last row in the buckets. That takes as many lookups as there are buckets, one for
each heavy value, and only the last row must be remembered. So rows come in pages, each by one statement.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from psycopg import Connection, IsolationLevel
from psycopg.sql import SQL, Composable, Composed, Identifier, Literal, Placeholder

from orchestrator.deltascript.plan import Walk
from orchestrator.runtime.enumeration.order import Known, Order, as_text, fixed_by

PAGE = 256
"""Rows of a page. The first pages are smaller, for callers that need only a few rows."""

OFF = ("enable_seqscan", "enable_hashjoin", "enable_mergejoin", "enable_material", "jit")
"""Settings that make the planner use lookups, whatever it estimates of the sizes."""

_NOTHING = SQL("")


def rows(
    connection: Connection[Any], order: Order, prefix: Mapping[str, object]
) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of one snapshot, over a connection without another user."""
    steps = _Steps(order, fixed_by(order, prefix))
    given: dict[str, object] = {f"fixed_{n}": prefix[name] for n, name in enumerate(prefix)}
    connection.isolation_level = IsolationLevel.REPEATABLE_READ
    with connection.transaction():
        by_lookups(connection)
        if not steps.walked:
            yield from connection.execute(steps.content(steps.fixed), given).fetchall()
            return
        width = 1 + len(steps.walked)
        page = 1
        last: tuple[Any, ...] | None = None
        while True:
            behind = {f"last_{n}": value for n, value in enumerate(last or ())}
            page_rows = connection.execute(
                steps.page(last is not None), {**given, **behind, "page": page}
            ).fetchall()
            page_rows.sort(key=lambda row: row[0])
            # HAVING excludes some of the enumerated groups.
            yield from (row[width + 1 :] for row in page_rows if row[width])
            if len(page_rows) < page:
                return
            last = page_rows[-1][1:width]
            page = min(2 * page, PAGE)


def by_lookups(connection: Connection[Any], off: Sequence[str] = OFF) -> None:
    """Make PostgreSQL plan lookups in the rest of the open transaction."""
    for setting in off:
        connection.execute(SQL("SET LOCAL {} = off").format(Identifier(setting)))


def stored_rows(
    connection: Connection[Any],
    relation: Composable,
    prefix: Mapping[str, object],
    joined: bool = False,
    order: str | None = None,
) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a relation as they are requested, sorted if there is an order.

    If the rows are `joined` while they are read, plan lookups, so that no table is hashed before the first
    row.
    """
    conditions = [
        SQL("{} IS NULL" if value is None else "{} = %s").format(Identifier(name))
        for name, value in prefix.items()
    ]
    given = [value for value in prefix.values() if value is not None]
    with connection.transaction(), connection.cursor("idivm_rows") as cursor:
        if joined:
            by_lookups(connection)
        query = SQL("SELECT * FROM {} WHERE {}").format(relation, _all(conditions))
        if order is not None:
            # A plan has only orders that idivm has written, over the columns of the view.
            query = SQL("{} ORDER BY {}").format(query, SQL(order.replace("%", "%%")))
        yield from cursor.execute(query, given)


@dataclass(frozen=True)
class _Row:
    """A subquery that returns at most one row, and the variables that it shows, in order."""

    query: Composed
    variables: tuple[str, ...]


class _Steps:
    """Writes the queries that find the next row."""

    def __init__(
        self, order: Order, fixed: Sequence[str], last: Sequence[str] | None = None
    ) -> None:
        """Take the key of the `last` row. Without it, write parameters for the key."""
        self.order, self.last = order, last
        self.names = {variable: Identifier(f"v{n}") for n, variable in enumerate(order.keys)}
        self.walked = tuple(variable for variable in order.keys if variable not in fixed)
        self.fixed: Known = {v: self._given(f"fixed_{n}", v) for n, v in enumerate(fixed)}
        self.aliases = (Identifier(f"e{n}") for n in count())

    def _given(self, name: str, variable: str) -> Composed:
        # PostgreSQL itself wrote the type.
        return SQL("{}::{}").format(Placeholder(name), SQL(self.order.types[variable]))

    def _last(self, number: int, variable: str) -> Composed:
        if self.last is None:
            return self._given(f"last_{number}", variable)
        value, type_ = Literal(self.last[number]), SQL(self.order.types[variable])
        return SQL("{}::{}").format(value, type_)

    # Statements

    def page(self, goes_on: bool, rows: Composable | None = None) -> Composed:
        """Return a query for a page: the first rows, or the rows after the last row, each with its place and key."""
        following = self._typed(self._any(self.fixed, self._of("last")), SQL("last.place + 1"))
        if goes_on:
            given = (
                SQL("{} AS {}").format(self._last(n, v), self.names[v])
                for n, v in enumerate(self.walked)
            )
            beginning = SQL(
                "SELECT n.* FROM (SELECT {}, 0 AS place) AS last, LATERAL ({}) AS n"
            ).format(SQL(", ").join(given), following)
        else:
            beginning = self._typed(self._any(self.fixed, None), SQL("1"))
        return SQL(
            "WITH RECURSIVE walk ({named}, place) AS (\n    {beginning}\n  UNION ALL\n"
            "    SELECT n.* FROM walk AS last, LATERAL (\n{following}\n    ) AS n"
            " WHERE last.place < {page}\n)\n"
            "SELECT w.place, {texts}, c.* FROM walk AS w LEFT JOIN LATERAL ({content}) AS c ON true"
        ).format(
            named=SQL(", ").join(self.names[v] for v in self.walked),
            beginning=beginning,
            following=following,
            page=rows or Placeholder("page"),
            texts=SQL(", ").join(self._text(v) for v in self.walked),
            content=self.content({**self.fixed, **self._of("w")}, SQL("true, ")),
        )

    def _text(self, variable: str) -> Composed:
        return as_text(SQL("w.{}").format(self.names[variable]), self.order.types[variable])

    def _of(self, alias: str) -> Known:
        return {v: SQL("{}.{}").format(Identifier(alias), self.names[v]) for v in self.walked}

    def _typed(self, row: _Row, place: Composable) -> Composed:
        """Return a query that casts the columns of a row to the declared types."""
        columns = (
            SQL("r.{}::{}").format(self.names[v], SQL(self.order.types[v])) for v in self.walked
        )
        return SQL("SELECT {}, {} FROM ({}) AS r").format(SQL(", ").join(columns), place, row.query)

    def content(self, key: Known, before: Composable = _NOTHING) -> Composed:
        """Return a query for the row of the content with a key. It compares NULLs where they can occur.

        `before` is shown before the columns.
        """
        order = self.order
        pairs = [(SQL("c.{}").format(Identifier(order.keys[v])), key[v]) for v in order.keys]
        select = SQL("SELECT {}{} FROM {} AS c WHERE ").format(
            before,
            SQL(", ").join(SQL("c.{}").format(Identifier(name)) for name in order.visible),
            order.content,
        )
        plain = SQL(" AND ").join(SQL("{} = {}").format(*pair) for pair in pairs)
        # OFFSET 0 keeps the planner from merging the lookup and choosing another join.
        result = SQL("{}{} OFFSET 0").format(select, plain)
        nullable = {v for walk in order.walks for v in walk.nullable}
        unsure = [SQL("{} IS NULL").format(key[v]) for v in order.keys if v in nullable]
        if not unsure:
            return result
        same = SQL(" AND ").join(_same(*pair) for pair in pairs)
        return SQL("({}) UNION ALL ({}{} AND ({}) OFFSET 0)").format(
            result, select, same, SQL(" OR ").join(unsure)
        )

    # Rows

    def _any(self, known: Known, last: Known | None) -> _Row:
        """Return the first row of all summands, or the first row after the last row."""
        firsts = [
            self._joined(trees, known) if last is None else self._behind(trees, known, last)
            for trees in self.order.unions
        ]
        return self._least([row for row in firsts if row is not None])

    def _least(self, rows: Sequence[_Row]) -> _Row:
        """Return the least of some rows that show the same variables."""
        if len(rows) == 1:
            return rows[0]
        variables = rows[0].variables
        return _Row(
            SQL("SELECT {} FROM ({}) AS u{} LIMIT 1").format(
                SQL("*" if variables else ""),
                SQL("\nUNION ALL ").join(SQL("({})").format(row.query) for row in rows),
                self._sorted(variables),
            ),
            variables,
        )

    def _sorted(self, variables: Sequence[str]) -> Composed:
        if not variables:
            return SQL("").format()
        return SQL(" ORDER BY {}").format(SQL(", ").join(self.names[v] for v in variables))

    def _listed(self, known: Known) -> tuple[Composed, tuple[str, ...]]:
        variables = tuple(v for v in self.walked if v in known)
        listed = (SQL("{} AS {}").format(known[v], self.names[v]) for v in variables)
        return SQL(", ").join(listed), variables

    def _new_variables(self, walk: Walk, known: Known) -> tuple[str, ...]:
        return tuple(v for v in self.walked if v in walk.variables and v not in known)

    def _joined(
        self, walks: Sequence[Walk], known: Known, moving: int = -1, last: Known | None = None
    ) -> _Row:
        """Return the first joined row that equals the last row before `moving`, and follows it there."""
        outputs: dict[str, Composable] = {}
        tables: list[Composed] = []
        for place, walk in enumerate(walks):
            here = {**known, **outputs}
            if place < moving and last is not None:
                same = {v: last[v] for v in self._new_variables(walk, here)}
                outputs |= same
                row = self._first(walk, {**here, **same})
            elif place == moving and last is not None:
                after = self._after(walk, here, last)
                assert after is not None
                row = after
            else:
                row = self._first(walk, here)
            alias = next(self.aliases)
            tables.append(SQL("LATERAL ({}) AS {}").format(row.query, alias))
            outputs |= {v: SQL("{}.{}").format(alias, self.names[v]) for v in row.variables}
        listed, variables = self._listed(outputs)
        return _Row(SQL("SELECT {} FROM {}").format(listed, SQL(", ").join(tables)), variables)

    def _behind(self, walks: Sequence[Walk], known: Known, last: Known) -> _Row | None:
        """Return the first row of a product after the last row, with as many equal values as possible."""
        firsts = []
        here = dict(known)
        for place, walk in enumerate(walks):
            own = self._new_variables(walk, here)
            if own:
                firsts.append(self._joined(walks, known, place, last))
            here |= {v: last[v] for v in own}
        return self._least(firsts) if firsts else None

    def _first(self, walk: Walk, known: Known) -> _Row:
        """Return the first row of a tree."""
        if not walk.below:
            return self._scanned(walk, known, {})
        if not self.order.is_heavy(walk):
            return self._joined((walk.alone, *walk.below), known)
        row = self._heavy(walk, known)
        assert row is not None
        return row

    def _after(self, walk: Walk, known: Known, last: Known) -> _Row | None:
        """Return the first row of a tree after the last row, if the tree shows anything."""
        own = self._new_variables(walk.alone, known)
        if walk.below and not self.order.is_heavy(walk):
            return self._behind((walk.alone, *walk.below), known, last)
        if walk.below:
            beyond = self._heavy(walk, known, last, beyond=True) if own else None
            firsts = [row for row in (self._heavy(walk, known, last), beyond) if row is not None]
            return self._least(firsts) if firsts else None
        firsts = []
        for place, moving in enumerate(own):
            kept = {v: last[v] for v in own[:place]}
            firsts.append(self._scanned(walk, known, kept, (moving, "{} > {}"), last))
            if moving in walk.nullable:
                nothing = (moving, "{} IS NULL AND {} IS NOT NULL")
                firsts.append(self._scanned(walk, known, kept, nothing, last))
        return self._least(firsts) if firsts else None

    def _scanned(
        self,
        walk: Walk,
        known: Known,
        kept: Known,
        moving: tuple[str, str] | None = None,
        last: Known | None = None,
    ) -> _Row:
        """Return the first row of one state, with the kept values of the last row and one value that follows it."""
        alias = next(self.aliases)
        columns = self._columns(walk, alias)
        conditions = self._matching(walk, columns, {**known, **kept})
        if moving is not None and last is not None:
            variable, text = moving
            conditions.append(SQL(text).format(columns[variable], last[variable]))
        outputs = {v: kept.get(v, columns[v]) for v in self._new_variables(walk, known)}
        listed, variables = self._listed(outputs)
        query = SQL("SELECT {} FROM {} AS {} WHERE {}{} LIMIT 1").format(
            listed,
            self.order.names.state(walk.state),
            alias,
            _all(conditions),
            self._sorted([v for v in variables if v not in kept]),
        )
        return _Row(query, variables)

    def _heavy(
        self, walk: Walk, known: Known, last: Known | None = None, *, beyond: bool = False
    ) -> _Row | None:
        """Return the least row of the heavy values: the first row of each, or the first after the last row.

        If free variables are among the heavy values, keep the values of the last row, or go `beyond` them.
        """
        alias, inner = next(self.aliases), next(self.aliases)
        columns = self._columns(walk, alias)
        own = self._new_variables(walk.alone, known)
        kept = {v: last[v] for v in own} if last is not None and not beyond else {}
        known = {**known, **kept}
        conditions = self._matching(walk, columns, known)
        if beyond and last is not None:
            here, there = (SQL(", ").join(side[v] for v in own) for side in (columns, last))
            conditions.append(SQL("ROW({}) > ROW({})").format(here, there))
        known = {**columns, **known}
        if last is None or beyond:
            row: _Row | None = self._joined(walk.below, known)
        else:
            row = self._behind(walk.below, known, last)
        if row is None:
            return None
        outputs = {v: kept.get(v, columns[v]) for v in own}
        outputs |= {v: SQL("{}.{}").format(inner, self.names[v]) for v in row.variables}
        listed, variables = self._listed(outputs)
        query = SQL("SELECT {} FROM {} AS {}, LATERAL ({}) AS {} WHERE {}{} LIMIT 1").format(
            listed,
            self.order.names.state(walk.state),
            alias,
            row.query,
            inner,
            _all(conditions),
            self._sorted(variables),
        )
        return _Row(query, variables)

    def _columns(self, walk: Walk, alias: Identifier) -> dict[str, Composable]:
        return {v: SQL("{}.{}").format(alias, Identifier(column)) for v, column in walk.columns}

    def _matching(self, walk: Walk, columns: Known, known: Known) -> list[Composable]:
        """Return the conditions for the rows of a state that match known values."""
        return [
            _same(columns[v], known[v])
            if v in walk.nullable
            else SQL("{} = {}").format(columns[v], known[v])
            for v, _ in walk.columns
            if v in known
        ]


def _all(conditions: Sequence[Composable]) -> Composable:
    return SQL(" AND ").join(conditions) if conditions else SQL("true")


def _same(column: Composable, value: Composable) -> Composed:
    return SQL("({0} = {1} OR {0} IS NULL AND {1} IS NULL)").format(column, value)
