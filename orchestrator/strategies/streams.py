"""Plans over streams: tables whose rows stay in files, so that a refresh can read their changes and no more."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from orchestrator.algebra.unsupported import Unsupported
from orchestrator.deltascript.plan import (
    MaintenancePlan,
    Program,
    Query,
    ReadChanges,
    ReplaceContent,
    StateView,
)


def over_streams(plan: MaintenancePlan, streams: Collection[int]) -> MaintenancePlan | Unsupported:
    """Return a plan, unless its refreshes or reads would need the rows of a stream."""
    program = plan.program
    if program.time_dependent:
        return Unsupported(
            "each refresh would read the rows of a stream", program.time_dependent[0]
        )
    for what, item in _parts(program, streams):
        if isinstance(item, ReplaceContent) or any(
            not query.sources.isdisjoint(streams) for query in _queries(item)
        ):
            return Unsupported("it would read the rows of a stream", what)
    return plan


def _parts(program: Program, streams: Collection[int]) -> Iterator[tuple[str, Any]]:
    """Yield what refreshes and reads execute, each with a text for users."""
    for step in program.script:
        if isinstance(step, ReadChanges) and not step.classes and step.source.oid in streams:
            # Any change would lead to a recomputation.
            yield f"changes of {step.source} are not expected", ReplaceContent("")
        yield getattr(step, "notation", ""), step
    for state in program.states:
        if isinstance(state, StateView):
            yield "rows are computed when the view is read", state


def _queries(value: Any) -> Iterator[Query]:
    if isinstance(value, Query):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _queries(item)
    elif is_dataclass(value):
        for field in fields(value):
            yield from _queries(getattr(value, field.name))
