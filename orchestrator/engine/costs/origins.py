"""The origins of values: which column of a table they come from, through diffs, states and
variables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.project import Projection
from orchestrator.algebra.operators.scan import Scan
from orchestrator.algebra.operators.union_all import UnionAll
from orchestrator.algebra.traversal import walk
from orchestrator.deltascript.leaves import DiffScan, StateScan
from orchestrator.engine.composer import Composer, fields_of


class Origins:
    """The columns of tables from which columns of composed plans take their values."""

    def __init__(self, composer: Composer) -> None:
        """Start without any columns."""
        self.composer = composer
        self._columns: dict[str, tuple[int, int]] = {}
        """Table oids and column numbers, by the symbols of the columns with their values."""
        self._fields: dict[str, Mapping[str, str | tuple[int, int]]] = {}
        """For each variable, the origins of its fields: a symbol, or a column of a table."""

    def of(self, column: Column) -> tuple[int, int] | None:
        """Return the table oid and the column number from which a column takes its values, or None."""
        return self._columns.get(column.symbol)

    def learn(self, plan: Operator) -> None:
        """Register the origins of the columns of a plan."""
        for operator in reversed(list(walk(plan))):
            if isinstance(operator, Scan):
                for output in operator.outputs:
                    self._columns[output.column.symbol] = operator.table.oid, output.attnum
            elif isinstance(operator, DiffScan):
                fields = self._fields_of(operator.variable)
                for column, name in operator.outputs:
                    held = fields.get(name, name)
                    self._set(column, self._columns.get(held) if isinstance(held, str) else held)
            elif isinstance(operator, StateScan):
                stored = self.composer.scans.get(operator.role, operator)
                symbols = {name: column.symbol for column, name in stored.outputs}
                for column, name in operator.outputs:
                    self._set(column, self._columns.get(symbols.get(name, "")))
            elif isinstance(operator, Projection):
                for item in operator.items:
                    same = item.scalar.as_column
                    self._set(item.column, self._columns.get(same.symbol) if same else None)
            elif isinstance(operator, UnionAll):
                for branch in operator.branches:
                    for old, new in branch.renamed(operator.outputs):
                        self._set(new, self._columns.get(old.symbol))

    def _set(self, column: Column, values: tuple[int, int] | None) -> None:
        if values is not None:
            self._columns.setdefault(column.symbol, values)

    def _fields_of(self, variable: str) -> Mapping[str, str | tuple[int, int]]:
        """Return the origins of the fields of a variable; fields of changes have the prefix of a
        side.
        """
        if not self._fields.get(variable):
            self._fields[variable] = dict(self._fields_found(variable))
        return self._fields[variable]

    def _fields_found(self, variable: str) -> Iterator[tuple[str, str | tuple[int, int]]]:
        for (oid, _, _), change in self.composer.classes.items():
            if change.variable == variable:
                for attnum, name in fields_of(self.composer.sources[oid]):
                    yield from ((f"{side}_{name}", (oid, attnum)) for side in ("old", "new"))
        for role, changes in self.composer.changes.items():
            if variable in changes.variables and role in self.composer.scans:
                for column, name in self.composer.scans[role].outputs:
                    yield from ((f"{side}_{name}", column.symbol) for side in ("old", "new"))
