"""The query of a view as it was written, with the columns that identify the rows of the content."""

from __future__ import annotations

from orchestrator.algebra.columns import Column
from orchestrator.algebra.ids import infer_ids
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.numbered import Numbered
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.plan import Plan
from orchestrator.algebra.scalar import Scalar
from orchestrator.algebra.traversal import rewrite
from orchestrator.algebra.unsupported import Unsupported
from orchestrator.deltascript.leaves import capture
from orchestrator.deltascript.plan import CONTENT, Query
from orchestrator.engine.composer import Composer
from orchestrator.engine.terms import renamed


def as_written(plan: Plan, composer: Composer) -> Query | None:
    """Return a query of the visible columns and the key of the content.

    Where a rule needs a join with groups, the view may ask for few of them in a subquery: PostgreSQL then computes the
    query as it was written much faster. Return None if the query does not have the columns of the key.
    """
    identified, content = infer_ids(plan), composer.scans[CONTENT]
    if isinstance(identified, Unsupported):
        return None
    visible = [column for _, column in composer.visible]
    written = dict(zip(identified.names, identified.columns, strict=True))
    values = {column: written[name] for name, column in composer.visible}
    root = rewrite(identified.root, capture)
    stored = composer.stored[CONTENT]
    if isinstance(stored, Numbered):
        if not values.keys() >= set(stored.input.columns):
            return None
        items = tuple(
            Item(column, Scalar.column(values[column])) for column in stored.input.columns
        )
        root, values = stored.with_children((Projection(root, items),)), {}
    wanted = tuple(dict.fromkeys((*visible, *content.ids)))
    root = _with_columns(root, {column for column in content.ids if column not in values})
    if not set(root.columns) >= {values.get(column, column) for column in wanted}:
        return None
    outputs = [(column, Column(content.called(column))) for column in wanted]
    rows = renamed(root, [(values.get(column, column), output) for column, output in outputs])
    return composer.query(rows, [output for _, output in outputs])


def _with_columns(plan: Operator, columns: set[Column]) -> Operator:
    """Return a plan that also shows those of the columns that its projections leave out."""
    missing = columns - set(plan.columns)
    if not missing or not isinstance(plan, Projection | Selection):
        return plan
    below = _with_columns(plan.input, columns)
    if isinstance(plan, Selection):
        return plan.with_children((below,))
    kept = tuple(Item.kept(column) for column in below.columns if column in missing)
    return Projection(below, (*plan.items, *kept))
