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
from orchestrator.algebra.dialect import Tree, write
from orchestrator.algebra.ids import used_symbols
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.distinct import Distinct
from orchestrator.algebra.operators.group import Aggregate, Grouping
from orchestrator.algebra.operators.join import Join
from orchestrator.algebra.operators.project import Projection
from orchestrator.algebra.operators.scan import Scan
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.operators.sort import Sort
from orchestrator.algebra.plan import Plan
from orchestrator.algebra.predicates import facts
from orchestrator.algebra.scalar import TRUE, Scalar, conjunction, filled, unwrapped
from orchestrator.algebra.unsupported import NotModelledError, Unsupported
from orchestrator.deltascript.plan import MaintenancePlan
from orchestrator.engine.distinguishable import EXACT
from orchestrator.strategies.request import PlanningRequest
from orchestrator.strategies.viewtree.form import COVARIANCE, NUMBERS, Atom, NormalForm, Product
from orchestrator.strategies.viewtree.hypergraph import Fd


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
        self.scans: list[Scan] = []
        self.conditions: list[Scalar] = []
        self.owner: dict[Column, str] = {}

    def form(self) -> NormalForm:
        top, shown, having = _top_grouping(self.plan.root)
        defined = self._collect(top.input if top is not None else self._below_projections())
        grouping = top if top is not None else self._group_by_all(shown)
        filters, pairs = self._split_conditions()
        names = self._variables(pairs)
        binds: dict[str, dict[str, Scalar]] = {scan.alias: {} for scan in self.scans}
        for column, variable in names.items():
            known = binds[self.owner[column]].setdefault(variable, Scalar.column(column))
            if known.as_column != column:
                filters[self.owner[column]].append(filled("x = y", x=known, y=column))
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
                scan.alias,
                scan,
                conjunction(
                    [
                        *filters[scan.alias],
                        *_not_null_conditions(scan, binds[scan.alias], joined, filters[scan.alias]),
                    ]
                ),
                tuple(binds[scan.alias].items()),
            )
            for scan in self.scans
        )
        return NormalForm(
            atoms,
            tuple(groups),
            tuple(self._product(aggregate, defined) for aggregate in grouping.aggregates),
            tuple(
                (name, Scalar.column(column).substitute(shown))
                for name, column in zip(self.plan.names, self.plan.columns, strict=True)
            ),
            tuple(_dependencies(atoms)),
            having,
        )

    def _below_projections(self) -> Operator:
        root = self.plan.root
        while isinstance(root, Sort | Projection):
            root = root.children[0]
        return root

    def _group_by_all(self, shown: Mapping[Column, Scalar]) -> Grouping:
        """Return a grouping by all columns: rows without duplicates are groups of one row."""
        if not self.distinct:
            raise NotModelledError(
                "rows that may be equal are not kept in a view tree",
                "a query without GROUP BY that shows no key",
            )
        read: dict[Column, None] = {}
        for column in self.plan.columns:
            wanted = Scalar.column(column).substitute(shown).references
            read.update(dict.fromkeys(sorted(wanted, key=str)))
        return Grouping(self._below_projections(), tuple(read))

    def _collect(self, operator: Operator) -> dict[Column, Scalar]:
        """Collect scans and conditions; return computed columns as expressions over scans."""
        if isinstance(operator, Scan):
            self.scans.append(operator)
            self.owner.update(dict.fromkeys(operator.columns, operator.alias))
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
        raise NotModelledError("only joins and selections fit a view tree", operator.label)

    def _over(self, defined: Mapping[Column, Scalar], condition: Scalar) -> Iterator[Scalar]:
        for conjunct in condition.conjuncts:
            if conjunct.subqueries:
                raise NotModelledError("a condition has a subquery", str(conjunct))
            if conjunct != TRUE:
                yield conjunct.substitute(defined)

    def _split_conditions(self) -> tuple[dict[str, list[Scalar]], list[tuple[Column, Column]]]:
        """Return the conditions on single atoms, and the equalities between atoms."""
        filters: dict[str, list[Scalar]] = {scan.alias: [] for scan in self.scans}
        pairs: list[tuple[Column, Column]] = []
        for condition in self.conditions:
            owners = self._owners(condition)
            if len(owners) < 2:
                filters[min(owners, default=self.scans[0].alias)].append(condition)
                continue
            equal = facts(condition, self.owner).equal
            if len(equal) != 1:
                raise NotModelledError(
                    "tables are connected by more than equality of columns", str(condition)
                )
            pairs += equal
        return filters, pairs

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
        position = {column: number for number, column in enumerate(self.owner)}
        symbols, names = Symbols(), dict[frozenset[Column], str]()
        for column in sorted(classes, key=position.__getitem__):
            if classes[column] not in names:
                names[classes[column]] = symbols.fresh(_variable_name(column, self.scans))
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
        if same is not None and same in names and self._exact(column, scalar):
            return names[same]
        owners = self._owners(scalar)
        if len(owners) > 1:
            raise NotModelledError("a grouping column reads several tables", str(scalar))
        owner = min(owners, default=self.scans[0].alias)
        for variable, bound in binds[owner].items():
            if bound == scalar:
                return variable
        variable = symbols.fresh(_variable_name(same or column, self.scans))
        binds[owner][variable] = scalar
        return variable

    def _exact(self, column: Column, scalar: Scalar) -> bool:
        """Return whether equal values of a grouping column look equal."""
        same = scalar.as_column
        if same is not None:
            return same.exact
        known = self.types.get(column.symbol)
        if known is None:
            return False
        texts = known.name in ("text", "character varying")
        plain = scalar.tree.find(exp.Collate) is None and all(c.exact for c in scalar.columns)
        return known.name in EXACT or (texts and plain)

    def _product(self, aggregate: Aggregate, defined: Mapping[Column, Scalar]) -> Product:
        if aggregate.distinct or aggregate.ordered or aggregate.call.subqueries:
            raise NotModelledError("an aggregate is not a sum of products", str(aggregate.call))
        lifts = aggregate.function in self.lifting
        known = lifts or aggregate.function in NUMBERS
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
                conditions.append((min(owners, default=self.scans[0].alias), conjunct))
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
            result.append((min(owners, default=self.scans[0].alias), part))
        return result

    def _factors(self, scalar: Scalar) -> list[tuple[str, Scalar]]:
        """Return the factors of a product that read different tables."""
        owners = self._owners(scalar)
        if len(owners) < 2:
            return [(min(owners, default=self.scans[0].alias), scalar)]
        tree = _without_widening(scalar)
        if isinstance(tree, exp.Mul):
            return [
                *self._factors(scalar.part(tree.this)),
                *self._factors(scalar.part(tree.expression)),
            ]
        raise NotModelledError("an aggregate is not a sum of products", str(scalar))


