"""The buckets of a result that is a union of view trees (section 3 of papers/hierarchical-queries.txt)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.deltascript.plan import Walk
from orchestrator.runtime.enumeration.order import Order


@dataclass(frozen=True)
class Bucket:
    """The buckets of a summand: states that list them, and the states whose product their rows are."""

    listed_by: tuple[Walk, ...]
    scanned: tuple[Walk, ...]
    """In the order in which they bind the variables."""

    @property
    def states(self) -> tuple[Walk, ...]:
        """All states, each of which has a row for each row of a bucket."""
        return (*self.listed_by, *self.scanned)


def buckets_of(order: Order) -> tuple[Bucket, ...] | None:
    """Return the buckets of all summands, or None if rows cannot be merged.

    The heavy values of a summand must be on a path from its root. With heavy values in two branches, a
    bucket for each combination would be too many.
    """
    buckets = []
    for trees in order.unions:
        bucket = _bucket(order, trees)
        if bucket is None:
            return None
        buckets.append(bucket)
    heavy = any(bucket.listed_by for bucket in buckets)
    return tuple(buckets) if heavy and not order.streamed else None


def _bucket(order: Order, trees: Sequence[Walk]) -> Bucket | None:
    listed: list[Walk] = []
    siblings = tuple(trees)
    while True:
        heavy = [walk for walk in siblings if any(map(order.is_heavy, walk.walk()))]
        if len(heavy) > 1:
            return None
        if not heavy:
            break
        listed.append(heavy[0].alone)
        siblings = heavy[0].below
    known = {walk.alone for walk in listed}
    scanned = tuple(walk.alone for tree in trees for walk in tree.walk() if walk.alone not in known)
    bucket = Bucket(tuple(listed), scanned)
    roles = [walk.state for walk in bucket.states]
    new = [v for _, variables in groups_of(order, bucket) for v in variables]
    return bucket if len(set(roles)) == len(roles) and new == list(order.keys) else None


def groups_of(order: Order, bucket: Bucket) -> list[tuple[Walk, tuple[str, ...]]]:
    """Return the states of a bucket with the free variables that each adds to those before it."""
    seen: set[str] = set()
    groups = []
    for walk in bucket.states:
        own = tuple(v for v in order.keys if v in walk.own and v not in seen)
        seen |= walk.own
        groups.append((walk, own))
    return groups
