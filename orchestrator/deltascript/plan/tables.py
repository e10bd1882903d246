"""What a plan reads and stores: captured relations, state tables, and queries in place of tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from sqlglot import exp

from orchestrator.algebra.dialect import identifier, reference
from orchestrator.deltascript.leaves import STATE
from orchestrator.deltascript.plan.query import Query

CONTENT = "content"
"""The role of the state that holds what the view shows."""


CACHE = "cache"
"""What the roles of stored inputs of aggregations begin with."""


@dataclass(frozen=True)
class Column:
    """A column of the view: its name and its type as PostgreSQL writes it."""

    name: str
    type: str


@dataclass(frozen=True)
class SourceColumn:
    """A captured column: its number in the table and its name at the time of planning."""

    attnum: int
    name: str
    in_key: bool
    plain_type: str
    """The type without domains: an absent image is NULL, which a domain may forbid."""
    equality: str = ""
    """How values compare: `exact` where those equal by `=` of pg_catalog are the same to the bit,
    `coarse` where they may look different (1.0 and 1.00), empty where `=` is not to be used."""


@dataclass(frozen=True)
class Source:
    """A relation whose changes the view needs, with the columns to capture."""

    oid: int
    schema: str
    name: str
    columns: tuple[SourceColumn, ...]
    not_null: tuple[int, ...] = ()
    """Numbers of the captured columns that a plan may take for free of NULLs."""
    keys: tuple[tuple[int, ...], ...] = ()
    """Keys beside the one that rows are told apart by, which a plan may take for granted."""
    stored: tuple[int, ...] = ()
    """Stored generated columns that the view reads: another expression rewrites them unnoticed."""
    virtual: tuple[int, ...] = ()
    """Virtual generated columns that the view reads, whose expressions are in the plan."""

    def __str__(self) -> str:
        """Schema and name, for messages."""
        return f"{self.schema}.{self.name}"

    @property
    def keyed(self) -> bool:
        """Whether rows are told apart by a key, and not by their content."""
        return any(column.in_key for column in self.columns)


@dataclass(frozen=True)
class RowIdentity:
    """Hidden columns that tell the rows of a bag apart.

    `row` holds a digest of the row's image; `nth` numbers the rows that share it. In a result
    known to have a key no two rows share an image, and every `nth` is 1.
    """

    row: str
    nth: str
    distinct: bool


@dataclass(frozen=True)
class BagTable:
    """A table that holds the rows of the definition as a bag."""

    role: str
    columns: tuple[Column, ...]
    identity: RowIdentity | None
    """None where a table has no room for further columns; it is computed whenever it is asked for."""

    @property
    def layout(self) -> tuple[object, ...]:
        """What tables that can hold the same rows have in common."""
        return self.columns, self.identity


@dataclass(frozen=True)
class StateColumn:
    """A column of a state table; hidden ones are not shown by the view."""

    name: str
    hidden: bool


@dataclass(frozen=True)
class StateTable:
    """A table that holds a result under its IDs."""

    role: str
    columns: tuple[StateColumn, ...]
    key: tuple[str, ...]
    """Empty where there is at most one row."""
    nullable: tuple[str, ...]
    """Those of the key that may be NULL."""
    query: Query
    """What it holds, in the order of its columns."""
    probes: tuple[tuple[str, ...], ...] = ()
    """Sets of columns by which the script looks for rows."""
    together: tuple[str, ...] = ()
    """Columns by which the first rows are put in order, so that those with equal values lie together."""
    at_once: float = 1.0
    """How many of these one changed row has updated, about."""
    not_null: tuple[str, ...] = ()
    """Columns that never hold NULL."""
    arrays: tuple[str, ...] = ()
    """Columns whose values are long, hardly compress and change often."""
    elements: tuple[str, ...] = ()
    """Columns whose values are long, compress well and change often."""
    historic: bool = False
    """Whether what it holds depends on earlier changes too: its query says what it holds at first."""

    @property
    def layout(self) -> tuple[object, ...]:
        """What tables that can hold the same rows have in common."""
        return (
            self.columns,
            self.key,
            self.nullable,
            self.not_null,
            self.arrays,
            self.elements,
            self.historic,
        )


@dataclass(frozen=True)
class Shape:
    """The row type of a variable, that of a query's result."""

    role: str
    query: Query


@dataclass(frozen=True)
class StateView:
    """What the view shows where no table holds it: a query over states, run by whoever reads."""

    role: str
    columns: tuple[Column, ...]
    keys: tuple[str, ...]
    """Hidden columns behind them, which tell its rows apart."""
    query: Query
    """Shows all these columns; the others perhaps of types that have to be cast to theirs."""

    @property
    def layout(self) -> tuple[object, ...]:
        """What views that can show the same rows have in common."""
        return self.columns, self.keys


State: TypeAlias = BagTable | StateTable | Shape | StateView


def pairs_of(role: str, fields: Iterable[tuple[str, str]]) -> Query:
    """The shape of a state's changes: columns before and after, each with `old` or `new`."""
    names = [(f"{side}_{name}", name) for side, name in fields]
    table = exp.Table(
        this=identifier(role), db=identifier(STATE), alias=exp.TableAlias(this=identifier("s"))
    )
    items = [exp.alias_(reference(name, "s"), identifier(shown)) for shown, name in names]
    return Query(exp.select(*items).from_(table))
