"""Facts about the type of a column that strategies use."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ColumnType:
    """The type of a column of the plan. A domain is replaced by its base type."""

    name: str
    comparable: bool
    """Whether the `=` of pg_catalog compares values of the type."""
    domain: bool = False
    """Whether the column's declared type is a domain over this type."""
    scale: int | None = None
    """The decimal scale, if the type is numeric and all values have the same scale."""
    plain: bool = False
    """Whether it is a text type whose collation takes only identical texts for equal."""
