"""Deltas in factors (papers/fivm.txt, section 6, and the matrix chain of section 8.4).

A delta over two variables may be the sum of a few products u ⊗ v of a vector over one variable and a
vector over the other. A change of whole rows has one product for each row, an outer product has one. Such
a delta is held as two relations with the number of the term as a further key. At a view above, a join
with one side leaves the other side alone. The sides are multiplied only if a stored view needs their
product.

The products are derived from the delta itself, so the statement that changed the table does not matter,
and nothing is approximated. A delta that is not a sum of few products is propagated as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.antisemijoin import Antisemijoin
from orchestrator.algebra.operators.base import Operator, SortKey
from orchestrator.algebra.operators.group import Aggregate, Grouping
from orchestrator.algebra.operators.join import Join
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.operators.window import Window
from orchestrator.algebra.scalar import TRUE, Scalar, conjunction, filled
from orchestrator.deltascript.leaves import DiffScan
from orchestrator.engine.composer import Composer
from orchestrator.strategies.viewtree.relation import Relation, state_name, summed_atoms
from orchestrator.strategies.viewtree.sums import Payload
from orchestrator.strategies.viewtree.tree import View
from orchestrator.strategies.viewtree.views import Views

MANY = 64
"""The number of keys from which on a delta is tested for factors."""

_BY_FIRST, _BY_SECOND, _WHOLE = "1", "2", "3"
"""The division of a delta into terms: by the values of either variable, or as one product."""


@dataclass(frozen=True)
class Side:
    """Vectors over some of the variables, identified by the number of their term."""

    rows: Operator
    term: Column
    keys: Mapping[str, Column]
    payload: Mapping[Payload, Column]


Outer = tuple[Side, Side]
"""The sum over all terms of the products of the vectors of two sides."""


def gains(path: Sequence[View]) -> bool:
    """Return whether vectors that go up from the last view of a path join other views on both sides.

    >>> from orchestrator.strategies.viewtree.hypergraph import Hypergraph
    >>> from orchestrator.strategies.viewtree.orders import parsed
    >>> from orchestrator.strategies.viewtree.tree import composed, tau
    >>> graph = Hypergraph.of({"A1": "IJ", "A2": "JK", "A3": "KL"}, "IL")
    >>> tree = composed(tau(parsed("J - { I, K - L }"), graph), graph.free)
    >>> [paths[-1].name for paths in paths_of(tree) if gains(paths)]
    ['A2']
    """
    sides = [{key} for key in sorted(path[-1].keys)]
    met = [False, False]
    if len(sides) != 2 or path[-1].indicator:
        return False
    for view, child in zip(reversed(path[:-1]), reversed(path), strict=False):
        members_of_sides = _sides_joined(
            sides, [item.keys for item in view.children if item is not child]
        )
        if members_of_sides is None:
            return False
        for number, members in enumerate(members_of_sides):
            met[number] |= bool(members)
        if all(met):
            return True
    return False


def paths_of(view: View, above: tuple[View, ...] = ()) -> list[tuple[View, ...]]:
    """Return the path from a tree's root to each of its leaves."""
    path = (*above, view)
    if not view.children:
        return [path]
    return [path_to_leaf for child in view.children for path_to_leaf in paths_of(child, path)]


def _sides_joined(
    sides: list[set[str]], schemas: Sequence[frozenset[str]]
) -> tuple[list[int], list[int]] | None:
    """Return the positions of the relations that join each side; None if a relation joins both sides."""
    members: tuple[list[int], list[int]] = ([], [])
    rest = list(range(len(schemas)))
    while rest:
        position, side = next(
            ((p, n) for p in rest for n in (0, 1) if schemas[p] & sides[n]), (rest[0], 0)
        )
        rest.remove(position)
        members[side].append(position)
        sides[side] |= schemas[position]
        if sides[0] & sides[1]:
            return None
    return members


