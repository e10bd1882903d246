"""The composer of Δ-scripts: it collects names, states, variables and steps while it visits a plan.

Passes 2 and 3 of papers/idivm.txt, section 4: the rules of the operators are instantiated from the
leaves to the root, and the resulting steps are put in the order in which they must run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from sqlglot import exp

from orchestrator.algebra import dialect
from orchestrator.algebra.column_type import ColumnType
from orchestrator.algebra.columns import Column, Symbols
from orchestrator.algebra.copies import copied
from orchestrator.algebra.dialect import Tree, reference
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.join import Join
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.operators.scan import Scan
from orchestrator.algebra.operators.set_operation import Branch
from orchestrator.algebra.operators.union_all import UnionAll
from orchestrator.algebra.rendering import Renderer
from orchestrator.algebra.scalar import Scalar
from orchestrator.algebra.unsupported import NotModelledError
from orchestrator.deltascript import notation
from orchestrator.deltascript.leaves import DiffScan, StateScan
from orchestrator.deltascript.plan import (
    Apply,
    Assign,
    ChangeClass,
    ChangeKind,
    Query,
    Shape,
    Source,
    State,
    Step,
)
from orchestrator.engine.access import Lookup, Loop, loops
from orchestrator.engine.diffs import Bag, Diff, needed
from orchestrator.engine.minimize import Held, minimized
from orchestrator.engine.prune_outputs import pruned
from orchestrator.engine.terms import renamed, same
from orchestrator.sqltext import fitted_name

Part: TypeAlias = tuple[int | Column | Scalar, Operator]
"""A part of a bag: the sign of its rows, and a plan."""

_ORDERED = frozenset(
    {
        *("smallint", "integer", "bigint", "numeric", "real", "double precision", "date"),
        *("timestamp without time zone", "timestamp with time zone"),
    }
)

JoinRule: TypeAlias = "Callable[[Operator, Composer], Bag | None]"


@dataclass(frozen=True)
class Changes:
    """The variables that hold the changes of a stored state, and their row type."""

    deleted: str
    updated: str
    inserted: str
    shape: str

    @property
    def variables(self) -> tuple[str, str, str]:
        """The variables, in the order in which diffs are applied."""
        return self.deleted, self.updated, self.inserted

    def of(self, kind: ChangeKind) -> str:
        """Return the variable of a kind of change."""
        return str(getattr(self, kind.done))


class Composer:
    """Gives out names, and holds the parts of a script that are composed so far."""

    def __init__(
        self,
        sources: Sequence[Source],
        symbols: Symbols,
        types: Mapping[str, ColumnType],
        static: Collection[int] = (),
        change_of_join: JoinRule | None = None,
        minimise: bool = True,
        growing: Collection[int] = (),
    ) -> None:
        """Start with an empty script."""
        self.sources = {source.oid: source for source in sources}
        self.symbols = symbols
        self.types = dict(types)
        self.states: list[State] = []
        self.static = static
        """Tables, by oid, whose changes lead to a complete recomputation."""
        self.growing = growing
        """Tables, by oid, whose rows stay as they are, so that all their changes are inserts."""
        self.change_of_join = change_of_join
        """Returns the change of a whole tree of joins as a bag, instead of the rule of the join."""
        self.minimise = minimise
        """Whether queries are minimized by facts about diffs."""
        self.in_steps: Callable[[Operator], Operator] = lambda plan: plan
        """Splits long joins of a plan, and adds the steps that compute their first parts."""
        self.repeats: Callable[[Operator, Collection[Column]], bool] = lambda rows, by: True
        """Whether several rows of a result are expected to share the values of some columns."""
        self.steps: list[Step] = []
        self.plans: dict[int, Operator] = {}
        """The plans of the queries of steps, by the positions of the steps."""
        self.loops: dict[int, tuple[Loop, ...]] = {}
        """The loops of these queries."""
        self.stored: dict[str, Operator] = {}
        """The plans whose results the states hold, by roles."""
        self.scans: dict[str, StateScan] = {}
        """The scans of the states, by roles."""
        self.variables: list[tuple[str, str]] = []
        """All variables of the program, and the roles of their row types."""
        self.groups: dict[str, Any] = {}
        """How the aggregates of stored groups are maintained, by roles; the rule of groups knows the form."""
        self.changes: dict[str, Changes] = {}
        """The variables with the changes of states, for states whose changes may be read, by roles."""
        self.classes: dict[tuple[int, ChangeKind, frozenset[int]], ChangeClass] = {}
        """The classes of changes of sources that the program reads."""
        self.relevant: Mapping[Operator, Scalar] = {}
        """Scans, and the conditions that rows which matter satisfy."""
        self.conditions: dict[
            tuple[int, ChangeKind, frozenset[int]], list[tuple[Scalar, Scan] | None]
        ] = {}
        """For each class, the conditions of the leaves that read it; None for a leaf that needs all rows."""
        self.visible: tuple[tuple[str, Column], ...] = ()
        """The names of the view's columns, and the columns of the plan."""
        self.bags: dict[Operator, Bag | None] = {}
        """The changes of results that were requested as bags."""
        self.diffs: dict[Operator, tuple[Diff, ...]] = {}
        """The diffs of results; a result may occur in a plan several times."""
        self.together: dict[str, list[tuple[str, ...]]] = {}
        """Columns by which updates find rows of states without changing these columns, by roles."""
        self.lookups: list[Lookup] = []
        """Lookups by conditions other than equalities, which need indexes too."""
        self.probes: dict[str, list[tuple[str, ...]]] = {}
        self.rewritten: set[str] = set()
        """The states of which a single change updates many neighboring rows."""
        """Columns by which queries of the script look up rows of states, by roles."""
        self.seldom: dict[str, tuple[Operator, frozenset[Column]]] = {}
        """Variables that receive a changed group only once for as many changes as the group has rows.

        The value has the rows and their grouping columns."""
        self.finds: dict[str, float] = {}
        """Variables, and the most rows that a lookup is expected to find for each of their rows."""
        self.spans: dict[str, bool] = {}
        """Variables with the spans of partitions in which rows changed, and whether spans reach to their ends."""
        self.notes: list[str] = []
        """Notes on computations whose cost depends on more than the change, and why."""
        self._done: set[Hashable] = set()
        self._names = Symbols()

    # Names

    def name(self, *wanted: str) -> str:
        """Return a name for a variable or a role."""
        return self._names.fresh(*wanted)

    def column(self, wanted: str) -> Column:
        """Return a new column."""
        return Column(self.symbols.fresh(wanted))

    def fresh(self, column: Column, prefix: str = "old_") -> Column:
        """Return a new column with the type of another column."""
        result = replace(column, symbol=self.symbols.fresh(f"{prefix}{column.symbol}"))
        if column.symbol in self.types:
            self.types[result.symbol] = self.types[column.symbol]
        return result

    def comparable(self, columns: Iterable[Column]) -> None:
        """Reject columns whose values the `=` of pg_catalog does not compare."""
        for column in columns:
            known = self.types.get(column.symbol)
            if known is None or not known.comparable:
                raise NotModelledError(
                    "a column is not compared by an operator of pg_catalog", str(column)
                )

    def is_ordered(self, column: Column) -> bool:
        """Return whether a column has numbers or times, which have a single order."""
        known = self.types.get(column.symbol)
        return known is not None and known.name.partition("(")[0] in _ORDERED

    def first(self, key: Hashable) -> bool:
        """Return whether this is the first call with a value."""
        new = key not in self._done
        self._done.add(key)
        return new

    # Plans

    def identify(self, plan: Operator, rows: Operator, ids: Sequence[Column]) -> Join:
        """Return the rows of a result that a diff names by some of its IDs, joined with the diff.

        The columns of the diff that the rows also have are renamed and not shown.
        """
        # A diff may have the same columns as the rows, which a condition could not distinguish.
        new_ids = {column: self.fresh(column) for column in dict.fromkeys(ids)}
        rest = {column: self.fresh(column) for column in plan.columns if column not in rows.columns}
        plan, _ = copied(plan, self.symbols, {**new_ids, **rest})
        pairs = [(column, column) for column in new_ids.values()]
        pairs += [(new, old) for old, new in rest.items()]
        return Join(
            renamed(plan, pairs),
            rows,
            same([(new, old) for old, new in new_ids.items()], rows.not_null),
        )

    @contextmanager
    def joins_not_stored(self) -> Iterator[None]:
        """Store no joins in this context: a part of them changes without a diff, as the result of a
        recursion.
        """
        rule, self.change_of_join = self.change_of_join, None
        try:
            yield
        finally:
            self.change_of_join = rule

    @contextmanager
    def other_bags(self, given: Mapping[Operator, Bag] | None) -> Iterator[None]:
        """Replace the changes of some leaves in this context, and thereby those of all results."""
        before = self.bags
        if given is not None:
            self.bags = dict(given)
        try:
            yield
        finally:
            self.bags = before

    def union(self, columns: Sequence[Column], parts: Sequence[Part]) -> Bag:
        """Return signed rows from several plans that show these columns."""
        sign = Column(self.symbols.fresh("sign"), "integer", "integer_ops", exact=True)
        branches = []
        for given, plan in parts:
            own = replace(sign, symbol=self.symbols.fresh("sign"))
            if isinstance(given, Column):
                given = Scalar.column(given)
            elif isinstance(given, int):
                given = Scalar.read(str(given))
            items = (*map(Item.kept, columns), Item(own, given))
            branches.append(Branch(Projection(plan, items), (*columns, own)))
        return Bag(UnionAll(tuple(branches), (*columns, sign)), sign)

    def union_with(
        self,
        columns: Sequence[Column],
        added: Sequence[Column],
        parts: Iterable[tuple[Operator, Sequence[Scalar]]],
    ) -> UnionAll:
        """Return the rows of several plans that show these columns, with columns whose values differ by plan."""
        branches = []
        for plan, values in parts:
            own = [self.fresh(column) for column in added]
            items = (*map(Item.kept, columns), *map(Item, own, values))
            branches.append(Branch(Projection(plan, items), (*columns, *own)))
        return UnionAll(tuple(branches), (*columns, *added))

    def prepared(self, plan: Operator) -> Operator:
        """Return a plan for the query of a step: minimized by facts about diffs, with long joins
        split.
        """
        return self.in_steps(self._minimized(plan))

    def _minimized(self, plan: Operator) -> Operator:
        if not self.minimise:
            return plan
        held = {}
        for (oid, kind, _), change_class in self.classes.items():
            source = self.sources[oid]
            key = frozenset(column.attnum for column in source.columns if column.in_key)
            if key:
                held[change_class.variable] = Held(kind, oid, key, dict(fields_of(source)))
        return minimized(plan, held, self.symbols)

    # Steps

    def add(self, plan: Operator, step: Step) -> None:
        """Add a step that runs the query of a plan."""
        self.plans[len(self.steps)], self.loops[len(self.steps)] = plan, loops(plan)
        if isinstance(step, Assign):
            step = replace(step, notation=notation.computing(step, plan, self._diffs()))
        elif isinstance(step, Apply):
            step = replace(step, notation=notation.applying(step, plan, self._diffs()))
        self.steps.append(step)

    def _diffs(self) -> dict[str, str]:
        """Return the notation of the diffs that variables hold."""
        written = {
            change.variable: notation.of_class(self.sources[oid], change)
            for (oid, _, _), change in self.classes.items()
        }
        for role, held in self.changes.items():
            written |= {held.of(kind): notation.sign(kind, role) for kind in ChangeKind}
        return written

    def held(self, wanted: str, bag: Bag) -> Bag:
        """Return a bag that is computed once, into a variable."""
        if isinstance(bag.plan, DiffScan):
            return bag
        return replace(bag, plan=self.assign(wanted, bag.plan, bag.plan.columns))

    def probe(self, state: StateScan, columns: Sequence[Column]) -> None:
        """Note that the script looks up rows of a state by some columns, which needs an index.

        The last column may bound a range.
        """
        self.probes.setdefault(state.role, []).append(tuple(map(state.called, columns)))

    def keep_together(self, state: StateScan, columns: Sequence[Column]) -> None:
        """Note that updates find rows of a state by some columns, and change data that is joined
        with them.
        """
        self.together.setdefault(state.role, []).append(tuple(map(state.called, columns)))

    def assign(
        self,
        wanted: str,
        plan: Operator,
        columns: Sequence[Column],
        needs: Iterable[str] | None = None,
        at_most: int | None = None,
    ) -> DiffScan:
        """Compute a diff once into a variable, and return the scan of the variable.

        The diff is computed if any of the variables in `needs` holds rows; by default these are the
        variables that it reads. If it has more than `at_most` rows, everything is recomputed.
        """
        return self.assign_apart(wanted, plan, columns, (), needs, at_most)[0]

    def assign_apart(
        self,
        wanted: str,
        plan: Operator,
        columns: Sequence[Column],
        conditions: Sequence[tuple[str, Scalar]],
        needs: Iterable[str] | None = None,
        at_most: int | None = None,
    ) -> tuple[DiffScan, ...]:
        """Compute a diff as `assign` does, with a further variable for each condition that holds
        the matching rows.
        """
        variable = self.name(wanted)
        shape = self.name(f"{wanted}_row")
        columns = tuple(dict.fromkeys(columns))
        given, plan = plan, pruned(self.prepared(plan), columns)
        query = self.query(plan, columns)
        self.states.append(Shape(shape, query))
        self.variables.append((variable, shape))
        needs = needed(given, plan) if needs is None else needs
        apart = tuple(
            (self.name(f"{wanted}_{name}"), _diff_condition(item)) for name, item in conditions
        )
        self.variables += [(name, shape) for name, _ in apart]
        step = Assign(variable, shape, query, tuple(sorted(needs)), apart, at_most=at_most)
        self.add(plan, step)
        outputs = tuple((column, column.symbol) for column in columns)
        sure = plan.not_null & set(columns)
        return tuple(
            DiffScan(name, self.symbols.fresh("d"), outputs, sure)
            for name in (variable, *(name for name, _ in apart))
        )

    def query(self, plan: Operator, columns: Sequence[Column]) -> Query:
        """Return a plan as a query that shows some columns by their symbols."""
        renderer = Renderer(plan)
        return Query(renderer.with_shared(renderer.query(plan, {}, columns)))


def fields_of(source: Source) -> tuple[tuple[int, str], ...]:
    """Return the names of a source's columns in its diffs, without the prefix `old_` or `new_`."""
    names = Symbols()
    return tuple((c.attnum, names.fresh(fitted_name(c.name, " " * 8)[:-8])) for c in source.columns)


def _diff_condition(condition: Scalar) -> str:
    """Return a condition on the columns of a diff as SQL over `d`."""

    def qualified(node: Tree) -> Tree:
        return reference(node.name, "d") if isinstance(node, exp.Column) else node

    return dialect.write(condition.tree.transform(qualified, copy=False), own=True)
