"""Views that are asked by key: `inputs` names the columns whose values readers give."""

from __future__ import annotations

import random

import pytest

from orchestrator.bench.measure import states_touched
from orchestrator.errors import UnsupportedError, UsageError

TABLES = """
CREATE TABLE r (a int, b int, x int, PRIMARY KEY (a, b));
CREATE TABLE s (b int, c int, y numeric, PRIMARY KEY (b, c));
CREATE TABLE t (c int, a int, PRIMARY KEY (c, a));
CREATE TABLE orders (id int PRIMARY KEY, user_id int, "Day" date);
CREATE TABLE items (order_id int, pos int, good text, PRIMARY KEY (order_id, pos));
"""

TRIANGLE = "FROM r JOIN s USING (b) JOIN t ON t.c = s.c AND t.a = r.a"
BOUGHT = 'SELECT o.user_id, o.id, o."Day", i.pos, i.good FROM orders AS o JOIN items AS i ON i.order_id = o.id'

QUERIES = {
    "triangle": (f"SELECT r.a, r.b, s.c {TRIANGLE}", "a, b, c"),
    "edge": (f"SELECT r.a, r.b, s.c, x {TRIANGLE}", "a, b"),
    "ends": ("SELECT r.a, b, c, t.a AS d FROM r JOIN s USING (b) JOIN t USING (c)", "b, c"),
    "apart": ("SELECT r.a, r.b, t.c, x FROM r JOIN t USING (a)", "a"),
    "bought": (BOUGHT, "user_id"),
    "second": ("SELECT DISTINCT r.a, s.c FROM r JOIN s USING (b)", "a"),
    "sums": (
        "SELECT b, c, count(*) AS n, sum(x * y) AS total, avg(x) AS mean FROM r JOIN s USING (b) JOIN t USING (c)"
        " GROUP BY b, c",
        "c, b",
    ),
    "several": (
        "SELECT b, count(*) AS n, sum(x) AS x FROM r JOIN s USING (b) GROUP BY b HAVING count(*) > 1",
        "b",
    ),
    "numbers": ("SELECT y, b, c, a FROM s JOIN r USING (b)", "y"),
    "looked_up": (
        'SELECT g.b, g.n, o."Day" FROM (SELECT r.b, count(*) AS n FROM r JOIN s USING (b) GROUP BY r.b) AS g'
        " LEFT JOIN orders AS o ON o.id = g.b",
        "b",
    ),
    "computed": (
        "SELECT r.a + 1 AS next, t.c, count(*) AS n FROM r JOIN t ON t.a = r.a + 1 GROUP BY r.a + 1, t.c",
        "next",
    ),
}


def changes(seed: int) -> list[str]:
    """Return random changes of all tables; some keys occur twice, so that rows have partners."""
    rng = random.Random(seed)

    def value(most: int = 6) -> int:
        return rng.randint(0, most)

    result = []
    for _ in range(3):
        result += [
            f"INSERT INTO r VALUES ({value()}, {value()}, {rng.choice(['NULL', value()])}) ON CONFLICT DO NOTHING;"
            f" INSERT INTO s VALUES ({value()}, {value()}, {value()}.{value()}0) ON CONFLICT DO NOTHING;"
            f" INSERT INTO t VALUES ({value()}, {value()}) ON CONFLICT DO NOTHING"
            for _ in range(3)
        ]
        result += [
            f"DELETE FROM r WHERE b = {value()}; DELETE FROM t WHERE a = {value()}",
            f"UPDATE s SET y = y + 1 WHERE b = {value()}; UPDATE r SET x = {value()} WHERE a = {value()}",
            f"UPDATE orders SET user_id = nullif({value()}, 3) WHERE id % 5 = {value(4)}",
            f"INSERT INTO items SELECT {value(20)}, 10 + n, 'new' FROM generate_series(1, 2) AS n"
            " ON CONFLICT DO NOTHING",
            f"DELETE FROM items WHERE pos = {value(4)}; UPDATE orders SET \"Day\" = '2025-02-03' WHERE id < 4",
        ]
    return result


def filled(orc) -> None:
    orc.execute(TABLES)
    orc.execute(
        "INSERT INTO r SELECT i % 6, i % 7, nullif(i % 5, 3) FROM generate_series(1, 30) AS i;"
        "INSERT INTO s SELECT i % 7, i % 6, i * 0.5 FROM generate_series(1, 30) AS i;"
        "INSERT INTO t SELECT i % 6, i % 5 FROM generate_series(1, 25) AS i ON CONFLICT DO NOTHING;"
        "INSERT INTO orders SELECT i, nullif(i % 4, 3), '2025-01-01' FROM generate_series(1, 20) AS i;"
        "INSERT INTO items SELECT i % 20, i % 5, 'g' || i % 3 FROM generate_series(1, 60) AS i ON CONFLICT DO NOTHING"
    )


