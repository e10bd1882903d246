"""How relations are partitioned, and how the rows of a content that no table holds are found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace


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
        return self.own.union(*(item.variables for item in self.below))

    @property
    def alone(self) -> Walk:
        """The state by itself."""
        return replace(self, below=())

    def walk(self) -> Iterator[Walk]:
        """Itself and those below."""
        yield self
        for item in self.below:
            yield from item.walk()


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
