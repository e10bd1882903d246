"""The environment of the translation: facts of the catalog, names in scope, fresh symbols."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from sqlglot import exp

from orchestrator.algebra import Column, Operator, Plan, Scalar, Symbols, dialect
from orchestrator.algebra.analysis.same_expression import alike
from orchestrator.algebra.dependencies import Columns
from orchestrator.algebra.dialect import Tree
from orchestrator.algebra.unsupported import NotModelledError
from orchestrator.caching import cached_property
from orchestrator.frontend.facts import FunctionUse, Relation, StoredView

Named = tuple[tuple[str, Column], ...]
"""The columns of an item of FROM with their names there, in order."""


@dataclass(frozen=True)
class QueryFacts:
    """Facts of the catalog about everything that a query mentions."""

    relations: Mapping[tuple[str, str], Relation]
    views: Mapping[int, StoredView] = field(default_factory=dict)
    """The plain views to expand."""
    functions: tuple[FunctionUse, ...] = ()

    @cached_property
    def aggregates(self) -> frozenset[tuple[str, str]]:
        """Schema and name of the aggregate functions."""
        return self._named("aggregate")

    @cached_property
    def window_functions(self) -> frozenset[tuple[str, str]]:
        """Schema and name of the functions that require OVER."""
        return self._named("window")

    @cached_property
    def plain_functions(self) -> frozenset[tuple[str, str]]:
        """Schema and name of the functions that are neither aggregates nor window functions."""
        return self._named("function")

    @cached_property
    def set_returning(self) -> frozenset[tuple[str, str]]:
        """Schema and name of the functions that return sets."""
        return frozenset((u.schema, u.proname) for u in self.functions if u.returns_set)

    @cached_property
    def row_returning(self) -> dict[tuple[str, str], tuple[str, ...]]:
        """Schema and name of the functions that return rows of several columns, and the names of
        the columns.

        The names are empty if they are ambiguous, for example for several functions with the same
        name.
        """
        result: dict[tuple[str, str], tuple[str, ...]] = {}
        for use in self.functions:
            if use.returns_row:
                name = use.schema, use.proname
                result[name] = use.fields if result.get(name, use.fields) == use.fields else ()
        return result

    @cached_property
    def own_equality(self) -> bool:
        """Whether a comparison by `=` may belong to an extension or a user."""
        return any(
            use.role == "operator" and use.proname == "=" and use.schema != "pg_catalog"
            for use in self.functions
        )

    def _named(self, role: str) -> frozenset[tuple[str, str]]:
        return frozenset((u.schema, u.proname) for u in self.functions if u.role == role)


@dataclass(frozen=True)
class Shared:
    """A common table expression: its column names, and a function that returns a reference to it."""

    names: tuple[str, ...]
    scan: Callable[[], tuple[Operator, tuple[Column, ...]]]


@dataclass(frozen=True)
class Row:
    """A row as a single value."""

    named: Named
    """The columns of the row."""
    present: Column | None = None
    """A column that is NULL if an outer join padded the row; the row itself is then NULL."""


@dataclass(frozen=True)
class Scope:
    """The names that an expression may use, and those of the surrounding queries."""

    tables: Mapping[str, Named] = field(default_factory=dict)
    merged: Mapping[str, Column] = field(default_factory=dict)
    """The columns of USING, which belong to no table."""
    rows: Mapping[str, Row] = field(default_factory=dict)
    """Rows as single values, by the aliases of their tables."""
    shared: Mapping[str, Shared] = field(default_factory=dict)
    parent: Scope | None = None

    def inner(self) -> Scope:
        """Return an empty scope inside this one."""
        return Scope(parent=self)

    def beside(self, other: Scope) -> Scope:
        """Return a scope with the names of both scopes on one level."""
        return replace(
            self,
            tables={**self.tables, **other.tables},
            merged={**self.merged, **other.merged},
            rows={**self.rows, **other.rows},
        )

    def padded(self, other: Scope, not_null: Columns) -> Scope:
        """Return the scope after an outer join that pads the rows of another scope.

        `not_null` has the columns of the padded side that are never NULL before.
        """
        rows = dict(self.rows)
        for table, row in other.rows.items():
            present = row.present or next((c for _, c in row.named if c in not_null), None)
            if present is None:
                del rows[table]
            else:
                rows[table] = replace(row, present=present)
        return replace(self, rows=rows)

    def column(self, table: str | None, name: str) -> Column | None:
        """Return the column that a reference means, innermost query first."""
        own = self._own(table, name)
        if own is None and self.parent is not None:
            return self.parent.column(table, name)
        return own

    def _own(self, table: str | None, name: str) -> Column | None:
        if table is None and name in self.merged:
            return self.merged[name]
        if table is not None and table not in self.tables:
            return None
        tables = self.tables.values() if table is None else [self.tables[table]]
        for named in tables:
            for known, column in named:
                if known == name:
                    return column
        return None

    def row(self, table: str) -> Row | None:
        """Return a table's row as a single value, if it is known."""
        if table in self.rows:
            return self.rows[table]
        if table in self.tables or self.parent is None:
            return None
        return self.parent.row(table)

    def cte(self, name: str) -> Shared | None:
        """Return the common table expression with this name."""
        if name in self.shared:
            return self.shared[name]
        return self.parent.cte(name) if self.parent else None


