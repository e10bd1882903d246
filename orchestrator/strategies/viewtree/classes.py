"""The class of a query, and what the class guarantees (papers/fivm.txt, theorems 13 and 26)."""

from __future__ import annotations

from collections.abc import Collection
from fractions import Fraction

from orchestrator.strategies.viewtree import search
from orchestrator.strategies.viewtree.form import NormalForm
from orchestrator.strategies.viewtree.hypergraph import Constraints, Fd, Hypergraph
from orchestrator.strategies.viewtree.search import NO_CONSTRAINTS
from orchestrator.strategies.viewtree.tree import View


def class_of(graph: Hypergraph, fds: tuple[Fd, ...]) -> str:
    """Return the class of a query in words, and the class of its Σ-reduct if it differs.

    >>> class_of(Hypergraph.of({"R": "AB", "S": "BC", "T": "AC"}), ())
    'cyclic'
    >>> fds = (Fd.of("S", "B", "C"), Fd.of("T", "C", "D"))
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


def guarantee(tree: View, graph: Hypergraph, constraints: Constraints = NO_CONSTRAINTS) -> str:
    """Return in words what the costs of a tree mean, and which constraints they rely on; N is the number of rows.

    >>> from orchestrator.strategies.viewtree.hypergraph import ForeignKey
    >>> from orchestrator.strategies.viewtree.orders import parsed
    >>> from orchestrator.strategies.viewtree.tree import composed, tau
    >>> graph = Hypergraph.of({"R": "AB", "S": "BC", "T": "CD"}, "D")
    >>> tree = composed(tau(parsed("D - C - B - A"), graph))
    >>> guarantee(tree, graph)
    'a change of one row costs O(N), the first content O(N)'
    >>> keys = (Fd.of("S", "B", "C"), Fd.of("T", "C", "D"))
    >>> guarantee(tree, graph, Constraints(keys))
    'a change of one row costs O(1), the first content O(N), by keys of S and T'
    >>> alone = Hypergraph.of({"R": "AB", "S": "BC"}, "AC")
    >>> reference = ForeignKey("R", "S", frozenset("B"))
    >>> constraints = Constraints((Fd.of("S", "B", "C"),), (reference,))
    >>> print(guarantee(composed(tau(parsed("B - { A, C }"), alone)), alone, constraints))
    a change of one row costs O(N), an insert or a delete O(1), the first content O(N), by keys of S, and by \
foreign keys of R
    """

    def exponents(known: Constraints) -> tuple[Fraction, Fraction, Fraction]:
        costs = without_updates = search.cost(tree, graph, known)
        if known.foreign_keys:
            without_updates = search.cost(tree, graph, known.without_updates)
        return costs.update, without_updates.update, max(costs.width, Fraction(1))

    update, come_or_go, first = exponents(constraints)
    parts = [f"a change of one row costs {power(update)}"]
    if come_or_go < update:
        parts.append(f"an insert or a delete {power(come_or_go)}")
    parts.append(f"the first content {power(first)}")
    because = constraints.needed(exponents).described
    return ", ".join([*parts, because] if because else parts)


def lookups(
    form: NormalForm,
    tree: View,
    graph: Hypergraph,
    constraints: Constraints,
    delay: Fraction,
    space: Fraction,
) -> str:
    """Return in words what lookups by the inputs of a query cost, from the exponents of its trees."""
    update = search.cost(tree, graph, constraints).update
    return (
        f"{_by_inputs(form, graph, constraints, update, delay)}: {guarantee(tree, graph, constraints)},"
        f" a lookup finds each next row in {power(delay)}, the views store {power(space)} rows"
    )


def _by_inputs(
    form: NormalForm,
    graph: Hypergraph,
    constraints: Constraints,
    update: Fraction,
    delay: Fraction,
) -> str:
    """Return whether lookups by the inputs are tractable: changes and next rows in constant time.

    They are if the fracture is hierarchical, and no variable that is in more tables than an input is another
    variable, or than a variable that the view shows is left out.
    """
    if not update and not delay:
        plain = graph.q_hierarchical and graph.input_dominant
        under = "" if plain else " under functional dependencies"
        return f"tractable, as its fracture is q-hierarchical and input-dominant{under}"
    reduct = graph.reduct(constraints.fds)
    if not reduct.hierarchical:
        return "not tractable, as its fracture is not hierarchical"
    for part, why in (
        (reduct.free, "{} is in fewer tables than {}, which the view leaves out"),
        (reduct.inputs, "the input {} is in fewer tables than {}"),
    ):
        for below in sorted(part):
            for above in sorted(reduct.variables - part):
                if reduct.rels[above] > reduct.rels[below]:
                    names = (form.copies.get(name, name) for name in (below, above))
                    return f"not tractable, as {why.format(*names)}"
    return "not tractable in this variable order"


def power(exponent: Fraction) -> str:
    """Return the bound O(N^exponent) as text."""
    if not exponent:
        return "O(1)"
    return "O(N)" if exponent == 1 else f"O(N^{exponent})"


def drawn(tree: View, stored: Collection[View], depth: int = 0) -> str:
    """Return a tree as text, one line for each view; a star marks stored views."""
    line = f"{'  ' * depth}{tree.label}{' *' if tree in stored else ''}"
    return "\n".join([line, *(drawn(child, stored, depth + 1) for child in tree.children)])
