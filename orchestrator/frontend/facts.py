"""Facts of the catalog about relations, columns, keys and functions, as immutable values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True)
class RelationColumn:
    """A column of a relation."""

    attnum: int
    name: str
    type: str
    """The type as `format_type` writes it."""
    type_oid: int
    plain_type: str
    """The type without domains."""
    not_null: bool
    """Whether the column never holds NULL. NOT NULL of a domain does not count, because an empty
    scalar subquery bypasses it."""
    collation: str | None
    deterministic: bool
    """False for a collation in which different texts may be equal."""
    generated: str
    """`s` stored, `v` virtual, or empty."""
    identity: str
    """`a` always, `d` by default, or empty."""
    equality: str | None
    """A name for the default equality of the type; columns with the same name compare in the same
    way by `=`."""
    exact: bool
    """Whether equal values always look the same: true for integer, false for numeric (1.0,
    1.00)."""
    builtin_equality: bool
    """Whether keys of this type use the `=` of pg_catalog."""
    expression: str | None = None
    """For a virtual generated column: the expression that computes it when it is read."""
    reads: tuple[int, ...] = ()
    """The columns that the expression reads."""
    length: int = -1
    """The bytes of a value, or -1 if the length varies."""
    alignment: int = 1
    """The alignment of the values in a row, in bytes."""


@dataclass(frozen=True)
class Key:
    """Columns that are unique at the end of every statement and never NULL."""

    index: int
    name: str
    columns: tuple[int, ...]
    primary: bool
    width: int
    """The estimated bytes of a key value, by the types."""


@dataclass(frozen=True)
class UniqueIndex:
    """A unique index of a table, also over expressions, over some of the rows, or checked at the commit."""

    name: str
    deferrable: bool
    nulls_equal: bool
    """Whether two NULLs count as equal."""
    condition: str | None
    """Which rows the index contains, in PostgreSQL's words."""
    terms: tuple[str, ...]
    """The indexed expressions with their collations, in PostgreSQL's words."""
    types: tuple[int, ...]
    columns: tuple[str, ...]
    """The columns that the index reads."""


@dataclass(frozen=True)
class PartitionBounds:
    """The rows that a partitioned table or a partition accepts: each satisfies at least one of the bounds."""

    bounds: tuple[str, ...]
    """Conditions in PostgreSQL's words."""
    columns: tuple[str, ...]
    """The columns of the partition keys, without those in expressions."""


@dataclass(frozen=True)
class Index:
    """An index, by oid, and the number of its first column (0 for an expression)."""

    oid: int
    table: int
    first_column: int


@dataclass(frozen=True)
class TableStatistics:
    """PostgreSQL's statistics of a table."""

    table: int
    rows: float
    updated: float
    deleted: float
    inserted: float
    distinct_values: dict[str, float]
    """The number of distinct values, by column number."""
    common_values: dict[str, dict[str, float]]
    """The shares of rows with the most common values, by column number and digest of the value."""
    null_shares: dict[str, float]
    """The shares of rows with NULL, by column number."""


@dataclass(frozen=True)
class ForeignKey:
    """A reference from columns of one relation to a key of another."""

    name: str
    columns: tuple[int, ...]
    target: int
    target_columns: tuple[int, ...]
    validated: bool
    deferrable: bool
    period: bool
    """Whether the last column is a range that several rows of the other relation may cover together."""

    @property
    def is_trusted(self) -> bool:
        """Whether each row without NULL refers to a row of the other relation, after each statement."""
        return self.validated and not self.deferrable and not self.period


_KINDS = {
    "r": "table",
    "p": "partitioned table",
    "v": "view",
    "m": "materialized view",
    "f": "foreign table",
    "S": "sequence",
}


