"""The strategies, modes and options of the generated cases."""

from __future__ import annotations

STRATEGIES = ("auto", "id", "tuple", "recursive", "viewtree", "skew", "recompute")
"""Values for `CREATE VIEW ... WITH (strategy = ...)`."""

MODES = {"deferred": False, "eager": True, "on_commit": True, "on_read": True}
"""Values for `WITH (maintain = ...)`, and whether such a view must be right after each commit."""

EPSILONS = ("auto", "0", "0.25", "0.5", "0.75", "1")
"""Values for `WITH (epsilon = ...)` with the strategy `skew`; the first is for all tables only."""

OPEN = 0.7
"""The share of queries that divide values for which epsilon is chosen by the changes and reads."""

REPRESENTATIONS = ("listing", "factorized")
"""Values for `WITH (representation = ...)` with the strategy `viewtree`."""

INPUTS = 0.4
"""The share of views with the strategy `viewtree` that are asked by some of their columns."""

RANKED = 0.3
"""The share of the other views with the strategy `viewtree` whose rows are read in an order."""

CACHES = ("auto", "on", "off")
"""Values for `WITH (cache = ...)`."""

RELATIONS = ("view", "view", "table")
"""Values for `WITH (relation = ...)`."""

FEEDS = ("off", "off", "on")
"""Values for `WITH (feed = ...)`; the feeds are replayed after each refresh."""

SHARED = ("auto", "auto", "off")
"""Values for `WITH (shared = ...)` with `maintain = eager`."""

COMMON_JOIN = 0.3
"""The share of views that may read their join from a view that stores it for others."""

APPEND_ONLY = 0.15
"""The share of views for which some tables are declared to gain rows only, whatever happens to their rows."""

GROUP = "fuzz"
"""The refresh group of some views."""

GROUPED = 0.15
"""The share of cases with a refresh group. All views of such a case are deferred."""

TEMPORAL_SHARE = 0.3
"""The share of cases whose views compare rows with the current time, which moves between their steps."""

STEPS_IN_WAL = 3
"""How many times as many steps a case has with capture from the WAL. Creating the views takes most of its time."""

DEFERRED_IN_WAL = 0.8
"""The share of cases with capture from the WAL whose views are all deferred; others keep their tables from it."""
