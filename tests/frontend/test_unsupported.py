"""What the algebra does not model is a value that names the place, and never an exception."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from frontend.plan_checks import FIXTURES
from harness import TestServer
from psycopg.sql import SQL

from orchestrator.algebra import Plan, Unsupported
from orchestrator.algebra.printer import print_plan, to_json
from orchestrator.frontend import catalog
from orchestrator.frontend.analysis import INTERNAL, analyse
from orchestrator.frontend.translate import QueryFacts, build

Connection = psycopg.Connection[Any]


@pytest.fixture(scope="module")
def world(pg: TestServer) -> Iterator[Connection]:
    with pg.database(migrated=False) as dsn, psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute((FIXTURES / "schema.sql").read_text())
        yield connection


CASES = {
    "SELECT d.category, (SELECT max(p.price) FROM parts p WHERE p.pid > count(d.did)) AS m FROM devices d GROUP BY d.category": (
        "an aggregate of a query further out",
        "count(did)",
    ),
    "SELECT tableoid FROM parts": ("a system column", "tableoid"),
    "SELECT \"Id\" FROM \"Sales Data\".\"Order\" ORDER BY unnest(tags)": (
        "set-returning",
        "unnest(",
    ),
    "SELECT jsonb_populate_recordset(NULL::ordered, '[]') AS p FROM parts": (
        "set-returning",
        "jsonb_populate_recordset(",
    ),
    "SELECT generate_series(1, generate_series(1, 2)) AS g": ("set-returning", "generate_series"),
    "SELECT to_jsonb(o) AS j FROM odd o": ("as one value", "o.*"),
    "SELECT p AS row FROM parts p": ("as one value", "p.*"),
    "SELECT coalesce(d, d) IS NULL AS n, d.did FROM parts p LEFT JOIN devices d ON d.did = p.pid": ("as one value", "d.*"),
    "SELECT to_jsonb(q) AS j FROM parts p LEFT JOIN (SELECT max(did) AS m FROM devices) q ON q.m = p.pid": ("as one value", "q.*"),
    "SELECT to_jsonb(j) AS j FROM (parts p CROSS JOIN people) AS j": ("as one value", "j.*"),
    "SELECT pid FROM parts FOR UPDATE": ("LOCKS", "FOR UPDATE"),
    "SELECT COLLATION FOR (name) AS c FROM parts": ("cannot be read back", "COLLATION FOR"),
    "SELECT 1 AS x, pid, count(*) AS n FROM parts GROUP BY GROUPING SETS (1, 2)": (
        "a constant among grouping sets",
        "1::integer",
    ),
    "SELECT pid AS a, pid AS b, count(*) AS n FROM parts GROUP BY a, ROLLUP (b)": (
        "a column that is shown twice",
        "pid",
    ),
    "SELECT |@| pid AS n FROM parts": ("an operator that returns a set", "|@|"),
    "SELECT normalize(name, nfc) AS n FROM parts": ("a keyword", "NFC"),
    "SELECT pid FROM parts p TABLESAMPLE bernoulli (100) REPEATABLE (1)": (
        "the clause SAMPLE",
        "TABLESAMPLE",
    ),
    "SELECT a.k FROM (SELECT pid AS k FROM parts) a JOIN (SELECT did AS k FROM devices) b USING (k) AS j WHERE j.k > 1": (
        "cannot be read back",
        "AS j",
    ),
    "WITH RECURSIVE w(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM w WHERE a < 3) SEARCH DEPTH FIRST BY a SET o SELECT a FROM w": (
        "the clause SEARCH",
        "SEARCH DEPTH FIRST",
    ),
    "SELECT pid FROM parts GROUP BY CUBE (pid, name, price, pid + 1, pid + 2, pid + 3, pid + 4)": (
        "so many grouping sets",
        "CUBE",
    ),
}  # fmt: skip


@pytest.mark.integration
@pytest.mark.parametrize("query", CASES)
def test_the_place_is_named(world: Connection, query: str) -> None:
    reason, where = CASES[query]
    with world.transaction(force_rollback=True):
        world.execute(SQL("CREATE VIEW v AS " + query))  # type: ignore[arg-type]
        row = world.execute("SELECT 'v'::regclass::oid").fetchone()
        assert row is not None
        analysis = analyse(world, row[0])
    assert analysis.plan is None
    [obstacle] = analysis.unsupported
    assert reason in obstacle.reason and where in obstacle.where
    assert analysis.sources or not analysis.text.count("public.parts")


def facts_of(connection: Connection, oid: int) -> tuple[str, QueryFacts]:
    """The text of a view with the facts to expand every view below it, those of PostgreSQL too."""
    views = {oid: catalog.stored_view(connection, oid)}
    relations = {}
    pending = [oid]
    while pending:
        used = {use.oid for use in views[pending.pop()].uses}
        used_relations = catalog.relations(connection, used)
        relations.update(used_relations)
        for relation in used_relations.values():
            if relation.relkind == "v" and relation.oid not in views:
                views[relation.oid] = catalog.stored_view(connection, relation.oid)
                pending.append(relation.oid)
    text = views[oid].text
    functions = tuple(use for view in views.values() for use in view.functions)
    below = {other: view for other, view in views.items() if other != oid}
    return text, QueryFacts({(r.schema, r.name): r for r in relations.values()}, below, functions)


@pytest.mark.slow
@pytest.mark.sampled(4)
def test_views_of_postgresql_itself(plain_dsn: str) -> None:
    """Some 150 views that nobody wrote for this test: all but a few known ones have a plan."""
    with psycopg.connect(plain_dsn, autocommit=True) as connection:
        views = connection.execute(
            "SELECT oid, relname FROM pg_class WHERE relkind = 'v' AND oid < 16384"
        ).fetchall()
        built: dict[str, Plan | Unsupported] = {
            name: build(*facts_of(connection, oid)) for oid, name in views
        }
    refused = {name: plan for name, plan in built.items() if isinstance(plan, Unsupported)}
    assert len(built) > 130 and len(refused) < 25
    known = (
        "this set-returning function in the SELECT list",
        "a system column",
        "a row that is read as one value",
    )
    assert {plan.reason for plan in refused.values()} == set(known)
    for plan in built.values():
        if isinstance(plan, Plan):
            assert not plan.root.outer_columns
            assert print_plan(plan) and to_json(plan)["names"]


def test_a_failure_of_the_builder_is_no_failure_of_the_view(
    world: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(text: str, facts: QueryFacts) -> Plan:
        raise LookupError("not there")

    monkeypatch.setattr("orchestrator.frontend.analysis.build", broken)
    with world.transaction(force_rollback=True):
        world.execute("CREATE VIEW v AS SELECT pid FROM parts")
        row = world.execute("SELECT 'v'::regclass::oid").fetchone()
        assert row is not None
        analysis = analyse(world, row[0])
    assert analysis.plan is None and analysis.unsupported[0].reason.startswith(INTERNAL)
    assert [source.relation.name for source in analysis.sources] == ["parts"]
