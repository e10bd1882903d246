"""Sizes of diffs at which refresh programs change how they work."""

from __future__ import annotations

SMALL = 2000
"""Diffs of at most this many rows share a plan; larger ones are planned for their own size."""

LARGE = 4_000_000
"""A diff of more rows is not held in a variable: the states are recomputed."""

CHEAP = 1000
"""The time of a refresh of more changed rows says what a large diff costs."""

WEIGHED_FROM = 100
"""A refresh that expects fewer accesses is not compared with a recomputation."""

SEVERAL, MANY = 100, 10_000
"""A refresh of more changed rows that expects more accesses is compared with a recomputation by the cost model too.
Others compare themselves only by what was measured: what a few rows meet is not known well enough."""

TELLING = 1000
"""The time of a refresh that expects fewer accesses says more about its statements than about accesses."""

FEW = 32
"""A diff of at most this many rows looks up the rows of a state one after the other."""

LONG_LOG = 256 * 1024
"""For a log with more bytes, a refresh first estimates the number of pending rows."""

LONG = "20 milliseconds"
"""A refresh that takes less time is not compared with the time of a recomputation."""

PATIENCE, IMPATIENCE = "500 milliseconds", "20 milliseconds"
"""After so much time a refresh asks whether to go on: the first one of a session plans its statements. The latter
holds for a refresh of several changed rows that expects many accesses."""
