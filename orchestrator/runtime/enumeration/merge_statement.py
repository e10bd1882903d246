"""The statement that merges sorted buckets (`merged` explains it)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import count

from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from orchestrator.caching import cached_property
from orchestrator.deltascript.plan import Walk, over_rows
from orchestrator.deltascript.query import query_text
from orchestrator.runtime.enumeration.buckets import Bucket, buckets_of, groups_of
from orchestrator.runtime.enumeration.order import Known, Order

PAGE = 1024
"""Rows of a page. The first pages are smaller, for readers that need only a few rows."""

HEAP = 256
"""The buckets of a heap. A page that would need more of them ends before the first row of the next bucket."""

SHARED = 16
"""So many buckets have a row that is a page of its own, if they are half of all buckets, or more than a heap holds.

Such a page needs no heap, through which each of the buckets would move for each row.
"""

_TRUE = SQL("true")


class Merging:
    """Writes the statement that yields all rows, or those with given values of some variables."""

    def __init__(
        self,
        order: Order,
        fixed: Mapping[str, Sequence[Composable]],
        known: Collection[str] | None = None,
    ) -> None:
        """Take the conditions of fixed variables, as the SQL before and after the column.

        `known` are the variables that certainly have a value; without it, all fixed ones.
        """
        buckets = buckets_of(order)
        assert buckets is not None
        self.order, self.fixed = order, fixed
        self.given = frozenset(fixed if known is None else known)
        self.buckets = tuple(self._known_first(bucket) for bucket in buckets)
        self.slots = [Identifier(f"t{n}") for n in range(max(len(b.states) for b in self.buckets))]
        self.names = {variable: Identifier(f"v{n}") for n, variable in enumerate(order.keys)}
        self.aliases = (Identifier(f"e{n}") for n in count())

    def _known_first(self, bucket: Bucket) -> Bucket:
        """Return the bucket with the states first whose variables are fixed or known."""
        known = {v for walk in bucket.listed_by for v in walk.own} | self.given
        first = [walk for walk in bucket.scanned if walk.own <= known]
        return Bucket(
            bucket.listed_by, (*first, *(walk for walk in bucket.scanned if walk not in first))
        )

    # The statement

    def rows(self, allowed: Composable | None = None) -> Composed:
        """Return the statement. It yields nothing unless the condition `allowed` holds."""
        return SQL(
            "WITH RECURSIVE pages (last, goes_on, size, is_end, rows) AS (\n"
            "    SELECT NULL::{type}, false, 1, {refused}, NULL::{type}[]\n"
            "  UNION ALL\n"
            "    SELECT page.last, true, least(8 * b.size, {most}), page.is_end, page.rows FROM pages AS b,\n"
            "    LATERAL (\n{page}\n    ) AS page WHERE NOT b.is_end\n"
            ")\nSELECT {shown} FROM pages, unnest(pages.rows) AS r{nulls}"
        ).format(
            type=self.order.content,
            most=Literal(PAGE),
            page=self._page(),
            shown=_listed(SQL("r.{}").format(Identifier(name)) for name in self.order.visible),
            refused=SQL("({}) IS NOT TRUE").format(allowed) if allowed else SQL("false"),
            nulls=self._rows_with_null(allowed),
        )

    @cached_property
    def nullable(self) -> tuple[str, ...]:
        """The variables that may be NULL."""
        nullable = {v for walk in self.order.walks for v in walk.nullable}
        return tuple(v for v in self.order.keys if v in nullable and v not in self.given)

    def _rows_with_null(self, allowed: Composable | None) -> Composable:
        if not self.nullable:
            return SQL("")
        columns = {v: SQL("c.{}").format(Identifier(name)) for v, name in self.order.keys.items()}
        conditions: list[Composable] = [self._fixed_at(v, columns[v]) for v in self.fixed]
        nulls = SQL(" OR ").join(SQL("{} IS NULL").format(columns[v]) for v in self.nullable)
        return SQL("\nUNION ALL SELECT {} FROM {} AS c WHERE {}").format(
            _listed(SQL("c.{}").format(Identifier(name)) for name in self.order.visible),
            self.order.content,
            _all([*conditions, SQL("({})").format(nulls), *([allowed] if allowed else [])]),
        )

    def _page(self) -> Composed:
        """Return the query for the rows of a page after the row `b.last`."""
        arrays = [SQL("keys"), SQL("places"), *self.slots]
        runs = [SQL("run_keys"), SQL("run_place"), *(_run(slot) for slot in self.slots)]
        return SQL(
            "WITH RECURSIVE heads AS MATERIALIZED (\n"
            "    SELECT h.*, row_number() OVER (ORDER BY {order}, h.place) AS nth,"
            " rank() OVER (ORDER BY {order}) = 1 AS is_first, count(*) OVER () AS buckets FROM (\n{heads}\n    ) AS h"
            " ORDER BY {order} FETCH FIRST {most} ROWS WITH TIES\n"
            "), bounds AS MATERIALIZED (\n"
            "    SELECT (array_agg(h.key) FILTER (WHERE h.nth = {most}))[1] AS bound,"
            " count(*) FILTER (WHERE h.is_first) >= least({most}, greatest({shared_by}, max(h.buckets) / 2))"
            " AS is_shared"
            " FROM heads AS h\n"
            "), shared AS MATERIALIZED (\n"
            "    SELECT h.* FROM heads AS h, bounds AS l WHERE l.is_shared AND h.is_first\n"
            "), heap ({arrays}, bound, length, size, last, {runs}) AS (\n"
            "    SELECT {first}, (SELECT l.bound FROM bounds AS l),"
            " least(16, b.size), (SELECT count(*)::integer FROM shared AS h),"
            " (SELECT h.key FROM shared AS h LIMIT 1), {no_runs}\n"
            "    FROM (SELECT h.* FROM heads AS h, bounds AS l"
            " WHERE NOT l.is_shared AND (h.key < l.bound) IS NOT FALSE ORDER BY h.nth) AS h\n"
            "  UNION ALL\n{step}\n"
            "), p AS MATERIALIZED (\n"
            "    SELECT h.run_place AS place, r.* FROM heap AS h, unnest({taken}) AS r ({slots})\n"
            "  UNION ALL SELECT h.place, {shared} FROM shared AS h\n"
            ")\nSELECT (SELECT h.last FROM heap AS h ORDER BY h.size DESC LIMIT 1) AS last,"
            " (SELECT max(h.size) FROM heap AS h) = 0 AS is_end,\n"
            "    (SELECT array_agg(ROW({columns})::{type} ORDER BY {keys}) FROM (\n{content}\n    ) AS q) AS rows"
        ).format(
            heads=self._heads(),
            # PostgreSQL compares values faster than rows.
            order=_listed(self._field(SQL("h.key"), v) for v in self.order.keys),
            most=Literal(HEAP + 1),
            shared_by=Literal(SHARED),
            arrays=_listed(arrays),
            runs=_listed(runs),
            first=_listed(
                SQL("array_agg(h.{})").format(item)
                for item in (SQL("key"), SQL("place"), *self.slots)
            ),
            no_runs=_listed(
                [
                    SQL("NULL::{}[]").format(self.order.content),
                    SQL("0"),
                    *(SQL("NULL::tid[]") for _ in self.slots),
                ]
            ),
            type=self.order.content,
            step=self._step(),
            taken=_listed(SQL("h.{}").format(_run(slot)) for slot in self.slots),
            slots=_listed(self.slots),
            shared=_listed(SQL("h.{}").format(slot) for slot in self.slots),
            columns=_listed(
                SQL("q.{}").format(Identifier(name))
                for name in (*self.order.visible, *self.order.keys.values())
            ),
            keys=_listed(SQL("q.{}").format(Identifier(name)) for name in self.order.keys.values()),
            content=self._content(),
        )

    def _content(self) -> Composable:
        """Return the view's query over the rows `p` of states alone."""
        roles = [[walk.state for walk in bucket.states] for bucket in self.buckets]
        return query_text(over_rows(self.order.query, roles), self.order.names)

    def _heads(self) -> Composed:
        """Return the query for the first row of each bucket after the row `b.last`."""
        last = {v: self._field(SQL("b.last"), v) for v in self.order.keys}
        summands = []
        for place, bucket in enumerate(self.buckets):
            tables, known, places = self._list(bucket)
            rows = [
                *self._after(bucket, known, last, SQL("b.goes_on")),
                self._product(bucket, known, [SQL("NOT b.goes_on")]),
            ]
            tables.append(SQL("LATERAL ({} LIMIT 1) AS f").format(_appended(rows)))
            summands.append(
                SQL("SELECT f.key, {} AS place, {} FROM {}").format(
                    Literal(place), self._places(bucket, places), SQL(", ").join(tables)
                )
            )
        return SQL("\nUNION ALL ").join(summands)

    def _places(self, bucket: Bucket, listed: Sequence[Composable]) -> Composed:
        """Return the places of the rows of states that a row of a bucket joins, in the slots."""
        own = [*listed, *(SQL("f.{}").format(slot) for slot in self.slots[len(listed) :])]
        joined = own[: len(bucket.states)]
        nothing = [SQL("NULL::tid")] * (len(self.slots) - len(joined))
        return _listed(
            SQL("{} AS {}").format(value, slot)
            for value, slot in zip([*joined, *nothing], self.slots, strict=True)
        )

    def _step(self) -> Composed:
        """Return the query that takes the least bucket of the heap `h` and moves it on.

        `cut` is the number of rows behind the first row that belong before the next bucket and the bound. A row that
        the next bucket also has is not among them: as each bucket could take such a row in turn, a full page would
        never end. The last row that was read is not among them, because it tells where the bucket goes on. `nth` is the
        number of buckets that go before the bucket afterwards.
        """
        top = {v: self._field(SQL("h.keys[1]"), v) for v in self.order.keys}
        fetched = []
        for place, bucket in enumerate(self.buckets):
            tables, known, places = self._list(bucket, at=SQL("h"))
            rows = SQL("LATERAL ({} LIMIT h.length) AS f").format(
                _appended(self._after(bucket, known, top))
            )
            fetched.append(
                SQL("SELECT f.key, {} FROM {} WHERE h.places[1] = {}").format(
                    self._places(bucket, places), SQL(", ").join([*tables, rows]), Literal(place)
                )
            )
        moved: list[Composable] = []
        runs: list[Composable] = []
        for name, item in ((SQL("keys"), SQL("key")), *((slot, slot) for slot in self.slots)):
            moved.append(_moved(name, SQL("f.{}[c.cut + 1]").format(item)))
            runs.append(SQL("h.{}[1] || f.{}[1:c.cut]").format(name, item))
        moved.insert(1, _moved(SQL("places"), SQL("h.places[1]")))
        runs.insert(1, SQL("h.places[1]"))
        return SQL(
            "    SELECT {moved}, h.bound,"
            " CASE WHEN f.many < h.length THEN h.length WHEN c.cut >= h.length - 1 THEN least(2 * h.length, {most})"
            " ELSE c.cut + 1 END, h.size + 1 + c.cut,"
            " CASE WHEN c.cut > 0 THEN f.key[c.cut] ELSE h.keys[1] END, {runs}\n"
            "    FROM heap AS h,\n"
            "    LATERAL (SELECT count(*)::integer AS many, {arrays} FROM (\n{fetched}\n    ) AS f) AS f,\n"
            "    LATERAL (SELECT CASE WHEN cardinality(h.keys) = 1 THEN h.bound ELSE h.keys[2] END AS next) AS e,\n"
            "    LATERAL (SELECT width_bucket(e.next, f.key) AS to_next OFFSET 0) AS w,\n"
            "    LATERAL (SELECT coalesce(least(f.many - (f.many = h.length)::integer,"
            " w.to_next - coalesce((f.key[w.to_next] = e.next)::integer, 0)), 0) AS cut OFFSET 0) AS c,\n"
            "    LATERAL (SELECT CASE WHEN f.many > c.cut AND (f.key[c.cut + 1] < h.bound) IS NOT FALSE"
            " THEN width_bucket(f.key[c.cut + 1], h.keys[2:]) END AS nth OFFSET 0) AS n\n"
            "    WHERE cardinality(h.keys) > 0 AND (h.size < b.size OR h.keys[1] = h.last)"
        ).format(
            moved=_listed(moved),
            most=Literal(PAGE),
            runs=_listed(runs),
            arrays=_listed(
                SQL("array_agg(f.{0}) AS {0}").format(item) for item in (SQL("key"), *self.slots)
            ),
            fetched=SQL("\nUNION ALL ").join(fetched),
        )

    # Rows of buckets

    def _list(
        self, bucket: Bucket, at: Composable | None = None
    ) -> tuple[list[Composed], dict[str, Composable], list[Composable]]:
        """Return the tables that list the buckets of a summand, their variables, and the places of their rows.

        `at` is a heap whose first bucket is meant.
        """
        known: dict[str, Composable] = {}
        tables: list[Composed] = []
        places: list[Composable] = []
        for walk, slot in zip(bucket.listed_by, self.slots, strict=False):
            alias = next(self.aliases)
            columns = self._columns(walk, alias)
            conditions: list[Composable] = [
                SQL("{} = {}").format(columns[v], known[v]) for v in columns if v in known
            ]
            if at is None:
                conditions += self._fixed(columns)
            else:
                conditions = [SQL("{}.ctid = {}.{}[1]").format(alias, at, slot)]
            conditions += self._without_null(walk, columns)
            listed = [SQL("{}.ctid AS place").format(alias)]
            listed += [SQL("{} AS {}").format(columns[v], self._inner(v)) for v in columns]
            outer = next(self.aliases)
            tables.append(
                SQL("LATERAL (SELECT {} FROM {} AS {} WHERE {} OFFSET 0) AS {}").format(
                    _listed(listed), self._state(walk), alias, _all(conditions), outer
                )
            )
            places.append(SQL("{}.place").format(outer))
            known |= {v: SQL("{}.{}").format(outer, self._inner(v)) for v in columns}
        return tables, known, places

    def _after(
        self, bucket: Bucket, known: Known, last: Known, exists: Composable | None = None
    ) -> Iterator[Composed]:
        """Yield queries for the rows of a bucket after the row `last`, if it exists. Their concatenation is sorted.

        Each keeps the values of some first states, and goes on from the values of the next state.
        """
        groups = [(walk, own) for walk, own in groups_of(self.order, bucket) if own]
        for number in reversed(range(len(groups))):
            moving = groups[number][1]
            same = tuple(v for _, own in groups[:number] for v in own)
            if all(v in self.given for v in moving):
                continue
            conditions: list[Composable] = [
                SQL("{} = {}").format(known[v], last[v]) for v in same if v in known
            ]
            if moving[0] in known:
                conditions.append(_greater(known, last, moving))
            if exists is not None:
                conditions.append(exists)
            yield self._product(bucket, known, conditions, {v: last[v] for v in same}, last, moving)

    def _product(
        self,
        bucket: Bucket,
        known: Known,
        conditions: Sequence[Composable],
        same: Known | None = None,
        last: Known | None = None,
        moving: Sequence[str] = (),
    ) -> Composed:
        """Return the query for the rows of a bucket, in order.

        Each state is read by a subquery that takes the values of the states before it, so that PostgreSQL must
        join them in this order, and each subquery is sorted.
        """
        here: dict[str, Composable] = dict(known)
        places: list[Composable] = []
        tables: list[Composed] = []
        for walk in bucket.scanned:
            alias, outer = next(self.aliases), next(self.aliases)
            columns = self._columns(walk, alias)
            own = [v for v in self.order.keys if v in columns and v not in here]
            wanted: list[Composable] = [
                SQL("{} = {}").format(columns[v], here[v]) for v in columns if v in here
            ]
            wanted += [
                SQL("{} = {}").format(columns[v], same[v]) for v in own if same and v in same
            ]
            if last is not None and set(own) & set(moving):
                wanted.append(_greater(columns, last, moving))
            wanted += self._fixed(columns) + self._without_null(walk, columns)
            carried = [SQL("{} AS {}").format(here[v], self._inner(v)) for v in here]
            carried += [SQL("{} AS {}").format(columns[v], self._inner(v)) for v in own]
            slots = self.slots[len(bucket.listed_by) :]
            carried += [
                SQL("{} AS {}").format(item, slot)
                for item, slot in zip(places, slots, strict=False)
            ]
            slot = slots[len(places)]
            carried.append(SQL("{}.ctid AS {}").format(alias, slot))
            tables.append(
                SQL("LATERAL (SELECT {} FROM {} AS {} WHERE {}{} OFFSET 0) AS {}").format(
                    _listed(carried),
                    self._state(walk),
                    alias,
                    _all(wanted),
                    SQL(" ORDER BY {}").format(_listed(columns[v] for v in own))
                    if own
                    else SQL(""),
                    outer,
                )
            )
            names = [*here, *own]
            here = {v: SQL("{}.{}").format(outer, self._inner(v)) for v in names}
            places = [SQL("{}.{}").format(outer, item) for item in slots[: len(places) + 1]]
        key = SQL("ROW({})::{}").format(
            _listed(
                [*(SQL("NULL") for _ in self.order.visible), *(here[v] for v in self.order.keys)]
            ),
            self.order.content,
        )
        slots = self.slots[len(bucket.listed_by) :]
        listed = [SQL("{} AS key").format(key)]
        listed += [
            SQL("{} AS {}").format(item, slot) for item, slot in zip(places, slots, strict=False)
        ]
        return SQL("SELECT {} FROM {} WHERE {}").format(
            _listed(listed), SQL(", ").join(tables), _all(conditions)
        )

    def _fixed(self, columns: Known) -> list[Composable]:
        return [self._fixed_at(v, column) for v, column in columns.items() if v in self.fixed]

    def _fixed_at(self, variable: str, column: Composable) -> Composed:
        before, after = self.fixed[variable]
        return SQL("{}{}{}").format(before, column, after)

    def _without_null(self, walk: Walk, columns: Known) -> list[Composable]:
        return [SQL("{} IS NOT NULL").format(columns[v]) for v in walk.nullable]

    def _columns(self, walk: Walk, alias: Identifier) -> dict[str, Composable]:
        return {v: SQL("{}.{}").format(alias, Identifier(column)) for v, column in walk.columns}

    def _inner(self, variable: str) -> Identifier:
        return self.names.get(variable, Identifier(f"hidden_{variable}"))

    def _state(self, walk: Walk) -> Identifier:
        return self.order.names.state(walk.state)

    def _field(self, key: Composable, variable: str) -> Composed:
        return SQL("({}).{}").format(key, Identifier(self.order.keys[variable]))


