"""Estimates of the rows and accesses of queries, from PostgreSQL's statistics."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from sqlglot import exp

from orchestrator.algebra.analysis.first_rows import window_of_first_rows
from orchestrator.algebra.columns import Column
from orchestrator.algebra.dependencies import has_key
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.distinct import Distinct
from orchestrator.algebra.operators.group import Grouping
from orchestrator.algebra.operators.join import Join
from orchestrator.algebra.operators.limit import Limit
from orchestrator.algebra.operators.project import Projection
from orchestrator.algebra.operators.scan import Scan
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.operators.union_all import UnionAll
from orchestrator.algebra.scalar import Scalar, unwrapped
from orchestrator.algebra.traversal import walk
from orchestrator.caching import cached_property
from orchestrator.deltascript.leaves import DiffScan, StateScan
from orchestrator.deltascript.plan import (
    Statistics,
)
from orchestrator.engine.access import Lookup, Loop, Use, equal_to, equal_to_any, known_by, loops
from orchestrator.engine.composer import Composer
from orchestrator.engine.costs.degrees import Values, share_met
from orchestrator.engine.costs.fixed import Fixed
from orchestrator.engine.costs.origins import Origins

FANOUT = 10.0
"""The assumed number of rows with the same value in a column without statistics."""

UNKNOWN = Statistics(rows=1000.0)
NOTHING = Statistics(rows=0.0)

SOME = 1 / 3
"""The assumed share of rows that satisfy an arbitrary condition."""

CROSSED = 1 / 10_000
"""The assumed share of rows that come and go between two refreshes because the time moves."""

EITHER = 1 / 2
"""The smallest share of the changes of a table that satisfy a condition.