def lookups(name: str, query: str, inputs: str) -> list[tuple[str, str]]:
    """Return pairs of a lookup in a view, and the same lookup in its query."""
    columns = inputs.split(", ")
    every = " AND ".join(f"{column} = {n + 1}" for n, column in enumerate(columns))
    first = columns[0]
    conditions = (
        every,
        f"{first} = 2",
        f"{first} = ANY ('{{1,2,5}}')",
        f"{first} IN (SELECT n FROM generate_series(0, 3) AS n)",
        f"{first} IS NULL",
        "true",
    )
    return [
        (
            f"SELECT * FROM {name} AS v WHERE {condition}",
            f"SELECT * FROM ({query}) AS v WHERE {condition}",
        )
        for condition in conditions
    ]


def require_same_lookups(orc, name: str, query: str, inputs: str) -> None:
    for lookup, same in lookups(name, query, inputs):
        rows, expected = (
            sorted(map(repr, orc.connection.execute(text).fetchall())) for text in (lookup, same)
        )
        assert rows == expected, lookup


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.parametrize("mode", ["deferred", "eager", "on_commit"])
def test_lookups_follow_every_change(orc, mode, older):
    if older and mode != "deferred":
        pytest.skip("older versions run one mode, unless they are asked for")
    filled(orc)
    for name, (query, inputs) in QUERIES.items():
        view = orc.create_view(name, query, inputs=inputs, maintain=mode)
        assert view.strategy == "viewtree"
    for change in changes(7):
        orc.execute(change)
        if mode == "deferred":
            orc.refresh()
        different = {r.view: (r.missing_rows, r.surplus_rows) for r in orc.check() if not r.equal}
        assert different == {}, change
    for name, (query, inputs) in QUERIES.items():
        require_same_lookups(orc, name, query, inputs)


@pytest.mark.parametrize(
    ("name", "explained"),
    [
        (
            "triangle",
            "for lookups by a, b, c it is tractable, as its fracture is q-hierarchical and input-dominant: a change of"
            " one row costs O(1), the first content O(N), a lookup finds each next row in O(1), the views store"
            " O(N) rows",
        ),
        (
            "edge",
            "for lookups by a, b it is not tractable, as the input a is in fewer tables than c: a change of one row"
            " costs O(1), the first content O(N), a lookup finds each next row in O(N), the views store O(N) rows",
        ),
        (
            "bought",
            "for lookups by user_id it is tractable, as its fracture is q-hierarchical and input-dominant under"
            " functional dependencies",
        ),
        (
            "second",
            "for lookups by a it is not tractable, as a is in fewer tables than b, which the view leaves out: a change"
            " of one row costs O(N)",
        ),
    ],
)
def test_explain_states_what_the_inputs_guarantee(orc, name, explained):
    orc.execute(TABLES)
    query, inputs = QUERIES[name]
    assert explained in orc.explain_query(query, inputs=inputs).why


def large(orc, rows: int) -> None:
    orc.execute(TABLES)
    orc.execute(
        f"INSERT INTO r SELECT i / 10, i % 10 * {rows} + i / 10, i FROM generate_series(0, {rows - 1}) AS i;"
        f"INSERT INTO s SELECT b, a, 1 FROM r;"
        f"INSERT INTO t SELECT a, a FROM r ON CONFLICT DO NOTHING;"
        f"INSERT INTO orders SELECT i, i / 10, '2025-01-01' FROM generate_series(0, {rows - 1}) AS i;"
        f"INSERT INTO items SELECT i, n, 'g' FROM generate_series(0, {rows - 1}) AS i, generate_series(1, 2) AS n"
    )


ASKED = {
    "triangle": "a = {0} AND b = {0} AND c = {0}",
    "ends": "b = {0} AND c = {0}",
    "apart": "a = {0}",
    "bought": "user_id = {0}",
    "sums": "b = {0} AND c = {0}",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ASKED)
