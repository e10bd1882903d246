"""The nodes of a ranked result: the views that hold its rows, with the parts of the order that each of them has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from orchestrator.algebra.analysis.decimal_scale import INTEGERS
from orchestrator.algebra.columns import Column
from orchestrator.algebra.scalar import TRUE
from orchestrator.algebra.unsupported import NotModelledError
from orchestrator.deltascript.leaves import DiffScan, StateScan
from orchestrator.strategies.factorized.order import OrderTerm, Summand
from orchestrator.strategies.viewtree.form import NormalForm
from orchestrator.strategies.viewtree.hypergraph import Hypergraph
from orchestrator.strategies.viewtree.tree import View
from orchestrator.strategies.viewtree.views import Views


@dataclass
class Node:
    """A view that holds a part of the rows, in the tree of these views."""

    view: View
    group: tuple[str, ...]
    """The variables that the views before it determine."""
    below: list[Node] = field(default_factory=list)
    parts: dict[int, tuple[Summand, ...]] = field(default_factory=dict)
    """The parts of terms that its own variables have, by the positions of the terms."""
    computed: dict[int, Column] = field(default_factory=dict)
    """The columns of its state with parts that are more than a column."""
    best: StateScan | None = None
    """The state with the best completions, if views below have parts of terms."""
    values: dict[int, Column] = field(default_factory=dict)
    """The columns of the terms of the best completion, in `best` or in the state of the view."""
    changed: DiffScan | None = None
    """The keys of rows whose best completion may have changed."""

    def walk(self) -> Iterator[Node]:
        """Yield the node and the nodes below."""
        yield self
        for node in self.below:
            yield from node.walk()

    @property
    def terms(self) -> tuple[int, ...]:
        """The positions of the terms that the views of the subtree have parts of."""
        return tuple(sorted({number for node in self.walk() for number in node.parts}))

    @property
    def has_terms_below(self) -> bool:
        """Whether the best completion depends on views below."""
        return any(node.terms for node in self.below)


def refuse(views: Views, graph: Hypergraph) -> None:
    """Refuse what has no sorted views, or rows that the order does not reach directly."""
    request, form = views.request, views.form
    for given, why, what in (
        (request.inputs, "rows are either asked by key or read in an order", "inputs"),
        (request.factorizable, "changes in factors have no best rows", "factorizable"),
        (form.around is not None, "the order needs the rows themselves", "a query over the rows"),
        (
            form.having != TRUE,
            "HAVING leaves out rows that the order has reached",
            str(form.having),
        ),
    ):
        if given:
            raise NotModelledError(f"a ranked view does not combine with it: {why}", what)
    if not graph.free_connex:
        raise NotModelledError(
            "the best rows of a table may lead to no row of the view, as the query is not free-connex; show the columns"
            " that join the tables, or leave a table out",
            "ranked",
        )


def nodes_of(views: Views, tree: View, result_views: Sequence[View]) -> list[Node]:
    """Return the tree of the views that hold the result; views that add no variable are left out."""
    roots: list[Node] = []
    bound: set[str] = set()

    def walk(view: View, above: tuple[Node, ...]) -> None:
        if view in result_views and not view.keys <= bound:
            group = tuple(sorted(view.keys & bound))
            node = Node(view, group)
            parents = [item for item in above if view.keys & bound <= item.view.keys]
            if group and not parents:
                raise NotModelledError("its rows follow from several views at once", view.label)
            (parents[-1].below if group else roots).append(node)
            bound.update(view.keys)
            known = views.defined[view]
            for name in group:
                if known.keys[name] not in known.rows.not_null:
                    raise NotModelledError("NULL would lead to rows below", name)
            above = (*above, node)
        for child in view.children:
            walk(child, above)

    walk(tree, ())
    return roots


def assign_parts(
    views: Views, order: Sequence[OrderTerm], roots: Sequence[Node], form: NormalForm
) -> None:
    """Assign the parts of each term to the nodes that have the columns."""
    variables = dict(form.groups)
    nodes = [node for root in roots for node in root.walk()]
    owners: dict[str, Node] = {}
    for node in nodes:
        for name in node.view.keys:
            owners.setdefault(name, node)
    for number, term in enumerate(order):
        parts: dict[int, list[Summand]] = {}
        for summand in term.summands:
            if summand.column not in variables:
                raise NotModelledError(
                    "the order reads an aggregate; order by grouping columns", term.text
                )
            variable = variables[summand.column]
            node = owners[variable]
            key = views.defined[node.view].keys[variable]
            parts.setdefault(nodes.index(node), []).append(replace(summand, column=key))
            if term.column is None:
                _require_number(views, summand, term)
        for place, summands in parts.items():
            rows = views.defined[nodes[place].view].rows
            for item in summands:
                if len(parts) > 1 and item.default is None and item.column not in rows.not_null:
                    raise NotModelledError(
                        f"a sum over several tables is NULL where {item.column} is; declare the column NOT NULL, or"
                        f" order by coalesce({item.column}, 0)",
                        term.text,
                    )
            nodes[place].parts[number] = tuple(summands)


def _require_number(views: Views, summand: Summand, term: OrderTerm) -> None:
    known = views.composer.types.get(summand.column.symbol)
    name = known.name.partition("(")[0] if known else "an unknown type"
    if name not in INTEGERS and name != "numeric":
        raise NotModelledError(
            f"{summand.column} is of type {name}, and only integers and numerics are added up exactly; cast it to"
            " numeric in the query",
            term.text,
        )
