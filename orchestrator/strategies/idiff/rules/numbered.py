"""ν(R): store a bag as a table in which each row occurs as often as in the bag.

A change of a row's multiplicity changes the numbers: numbers above the new multiplicity are deleted,
numbers above the old multiplicity are inserted. The old multiplicity is counted in the stored rows.
"""

from __future__ import annotations

from orchestrator.algebra.column_type import ColumnType
from orchestrator.algebra.columns import Column
from orchestrator.algebra.copies import copied
from orchestrator.algebra.operators.dependent_join import DependentJoin
from orchestrator.algebra.operators.function_scan import FunctionScan
from orchestrator.algebra.operators.group import Aggregate, Grouping
from orchestrator.algebra.operators.join import Join
from orchestrator.algebra.operators.left_join import LeftJoin
from orchestrator.algebra.operators.numbered import Numbered
from orchestrator.algebra.operators.recursive import Recursion
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.operators.window import Window
from orchestrator.algebra.scalar import Scalar, filled
from orchestrator.deltascript.leaves import StateScan
from orchestrator.engine.composer import Composer
from orchestrator.engine.diffs import Bag
from orchestrator.engine.states import Upkeep, store
from orchestrator.engine.terms import projected
from orchestrator.strategies.idiff.rules.base import bag
from orchestrator.strategies.idiff.rules.recursive import changes_of_recursion
from orchestrator.strategies.idiff.rules.stored import is_whole, maintain


@is_whole.register
def _(operator: Numbered) -> bool:
    # The change of a recursion is computed from its stored result.
    return isinstance(operator.input, Recursion)


@maintain.register
def _(operator: Numbered, composer: Composer, role: str) -> StateScan:
    composer.types[operator.row.symbol] = ColumnType("bytea", comparable=True)
    composer.types[operator.nth.symbol] = ColumnType("bigint", comparable=True)
    derived = isinstance(operator.input, Recursion)
    changed = None if derived else bag(operator.input, composer)
    state = store(role, operator, (operator.row, operator.nth), composer)
    if isinstance(operator.input, Recursion):
        for recursion_change in changes_of_recursion(operator.input, state, composer):
            _renumber(Upkeep(state, composer), operator, recursion_change)
    elif changed is not None:
        _renumber(Upkeep(state, composer), operator, changed)
    return state


def _renumber(upkeep: Upkeep, operator: Numbered, changed: Bag) -> None:
    """Add the steps that delete and insert numbers after a change of multiplicities."""
    composer, state = upkeep.composer, upkeep.state
    # A window picks one row per digest; an aggregate such as min() does not exist for every type.
    net = Aggregate(composer.column("net"), filled("sum(x)", x=changed.sign))
    first = Aggregate(composer.column("first"), Scalar.read("row_number()"))
    counted = Window(operator.with_digest(changed.plan), (net, first), (operator.row,))
    moved = Selection(counted, filled("x = 1 AND y <> 0", x=first.column, y=net.column))
    images = (*operator.input.columns, operator.row, net.column)
    rows = composer.assign("moved", moved, images)
    own = composer.fresh(operator.row)
    equal = filled("x = y", x=operator.row, y=own)
    # Give the variable's column a fresh name: it is the very column of the stored rows.
    named, _ = copied(projected(rows, [operator.row]), composer.symbols, {operator.row: own})
    count = Aggregate(Column(composer.symbols.fresh("had"), "bigint"), Scalar.read("count(*)"))
    stored_row = composer.fresh(operator.row)
    kept, _ = copied(projected(state, [operator.row]), composer.symbols, {operator.row: stored_row})
    stored = Grouping(Join(kept, named, filled("x = y", x=stored_row, y=own)), (own,), (count,))
    had = filled("coalesce(n, 0)", n=count.column)
    held = composer.assign("held", LeftJoin(rows, stored, equal), (*rows.columns, count.column))
    counts = (net.column, count.column)
    moves, _ = copied(
        projected(held, (operator.row, *counts)),
        composer.symbols,
        {operator.row: own, **{column: column for column in counts}},
    )
    surplus = Selection(
        Join(state, moves, equal),
        filled("x > had + net", x=operator.nth, had=had, net=net.column),
    )
    upkeep.delete(projected(surplus, state.ids), state.ids)
    numbers = FunctionScan(
        (filled("generate_series(had + 1, (had + net)::bigint)", had=had, net=net.column),),
        composer.symbols.fresh("s"),
        (operator.nth,),
    )
    upkeep.insert(projected(DependentJoin(held, numbers), operator.columns))
