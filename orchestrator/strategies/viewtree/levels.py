"""Decide which views are worth storing; a view with few rows for each key may be joined when needed.

Each change below a stored view writes to it. If the view's siblings hardly change, and each of their rows
joins only few rows of the tables below the view, looking up these rows is cheaper than storing the view.
Then the tables replace it among the children of the view above.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, prod

from orchestrator.algebra.operators.scan import Scan
from orchestrator.deltascript.plan import Statistics
from orchestrator.strategies.viewtree.form import Atom
from orchestrator.strategies.viewtree.hypergraph import Variables
from orchestrator.strategies.viewtree.tree import View

FEW_ROWS = 32
"""The maximum number of rows that are looked up instead of one row of a stored view."""
A_WRITE = 2
"""The cost of a change of a stored row, in lookups."""


@dataclass(frozen=True)
class TableFacts:
    """Facts about the tables of a query."""

    atoms: Mapping[str, Atom]
    statistics: Mapping[int, Statistics]

    def has_lookup(self, leaf: View, keys: Variables) -> bool:
        """Return whether a leaf has unique rows, and an index on one of the keys finds them."""
        atom = self.atoms[leaf.atoms[0]]
        if not isinstance(atom.scan, Scan):
            return False
        columns = {s.as_column: v for v, s in atom.binds if v in leaf.keys}
        statistics = self.statistics.get(atom.scan.table.oid, Statistics(0))
        return any(key <= columns.keys() for key in atom.scan.keys) and any(
            columns.get(output.column) in keys and output.attnum in statistics.indexed
            for output in atom.scan.outputs
        )

    def changes(self, view: View) -> float:
        """Return the number of changed rows in the tables below a view; each row was inserted once."""
        scans = (scan for name in view.atoms for scan in self.atoms[name].scans)
        statistics = (self.statistics.get(scan.table.oid) for scan in scans)
        return sum(item.rows + sum(item.changes.values()) for item in statistics if item)

    def frequencies(self) -> dict[str, float]:
        """Return the share of each atom in all changes; a table without statistics counts as unchanged."""
        changes = {name: self.changes(View(frozenset(), (name,))) for name in self.atoms}
        total = sum(changes.values())
        return {name: number / total for name, number in changes.items() if number}

    def rows(self, leaf: View, keys: Variables) -> float:
        """Return how many rows of a leaf have given values of some keys, on average."""
        atom = self.atoms[leaf.atoms[0]]
        if not isinstance(atom.scan, Scan):
            return inf
        statistics = self.statistics.get(atom.scan.table.oid, Statistics(0))
        attnums = {output.column: output.attnum for output in atom.scan.outputs}
        values = [
            statistics.distinct.get(attnums.get(s.as_column, 0) if s.as_column else 0, 0)
            for v, s in atom.binds
            if v in keys
        ]
        return max(1.0, statistics.rows / prod(values)) if statistics.rows and all(values) else inf


def join_keys(children: Sequence[View], start: View) -> dict[View, Variables]:
    """Return by which of its keys each child is joined, in a join of all that starts with one of them.

    >>> r, s, t = (View(frozenset(keys), (name,)) for name, keys in (("r", "a"), ("s", "ab"), ("t", "b")))
    >>> {view.name: "".join(keys) for view, keys in join_keys([r, s, t], t).items()}
    {'s': 'b', 'r': 'a'}
    """
    bound, rest = start.keys, [child for child in children if child is not start]
    result: dict[View, Variables] = {}
    while rest:
        following = max(rest, key=lambda item: len(item.keys & bound))
        rest.remove(following)
        result[following] = following.keys & bound
        bound |= following.keys
    return result


def drop_views(view: View, drops: Callable[[View, View], bool]) -> View:
    """Return the tree without the dropped views; their children take their places.

    >>> leaf = View(frozenset("ab"), ("r",))
    >>> below = View(frozenset("a"), ("r", "s"), (leaf, View(frozenset("b"), ("s",))), "b")
    >>> tree = View(frozenset(), ("r", "s", "t"), (View(frozenset("a"), ("t",)), below), "a")
    >>> print(drop_views(tree, lambda parent, child: True).as_text())
    V@a(r, s, t)[]
      t[a]
      r[a, b]
      s[b]
    """
    children: list[View] = []
    for child in view.children:
        child_tree = drop_views(child, drops)
        leaves = child_tree.children and not any(
            item.children or item.indicator for item in child_tree.children
        )
        children += child_tree.children if leaves and drops(view, child_tree) else (child_tree,)
    return replace(view, children=tuple(children))


def costs_more_than_joins(
    parent: View, child: View, facts: TableFacts, changing: Callable[[View], bool]
) -> bool:
    """Return whether storing a view over tables costs more than joining them when a sibling changes."""
    siblings = [item for item in parent.children if item.atoms != child.atoms]
    merged = (*siblings, *child.children)
    if not any(map(changing, siblings)) or any(item.indicator for item in siblings):
        return False
    # If a key joins many rows, summing up before the join saves the most.
    if any(item.children or facts.rows(item, item.keys & child.keys) > 2 for item in siblings):
        return False
    extra = 0.0
    for sibling in filter(changing, siblings):
        keys_of = join_keys(merged, sibling)
        if not all(facts.has_lookup(leaf, keys_of[leaf]) for leaf in child.children):
            return False
        rows = prod(facts.rows(leaf, keys_of[leaf]) for leaf in child.children)
        if rows > FEW_ROWS:
            return False
        extra += rows * facts.changes(sibling)
    for leaf in filter(changing, child.children):
        keys_of = join_keys(merged, leaf)
        if not all(
            facts.has_lookup(item, keys_of[item]) for item in child.children if item is not leaf
        ):
            return False
    return extra < A_WRITE * facts.changes(child)
