"""What a change costs, in the terms of papers/idivm.txt, section 6 and appendix A.

Costs count index lookups and rows read or written, for one changed row of each kind, by the loops
of the script's queries. How many rows a lookup finds is taken from PostgreSQL's statistics.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property

from sqlglot import exp

from orchestrator.algebra.columns import Column
from orchestrator.algebra.dependencies import has_key
from orchestrator.algebra.dialect import Tree
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.distinct import Distinct
from orchestrator.algebra.operators.group import Grouping
from orchestrator.algebra.operators.join import Join
from orchestrator.algebra.operators.limit import Limit
from orchestrator.algebra.operators.project import Projection
from orchestrator.algebra.operators.scan import Scan
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.operators.union_all import UnionAll
from orchestrator.algebra.operators.window import Window
from orchestrator.algebra.scalar import Scalar, unwrapped
from orchestrator.algebra.traversal import walk
from orchestrator.deltascript.leaves import DiffScan, StateScan
from orchestrator.deltascript.plan import (
    CONTENT,
    Apply,
    Assign,
    ChangeClass,
    ChangeKind,
    Cost,
    Source,
    Statistics,
)
from orchestrator.engine.access import Lookup, Loop, equal_to, known_by, loops
from orchestrator.engine.composer import Composer
from orchestrator.engine.degrees import Values, share_met
from orchestrator.engine.fixed import Fixed
from orchestrator.engine.origins import Origins

FANOUT = 10.0
"""Rows that share a value of a column of which nothing is known."""

UNKNOWN = Statistics(rows=1000.0)
NOTHING = Statistics(rows=0.0)

SOME = 1 / 3
"""The share of rows that satisfy a condition of which nothing is known."""

EITHER = 1 / 2
"""The least share of the rows of a diff that satisfy a condition: only rows are read that satisfy it before or after
their change."""

SCANNED = 0.1
"""What a row of a scan counts, in lookups: it is read in passing."""

WRITTEN = 4.0
"""What a changed row of a stored result counts, in lookups: its indexes change too."""

MOST = 1e18
"""No estimate is larger; infinity is no number to SQL or JSON."""


@dataclass(frozen=True)
class _Met:
    """What a lookup meets."""

    shares: Mapping[Column, float]
    """The shares of rows that are found by each column, if all of the values that are looked up are known."""
    is_by_chance: bool
    """Whether the values come from different tables, so that no foreign key says that there is such a row."""


@dataclass
class _Run:
    """A program run for one changed row."""

    held: dict[str, float]
    """The rows that variables hold."""
    query: float = 0.0
    """Accesses of the queries."""
    applying: float = 0.0
    """Accesses of the stored results that are changed."""
    computed: float = 0.0
    """The most rows that a query puts into a variable."""
    changed: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """The most rows of stored results that a step changes."""
    inserted: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    scans: dict[tuple[int, tuple[int, ...]], float] = field(
        default_factory=lambda: defaultdict(float)
    )
    """Accesses of scans for want of an index, by table and columns."""


def costs(composer: Composer, statistics: Mapping[int, Statistics]) -> tuple[Cost, ...]:
    """What one changed row of each class costs the composed script."""
    model = Model(composer, statistics)
    found = []
    for (oid, _, _), one in composer.classes.items():
        model.replaced = None if one.kind is ChangeKind.UPDATE else oid
        run = model.run({one.variable: 1.0})
        found.append(_cost(composer.sources[oid], one, run))
    return tuple(found)


def _cost(source: Source, one: ChangeClass, run: _Run) -> Cost:
    below = [n for role, n in run.changed.items() if role != CONTENT]
    content = run.changed[CONTENT]
    # What is joined is in a cache, in a variable, or the view itself.
    spj = max([run.computed, *below]) or content
    return Cost(
        source=str(source),
        variable=one.variable,
        kind=one.kind,
        columns=tuple(c.name for c in source.columns if c.attnum in one.touched),
        accesses=min(run.query + run.applying, MOST),
        a=run.query,
        p=min(spj, MOST),
        g=min(content / spj, MOST) if spj else 0.0,
        k=min(sum(n for role, n in run.inserted.items() if role != CONTENT), MOST),
        scans=tuple((*probe, accesses) for probe, accesses in run.scans.items()),
    )


def _wanted(limit: Limit) -> float:
    """The rows that a limit takes; its count is a number, or a sum of some."""
    if limit.count is None:
        return math.inf
    return sum(float(one.this) for one in limit.count.tree.find_all(exp.Literal) if one.is_number)


def _top(plan: Operator) -> Operator:
    """Return the operator below projections and selections."""
    while isinstance(plan, Projection | Selection):
        plan = plan.input
    return plan


def _is_not_null(tree: Tree) -> bool:
    return (
        isinstance(tree, exp.Is)
        and bool(tree.args.get("negate"))
        and isinstance(tree.expression, exp.Null)
    )


class Model:
    """Numbers of rows, as far as statistics tell."""

    def __init__(self, composer: Composer, statistics: Mapping[int, Statistics]) -> None:
        """Of the leaves of what has been composed."""
        self.composer = composer
        self.statistics = statistics
        self.origin: dict[Column, tuple[Scan, int]] = {}
        self.origins = Origins(composer)
        self.replaced: int | None = None
        """The table whose rows come or go, so that no row can refer to them by a foreign key."""
        self._known: dict[str, float] = {}
        self.fixed = Fixed(composer)
        self._met: dict[int, tuple[Loop, tuple[_Met, ...]]] = {}
        """By the loops' addresses: what lookups meet, and the loop, which keeps its address."""
        self._shares: dict[Scalar, float] = {}
        self._learned = 0
        self.learn(*composer.plans.values())

    def learn(self, *plans: Operator) -> None:
        """Looks at what columns are in some plans, and in the results stored by now."""
        stored = list(self.composer.stored.values())[self._learned :]
        self._learned += len(stored)
        for plan in (*plans, *stored):
            for operator in walk(plan):
                if isinstance(operator, Scan):
                    for output in operator.outputs:
                        self.origin[output.column] = operator, output.attnum
        for plan in (*stored, *plans):
            self.origins.learn(plan)
        for plan in stored:
            for operator in walk(plan):
                if isinstance(operator, Projection):
                    for item in operator.items:
                        same = item.scalar.as_column
                        if same in self.origin and not item.is_unchanged:
                            self.origin.setdefault(item.column, self.origin[same])

    def run(self, held: Mapping[str, float]) -> _Run:
        """Runs the script on variables that hold so many rows."""
        run = _Run(dict(held))
        self.fixed.fields = {}
        for place, step in enumerate(self.composer.steps):
            plan = self.composer.plans.get(place)
            if plan is None or not isinstance(step, Assign | Apply):
                continue
            if step.needs and not any(run.held.get(one) for one in step.needs):
                continue
            rows, accesses = self.query(plan, self.composer.loops[place], run.held)
            run.query += accesses
            self._scan(self.composer.loops[place], run)
            if isinstance(step, Assign):
                fixed = self.fixed.columns(plan, run.held)
                self.fixed.fields[step.variable] = frozenset(column.symbol for column in fixed)
                if step.variable in self.composer.seldom:
                    rows /= max(1.0, self.fanout(*self.composer.seldom[step.variable]))
                run.held[step.variable] = rows
                run.held.update((name, rows * SOME) for name, _ in step.apart)
                run.computed = max(run.computed, rows)
                continue
            found = rows
            if step.kind is not ChangeKind.INSERT:
                found = rows * self._matched(step)
            written = found if self._recomputed.isdisjoint(step.needs) else found * SOME
            run.applying += rows + WRITTEN * written
            run.changed[step.state] = max(run.changed[step.state], found)
            if step.kind is ChangeKind.INSERT:
                run.inserted[step.state] += found
            if step.collect:
                run.held[step.collect] = run.held.get(step.collect, 0.0) + found
        return run

    @cached_property
    def _recomputed(self) -> frozenset[str]:
        """The variables that hold partitions of windows: most of their rows are what they were."""
        return frozenset(
            step.variable
            for place, step in enumerate(self.composer.steps)
            if isinstance(step, Assign)
            and place in self.composer.plans
            and isinstance(_top(self.composer.plans[place]), Window)
        )

    def _scan(self, ways: tuple[Loop, ...], run: _Run) -> None:
        """Add the scans of a query: a table without an index for a lookup is gone through once."""
        for loop in ways:
            if not all(run.held.get(diff.variable) for diff in loop.diffs):
                continue
            for lookup in loop.lookups if loop.diffs else ():
                rows = lookup.rows
                if not isinstance(rows, Scan) or not lookup.by:
                    continue
                known = self.statistics.get(rows.table.oid)
                columns = tuple(sorted(o.attnum for o in rows.outputs if o.column in lookup.by))
                if known is not None and known.indexed.isdisjoint(columns):
                    run.scans[rows.table.oid, columns] += SCANNED * known.rows

    def _matched(self, step: Apply) -> float:
        state = self.composer.scans[step.state]
        names = {name: column for column, name in state.outputs}
        by = frozenset(names[name] for name, _, _ in step.keys)
        return 0.0 if self._refers(state, by) else self.fanout(state, by)

    def query(
        self, plan: Operator, ways: tuple[Loop, ...], held: Mapping[str, float]
    ) -> tuple[float, float]:
        """The rows of a query and the accesses that find them, given the rows of variables."""
        found = [self._loop(loop, held) for loop in ways]
        rows, accesses = sum(n for n, _ in found), sum(n for _, n in found)
        top = _top(plan)
        if not any(loop.diffs for loop in ways):
            rows = min(rows, self.rows(plan))
        if isinstance(top, Grouping | Distinct):
            by = top.by if isinstance(top, Grouping) else top.columns
            rows = min(rows, self._groups(top.input, by, held))
        return min(rows, MOST), accesses

    def _groups(self, rows: Operator, by: tuple[Column, ...], held: Mapping[str, float]) -> float:
        if not by:
            return 1.0
        whole = math.prod(self.distinct(c) if c in self.origin else math.inf for c in by)
        diffs = [one for one in walk(rows) if isinstance(one, DiffScan)]
        if len(diffs) == 1 and frozenset(by) <= known_by(rows, diffs[0].columns):
            whole = min(whole, held.get(diffs[0].variable, 0.0))
        changed = sum(rows for variable, rows in held.items() if variable in self.fixed.changed)
        if 0 < changed < whole and frozenset(by) <= self.fixed.columns(rows, held):
            return changed
        return whole

    def _loop(self, loop: Loop, held: Mapping[str, float]) -> tuple[float, float]:
        if any(
            isinstance(unwrapped(one.tree), exp.Boolean) and not unwrapped(one.tree).this
            for one in loop.conditions
        ):
            # PostgreSQL does not run it.
            return 0.0, 0.0
        rows, accesses = 1.0, 0.0
        known: set[Column] = set()
        waiting = list(loop.conditions)
        for diff in loop.diffs:
            rows *= held.get(diff.variable, 0.0)
            known.update(diff.columns)
        if not rows:
            return 0.0, 0.0
        finds = self.composer.finds
        most = min((finds.get(diff.variable, MOST) for diff in loop.diffs), default=MOST)
        own = [one for one in waiting if loop.diffs and one.references and one.references <= known]
        waiting = [one for one in waiting if one not in own]
        for one in own:
            rows *= max(EITHER, self._share(one))
        for lookup, met in zip(loop.lookups, self._met_of(loop), strict=True):
            by = frozenset(lookup.by)
            impossible = bool(loop.diffs) and self._refers(lookup.rows, by)
            found = 0.0 if impossible else min(most, self.fanout(lookup.rows, by, met))
            accesses += rows * (1 + found)
            known.update(lookup.rows.columns)
            ready = [one for one in waiting if one.references <= known]
            waiting = [one for one in waiting if one not in ready]
            rows *= found
            for one in ready:
                rows *= self._share(one)
        # What these read is computed from the rows.
        rows *= math.prod(map(self._share, waiting))
        return min(rows, MOST), min(accesses, MOST)

    def _share(self, condition: Scalar) -> float:
        """The share of rows that satisfy a condition."""
        if condition not in self._shares:
            self._shares[condition] = self._estimated(condition)
        return self._shares[condition]

    def _estimated(self, condition: Scalar) -> float:
        tree = unwrapped(condition.tree)
        if isinstance(tree, exp.EQ):
            sides = (condition.part(side).as_column for side in (tree.this, tree.expression))
            return 1 / max((self.distinct(one) for one in sides if one), default=1 / SOME)
        if isinstance(tree, exp.NEQ) or _is_not_null(tree):
            return 1.0
        if isinstance(tree, exp.And):
            first, second = condition.part(tree.this), condition.part(tree.expression)
            return self._share(first) * self._share(second)
        if isinstance(tree, exp.Or):
            left, right = (
                self._share(condition.part(side)) for side in (tree.this, tree.expression)
            )
            return left + right - left * right
        return SOME

    def _met_of(self, loop: Loop) -> tuple[_Met, ...]:
        """Return what each lookup of a loop meets, as far as it is known whose values are looked up."""
        if id(loop) not in self._met:
            known = {column for diff in loop.diffs for column in diff.columns}
            found = []
            for lookup in loop.lookups:
                found.append(self._met_by(lookup, loop, known))
                known.update(lookup.rows.columns)
            self._met[id(loop)] = loop, tuple(found)
        return self._met[id(loop)][1]

    def _met_by(self, lookup: Lookup, loop: Loop, known: AbstractSet[Column]) -> _Met:
        shares: dict[Column, float] = {}
        tables: set[int] = set()
        for column in lookup.by:
            theirs = self.values(column)
            equal = sorted(equal_to(column, loop.equal) & known, key=lambda one: one.symbol)
            mine = next((one for one in equal if self.values(one) is not None), None)
            if theirs is not None and mine is not None:
                shares[column] = share_met(self.values(mine) or theirs, theirs)
                tables.update((self.origins.of(mine) or ())[:1])
        return _Met(shares, len(tables) > 1 and len(shares) == len(lookup.by))

    def values(self, column: Column) -> Values | None:
        """Return what is known of the values of a column."""
        oid, attnum = self.origins.of(column) or (0, 0)
        known = self.statistics.get(oid)
        if known is None:
            return None
        distinct = known.distinct.get(attnum)
        if distinct is None and column in self.origin:
            distinct = self.distinct(column)
        return None if distinct is None else Values(distinct, known.common.get(attnum, {}))

    def fanout(self, rows: Operator, by: frozenset[Column], met: _Met | None = None) -> float:
        """How many rows share values of some columns, and of some lookups if it is known what they meet."""
        total = self.rows(rows)
        if not by:
            return total
        shares = met.shares if met else {}
        if met and met.is_by_chance:
            found = total * math.prod(shares.values())
            return min(found, 1.0) if has_key(rows.keys, rows.dependencies, by) else found
        if has_key(rows.keys, rows.dependencies, by):
            # What is compared beside a key holds for some of the rows only.
            beside = min((by - key for key in rows.keys if key <= by), key=len, default=frozenset())
            return min(total, 1.0) / max((self.distinct(one) for one in beside), default=1.0)
        share = min(shares.get(column) or 1 / self.distinct(column) for column in by)
        return max(1.0, total * share) if total else 0.0

    def _refers(self, rows: Operator, by: frozenset[Column]) -> bool:
        """Whether rows are looked up by a foreign key to the table whose rows come or go, so that there
        are none. A stored join has the referred key in place of the foreign one."""
        if self.replaced is None:
            return False
        found = {self.origin[column] for column in by if column in self.origin}
        stored = self.composer.stored.get(rows.role) if isinstance(rows, StateScan) else None
        scans = [scan for scan, _ in found]
        scans += [one for one in walk(stored) if isinstance(one, Scan)] if stored else []
        numbers = {attnum for scan, attnum in found if scan.table.oid == self.replaced}
        return any(
            target == self.replaced
            and (
                {(scan, attnum) for attnum in columns} <= found
                or (stored is not None and numbers.issuperset(referred))
            )
            for scan in scans
            for columns, target, referred in self.statistics.get(
                scan.table.oid, UNKNOWN
            ).foreign_keys
        )

    def knows(self, plan: Operator) -> bool:
        """Whether there are rows of all tables in a plan, and statistics of them."""
        tables = (one.table.oid for one in walk(plan) if isinstance(one, Scan))
        return all(self.statistics.get(oid, NOTHING).rows > 0 for oid in tables)

    def rows(self, plan: Operator) -> float:
        """The rows of a plan."""
        if isinstance(plan, Scan):
            return self.statistics.get(plan.table.oid, UNKNOWN).rows
        if isinstance(plan, StateScan):
            if plan.role not in self._known:
                self._known[plan.role] = self.rows(self.composer.stored[plan.role])
            return self._known[plan.role]
        if isinstance(plan, UnionAll):
            return sum(map(self.rows, plan.children))
        if isinstance(plan, Limit):
            return min(self.rows(plan.input), _wanted(plan))
        if isinstance(plan, Grouping | Distinct):
            by = plan.by if isinstance(plan, Grouping) else plan.columns
            return min(self.rows(plan.input), self._groups(plan.input, by, {}))
        if not plan.children:
            return 1.0
        if len(plan.children) == 1:
            below = self.rows(plan.children[0])
            return below * self._share(plan.condition) if isinstance(plan, Selection) else below
        if isinstance(plan, Join) and all(self.rows(child) <= 1 for child in plan.children):
            return 1.0
        [loop, *_] = loops(plan) or (Loop((), (), ()),)
        return self._loop(loop, {})[0]

    def distinct(self, column: Column) -> float:
        """How many values a column has."""
        if column not in self.origin:
            return FANOUT
        scan, attnum = self.origin[column]
        known = self.statistics.get(scan.table.oid, UNKNOWN)
        if (attnum,) in scan.table.keys:
            return max(1.0, known.rows)
        return max(1.0, min(known.rows, known.distinct.get(attnum, known.rows / FANOUT)))
