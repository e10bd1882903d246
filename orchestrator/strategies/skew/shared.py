"""The maintenance of a self-join whose atoms share their states.

A change of the table is a change of several atoms. They change in sequence, but a shared state changes once,
after all of them. Until then, an atom that has already changed is read as its state and its change:

    δ(E ⋈ E ⋈ E) = δE ⋈ E ⋈ E + (E + δE) ⋈ δE ⋈ E + (E + δE) ⋈ (E + δE) ⋈ δE
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.set_operation import Branch
from orchestrator.algebra.operators.union_all import UnionAll
from orchestrator.deltascript.leaves import DiffScan, StateScan
from orchestrator.strategies.skew.sharing import Sharing
from orchestrator.strategies.skew.triangle import Division
from orchestrator.strategies.viewtree.relation import Relation, columns_of
from orchestrator.strategies.viewtree.tree import View
from orchestrator.strategies.viewtree.views import Views


def twin_state(views: Views, view: View, sharing: Sharing) -> StateScan:
    """Return the state that holds a view, under the names of the view's columns."""
    own, names = sharing.twins[view]
    state = views.states[own]
    became = _became(views.defined[own], views.defined[view], names)
    return replace(
        state,
        alias=views.composer.symbols.fresh("s"),
        outputs=tuple((became[column], name) for column, name in state.outputs),
        ids=tuple(became[column] for column in state.ids),
        known=state.known.renamed(tuple(became.items())),
        known_keys=frozenset(frozenset(became[c] for c in key) for key in state.known_keys),
        known_not_null=frozenset(became[column] for column in state.known_not_null),
    )


def _became(own: Relation, other: Relation, names: Mapping[str, str]) -> dict[Column, Column]:
    """Return the column of another relation for each column of an equal relation."""
    keys = {own.keys[names[variable]]: column for variable, column in other.keys.items()}
    return keys | {own.payload[part]: column for part, column in other.payload.items()}


class Changes:
    """The changes of the parts of equal atoms, and the changes of the views over them."""

    def __init__(
        self,
        views: Views,
        sharing: Sharing,
        division: Mapping[str, Division],
        parts: Mapping[View, Relation],
        current: Callable[[View], Relation],
        moved: int | None,
    ) -> None:
        """Take the changes of the stored parts of the first of the atoms, and what all views hold.

        If rows only move between parts, `moved` is the position of the split that they change.
        """
        self.views, self.sharing, self.division = views, sharing, division
        self.parts, self.current, self.moved = parts, current, moved
        self.known: dict[tuple[View, frozenset[str]], Relation | None] = {}

    def of_part(self, part: View) -> Relation | None:
        """Return the change of a part of one of the atoms."""
        division = self.division[part.atoms[0]]
        if part not in division.parts:
            if self.moved is not None and not division.is_marked(part, self.moved):
                return None
            within = [self.of_part(inner) for inner in division.within(part)]
            relations = [relation for relation in within if relation is not None]
            return self._united(part, relations) if relations else None
        own, names = self.sharing.twins.get(part, (part, {v: v for v in part.keys}))
        change = self.parts.get(own)
        if change is None or own == part:
            return change
        return self._renamed(change, own, part, names)

    def _renamed(
        self, change: Relation, own: View, view: View, names: Mapping[str, str]
    ) -> Relation:
        """Return the change of a view as the change of an equal view."""
        defined = self.views.defined
        became = _became(defined[own], defined[view], names)
        scan = change.rows
        assert isinstance(scan, DiffScan)
        outputs = tuple((became[column], name) for column, name in scan.outputs)
        alias = self.views.composer.symbols.fresh("d")
        return defined[view].at(replace(scan, alias=alias, outputs=outputs))

    def of(self, view: View, done: frozenset[str]) -> Relation | None:
        """Return the change of a view by the changes of some atoms."""
        done &= view.leaves
        if not done:
            return None
        if not view.children:
            return self.of_part(view)
        if (view, done) not in self.known:
            self.known[view, done] = self._computed(view, done)
        return self.known[view, done]

    def _computed(self, view: View, done: frozenset[str]) -> Relation | None:
        twin = self.sharing.twins.get(view)
        if twin is not None and done == view.leaves & self.division.keys():
            own, names = twin
            change = self.of(own, own.leaves & frozenset(self.division))
            return None if change is None else self._renamed(change, own, view, names)
        terms = []
        for position, child in enumerate(view.children):
            change = self.of(child, done)
            if change is not None:
                children = [
                    change if n == position else self.at(other, done if n < position else None)
                    for n, other in enumerate(view.children)
                ]
                terms.append(self.views.inner(view, children, position, as_listed=True))
        if not terms:
            return None
        rows = terms[0] if len(terms) == 1 else self.views.summed(view, terms)
        return self.views.assigned(view, rows)

    def at(self, view: View, done: frozenset[str] | None) -> Relation:
        """Return what a view holds after the changes of some atoms."""
        present = self.current(view)
        change = self.of(view, done) if done else None
        return present if change is None else self._united(view, [present, change])

    def _united(self, view: View, relations: Sequence[Relation]) -> Relation:
        # A part that is divided further has the columns of the whole atom.
        known = self.views.defined.get(view) or self.views.defined[replace(view, part="")]
        if len(relations) == 1:
            return relations[0]
        columns = columns_of(known)
        branches: Iterable[tuple[Operator, tuple[Column, ...]]] = (
            (inner, columns) for relation in relations for inner in _branches(relation, columns)
        )
        return known.at(UnionAll(tuple(Branch(*item) for item in branches), columns))


def _branches(relation: Relation, columns: tuple[Column, ...]) -> tuple[Operator, ...]:
    """Return the plans whose union is a relation, so that each of them is looked up."""
    rows = relation.rows
    flat = isinstance(rows, UnionAll) and all(b.columns == columns for b in rows.branches)
    return rows.children if flat else (rows,)
