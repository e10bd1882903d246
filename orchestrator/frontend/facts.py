"""What the catalog says of relations, columns, keys and functions: immutable values."""

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
    """Whether the column can hold no NULL. A domain's NOT NULL does not count: an empty scalar
    subquery gets past it."""
    collation: str | None
    deterministic: bool
    """False for a collation under which different texts may be equal."""
    generated: str
    """`s` stored, `v` virtual, or empty."""
    identity: str
    """`a` always, `d` by default, or empty."""
    equality: str | None
    """The default equality of the type; columns that name the same one compare alike by `=`."""
    exact: bool
    """Whether values that are equal look equal too: true of integer, false of numeric (1.0, 1.00)."""
    builtin_equality: bool
    """Whether `=` of pg_catalog is the equality that keys of this type use."""
    expression: str | None = None
    """Of a virtual generated column: the expression that computes it whenever it is read."""
    reads: tuple[int, ...] = ()
    """The columns that this expression reads."""
    length: int = -1
    """The bytes of a value, or -1 where values differ in length."""
    alignment: int = 1
    """What the place of such a value in a row is a multiple of."""


@dataclass(frozen=True)
class Key:
    """Columns that are unique at the end of every statement and never NULL."""

    index: int
    name: str
    columns: tuple[int, ...]
    primary: bool
    width: int
    """The bytes of a key value, as far as the types tell."""


@dataclass(frozen=True)
class Index:
    """An index, by oid, and the number of its first column (0 for an expression)."""

    oid: int
    table: int
    first_column: int


@dataclass(frozen=True)
class TableStatistics:
    """What PostgreSQL's statistics say of a table."""

    table: int
    rows: float
    updated: float
    deleted: float
    inserted: float
    distinct_values: dict[str, float]
    """Column numbers, and how many values they have."""
    common_values: dict[str, dict[str, float]]
    """Column numbers, and the shares of rows that their most common values have, by digest."""


@dataclass(frozen=True)
class ForeignKey:
    """A reference from columns of one relation to a key of another."""

    name: str
    columns: tuple[int, ...]
    target: int
    target_columns: tuple[int, ...]
    validated: bool
    deferrable: bool


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
    """A table, a view or something like them."""

    oid: int
    schema: str
    name: str
    relkind: str
    persistence: str
    """`p` permanent, `u` unlogged, `t` temporary."""
    owner: str
    row_security: bool
    system: bool
    """A relation of PostgreSQL itself, on which no trigger can be created."""
    columns: tuple[RelationColumn, ...]
    keys: tuple[Key, ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    children: tuple[int, ...] = ()
    """Partitions or inheritance children, one level down."""
    parents: tuple[int, ...] = ()
    is_partition: bool = False
    maintained: int | None = None
    """The number of the maintained view that users read as this relation."""
    captured_key: frozenset[int] | None = None
    """The columns that captured rows are told apart by, none where it is by content; None if they
    are not captured yet."""
    captured_columns: frozenset[int] = frozenset()
    """The columns that are captured already."""
    functions: tuple[FunctionUse, ...] = ()
    """What the expressions of virtual generated columns call."""
    computed: bool = False
    """Whether it is one whose rows no table holds, so that nothing tells of their changes."""

    @property
    def kind(self) -> str:
        """The kind in words."""
        if self.parents:
            return "partition" if self.is_partition else "child"
        return _KINDS.get(self.relkind, self.relkind)

    @property
    def qualified(self) -> str:
        """Schema and name, for messages."""
        return f"{self.schema}.{self.name}"

    @property
    def has_children(self) -> bool:
        """Whether other tables inherit from this one; its keys do not hold across them."""
        return self.relkind == "r" and bool(self.children)

    @property
    def usable_keys(self) -> tuple[Key, ...]:
        """The keys that hold for all rows that a query of the relation sees, the best first.

        The primary key comes first, then the narrowest: fewest bytes, fewest columns.
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
        """The usable keys for a plan, first the one that changes are captured by."""
        captured = self.captured_key
        if captured is None:
            return self.usable_keys
        if not captured:
            return ()
        return tuple(sorted(self.usable_keys, key=lambda key: captured != frozenset(key.columns)))

    def column(self, attnum: int) -> RelationColumn:
        """The column with this number."""
        return next(column for column in self.columns if column.attnum == attnum)


class Volatility(Enum):
    """How long the result of a function for the same arguments stays."""

    IMMUTABLE = "immutable"
    SETTINGS = "settings"
    """Stable, and depends on nothing but session settings such as the time zone."""
    TIME_DEPENDENT = "moving"
    """Stable within a statement, and may be another one in the next."""
    VOLATILE = "volatile"


@dataclass(frozen=True)
class FunctionUse:
    """A function that a query calls, also through an operator, an aggregate or a cast."""

    name: str
    """As a message shows it: `now()`, `public.f()`."""
    volatility: Volatility
    schema: str = "pg_catalog"
    proname: str = ""
    role: str = "function"
    """`function`, `aggregate`, `window`, `operator`, `cast`, `value` or `sampling`."""
    returns_set: bool = False
    returns_row: bool = False
    """Whether some call returns a row of several columns."""
    fields: tuple[str, ...] = ()
    """The names of these columns, if they are the same for every call."""
    row_types: tuple[int, ...] = ()
    """The composite types, as relations, that calls return rows of."""
    is_lost_cast: bool = False
    """Whether some call is printed as a cast, and the cast has another function by now or is gone."""
    is_by_domain: bool = False
    """Whether some call is for a domain, in whose place a program has the base type."""


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
    """A relation in a view's own query, with the columns that the query reads."""

    oid: int
    columns: frozenset[int]
    whole_row: bool
    system_columns: frozenset[str]


@dataclass(frozen=True)
class Read:
    """What the query of one view reads of one relation; no columns where any will do."""

    through: int
    relation: int
    columns: tuple[int, ...]


@dataclass(frozen=True)
class StoredView:
    """A view as PostgreSQL keeps it: its text and what its own query uses."""

    oid: int
    text: str
    """`pg_get_viewdef` under an empty search path."""
    columns: tuple[OutputColumn, ...]
    uses: tuple[UsedRelation, ...]
    functions: tuple[FunctionUse, ...]
