"""Partitioned relations, and the enumeration of a content that no table holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Partition:
    """A relation divided into two parts by the degrees of its values; tables are given by roles of
    states.
    """

    relation: str
    on: tuple[str, ...]
    """The variables whose values decide."""
    epsilon: str
    threshold: str
    """The column with N^ε in the state of the partitioning."""
    values: tuple[str, ...]
    """The columns with the values, in the states of the degrees and of the heavy values."""
    degrees: str
    degree: str
    """The column with the degree of a value."""
    heavy_values: str
    parts: tuple[str, ...]
    """The heavy and the light part, if these are stored."""


@dataclass(frozen=True)
class Partitioning:
    """The partitions of relations, and the state with a single row that stores N.

    The columns of that row are the threshold base N, the number of rows, the numbers of minor and
    major rebalances, and N^ε.
    """

    state: str
    base: str
    size: str
    minor: str
    major: str
    partitions: tuple[Partition, ...]
    curve: tuple[tuple[str, str, str, str], ...] = ()
    """For each ε the bounds of a change, of the stored rows, and of the time to the next row."""


@dataclass(frozen=True)
class Walk:
    """The rows of a state, and the rows of other states that extend each of them."""

    state: str
    columns: tuple[tuple[str, str], ...]
    """Variables, and the columns that hold their values."""
    nullable: tuple[str, ...]
    """The variables that may be NULL."""
    below: tuple[Walk, ...]

    @property
    def own(self) -> frozenset[str]:
        """The variables of the state."""
        return frozenset(variable for variable, _ in self.columns)

    @property
    def variables(self) -> frozenset[str]:
        """The variables of the state and of all states below."""
        return self.own.union(*(item.variables for item in self.below))

    @property
    def alone(self) -> Walk:
        """The walk over this state only."""
        return replace(self, below=())

    def walk(self) -> Iterator[Walk]:
        """Yield this walk and all walks below it."""
        yield self
        for item in self.below:
            yield from item.walk()


@dataclass(frozen=True)
class Enumeration:
    """How to enumerate the rows of a content that no table holds."""

    variables: tuple[str, ...]
    """The variables that identify rows, in the order in which they vary; the last one varies
    fastest."""
    shown: tuple[tuple[str, str], ...]
    """The columns of the view and the variables that they show."""
    unions: tuple[tuple[Walk, ...], ...]
    """The content is a sum of products. If a state is extended by others and not all its variables
    are in `variables`, the extensions of different rows of the state may overlap."""
    streamed: bool = False
    """Whether rows come in the order of the states, one summand after the other. A row that occurs
    several times is then looked up in the other summands before it is returned."""
