"""Enumerate the distinct rows of a view without a table, in the order of its states (section 2.4 of
papers/ivm-eps-triangle-queries.txt).

A summand is listed in one state, or found in two. Then the first state gives the values of the hidden
variables, and the second has a bucket of rows for each of these values. A row may be in several buckets. As
in the paper, a row that was shown is excluded from all other buckets that contain it. These are the
candidates that one lookup finds, and iterators hop over excluded rows (`hops`). So the lookups from one row
to the next are at most as many as a row has candidates, and the memory concerns only the buckets that share
the shown values of the first state. The union of the summands also follows the paper.

If a prefix is given, or if no row occurs twice, one query finds all rows. It runs by lookups as its rows are
fetched, and shows rows where they occur first. PostgreSQL itself chooses how to find the rows of a prefix.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from psycopg import Connection, IsolationLevel
from psycopg.sql import SQL, Composed, Identifier, Placeholder

from orchestrator.catalog import objects as catalog_objects
from orchestrator.runtime.enumeration.hop_queries import Writer, all_of, compared, hidden_of, listed
from orchestrator.runtime.enumeration.order import Known, Order, as_text, from_text, variables_of
from orchestrator.runtime.enumeration.ordered import by_lookups
from orchestrator.runtime.enumeration.overlaps import Hops, united

AHEAD = 100
"""How many rows of a listed summand are fetched at once."""

Texts: TypeAlias = tuple[str, ...]
"""Values of some variables, as PostgreSQL writes them."""


def rows(
    connection: Connection[Any], order: Order, prefix: Mapping[str, object]
) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of one snapshot, over a connection without another user."""
    fixed = variables_of(order, prefix)
    connection.isolation_level = IsolationLevel.REPEATABLE_READ
    with connection.transaction():
        by_lookups(connection)
        if not prefix and any(hidden_of(order, walks) for walks in order.unions):
            yield from distinct(connection, order)
            return
        given = {f"fixed_{n}": value for n, value in enumerate(prefix.values())}
        with connection.cursor("idivm_rows") as cursor:
            yield from cursor.execute(stream(order, fixed), given)


def distinct(
    connection: Connection[Any],
    order: Order,
    places: Sequence[int] | None = None,
    ahead: int = AHEAD,
) -> Generator[tuple[Any, ...], None, None]:
    """Yield distinct rows, of all summands or of those at `places`, within the open transaction."""
    chosen = range(len(order.unions)) if places is None else places
    sources = [
        _Buckets(connection, order, place).rows()
        if hidden_of(order, order.unions[place])
        else _listed(connection, order, place, ahead)
        for place in chosen
    ]
    for row in united(sources, lambda row, number: chosen[number] in row.others):
        yield row.values


def stream(order: Order, fixed: Sequence[str] = ()) -> Composed:
    """Return the query that finds all rows, or the rows with given values of variables, `fixed_0` and so on."""
    writer = Writer(order, {v: Placeholder(f"fixed_{n}") for n, v in enumerate(fixed)})
    return writer.content_rows([writer.summand(place) for place in range(len(order.unions))])


@dataclass(frozen=True)
class _Row:
    """A row, and the later summands that also contain it."""

    values: tuple[Any, ...]
    others: frozenset[int]


def _row(values: Sequence[Any], others: Sequence[bool], place: int) -> _Row:
    return _Row(tuple(values), frozenset(place + n for n, other in enumerate(others, 1) if other))


def _listed(connection: Connection[Any], order: Order, place: int, ahead: int) -> Iterator[_Row]:
    """Yield the rows of a summand without duplicates."""
    writer = Writer(order, {})
    query = writer.content_rows([writer.plain(place)], place)
    with connection.cursor(f"idivm_rows_{place}") as cursor:
        cursor.itersize = ahead
        for row in cursor.execute(query):
            yield _row(row[:-1], row[-1], place)


