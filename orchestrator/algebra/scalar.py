"""Scalar expressions: immutable sqlglot trees over columns with identities.

>>> price, rate = Column("price", "numeric"), Column("rate", "numeric")
>>> total = Scalar.read("price * rate", [price, rate])
>>> total, sorted(map(str, total.references))
(Scalar(price * rate), ['price', 'rate'])
>>> total == Scalar.read("price  *  rate", [price, rate])
True
>>> total.substitute({rate: Scalar.read("1.2")})
Scalar(price * 1.2)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from sqlglot import exp

from orchestrator.algebra import dialect
from orchestrator.algebra.columns import Column
from orchestrator.algebra.dialect import Tree
from orchestrator.caching import cached_property

if TYPE_CHECKING:
    from orchestrator.algebra.operators.base import Operator


@dataclass(frozen=True)
class Subquery:
    """A query inside an expression; its plan may read columns of the surrounding query."""

    plan: Operator
    columns: tuple[Column, ...]
    """The columns that the query returns, in order."""

    @property
    def correlated(self) -> frozenset[Column]:
        """The columns of the surrounding query that the subquery reads."""
        return self.plan.outer_columns


@dataclass(frozen=True, repr=False)
class Scalar:
    """A scalar expression. Two expressions are equal if texts, columns and subqueries are equal.

    In the text, `$1`, `$2`, ... stand for the subqueries.
    """

    sql: str
    columns: frozenset[Column]
    subqueries: tuple[Subquery, ...]
    _tree: Tree = field(compare=False)

    @staticmethod
    def of(
        tree: Tree, columns: Iterable[Column] = (), subqueries: tuple[Subquery, ...] = ()
    ) -> Scalar:
        """Return the expression of a tree whose columns are named by their symbols.

        Columns that the tree does not name and subqueries that it does not refer to are left out;
        the remaining subqueries are numbered again.
        """
        return Scalar._own(dialect.copied(tree), columns, subqueries)

    @staticmethod
    def _own(tree: Tree, columns: Iterable[Column], subqueries: tuple[Subquery, ...]) -> Scalar:
        """Return the expression as `of` does, for a tree that no other object holds."""
        used: list[Subquery] = []
        symbols: set[str] = set()
        for node in list(tree.dfs()):
            if isinstance(node, exp.Parameter):
                used.append(subqueries[int(node.name) - 1])
                node.this.set("this", str(len(used)))
            elif isinstance(node, exp.Column):
                symbols.add(node.name)
        known = frozenset(column for column in columns if column.symbol in symbols)
        return Scalar(dialect.write(tree), known, tuple(used), tree)

    @staticmethod
    def column(column: Column) -> Scalar:
        """Return a column as an expression."""
        return _of_column(column.symbol, column.type, column.equality, column.exact)

    @staticmethod
    def read(text: str, columns: Iterable[Column] = ()) -> Scalar:
        """Return the expression of a text that names columns by their symbols."""
        return Scalar.of(_parsed(text), columns)

    def __repr__(self) -> str:
        """Return the class name and the text."""
        return f"Scalar({self.sql})"

    def __str__(self) -> str:
        """Return the text without surrounding parentheses."""
        return self._bare_text

    @cached_property
    def _bare_text(self) -> str:
        return dialect.write(unwrapped(self._tree))

    @property
    def tree(self) -> Tree:
        """A copy of the tree, which the caller may change."""
        return dialect.copied(self._tree)

    @cached_property
    def references(self) -> frozenset[Column]:
        """The columns that the expression reads, also in its subqueries."""
        return self.columns.union(*(subquery.correlated for subquery in self.subqueries))

    @property
    def as_column(self) -> Column | None:
        """The column, if the expression is just a column."""
        bare = unwrapped(self._tree)
        if isinstance(bare, exp.Column):
            return next(iter(self.columns), None)
        return None

    @cached_property
    def conjuncts(self) -> tuple[Scalar, ...]:
        """The operands of an outermost AND.

        >>> Scalar.read("((a = 1) AND ((b = 2) AND (c OR d)))").conjuncts
        (Scalar(a = 1), Scalar(b = 2), Scalar(c OR d))
        """
        if not isinstance(unwrapped(self._tree), exp.And) and not isinstance(self._tree, exp.Paren):
            return (self,)
        return tuple(self.part(tree) for tree in operands(self._tree, exp.And))

    @cached_property
    def disjuncts(self) -> tuple[Scalar, ...]:
        """The operands of an outermost OR."""
        return tuple(self.part(tree) for tree in operands(self._tree, exp.Or))

    @cached_property
    def sides(self) -> tuple[Scalar, Scalar] | None:
        """The two sides of an equality, also of an equality in which NULL equals NULL.

        >>> Scalar.read("((a = b) OR ((a IS NULL) AND (b IS NULL)))").sides
        (Scalar(a), Scalar(b))
        """
        tree = unwrapped(self._tree)
        if isinstance(tree, exp.Or):
            tree = unwrapped(tree.this)
        if not isinstance(tree, exp.EQ):
            return None
        return self.part(tree.this), self.part(tree.expression)

    def numbered_from(self, number: int) -> Scalar:
        """Return the expression for display, with its subqueries numbered from a given number on."""
        tree = self.tree
        for hole in tree.find_all(exp.Parameter):
            hole.this.set("this", str(int(hole.name) + number - 1))
        return Scalar(dialect.write(tree), self.columns, self.subqueries, tree)

    def part(self, tree: Tree) -> Scalar:
        """Return the expression of a part of this expression's tree."""
        return Scalar.of(tree, self.columns, self.subqueries)

    def substitute(self, replacements: Mapping[Column, Scalar]) -> Scalar:
        """Return the expression with columns replaced by expressions, also within subqueries.

        A column that a subquery reads can only be replaced by a column.
        """
        affected = self.references & replacements.keys()
        if not affected:
            return self
        if isinstance(self._tree, exp.Column):
            [column] = affected
            if isinstance(replacements[column]._tree, _CLOSED):
                return replacements[column]
        replacements = {c: scalar for c, scalar in replacements.items() if c in affected}
        subqueries = [
            Subquery(subquery.plan.with_outer(replacements), subquery.columns)
            for subquery in self.subqueries
        ]
        columns = set(self.columns)
        by_symbol = {column.symbol: scalar for column, scalar in replacements.items()}
        offset: dict[str, int] = {}
        for column, scalar in replacements.items():
            columns |= scalar.columns
            offset[column.symbol] = len(subqueries)
            subqueries += scalar.subqueries

        def replaced(node: Tree) -> Tree:
            if not isinstance(node, exp.Column) or node.name not in by_symbol:
                return node
            tree = by_symbol[node.name].tree
            for hole in tree.find_all(exp.Parameter):
                hole.this.set("this", str(int(hole.name) + offset[node.name]))
            return tree if isinstance(tree, _CLOSED) else exp.Paren(this=tree)

        return Scalar._own(self.tree.transform(replaced, copy=False), columns, tuple(subqueries))


