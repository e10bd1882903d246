"""The maintenance plan: the one value that every strategy produces and everything else consumes.

A plan names no object of the database. It speaks of sources by the relation they capture, and of
state tables by their role; `runtime` gives both their names when it installs the plan.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Any, Literal, TypeAlias

from sqlglot import exp

from orchestrator.algebra import dialect
from orchestrator.algebra.dialect import Tree, identifier, reference
from orchestrator.deltascript.leaves import PROGRAM, SOURCE, STATE

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


class Query:
    """A query over tables, states and variables; two are equal if their texts are."""

    def __init__(self, tree: Tree) -> None:
        """Keeps a tree that nobody else changes."""
        self._tree = tree

    @property
    def tree(self) -> Tree:
        """A copy of the tree."""
        return dialect.copied(self._tree)

    @property
    def states(self) -> frozenset[str]:
        """The roles of the states that it reads."""
        return frozenset(t.name for t in self._tree.find_all(exp.Table) if t.db == STATE)

    def __str__(self) -> str:
        """For people: states by their roles, variables by their names."""

        def bare(node: Tree) -> Tree:
            if isinstance(node, exp.Table) and node.db == STATE:
                node.set("db", None)
            if isinstance(node, exp.Table) and node.db == SOURCE:
                node.set("db", None)
                node.set("this", identifier(node.name.partition("\0")[0]))
            if isinstance(node, exp.Column):
                table = None if node.table == PROGRAM else node.table
                return reference(node.name.partition("\0")[0], table)
            return node

        return dialect.write(self.tree.transform(bare, copy=False), own=True)

    def __eq__(self, other: object) -> bool:
        """By their texts."""
        return isinstance(other, Query) and self._text == other._text

    def __hash__(self) -> int:
        """Of the text."""
        return hash(self._text)

    @cached_property
    def _text(self) -> str:
        return dialect.write(self._tree)


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
    """Whether what it holds depends on the way to it too: its query says what it holds at first."""


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


State: TypeAlias = BagTable | StateTable | Shape | StateView


@dataclass(frozen=True)
class ReplaceContent:
    """Compute the definition again and apply only the difference to a state table."""

    state: str

    notation: str = "replace the content by the result of the query: only differences are written"
    """The step in one line."""


class ChangeKind(str, Enum):
    """What happened to a row: a word in plans, in the names of variables, in stored JSON and in SQL.

    >>> f"rows to {ChangeKind.DELETE} are parts_{ChangeKind.DELETE.done}"
    'rows to delete are parts_deleted'
    """

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"

    __str__ = str.__str__

    @property
    def done(self) -> str:
        """The participle, for rows to which it happened."""
        return f"{self.value.removesuffix('e')}ed"

    @classmethod
    def _missing_(cls, value: object) -> ChangeKind | None:
        # Plans of views that were installed earlier.
        return {"plus": cls.INSERT, "minus": cls.DELETE}.get(str(value))


Nulls: TypeAlias = Literal["none", "some", "all"]


@dataclass(frozen=True)
class ChangeClass:
    """A base-table i-diff (papers/idivm.txt, section 5): a kind of change, held in a variable.

    An update belongs to it if one of the touched columns, given by number, changed.
    """

    variable: str
    kind: ChangeKind
    touched: frozenset[int]
    where: Query | None = None
    """A condition on the fields of the diff that all rows satisfy which matter to the view."""


@dataclass(frozen=True)
class ReadChanges:
    """Read the net changes of a source into variables, one for each class of changes.

    Without classes, the script takes the source for constant: any change has it recomputed.
    """

    source: Source
    shape: str
    """The row type of the variables; the installation makes it."""
    fields: tuple[tuple[int, str], ...]
    """Column numbers, and what they are called behind `old_` and `new_`."""
    classes: tuple[ChangeClass, ...]
    notation: str = ""
    """The step in one line, in relational notation."""


@dataclass(frozen=True)
class Assign:
    """Compute a diff into a variable, if one of the variables that it needs holds anything."""

    variable: str
    shape: str
    query: Query
    needs: tuple[str, ...]
    apart: tuple[tuple[str, str], ...] = ()
    """Variables that hold some of the rows once more, and the condition on these, as SQL over `d`:
    a step that reads no others then runs only if there are any."""
    hashed: bool = False
    """Whether a large diff is joined by hashing alone: it meets far more rows than statistics expect."""
    at_most: int | None = None
    """Up to how many rows it is held, if that is less than others are."""
    lookups: tuple[tuple[str, float], ...] = ()
    """Variables, and the accesses that the query is expected to take for each of their rows, if many."""
    notation: str = ""
    """The step in one line, in relational notation."""


@dataclass(frozen=True)
class Apply:
    """Apply a diff to a state, and keep what changed in a variable if something reads it."""

    kind: ChangeKind | Literal["merge"]
    """A merge inserts the rows whose keys are not there and updates the others."""
    state: str
    query: Query
    keys: tuple[tuple[str, str, Nulls], ...]
    """Columns of the state, what they are called in the diff, which of the diff's are NULL."""
    columns: tuple[str, ...]
    """All columns of the state."""
    sets: tuple[tuple[str, str], ...]
    """Columns and their new values, as SQL over `t`, the stored row, and `d`, the diff; in a merge
    that is a row of the state, called `excluded`."""
    where: str | None
    collect: str | None
    shape: str | None
    needs: tuple[str, ...]
    fields: tuple[tuple[str, str], ...] = ()
    """What is kept of a row that changed, as the shape has it: `old` or `new`, and the column."""
    before: tuple[tuple[str, str], ...] = ()
    """Columns that an update changes, and what holds their stored values in the diff."""
    counted: str | None = None
    """Of a merge that adds: the column that counts what a row stands for. At 0 the row goes."""
    notation: str = ""
    """The step in one line, in relational notation."""