Only rows that satisfy it before or after their change are read."""

MOST = 1e18
"""The largest estimate; SQL and JSON numbers cannot be infinite."""


@dataclass(frozen=True)
class _Match:
    """The rows that a lookup matches."""

    shares: Mapping[Column, float]
    """For each column, the share of rows that it matches, if the values on both sides are known."""
    is_by_chance: bool
    """Whether the values come from different tables, so that no foreign key guarantees a matching
    row."""


def _limit_rows(limit: Limit) -> float:
    """Return the number of rows of a limit; its count is a number or a sum of numbers."""
    if limit.count is None:
        return math.inf
    return sum(
        float(node.this) for node in limit.count.tree.find_all(exp.Literal) if node.is_number
    )


def below_projections(plan: Operator) -> Operator:
    """Return the operator below projections and selections."""
    while isinstance(plan, Projection | Selection):
        plan = plan.input
    return plan


REPEATED = 4.0
"""The fewest rows that share a value for which a search among the values of a group pays."""

_WIDER = frozenset({"bigint", "double precision", "numeric"})
"""Types to which casts keep different numbers apart."""


def _with_equal_values(scalar: Scalar) -> Column | None:
    """Return the column of which an expression has the values, also as numbers of a wider type.

    >>> _with_equal_values(Scalar.read("(a)::double precision", [Column("a")])).symbol
    'a'
    """
    tree = scalar.tree
    while isinstance(tree, exp.Paren) or (
        isinstance(tree, exp.Cast) and tree.to.args.get("kind") in _WIDER
    ):
        tree = tree.this
    return scalar.part(tree).as_column


class Cardinality:
    """Estimates of rows and accesses."""

    def __init__(self, composer: Composer, statistics: Mapping[int, Statistics]) -> None:
        """Start with the leaves of the composed plans."""
        self.composer = composer
        self.statistics = statistics
        self.origin: dict[Column, tuple[Scan, int]] = {}
        self.origins = Origins(composer)
        self.replaced: int | None = None
        """The table with inserted or deleted rows, to which no row can refer by a foreign key."""
        self.is_large = False
        """Whether many rows changed, so that spans hold several changed rows."""
        self._known: dict[str, float] = {}
        self.fixed = Fixed(composer)
        self._matches: dict[int, tuple[Loop, tuple[_Match, ...]]] = {}
        """The matches of lookups by the ids of their loops. Storing the loop keeps its id valid."""
        self._shares: dict[Scalar, float] = {}
        self._learned = 0
        self.clocks: frozenset[int] = frozenset()
        """The tables, by oid, that hold the time as of which the view is right."""
        self.learn(*composer.plans.values())

    def learn(self, *plans: Operator) -> None:
        """Register the columns of some plans, and of newly stored results."""
        stored = list(self.composer.stored.values())[self._learned :]
        self._learned += len(stored)
        for plan in (*plans, *stored):
            for operator in walk(plan):
                if isinstance(operator, Scan):
                    if operator.is_clock:
                        self.clocks |= {operator.table.oid}
                    for output in operator.outputs:
                        self.origin[output.column] = operator, output.attnum
        for plan in (*stored, *plans):
            self.origins.learn(plan)
        for plan in stored:
            for operator in walk(plan):
                if isinstance(operator, Projection):
                    for item in operator.items:
                        same = _with_equal_values(item.scalar)
                        if same in self.origin and not item.is_unchanged:
                            self.origin.setdefault(item.column, self.origin[same])

    def query(
        self, plan: Operator, alternatives: tuple[Loop, ...], held: Mapping[str, float]
    ) -> tuple[float, float]:
        """Return the rows of a query and the accesses that find them, given the rows of variables."""
        estimates = [self._loop(loop, held) for loop in alternatives]
        rows, accesses = sum(n for n, _ in estimates), sum(n for _, n in estimates)
        rows = min(rows, self._first_rows(plan, held))
        top = below_projections(plan)
        if not any(loop.diffs for loop in alternatives):
            rows = min(rows, self.rows(plan))
        if isinstance(top, Grouping | Distinct):
            by = top.by if isinstance(top, Grouping) else top.columns
            rows = min(rows, self._groups(top.input, by, held))
        return min(rows, MOST), accesses

    def _first_rows(self, plan: Operator, held: Mapping[str, float]) -> float:
        """Return the number of rows of a plan that selects the first rows of partitions."""
        while isinstance(plan, Projection):
            plan = plan.input
        recognized = window_of_first_rows(plan)
        if recognized is None:
            return math.inf
        window, most = recognized
        return max(1.0, most) * self._groups(window.input, window.partition, held)

    def _groups(self, rows: Operator, by: tuple[Column, ...], held: Mapping[str, float]) -> float:
        if not by:
            return 1.0
        whole = math.prod(self.distinct(c) if c in self.origin else math.inf for c in by)
        diffs = [operator for operator in walk(rows) if isinstance(operator, DiffScan)]
        if len(diffs) == 1 and frozenset(by) <= known_by(rows, diffs[0].columns):
            whole = min(whole, held.get(diffs[0].variable, 0.0))
        changed = sum(rows for variable, rows in held.items() if variable in self.fixed.changed)
        if 0 < changed < whole and frozenset(by) <= self.fixed.columns(rows, held):
            return changed
        return whole

    def _loop(self, loop: Loop, held: Mapping[str, float]) -> tuple[float, float]:
        if any(
            isinstance(unwrapped(condition.tree), exp.Boolean)
            and not unwrapped(condition.tree).this
            for condition in loop.conditions
        ):
            # PostgreSQL does not run a query whose condition is FALSE.
            return 0.0, 0.0
        rows, accesses = self._rows_of_diffs(loop, held), 0.0
        known = {column for diff in loop.diffs for column in diff.columns}
        unchecked = list(loop.conditions)
        limited: set[Column] = set()
        if not rows:
            return 0.0, 0.0
        finds = self.composer.finds
        most = min((finds.get(diff.variable, MOST) for diff in loop.diffs), default=MOST)
        covered = min((self._covered(diff.variable, held) for diff in loop.diffs), default=0.0)
        moved = self._moved(loop)
        own = [c for c in unchecked if loop.diffs and c.references and c.references <= known]
        unchecked = [c for c in unchecked if c not in own]
        least = EITHER if any(diff.variable in self._changes for diff in loop.diffs) else 0.0
        for condition in own:
            rows *= max(least, self._share(condition))
        for lookup, met in zip(loop.lookups, self._matches_of(loop), strict=True):
            by = frozenset(lookup.by)
            impossible = bool(loop.diffs) and self.refers(lookup.rows, by)
            fanout = 0.0 if impossible else self.fanout(lookup.rows, by, met)
            matches = min(fanout, max(most, covered * fanout))
            if lookup.use is not Use.JOIN:
                accesses += matches * (rows if lookup.use is Use.EVALUATE else 1.0)
                continue
            accesses += rows * (1 + matches)
            known.update(lookup.rows.columns)
            ready = [c for c in unchecked if c.references <= known]
            unchecked = [c for c in unchecked if c not in ready]
            if moved and not by and any(c.references & moved for c in ready):
                # The rows between both times; only an index finds them alone.
                few = min(matches, max(1.0, matches * CROSSED))
                if self._has_index(lookup.rows, ready):
                    accesses -= rows * (matches - few)
                rows *= few
                continue
            rows *= matches
            if matches < fanout:
                # The limit holds for rows that satisfy the conditions.
                limited.update(lookup.rows.columns)
                continue
            for condition in ready:
                rows *= self._share(condition)
        # The remaining conditions read columns that are computed from the rows.
        rows *= math.prod(self._share(c) for c in unchecked if not c.references & limited)
        return min(rows, MOST), min(accesses, MOST)

    def _covered(self, variable: str, held: Mapping[str, float]) -> float:
        """Return the share of a partition that lies in its span, between or behind all of its changed rows."""
        if not self.is_large or variable not in self.composer.spans:
            return 0.0
        changed = sum(held.get(change, 0.0) for change in self._changes)
        each = changed / max(1.0, held[variable])
        return each / (each + 1) if self.composer.spans[variable] else (each - 1) / (each + 1)

    @staticmethod
    def _rows_of_diffs(loop: Loop, held: Mapping[str, float]) -> float:
        """Return the rows of a loop's diffs; of diffs that are joined by equal values, the largest counts."""
        rows = 1.0
        diffs = list(loop.diffs)
        while diffs:
            reached = equal_to_any(diffs[0].columns, loop.equal)
            joined = [diff for diff in diffs if diff is diffs[0] or reached & set(diff.columns)]
            sizes = [held.get(diff.variable, 0.0) for diff in joined]
            rows *= max(sizes) if all(sizes) else 0.0
            diffs = [diff for diff in diffs if all(diff is not other for other in joined)]
        return rows

    @cached_property
    def _changes(self) -> frozenset[str]:
        """The variables that hold changes of tables."""
        return frozenset(change.variable for change in self.composer.classes.values())

    def _moved(self, loop: Loop) -> frozenset[Column]:
        """Return the columns of a loop's diffs that hold the old or the new time of a view."""
        names = {
            c.variable for (oid, _, _), c in self.composer.classes.items() if oid in self.clocks
        }
        return frozenset(c for diff in loop.diffs if diff.variable in names for c in diff.columns)

    def _has_index(self, rows: Operator, conditions: list[Scalar]) -> bool:
        """Return whether an index helps to compare rows with a range; states get theirs."""
        compared = frozenset[Column]().union(*(c.references for c in conditions))
        if not isinstance(rows, Scan):
            return True
        known = self.statistics.get(rows.table.oid, UNKNOWN)
        return any(o.attnum in known.indexed for o in rows.outputs if o.column in compared)

    def _share(self, condition: Scalar) -> float:
        """Return the share of rows that satisfy a condition."""
        if condition not in self._shares:
            self._shares[condition] = self._estimated_share(condition)
        return self._shares[condition]

    def _estimated_share(self, condition: Scalar) -> float:
        tree = unwrapped(condition.tree)
        if isinstance(tree, exp.EQ):
            sides = (condition.part(side).as_column for side in (tree.this, tree.expression))
            return 1 / max((self.distinct(item) for item in sides if item), default=1 / SOME)
        if isinstance(tree, exp.NEQ):
            return 1.0
        if isinstance(tree, exp.Is) and isinstance(tree.expression, exp.Null):
            nulls = self._nulls(condition.part(tree.this).as_column)
            if tree.args.get("negate"):
                return 1 - (nulls or 0.0)
            return SOME if nulls is None else nulls
        if isinstance(tree, exp.And):
            first, second = condition.part(tree.this), condition.part(tree.expression)
            return self._share(first) * self._share(second)
        if isinstance(tree, exp.Or):
            left, right = (
                self._share(condition.part(side)) for side in (tree.this, tree.expression)
            )
            return left + right - left * right
        return SOME

    def _nulls(self, column: Column | None) -> float | None:
        """Return the share of rows in which a column is NULL, if it is known."""
        oid, attnum = (column and self.origins.of(column)) or (0, 0)
        return self.statistics.get(oid, UNKNOWN).nulls.get(attnum)

    def _matches_of(self, loop: Loop) -> tuple[_Match, ...]:
        """Return the matches of each lookup of a loop, if the origin of the looked-up values is
        known.
        """
        if id(loop) not in self._matches:
            known = {column for diff in loop.diffs for column in diff.columns}
            matches = []
            for lookup in loop.lookups:
                matches.append(self._matches_by(lookup, loop, known))
                known.update(lookup.rows.columns)
            self._matches[id(loop)] = loop, tuple(matches)
        return self._matches[id(loop)][1]

    def _matches_by(self, lookup: Lookup, loop: Loop, known: AbstractSet[Column]) -> _Match:
        shares: dict[Column, float] = {}
        tables: set[int] = set()
        for column in lookup.by:
            theirs = self.values(column)
            equal = sorted(equal_to(column, loop.equal) & known, key=lambda c: c.symbol)
            mine = next((other for other in equal if self.values(other) is not None), None)
            if theirs is not None and mine is not None:
                shares[column] = share_met(self.values(mine) or theirs, theirs)
                tables.update((self.origins.of(mine) or ())[:1])
        return _Match(shares, len(tables) > 1 and len(shares) == len(lookup.by))

    def values(self, column: Column) -> Values | None:
        """Return the statistics of the values of a column, or None."""
        oid, attnum = self.origins.of(column) or (0, 0)
        known = self.statistics.get(oid)
        if known is None:
            return None
        distinct = known.distinct.get(attnum)
        if distinct is None and column in self.origin:
            distinct = self.distinct(column)
        return None if distinct is None else Values(distinct, known.common.get(attnum, {}))

    def is_counted(self, column: Column) -> bool:
        """Return whether PostgreSQL has counted the values of a column of a table."""
        oid, attnum = self.origins.of(column) or (0, 0)
        return oid in self.statistics and attnum in self.statistics[oid].distinct

    def fanout(self, rows: Operator, by: frozenset[Column], met: _Match | None = None) -> float:
        """Return how many rows share the values of some columns.

        If the matches of a lookup are given, the result is the number of rows that it matches.
        """
        total = self.rows(rows)
        if not by:
            return total
        shares = met.shares if met else {}
        if met and met.is_by_chance:
            matches = total * math.prod(shares.values())
            return min(matches, 1.0) if has_key(rows.keys, rows.dependencies, by) else matches
        if has_key(rows.keys, rows.dependencies, by):
            # Columns that are compared in addition to a key match only for some of the rows.
            additional = min(
                (by - key for key in rows.keys if key <= by), key=len, default=frozenset()
            )
            return min(total, 1.0) / max(map(self.distinct, additional), default=1.0)
        share = min(shares.get(column) or 1 / self.distinct(column) for column in by)
        return max(1.0, total * share) if total else 0.0

    def repeats(self, rows: Operator, by: Iterable[Column]) -> bool:
        """Return whether several rows share the values of some columns, as far as is known."""
        self.learn(rows)
        return not self.knows(rows) or self.fanout(rows, frozenset(by)) >= REPEATED

    def refers(self, rows: Operator, by: frozenset[Column]) -> bool:
        """Return whether rows are looked up by a foreign key to the table with inserted or deleted
        rows.

        Such a lookup finds no rows. A stored join may have the referenced key instead of the
        foreign key.
        """
        if self.replaced is None:
            return False
        compared = {self.origin[column] for column in by if column in self.origin}
        stored = self.composer.stored.get(rows.role) if isinstance(rows, StateScan) else None
        scans = [scan for scan, _ in compared]
        scans += (
            [operator for operator in walk(stored) if isinstance(operator, Scan)] if stored else []
        )
        numbers = {attnum for scan, attnum in compared if scan.table.oid == self.replaced}
        return any(
            target == self.replaced
            and (
                {(scan, attnum) for attnum in columns} <= compared
                or (stored is not None and numbers.issuperset(referred))
            )
            for scan in scans
            for columns, target, referred in self.statistics.get(
                scan.table.oid, UNKNOWN
            ).foreign_keys
        )

    def knows(self, plan: Operator) -> bool:
        """Return whether all tables of a plan have rows and statistics."""
        tables = (operator.table.oid for operator in walk(plan) if isinstance(operator, Scan))
        return all(self.statistics.get(oid, NOTHING).rows > 0 for oid in tables)

    def rows(self, plan: Operator) -> float:
        """Return the estimated number of rows of a plan."""
        if isinstance(plan, Scan):
            return self.statistics.get(plan.table.oid, UNKNOWN).rows
        if isinstance(plan, StateScan):
            if plan.role not in self._known:
                self._known[plan.role] = self.rows(self.composer.stored[plan.role])
            return self._known[plan.role]
        if isinstance(plan, UnionAll):
            return sum(map(self.rows, plan.children))
        if isinstance(plan, Limit):
            return min(self.rows(plan.input), _limit_rows(plan))
        if isinstance(plan, Grouping | Distinct):
            by = plan.by if isinstance(plan, Grouping) else plan.columns
            return min(self.rows(plan.input), self._groups(plan.input, by, {}))
        if not plan.children:
            return 1.0
        if len(plan.children) == 1:
            below = self.rows(plan.children[0])
            share = self._share(plan.condition) if isinstance(plan, Selection) else 1.0
            return min(below * share, self._first_rows(plan, {}))
        if isinstance(plan, Join) and all(self.rows(child) <= 1 for child in plan.children):
            return 1.0
        [loop, *_] = loops(plan) or (Loop((), (), ()),)
        return self._loop(loop, {})[0]

    def distinct(self, column: Column) -> float:
        """Return the estimated number of distinct values of a column."""
        if column not in self.origin:
            return FANOUT
        scan, attnum = self.origin[column]
        known = self.statistics.get(scan.table.oid, UNKNOWN)
        if (attnum,) in scan.table.keys:
            return max(1.0, known.rows)
        return max(1.0, min(known.rows, known.distinct.get(attnum, known.rows / FANOUT)))
