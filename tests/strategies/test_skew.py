"""Heavy and light parts under every kind of change: the content, and what must hold of the parts."""

from __future__ import annotations

from random import Random

import pytest
from parted import (
    RST,
    TABLES,
    batches,
    plan_of,
    require_enumeration,
    require_invariants,
    require_right,
)
from psycopg.sql import SQL

from orchestrator.deltascript import sizes
from orchestrator.deltascript.plan import StateTable
from orchestrator.errors import UnsupportedError, UsageError

VIEWS = {
    "counted": f"SELECT count(*) AS n FROM {RST}",
    "summed": "SELECT sum(r.x * s.y * t.z) AS xyz, sum(s.y) AS y, count(t.z) AS zs, avg(r.x * t.z) AS xz,"
    f" sum(r.x) FILTER (WHERE t.z > 2) AS big FROM {RST} WHERE s.y <> 7 AND t.label IS NOT NULL",
    "itself": "SELECT count(*) AS n FROM r p JOIN r q ON q.a = p.b JOIN r o ON o.a = q.b AND o.b = p.a",
    "in_a_row": "SELECT count(*) AS n, sum(r.x * s.y) AS xy FROM t JOIN s ON s.c = t.c JOIN r ON r.b = s.b",
    "four": "SELECT count(*) AS n, sum(r.x * u.y) AS xy FROM s AS u JOIN r ON r.a = u.b"
    " JOIN t ON t.a = r.b AND t.z < 8 JOIN s ON s.c = t.c",
    "walks": "SELECT count(*) AS n FROM r p JOIN r q ON q.a = p.b JOIN r o ON o.a = q.b JOIN r l ON l.a = o.b",
    "by_a": f"SELECT t.a, count(*) AS n, sum(s.y) AS y FROM {RST} GROUP BY t.a",
    "by_b": f"SELECT r.b, count(t.z) AS z FROM {RST} WHERE s.y <> 7 GROUP BY r.b HAVING count(*) > 1",
    "by_ab": f"SELECT r.a, s.b, count(*) AS n, sum(r.x * t.z) AS xz FROM {RST} GROUP BY r.a, s.b",
    "by_ca": f"SELECT t.c, r.a, avg(s.y) AS y FROM {RST} GROUP BY t.c, r.a",
    "all": f"SELECT s.c, r.a, r.b, count(*) AS n, sum(s.y) AS y FROM {RST} GROUP BY r.a, r.b, s.c",
    "listed": "SELECT DISTINCT p.a, p.b, q.b AS c FROM r p JOIN r q ON q.a = p.b"
    " JOIN r o ON o.a = q.b AND o.b = p.a",
    "of_c": "SELECT o.a AS c, count(*) AS n FROM r p JOIN r q ON q.a = p.b"
    " JOIN r o ON o.a = q.b AND o.b = p.a GROUP BY o.a",
}

LEADING = {"by_ab": ("a", "b"), "by_ca": ("a",), "all": ("b",)}
"""Columns by which rows are found."""


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.parametrize(
    ("epsilon", "maintain", "partition", "names"),
    [
        ("0", "deferred", "single", ("counted", "all", "four")),
        ("1/4", "on_commit", "double", ("itself", "by_b", "walks")),
        ("0.5", "eager", "single", ("by_a", "by_ca")),
        ("3/4", "deferred", "single", ("by_ab", "of_c", "listed")),
        ("1", "deferred", "single", ("summed", "in_a_row")),
    ],
)
@pytest.mark.sampled(3)
def test_content_and_parts_follow_every_change(
    orc, epsilon, maintain, partition, names, older, monkeypatch
):
    if maintain == "deferred":
        # What is large is planned otherwise.
        monkeypatch.setattr(sizes, "SMALL", 2)
    if older and (maintain, epsilon) != ("eager", "0.5"):
        pytest.skip("older versions run one mode and one epsilon, unless they are asked for")
    orc.execute(TABLES)
    names = names[:1] if older else names
    for name in names:
        view = orc.create_view(
            name,
            VIEWS[name],
            strategy="skew",
            epsilon=epsilon,
            maintain=maintain,
            partition=partition,
        )
        assert view.strategy == "skew"
    plans = [plan_of(orc, name) for name in names]
    minor = major = 0
    for change in batches(Random(f"{epsilon} {maintain}"), 9, 60):
        orc.execute(change)
        if maintain == "deferred":
            orc.refresh()
        require_right(orc, plans, change)
        known = [orc.parts(orc.view(name)) for name in names]
        minor, major = minor + sum(p.minor for p in known), major + sum(p.major for p in known)
    assert major > 0
    # Few values get beyond larger thresholds one by one.
    assert minor > 0 or epsilon not in ("1/4", "0.5")
    for name in names:
        if orc.view(name).plan.enumeration:
            require_enumeration(orc, name, LEADING.get(name, ()))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["by_a", "by_ca"])
