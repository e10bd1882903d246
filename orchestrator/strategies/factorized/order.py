"""The order of a ranked view: columns, and sums of numbers, as the option `ranked` gives them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from sqlglot import exp

from orchestrator.algebra import dialect
from orchestrator.algebra.analysis.decimal_scale import INTEGERS
from orchestrator.algebra.columns import Column
from orchestrator.algebra.dialect import Tree
from orchestrator.algebra.operators.base import SortKey
from orchestrator.algebra.recognition.split_sums import number_type
from orchestrator.algebra.scalar import Scalar, filled
from orchestrator.algebra.unsupported import NotModelledError
from orchestrator.deltascript.plan import direction
from orchestrator.errors import UsageError


@dataclass(frozen=True)
class Summand:
    """A column with its factor; a default replaces NULL."""

    column: Column
    factor: Decimal = Decimal(1)
    default: Decimal | None = None

    def __str__(self) -> str:
        """Return the summand for people."""
        column = (
            str(self.column) if self.default is None else f"coalesce({self.column}, {self.default})"
        )
        return column if self.factor == 1 else f"{self.factor} * {column}"

    @property
    def is_plain(self) -> bool:
        """Whether this is just a column."""
        return self.factor == 1 and self.default is None

    @property
    def value(self) -> Scalar:
        """The value as an exact number."""
        text = (
            "x::numeric"
            if self.default is None
            else f"coalesce(x::numeric, {self.default}::numeric)"
        )
        return filled(f"{text} * {self.factor}::numeric", x=self.column)


@dataclass(frozen=True)
class OrderTerm:
    """A column, or a sum of columns, by which rows are ordered."""

    summands: tuple[Summand, ...]
    descending: bool
    nulls_first: bool
    written: str
    """The term as SQL for the function format(), with the positions of the view's columns in place of their names."""
    text: str
    """The term for people."""

    def __str__(self) -> str:
        """Return the term with its direction, for people."""
        return f"{self.text}{direction(self.descending, self.nulls_first)}"

    @property
    def sql(self) -> str:
        """The term with its direction, as in ORDER BY, for the function format()."""
        return f"{self.written}{direction(self.descending, self.nulls_first)}"

    @property
    def column(self) -> Column | None:
        """The column, if the term is nothing but a column."""
        [first, *others] = self.summands
        return first.column if first.is_plain and not others else None


def parsed_order(text: str, columns: Mapping[str, Scalar]) -> tuple[OrderTerm, ...]:
    """Return the terms of an order over the columns of a view, whose expressions are given.

    >>> price, fee = (Column(name, "numeric") for name in ("price", "fee"))
    >>> known = {"price": Scalar.column(price), "total": Scalar.read("price + fee", [price, fee])}
    >>> for term in parsed_order("total - 2 * price desc, price", known):
    ...     print([f"{item.factor} {item.column}" for item in term.summands], term.descending, term.nulls_first)
    ['-1 price', '1 fee'] True True
    ['1 price'] False False
    >>> [term.sql for term in parsed_order("total - 2 * price desc, price nulls first", known)]
    ['%2$I - 2 * %1$I DESC', '%1$I NULLS FIRST']
    >>> parsed_order("price * price", known)
    Traceback (most recent call last):
    orchestrator.errors.UsageError: ranked orders by price * price, which is no sum of columns; ...
    """
    try:
        tree = dialect.parse(f"SELECT 1 ORDER BY {text}")
    except dialect.UnreadableError as error:
        raise UsageError(
            f"ranked = {text!r} is no order; write columns of the view, as in price + fee DESC, name."
        ) from error
    order = tree.args.get("order")
    given = {key for key, value in tree.args.items() if value}
    if order is None or not given <= {"order", "expressions", "kind"}:
        raise UsageError(
            f"ranked = {text!r} is no order; write columns of the view, as in price + fee DESC, name."
        )
    return tuple(_term(item, columns) for item in order.expressions)


