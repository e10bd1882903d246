"""The partition manager: degrees of values, the threshold, and the heavy values.

Relations are divided on some of their variables. The degree of a value is the number of rows with it. With
the threshold N^ε, heavy values have a degree of at least N^ε / 2, light values a degree below 3 N^ε / 2.
After a change of the threshold base N, the bound is N^ε for both (definition 6 of
papers/ivm-eps-counting-triangles.txt). With ε = 0 every value is heavy.

If ε is open, a state of a single row, the dial, holds it. A refresh that finds another ε there than that of the last
division divides all values again, as after a change of N.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.antisemijoin import Antisemijoin
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.group import Aggregate, Grouping
from orchestrator.algebra.operators.join import Join
from orchestrator.algebra.operators.left_join import LeftJoin
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.operators.semijoin import Semijoin
from orchestrator.algebra.operators.set_operation import Branch
from orchestrator.algebra.operators.union_all import UnionAll
from orchestrator.algebra.scalar import Scalar, conjunction, filled
from orchestrator.deltascript.leaves import DiffScan, StateScan
from orchestrator.deltascript.plan import (
    Analyse,
    Replan,
)
from orchestrator.engine import terms
from orchestrator.engine.composer import Composer
from orchestrator.engine.states import Upkeep, store
from orchestrator.strategies.skew.partition.dial import Dial, threshold_of
from orchestrator.strategies.skew.partition.split import Split
from orchestrator.strategies.viewtree.hypergraph import Variables
from orchestrator.strategies.viewtree.relation import Relation, columns_of
from orchestrator.strategies.viewtree.sums import COUNT

RISES, FALLS = 1, -1
"""The direction in which a value moves: to the heavy part, or to the light part."""


@dataclass(frozen=True)
class _Values:
    """The values by which relations are divided: the states of their degrees and of the heavy values."""

    columns: tuple[Column, ...]
    degree: Column
    degrees: StateScan
    heavy: StateScan


class Degrees:
    """Maintains the degrees of values, and finds the values that change their part.

    Outer joins look up the degrees of changed values. Each value has one degree. For an inner join that was
    planned when there were few degrees, PostgreSQL would scan all degrees and compare each with the
    changed values, however many degrees there are by now.
    """

    def __init__(
        self,
        composer: Composer,
        epsilons: Mapping[Split, Fraction],
        relations: Mapping[Split, Relation],
        sized: Collection[Split],
        *,
        is_open: bool = False,
    ) -> None:
        """Store the initial degrees, threshold and heavy values; the division is strict at first.

        N is about the size of the `sized` splits. Each key counts as often as its payload says. If ε `is_open`, all
        splits have the same, and it may change.
        """
        self.composer, self.epsilons, self.sized = composer, epsilons, sized
        self.dial: Dial | None = None
        if is_open:
            [start] = dict.fromkeys(epsilons.values())
            self.dial = Dial.stored(start, composer)
        stored_degrees = {
            key: self._store_degrees(key, relation) for key, relation in relations.items()
        }
        self.base, self.size, self.minor, self.major = (
            Column(composer.symbols.fresh(name), "bigint")
            for name in ("base", "size", "minor", "major")
        )
        self.thresholds = {
            epsilon: Column(composer.symbols.fresh("threshold"), "double precision")
            for epsilon in dict.fromkeys(epsilons.values())
        }
        self.state = self._store_base(
            [(scan, degree) for key, (_, degree, scan) in stored_degrees.items() if key in sized]
        )
        self.values = {
            key: _Values(columns, degree, scan, self._store_heavy(key, columns, degree, scan))
            for key, (columns, degree, scan) in stored_degrees.items()
        }
        self.changes: dict[Split, DiffScan] = {}
        """The changes of the degrees."""
        self.moving: dict[Split, Relation] = {}
        """The values that change their part; the payload is the direction."""

    # States

    def _store_degrees(
        self, split: Split, relation: Relation
    ) -> tuple[tuple[Column, ...], Column, StateScan]:
        columns = tuple(relation.keys[name] for name in sorted(split.on))
        degree = Column(self.composer.symbols.fresh("degree"), "bigint")
        count = filled("sum(x)::bigint", x=relation.payload[COUNT])
        rows = Grouping(relation.rows, columns, (Aggregate(degree, count),))
        role = self.composer.name(f"{split.name}_degrees")
        return columns, degree, store(role, rows, columns, self.composer, followed=False)

    def _exponent(self, epsilon: Fraction) -> Scalar:
        """Return an ε as an expression over the columns of the dial, if there is one."""
        if self.dial is None:
            return Scalar.read(f"{float(epsilon)}::double precision")
        return Scalar.column(self.dial.epsilon)

    def _store_base(self, stored_degrees: Iterable[tuple[StateScan, Column]]) -> StateScan:
        rows: Operator | None = None
        sizes: list[Column] = []
        for scan, degree in stored_degrees:
            size = self.composer.column("size")
            grouping = Grouping(
                scan, (), (Aggregate(size, filled("coalesce(sum(x), 0)::bigint", x=degree)),)
            )
            rows = grouping if rows is None else Join(rows, grouping)
            sizes.append(size)
        assert rows is not None
        if self.dial is not None:
            rows = Join(rows, self.dial.state)
        total = Scalar.column(sizes[0])
        for size in sizes[1:]:
            total = filled("x + y", x=total, y=size)
        base = filled("2 * x + 1", x=total)
        items = (
            Item(self.base, base),
            Item(self.size, total),
            *(
                Item(column, threshold_of(base, self._exponent(key)))
                for key, column in self.thresholds.items()
            ),
            Item(self.minor, Scalar.read("0::bigint")),
            Item(self.major, Scalar.read("0::bigint")),
        )
        return store(self.composer.name("partition"), Projection(rows, items), (), self.composer)

    def _store_heavy(
        self, split: Split, columns: tuple[Column, ...], degree: Column, scan: StateScan
    ) -> StateScan:
        is_heavy = filled("x >= y", x=degree, y=self.threshold(split))
        rows = terms.projected(Selection(Join(scan, self.state), is_heavy), columns)
        role = self.composer.name(f"{split.name}_heavy_values")
        return store(role, rows, columns, self.composer, followed=False)

    def threshold(self, split: Split) -> Column:
        """Return the column with the threshold of a split."""
        return self.thresholds[self.epsilons[split]]

    def divided(
        self, split: Split, relation: Relation, *, heavy: bool, on: Variables | None = None
    ) -> Relation:
        """Return the rows with heavy values, or the rows with light values.

        `on` are the variables of the relation, if they differ from those of the split.
        """
        values = self.values[split]
        shared = [relation.keys[name] for name in sorted(on or split.on)]
        stored, equal, _ = self._renamed(values.heavy, values.columns, shared)
        return relation.at((Semijoin if heavy else Antisemijoin)(relation.rows, stored, equal))

    def _renamed(
        self, scan: StateScan, columns: Sequence[Column], shared: Sequence[Column] | None = None
    ) -> tuple[Operator, Scalar, dict[Column, Column]]:
        """Return a state with fresh names, the condition that joins it, and the new names."""
        new = {column: self.composer.fresh(column) for column in scan.columns}
        pairs = zip(columns, columns if shared is None else shared, strict=True)
        equal = conjunction(filled("x = y", x=other, y=new[column]) for column, other in pairs)
        return terms.renamed(scan, new.items()), equal, new

    def heavy(self, split: Split) -> Relation:
        """Return the heavy values as a relation."""
        values = self.values[split]
        keys = dict(zip(sorted(split.on), values.columns, strict=True))
        return Relation(values.heavy, keys, {}, exists=True)

    # Steps

    def add(self, split: Split, deltas: Sequence[Relation]) -> None:
        """Add the steps that apply changes of relations to the degrees."""
        composer, values = self.composer, self.values[split]
        more = composer.column("more")
        names, columns = sorted(split.on), (*values.columns, more)
        branches = [
            Branch(delta.rows, (*(delta.keys[name] for name in names), delta.payload[COUNT]))
            for delta in deltas
        ]
        rows = UnionAll(tuple(branches), columns)
        net = Aggregate(values.degree, filled("sum(x)::bigint", x=more))
        changed = Selection(
            Grouping(rows, values.columns, (net,)), filled("x <> 0", x=values.degree)
        )
        self.changes[split] = composer.assign(
            f"{split.name}_degree_change", changed, (*values.columns, values.degree)
        )
        upkeep = Upkeep(values.degrees, composer)
        new_degree = filled("x + y", x=upkeep.stored(values.degree), y=values.degree)
        upkeep.merge(self.changes[split], [(values.degree, new_degree)])

    def rebalance(self) -> str:
        """Add the steps that find the values that change their part; return the variable of a new N.

        If N changes, all values are checked, otherwise the values whose degree changed. The returned
        variable holds rows if and only if N changes.
        """
        size_change = self._update_size()
        old_base = self.composer.fresh(self.base)
        thresholds = tuple(self.thresholds.values())
        outputs = [(c, f"new_{self.state.called(c)}") for c in (self.base, *thresholds)]
        outputs.append((old_base, f"old_{self.state.called(self.base)}"))
        changed = DiffScan(size_change, self.composer.symbols.fresh("d"), tuple(outputs))
        kept = filled("x = y", x=self.base, y=old_base)
        moved = filled("x <> y", x=self.base, y=old_base)
        if self.dial is not None:
            [threshold] = thresholds
            old_threshold = self.composer.fresh(threshold)
            outputs.append((old_threshold, f"old_{self.state.called(threshold)}"))
            changed = replace(changed, outputs=tuple(outputs))
            kept = conjunction([kept, filled("x = y", x=threshold, y=old_threshold)])
            moved = filled("x OR y <> z", x=moved, y=threshold, z=old_threshold)
        resized = Selection(changed, moved)
        same_base = Selection(changed, kept)
        major = self.composer.assign("rebalanced", resized, thresholds)
        # N changes after as many changes as it counts rows.
        [counted, *_] = (self._counted(key) for key in self.values if key in self.sized)
        self.composer.seldom[major.variable] = counted.input, frozenset()
        self.composer.steps.append(Replan((major.variable,)))
        minor: list[DiffScan] = []
        for key, values in self.values.items():
            crossing = [self._crossing_after_resize(key, values, major)]
            if key in self.changes:
                minor.append(self._crossing_after_change(key, values, same_base))
                crossing.append(minor[-1])
            columns = crossing[0].columns
            self.moving[key] = Relation(
                UnionAll(tuple(Branch(scan, scan.columns) for scan in crossing), columns),
                dict(zip(sorted(key.on), columns, strict=False)),
                {COUNT: columns[-1]},
            )
        self._count_minor(minor)
        return major.variable

    def _update_size(self) -> str:
        """Add the step that updates the size: N doubles at size N, and halves below ⌊N/4⌋.

        Return the variable with the change.
        """
        composer = self.composer
        branches = [
            Branch(scan, scan.columns[-1:])
            for key, scan in self.changes.items()
            if key in self.sized
        ]
        more, by = composer.column("more"), composer.column("by")
        total = Aggregate(by, filled("sum(x)::bigint", x=more))
        upkeep = Upkeep(self.state, composer)
        grown = "x + y" if self.dial is None else "x + coalesce(y, 0)"
        size = filled(grown, x=upkeep.stored(self.size), y=by)
        now = upkeep.stored(self.base)
        base = filled("idivm.threshold_base(x, y)", x=now, y=size)
        thresholds = [
            (column, threshold_of(base, self._exponent(key)))
            for key, column in self.thresholds.items()
        ]
        moved, where = "y <> z", None
        sums: Operator = Grouping(UnionAll(tuple(branches), (more,)), (), (total,))
        [(threshold, new_threshold), *_] = thresholds
        if self.dial is not None:
            sums = Join(sums, self.dial.state)
            moved += " OR v <> w"
            # The dial may have been turned although no degree changes.
            wanted = threshold_of(Scalar.column(now), Scalar.column(self.dial.epsilon))
            where = filled("x IS NOT NULL OR y <> z", x=by, y=upkeep.stored(threshold), z=wanted)
        upkeep.update(
            sums,
            (),
            [
                (self.size, size),
                (self.base, base),
                *thresholds,
                (
                    self.major,
                    filled(
                        f"x + CASE WHEN {moved} THEN 1 ELSE 0 END",
                        x=upkeep.stored(self.major),
                        y=base,
                        z=now,
                        v=new_threshold,
                        w=upkeep.stored(threshold),
                    ),
                ),
            ],
            where,
            always=self.dial is not None,
        )
        return composer.changes[self.state.role].updated

    def _crossing_after_resize(self, split: Split, values: _Values, major: DiffScan) -> DiffScan:
        """Return the values that change their part after a change of N (StrictPartition in figure 4)."""
        every = Join(major, values.degrees)
        moving = self._crossing(split, every, values.degree, "1.0", "1.0")
        return self._assign_moving(split, moving, major)

    def _crossing_after_change(
        self, split: Split, values: _Values, same_base: Operator
    ) -> DiffScan:
        """Return the values whose degree changed and is too large or too small for their part."""
        changed = Join(terms.projected(self.changes[split], values.columns), same_base)
        degrees, equal, new = self._renamed(values.degrees, values.columns)
        left_join = LeftJoin(changed, degrees, equal)
        # With ε = 0 every value is heavy.
        rises = "1.5" if self.epsilons[split] else "1.0"
        if self.dial is not None:
            rises = "CASE WHEN t > 1 THEN 1.5 ELSE 1.0 END"
        moving = self._crossing(split, left_join, new[values.degree], rises, "0.5")
        variable = self._assign_moving(split, moving, self.changes[split])
        # A value changes its part only after a number of changes that grows with its degree.
        counted = self._counted(split)
        self.composer.seldom[variable.variable] = counted.input, frozenset(counted.by)
        return variable

    def _counted(self, split: Split) -> Grouping:
        """Return the query of the degrees."""
        counted = self.composer.stored[self.values[split].degrees.role]
        assert isinstance(counted, Grouping)
        return counted

    def _crossing(
        self, split: Split, rows: Operator, degree: Column, rises: str, falls: str
    ) -> Operator:
        """Return light values above, and heavy values below, the given multiples of the threshold."""
        values = self.values[split]
        heavy, equal, new = self._renamed(values.heavy, values.columns)
        direction = self.composer.column("direction")
        text = (
            f"CASE WHEN h IS NULL THEN CASE WHEN n > 0 AND n >= {rises} * t THEN {RISES} END"
            f" WHEN n < {falls} * t THEN {FALLS} END"
        )
        value = filled(text, h=new[values.columns[0]], n=degree, t=self.threshold(split))
        item = Item(direction, value)
        joined = LeftJoin(rows, heavy, equal)
        projection = Projection(joined, (*map(Item.kept, values.columns), item))
        return Selection(projection, filled("x IS NOT NULL", x=direction))

    def _assign_moving(self, split: Split, moving: Operator, needs: DiffScan) -> DiffScan:
        return self.composer.assign(
            f"{split.name}_moving", moving, moving.columns, [needs.variable]
        )

    def _count_minor(self, moving: Iterable[DiffScan]) -> None:
        """Add the step that counts the values of minor rebalancing."""
        count = self.composer.column("count")
        every = tuple(Branch(scan, (scan.columns[-1],)) for scan in moving)
        rows = UnionAll(every, (self.composer.column("direction"),))
        counts = Grouping(rows, (), (Aggregate(count, Scalar.read("count(*)")),))
        upkeep = Upkeep(self.state, self.composer)
        more = filled("x + y", x=upkeep.stored(self.minor), y=count)
        upkeep.update(counts, (), [(self.minor, more)])

    def moves(
        self, split: Split, relation: Relation, parts: tuple[StateScan, StateScan]
    ) -> Operator:
        """Return the change of the heavy part: rows of rising values, and rows of falling values negated."""
        columns, shared = columns_of(relation), [relation.keys[name] for name in sorted(split.on)]
        branches = []
        for direction, part in ((RISES, parts[1]), (FALLS, parts[0])):
            stored, equal, new = self._renamed(part, shared, self.values[split].columns)
            keys = [Item(key, Scalar.column(new[key])) for key in relation.keys.values()]
            payload = [
                Item(c, item.negated(new[c]) if direction == FALLS else Scalar.column(new[c]))
                for item, c in relation.payload.items()
            ]
            rows = Join(self._values_moving(split, direction), stored, equal)
            branches.append(Branch(Projection(rows, (*keys, *payload)), columns))
        return UnionAll(tuple(branches), columns)

    def _values_moving(self, split: Split, direction: int) -> Operator:
        moving = self.moving[split]
        return Selection(moving.rows, filled(f"x = {direction}", x=moving.payload[COUNT]))

    def apply_moves(self, split: Split) -> None:
        """Add the steps that move the values to their new part."""
        values = self.values[split]
        upkeep = Upkeep(values.heavy, self.composer)
        upkeep.insert(terms.projected(self._values_moving(split, RISES), values.columns))
        upkeep.delete(self._values_moving(split, FALLS), values.columns)

    def end(self, major: str) -> None:
        """Add the steps that delete values without rows, and that renew statistics if `major` has rows."""
        for change in self.changes:
            self._delete_empty(change)
        # N has doubled or halved, so the tables' statistics are out of date.
        self.composer.steps.append(Analyse((major,)))

    def turn(
        self, read: Iterable[str], scanned: Iterable[str], delta: Fraction, width: Fraction
    ) -> None:
        """Add the step that chooses ε, if it is open; the arguments are as in `TurnDial`."""
        if self.dial is None:
            return
        self.dial.turn(
            (self.state.role, self.state.called(self.base)),
            read,
            scanned,
            (
                (values.degrees.role, values.degrees.called(values.degree), len(split.atoms))
                for split, values in self.values.items()
            ),
            (delta, width),
        )

    def _delete_empty(self, split: Split) -> None:
        values, composer = self.values[split], self.composer
        upkeep = Upkeep(values.degrees, composer)
        now = upkeep.stored(values.degree)
        fewer = Selection(self.changes[split], filled("x < 0", x=values.degree))
        if not values.degrees.not_null.issuperset(values.columns):
            upkeep.delete(fewer, values.columns, filled("x = 0", x=now))
            return
        degrees, equal, new = self._renamed(values.degrees, values.columns)
        left_join = LeftJoin(terms.projected(fewer, values.columns), degrees, equal)
        empty = Selection(left_join, filled("x IS NOT DISTINCT FROM 0", x=new[values.degree]))
        zero = Item(values.degree, Scalar.read("0::bigint"))
        columns = (*values.columns, values.degree)
        deleted = composer.assign(
            f"{split.name}_gone",
            Projection(empty, (*map(Item.kept, values.columns), zero)),
            columns,
        )
        new_degree = filled("x + y", x=now, y=values.degree)
        upkeep.merge(deleted, [(values.degree, new_degree)], count=values.degree)
