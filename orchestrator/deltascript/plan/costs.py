"""What a plan is expected to cost, and what that was computed from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.deltascript.plan.steps import ChangeKind


@dataclass(frozen=True)
class Probe:
    """Columns of a table, by number, by which the script looks for rows."""

    table: int
    columns: tuple[int, ...]


@dataclass(frozen=True)
class MissingIndex:
    """A probe that no index serves, and how much that costs."""

    probe: Probe
    factor: float
    """How many times as much a change costs as it would with the index."""


@dataclass(frozen=True)
class Cost:
    """What one changed row costs, in index lookups and rows (papers/idivm.txt, section 6)."""

    source: str
    variable: str
    """The variable that holds such changes."""
    kind: ChangeKind
    columns: tuple[str, ...]
    """Those that an update touches."""
    accesses: float
    """All of them."""
    a: float
    """Those of the queries that compute diffs."""
    p: float
    """Rows changed in the joined result, or in what is stored in its place."""
    g: float
    """Rows changed in the view, for each of these."""
    k: float
    """Rows inserted into what is stored besides the view."""
    scans: tuple[tuple[int, tuple[int, ...], float], ...] = ()
    """The tables that are scanned for want of an index, by oid, with the columns of the probe, by number,
    and the accesses that the scan counts as, for however many changed rows."""

    @property
    def scanned(self) -> float:
        """The accesses of all scans."""
        return sum(accesses for _, _, accesses in self.scans)


@dataclass(frozen=True)
class Price:
    """What an access took in refreshes, of the many that a plan expects."""

    variant: str
    """Of the plans by which these views were maintained."""
    seconds: float
    views: int
    """How many other views measured it, in the median; none if it was the view itself."""
    costs: tuple[Cost, ...] = ()
    """What the plan expected that was measured; empty if as much as today's."""


@dataclass(frozen=True)
class Estimate:
    """What one change is expected to cost on average."""

    accesses: float
    """Lookups and rows, by the model."""
    price: Price | None = None
    """What was measured of such plans."""
    access_microseconds: float | None = None
    """What an access counts, where any price is known."""

    @property
    def change_microseconds(self) -> float | None:
        """What the change takes, where any price is known."""
        each = self.access_microseconds
        return None if each is None else self.accesses * each

    def __str__(self) -> str:
        """For people."""
        texts = f"a change costs {self.accesses:,.3g} lookups and rows on average"
        if self.access_microseconds is None:
            return f"{texts}; what they take was not measured"
        return (
            f"{texts}, {self.change_microseconds:,.3g} µs at {self.access_microseconds:,.3g} µs each"
            f" ({self._measured(self.access_microseconds)})"
        )

    def _measured(self, counted: float) -> str:
        if self.price is None:
            return "of such plans nothing was measured"
        found = self.price.seconds * 1e6
        if self.price.views:
            return f"{found:,.3g} µs in the median of {self.price.views} other views"
        more = "" if math.isclose(found, counted) else f", {found:,.3g} µs in fact"
        return f"measured by its own refreshes{more}"


@dataclass(frozen=True)
class Statistics:
    """What PostgreSQL knows of a table's size, its values and its changes."""

    rows: float
    distinct: Mapping[int, float] = field(default_factory=dict)
    """Numbers of values, by column."""
    changes: Mapping[ChangeKind, float] = field(default_factory=dict)
    """Rows changed so far, by kind."""
    indexed: frozenset[int] = frozenset()
    """Columns with which an index begins."""
    common: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    """The shares of rows that the most common values have, by column and by digest."""
    foreign_keys: tuple[tuple[tuple[int, ...], int, tuple[int, ...]], ...] = ()
    """Columns that refer to a table, by oid, and the columns that they refer to. They count for costs
    alone: a plan that was made without a key is still right with it."""
