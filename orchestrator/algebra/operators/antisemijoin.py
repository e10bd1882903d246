"""R ▷_φ S: the rows of R that have no partner in S.

ID(R ▷ S) = ID(R). A comparison with NULL finds no partner. The operator is therefore NOT EXISTS; it
equals NOT IN only where no NULL can occur.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from sqlglot import exp

from orchestrator.algebra.columns import Column
from orchestrator.algebra.dependencies import Columns
from orchestrator.algebra.dialect import Tree
from orchestrator.algebra.operators.semijoin import Semijoin
from orchestrator.algebra.rendering import Block, Renderer, with_condition


@dataclass(frozen=True)
class Antisemijoin(Semijoin):
    """The rows of the left side for which no row of the right side satisfies the condition."""

    symbol: ClassVar[str] = "▷"

    def render(self, renderer: Renderer, outer: Mapping[Column, Tree]) -> Block:
        """Render as NOT EXISTS in WHERE."""
        left = renderer.plain(self.left, outer)
        partner = self.partner(renderer, left, outer)
        return with_condition(left, exp.Not(this=exp.Paren(this=partner)))

    def _not_null(self) -> Columns:
        return self.left.not_null
