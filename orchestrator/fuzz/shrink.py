"""Make a failing case smaller while it fails in the same way (delta debugging)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

from orchestrator.fuzz.case import (
    Case,
    Late,
    Load,
    Recreate,
    Refresh,
    Replace,
    Step,
    Table,
    Transaction,
    View,
)
from orchestrator.fuzz.simplify import simpler_queries

Item = TypeVar("Item")


class _Enough(Exception):  # noqa: N818
    """Raised when no tries are left."""


def shrink(case: Case, fails: Callable[[Case], bool], tries: int = 500) -> Case:
    """Return the smallest case found within `tries` tries for which `fails` still holds."""
    shrinker = _Shrinker(case, fails, tries)
    try:
        while shrinker.round():
            pass
    except _Enough:
        pass
    return shrinker.case


class _Shrinker:
    def __init__(self, case: Case, fails: Callable[[Case], bool], tries: int) -> None:
        self.case = case
        self.fails = fails
        self.tries = tries

    def round(self) -> bool:
        """Try once to leave out each part of the case; return whether any part was left out."""
        before = self.case
        self.fewer(self.case.steps, lambda case, kept: replace(case, steps=kept))
        self.fewer(self.case.views, lambda case, kept: replace(case, views=kept))
        for number in range(len(self.case.steps)):
            self.fewer_statements(number)
        self.fewer(self.case.tables, lambda case, kept: replace(case, tables=kept))
        for number in range(len(self.case.tables)):
            self.smaller_table(number)
        for simpler in _simpler_steps(self.case):
            self.try_case(simpler)
        for number in range(len(self.case.steps)):
            self.simpler_load(number)
        for number in range(len(self.case.views)):
            self.simpler_view(number)
        self.fewer(self.case.settings, lambda case, kept: replace(case, settings=kept))
        self.try_case(replace(self.case, end="api"))
        self.try_case(replace(self.case, zone=""))
        self.try_case(replace(self.case, reserve=None))
        self.fewer(self.case.types, lambda case, kept: replace(case, types=kept))
        self.fewer(self.case.schemas, lambda case, kept: replace(case, schemas=kept))
        return self.case != before

    def try_case(self, case: Case) -> bool:
        """Keep a smaller case if it fails as well."""
        if case == self.case:
            return False
        if self.tries <= 0:
            raise _Enough
        self.tries -= 1
        if self.fails(case):
            self.case = case
            return True
        return False

    def fewer(
        self, items: tuple[Item, ...], rebuilt: Callable[[Case, tuple[Item, ...]], Case]
    ) -> None:
        """Leave out as many items as possible, in smaller and smaller chunks, the last items first."""
        size = len(items)
        while size:
            start = len(items) - size
            while start > -size:
                kept = (*items[: max(start, 0)], *items[max(start + size, 0) :])
                if len(kept) < len(items) and self.try_case(rebuilt(self.case, kept)):
                    items = kept
                start -= size
            size //= 2

    def fewer_statements(self, number: int) -> None:
        """Leave out statements of a transaction, or rows of a load."""
        step = self.case.steps[number]
        if isinstance(step, Load):
            self.fewer(
                step.rows,
                lambda case, kept: _with_step(case, number, replace(step, rows=kept)),
            )
        if isinstance(step, Transaction | Late):
            self.fewer(
                step.statements,
                lambda case, kept: _with_step(case, number, replace(step, statements=kept)),
            )

    def simpler_load(self, number: int) -> None:
        """Set the options of a load to their defaults."""
        for option in ("packed", "files", "present", "select", "views", "quarantine", "style"):
            step = self.case.steps[number]
            if isinstance(step, Load):
                default = {option: getattr(Load, option)}
                self.try_case(_with_step(self.case, number, replace(step, **default)))

    def smaller_table(self, number: int) -> None:
        """Leave out rows of a table, and the statements after its CREATE TABLE."""

        def put(case: Case, table: Table) -> Case:
            return replace(case, tables=_set(case.tables, number, table))

        self.fewer(
            self.case.tables[number].rows,
            lambda case, kept: put(case, replace(case.tables[number], rows=kept)),
        )
        self.fewer(
            self.case.tables[number].ddl[1:],
            lambda case, kept: put(
                case, replace(case.tables[number], ddl=(case.tables[number].ddl[0], *kept))
            ),
        )

    def simpler_view(self, number: int) -> None:
        """Simplify the query of a view as far as possible, and its options."""

        def put(view: View) -> Case:
            return replace(self.case, views=_set(self.case.views, number, view))

        simplified = True
        while simplified:
            view = self.case.views[number]
            simplified = any(
                self.try_case(put(replace(view, query=query, columns=None)))
                for query in simpler_queries(view.query)
            )
        if not self.case.views[number].plain:
            self.try_case(put(replace(self.case.views[number], options=())))


def _simpler_steps(case: Case) -> Iterator[Case]:
    for number, step in enumerate(case.steps):
        simpler: Step = step
        if isinstance(step, Transaction):
            simpler = replace(step, isolation="read committed", end="commit")
        elif isinstance(step, Refresh):
            simpler = Refresh()
        elif isinstance(step, Replace):
            simpler = Recreate(step.view)
        yield _with_step(case, number, simpler)


def _with_step(case: Case, number: int, step: Step) -> Case:
    return replace(case, steps=_set(case.steps, number, step))


def _set(items: tuple[Item, ...], number: int, item: Item) -> tuple[Item, ...]:
    return (*items[:number], item, *items[number + 1 :])
