"""Iterators over sets that overlap, against the sets."""

from __future__ import annotations

from random import Random

from orchestrator.runtime.enumeration.overlaps import Hops


def test_what_is_excluded_in_any_order_is_hopped_over_as_one_range_between_what_is_left():
    rng = Random(1)
    for _ in range(200):
        values = sorted(rng.sample(range(100), rng.randrange(1, 12)))
        behind = dict(zip(values, [*values[1:], None], strict=True))
        hops, left = Hops(), list(values)
        for value in rng.sample(values, rng.randrange(len(values) + 1)):
            hops.exclude(value, behind[value])
            left.remove(value)
            visited, here = [], hops.hop(values[0])
            while here is not None:
                visited.append(here)
                here = hops.hop(behind[here])
            assert visited == left
            assert hops.leaves(values[0]) == bool(left)
        gaps = sum(
            v not in left and (n == 0 or values[n - 1] in left) for n, v in enumerate(values)
        )
        assert hops.ranges == gaps