@dataclass(frozen=True)
class Replan:
    """Plan the steps that follow for the rows that they meet, if a variable holds anything."""

    needs: tuple[str, ...]


@dataclass(frozen=True)
class Analyse:
    """Let the planner know how large the states are by now, if a variable holds anything."""

    needs: tuple[str, ...]


Step: TypeAlias = ReplaceContent | ReadChanges | Assign | Apply | Replan | Analyse


def pairs_of(role: str, fields: Iterable[tuple[str, str]]) -> Query:
    """The shape of a state's changes: columns before and after, each with `old` or `new`."""
    names = [(f"{side}_{name}", name) for side, name in fields]
    table = exp.Table(
        this=identifier(role), db=identifier(STATE), alias=exp.TableAlias(this=identifier("s"))
    )
    items = [exp.alias_(reference(name, "s"), identifier(shown)) for shown, name in names]
    return Query(exp.select(*items).from_(table))


@dataclass(frozen=True)
class Probe:
    """Columns of a table, by number, by which the script looks for rows."""

    table: int
    columns: tuple[int, ...]


@dataclass(frozen=True)
class MissingIndex:
    """A probe that no index serves, and how much that costs."""

    probe: Probe
    factor: float
    """How many times as much a change costs as it would with the index."""


@dataclass(frozen=True)
class Cost:
    """What one changed row costs, in index lookups and rows (papers/idivm.txt, section 6)."""

    source: str
    variable: str
    """The variable that holds such changes."""
    kind: ChangeKind
    columns: tuple[str, ...]
    """Those that an update touches."""
    accesses: float
    """All of them."""
    a: float
    """Those of the queries that compute diffs."""
    p: float
    """Rows changed in the joined result, or in what is stored in its place."""
    g: float
    """Rows changed in the view, for each of these."""
    k: float
    """Rows inserted into what is stored besides the view."""
    scans: tuple[tuple[int, tuple[int, ...], float], ...] = ()
    """The tables that are scanned for want of an index, by oid, with the columns of the probe, by number,
    and the accesses that the scan counts as, for however many changed rows."""

    @property
    def scanned(self) -> float:
        """The accesses of all scans."""
        return sum(accesses for _, _, accesses in self.scans)

    @staticmethod
    def of_json(value: Mapping[str, Any]) -> Cost:
        """Return the cost that a plan in the catalog has.

        >>> cost = Cost("t", "v", ChangeKind.UPDATE, ("a",), 1.0, 1.0, 1.0, 1.0, 0.0, ((7, (1,), 9.0),))
        >>> Cost.of_json(_plain(cost)) == cost
        True
        """
        scans = tuple((t, tuple(columns), each) for t, columns, each in value.get("scans", ()))
        kind, columns = ChangeKind(value["kind"]), tuple(value["columns"])
        return Cost(**{**value, "kind": kind, "columns": columns, "scans": scans})


