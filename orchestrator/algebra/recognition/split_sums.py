"""Sums over several tables, as sums of products: sum(x + y) = sum(x) + sum(y)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sqlglot import exp

from orchestrator.algebra.columns import Column, Symbols
from orchestrator.algebra.dialect import Tree, write
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.group import Aggregate, Grouping
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.predicates import never_null
from orchestrator.algebra.recognition.blocks import Block
from orchestrator.algebra.scalar import TRUE, Scalar, conjunction, filled, unwrapped

MOST = 32
"""The maximum number of products that a sum is split into."""


@dataclass(frozen=True)
class _Term:
    """A product with a sign, given by its factors."""

    sign: int
    factors: tuple[Scalar, ...]


def split_sums(grouping: Grouping, block: Block, symbols: Symbols) -> Operator:
    """Return the groups with sums, means and counts of sums split into aggregates of products.

    A row counts only if all parts have a value, as for the sum.

    >>> from orchestrator.algebra.operators.scan import Scan, ScanColumn, Table
    >>> x, y = Column("x", "integer"), Column("y", "numeric(8,2)")
    >>> r, s = (
    ...     Scan(Table(n, "", name), name, (ScanColumn(column, 1, "v"),))
    ...     for n, (name, column) in enumerate((("r", x), ("s", y)))
    ... )
    >>> total = Aggregate(Column("v"), Scalar.read("sum(((x)::numeric + y))", [x, y]))
    >>> split = split_sums(Grouping(Block([r, s]).rows([x, y]), (), (total,)), Block([r, s]), Symbols("xyv"))
    >>> split.label
    'π (part)::numeric + (part_2)::numeric → v'
    >>> [str(aggregate.call) for aggregate in split.input.aggregates]
    ['sum((x)::numeric) FILTER(WHERE (y IS NOT NULL))', 'sum(y) FILTER(WHERE ((x)::numeric IS NOT NULL))']
    """
    aggregates: list[Aggregate] = []
    values: dict[Column, Scalar] = {}
    for aggregate in grouping.aggregates:
        split = _split(aggregate, block, symbols)
        if split is None:
            aggregates.append(aggregate)
        else:
            values[aggregate.column], parts = split
            aggregates += parts
    if not values:
        return grouping
    rows = Grouping(grouping.input, grouping.by, tuple(aggregates))
    items = (Item(c, values.get(c, Scalar.column(c))) for c in grouping.columns)
    return Projection(rows, tuple(items))


def _split(
    aggregate: Aggregate, block: Block, symbols: Symbols
) -> tuple[Scalar, list[Aggregate]] | None:
    if aggregate.function not in ("sum", "avg", "count") or len(aggregate.arguments) != 1:
        return None
    if aggregate.distinct or aggregate.ordered or aggregate.call.subqueries:
        return None
    argument = aggregate.arguments[0].substitute(block.defined)
    if not argument.references <= block.owner.keys():
        return None
    terms = _terms(argument, block)
    if terms is None or (len(terms) == 1 and terms[0].sign > 0):
        return None
    kind = number_type(argument)
    if kind is None or kind == "double precision" or len(terms) > MOST:
        return None
    filters = [] if aggregate.filter is None else [aggregate.filter.substitute(block.defined)]
    parts: list[Aggregate] = []
    total: Scalar | None = None
    if aggregate.function != "count":
        for term in terms:
            others = [other for other in terms if other is not term]
            condition = conjunction([*filters, *_present(others, block)])
            part = Column(symbols.fresh("part"))
            parts.append(Aggregate(part, _filtered("sum(x)", _product(term.factors), condition)))
            value = filled("(x)::numeric", x=part)
            if total is None:
                total = value if term.sign > 0 else filled("-x", x=value)
            else:
                total = filled("x + y" if term.sign > 0 else "x - y", x=total, y=value)
        assert total is not None
        if aggregate.function == "sum":
            text = "(x)::bigint" if kind == "integer" else "x"
            return filled(text, x=total), parts
    count = Column(symbols.fresh("part"), "bigint")
    condition = conjunction([*filters, *_present(terms, block)])
    text = "count(*)" if condition == TRUE else "count(*) FILTER (WHERE x)"
    parts.append(Aggregate(count, filled(text, x=condition)))
    if total is None:
        return Scalar.column(count), parts
    return filled("x / NULLIF(y, 0)::numeric", x=total, y=count), parts


def _filtered(text: str, argument: Scalar, condition: Scalar) -> Scalar:
    if condition == TRUE:
        return filled(text, x=argument)
    return filled(f"{text} FILTER (WHERE y)", x=argument, y=condition)


def _present(terms: Iterable[_Term], block: Block) -> Iterator[Scalar]:
    """Yield the conditions under which all factors have a value."""
    factors = dict.fromkeys(factor for term in terms for factor in term.factors)
    for factor in factors:
        if not never_null(factor, block.not_null):
            yield filled("x IS NOT NULL", x=factor)


def _product(factors: tuple[Scalar, ...]) -> Scalar:
    result, *others = factors
    for factor in others:
        result = filled("x * y", x=result, y=factor)
    return result


def _terms(scalar: Scalar, block: Block) -> list[_Term] | None:
    """Return the products whose sum is an expression; None if it is no sum of products."""
    if len(block.owners(scalar)) < 2:
        return [_Term(1, (scalar,))]
    tree = without_widening(scalar)
    if isinstance(tree, exp.Neg):
        inner = _terms(scalar.part(tree.this), block)
        return None if inner is None else _negated(inner)
    if not isinstance(tree, exp.Add | exp.Sub | exp.Mul):
        return None
    left = _terms(scalar.part(tree.this), block)
    right = _terms(scalar.part(tree.expression), block)
    if left is None or right is None:
        return None
    if isinstance(tree, exp.Add):
        return left + right
    if isinstance(tree, exp.Sub):
        return left + _negated(right)
    if len(left) * len(right) > 1 and not is_finite(scalar):
        # Infinity times a sum is not the sum of infinities.
        return None
    return [_Term(a.sign * b.sign, (*a.factors, *b.factors)) for a in left for b in right]


def _negated(terms: list[_Term]) -> list[_Term]:
    return [_Term(-term.sign, term.factors) for term in terms]


_WIDTHS = {"smallint": 0, "integer": 0, "bigint": 0, "numeric": 1, "double precision": 2}


def without_widening(scalar: Scalar) -> Tree:
    """Return an expression without outer casts to wider number types, which lose nothing.

    >>> x = Column("x", "integer")
    >>> write(without_widening(Scalar.read("((x * 2))::numeric", [x])))
    'x * 2'
    >>> write(without_widening(Scalar.read("(x * 0.5)::integer", [x])))
    '(x * 0.5)::integer'
    """
    tree = unwrapped(scalar.tree)
    while isinstance(tree, exp.Cast):
        inner = _width(scalar.part(tree.this))
        if inner > _width(scalar.part(tree)) or _width(scalar.part(tree)) == 3:
            break
        tree = unwrapped(tree.this)
    return tree


def _width(scalar: Scalar) -> int:
    return _WIDTHS.get(number_type(scalar) or "", 3)


_RANK = ("integer", "bigint", "numeric", "double precision")


def number_type(scalar: Scalar) -> str | None:
    """Return the number type of an arithmetic expression; `smallint` counts as `integer`.

    >>> x, y = Column("x", "smallint"), Column("y", "numeric(8,2)")
    >>> number_type(Scalar.read("-x * 2", [x])), number_type(Scalar.read("(x)::numeric - y", [x, y]))
    ('integer', 'numeric')
    """
    known = {column.symbol: (column.type or "").partition("(")[0] for column in scalar.columns}

    def kind(tree: Tree) -> str | None:
        tree = unwrapped(tree)
        name: str | None = None
        if isinstance(tree, exp.Column):
            name = known.get(tree.name)
        elif isinstance(tree, exp.Literal) and not tree.is_string:
            name = "numeric" if not tree.is_int else "integer" if len(tree.name) < 10 else "bigint"
        elif isinstance(tree, exp.Cast):
            name = write(tree.to).partition("(")[0]
        elif isinstance(tree, exp.Neg):
            return kind(tree.this)
        elif isinstance(tree, exp.Add | exp.Sub | exp.Mul):
            sides = kind(tree.this), kind(tree.expression)
            return None if None in sides else max(sides, key=lambda side: _RANK.index(str(side)))
        name = "integer" if name == "smallint" else name
        return name if name in _RANK else None

    return kind(scalar.tree)


def is_finite(scalar: Scalar) -> bool:
    """Return whether the types of the columns of an expression have no infinite values."""
    return all(
        (column.type or "") in ("smallint", "integer", "bigint")
        or (column.type or "").startswith("numeric(")
        for column in scalar.columns
    )