def test_a_lookup_and_a_change_read_as_much_from_large_tables(orc, name):
    query, inputs = QUERIES[name]
    condition = ASKED[name]
    connection = orc.connection
    touched = []
    for rows in (1_000, 30_000):
        large(orc, rows)
        orc.create_view("v", query, inputs=inputs)
        orc.execute("VACUUM ANALYZE")
        plan = connection.execute(f"EXPLAIN SELECT * FROM v WHERE {condition.format(20)}")
        lines = [line for (line,) in plan.fetchall()]
        assert rows < 10_000 or not [line for line in lines if "Seq Scan" in line], lines
        connection.execute(f"PREPARE asked (int) AS SELECT * FROM v WHERE {condition.format('$1')}")
        # Snapshots of other sessions decide which rows an index-only scan looks up in the table.
        connection.execute(
            "SET plan_cache_mode = force_generic_plan; SET enable_indexonlyscan = off"
        )
        expected = connection.execute("EXECUTE asked (20)").fetchall()
        assert expected
        with connection.transaction():
            before = states_touched(connection)
            assert connection.execute("EXECUTE asked (20)").fetchall() == expected
            lookup = states_touched(connection) - before
        connection.execute("RESET plan_cache_mode; RESET enable_indexonlyscan; DEALLOCATE asked")
        orc.execute(
            "INSERT INTO r VALUES (-1, 20, 1); INSERT INTO s VALUES (20, 21, 2); INSERT INTO items VALUES (20, 9, 'h')"
        )
        with connection.transaction():
            before = states_touched(connection)
            connection.execute("SELECT idivm.refresh('v')")
            change = states_touched(connection) - before
        assert all(report.equal for report in orc.check())
        touched.append((lookup, change))
        orc.drop_view("v")
        orc.execute("DROP TABLE r, s, t, orders, items")
    (small_lookup, small_change), (large_lookup, large_change) = touched
    assert large_lookup <= 2 * small_lookup + 10, touched
    assert large_change <= 2 * small_change + 20, touched


@pytest.mark.slow
def test_lookups_by_many_keys_and_by_joins_read_no_whole_state(orc):
    large(orc, 30_000)
    query, inputs = QUERIES["apart"]
    orc.create_view("v", query, inputs=inputs)
    orc.execute("CREATE TABLE asked (n int); INSERT INTO asked VALUES (5), (7); VACUUM ANALYZE")
    for text in (
        "SELECT * FROM v WHERE a = ANY ('{5,7,9}')",
        "SELECT * FROM asked JOIN v ON v.a = asked.n",
        "SELECT * FROM asked, LATERAL (SELECT * FROM v WHERE v.a = asked.n) AS found",
    ):
        plan = [line for (line,) in orc.connection.execute(f"EXPLAIN {text}").fetchall()]
        assert not [line for line in plan if "Seq Scan" in line and "asked" not in line], plan
    assert orc.views()[0].bytes < 20_000_000
    rows = list(orc.enumerate("v", {"a": 5}))
    assert rows
    with orc.connection.transaction():
        before = states_touched(orc.connection)
        orc.connection.execute("""SELECT idivm.enumerate('v', '{"a": 5}')""")
        fetched = orc.connection.execute("FETCH ALL FROM idivm_rows").fetchall()
        assert states_touched(orc.connection) - before < 40
    assert sorted(fetched) == sorted(rows)
    assert sorted(rows) == sorted(orc.connection.execute(f"{query} WHERE a = 5").fetchall())


def test_what_no_inputs_can_ask_is_refused(orc):
    orc.execute(TABLES)
    triangle, _ = QUERIES["triangle"]
    counted = "SELECT a, count(*) AS n, b + 1 AS next FROM r JOIN s USING (b) GROUP BY a, b"
    for error, said, query, options in (
        (
            UsageError,
            "inputs names 'z', which is no column of the view; it shows a, b, c",
            triangle,
            {"inputs": "z"},
        ),
        (UnsupportedError, "an input is computed.*n.*Leave inputs out", counted, {"inputs": "n"}),
        (UnsupportedError, "an input is computed.*next", counted, {"inputs": "a, next"}),
        (
            UnsupportedError,
            "cannot maintain this query.*Leave inputs out",
            "SELECT a, max(b) AS b FROM r GROUP BY a",
            {"inputs": "a"},
        ),
        (
            UnsupportedError,
            "the first of all rows",
            f"{counted} ORDER BY n LIMIT 3",
            {"inputs": "a"},
        ),
        (
            UnsupportedError,
            "The strategy id keeps no factorized result.*leave inputs out",
            triangle,
            {"inputs": "a", "strategy": "id"},
        ),
        (UnsupportedError, "feed = on or inputs", triangle, {"inputs": "a", "feed": "on"}),
        (
            UnsupportedError,
            "relation = table or inputs",
            triangle,
            {"inputs": "a", "relation": "table"},
        ),
        (
            UsageError,
            "inputs is not available with maintain = on_read",
            triangle,
            {"inputs": "a", "maintain": "on_read"},
        ),
    ):
        with pytest.raises(error, match=said):
            orc.create_view("v", query, **options)


def test_the_variable_order_names_the_copies_of_inputs(orc):
    orc.execute(TABLES)
    query, _ = QUERIES["edge"]
    order = "{ a - b - x, a_2 - b_2 - c }"
    orc.create_view("v", query, inputs="a, b", variable_order=order)
    because = orc.explain("v").why
    assert "a change of one row costs O(N)" in because
    assert "a lookup finds each next row in O(1)" in because
    with pytest.raises(UsageError, match="the query's variables are a, a_2, b, b_2, c, x"):
        orc.create_view("w", query, inputs="a, b", variable_order="a")


