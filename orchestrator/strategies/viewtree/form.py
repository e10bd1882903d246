"""Natural-join normal form: atoms joined by variables, sums of products, and expressions over these."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations

from orchestrator.algebra.columns import Column, Symbols
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.distinct import Distinct
from orchestrator.algebra.operators.group import Aggregate, Grouping
from orchestrator.algebra.operators.limit import Limit
from orchestrator.algebra.operators.project import Projection
from orchestrator.algebra.operators.scan import Scan
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.operators.sort import Sort
from orchestrator.algebra.plan import Plan
from orchestrator.algebra.recognition.around import Around, around_groups
from orchestrator.algebra.scalar import TRUE, Scalar
from orchestrator.algebra.traversal import walk
from orchestrator.algebra.unsupported import NotModelledError
from orchestrator.strategies.viewtree.hypergraph import Constraints, Fd, ForeignKey, Hypergraph

COVARIANCE = "idivm.covar"
"""The aggregate whose values are elements of the covariance ring, or of the generalized ring."""

NUMBERS = ("sum", "count", "avg")
"""Aggregates over the ring of numbers."""


@dataclass(frozen=True)
class Atom:
    """The rows of a table or of a union of tables, a condition on them, and the expressions of its variables."""

    name: str
    scan: Operator
    """A scan, or a union of selections and projections of scans."""
    condition: Scalar
    binds: tuple[tuple[str, Scalar], ...]

    @property
    def scans(self) -> tuple[Scan, ...]:
        """The scans of tables."""
        return tuple(scan for scan in walk(self.scan) if isinstance(scan, Scan))

    @property
    def tables(self) -> frozenset[int]:
        """The oids of its tables."""
        return frozenset(scan.table.oid for scan in self.scans)

    def rows(self, scan: Operator) -> Operator:
        """Return the rows of a scan, or of its change, that satisfy the condition."""
        return Selection(scan, self.condition) if self.condition != TRUE else scan


@dataclass(frozen=True)
class Product:
    """An aggregate in normal form: the aggregate call, and its factors, each over one atom."""

    aggregate: Aggregate
    factors: tuple[tuple[str, Scalar], ...]
    """Empty for `count(*)`."""
    conditions: tuple[tuple[str, Scalar], ...] = ()
    """The conditions of FILTER, each over one atom."""


@dataclass(frozen=True)
class NormalForm:
    """A query as atoms, variables and products."""

    atoms: tuple[Atom, ...]
    groups: tuple[tuple[Column, str], ...]
    """The grouping columns and their variables."""
    products: tuple[Product, ...]
    outputs: tuple[tuple[str, Scalar], ...]
    """The view's columns as expressions over the grouping columns and the aggregates' columns."""
    having: Scalar = TRUE
    """The condition on groups, over the same columns."""
    computed: Mapping[tuple[str, str], Column] = field(default_factory=dict)
    """The columns of computed join variables, by atom and variable."""
    around: Around | None = None
    """The query over the groups, if more than `outputs` and `having`."""
    inputs: tuple[str, ...] = ()
    """The variables whose values readers give, in the order of a lookup by the first of them."""
    copies: Mapping[str, str] = field(default_factory=dict)
    """The inputs that the copies in other components of the fracture stand for."""

    @property
    def free(self) -> tuple[str, ...]:
        """The free variables."""
        return tuple(dict.fromkeys(variable for _, variable in self.groups))

    @property
    def graph(self) -> Hypergraph:
        """The query's hypergraph."""
        edges = {atom.name: (variable for variable, _ in atom.binds) for atom in self.atoms}
        copies = [copy for copy, name in self.copies.items() if name in self.inputs]
        return Hypergraph.of(edges, (*self.free, *self.copies), (*self.inputs, *copies))

    def graph_of_tree(self, constraints: Constraints, factorized: bool) -> Hypergraph:
        """Return the hypergraph of the query's tree.

        A factorized result also shows variables that free variables determine, if this makes the query
        free-connex.
        """
        graph = self.graph
        more = replace(graph, free=graph.reduct(constraints.fds).free)
        return more if factorized and not graph.free_connex and more.free_connex else graph

    def asked_by(self, names: Sequence[str], columns: Sequence[str]) -> NormalForm:
        """Return the fracture of the query by some of the view's columns, if there are any."""
        if not names:
            return self
        scalars = [scalar for _, scalar in self.outputs]
        if self.around is not None:
            if any(isinstance(operator, Limit) for operator in walk(self.around.root)):
                raise NotModelledError("no key asks for the first of all rows", "LIMIT")
            scalars = list(map(Scalar.column, self.around.columns))
        visible, variables = dict(zip(columns, scalars, strict=True)), dict(self.groups)
        inputs: list[str] = []
        for name in names:
            column = visible[name].as_column
            if column is None or column not in variables:
                raise NotModelledError("an input is computed, so that no index finds it", name)
            inputs.append(variables[column])
        return self.fractured(tuple(dict.fromkeys(inputs)))

    def fractured(self, inputs: tuple[str, ...]) -> NormalForm:
        """Return the fracture of the query: each component without the inputs has inputs of its own.

        Readers who give the inputs need the join of the components only at these values, so no change of
        one component has to be joined with another.
        """
        graph = replace(self.graph, inputs=frozenset(inputs))
        components, symbols = graph.fracture(), Symbols(graph.variables)
        names: dict[tuple[str, str], str] = {}
        copies: dict[str, str] = {}
        atoms: list[Atom] = []
        computed = dict(self.computed)
        for atom in self.atoms:
            binds = []
            for variable, scalar in atom.binds:
                place = components[atom.name], variable
                if variable in inputs and place not in names:
                    is_copied = variable in {name for _, name in names}
                    names[place] = symbols.fresh(variable) if is_copied else variable
                    copies |= {names[place]: variable} if is_copied else {}
                own = names.get(place, variable)
                binds.append((own, scalar))
                if (atom.name, variable) in computed:
                    computed[atom.name, own] = computed[atom.name, variable]
            atoms.append(replace(atom, binds=tuple(binds)))
        return replace(self, atoms=tuple(atoms), computed=computed, inputs=inputs, copies=copies)

    def atoms_over(self, tables: Collection[int]) -> frozenset[str]:
        """Return the atoms that read none but these tables."""
        return frozenset(atom.name for atom in self.atoms if atom.tables <= set(tables))

    def constraints(self, static: Collection[int], growing: Collection[int]) -> Constraints:
        """Return what is known of the atoms, given the tables that do not change, or only get inserts."""
        return Constraints(
            tuple(_dependencies(self.atoms)),
            tuple(_foreign_keys(self.atoms)),
            self.atoms_over(static),
            self.atoms_over(growing),
            {atom.name: tuple(str(scan.table) for scan in atom.scans) for atom in self.atoms},
        )


