"""Natural-join normal form: atoms that are joined by variables, sums of products, and what is computed from these."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.group import Aggregate
from orchestrator.algebra.operators.scan import Scan
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.scalar import TRUE, Scalar
from orchestrator.strategies.viewtree.hypergraph import Fd, Hypergraph

COVARIANCE = "idivm.covar"
"""The aggregate whose values are elements of the covariance ring, or of the generalised one."""

NUMBERS = ("sum", "count", "avg")
"""Aggregates over the ring of numbers."""


@dataclass(frozen=True)
class Atom:
    """A scan of a table, the condition on its rows, and what its variables are in its columns."""

    name: str
    scan: Scan
    condition: Scalar
    binds: tuple[tuple[str, Scalar], ...]

    def rows(self, scan: Operator) -> Operator:
        """The rows of a scan, or of its change, that satisfy the condition."""
        return Selection(scan, self.condition) if self.condition != TRUE else scan


@dataclass(frozen=True)
class Product:
    """An aggregate in normal form: what it is of the rows, and the factors, each of one atom."""

    aggregate: Aggregate
    factors: tuple[tuple[str, Scalar], ...]
    """None of `count(*)`."""
    conditions: tuple[tuple[str, Scalar], ...] = ()
    """What a FILTER asks of the rows of some atoms."""


@dataclass(frozen=True)
class NormalForm:
    """A query as atoms, variables and products."""

    atoms: tuple[Atom, ...]
    groups: tuple[tuple[Column, str], ...]
    """The grouping columns and the variables that they are."""
    products: tuple[Product, ...]
    shown: tuple[tuple[str, Scalar], ...]
    """The view's columns over the grouping columns and the aggregates' columns."""
    fds: tuple[Fd, ...]
    having: Scalar = TRUE
    """What is asked of groups, over the same columns."""

    @property
    def free(self) -> tuple[str, ...]:
        """The free variables."""
        return tuple(dict.fromkeys(variable for _, variable in self.groups))

    @property
    def graph(self) -> Hypergraph:
        """The query's hypergraph."""
        edges = {atom.name: (variable for variable, _ in atom.binds) for atom in self.atoms}
        return Hypergraph.of(edges, self.free)
