"""The maintenance plan: the one value that every strategy produces and everything else consumes.

A plan names no object of the database. It speaks of sources by the relation they capture, and of
state tables by their role; `runtime` gives both their names when it installs the plan.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, TypeAlias


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
class StateTable:
    """A table behind the view: its role, its visible columns and its identity."""

    role: str
    columns: tuple[Column, ...]
    identity: RowIdentity


@dataclass(frozen=True)
class ReplaceContent:
    """Compute the definition anew and apply only the difference to a state table."""

    state: str


Step: TypeAlias = ReplaceContent


@dataclass(frozen=True)
class Reason:
    """Why a strategy was taken or not."""

    strategy: str
    taken: bool
    because: str


@dataclass(frozen=True)
class MaintenancePlan:
    """How one view is maintained: what is captured, what is stored, what a refresh does."""

    strategy: str
    maintain: str
    sources: tuple[Source, ...]
    states: tuple[StateTable, ...]
    script: tuple[Step, ...]
    content: str
    """The role of the state table that the view reads."""
    inlined: tuple[int, ...]
    """The plain views, by oid, whose queries the plan has expanded."""
    moving: tuple[str, ...]
    """Functions whose results change by themselves; with any, every refresh runs the script."""
    settings: tuple[tuple[str, str], ...]
    """Session settings that the content may depend on, as they were when the view was made."""
    reasons: tuple[Reason, ...]
    algebra: str
    """The algebra plan in print, or what it does not model."""
    algebra_tree: dict[str, Any]
    """The same for programs."""

    def state(self, role: str) -> StateTable:
        """The state table of a role."""
        return next(state for state in self.states if state.role == role)

    def to_json(self) -> dict[str, Any]:
        """The plan as plain values, for the catalog and `explain --json`."""
        value = asdict(self)
        value["script"] = [{"step": type(step).__name__, **asdict(step)} for step in self.script]
        return value
