"""The defining query of a state in Spark's words: the tree that PostgreSQL's text is written from.

The renderer of the algebra gives one tree for a query. PostgreSQL's generator writes it as it is.
For Spark the same tree gets Spark's words for its expressions (`scalars`), and names that differ by
more than upper and lower case, and sqlglot's generator of Spark's dialect writes it.

What Spark cannot compute, but can be computed from what it can, is left to the statement that moves
the rows into the state: an average is a sum and a count, and PostgreSQL divides.
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
from orchestrator.spark.initial.state_columns import Finishing, Staged
from orchestrator.spark.initial.words import only

Columns = Mapping[str, Value]
"""What the columns of an item of FROM are, by their names in PostgreSQL."""

Sources: TypeAlias = "Mapping[int, Mapping[int, Kind | InexactError]]"
"""What the columns of tables, by oid and number, are read as, or why they are not."""

Known = Callable[[str], "Emitted"]
"""What Spark makes of another state; an InexactError if it does not."""


@dataclass(frozen=True)
class Emitted:
    """A state's query for Spark."""

    query: str
    staged: tuple[Staged, ...]
    """The columns that it gives."""
    shown: tuple[Tree, ...]
    """The columns of the state, as PostgreSQL's expressions over those."""
    columns: Mapping[str, Value]
    """Those of them that Spark knows, for queries that read the state."""
    sources: frozenset[tuple[int, int]]
    """The columns of captured tables that it reads: the table's oid, the column's number."""
    states: frozenset[str]
    """The roles of the states that it reads."""


def source_name(oid: int) -> str:
    """What a captured table is called in Spark."""
    return f"idivm_source_{oid}"


def state_name(role: str) -> str:
    """What a state is called in Spark, where upper and lower case are one."""
    return f"idivm_state_{role.encode().hex()}"


def emit(state: StateTable, sources: Sources, known: Known, fold: Fold) -> Emitted:
    """The query of a state; `sources` says what columns of tables are read as."""
    translation = _Translation(sources, known, fold)
    tree = state.query.tree
    if not isinstance(tree, exp.Select):
        raise InexactError("a set operation at the top")
    finishing = Finishing(fold)
    query = translation.select(tree, {}, finishing)
    names = [column.name for column in state.columns]
    return Emitted(
        query=query.sql(dialect="spark"),
        staged=tuple(finishing.staged),
        shown=tuple(finishing.shown),
        columns={
            name: value
            for name, value in zip(names, finishing.values, strict=True)
            if value is not None
        },
        sources=frozenset(translation.used | translation.counted()),
        states=frozenset(translation.states),
    )


_PARTS = ("expressions", "from_", "joins", "where", "group", "having", "distinct", "with_")
"""Those of a SELECT. Which rows are first, where several may be, PostgreSQL decides."""


@dataclass
class _Translation:
    """One query; gathers what it reads and gives out names."""

    sources: Sources
    known: Known
    fold: Fold
    used: set[tuple[int, int]] = field(default_factory=set)
    tables: set[int] = field(default_factory=set)
    states: set[str] = field(default_factory=set)
    aliases: int = 0
    shared: dict[str, tuple[str, Columns]] = field(default_factory=dict)

    def select(
        self, tree: exp.Select, outer: Mapping[str, Columns], finishing: Finishing | None = None
    ) -> exp.Select:
        """A SELECT whose columns are called x0, x1, ...; what they are is left in `finishing`."""
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
        finishing = finishing if finishing is not None else Finishing(self.fold, exact=True)
        for item in tree.expressions:
            finishing.add(scalars, item.this if isinstance(item, exp.Alias) else item)
        if distinct is not None:
            for value in finishing.values:
                _require_comparable(value, "DISTINCT")
        result.set("expressions", finishing.items())
        return result

    def counted(self) -> set[tuple[int, int]]:
        """A column for each table whose rows are read, and none of their columns."""
        counted = set()
        for oid in self.tables - {item for item, _ in self.used}:
            known = [
                n for n, kind in self.sources[oid].items() if not isinstance(kind, InexactError)
            ]
            if not known:
                raise InexactError("a table without a column that Spark can read")
            counted.add((oid, min(known)))
        return counted

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
        """A query below another, and what its columns are."""
        if isinstance(tree, exp.Subquery) and not tree.alias:
            return self.query(tree.this, outer, listed)
        if isinstance(tree, exp.Select):
            finishing = Finishing(self.fold, exact=True)
            query: Tree = self.select(tree, outer, finishing)
            names = listed or [item.alias_or_name for item in tree.expressions]
            values = [value for value in finishing.values if value is not None]
            return query, dict(zip(names, values, strict=True))
        if isinstance(tree, exp.Union) and listed:
            only(tree, "this", "expression", "distinct")
            left, each = self.query(tree.this, outer, listed)
            right, other = self.query(tree.expression, outer, listed)
            for name in listed:
                if each[name].kind != other[name].kind or each[name].scale or other[name].scale:
                    raise InexactError(f"a union of unlike columns {name}")
                if tree.args.get("distinct"):
                    _require_comparable(each[name], "UNION")
            union = exp.Union(this=left, expression=right, distinct=tree.args.get("distinct"))
            return union, each
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
                # Several items in parentheses.
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
            called = source_name(oid)
            columns: Columns = _SourceColumns(self, oid, alias)
            self.tables.add(oid)
        elif table.db == STATE:
            self.states.add(table.name)
            called = state_name(table.name)
            columns = _under(alias, self.known(table.name).columns)
        elif not table.db and table.name in self.shared:
            called, values = self.shared[table.name]
            columns = _under(alias, values)
        else:
            raise InexactError(f"{table.name}, which is not captured")
        scope[table.alias or table.name.partition("\0")[0]] = columns
        result = exp.to_table(called)
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
        return replace(scalars, grouped=frozenset(dialect.write(unwrapped(each)) for each in by))

    def _alias(self) -> str:
        self.aliases += 1
        return f"a{self.aliases}"


def _require_comparable(value: Value | None, where: str) -> None:
    if value is None or not value.kind.comparable or value.scale is not None:
        name = value.kind.name if value is not None else "such a value"
        raise InexactError(f"{where} of {name}, of which equal values may look different")


def _under(alias: str, columns: Columns) -> Columns:
    """The columns of a query as they are read under an alias."""

    def read(tree: Tree) -> Tree:
        return exp.column(tree.name, table=alias)

    return {
        name: replace(value, tree=read(value.tree), scale=value.scale and read(value.scale))
        for name, value in columns.items()
    }


class _SourceColumns(Mapping[str, Value]):
    """The columns of a captured table, which are noted when they are read."""

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
    """The columns that a query sees."""

    translation: _Translation
    scope: Mapping[str, Columns]

    def column(self, node: exp.Column) -> Value:
        """A column by its table's alias and its name."""
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
        """A subquery in Spark's words."""
        if not isinstance(node.this, exp.Select):
            raise InexactError("such a subquery")
        if node.this.args.get("group") is not None:
            raise InexactError("a subquery with groups")
        return exp.Exists(this=self.translation.select(node.this, self.scope))