def test_inputs_are_added_changed_and_taken_away(orc):
    filled(orc)
    query, _ = QUERIES["apart"]
    orc.create_view("v", query)
    for inputs in ("a", "c, a", ""):
        orc.alter_view("v", inputs=inputs)
        orc.execute(
            "INSERT INTO t VALUES (100, 1) ON CONFLICT DO NOTHING; DELETE FROM r WHERE b = 3"
        )
        [report] = orc.check()
        assert report.equal
        assert ("for lookups by" in orc.explain("v").why) == bool(inputs)


def test_a_view_whose_table_loses_its_key_goes_on_without_inputs(orc):
    filled(orc)
    orc.create_view("v", QUERIES["apart"][0], inputs="a")
    orc.execute("ALTER TABLE r DROP CONSTRAINT r_pkey; INSERT INTO r VALUES (1, 1, 1), (1, 1, 1)")
    orc.refresh()
    [report] = orc.check()
    assert report.equal


@pytest.mark.slow
def test_an_input_that_its_owner_renames_is_named_anew(orc):
    filled(orc)
    orc.create_view("v", QUERIES["apart"][0], inputs="a")
    orc.execute("ALTER VIEW v RENAME COLUMN a TO person; DELETE FROM r WHERE b = 2")
    assert all(report.equal for report in orc.check())
    with pytest.raises(UsageError, match="inputs names 'a', which is no column of the view"):
        orc.alter_view("v", create_indexes="on")
    orc.alter_view("v", create_indexes="on", inputs="person")
    assert "for lookups by person" in orc.explain("v").why
    assert all(report.equal for report in orc.check())


class Joins:
    """Random groups over random joins of small tables whose columns are named like variables."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        pool = "abcde"[: self.rng.randint(2, 5)]
        self.tables = {
            f"t{n}": sorted(self.rng.sample(pool, self.rng.randint(1, min(3, len(pool)))))
            for n in range(self.rng.randint(1, 4))
        }

    def value(self) -> str:
        return "NULL" if self.rng.random() < 0.1 else str(self.rng.randint(0, 4))

    def insert(self, name: str) -> str:
        values = ", ".join(self.value() for _ in (*self.tables[name], "v"))
        return f"INSERT INTO {name} VALUES ({values})"

    def load(self) -> str:
        created = [
            f"CREATE TABLE {name} ({', '.join(f'{column} int' for column in (*columns, 'v'))})"
            for name, columns in self.tables.items()
        ]
        rows = [self.insert(name) for name in self.tables for _ in range(self.rng.randint(0, 12))]
        return "; ".join([*created, *rows])

    def change(self) -> str:
        name = self.rng.choice(list(self.tables))
        where = f"WHERE {self.rng.choice(self.tables[name])} = {self.value()}"
        column = self.rng.choice((*self.tables[name], "v"))
        return self.rng.choice(
            (
                self.insert(name),
                self.insert(name),
                f"DELETE FROM {name} {where}",
                f"UPDATE {name} SET {column} = {self.value()} {where}",
            )
        )

    def query(self) -> tuple[str, str]:
        """Return a query, and some of its grouping columns as inputs."""
        atoms = [*self.tables, *self.rng.sample(list(self.tables), self.rng.randint(0, 1))]
        first: dict[str, str] = {}
        equal = ["true"]
        for number, name in enumerate(atoms):
            for column in self.tables[name]:
                place = f"x{number}.{column}"
                if first.setdefault(column, place) != place:
                    equal.append(f"{place} = {first[column]}")
        free = self.rng.sample(sorted(first), self.rng.randint(1, len(first)))
        last = f"x{len(atoms) - 1}.v"
        sums = self.rng.choice(
            ("", ", count(*) AS n", f", sum(x0.v * {last}) AS s, avg({last}) AS m")
        )
        groups = ", ".join(first[column] for column in free)
        tables = ", ".join(f"{name} AS x{number}" for number, name in enumerate(atoms))
        query = f"SELECT {groups}{sums} FROM {tables} WHERE {' AND '.join(equal)} GROUP BY {groups}"
        return query, ", ".join(self.rng.sample(free, self.rng.randint(1, len(free))))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_random_joins_are_asked_by_random_inputs(orc, seed):
    joins = Joins(seed)
    orc.execute(joins.load())
    queries = {f"v{number}": joins.query() for number in range(3)}
    for name, (query, inputs) in queries.items():
        mode = joins.rng.choice(("deferred", "eager", "on_commit"))
        orc.create_view(name, query, inputs=inputs, maintain=mode)
    for _ in range(6):
        change = "; ".join(joins.change() for _ in range(3))
        orc.execute(change)
        assert all(report.equal for report in orc.check()), change
    for name, (query, inputs) in queries.items():
        require_same_lookups(orc, name, query, inputs)