@dataclass(frozen=True)
class Price:
    """What an access took in refreshes, of the many that a plan expects."""

    way: str
    """The way of the plans by which these views were kept."""
    seconds: float
    views: int
    """How many other views measured it, in the median; none if it was the view itself."""
    costs: tuple[Cost, ...] = ()
    """What the plan expected that was measured; empty if as much as today's."""

    @staticmethod
    def of_json(value: Mapping[str, Any]) -> Price:
        """From the form that a plan has in the catalog.

        >>> Price.of_json(_plain(Price("id", 2e-6, 3))) == Price("id", 2e-6, 3)
        True
        """
        return Price(value["way"], value["seconds"], value["views"])


@dataclass(frozen=True)
class Estimate:
    """What one change is expected to cost on average."""

    accesses: float
    """Lookups and rows, by the model."""
    price: Price | None = None
    """What was measured of such plans."""
    access_microseconds: float | None = None
    """What an access counts, where any price is known."""

    @property
    def change_microseconds(self) -> float | None:
        """What the change takes, where any price is known."""
        each = self.access_microseconds
        return None if each is None else self.accesses * each

    def __str__(self) -> str:
        """For people."""
        told = f"a change costs {self.accesses:,.3g} lookups and rows on average"
        if self.access_microseconds is None:
            return f"{told}; what they take was not measured"
        return (
            f"{told}, {self.change_microseconds:,.3g} µs at {self.access_microseconds:,.3g} µs each"
            f" ({self._measured(self.access_microseconds)})"
        )

    def _measured(self, counted: float) -> str:
        if self.price is None:
            return "of such plans nothing was measured"
        found = self.price.seconds * 1e6
        if self.price.views:
            return f"{found:,.3g} µs in the median of {self.price.views} other views"
        more = "" if math.isclose(found, counted) else f", {found:,.3g} µs in fact"
        return f"measured by its own refreshes{more}"


@dataclass(frozen=True)
class Partition:
    """Relations in two parts, by how many of their rows have a value: roles of states."""

    relation: str
    on: tuple[str, ...]
    """The variables whose values these are."""
    epsilon: str
    threshold: str
    """The column of the partitioning's state with N^ε."""
    values: tuple[str, ...]
    """The columns that hold a value, in the states of the degrees and of the heavy values."""
    degrees: str
    degree: str
    """The column of a value's degree."""
    heavy_values: str
    parts: tuple[str, ...]
    """The heavy and the light part, if these are what is stored."""


@dataclass(frozen=True)
class Partitioning:
    """How relations are partitioned, and the state of one row that says what N is.

    Its columns are the threshold base N, the number of rows, and how often values and everything
    were rebalanced; and N^ε.
    """

    state: str
    base: str
    size: str
    minor: str
    major: str
    partitions: tuple[Partition, ...]


