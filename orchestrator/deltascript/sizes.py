"""Sizes of diffs at which refresh programs change their behavior."""

from __future__ import annotations

SMALL = 2000
"""Diffs of at most this many rows share a plan; larger ones are planned for their own size."""

SMALL_BY_LOOKUPS = 100
"""The same for programs whose small diffs may only use indexes. Above it, reading a whole state may pay."""

LARGE = 4_000_000
"""A diff with more rows is not held in a variable; the states are recomputed instead."""

CHEAP = 1000
"""The time of a refresh with more changed rows measures the cost of large diffs."""

WEIGHED_FROM = 100
"""A refresh that expects fewer accesses is not compared with a recomputation."""

SEVERAL, MANY = 100, 10_000
"""A refresh with more changed rows and more expected accesses is also compared by the cost model.

Other refreshes are only compared by measured times: the estimates for few rows are not good enough."""

TELLING = 1000
"""The time of a refresh with fewer expected accesses depends more on its statements than on accesses."""

FEW = 32
"""A diff of at most this many rows looks up the rows of a state separately."""

LONG_LOG = 256 * 1024
"""For a log with more bytes, a refresh first estimates the number of pending rows."""

LONG = "20 milliseconds"
"""A refresh that takes less time is not compared with the time of a recomputation."""

PATIENCE, IMPATIENCE = "500 milliseconds", "20 milliseconds"
"""The times after which a refresh checks whether to continue. The second time applies to a refresh of
several changed rows with many expected accesses. The first is longer, because the first refresh of a
session also plans its statements."""
