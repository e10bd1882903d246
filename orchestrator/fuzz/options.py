"""The strategies and modes that cases are run with."""

from __future__ import annotations

STRATEGIES = ("auto", "id", "tuple", "recursive", "viewtree", "skew", "recompute")
"""Given to `CREATE VIEW ... WITH (strategy = ...)`."""

MODES = {"deferred": False, "eager": True, "on_commit": True}
"""Given to `WITH (maintain = ...)`; true where a view must be right after each commit by itself."""

EPSILONS = ("0", "0.25", "0.5", "0.75", "1")
"""Given to `WITH (epsilon = ...)` beside the strategy `skew`."""

REPRESENTATIONS = ("listing", "factorized")
"""Given to `WITH (representation = ...)` beside the strategy `viewtree`."""

CACHES = ("auto", "on", "off")
"""Given to `WITH (cache = ...)`."""