def terms_of(keys: Sequence[SortKey], expressions: Sequence[Scalar]) -> tuple[OrderTerm, ...]:
    """Return the terms of the ORDER BY of a query, given the expressions of its sort keys.

    >>> price, fee = (Column(name, "numeric") for name in ("price", "fee"))
    >>> total, second = Column("total", "numeric"), Column("second", "numeric")
    >>> sums = [Scalar.read("price + 2 * fee", [price, fee]), Scalar.column(fee)]
    >>> for term in terms_of([SortKey(total, descending=True), SortKey(second)], sums):
    ...     print(term, [f"{item.factor} {item.column}" for item in term.summands])
    price + 2 * fee DESC NULLS LAST ['1 price', '2 fee']
    fee ['1 fee']
    """
    result = []
    for key, scalar in zip(keys, expressions, strict=True):
        text, column = str(key.column), scalar.as_column
        summands: tuple[Summand, ...] = () if column is None else (Summand(column),)
        if column is None:
            known = {item.symbol: Scalar.column(item) for item in scalar.references}
            refusal = NotModelledError(
                "the order reads an expression that is no sum of columns", text
            )
            try:
                summands = _summed(_Reader(known, text).summands(scalar.tree, Decimal(1)))
            except UsageError as error:
                raise refusal from error
            if {item.column for item in summands} != scalar.references:
                # x - x is 0, or NULL.
                raise refusal
        if summands:
            text = " + ".join(map(str, summands))
            result.append(OrderTerm(summands, key.descending, key.nulls_first, "", text))
    return tuple(result)


def _summed(summands: Iterable[Summand]) -> tuple[Summand, ...]:
    """Return a sum in which each column occurs once, or once for each number that replaces NULL."""
    factors: dict[tuple[Column, Decimal | None], Decimal] = {}
    for summand in summands:
        place = summand.column, summand.default
        factors[place] = factors.get(place, Decimal(0)) + summand.factor
    return tuple(
        Summand(column, factor, default) for (column, default), factor in factors.items() if factor
    )


def _term(item: Tree, columns: Mapping[str, Scalar]) -> OrderTerm:
    ordered = item if isinstance(item, exp.Ordered) else exp.Ordered(this=item)
    text = dialect.write(ordered.this)
    tree = ordered.this.transform(_quoted)
    summands = _summed(_Reader(columns, text).summands(tree, Decimal(1)))
    if not summands:
        raise UsageError(f"ranked orders by {text}, which is constant; leave it out.")
    descending = bool(ordered.args.get("desc"))
    nulls_first = bool(ordered.args.get("nulls_first"))
    places = {name: place for place, name in enumerate(columns, 1)}
    written = tree.transform(lambda node: _placed(node, places))
    # sqlglot doubles the sign for drivers that read placeholders.
    sql = dialect.write(written).replace("%%", "%")
    return OrderTerm(summands, descending, nulls_first, sql, text)


def _quoted(tree: Tree) -> Tree:
    """Return a column with its exact name in quotes: PostgreSQL folds other names to lower case."""
    if isinstance(tree, exp.Column) and isinstance(tree.this, exp.Identifier):
        name = tree.name if tree.this.args.get("quoted") else tree.name.lower()
        return exp.Column(this=exp.Identifier(this=name, quoted=True), table=tree.args.get("table"))
    return tree


def _placed(tree: Tree, places: Mapping[str, int]) -> Tree:
    return exp.Var(this=f"%{places[tree.name]}$I") if isinstance(tree, exp.Column) else tree


@dataclass(frozen=True)
class _Reader:
    """Reads a sum over columns with known expressions."""

    columns: Mapping[str, Scalar]
    text: str
    """The term, for messages."""

    def summands(self, tree: Tree, factor: Decimal) -> Iterator[Summand]:
        """Yield the columns of a sum with their factors; constants do not change an order."""
        if _number(tree) is not None:
            return
        if isinstance(tree, exp.Paren) or self._is_widening(tree):
            yield from self.summands(tree.this, factor)
        elif isinstance(tree, exp.Add | exp.Sub):
            sign = 1 if isinstance(tree, exp.Add) else -1
            yield from self.summands(tree.this, factor)
            yield from self.summands(tree.expression, sign * factor)
        elif isinstance(tree, exp.Neg):
            yield from self.summands(tree.this, -factor)
        elif isinstance(tree, exp.Mul) and (number := _number(tree.this)) is not None:
            yield from self.summands(tree.expression, number * factor)
        elif isinstance(tree, exp.Mul) and (number := _number(tree.expression)) is not None:
            yield from self.summands(tree.this, number * factor)
        elif isinstance(tree, exp.Column):
            yield from self._column(tree, factor)
        elif filling := _coalesced(tree):
            inner, default = filling
            columns = list(self.summands(inner, Decimal(1)))
            if len(columns) != 1 or not columns[0].is_plain:
                raise self._refusal
            yield replace(columns[0], factor=factor, default=default)
        else:
            raise self._refusal

    def _is_widening(self, tree: Tree) -> bool:
        """Return whether a tree is a cast that changes no number: to numeric, or of integers to integers."""
        name = _cast_type(tree)
        if name not in INTEGERS:
            return name in ("numeric", "decimal")
        columns = {column.name for column in tree.find_all(exp.Column)}
        return (
            columns <= self.columns.keys()
            and all(number_type(self.columns[name]) in INTEGERS for name in columns)
            and all(literal.is_int for literal in tree.find_all(exp.Literal))
        )

    @property
    def _refusal(self) -> UsageError:
        return UsageError(
            f"ranked orders by {self.text}, which is no sum of columns; order by columns, or by sums of columns and"
            " of columns times constants."
        )

    def _column(self, tree: exp.Column, factor: Decimal) -> Iterator[Summand]:
        """Yield the summands of a column, or of the expression that the view shows under its name."""
        if tree.table or tree.name not in self.columns:
            known = ", ".join(self.columns)
            raise UsageError(
                f"ranked orders by {self.text}, and {tree.name} is no column of the view; it shows {known}."
            )
        scalar = self.columns[tree.name]
        column = scalar.as_column
        if column is not None:
            yield Summand(column, factor)
            return
        known_columns = {item.symbol: Scalar.column(item) for item in scalar.references}
        try:
            yield from _Reader(known_columns, self.text).summands(scalar.tree, factor)
        except UsageError as error:
            raise NotModelledError(
                "the order reads a column that is computed when rows are read, and that is no sum",
                tree.name,
            ) from error


