"""Composition takes rules as it finds them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from orchestrator.algebra import Plan, Selection, Unsupported
from orchestrator.algebra.column_type import ColumnType
from orchestrator.algebra.examples import extended_example, running_example
from orchestrator.algebra.ids import infer_ids
from orchestrator.algebra.lowering import lower
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.set_operation import Branch
from orchestrator.algebra.operators.union_all import UnionAll
from orchestrator.algebra.traversal import rewrite, walk
from orchestrator.deltascript.plan import (
    Apply,
    Column,
    ReadChanges,
    Source,
    SourceColumn,
    StateTable,
    Statistics,
)
from orchestrator.engine import diffs
from orchestrator.engine.leaves import relevant
from orchestrator.strategies.idiff import compose, rules
from orchestrator.strategies.idiff.rules.base import propagate
from orchestrator.strategies.request import PlanningRequest

SOURCES = (
    Source(
        1,
        "public",
        "parts",
        (
            SourceColumn(1, "pid", True, "integer", "exact"),
            SourceColumn(2, "price", False, "numeric", "coarse"),
        ),
    ),
    Source(
        2,
        "public",
        "devices_parts",
        (
            SourceColumn(1, "did", True, "integer", "exact"),
            SourceColumn(2, "pid", True, "integer", "exact"),
        ),
    ),
    Source(
        3,
        "public",
        "devices",
        (
            SourceColumn(1, "did", True, "integer", "exact"),
            SourceColumn(2, "category", False, "text", "exact"),
        ),
    ),
)


FEW = {1: Statistics(100.0), 2: Statistics(200.0, {1: 200.0, 2: 100.0}), 3: Statistics(200.0)}
"""Two devices for a part."""


def request(
    plan: Plan, cache: bool = True, statistics: Mapping[int, Statistics] | None = None
) -> PlanningRequest:
    number = ColumnType("integer", comparable=True)
    types = dict.fromkeys(("pid", "did", "part", "device"), number)
    return PlanningRequest(
        columns=tuple(Column(name, "integer") for name in plan.names),
        sources=SOURCES,
        unkeyed=(),
        inlined=(),
        time_dependent=(),
        distinct=False,
        settings=(),
        algebra="",
        algebra_tree={},
        plan=plan,
        lowered=lower(plan),
        identified=infer_ids(lower(plan)),
        cache=cache,
        statistics=statistics or {},
        types={**types, "price": ColumnType("numeric", comparable=True)},
    )


def applied(plan: Plan, cache: bool = True) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    planned = compose.plan(request(plan, cache))
    assert not isinstance(planned, Unsupported), planned
    for step in planned.program.script:
        if isinstance(step, Apply):
            yield step.kind, step.state, step.needs


def test_an_update_that_no_condition_reads_needs_no_join() -> None:
    planned = compose.plan(request(running_example()))
    assert not isinstance(planned, Unsupported)
    (update,) = (s for s in planned.program.script if isinstance(s, Apply) and s.kind == "update")
    assert update.needs == ("parts_updated",)
    assert "JOIN" not in str(update.query)
    assert [key for key, _, _ in update.keys] == ["pid"]


def test_updates_are_read_by_the_columns_that_conditions_read() -> None:
    planned = compose.plan(request(running_example()))
    assert not isinstance(planned, Unsupported)
    classes = {
        (step.source.name, change.kind, tuple(change.touched))
        for step in planned.program.script
        if isinstance(step, ReadChanges)
        for change in step.classes
    }
    assert ("parts", "update", (2,)) in classes
    assert ("devices", "update", (2,)) in classes
    assert {kind for name, kind, _ in classes if name == "devices_parts"} == {"delete", "insert"}


def test_changes_that_satisfy_no_condition_are_not_read() -> None:
    planned = compose.plan(request(running_example()))
    assert not isinstance(planned, Unsupported)
    conditions = {
        (step.source.name, change.kind): str(change.where)
        for step in planned.program.script
        if isinstance(step, ReadChanges)
        for change in step.classes
    }
    assert conditions["devices", "delete"] == "(old_category = 'phone')"
    assert conditions["devices", "insert"] == "(new_category = 'phone')"
    assert conditions["devices", "update"] == "(old_category = 'phone') OR (new_category = 'phone')"
    assert conditions["parts", "update"] == "None"


def test_a_scan_without_a_condition_needs_every_change() -> None:
    plan = running_example().root
    [selection] = (operator for operator in walk(plan) if isinstance(operator, Selection))
    assert relevant(plan) == {selection.input: selection.condition}
    bare = UnionAll(
        (Branch(selection, selection.columns), Branch(selection.input, selection.columns)),
        selection.columns,
    )
    assert relevant(bare) == {}


def test_a_cache_feeds_the_groups() -> None:
    assert {state for _, state, _ in applied(extended_example())} == {"cache", "content"}
    assert {state for _, state, _ in applied(extended_example(), cache=False)} == {"content"}


def test_a_cache_holds_ids_and_what_is_read_and_lies_as_it_changes() -> None:
    planned = compose.plan(request(extended_example(), statistics=FEW))
    assert not isinstance(planned, Unsupported)
    [cache] = (
        state
        for state in planned.program.states
        if isinstance(state, StateTable) and state.role == "cache"
    )
    # No category, which a condition has compared, and each equal column once.
    assert [column.name for column in cache.columns] == ["pid", "price", "device", "did"]
    assert cache.together == ("pid",)
    [update] = (
        s
        for s in planned.program.script
        if isinstance(s, Apply) and s.kind == "update" and s.collect
    )
    # What was stored is in the diff, and the row need not be looked at twice.
    assert [name for name, _ in update.before] == ["price"]


def test_what_sums_add_up_stays_in_a_table_whose_rows_have_many_partners() -> None:
    planned = compose.plan(request(extended_example()))
    assert not isinstance(planned, Unsupported)
    [cache] = (
        state
        for state in planned.program.states
        if isinstance(state, StateTable) and state.role == "cache"
    )
    assert [column.name for column in cache.columns] == ["pid", "device", "did"]
    # A change of a price finds its devices there, and changes nothing.
    assert cache.together == ("pid",) and cache.at_once == 1.0
    kinds = {
        step.kind
        for step in planned.program.script
        if isinstance(step, Apply) and step.state == "cache"
    }
    assert kinds == {"delete", "insert"}


@dataclass(frozen=True)
class Watched(Selection):
    """An operator that the engine has never heard of."""


def test_an_operator_is_found_by_its_rules_alone() -> None:
    def watched(operator: Operator) -> Operator:
        return (
            Watched(operator.input, operator.condition)
            if isinstance(operator, Selection)
            else operator
        )

    plan = running_example()
    seen = []

    @propagate.register
    def _(operator: Watched, position, diff, composer):  # type: ignore[no-untyped-def]
        seen.append(type(diff).__name__)
        return propagate.dispatch(Selection)(operator, position, diff, composer)

    other = Plan(rewrite(plan.root, watched), plan.names, plan.columns)
    assert list(applied(other)) == list(applied(plan))
    assert set(seen) == {"Delete", "Update", "Insert"}


@pytest.mark.parametrize("module", [compose, diffs])
def test_composition_names_no_operator(module: ModuleType) -> None:
    """What it imports of the operators is what every plan is made of: leaves and projections."""
    tree = ast.parse(Path(str(module.__file__)).read_text())
    named = {
        node.module.rpartition(".")[2]
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and node.module
        and node.module.startswith("orchestrator.algebra.operators.")
    }
    assert named <= {"base", "project", "scan"}
    text = Path(str(module.__file__)).read_text()
    for rule in Path(next(iter(rules.__path__))).glob("*.py"):
        assert f"rules.{rule.stem} import" not in text or rule.stem in ("base", "stored")
