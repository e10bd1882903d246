"""The relations of a plan: captured relations, state tables, and queries that replace tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from sqlglot import exp

from orchestrator.algebra.dialect import identifier, reference
from orchestrator.deltascript.leaves import STATE
from orchestrator.deltascript.plan.query import Query
from orchestrator.deltascript.plan.ranking import Sorted

CONTENT = "content"
"""The role of the state with the content of the view."""


CACHE = "cache"
"""The prefix of the roles of caches, the stored inputs of aggregations."""


@dataclass(frozen=True)
class Column:
    """A column of the view, with its type as PostgreSQL writes it."""

    name: str
    type: str


@dataclass(frozen=True)
class SourceColumn:
    """A captured column, with its number in the table and its name at planning time."""

    attnum: int
    name: str
    in_key: bool
    plain_type: str
    """The type without domains, because a missing image is NULL, which a domain may forbid."""
    equality: str = ""
    """How values compare: `exact` if values that are equal by `=` of pg_catalog are identical,
    `coarse` if equal values may look different (1.0 and 1.00), empty if `=` must not be used."""


@dataclass(frozen=True)
class Source:
    """A relation whose changes the view needs, with the columns to capture."""

    oid: int
    schema: str
    name: str
    columns: tuple[SourceColumn, ...]
    not_null: tuple[int, ...] = ()
    """Numbers of the captured columns that the plan assumes to be never NULL."""
    keys: tuple[tuple[int, ...], ...] = ()
    """Keys that the plan may rely on, in addition to the key that identifies rows."""
    stored: tuple[int, ...] = ()
    """Stored generated columns that the view reads. A change of their expressions rewrites them
    without firing triggers."""
    virtual: tuple[int, ...] = ()
    """Virtual generated columns that the view reads, whose expressions are in the plan."""

    def __str__(self) -> str:
        """Return schema and name, for messages."""
        return f"{self.schema}.{self.name}"

    @property
    def is_clock(self) -> bool:
        """Whether this is the clock of the view."""
        return self.schema == "idivm_def"

    @property
    def is_own(self) -> bool:
        """Whether this is no table of a user, but a clock or the content of a view."""
        return self.is_clock or self.schema == "idivm_state"

    @property
    def keyed(self) -> bool:
        """Whether a key identifies rows, and not their content."""
        return any(column.in_key for column in self.columns)


@dataclass(frozen=True)
class RowIdentity:
    """Hidden columns that identify the rows of a bag.

    `row` holds a digest of the row's image; `nth` numbers the rows with the same image. In a result
    with a known key, images are unique and `nth` is always 1.
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
    """None if the table has no room for more columns; the digest is then computed when it is
    needed."""

    @property
    def layout(self) -> tuple[object, ...]:
        """The facts that are equal for tables that can hold the same rows."""
        return self.columns, self.identity


@dataclass(frozen=True)
class StateColumn:
    """A column of a state table; the view does not show hidden columns."""

    name: str
    hidden: bool


@dataclass(frozen=True)
class StateTable:
    """A table that holds a result under its IDs."""

    role: str
    columns: tuple[StateColumn, ...]
    key: tuple[str, ...]
    """The key; empty if there is at most one row."""
    nullable: tuple[str, ...]
    """The columns of the key that may be NULL."""
    query: Query
    """The query of the content, with columns in the order of the table."""
    probes: tuple[tuple[str, ...], ...] = ()
    """Sets of columns by which the script looks up rows."""
    sorted: tuple[Sorted, ...] = ()
    """Columns, in the order and with the directions of an index in which readers find the next row."""
    together: tuple[str, ...] = ()
    """Columns by which the first rows are sorted, so that rows with equal values are stored
    together."""
    at_once: float = 1.0
    """The approximate number of rows of the table that one changed row updates."""
    not_null: tuple[str, ...] = ()
    """Columns that never hold NULL."""
    arrays: tuple[str, ...] = ()
    """Columns with long values that hardly compress and change often."""
    elements: tuple[str, ...] = ()
    """Columns with long values that compress well and change often."""
    written: Query | None = None
    """The query as the view has it, for the columns of the view and the key, if hidden columns are in the key of the
    content."""
    historic: bool = False
    """Whether the content also depends on earlier changes; the query then returns its initial
    content."""
    kept: bool = False
    """Whether the content stays when the other states are recomputed."""

    @property
    def layout(self) -> tuple[object, ...]:
        """The facts that are equal for tables that can hold the same rows."""
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
    """The row type of a variable: the type of the rows of a query."""

    role: str
    query: Query


@dataclass(frozen=True)
class StateView:
    """A query over states that runs when the view is read, if no table holds the content."""

    role: str
    columns: tuple[Column, ...]
    keys: tuple[str, ...]
    """Hidden columns after the others, which identify the rows."""
    query: Query
    """The query for all these columns; values may have to be cast to the types of `columns`."""

    @property
    def layout(self) -> tuple[object, ...]:
        """The facts that are equal for views that can show the same rows."""
        return self.columns, self.keys


State: TypeAlias = BagTable | StateTable | Shape | StateView


def pairs_of(role: str, fields: Iterable[tuple[str, str]]) -> Query:
    """Return the shape of a state's changes: columns with their old or new values."""
    names = [(f"{side}_{name}", name) for side, name in fields]
    table = exp.Table(
        this=identifier(role), db=identifier(STATE), alias=exp.TableAlias(this=identifier("s"))
    )
    items = [exp.alias_(reference(name, "s"), identifier(field)) for field, name in names]
    return Query(exp.select(*items).from_(table))
