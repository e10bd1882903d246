"""The normal form of papers/fivm.txt, section 3: atoms over variables, free variables, SUM-products.

Columns of different tables that are equal form a variable. A condition on one table belongs to its atom.
No other condition may connect tables. Each aggregate is a sum of products, and each factor reads one
table. Two scans of a table are two atoms.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from sqlglot import exp

from orchestrator.algebra.column_type import ColumnType
from orchestrator.algebra.columns import Column, Symbols
from orchestrator.algebra.ids import used_symbols
from orchestrator.algebra.operators.antisemijoin import Antisemijoin
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.evaluation import Evaluation
from orchestrator.algebra.operators.group import Aggregate, Grouping
from orchestrator.algebra.operators.join import Join
from orchestrator.algebra.operators.left_join import LeftJoin
from orchestrator.algebra.operators.limit import Limit
from orchestrator.algebra.operators.project import Projection
from orchestrator.algebra.operators.scan import Scan
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.operators.semijoin import Semijoin
from orchestrator.algebra.operators.sort import Sort
from orchestrator.algebra.operators.union_all import UnionAll
from orchestrator.algebra.plan import Plan
from orchestrator.algebra.predicates import facts, never_null
from orchestrator.algebra.recognition.around import around_groups
from orchestrator.algebra.recognition.blocks import is_linear
from orchestrator.algebra.recognition.split_sums import without_widening
from orchestrator.algebra.scalar import TRUE, Scalar, conjunction, filled, unwrapped
from orchestrator.algebra.traversal import walk
from orchestrator.algebra.unsupported import NotModelledError, Unsupported
from orchestrator.deltascript.plan import MaintenancePlan
from orchestrator.engine.distinguishable import EXACT, have_one_look, look_alike
from orchestrator.strategies.request import PlanningRequest
from orchestrator.strategies.viewtree.form import (
    COVARIANCE,
    NUMBERS,
    Atom,
    NormalForm,
    Product,
    top_grouping,
)


def normal_form(
    plan: Plan, distinct: bool, types: Mapping[str, ColumnType], rings: Collection[str] = ()
) -> NormalForm | Unsupported:
    """Return the normal form of a plan, or why it has none; `distinct` if no two rows are equal.

    `rings` are the aggregates besides `idivm.covar` that sum products of lifted values.

    The example is the cost of each phone's parts, from papers/idivm.txt, figure 5b:

    >>> from orchestrator.algebra.examples import extended_example
    >>> form = normal_form(extended_example(), False, {})
    >>> [(name, sorted(schema)) for name, schema in form.graph.edges], form.free
    ([('parts', ['pid']), ('devices_parts', ['did', 'pid']), ('devices', ['did'])], ('did',))
    >>> [(str(p.aggregate), p.factors) for p in form.products]
    [('sum(price) → cost', (('parts', Scalar(price)),))]
    >>> form.atoms[2].condition
    Scalar(category = 'phone')
    """
    try:
        return _NormalFormReader(plan, distinct, types, rings).form()
    except NotModelledError as error:
        return error.unsupported


_REFUSED: dict[type[Operator], str] = {
    # The antisemijoin is also an instance of the semijoin.
    Antisemijoin: "NOT EXISTS and NOT IN are no joins",
    Semijoin: "EXISTS or IN may find several rows, as its condition covers no key",
    LeftJoin: "a left join keeps rows without a partner below the groups",
    Grouping: "a subquery with groups is joined",
    UnionAll: "a union of joins is joined",
    Limit: "the first rows of a subquery are joined",
    Evaluation: "a subquery is evaluated for each row",
}
"""The operators that no rewrite removed, and why they are refused."""


def _family(name: str) -> str:
    """Return a name that types have in common if `=` compares them as they are."""
    return "integer" if name in ("smallint", "bigint") else name


class _NormalFormReader:
    """Reads one plan: collects its scans, conditions and computed columns."""

    def __init__(
        self,
        plan: Plan,
        distinct: bool,
        types: Mapping[str, ColumnType],
        rings: Collection[str],
    ) -> None:
        self.lifting = {COVARIANCE, *rings}
        self.plan = plan
        self.distinct = distinct
        self.types = types
        self.scans: dict[str, Operator] = {}
        self.conditions: list[Scalar] = []
        self.owner: dict[Column, str] = {}
        self.defined: dict[Column, Scalar] = {}
        self.pairs: list[tuple[Column, Column]] = []
        """Equalities that have a computed column on a side."""

    def form(self) -> NormalForm:
        top, expressions, having = top_grouping(self.plan.root)
        around = None
        if top is None:
            around = around_groups(self.plan)
            top = around.core if around else None
        defined = self._collect(top.input if top is not None else self._below_projections())
        grouping = top if top is not None else self._group_by_all(expressions)
        filters, pairs = self._split_conditions()
        names = self._variables([*pairs, *self.pairs])
        binds: dict[str, dict[str, Scalar]] = {alias: {} for alias in self.scans}
        computed: dict[tuple[str, str], Column] = {}
        for column, variable in names.items():
            owner, value = self._owner(column), defined.get(column, Scalar.column(column))
            known = binds[owner].setdefault(variable, value)
            if known is value and value.as_column is None:
                computed[owner, variable] = column
            if known != value:
                filters[owner].append(filled("x = y", x=known, y=value))
        symbols = Symbols(names.values())
        images = used_symbols(self.plan.root)
        groups: list[tuple[Column, str]] = []
        for column in grouping.by:
            scalar = Scalar.column(column).substitute(defined)
            groups.append((column, self._free(column, scalar, names, binds, symbols)))
            if self._exact(column, scalar):
                continue
            if top is not None:
                raise NotModelledError(
                    "equal values of a grouping column may look different", str(column)
                )
            # No two rows are equal, so rows can also be grouped by the text of their values.
            image = filled("ROW(x)::text", x=scalar)
            looks = Column(images.fresh(f"{column}_image"), "text", exact=True)
            groups.append((looks, self._free(looks, image, names, binds, symbols)))
        joined = {v for v in names.values() if sum(v in bind for bind in binds.values()) > 1}
        atoms = tuple(
            Atom(
                alias,
                scan,
                conjunction(
                    [
                        *filters[alias],
                        *_not_null_conditions(scan, binds[alias], joined, filters[alias]),
                    ]
                ),
                tuple(binds[alias].items()),
            )
            for alias, scan in self.scans.items()
        )
        return NormalForm(
            atoms,
            tuple(groups),
            tuple(self._product(aggregate, defined) for aggregate in grouping.aggregates),
            ()
            if around is not None
            else tuple(
                (name, Scalar.column(column).substitute(expressions))
                for name, column in zip(self.plan.names, self.plan.columns, strict=True)
            ),
            having,
            computed,
            around,
        )

    def _below_projections(self) -> Operator:
        root = self.plan.root
        while isinstance(root, Sort | Projection) and not is_linear(root):
            root = root.children[0]
        return root

    def _group_by_all(self, expressions: Mapping[Column, Scalar]) -> Grouping:
        """Return a grouping by all columns: rows without duplicates are groups of one row."""
        if not self.distinct:
            raise NotModelledError(
                "rows that may be equal are not kept in a view tree",
                "a query without GROUP BY that shows no key",
            )
        read: dict[Column, None] = {}
        for column in self.plan.columns:
            wanted = Scalar.column(column).substitute(expressions).references
            read.update(dict.fromkeys(sorted(wanted, key=str)))
        return Grouping(self._below_projections(), tuple(read))

    def _collect(self, operator: Operator) -> dict[Column, Scalar]:
        """Collect scans and conditions; return computed columns as expressions over scans."""
        if isinstance(operator, Scan) or is_linear(operator):
            alias = next(scan.alias for scan in walk(operator) if isinstance(scan, Scan))
            self.scans[alias] = operator
            self.owner.update(dict.fromkeys(operator.columns, alias))
            return {}
        if isinstance(operator, Selection):
            defined = self._collect(operator.input)
            self.conditions += self._over(defined, operator.condition)
            return defined
        if isinstance(operator, Join):
            defined = self._collect(operator.left) | self._collect(operator.right)
            self.conditions += self._over(defined, operator.condition)
            return defined
        if isinstance(operator, Projection):
            defined = self._collect(operator.input)
            computed = {
                item.column: item.scalar.substitute(defined)
                for item in operator.items
                if not item.is_unchanged
            }
            return defined | computed
        for kind, why in _REFUSED.items():
            if isinstance(operator, kind):
                raise NotModelledError(why, operator.label)
        raise NotModelledError("only joins and selections fit a view tree", operator.label)

    def _over(self, defined: Mapping[Column, Scalar], condition: Scalar) -> Iterator[Scalar]:
        for conjunct in condition.conjuncts:
            if conjunct.subqueries:
                raise NotModelledError("a condition has a subquery", str(conjunct))
            pair = self._typed_pair(conjunct, defined) if conjunct.columns & defined.keys() else ()
            if pair:
                self.defined = {**self.defined, **defined}
                self.pairs += pair
            elif conjunct != TRUE:
                yield conjunct.substitute(defined)

    def _typed_pair(
        self, conjunct: Scalar, defined: Mapping[Column, Scalar]
    ) -> tuple[tuple[Column, Column], ...]:
        """Return the columns of an equality of two tables whose types PostgreSQL told, as one pair."""
        sides = conjunct.sides if isinstance(unwrapped(conjunct.tree), exp.EQ) else None
        first, second = (side.as_column for side in sides or (TRUE, TRUE))
        if first is None or second is None:
            return ()
        owners = [self._owners(Scalar.column(c).substitute(defined)) for c in (first, second)]
        if any(len(own) != 1 for own in owners) or owners[0] == owners[1]:
            return ()
        types = [self.types.get(column.symbol) for column in (first, second)]
        names = [_family(known.name) if known and known.comparable else "" for known in types]
        return ((first, second),) if names[0] == names[1] != "" else ()

    def _owner(self, column: Column) -> str:
        """Return the atom of a column, which may be computed."""
        [owner] = self._owners(Scalar.column(column).substitute(self.defined))
        return owner

    def _split_conditions(self) -> tuple[dict[str, list[Scalar]], list[tuple[Column, Column]]]:
        """Return the conditions on single atoms, and the equalities between atoms."""
        filters: dict[str, list[Scalar]] = {alias: [] for alias in self.scans}
        pairs: list[tuple[Column, Column]] = []
        for condition in self.conditions:
            owners = self._owners(condition)
            if len(owners) < 2:
                filters[min(owners, default=self._first)].append(condition)
                continue
            equal = facts(condition, self.owner).equal or self._typed_pair(condition, {})
            if len(equal) != 1:
                raise NotModelledError(
                    "tables are connected by more than equality of columns", str(condition)
                )
            pairs += equal
        return filters, pairs

    @property
    def _first(self) -> str:
        """The first atom, to which what reads no table belongs."""
        return next(iter(self.scans))

    def _owners(self, scalar: Scalar) -> set[str]:
        if not scalar.references <= self.owner.keys() or scalar.subqueries:
            raise NotModelledError("an expression reads more than its tables", str(scalar))
        return {self.owner[column] for column in scalar.references}

    def _variables(self, pairs: Iterable[tuple[Column, Column]]) -> dict[Column, str]:
        """Return the columns that equalities connect, with their variables."""
        classes: dict[Column, frozenset[Column]] = {}
        for left, right in pairs:
            merged = classes.get(left, frozenset({left})) | classes.get(right, frozenset({right}))
            classes.update(dict.fromkeys(merged, merged))
        every = (*self.owner, *(c for c in classes if c not in self.owner))
        position = {column: number for number, column in enumerate(every)}
        symbols, names = Symbols(), dict[frozenset[Column], str]()
        for column in sorted(classes, key=position.__getitem__):
            if classes[column] not in names:
                names[classes[column]] = symbols.fresh(_variable_name(column, self.scans.values()))
        return {
            column: names[classes[column]] for column in sorted(classes, key=position.__getitem__)
        }

    def _free(
        self,
        column: Column,
        scalar: Scalar,
        names: Mapping[Column, str],
        binds: Mapping[str, dict[str, Scalar]],
        symbols: Symbols,
    ) -> str:
        """Return the variable of a grouping column; add it to its atom if it is new."""
        same = scalar.as_column
        if (
            same is not None
            and same in names
            and self._exact(column, scalar)
            and self._one_look(names[same], names)
        ):
            return names[same]
        owners = self._owners(scalar)
        if len(owners) > 1:
            raise NotModelledError("a grouping column reads several tables", str(scalar))
        owner = min(owners, default=self._first)
        for variable, bound in binds[owner].items():
            if bound == scalar and self._one_look(variable, names):
                return variable
        variable = symbols.fresh(_variable_name(same or column, self.scans.values()))
        binds[owner][variable] = scalar
        return variable

    def _exact(self, column: Column, scalar: Scalar) -> bool:
        """Return whether equal values of a grouping column look equal."""
        same = scalar.as_column
        if same is not None:
            return not look_alike([same], self.types)
        known = self.types.get(column.symbol)
        if known is None:
            return False
        texts = known.name in ("text", "character varying")
        plain = scalar.tree.find(exp.Collate) is None and all(c.exact for c in scalar.columns)
        return known.name in EXACT or known.scale is not None or (texts and plain)

    def _one_look(self, variable: str, names: Mapping[Column, str]) -> bool:
        """Return whether a value of a variable looks the same in all tables."""
        return have_one_look((c for c, name in names.items() if name == variable), self.types)

    def _product(self, aggregate: Aggregate, defined: Mapping[Column, Scalar]) -> Product:
        if aggregate.distinct or aggregate.ordered or aggregate.call.subqueries:
            raise NotModelledError("an aggregate is not a sum of products", str(aggregate.call))
        lifts = aggregate.function in self.lifting
        known = lifts or aggregate.function in NUMBERS
        if aggregate.function in ("min", "max"):
            raise NotModelledError(
                "a minimum or maximum is not a sum of products, so a deleted value cannot be taken back",
                str(aggregate.call),
            )
        if not known or len(aggregate.arguments) > 1:
            raise NotModelledError("an aggregate is not a sum of products", str(aggregate.call))
        factors: list[tuple[str, Scalar]] = []
        for argument in aggregate.arguments:
            whole = argument.substitute(defined)
            factors += self._lifted_values(whole) if lifts else self._factors(whole)
        conditions: list[tuple[str, Scalar]] = []
        if aggregate.filter is not None:
            for conjunct in aggregate.filter.substitute(defined).conjuncts:
                owners = self._owners(conjunct)
                if len(owners) > 1:
                    raise NotModelledError("a FILTER reads several tables", str(conjunct))
                conditions.append((min(owners, default=self._first), conjunct))
        return Product(aggregate, tuple(factors), tuple(conditions))

    def _lifted_values(self, scalar: Scalar) -> list[tuple[str, Scalar]]:
        """Return the lifted values, each of one table; PostgreSQL passes them as one array."""
        tree = scalar.tree
        if isinstance(tree, exp.Variadic):
            tree = tree.this
        if not isinstance(tree, exp.Array):
            raise NotModelledError("an aggregate is of an array that is not spelt out", str(scalar))
        result = []
        for part in map(scalar.part, tree.expressions):
            owners = self._owners(part)
            if len(owners) > 1:
                raise NotModelledError("a value that is lifted reads several tables", str(part))
            result.append((min(owners, default=self._first), part))
        return result

    def _factors(self, scalar: Scalar) -> list[tuple[str, Scalar]]:
        """Return the factors of a product that read different tables."""
        owners = self._owners(scalar)
        if len(owners) < 2:
            return [(min(owners, default=self._first), scalar)]
        tree = without_widening(scalar)
        if isinstance(tree, exp.Mul):
            return [
                *self._factors(scalar.part(tree.this)),
                *self._factors(scalar.part(tree.expression)),
            ]
        raise NotModelledError("an aggregate is not a sum of products", str(scalar))


def _variable_name(column: Column, rows: Iterable[Operator]) -> str:
    """Return a name for the variable of a column: the column's name in its table, if it has one."""
    for scan in rows:
        for output in scan.outputs if isinstance(scan, Scan) else ():
            if output.column == column:
                return output.name
    return column.symbol


def _not_null_conditions(
    scan: Operator, binds: Mapping[str, Scalar], joined: set[str], filters: list[Scalar]
) -> Iterator[Scalar]:
    """Yield conditions that exclude NULLs in join variables, because NULL joins nothing."""
    known = Selection(scan, conjunction(filters)).not_null if filters else scan.not_null
    for variable, scalar in binds.items():
        if variable in joined and not never_null(scalar, known):
            yield filled("x IS NOT NULL", x=scalar)


def plan_normal_form(
    request: PlanningRequest, build: Callable[[NormalForm], MaintenancePlan | Unsupported]
) -> MaintenancePlan | Unsupported:
    """Build the plan of a query in natural-join normal form, or return why it has no such form."""
    if request.plan is None:
        return request.unmodelled
    form = normal_form(
        request.recognized or request.plan, request.distinct, request.types, request.rings
    )
    if isinstance(form, Unsupported):
        return form
    try:
        return build(form)
    except NotModelledError as error:
        return error.unsupported
