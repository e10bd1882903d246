"""Copies of plans with new column identities, so that a plan can contain a subplan several times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

from sqlglot import exp

from orchestrator.algebra.columns import Column, Symbols
from orchestrator.algebra.dialect import Tree, reference
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.cte_scan import CteScan
from orchestrator.algebra.operators.recursive import Recursion, RecursiveScan
from orchestrator.algebra.scalar import Scalar, Subquery


def copied(
    plan: Operator, symbols: Symbols, known: Mapping[Column, Column] | None = None
) -> tuple[Operator, dict[Column, Column]]:
    """Return a copy of a plan with new columns and aliases, and the new column for each old column.

    Columns of a surrounding query stay. `known` gives the new columns for some old columns.

    >>> from orchestrator.algebra.examples import DEVICES, DID
    >>> from orchestrator.algebra.ids import used_symbols
    >>> plan, became = copied(DEVICES, used_symbols(DEVICES))
    >>> plan.label, str(became[DID]), [str(column) for column in plan.columns]
    ('devices devices_2', 'did_2', ['did_2', 'category_2'])
    """
    copy = _Copy(symbols, plan.outer_columns, dict(known or {}))
    return copy.of(plan), copy.columns


@dataclass
class _Copy:
    symbols: Symbols
    outer: frozenset[Column]
    columns: dict[Column, Column]
    names: dict[str, str] = field(default_factory=dict)
    done: dict[Operator, Operator] = field(default_factory=dict)

    def of(self, value: Any) -> Any:
        """Return the copy of any value that a plan contains."""
        if isinstance(value, Column):
            return self._column(value)
        if isinstance(value, Scalar):
            return self._scalar(value)
        if isinstance(value, Operator):
            if value not in self.done:
                self.done[value] = self._operator(value)
            return self.done[value]
        if isinstance(value, tuple):
            return tuple(map(self.of, value))
        if isinstance(value, frozenset):
            # The order decides the names of new columns.
            return frozenset(map(self.of, sorted(value, key=str)))
        if is_dataclass(value) and not isinstance(value, type):
            return replace(
                value, **{f.name: self.of(getattr(value, f.name)) for f in fields(value)}
            )
        return value

    def _column(self, column: Column) -> Column:
        if column in self.outer:
            return column
        if column not in self.columns:
            self.columns[column] = replace(column, symbol=self.symbols.fresh(column.symbol))
        return self.columns[column]

    def _operator(self, operator: Operator) -> Operator:
        if isinstance(operator, CteScan) and not operator.outer_columns:
            # All references to the expression share a single subplan.
            return replace(operator, outputs=self.of(operator.outputs))
        if isinstance(operator, Recursion):
            # Copy the columns first: the scans of the recursion name them by their symbols.
            self.of(operator.outputs)
        copies: dict[str, Any] = {}
        for field_ in fields(operator):  # type: ignore[arg-type]
            value = getattr(operator, field_.name)
            # A table keeps its name. A recursion and its scans share a name.
            if field_.name in ("alias", "name") and isinstance(value, str):
                copies[field_.name] = self._name(value)
            elif isinstance(operator, RecursiveScan) and field_.name == "names":
                copies[field_.name] = tuple(self._symbol(name) for name in operator.names)
            else:
                copies[field_.name] = self.of(value)
        return replace(operator, **copies)  # type: ignore[type-var]

    def _symbol(self, symbol: str) -> str:
        return self.columns.get(Column(symbol), Column(symbol)).symbol

    def _name(self, name: str) -> str:
        if name not in self.names:
            self.names[name] = self.symbols.fresh(name)
        return self.names[name]

    def _scalar(self, scalar: Scalar) -> Scalar:
        became = {column.symbol: self._column(column) for column in scalar.columns}
        subqueries = tuple(
            Subquery(self.of(subquery.plan), self.of(subquery.columns))
            for subquery in scalar.subqueries
        )

        def renamed(node: Tree) -> Tree:
            if isinstance(node, exp.Column) and node.name in became:
                return reference(became[node.name].symbol)
            return node

        return Scalar.of(scalar.tree.transform(renamed, copy=False), became.values(), subqueries)
