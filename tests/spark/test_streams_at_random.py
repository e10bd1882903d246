"""Random views over streams, compared with the same queries over tables that hold the rows."""

from __future__ import annotations

import random
from collections import Counter
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.parquet as pq

from orchestrator.api import Orchestrator
from orchestrator.errors import UnsupportedError

TYPES = {
    "shop": ("bigint NOT NULL", pa.int64()),
    "item": ("text", pa.string()),
    "price": ("numeric(10, 2)", pa.decimal128(10, 2)),
    "n": ("int NOT NULL", pa.int32()),
    "day": ("date", pa.date32()),
}
STREAMS = ("sales", "refunds")
TABLES = """
    CREATE TABLE shops (id bigint PRIMARY KEY, city text NOT NULL, area int);
    CREATE TABLE items (name text PRIMARY KEY, weight int NOT NULL);
    INSERT INTO shops SELECT n, chr((97 + n % 4)::int), nullif(n % 3, 0) FROM generate_series(1, 8) AS n;
    INSERT INTO items SELECT chr(112 + n), n FROM generate_series(0, 4) AS n;
"""

SOURCES = (
    "{sales} AS s",
    "{sales} AS s JOIN shops ON shops.id = s.shop",
    "{sales} AS s LEFT JOIN shops ON shops.id = s.shop",
    "{sales} AS s JOIN items ON items.name = s.item JOIN shops ON shops.id = s.shop",
    "{sales} AS s JOIN {refunds} AS r ON r.shop = s.shop AND r.item = s.item",
    "{sales} AS s JOIN {refunds} AS r USING (shop, day)",
    "(SELECT * FROM {sales} UNION ALL SELECT * FROM {refunds}) AS s",
    "(SELECT * FROM {sales} UNION SELECT * FROM {refunds}) AS s",
    "(SELECT shop, item, max(price) AS price, count(*) AS n, min(day) AS day FROM {sales} GROUP BY shop, item) AS s",
    "{sales} AS s JOIN {sales} AS other ON other.shop = s.shop AND other.day = s.day + 1",
)
CONDITIONS = (
    *("s.n > 3", "s.price IS NOT NULL", "s.item IN ('p', 'q', 'r')", "s.day > '2026-01-05'"),
    *("EXISTS (SELECT FROM shops WHERE id = s.shop AND area = 1)", "s.n % 2 = 0 OR s.price > 5"),
    "s.shop NOT IN (SELECT id FROM shops WHERE city = 'a')",
    "EXISTS (SELECT FROM {refunds} AS f WHERE f.shop = s.shop AND f.n > 7)",
)
KEYS = ("s.item", "s.day", "s.n % 3", "s.item IS NULL", "date_trunc('week', s.day)::date")
AGGREGATES = (
    *("count(*)", "sum(s.price)", "sum(s.n)", "min(s.price)", "max(s.item)", "avg(s.n)"),
    *("count(s.price)", "count(DISTINCT s.item)", "sum(s.n) FILTER (WHERE s.price > 4)"),
    *("bool_or(s.n > 8)", "max(s.day) - min(s.day)", "sum(DISTINCT s.n)", "every(s.item IS NULL)"),
    *("string_agg(s.item, ',' ORDER BY s.item)", "sum(s.price * s.n) / nullif(sum(s.n), 0)"),
    *("max(s.n) FILTER (WHERE s.item = 'p')", "stddev(s.n)"),
)
CITY = ("shops.city", "shops.area")


def random_query(dice: random.Random) -> str:
    """Return a query with `{sales}` and `{refunds}` in place of both streams."""
    source = dice.choice(SOURCES)
    shop = "shop" if "USING" in source else "s.shop"
    keys = [shop, *(key for key in KEYS if "USING" not in source or "day" not in key)]
    keys += CITY * ("JOIN shops" in source)
    grouped = dice.sample(keys, dice.choice((0, 1, 1, 1, 2)))
    conditions = dice.sample(CONDITIONS, dice.choice((0, 0, 1, 2)))
    if "USING" in source:
        conditions = [c for c in conditions if "s.shop" not in c and "s.day" not in c]
        aggregates = [a for a in AGGREGATES if "s.day" not in a]
    else:
        aggregates = list(AGGREGATES)
    where = f" WHERE {' AND '.join(f'({c})' for c in conditions)}" if conditions else ""
    if dice.random() < 0.15:
        columns = dice.sample([*keys, "s.n", "s.price"], 3)
        distinct = "DISTINCT " * (dice.random() < 0.5)
        listed = ", ".join(f"{column} AS c{n}" for n, column in enumerate(columns))
        return f"SELECT {distinct}{listed} FROM {source}{where}"
    chosen = dice.sample(aggregates, dice.randint(1, 4))
    listed = ", ".join(f"{column} AS c{n}" for n, column in enumerate((*grouped, *chosen)))
    group = f" GROUP BY {', '.join(grouped)}" if grouped else ""
    having = " HAVING count(*) > 1" * (dice.random() < 0.2)
    return f"SELECT {listed} FROM {source}{where}{group}{having}"


