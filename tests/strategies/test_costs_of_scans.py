"""What refreshes cost where tables have no index that the program could use."""

from __future__ import annotations

import re

import pytest
from costs import measured

from orchestrator.deltascript.plan import ChangeKind

pytestmark = pytest.mark.integration

GROUPS = 40
TABLES = f"""
CREATE TABLE big (id int PRIMARY KEY, g int, v int, t text);
INSERT INTO big SELECT i, i % {GROUPS}, i, 'x' FROM generate_series(1, 4000) AS i;
INSERT INTO big VALUES (0, NULL, 1, 'x');
CREATE TABLE small (g int PRIMARY KEY, lim int);
INSERT INTO small SELECT i, 10 FROM generate_series(1, {GROUPS}) AS i;
ANALYZE big, small
"""

VIEWS = {
    "groups": "SELECT g, sum(v), max(v) FROM big GROUP BY g",
    "window": "SELECT id, g, percent_rank() OVER (PARTITION BY g ORDER BY v) FROM big",
    "distinct on": "SELECT DISTINCT ON (g) g, id FROM big ORDER BY g, v, id",
    "exists": "SELECT g, lim FROM small WHERE EXISTS (SELECT FROM big WHERE big.g = small.g AND v > 3990)",
    "not exists": "SELECT g FROM small WHERE NOT EXISTS (SELECT FROM big WHERE big.g = small.g AND v > 3990)",
    "left join": "SELECT small.g, id FROM small LEFT JOIN big ON big.g = small.g AND v > 3990",
}


ASSIGNED = re.compile(r" INTO [^;]*?FROM \(\n([^;]*?)\n +LIMIT \d+\n +\) AS d;")
VARIABLE = re.compile(r"unnest\(refresh_\d+\.(\w+)\)")


def plans(orc, view):
    """How PostgreSQL runs the queries of a program that look for the rows of diffs, as small diffs are met."""
    script = orc.explain(view).sql
    shapes = dict(re.findall(r"(\w+) (idivm_state\.\w+)\[\];", script))
    for query in ASSIGNED.findall(script):
        named = list(dict.fromkeys(VARIABLE.findall(query)))
        if "idivm_def." not in query or "IS NULL" in query or not named:
            continue
        for number, name in enumerate(named, 1):
            query = re.sub(rf"unnest\(refresh_\d+\.{name}\)", f"unnest(${number})", query)
        # The deadline and the beginning of the refresh.
        times = re.findall(r"refresh_\d+\.(?:late|begun)", query)
        for number, time in enumerate(dict.fromkeys(times), len(named) + 1):
            query = query.replace(time, f"${number}")
        typed = [f"{shapes[name]}[]" for name in named] + ["timestamptz"] * len(set(times))
        types, nothing = ", ".join(typed), ", ".join("NULL" for _ in typed)
        with orc.connection.transaction(force_rollback=True):
            orc.connection.execute("SET LOCAL plan_cache_mode = force_generic_plan")
            orc.connection.execute(f"PREPARE looked ({types}) AS {query}")
            lines = orc.connection.execute(f"EXPLAIN EXECUTE looked ({nothing})").fetchall()
            orc.connection.execute("DEALLOCATE looked")
        yield "\n".join(line for (line,) in lines)


@pytest.mark.parametrize("name", VIEWS)
def test_no_table_is_gone_through_for_each_changed_row(orc, name):
    orc.execute(TABLES)
    orc.create_view("v", VIEWS[name], strategy="id", cache="off")
    texts = list(plans(orc, "v"))
    assert any("Hash" in plan for plan in texts)
    assert not any("Nested Loop" in plan and "Index" not in plan for plan in texts)
    orc.execute(f"UPDATE big SET v = 2 * v % 4001 WHERE id <= {GROUPS}")
    orc.refresh("v")
    orc.execute(
        "UPDATE big SET v = -v WHERE id > 0 AND id % 50 = 0; UPDATE big SET g = NULL WHERE id = 9"
    )
    assert all(report.equal for report in orc.check())


@pytest.mark.slow
def test_a_missing_index_is_named_and_made(orc):
    orc.execute(TABLES)
    orc.create_view("v", VIEWS["groups"])
    wanted = 'CREATE INDEX CONCURRENTLY ON "public"."big" ("g")'
    assert [index.statement for index in orc.explain("v").missing_indexes] == [wanted]
    [update] = [c for c in orc.view("v").plan.program.costs if c.kind is ChangeKind.UPDATE]
    assert update.accesses < 10 * 4000 / GROUPS
    orc.execute(f"CREATE OR REPLACE VIEW v WITH (create_indexes = on) AS {VIEWS['groups']}")
    assert orc.explain("v").missing_indexes == []
    orc.execute("DROP VIEW v")
    orc.execute(wanted)
    orc.create_view("v", VIEWS["groups"])
    orc.execute("UPDATE big SET v = v + 1 WHERE id IN (0, 1)")
    assert all(report.equal for report in orc.check())


def test_a_deleted_row_reaches_the_stored_rows_that_it_is_joined_with(orc):
    """A cache that leaves values in their table is looked up by that table's key."""
    orc.execute(
        "CREATE TABLE kinds (kind int PRIMARY KEY, weight int);"
        "CREATE TABLE items (id int PRIMARY KEY, kind int, n int);"
        "INSERT INTO kinds SELECT i, i FROM generate_series(1, 400) AS i;"
        "INSERT INTO items SELECT i, 1 + i % 400, i FROM generate_series(1, 4000) AS i;"
        "CREATE INDEX ON items (kind); ANALYZE kinds, items"
    )
    query = "SELECT n, sum(weight) AS total FROM items JOIN kinds USING (kind) GROUP BY n"
    orc.create_view("v", query, strategy="id", cache="on")
    costs = orc.view("v").plan.program.costs
    assert {cost.kind.value for cost in costs if cost.source == "public.kinds"} == {
        *("delete", "insert", "update")
    }
    assert max(cost.accesses for cost in costs) < 40 * 4000 / 400
    orc.execute("DELETE FROM kinds WHERE kind < 4; INSERT INTO kinds VALUES (2, 9)")
    orc.refresh("v")
    assert all(report.equal for report in orc.check())