class _Buckets:
    """Enumerates the rows of a summand that is found in two states, by hop iterators (figures 4 and 5)."""

    def __init__(self, connection: Connection[Any], order: Order, place: int) -> None:
        self.connection, self.order, self.place = connection, order, place
        first, second = order.unions[place]
        self.known, self.joined = (order.names.state(walk.state) for walk in (first, second))
        of_known, of_joined = dict(first.columns), dict(second.columns)
        self.columns = (of_known, of_joined)
        self.group = [v for v in of_known if v in order.keys]
        """The shown variables of the first state; buckets that differ in these variables share no row."""
        self.hidden = [v for v in of_known if v not in order.keys]
        self.element = [v for v in of_joined if v not in of_known]
        types = [catalog_objects.declared(connection, state) for state in (self.known, self.joined)]
        self.types = {v: types[1][column] for v, column in of_joined.items()}
        self.types |= {v: types[0][column] for v, column in of_known.items()}
        self.to_open, self.to_go_on = self._opening(), self._opening(behind=True)
        self.to_enter, self.to_step = self._entering(), self._stepping()
        self.to_look = self._looking()

    def rows(self) -> Iterator[_Row]:
        """Yield each row once."""
        row = self.connection.execute(self.to_open).fetchone()
        while row is not None:
            group = tuple(row[0])
            yield from self._group(group, *row[1:])
            # If buckets show no variable, all buckets are one collection.
            row = self._behind(group) if group else None

    def _behind(self, group: Texts) -> tuple[Any, ...] | None:
        return self.connection.execute(self.to_go_on, _given("group", group)).fetchone()

    def _group(
        self, group: Texts, bucket: Sequence[str], first: Sequence[str], after: Sequence[str] | None
    ) -> Iterator[_Row]:
        buckets: dict[Texts, Hops[Texts]] = {}
        passed: Hops[Texts] = Hops()
        here = tuple(bucket)
        while True:
            hops = buckets.pop(here, Hops[Texts]())
            element = hops.hop(tuple(first))
            while element is not None:
                at = {
                    **_given("group", group),
                    **_given("hidden", here),
                    **_given("element", element),
                }
                row = self.connection.execute(self.to_step, at).fetchone()
                assert row is not None
                others, following, candidates, is_shown, *values = row
                ended = []
                for candidate in candidates:
                    other, own, behind = map(_texts, candidate)
                    assert other and own
                    if buckets.setdefault(other, Hops()).exclude(own, behind):
                        ended.append(other)
                if ended:
                    self._leave_out(group, ended, buckets, passed)
                if is_shown:
                    yield _row(values, others, self.place)
                element = hops.hop(_texts(following))
            following = passed.hop(_texts(after))
            if following is None:
                return
            here = following
            entered = self.connection.execute(
                self.to_enter, {**_given("group", group), **_given("hidden", here)}
            ).fetchone()
            assert entered is not None
            first, after = entered

    def _leave_out(
        self,
        group: Texts,
        ended: Sequence[Texts],
        buckets: dict[Texts, Hops[Texts]],
        passed: Hops[Texts],
    ) -> None:
        """Exclude the buckets that have no rows left."""
        given = {f"ended_{n}": list(values) for n, values in enumerate(zip(*ended, strict=True))}
        rows = self.connection.execute(self.to_look, {**_given("group", group), **given})
        for row in rows.fetchall():
            bucket, first, following = map(_texts, row)
            assert bucket and first
            if not buckets[bucket].leaves(first):
                passed.exclude(bucket, following)
                del buckets[bucket]

    # Statements

    def _looking(self) -> Composed:
        """Return the query for some buckets: their values, the first row of each, and the next bucket."""
        own, group = self._columns(0, "k"), self._given("group")
        named = {v: SQL("e.{}").format(Identifier(v)) for v in self.hidden}
        texts = (SQL("{}::text[]").format(Placeholder(f"ended_{n}")) for n in range(len(named)))
        typed = {v: from_text(named[v], self.types[v]) for v in self.hidden}
        return SQL(
            "SELECT {}, {}, {} FROM unnest({}) AS e ({}),"
            " LATERAL (SELECT * FROM {} AS k WHERE {} AND {} OFFSET 0) AS k"
        ).format(
            self._array(own, self.hidden),
            self._least({**group, **own}),
            self._next_bucket(group, own),
            listed(texts),
            listed(map(Identifier, self.hidden)),
            self.known,
            compared("=", own, group, self.group),
            compared("=", own, typed, self.hidden),
        )

    def _opening(self, behind: bool = False) -> Composed:
        """Return the query for the first bucket of all, or of the next group: its values, its first row, the
        next bucket.
        """
        own, key = self._columns(0, "k"), [*self.group, *self.hidden]
        conditions = [compared(">", own, self._given("group"), self.group)] if behind else []
        bucket = SQL("SELECT * FROM {} AS k WHERE {} ORDER BY {} LIMIT 1").format(
            self.known, all_of(conditions), listed(own[v] for v in key)
        )
        least, following = self._least(own), self._next_bucket(own, own)
        return SQL("SELECT {}, {}, {}, {} FROM ({}) AS k").format(
            self._array(own, self.group), self._array(own, self.hidden), least, following, bucket
        )

    def _entering(self) -> Composed:
        """Return the query for the first row of a bucket and the next bucket."""
        group, hidden = self._given("group"), self._given("hidden")
        return SQL("SELECT {}, {}").format(
            self._least({**group, **hidden}), self._next_bucket(group, hidden)
        )

    def _stepping(self) -> Composed:
        """Return the query for a row of a bucket: the later summands that have it, the next row, the
        candidates, the row.

        HAVING may exclude the row from the content. A candidate is a later bucket that also contains the row:
        the bucket's values, the row there, and the next row there.
        """
        group, hidden, element = map(self._given, ("group", "hidden", "element"))
        joined, own = self._columns(1, "j"), self._columns(0, "k")
        alike = [
            compared("=", joined, {**group, **element}, [*self.group, *self.element]),
            compared(">", joined, hidden, self.hidden),
        ]
        there = {**group, **joined}
        parts = [
            self._array(own, self.hidden, json=True),
            self._array(joined, self.element, json=True),
            self._next(there, joined),
        ]
        # OFFSET 0 keeps the planner from merging the lookups and choosing another join.
        candidates = SQL(
            "(SELECT coalesce(json_agg(json_build_array({})), '[]') FROM"
            " (SELECT * FROM {} AS j WHERE {} OFFSET 0) AS j,"
            " LATERAL (SELECT * FROM {} AS k WHERE {} AND {} OFFSET 0) AS k)"
        ).format(
            listed(parts),
            self.joined,
            all_of(alike),
            self.known,
            compared("=", own, group, self.group),
            compared("=", own, joined, self.hidden),
        )
        writer = Writer(self.order, {})
        key = {**group, **element}
        return SQL(
            "SELECT {}, {}, {}, c.* FROM (SELECT) AS here"
            " LEFT JOIN LATERAL (SELECT true, {} FROM {} AS c WHERE {} OFFSET 0) AS c ON true"
        ).format(
            writer.others(self.place, key),
            self._next({**group, **hidden}, element),
            candidates,
            writer.columns,
            self.order.content,
            compared("=", writer.content, key, list(self.order.keys)),
        )

    def _columns(self, place: int, alias: str) -> Known:
        return {
            v: SQL("{}.{}").format(Identifier(alias), Identifier(column))
            for v, column in self.columns[place].items()
        }

    def _given(self, kind: str) -> Known:
        variables: list[str] = getattr(self, kind)
        # PostgreSQL itself wrote the types.
        return {
            v: SQL("{}::{}").format(Placeholder(f"{kind}_{n}"), SQL(self.types[v]))
            for n, v in enumerate(variables)
        }

    def _least(self, bucket: Known) -> Composed:
        """Return the query for the first row of a bucket."""
        return self._first(1, "f", [*self.group, *self.hidden], bucket, self.element)

    def _next(self, bucket: Known, behind: Known) -> Composed:
        """Return the query for the next row of a bucket."""
        return self._first(1, "n", [*self.group, *self.hidden], bucket, self.element, behind)

    def _next_bucket(self, group: Known, behind: Known) -> Composed:
        """Return the query for the next bucket of a group."""
        return self._first(0, "b", self.group, group, self.hidden, behind)

    def _first(
        self,
        place: int,
        alias: str,
        same: Sequence[str],
        known: Known,
        wanted: Sequence[str],
        behind: Known | None = None,
    ) -> Composed:
        """Return the query for the least values of some variables in a state, given values of other variables."""
        own = self._columns(place, alias)
        conditions = [compared("=", own, known, same)]
        if behind is not None:
            conditions.append(compared(">", own, behind, wanted))
        return SQL("(SELECT {} FROM {} AS {} WHERE {} ORDER BY {} LIMIT 1)").format(
            self._array(own, wanted, json=True),
            (self.known, self.joined)[place],
            Identifier(alias),
            all_of(conditions),
            listed(own[v] for v in wanted),
        )

    def _array(self, columns: Known, variables: Sequence[str], json: bool = False) -> Composed:
        texts = listed(as_text(columns[v], self.types[v]) for v in variables)
        return SQL("json_build_array({})" if json else "ARRAY[{}]::text[]").format(texts)


def _given(kind: str, values: Texts) -> dict[str, str]:
    return {f"{kind}_{n}": value for n, value in enumerate(values)}


def _texts(values: Sequence[str] | None) -> Texts | None:
    return None if values is None else tuple(values)
