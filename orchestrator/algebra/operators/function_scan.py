"""The rows that set-returning functions return (a function in FROM, or ROWS FROM).

ID = the ordinal number of the row. Arguments may be columns of a surrounding query, or of the left
side of a dependent join.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from sqlglot import exp

from orchestrator.algebra.columns import Column, Symbols
from orchestrator.algebra.dependencies import Columns, Keys
from orchestrator.algebra.dialect import Tree, identifier, reference
from orchestrator.algebra.operators.base import Identified, Operator, listed
from orchestrator.algebra.rendering import Block, Renderer
from orchestrator.algebra.scalar import Scalar


@dataclass(frozen=True)
class FunctionScan(Operator):
    """The results of a function, or of several functions side by side."""

    calls: tuple[Scalar, ...]
    alias: str
    outputs: tuple[Column, ...]
    definitions: tuple[tuple[exp.ColumnDef, ...], ...] = ()
    """The column definition list of each call, if any; functions that return `record` need it.

    The function may use the names in it, as `jsonb_to_recordset` does.
    """
    ordinality: Column | None = None
    """The column of WITH ORDINALITY, which follows the outputs."""

    symbol: ClassVar[str] = "function"

    @property
    def children(self) -> tuple[Operator, ...]:
        """No inputs."""
        return ()

    def with_children(self, children: tuple[Operator, ...]) -> FunctionScan:
        """Return the operator itself, which has no inputs."""
        return self

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the functions, then the ordinal number."""
        return self.outputs if self.ordinality is None else (*self.outputs, self.ordinality)

    @property
    def scalars(self) -> tuple[Scalar, ...]:
        """The calls."""
        return self.calls

    def map_scalars(self, change: Callable[[Scalar], Scalar]) -> FunctionScan:
        """Return the scan with changed calls."""
        return replace(self, calls=tuple(change(call) for call in self.calls))

    @property
    def label(self) -> str:
        """The calls and the columns."""
        names = " ".join(map(str, self.columns))
        return f"{listed(self.calls)} → {names}"

    def identified(self, inputs: tuple[Identified, ...], symbols: Symbols) -> Identified:
        """Return ID = the ordinal number, which is added if it is missing."""
        if self.ordinality is not None:
            return Identified(self, (self.ordinality,))
        number = Column(symbols.fresh("nth"), "bigint", "integer_ops", exact=True)
        return Identified(replace(self, ordinality=number), (number,))

    def render(self, renderer: Renderer, outer: Mapping[Column, Tree]) -> Block:
        """Render as functions in FROM."""
        calls = [_table(renderer.tree(call, outer)) for call in self.calls]
        for call, columns in zip(calls, self.definitions, strict=bool(self.definitions)):
            if columns:
                call.set("alias", exp.TableAlias(columns=[column.copy() for column in columns]))
        plain = len(calls) == 1 and not any(self.definitions)
        item = calls[0] if plain else exp.Table(rows_from=calls)
        names = [identifier(column.symbol) for column in self.columns]
        item.set("ordinality", self.ordinality is not None)
        item.set("alias", exp.TableAlias(this=identifier(self.alias), columns=names))
        outputs = {c: reference(c.symbol, self.alias) for c in self.columns}
        return Block((item,), outputs)

    def _not_null(self) -> Columns:
        return frozenset() if self.ordinality is None else frozenset({self.ordinality})

    def _keys(self) -> Keys:
        return frozenset() if self.ordinality is None else frozenset({frozenset({self.ordinality})})


def _table(call: Tree) -> exp.Table:
    if isinstance(call, exp.Dot):
        return exp.Table(this=call.expression, db=call.this)
    return exp.Table(this=call)
