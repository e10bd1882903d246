"""A hierarchical query as a union of products of trees: what its maintenance and its enumeration read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.caching import cached_property
from orchestrator.strategies.skew.exponents import Guarantee
from orchestrator.strategies.skew.partition.split import Split
from orchestrator.strategies.viewtree.orders import Forest
from orchestrator.strategies.viewtree.tree import View


@dataclass(frozen=True)
class Tree:
    """A view, and the trees whose rows extend its rows; a view without trees has all free variables."""

    root: View
    below: tuple[Tree, ...] = ()

    @property
    def frontier(self) -> tuple[View, ...]:
        """The views whose join is the tree's relation."""
        if not self.below:
            return (self.root,)
        return tuple(view for tree in self.below for view in tree.frontier)

    @property
    def guides(self) -> tuple[View, ...]:
        """The views that list the values with rows below."""
        own = (self.root,) if self.below and self.is_listed else ()
        return (*own, *(view for tree in self.below for view in tree.guides))

    @property
    def is_heavy(self) -> bool:
        """Whether the root is a view over heavy values, which belong to no free variable."""
        return any(tree.root.indicator for tree in self.below)

    @property
    def is_listed(self) -> bool:
        """Whether the root is stored; heavy values with no more variables than their indicator are listed there."""
        return all(tree.root.keys < self.root.keys for tree in self.below if tree.root.indicator)


@dataclass(frozen=True)
class Division:
    """The division of the values of a bound variable, with those above it, into heavy and light."""

    split: Split
    heavy: View
    """The indicator of the heavy values."""
    light: View
    """The join for the light values."""


@dataclass(frozen=True)
class UnionPlan:
    """A query as a union: the divisions, and the trees of each summand."""

    order: Forest
    divisions: tuple[Division, ...]
    """Upper divisions first."""
    unions: tuple[tuple[Tree, ...], ...]
    """For each summand, the trees whose product it is."""
    guarantee: Guarantee
    static: frozenset[str]
    """The atoms that do not change."""
    variables: tuple[str, ...]
    """The free variables, upper variables first; each tree returns its rows in this order."""

    @cached_property
    def content_views(self) -> frozenset[View]:
        """The views from which the content is computed."""
        return frozenset(v for trees in self.unions for tree in trees for v in tree.frontier)

    @cached_property
    def guides(self) -> frozenset[View]:
        """The views that list values with rows."""
        return frozenset(v for trees in self.unions for tree in trees for v in tree.guides)

    @cached_property
    def views(self) -> tuple[View, ...]:
        """All maintained views, lower views first."""
        result: dict[View, None] = {}
        for view in sorted(self.content_views | self.guides, key=lambda view: view.label):
            result.update(dict.fromkeys(reversed(list(view.walk()))))
        return tuple(result)

    @cached_property
    def stored(self) -> frozenset[View]:
        """The views that are looked up by the content, or by a change of a sibling."""
        light = {division.light for division in self.divisions} if self._values_move else ()
        siblings = (
            child
            for view in self.views
            for child in view.children
            if len(view.children) > 1
            and (view in light or any(map(self._changes, set(view.children) - {child})))
        )
        return self.content_views | self.guides | frozenset(siblings)

    @cached_property
    def _values_move(self) -> bool:
        """Whether values can become heavy or light."""
        return any(frozenset(division.split.atoms) - self.static for division in self.divisions)

    def _changes(self, view: View) -> bool:
        leaves = (inner for inner in view.walk() if not inner.children)
        return any(
            self._values_move if leaf.indicator else leaf.atoms[0] not in self.static
            for leaf in leaves
        )

    @cached_property
    def counting(self) -> frozenset[View]:
        """The views that only need to tell whether they have rows."""
        return frozenset(self.views) - {
            inner for view in self.content_views for inner in view.walk()
        }


def parents(views: Sequence[View]) -> Mapping[View, tuple[View, ...]]:
    """Return for each view the views that join it."""
    result: dict[View, list[View]] = {view: [] for view in views}
    for view in views:
        for child in view.children:
            result[child].append(view)
    return {view: tuple(above) for view, above in result.items()}
