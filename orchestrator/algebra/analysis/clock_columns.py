"""What a view compares with the time: the columns of tables whose values rows pass as the clock moves.

As long as no value of such a column lies between the old and the new value of the clock, no comparison has another
outcome, whatever the query does with it. So an index on the column tells that nothing is due.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import exp

from orchestrator.algebra import dialect
from orchestrator.algebra.columns import Column
from orchestrator.algebra.dialect import Tree
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.group import Grouping
from orchestrator.algebra.operators.join import Join
from orchestrator.algebra.operators.project import Projection
from orchestrator.algebra.operators.scan import Scan, Table
from orchestrator.algebra.operators.union_all import UnionAll
from orchestrator.algebra.plan import Plan
from orchestrator.algebra.scalar import unwrapped
from orchestrator.algebra.traversal import walk

_CHANGING: dict[type[Tree], tuple[str, str]] = {
    exp.GT: (">", ">"),
    exp.LTE: (">", ">"),
    exp.GTE: (">=", ">="),
    exp.LT: (">=", ">="),
    exp.EQ: (">=", ">"),
}
"""For each comparison of a row with the time, how the least value that passes is after the lesser of two times, and
how it must be after the greater one for no row to pass."""

_TURNED: dict[type[Tree], type[Tree]] = {
    exp.GT: exp.LT,
    exp.LT: exp.GT,
    exp.GTE: exp.LTE,
    exp.LTE: exp.GTE,
    exp.EQ: exp.EQ,
}

_STEADY = ("now()", "transaction_timestamp()", "CURRENT_TIMESTAMP", "idivm.clock()")

_EXACT = re.compile(r"-?\d+:\d\d:\d\d(\.\d+)?")
"""An interval without days and months, as PostgreSQL prints it."""


@dataclass(frozen=True)
class Compared:
    """A column of a clock, and a column of a table whose values, or some of them, are compared with it."""

    clock_column: str
    table: Table
    column: str
    after_lesser: str = ">="
    """A row passes between two values of the clock only if its value is after the lesser one, `>` or `>=`,"""
    after_greater: str = ">"
    """and not after the greater one, `>` or `>=`."""


def compared_columns(plan: Plan) -> tuple[Compared, ...] | None:
    """Return the columns of tables that a plan compares with its clock; None if it compares anything else.

    >>> from orchestrator.algebra.examples import DEVICES, DID
    >>> from orchestrator.algebra.operators.select import Selection
    >>> from orchestrator.algebra.passes.clocks import with_clock
    >>> from orchestrator.algebra.scalar import Scalar
    >>> def compared(condition):
    ...     selected = Selection(DEVICES, Scalar.read(condition, [DID]))
    ...     return compared_columns(with_clock(Plan(selected, ("did",), (DID,)), "s", "c").plan)
    >>> for each in compared("did > (CURRENT_DATE - 7) AND (now() > did)"):
    ...     print(each.clock_column, each.table, each.column, each.after_lesser, each.after_greater)
    e1 devices did > >
    e2 devices did >= >=
    >>> compared("(did + 1) > CURRENT_DATE") is None
    True
    """
    result: dict[Compared, None] = {}
    for operator in walk(plan.root):
        if not isinstance(operator, Join) or not isinstance(operator.right, Scan):
            continue
        if operator.right.is_clock:
            compared = _compared(operator, operator.right)
            if compared is None:
                return None
            result.update(dict.fromkeys(compared))
    return tuple(result)


def _compared(join: Join, clock: Scan) -> list[Compared] | None:
    names = {output.column: output.name for output in clock.outputs}
    result = []
    for node in join.condition.tree.walk():
        if type(node) not in _CHANGING:
            continue
        left, right = (join.condition.part(s).as_column for s in (node.this, node.expression))
        for row, time, kind in ((left, right, type(node)), (right, left, _TURNED[type(node)])):
            if time is None or time not in names:
                continue
            origins = [] if row is None else list(_origins(join.left, row))
            if not origins or None in origins:
                return None
            ends = _CHANGING[kind]
            result += [Compared(names[time], *origin, *ends) for origin in origins if origin]
    return result


def _origins(plan: Operator, column: Column) -> Iterator[tuple[Table, str] | None]:
    """Yield the columns of tables that have all values of a column, with None for what is not known."""
    if isinstance(plan, Scan):
        names = [output.name for output in plan.outputs if output.column == column]
        yield (plan.table, names[0]) if names else None
    elif isinstance(plan, Projection):
        item = next((item for item in plan.items if item.column == column), None)
        inner = None if item is None else item.scalar.as_column
        yield from _of_input(plan.input, inner)
    elif isinstance(plan, Grouping) and column not in plan.by:
        call = next((call for call in plan.aggregates if call.column == column), None)
        is_extreme = call is not None and call.function in ("min", "max")
        yield from _of_input(
            plan.input, call.arguments[0].as_column if call and is_extreme else None
        )
    elif isinstance(plan, UnionAll):
        if column in plan.outputs:
            for branch in plan.branches:
                yield from _of_input(branch.input, branch.columns[plan.outputs.index(column)])
        else:
            yield None
    else:
        below = [child for child in plan.children if column in child.columns]
        yield from _of_input(below[0], column) if len(below) == 1 else (None,)


def _of_input(plan: Operator, column: Column | None) -> Iterator[tuple[Table, str] | None]:
    return iter((None,)) if column is None else _origins(plan, column)


def is_steady(text: str) -> bool:
    """Return whether an expression of the time never becomes less while the time goes on.

    Where days, months or the local time take part, clocks that are put back make it less.

    >>> is_steady("now()"), is_steady("(now() - '01:00:00'::interval)"), is_steady("CURRENT_DATE")
    (True, True, False)
    >>> is_steady("(now() - '1 day'::interval)")
    False
    """
    return _is_steady(dialect.parse(f"SELECT {text}").expressions[0])


def _is_steady(tree: Tree) -> bool:
    tree = unwrapped(tree)
    if isinstance(tree, exp.Add | exp.Sub):
        return _is_steady(tree.this) and _is_exact(unwrapped(tree.expression))
    return dialect.write(tree) in _STEADY


def _is_exact(tree: Tree) -> bool:
    if not isinstance(tree, exp.Cast) or not isinstance(tree.this, exp.Literal):
        return False
    is_interval = dialect.write(tree.to) == "interval"
    return is_interval and _EXACT.fullmatch(str(tree.this.this)) is not None