_WIDTHS = {"smallint": 0, "integer": 0, "bigint": 0, "numeric": 1, "double precision": 2}


def _without_widening(scalar: Scalar) -> Tree:
    """Return an expression without outer casts to wider number types, which lose nothing.

    >>> x = Column("x", "integer")
    >>> write(_without_widening(Scalar.read("((x * 2))::numeric", [x])))
    'x * 2'
    >>> write(_without_widening(Scalar.read("(x * 0.5)::integer", [x])))
    '(x * 0.5)::integer'
    """
    known = {column.symbol: (column.type or "").partition("(")[0] for column in scalar.columns}

    def width(tree: Tree) -> int:
        tree = unwrapped(tree)
        if isinstance(tree, exp.Column):
            return _WIDTHS.get(known.get(tree.name, ""), 3)
        if isinstance(tree, exp.Literal) and not tree.is_string:
            return 0 if tree.is_int else 1
        if isinstance(tree, exp.Cast):
            return _WIDTHS.get(write(tree.to), 3)
        if isinstance(tree, exp.Add | exp.Sub | exp.Mul):
            return max(width(tree.this), width(tree.expression))
        return 3

    tree = unwrapped(scalar.tree)
    while isinstance(tree, exp.Cast) and width(tree.this) <= width(tree) < 3:
        tree = unwrapped(tree.this)
    return tree


def _top_grouping(root: Operator) -> tuple[Grouping | None, dict[Column, Scalar], Scalar]:
    """Return the topmost grouping, the expressions above it, or above ungrouped rows, and HAVING."""
    computed: list[Projection] = []
    operator = root
    while isinstance(operator, Sort | Projection):
        if isinstance(operator, Projection):
            computed.append(operator)
        operator = operator.children[0]
    top: Grouping | None = None
    having = TRUE
    if isinstance(operator, Selection) and isinstance(operator.input, Grouping):
        having = operator.condition
        operator = operator.input
        if having.subqueries:
            raise NotModelledError("a condition has a subquery", str(having))
    if isinstance(operator, Distinct):
        top = Grouping(operator.input, operator.columns)
    elif isinstance(operator, Grouping):
        top = operator
    shown: dict[Column, Scalar] = {}
    for projection in reversed(computed):
        items = {
            item.column: item.scalar.substitute(shown)
            for item in projection.items
            if not item.is_unchanged
        }
        if any(scalar.subqueries for scalar in items.values()):
            raise NotModelledError("an expression has a subquery", projection.label)
        shown |= items
    return top, shown, having


def _variable_name(column: Column, scans: Iterable[Scan]) -> str:
    """Return a name for the variable of a column: the column's name in its table, if it has one."""
    for scan in scans:
        for output in scan.outputs:
            if output.column == column:
                return output.name
    return column.symbol


def _not_null_conditions(
    scan: Scan, binds: Mapping[str, Scalar], joined: set[str], filters: list[Scalar]
) -> Iterator[Scalar]:
    """Yield conditions that exclude NULLs in join variables, because NULL joins nothing."""
    known = Selection(scan, conjunction(filters)).not_null if filters else scan.not_null
    for variable, scalar in binds.items():
        column = scalar.as_column
        if variable in joined and column is not None and column not in known:
            yield filled("x IS NOT NULL", x=column)


def _dependencies(atoms: Iterable[Atom]) -> Iterator[Fd]:
    """Yield the functional dependencies that keys and conditions imply for each atom's variables."""
    for atom in atoms:
        rows = atom.rows(atom.scan)
        bound = {s.as_column: v for v, s in atom.binds if s.as_column is not None}
        schema = frozenset(variable for variable, _ in atom.binds)
        determinants = {item.determinant for item in rows.dependencies.items} | rows.keys
        for determinant in sorted(determinants, key=lambda columns: sorted(map(str, columns))):
            if not determinant <= bound.keys():
                continue
            left = frozenset(bound[column] for column in determinant)
            known = rows.dependencies.closure(determinant)
            whole = any(key <= known for key in rows.keys)
            right = schema if whole else frozenset(bound[c] for c in known if c in bound)
            if right - left:
                yield left, right - left


def plan_normal_form(
    request: PlanningRequest, build: Callable[[NormalForm], MaintenancePlan | Unsupported]
) -> MaintenancePlan | Unsupported:
    """Build the plan of a query in natural-join normal form, or return why it has no such form."""
    if request.plan is None:
        return request.unmodelled
    form = normal_form(request.plan, request.distinct, request.types, request.rings)
    if isinstance(form, Unsupported):
        return form
    try:
        return build(form)
    except NotModelledError as error:
        return error.unsupported
