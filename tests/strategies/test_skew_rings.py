"""Heavy and light parts that hold elements of other rings than numbers, under every kind of change."""

from __future__ import annotations

import re
from pathlib import Path
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

from orchestrator.deltascript import sizes
from orchestrator.errors import UnsupportedError

[RING, *_] = re.findall(
    r"```sql\n(.*?)```",
    (Path(__file__).parents[2] / "docs" / "rings.md").read_text().partition("## Example")[2],
    re.DOTALL,
)

pytestmark = pytest.mark.integration

ITSELF = "r p JOIN r q ON q.a = p.b JOIN r o ON o.a = q.b AND o.b = p.a"
ROW = "t JOIN s ON s.c = t.c JOIN r ON r.b = s.b"

VIEWS = {
    # The numbers of r and t come together before those of s.
    "covariance": f"SELECT idivm.covar(r.x, s.y, t.z, r.a) AS c, count(*) AS n FROM {RST}",
    "some": "SELECT idivm.covar(t.z, r.x) AS c, idivm.covar(s.y) FILTER (WHERE r.x > 0) AS d,"
    f" avg(r.x * s.y) AS xy FROM {RST} WHERE s.y <> 7",
    "categories": f"SELECT idivm.covar(r.x, t.label, idivm.categorical(s.y)) AS c FROM {RST}",
    "itself": f"SELECT idivm.covar(p.x, q.x, o.a) AS c FROM {ITSELF}",
    "by_a": f"SELECT r.a, idivm.covar(s.y, t.z, r.x) AS c FROM {RST} GROUP BY r.a",
    "by_bc": f"SELECT s.b, t.c, idivm.covar(t.z, r.x) AS v FROM {RST} GROUP BY s.b, t.c",
    "by_all": f"SELECT r.a, s.b, t.c, idivm.covar(s.y, t.label) AS v FROM {RST} GROUP BY r.a, s.b, t.c",
    "in_a_row": f"SELECT idivm.covar(r.x, s.y, t.z) AS c FROM {ROW}",
    "walks": "SELECT idivm.covar(p.x, q.x, o.x, l.x) AS c FROM r p JOIN r q ON q.a = p.b"
    " JOIN r o ON o.a = q.b JOIN r l ON l.a = o.b",
    "hierarchical": "SELECT r.a, t.c, idivm.covar(r.x, t.z) AS v FROM r JOIN t ON t.a = r.b GROUP BY r.a, t.c",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "maintain", "partition", "names"),
    [
        ("0.5", "deferred", "single", ("covariance", "by_a", "hierarchical")),
        ("1/4", "deferred", "single", ("categories", "by_bc")),
        ("1/2", "on_commit", "double", ("some", "walks")),
        ("3/4", "deferred", "single", ("itself", "in_a_row", "by_all")),
        ("0", "eager", "single", ("covariance",)),
    ],
)
@pytest.mark.sampled(3)
def test_covariances_follow_every_change(orc, epsilon, maintain, partition, names, monkeypatch):
    if maintain == "deferred":
        # What is large is planned otherwise.
        monkeypatch.setattr(sizes, "SMALL", 2)
    orc.execute(TABLES)
    options = {"epsilon": epsilon, "maintain": maintain, "partition": partition}
    for name in names:
        view = orc.create_view(name, VIEWS[name], strategy="skew", **options)
        assert view.strategy == "skew"
    plans = [plan_of(orc, name) for name in names]
    for change in batches(Random(f"{epsilon} {maintain}"), 9, 60):
        orc.execute(change)
        # A busy machine may have noted that a refresh took longer than a recompute.
        orc.execute("DELETE FROM idivm.costs")
        if maintain == "deferred":
            orc.refresh()
        require_right(orc, plans, change)
    for name in names:
        if orc.view(name).plan.enumeration:
            require_enumeration(orc, name)


@pytest.mark.slow
def test_sums_of_floats_over_parts_are_exact(orc):
    """Also where a value moves between parts, and where a large number hides small ones for a while."""
    for name, columns in (("r", "a, b"), ("s", "b, c"), ("t", "c, a")):
        listed = ", ".join(f"{column} int" for column in columns.split(", "))
        orc.execute(f"CREATE TABLE {name} ({listed}, x float8)")
    orc.execute("INSERT INTO r SELECT 1, i, 0.1 FROM generate_series(1, 40) AS i")
    orc.execute("INSERT INTO s SELECT i, i % 3, 0.3 FROM generate_series(1, 40) AS i")
    orc.execute("INSERT INTO t SELECT i, 1, 0.7 FROM generate_series(0, 2) AS i")
    orc.create_view(
        "v", f"SELECT sum(r.x) AS x, avg(s.x * t.x) AS y FROM {RST}", strategy="skew", epsilon="1/2"
    )
    plan = plan_of(orc, "v")

    def shows() -> tuple[float, float]:
        orc.execute("DELETE FROM idivm.costs")
        orc.refresh()
        require_invariants(orc, *plan)
        return orc.connection.execute("SELECT x, y FROM v").fetchone()

    before = shows()
    assert before == (4.0, pytest.approx(0.21))
    orc.execute("INSERT INTO r VALUES (1, 2, 1e300), (1, 3, -0.1)")
    assert shows()[0] == 1e300
    orc.execute("DELETE FROM r WHERE b > 12")
    orc.execute("INSERT INTO t SELECT 2, i, 'Infinity' FROM generate_series(1, 60) AS i")
    assert shows()[1] == float("inf")
    orc.execute("DELETE FROM t WHERE x = 'Infinity'; DELETE FROM r WHERE x = 1e300 OR x < 0")
    orc.execute("INSERT INTO r SELECT 1, i, 0.1 FROM generate_series(13, 40) AS i")
    assert shows() == before


@pytest.mark.slow
def test_a_registered_ring_follows_every_change(orc):
    orc.execute(TABLES)
    orc.execute(RING)
    views = {
        "triangle": f"SELECT moments(r.a, s.y) AS m FROM {RST} WHERE r.x < 9",
        "by_b": f"SELECT r.b, moments(t.a, s.y) AS m FROM {RST} GROUP BY r.b",
    }
    for name, query in views.items():
        orc.create_view(name, query, strategy="skew", epsilon="1/2")
    plans = [plan_of(orc, name) for name in views]
    for change in batches(Random(12), 6, 40):
        orc.execute(change)
        orc.execute("DELETE FROM idivm.costs")
        orc.refresh()
        require_right(orc, plans, change)


@pytest.mark.parametrize("function", ["min", "max"])
def test_minima_and_maxima_say_that_they_are_no_ring(orc, function):
    orc.execute(TABLES)
    with pytest.raises(UnsupportedError, match="a deleted value cannot be taken back"):
        orc.create_view("v", f"SELECT {function}(r.x) AS m FROM {RST}", strategy="skew")