class Files:
    """The files of a stream, and a table with the same rows."""

    def __init__(self, orc: Orchestrator, name: str, folder: Path, deletes: bool) -> None:
        folder.mkdir()
        self.orc, self.name, self.folder, self.deletes = orc, name, folder, deletes
        self.rows: list[tuple[Any, ...]] = []
        self.batches = 0
        columns = ", ".join(f"{column} {type_}" for column, (type_, _) in TYPES.items())
        options: dict[str, Any] = {"op": "op"} if deletes else {}
        orc.create_stream(name, columns, folder, format="parquet", **options)
        orc.execute(f"CREATE TABLE {name}_rows ({columns})")

    def run(self, dice: random.Random) -> None:
        """Write a file of random changes, and run the stream."""
        changes: list[tuple[str, tuple[Any, ...]]] = []
        for _ in range(dice.choice((1, 3, 30))):
            if self.deletes and self.rows and dice.random() < 0.4:
                row = self.rows.pop(dice.randrange(len(self.rows)))
                changes.append(("d", row))
            else:
                row = random_row(dice)
                self.rows.append(row)
                changes.append(("i", row))
        self.batches += 1
        table = {
            column: pa.array([row[place] for _, row in changes], type_)
            for place, (column, (_, type_)) in enumerate(TYPES.items())
        }
        if self.deletes:
            table["op"] = pa.array([op for op, _ in changes])
        pq.write_table(pa.table(table), self.folder / f"{self.batches}.parquet")
        self.orc.run_stream(self.name, once=True)
        with self.orc.connection.cursor() as cursor, self.orc.connection.transaction():
            cursor.execute(f"DELETE FROM {self.name}_rows")
            cursor.executemany(
                f"INSERT INTO {self.name}_rows VALUES (%s, %s, %s, %s, %s)", self.rows
            )


def random_row(dice: random.Random) -> tuple[Any, ...]:
    return (
        *(dice.randint(1, 9), dice.choice((*"pqrst", None))),
        dice.choice((None, Decimal(dice.randint(0, 999)) / 100)),
        *(dice.randint(0, 10), date(2026, 1, 1) + timedelta(dice.randint(0, 9))),
    )


def change_tables(orc: Orchestrator, dice: random.Random) -> None:
    shop = dice.randint(1, 9)
    orc.execute(
        dice.choice(
            (
                f"UPDATE shops SET city = chr({97 + dice.randint(0, 4)}) WHERE id = {shop}",
                f"UPDATE shops SET area = nullif({dice.randint(0, 2)}, 0) WHERE id >= {shop}",
                f"DELETE FROM shops WHERE id = {shop}",
                f"INSERT INTO shops VALUES ({shop}, 'a', 1) ON CONFLICT DO NOTHING",
                f"UPDATE items SET weight = weight + 1 WHERE name > '{dice.choice('opqr')}'",
            )
        )
    )


def compare(orc: Orchestrator, folder: Path, seed: int, views: int = 10, rounds: int = 4) -> int:
    """Compare random views over streams with their queries, and return how many were maintained."""
    dice = random.Random(seed)
    orc.execute(TABLES)
    streams = [Files(orc, name, folder / name, dice.random() < 0.5) for name in STREAMS]
    for stream in streams:
        if dice.random() < 0.8:
            stream.run(dice)
    queries: dict[str, str] = {}
    over_streams = {name: name for name in STREAMS}
    over_tables = {name: f"{name}_rows" for name in STREAMS}
    for number in range(views):
        query = random_query(dice)
        options: dict[str, Any] = {
            "maintain": dice.choice(("deferred", "deferred", "eager", "on_commit")),
            "strategy": dice.choice(("auto", "auto", "id", "tuple", "viewtree")),
            "initialise": dice.choice(("postgresql", "spark")),
        }
        try:
            orc.create_view(f"v{number}", query.format_map(over_streams), **options)
        except UnsupportedError:
            continue
        queries[f"v{number}"] = query
    for round_ in range(rounds + 1):
        for name, query in queries.items():
            rows = orc.connection.execute(f"SELECT * FROM {name}").fetchall()
            right = orc.connection.execute(query.format_map(over_tables).encode()).fetchall()
            assert Counter(map(str, rows)) == Counter(map(str, right)), (seed, round_, name, query)
        if round_ == rounds:
            break
        if dice.random() < 0.2:
            orc.connection.execute("UPDATE idivm.views SET status = 'invalid' WHERE random() < 0.3")
        for stream in streams:
            if dice.random() < 0.7:
                stream.run(dice)
            if dice.random() < 0.5:
                change_tables(orc, dice)
        orc.refresh()
    assert [report.view for report in orc.check() if not report.equal] == [], seed
    assert orc.connection.execute("SELECT count(*) FROM sales, refunds").fetchone() == (0,)
    return len(queries)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_random_views_over_streams_equal_their_queries(
    orc: Orchestrator, tmp_path: Path, seed: int
) -> None:
    assert compare(orc, tmp_path, seed) > 0
