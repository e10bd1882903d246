"""Ranked enumeration: the states from which the rows of a view are read one after the other in an order."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sorted:
    """A column by which the rows of a state are sorted."""

    column: str
    descending: bool = False
    nulls_first: bool = False
    nullable: bool = False


def direction(descending: bool, nulls_first: bool) -> str:
    """Return DESC and the place of NULLs as in ORDER BY, without what SQL takes by default.

    >>> direction(True, True), direction(False, True)
    (' DESC', ' NULLS FIRST')
    """
    nulls = "" if nulls_first == descending else f" NULLS {'FIRST' if nulls_first else 'LAST'}"
    return f"{' DESC' if descending else ''}{nulls}"


@dataclass(frozen=True)
class RankedNode:
    """A state of a factorized result. For each choice above, some of its rows continue the row of the view.

    These rows have equal values in the columns of the group, and are sorted by the best completion of each.
    """

    state: str
    columns: tuple[tuple[str, str], ...]
    """Variables, and the columns that hold their values."""
    group: tuple[str, ...]
    """The variables that are known from the nodes before."""
    order: tuple[Sorted, ...]
    """The terms of the order that occur in the subtree, and then the other columns of the key."""
    terms: tuple[int, ...]
    """The positions of these terms in the order of the view; their columns are the first columns of the order."""
    below: int
    """The number of nodes in the subtree, which follow directly."""


@dataclass(frozen=True)
class Part:
    """A variable with a factor, as an exact number; a default replaces NULL."""

    variable: str
    factor: str
    default: str | None


@dataclass(frozen=True)
class Term:
    """An expression by which the rows of a view are ordered."""

    descending: bool
    nulls_first: bool
    nodes: tuple[int, ...]
    """The nodes that hold a part of it. Parts of several nodes are numbers that are never NULL, and are added up."""
    parts: tuple[Part, ...]
    """The sum of all parts is the term; a single part may be of any type."""


@dataclass(frozen=True)
class Excerpt:
    """The rows that a view with ORDER BY and LIMIT shows of all rows in the order."""

    skipped: int
    count: int
    with_ties: bool
    """Whether rows that are equal to the last row in the order are also shown."""
    expected: float
    """The expected number of all rows, by the statistics at planning; 0 without statistics."""

    def __str__(self) -> str:
        """Return the rows in words.

        >>> print(Excerpt(20, 10, with_ties=False, expected=4e6))
        the first 10 rows after 20 (of about 4,000,000)
        """
        ties = " with ties" if self.with_ties else ""
        after = f" after {self.skipped:,}" if self.skipped else ""
        of = f" (of about {self.expected:,.0f})" if self.expected else ""
        return f"the first {'row' if self.count == 1 else f'{self.count:,} rows'}{after}{ties}{of}"


@dataclass(frozen=True)
class Ranking:
    """How to read the rows of a factorized result in an order, without joining the rest."""

    order: str
    """The order as SQL for the function format(), with the positions of the view's columns: owners rename columns.
    Empty for an excerpt, which may be sorted by columns that the view does not show."""
    terms: tuple[Term, ...]
    nodes: tuple[RankedNode, ...]
    """The nodes, each before the nodes of its subtree."""
    variables: tuple[str, ...]
    """The variables, in the order of the hidden columns of the content."""
    rows: str
    """The role of the query that shows all rows, with their hidden columns."""
    excerpt: Excerpt | None
    """The rows that the view shows, if not all; it reads them in the order."""