@dataclass(frozen=True)
class Walk:
    """The rows of a state, and those of others that extend each of them."""

    state: str
    columns: tuple[tuple[str, str], ...]
    """Variables, and the columns that hold them."""
    nullable: tuple[str, ...]
    """The variables that may be NULL."""
    below: tuple[Walk, ...]

    @property
    def own(self) -> frozenset[str]:
        """The variables of the state."""
        return frozenset(variable for variable, _ in self.columns)

    @property
    def variables(self) -> frozenset[str]:
        """Its own and those below."""
        return self.own.union(*(one.variables for one in self.below))

    @property
    def alone(self) -> Walk:
        """The state by itself."""
        return replace(self, below=())

    def walk(self) -> Iterator[Walk]:
        """Itself and those below."""
        yield self
        for one in self.below:
            yield from one.walk()


@dataclass(frozen=True)
class Enumeration:
    """How the rows of a content that no table holds are found one after the other."""

    variables: tuple[str, ...]
    """Those that tell rows apart, in the order in which they vary, the last one most often."""
    shown: tuple[tuple[str, str], ...]
    """The view's columns that show one."""
    unions: tuple[tuple[Walk, ...], ...]
    """The content is a sum, and each summand a product; where the variables of a state that others
    extend are not all among these, what its rows have below may overlap."""
    streamed: bool = False
    """Whether rows come in the order in which the states have them, one summand after the other; a
    row that several have, or one more than once, is looked up in the others before it is shown."""


@dataclass(frozen=True)
class Reason:
    """Why a strategy was taken or not."""

    strategy: str
    taken: bool
    because: str
    estimate: Estimate | None = None
    """Of a plan that was compared with others."""


@dataclass(frozen=True)
class Initialised:
    """Where the first content of a state was computed, if not all of it in PostgreSQL."""

    state: str
    by: Literal["Spark", "PostgreSQL"]
    because: str = ""

    def __str__(self) -> str:
        """For people."""
        return f"{self.state} by {self.by}" + (f" ({self.because})" if self.because else "")


@dataclass(frozen=True)
class Statistics:
    """What PostgreSQL knows of a table's size, its values and its changes."""

    rows: float
    distinct: Mapping[int, float] = field(default_factory=dict)
    """Numbers of values, by column."""
    changes: Mapping[ChangeKind, float] = field(default_factory=dict)
    """Rows changed so far, by kind."""
    indexed: frozenset[int] = frozenset()
    """Columns with which an index begins."""
    common: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    """The shares of rows that the most common values have, by column and by digest."""
    foreign_keys: tuple[tuple[tuple[int, ...], int, tuple[int, ...]], ...] = ()
    """Columns that refer to a table, by oid, and the columns that they refer to. They count for costs
    alone: a plan that was made without a key is still right with it."""

    @staticmethod
    def of_json(value: Mapping[str, Any]) -> Statistics:
        """From the form that a plan has in the catalog.

        >>> keys = (((2,), 7, (1,)),)
        >>> changes = {ChangeKind.INSERT: 1.0}
        >>> known = Statistics(3.0, {1: 2.0}, changes, frozenset({1}), {1: {"-5": 0.5}}, keys)
        >>> Statistics.of_json(_plain(known)) == known
        True
        """
        distinct = {int(number): values for number, values in value["distinct"].items()}
        common = {int(number): shares for number, shares in value.get("common", {}).items()}
        changes = {ChangeKind(kind): rows for kind, rows in value["changes"].items()}
        indexed = frozenset(value["indexed"])
        foreign_keys = tuple(
            (tuple(columns), target, tuple(referred))
            for columns, target, referred in value.get("foreign_keys", ())
        )
        return Statistics(value["rows"], distinct, changes, indexed, common, foreign_keys)