def _foreign_keys(atoms: Iterable[Atom]) -> Iterator[ForeignKey]:
    """Yield the foreign keys between tables that are joined by them."""
    tables = [(atom, atom.scan) for atom in atoms if isinstance(atom.scan, Scan)]
    for (atom, scan), (other, target) in permutations(tables, 2):
        for key in scan.table.foreign_keys:
            # A unique key that holds for all rows that the query reads.
            keys = map(frozenset, target.table.keys)
            if key.target != target.table.oid or frozenset(key.target_columns) not in keys:
                continue
            here, there = (
                [_variable_at(item, rows, number) for number in numbers]
                for item, rows, numbers in (
                    (atom, scan, key.columns),
                    (other, target, key.target_columns),
                )
            )
            if here == there and None not in here:
                yield ForeignKey(atom.name, other.name, frozenset(filter(None, here)))


def _variable_at(atom: Atom, scan: Scan, attnum: int) -> str | None:
    """Return the variable of a column of a table, by number."""
    column = scan.at(attnum)
    bound = (name for name, scalar in atom.binds if column and scalar.as_column == column)
    return next(bound, None)


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
                yield Fd(left, right - left, atom.name)


def top_grouping(root: Operator) -> tuple[Grouping | None, dict[Column, Scalar], Scalar]:
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
    expressions: dict[Column, Scalar] = {}
    for projection in reversed(computed):
        items = {
            item.column: item.scalar.substitute(expressions)
            for item in projection.items
            if not item.is_unchanged
        }
        if any(scalar.subqueries for scalar in items.values()):
            raise NotModelledError("an expression has a subquery", projection.label)
        expressions |= items
    return top, expressions, having


def is_looked_up(query: Plan) -> bool:
    """Return whether a view would look up its groups in tables, or sort them, whenever it is read."""
    try:
        top, _, _ = top_grouping(query.root)
    except NotModelledError:
        return False
    return top is None and around_groups(query) is not None
