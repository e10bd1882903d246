"""Joins over the cases of heavy and light variables, under every kind of change."""

from __future__ import annotations

from random import Random

import pytest
from parted import TABLES, batches, plan_of, require_invariants, require_right

from orchestrator.deltascript import sizes
from orchestrator.errors import UnsupportedError

pytestmark = pytest.mark.integration

CYCLE = "r JOIN s ON s.b = r.b JOIN t ON t.c = s.c JOIN u ON u.d = t.a AND u.a = r.a"
ITSELF = "r p JOIN r q ON q.a = p.b JOIN r o ON o.a = q.b JOIN r l ON l.a = o.b AND l.b = p.a"
CLIQUE = (
    "r ab JOIN r ac ON ac.a = ab.a JOIN r ad ON ad.a = ab.a JOIN r bc ON bc.a = ab.b AND bc.b = ac.b"
    " JOIN r bd ON bd.a = ab.b AND bd.b = ad.b JOIN r cd ON cd.a = ac.b AND cd.b = ad.b"
)
DIAMOND = (
    "r p JOIN r q ON q.a = p.b JOIN r o ON o.a = q.b JOIN r l ON l.a = o.b AND l.b = p.a"
    " JOIN r m ON m.a = p.a AND m.b = q.b"
)

VIEWS = {
    "cycle": f"SELECT count(*) AS n, sum(r.x * s.y) AS xy, avg(u.x) AS x FROM {CYCLE}",
    "covariance": f"SELECT idivm.covar(r.x, s.y, t.z, u.x) AS v FROM {CYCLE} WHERE s.y <> 7",
    "itself": f"SELECT count(*) AS n, sum(o.x) AS x FROM {ITSELF}",
    "clique": f"SELECT count(*) AS n, sum(ab.x * cd.x) AS x FROM {CLIQUE}",
    "diamond": f"SELECT count(*) AS n FROM {DIAMOND}",
    "tail": "SELECT count(*) AS n, sum(t.z) AS z FROM r p JOIN r q ON q.a = p.b JOIN r o ON o.a = q.b"
    " AND o.b = p.a JOIN t ON t.a = p.a",
    "five": "SELECT count(*) AS n FROM r p JOIN r q ON q.a = p.b JOIN r o ON o.a = q.b JOIN r l ON l.a = o.b"
    " JOIN r m ON m.a = l.b",
    "by_a": f"SELECT r.a, count(*) AS n, sum(t.z) AS z FROM {CYCLE} GROUP BY r.a",
    "by_bd": f"SELECT r.b, t.a AS d, count(*) AS n FROM {CYCLE} GROUP BY r.b, t.a HAVING count(*) > 1",
    "by_edge": f"SELECT ab.a, ab.b, idivm.covar(cd.x, ac.x) AS v FROM {CLIQUE} GROUP BY ab.a, ab.b",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "maintain", "names"),
    [
        ("auto", "deferred", ("cycle", "itself")),
        ("1/3", "deferred", ("clique", "diamond")),
        ("auto", "on_commit", ("tail", "covariance")),
        ("2/3", "deferred", ("itself", "five")),
        ("1/2", "eager", ("cycle",)),
        ("1/4", "deferred", ("by_a", "by_bd")),
        ("auto", "deferred", ("by_edge",)),
        ("0", "deferred", ("cycle", "by_bd")),
        ("1", "deferred", ("itself",)),
    ],
)
@pytest.mark.sampled(3)
def test_content_and_parts_follow_every_change(orc, epsilon, maintain, names, monkeypatch):
    if maintain == "deferred":
        # What is large is planned otherwise.
        monkeypatch.setattr(sizes, "SMALL", 2)
    orc.execute(TABLES)
    orc.execute("CREATE TABLE u (id int PRIMARY KEY, d int, a int, x int)")
    for name in names:
        view = orc.create_view(
            name, VIEWS[name], strategy="skew", epsilon=epsilon, maintain=maintain
        )
        assert view.strategy == "skew"
        assert "cases of heavy and light values" in orc.explain(name).why
    plans = [plan_of(orc, name) for name in names]
    major = 0
    rng = Random(f"{epsilon} {maintain}")
    for turn, change in enumerate(batches(rng, 8, 60)):
        orc.execute(change)
        new = ", ".join(
            f"({turn * 100 + i}, {rng.randrange(4)}, {rng.choice((0, 1, rng.randrange(30)))}, {i})"
            for i in range(rng.choice((1, 30)))
        )
        orc.execute(f"INSERT INTO u VALUES {new}")
        # A busy machine may have noted that a refresh took longer than a recompute.
        orc.execute("DELETE FROM idivm.costs")
        if maintain == "deferred":
            orc.refresh()
        require_right(orc, plans, change)
        major += sum(orc.parts(orc.view(name)).major for name in names)
    assert major > 0


