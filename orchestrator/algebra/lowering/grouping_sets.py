"""GROUPING SETS, ROLLUP and CUBE as the union of one grouping for each set.

A column that a set leaves out is NULL below its grouping, so that it keeps its type and collation.
GROUPING() is a constant of each set.
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
    """Rewrites grouping sets.

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
    branches = tuple(_branch(grouping, item, symbols) for item in grouping.sets)
    return UnionAll(branches, grouping.columns)


def _branch(grouping: GroupingSets, each: tuple[int, ...], symbols: Symbols) -> Branch:
    def fresh(column: Column) -> Column:
        return replace(column, symbol=symbols.fresh(column.symbol))

    outs = [fresh(out) for out, _ in grouping.by]
    passed = tuple(map(Item.kept, grouping.input.columns))
    keys = tuple(
        Item(out, filled("x" if place in each else "CASE WHEN FALSE THEN x END", x=column))
        for place, (out, (_, column)) in enumerate(zip(outs, grouping.by, strict=True))
    )
    here = {column for place, (_, column) in enumerate(grouping.by) if place in each}
    made = [(fresh(call.column), call) for call in grouping.aggregates]
    calls = tuple(
        Aggregate(column, call.call) for column, call in made if call.function != "grouping"
    )
    rows: Operator
    if each:
        # Columns that are there come first: the stored groups are looked up by them.
        order = sorted(range(len(outs)), key=lambda place: place not in each)
        by = tuple(outs[place] for place in order)
        rows = Grouping(Projection(grouping.input, (*passed, *keys)), by, calls)
    else:
        rows = Grouping(grouping.input, (), calls)
        if outs:
            nothing = Selection(Projection(grouping.input, (*passed, *keys)), FALSE)
            rows = LeftJoin(rows, Grouping(nothing, tuple(outs)), FALSE)
    constants = [
        Item(column, Scalar.read(str(_mask(call, here))))
        for column, call in made
        if call.function == "grouping"
    ]
    columns = (*outs, *(column for column, _ in made))
    kept = {item.column: item for item in constants}
    items = tuple(kept.get(column) or Item.kept(column) for column in columns)
    return Branch(Projection(rows, items), columns)


def _mask(call: Aggregate, here: set[Column]) -> int:
    """What GROUPING() is: a bit for each argument, set where the set leaves it out."""
    mask = 0
    for argument in call.arguments:
        mask = 2 * mask + (argument.as_column not in here)
    return mask
