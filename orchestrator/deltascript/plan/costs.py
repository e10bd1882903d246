"""The expected cost of a plan, and the data that it was computed from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.deltascript.plan.steps import ChangeKind


@dataclass(frozen=True)
class Probe:
    """Columns of a table, by number, by which the script looks up rows."""

    table: int
    columns: tuple[int, ...]


@dataclass(frozen=True)
class MissingIndex:
    """A probe that no index supports, and its cost."""

    probe: Probe
    factor: float
    """The factor by which a change costs more than with the index."""


TOGETHER = (100.0, 1000.0, 10_000.0)
"""Numbers of changed rows that are also estimated together."""


@dataclass(frozen=True)
class Cost:
    """The cost of one changed row, in index lookups and rows (papers/idivm.txt, section 6)."""

    source: str
    variable: str
    """The variable that holds the changes."""
    kind: ChangeKind
    columns: tuple[str, ...]
    """The columns that an update touches."""
    accesses: float
    """All accesses."""
    a: float
    """The accesses of the queries that compute diffs."""
    p: float
    """Rows changed in the joined result, or in the state that is stored instead."""
    g: float
    """Rows changed in the view, for each of the rows that `p` counts."""
    k: float
    """Rows inserted into states other than the view."""
    scans: tuple[tuple[int, tuple[int, ...], float], ...] = ()
    """The tables that are scanned because an index is missing: oid, columns of the probe by number,
    and the accesses that the scan counts as, independent of the number of changed rows."""
    together: tuple[tuple[float, float], ...] = ()
    """Numbers of changed rows that need far fewer accesses together than as single rows, because they
    share groups or partitions that are recomputed, and these accesses."""

    @property
    def scanned(self) -> float:
        """The accesses of all scans."""
        return sum(accesses for _, _, accesses in self.scans)

    @property
    def least(self) -> float:
        """The accesses of one of many changed rows."""
        return min((accesses / rows for rows, accesses in self.together), default=self.accesses)


@dataclass(frozen=True)
class Price:
    """The measured time of an access in the refreshes of a plan variant."""

    variant: str
    """The plan variant of the views that were measured."""
    seconds: float
    views: int
    """The number of other views whose median this is; 0 if the view itself was measured."""
    costs: tuple[Cost, ...] = ()
    """The costs that the measured plan expected; empty if they equal the current ones."""


@dataclass(frozen=True)
class Estimate:
    """The expected average cost of a change."""

    accesses: float
    """Lookups and rows, by the cost model."""
    price: Price | None = None
    """The measured time of an access for the plan variant."""
    access_microseconds: float | None = None
    """The assumed time of an access, if any measurement exists."""

    @property
    def change_microseconds(self) -> float | None:
        """The expected time of a change, if any measurement exists."""
        access_time = self.access_microseconds
        return None if access_time is None else self.accesses * access_time

    def __str__(self) -> str:
        """Return the estimate as text for users."""
        text = f"a change costs {self.accesses:,.3g} lookups and rows on average"
        if self.access_microseconds is None:
            return f"{text}; their time was not measured yet"
        return (
            f"{text}, {self.change_microseconds:,.3g} µs at {self.access_microseconds:,.3g} µs each"
            f" ({self._measured(self.access_microseconds)})"
        )

    def _measured(self, assumed: float) -> str:
        if self.price is None:
            return "assumed, because no such plan was measured"
        measured = self.price.seconds * 1e6
        if self.price.views:
            return f"{measured:,.3g} µs in the median of {self.price.views} other views"
        more = "" if math.isclose(measured, assumed) else f", measured {measured:,.3g} µs"
        return f"measured by its own refreshes{more}"


@dataclass(frozen=True)
class Statistics:
    """Statistics of a table: its size, its values and its changes."""

    rows: float
    distinct: Mapping[int, float] = field(default_factory=dict)
    """The number of distinct values of each column."""
    changes: Mapping[ChangeKind, float] = field(default_factory=dict)
    """The number of rows changed so far, by kind of change."""
    indexed: frozenset[int] = frozenset()
    """The columns that are the first column of an index."""
    common: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    """The fractions of rows with the most common values, by column and by digest of the value."""
    foreign_keys: tuple[tuple[tuple[int, ...], int, tuple[int, ...]], ...] = ()
    """Referencing columns, the referenced table by oid, and the referenced columns. They only
    affect costs: a plan that was made without a foreign key is also correct with it."""
    nulls: Mapping[int, float] = field(default_factory=dict)
    """The fraction of rows with NULL, by column."""
