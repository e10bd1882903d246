"""Every view of the fixtures: its plan gives the same rows, and whatever it claims of them holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from frontend.plan_checks import (
    FIXTURES,
    bag,
    complete_parts,
    named_views,
    wrong_claims,
)
from harness import TestServer
from psycopg.sql import SQL, Identifier

from orchestrator.algebra import Plan, Unsupported
from orchestrator.algebra.ids import ids_of, infer_ids
from orchestrator.algebra.rendering import to_text
from orchestrator.algebra.traversal import rewrite
from orchestrator.frontend.analysis import analyse

VIEWS = named_views()
SEEDS = (0.1, 0.5)

Connection = psycopg.Connection[Any]


@pytest.fixture(scope="module")
def world(pg: TestServer) -> Iterator[Connection]:
    """A database with the tables of the fixtures, and schema `d` for the views."""
    with pg.database(migrated=False) as dsn, psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute((FIXTURES / "schema.sql").read_text())
        connection.execute("CREATE SCHEMA d")
        yield connection


def plan_of(connection: Connection, name: str) -> Plan:
    """The plan of a view of the fixtures."""
    view = Identifier("d", name)
    connection.execute(SQL("CREATE VIEW {} AS {}").format(view, SQL(VIEWS[name])))  # type: ignore[arg-type]
    row = connection.execute("SELECT to_regclass(%s)::oid", [view.as_string(connection)]).fetchone()
    assert row is not None
    analysis = analyse(connection, row[0])
    assert analysis.plan is not None, analysis.unsupported
    return analysis.plan


@pytest.mark.integration
@pytest.mark.parametrize("name", VIEWS)
def test_plan_and_view_agree(world: Connection, name: str) -> None:
    with world.transaction(force_rollback=True):
        plan = plan_of(world, name)
        view = SQL("SELECT * FROM {}").format(Identifier("d", name))
        inferred = infer_ids(plan)
        identified = not isinstance(inferred, Unsupported)
        extended = plan if isinstance(inferred, Unsupported) else inferred
        parts = list(complete_parts(extended.root))
        for seed in (None, *SEEDS):
            if seed is not None:
                world.execute("SELECT setseed(%s)", [seed])
                world.execute((FIXTURES / "random.sql").read_text())
            wanted = bag(world, view)
            assert bag(world, SQL(to_text(plan))) == wanted  # type: ignore[arg-type]
            assert bag(world, SQL(to_text(extended))) == wanted  # type: ignore[arg-type]
            for part in parts:
                assert not wrong_claims(world, part, identified), part.label
        for part in parts:
            assert not identified or set(ids_of(part)) <= set(part.columns)
        assert not identified or infer_ids(extended) == extended, "inference is done once"
        assert rewrite(plan.root, lambda operator: operator) == plan.root


def test_there_are_views_enough() -> None:
    assert len(VIEWS) >= 60
