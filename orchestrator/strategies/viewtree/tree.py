"""View trees over variable orders: τ, ν, μ and indicator projections (papers/fivm.txt).

A view is a relation with keys, and with payloads from a ring. The view of an inner node joins its
children and sums out the variables that are not among its keys.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from orchestrator.caching import cached_property
from orchestrator.strategies.viewtree.hypergraph import Hypergraph, Variables, reduced
from orchestrator.strategies.viewtree.orders import Forest, Order, dep, is_top


@dataclass(frozen=True)
class View:
    """A node of a view tree."""

    keys: Variables
    atoms: tuple[str, ...]
    """The atoms below, each of them once."""
    children: tuple[View, ...] = ()
    """Empty for a view over one atom."""
    at: str | None = None
    """The variable of the order that the view belongs to; an indicator has its parent's variable."""
    indicator: bool = False
    """Whether this is ∃ of an atom's projection (definition 29), whose payloads are 1."""
    part: str = ""
    """The name of the part, if the view is over a part of an atom's rows or over some values only."""

    @property
    def label(self) -> str:
        """The view in the paper's notation: its variable, its atoms and its keys."""
        keys = ", ".join(sorted(self.keys))
        if not self.children:
            return f"{'∃' if self.indicator else ''}{self.name}[{keys}]"
        place = f"@{self.at}{self.part and '_'}{self.part}" if self.at else ""
        leaves = {v.atoms[0]: v.name for v in self.walk() if not v.children and not v.indicator}
        return f"V{place}({', '.join(leaves[atom] for atom in self.atoms)})[{keys}]"

    @property
    def name(self) -> str:
        """The name of a leaf: the atom, and its part of the atom."""
        return f"{self.atoms[0]}_{self.part}" if self.part else self.atoms[0]

    @cached_property
    def joined(self) -> Variables:
        """The variables of the join of its children."""
        return frozenset[str]().union(*(child.keys for child in self.children))

    @property
    def leaves(self) -> frozenset[str]:
        """The atoms of all leaves below, including indicators."""
        return frozenset(view.atoms[0] for view in self.walk() if not view.children)

    def as_text(self, depth: int = 0) -> str:
        """Return the tree as text, one line for each view."""
        return "\n".join(
            ["  " * depth + self.label, *(child.as_text(depth + 1) for child in self.children)]
        )

    def walk(self) -> Iterator[View]:
        """Yield the view and all views below it, upper views first."""
        yield self
        for child in self.children:
            yield from child.walk()


def tau(forest: Forest, graph: Hypergraph) -> View:
    """Figure 4: return one view for each variable, whose keys are dep(X) and the free variables below.

    The example shows the paper's figures 3 and 5, for Q[] and Q[A, C]:

    >>> from orchestrator.strategies.viewtree.orders import parsed
    >>> edges = {"R": "AB", "S": "ACE", "T": "CD"}
    >>> order = parsed("A - { B, C - { D, E } }")
    >>> print(tau(order, Hypergraph.of(edges)).as_text())
    V@A(R, S, T)[]
      V@B(R)[A]
        R[A, B]
      V@C(S, T)[A]
        V@D(T)[C]
          T[C, D]
        V@E(S)[A, C]
          S[A, C, E]
    >>> print(tau(order, Hypergraph.of(edges, "AC")).as_text())
    V@A(R, S, T)[A, C]
      V@B(R)[A]
        R[A, B]
      V@C(S, T)[A, C]
        V@D(T)[C]
          T[C, D]
        V@E(S)[A, C]
          S[A, C, E]
    """

    def node(order: Order, path: frozenset[str]) -> View:
        path |= {order.variable}
        keys = dep(order, graph) | order.variables & graph.free
        below = [*_leaves(order, path, graph), *(node(item, path) for item in order.below)]
        return _joined(keys, below, order.variable, graph)

    return _rooted([node(order, frozenset()) for order in forest], graph)


def nu(forest: Forest, graph: Hypergraph) -> View:
    """Figure 9: return the tree of a free-top order that stores the result factorized.

    A free variable X with several children gets a view H with X and dep(X) as keys. If X has siblings, a
    view above H sums X out. The trees of a fracture have roots with the inputs as keys if several of them
    show other variables: a reader finds out in all trees whether the inputs have rows before reading any.
    The example shows the paper's figure 10, for Q[A, B, C]:

    >>> from orchestrator.strategies.viewtree.orders import parsed
    >>> edges = {"R": "AB", "S": "ACE", "T": "CD"}
    >>> order = parsed("A - { B, C - { D, E } }")
    >>> print(nu(order, Hypergraph.of(edges, "ABC")).as_text())
    V@A(R, S, T)[A]
      V@B(R)[A]
        R[A, B]
      V@C(S, T)[A]
        V@C(S, T)[A, C]
          V@D(T)[C]
            T[C, D]
          V@E(S)[A, C]
            S[A, C, E]
    """

    def root(order: Order) -> View:
        inputs = order.variables & graph.inputs
        if inputs and many and is_top(inputs, (order,)):
            return _joined(inputs, [node(order, frozenset(), False)], order.variable, graph)
        return node(order, frozenset(), many and not inputs)

    def node(order: Order, path: frozenset[str], sibling: bool) -> View:
        path |= {order.variable}
        above = dep(order, graph)
        leaves = _leaves(order, path, graph)
        crowded = len(leaves) + len(order.below) > 1
        below = [*leaves, *(node(item, path, crowded) for item in order.below)]
        if order.variable not in graph.free:
            return _joined(above, below, order.variable, graph)
        if crowded:
            below = [_joined(above | {order.variable}, below, order.variable, graph)]
        return _joined(above, below, order.variable, graph) if sibling else below[0]

    visible = graph.free - graph.inputs if graph.inputs else graph.variables
    many = sum(bool(order.variables & visible) for order in forest) > 1
    return _rooted(list(map(root, forest)), graph, frozenset())