def test_enumerating_skips_groups_that_having_excludes(orc, name):
    """Also groups that are found in the buckets of heavy values."""
    orc.execute(TABLES)
    rng = Random(0)
    pairs = [
        f"{rng.choice((0, rng.randrange(12)))}, {rng.choice((0, rng.randrange(12)))}"
        for _ in range(180)
    ]
    rows = {
        "r": (f"({n}, {pair}, 1)" for n, pair in enumerate(pairs[:60])),
        "s": (f"({pair}, 1)" for pair in pairs[60:120]),
        "t": (f"({n}, {pair}, 1, 'x')" for n, pair in enumerate(pairs[120:])),
    }
    for table, values in rows.items():
        orc.execute(f"INSERT INTO {table} VALUES {', '.join(values)}")
    orc.create_view("v", f"{VIEWS[name]} HAVING count(*) % 2 = 0", strategy="skew")
    require_enumeration(orc, "v", LEADING.get(name, ()))


def test_a_value_rises_and_falls_and_all_are_divided_anew(orc):
    orc.execute("CREATE TABLE r (a int, b int); CREATE TABLE s (b int, c int)")
    orc.execute("CREATE TABLE t (c int, a int)")
    orc.execute("INSERT INTO r SELECT g, g FROM generate_series(1, 100) AS g")
    orc.create_view("v", VIEWS["counted"], strategy="skew")

    plan = plan_of(orc, "v")

    def known():
        require_invariants(orc, *plan)
        parts = orc.parts(orc.view("v"))
        [r, _, _] = parts.relations
        return parts.base, parts.minor, parts.major, r.heaviest

    def change(text: str) -> None:
        # A busy machine may have noted that a refresh took longer than a recompute.
        orc.execute("DELETE FROM idivm.costs")
        orc.execute(text)
        orc.refresh()

    assert known() == (201, 0, 0, {})
    # N^1/2 is 14.2: heavy from 22 rows, light below 8.
    change("INSERT INTO r SELECT 1, g FROM generate_series(1000, 1019) AS g")
    assert known() == (201, 0, 0, {})
    change("INSERT INTO r VALUES (1, 2000)")
    assert known() == (201, 1, 0, {"1": 22})
    change("DELETE FROM r WHERE a = 1 AND b BETWEEN 1005 AND 1018")
    assert known() == (201, 1, 0, {"1": 8})
    change("DELETE FROM r WHERE a = 1 AND b = 1019")
    assert known() == (201, 2, 0, {})
    change("INSERT INTO s SELECT g, g FROM generate_series(1, 94) AS g")
    assert known() == (201, 2, 0, {})
    change("INSERT INTO t VALUES (1, 1)")
    assert known() == (402, 2, 1, {})
    change("DELETE FROM s; DELETE FROM r WHERE b > 99 AND a <> 1")
    assert known() == (402, 2, 1, {})
    change("DELETE FROM t; DELETE FROM r WHERE a > 90")
    assert known() == (200, 2, 2, {})
    change("DELETE FROM r")
    assert known()[0] == 1
    change("INSERT INTO r SELECT 7, g FROM generate_series(1, 50) AS g")
    base, _, _, heaviest = known()
    assert (base, heaviest) == (64, {"7": 50})
    assert orc.check("v")[0].equal


