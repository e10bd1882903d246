"""Equal parts of a self-join (appendix B of papers/ivm-eps-counting-triangles.txt).

Atoms over one table with the same condition and the same split have the same parts, degrees and heavy values,
and joins of such parts in the same way are the same view. One of them is stored, and the others read it under
other names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from orchestrator.algebra.columns import Column
from orchestrator.algebra.dialect import write
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.join import Join
from orchestrator.algebra.operators.project import Projection
from orchestrator.algebra.operators.scan import Scan
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.operators.union_all import UnionAll
from orchestrator.algebra.scalar import Scalar
from orchestrator.strategies.skew.triangle import Division, SkewPlan
from orchestrator.strategies.viewtree.form import Atom
from orchestrator.strategies.viewtree.tree import View


@dataclass
class Sharing:
    """Which views read the state of another view, and which divisions share everything."""

    twins: dict[View, tuple[View, dict[str, str]]] = field(default_factory=dict)
    """The view whose state holds a view, and its variable for each variable of the view."""
    first: dict[Division, Division] = field(default_factory=dict)
    """The division that a division is equal to; itself, if it is the first."""


def shared_states(
    plan: SkewPlan, atoms: Mapping[str, Atom], countings: Collection[View]
) -> Sharing | None:
    """Return which states of a plan are equal, or None if no atoms are.

    `countings` are the views whose only payload is a count. Atoms that are divided together with others
    share nothing.
    """
    known: dict[object, tuple[View, tuple[str, ...]]] = {}
    orders: dict[View, tuple[object, tuple[str, ...]]] = {}
    result = Sharing()
    by_key: dict[object, Division] = {}
    for division in plan.divisions:
        signature, order = _of_atom(atoms[division.atom])
        counts = not division.together and division.whole in countings
        on = tuple(tuple(sorted(map(order.index, on))) for on in division.on)
        identity: object = (
            signature,
            on,
            plan.exponents.of(division.atom),
            None if counts else division,
        )
        result.first[division] = by_key.setdefault(identity, division)
        for part in division.all_parts:
            orders[part] = ((identity, part.part), order)
    kept = {view for item in plan.factorized for view in (item.joined, item.known)}
    for view in plan.views:
        orders[view] = _of_view(view, orders)
        if view in kept or view not in countings:
            orders[view] = ((view, orders[view][0]), orders[view][1])
    for view, (key, order) in orders.items():
        own, names = known.setdefault(key, (view, order))
        if own != view:
            result.twins[view] = own, dict(zip(order, names, strict=True))
    return result if any(state is not other for state, other in result.first.items()) else None


def _of_view(
    view: View, orders: Mapping[View, tuple[object, tuple[str, ...]]]
) -> tuple[object, tuple[str, ...]]:
    """Return what a view has in common with equal views, and its variables in a common order."""
    children = sorted((orders[child] for child in view.children), key=lambda item: repr(item[0]))
    numbers: dict[str, int] = {}
    for _, order in children:
        for variable in order:
            numbers.setdefault(variable, len(numbers))
    keys = tuple(sorted(view.keys, key=numbers.__getitem__))
    shape = tuple((key, tuple(numbers[v] for v in order)) for key, order in children)
    return (shape, tuple(numbers[v] for v in keys), view.indicator, view.part), keys


def _of_atom(atom: Atom) -> tuple[object, tuple[str, ...]]:
    """Return what an atom has in common with equal atoms, and its variables in a common order."""
    names: dict[Column, str] = {}
    rows = _of_rows(atom.scan, names)
    binds = sorted((_text(scalar, names), variable) for variable, scalar in atom.binds)
    condition = sorted(_text(part, names) for part in atom.condition.conjuncts)
    order = tuple(variable for _, variable in binds)
    return (rows, tuple(condition), tuple(text for text, _ in binds)), order


def _of_rows(rows: Operator, names: dict[Column, str]) -> Any:
    """Return a plan without the names of its columns, which are added to `names`."""
    if isinstance(rows, Scan):
        letter = "t" if rows.is_clock else "c"
        names.update({output.column: f"{letter}{output.attnum}" for output in rows.outputs})
        return rows.table.oid, rows.only
    if isinstance(rows, UnionAll):
        below = []
        for branch in rows.branches:
            inner: dict[Column, str] = {}
            part = _of_rows(branch.input, inner)
            below.append((part, tuple(inner[column] for column in branch.columns)))
        names.update({column: f"u{n}" for n, column in enumerate(rows.outputs)})
        return tuple(below)
    inner = {}
    below_rows = tuple(_of_rows(child, inner) for child in rows.children)
    if isinstance(rows, Projection):
        names.update({item.column: f"({_text(item.scalar, inner)})" for item in rows.items})
    else:
        names.update(inner)
    own = _texts(rows.scalars, inner) if isinstance(rows, Selection | Join) else ()
    return below_rows, own


def _texts(scalars: Iterable[Scalar], names: Mapping[Column, str]) -> tuple[str, ...]:
    return tuple(_text(scalar, names) for scalar in scalars)


def _text(scalar: Scalar, names: Mapping[Column, str]) -> str:
    by_symbol = {column.symbol: name for column, name in names.items()}

    def renamed(node: exp.Expr) -> exp.Expr:
        return exp.Var(this=by_symbol[node.name]) if isinstance(node, exp.Column) else node

    return write(scalar.tree.transform(renamed))
