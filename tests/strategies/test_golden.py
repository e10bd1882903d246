"""Views with their plans, their Δ-scripts in short form and their refresh programs, by strategy.

`golden/` holds a file for each view. To add a view, add it to VIEWS. Run the test with WRITE_GOLDEN=1 to write
the files again; then read the difference.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from orchestrator.frontend.options import parse_options
from orchestrator.runtime.installation import replanning

GOLDEN = Path(__file__).parent / "golden"

TABLES = """
CREATE TABLE parts (pid int PRIMARY KEY, price numeric(12, 2) NOT NULL);
CREATE TABLE devices (did int PRIMARY KEY, category text NOT NULL);
CREATE TABLE devices_parts (did int, pid int, PRIMARY KEY (did, pid));
CREATE TABLE visits (page text, seconds int);
CREATE TABLE follows (who int, whom int, PRIMARY KEY (who, whom));
CREATE TABLE edges_r (a int, b int);
CREATE TABLE edges_s (b int, c int);
CREATE TABLE edges_t (c int, a int);
"""

_JOINED = "FROM parts NATURAL JOIN devices_parts NATURAL JOIN devices WHERE category = 'phone'"

VIEWS = {
    "joined": ("id", f"SELECT did, pid, price {_JOINED}"),
    "totals": ("id", f"SELECT did, sum(price) AS cost {_JOINED} GROUP BY did"),
    "totals_by_tuples": ("tuple", f"SELECT did, sum(price) AS cost {_JOINED} GROUP BY did"),
    "reached": (
        "id",
        "WITH RECURSIVE r AS (SELECT who, whom FROM follows UNION"
        " SELECT r.who, f.whom FROM r JOIN follows AS f ON f.who = r.whom) SELECT who, whom FROM r",
    ),
    "pairs": ("recursive", "SELECT did, pid, price FROM parts NATURAL JOIN devices_parts"),
    "prices": (
        "viewtree",
        "SELECT did, sum(price) AS cost FROM parts NATURAL JOIN devices_parts GROUP BY did",
    ),
    "triangles": (
        "skew",
        "SELECT count(*) AS n FROM edges_r NATURAL JOIN edges_s NATURAL JOIN edges_t",
    ),
    "pages": ("recompute", "SELECT page, max(seconds) AS longest FROM visits GROUP BY page"),
    "latest": ("id", "SELECT who, max(whom) AS last FROM follows GROUP BY who"),
    "numbered": (
        "id",
        "SELECT who, whom, row_number() OVER (PARTITION BY who ORDER BY whom DESC) AS nth FROM follows",
    ),
    "met": (
        "viewtree",
        "SELECT a, b, c, who FROM edges_r NATURAL JOIN edges_s JOIN follows ON whom = c GROUP BY a, b, c, who",
    ),
}


INPUTS = {"met": "b, c"}
"""The columns by which readers ask some of the views."""


@pytest.mark.slow
def test_programs_read_as_the_golden_files(orc):
    if orc.connection.info.server_version < 180_000:
        pytest.skip("the files are those of PostgreSQL 18")
    orc.execute(TABLES)
    different = []
    for name, (strategy, query) in VIEWS.items():
        inputs = {"inputs": INPUTS[name]} if name in INPUTS else {}
        orc.create_view(name, query, strategy=strategy, **inputs)
        view = orc.view(name)
        options = parse_options(view.options.items())
        planned = replanning.current_plan(orc.connection, view, options, view.plan.evidence)
        assert planned == view.plan, "the catalog returns the plan that was stored"
        explanation = orc.explain(name)
        [(program,)] = orc.execute(
            "SELECT p.prosrc FROM pg_proc AS p JOIN idivm.views AS v ON p.proname = 'refresh_' || v.id"
            f" WHERE p.pronamespace = 'idivm_state'::regnamespace AND v.name LIKE '%\"{name}\"'"
        )[0].rows
        parts = [f"{strategy}: {query}", explanation.plan, explanation.script, program.strip()]
        text = "\n\n".join(parts) + "\n"
        # Deeply nested queries of view trees are indented further.
        width = 128 if strategy not in ("viewtree", "skew") else 160
        long = [line for line in program.splitlines() if len(line) > width]
        assert not long, (name, long)
        file = GOLDEN / f"{name}.txt"
        if "WRITE_GOLDEN" in os.environ:
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
        elif file.read_text() != text:
            different.append(name)
    if "WRITE_GOLDEN" in os.environ:
        pytest.skip("the golden files were written")
    assert different == []
