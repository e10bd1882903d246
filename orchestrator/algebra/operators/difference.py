"""R − S: the rows of R that S lacks; with ALL, each as many times as R has more copies of it than
S.

Without ALL this is an antisemijoin of δ(R) in which NULL equals NULL.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from orchestrator.algebra.dependencies import Columns
from orchestrator.algebra.operators.set_operation import TwoBranches, renamed_columns


@dataclass(frozen=True)
class Difference(TwoBranches):
    """The rows of the left side that the right side does not have."""

    symbol: ClassVar[str] = "−"

    def _not_null(self) -> Columns:
        return renamed_columns(self.left, self.outputs, self.left.input.not_null)
