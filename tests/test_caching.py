"""Two threads may plan views at the same time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from orchestrator.caching import cached_property


class Plan:
    def __init__(self, meeting: Barrier) -> None:
        self.meeting = meeting
        self.times = 0

    @cached_property
    def cost(self) -> int:
        self.times += 1
        return self.meeting.wait()


def test_two_objects_compute_a_property_at_the_same_time():
    # Each waits for the other, which a lock of the property would prevent.
    meeting = Barrier(2, timeout=30)
    plans = [Plan(meeting), Plan(meeting)]
    with ThreadPoolExecutor(2) as pool:
        costs = list(pool.map(lambda plan: plan.cost, plans))
    assert sorted(costs) == [0, 1]
    assert [plan.cost for plan in plans] == costs
    assert [plan.times for plan in plans] == [1, 1]
