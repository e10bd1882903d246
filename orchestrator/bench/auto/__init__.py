"""`idivm bench auto`: compare `auto` with every other strategy and with recomputing the query."""

from orchestrator.bench.auto.plot import draw
from orchestrator.bench.auto.run import run

__all__ = ["draw", "run"]
