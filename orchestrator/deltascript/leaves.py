"""Leaves of plans that a maintenance program runs: stored states, and diffs held in variables.

A plan names no tables or functions of the database. It names a state by its role, with a schema
that cannot exist, and a variable by its name, with a qualifier that cannot exist. `query` replaces
them by the real names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from sqlglot import exp

from orchestrator.algebra.columns import Column, Symbols
from orchestrator.algebra.dependencies import Columns, Dependencies, Keys
from orchestrator.algebra.dialect import Tree, identifier, reference
from orchestrator.algebra.operators.base import Identified, Operator, Self
from orchestrator.algebra.operators.scan import Scan
from orchestrator.algebra.rendering import Block, Renderer
from orchestrator.caching import cached_property

STATE = "\0state"
"""The schema of the roles of states."""

PROGRAM = "\0program"
"""The qualifier of variables."""

SOURCE = "\0source"
"""The schema of captured tables, which have their oid in their names."""

PENDING = "\0pending"
"""The schema of the pending images of captured tables, which have their oid in their names."""

MARK = "mark"
"""The name, in the schema of pending images, of the watermark after which changes are pending."""


def captured(scan: Scan) -> Scan:
    """Return the scan of a captured table through its source view.

    The columns keep their names in the source view if columns of the table are renamed. The number
    after the zero byte in a name tells programs which column it is.
    """
    if scan.table.schema == SOURCE:
        return scan
    table = replace(scan.table, schema=SOURCE, name=f"{scan.table.name}\0{scan.table.oid}")
    outputs = [
        replace(output, name=f"{output.name}\0{scan.table.oid}.{output.attnum}")
        for output in scan.outputs
    ]
    return replace(scan, table=table, outputs=tuple(outputs))


def capture(operator: Operator) -> Operator:
    """Return an operator, a scan of a captured table as a scan through its source view."""
    return captured(operator) if isinstance(operator, Scan) else operator


def called(scan: Scan) -> str:
    """Return the name of a scan's table, for people."""
    return scan.table.name.partition("\0")[0]


class _Leaf(Operator):
    """A leaf, each of whose columns has a name in the relation that it reads."""

    alias: str
    outputs: tuple[tuple[Column, str], ...]

    @property
    def children(self) -> tuple[Operator, ...]:
        """No inputs."""
        return ()

    def with_children(self: Self, children: tuple[Operator, ...]) -> Self:
        """Return the operator itself, which has no inputs."""
        return self

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns that are read."""
        return tuple(column for column, _ in self.outputs)

    def _block(self, **item: exp.Expression | list[exp.Expression]) -> Block:
        """Return an item of FROM under the alias."""
        table = exp.Table(**item, alias=exp.TableAlias(this=identifier(self.alias)))
        return Block(
            (table,), {column: reference(name, self.alias) for column, name in self.outputs}
        )


@dataclass(frozen=True)
class StateScan(_Leaf):
    """The rows of a state table, with facts about the result that it stores."""

    role: str
    alias: str
    outputs: tuple[tuple[Column, str], ...]
    """Columns and their names in the table."""
    ids: tuple[Column, ...]
    known: Dependencies
    known_keys: Keys
    known_not_null: Columns

    symbol: ClassVar[str] = "state"

    @property
    def label(self) -> str:
        """The role of the state."""
        return f"state {self.role}"

    def called(self, column: Column) -> str:
        """Return the name of a column in the table."""
        return self._called[column]

    @cached_property
    def _called(self) -> dict[Column, str]:
        return dict(reversed(self.outputs))

    def identified(self, inputs: tuple[Identified, ...], symbols: Symbols) -> Identified:
        """Return the IDs by which the state is stored."""
        return Identified(self, self.ids)

    def render(self, renderer: Renderer, outer: Mapping[Column, Tree]) -> Block:
        """Render as a table in FROM."""
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
    """Columns and the fields of the diff that they read."""
    known_not_null: Columns = frozenset()

    symbol: ClassVar[str] = "diff"

    @property
    def label(self) -> str:
        """The name of the variable."""
        return f"diff {self.variable}"

    def identified(self, inputs: tuple[Identified, ...], symbols: Symbols) -> Identified:
        """Return no IDs, because a diff is a bag."""
        return Identified(self, ())

    def render(self, renderer: Renderer, outer: Mapping[Column, Tree]) -> Block:
        """Render as unnest in FROM."""
        rows = exp.Anonymous(this="unnest", expressions=[reference(self.variable, PROGRAM)])
        return self._block(this=rows)

    def _not_null(self) -> Columns:
        return self.known_not_null


@dataclass(frozen=True)
class PendingScan(_Leaf):
    """The images in a captured table's log that a view has not consumed: old rows have the sign -1, new rows 1.

    A statement that reads them together with tables and states sees all of them in one snapshot.
    """

    oid: int
    name: str
    alias: str
    mark: str
    """The alias of the watermark."""
    outputs: tuple[tuple[Column, str], ...]

    symbol: ClassVar[str] = "pending"

    @staticmethod
    def of(scan: Scan, sign: Column, symbols: Symbols) -> PendingScan:
        """Return the pending images of a captured table's scan, with the columns of the scan and their sign."""
        outputs = tuple((o.column, f"i_{o.attnum}") for o in scan.outputs)
        alias, mark = symbols.fresh("p"), symbols.fresh("w")
        return PendingScan(scan.table.oid, called(scan), alias, mark, (*outputs, (sign, "sign")))

    @property
    def images(self) -> tuple[tuple[Column, str], ...]:
        """The columns of the images, without the sign."""
        return self.outputs[:-1]

    @property
    def label(self) -> str:
        """The name of the table."""
        return f"pending {self.name}"

    def identified(self, inputs: tuple[Identified, ...], symbols: Symbols) -> Identified:
        """Return no IDs, because the images are a bag."""
        return Identified(self, ())

    def render(self, renderer: Renderer, outer: Mapping[Column, Tree]) -> Block:
        """Render as the images in the log, restricted to those after the watermark."""
        images = self._block(this=identifier(f"{self.name}\0{self.oid}"), db=identifier(PENDING))
        mark = exp.Table(
            this=identifier(MARK),
            db=identifier(PENDING),
            alias=exp.TableAlias(this=identifier(self.mark)),
        )
        fields = ("snapshot", "floor", "own_xid", "own_marks")
        arguments = [
            reference("xid", self.alias),
            reference("seq", self.alias),
            *(reference(field, self.mark) for field in fields),
            reference("source", self.alias),
        ]
        pending = exp.Dot(
            this=identifier("idivm"),
            expression=exp.Anonymous(this="is_pending_after", expressions=arguments),
        )
        join = exp.Join(this=mark, kind="CROSS")
        held = reference("held", self.alias)
        return replace(images, items=(*images.items, join), where=(held, pending))
