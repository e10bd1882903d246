"""Translate the defining query of a state to Spark: start from the tree of PostgreSQL's text.

The renderer of the algebra returns one tree for a query, and PostgreSQL's generator writes it unchanged. For
Spark, `scalars` translates the expressions of the tree, names are made distinct beyond upper and lower case,
and sqlglot's generator for Spark writes the tree.

What Spark cannot compute, but what follows from its results, is left to the statement that moves the rows into
the state: for an average, Spark computes the sum and the count, and PostgreSQL divides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from sqlglot import exp

from orchestrator.algebra import dialect
from orchestrator.algebra.dialect import Tree, reference
from orchestrator.algebra.scalar import unwrapped
from orchestrator.deltascript.leaves import SOURCE, STATE
from orchestrator.deltascript.plan import StateTable
from orchestrator.spark.initial.kinds import InexactError, Kind, Value
from orchestrator.spark.initial.scalars import Fold, Scalars
from orchestrator.spark.initial.state_columns import Staged, StateColumns
from orchestrator.spark.initial.words import only

Columns = Mapping[str, Value]
"""The columns of an item of FROM, by their names in PostgreSQL."""

Sources: TypeAlias = "Mapping[int, Mapping[int, Kind | InexactError]]"
"""How the columns of tables are read, by oid and column number, or why they are not."""

Known = Callable[[str], "Emitted"]
"""Returns the translated query of another state, or raises an InexactError."""


@dataclass(frozen=True)
class Emitted:
    """The query of a state for Spark."""

    query: str
    staged: tuple[Staged, ...]
    """The columns that the query returns."""
    outputs: tuple[Tree, ...]
    """The columns of the state, as PostgreSQL expressions over the returned columns."""
    columns: Mapping[str, Value]
    """The columns of the state that Spark computes exactly, for queries that read the state."""
    sources: frozenset[tuple[int, int]]
    """The columns of captured tables that it reads: the table's oid and the column's number."""
    states: frozenset[str]
    """The roles of the states that it reads."""


def source_name(oid: int) -> str:
    """Return the name of a captured table in Spark."""
    return f"idivm_source_{oid}"


def state_name(role: str) -> str:
    """Return the name of a state in Spark, which ignores upper and lower case."""
    return f"idivm_state_{role.encode().hex()}"


def emit(state: StateTable, sources: Sources, known: Known, fold: Fold) -> Emitted:
    """Return the query of a state; `sources` says how columns of tables are read."""
    translation = _Translation(sources, known, fold)
    tree = state.query.tree
    if not isinstance(tree, exp.Select):
        raise InexactError("a set operation at the top")
    state_columns = StateColumns(fold)
    query = translation.select(tree, {}, state_columns)
    names = [column.name for column in state.columns]
    return Emitted(
        query=query.sql(dialect="spark"),
        staged=tuple(state_columns.staged),
        outputs=tuple(state_columns.outputs),
        columns={
            name: value
            for name, value in zip(names, state_columns.values, strict=True)
            if value is not None
        },
        sources=frozenset(translation.used | translation.columns_for_counts()),
        states=frozenset(translation.states),
    )


_PARTS = ("expressions", "from_", "joins", "where", "group", "having", "distinct", "with_")
"""The parts of a SELECT that Spark gets. Which rows come first among equals is left to PostgreSQL."""


@dataclass
class _Translation:
    """Translates one query, collects what the query reads, and assigns names."""

    sources: Sources
    known: Known
    fold: Fold
    used: set[tuple[int, int]] = field(default_factory=set)
    tables: set[int] = field(default_factory=set)
    states: set[str] = field(default_factory=set)
    aliases: int = 0
    shared: dict[str, tuple[str, Columns]] = field(default_factory=dict)

    def select(
        self,
        tree: exp.Select,
        outer: Mapping[str, Columns],
        state_columns: StateColumns | None = None,
    ) -> exp.Select:
        """Return a SELECT with columns x0, x1, ...; their values are added to `finishing`."""
        only(tree, *_PARTS)
        result = exp.Select()
        self._with(tree, result, outer)
        scope = dict(outer)
        self._from(tree, result, scope)
        names = _Names(self, scope)
        scalars = Scalars(names, self.fold)
        if (where := tree.args.get("where")) is not None:
            result.set("where", exp.Where(this=scalars.condition(where.this)))
        scalars = self._group(tree, result, scalars)
        if (having := tree.args.get("having")) is not None:
            result.set("having", exp.Having(this=scalars.condition(having.this)))
        if (distinct := tree.args.get("distinct")) is not None:
            only(distinct)
            result.set("distinct", exp.Distinct())
        state_columns = (
            state_columns if state_columns is not None else StateColumns(self.fold, exact=True)
        )
        for item in tree.expressions:
            state_columns.add(scalars, item.this if isinstance(item, exp.Alias) else item)
        if distinct is not None:
            for value in state_columns.values:
                _require_comparable(value, "DISTINCT")
        result.set("expressions", state_columns.items())
        return result

    def columns_for_counts(self) -> set[tuple[int, int]]:
        """Return a column for each table of which the query counts rows but reads no column."""
        columns = set()
        for oid in self.tables - {item for item, _ in self.used}:
            readable = [
                n for n, kind in self.sources[oid].items() if not isinstance(kind, InexactError)
            ]
            if not readable:
                raise InexactError("a table without a column that Spark can read")
            columns.add((oid, min(readable)))
        return columns

    def _with(self, tree: exp.Select, select: exp.Select, outer: Mapping[str, Columns]) -> None:
        clause = tree.args.get("with_")
        if clause is None:
            return
        only(clause, "expressions")
        ctes = []
        for cte in clause.expressions:
            listed = [column.name for column in cte.args["alias"].columns]
            query, columns = self.query(cte.this, outer, listed)
            name = self._alias()
            self.shared[cte.alias] = (name, columns)
            ctes.append(exp.CTE(this=query, alias=exp.TableAlias(this=exp.to_identifier(name))))
        select.set("with_", exp.With(expressions=ctes))

    def query(
        self, tree: Tree, outer: Mapping[str, Columns], listed: list[str] | None = None
    ) -> tuple[Tree, Columns]:
        """Return a translated subquery, and its columns."""
        if isinstance(tree, exp.Subquery) and not tree.alias:
            return self.query(tree.this, outer, listed)
        if isinstance(tree, exp.Select):
            state_columns = StateColumns(self.fold, exact=True)
            query: Tree = self.select(tree, outer, state_columns)
            names = listed or [item.alias_or_name for item in tree.expressions]
            values = [value for value in state_columns.values if value is not None]
            return query, dict(zip(names, values, strict=True))
        if isinstance(tree, exp.Union) and listed:
            only(tree, "this", "expression", "distinct")
            left, left_columns = self.query(tree.this, outer, listed)
            right, right_columns = self.query(tree.expression, outer, listed)
            for name in listed:
                if (
                    left_columns[name].kind != right_columns[name].kind
                    or left_columns[name].scale
                    or right_columns[name].scale
                ):
                    raise InexactError(f"a union of unlike columns {name}")
                if tree.args.get("distinct"):
                    _require_comparable(left_columns[name], "UNION")
            union = exp.Union(this=left, expression=right, distinct=tree.args.get("distinct"))
            return union, left_columns
        raise InexactError(type(tree).__name__.upper())

    def _from(self, tree: exp.Select, select: exp.Select, scope: dict[str, Columns]) -> None:
        clause = tree.args.get("from_")
        if clause is None:
            raise InexactError("a query without a table")
        select.set("from_", exp.From(this=self._item(clause.this, scope)))
        select.set("joins", self._joins(tree, scope))

    def _joins(self, tree: Tree, scope: dict[str, Columns]) -> list[Tree]:
        joins: list[Tree] = []
        for join in tree.args.get("joins") or ():
            only(join, "this", "on", "side", "kind")
            item = exp.Join(this=self._item(join.this, scope))
            for part in ("side", "kind"):
                item.set(part, join.args.get(part))
            if (on := join.args.get("on")) is not None:
                item.set("on", Scalars(_Names(self, scope), self.fold).condition(on))
            joins.append(item)
        return joins

    def _item(self, item: Tree, scope: dict[str, Columns]) -> Tree:
        if isinstance(item, exp.Table):
            return self._table(item, scope)
        if isinstance(item, exp.Subquery):
            if not item.alias:
                # Parentheses around several items.
                only(item, "this")
                return exp.Paren(this=self._item(item.this, scope))
            only(item, "this", "alias", "joins")
            columns = [column.name for column in item.args["alias"].columns]
            query, values = self.query(item.this, {}, columns or None)
            alias = self._alias()
            scope[item.alias] = _under(alias, values)
            subquery = exp.Subquery(this=query, alias=exp.TableAlias(this=exp.to_identifier(alias)))
            if joins := self._joins(item, scope):
                subquery.set("joins", joins)
            return subquery
        raise InexactError(f"{type(item).__name__.upper()} in FROM")

    def _table(self, table: exp.Table, scope: dict[str, Columns]) -> Tree:
        only(table, "this", "db", "alias", "joins")
        if not isinstance(table.this, exp.Identifier):
            raise InexactError("a function in FROM")
        alias = self._alias()
        if table.db == SOURCE:
            oid = int(table.name.partition("\0")[2])
            name_in_spark = source_name(oid)
            columns: Columns = _SourceColumns(self, oid, alias)
            self.tables.add(oid)
        elif table.db == STATE:
            self.states.add(table.name)
            name_in_spark = state_name(table.name)
            columns = _under(alias, self.known(table.name).columns)
        elif not table.db and table.name in self.shared:
            name_in_spark, values = self.shared[table.name]
            columns = _under(alias, values)
        else:
            raise InexactError(f"{table.name}, which is not captured")
        scope[table.alias or table.name.partition("\0")[0]] = columns
        result = exp.to_table(name_in_spark)
        result.set("alias", exp.TableAlias(this=exp.to_identifier(alias)))
        if joins := self._joins(table, scope):
            result.set("joins", joins)
        return result

    def _group(self, tree: exp.Select, select: exp.Select, scalars: Scalars) -> Scalars:
        group = tree.args.get("group")
        if group is None:
            return scalars
        only(group, "expressions")
        by = [
            expression for expression in group.expressions if not isinstance(expression, exp.Tuple)
        ]
        keys = []
        for item in by:
            value = scalars.value(item)
            _require_comparable(value, "GROUP BY")
            keys.append(value.tree)
        if keys:
            select.set("group", exp.Group(expressions=keys))
        return replace(
            scalars, grouped=frozenset(dialect.write(unwrapped(expression)) for expression in by)
        )

    def _alias(self) -> str:
        self.aliases += 1
        return f"a{self.aliases}"


def _require_comparable(value: Value | None, where: str) -> None:
    if value is None or not value.kind.comparable or value.scale is not None:
        name = value.kind.name if value is not None else "such a value"
        raise InexactError(f"{where} of {name}, of which equal values may look different")


def _under(alias: str, columns: Columns) -> Columns:
    """Return the columns of a query under an alias."""

    def read(tree: Tree) -> Tree:
        return exp.column(tree.name, table=alias)

    return {
        name: replace(value, tree=read(value.tree), scale=value.scale and read(value.scale))
        for name, value in columns.items()
    }


class _SourceColumns(Mapping[str, Value]):
    """The columns of a captured table; reading a column records it."""

    def __init__(self, translation: _Translation, oid: int, alias: str) -> None:
        self.translation, self.oid, self.alias = translation, oid, alias

    def __getitem__(self, name: str) -> Value:
        attnum = int(name.rpartition(".")[2])
        kind = self.translation.sources[self.oid][attnum]
        if isinstance(kind, InexactError):
            raise kind
        self.translation.used.add((self.oid, attnum))
        return Value(exp.column(f"c{attnum}", table=self.alias), kind)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


@dataclass(frozen=True)
class _Names:
    """The columns that are visible in a query."""

    translation: _Translation
    scope: Mapping[str, Columns]

    def column(self, node: exp.Column) -> Value:
        """Return a column, given its table's alias and its name."""
        columns = self.scope.get(node.table)
        try:
            if columns is None:
                raise KeyError
            return columns[node.name]
        except KeyError:
            name = node.name.partition("\0")[0]
            raise InexactError(
                f"{dialect.write(reference(name, node.table or None))}, which PostgreSQL computes"
            ) from None

    def exists(self, node: exp.Exists) -> Tree:
        """Return a translated EXISTS."""
        if not isinstance(node.this, exp.Select):
            raise InexactError("such a subquery")
        if node.this.args.get("group") is not None:
            raise InexactError("a subquery with groups")
        return exp.Exists(this=self.translation.select(node.this, self.scope))
