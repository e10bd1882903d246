"""The steps of a Δ-script."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal, TypeAlias

from orchestrator.deltascript.plan.query import Query
from orchestrator.deltascript.plan.tables import Source


@dataclass(frozen=True)
class ReplaceContent:
    """Run the definition again and write only the differences to a state table."""

    state: str

    notation: str = "replace the content by the result of the query: only differences are written"
    """The step as one line."""


class ChangeKind(str, Enum):
    """The kind of a change of a row, as named in plans, variables, stored JSON and SQL.

    >>> f"rows to {ChangeKind.DELETE} are parts_{ChangeKind.DELETE.done}"
    'rows to delete are parts_deleted'
    """

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"

    __str__ = str.__str__

    @property
    def done(self) -> str:
        """The participle, for rows that were changed in this way."""
        return f"{self.value.removesuffix('e')}ed"

    @classmethod
    def _missing_(cls, value: object) -> ChangeKind | None:
        # Stored plans of earlier versions have these names.
        return {"plus": cls.INSERT, "minus": cls.DELETE}.get(str(value))


Nulls: TypeAlias = Literal["none", "some", "all"]


@dataclass(frozen=True)
class ChangeClass:
    """A base-table i-diff (papers/idivm.txt, section 5): a kind of change, held in a variable.

    An update belongs to the class if a touched column changed; touched columns are given by number.
    """

    variable: str
    kind: ChangeKind
    touched: frozenset[int]
    where: Query | None = None
    """A condition on the fields of the diff that every row that matters to the view satisfies."""


@dataclass(frozen=True)
class ReadChanges:
    """Read the net changes of a source into variables, one variable for each class of changes.

    Without classes, the script takes the source for constant, and any change leads to a
    recomputation.
    """

    source: Source
    shape: str
    """The row type of the variables, which the installation creates."""
    fields: tuple[tuple[int, str], ...]
    """Column numbers and field names; the diff has each field with the prefixes `old_` and
    `new_`."""
    classes: tuple[ChangeClass, ...]
    notation: str = ""
    """The step as one line, in relational notation."""
    growing: bool = False
    """Whether rows are only added to the source, so that any other change leads to a
    recomputation."""


@dataclass(frozen=True)
class Assign:
    """Compute a diff into a variable, if any of the variables that it needs holds rows."""

    variable: str
    shape: str
    query: Query
    needs: tuple[str, ...]
    apart: tuple[tuple[str, str], ...] = ()
    """Variables that hold a subset of the rows, and the condition for it, as SQL over `d`. A step
    that only reads the subset runs only if it has rows."""
    hashed: bool = False
    """Whether a large diff is joined only by hash joins, because it matches many more rows than
    statistics predict."""
    at_most: int | None = None
    """The largest number of rows to hold, if it is smaller than the general limit."""
    lookups: tuple[tuple[str, float], ...] = ()
    """Variables, and the accesses that the query is expected to need for each of their rows, if
    many."""
    notation: str = ""
    """The step as one line, in relational notation."""


@dataclass(frozen=True)
class Apply:
    """Apply a diff to a state, and collect the changes in a variable if another step reads them."""

    kind: ChangeKind | Literal["merge"]
    """`merge` inserts rows with new keys and updates the others."""
    state: str
    query: Query
    keys: tuple[tuple[str, str, Nulls], ...]
    """Columns of the state, their names in the diff, and which of their values in the diff are
    NULL."""
    columns: tuple[str, ...]
    """All columns of the state."""
    sets: tuple[tuple[str, str], ...]
    """Columns and their new values, as SQL over `t`, the stored row, and `d`, the diff. In a merge,
    the diff row is a row of the state named `excluded`."""
    where: str | None
    collect: str | None
    shape: str | None
    needs: tuple[str, ...]
    always: bool = False
    """Whether the step runs even if all of these variables are empty."""
    fields: tuple[tuple[str, str], ...] = ()
    """The fields that are collected of a changed row, in the order of the shape: `old` or `new`,
    and the column."""
    before: tuple[tuple[str, str], ...] = ()
    """Columns that an update changes, and the columns of the diff with their stored values."""
    bounded: str | None = None
    """A column of the state. `where` bounds a range of it, and an index contains it behind the keys."""
    counted: str | None = None
    """For a merge that adds: the column with the number of rows that a row represents. At 0, the
    row is deleted."""
    notation: str = ""
    """The step as one line, in relational notation."""


@dataclass(frozen=True)
class Replan:
    """Plan the following steps for their actual numbers of rows, if a variable holds rows."""

    needs: tuple[str, ...]


@dataclass(frozen=True)
class Analyse:
    """Update the planner's statistics of the states, if a variable holds rows."""

    needs: tuple[str, ...]


@dataclass(frozen=True)
class TurnDial:
    """Note how many changes and reads there were, and choose another ε if it would have been cheaper."""

    dial: str
    """The state that holds ε, and counts changes and what their refreshes took since the last look."""
    epsilon: str
    counted: tuple[str, ...]
    """The other columns of this state: the relations and indexes that readers read, those that they scan once, the
    changes, the steps and scans of refreshes, their time, and when to look next."""
    observations: str
    """The state that holds what was observed, and its column."""
    observed: str
    state: str
    """The state of the partitioning, and its column with N."""
    base: str
    read: tuple[str, ...]
    """The states that readers read."""
    scanned: tuple[str, ...]
    """States among these that each read scans once, however many values are heavy."""
    degrees: tuple[tuple[str, str, int], ...]
    """The states of the degrees, their columns, and how many atoms each counts."""
    delta: float
    """δ, the number of light values that a changed row may meet in turn."""
    width: float
    """w, the number of atoms whose rows a value may combine."""
    notation: str = "choose epsilon by the changes and reads since the last choice"
    """The step as one line."""


Step: TypeAlias = ReplaceContent | ReadChanges | Assign | Apply | Replan | Analyse | TurnDial
