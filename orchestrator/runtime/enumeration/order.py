"""The order in which the rows of a view are enumerated, and the columns by which they can be found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from psycopg import Connection
from psycopg.sql import SQL, Composable, Composed, Identifier

from orchestrator.catalog import objects as catalog_objects
from orchestrator.deltascript.names import Names
from orchestrator.deltascript.plan import MaintenancePlan, Query, StateView, Walk
from orchestrator.errors import UsageError

Known: TypeAlias = Mapping[str, Composable]
"""Variables, and the SQL expressions of their values."""


@dataclass(frozen=True)
class Order:
    """The facts about a view that are needed to find its rows one after the other."""

    names: Names
    content: Identifier
    visible: tuple[str, ...]
    keys: Mapping[str, str]
    """The free variables in order, and the columns of the content that hold them."""
    columns: Mapping[str, str]
    """The view's columns that show a free variable."""
    types: Mapping[str, str]
    unions: tuple[tuple[Walk, ...], ...]
    query: Query
    """The query of the content."""
    streamed: bool = False
    """Whether the rows come in the order of the states (`streaming`)."""

    @property
    def walks(self) -> Iterator[Walk]:
        """Yield all states that the enumeration reads."""
        return (walk for trees in self.unions for tree in trees for walk in tree.walk())

    def is_heavy(self, walk: Walk) -> bool:
        """Return whether a state has values of bound variables, so that their rows may overlap."""
        return bool(walk.below) and not walk.own <= self.keys.keys()


def order_of(connection: Connection[Any], names: Names, plan: MaintenancePlan) -> Order | None:
    """Return the enumeration order of a view, or None if a table holds its rows or its plan gives no order."""
    enumeration = plan.enumeration
    if enumeration is None:
        return None
    content = names.state(plan.program.content)
    state = plan.program.state(plan.program.content)
    assert isinstance(state, StateView)
    keys = dict(zip(enumeration.variables, state.keys, strict=True))
    declared = catalog_objects.declared(connection, content)
    return Order(
        names,
        content,
        tuple(column.name for column in state.columns),
        keys,
        dict(enumeration.shown),
        {variable: declared[column] for variable, column in keys.items()},
        enumeration.unions,
        state.query,
        enumeration.streamed,
    )


def as_text(value: Composable, type_: str) -> Composed:
    """Return the text of a value of a type.

    The owner of a type may create a cast to text, which would be called with the rights of the reader.
    """
    if _is_builtin(type_):
        return SQL("{}::text").format(value)
    return SQL("CASE WHEN num_nulls({0}) = 0 THEN concat({0}) END").format(value)


def from_text(text: Composable, type_: str) -> Composed:
    """Return the value of a type with a text, which is no constant, without a cast of the type's owner."""
    if _is_builtin(type_):
        return SQL("{}::{}").format(text, SQL(type_))
    return SQL("(SELECT r.v FROM jsonb_to_record(jsonb_build_object('v', {})) AS r (v {}))").format(
        text, SQL(type_)
    )


def _is_builtin(type_: str) -> bool:
    """Return whether a type, as PostgreSQL writes it under our search path, is its own.

    >>> _is_builtin('text COLLATE pg_catalog."default"'), _is_builtin("public.citext")
    (True, False)
    """
    return "." not in type_.partition(" COLLATE ")[0]


def variables_of(order: Order, prefix: Mapping[str, object]) -> tuple[str, ...]:
    """Return the variables that the columns of a prefix show."""
    unknown = [name for name in prefix if name not in order.columns]
    if unknown:
        known = ", ".join(order.columns)
        raise UsageError(
            f"Rows cannot be enumerated by {unknown[0]}, which is no grouping column; those are {known}."
        )
    return tuple(order.columns[name] for name in prefix)


def fixed_by(order: Order, prefix: Mapping[str, object]) -> tuple[str, ...]:
    """Return the variables that a prefix fixes."""
    fixed = variables_of(order, prefix)
    for asked, free in _missing(order, fixed):
        needed = ", ".join(n for n, v in order.columns.items() if v in free) or "another column"
        raise UsageError(f"Rows are not found by {asked} alone; give a value of {needed} as well.")
    return fixed


def is_through_hidden(order: Order, prefix: Mapping[str, object]) -> bool:
    """Return whether the values of a prefix are only found by a variable that no column shows.

    Keys may determine such a variable.
    """
    visible = frozenset(order.columns.values())
    return any(not free & visible for _, free in _missing(order, variables_of(order, prefix)))


def _missing(order: Order, fixed: Sequence[str]) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield columns by which rows are not found, each with the variables whose values would be needed."""
    for walk in order.walks:
        free = frozenset(v for v, _ in walk.columns if v in order.keys and v not in fixed)
        below = walk.variables - walk.own
        asked = [n for n, v in order.columns.items() if v in fixed and v in below]
        if free and asked and not order.is_heavy(walk):
            yield asked[0], free