@pytest.mark.slow
def test_variables_may_be_several_columns_or_in_every_table(orc):
    orc.execute("CREATE TABLE r (d int, a int, a2 text, b int, w int)")
    orc.execute("CREATE TABLE s (d int, b int, c int)")
    orc.execute("CREATE TABLE t (d int, c int, a int, a2 text)")
    orc.create_view(
        "v",
        "SELECT sum(w) AS w, count(*) AS n FROM r JOIN s USING (d, b)"
        " JOIN t ON t.d = r.d AND t.c = s.c AND t.a = r.a AND t.a2 = r.a2",
        strategy="skew",
    )
    assert "r by a, a2, d: r_h[a, a2, b, d] *" in orc.explain("v").plan
    orc.create_view(
        "path",
        "SELECT sum(w) AS w, count(*) AS n FROM s AS q JOIN r USING (d, b)"
        " JOIN t ON t.d = r.d AND t.a = r.a AND t.a2 = r.a2 JOIN s AS o ON o.d = t.d AND o.c = t.c",
        strategy="skew",
    )
    assert "r, t by a, a2, d" in orc.explain("path").plan
    plans = [plan_of(orc, name) for name in ("v", "path")]
    for turn in range(3):
        orc.execute(
            "INSERT INTO r SELECT g % 2, 1, 'x', g, g FROM generate_series(1, 20) AS g;"
            "INSERT INTO s SELECT g % 2, g, g % 3 FROM generate_series(1, 20) AS g;"
            "INSERT INTO t SELECT g % 2, g % 3, 1, 'x' FROM generate_series(1, 7) AS g"
        )
        orc.refresh()
        require_right(orc, plans, turn)
    assert orc.parts(orc.view("v")).relations[0].on == ["a", "a2", "d"]


@pytest.mark.slow
def test_loomis_whitney_counts_of_degree_four_follow_every_change(orc):
    orc.execute("CREATE TABLE e (a int, b int, c int, x int)")
    orc.create_view(
        "v",
        "SELECT count(*) AS n, sum(p.x * o.x) AS xx FROM e AS p, e AS q, e AS o, e AS l"
        " WHERE q.a = p.b AND q.b = p.c AND o.a = p.c AND o.a = q.b AND o.b = q.c AND o.c = p.a"
        " AND l.a = q.c AND l.a = o.b AND l.b = p.a AND l.b = o.c AND l.c = p.b AND l.c = q.a",
        strategy="skew",
        epsilon="1/3",
    )
    assert "a Loomis-Whitney count of degree 4" in orc.explain("v").why
    plan = plan_of(orc, "v")
    rng, counts = Random(4), set()
    for turn in range(10):
        first = str(turn % 3) if turn else "i % 40"
        orc.execute(
            f"INSERT INTO e SELECT {first}, hashint4(i) & 1, hashint4(-i) & 1, i % 5"
            f" FROM generate_series({100 * turn}, {100 * turn + (6 if turn else 80)}) AS i"
        )
        if turn % 3 == 2:
            orc.execute(f"DELETE FROM e WHERE {rng.choice('abc')} = {rng.randrange(3)} AND x < 3")
        # A busy machine may have noted that a refresh took longer than a recompute.
        orc.execute("DELETE FROM idivm.costs")
        orc.refresh()
        require_invariants(orc, *plan)
        assert orc.check("v")[0].equal
        counts |= set(orc.connection.execute("SELECT n FROM v").fetchall())
    minor = orc.parts(orc.view("v")).minor
    assert minor > 0
    assert len(counts) > 5


