"""The graph model that every picture of a plan is written from, and its legend."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

Kind = Literal["table", "view", "query", "operator", "changes", "diff", "apply", "state", "content"]

KINDS: dict[str, str] = {
    "table": "a captured table",
    "view": "a maintained view",
    "query": "the query of the view",
    "operator": "an operator of the algebra",
    "changes": "the net changes of a table, read from its change log",
    "diff": "a diff, held in a variable",
    "apply": "a step that applies a diff to a stored state",
    "state": "a stored state: a cache, a view of a view tree, or a heavy or light part",
    "content": "the rows that the view shows",
}

SYMBOLS: dict[str, str] = {
    "σ": "selection: keep the rows that satisfy the condition",
    "π": "projection: compute columns",
    "⋈": "join",
    "⋈→": "dependent join: evaluate the right side for each row of the left side",
    "×": "product",
    "⟕": "left join",
    "⟗": "full join",
    "⋉": "semijoin: keep the rows that have a match",
    "▷": "antijoin: keep the rows that have no match",
    "∪": "union",
    "⊎": "union of bags",
    "∩": "intersection",
    "−": "difference",
    "γ": "grouping: columns; aggregates → names",
    "δ1": "DISTINCT ON: keep the first row of each group",
    "δ": "distinct rows; in front of a table, its change",
    "λ": "the first rows of an order (LIMIT), or a lateral step",
    "τ": "sort",
    "ω": "window functions",
    "ν": "ROW_NUMBER or WITH ORDINALITY: number the rows",
    "μ": "the recursive part of WITH RECURSIVE",
    "⟨": "⟨columns⟩: the IDs of the rows of a result",
    "Δ⁺": "inserted rows",
    "Δ⁻": "deleted rows",
    "Δᵘ": "updated rows, with old and new values",
    ":=": "compute a diff",
}
"""Longer symbols stand before their first characters."""


@dataclass(frozen=True)
class Node:
    """A box: a title, and further lines below it."""

    id: str
    title: str
    kind: Kind
    lines: tuple[str, ...] = ()
    mark: str = ""
    """A word for the style of the box, as the state of a view."""
    link: str | None = None


@dataclass(frozen=True)
class Edge:
    """An arrow from an input to what is computed from it."""

    source: str
    target: str


@dataclass(frozen=True)
class Graph:
    """Nodes and edges without a cycle."""

    title: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    direction: Literal["up", "down", "right"] = "down"
    """Where arrows point. With `up`, the result is at the top and its inputs are below."""

    def node(self, name: str) -> Node:
        """Return the node with this ID."""
        return next(node for node in self.nodes if node.id == name)

    def legend(self) -> list[tuple[str, str]]:
        """Return the symbols and kinds that occur in the graph, each with its meaning.

        >>> graph = Graph("", (Node("a", "γ n; sum(x) → s", "operator"),), ())
        >>> [symbol for symbol, _ in graph.legend()]
        ['γ', 'operator']
        """
        texts = " ".join(line for node in self.nodes for line in (node.title, *node.lines))
        kinds = [(kind, KINDS[kind]) for kind in KINDS if any(n.kind == kind for n in self.nodes)]
        return [*((symbol, SYMBOLS[symbol]) for symbol in _symbols(texts)), *kinds]

    def to_json(self) -> dict[str, Any]:
        """Return the graph as plain values."""
        return {
            "title": self.title,
            "direction": self.direction,
            "nodes": [asdict(node) for node in self.nodes],
            "edges": [asdict(edge) for edge in self.edges],
            "legend": dict(self.legend()),
        }


def _symbols(texts: str) -> Iterator[str]:
    for symbol in SYMBOLS:
        if symbol in texts:
            yield symbol
        # Without this, the legend would also explain the first character of a longer symbol.
        texts = texts.replace(symbol, " ")
