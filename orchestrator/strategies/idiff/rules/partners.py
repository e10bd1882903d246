"""Propagate diffs through R ▷_φ S (papers/idivm.txt, table 13), R ⋉_φ S and R ⟕_φ S.

The paper has only the antisemijoin. Semijoins and left joins follow the same rule: whether a row of
R has a partner depends on that row and on S. Diffs of R propagate as through a join. Updates of S in
columns that φ does not read do not affect a semijoin, and pass an outer join. Any other change of S
affects the rows of R that match a row of S before or after the change: such a row is deleted if it is
not in the new result, and inserted if it is. The rule is blocking, because it reads R. Changes of S
cancel if they are equal in the columns that φ reads.

For an outer join, only the pairs with a changed row of S and the padded rows are deleted and
inserted: a row of R may have many partners that did not change.
"""

from __future__ import annotations

from dataclasses import replace

from orchestrator.algebra.columns import Column, in_order
from orchestrator.algebra.copies import copied
from orchestrator.algebra.ids import ids_of
from orchestrator.algebra.operators.antisemijoin import Antisemijoin
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.distinct import Distinct
from orchestrator.algebra.operators.group import Aggregate, Grouping
from orchestrator.algebra.operators.join import Join
from orchestrator.algebra.operators.joining import Binary
from orchestrator.algebra.operators.left_join import LeftJoin
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.operators.semijoin import Semijoin
from orchestrator.algebra.scalar import FALSE, Scalar, conjunction, filled
from orchestrator.algebra.traversal import walk
from orchestrator.engine.composer import Composer
from orchestrator.engine.diffs import Bag, Delete, Diff, Insert, Update
from orchestrator.engine.distinguishable import look_alike
from orchestrator.engine.recompute_parts import without
from orchestrator.engine.terms import projected
from orchestrator.strategies.idiff.rules.base import bag, conditions, propagate, rows_after


@propagate.register(LeftJoin)
@propagate.register(Semijoin)
@propagate.register(Antisemijoin)
def _(operator: Binary, position: int, diff: Diff, composer: Composer) -> tuple[Diff, ...]:
    if isinstance(diff, Update) and not operator.condition.references & diff.touched:
        if position == 0:
            return (diff.passed_on(),)
        if not isinstance(operator, LeftJoin):
            return ()
        if operator.right.not_null & set(diff.ids):
            return (diff.passed_on(),)
        # A row whose IDs are all NULL cannot be told from padding.
    if position == 1:
        return _affected(operator, composer)
    if isinstance(diff, Delete):
        return (diff,)
    if isinstance(diff, Insert):
        return (Insert(replace(operator, left=diff.plan)),)
    rows = rows_after(operator.left, diff, composer)
    return (Delete(diff.plan, diff.ids), Insert(replace(operator, left=rows)))


def _affected(operator: Binary, composer: Composer) -> tuple[Diff, ...]:
    """Return all diffs that changes of the right side cause; they are computed once for all changes."""
    if not composer.first(operator) or operator.condition == FALSE:
        return ()
    changed = bag(operator.right, composer)
    if changed is None:
        return ()
    ids = ids_of(operator.left)
    net = None if isinstance(operator, LeftJoin) else _net(operator, changed, composer)
    changed = composer.held("partners", changed) if net is None else changed
    matching = projected(Join(operator.left, net or changed.plan, operator.condition), ids)
    affected = composer.assign("affected", Distinct(matching), ids)
    rows = projected(composer.identify(affected, operator.left, ids), operator.left.columns)
    if not isinstance(operator, LeftJoin):
        return _with_partners(operator, affected, rows, composer)
    if _has_pairs_by_id(operator):
        return _pairs_and_padding(operator, changed, affected, rows, composer)
    return (Delete(affected, ids), Insert(replace(operator, left=rows)))


def _net(operator: Binary, changed: Bag, composer: Composer) -> Operator | None:
    """Return the columns of S that φ reads, for inserted and deleted rows that do not cancel each other.

    Whether a row has a partner depends only on them, unless φ distinguishes equal values; then the result
    is None.
    """
    read = in_order(
        operator.condition.references & set(operator.right.columns), operator.right.columns
    )
    if not read or look_alike(read, composer.types):
        return None
    net = Aggregate(composer.column("net"), filled("sum(x)", x=changed.sign))
    moved = Selection(Grouping(changed.plan, read, (net,)), filled("x <> 0", x=net.column))
    return composer.assign("partners", moved, read)


def _with_partners(
    operator: Binary, affected: Operator, rows: Operator, composer: Composer
) -> tuple[Diff, ...]:
    """Return diffs that delete the affected rows without a place in the new result, and insert the others."""
    ids = ids_of(operator.left)
    fresh = composer.assign("partnered", replace(operator, left=rows), rows.columns)
    return (Delete(without(affected, fresh, ids, composer), ids), Insert(fresh))


def _has_pairs_by_id(operator: LeftJoin) -> bool:
    """Return whether IDs of S that are never NULL name its pairs, and its change holds only their rows.

    A single row has no IDs and names every row. The change of a join holds rows that cancel each other.
    """
    ids, right = set(ids_of(operator)), ids_of(operator.right)
    return (
        bool(right)
        and ids >= {*ids_of(operator.left), *right}
        and set(right) <= operator.right.not_null
        and all(len(part.children) < 2 for part in walk(operator.right, subqueries=False))
    )


def _pairs_and_padding(
    operator: LeftJoin, changed: Bag, affected: Operator, rows: Operator, composer: Composer
) -> tuple[Diff, ...]:
    """Return the diffs of the pairs with changed rows of S, and of padded rows of R that are affected."""
    left, right, condition = operator.left, operator.right, operator.condition
    ids, right_ids = ids_of(operator), ids_of(right)
    present = [filled("x IS NOT NULL", x=column) for column in right_ids]
    deleted = Selection(changed.plan, conjunction([filled("x < 0", x=changed.sign), *present]))
    inserted = projected(Selection(changed.plan, filled("x > 0", x=changed.sign)), right.columns)
    other, became = copied(right, composer.symbols)
    renamed = {column: Scalar.column(became[column]) for column in right.columns}
    unmatched = Antisemijoin(rows, other, condition.substitute(renamed))
    return (
        Delete(projected(deleted, right_ids), right_ids),
        Delete(projected(LeftJoin(affected, right, FALSE), ids), ids),
        Insert(projected(Join(left, inserted, condition), operator.columns)),
        Insert(LeftJoin(unmatched, right, FALSE)),
    )


@conditions.register(LeftJoin)
@conditions.register(Semijoin)
@conditions.register(Antisemijoin)
def _(operator: Binary) -> tuple[frozenset[Column], ...]:
    return (operator.condition.references,)