def test_a_foreign_key_says_that_a_new_row_is_joined_with_none(orc):
    """Prices alone can change then what is joined, and a stored join finds its rows at once."""
    orc.execute(
        "CREATE TABLE parts (pid int PRIMARY KEY, price int NOT NULL);"
        "CREATE TABLE devices (did int PRIMARY KEY, category text NOT NULL);"
        "CREATE TABLE devices_parts (did int REFERENCES devices, pid int REFERENCES parts, PRIMARY KEY (did, pid));"
        "INSERT INTO parts SELECT i, i FROM generate_series(1, 1000) AS i;"
        "INSERT INTO devices SELECT i, CASE WHEN i % 5 = 0 THEN 'phone' ELSE 'tablet' END FROM generate_series(1, 1000) AS i;"
        "INSERT INTO devices_parts SELECT d, 1 + (d * 271 + k * 100) % 1000 FROM generate_series(1, 1000) AS d, generate_series(0, 9) AS k;"
        "CREATE INDEX ON devices_parts (pid); ANALYZE parts, devices, devices_parts"
    )
    orc.create_view(
        "v",
        "SELECT did, sum(price) AS cost FROM parts NATURAL JOIN devices_parts NATURAL JOIN devices"
        " WHERE category = 'phone' GROUP BY did",
    )
    view = orc.view("v")
    assert view.plan.program.variant == "id with a cache"
    whole = [c for c in view.plan.program.costs if c.kind is not ChangeKind.UPDATE]
    referred = [cost.accesses for cost in whole if cost.source != "public.devices_parts"]
    assert len(referred) == 4 and max(referred) <= 2
    assert all(finding.fine for finding in orc.doctor())
    orc.execute(
        "INSERT INTO parts VALUES (1001, 7); INSERT INTO devices VALUES (1001, 'phone');"
        "INSERT INTO devices_parts VALUES (1001, 1001), (5, 1001);"
        "DELETE FROM devices_parts WHERE did = 10; DELETE FROM devices WHERE did = 10"
    )
    orc.refresh("v")
    assert all(report.equal for report in orc.check())


@pytest.mark.parametrize(
    ("query", "most"),
    [
        ("SELECT small.g, id FROM small LEFT JOIN big ON big.g = small.g AND v > 3990", 1500),
        ("SELECT id, v FROM big ORDER BY v DESC, id LIMIT 10", 10_000),
    ],
)
def test_what_never_runs_or_reads_few_rows_costs_little(orc, query, most):
    orc.execute(TABLES + "; CREATE INDEX ON big (g)")
    orc.create_view("v", query, strategy="id")
    assert max(cost.accesses for cost in orc.view("v").plan.program.costs) < most


def test_many_updates_do_not_read_a_state_in_the_order_of_its_key(orc):
    """Its rows lie in the order of another column, so that each of them would touch a page."""
    orc.execute(
        "CREATE TABLE shops (shop int PRIMARY KEY, size int NOT NULL);"
        "CREATE TABLE items (id int PRIMARY KEY, shop int NOT NULL, price int);"
        "INSERT INTO shops SELECT i, i % 9 FROM generate_series(0, 79) i;"
        "INSERT INTO items SELECT i, i * 7919 % 80, i FROM generate_series(1, 60000) i; ANALYZE items, shops"
    )
    query = "SELECT size, sum(price) AS cost, count(*) AS n FROM items JOIN shops USING (shop) GROUP BY size"
    orc.create_view("v", query, strategy="id", cache="on")
    orc.execute("SET random_page_cost = 1.1")
    measured(orc, row_seconds=1)
    orc.execute("UPDATE items SET price = price + 1 WHERE id % 10 = 0")
    with orc.connection.transaction():
        orc.connection.execute("SELECT * FROM idivm.refresh('v')")
        [read] = orc.connection.execute(
            "SELECT sum(idx_tup_fetch)::int FROM pg_stat_xact_all_tables WHERE schemaname = 'idivm_state'"
        ).fetchone()
    assert read <= 6000
    assert not orc.view("v").recomputed
    assert all(report.equal for report in orc.check())


@pytest.mark.parametrize(
    "function",
    ["lag(v) OVER (PARTITION BY g ORDER BY id)", "rank() OVER (PARTITION BY g ORDER BY v)"],
)
def test_many_changed_rows_of_a_partition_share_its_span(orc, function):
    """Each row of the partitions is read once, and changed at most twice."""
    orc.execute(
        "CREATE TABLE r (id int PRIMARY KEY, g int NOT NULL, v int NOT NULL);"
        "INSERT INTO r SELECT i, i % 200, i * 7919 % 5003 FROM generate_series(1, 20000) AS i; ANALYZE r"
    )
    orc.create_view("v", f"SELECT id, g, v, {function} AS f FROM r", strategy="id")
    costs = orc.view("v").plan.program.costs
    updates = [cost for cost in costs if cost.kind is ChangeKind.UPDATE]
    assert updates
    assert all(3 * 20_000 < dict(cost.together)[10_000] < 12 * 20_000 for cost in updates)
    # A single change needs its neighbors or the rows behind it, and not the whole table.
    assert all(10 < cost.accesses < 1000 for cost in updates)
