"""Splits long joins into steps: a result that is likely to be large is stored before the next
lookup.

The loops of a query begin with a diff (papers/idivm.txt, appendix A). The number of rows that a
lookup finds is only known on average, and changes are not average: a new nation has no customers
yet. PostgreSQL plans for the average, and would rather read the tables at the other end of a long
join. A query therefore ends at a lookup that finds many rows on average. Its result is held in a
variable, with which the next query begins.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from orchestrator.algebra.analysis.flat import Flat, flattened
from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.antisemijoin import Antisemijoin
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.distinct import Distinct
from orchestrator.algebra.operators.evaluation import Evaluation
from orchestrator.algebra.operators.group import Grouping
from orchestrator.algebra.operators.join import Join
from orchestrator.algebra.operators.left_join import LeftJoin
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.operators.semijoin import Semijoin
from orchestrator.algebra.operators.union_all import UnionAll
from orchestrator.algebra.passes.push_conditions import joined_on
from orchestrator.algebra.predicates import equal_columns
from orchestrator.algebra.scalar import Scalar, filled
from orchestrator.deltascript.leaves import DiffScan
from orchestrator.engine.access import Fanout, Lookup, Rows, loop_order
from orchestrator.engine.terms import projected

MANY = 30.0
"""A lookup that finds at least this many rows on average ends a query."""

_THROUGH = Grouping | Distinct | UnionAll | LeftJoin | Semijoin | Antisemijoin
"""Operators below which joins may be split, because they evaluate their inputs once and completely."""

Hold = Callable[[Operator], DiffScan]
"""A function that computes a plan into a variable."""


def in_steps(plan: Operator, fanout: Fanout, hold: Hold) -> Operator:
    """Return a plan whose joins begin with the stored results of earlier lookups.

    >>> from orchestrator.algebra.examples import PARTS, PID, PRICE, running_example
    >>> from orchestrator.algebra.traversal import rewrite
    >>> diff = DiffScan("parts_inserted", "d", ((PID, "new_pid"), (PRICE, "new_price")))
    >>> plan = rewrite(running_example().root, lambda operator: diff if operator == PARTS else operator)
    >>> def hold(part):
    ...     print([atom.label for atom in flattened(part).atoms], *part.columns)
    ...     return DiffScan("reached", "r", tuple((c, c.symbol) for c in part.columns))
    >>> split = in_steps(plan, lambda lookup: 100.0, hold)
    ['diff parts_inserted', 'devices_parts'] device pid price
    >>> [atom.label for atom in flattened(split).atoms]
    ['diff reached', 'devices']
    """
    if plan.outer_columns:
        return plan
    if isinstance(plan, Evaluation):
        return replace(plan, input=in_steps(plan.input, fanout, hold))
    if isinstance(plan, _THROUGH):
        return plan.with_children(tuple(in_steps(child, fanout, hold) for child in plan.children))
    if not isinstance(plan, Join | Selection | Projection):
        return plan
    flat = flattened(plan)
    if _is_lookups(flat):
        cut = _cut(flat, fanout, hold)
        if cut is flat:
            return plan
    else:
        return plan.with_children(tuple(in_steps(child, fanout, hold) for child in plan.children))
    items = tuple(Item(column, cut.items[column]) for column in plan.columns)
    return Projection(joined_on(cut.atoms, cut.conditions), items)


def _is_lookups(flat: Flat) -> bool:
    """Return whether a product looks up rows for those of a diff, in more than one place."""
    columns = [column for atom in flat.atoms for column in atom.columns]
    return (
        len(flat.atoms) > 2
        and len(columns) == len(set(columns))
        and any(isinstance(atom, DiffScan) for atom in flat.atoms)
        and all(isinstance(atom, DiffScan | Rows) for atom in flat.atoms)
        and not any(condition.subqueries for condition in (*flat.conditions, *flat.items.values()))
    )


def _cut(flat: Flat, fanout: Fanout, hold: Hold) -> Flat:
    order = list(loop_order(flat, fanout=fanout))
    inputs: list[Operator] = []
    unchecked = list(flat.conditions)
    checked: list[Scalar] = []
    is_split = False
    for position, (atom, by) in enumerate(order):
        inputs.append(atom)
        if isinstance(atom, DiffScan) or position == len(order) - 1:
            continue
        assert isinstance(atom, Rows)
        if fanout(Lookup(atom, by)) < MANY:
            continue
        known = {column for rows in inputs for column in rows.columns}
        own = [c for c in unchecked if c.references and c.references <= known]
        unchecked = [c for c in unchecked if c not in own]
        checked += own
        implied = _implied(flat.conditions, checked, known)
        checked += implied
        wanted = _read(known, [*unchecked, *flat.items.values()])
        # A variable cannot hold rows without columns.
        wanted = wanted or tuple(column for rows in inputs for column in rows.columns)[:1]
        inputs = [hold(projected(joined_on(inputs, [*own, *implied]), wanted))]
        is_split = True
    return Flat(tuple(inputs), tuple(unchecked), flat.items) if is_split else flat


def _implied(
    conditions: Iterable[Scalar], checked: Iterable[Scalar], known: Collection[Column]
) -> list[Scalar]:
    """Return the equalities between known columns that follow through columns joined later.

    >>> a, b, c = (Column(name, "integer", "integer_ops") for name in "abc")
    >>> equal = [Scalar.read("a = c", [a, c]), Scalar.read("c = b", [b, c])]
    >>> _implied(equal, [], [a, b])
    [Scalar(b = a)]
    >>> _implied(equal, [Scalar.read("a = b", [a, b])], [a, b])
    []
    """
    result = []
    for equal in equal_columns(conditions):
        checked_classes = [part for part in equal_columns(checked) if part & equal]
        apart = [{c} for c in equal & set(known) if not any(c in part for part in checked_classes)]
        first, *others = sorted(min(map(str, part)) for part in (*checked_classes, *apart)) or [""]
        named = {str(column): column for column in equal}
        result += [filled("x = y", x=named[other], y=named[first]) for other in others]
    return result


def _read(columns: set[Column], by: list[Scalar]) -> tuple[Column, ...]:
    """Return the columns that expressions read, in the order of the expressions."""
    read = (c for item in by for c in sorted(item.references & columns, key=str))
    return tuple(dict.fromkeys(read))
