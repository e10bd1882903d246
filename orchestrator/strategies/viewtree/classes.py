"""The class of a query, and what the class guarantees (papers/fivm.txt, theorems 13 and 26)."""

from __future__ import annotations

from collections.abc import Collection
from fractions import Fraction

from orchestrator.strategies.viewtree.hypergraph import Fd, Hypergraph
from orchestrator.strategies.viewtree.search import Cost
from orchestrator.strategies.viewtree.tree import View


def class_of(graph: Hypergraph, fds: tuple[Fd, ...]) -> str:
    """Return the class of a query in words, and the class of its Σ-reduct if it differs.

    >>> class_of(Hypergraph.of({"R": "AB", "S": "BC", "T": "AC"}), ())
    'cyclic'
    >>> fds = ((frozenset("B"), frozenset("C")), (frozenset("C"), frozenset("D")))
    >>> class_of(Hypergraph.of({"R": "AB", "S": "BC", "T": "CD"}, "ABCD"), fds)  # example 27
    'free-connex acyclic; q-hierarchical under functional dependencies'
    """
    plain, reduct = _name(graph), _name(graph.reduct(fds))
    return plain if plain == reduct else f"{plain}; {reduct} under functional dependencies"


def _name(graph: Hypergraph) -> str:
    if graph.q_hierarchical:
        return "q-hierarchical"
    parts = [
        "hierarchical" if graph.hierarchical else "",
        "free-connex acyclic" if graph.free_connex else "acyclic" if graph.acyclic else "cyclic",
    ]
    return ", ".join(part for part in parts if part)


def guarantee(cost: Cost) -> str:
    """Return in words what the costs of a tree mean; N is the number of rows.

    >>> guarantee(Cost((), (Fraction(1),)))
    'a change of one row costs O(1), the first content O(N)'
    >>> guarantee(Cost((Fraction(1, 2),), (Fraction(3, 2),)))
    'a change of one row costs O(N^1/2), the first content O(N^3/2)'
    """
    first = power(max(cost.width, Fraction(1)))
    return f"a change of one row costs {power(cost.update)}, the first content {first}"


def power(exponent: Fraction) -> str:
    """Return the bound O(N^exponent) as text."""
    if not exponent:
        return "O(1)"
    return "O(N)" if exponent == 1 else f"O(N^{exponent})"


def drawn(tree: View, stored: Collection[View], depth: int = 0) -> str:
    """Return a tree as text, one line for each view; a star marks stored views."""
    line = f"{'  ' * depth}{tree.label}{' *' if tree in stored else ''}"
    return "\n".join([line, *(drawn(child, stored, depth + 1) for child in tree.children)])