@dataclass(frozen=True)
class Relation:
    """A table, a view or a similar relation."""

    oid: int
    schema: str
    name: str
    relkind: str
    persistence: str
    """`p` permanent, `u` unlogged, `t` temporary."""
    owner: str
    row_security: bool
    system: bool
    """Whether the relation belongs to PostgreSQL, so that no trigger can be created on it."""
    columns: tuple[RelationColumn, ...]
    keys: tuple[Key, ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    children: tuple[int, ...] = ()
    """Partitions or inheritance children, one level down."""
    parents: tuple[int, ...] = ()
    is_partition: bool = False
    maintained: int | None = None
    """The number of the maintained view that users read under this name."""
    query_order: tuple[int, ...] = ()
    """For a maintained view that users read as a table, the numbers of its columns in the order of the query."""
    captured_key: frozenset[int] | None = None
    """The columns that identify captured rows; empty if their content does; None if the relation is
    not captured yet."""
    captured_columns: frozenset[int] = frozenset()
    """The columns that are already captured."""
    functions: tuple[FunctionUse, ...] = ()
    """The functions that the expressions of virtual generated columns call."""
    computed: bool = False
    """Whether no table holds the rows, so that their changes cannot be captured."""

    @property
    def kind(self) -> str:
        """The kind of the relation in words."""
        if self.parents:
            return "partition" if self.is_partition else "child"
        return _KINDS.get(self.relkind, self.relkind)

    @property
    def qualified(self) -> str:
        """Schema and name, for messages."""
        return f"{self.schema}.{self.name}"

    @property
    def is_clock(self) -> bool:
        """Whether the relation is the clock of a maintained view, a table with one row."""
        return self.schema == "idivm_def" and self.relkind == "r"

    @property
    def has_children(self) -> bool:
        """Whether other tables inherit from this one; its keys do not hold across them."""
        return self.relkind == "r" and bool(self.children)

    @property
    def usable_keys(self) -> tuple[Key, ...]:
        """The keys that hold for all rows that a query of the relation reads, the best key first.

        The primary key comes first, then the narrowest key: fewest bytes, then fewest columns.
        """
        if self.has_children:
            return ()
        return tuple(
            sorted(
                self.keys,
                key=lambda key: (not key.primary, key.width, len(key.columns), key.name),
            )
        )

    @property
    def plan_keys(self) -> tuple[Key, ...]:
        """The usable keys for a plan, starting with the key by which changes are captured.

        A table that is captured without a key will be captured by the first of these.
        """
        captured = self.captured_key
        if not captured:
            return self.usable_keys
        return tuple(sorted(self.usable_keys, key=lambda key: captured != frozenset(key.columns)))

    def column(self, attnum: int) -> RelationColumn:
        """Return the column with this number."""
        return next(column for column in self.columns if column.attnum == attnum)


class Volatility(Enum):
    """How long the result of a function stays the same for the same arguments."""

    IMMUTABLE = "immutable"
    SETTINGS = "settings"
    """Stable, and depends only on session settings such as the time zone."""
    TIME_DEPENDENT = "moving"
    """Stable within a statement, but possibly different in the next one."""
    VOLATILE = "volatile"


@dataclass(frozen=True)
class FunctionUse:
    """A function that a query calls, directly or through an operator, an aggregate or a cast."""

    name: str
    """The name for messages: `now()`, `public.f()`."""
    volatility: Volatility
    schema: str = "pg_catalog"
    proname: str = ""
    role: str = "function"
    """`function`, `aggregate`, `window`, `operator`, `cast`, `value` or `sampling`."""
    returns_set: bool = False
    returns_row: bool = False
    """Whether a call returns a row of several columns."""
    fields: tuple[str, ...] = ()
    """The names of these columns, if they are the same for every call."""
    row_types: tuple[int, ...] = ()
    """The composite types, as relations, of rows that calls return."""
    is_lost_cast: bool = False
    """Whether a call is printed as a cast that was dropped or has another function now."""
    is_by_domain: bool = False
    """Whether a call has an argument of a domain type, which a program replaces by the base
    type."""


@dataclass(frozen=True)
class OutputColumn:
    """A column of a view's result."""

    name: str
    type: str
    type_oid: int
    plain_type: str
    collation: str | None


@dataclass(frozen=True)
class UsedRelation:
    """A relation in the query of a view, and the columns that the query reads."""

    oid: int
    columns: frozenset[int]
    whole_row: bool
    system_columns: frozenset[str]


@dataclass(frozen=True)
class Read:
    """The columns of a relation that the query of a view reads; empty if any column is enough."""

    through: int
    relation: int
    columns: tuple[int, ...]


@dataclass(frozen=True)
class StoredView:
    """A view as PostgreSQL stores it: its text and the objects that its query uses."""

    oid: int
    text: str
    """`pg_get_viewdef` under an empty search path."""
    columns: tuple[OutputColumn, ...]
    uses: tuple[UsedRelation, ...]
    functions: tuple[FunctionUse, ...]
