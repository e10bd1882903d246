"""The names of the objects of an installed view."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from psycopg.sql import Identifier

from orchestrator.sqltext import checksum, fitted_name


def changed_column(side: str, number: int, column: str) -> str:
    """Return the name of a source's column in the view of its logged changes.

    >>> changed_column("old", 2, "price"), changed_column("new", 7, "x" * 63)
    ('old_price', 'new_7')
    """
    readable = f"{side}_{column}"
    return readable if len(readable.encode()) < 64 else f"{side}_{number}"


@dataclass(frozen=True)
class SourceNames:
    """A captured source as installed: its id, and the names of its columns in the source view by
    number.
    """

    id: int
    columns: Mapping[int, str]
    key: tuple[int, ...] = ()
    """The numbers of the key columns; empty if only their content identifies rows."""

    def changed(self, side: str, number: int) -> str:
        """Return the name of a column in the view of the logged changes."""
        return changed_column(side, number, self.columns[number])

    def log(self, suffix: str = "") -> Identifier:
        """Return the name of an object that belongs to the log."""
        return Identifier("idivm_log", f"s{self.id}{suffix}")


@dataclass(frozen=True)
class Names:
    """The names of the objects of an installed view."""

    id: int
    view: str
    """The unqualified name of the view, which makes the names of state tables readable."""
    sources: Mapping[int, SourceNames] = field(default_factory=dict)
    """The captured sources by the oid of their relation."""
    version: int = 0
    """The version number of the server, for example 180004."""
    completes_order: bool = False
    """Whether the definition view completes open orders of the original query."""

    @property
    def returns_old(self) -> bool:
        """Whether RETURNING can return old rows."""
        return self.version >= 180_000

    @property
    def sorts_before(self) -> bool:
        """Whether PostgreSQL sorts the input of a DISTINCT aggregate below it, by whole rows."""
        return self.version >= 160_000

    @property
    def definition(self) -> Identifier:
        """The definition view."""
        return Identifier("idivm_def", f"v{self.id}")

    @property
    def written(self) -> Identifier:
        """The view of the original query, which exists if the definition differs from it."""
        return Identifier("idivm_def", f"q{self.id}")

    @property
    def clock(self) -> Identifier:
        """The table with one row that holds the time as of which the content is right."""
        return Identifier("idivm_def", f"c{self.id}")

    @property
    def time(self) -> Identifier:
        """The view that computes this row for the current time."""
        return Identifier("idivm_def", f"k{self.id}")

    @property
    def tick(self) -> Identifier:
        """The function that moves the clock to the current time."""
        return Identifier("idivm_state", f"clock_{self.id}")

    @property
    def ticked(self) -> Identifier:
        """The function that says whether rows are due to be compared with another time."""
        return Identifier("idivm_state", f"clock_{self.id}_moved")

    @property
    def quiet(self) -> Identifier:
        """The function that says whether no row is due at a time."""
        return Identifier("idivm_state", f"clock_{self.id}_quiet")

    def state(self, role: str) -> Identifier:
        """Return the name of the state table with a role."""
        return Identifier("idivm_state", self.table(role))

    def table(self, role: str) -> str:
        """Return the unqualified name of a state table."""
        part = "" if role == "content" else f"_{role}"
        if len(part.encode()) > 40:
            short = part.encode()[:30].decode(errors="ignore")
            part = f"{short}_{checksum(part)[:8]}"
        return fitted_name(self.view, f"{part}_{self.id}")

    @property
    def program(self) -> str:
        """The unqualified name of the refresh function."""
        return f"refresh_{self.id}"

    @property
    def reading(self) -> Identifier:
        """The function that decides how a read computes the rows of an on_read view."""
        return Identifier("idivm_state", f"read_{self.id}")

    @property
    def computing(self) -> Identifier:
        """The function that computes the content without the other states."""
        return Identifier("idivm_state", self.content_program)

    @property
    def content_program(self) -> str:
        """The unqualified name of that function."""
        return f"content_{self.id}"

    @property
    def refresh(self) -> Identifier:
        """The refresh function."""
        return Identifier("idivm_state", self.program)