def _run(slot: Identifier) -> Identifier:
    return Identifier(f"run_{slot.as_string(None).strip(chr(34))}")


def _moved(array: Composable, value: Composable) -> Composed:
    """Return an array of the heap `h` whose first element leaves, and comes back at another place or not at all."""
    return SQL(
        "CASE WHEN n.nth IS NULL THEN h.{0}[2:] ELSE h.{0}[2:n.nth + 1] || {1} || h.{0}[n.nth + 2:] END"
    ).format(array, value)


def _greater(known: Known, last: Known, variables: Sequence[str]) -> Composed:
    left, right = (_listed(side[v] for v in variables) for side in (known, last))
    text = "{} > {}" if len(variables) == 1 else "ROW({}) > ROW({})"
    return SQL(text).format(left, right)


def _appended(queries: Sequence[Composed] | Iterator[Composed]) -> Composed:
    parts = [SQL("({})").format(query) for query in queries]
    return SQL("SELECT * FROM ({}) AS u").format(SQL(" UNION ALL ").join(parts))


def _all(conditions: Sequence[Composable]) -> Composable:
    return SQL(" AND ").join(conditions) if conditions else _TRUE


def _listed(parts: Iterator[Composable] | Sequence[Composable]) -> Composed:
    return SQL(", ").join(parts)
