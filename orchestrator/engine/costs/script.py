"""The cost of a change, in the terms of papers/idivm.txt, section 6 and appendix A.

The cost counts index lookups and rows read or written, for one changed row of each kind, by the
loops of the script's queries. PostgreSQL's statistics give the number of rows that a lookup finds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from orchestrator.algebra.operators.scan import Scan
from orchestrator.algebra.operators.window import Window
from orchestrator.caching import cached_property
from orchestrator.deltascript.plan import (
    CONTENT,
    TOGETHER,
    Apply,
    Assign,
    ChangeClass,
    ChangeKind,
    Cost,
    Source,
    Statistics,
)
from orchestrator.engine.access import Loop
from orchestrator.engine.composer import Composer
from orchestrator.engine.costs.cardinality import (
    MOST,
    NOTHING,
    SOME,
    Cardinality,
    below_projections,
)

SCANNED = 0.1
"""The cost of a row of a sequential scan, in lookups."""

WRITTEN = 4.0
"""The cost of a changed row of a stored result, in lookups, including changes of indexes."""


HALF = 0.5
"""The expected share of the rows of a partition that are behind a changed row."""

SHARED = 0.5
"""Changed rows share groups or partitions if together they need at most this share of the accesses of
single rows."""


@dataclass
class _Run:
    """A simulated run of a program for one changed row."""

    held: dict[str, float]
    """The rows that variables hold."""
    query: float = 0.0
    """Accesses of the queries."""
    applying: float = 0.0
    """Accesses to stored results that are changed."""
    computed: float = 0.0
    """The greatest number of rows that a query computes into a variable."""
    changed: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """The greatest number of rows of each stored result that a step changes."""
    inserted: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    scans: dict[tuple[int, tuple[int, ...]], float] = field(
        default_factory=lambda: defaultdict(float)
    )
    """Accesses of scans due to missing indexes, by table and columns."""

    @property
    def accesses(self) -> float:
        """All accesses but those of scans."""
        return min(self.query + self.applying, MOST)


def costs(composer: Composer, statistics: Mapping[int, Statistics]) -> tuple[Cost, ...]:
    """Return the cost of one changed row of each class."""
    cardinality = Cardinality(composer, statistics)
    simulation = _Simulation(composer, cardinality)
    # Nothing is known about the groups of a table that was empty.
    are_known = all(statistics.get(oid, NOTHING).rows > 0 for oid in composer.sources)
    result = []
    for (oid, _, _), change_class in composer.classes.items():
        if oid in cardinality.clocks and change_class.kind is not ChangeKind.UPDATE:
            continue
        cardinality.replaced = None if change_class.kind is ChangeKind.UPDATE else oid
        run = simulation.run({change_class.variable: 1.0})
        cost = _cost(composer.sources[oid], change_class, run)
        cardinality.is_large = True
        together: list[tuple[float, float]] = []
        least = cost.accesses
        for rows in TOGETHER if are_known else ():
            total = simulation.run({change_class.variable: rows}).accesses
            if total < SHARED * rows * least:
                least = total / rows
                together.append((rows, total))
        cardinality.is_large = False
        result.append(replace(cost, together=tuple(together)))
    return tuple(result)


def _cost(source: Source, change_class: ChangeClass, run: _Run) -> Cost:
    below = [n for role, n in run.changed.items() if role != CONTENT]
    content = run.changed[CONTENT]
    # The joined result is in a cache, in a variable, or in the view itself.
    spj = max([run.computed, *below]) or content
    return Cost(
        source=str(source),
        variable=change_class.variable,
        kind=change_class.kind,
        columns=tuple(c.name for c in source.columns if c.attnum in change_class.touched),
        accesses=run.accesses,
        a=run.query,
        p=min(spj, MOST),
        g=min(content / spj, MOST) if spj else 0.0,
        k=min(sum(n for role, n in run.inserted.items() if role != CONTENT), MOST),
        scans=tuple((*probe, accesses) for probe, accesses in run.scans.items()),
    )


class _Simulation:
    """Runs a composed script on numbers of rows."""

    def __init__(self, composer: Composer, cardinality: Cardinality) -> None:
        self.composer = composer
        self.cardinality = cardinality
        self.fixed = cardinality.fixed

    def run(self, held: Mapping[str, float]) -> _Run:
        """Run the script, given the numbers of rows of variables."""
        run = _Run(dict(held))
        self.fixed.fields = {}
        for position, step in enumerate(self.composer.steps):
            plan = self.composer.plans.get(position)
            if plan is None or not isinstance(step, Assign | Apply):
                continue
            if step.needs and not any(run.held.get(need) for need in step.needs):
                continue
            rows, accesses = self.cardinality.query(plan, self.composer.loops[position], run.held)
            run.query += accesses
            self._scan(self.composer.loops[position], run)
            if isinstance(step, Assign):
                fixed = self.fixed.columns(plan, run.held)
                self.fixed.fields[step.variable] = frozenset(column.symbol for column in fixed)
                if step.variable in self.composer.seldom:
                    rows /= max(1.0, self.cardinality.fanout(*self.composer.seldom[step.variable]))
                run.held[step.variable] = rows
                run.held.update((name, rows * SOME) for name, _ in step.apart)
                run.computed = max(run.computed, rows)
                continue
            matched = rows
            if step.kind is not ChangeKind.INSERT:
                matched = rows * self._matched(step)
            if step.bounded:
                matched *= HALF
            written = matched if self._recomputed.isdisjoint(step.needs) else matched * SOME
            run.applying += rows + WRITTEN * written
            run.changed[step.state] = max(run.changed[step.state], matched)
            if step.kind is ChangeKind.INSERT:
                run.inserted[step.state] += matched
            if step.collect:
                run.held[step.collect] = run.held.get(step.collect, 0.0) + matched
        return run

    @cached_property
    def _recomputed(self) -> frozenset[str]:
        """The variables that hold partitions of windows, most of whose rows are unchanged."""
        return frozenset(
            step.variable
            for position, step in enumerate(self.composer.steps)
            if isinstance(step, Assign)
            and position in self.composer.plans
            and isinstance(below_projections(self.composer.plans[position]), Window)
        )

    def _scan(self, alternatives: tuple[Loop, ...], run: _Run) -> None:
        """Add the scans of a query: a table without an index for a lookup is read once."""
        for loop in alternatives:
            if not all(run.held.get(diff.variable) for diff in loop.diffs):
                continue
            for lookup in loop.lookups if loop.diffs else ():
                rows = lookup.rows
                if not isinstance(rows, Scan) or not lookup.by:
                    continue
                known = self.cardinality.statistics.get(rows.table.oid)
                columns = tuple(sorted(o.attnum for o in rows.outputs if o.column in lookup.by))
                if known is not None and known.indexed.isdisjoint(columns):
                    run.scans[rows.table.oid, columns] += SCANNED * known.rows

    def _matched(self, step: Apply) -> float:
        state = self.composer.scans[step.state]
        names = {name: column for column, name in state.outputs}
        by = frozenset(names[name] for name, _, _ in step.keys)
        return 0.0 if self.cardinality.refers(state, by) else self.cardinality.fanout(state, by)
