"""Scalar expressions in Spark's words, where Spark gives PostgreSQL's answer to the bit.

What is not known to be the same is an `InexactError`, which says what it is. Spark runs with ANSI
mode on and without loss of decimal places: what overflows is an error there and no NULL, so that a
state is either right or computed in PostgreSQL.

- Integers: sums, differences, products, quotients and remainders; PostgreSQL's types of results.
- Numerics of known scale: sums, differences, products. A quotient's places depend on its values.
  Where the values of an expression differ in their scale, each one's scale is computed beside it.
- Texts: equality, LIKE, substring, length, concatenation; what sorts or folds case depends on a
  collation.
- Dates and timestamps: comparisons, and parts of them. Constants are computed by PostgreSQL.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Protocol

from sqlglot import exp

from orchestrator.algebra import dialect
from orchestrator.algebra.dialect import Tree
from orchestrator.algebra.scalar import unwrapped
from orchestrator.spark.kinds import (
    BIGINT,
    BOOLEAN,
    INTEGER,
    INTEGERS,
    TEXT,
    InexactError,
    Kind,
    Value,
    as_decimal,
    decimal,
    named,
)

Fold = Callable[[str], tuple[str, str | None]]
"""The type and the text of a constant, as PostgreSQL computes it."""

AGGREGATES = ("count", "sum", "min", "max", "bool_and", "bool_or", "every", "avg")
_SPECIAL = ("NaN", "Infinity", "-Infinity")

_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ)
_NEGATIVE = (exp.NEQ, exp.NullSafeNEQ)


class Names(Protocol):
    """What columns and subqueries are in Spark."""

    def column(self, node: exp.Column) -> Value:
        """A column."""

    def exists(self, node: exp.Exists) -> Tree:
        """Whether a subquery has rows."""


def spark(text: str, **parts: Tree) -> Tree:
    """An expression of Spark's own words; names stand for parts.

    >>> spark("RTRIM(x) = 'a'", x=exp.column("name")).sql("spark")
    "RTRIM(name) = 'a'"
    """
    template: Tree = exp.maybe_parse(text, dialect="spark")

    def replaced(node: Tree) -> Tree:
        if isinstance(node, exp.Column) and not node.table and node.name in parts:
            part = parts[node.name].copy()
            return part if isinstance(part, _CLOSED) else exp.Paren(this=part)
        return node

    made: Tree = template.copy().transform(replaced)
    return made


_CLOSED = (exp.Column, exp.Literal, exp.Paren, exp.Cast, exp.Boolean, exp.Null, exp.Case)


def is_constant(tree: Tree) -> bool:
    """Whether an expression reads nothing."""
    reads = (exp.Column, exp.Parameter, exp.Select, exp.Window, exp.Star)
    return not any(
        isinstance(node, reads)
        or (isinstance(node, exp.Anonymous) and node.name.lower() in AGGREGATES)
        for node in tree.walk()
    )


def has_aggregate(tree: Tree) -> bool:
    """Whether an expression holds a call of a known aggregate function."""
    return any(node.name.lower() in AGGREGATES for node in tree.find_all(exp.Anonymous))


@dataclass(frozen=True)
class Scalars:
    """Translates expressions over the columns of a query."""

    names: Names
    fold: Fold
    grouped: frozenset[str] | None = None
    """In a query with groups, outside of aggregates: the columns of which these are."""

    def value(self, tree: Tree) -> Value:
        """An expression, its type and scale."""
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
        """A condition."""
        value = self.value(tree)
        if value.kind != BOOLEAN:
            raise InexactError(shown_as(tree))
        return value.tree

    # Constants

    def _constant(self, node: Tree) -> Value:
        type_, text = self._known(node)
        kind = named(type_)
        if type_ == "numeric":
            if text in _SPECIAL:
                raise InexactError(f"the constant {text}")
            kind = _literal_kind(text or "0")
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
        return Value(_cast(literal, kind), kind)

    def _known(self, node: Tree) -> tuple[str, str | None]:
        if isinstance(node, exp.Boolean):
            return "boolean", "t" if node.this else "f"
        digits = isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit()
        if digits and int(node.name) < 1 << 31:
            return "integer", node.name
        return self.fold(dialect.write(node))

    def special(self, tree: Tree) -> bool:
        """Whether an expression is NaN or an infinity, which numerics of a scale do not hold."""
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
            return value if source.decimal else Value(_cast(value.tree, wanted), wanted)
        if kind is not None and kind.integer and source.integer:
            return Value(_cast(value.tree, kind), kind)
        if kind is not None and kind.decimal and (source.integer or source.decimal):
            return Value(_cast(value.tree, kind), kind)
        if kind == TEXT and (source.integer or source == TEXT) and "(" not in type_:
            return value if source == TEXT else Value(_cast(value.tree, TEXT), TEXT)
        if kind == TEXT and source.name == "character" and type_ == "text":
            return Value(spark("RTRIM(x)", x=value.tree), TEXT)
        if type_ == "timestamp without time zone" and source.name == "date":
            assert kind is not None
            return Value(_cast(value.tree, kind), kind)
        raise InexactError(f"a cast of {source.name} to {type_}")

    def _connective(self, node: exp.And | exp.Or) -> Value:
        made = type(node)(
            this=_closed(self.condition(node.this)),
            expression=_closed(self.condition(node.expression)),
        )
        return Value(made, BOOLEAN)

    def _not(self, node: exp.Not) -> Value:
        return Value(exp.Not(this=_closed(self.condition(node.this))), BOOLEAN)

    def _is(self, node: exp.Is) -> Value:
        if isinstance(node.expression, exp.Null):
            value = self.value(node.this)
        elif isinstance(node.expression, exp.Boolean):
            value = Value(self.condition(node.this), BOOLEAN)
        else:
            raise InexactError(shown_as(node))
        tree: Tree = exp.Is(this=_closed(value.tree), expression=node.expression.copy())
        return Value(
            exp.Not(this=exp.Paren(this=tree)) if node.args.get("negate") else tree, BOOLEAN
        )

    def _comparison(self, node: exp.Binary) -> Value:
        for one, other in ((node.this, node.expression), (node.expression, node.this)):
            if self.special(other):
                return self._with_special(node, one, other, other is node.expression)
        if isinstance(node, exp.EQ) and isinstance(node.expression, exp.Any):
            return self._among(node.this, node.expression.this, exp.EQ, exp.Or)
        if isinstance(node, exp.NEQ) and _is_all(node.expression):
            return self._among(node.this, node.expression.expressions[0], exp.NEQ, exp.And)
        return self.compared(type(node), self.value(node.this), self.value(node.expression))

    def compared(self, kind: type[exp.Binary], left: Value, right: Value) -> Value:
        """Two values compared."""
        equality = kind in (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ)
        one, other = left.kind, right.kind
        numbers = all(k.integer or k.decimal for k in (one, other))
        times = {one.name, other.name} == {"date", "timestamp without time zone"}
        sides = [left.tree, right.tree]
        if one.name == other.name == "character":
            # Blanks at the end do not count.
            sides = [spark("RTRIM(x)", x=side) for side in sides]
        elif times:
            sides = [_cast(side, named("timestamp without time zone")) for side in sides]
        elif not numbers and one.name != other.name:
            raise InexactError(f"a comparison of {one.name} with {other.name}")
        if not (one.comparable and other.comparable) or not (
            equality or (one.ordered and other.ordered)
        ):
            raise InexactError(f"a comparison of {one.name} by order or equality")
        return Value(kind(this=_closed(sides[0]), expression=_closed(sides[1])), BOOLEAN)

    def _with_special(self, node: exp.Binary, one: Tree, special: Tree, right: bool) -> Value:
        """A finite number beside NaN, which is above all others, or an infinity."""
        value = self.value(one)
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

    def _among(
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
        tree: Tree = exp.Like(this=_closed(value.tree), expression=exp.Literal.string(text))
        return Value(
            exp.Not(this=exp.Paren(this=tree)) if node.args.get("negate") else tree, BOOLEAN
        )

    def _arithmetic(self, node: exp.Binary) -> Value:
        left, right = self.value(node.this), self.value(node.expression)
        if left.kind.integer and right.kind.integer:
            kind = max(left.kind, right.kind, key=lambda k: INTEGERS[k.name])
            sides = {"x": _cast(left.tree, kind), "y": _cast(right.tree, kind)}
            return Value(_cast(spark(f"x {_OPERATORS[type(node)]} y", **sides), kind), kind)
        if not all(v.kind.integer or v.kind.decimal for v in (left, right)):
            raise InexactError(shown_as(node))
        if isinstance(node, (exp.Div, exp.Mod)):
            raise InexactError("a quotient of numerics, whose places depend on the values")
        one, other = as_decimal(left.kind), as_decimal(right.kind)
        sides = {"x": _cast(left.tree, one), "y": _cast(right.tree, other)}
        scales = [_scale(left), _scale(right)]
        if isinstance(node, exp.Mul):
            kind = decimal(one.precision + other.precision + 1, one.scale + other.scale)
            scale = spark("x + y", x=scales[0], y=scales[1])
            possible = {a + b for a in left.possible for b in right.possible}
        else:
            places = max(one.scale, other.scale)
            whole = max(one.precision - one.scale, other.precision - other.scale)
            kind = decimal(whole + places + 1, places)
            scale = spark("GREATEST(x, y)", x=scales[0], y=scales[1])
            possible = {max(a, b) for a in left.possible for b in right.possible}
        made = Value(spark(f"x {_OPERATORS[type(node)]} y", **sides), kind)
        return made if len(possible) == 1 else replace(made, scale=scale, scales=tuple(possible))

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
        return self._one_of(tests, values)

    def _one_of(self, tests: list[Tree], trees: Iterable[Tree]) -> Value:
        """A CASE; with one value more than tests, the last is what remains."""
        values = [
            None if isinstance(unwrapped(tree), exp.Null) else self.value(tree) for tree in trees
        ]
        given = [value for value in values if value is not None]
        kind = _common([value.kind for value in given])

        def chosen(parts: list[Tree]) -> Tree:
            ifs = [exp.If(this=t.copy(), true=p) for t, p in zip(tests, parts, strict=False)]
            default = parts[len(tests)] if len(parts) > len(tests) else None
            return exp.Case(ifs=ifs, default=default)

        def cast(value: Value | None) -> Tree:
            if value is None:
                return _cast(exp.Null(), kind)
            return value.tree.copy() if value.kind == kind else _cast(value.tree, kind)

        made = Value(chosen([cast(value) for value in values]), kind)
        if not kind.decimal or {s for value in given for s in value.possible} == {kind.scale}:
            return made
        scale = chosen([exp.Literal.number(0) if v is None else _scale(v) for v in values])
        possible = {s for value in given for s in value.possible}
        return replace(made, scale=scale, scales=tuple(sorted(possible)))

    def _extract(self, node: exp.Extract) -> Value:
        value = self.value(node.expression)
        part = node.name.upper()
        if part not in ("YEAR", "MONTH", "DAY") or value.kind.name not in (
            "date",
            "timestamp without time zone",
        ):
            raise InexactError(shown_as(node))
        kind = decimal(10, 0)
        return Value(_cast(spark(f"{part}(x)", x=value.tree), kind), kind)

    def _substring(self, tree: Tree, start: Tree | None, length: Tree | None) -> Value:
        value = self.value(tree)
        bounds = [unwrapped(one) for one in (start, length) if one is not None]
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

    def _filtered(self, node: exp.Filter) -> Value:
        return self.aggregate(node.this, self._inside().condition(node.expression.this))

    def _function(self, node: exp.Anonymous) -> Value:
        name, arguments = node.name.lower(), node.expressions
        if isinstance(node.this, exp.Identifier) and node.this.name == "substring":
            return self._substring(*(*arguments, None, None)[:3])
        if name in AGGREGATES:
            return self.aggregate(node, None)
        if name == "coalesce":
            tests = [self._is(exp.Is(this=a.copy(), expression=exp.Null())).tree for a in arguments]
            return self._one_of([exp.Not(this=exp.Paren(this=t)) for t in tests[:-1]], arguments)
        if name == "nullif" and len(arguments) == 2:
            value = self.value(arguments[0])
            same = self.compared(exp.EQ, value, self.value(arguments[1]))
            tree = spark("CASE WHEN x THEN NULL ELSE y END", x=same.tree, y=value.tree)
            return replace(value, tree=tree)
        if name == "scale" and len(arguments) == 1:
            value = self.value(arguments[0])
            if value.kind.decimal:
                parts = {"x": value.tree, "s": _scale(value)}
                return Value(spark("CASE WHEN x IS NOT NULL THEN s END", **parts), INTEGER)
        if name in ("length", "char_length") and len(arguments) == 1:
            value = self.value(arguments[0])
            if value.kind == TEXT:
                return Value(spark("CHAR_LENGTH(x)", x=value.tree), INTEGER)
        raise InexactError(f"the function {name}")

    def _inside(self) -> Scalars:
        """For what an aggregate reads."""
        return replace(self, grouped=None)

    def aggregate(self, node: Tree, condition: Tree | None) -> Value:
        """A call of an aggregate function, over the rows of a condition if there is one."""
        if not isinstance(node, exp.Anonymous) or self.grouped is None:
            raise InexactError(shown_as(node))
        name, arguments = node.name.lower(), list(node.expressions)
        distinct = len(arguments) == 1 and isinstance(arguments[0], exp.Distinct)
        if distinct:
            only(arguments[0], "expressions")
            arguments = arguments[0].expressions
        if name == "count" and arguments and isinstance(arguments[0], exp.Star):
            return Value(_call("COUNT", exp.Star(), condition), BIGINT)
        if name not in AGGREGATES or len(arguments) != 1 or name == "avg":
            raise InexactError(f"the aggregate {shown_as(node)}")
        value = self._inside().value(arguments[0])
        kind = value.kind
        if distinct and (not kind.comparable or kind.name == "character"):
            raise InexactError(f"different values of type {kind.name}")
        if name == "count":
            return Value(_call("COUNT", value.tree, condition, distinct), BIGINT)
        if name in ("min", "max") and kind.ordered and value.scale is None:
            return Value(_call(name.upper(), value.tree, condition), kind)
        if name in ("bool_and", "bool_or", "every") and kind == BOOLEAN:
            word = "BOOL_OR" if name == "bool_or" else "BOOL_AND"
            return Value(_call(word, value.tree, condition), BOOLEAN)
        if name == "sum" and kind.integer and kind != BIGINT:
            return Value(_call("SUM", value.tree, condition, distinct), BIGINT)
        if name == "sum" and (kind.decimal or kind == BIGINT):
            if distinct and value.scale is not None:
                raise InexactError("the sum of different numerics that differ in their scale")
            wide = as_decimal(kind)
            tree = _call("SUM", _cast(value.tree, wide), condition, distinct)
            made = Value(tree, decimal(wide.precision + 10, wide.scale))
            if value.scale is None:
                return made
            shown = spark("CASE WHEN x IS NOT NULL THEN s END", x=value.tree, s=value.scale)
            return replace(made, scale=_call("MAX", shown, condition), scales=value.scales)
        raise InexactError(f"the aggregate {name} of {kind.name}")


_OPERATORS: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "DIV",
    exp.Mod: "%",
}

_RULES: Mapping[type[exp.Expression] | tuple[type[exp.Expression], ...], Callable[..., Value]] = {
    exp.Cast: Scalars._cast,
    (exp.And, exp.Or): Scalars._connective,
    exp.Not: Scalars._not,
    exp.Is: Scalars._is,
    _COMPARISONS: Scalars._comparison,
    exp.Like: Scalars._like,
    tuple(_OPERATORS): Scalars._arithmetic,
    exp.Neg: Scalars._negation,
    exp.Case: Scalars._case,
    exp.Extract: Scalars._extract,
    exp.Substring: lambda self, node: self._substring(
        node.this, node.args.get("start"), node.args.get("length")
    ),
    exp.DPipe: Scalars._concatenation,
    exp.Exists: Scalars._exists,
    exp.Filter: Scalars._filtered,
    exp.Anonymous: Scalars._function,
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
"""What trees may consist of; the others have a left and a right side, or one."""


def only(tree: Tree, *parts: str) -> None:
    """Refuses a tree that has more to it than these parts: it would be lost."""
    if more := {name for name, value in tree.args.items() if value} - set(parts):
        raise InexactError(f"{', '.join(sorted(name.strip('_').upper() for name in more))}")


def _common(kinds: list[Kind]) -> Kind:
    """The type that several have in common."""
    if not kinds:
        raise InexactError("an expression that is always NULL")
    if all(kind.integer for kind in kinds):
        return max(kinds, key=lambda kind: INTEGERS[kind.name])
    if all(kind.integer or kind.decimal for kind in kinds):
        made = [as_decimal(kind) for kind in kinds]
        scale = max(kind.scale for kind in made)
        return decimal(max(kind.precision - kind.scale for kind in made) + scale, scale)
    if len(set(kinds)) > 1:
        raise InexactError(
            f"values of {' and '.join(sorted({kind.name for kind in kinds}))} in one"
        )
    return kinds[0]


def _scale(value: Value) -> Tree:
    return exp.Literal.number(value.kind.scale) if value.scale is None else value.scale.copy()


def _cast(tree: Tree, kind: Kind | None) -> Tree:
    assert kind is not None
    return exp.Cast(this=tree.copy(), to=exp.DataType.build(kind.spark, dialect="spark"))


def _closed(tree: Tree) -> Tree:
    return tree if isinstance(tree, _CLOSED) else exp.Paren(this=tree)


def _call(name: str, argument: Tree, condition: Tree | None, distinct: bool = False) -> Tree:
    inner = exp.Distinct(expressions=[argument]) if distinct else argument
    call = exp.Anonymous(this=name, expressions=[inner.copy()])
    if condition is None:
        return call
    return exp.Filter(this=call, expression=exp.Where(this=condition.copy()))


def _literal_kind(text: str) -> Kind:
    match = re.fullmatch(r"-?(\d+)(?:\.(\d+))?", text)
    if match is None:
        raise InexactError(f"the constant {text}")
    places = len(match[2] or "")
    return decimal(len(match[1].lstrip("0")) + places, places)


def _is_all(tree: Tree) -> bool:
    return isinstance(tree, exp.Anonymous) and tree.name.upper() == "ALL" and bool(tree.expressions)


def shown_as(tree: Tree) -> str:
    """An expression for a reason, with what its columns are called."""

    def bare(node: Tree) -> Tree:
        if isinstance(node, exp.Column):
            return dialect.reference(node.name.partition("\0")[0])
        return node

    text = dialect.write(tree.copy().transform(bare))
    return text if len(text) <= 60 else f"{text[:57]}..."
