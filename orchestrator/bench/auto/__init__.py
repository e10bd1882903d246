"""`idivm bench auto`: `auto` beside every other strategy and beside computing the query."""

from orchestrator.bench.auto.plot import draw
from orchestrator.bench.auto.run import run

__all__ = ["draw", "run"]
