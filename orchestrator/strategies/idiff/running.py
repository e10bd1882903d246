"""Windows whose functions run along their order: the value of a row follows from the row before it."""

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
"""The value of a function in a row: `w` over the span, `b` in the row before the span, if it exists (`t`)."""

NEIGHBORS = ("lag", "lead")

_WITHOUT_FRAME = frozenset({"row_number", "rank", "dense_rank", *NEIGHBORS})
"""Functions whose value does not depend on the frame."""

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
"""The least and the greatest value of the types by which spans can be ordered."""

_FARTHEST = 100
"""The largest distance of `lag` and `lead`; with a larger one, whole partitions are recomputed."""


@dataclass(frozen=True)
class Running:
    """A window whose functions run along its order."""

    operator: Window
    upto: Aggregate | None
    """The number of rows up to a row and its peers, from which the rank of the next row follows."""
    key: SortKey
    """The first column of the order, which bounds spans."""
    limits: tuple[Scalar, Scalar]
    """The least and the greatest value of the key's type."""
    back: int
    """The number of rows that `lag` looks back."""
    ahead: int
    """The number of rows that `lead` looks ahead."""

    @property
    def stored(self) -> Window:
        """The window that is stored: with the count of rows, if a function is `rank`."""
        added = (self.upto,) if self.upto is not None else ()
        return replace(self.operator, functions=(*self.operator.functions, *added))

    @property
    def nullable(self) -> bool:
        """Whether the first column of the order may be NULL."""
        return self.key.column not in self.operator.input.not_null

    @property
    def may_end(self) -> bool:
        """Whether values behind the last changed row stay if as many rows are inserted as deleted."""
        functions = self.operator.functions
        return all(
            function.function in ("row_number", "rank", *NEIGHBORS)
            or (function.function == "count" and not function.arguments and function.filter is None)
            for function in functions
        )

    @property
    def read(self) -> tuple[Column, ...]:
        """The columns that determine the values of the functions, and the IDs."""
        columns = (*ids_of(self.operator), *self.operator.partition)
        columns = (*columns, *(key.column for key in self.operator.order))
        called = frozenset[Column]().union(*(f.call.references for f in self.operator.functions))
        rest = (column for column in self.operator.input.columns if column in called)
        return tuple(dict.fromkeys((*columns, *rest)))


def running_window(operator: Window, composer: Composer) -> Running | None:
    """Return how a window runs along its order, or None if one of its functions does not."""
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
        # Changes of rows with arrays are not netted.
        return None
    return running


def _type(column: Column, composer: Composer) -> str:
    known = composer.types.get(column.symbol)
    name = known.name if known is not None else column.type or ""
    return name if name.endswith("[]") else name.partition("(")[0]


def _runs(function: Aggregate, window: Window, composer: Composer) -> bool:
    """Return whether a function's value follows from the row before a span and the rows of the span."""
    name = function.function
    if function.call.subqueries or function.ordered or function.distinct:
        return False
    if name in NEIGHBORS:
        return _distance(function) is not None
    if name not in RUNNING:
        return False
    frame = None if window.frame is None else str(window.frame).upper()
    if name not in _WITHOUT_FRAME and frame is not None and frame not in _UP_TO_NOW:
        return False
    result = _type(function.column, composer)
    if name == "sum":
        return result in ("bigint", "numeric")
    known = composer.types.get(function.column.symbol)
    return name not in ("min", "max") or (
        known is not None and known.comparable and not known.domain
    )


def _distance(function: Aggregate) -> int | None:
    """Return the distance of `lag` or `lead`, or None if it is large or not constant.

    >>> _distance(Aggregate(Column("x"), Scalar.read("lag(a, 2)", [Column("a")])))
    2
    """
    if len(function.arguments) < 2:
        return 1
    tree = unwrapped(function.arguments[1].tree)
    if not isinstance(tree, exp.Literal) or not str(tree.this).isdigit():
        return None
    return int(tree.this) if int(tree.this) <= _FARTHEST else None
