"""GROUPING SETS, ROLLUP and CUBE as the union of a grouping for each set.

A column outside a set becomes NULL below the grouping of the set, so that it keeps its type and
collation. GROUPING() is a constant for each set.
"""

from __future__ import annotations

from dataclasses import replace

from orchestrator.algebra.columns import Column, Symbols
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.group import Aggregate, Grouping
from orchestrator.algebra.operators.grouping_sets import GroupingSets
from orchestrator.algebra.operators.left_join import LeftJoin
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.operators.set_operation import Branch
from orchestrator.algebra.operators.union_all import UnionAll
from orchestrator.algebra.scalar import FALSE, Scalar, filled


def without_grouping_sets(grouping: GroupingSets, symbols: Symbols) -> Operator:
    """Return grouping sets as a union.

    >>> from orchestrator.algebra.examples import CATEGORY, DEVICES
    >>> from orchestrator.algebra.plan import Plan
    >>> from orchestrator.algebra.printer import print_plan
    >>> out, n, g = map(Column, ("out", "n", "g"))
    >>> calls = Scalar.read("count(*)"), Scalar.read("grouping(category)", [CATEGORY])
    >>> sets = GroupingSets(DEVICES, ((out, CATEGORY),), ((0,), ()), tuple(map(Aggregate, (n, g), calls)))
    >>> plan = without_grouping_sets(sets, Symbols())
    >>> print(print_plan(Plan(plan, ("out",), (out,)), ids=False))
    view out (hidden: n, g)
    └─ ∪ → out n g
       ├─ π out, n, 0 → g
       │  └─ γ out; count(*) → n
       │     └─ π did, category, category → out
       │        └─ scan devices
       └─ π out_2, n_2, 1 → g_2
          └─ ⟕ FALSE
             ├─ γ count(*) → n_2
             │  └─ scan devices
             └─ γ out_2
                └─ σ FALSE
                   └─ π did, category, CASE WHEN FALSE THEN category END → out_2
                      └─ scan devices
    """
    branches = tuple(_branch(grouping, set_, symbols) for set_ in grouping.sets)
    return UnionAll(branches, grouping.columns)


def _branch(grouping: GroupingSets, set_: tuple[int, ...], symbols: Symbols) -> Branch:
    def fresh(column: Column) -> Column:
        return replace(column, symbol=symbols.fresh(column.symbol))

    outs = [fresh(out) for out, _ in grouping.by]
    passed = tuple(map(Item.kept, grouping.input.columns))
    keys = tuple(
        Item(out, filled("x" if position in set_ else "CASE WHEN FALSE THEN x END", x=column))
        for position, (out, (_, column)) in enumerate(zip(outs, grouping.by, strict=True))
    )
    grouped = {column for position, (_, column) in enumerate(grouping.by) if position in set_}
    new_calls = [(fresh(call.column), call) for call in grouping.aggregates]
    calls = tuple(
        Aggregate(column, call.call) for column, call in new_calls if call.function != "grouping"
    )
    rows: Operator
    if set_:
        # Columns of the set come first, because stored groups are looked up by them.
        order = sorted(range(len(outs)), key=lambda position: position not in set_)
        by = tuple(outs[position] for position in order)
        rows = Grouping(Projection(grouping.input, (*passed, *keys)), by, calls)
    else:
        rows = Grouping(grouping.input, (), calls)
        if outs:
            nothing = Selection(Projection(grouping.input, (*passed, *keys)), FALSE)
            rows = LeftJoin(rows, Grouping(nothing, tuple(outs)), FALSE)
    constants = [
        Item(column, Scalar.read(str(_mask(call, grouped))))
        for column, call in new_calls
        if call.function == "grouping"
    ]
    columns = (*outs, *(column for column, _ in new_calls))
    constant_of = {item.column: item for item in constants}
    items = tuple(constant_of.get(column) or Item.kept(column) for column in columns)
    return Branch(Projection(rows, items), columns)


def _mask(call: Aggregate, grouped: set[Column]) -> int:
    """Return the value of GROUPING(): for each argument a bit, which is 1 if the set lacks the
    argument.
    """
    mask = 0
    for argument in call.arguments:
        mask = 2 * mask + (argument.as_column not in grouped)
    return mask