@pytest.mark.slow
def test_the_middle_of_a_path_is_divided_together_and_moves_at_once(orc):
    """With ε = 1/2: a value of b has rows in s and in t that make it heavy only together."""
    orc.execute("CREATE TABLE r (a int, x int); CREATE TABLE s (a int, b int)")
    orc.execute("CREATE TABLE t (b int, c int); CREATE TABLE u (c int, y int)")
    orc.execute("INSERT INTO r SELECT i % 60, i % 3 FROM generate_series(0, 119) AS i")
    orc.execute("INSERT INTO u SELECT i % 60, i % 4 FROM generate_series(0, 119) AS i")
    # Of s, 1 is a heavy a; of t, 2 is a heavy c; b = 3 is light in each, and nearly heavy in both.
    orc.execute("INSERT INTO s SELECT 1, i FROM generate_series(0, 24) AS i")
    orc.execute("INSERT INTO s SELECT i, 3 FROM generate_series(2, 5) AS i UNION ALL SELECT 5, 4")
    orc.execute("INSERT INTO t SELECT i, 2 FROM generate_series(0, 24) AS i")
    orc.execute("INSERT INTO t SELECT 3, i FROM generate_series(3, 5) AS i UNION ALL SELECT 4, 9")
    orc.create_view(
        "v",
        "SELECT count(*) AS n, sum(x * y) AS xy FROM s JOIN r ON r.a = s.a"
        " JOIN t ON t.b = s.b JOIN u ON u.c = t.c",
        strategy="skew",
    )
    explained = orc.explain("v")
    assert "a 4-path count: a change of one row costs O(N^1/2) on average" in explained.why
    assert "s, t by b" in explained.plan
    plan = plan_of(orc, "v")

    def change(text: str) -> tuple[list[dict[str, int]], int]:
        orc.execute(text)
        orc.refresh()
        require_invariants(orc, *plan)
        assert orc.check("v")[0].equal
        parts = orc.parts(orc.view("v"))
        assert [p.relation for p in parts.relations] == ["s, t", "s", "t"]
        return [p.heaviest for p in parts.relations], parts.major

    def stored() -> list[int]:
        tables = [
            plan[1].state(s.role)
            for s in plan[0].program.states
            if isinstance(s, StateTable) and s.role.startswith("at_")
        ]
        return [
            orc.connection.execute(SQL("SELECT count(*) FROM {}").format(t)).fetchone()[0]
            for t in tables
        ]

    heavy, _ = change("INSERT INTO r VALUES (1, 1), (2, 1), (7, 5)")
    assert heavy == [{}, {"1": 25}, {"2": 25}]
    before = stored()
    assert before.count(0) == 2
    # The row by which b = 3 becomes heavy comes with others of s and of t, which it meets.
    heavy, major = change(
        "INSERT INTO s SELECT i, 3 FROM generate_series(11, 14) AS i;"
        "INSERT INTO t SELECT 3, i FROM generate_series(9, 12) AS i; INSERT INTO u VALUES (9, 3)"
    )
    assert (heavy, major) == ([{"3": 17}, {"1": 25}, {"2": 25}], 0)
    assert all(stored())
    heavy, major = change(
        "DELETE FROM s WHERE b = 3 AND a > 1; DELETE FROM t WHERE b = 3 AND c > 4"
    )
    assert (heavy, major) == ([{}, {"1": 25}, {"2": 25}], 0)
    assert stored().count(0) == 2
    # Values of a and c fall and rise, and everything is divided again, both ways.
    heavy, major = change("DELETE FROM s WHERE a = 1 AND b > 3; UPDATE t SET c = b WHERE b > 3")
    assert heavy[1:] == [{}, {}]
    heavy, major = change("INSERT INTO t SELECT i % 40, 7 FROM generate_series(1, 400) AS i")
    assert "7" in heavy[2]
    assert major > 0
    change("DELETE FROM t WHERE c = 7; UPDATE r SET a = a + 1")


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (f"SELECT r.id, count(*) AS n FROM {RST} GROUP BY r.id", "by id, which only r has"),
        (
            # By the column itself, the query would be hierarchical by keys.
            f"SELECT r.a, count(*) AS n FROM {RST} AND t.id + 0 = r.id + 0 GROUP BY r.a",
            "by some of them alone",
        ),
        (
            f"SELECT r.a, count(*) AS n FROM {RST} AND t.id = r.id GROUP BY r.a",
            "hierarchical by keys alone, but values of b, c are not in each table",
        ),
        (
            f"SELECT r.a, count(*) AS n FROM {RST} AND s.y = r.id + 0 AND t.id + 0 = r.id + 0 GROUP BY r.a",
            "not grouped by .*, which all three tables have",
        ),
        ("SELECT count(*) AS n FROM r JOIN s ON s.b = r.b", "has nothing to divide"),
        (f"SELECT max(r.x) AS m FROM {RST}", "a deleted value cannot be taken back"),
    ],
)
def test_a_query_that_is_no_triangle_says_why(orc, query, reason):
    orc.execute(TABLES)
    with pytest.raises(UnsupportedError, match=reason):
        orc.create_view("v", query, strategy="skew")


@pytest.mark.slow
def test_each_relation_may_have_its_own_epsilon(orc):
    """At the ends these are factorized maintenance; in between, each has values of its own heavy."""
    orc.execute(TABLES)
    views = {
        "factorized": ("counted", "r: 0, s: 0, t: 1"),
        "between": ("counted", "public.s: 3/4, t: 0.2"),
        "graph": ("itself", "r: 1/3, p: 0"),
    }
    for name, (view, epsilon) in views.items():
        orc.create_view(name, VIEWS[view], strategy="skew", epsilon=epsilon)
    explained = orc.explain("factorized")
    assert "a change of one row costs, of r O(1), of s O(N), of t O(N)" in explained.why
    assert "O(N^2) rows are stored" in explained.why
    assert "divided at N^0 (r), N^0 (s), N^1 (t)" in explained.plan
    plans = [plan_of(orc, name) for name in views]
    for change in batches(Random(8), 4, 60):
        orc.execute(change)
        orc.refresh()
        require_right(orc, plans, change)
    parts = {name: orc.parts(orc.view(name)) for name in views}
    assert [relation.epsilon for relation in parts["between"].relations] == ["1/2", "3/4", "1/5"]
    assert [relation.epsilon for relation in parts["graph"].relations] == ["0", "1/3"]
    assert [
        (relation.heavy_rows > 0, relation.light_rows > 0)
        for relation in parts["factorized"].relations
    ] == [
        (True, False),
        (True, False),
        (False, True),
    ]


