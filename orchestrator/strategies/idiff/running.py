"""Windows whose functions run along their order, so that rows follow from the row before them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlglot import exp

from orchestrator.algebra.columns import Column
from orchestrator.algebra.ids import ids_of
from orchestrator.algebra.operators.base import SortKey
from orchestrator.algebra.operators.group import Aggregate
from orchestrator.algebra.operators.window import Window
from orchestrator.algebra.scalar import Scalar, unwrapped
from orchestrator.engine.composer import Composer

RUNNING = {
    "row_number": "coalesce(b, 0) + w",
    "rank": "coalesce(b, 0) + w",
    "dense_rank": "coalesce(b, 0) + w",
    "count": "coalesce(b, 0) + w",
    "sum": "CASE WHEN b IS NULL THEN w WHEN w IS NULL THEN b ELSE b + w END",
    "min": "least(b, w)",
    "max": "greatest(b, w)",
    "bool_and": "coalesce(b AND w, b, w)",
    "every": "coalesce(b AND w, b, w)",
    "bool_or": "coalesce(b OR w, b, w)",
    "first_value": "CASE WHEN t THEN b ELSE w END",
}
"""The value of a function in a row: `w` over the span, `b` in the row before the span if there is one (`t`)."""

NEIGHBORS = ("lag", "lead")

_OF_PLACES = frozenset({"row_number", "rank", "dense_rank", *NEIGHBORS})
"""Functions that no frame matters to."""

_UP_TO_NOW = frozenset(
    {"ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW", "ROWS UNBOUNDED PRECEDING"}
)

_LIMITS = {
    "smallint": ("-32768", "32767"),
    "integer": ("-2147483648", "2147483647"),
    "bigint": ("-9223372036854775808", "9223372036854775807"),
    **dict.fromkeys(("numeric", "real", "double precision"), ("-Infinity", "NaN")),
    **dict.fromkeys(
        ("date", "timestamp without time zone", "timestamp with time zone"),
        ("-infinity", "infinity"),
    ),
}
"""The least and the greatest value of types that spans are ordered by."""

_FARTHEST = 100
"""Rows that `lag` and `lead` look away at most; beyond them, a partition is recomputed."""


@dataclass(frozen=True)
class Running:
    """A window whose functions run along its order."""

    operator: Window
    upto: Aggregate | None
    """How many rows there are up to a row and its peers, for the rank of the next row."""
    key: SortKey
    """The first column of the order, by which spans are bounded."""
    limits: tuple[Scalar, Scalar]
    """The least and the greatest value of its type."""
    back: int
    """How many rows `lag` looks back."""
    ahead: int
    """How many rows `lead` looks ahead."""

    @property
    def stored(self) -> Window:
        """What is stored."""
        further = (self.upto,) if self.upto is not None else ()
        return replace(self.operator, functions=(*self.operator.functions, *further))

    @property
    def nullable(self) -> bool:
        """Whether the first column of the order may be NULL."""
        return self.key.column not in self.operator.input.not_null

    @property
    def may_end(self) -> bool:
        """Whether the values beyond the last changed row stay if as many rows come as go."""
        functions = self.operator.functions
        return all(
            function.function in ("row_number", "rank", *NEIGHBORS)
            or (function.function == "count" and not function.arguments and function.filter is None)
            for function in functions
        )

    @property
    def read(self) -> tuple[Column, ...]:
        """The columns that decide about the values of the functions, and the IDs."""
        columns = (*ids_of(self.operator), *self.operator.partition)
        columns = (*columns, *(key.column for key in self.operator.order))
        called = frozenset[Column]().union(*(f.call.references for f in self.operator.functions))
        rest = (column for column in self.operator.input.columns if column in called)
        return tuple(dict.fromkeys((*columns, *rest)))


def spanned(operator: Window, composer: Composer) -> Running | None:
    """Return how a window runs along its order, if all of its functions do."""
    if not operator.order or not all(
        _runs(function, operator, composer) for function in operator.functions
    ):
        return None
    key = operator.order[0]
    name = _type(key.column, composer)
    ranks = any(function.function == "rank" for function in operator.functions)
    if name not in _LIMITS or (ranks and operator.frame is not None):
        return None
    upto = None
    if ranks:
        column = Column(composer.symbols.fresh("idivm_upto"), "bigint")
        upto = Aggregate(column, Scalar.read("count(*)"))
    low, high = (Scalar.read(f"'{text}'::{name}") for text in _LIMITS[name])
    back, ahead = (
        max(
            (
                _distance(function) or 0
                for function in operator.functions
                if function.function == which
            ),
            default=0,
        )
        for which in NEIGHBORS
    )
    running = Running(operator, upto, key, (low, high), back, ahead)
    if (back or ahead) and running.nullable:
        return None
    known = [composer.types.get(column.symbol) for column in running.read]
    if not all(type_ is not None and type_.comparable for type_ in known):
        return None
    if any(_type(column, composer).endswith("[]") for column in operator.input.columns):
        # The change of such rows is not netted.
        return None
    return running


def _type(column: Column, composer: Composer) -> str:
    known = composer.types.get(column.symbol)
    name = known.name if known is not None else column.type or ""
    return name if name.endswith("[]") else name.partition("(")[0]


def _runs(function: Aggregate, window: Window, composer: Composer) -> bool:
    """Return whether the value of a function follows from the row before and the rows from there."""
    name = function.function
    if function.call.subqueries or function.ordered or function.distinct:
        return False
    if name in NEIGHBORS:
        return _distance(function) is not None
    if name not in RUNNING:
        return False
    frame = None if window.frame is None else str(window.frame).upper()
    if name not in _OF_PLACES and frame is not None and frame not in _UP_TO_NOW:
        return False
    result = _type(function.column, composer)
    if name == "sum":
        return result in ("bigint", "numeric")
    known = composer.types.get(function.column.symbol)
    return name not in ("min", "max") or (
        known is not None and known.comparable and not known.domain
    )


def _distance(function: Aggregate) -> int | None:
    """Return how many rows `lag` or `lead` looks away, if that is a small number.

    >>> _distance(Aggregate(Column("x"), Scalar.read("lag(a, 2)", [Column("a")])))
    2
    """
    if len(function.arguments) < 2:
        return 1
    tree = unwrapped(function.arguments[1].tree)
    if not isinstance(tree, exp.Literal) or not str(tree.this).isdigit():
        return None
    return int(tree.this) if int(tree.this) <= _FARTHEST else None
