"""The partition manager: degrees of values, the threshold, and which values are heavy.

Relations are divided on some of their variables. The degree of a value is how many rows have
it. At the threshold N^ε, heavy values have a degree of at least N^ε / 2 and light ones one below
3 N^ε / 2; after a change of the threshold base N it is N^ε for both (definition 6 of
papers/ivm-eps-counting-triangles.txt). Where ε is 0, every value is heavy.
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
    MaintenancePlan,
    Partition,
    Partitioning,
    Replan,
    StateTable,
)
from orchestrator.engine import terms
from orchestrator.engine.composer import Composer
from orchestrator.engine.states import Upkeep, store
from orchestrator.strategies.viewtree.hypergraph import Variables
from orchestrator.strategies.viewtree.relation import Relation, columns_of
from orchestrator.strategies.viewtree.sums import COUNT

RISES, FALLS = 1, -1
"""What a value does that changes its part."""


@dataclass(frozen=True)
class Split:
    """What is divided by the values of some variables: an atom, or some together."""

    name: str
    atoms: tuple[str, ...]
    on: Variables


def rows_of(split: Split, relations: Sequence[Relation], composer: Composer) -> Relation:
    """The values of what is divided together, and how often each relation has them."""
    names = sorted(split.on)
    columns = [composer.fresh(relations[0].keys[name]) for name in names]
    count = composer.column("rows")
    branches = tuple(
        Branch(relation.rows, (*(relation.keys[name] for name in names), relation.payload[COUNT]))
        for relation in relations
    )
    rows = UnionAll(branches, (*columns, count))
    return Relation(rows, dict(zip(names, columns, strict=True)), {COUNT: count})


@dataclass(frozen=True)
class _Values:
    """The values that relations are divided by: their degrees, and those that are heavy."""

    columns: tuple[Column, ...]
    degree: Column
    degrees: StateScan
    heavy: StateScan


class Degrees:
    """Keeps the degrees of the values of some relations, and says which values change their part.

    The degrees of changed values are met by outer joins. There is one for each; but where there were few
    degrees when an inner join was planned, PostgreSQL goes through all and looks for each among those
    that have changed, however many there are by now.
    """

    def __init__(
        self,
        composer: Composer,
        epsilons: Mapping[Split, Fraction],
        relations: Mapping[Split, Relation],
        sized: Collection[Split],
    ) -> None:
        """Stores degrees, threshold and heavy values as they are at first: strictly divided.

        N is about as large as what is `sized`. Keys count as often as their payload says.
        """
        self.composer, self.epsilons, self.sized = composer, epsilons, sized
        counted = {key: self._counted(key, relation) for key, relation in relations.items()}
        self.base, self.size, self.minor, self.major = (
            Column(composer.symbols.fresh(name), "bigint")
            for name in ("base", "size", "minor", "major")
        )
        self.thresholds = {
            epsilon: Column(composer.symbols.fresh("threshold"), "double precision")
            for epsilon in dict.fromkeys(epsilons.values())
        }
        self.state = self._stored_base(
            [(scan, degree) for key, (_, degree, scan) in counted.items() if key in sized]
        )
        self.values = {
            key: _Values(columns, degree, scan, self._stored_heavy(key, columns, degree, scan))
            for key, (columns, degree, scan) in counted.items()
        }
        self.changes: dict[Split, DiffScan] = {}
        """Of the degrees."""
        self.moving: dict[Split, Relation] = {}
        """Values that change their part; their payload says how."""

    # States

    def _counted(
        self, split: Split, relation: Relation
    ) -> tuple[tuple[Column, ...], Column, StateScan]:
        columns = tuple(relation.keys[name] for name in sorted(split.on))
        degree = Column(self.composer.symbols.fresh("degree"), "bigint")
        times = filled("sum(x)::bigint", x=relation.payload[COUNT])
        rows = Grouping(relation.rows, columns, (Aggregate(degree, times),))
        role = self.composer.name(f"{split.name}_degrees")
        return columns, degree, store(role, rows, columns, self.composer, followed=False)

    def _stored_base(self, counted: Iterable[tuple[StateScan, Column]]) -> StateScan:
        rows: Operator | None = None
        sizes: list[Column] = []
        for scan, degree in counted:
            size = self.composer.column("size")
            grouping = Grouping(
                scan, (), (Aggregate(size, filled("coalesce(sum(x), 0)::bigint", x=degree)),)
            )
            rows = grouping if rows is None else Join(rows, grouping)
            sizes.append(size)
        assert rows is not None
        total = Scalar.column(sizes[0])
        for size in sizes[1:]:
            total = filled("x + y", x=total, y=size)
        base = filled("2 * x + 1", x=total)
        items = (
            Item(self.base, base),
            Item(self.size, total),
            *(Item(column, _power(base, key)) for key, column in self.thresholds.items()),
            Item(self.minor, Scalar.read("0::bigint")),
            Item(self.major, Scalar.read("0::bigint")),
        )
        return store(self.composer.name("partition"), Projection(rows, items), (), self.composer)

    def _stored_heavy(
        self, split: Split, columns: tuple[Column, ...], degree: Column, scan: StateScan
    ) -> StateScan:
        enough = filled("x >= y", x=degree, y=self._threshold(split))
        rows = terms.shown(Selection(Join(scan, self.state), enough), columns)
        role = self.composer.name(f"{split.name}_heavy_values")
        return store(role, rows, columns, self.composer, followed=False)

    def _threshold(self, split: Split) -> Column:
        return self.thresholds[self.epsilons[split]]

    def divided(self, split: Split, relation: Relation, *, heavy: bool) -> Relation:
        """The rows with heavy values, or those with light ones."""
        values = self.values[split]
        shared = [relation.keys[name] for name in sorted(split.on)]
        stored, equal, _ = self._beside(values.heavy, values.columns, shared)
        return relation.at((Semijoin if heavy else Antisemijoin)(relation.rows, stored, equal))

    def _beside(
        self, scan: StateScan, columns: Sequence[Column], shared: Sequence[Column] | None = None
    ) -> tuple[Operator, Scalar, dict[Column, Column]]:
        """A state under other names, to be met in some columns by those of other rows."""
        new = {column: self.composer.fresh(column) for column in scan.columns}
        pairs = zip(columns, columns if shared is None else shared, strict=True)
        equal = conjunction(filled("x = y", x=other, y=new[column]) for column, other in pairs)
        return terms.renamed(scan, new.items()), equal, new

    def heavy(self, split: Split) -> Relation:
        """The heavy values."""
        values = self.values[split]
        keys = dict(zip(sorted(split.on), values.columns, strict=True))
        return Relation(values.heavy, keys, {}, exists=True)

    # Steps

    def add(self, split: Split, deltas: Sequence[Relation]) -> None:
        """Follows the rows that come and go."""
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
        grown = filled("x + y", x=upkeep.stored(values.degree), y=values.degree)
        upkeep.merge(self.changes[split], [(values.degree, grown)])

    def rebalance(self) -> str:
        """Finds the values that change their part: all that must if N changes, else of those changed.

        Gives the variable that holds something if N does.
        """
        resized = self._resized()
        was = self.composer.fresh(self.base)
        thresholds = tuple(self.thresholds.values())
        outputs = [(c, f"new_{self.state.called(c)}") for c in (self.base, *thresholds)]
        outputs.append((was, f"old_{self.state.called(self.base)}"))
        changed = DiffScan(resized, self.composer.symbols.fresh("d"), tuple(outputs))
        moves = Selection(changed, filled("x <> y", x=self.base, y=was))
        stays = Selection(changed, filled("x = y", x=self.base, y=was))
        major = self.composer.assign("rebalanced", moves, thresholds)
        self.composer.steps.append(Replan((major.variable,)))
        minor: list[DiffScan] = []
        for key, values in self.values.items():
            found = [self._strictly(key, values, major)]
            if key in self.changes:
                minor.append(self._loosely(key, values, stays))
                found.append(minor[-1])
            columns = found[0].columns
            self.moving[key] = Relation(
                UnionAll(tuple(Branch(scan, scan.columns) for scan in found), columns),
                dict(zip(sorted(key.on), columns, strict=False)),
                {COUNT: columns[-1]},
            )
        self._count_minor(minor)
        return major.variable

    def _resized(self) -> str:
        """Follows the size: where it is N or more, or less than ⌊N/4⌋, N is doubled or halved.

        Gives the variable that holds the change.
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
        size = filled("x + y", x=upkeep.stored(self.size), y=by)
        now = upkeep.stored(self.base)
        base = filled("idivm.threshold_base(x, y)", x=now, y=size)
        again = "x + CASE WHEN y <> z THEN 1 ELSE 0 END"
        upkeep.update(
            Grouping(UnionAll(tuple(branches), (more,)), (), (total,)),
            (),
            [
                (self.size, size),
                (self.base, base),
                *((column, _power(base, key)) for key, column in self.thresholds.items()),
                (self.major, filled(again, x=upkeep.stored(self.major), y=base, z=now)),
            ],
        )
        return composer.changes[self.state.role].updated

    def _strictly(self, split: Split, values: _Values, major: DiffScan) -> DiffScan:
        """The values that change their part where N has changed (StrictPartition in figure 4)."""
        every = Join(major, values.degrees)
        moving = self._crossing(split, every, values.degree, Fraction(1), Fraction(1))
        return self._assigned(split, moving, major)

    def _loosely(self, split: Split, values: _Values, stays: Operator) -> DiffScan:
        """Of the values whose degree has changed, those for which it is too large or too small."""
        few = Join(terms.shown(self.changes[split], values.columns), stays)
        degrees, equal, new = self._beside(values.degrees, values.columns)
        left_join = LeftJoin(few, degrees, equal)
        rises = Fraction(3, 2) if self.epsilons[split] else Fraction(1)
        moving = self._crossing(split, left_join, new[values.degree], rises, Fraction(1, 2))
        return self._assigned(split, moving, self.changes[split])

    def _crossing(
        self, split: Split, rows: Operator, degree: Column, rises: Fraction, falls: Fraction
    ) -> Operator:
        """Light values with so many times the threshold or more, heavy ones with less than so many."""
        values = self.values[split]
        heavy, equal, new = self._beside(values.heavy, values.columns)
        direction = self.composer.column("direction")
        text = (
            f"CASE WHEN h IS NULL THEN CASE WHEN n > 0 AND n >= {float(rises)} * t THEN {RISES} END"
            f" WHEN n < {float(falls)} * t THEN {FALLS} END"
        )
        asked = filled(text, h=new[values.columns[0]], n=degree, t=self._threshold(split))
        item = Item(direction, asked)
        beside = LeftJoin(rows, heavy, equal)
        projection = Projection(beside, (*map(Item.kept, values.columns), item))
        return Selection(projection, filled("x IS NOT NULL", x=direction))

    def _assigned(self, split: Split, moving: Operator, needs: DiffScan) -> DiffScan:
        return self.composer.assign(
            f"{split.name}_moving", moving, moving.columns, [needs.variable]
        )

    def _count_minor(self, moving: Iterable[DiffScan]) -> None:
        """Counts the values that are rebalanced one by one."""
        count = self.composer.column("count")
        every = tuple(Branch(scan, (scan.columns[-1],)) for scan in moving)
        rows = UnionAll(every, (self.composer.column("direction"),))
        times = Grouping(rows, (), (Aggregate(count, Scalar.read("count(*)")),))
        upkeep = Upkeep(self.state, self.composer)
        more = filled("x + y", x=upkeep.stored(self.minor), y=count)
        upkeep.update(times, (), [(self.minor, more)])

    def moved(
        self, split: Split, relation: Relation, parts: tuple[StateScan, StateScan]
    ) -> Operator:
        """The change of the heavy part: the rows of values that rise, and, less, of those that fall."""
        columns, shared = columns_of(relation), [relation.keys[name] for name in sorted(split.on)]
        branches = []
        for way, part, sign in ((RISES, parts[1], "x"), (FALLS, parts[0], "-x")):
            stored, equal, new = self._beside(part, shared, self.values[split].columns)
            keys = [Item(key, Scalar.column(new[key])) for key in relation.keys.values()]
            payload = [Item(p, filled(sign, x=new[p])) for p in relation.payload.values()]
            rows = Join(self._moving(split, way), stored, equal)
            branches.append(Branch(Projection(rows, (*keys, *payload)), columns))
        return UnionAll(tuple(branches), columns)

    def _moving(self, split: Split, way: int) -> Operator:
        moving = self.moving[split]
        return Selection(moving.rows, filled(f"x = {way}", x=moving.payload[COUNT]))

    def settle(self, split: Split) -> None:
        """The values that change their part do."""
        values = self.values[split]
        upkeep = Upkeep(values.heavy, self.composer)
        upkeep.insert(terms.shown(self._moving(split, RISES), values.columns))
        upkeep.delete(self._moving(split, FALLS), values.columns)

    def end(self, major: str) -> None:
        """Values that no row has any more go; and PostgreSQL plans again where `major` holds something."""
        for change in self.changes:
            self._forget(change)
        # N has doubled or halved: what was planned for was another size.
        self.composer.steps.append(Analyse((major,)))

    def _forget(self, split: Split) -> None:
        values, composer = self.values[split], self.composer
        upkeep = Upkeep(values.degrees, composer)
        now = upkeep.stored(values.degree)
        fewer = Selection(self.changes[split], filled("x < 0", x=values.degree))
        if not values.degrees.not_null.issuperset(values.columns):
            upkeep.delete(fewer, values.columns, filled("x = 0", x=now))
            return
        degrees, equal, new = self._beside(values.degrees, values.columns)
        left_join = LeftJoin(terms.shown(fewer, values.columns), degrees, equal)
        none = Selection(left_join, filled("x IS NOT DISTINCT FROM 0", x=new[values.degree]))
        nothing = Item(values.degree, Scalar.read("0::bigint"))
        columns = (*values.columns, values.degree)
        gone = composer.assign(
            f"{split.name}_gone",
            Projection(none, (*map(Item.kept, values.columns), nothing)),
            columns,
        )
        grown = filled("x + y", x=now, y=values.degree)
        upkeep.merge(gone, [(values.degree, grown)], count=values.degree)

    def shown(
        self, plan: MaintenancePlan, parts: Mapping[Split, tuple[StateScan, ...]]
    ) -> MaintenancePlan:
        """A plan that says where all of this is kept, and that it follows from what was."""
        known = self._described(parts)
        historic = {known.state, *(partition.heavy_values for partition in known.partitions)}
        states = (
            replace(item, historic=True)
            if isinstance(item, StateTable) and item.role in historic
            else item
            for item in plan.program.states
        )
        return replace(
            plan, program=replace(plan.program, states=tuple(states)), partitioning=known
        )

    def _described(self, parts: Mapping[Split, tuple[StateScan, ...]]) -> Partitioning:
        """Where what is kept lies, and where the heavy and the light part if those are stored."""
        called = self.state.called
        return Partitioning(
            state=self.state.role,
            base=called(self.base),
            size=called(self.size),
            minor=called(self.minor),
            major=called(self.major),
            partitions=tuple(
                Partition(
                    ", ".join(key.atoms),
                    tuple(sorted(key.on)),
                    str(self.epsilons[key]),
                    called(self._threshold(key)),
                    tuple(map(values.degrees.called, values.columns)),
                    values.degrees.role,
                    values.degrees.called(values.degree),
                    values.heavy.role,
                    tuple(part.role for part in parts.get(key, ())),
                )
                for key, values in self.values.items()
            ),
        )


def _power(base: Scalar, epsilon: Fraction) -> Scalar:
    return filled(f"power(x::double precision, {float(epsilon)}::double precision)", x=base)