def _leaves(order: Order, path: Variables, graph: Hypergraph) -> list[View]:
    """Return the atoms whose lowest variable is that of the order."""
    return [
        View(schema, (name,))
        for name, schema in graph.edges
        if order.variable in schema and schema <= path
    ]


def _joined(keys: Variables, below: list[View], at: str | None, graph: Hypergraph) -> View:
    under = {name for child in below for name in child.atoms}
    atoms = tuple(name for name, _ in graph.edges if name in under)
    return View(keys, atoms, tuple(below), at)


def _rooted(roots: list[View], graph: Hypergraph, keys: Variables | None = None) -> View:
    """Return one tree for several roots and the atoms without a variable."""
    roots += [View(schema, (name,)) for name, schema in graph.edges if not schema]
    if len(roots) == 1:
        return roots[0]
    return _joined(graph.free if keys is None else keys, roots, None, graph)


def composed(view: View, kept: Variables = frozenset()) -> View:
    """Return the tree with chains merged: a view over one child sums out the variables of both (section 4).

    A view that sums out a kept variable is not merged with the view that still has it.

    >>> from orchestrator.strategies.viewtree.orders import parsed
    >>> graph = Hypergraph.of({"R": "AB", "S": "ACE", "T": "CD"})
    >>> print(composed(tau(parsed("A - { B, C - { D, E } }"), graph)).as_text())
    V@A(R, S, T)[]
      R[A]
      V@C(S, T)[A]
        T[C]
        S[A, C]
    """
    below = tuple(composed(child, kept) for child in view.children)
    if len(below) == 1 and not (below[0].keys - view.keys) & kept:
        return replace(below[0], keys=view.keys, at=below[0].at and view.at)
    return replace(view, children=below)


def materialised(root: View, updatable: Collection[str]) -> frozenset[View]:
    """μ (figure 8): return the root, and each view with a sibling over an atom that may change.

    >>> from orchestrator.strategies.viewtree.orders import parsed
    >>> graph = Hypergraph.of({"R": "AB", "S": "ACE", "T": "CD"})
    >>> tree = composed(tau(parsed("A - { B, C - { D, E } }"), graph))
    >>> sorted(view.label for view in materialised(tree, "T"))  # example 10
    ['R[A]', 'S[A, C]', 'V@A(R, S, T)[]']
    >>> len(materialised(tree, "RST")), len(materialised(tree, ""))
    (5, 1)
    """

    def below(view: View) -> Iterator[View]:
        for child in view.children:
            siblings = [other for other in view.children if other is not child]
            if any(other.leaves & set(updatable) for other in siblings):
                yield child
            yield from below(child)

    return frozenset({root, *below(root)})


def enumerated(
    view: View, free: Variables, whole: bool = False, inputs: Variables = frozenset()
) -> tuple[View, ...]:
    """Return the views whose join is the result of a tree by ν, upper views first (theorem 13).

    The views reach down to where no free variable is left below. A view above such a part has only keys
    with rows below, so looking up one view after the other finds each row at once. Views that add no
    variable are only joined for their payloads, if the `whole` product is needed. The roots over a fracture
    that only hold `inputs` come first.

    >>> from orchestrator.strategies.viewtree.orders import parsed
    >>> edges = {"R": "AB", "S": "ACE", "T": "CD"}
    >>> graph = Hypergraph.of(edges, "ABC")
    >>> tree = composed(nu(parsed("A - { B, C - { D, E } }"), graph), graph.free)
    >>> [view.label for view in enumerated(tree, graph.free)]
    ['V@A(R, S, T)[A]', 'R[A, B]', 'V@C(S, T)[A, C]']
    """
    inside = [inner.keys for inner in view.walk() if not inner.indicator]
    if frozenset[str]().union(*inside) & free <= view.keys:
        return (view,)
    # The keys of a view over one child are among the child's keys; the root of several trees has no keys.
    joins_children = bool(view.keys) and len(view.children) > 1
    views = [
        below
        for child in view.children
        if not child.indicator
        for below in enumerated(child, free, whole)
        if whole or not joins_children or not below.keys <= view.keys
    ]
    if inputs and view.at is None:
        roots = (child for child in view.children if child.keys <= inputs)
        return tuple(dict.fromkeys((*roots, *views)))
    return (view, *views) if joins_children else tuple(views)


def with_indicators(view: View, graph: Hypergraph) -> View:
    """Figure 17: add indicator projections to views over cyclic joins, which keep the views small.

    >>> from orchestrator.strategies.viewtree.orders import parsed
    >>> triangle = Hypergraph.of({"R": "AB", "S": "BC", "T": "AC"})
    >>> print(with_indicators(tau(parsed("A - B - C"), triangle), triangle).as_text())
    V@A(R, S, T)[]
      V@B(R, S, T)[A]
        R[A, B]
        V@C(S, T)[A, B]
          S[B, C]
          T[A, C]
          ∃R[A, B]
    """
    if not view.children:
        return view
    below = tuple(with_indicators(child, graph) for child in view.children)
    inside = [schema for name, schema in graph.edges if name in view.atoms]
    outside = [
        (name, schema & view.keys)
        for name, schema in graph.edges
        if name not in view.atoms and schema & view.keys
    ]
    reductions = reduced([*inside, *(schema for _, schema in outside)])[len(inside) :]
    added = tuple(
        View(schema, (name,), at=view.at, indicator=True)
        for (name, schema), rest in zip(outside, reductions, strict=True)
        if rest
    )
    return replace(view, children=(*below, *added))
