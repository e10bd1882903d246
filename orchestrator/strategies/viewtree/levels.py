"""Which views are worth their storage: those of few rows a key are joined again where they are asked for.

Each change below a stored view is a write. Where the view has siblings that hardly change, and each of
their rows meets but a few rows of the tables below it, looking these up costs less than keeping the view.
Then the tables take its place among the children of the view above.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, prod

from orchestrator.deltascript.plan import Statistics
from orchestrator.strategies.viewtree.form import Atom
from orchestrator.strategies.viewtree.hypergraph import Variables
from orchestrator.strategies.viewtree.tree import View

FEW_ROWS = 32
"""So many rows may be looked up in place of one of a stored view."""
A_WRITE = 2
"""What changing a stored row costs, in lookups."""


@dataclass(frozen=True)
class Known:
    """What is known of the tables of a query."""

    atoms: Mapping[str, Atom]
    statistics: Mapping[int, Statistics]

    def is_found(self, leaf: View, keys: Variables) -> bool:
        """Whether a leaf's rows are all apart, and found by some of its keys."""
        atom = self.atoms[leaf.atoms[0]]
        columns = {s.as_column: v for v, s in atom.binds if v in leaf.keys}
        known = self.statistics.get(atom.scan.table.oid, Statistics(0))
        return any(key <= columns.keys() for key in atom.scan.keys) and any(
            columns.get(output.column) in keys and output.attnum in known.indexed
            for output in atom.scan.outputs
        )

    def changes(self, view: View) -> float:
        """Rows changed so far in the tables below a view; each row has come once."""
        known = (self.statistics.get(self.atoms[name].scan.table.oid) for name in view.atoms)
        return sum(item.rows + sum(item.changes.values()) for item in known if item)

    def rows(self, leaf: View, keys: Variables) -> float:
        """How many rows of a leaf have the values of some keys, on average."""
        atom = self.atoms[leaf.atoms[0]]
        known = self.statistics.get(atom.scan.table.oid, Statistics(0))
        places = {output.column: output.attnum for output in atom.scan.outputs}
        values = [
            known.distinct.get(places.get(s.as_column, 0) if s.as_column else 0, 0)
            for v, s in atom.binds
            if v in keys
        ]
        return max(1.0, known.rows / prod(values)) if known.rows and all(values) else inf


def met(children: Sequence[View], start: View) -> dict[View, Variables]:
    """By which of its keys each child is met, in a join of all that begins with one of them.

    >>> r, s, t = (View(frozenset(keys), (name,)) for name, keys in (("r", "a"), ("s", "ab"), ("t", "b")))
    >>> {view.name: "".join(keys) for view, keys in met([r, s, t], t).items()}
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


def flattened(view: View, drops: Callable[[View, View], bool]) -> View:
    """The tree without the views that are not worth it, whose children take their places.

    >>> leaf = View(frozenset("ab"), ("r",))
    >>> below = View(frozenset("a"), ("r", "s"), (leaf, View(frozenset("b"), ("s",))), "b")
    >>> tree = View(frozenset(), ("r", "s", "t"), (View(frozenset("a"), ("t",)), below), "a")
    >>> print(flattened(tree, lambda parent, child: True).shown())
    V@a(r, s, t)[]
      t[a]
      r[a, b]
      s[b]
    """
    children: list[View] = []
    for child in view.children:
        made = flattened(child, drops)
        leaves = made.children and not any(
            item.children or item.indicator for item in made.children
        )
        children += made.children if leaves and drops(view, made) else (made,)
    return replace(view, children=tuple(children))


def is_dear(parent: View, child: View, known: Known, changing: Callable[[View], bool]) -> bool:
    """Whether keeping a view over tables costs more than joining them when a sibling changes."""
    siblings = [item for item in parent.children if item.atoms != child.atoms]
    merged = (*siblings, *child.children)
    if not any(map(changing, siblings)) or any(item.indicator for item in siblings):
        return False
    # Where a key meets many rows, summing up before they are joined is worth the most.
    if any(item.children or known.rows(item, item.keys & child.keys) > 2 for item in siblings):
        return False
    extra = 0.0
    for sibling in filter(changing, siblings):
        met_by = met(merged, sibling)
        if not all(known.is_found(leaf, met_by[leaf]) for leaf in child.children):
            return False
        each = prod(known.rows(leaf, met_by[leaf]) for leaf in child.children)
        if each > FEW_ROWS:
            return False
        extra += each * known.changes(sibling)
    for leaf in filter(changing, child.children):
        met_by = met(merged, leaf)
        if not all(
            known.is_found(item, met_by[item]) for item in child.children if item is not leaf
        ):
            return False
    return extra < A_WRITE * known.changes(child)
