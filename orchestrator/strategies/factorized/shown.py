"""The content of a view that no table holds: a query over the states that a strategy maintains."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.algebra.columns import Column, Symbols
from orchestrator.algebra.operators.base import Operator, SortKey
from orchestrator.algebra.operators.limit import Limit
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.recognition.first_rows import FirstRows
from orchestrator.algebra.scalar import TRUE, Scalar
from orchestrator.deltascript.plan import CONTENT, StateView
from orchestrator.engine import terms
from orchestrator.strategies.around import show_around
from orchestrator.strategies.viewtree.relation import Relation
from orchestrator.strategies.viewtree.views import Views

ROWS = "rows"
"""The role of a query for all rows, of which the content shows the first."""


def show(views: Views, root: Relation, order: Sequence[str]) -> None:
    """Let the view compute its rows from a root over states, without storing them.

    The keys follow the visible columns, in the given order.
    """
    if views.form.around is not None:
        values, core = views.values(root), views.form.around.core.columns
        groups = Projection(root.rows, tuple(Item(c, values[c]) for c in core))
        show_around(views.form.around, groups, views.request, views.composer)
        return
    rows, named, hidden = _rows(views, root, order)
    columns = (*named, *hidden)
    query = views.composer.query(terms.renamed(rows, columns), [new for _, new in columns])
    keys = tuple(new.symbol for _, new in hidden)
    views.composer.states.append(StateView(CONTENT, views.request.columns, keys, query))


def show_first(
    views: Views,
    root: Relation,
    order: Sequence[str],
    first: FirstRows,
    sorted_by: Sequence[Scalar],
) -> str:
    """Let the view show the first rows, given the expressions of the order; return the role of the query for all rows.

    The query of the content sorts all rows. Readers get the same rows from a function, which is created later.
    """
    composer = views.composer
    rows, named, hidden = _rows(views, root, order)
    role = composer.name(ROWS)
    columns = (*named, *hidden)
    query = composer.query(terms.renamed(rows, columns), [new for _, new in columns])
    keys = tuple(new.symbol for _, new in hidden)
    composer.states.append(StateView(role, views.request.columns, keys, query))
    values = views.values(root)
    items = [
        Item(Column(composer.symbols.fresh("idivm_order")), scalar.substitute(values))
        for scalar in sorted_by
    ]
    assert isinstance(rows, Projection)
    listed = Limit(
        Projection(rows.input, (*rows.items, *items)),
        tuple(
            SortKey(item.column, key.descending, key.nulls_first)
            for item, key in zip(items, first.order, strict=True)
        ),
        Scalar.read(str(first.count)),
        Scalar.read(str(first.skipped)) if first.skipped else None,
        first.with_ties,
    )
    query = composer.query(terms.renamed(listed, named), [new for _, new in named])
    composer.states.append(StateView(CONTENT, views.request.columns, (), query))
    return role


_Named = list[tuple[Column, Column]]
"""Columns with their names in a query."""


def _rows(views: Views, root: Relation, order: Sequence[str]) -> tuple[Operator, _Named, _Named]:
    """Return the rows of a view with the names of their visible columns, and of their keys."""
    values, symbols = views.values(root), views.composer.symbols
    having = views.form.having.substitute(values)
    root = root.at(Selection(root.rows, having)) if having != TRUE else root
    items = [
        Item(Column(symbols.fresh(name)), scalar.substitute(values))
        for name, scalar in views.form.outputs
    ]
    keys = [
        Item(views.composer.fresh(root.keys[name]), Scalar.column(root.keys[name]))
        for name in order
    ]
    names = Symbols(column.name for column in views.request.columns)
    named = [
        (item.column, Column(column.name))
        for item, column in zip(items, views.request.columns, strict=True)
    ]
    hidden = [
        (item.column, Column(names.fresh(f"idivm_{name}")))
        for item, name in zip(keys, order, strict=True)
    ]
    return Projection(root.rows, (*items, *keys)), named, hidden
