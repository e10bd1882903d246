"""Hierarchical queries as unions of view trees: content, parts and states under every kind of change."""

from __future__ import annotations

from itertools import islice
from random import Random

import pytest
from hierarchies import LEADING, TABLES, VIEWS, batches
from parted import plan_of, require_enumeration, require_invariants, require_right

from orchestrator.errors import UsageError


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.parametrize(
    ("epsilon", "maintain", "names"),
    [
        ("0", "deferred", ("one_side", "apart")),
        ("1/4", "on_commit", ("pairs", "branches")),
        ("0.5", "eager", ("pairs", "nested", "whole")),
        ("3/4", "deferred", ("nested",)),
        ("1", "deferred", ("branches", "itself")),
    ],
)
@pytest.mark.sampled(3)
def test_content_and_parts_follow_every_change(orc, epsilon, maintain, names, older):
    if older and (maintain, epsilon) != ("eager", "0.5"):
        pytest.skip("older versions run one mode and one epsilon, unless they are asked for")
    orc.execute(TABLES)
    for name in names:
        view = orc.create_view(
            name, VIEWS[name], strategy="skew", epsilon=epsilon, maintain=maintain
        )
        assert view.strategy == "skew"
    divided = [name for name in names if name != "whole"]
    plans = [plan_of(orc, name) for name in divided]
    major = 0
    for change in batches(Random(f"{epsilon} {maintain}"), 9, 50):
        orc.execute(change)
        if maintain == "deferred":
            orc.refresh()
        require_right(orc, plans, change)
        major += sum(orc.parts(orc.view(name)).major for name in divided)
    assert major > 0
    for name in names:
        require_enumeration(orc, name, LEADING.get(name, ()))


def test_values_rise_and_fall_and_all_are_divided_anew(orc):
    orc.execute("CREATE TABLE r (a int, b int); CREATE TABLE s (b int, c int)")
    orc.execute("INSERT INTO r SELECT g, g FROM generate_series(1, 60) AS g")
    orc.execute("INSERT INTO s SELECT g, g FROM generate_series(1, 40) AS g")
    pairs = "SELECT a, c, count(*) AS n FROM r JOIN s USING (b) GROUP BY a, c"
    orc.create_view("v", pairs, strategy="skew")
    plan = plan_of(orc, "v")

    def known():
        require_invariants(orc, *plan)
        assert orc.check("v")[0].equal
        parts = orc.parts(orc.view("v"))
        [both] = parts.relations
        return parts.base, parts.minor, parts.major, both.heaviest

    def change(text: str) -> None:
        # A busy machine may have noted that a refresh took longer than a recompute.
        orc.execute("DELETE FROM idivm.costs")
        orc.execute(text)
        orc.refresh()

    assert known() == (201, 0, 0, {})
    # N^1/2 is 14.2: heavy from 22 rows of both tables together, light below 8.
    change("INSERT INTO r SELECT g, 1 FROM generate_series(1000, 1009) AS g")
    change("INSERT INTO s SELECT 1, g FROM generate_series(1000, 1008) AS g")
    assert known() == (201, 0, 0, {})
    change("INSERT INTO s VALUES (1, 5000)")
    assert known() == (201, 1, 0, {"1": 22})
    change("DELETE FROM s WHERE b = 1 AND c > 1; UPDATE r SET b = -1 WHERE b = 1 AND a > 1006")
    assert known() == (201, 1, 0, {"1": 9})
    change("DELETE FROM r WHERE b = 1 AND a IN (1000, 1001)")
    assert known() == (201, 2, 0, {})
    change("INSERT INTO s SELECT g, 1 FROM generate_series(1, 100) AS g")
    assert known()[1:] == (2, 1, {})
    change("TRUNCATE s; DELETE FROM r WHERE b > 0")
    assert known()[0] < 201


