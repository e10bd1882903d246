"""What composition gathers while it goes through a plan: names, states, variables, steps.

Passes 2 and 3 of papers/idivm.txt, section 4: the rules of the operators are instantiated from the
leaves to the root, and what they give is put in the order in which it must run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeAlias

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
from orchestrator.engine.diffs import Bag, Diff, variables
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
        """All of them, in the order in which diffs are applied."""
        return self.deleted, self.updated, self.inserted

    def of(self, kind: ChangeKind) -> str:
        """Return the variable of a kind of change."""
        return str(getattr(self, kind.done))


class Composer:
    """Gives out names, and keeps what has been composed so far."""

    def __init__(
        self,
        sources: Sequence[Source],
        symbols: Symbols,
        types: Mapping[str, ColumnType],
        static: Collection[int] = (),
        change_of_join: JoinRule | None = None,
        minimise: bool = True,
    ) -> None:
        """Starts with nothing composed."""
        self.sources = {source.oid: source for source in sources}
        self.symbols = symbols
        self.types = dict(types)
        self.states: list[State] = []
        self.static = static
        """Tables, by oid, whose changes are answered by recomputing everything."""
        self.change_of_join = change_of_join
        """In place of the rule of the join: the change as a bag of a whole tree of joins."""
        self.minimise = minimise
        """Whether queries are cut down by what is known of diffs."""
        self.in_steps: Callable[[Operator], Operator] = lambda plan: plan
        """Cuts long joins of a plan, and adds the steps that hold what their beginnings find."""
        self.steps: list[Step] = []
        self.plans: dict[int, Operator] = {}
        """The plans of the steps' queries, by the steps' places."""
        self.loops: dict[int, tuple[Loop, ...]] = {}
        """How these reach their rows."""
        self.stored: dict[str, Operator] = {}
        """What the states hold, by their roles."""
        self.scans: dict[str, StateScan] = {}
        """How they are read."""
        self.variables: list[tuple[str, str]] = []
        """All variables of the program, and the roles of their row types."""
        self.changes: dict[str, Changes] = {}
        """Of the states that something reads, by their roles."""
        self.classes: dict[tuple[int, ChangeKind, frozenset[int]], ChangeClass] = {}
        """What the program reads of its sources' changes."""
        self.relevant: Mapping[Operator, Scalar] = {}
        """Scans, and what their rows must satisfy to matter."""
        self.conditions: dict[
            tuple[int, ChangeKind, frozenset[int]], list[tuple[Scalar, Scan] | None]
        ] = {}
        """For every class, the conditions under which a leaf that reads it asks for a change."""
        self.visible: tuple[tuple[str, Column], ...] = ()
        """The view's columns: their names, and what they are."""
        self.bags: dict[Operator, Bag | None] = {}
        """The changes of results that were wanted as bags."""
        self.diffs: dict[Operator, tuple[Diff, ...]] = {}
        """The diffs of results; a result may be in a plan more than once."""
        self.together: dict[str, list[tuple[str, ...]]] = {}
        """Columns by which updates find rows of states that they leave as they are, by their roles."""
        self.lookups: list[Lookup] = []
        """How queries look for rows by other conditions than equalities, which want an index too."""
        self.probes: dict[str, list[tuple[str, ...]]] = {}
        """Columns by which queries of the script look for the rows of states, by their roles."""
        self.seldom: dict[str, tuple[Operator, frozenset[Column]]] = {}
        """Variables that hold a changed group once for so many changes as it has rows: rows and their groups."""
        self.finds: dict[str, float] = {}
        """Variables for each of whose rows a lookup is expected to find at most so many rows."""
        self.notes: list[str] = []
        """What is computed at a cost that depends on more than the change, and why."""
        self._done: set[Hashable] = set()
        self._names = Symbols()

    # Names

    def name(self, *wanted: str) -> str:
        """A name for a variable or a role."""
        return self._names.fresh(*wanted)

    def column(self, wanted: str) -> Column:
        """A new column."""
        return Column(self.symbols.fresh(wanted))

    def fresh(self, column: Column, prefix: str = "old_") -> Column:
        """A new column like another."""
        result = replace(column, symbol=self.symbols.fresh(f"{prefix}{column.symbol}"))
        if column.symbol in self.types:
            self.types[result.symbol] = self.types[column.symbol]
        return result

    def comparable(self, columns: Iterable[Column]) -> None:
        """Refuses columns whose values `=` of pg_catalog does not compare."""
        for column in columns:
            known = self.types.get(column.symbol)
            if known is None or not known.comparable:
                raise NotModelledError(
                    "a column is not compared by an operator of pg_catalog", str(column)
                )

    def is_ordered(self, column: Column) -> bool:
        """Whether a column's values are numbers or points in time, which all compare alike."""
        known = self.types.get(column.symbol)
        return known is not None and known.name.partition("(")[0] in _ORDERED

    def first(self, thing: Hashable) -> bool:
        """Whether this is asked for the first time."""
        new = thing not in self._done
        self._done.add(thing)
        return new

    # Plans

    def identify(self, plan: Operator, rows: Operator, ids: Sequence[Column]) -> Join:
        """The rows of a result that a diff names by some of its IDs, beside the diff's columns.

        The diff's IDs, and whatever else the rows show too, are left out of it.
        """
        # A diff may have the very columns of the rows, which a condition could not tell apart.
        named = {column: self.fresh(column) for column in dict.fromkeys(ids)}
        rest = {column: self.fresh(column) for column in plan.columns if column not in rows.columns}
        plan, _ = copied(plan, self.symbols, {**named, **rest})
        kept = [(column, column) for column in named.values()]
        kept += [(new, old) for old, new in rest.items()]
        return Join(
            renamed(plan, kept),
            rows,
            same([(new, old) for old, new in named.items()], rows.not_null),
        )

    @contextmanager
    def joins_not_stored(self) -> Iterator[None]:
        """Meanwhile no join is stored: a part of it, as the result of a recursion, changes untold."""
        rule, self.change_of_join = self.change_of_join, None
        try:
            yield
        finally:
            self.change_of_join = rule

    @contextmanager
    def other_bags(self, given: Mapping[Operator, Bag] | None) -> Iterator[None]:
        """Meanwhile the changes of some leaves are others, and those of all results follow from them."""
        before = self.bags
        if given is not None:
            self.bags = dict(given)
        try:
            yield
        finally:
            self.bags = before

    def union(self, columns: Sequence[Column], parts: Sequence[Part]) -> Bag:
        """Signed rows from several plans that show these columns."""
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

    def prepared(self, plan: Operator) -> Operator:
        """A plan for a step to run: cut down by what is known of the sources' diffs, and in steps."""
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
        """Adds a step, which runs the query of a plan."""
        self.plans[len(self.steps)], self.loops[len(self.steps)] = plan, loops(plan)
        if isinstance(step, Assign):
            step = replace(step, notation=notation.computing(step, plan, self._diffs()))
        elif isinstance(step, Apply):
            step = replace(step, notation=notation.applying(step, plan, self._diffs()))
        self.steps.append(step)

    def _diffs(self) -> dict[str, str]:
        """Return how the diffs that variables hold are written."""
        written = {
            change.variable: notation.of_class(self.sources[oid], change)
            for (oid, _, _), change in self.classes.items()
        }
        for role, held in self.changes.items():
            written |= {held.of(kind): notation.sign(kind, role) for kind in ChangeKind}
        return written

    def held(self, wanted: str, bag: Bag) -> Bag:
        """A bag computed once, into a variable."""
        if isinstance(bag.plan, DiffScan):
            return bag
        return replace(bag, plan=self.assign(wanted, bag.plan, bag.plan.columns))

    def probe(self, state: StateScan, columns: Sequence[Column]) -> None:
        """Says that the script looks for a state's rows by some columns, which wants an index."""
        self.probes.setdefault(state.role, []).append(tuple(map(state.called, columns)))

    def keep_together(self, state: StateScan, columns: Sequence[Column]) -> None:
        """Says that updates find a state's rows by some columns, and change what is joined to them."""
        self.together.setdefault(state.role, []).append(tuple(map(state.called, columns)))

    def assign(
        self,
        wanted: str,
        plan: Operator,
        columns: Sequence[Column],
        needs: Iterable[str] | None = None,
        at_most: int | None = None,
    ) -> DiffScan:
        """Computes a diff once, into a variable, and reads it from there.

        It is computed if one of the variables that it `needs` holds anything: those that it reads,
        unless others are named. With more than `at_most` rows everything is recomputed.
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
        """The same, and for each condition a variable that holds the rows which satisfy it."""
        variable = self.name(wanted)
        shape = self.name(f"{wanted}_row")
        columns = tuple(dict.fromkeys(columns))
        plan = pruned(self.prepared(plan), columns)
        query = self.query(plan, columns)
        self.states.append(Shape(shape, query))
        self.variables.append((variable, shape))
        wanting = variables(plan) if needs is None else needs
        apart = tuple((self.name(f"{wanted}_{name}"), _of_diff(item)) for name, item in conditions)
        self.variables += [(name, shape) for name, _ in apart]
        step = Assign(variable, shape, query, tuple(sorted(wanting)), apart, at_most=at_most)
        self.add(plan, step)
        outputs = tuple((column, column.symbol) for column in columns)
        return tuple(
            DiffScan(name, self.symbols.fresh("d"), outputs)
            for name in (variable, *(name for name, _ in apart))
        )

    def query(self, plan: Operator, columns: Sequence[Column]) -> Query:
        """A plan as a query that shows some columns by their symbols."""
        renderer = Renderer(plan)
        return Query(renderer.with_shared(renderer.query(plan, {}, columns)))


def fields_of(source: Source) -> tuple[tuple[int, str], ...]:
    """What the columns of a source are called in its diffs, behind `old_` or `new_`."""
    names = Symbols()
    return tuple((c.attnum, names.fresh(fitted_name(c.name, " " * 8)[:-8])) for c in source.columns)


def _of_diff(condition: Scalar) -> str:
    """A condition on the columns of a diff as SQL over `d`."""

    def qualified(node: Tree) -> Tree:
        return reference(node.name, "d") if isinstance(node, exp.Column) else node

    return dialect.write(condition.tree.transform(qualified, copy=False), own=True)
