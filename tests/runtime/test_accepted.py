"""What PostgreSQL takes as a view is maintained, in every mode, whatever changes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from frontend.plan_checks import FIXTURES, named_views

from orchestrator.api import Orchestrator
from orchestrator.errors import UnsupportedError

VIEWS = named_views("hard_views.sql")
CHANGES = re.split(r"^-- next\n", (FIXTURES / "hard_changes.sql").read_text(), flags=re.MULTILINE)

TIME_DEPENDENT = {
    "materialized_source",
    "materialized_joined",
    "catalog_source",
    "information_schema",
    "now_stable",
    "current_date_",
    "current_user_",
    "current_setting_",
    "ctid_",
    "partitioned_tableoid",
    "partition_itself",
    "inherited_child",
    "tablesample",
}
"""Views whose content changes without a writer: no writer can keep them up to date."""


@contextmanager
def plainly(orc: Orchestrator) -> Iterator[psycopg.Connection]:
    """A session of someone who knows nothing of maintained views."""
    with psycopg.connect(orc.connection.info.dsn, autocommit=True) as connection:
        yield connection


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.integration
def test_nothing_that_postgresql_takes_is_refused(
    orc: Orchestrator, older: bool, part: int
) -> None:
    # Older versions have half of the views.
    views = list(VIEWS.items())[part % 2 :: 2] if older else VIEWS.items()
    all_are_taken(orc, "deferred", dict(views))


@pytest.mark.slow
@pytest.mark.sampled(4)
def test_nothing_that_postgresql_takes_is_refused_by_writers(orc: Orchestrator, part: int) -> None:
    # A quarter of the views, and those that are refused.
    views = {
        name: query
        for n, (name, query) in enumerate(VIEWS.items(), part)
        if n % 4 == 0 or name in TIME_DEPENDENT
    }
    all_are_taken(orc, "eager", views)


def all_are_taken(orc: Orchestrator, maintain: str, views: dict[str, str]) -> None:
    with plainly(orc) as plain:
        for file in ("schema.sql", "hard_schema.sql"):
            plain.execute((FIXTURES / file).read_text().encode())
        for name, query in views.items():
            if maintain == "eager" and name in TIME_DEPENDENT:
                with pytest.raises(UnsupportedError, match="changes while no table does"):
                    orc.create_view(f"v_{name}", query, maintain=maintain)
            else:
                orc.create_view(f"v_{name}", query, maintain=maintain)
        for change in CHANGES:
            plain.execute(change.encode())
            different = {r.view: (r.missing_rows, r.surplus_rows) for r in orc.check()}
            assert {k: v for k, v in different.items() if v != ((), ())} == {}, change


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT random() AS r", "random"),
        ("SELECT id, clock_timestamp() AS at FROM people", "clock_timestamp"),
        ("SELECT id FROM passing", "temporary table"),
    ],
)
def test_what_cannot_be_right_is_refused_by_name(orc: Orchestrator, query: str, said: str) -> None:
    orc.execute("CREATE TABLE people (id int PRIMARY KEY); CREATE TEMP TABLE passing (id int)")
    with pytest.raises(UnsupportedError, match=said):
        orc.create_view("v", query)
    assert orc.views() == []