def test_the_plan_says_what_is_stored_and_the_reason_what_it_costs(orc):
    orc.execute(TABLES)
    orc.execute(f"CREATE VIEW v WITH (strategy = skew, epsilon = 0.25) AS {VIEWS['pairs']}")
    explained = orc.explain("v")
    assert "∃H_b[b] ⋈ r[b, d] ⋈ s[b, e]\n  V@b_l(r, s)[d, e]" in explained.plan
    assert "w = 2, δ = 1: a change of one row costs O(N^1/4) on average" in explained.why
    assert "the first content O(N^5/4), and a row is O(N^3/4) after" in explained.why
    assert "not a table, but a query over the others" in explained.plan


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pairs", "branches"])
def test_enumerating_skips_groups_that_having_excludes(orc, name):
    """Also where HAVING excludes every row of a page."""
    orc.execute(TABLES)
    for change in batches(Random(name), 5, 200):
        orc.execute(change)
    for n, having in enumerate(("count(*) % 2 = 0", "count(*) < 0")):
        orc.create_view(f"v{n}", f"{VIEWS[name]} HAVING {having}", strategy="skew")
        require_enumeration(orc, f"v{n}", LEADING.get(name, ()))


def test_enumerating_reads_every_page_where_having_excludes_most_groups(orc):
    orc.execute("CREATE TABLE r (a int, b int); CREATE TABLE s (b int, c int)")
    orc.execute("INSERT INTO r SELECT g % 1000, g % 7 FROM generate_series(1, 2000) AS g")
    orc.execute("INSERT INTO s SELECT g, g FROM generate_series(0, 6) AS g")
    orc.execute("INSERT INTO r SELECT 900 + g, 1 FROM generate_series(1, 50) AS g")
    query = "SELECT a, count(*) AS n FROM r JOIN s USING (b) GROUP BY a HAVING count(*) > 2"
    orc.create_view("v", query, strategy="skew")
    assert sorted(orc.enumerate("v")) == [(900 + g, 3) for g in range(1, 51)]


def test_enumerating_says_by_what_rows_are_found(orc):
    orc.execute(TABLES)
    orc.create_view("v", VIEWS["branches"], strategy="skew")
    with pytest.raises(UsageError, match="not found by d alone; give a value of a as well"):
        list(orc.enumerate("v", {"d": "p"}))
    with pytest.raises(UsageError, match="by n, which is no grouping column; those are a, d, f"):
        list(orc.enumerate("v", {"n": 1}))
    orc.execute("INSERT INTO r VALUES (1, 1, 1, 'p', 2); INSERT INTO s VALUES (1, 1, 5, 3)")
    orc.execute("INSERT INTO t VALUES (1, 1, 1, 'f', 2); INSERT INTO u VALUES (1, 1, 5), (1, 1, 6)")
    orc.refresh()
    assert list(orc.enumerate("v", {"d": "p", "a": 1})) == [(1, "p", "f", 2, 11)]


@pytest.mark.slow
@pytest.mark.integration
def test_a_view_above_it_is_computed_after_it_and_another_content_may_take_its_place(orc):
    orc.execute(TABLES)
    orc.execute("INSERT INTO r VALUES (1, 1, 1, 'p', 2); INSERT INTO s VALUES (1, 1, 5, 3)")
    orc.create_view("v", VIEWS["pairs"], strategy="id")
    orc.create_view("v", VIEWS["pairs"], strategy="skew", replace=True)
    above = orc.create_view("above", "SELECT d, n FROM v WHERE n > 1")
    assert above.strategy == "recompute"
    assert "changes of the view public.v cannot be captured" in orc.explain("above").why
    orc.execute("INSERT INTO s VALUES (1, 1, 5, 3)")
    orc.refresh("above")
    assert orc.connection.execute("SELECT * FROM above").fetchall() == [("p", 2)]
    with pytest.raises(UsageError, match="is read by the maintained views above"):
        orc.drop_view("v")
    orc.drop_view("above")
    for strategy in ("id", "skew", "viewtree", "skew"):
        orc.create_view("v", VIEWS["pairs"], strategy=strategy, replace=True)
        orc.execute("INSERT INTO s VALUES (1, 1, 5, 3)")
        assert orc.check("v")[0].equal
        assert orc.connection.execute("SELECT count(*) FROM v").fetchone() == (1,)
    orc.create_view("above", "SELECT d, n FROM v WHERE n > 1")
    orc.drop_view("v", cascade=True)
    assert orc.views() == []


