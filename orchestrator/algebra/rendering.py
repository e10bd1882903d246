"""Rendering of plans as SQL: SELECT blocks that grow operator by operator.

An operator adds its clause to the block of its input if SQL's order of evaluation allows it (FROM,
WHERE, GROUP BY, HAVING, windows, SELECT, DISTINCT, ORDER BY, LIMIT). Otherwise the block first
becomes a derived table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from orchestrator.algebra import dialect
from orchestrator.algebra.analysis.same_expression import alike_queries
from orchestrator.algebra.columns import Column, Symbols
from orchestrator.algebra.dialect import Tree, identifier, reference
from orchestrator.algebra.operators.base import Operator, SortKey
from orchestrator.algebra.plan import Plan
from orchestrator.algebra.scalar import Scalar, unwrapped
from orchestrator.algebra.traversal import walk

Names = Mapping[Column, Tree]


@dataclass(frozen=True)
class Block:
    """A SELECT under construction; `outputs` has the expression of each column in terms of its
    FROM.
    """

    items: tuple[Tree, ...]
    """The items of FROM: a table, then joins."""
    outputs: Names
    where: tuple[Tree, ...] = ()
    group: Tree | None = None
    having: tuple[Tree, ...] = ()
    windowed: frozenset[Column] = frozenset()
    distinct: Tree | None = None
    order: Tree | None = None
    limit: Mapping[str, Tree] = field(default_factory=dict)

    @property
    def plain(self) -> bool:
        """Whether the block has only FROM and WHERE so far."""
        return self.ungrouped and self.group is None and not self.windowed

    @property
    def ungrouped(self) -> bool:
        """Whether the block has no clause yet that SQL evaluates after grouping and windows."""
        return self.distinct is None and self.order is None and not self.limit

    def from_only(self, outer: Names) -> bool:
        """Return whether rows and columns are those of FROM, without columns of a surrounding
        query.
        """
        return (
            self.plain
            and not self.where
            and self.named(*self.outputs)
            and not self.foreign(self.outputs, outer)
        )

    def named(self, *columns: Column) -> bool:
        """Return whether some columns are columns of FROM, and not computed."""
        return all(isinstance(self.outputs[column], exp.Column) for column in columns)

    def foreign(self, columns: Iterable[Column], outer: Names) -> bool:
        """Return whether any of some columns reads only columns of a surrounding query.

        Such a column must be fixed in this block: outside of it, an outer join would not pad the
        column, and an aggregate over it would belong to the surrounding query.
        """
        around = {tree.table for name in outer.values() for tree in name.find_all(exp.Column)}
        read = ({tree.table for tree in self.outputs[c].find_all(exp.Column)} for c in columns)
        return any(tables and tables <= around for tables in read)

    def select(self, columns: Iterable[tuple[Column, str]]) -> exp.Select:
        """Return the finished SELECT."""
        query = exp.Select()
        wanted = [_aliased(self.outputs[column], name) for column, name in columns]
        query.set("expressions", wanted or [exp.alias_(exp.true(), "present")])
        if self.items:
            query.set("from_", exp.From(this=dialect.copied(self.items[0])))
            query.set("joins", [dialect.copied(item) for item in self.items[1:]])
        if self.where:
            query.set("where", exp.Where(this=_conjunction(self.where)))
        if self.group is not None:
            query.set("group", dialect.copied(self.group))
        if self.having:
            query.set("having", exp.Having(this=_conjunction(self.having)))
        if self.distinct is not None:
            query.set("distinct", dialect.copied(self.distinct))
        if self.order is not None:
            query.set("order", dialect.copied(self.order))
        for name, tree in self.limit.items():
            query.set(name, dialect.copied(tree))
        return query


def order_clause(keys: Iterable[SortKey], names: Names) -> exp.Order:
    """Return an ORDER BY clause."""
    return exp.Order(
        expressions=[
            exp.Ordered(
                this=dialect.copied(names[key.column]),
                desc=key.descending,
                nulls_first=key.nulls_first,
            )
            for key in keys
        ]
    )


def joined(items: tuple[Tree, ...]) -> Tree:
    """Return the items of a FROM as a single item, with parentheses if there are several."""
    if len(items) == 1:
        return dialect.copied(items[0])
    first = dialect.copied(items[0])
    first.set("joins", [dialect.copied(item) for item in items[1:]])
    return exp.Subquery(this=first)


class Renderer:
    """Renders a statement: gives out aliases and collects shared queries for its WITH."""

    def __init__(self, plan: Operator) -> None:
        """Prepare for a plan."""
        names = {alias for operator in walk(plan) for alias in [getattr(operator, "alias", "")]}
        self.symbols = Symbols(names)
        self._shared: dict[str, exp.CTE] = {}
        self._recursive = False

    def block(self, operator: Operator, outer: Names) -> Block:
        """Return the block of a plan."""
        return operator.render(self, outer)

    def plain(self, operator: Operator, outer: Names) -> Block:
        """Return the block of a plan, with only FROM and WHERE."""
        block = self.block(operator, outer)
        return block if block.plain else self.nested(block)

    def nested(self, block: Block) -> Block:
        """Return the block as a derived table."""
        return self.derived(
            block.select((column, column.symbol) for column in block.outputs), block.outputs
        )

    def derived(self, query: Tree, columns: Iterable[Column]) -> Block:
        """Return a derived table whose columns are named by their symbols."""
        alias = self.symbols.fresh("q")
        item = exp.Subquery(this=query, alias=exp.TableAlias(this=identifier(alias)))
        return Block((item,), {column: reference(column.symbol, alias) for column in columns})

    def query(self, operator: Operator, outer: Names, columns: Sequence[Column]) -> exp.Select:
        """Return a query that returns some columns of a plan in this order, named by their symbols.

        A column may be requested more than once.
        """
        block = self.block(operator, outer)
        distinct_whole = isinstance(block.distinct, exp.Distinct) and not block.distinct.args.get(
            "on"
        )
        if distinct_whole and set(columns) != set(block.outputs):
            block = self.nested(block)
        return block.select((column, column.symbol) for column in columns)

    def tree(self, scalar: Scalar, names: Names) -> Tree:
        """Return the tree of an expression, given the trees of its columns."""
        queries: list[Tree] = []
        for position, subquery in enumerate(scalar.subqueries):
            # PostgreSQL must recognize equal subqueries, for example in DISTINCT and ORDER BY of an
            # aggregate.
            equal_positions = (
                n for n in range(position) if alike_queries(scalar.subqueries[n], subquery)
            )
            earlier = next(equal_positions, None)
            queries.append(
                self.query(subquery.plan, names, subquery.columns)
                if earlier is None
                else dialect.copied(queries[earlier])
            )

        def replaced(node: Tree) -> Tree:
            if isinstance(node, exp.Parameter):
                return queries[int(node.name) - 1]
            if isinstance(node, exp.Column) and not node.table:
                tree = dialect.copied(names[Column(node.name)])
                return tree if isinstance(tree, _ATOMS) else exp.Paren(this=tree)
            return node

        return scalar.tree.transform(replaced, copy=False)

    def shared(
        self, name: str, columns: Iterable[Column], query: Tree, recursive: bool = False
    ) -> None:
        """Add a query to the WITH of the statement."""
        if name not in self._shared:
            names = [identifier(column.symbol) for column in columns]
            alias = exp.TableAlias(this=identifier(name), columns=names)
            self._shared[name] = exp.CTE(this=query, alias=alias)
            self._recursive = self._recursive or recursive

    def is_shared(self, name: str) -> bool:
        """Return whether the WITH already has a query."""
        return name in self._shared

    def with_shared(self, query: exp.Select) -> exp.Select:
        """Return the statement with its WITH."""
        if self._shared:
            ctes = list(self._shared.values())
            query.set("with_", exp.With(expressions=ctes, recursive=self._recursive))
        return query


_ATOMS = (exp.Column, exp.Literal, exp.Paren, exp.Anonymous, exp.Null, exp.Boolean, exp.Window)


def to_sql(plan: Plan) -> exp.Select:
    """Return the query of a plan, with the column names of its view."""
    renderer = Renderer(plan.root)
    block = renderer.block(plan.root, {})
    if isinstance(block.distinct, exp.Distinct) and list(plan.columns) != list(block.outputs):
        block = renderer.nested(block)
    query = block.select(zip(plan.columns, plan.names, strict=True))
    return renderer.with_shared(query)


def to_text(plan: Plan) -> str:
    """Return the query of a plan as formatted text."""
    return dialect.write(to_sql(plan), pretty=True)


def _aliased(tree: Tree, name: str) -> Tree:
    if isinstance(tree, exp.Column) and tree.name == name:
        return dialect.copied(tree)
    return exp.Alias(this=dialect.copied(tree), alias=identifier(name))


def _conjunction(conditions: tuple[Tree, ...]) -> Tree:
    result: Tree | None = None
    for condition in conditions:
        bare = dialect.copied(unwrapped(condition))
        part = exp.Paren(this=bare) if isinstance(bare, exp.Or) else bare
        result = part if result is None else exp.And(this=result, expression=part)
    assert result is not None
    return result


def with_condition(block: Block, *conditions: Tree) -> Block:
    """Return the block with more conditions in its WHERE."""
    return replace(block, where=(*block.where, *conditions))
