"""From the algebra back to SQL: SELECT blocks that grow operator by operator.

An operator adds its clause to the block of its input where SQL's order of evaluation allows it
(FROM, WHERE, GROUP BY, HAVING, windows, SELECT, DISTINCT, ORDER BY, LIMIT), and otherwise makes
the block a derived table first.
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
    """A SELECT under construction; `outputs` says what each column is in terms of its FROM."""

    items: tuple[Tree, ...]
    """A table, then joins."""
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
        """Whether there is nothing but FROM and WHERE yet."""
        return self.ungrouped and self.group is None and not self.windowed

    @property
    def ungrouped(self) -> bool:
        """Whether nothing that comes after grouping and windows is there."""
        return self.distinct is None and self.order is None and not self.limit

    def from_only(self, outer: Names) -> bool:
        """Whether the rows and columns are just those of FROM, without one of a query around it."""
        return (
            self.plain
            and not self.where
            and self.named(*self.outputs)
            and not self.foreign(self.outputs, outer)
        )

    def named(self, *columns: Column) -> bool:
        """Whether some columns are columns of FROM and not computed."""
        return all(isinstance(self.outputs[column], exp.Column) for column in columns)

    def foreign(self, columns: Iterable[Column], outer: Names) -> bool:
        """Whether one of some columns reads nothing but columns of the query around this one.

        Such a column is as this block has it only where the block ends: outside, an outer join
        does not pad it, and an aggregate of it is one of the query around.
        """
        around = {tree.table for name in outer.values() for tree in name.find_all(exp.Column)}
        read = ({tree.table for tree in self.outputs[c].find_all(exp.Column)} for c in columns)
        return any(tables and tables <= around for tables in read)

    def select(self, columns: Iterable[tuple[Column, str]]) -> exp.Select:
        """The finished SELECT."""
        query = exp.Select()
        wanted = [_aliased(self.outputs[column], name) for column, name in columns]
        query.set("expressions", wanted or [exp.alias_(exp.true(), "present")])
        if self.items:
            query.set("from_", exp.From(this=dialect.copied(self.items[0])))
            query.set("joins", [dialect.copied(item) for item in self.items[1:]])
        if self.where:
            query.set("where", exp.Where(this=_all(self.where)))
        if self.group is not None:
            query.set("group", dialect.copied(self.group))
        if self.having:
            query.set("having", exp.Having(this=_all(self.having)))
        if self.distinct is not None:
            query.set("distinct", dialect.copied(self.distinct))
        if self.order is not None:
            query.set("order", dialect.copied(self.order))
        for name, tree in self.limit.items():
            query.set(name, dialect.copied(tree))
        return query


def order_clause(keys: Iterable[SortKey], names: Names) -> exp.Order:
    """An ORDER BY."""
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
    """The items of a FROM as one: with parentheses if they are several."""
    if len(items) == 1:
        return dialect.copied(items[0])
    first = dialect.copied(items[0])
    first.set("joins", [dialect.copied(item) for item in items[1:]])
    return exp.Subquery(this=first)


class Renderer:
    """Renders one statement: hands out aliases and gathers shared queries for its WITH."""

    def __init__(self, plan: Operator) -> None:
        """Prepares for a plan."""
        names = {alias for operator in walk(plan) for alias in [getattr(operator, "alias", "")]}
        self.symbols = Symbols(names)
        self._shared: dict[str, exp.CTE] = {}
        self._recursive = False

    def block(self, operator: Operator, outer: Names) -> Block:
        """The block of a plan."""
        return operator.render(self, outer)

    def plain(self, operator: Operator, outer: Names) -> Block:
        """The block of a plan, with nothing but FROM and WHERE."""
        block = self.block(operator, outer)
        return block if block.plain else self.nested(block)

    def nested(self, block: Block) -> Block:
        """The block as a derived table."""
        return self.derived(
            block.select((column, column.symbol) for column in block.outputs), block.outputs
        )

    def derived(self, query: Tree, columns: Iterable[Column]) -> Block:
        """A derived table whose columns are called by their symbols."""
        alias = self.symbols.fresh("q")
        item = exp.Subquery(this=query, alias=exp.TableAlias(this=identifier(alias)))
        return Block((item,), {column: reference(column.symbol, alias) for column in columns})

    def query(self, operator: Operator, outer: Names, columns: Sequence[Column]) -> exp.Select:
        """A plan as a query that returns some columns in this order, by their symbols.

        A column may be asked for more than once.
        """
        block = self.block(operator, outer)
        distinct_whole = isinstance(block.distinct, exp.Distinct) and not block.distinct.args.get(
            "on"
        )
        if distinct_whole and set(columns) != set(block.outputs):
            block = self.nested(block)
        return block.select((column, column.symbol) for column in columns)

    def tree(self, scalar: Scalar, names: Names) -> Tree:
        """An expression in terms of what its columns are called."""
        queries: list[Tree] = []
        for place, subquery in enumerate(scalar.subqueries):
            # PostgreSQL must find subqueries equal that are, as in an aggregate's DISTINCT and ORDER BY.
            known = (n for n in range(place) if alike_queries(scalar.subqueries[n], subquery))
            earlier = next(known, None)
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
        """Puts a query into the statement's WITH."""
        if name not in self._shared:
            listed = [identifier(column.symbol) for column in columns]
            alias = exp.TableAlias(this=identifier(name), columns=listed)
            self._shared[name] = exp.CTE(this=query, alias=alias)
            self._recursive = self._recursive or recursive

    def is_shared(self, name: str) -> bool:
        """Whether a query is in the WITH already."""
        return name in self._shared

    def with_shared(self, query: exp.Select) -> exp.Select:
        """The statement with its WITH."""
        if self._shared:
            ctes = list(self._shared.values())
            query.set("with_", exp.With(expressions=ctes, recursive=self._recursive))
        return query


_ATOMS = (exp.Column, exp.Literal, exp.Paren, exp.Anonymous, exp.Null, exp.Boolean, exp.Window)


def to_sql(plan: Plan) -> exp.Select:
    """The query of a plan, with the names that its view's columns have."""
    renderer = Renderer(plan.root)
    block = renderer.block(plan.root, {})
    if isinstance(block.distinct, exp.Distinct) and list(plan.columns) != list(block.outputs):
        block = renderer.nested(block)
    query = block.select(zip(plan.columns, plan.names, strict=True))
    return renderer.with_shared(query)


def to_text(plan: Plan) -> str:
    """The query of a plan as readable text."""
    return dialect.write(to_sql(plan), pretty=True)


def _aliased(tree: Tree, name: str) -> Tree:
    if isinstance(tree, exp.Column) and tree.name == name:
        return dialect.copied(tree)
    return exp.Alias(this=dialect.copied(tree), alias=identifier(name))


def _all(conditions: tuple[Tree, ...]) -> Tree:
    result: Tree | None = None
    for condition in conditions:
        bare = dialect.copied(unwrapped(condition))
        part = exp.Paren(this=bare) if isinstance(bare, exp.Or) else bare
        result = part if result is None else exp.And(this=result, expression=part)
    assert result is not None
    return result


def with_condition(block: Block, *conditions: Tree) -> Block:
    """The block with more conditions in its WHERE."""
    return replace(block, where=(*block.where, *conditions))