def factorize(delta: Relation, name: str, composer: Composer) -> tuple[Relation, Outer]:
    """Return the rows of a delta over two variables if it has no factors, and its factors otherwise."""
    first, second = (delta.keys[variable] for variable in sorted(delta.keys))
    parts = tuple(delta.payload.items())
    values = tuple(column for _, column in parts)
    ranks = composer.column("rank"), composer.column("rank")
    ranked = delta.rows
    for key, rank in zip((first, second), ranks, strict=True):
        ranked = Window(
            ranked, (Aggregate(rank, Scalar.read("dense_rank()")),), (), (SortKey(key),)
        )
    rows = composer.assign(f"{name}_ranked", ranked, (first, second, *values, *ranks))

    size, last, other = (composer.column(item) for item in ("size", "last", "other"))
    counted = Grouping(
        rows,
        (),
        (
            Aggregate(size, Scalar.read("count(*)")),
            Aggregate(last, filled("max(x)", x=ranks[0])),
            Aggregate(other, filled("max(x)", x=ranks[1])),
        ),
    )
    division = composer.column("division")
    # Divide by rows or columns if they hold many keys each; else as one product if all keys are present.
    text = (
        f"CASE WHEN n < {MANY} THEN NULL WHEN 4 * x * x <= n AND x <= y THEN {_BY_FIRST}"
        f" WHEN 4 * y * y <= n THEN {_BY_SECOND} WHEN x * y = n THEN {_WHOLE} END"
    )
    divisions = Projection(
        counted, (Item(division, filled(text, n=size, x=last, y=other)), Item.kept(last))
    )
    shape = composer.assign(
        f"{name}_shape", Selection(divisions, filled("x IS NOT NULL", x=division)), (division, last)
    )
    factors = {part: composer.column("factors") for part, _ in parts}
    text = (
        f"idivm.rank_one(array_agg(v::numeric ORDER BY x, y) FILTER (WHERE w = {_WHOLE}),"
        " max(m)::integer)"
    )
    grouping = Grouping(
        Join(rows, shape, TRUE),
        (division, last),
        tuple(
            Aggregate(factors[part], filled(text, v=v, x=ranks[0], y=ranks[1], w=division, m=last))
            for part, v in parts
        ),
    )
    known = conjunction(filled("x IS NOT NULL", x=column) for column in factors.values())
    product = Selection(grouping, filled(f"w <> {_WHOLE} OR known", w=division, known=known))
    factors_scan = composer.assign(f"{name}_factors", product, (division, last, *factors.values()))

    def side(number: int) -> Side:
        key, rank = (first, second)[number], ranks[number]
        own, other_division = (_BY_FIRST, _BY_SECOND) if number == 0 else (_BY_SECOND, _BY_FIRST)
        term = composer.column("term")
        text = f"CASE w WHEN {_BY_FIRST} THEN x WHEN {_BY_SECOND} THEN y ELSE 1 END"
        numbered = Projection(
            Join(rows, factors_scan, TRUE),
            (
                *map(Item.kept, (key, rank, *values)),
                Item(term, filled(text, w=division, x=ranks[0], y=ranks[1])),
            ),
        )
        rank_of_key = composer.column("place")
        most = {part: composer.column("most") for part, _ in parts}
        vectors = Grouping(
            numbered,
            (term, key),
            (
                Aggregate(rank_of_key, filled("min(x)", x=rank)),
                *(Aggregate(most[part], filled("max(x)", x=value)) for part, value in parts),
            ),
        )
        scan_again, new = _copy(factors_scan, composer)
        payload = {part: Column(composer.symbols.fresh("factor"), part.type) for part, _ in parts}
        behind = "place" if number == 0 else "last + place"
        items = [
            Item(
                column,
                filled(
                    f"(CASE division WHEN {own} THEN 1 WHEN {other_division} THEN held"
                    f" ELSE factors[{behind}] END)::{part.type}",
                    division=new[division],
                    held=most[part],
                    factors=new[factors[part]],
                    place=rank_of_key,
                    **({"last": new[last]} if number else {}),
                ),
            )
            for part, column in payload.items()
        ]
        projection = Projection(
            Join(vectors, scan_again, TRUE), (*map(Item.kept, (term, key)), *items)
        )
        variable = sorted(delta.keys)[number]
        held = composer.assign(f"{name}_{variable}"[:24], projection, projection.columns)
        return Side(held, term, {variable: key}, payload)

    outer = side(0), side(1)
    columns = (first, second, *values)
    assert isinstance(delta.rows, DiffScan)
    rest = Antisemijoin(delta.rows, _copy(factors_scan, composer)[0], TRUE)
    listed = composer.assign(f"{name}_rest", rest, columns, {delta.rows.variable})
    return delta.at(listed), outer