@dataclass(frozen=True)
class MaintenancePlan:
    """How one view is maintained: what is captured, what is stored, what a refresh does."""

    strategy: str
    maintain: str
    sources: tuple[Source, ...]
    states: tuple[State, ...]
    script: tuple[Step, ...]
    content: str
    """The role of the state that the view reads."""
    inlined: tuple[int, ...]
    """The relations, by oid, whose definitions the plan has in it."""
    time_dependent: tuple[str, ...]
    """Functions whose results change by themselves; with any, every refresh runs the script."""
    settings: tuple[tuple[str, str], ...]
    """Session settings that the content may depend on, as they were when the view was made."""
    reasons: tuple[Reason, ...]
    algebra: str
    """The algebra plan in print, or what it does not model."""
    algebra_tree: dict[str, Any]
    """The same for programs."""
    variables: tuple[tuple[str, str], ...] = ()
    """The variables that hold diffs, and the roles of their row types."""
    probes: tuple[Probe, ...] = ()
    """How the script looks for rows of tables."""
    costs: tuple[Cost, ...] = ()
    """By the statistics of the time of planning."""
    missing: tuple[MissingIndex, ...] = ()
    """The indexes without which a change costs many times as much, here or in a better plan."""
    initialised: tuple[Initialised, ...] = ()
    """Where the first content was computed; empty if all of it by the refresh function."""
    notes: tuple[str, ...] = ()
    """What costs more than the change does, and why."""
    by_lookups: bool = False
    """Whether small diffs go through indexes, in the order in which joins are written, whatever the
    statistics say: where a bound on the cost is promised, no guess of the planner may break it."""
    partitioning: Partitioning | None = None
    """Of a plan over heavy and light parts of relations."""
    statistics: tuple[Statistics | None, ...] = ()
    """What was known of each source when this was planned; by it the same plan is found again."""
    prices: tuple[Price, ...] = ()
    """What was known of accesses then."""
    enumeration: Enumeration | None = None
    """Of a content that no table holds."""
    applied: tuple[int, ...] = ()
    """The sources, by oid, whose changes are applied however many they are."""
    reads: tuple[tuple[int, int, tuple[int, ...]], ...] = ()
    """What the definition and each plain view below it read: view, relation, columns, by number."""
    types: tuple[int, ...] = ()
    """The types, by oid, of the columns that are read."""

    @property
    def way(self) -> str:
        """The strategy, and whether the inputs of aggregations are stored for it."""
        cached = any(state.role == CACHE for state in self.states)
        return f"{self.strategy} with a cache" if cached else self.strategy

    def accesses(self, variable: str) -> float:
        """What a row of a variable that holds changes costs."""
        return next((one.accesses for one in self.costs if one.variable == variable), 1.0)

    def state(self, role: str) -> State:
        """The state of a role."""
        return next(state for state in self.states if state.role == role)

    @property
    def shown(self) -> tuple[str, ...]:
        """The names of the view's columns."""
        state = self.state(self.content)
        if isinstance(state, StateTable):
            return tuple(column.name for column in state.columns if not column.hidden)
        assert isinstance(state, BagTable | StateView)
        return tuple(column.name for column in state.columns)

    @property
    def shown_states(self) -> frozenset[str]:
        """The roles of the tables whose rows the view shows or is computed from."""
        state = self.state(self.content)
        return state.query.states if isinstance(state, StateView) else frozenset({state.role})

    def to_json(self) -> dict[str, Any]:
        """The plan as plain values, for the catalog and `explain --json`."""
        fields = {**_fields(self), "way": self.way}
        # The catalog has a table for the first, and both are numbers for nobody to read.
        del fields["reads"], fields["types"]
        return fields


def _plain(value: Any) -> Any:
    if isinstance(value, Step.__args__):
        return {"step": type(value).__name__, **_fields(value)}
    if isinstance(value, Estimate):
        return {**_fields(value), "change_microseconds": value.change_microseconds}
    if is_dataclass(value):
        return _fields(value)
    if isinstance(value, Query):
        return str(value)
    if isinstance(value, dict):
        return {_plain(key): _plain(one) for key, one in value.items()}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    return value


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