@pytest.mark.slow
def test_the_doctor_finds_it_whole_mends_it_and_nothing_is_left_when_it_goes(orc):
    orc.execute(TABLES)
    pairs = "SELECT r.d, s.e, count(*) AS n FROM r JOIN s ON s.b = r.b GROUP BY r.d, s.e"
    orc.create_view("v", pairs, strategy="skew")
    for change in batches(Random(5), 6, 12):
        orc.execute(change)
    orc.refresh()
    light = next(s.role for s in orc.view("v").plan.program.states if "_l" in s.role)
    assert all(finding.fine for finding in orc.doctor())
    [content] = orc.connection.execute("SELECT state::text FROM idivm.views").fetchone()
    query = (
        orc.connection.execute("SELECT pg_get_viewdef(state) FROM idivm.views")
        .fetchone()[0]
        .rstrip(";")
    )
    for breaking in (
        f"CREATE OR REPLACE VIEW {content} AS SELECT * FROM ({query}) AS q WHERE n > 1",
        f"DROP VIEW {content} CASCADE",
        f'DROP TABLE idivm_state."v_{light}_1" CASCADE',
    ):
        orc.connection.execute(breaking)
        findings = orc.doctor()
        assert any(finding.mended for finding in findings), (breaking, findings)
        assert all(finding.fine for finding in orc.doctor())
        assert orc.check("v")[0].equal
    orc.drop_view("v")
    left = orc.connection.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = 'idivm_state'::regnamespace"
    ).fetchall()
    assert left == []


@pytest.mark.slow
def test_static_tables_are_divided_less_and_kept_less(orc):
    """In static mode only what is not free-connex is divided; a table that changes has all made again."""
    orc.execute(TABLES)
    views = {
        "one_side": ("one_side", "r, s"),
        "s_stays": ("one_side", "s"),
        "pairs": ("pairs", "r, s"),
        "t_stays": ("branches", "t, u"),
        "nested": ("nested", "r, t"),
    }
    changes = batches(Random(1), 6, 60)
    for change in islice(changes, 4):
        orc.execute(change)
    for name, (view, static) in views.items():
        orc.create_view(name, VIEWS[view], strategy="skew", static=static)
    why = {name: orc.explain(name).why.splitlines()[1] for name in views}
    assert (
        "w = 1, and no table changes: the first content costs O(N), and a row is O(1)"
        in why["one_side"]
    )
    assert "w = 1, δ = 0: a change of one row costs O(1) on average" in why["s_stays"]
    assert "w = 2, and no table changes: the first content costs O(N^3/2)" in why["pairs"]
    assert "w = 1, δ = 1" in why["t_stays"]
    plans = {name: plan_of(orc, name) for name in views}
    divided = {name for name, (plan, _) in plans.items() if plan.partitioning}
    assert divided == {"pairs", "t_stays", "nested"}
    alone = (
        "DELETE FROM r WHERE b = 0 AND id % 2 = 0",
        "UPDATE r SET d = 'p', b = b + 1 WHERE id % 3 = 0",
    )
    for change in (*alone, *changes):
        orc.execute(change)
        orc.refresh()
        require_right(orc, [plans[name] for name in divided], change)
    for name in views:
        require_enumeration(orc, name, LEADING.get(views[name][0], ()))


@pytest.mark.parametrize("maintain", ["deferred", "eager"])
def test_what_is_joined_with_nothing_is_nothing(orc, maintain):
    orc.execute(TABLES)
    orc.execute("TRUNCATE u")
    crossed = "SELECT r.d, count(*) AS n, sum(u.w) AS w FROM r CROSS JOIN u GROUP BY r.d"
    orc.create_view("v", crossed, strategy="skew", maintain=maintain)
    for change in (
        "UPDATE r SET d = 'z' WHERE id % 2 = 0",
        "INSERT INTO u VALUES (1, 1, 2)",
        "DELETE FROM r WHERE d = 'z'",
        "DELETE FROM u",
        "INSERT INTO u VALUES (1, 1, 2), (2, 2, 0)",
        "TRUNCATE u",
    ):
        orc.execute(change)
        assert orc.check("v")[0].equal, change
        content = orc.connection.execute("TABLE v").fetchall()
        assert sorted(map(str, orc.enumerate("v"))) == sorted(map(str, content)), change
