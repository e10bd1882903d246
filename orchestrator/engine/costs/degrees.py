"""The number of rows that share a value, averaged over the changed rows and not over the values.

A value that many rows have also changes often. The expected number of rows that a changed row
matches is therefore size-biased: Σ p(v) · n(v), where p(v) is the share of changed rows with value
v and n(v) the number of rows that it matches. The most common values come from PostgreSQL's
statistics; all other values are assumed equally frequent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Values:
    """The values of a column."""

    distinct: float
    common: Mapping[str, float] = field(default_factory=dict)
    """The shares of rows with the most common values, by digest of the value."""

    @property
    def rare_share(self) -> float:
        """The share of rows with a value that is not among the most common ones.

        >>> Values(12.0, {"a": 0.4, "b": 0.2}).rare_share
        0.04
        """
        rest = max(0.0, 1.0 - math.fsum(self.common.values()))
        return round(rest / max(1.0, self.distinct - len(self.common)), 15)


def share_met(mine: Values, theirs: Values, at_most: float = math.inf) -> float:
    """Return the share of the other side's rows that a row matches by its value, on average over
    own rows.

    Values that at least the share `at_most` of the other side's rows have are left out.

    >>> share_met(Values(10.0), Values(10.0))
    0.1
    >>> zipf = Values(12.0, {"a": 0.4, "b": 0.2})
    >>> round(share_met(zipf, zipf), 3), round(share_met(zipf, zipf, at_most=0.3), 3)
    (0.216, 0.056)
    >>> round(share_met(Values(12.0), zipf), 3)
    0.083
    """
    met = covered = 0.0
    rare = theirs.rare_share
    for value, share in mine.common.items():
        degree = theirs.common.get(value, rare)
        covered += degree
        met += share * degree if degree < at_most else 0.0
    # The other values are spread evenly over the remaining rows of the other side.
    rest = max(0.0, 1.0 - math.fsum(mine.common.values()))
    left = max(1.0, max(mine.distinct, theirs.distinct) - len(mine.common))
    return met + rest * min(max(0.0, 1.0 - covered) / left, at_most)