def _copy(scan: DiffScan, composer: Composer) -> tuple[DiffScan, dict[Column, Column]]:
    """Return a second scan of a variable for the same query, and the names of its columns."""
    new = {column: composer.fresh(column) for column, _ in scan.outputs}
    outputs = tuple((new[column], field) for column, field in scan.outputs)
    sure = frozenset(new[column] for column in scan.not_null)
    alias = composer.symbols.fresh("d")
    return replace(scan, alias=alias, outputs=outputs, known_not_null=sure), new


def carry_up(
    views: Views, view: View, child: View, outer: Outer, others: Sequence[Relation]
) -> Outer | None:
    """Return in factors the delta of a view that a child's delta in factors causes; None if sides meet."""
    beside = [
        (item, relation)
        for item, relation in zip(view.children, others, strict=True)
        if item is not child
    ]
    positions_of_sides = _sides_joined(
        [set(side.keys) for side in outer], [frozenset(relation.keys) for _, relation in beside]
    )
    if positions_of_sides is None:
        return None
    first, second = (
        _carry_side(views, view, child, side, [beside[position] for position in positions])
        for side, positions in zip(outer, positions_of_sides, strict=True)
    )
    return first, second


def _carry_side(
    views: Views,
    view: View,
    child: View,
    side: Side,
    beside: Sequence[tuple[View, Relation]],
) -> Side:
    """Join a side of a child's delta with the relations on that side, and sum up for the view above."""
    wanted = {
        part: side.payload[part.within(summed_atoms(child))] for part in views.payload_of(view)
    }
    if not beside and side.keys.keys() <= view.keys:
        return replace(side, payload=wanted)
    start = Relation(side.rows, side.keys, side.payload)
    rows, bound = views.joined([start, *(relation for _, relation in beside)])
    keys = {name: views.defined[view].keys[name] for name in sorted(bound.keys() & view.keys)}
    payload = {part: Column(views.composer.symbols.fresh("factor"), part.type) for part in wanted}
    sums = [
        Aggregate(
            column,
            part.joined(
                [
                    (part, wanted[part]),
                    *(
                        (inner, relation.payload[inner])
                        for item, relation in beside
                        if not relation.exists
                        for inner in [part.within(summed_atoms(item))]
                    ),
                ]
            ),
        )
        for part, column in payload.items()
    ]
    grouped = Grouping(rows, (side.term, *keys.values()), tuple(sums))
    held = views.composer.assign(f"{state_name(view)}_side", grouped, grouped.columns)
    return Side(held, side.term, keys, payload)


def multiply(views: Views, view: View, outer: Outer) -> Relation:
    """Return a view's delta as a relation, given the delta in factors."""
    first, second = outer
    rows = Join(first.rows, second.rows, filled("x = y", x=first.term, y=second.term))
    return views.without_zeros(
        views.grouped(
            view,
            rows,
            views.defined[view].keys,
            lambda part: part.joined([(part, first.payload[part]), (part, second.payload[part])]),
        )
    )
