"""SCAN(R): the rows of a base relation.

ID(R) = key(R), the best key in the catalog. Without a key, the rows are numbered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from sqlglot import exp

from orchestrator.algebra.columns import Column, Symbols
from orchestrator.algebra.dependencies import Columns, Keys
from orchestrator.algebra.dialect import Tree, identifier, reference
from orchestrator.algebra.operators.base import Identified, Operator
from orchestrator.algebra.operators.numbered import Numbered
from orchestrator.algebra.rendering import Block, Renderer


@dataclass(frozen=True)
class Reference:
    """A foreign key: columns of a table that point to a key of another table."""

    columns: tuple[int, ...]
    target: int
    target_columns: tuple[int, ...]


@dataclass(frozen=True)
class Table:
    """A base relation, with the facts that the algebra needs."""

    oid: int
    schema: str
    name: str
    keys: tuple[tuple[int, ...], ...] = ()
    """Column numbers of the keys, the best key first."""
    not_null: frozenset[int] = frozenset()
    foreign_keys: tuple[Reference, ...] = ()

    def __str__(self) -> str:
        """Return the name, with its schema unless that is `public`."""
        return self.name if self.schema in ("public", "") else f"{self.schema}.{self.name}"


@dataclass(frozen=True)
class ScanColumn:
    """A column of a scan, with its number and name in the table."""

    column: Column
    attnum: int
    name: str


@dataclass(frozen=True)
class Scan(Operator):
    """The rows of a table under an alias that is unique in the plan."""

    table: Table
    alias: str
    outputs: tuple[ScanColumn, ...]
    only: bool = False
    """Whether inheritance children are left out."""

    symbol: ClassVar[str] = "scan"

    @property
    def children(self) -> tuple[Operator, ...]:
        """No inputs."""
        return ()

    def with_children(self, children: tuple[Operator, ...]) -> Scan:
        """Return the operator itself, which has no inputs."""
        return self

    @property
    def columns(self) -> tuple[Column, ...]:
        """The scanned columns."""
        return tuple(output.column for output in self.outputs)

    @property
    def is_clock(self) -> bool:
        """Whether the table is the clock of a view: a row that only changes by updates, and is never shown."""
        return () in self.table.keys

    @property
    def label(self) -> str:
        """The table, and the alias if it differs."""
        only = "only " if self.only else ""
        alias = "" if self.alias == self.table.name else f" {self.alias}"
        return f"{only}{self.table}{alias}"

    def at(self, attnum: int) -> Column | None:
        """Return the column with this number in the table, if the scan has it."""
        return next((o.column for o in self.outputs if o.attnum == attnum), None)

    def projected(self, columns: Columns) -> Scan:
        """Return the scan with only these columns and the best key."""
        key = self.table.keys[0] if self.table.keys else ()
        outputs = [o for o in self.outputs if o.column in columns or o.attnum in key]
        return replace(self, outputs=tuple(outputs))

    def identified(self, inputs: tuple[Identified, ...], symbols: Symbols) -> Identified:
        """Return ID(R) = key(R), or content and number without a key (see `Numbered`)."""
        for key in self.table.keys:
            columns = [self.at(attnum) for attnum in key]
            if all(columns):
                return Identified(self, tuple(column for column in columns if column))
        numbered = Numbered.of(self, symbols)
        return Identified(numbered, (numbered.row, numbered.nth))

    def render(self, renderer: Renderer, outer: Mapping[Column, Tree]) -> Block:
        """Render as a table in FROM."""
        item = exp.Table(
            this=identifier(self.table.name),
            db=identifier(self.table.schema) if self.table.schema else None,
            only=self.only,
        )
        if self.alias != self.table.name:
            item.set("alias", exp.TableAlias(this=identifier(self.alias)))
        outputs: dict[Column, Tree] = {
            output.column: reference(output.name, self.alias) for output in self.outputs
        }
        return Block((item,), outputs)

    def _not_null(self) -> Columns:
        return frozenset(o.column for o in self.outputs if o.attnum in self.table.not_null)

    def _keys(self) -> Keys:
        result = []
        for key in self.table.keys:
            columns = [self.at(attnum) for attnum in key]
            if all(columns):
                result.append(frozenset(column for column in columns if column))
        return frozenset(result)