@pytest.mark.parametrize(
    ("epsilon", "view", "error", "reason"),
    [
        ("r: 0, x: 1", "counted", UsageError, "'x', which is no table of the query"),
        ("r: 0, 1", "counted", UsageError, "gives no table its epsilon"),
        ("r: 0, r: 1", "counted", UsageError, "given twice"),
        ("r: 2", "counted", UsageError, "not a number from 0 to 1"),
        ("r: 0", "by_a", UnsupportedError, "has one epsilon for all of its tables"),
        ("r: 0", "four", UnsupportedError, "has one epsilon for all of its tables"),
    ],
)
def test_epsilon_of_a_relation_that_cannot_be_says_why(orc, epsilon, view, error, reason):
    orc.execute(TABLES)
    with pytest.raises(error, match=reason):
        orc.create_view("v", VIEWS[view], strategy="skew", epsilon=epsilon)


@pytest.mark.parametrize("epsilon", ["-0.1", "1.5", "half", "1/0", "nan"])
def test_epsilon_is_a_number_from_0_to_1(orc, epsilon):
    with pytest.raises(UsageError, match="not a number from 0 to 1"):
        orc.create_view("v", "SELECT 1 AS one", epsilon=epsilon)


@pytest.mark.slow
def test_auto_takes_it_where_common_values_say_that_it_pays(orc):
    for name, columns in (("r", "a int, b int"), ("s", "b int, c int"), ("t", "c int, a int")):
        orc.execute(f"CREATE TABLE {name} ({columns})")
        orc.execute(f"INSERT INTO {name} SELECT g, g FROM generate_series(10, 1500) AS g")
    orc.execute("ANALYZE r, s, t")
    assert orc.create_view("flat", VIEWS["counted"]).strategy != "skew"
    [reason] = [
        line for line in orc.explain("flat").why.splitlines() if line.startswith("- skew: ")
    ]
    assert "a change meets 1 rows on average, by the most common values" in reason
    orc.drop_view("flat")
    # Each row has a value that half of the rows have; which of its two that is, no plan knows.
    for name in ("r", "s", "t"):
        orc.execute(f"UPDATE {name} SET {'bca'['rst'.index(name)]} = 1")
        orc.execute(f"INSERT INTO {name} SELECT 1, g FROM generate_series(10, 1500) AS g")
    orc.execute("ANALYZE r, s, t")
    assert orc.create_view("hubs", VIEWS["counted"]).strategy == "skew"
    _, reason, *others = orc.explain("hubs").why.splitlines()
    assert reason.startswith("+ skew: a change meets 74")
    assert "by the most common values, and up to 1,4" in reason
    assert "with 3 of these heavy, at N^ε = 134, it costs about 3" in reason
    assert "; it is a triangle: a change of one row costs O(N^1/2) on average" in reason
    assert any(line.startswith("- tuple: ") for line in others)
    # Of rows that are shown, reading would be dearer.
    grouped = f"SELECT r.a, count(*) AS n FROM {RST} GROUP BY r.a"
    assert orc.create_view("grouped", grouped).strategy != "skew"
    orc.execute("INSERT INTO r VALUES (1, 1); DELETE FROM s WHERE c > 1000")
    assert all(report.equal for report in orc.check())


def test_the_plan_shows_parts_views_and_rules_and_the_reason_the_exponents(orc):
    orc.execute(TABLES)
    orc.execute(f"CREATE VIEW v WITH (strategy = skew, epsilon = 0.25) AS {VIEWS['counted']}")
    explained = orc.explain("v")
    assert "divided at N^1/4" in explained.plan
    assert "r by a: r_h[a, b] *, r_l[a, b] *" in explained.plan
    assert "- h l: δr ⋈ V@c(s_h, t_l)[a, b] in O(1)" in explained.plan
    assert "- l -: δr ⋈ s_l[b, c] ⋈ t[a, c] in O(N^1/4)" in explained.plan
    assert "a change of one row costs O(N^3/4) on average, and O(N^5/4) rows" in explained.why
    assert "threshold_base" in explained.sql


