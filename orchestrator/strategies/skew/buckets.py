"""Indexes that sort the rows of a bucket, so that enumeration finds the next row by a lookup."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from orchestrator.deltascript.plan import MaintenancePlan, StateTable


def with_ordered_buckets(
    planned: MaintenancePlan, buckets: Mapping[str, tuple[Collection[str], Sequence[str]]]
) -> MaintenancePlan:
    """Return a plan whose lookups of a bucket go on with the other columns of its rows.

    `buckets` has, for a state, the columns whose values make a bucket, and all columns in order.
    """

    def with_order(state: StateTable) -> StateTable:
        bucket, every = buckets[state.role]
        rest = tuple(name for name in every if name not in bucket)
        probes = tuple(
            (*probe, *rest) if set(probe) == set(bucket) else probe for probe in state.probes
        )
        return replace(state, probes=probes)

    states = (
        with_order(item) if isinstance(item, StateTable) and item.role in buckets else item
        for item in planned.program.states
    )
    return replace(planned, program=replace(planned.program, states=tuple(states)))