@pytest.mark.slow
@pytest.mark.parametrize("shape", [ITSELF, CLIQUE, DIAMOND])
def test_single_values_become_heavy_and_light_again(orc, shape):
    """Values of all variables at once, in each of the atoms, while the threshold stays the same."""
    orc.execute("CREATE TABLE r (a int, b int, x int)")
    orc.execute("INSERT INTO r SELECT 1000 + i, 2000 + i, i % 5 FROM generate_series(1, 300) AS i")
    orc.execute("INSERT INTO r SELECT i % 4, i % 3, 1 FROM generate_series(1, 12) AS i")
    first = shape.split()[1]
    orc.create_view(
        "v",
        f"SELECT count(*) AS n, sum({first}.x) AS x FROM {shape}",
        strategy="skew",
        epsilon="1/3",
    )
    plan = plan_of(orc, "v")

    def change(text: str) -> tuple[int, set[str]]:
        orc.execute("DELETE FROM idivm.costs")
        orc.execute(text)
        orc.refresh()
        require_invariants(orc, *plan)
        assert orc.check("v")[0].equal, text
        parts = orc.parts(orc.view("v"))
        assert parts.major == 0
        return parts.minor, {value for item in parts.relations for value in item.heaviest}

    minor, heavy = change("INSERT INTO r VALUES (3, 4, 2), (4, 3, 2)")
    assert "2" not in heavy
    for turn in range(3):
        moved, heavy = change(
            f"INSERT INTO r SELECT {turn}, g, 1 FROM generate_series(0, 12) AS g;"
            f"INSERT INTO r SELECT g, {turn}, 1 FROM generate_series(0, 12) AS g"
        )
        assert moved > minor
        assert str(turn) in heavy
        minor = moved
    moved, heavy = change("DELETE FROM r WHERE a = 2 OR b = 2")
    assert moved > minor
    assert "2" not in heavy
    change("UPDATE r SET a = b, b = a WHERE a < 1000 AND b < 1000")
    change("DELETE FROM r WHERE a < 5 AND x = 1")


@pytest.mark.slow
def test_auto_takes_cases_where_their_bound_is_below_the_expected_cost(orc):
    orc.execute("CREATE TABLE r (a int, b int, x int)")
    orc.execute("INSERT INTO r SELECT i, i + 1, 1 FROM generate_series(1, 5000) AS i")
    orc.execute("ANALYZE r")
    query = f"SELECT p.a, count(*) AS n FROM {ITSELF} GROUP BY p.a"
    assert orc.create_view("flat", query).strategy != "skew"
    orc.drop_view("flat")
    # A fifth of the edges begin, and another fifth end, at either of two values.
    orc.execute("INSERT INTO r SELECT i % 2, 9000 + i, 1 FROM generate_series(1, 2000) AS i")
    orc.execute("INSERT INTO r SELECT 9000 + i, i % 2, 1 FROM generate_series(1, 2000) AS i")
    orc.execute("ANALYZE r")
    count = f"SELECT count(*) AS n FROM {ITSELF}"
    assert orc.create_view("hubs", count).strategy == "skew"
    why = orc.explain("hubs").why
    assert "over 36,000 rows, a change costs at most about" in why
    assert (
        "a 4-cycle in 10 cases of heavy and light values: a change of one row costs O(N^2/3)" in why
    )
    orc.execute("INSERT INTO r VALUES (1, 0, 1); DELETE FROM r WHERE b = 9001")
    orc.refresh()
    assert orc.check("hubs")[0].equal


@pytest.mark.parametrize(
    ("query", "epsilon", "reason"),
    [
        (f"SELECT count(*) AS n FROM {CLIQUE}", "1/2", "make no case cheaper"),
        (
            "SELECT p.a, m.b, count(*) AS n FROM r p JOIN r q ON q.a = p.b JOIN r o ON o.a = q.b"
            " JOIN r l ON l.a = o.b JOIN r m ON m.a = l.b GROUP BY p.a, m.b",
            "1/2",
            r"costs O\(N\^",
        ),
        (f"SELECT count(*) AS n FROM {ITSELF}", "p: 1/2", "one epsilon for all"),
        (
            "SELECT count(*) AS n FROM r p JOIN r q ON q.a = p.b JOIN r o ON o.a = q.b JOIN r l ON l.a = o.b"
            " JOIN r m ON m.a = l.b AND m.b = p.a",
            "1/2",
            "at most 4 variables",
        ),
        (f"SELECT max(p.x) AS m FROM {ITSELF}", "1/2", "a deleted value cannot be taken back"),
    ],
)
def test_a_join_without_useful_cases_says_why(orc, query, epsilon, reason):
    orc.execute(TABLES)
    with pytest.raises(UnsupportedError, match=reason):
        orc.create_view("v", query, strategy="skew", epsilon=epsilon)
