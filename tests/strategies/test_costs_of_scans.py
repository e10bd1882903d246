"""What refreshes cost where tables have no index that the program could use."""

from __future__ import annotations

import re

import pytest

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
    "window": "SELECT id, g, rank() OVER (PARTITION BY g ORDER BY v) FROM big",
    "distinct on": "SELECT DISTINCT ON (g) g, id FROM big ORDER BY g, v, id",
    "exists": "SELECT g, lim FROM small WHERE EXISTS (SELECT FROM big WHERE big.g = small.g AND v > 3990)",
    "not exists": "SELECT g FROM small WHERE NOT EXISTS (SELECT FROM big WHERE big.g = small.g AND v > 3990)",
    "left join": "SELECT small.g, id FROM small LEFT JOIN big ON big.g = small.g AND v > 3990",
}


ASSIGNED = re.compile(r"FROM \(SELECT \* FROM \(\n(.*?)\n +\) AS d LIMIT \d+\) AS d;", re.DOTALL)
VARIABLE = re.compile(r"unnest\(refresh_\d+\.(\w+)\)")


def plans(orc, view):
    """How PostgreSQL runs the queries of a program that look for the rows of diffs, as small diffs are met."""
    script = orc.explain(view).script
    shapes = dict(re.findall(r'^    "?(\w+)"? ("idivm_state"\."\w+")\[\];', script, re.MULTILINE))
    for query in ASSIGNED.findall(script):
        named = list(dict.fromkeys(VARIABLE.findall(query)))
        if "idivm_def." not in query or "IS NULL" in query or not named:
            continue
        for number, name in enumerate(named, 1):
            query = re.sub(rf"unnest\(refresh_\d+\.{name}\)", f"unnest(${number})", query)
        types = ", ".join(f"{shapes[name]}[]" for name in named)
        nothing = ", ".join("NULL" for _ in named)
        with orc.connection.transaction(force_rollback=True):
            orc.connection.execute("SET LOCAL plan_cache_mode = force_generic_plan")
            orc.connection.execute(f"PREPARE looked ({types}) AS {query}")
            shown = orc.connection.execute(f"EXPLAIN EXECUTE looked ({nothing})").fetchall()
            orc.connection.execute("DEALLOCATE looked")
        yield "\n".join(line for (line,) in shown)


@pytest.mark.parametrize("name", VIEWS)
def test_no_table_is_gone_through_for_each_changed_row(orc, name):
    orc.execute(TABLES)
    orc.create_view("v", VIEWS[name], strategy="id", cache="off")
    found = list(plans(orc, "v"))
    assert any("Hash" in plan for plan in found)
    assert not any("Nested Loop" in plan and "Index" not in plan for plan in found)
    orc.execute(f"UPDATE big SET v = 2 * v % 4001 WHERE id <= {GROUPS}")
    orc.refresh("v")
    orc.execute(
        "UPDATE big SET v = -v WHERE id > 0 AND id % 50 = 0; UPDATE big SET g = NULL WHERE id = 9"
    )
    assert all(report.equal for report in orc.check())


def test_a_missing_index_is_named_and_made(orc):
    orc.execute(TABLES)
    orc.create_view("v", VIEWS["groups"])
    wanted = 'CREATE INDEX ON "public"."big" ("g")'
    assert orc.explain("v").missing_indexes == [wanted]
    [update] = [one for one in orc.view("v").plan["costs"] if one["kind"] == "update"]
    assert update["accesses"] < 10 * 4000 / GROUPS
    orc.execute(f"CREATE OR REPLACE VIEW v WITH (create_indexes = on) AS {VIEWS['groups']}")
    assert orc.explain("v").missing_indexes == []
    orc.execute("DROP VIEW v; " + wanted)
    orc.create_view("v", VIEWS["groups"])
    orc.execute("UPDATE big SET v = v + 1 WHERE id IN (0, 1)")
    assert all(report.equal for report in orc.check())
