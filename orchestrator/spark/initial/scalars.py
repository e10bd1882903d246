"""Translate scalar expressions to Spark, if Spark gives exactly PostgreSQL's result.

Any other expression raises an `InexactError` that names the expression. Spark runs in ANSI mode and without loss
of decimal places. So an overflow is an error and not NULL, and a state is either right or computed in PostgreSQL.

- Integers: sums, differences, products, quotients and remainders, with PostgreSQL's result types.
- Numerics of known scale: sums, differences, products. The scale of a quotient depends on its values. If the
  values of an expression differ in scale, the scale of each value is computed too.
- Texts: equality, LIKE, substring, length, concatenation. Sorting and case folding depend on a collation.
- Dates and timestamps: comparisons and their fields. PostgreSQL computes constants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Protocol

from sqlglot import exp

from orchestrator.algebra import dialect
from orchestrator.algebra.dialect import Tree
from orchestrator.algebra.scalar import unwrapped
from orchestrator.spark.initial.calls import filtered, function
from orchestrator.spark.initial.kinds import (
    BOOLEAN,
    INTEGERS,
    TEXT,
    TIMESTAMP,
    InexactError,
    Kind,
    Value,
    as_decimal,
    decimal,
    named,
)
from orchestrator.spark.initial.words import (
    cast,
    closed,
    is_constant,
    literal_kind,
    only,
    scale_of,
    shown_as,
    spark,
)

Fold = Callable[[str], tuple[str, str | None]]
"""Returns the type and the text of a constant, as computed by PostgreSQL."""

_SPECIAL = ("NaN", "Infinity", "-Infinity")

_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ)
_NEGATIVE = (exp.NEQ, exp.NullSafeNEQ)


class Names(Protocol):
    """Translates columns and subqueries to Spark."""

    def column(self, node: exp.Column) -> Value:
        """Return a translated column."""

    def exists(self, node: exp.Exists) -> Tree:
        """Return a translated EXISTS."""


@dataclass(frozen=True)
class Scalars:
    """Translates expressions over the columns of a query."""

    names: Names
    fold: Fold
    grouped: frozenset[str] | None = None
    """In a query with groups and outside of aggregates: the grouping columns."""

    def value(self, tree: Tree) -> Value:
        """Return a translated expression with its type and scale."""
        node = unwrapped(tree)
        if isinstance(node, exp.Column):
            if self.grouped is not None and dialect.write(node) not in self.grouped:
                raise InexactError(f"{shown_as(node)} outside of an aggregate")
            return self.names.column(node)
        if is_constant(node):
            return self._constant(node)
        for type_, rule in _RULES.items():
            if isinstance(node, type_):
                only(node, *_PARTS.get(type(node), ("this", "expression")))
                return rule(self, node)
        raise InexactError(shown_as(node))

    def condition(self, tree: Tree) -> Tree:
        """Return a translated condition."""
        value = self.value(tree)
        if value.kind != BOOLEAN:
            raise InexactError(shown_as(tree))
        return value.tree

    @property
    def inside(self) -> Scalars:
        """The same translation for the arguments of aggregates."""
        return replace(self, grouped=None)

    # Constants

    def _constant(self, node: Tree) -> Value:
        type_, text = self._constant_text(node)
        kind = named(type_)
        if type_ == "numeric":
            if text in _SPECIAL:
                raise InexactError(f"the constant {text}")
            kind = literal_kind(text or "0")
        if type_ in ("bpchar", "character"):
            kind = Kind("character", len(text or ""))
        if kind is None or kind.carried or kind.name == "timestamp with time zone":
            raise InexactError(f"a constant of type {type_}")
        if text is not None and text.endswith(("infinity", " BC")):
            raise InexactError(f"the constant {text}")
        if text is None:
            literal: Tree = exp.Null()
        elif kind == BOOLEAN:
            return Value(exp.true() if text in ("t", "true") else exp.false(), kind)
        else:
            literal = exp.Literal.string(text)
            if kind.text:
                return Value(literal, kind)
        return Value(cast(literal, kind), kind)

    def _constant_text(self, node: Tree) -> tuple[str, str | None]:
        if isinstance(node, exp.Boolean):
            return "boolean", "t" if node.this else "f"
        digits = isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit()
        if digits and int(node.name) < 1 << 31:
            return "integer", node.name
        return self.fold(dialect.write(node))

    def special(self, tree: Tree) -> bool:
        """Return whether an expression is NaN or an infinity, which numerics with a scale cannot hold."""
        node = unwrapped(tree)
        if not isinstance(node, exp.Cast) or not isinstance(node.this, exp.Literal):
            return False
        return node.this.name in _SPECIAL and dialect.write(node.to) == "numeric"

    # Rules

    def _cast(self, node: exp.Cast) -> Value:
        value, type_ = self.value(node.this), dialect.write(node.to)
        kind = named(type_)
        source = value.kind
        if kind == source and not source.carried:
            return value
        if type_ == "numeric" and (source.integer or source.decimal):
            wanted = as_decimal(source)
            return value if source.decimal else Value(cast(value.tree, wanted), wanted)
        whole = source.integer or (source.decimal and value.possible == (0,))
        if kind is not None and kind.integer and whole:
            return Value(cast(value.tree, kind), kind)
        if kind is not None and kind.decimal and (source.integer or source.decimal):
            return Value(cast(value.tree, kind), kind)
        if kind == TEXT and (source.integer or source == TEXT) and "(" not in type_:
            return value if source == TEXT else Value(cast(value.tree, TEXT), TEXT)
        if kind == TEXT and source.name == "character" and type_ == "text":
            return Value(spark("RTRIM(x)", x=value.tree), TEXT)
        if type_ == "timestamp without time zone" and source.name == "date":
            assert kind is not None
            return Value(cast(value.tree, kind), kind)
        raise InexactError(f"a cast of {source.name} to {type_}")

    def _connective(self, node: exp.And | exp.Or) -> Value:
        connective = type(node)(
            this=closed(self.condition(node.this)),
            expression=closed(self.condition(node.expression)),
        )
        return Value(connective, BOOLEAN)

    def _not(self, node: exp.Not) -> Value:
        return Value(exp.Not(this=closed(self.condition(node.this))), BOOLEAN)

    def _is(self, node: exp.Is) -> Value:
        if isinstance(node.expression, exp.Null):
            value = self.value(node.this)
        elif isinstance(node.expression, exp.Boolean):
            value = Value(self.condition(node.this), BOOLEAN)
        else:
            raise InexactError(shown_as(node))
        tree: Tree = exp.Is(this=closed(value.tree), expression=node.expression.copy())
        return Value(
            exp.Not(this=exp.Paren(this=tree)) if node.args.get("negate") else tree, BOOLEAN
        )

    def _comparison(self, node: exp.Binary) -> Value:
        for number, other in ((node.this, node.expression), (node.expression, node.this)):
            if self.special(other):
                return self._with_special(node, number, other, other is node.expression)
        if isinstance(node, exp.EQ) and isinstance(node.expression, exp.Any):
            return self._compared_with_array(node.this, node.expression.this, exp.EQ, exp.Or)
        if isinstance(node, exp.NEQ) and _is_all(node.expression):
            return self._compared_with_array(
                node.this, node.expression.expressions[0], exp.NEQ, exp.And
            )
        left, right = _only_item(node.this), _only_item(node.expression)
        if isinstance(node, exp.EQ) and left is not None and right is not None:
            # NULL equals NULL within an array.
            return self.compared(exp.NullSafeEQ, self.value(left), self.value(right))
        return self.compared(type(node), self.value(node.this), self.value(node.expression))

    def compared(self, kind: type[exp.Binary], left: Value, right: Value) -> Value:
        """Return a comparison of two values."""
        equality = kind in (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ)
        left_kind, right_kind = left.kind, right.kind
        numbers = all(k.integer or k.decimal for k in (left_kind, right_kind))
        times = {left_kind.name, right_kind.name} == {"date", "timestamp without time zone"}
        sides = [left.tree, right.tree]
        if left_kind.name == right_kind.name == "character":
            # Trailing blanks do not count.
            sides = [spark("RTRIM(x)", x=side) for side in sides]
        elif times:
            sides = [cast(side, TIMESTAMP) for side in sides]
        elif not numbers and left_kind.name != right_kind.name:
            raise InexactError(f"a comparison of {left_kind.name} with {right_kind.name}")
        if not (left_kind.comparable and right_kind.comparable) or not (
            equality or (left_kind.ordered and right_kind.ordered)
        ):
            raise InexactError(f"a comparison of {left_kind.name} by order or equality")
        return Value(kind(this=closed(sides[0]), expression=closed(sides[1])), BOOLEAN)

    def _with_special(self, node: exp.Binary, number: Tree, special: Tree, right: bool) -> Value:
        """Compare a finite number with NaN, which is greater than all others, or with an infinity."""
        value = self.value(number)
        if not value.kind.decimal:
            raise InexactError(shown_as(node))
        least = unwrapped(special).this.name == "-Infinity"
        if isinstance(node, (exp.LT, exp.LTE)):
            holds = right != least
        elif isinstance(node, (exp.GT, exp.GTE)):
            holds = right == least
        else:
            holds = isinstance(node, _NEGATIVE)
        if isinstance(node, (exp.NullSafeEQ, exp.NullSafeNEQ)):
            return Value(exp.convert(holds), BOOLEAN)
        return Value(spark(f"CASE WHEN x IS NOT NULL THEN {holds} END", x=value.tree), BOOLEAN)

    def _compared_with_array(
        self, tree: Tree, array: Tree, kind: type[exp.Binary], joint: type[exp.Connector]
    ) -> Value:
        items = unwrapped(array)
        if not isinstance(items, exp.Array) or not items.expressions:
            raise InexactError(shown_as(array))
        value = self.value(tree)
        tests = [self.compared(kind, value, self.value(item)).tree for item in items.expressions]
        return Value(
            exp.Paren(this=reduce(lambda a, b: joint(this=a, expression=b), tests)), BOOLEAN
        )

    def _like(self, node: exp.Like) -> Value:
        value, pattern = self.value(node.this), unwrapped(node.expression)
        if not (value.kind.text and is_constant(pattern)):
            raise InexactError(shown_as(node))
        type_, text = self.fold(dialect.write(pattern))
        if type_ not in ("text", "character varying") or text is None or "\\" in text:
            raise InexactError(f"the pattern {dialect.write(pattern)}")
        tree: Tree = exp.Like(this=closed(value.tree), expression=exp.Literal.string(text))
        return Value(
            exp.Not(this=exp.Paren(this=tree)) if node.args.get("negate") else tree, BOOLEAN
        )

    def _arithmetic(self, node: exp.Binary) -> Value:
        left, right = self.value(node.this), self.value(node.expression)
        if left.kind.integer and right.kind.integer:
            kind = max(left.kind, right.kind, key=lambda k: INTEGERS[k.name])
            sides = {"x": cast(left.tree, kind), "y": cast(right.tree, kind)}
            return Value(cast(spark(f"x {_OPERATORS[type(node)]} y", **sides), kind), kind)
        if not all(v.kind.integer or v.kind.decimal for v in (left, right)):
            raise InexactError(shown_as(node))
        if isinstance(node, (exp.Div, exp.Mod)):
            raise InexactError("a quotient of numerics, whose places depend on the values")
        left_kind, right_kind = as_decimal(left.kind), as_decimal(right.kind)
        sides = {"x": cast(left.tree, left_kind), "y": cast(right.tree, right_kind)}
        scales = [scale_of(left), scale_of(right)]
        if isinstance(node, exp.Mul):
            kind = decimal(
                left_kind.precision + right_kind.precision + 1, left_kind.scale + right_kind.scale
            )
            scale = spark("x + y", x=scales[0], y=scales[1])
            possible = {a + b for a in left.possible for b in right.possible}
        else:
            places = max(left_kind.scale, right_kind.scale)
            whole = max(
                left_kind.precision - left_kind.scale, right_kind.precision - right_kind.scale
            )
            kind = decimal(whole + places + 1, places)
            scale = spark("GREATEST(x, y)", x=scales[0], y=scales[1])
            possible = {max(a, b) for a in left.possible for b in right.possible}
        result = Value(spark(f"x {_OPERATORS[type(node)]} y", **sides), kind)
        return (
            result if len(possible) == 1 else replace(result, scale=scale, scales=tuple(possible))
        )

    def _negation(self, node: exp.Neg) -> Value:
        value = self.value(node.this)
        if not (value.kind.integer or value.kind.decimal):
            raise InexactError(shown_as(node))
        return replace(value, tree=spark("-x", x=value.tree))

    def _case(self, node: exp.Case) -> Value:
        tests, values = [], []
        for branch in node.args["ifs"]:
            test = branch.this
            if node.this is not None:
                test = exp.EQ(this=node.this.copy(), expression=test.copy())
            tests.append(self.condition(test))
            values.append(branch.args["true"])
        default = node.args.get("default")
        if default is not None:
            values.append(default)
        return self.one_of(tests, values)

    def one_of(self, tests: list[Tree], trees: Iterable[Tree]) -> Value:
        """Return a CASE; if there is one more value than tests, the last value is the default."""
        values = [
            None if isinstance(unwrapped(tree), exp.Null) else self.value(tree) for tree in trees
        ]
        present = [value for value in values if value is not None]
        kind = _common([value.kind for value in present])

        def case_of(parts: list[Tree]) -> Tree:
            ifs = [exp.If(this=t.copy(), true=p) for t, p in zip(tests, parts, strict=False)]
            default = parts[len(tests)] if len(parts) > len(tests) else None
            return exp.Case(ifs=ifs, default=default)

        def as_kind(value: Value | None) -> Tree:
            if value is None:
                return cast(exp.Null(), kind)
            return value.tree.copy() if value.kind == kind else cast(value.tree, kind)

        result = Value(case_of([as_kind(value) for value in values]), kind)
        if not kind.decimal or {s for value in present for s in value.possible} == {kind.scale}:
            return result
        scale = case_of([exp.Literal.number(0) if v is None else scale_of(v) for v in values])
        possible = {s for value in present for s in value.possible}
        return replace(result, scale=scale, scales=tuple(sorted(possible)))

    def _extract(self, node: exp.Extract) -> Value:
        value = self.value(node.expression)
        part = node.name.upper()
        if part not in ("YEAR", "MONTH", "DAY") or value.kind.name not in (
            "date",
            "timestamp without time zone",
        ):
            raise InexactError(shown_as(node))
        kind = decimal(10, 0)
        return Value(cast(spark(f"{part}(x)", x=value.tree), kind), kind)

    def substring(self, tree: Tree, start: Tree | None, length: Tree | None) -> Value:
        """Return a part of a text, given constant bounds."""
        value = self.value(tree)
        bounds = [unwrapped(item) for item in (start, length) if item is not None]
        if not bounds or not all(isinstance(b, exp.Literal) and b.name.isdigit() for b in bounds):
            raise InexactError("a substring whose bounds are no constants")
        if value.kind.name == "character":
            value = Value(spark("RTRIM(x)", x=value.tree), TEXT)
        if value.kind != TEXT or start is None or int(bounds[0].name) < 1:
            raise InexactError("such a substring")
        arguments = [value.tree, *(bound.copy() for bound in bounds)]
        return Value(exp.Anonymous(this="SUBSTRING", expressions=arguments), TEXT)

    def _concatenation(self, node: exp.DPipe) -> Value:
        left, right = self.value(node.this), self.value(node.expression)
        if left.kind != TEXT or right.kind != TEXT:
            raise InexactError(shown_as(node))
        return Value(spark("CONCAT(x, y)", x=left.tree, y=right.tree), TEXT)

    def _exists(self, node: exp.Exists) -> Value:
        return Value(self.names.exists(node), BOOLEAN)

    # Functions


_OPERATORS: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "DIV",
    exp.Mod: "%",
}


def _only_item(tree: Tree) -> Tree | None:
    """Return the item of an array of one item."""
    node = unwrapped(tree)
    if isinstance(node, exp.Array) and len(node.expressions) == 1:
        item: Tree = node.expressions[0]
        return item
    return None


_RULES: Mapping[type[exp.Expression] | tuple[type[exp.Expression], ...], Callable[..., Value]] = {
    exp.Cast: Scalars._cast,
    (exp.And, exp.Or): Scalars._connective,
    exp.Not: Scalars._not,
    exp.Is: Scalars._is,
    _COMPARISONS: Scalars._comparison,
    exp.Like: Scalars._like,
    (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod): Scalars._arithmetic,
    exp.Neg: Scalars._negation,
    exp.Case: Scalars._case,
    exp.Extract: Scalars._extract,
    exp.Substring: lambda self, node: self.substring(
        node.this, node.args.get("start"), node.args.get("length")
    ),
    exp.DPipe: Scalars._concatenation,
    exp.Exists: Scalars._exists,
    exp.Filter: filtered,
    exp.Anonymous: function,
}


_PARTS: Mapping[type[exp.Expression], tuple[str, ...]] = {
    exp.Cast: ("this", "to"),
    exp.Is: ("this", "expression", "negate"),
    exp.Like: ("this", "expression", "negate"),
    exp.Case: ("this", "ifs", "default"),
    exp.Substring: ("this", "start", "length"),
    exp.Div: ("this", "expression", "typed"),
    exp.DPipe: ("this", "expression", "safe"),
    exp.Anonymous: ("this", "expressions"),
}
"""The parts that trees may consist of; other trees have `this` and `expression`."""


def _common(kinds: list[Kind]) -> Kind:
    """Return the common type of several values."""
    if not kinds:
        raise InexactError("an expression that is always NULL")
    if all(kind.integer for kind in kinds):
        return max(kinds, key=lambda kind: INTEGERS[kind.name])
    if all(kind.integer or kind.decimal for kind in kinds):
        decimals = [as_decimal(kind) for kind in kinds]
        scale = max(kind.scale for kind in decimals)
        return decimal(max(kind.precision - kind.scale for kind in decimals) + scale, scale)
    if len(set(kinds)) > 1:
        raise InexactError(
            f"values of {' and '.join(sorted({kind.name for kind in kinds}))} in one"
        )
    return kinds[0]


def _is_all(tree: Tree) -> bool:
    return isinstance(tree, exp.Anonymous) and tree.name.upper() == "ALL" and bool(tree.expressions)
