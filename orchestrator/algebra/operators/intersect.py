"""R ∩ S: the rows that both sides have; with ALL, each as often as in the side with fewer copies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from orchestrator.algebra.dependencies import Columns
from orchestrator.algebra.operators.set_operation import TwoBranches, renamed_columns


@dataclass(frozen=True)
class Intersection(TwoBranches):
    """The rows that both sides have."""

    symbol: ClassVar[str] = "∩"

    def _not_null(self) -> Columns:
        left = renamed_columns(self.left, self.outputs, self.left.input.not_null)
        return left | renamed_columns(self.right, self.outputs, self.right.input.not_null)
