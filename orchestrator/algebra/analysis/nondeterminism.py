"""Nondeterministic results: how two correct answers of a query may differ although no row changed.

SQL leaves several things to the plan: which of equal rows LIMIT returns, the order of the rows that
an aggregate reads, which of 1.0 and 1.00 a group shows, the last digits of a sum of floats. A
comparison of two correct answers must ignore exactly these differences.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from sqlglot import exp

from orchestrator.algebra.columns import Column
from orchestrator.algebra.dependencies import has_key
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.cte_scan import CteScan
from orchestrator.algebra.operators.distinct import Distinct
from orchestrator.algebra.operators.distinct_on import DistinctOn
from orchestrator.algebra.operators.function_scan import FunctionScan
from orchestrator.algebra.operators.group import Aggregate, Grouping
from orchestrator.algebra.operators.grouping_sets import GroupingSets
from orchestrator.algebra.operators.joining import Binary
from orchestrator.algebra.operators.limit import Limit
from orchestrator.algebra.operators.project import Projection
from orchestrator.algebra.operators.recursive import Recursion, RecursiveScan
from orchestrator.algebra.operators.scan import Scan
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.operators.set_operation import Branch, TwoBranches
from orchestrator.algebra.operators.sort import Sort
from orchestrator.algebra.operators.union_all import UnionAll
from orchestrator.algebra.operators.values import Values
from orchestrator.algebra.operators.window import Window
from orchestrator.algebra.passes.aggregate_order import arrays, is_open, is_open_array
from orchestrator.algebra.passes.complete_orders import is_open_function, looks_determined
from orchestrator.algebra.plan import Plan
from orchestrator.algebra.scalar import Scalar, unwrapped


class Kind(IntEnum):
    """How closely two correct answers agree on a column; a greater kind means less agreement."""

    SAME = 0
    NEAR = 1
    """The values come from sums of floats and may differ in their last digits."""
    EQUAL = 2
    """The values are equal and may look different."""
    BAG = 3
    """The values have the same elements, in any order."""
    OPEN = 4


@dataclass(frozen=True)
class Openness:
    """What two correct answers of a query agree on."""

    kinds: tuple[Kind, ...]
    """The kind of each column of the answer."""
    rows: bool
    """Whether the answers have the same rows, apart from differences in their columns."""

    @property
    def is_nothing(self) -> bool:
        """Whether there is only one correct answer."""
        return self.rows and not any(self.kinds)


_FLOATS = frozenset({"real", "double precision"})

_SUMS = frozenset(
    {
        *("sum", "avg", "stddev", "stddev_pop", "stddev_samp", "variance", "var_pop", "var_samp"),
        *("corr", "covar_pop", "covar_samp", "regr_avgx", "regr_avgy", "regr_intercept"),
        *("regr_r2", "regr_slope", "regr_sxx", "regr_sxy", "regr_syy"),
    }
)
"""Aggregates that sum floats, with a rounding error that depends on the order."""

_CHOICES = frozenset({"min", "max", "mode", "percentile_disc", "array_agg", "sum", "avg"})
"""Aggregates that return equal results for equal values."""

_LISTS = frozenset(
    {
        *("array_agg", "string_agg", "json_agg", "jsonb_agg", "json_object_agg", "xmlagg"),
        *("json_agg_strict", "jsonb_agg_strict", "json_object_agg_strict", "json_arrayagg"),
    }
)
"""Aggregates whose results contain the value of each row, in order."""

_BY_VALUE = (
    *(exp.Column, exp.Identifier, exp.Literal, exp.Paren, exp.Boolean, exp.Null, exp.Neg),
    *(exp.Add, exp.Sub, exp.Mul, exp.Div, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE),
    *(exp.And, exp.Or, exp.Not, exp.Is, exp.Case, exp.If, exp.Between, exp.NullSafeEQ),
    *(exp.Subquery, exp.Parameter, exp.DataType),
)
"""Expressions that return equal values for equal operands."""

_NUMBERS = ("smallint", "integer", "bigint", "numeric", "real", "double precision")

_CONTAINERS = frozenset(
    {"COALESCE", "to_json", "to_jsonb", "json_build_object", "jsonb_build_object"}
)
"""Functions whose results contain their arguments unchanged."""


def openness(
    plan: Plan,
    types: Mapping[str, str],
    rings: Collection[str] = (),
    exact: Collection[Column] = (),
) -> Openness:
    """Return what two correct answers of a plan agree on.

    `types` has the type names of columns by their symbols. The type of an aggregate's argument has
    the symbol of the result and `()` as its key. Equal values of the columns in `exact` look the
    same.

    >>> from orchestrator.algebra.examples import PARTS, PID, PRICE
    >>> listed = Aggregate(Column("listed"), Scalar.read("array_agg(pid)", [PID]))
    >>> plan = Plan(Grouping(PARTS, (PRICE,), (listed,)), ("p", "l"), (PRICE, listed.column))
    >>> openness(plan, {}, exact=[PRICE])
    Openness(kinds=(<Kind.SAME: 0>, <Kind.BAG: 3>), rows=True)
    """
    analysis = _Openness(types, rings, frozenset(exact))
    rows = analysis.of(plan.root)
    return Openness(tuple(map(analysis.kind, plan.columns)), rows)


class _Openness:
    """Analyzes a plan, inputs first. Each operator updates the kinds of its columns."""

    def __init__(
        self, types: Mapping[str, str], rings: Collection[str], exact: frozenset[Column]
    ) -> None:
        self.types, self.rings, self.exact = types, rings, exact
        self.kinds: dict[Column, Kind] = {}
        self.recursive: dict[str, tuple[Kind, ...]] = {}

    def kind(self, column: Column) -> Kind:
        return self.kinds.get(column, Kind.SAME)

    def of(self, plan: Operator) -> bool:
        """Return whether the rows of a plan are determined, and store the kinds of its columns."""
        if isinstance(plan, Recursion):
            return self._recursion(plan)
        # Use a list, because the right side of a join may read columns of the left side.
        below = [self.of(child) for child in plan.children]
        return self._operator(plan) and all(below)

    def _operator(self, plan: Operator) -> bool:
        match plan:
            case RecursiveScan():
                known = self.recursive.get(plan.name, ())
                self.kinds.update(zip(plan.outputs, known, strict=False))
                return True
            case Scan() | Sort():
                return True
            case Values() | FunctionScan() | Selection() | Binary():
                return all(map(self._holds, plan.scalars))
            case Projection():
                self.kinds.update({item.column: self.scalar(item.scalar) for item in plan.items})
                return True
            case Grouping():
                return self._groups(plan, [(column, column) for column in plan.by])
            case GroupingSets():
                return self._groups(plan, plan.by)
            case Distinct():
                return self._note_groups([(column, column) for column in plan.columns], plan.input)
            case UnionAll():
                self._branches(plan.branches, plan.outputs)
                return True
            case TwoBranches():
                self._branches((plan.left, plan.right), plan.outputs)
                return self._note_groups([(column, column) for column in plan.outputs])
            case CteScan():
                self._branches((plan.shared,), plan.outputs)
                return True
            case Window():
                return self._window(plan)
            case DistinctOn():
                return self._note_first(plan, {*plan.on, *(key.column for key in plan.order)})
            case Limit():
                fixed = all(map(self._holds, plan.scalars))
                return fixed and self._note_first(plan, {key.column for key in plan.order})
        return False

    def _holds(self, condition: Scalar) -> bool:
        """Return whether two correct answers agree on a condition, apart from rounding."""
        return self.scalar(condition) <= Kind.EQUAL

    def scalar(self, scalar: Scalar) -> Kind:
        """Return the kind of an expression."""
        if (column := scalar.as_column) is not None:
            return self.kind(column)
        read = [self.kind(column) for column in scalar.columns]
        inner = self._subqueries(scalar)
        worst = max([*read, *inner], default=Kind.SAME)
        tree = unwrapped(scalar.tree)
        if worst <= Kind.NEAR or (inner and not any(read) and _is_subquery(tree)):
            return worst
        if worst is Kind.EQUAL and all(map(_is_by_value, tree.walk())):
            return Kind.EQUAL
        if worst is Kind.BAG and _shows_whole(tree):
            return Kind.BAG
        return Kind.OPEN

    def _subqueries(self, scalar: Scalar) -> list[Kind]:
        ordered = set(arrays(scalar))
        only_exist = _in_exists(scalar)
        result = []
        for number, subquery in enumerate(scalar.subqueries):
            rows = self.of(subquery.plan)
            worst = max(map(self.kind, subquery.columns), default=Kind.SAME)
            if not rows:
                result.append(Kind.OPEN)
            elif number in only_exist:
                result.append(Kind.SAME)
            elif number in ordered and worst <= Kind.NEAR and is_open_array(subquery):
                result.append(Kind.BAG)
            else:
                result.append(worst)
        return result

    def _groups(self, plan: Grouping | GroupingSets, by: Iterable[tuple[Column, Column]]) -> bool:
        aggregates = {
            aggregate.column: self._aggregate(plan, aggregate) for aggregate in plan.aggregates
        }
        rows = self._note_groups(by, plan.input)
        self.kinds.update(aggregates)
        return rows

    def _note_groups(
        self, by: Iterable[tuple[Column, Column]], below: Operator | None = None
    ) -> bool:
        """Store the kinds of columns by which rows are grouped; return whether the groups are
        determined.
        """
        pairs = list(by)
        determined = all(self.kind(column) <= Kind.EQUAL for _, column in pairs)
        exact = [column for _, column in pairs if column in self.exact]
        has_single_rows = below is not None and has_key(below.keys, below.dependencies, exact)
        for out, column in pairs:
            inexact = column not in self.exact and out not in self.exact and not has_single_rows
            self.kinds[out] = max(self.kind(column), Kind.EQUAL if inexact else Kind.SAME)
        return determined

    def _aggregate(self, plan: Grouping | GroupingSets, aggregate: Aggregate) -> Kind:
        if is_open(plan, aggregate, self.rings):
            same = self._read(aggregate) <= Kind.NEAR
            return Kind.BAG if same and aggregate.function.lower() in _LISTS else Kind.OPEN
        return self._call(aggregate)

    def _call(self, aggregate: Aggregate) -> Kind:
        """Return the kind of an aggregate whose result does not depend on the order of rows."""
        read = self._read(aggregate)
        if read > Kind.EQUAL or (read is Kind.EQUAL and aggregate.function not in _CHOICES):
            return Kind.OPEN if aggregate.function != "count" else Kind.SAME
        type_ = self._argument(aggregate)
        if aggregate.function in _SUMS and (type_ in _FLOATS or read is Kind.NEAR):
            return max(read, Kind.NEAR)
        if aggregate.function in _CHOICES - _SUMS or (
            aggregate.distinct and aggregate.function in _LISTS
        ):
            argument = aggregate.arguments[0].as_column if aggregate.arguments else None
            exact = argument is not None and argument in self.exact
            return read if exact else max(read, Kind.EQUAL)
        return read if aggregate.function != "count" else Kind.SAME

    def _read(self, aggregate: Aggregate) -> Kind:
        kinds = [self.kind(column) for column in aggregate.call.columns]
        return max([*kinds, *self._subqueries(aggregate.call)], default=Kind.SAME)

    def _argument(self, aggregate: Aggregate) -> str | None:
        arguments = aggregate.arguments
        column = arguments[0].as_column if arguments else None
        if column is not None and column.symbol in self.types:
            return self.types[column.symbol]
        return self.types.get(f"{aggregate.column.symbol}()")

    def _window(self, plan: Window) -> bool:
        around = [*plan.partition, *(key.column for key in plan.order)]
        unsure = max(map(self.kind, around), default=Kind.SAME) > Kind.EQUAL
        kinds = {
            function.column: Kind.OPEN
            if unsure or is_open_function(plan, function)
            else self._call(function)
            for function in plan.functions
        }
        self.kinds.update(kinds)
        return True

    def _note_first(self, plan: DistinctOn | Limit, order: Collection[Column]) -> bool:
        """Store the kinds of columns if rows are chosen by their order."""
        exact_order = all(self.kind(column) <= Kind.EQUAL for column in order)
        if not looks_determined(plan):
            for column in plan.columns:
                coarse = Kind.SAME if column in self.exact else Kind.EQUAL
                least = coarse if column in order else Kind.OPEN
                self.kinds[column] = max(self.kind(column), least)
        return exact_order

    def _branches(self, branches: Iterable[Branch], outputs: tuple[Column, ...]) -> None:
        every = [tuple(map(self.kind, branch.columns)) for branch in branches]
        self.kinds.update(
            zip(outputs, map(max, *every) if len(every) > 1 else every[0], strict=True)
        )

    def _recursion(self, plan: Recursion) -> bool:
        rows = self.of(plan.base.input)
        self.recursive[plan.name] = tuple(map(self.kind, plan.base.columns))
        rows = self.of(plan.step.input) and rows
        self._branches((plan.base, plan.step), plan.outputs)
        if plan.all:
            return rows and all(self.kind(column) <= Kind.EQUAL for column in plan.outputs)
        return self._note_groups([(column, column) for column in plan.outputs]) and rows


def _is_subquery(tree: exp.Expr) -> bool:
    """Return whether an expression is just a subquery, or the array of its rows."""
    if isinstance(tree, exp.Subquery):
        tree = unwrapped(tree.this)
    if isinstance(tree, exp.Anonymous) and tree.name == "ARRAY" and len(tree.expressions) == 1:
        tree = unwrapped(tree.expressions[0])
    return isinstance(tree, exp.Parameter)


def _is_by_value(node: exp.Expr) -> bool:
    """Return whether an expression returns equal values for equal operands."""
    if isinstance(node, exp.Cast):
        to_number = str(node.args["to"].args.get("kind")).partition("(")[0] in _NUMBERS
        return to_number or isinstance(unwrapped(node.this), exp.Literal)
    return isinstance(node, _BY_VALUE)


def _in_exists(scalar: Scalar) -> set[int]:
    """Return the positions of the subqueries that an expression only tests with EXISTS."""
    holes = (node.find(exp.Parameter) for node in scalar.tree.find_all(exp.Exists))
    return {int(hole.name) - 1 for hole in holes if hole is not None}


def _shows_whole(tree: exp.Expr) -> bool:
    """Return whether an expression contains its operands unchanged."""
    tree = unwrapped(tree)
    if isinstance(tree, exp.Column | exp.Literal | exp.Null | exp.Parameter):
        return True
    if isinstance(tree, exp.Cast | exp.Subquery):
        return _shows_whole(tree.this)
    if isinstance(tree, exp.DPipe):
        return _shows_whole(tree.this) and _shows_whole(tree.expression)
    if isinstance(tree, exp.Anonymous) and (tree.name in _CONTAINERS or tree.name == "ARRAY"):
        return all(map(_shows_whole, tree.expressions))
    return False
