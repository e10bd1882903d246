"""The join of the views that hold a factorized result, which runs when the result is read."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from orchestrator.algebra.operators.join import Join
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.engine import terms
from orchestrator.strategies.viewtree.relation import Relation
from orchestrator.strategies.viewtree.tree import View
from orchestrator.strategies.viewtree.views import Views


def joined_result(views: Views, result_views: Sequence[View]) -> Relation:
    """Return the join of the views that hold the result."""
    inputs = views.form.inputs
    first, *others = (_copy(views, view) for view in result_views)
    rows, keys = first.rows, dict(first.keys)
    for view, other in zip(result_views[1:], others, strict=True):
        shared = sorted(other.keys.keys() & keys.keys())
        pairs = [(keys[name], other.keys[name]) for name in shared]
        rows = Join(rows, other.rows, terms.same(pairs, other.rows.not_null))
        keys = {**other.keys, **keys}
        # An index that begins with columns that are never NULL serves comparisons in which NULL equals NULL.
        never_null = other.rows.not_null
        _note_lookup(views, view, [name for name in shared if other.keys[name] in never_null])
        _note_lookup(views, view, shared)
    for view in result_views:
        for given in range(len(inputs)):
            _note_lookup(views, view, inputs[: given + 1])
    # A view above other result views only holds the product of their payloads.
    factors = [
        (view, relation)
        for view, relation in zip(result_views, (first, *others), strict=True)
        if not any(operator in result_views for child in view.children for operator in child.walk())
    ]
    payload = {total: views.column(total) for total in views.totals}
    products = []
    for total, column in payload.items():
        parts = [(total.within(view.atoms), relation) for view, relation in factors]
        product = total.multiplied([(part, relation.payload[part]) for part, relation in parts])
        products.append(Item(column, product))
    return Relation(Projection(rows, (*map(Item.kept, keys.values()), *products)), keys, payload)


def _copy(views: Views, view: View) -> Relation:
    """Return a stored view with fresh column names, and with the inputs in the place of their copies."""
    relation, copies = views.copy(view), views.form.copies
    keys = {copies.get(name, name): column for name, column in relation.keys.items()}
    return replace(relation, keys=keys)


def _note_lookup(views: Views, view: View, names: Collection[str]) -> None:
    """Note that readers look up rows of a stored view by the variables among some names."""
    state, copies = views.states[view], views.form.copies
    known = views.defined[view].keys.items()
    probe = frozenset(state.called(key) for name, key in known if copies.get(name, name) in names)
    views.probes.setdefault(state.role, []).append(probe)
