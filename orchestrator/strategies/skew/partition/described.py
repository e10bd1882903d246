"""How a plan describes its partitioning: which states hold what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from orchestrator.deltascript.leaves import StateScan
from orchestrator.deltascript.plan import MaintenancePlan, Partition, Partitioning, StateTable
from orchestrator.strategies.skew.partition.degrees import Degrees
from orchestrator.strategies.skew.partition.split import Split


def with_partitioning(
    degrees: Degrees,
    plan: MaintenancePlan,
    parts: Mapping[Split, tuple[StateScan, ...]],
    curve: tuple[tuple[str, str, str, str], ...] = (),
) -> MaintenancePlan:
    """Return a plan that names these states and the curve of ε, and marks states that depend on earlier content."""
    partitioning = replace(_partitioning(degrees, parts), curve=curve)
    historic = {
        partitioning.state,
        *(partition.heavy_values for partition in partitioning.partitions),
    }
    dial = degrees.dial
    kept = {dial.state.role, dial.observations.role} if dial is not None else set()
    states = (
        replace(item, historic=True)
        if isinstance(item, StateTable) and item.role in historic
        else replace(item, historic=True, kept=True)
        if isinstance(item, StateTable) and item.role in kept
        else item
        for item in plan.program.states
    )
    return replace(
        plan, program=replace(plan.program, states=tuple(states)), partitioning=partitioning
    )


def _partitioning(degrees: Degrees, parts: Mapping[Split, tuple[StateScan, ...]]) -> Partitioning:
    """Return the names of the states and their columns, and the stored heavy and light parts."""
    called = degrees.state.called
    return Partitioning(
        state=degrees.state.role,
        base=called(degrees.base),
        size=called(degrees.size),
        minor=called(degrees.minor),
        major=called(degrees.major),
        partitions=tuple(
            Partition(
                ", ".join(key.atoms),
                tuple(sorted(key.on)),
                str(degrees.epsilons[key]),
                called(degrees.threshold(key)),
                tuple(map(values.degrees.called, values.columns)),
                values.degrees.role,
                values.degrees.called(values.degree),
                values.heavy.role,
                tuple(part.role for part in parts.get(key, ())),
            )
            for key, values in degrees.values.items()
        ),
    )
