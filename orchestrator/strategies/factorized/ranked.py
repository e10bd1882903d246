"""Ranked enumeration: what a view stores so that readers get its rows in an order without joining the rest.

The order is a list of terms. A term is a column, or a sum of numbers of several views of the tree. Every row of a view
has a best completion: with the first rows, in the order, that match it in the views below. The terms of the best
completion are stored beside the row, in a state `best_...`, and sorted in an index. So the best row of all is reached
by a lookup in each view, and each following row by a few lookups more (docs/papers.md, "Ranked enumeration").

Sums of vectors that are compared lexicographically keep their order if the same vector is added to both. So the best
completion of a row consists of the best rows of the views below, for any list of terms. NULL would break this in a sum
of several views: a sum with NULL is NULL, whatever the other summands are.

A minimum or maximum has no ring, as a deleted row cannot be subtracted from it. After a change, the best completions of
the rows that the change reaches are looked up again, in the sorted views below.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.base import Operator, SortKey
from orchestrator.algebra.operators.dependent_join import DependentJoin
from orchestrator.algebra.operators.distinct import Distinct
from orchestrator.algebra.operators.distinct_on import DistinctOn
from orchestrator.algebra.operators.join import Join
from orchestrator.algebra.operators.limit import Limit
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.operators.set_operation import Branch
from orchestrator.algebra.operators.union_all import UnionAll
from orchestrator.algebra.recognition.first_rows import FirstRows
from orchestrator.algebra.scalar import Scalar, conjunction, filled
from orchestrator.algebra.unsupported import NotModelledError
from orchestrator.deltascript.leaves import StateScan
from orchestrator.deltascript.plan import (
    CONTENT,
    Excerpt,
    MaintenancePlan,
    Part,
    RankedNode,
    Ranking,
    Sorted,
    StateTable,
    Term,
)
from orchestrator.engine import terms
from orchestrator.engine.costs.cardinality import Cardinality
from orchestrator.engine.recompute_parts import exchange
from orchestrator.engine.states import INDEXED_AT_MOST, Upkeep, store
from orchestrator.strategies.factorized.nodes import Node, assign_parts, nodes_of, refuse
from orchestrator.strategies.factorized.order import (
    OrderTerm,
    Summand,
    parsed_order,
    terms_of,
)
from orchestrator.strategies.factorized.shown import show_first
from orchestrator.strategies.viewtree.form import NormalForm
from orchestrator.strategies.viewtree.hypergraph import Hypergraph
from orchestrator.strategies.viewtree.relation import Content, Relation, columns_of, state_name
from orchestrator.strategies.viewtree.tree import View
from orchestrator.strategies.viewtree.views import Views


@dataclass(frozen=True)
class First:
    """The first rows that a view shows, and the expressions that its query sorts by, over groups of the normal form."""

    rows: FirstRows
    sorted_by: tuple[Scalar, ...]

    def excerpt(self, views: Views) -> Excerpt:
        """Return the rows as readers need them."""
        cardinality = Cardinality(views.composer, views.statistics)
        query = self.rows.query.root
        cardinality.learn(query)
        analyzed = all(known.distinct for known in views.statistics.values())
        expected = cardinality.rows(query) if analyzed and cardinality.knows(query) else 0.0
        return Excerpt(self.rows.skipped, self.rows.count, self.rows.with_ties, expected)


_Rows: TypeAlias = tuple[Operator, Mapping[str, Column]]
"""Rows, and the columns of their keys."""


def ranked_result(
    views: Views,
    tree: View,
    result_views: Sequence[View],
    graph: Hypergraph,
    first: First | None = None,
) -> RankedResult | None:
    """Return what a ranked view stores besides its factorized result, or None without an order.

    With `first`, the view shows the first rows in the order of its query.
    """
    request, form = views.request, views.form
    if first is None and request.ranked is None:
        return None
    refuse(views, graph)
    if first is not None:
        order = _without_repeated(terms_of(first.rows.order, first.sorted_by), form)
        if not order:
            raise NotModelledError("all rows are equal in the order", "LIMIT")
    elif request.ranked is not None:
        names = [column.name for column in request.columns]
        expressions = dict(zip(names, (scalar for _, scalar in form.outputs), strict=True))
        order = parsed_order(request.ranked, expressions)
    roots = nodes_of(views, tree, result_views)
    assign_parts(views, order, roots, form)
    return RankedResult(views, order, roots, first)


def _without_repeated(order: Sequence[OrderTerm], form: NormalForm) -> tuple[OrderTerm, ...]:
    """Return an order without the columns that are equal to a column before."""
    variables = dict(form.groups)
    kept: dict[object, OrderTerm] = {}
    for term in order:
        kept.setdefault(variables.get(term.column) if term.column else term.text, term)
    return tuple(kept.values())


class RankedResult:
    """Adds the states and steps that keep the best completion of each row."""

    def __init__(
        self,
        views: Views,
        order: Sequence[OrderTerm],
        roots: Sequence[Node],
        first: First | None,
    ) -> None:
        """Take the views of the tree, the order, and the roots of the nodes, to which parts of terms are assigned."""
        self.views, self.composer, self.order, self.roots = views, views.composer, order, roots
        self.first, self.rows = first, CONTENT
        self.excerpt = None if first is None else first.excerpt(views)
        self.nodes = [node for root in roots for node in root.walk()]
        self.contents: dict[View, Content] = {}
        self.applied: dict[View, list[Relation]] = {}
        """The deltas that were added to the states of nodes."""

    def guarantee(self, costs: str) -> str:
        """Return what the order costs, after the costs of the tree without it."""
        order = ", ".join(map(str, self.order))
        return (
            f"{costs}; ranked by {order}: each next row in this order is found in O(log N), and a change costs O(log N)"
            " for each row of the tree that it reaches"
        )

    def show_first(self, root: Relation) -> None:
        """Let the view show the first rows of the result, whose join is given."""
        assert self.first is not None
        first = self.first
        self.rows = show_first(self.views, root, tuple(root.keys), first.rows, first.sorted_by)

    # States

    def store(self, view: View) -> bool:
        """Store a view with the computed parts of terms, if it is a node that has any; return whether it is."""
        node = next((node for node in self.nodes if node.view is view), None)
        if node is None or node.has_terms_below:
            return False
        items = []
        relation = self.views.defined[view]
        for number, summands in node.parts.items():
            if _is_plain(summands):
                node.values[number] = summands[0].column
            else:
                item = Item(self._new_column(), _sum(summands))
                node.values[number] = item.column
                items.append(item)
        if not items:
            return False
        kept = columns_of(relation)
        content = self.contents[view] = Content(self._stored(view, items), kept, tuple(items))
        self.views.states[view] = content.state
        return True

    def _stored(self, view: View, items: Sequence[Item]) -> StateScan:
        relation = self.views.defined[view]
        rows = Projection(relation.rows, (*map(Item.kept, columns_of(relation)), *items))
        keys = tuple(relation.keys.values())
        role = self.composer.name(state_name(view))
        return store(role, rows, keys, self.composer, followed=False)

    def store_best(self) -> None:
        """Store the best completions of the rows of views over others that have terms, lower views first."""
        for node in reversed(self.nodes):
            if node.has_terms_below:
                known = self.views.defined[node.view]
                state = self.views.states[node.view]
                rows = self._completed(node, state, known.keys, whole=True)
                role = self.composer.name(f"best_{state_name(node.view)}")
                ids = tuple(known.keys.values())
                node.best = store(role, rows, ids, self.composer, followed=False)

    def _new_column(self) -> Column:
        return Column(self.composer.symbols.fresh("idivm_best"), "numeric")

    def _completed(
        self, node: Node, rows: Operator, keys: Mapping[str, Column], *, whole: bool = False
    ) -> Operator:
        """Return rows of a view with the terms of their best completion, given the columns of its keys.

        For the `whole` view, sort the views below once: when states get their first content, they have no index yet.
        """
        own = {column: keys[name] for name, column in self.views.defined[node.view].keys.items()}
        parts: dict[int, list[Scalar]] = {}
        plain: dict[int, Column] = {}
        for number, summands in node.parts.items():
            here = tuple(replace(item, column=own[item.column]) for item in summands)
            parts[number] = [_sum(here)]
            if _is_plain(here):
                plain[number] = summands[0].column
        for child in node.below:
            if not child.terms:
                continue
            if whole:
                first, group, values = self._first_of_all(child)
                same = (filled("x = y", x=keys[name], y=column) for name, column in group.items())
                rows = Join(rows, first, conjunction(same))
            else:
                first, values = self._first(child, keys)
                rows = DependentJoin(rows, first)
            for number, column in values.items():
                parts.setdefault(number, []).append(Scalar.column(column))
        items = []
        for number in node.terms:
            if len(parts[number]) == 1 and number in plain:
                node.values[number] = plain[number]
                continue
            total = parts[number][0]
            for other in parts[number][1:]:
                total = filled("x + y", x=total, y=other)
            if len(parts[number]) > 1 or len(self.order[number].summands) > 1:
                total = filled("x::numeric", x=total)
            target = node.values.setdefault(number, self._new_column())
            items.append(Item(target, total))
        kept = (
            Item(new, Scalar.column(keys[name]))
            for name, new in self.views.defined[node.view].keys.items()
        )
        return Projection(rows, (*kept, *items))

    def _first_of_all(self, node: Node) -> tuple[Operator, dict[str, Column], dict[int, Column]]:
        """Return the first row of each group of a node, with the columns of its group and of its terms."""
        rows, new, sort = self._sorted_rows(node)
        keys = self.views.defined[node.view].keys
        group = {name: new[keys[name]] for name in node.group}
        order = (*map(SortKey, group.values()), *sort)
        terms_of = {number: new[node.values[number]] for number in node.terms}
        first = DistinctOn(rows, tuple(group.values()), order)
        return terms.projected(first, (*group.values(), *terms_of.values())), group, terms_of

    def _first(self, node: Node, above: Mapping[str, Column]) -> tuple[Operator, dict[int, Column]]:
        """Return the first row of a node for each row above, with the columns of its terms."""
        rows, new, sort = self._sorted_rows(node)
        keys = self.views.defined[node.view].keys
        same = conjunction(filled("x = y", x=new[keys[name]], y=above[name]) for name in node.group)
        first = Limit(Selection(rows, same), order=sort, count=Scalar.read("1"), indexed=True)
        values = {number: new[node.values[number]] for number in node.terms}
        return terms.projected(first, values.values()), values

    def _sorted_rows(
        self, node: Node
    ) -> tuple[Operator, dict[Column, Column], tuple[SortKey, ...]]:
        """Return the rows of a node with new columns, these columns, and the order within a group."""
        source = self._source(node)
        new = {column: self.composer.fresh(column) for column in source.columns}
        sort = tuple(
            SortKey(new[column], item.descending, item.nulls_first)
            for column, item in self._sorted_columns(node)
        )
        return terms.renamed(source, new.items()), new, sort

    def _source(self, node: Node) -> StateScan:
        """Return the state in which the rows of a node are sorted."""
        return node.best or self.views.states[node.view]

    def _sorted_columns(self, node: Node) -> list[tuple[Column, Sorted]]:
        """Return the columns by which the rows of a group are sorted: the terms, and then the keys.

        The keys have the direction of the last term, so that rows after another row are often one range of an index.
        """
        source, result = self._source(node), list[tuple[Column, Sorted]]()
        keys = self.views.defined[node.view].keys
        for number in node.terms:
            column, term = node.values[number], self.order[number]
            is_nullable = column not in source.not_null and len(self._holders(number)) == 1
            name = source.called(column)
            result.append((column, Sorted(name, term.descending, term.nulls_first, is_nullable)))
        sorted_by = {column for column, _ in result}
        for variable in sorted(keys.keys() - set(node.group)):
            column = keys[variable]
            if column not in sorted_by:
                is_nullable, down = column not in source.not_null, self.order[-1].descending
                result.append((column, Sorted(source.called(column), down, down, is_nullable)))
        return result

    def _parts(self, number: int) -> tuple[Part, ...]:
        """Return the summands of a term over variables."""
        result = []
        for node in self.nodes:
            variables = {c: name for name, c in self.views.defined[node.view].keys.items()}
            for item in node.parts.get(number, ()):
                default = None if item.default is None else str(item.default)
                result.append(Part(variables[item.column], str(item.factor), default))
        return tuple(result)

    def _holders(self, number: int) -> tuple[int, ...]:
        """Return the positions of the nodes that have parts of a term."""
        return tuple(place for place, node in enumerate(self.nodes) if number in node.parts)

    # Changes

    def follow(self, view: View, delta: Relation) -> Content | None:
        """Note the delta that is added to a view; return the columns that are computed with it."""
        self.applied.setdefault(view, []).append(delta)
        return self.contents.get(view)

    def maintain(self) -> None:
        """Add the steps that look up the best completions again that a change may have changed."""
        for node in reversed(self.nodes):
            if node.best is None:
                continue
            known = self.views.defined[node.view]
            names = tuple(known.keys)
            changes: list[_Rows] = [
                (delta.rows, delta.keys) for delta in self.applied.get(node.view, ())
            ]
            for child in node.below:
                if child.terms:
                    changes += self._changes_above(node, child)
            if not changes:
                continue
            keys = tuple(known.keys[name] for name in names)
            branches = tuple(
                Branch(rows, tuple(columns[name] for name in names)) for rows, columns in changes
            )
            changed = (
                Distinct(UnionAll(branches, keys))
                if len(branches) > 1
                else Distinct(
                    terms.renamed(branches[0].input, zip(branches[0].columns, keys, strict=True))
                )
            )
            role = node.best.role
            node.changed = self.composer.assign(f"{role}_keys", changed, keys)
            rows, copies = self._rows_with(node, node.changed, known.keys, names)
            completed = self._completed(node, rows, copies)
            fresh = self.composer.assign(f"{role}_after", completed, completed.columns)
            exchange(Upkeep(node.best, self.composer), node.changed, fresh)

    def _changes_above(self, node: Node, child: Node) -> list[_Rows]:
        """Return the rows of a node whose best completion a change below may have changed."""
        deltas: list[_Rows] = []
        if child.best is None:
            deltas = [(item.rows, item.keys) for item in self.applied.get(child.view, ())]
        elif child.changed is not None:
            deltas = [(child.changed, self.views.defined[child.view].keys)]
        if set(child.group) == node.view.keys:
            return deltas
        return [self._rows_with(node, rows, keys, child.group) for rows, keys in deltas]

    def _rows_with(
        self, node: Node, changes: Operator, keys: Mapping[str, Column], by: Sequence[str]
    ) -> _Rows:
        """Return the rows of a view that changes name by some variables, with the columns of its keys."""
        copy = self.views.copy(node.view)
        names = {name: self.composer.fresh(keys[name]) for name in by}
        named = terms.renamed(changes, ((keys[name], new) for name, new in names.items()))
        pairs = [(names[name], copy.keys[name]) for name in by]
        state, known = self.views.states[node.view], self.views.defined[node.view]
        self.views.note_probe(state, (known.keys[name] for name in by))
        return Join(named, copy.rows, terms.same(pairs, copy.rows.not_null)), copy.keys

    # The plan

    def with_ranking(self, plan: MaintenancePlan, variables: tuple[str, ...]) -> MaintenancePlan:
        """Return a plan with the sorted indexes, and with what readers need to know."""
        nodes = []
        indexes: dict[str, tuple[Sorted, ...]] = {}
        for node in self.nodes:
            source, keys = self._source(node), self.views.defined[node.view].keys
            order = tuple(item for _, item in self._sorted_columns(node))
            group = tuple(Sorted(source.called(keys[name])) for name in node.group)
            indexes[source.role] = (*group, *order)
            if len(indexes[source.role]) > INDEXED_AT_MOST:
                raise NotModelledError(
                    f"the order needs an index with more than {INDEXED_AT_MOST} columns",
                    node.view.label,
                )
            columns = tuple((name, source.called(column)) for name, column in keys.items())
            below = sum(1 for _ in node.walk()) - 1
            nodes.append(RankedNode(source.role, columns, node.group, order, node.terms, below))
        listed = tuple(
            Term(term.descending, term.nulls_first, self._holders(number), self._parts(number))
            for number, term in enumerate(self.order)
        )
        states = tuple(
            replace(state, sorted=indexes[state.role])
            if isinstance(state, StateTable) and state.role in indexes
            else state
            for state in plan.program.states
        )
        written = "" if self.excerpt else ", ".join(term.sql for term in self.order)
        ranking = Ranking(written, listed, tuple(nodes), variables, self.rows, self.excerpt)
        evidence = plan.evidence
        if self.excerpt is not None:
            note = f"a read finds {self.excerpt} one by one, each in O(log N), without the rest of the join"
            evidence = replace(evidence, notes=(*evidence.notes, note))
        program = replace(plan.program, states=states)
        return replace(plan, program=program, evidence=evidence, ranking=ranking)


def _is_plain(summands: Sequence[Summand]) -> bool:
    return len(summands) == 1 and summands[0].is_plain


def _sum(summands: Sequence[Summand]) -> Scalar:
    """Return the sum of the parts of a term that a view has."""
    if _is_plain(summands):
        return Scalar.column(summands[0].column)
    first, *others = summands
    total = first.value
    for other in others:
        total = filled("x + y", x=total, y=other.value)
    return total
