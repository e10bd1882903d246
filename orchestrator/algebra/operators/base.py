"""The interface of all operators of the algebra."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from orchestrator.algebra.columns import Column, Symbols
from orchestrator.algebra.dependencies import Columns, Dependencies, Keys, minimal_keys
from orchestrator.algebra.scalar import Scalar
from orchestrator.caching import cached_property

if TYPE_CHECKING:
    from orchestrator.algebra.dialect import Tree
    from orchestrator.algebra.rendering import Block, Renderer

Self = TypeVar("Self", bound="Operator")


class Operator(ABC):
    """An immutable node of a plan. Its result is a bag of rows.

    A subclass is a frozen dataclass that holds its inputs and parameters. Facts about its rows
    (keys, dependencies, columns that are never NULL) are derived from the inputs and computed once.
    """

    symbol: ClassVar[str]
    """How the paper writes the operator."""
    is_reference: ClassVar[bool] = False
    """Whether other operators of the plan may have the same input."""

    def __init_subclass__(cls, **arguments: Any) -> None:
        """Keep the cached hash and comparison, which a dataclass would replace by its own."""
        super().__init_subclass__(**arguments)
        cls.__hash__ = Operator.__hash__  # type: ignore[method-assign]
        cls.__eq__ = Operator.__eq__  # type: ignore[method-assign]

    def __eq__(self, other: object) -> bool:
        """Compare class and fields; compare fields only if the hashes are equal."""
        if type(self) is not type(other):
            return False
        if self is other or self.__dict__.get("_equal") is other:
            return True
        equal = self._hash == other._hash and all(
            getattr(self, name) == getattr(other, name) for name in self._compared
        )
        if equal:
            # References may share a subplan; without this note it would be compared again for each
            # of them.
            self.__dict__["_equal"] = other
        return equal

    def __hash__(self) -> int:
        """Return the hash of class and fields.

        It is cached: otherwise each lookup of an operator would hash the whole plan.
        """
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((type(self), *(getattr(self, name) for name in self._compared)))

    @property
    def is_never_empty(self) -> bool:
        """Whether there is a row even if the inputs have none."""
        return False

    @property
    def _compared(self) -> tuple[str, ...]:
        return tuple(field.name for field in fields(self) if field.compare)  # type: ignore[arg-type]

    @property
    @abstractmethod
    def children(self) -> tuple[Operator, ...]:
        """The inputs, from left to right."""

    @abstractmethod
    def with_children(self: Self, children: tuple[Operator, ...]) -> Self:
        """Return the same operator over other inputs."""

    @property
    @abstractmethod
    def columns(self) -> tuple[Column, ...]:
        """The columns of the result."""

    @property
    def scalars(self) -> tuple[Scalar, ...]:
        """The expressions of this operator, without those of its inputs."""
        return ()

    def map_scalars(self: Self, change: Callable[[Scalar], Scalar]) -> Self:
        """Return the operator with each of its expressions changed."""
        return self

    @property
    def inner(self) -> tuple[Operator, ...]:
        """The plans that the operator evaluates for each row of its input."""
        return ()

    @property
    def mentions(self) -> Columns:
        """The columns that the operator names outside its expressions, for example grouping
        columns.
        """
        return frozenset()

    @property
    @abstractmethod
    def label(self) -> str:
        """The operator and its parameters as one line of text."""

    @abstractmethod
    def identified(self: Self, inputs: tuple[Identified, ...], symbols: Symbols) -> Identified:
        """Apply the ID inference rule of the operator (papers/idivm.txt, table 1).

        The inputs show their IDs. The result shows its own IDs; missing ID columns are added to it.
        """

    @abstractmethod
    def render(self, renderer: Renderer, outer: Mapping[Column, Tree]) -> Block:
        """Render the operator as SQL; `outer` holds the names of the columns of surrounding
        queries.
        """

    @property
    def references(self) -> Columns:
        """The columns that the operator itself reads."""
        return self.mentions.union(*(scalar.references for scalar in self.scalars))

    @cached_property
    def outer_columns(self) -> Columns:
        """The columns that the plan reads from a surrounding query: no operator below produces
        them.
        """
        own = self.references.difference(*(child.columns for child in self.children))
        return own.union(*(child.outer_columns for child in self.children))

    @cached_property
    def not_null(self) -> Columns:
        """The columns that never hold NULL."""
        return self._not_null() & frozenset(self.columns)

    @cached_property
    def dependencies(self) -> Dependencies:
        """The functional dependencies that hold in every result."""
        inherited = self._dependencies()
        whole = frozenset(self.columns)
        key_dependencies = [(key, whole) for key in self._keys()]
        return inherited | Dependencies.of(key_dependencies)

    @cached_property
    def keys(self) -> Keys:
        """Sets of columns on which no two rows agree; an empty set means at most one row."""
        return minimal_keys(self._keys(), self.dependencies)

    def _not_null(self) -> Columns:
        return frozenset()

    def _dependencies(self) -> Dependencies:
        return Dependencies()

    def _keys(self) -> Keys:
        return frozenset()

    def with_outer(self, replacements: Mapping[Column, Scalar]) -> Operator:
        """Return the plan with columns of the surrounding query replaced."""
        if not self.outer_columns & replacements.keys():
            return self
        children = tuple(child.with_outer(replacements) for child in self.children)
        return self.with_children(children).map_scalars(
            lambda scalar: scalar.substitute(replacements)
        )


@dataclass(frozen=True)
class Identified:
    """A plan together with the columns that identify its rows."""

    operator: Operator
    ids: tuple[Column, ...]


@dataclass(frozen=True)
class SortKey:
    """One column of an ORDER BY."""

    column: Column
    descending: bool = False
    nulls_first: bool = False

    def __str__(self) -> str:
        """Return the sort key as in ORDER BY."""
        nulls = "" if self.nulls_first == self.descending else " nulls "
        position = nulls and ("first" if self.nulls_first else "last")
        return f"{self.column}{' desc' if self.descending else ''}{nulls}{position}"


def listed(items: object) -> str:
    """Return the texts of some values, separated by commas.

    >>> listed((1, 2))
    '1, 2'
    """
    return ", ".join(map(str, items))  # type: ignore[call-overload]
