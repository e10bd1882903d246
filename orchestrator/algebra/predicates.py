"""Facts that follow from conditions and from the structure of expressions.

Only operators without a schema are used. PostgreSQL writes all other operators as
OPERATOR(schema.=), so `=` is here always an operator of PostgreSQL, and these are strict.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from sqlglot import exp

from orchestrator.algebra.columns import Column
from orchestrator.algebra.dialect import Tree
from orchestrator.algebra.scalar import Scalar, unwrapped


@dataclass(frozen=True)
class Facts:
    """Facts that hold in each row for which a condition is true."""

    equal: tuple[tuple[Column, Column], ...] = ()
    constant: frozenset[Column] = frozenset()
    not_null: frozenset[Column] = frozenset()


_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)
_MATCHES = (exp.Like, exp.ILike, exp.RegexpLike, exp.RegexpILike)
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.Neg)
_FIRST_VALUE = ("COALESCE", "GREATEST", "LEAST")
_NUMBERS = ("smallint", "integer", "bigint", "numeric", "real", "double precision")


def facts(condition: Scalar, inputs: Collection[Column]) -> Facts:
    """Return the facts that a condition over some input columns establishes.

    A column that is not among the inputs belongs to a surrounding query and is constant here.

    >>> a, b = Column("a", "integer", "integer_ops"), Column("b", "integer", "integer_ops")
    >>> known = facts(Scalar.read("((a = b) AND (b > 1))", [a, b]), [a, b])
    >>> [sorted(map(str, pair)) for pair in known.equal], sorted(map(str, known.not_null))
    ([['a', 'b']], ['a', 'b'])
    """
    inputs = frozenset(inputs)
    equal: list[tuple[Column, Column]] = []
    constant: set[Column] = set()
    not_null: set[Column] = set()
    for conjunct in condition.conjuncts:
        not_null |= inputs.intersection(_columns_refusing_null(conjunct))
        sides = _equality_sides(conjunct)
        if sides is None:
            if is_null := _null_tested_column(conjunct):
                constant.add(is_null)
            continue
        columns = [side.as_column for side in sides]
        inside = [column for column in columns if column is not None and column in inputs]
        if len(inside) == 2 and inside[0].equality == inside[1].equality is not None:
            if inside[0] != inside[1]:
                equal.append((inside[0], inside[1]))
        elif len(inside) == 1 and inside[0].equality is not None:
            [other] = [side for side in sides if side.as_column != inside[0]]
            if not other.references & inputs and not other.subqueries:
                constant.add(inside[0])
    return Facts(tuple(equal), frozenset(constant), frozenset(not_null))


def equal_columns(
    conditions: Iterable[Scalar], inputs: Collection[Column] | None = None
) -> list[set[Column]]:
    """Return the classes of columns that some conditions together make equal.

    Without `inputs`, all columns that a condition reads count as its inputs.

    >>> a, b, c = (Column(name, "integer", "integer_ops") for name in "abc")
    >>> [equal] = equal_columns([Scalar.read("a = b", [a, b]), Scalar.read("c = b", [b, c])])
    >>> sorted(map(str, equal))
    ['a', 'b', 'c']
    """
    classes: list[set[Column]] = []
    for condition in conditions:
        for pair in facts(condition, condition.references if inputs is None else inputs).equal:
            apart = [members for members in classes if not members & set(pair)]
            merged = set(pair).union(*(members for members in classes if members & set(pair)))
            classes = [*apart, merged]
    return classes


def equated_only(condition: Scalar, column: Column) -> bool:
    """Return whether a condition reads a column only in equalities with other columns."""
    return all(
        (sides := _equality_sides(conjunct)) is not None and all(side.as_column for side in sides)
        for conjunct in condition.conjuncts
        if column in conjunct.references
    )


def never_null(scalar: Scalar, not_null: Collection[Column]) -> bool:
    """Return whether an expression is never NULL, given the columns that are never NULL.

    >>> a, b = Column("a", "integer"), Column("b", "integer")
    >>> never_null(Scalar.read("((a + 1) > 2)", [a]), {a})
    True
    >>> never_null(Scalar.read("COALESCE(b, a)", [a, b]), {a})
    True
    >>> never_null(Scalar.read("(a + b)", [a, b]), {a})
    False
    >>> never_null(Scalar.read("(a)::double precision", [a]), {a})
    True
    """
    known = {column.symbol: column for column in scalar.columns if column in not_null}

    def has_value(tree: Tree) -> bool:
        tree = unwrapped(tree)
        if isinstance(tree, exp.Column):
            return tree.name in known
        if isinstance(tree, exp.Literal | exp.Boolean | exp.Exists):
            return True
        if isinstance(tree, exp.Is):
            return isinstance(tree.expression, exp.Null | exp.Boolean)
        if isinstance(tree, exp.Cast):
            # The function of a cast may return NULL. Reading a constant never does, and neither
            # does a conversion between number types.
            if is_number(tree) and is_number(tree.this):
                return has_value(tree.this)
            return isinstance(unwrapped(tree.this), exp.Literal)
        if isinstance(tree, exp.Not):
            return has_value(tree.this)
        if isinstance(tree, exp.And | exp.Or):
            return has_value(tree.this) and has_value(tree.expression)
        if isinstance(tree, _COMPARISONS):
            return all(_plain(side) and has_value(side) for side in (tree.this, tree.expression))
        if isinstance(tree, _ARITHMETIC):
            return is_number(tree) and all(has_value(side) for side in _operands(tree))
        if isinstance(tree, exp.Case):
            results = [branch.args["true"] for branch in tree.args["ifs"]]
            last = tree.args.get("default")
            return last is not None and all(has_value(result) for result in (*results, last))
        if isinstance(tree, exp.Anonymous) and str(tree.this).upper() in _FIRST_VALUE:
            return any(has_value(argument) for argument in tree.expressions)
        return False

    def is_number(tree: Tree) -> bool:
        tree = unwrapped(tree)
        if isinstance(tree, exp.Column):
            kind = known[tree.name].type if tree.name in known else None
            return kind is not None and kind.split("(")[0] in _NUMBERS
        if isinstance(tree, exp.Cast):
            return str(tree.to.args.get("kind")).split("(")[0] in _NUMBERS
        if isinstance(tree, _ARITHMETIC):
            return all(is_number(side) for side in _operands(tree))
        return isinstance(tree, exp.Literal) and not tree.is_string

    return has_value(scalar.tree)


def _operands(tree: Tree) -> list[Tree]:
    return [tree.this] if isinstance(tree, exp.Neg) else [tree.this, tree.expression]


def _plain(tree: Tree) -> bool:
    """Return whether an operand is a single value, and not a row or a set of values."""
    tree = unwrapped(tree)
    if isinstance(tree, exp.Anonymous) and isinstance(tree.this, str):
        return tree.this.upper() not in ("ROW", "ALL", "ANY")
    return not isinstance(tree, exp.Any | exp.All | exp.Tuple | exp.Subquery | exp.Parameter)


def _equality_sides(conjunct: Scalar) -> tuple[Scalar, Scalar] | None:
    tree = unwrapped(conjunct.tree)
    if isinstance(tree, exp.EQ) and _plain(tree.this) and _plain(tree.expression):
        return conjunct.part(tree.this), conjunct.part(tree.expression)
    return None


def _null_tested_column(conjunct: Scalar) -> Column | None:
    tree = unwrapped(conjunct.tree)
    if _is_null_test(tree) and not tree.args.get("negate"):
        column = conjunct.part(tree.this).as_column
        # A row of NULLs IS NULL, although it is not equal to NULL.
        if column is not None and not (column.equality or "record").startswith("record"):
            return column
    return None


def _is_null_test(tree: Tree) -> bool:
    return isinstance(tree, exp.Is) and isinstance(tree.expression, exp.Null)


def _columns_refusing_null(conjunct: Scalar) -> Iterator[Column]:
    """Yield the columns that are not NULL if the conjunct is true."""
    tree = unwrapped(conjunct.tree)
    inner = unwrapped(tree.this) if isinstance(tree, exp.Not) else None
    sides: list[Tree] = []
    if _is_null_test(tree):
        sides = [tree.this] if tree.args.get("negate") else []
    elif isinstance(tree, _COMPARISONS) and isinstance(tree.expression, exp.Any):
        # `x = ANY (...)` needs a matching element; `x <> ALL (...)` is also true for an empty set.
        sides = [tree.this]
    elif _is_strict(tree):
        sides = [tree.this, tree.expression]
    elif isinstance(tree, exp.Column):
        sides = [tree]
    elif inner is not None and _is_null_test(inner):
        sides = [] if inner.args.get("negate") else [inner.this]
    elif inner is not None and _is_strict(inner):
        sides = [inner.this, inner.expression]
    elif inner is not None:
        sides = [inner]
    for side in sides:
        column = conjunct.part(side).as_column
        if column is not None:
            yield column


def _is_strict(tree: Tree) -> bool:
    """Return whether a tree compares two values, so that it is NULL if one of them is NULL."""
    if isinstance(tree, _COMPARISONS):
        return _plain(tree.this) and _plain(tree.expression)
    return isinstance(tree, _MATCHES)
