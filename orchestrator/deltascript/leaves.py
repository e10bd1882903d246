"""Leaves of plans that a maintenance program runs: stored states, and diffs held in variables.

A plan names neither tables nor functions of the database. A state is called by its role in a
schema that no user can have, a variable by its name in a table that none can; `emit` puts the real
names in their place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from sqlglot import exp

from orchestrator.algebra.columns import Column, Symbols
from orchestrator.algebra.dependencies import Columns, Dependencies, Keys
from orchestrator.algebra.dialect import Tree, identifier, reference
from orchestrator.algebra.operators.base import Identified, Operator, Self
from orchestrator.algebra.operators.scan import Scan
from orchestrator.algebra.rendering import Block, Renderer

STATE = "\0state"
"""The schema of a state's role."""

PROGRAM = "\0program"
"""What qualifies a variable."""

SOURCE = "\0source"
"""The schema of a captured table, which is called by its oid."""


def captured(scan: Scan) -> Scan:
    """The scan of a captured table through what capture sees of it.

    Its columns keep their names there when the table's are renamed. Behind a zero byte, a name
    says for programs which column it is.
    """
    if scan.table.schema == SOURCE:
        return scan
    table = replace(scan.table, schema=SOURCE, name=f"{scan.table.name}\0{scan.table.oid}")
    outputs = [
        replace(output, name=f"{output.name}\0{scan.table.oid}.{output.attnum}")
        for output in scan.outputs
    ]
    return replace(scan, table=table, outputs=tuple(outputs))


def called(scan: Scan) -> str:
    """For people: the name of a scan's table."""
    return scan.table.name.partition("\0")[0]


class _Leaf(Operator):
    """A leaf, each of whose columns has a name where it is read."""

    alias: str
    outputs: tuple[tuple[Column, str], ...]

    @property
    def children(self) -> tuple[Operator, ...]:
        """None."""
        return ()

    def with_children(self: Self, children: tuple[Operator, ...]) -> Self:
        """Itself."""
        return self

    @property
    def columns(self) -> tuple[Column, ...]:
        """Those that are read."""
        return tuple(column for column, _ in self.outputs)

    def _block(self, **item: exp.Expression | list[exp.Expression]) -> Block:
        """An item of FROM under the alias."""
        table = exp.Table(**item, alias=exp.TableAlias(this=identifier(self.alias)))
        return Block(
            (table,), {column: reference(name, self.alias) for column, name in self.outputs}
        )


@dataclass(frozen=True)
class StateScan(_Leaf):
    """The rows of a state table, with what is known of the result that it stores."""

    role: str
    alias: str
    outputs: tuple[tuple[Column, str], ...]
    """Columns and what they are called in the table."""
    ids: tuple[Column, ...]
    known: Dependencies
    known_keys: Keys
    known_not_null: Columns

    symbol: ClassVar[str] = "state"

    @property
    def label(self) -> str:
        """The role."""
        return f"state {self.role}"

    def called(self, column: Column) -> str:
        """What a column is called in the table."""
        return self._called[column]

    @cached_property
    def _called(self) -> dict[Column, str]:
        return dict(reversed(self.outputs))

    def identified(self, inputs: tuple[Identified, ...], symbols: Symbols) -> Identified:
        """The IDs that the state is stored by."""
        return Identified(self, self.ids)

    def render(self, renderer: Renderer, outer: Mapping[Column, Tree]) -> Block:
        """A table in FROM."""
        return self._block(this=identifier(self.role), db=identifier(STATE))

    def _not_null(self) -> Columns:
        return self.known_not_null

    def _dependencies(self) -> Dependencies:
        return self.known

    def _keys(self) -> Keys:
        return self.known_keys


@dataclass(frozen=True)
class DiffScan(_Leaf):
    """The rows of a diff that a variable holds."""

    variable: str
    alias: str
    outputs: tuple[tuple[Column, str], ...]
    """Columns and the fields of the diff that they are."""

    symbol: ClassVar[str] = "diff"

    @property
    def label(self) -> str:
        """The variable."""
        return f"diff {self.variable}"

    def identified(self, inputs: tuple[Identified, ...], symbols: Symbols) -> Identified:
        """A diff is a bag."""
        return Identified(self, ())

    def render(self, renderer: Renderer, outer: Mapping[Column, Tree]) -> Block:
        """unnest in FROM."""
        rows = exp.Anonymous(this="unnest", expressions=[reference(self.variable, PROGRAM)])
        return self._block(this=rows)
