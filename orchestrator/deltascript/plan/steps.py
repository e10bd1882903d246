"""The steps of a Δ-script."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal, TypeAlias

from orchestrator.deltascript.plan.query import Query
from orchestrator.deltascript.plan.tables import Source


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