@pytest.mark.slow
@pytest.mark.sampled(4)
def test_a_static_table_has_parts_and_rebuilds_when_it_changes(orc):
    orc.execute(TABLES)
    orc.create_view("v", VIEWS["counted"], strategy="skew", static="t")
    # Of this, nothing that is divided changes.
    orc.create_view("w", VIEWS["in_a_row"], strategy="skew", static="s")
    orc.create_view("x", VIEWS["four"], strategy="skew", static="t")
    plans = [plan_of(orc, name) for name in "vwx"]
    for change in batches(Random(3), 6, 12):
        orc.execute(change)
        orc.refresh()
        require_right(orc, plans, change)


def test_one_row_of_a_triangle_costs_no_walk_through_what_a_heavy_value_has(orc):
    """By pages touched: the rows of s and t that a row of r meets are many, and stored as one sum."""
    orc.execute("CREATE TABLE r (a int, b int); CREATE TABLE s (b int, c int)")
    orc.execute("CREATE TABLE t (c int, a int)")
    orc.execute("INSERT INTO s SELECT 1, g FROM generate_series(1, 3000) AS g")
    orc.execute("INSERT INTO t SELECT g, 2 FROM generate_series(1, 3000) AS g")
    orc.create_view("v", VIEWS["counted"], strategy="skew")

    def pages(text: str) -> int:
        orc.execute(text)
        row = orc.connection.execute(
            "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM idivm.refresh('v')"
        ).fetchone()
        plan = row[0][0]["Plan"]
        return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]

    # Plans are made in the first refreshes, which reads catalogs.
    for _ in range(3):
        pages("INSERT INTO r VALUES (2, 1)")
        few = pages("DELETE FROM r")
    assert few < 600
    orc.execute("INSERT INTO r VALUES (2, 1)")
    orc.refresh()
    assert orc.connection.execute("SELECT n FROM v").fetchone() == (3000,)


def test_degrees_are_looked_up_though_they_were_few_when_that_was_planned(orc):
    orc.execute("CREATE TABLE r (a int, b int); CREATE TABLE s (b int, c int)")
    orc.execute("INSERT INTO r SELECT i, i % 2 FROM generate_series(1, 2000) AS i")
    orc.create_view(
        "v", "SELECT a, c, count(*) FROM r JOIN s ON s.b = r.b GROUP BY a, c", strategy="skew"
    )
    plan, names = plan_of(orc, "v")
    degrees = names.state(plan.partitioning.partitions[0].degrees).as_string(None)

    def read() -> int:
        return orc.connection.execute(
            "SELECT coalesce(sum(idx_tup_fetch), 0) FROM pg_stat_xact_all_tables"
            " WHERE relid = %s::regclass",
            [degrees],
        ).fetchone()[0]

    def read_for(change: str) -> int:
        orc.execute(change)
        with orc.connection.transaction():
            before = read()
            orc.connection.execute("SELECT idivm.refresh('v')")
            return read() - before

    read_for("INSERT INTO s VALUES (0, 1)")
    read_for("INSERT INTO r SELECT i, i FROM generate_series(2, 1000) AS i")
    assert read_for("INSERT INTO s VALUES (20, 1)") < 10
    assert read_for("DELETE FROM r WHERE b = 30") < 10
    assert orc.check("v")[0].equal
    [count] = orc.connection.execute(f"SELECT count(*) FROM {degrees}").fetchone()
    assert count == 1000


@pytest.mark.slow
def test_the_doctor_finds_it_whole_and_nothing_is_left_when_it_goes(orc):
    orc.execute(TABLES)
    orc.create_view("v", VIEWS["counted"], strategy="skew")
    for change in batches(Random(5), 6, 12):
        orc.execute(change)
    orc.refresh()
    assert all(finding.fine for finding in orc.doctor())
    plan = plan_of(orc, "v")
    [lost] = [
        state
        for state in plan[0].program.states
        if state.role == plan[0].partitioning.partitions[0].parts[1]
    ]
    orc.connection.execute(SQL("DROP TABLE {}").format(plan[1].state(lost.role)))
    assert any(finding.mended for finding in orc.doctor())
    require_invariants(orc, *plan_of(orc, "v"))
    orc.drop_view("v")
    left = orc.connection.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = 'idivm_state'::regnamespace"
    ).fetchall()
    assert left == []
