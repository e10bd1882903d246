"""Natural-join normal form: atoms joined by variables, sums of products, and expressions over these."""

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
"""The aggregate whose values are elements of the covariance ring, or of the generalized ring."""

NUMBERS = ("sum", "count", "avg")
"""Aggregates over the ring of numbers."""


@dataclass(frozen=True)
class Atom:
    """A scan of a table, the condition on its rows, and the expressions of its variables."""

    name: str
    scan: Scan
    condition: Scalar
    binds: tuple[tuple[str, Scalar], ...]

    def rows(self, scan: Operator) -> Operator:
        """Return the rows of a scan, or of its change, that satisfy the condition."""
        return Selection(scan, self.condition) if self.condition != TRUE else scan


@dataclass(frozen=True)
class Product:
    """An aggregate in normal form: the aggregate call, and its factors, each over one atom."""

    aggregate: Aggregate
    factors: tuple[tuple[str, Scalar], ...]
    """Empty for `count(*)`."""
    conditions: tuple[tuple[str, Scalar], ...] = ()
    """The conditions of FILTER, each over one atom."""


@dataclass(frozen=True)
class NormalForm:
    """A query as atoms, variables and products."""

    atoms: tuple[Atom, ...]
    groups: tuple[tuple[Column, str], ...]
    """The grouping columns and their variables."""
    products: tuple[Product, ...]
    shown: tuple[tuple[str, Scalar], ...]
    """The view's columns as expressions over the grouping columns and the aggregates' columns."""
    fds: tuple[Fd, ...]
    having: Scalar = TRUE
    """The condition on groups, over the same columns."""

    @property
    def free(self) -> tuple[str, ...]:
        """The free variables."""
        return tuple(dict.fromkeys(variable for _, variable in self.groups))

    @property
    def graph(self) -> Hypergraph:
        """The query's hypergraph."""
        edges = {atom.name: (variable for variable, _ in atom.binds) for atom in self.atoms}
        return Hypergraph.of(edges, self.free)