@dataclass(frozen=True)
class Context:
    """The environment that all functions of the translation receive."""

    facts: QueryFacts
    symbols: Symbols
    mentioned: frozenset[str] | None
    """All column names in the texts, if no other columns of a table need to be scanned."""
    query: Callable[[Context, Tree, Scope], Plan]
    """Translates a complete query; the modules of this package call each other through it."""

    def column(self, *wanted: str, like: Column | None = None) -> Column:
        """Return a new column, with the type of another one."""
        symbol = self.symbols.fresh(*wanted)
        return Column(symbol) if like is None else replace(like, symbol=symbol)


def not_modelled(reason: str, where: Tree | str) -> NotModelledError:
    """Return the exception for a construct that the algebra does not model."""
    text = where if isinstance(where, str) else dialect.write(where)
    return NotModelledError(reason, " ".join(text.split()))


def only_known(tree: Tree, *names: str) -> None:
    """Reject a tree with parts that the caller does not read."""
    for name, value in tree.args.items():
        if value and name not in names:
            raise not_modelled(f"the clause {name.strip('_').upper()}", tree)


def called(tree: Tree) -> tuple[str, str] | None:
    """Return schema and name of the function that a tree calls, or None.

    >>> called(dialect.parse("SELECT s.f(1)").expressions[0])
    ('s', 'f')
    >>> called(dialect.parse("SELECT SUM(a)").expressions[0])
    ('pg_catalog', 'sum')
    """
    if isinstance(tree, exp.Dot) and isinstance(tree.expression, exp.Anonymous):
        return tree.this.name, _name(tree.expression)
    if isinstance(tree, exp.Anonymous) and not isinstance(tree.parent, exp.Dot):
        return "pg_catalog", _name(tree)
    return None


def _name(call: exp.Anonymous) -> str:
    return call.this.lower() if isinstance(call.this, str) else call.name


def set_calls(context: Context, scalar: Scalar) -> list[Tree]:
    """Return the outermost calls of set-returning functions in an expression."""
    result: list[Tree] = []
    pending = [scalar.tree]
    while pending:
        tree = pending.pop()
        if called(tree) in context.facts.set_returning:
            result.append(tree)
        else:
            pending.extend(reversed(list(tree.iter_expressions())))
    return result


def same(scalars: list[Scalar], wanted: Scalar) -> int | None:
    """Return the position of an expression among others, ignoring parentheses, or None."""
    for position, scalar in enumerate(scalars):
        if scalar is wanted or alike(scalar, wanted):
            return position
    return None