def _number(tree: Tree) -> Decimal | None:
    """Return the value of a constant number.

    >>> trees = dialect.parse("SELECT '-1'::integer::bigint, -(2.5::numeric), 2.5::int, '2'").selects
    >>> list(map(_number, trees))
    [Decimal('-1'), Decimal('-2.5'), None, None]
    """
    if name := _cast_type(tree):
        text = tree.this.name if isinstance(tree.this, exp.Literal) else ""
        number = Decimal(text) if text else _number(tree.this)
        if name in INTEGERS and number is not None and number != number.to_integral_value():
            return None
        return number if name in (*INTEGERS, "numeric", "decimal") else None
    if isinstance(tree, exp.Paren):
        return _number(tree.this)
    if isinstance(tree, exp.Neg):
        number = _number(tree.this)
        return None if number is None else -number
    is_number = isinstance(tree, exp.Literal) and not tree.is_string
    return Decimal(tree.name) if is_number else None


def _cast_type(tree: Tree) -> str:
    """Return the type of a cast; empty for another expression."""
    name = dialect.write(tree.to).lower() if isinstance(tree, exp.Cast) else ""
    return {"int": "integer"}.get(name, name)


def _coalesced(tree: Tree) -> tuple[Tree, Decimal] | None:
    """Return the first argument of coalesce and the number that replaces NULL.

    >>> first, number = _coalesced(dialect.parse("SELECT CASE WHEN x IS NULL THEN 0 ELSE x END").selects[0])
    >>> first.name, number
    ('x', Decimal('0'))
    >>> text = "SELECT CASE WHEN (x IS NOT NULL) THEN x ELSE 7 END, CASE WHEN x IS NULL THEN 0 ELSE y END"
    >>> (first, number), other = map(_coalesced, dialect.parse(text).selects)
    >>> first.name, number, other
    ('x', Decimal('7'), None)
    """
    if isinstance(tree, exp.Case):
        return _coalesced_by_case(tree)
    if isinstance(tree, exp.Coalesce):
        arguments = [tree.this, *tree.expressions]
    elif isinstance(tree, exp.Anonymous) and tree.name.lower() == "coalesce":
        arguments = tree.expressions
    else:
        return None
    default = _number(arguments[1]) if len(arguments) == 2 else None
    return None if default is None else (arguments[0], default)


def _coalesced_by_case(tree: exp.Case) -> tuple[Tree, Decimal] | None:
    """Return the same of a CASE that replaces NULL."""
    branches, otherwise = tree.args["ifs"], tree.args.get("default")
    if tree.this is not None or len(branches) != 1 or otherwise is None:
        return None
    condition, value = branches[0].this.unnest(), branches[0].args["true"]
    if not isinstance(condition, exp.Is) or not isinstance(condition.expression, exp.Null):
        return None
    if condition.args.get("negate"):
        value, otherwise = otherwise, value
    default = _number(value)
    same = condition.this.unnest() == otherwise.unnest()
    return (otherwise, default) if same and default is not None else None
