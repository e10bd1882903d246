"""A small case of the fuzzer, and a check that a case holds."""

from __future__ import annotations

import pytest

from orchestrator.fuzz.campaign import examined
from orchestrator.fuzz.case import Case, Statement, Step, Table, Transaction, View
from orchestrator.fuzz.runner import Runner


def holds(runner: Runner, case: Case) -> None:
    """Fails with the smallest script that shows the failure of a case, if it fails."""
    outcome = runner.run(case)
    if outcome.failure is not None:
        finding = examined(runner, case, outcome.failure, tries=150)
        pytest.fail(f"seed {case.seed}: {outcome.failure}\n\n{finding.script}\n{finding.failure}")


def small_case(*steps: str | Step) -> Case:
    """A table, a view, a plain view and a view over both, and these steps; text is committed."""
    return Case(
        0,
        ("shop",),
        (),
        (
            Table(
                "shop.orders",
                ("CREATE TABLE shop.orders (id integer PRIMARY KEY, what text, price numeric)",),
                "INSERT INTO shop.orders VALUES",
                ("(1, 'a', 1.0)", "(2, 'b', 2)", "(3, 'b', 3)"),
            ),
        ),
        (
            View("shop.sums", "SELECT what, sum(price) AS total FROM shop.orders GROUP BY what"),
            View("shop.cheap", "SELECT * FROM shop.orders WHERE price < 3", plain=True),
            View("shop.both", "SELECT id, total FROM shop.cheap JOIN shop.sums USING (what)"),
        ),
        tuple(Transaction((Statement(step),)) if isinstance(step, str) else step for step in steps),
    )
