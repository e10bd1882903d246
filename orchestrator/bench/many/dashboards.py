"""Dashboards over one star join: each view with its own join, or all with one stored join."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable
from typing import Any

from psycopg.sql import SQL, Literal

from orchestrator.api import Orchestrator
from orchestrator.bench.measure import timed
from orchestrator.errors import DatabaseError

SPACE, REFRESH = "space, MB", "refresh, ms"

SALES = 100_000

TABLES = SQL("""
    CREATE TABLE star_day (day int PRIMARY KEY, month int NOT NULL, year int NOT NULL);
    CREATE TABLE star_item (item int PRIMARY KEY, category int NOT NULL, brand int NOT NULL, price int NOT NULL);
    CREATE TABLE star_store (store int PRIMARY KEY, region int NOT NULL, city int NOT NULL);
    CREATE TABLE star_sale (
        id int PRIMARY KEY, day int NOT NULL REFERENCES star_day, item int NOT NULL REFERENCES star_item,
        store int NOT NULL REFERENCES star_store, quantity int NOT NULL, amount int NOT NULL);
    INSERT INTO star_day SELECT i, i / 30, i / 360 FROM generate_series(0, 1079) AS i;
    INSERT INTO star_item SELECT i, i % 20, i % 100, 1 + i % 37 FROM generate_series(0, 1999) AS i;
    INSERT INTO star_store SELECT i, i % 5, i % 50 FROM generate_series(0, 99) AS i;
    INSERT INTO star_sale
    SELECT i, abs(hashint4(i) % 1080), abs(hashint4(i + 7) % 2000), abs(hashint4(i + 13) % 100), 1 + i % 5, i % 97
    FROM generate_series(1, {}) AS i;
    CREATE INDEX ON star_sale (day);
    CREATE INDEX ON star_sale (item);
    CREATE INDEX ON star_sale (store);
""")

JOIN = (
    "star_sale JOIN star_day USING (day) JOIN star_item USING (item) JOIN star_store USING (store)"
)

GROUPS = ("month", "year", "category", "brand", "region", "city")

MEASURES = (
    "sum(quantity) AS quantity",
    "sum(amount) AS amount, count(*) AS sales",
    "sum(quantity * price) AS worth",
)

CHANGES = {
    "one sale, ms": "UPDATE star_sale SET quantity = quantity + 1 WHERE id = %(n)s",
    "1,000 sales, ms": "UPDATE star_sale SET quantity = quantity + 1 WHERE id %% 100 = %(n)s",
    "an item, ms": "UPDATE star_item SET brand = (brand + 1) %% 100, price = price + 1 WHERE item = 100 + %(n)s",
    "a store, ms": "UPDATE star_store SET region = (region + 1) %% 5 WHERE store = 50 + %(n)s",
}

SAMPLE = 5
"""How many refreshes each median is of."""


class Dashboards:
    """Views that group one join in different ways, with or without filters."""

    def __init__(self, orchestrator: Orchestrator, say: Callable[[str], None], count: int) -> None:
        """Create `count` views at a time."""
        self.orchestrator = orchestrator
        self.connection = orchestrator.connection
        self.say = say
        self.count = count

    def measured(self, stored: bool) -> dict[str, Any]:
        """Return the space of the views, and the times of their refreshes after changes of each table."""
        self.say(
            f"creating {self.count} dashboards, {'one stored join' if stored else 'a join each'}"
        )
        if self.connection.execute("SELECT to_regclass('star_sale')").fetchone() == (None,):
            self.connection.execute(TABLES.format(Literal(SALES)))
            self.connection.execute("VACUUM ANALYZE star_sale, star_day, star_item, star_store")
        before = self._bytes()
        names = [f"dashboard_{number}" for number in range(self.count)]
        for number, name in enumerate(names):
            self.orchestrator.create_view(
                name, query(number), common_join="on" if stored else "off"
            )
        space = (self._bytes() - before) / 1e6
        times = {what: 1000 * self._refreshed(change) for what, change in CHANGES.items()}
        if not all(report.equal for report in self.orchestrator.check(*names)):
            raise DatabaseError("A view differs from its query: what was measured is wrong.")
        for name in names:
            self.orchestrator.drop_view(name)
        return {
            "dashboards": self.count,
            "join": "stored once" if stored else "own",
            SPACE: space,
            REFRESH: sum(times.values()),
            **times,
        }

    def _refreshed(self, change: str) -> float:
        seconds = []
        for number in range(SAMPLE + 1):
            self.connection.execute(change, {"n": number})
            seconds.append(timed(lambda: self.connection.execute("CALL idivm.refresh_all()")))
        # The first refresh plans the statements of all programs.
        return statistics.median(seconds[1:])

    def _bytes(self) -> int:
        row = self.connection.execute(
            "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c"
            " WHERE c.relnamespace = 'idivm_state'::regnamespace AND c.relkind = 'r'"
        ).fetchone()
        assert row is not None
        return int(row[0])


def query(number: int) -> str:
    """Return the query of a dashboard.

    >>> query(7).partition(" FROM ")[0]
    'SELECT month, category, sum(amount) AS amount, count(*) AS sales'
    """
    groupings = [*itertools.combinations(GROUPS, 1), *itertools.combinations(GROUPS, 2)]
    columns = ", ".join(groupings[number % len(groupings)])
    # The views of each round over all groupings have a filter of their own.
    rounds = number // len(groupings)
    where = f" WHERE year <> {rounds + 5}" if rounds else ""
    measures = MEASURES[number % len(MEASURES)]
    return " ".join(("SELECT", f"{columns}, {measures} FROM {JOIN}{where}", "GROUP BY", columns))
