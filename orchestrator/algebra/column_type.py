"""What strategies know of the type of a column."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ColumnType:
    """The type of a column of the plan, without domains."""

    name: str
    comparable: bool
    """Whether `=` of pg_catalog is how values of the type compare."""
    domain: bool = False
    """Whether the column's own type is a domain over this one."""
    scale: int | None = None
    """How many places all values show, if it is a numeric of which they show the same number."""
    plain: bool = False
    """Whether it is a text of which equal values are the same, as no collation says otherwise."""
