"""The shrinker leaves what a failure needs, and nothing else."""

from __future__ import annotations

from orchestrator.fuzz.case import Case, Late, Transaction
from orchestrator.fuzz.generate import generate
from orchestrator.fuzz.shrink import shrink


def statements(case: Case) -> list[str]:
    return [
        statement.sql
        for step in case.steps
        if isinstance(step, Transaction | Late)
        for statement in step.statements
    ]


def first(condition: object) -> Case:
    """The first generated case with enough in it to take away from."""
    assert callable(condition)
    return next(case for case in map(generate, range(1000)) if condition(case))


def test_two_things_that_belong_together_are_left() -> None:
    def fails(case: Case) -> bool:
        joined = any("JOIN" in view.query and "WHERE" in view.query for view in case.views)
        return joined and any(text.startswith("DELETE") for text in statements(case))

    large = first(lambda case: fails(case) and len(case.steps) > 5 and len(case.views) > 2)
    small = shrink(large, fails)
    assert fails(small)
    assert (len(small.views), len(small.steps), len(statements(small))) == (1, 1, 1)
    assert (small.tables, small.types, small.schemas) == ((), (), ())
    assert small.views[0].query.count("JOIN") == 1
    assert small.views[0].options == ()


def test_rows_are_left_out_one_by_one() -> None:
    def fails(case: Case) -> bool:
        return sum(len(table.rows) for table in case.tables) >= 3

    small = shrink(first(lambda case: sum(len(t.rows) for t in case.tables) > 10), fails)
    assert sum(len(table.rows) for table in small.tables) == 3
    assert not small.steps
    assert not small.views


def test_a_failure_that_needs_everything_stays() -> None:
    large = generate(3)
    assert shrink(large, lambda case: case == large) == large


def test_no_more_tries_than_allowed() -> None:
    tried: list[Case] = []

    def fails(case: Case) -> bool:
        tried.append(case)
        return False

    shrink(first(lambda case: len(case.steps) > 5), fails, tries=7)
    assert len(tried) == 7