@lru_cache(maxsize=1024)
def _parsed(text: str) -> Tree:
    """Return the tree of a text, which callers must not change. Rules use the same few texts often."""
    tree: Tree = dialect.parse(f"SELECT {text}").expressions[0]
    return tree


@lru_cache(maxsize=8192)
def _of_column(symbol: str, type_: str | None, equality: str | None, exact: bool) -> Scalar:
    # The cache key has all fields, because columns are equal if only their symbols are.
    return Scalar.of(dialect.reference(symbol), [Column(symbol, type_, equality, exact)])


def filled(text: str, **terms: Column | Scalar) -> Scalar:
    """Return the expression of a text, with its names replaced by the given terms.

    >>> filled("coalesce(sum(x), 0)", x=Column("price"))
    Scalar(coalesce(sum(price), 0))
    >>> filled("x > y", x=Column("a"), y=Scalar.read("b + c"))
    Scalar(a > (b + c))
    """
    return _with_places(text, tuple(terms)).substitute(
        {
            Column(name): Scalar.column(term) if isinstance(term, Column) else term
            for name, term in terms.items()
        }
    )


@lru_cache(maxsize=1024)
def _with_places(text: str, names: tuple[str, ...]) -> Scalar:
    """Return the expression of a text whose names are columns to be replaced."""
    return Scalar.read(text, map(Column, names))


TRUE = Scalar.of(exp.true())
FALSE = Scalar.of(exp.false())

_CLOSED = (exp.Column, exp.Literal, exp.Paren, exp.Cast, exp.Anonymous, exp.Parameter)
"""Kinds of trees that never need parentheses."""


def conjunction(scalars: Iterable[Scalar]) -> Scalar:
    """Return the AND of some conditions, or TRUE if there are none."""
    parts = [scalar for scalar in scalars if scalar != TRUE]
    if not parts:
        return TRUE
    result = parts[0]
    for scalar in parts[1:]:
        result = _both(result, scalar)
    return result


def disjunction(scalars: Iterable[Scalar]) -> Scalar:
    """Return the OR of some conditions, as a balanced tree of low depth.

    >>> disjunction(Scalar.read(text) for text in ("a > 0", "b > 0", "c"))
    Scalar((a > 0) OR ((b > 0) OR c))
    """
    every = list(scalars)
    middle = len(every) // 2
    if not middle:
        return every[0]
    return filled("x OR y", x=disjunction(every[:middle]), y=disjunction(every[middle:]))


def _both(left: Scalar, right: Scalar) -> Scalar:
    shifted = right.tree
    for hole in shifted.find_all(exp.Parameter):
        hole.this.set("this", str(int(hole.name) + len(left.subqueries)))
    operands = [
        exp.Paren(this=tree) if isinstance(tree, exp.Or | exp.Not) else tree
        for tree in (left.tree, shifted)
    ]
    tree = exp.And(this=operands[0], expression=operands[1])
    return Scalar._own(tree, left.columns | right.columns, left.subqueries + right.subqueries)


def unwrapped(tree: Tree) -> Tree:
    """Return a tree without surrounding parentheses."""
    while isinstance(tree, exp.Paren):
        tree = tree.this
    return tree


def operands(tree: Tree, kind: type[exp.Connector]) -> Iterator[Tree]:
    """Yield the operands of nested ANDs or ORs, without surrounding parentheses."""
    bare = unwrapped(tree)
    if isinstance(bare, kind):
        yield from operands(bare.this, kind)
        yield from operands(bare.expression, kind)
    else:
        yield bare
