"""What a condition tells of the rows that satisfy it, and an expression of its value.

Only operators without a schema count. PostgreSQL writes the others as OPERATOR(schema.=), so that
`=` here is always one of its own, which are strict.
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
    """What holds in every row for which a condition is true."""

    equal: tuple[tuple[Column, Column], ...] = ()
    constant: frozenset[Column] = frozenset()
    not_null: frozenset[Column] = frozenset()


_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)
_MATCHES = (exp.Like, exp.ILike, exp.RegexpLike, exp.RegexpILike)
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.Neg)
_FIRST_VALUE = ("COALESCE", "GREATEST", "LEAST")
_NUMBERS = ("smallint", "integer", "bigint", "numeric", "real", "double precision")


def facts(condition: Scalar, inputs: Collection[Column]) -> Facts:
    """The facts that a condition over some input columns establishes.

    A column that is not among the inputs comes from a query further out, and is constant here.

    >>> a, b = Column("a", "integer", "integer_ops"), Column("b", "integer", "integer_ops")
    >>> found = facts(Scalar.read("((a = b) AND (b > 1))", [a, b]), [a, b])
    >>> [sorted(map(str, pair)) for pair in found.equal], sorted(map(str, found.not_null))
    ([['a', 'b']], ['a', 'b'])
    """
    inputs = frozenset(inputs)
    equal: list[tuple[Column, Column]] = []
    constant: set[Column] = set()
    not_null: set[Column] = set()
    for conjunct in condition.conjuncts:
        not_null |= inputs.intersection(_refusing_null(conjunct))
        sides = _equated(conjunct)
        if sides is None:
            if is_null := _null_tested(conjunct):
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
    """The columns that some conditions together make equal; of some inputs, or all that they read.

    >>> a, b, c = (Column(name, "integer", "integer_ops") for name in "abc")
    >>> [found] = equal_columns([Scalar.read("a = b", [a, b]), Scalar.read("c = b", [b, c])])
    >>> sorted(map(str, found))
    ['a', 'b', 'c']
    """
    classes: list[set[Column]] = []
    for condition in conditions:
        for pair in facts(condition, condition.references if inputs is None else inputs).equal:
            apart = [change_class for change_class in classes if not change_class & set(pair)]
            merged = set(pair).union(
                *(change_class for change_class in classes if change_class & set(pair))
            )
            classes = [*apart, merged]
    return classes


def equated_only(condition: Scalar, column: Column) -> bool:
    """Whether a condition reads a column in plain equalities with other columns and nowhere else."""
    return all(
        (sides := _equated(conjunct)) is not None and all(side.as_column for side in sides)
        for conjunct in condition.conjuncts
        if column in conjunct.references
    )


def never_null(scalar: Scalar, not_null: Collection[Column]) -> bool:
    """Whether an expression is sure to have a value.

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

    def sure(tree: Tree) -> bool:
        tree = unwrapped(tree)
        if isinstance(tree, exp.Column):
            return tree.name in known
        if isinstance(tree, exp.Literal | exp.Boolean | exp.Exists):
            return True
        if isinstance(tree, exp.Is):
            return isinstance(tree.expression, exp.Null | exp.Boolean)
        if isinstance(tree, exp.Cast):
            # A function behind a cast may return NULL; the reading of a constant does not, nor what
            # makes one kind of number another.
            if is_number(tree) and is_number(tree.this):
                return sure(tree.this)
            return isinstance(unwrapped(tree.this), exp.Literal)
        if isinstance(tree, exp.Not):
            return sure(tree.this)
        if isinstance(tree, exp.And | exp.Or):
            return sure(tree.this) and sure(tree.expression)
        if isinstance(tree, _COMPARISONS):
            return all(_plain(side) and sure(side) for side in (tree.this, tree.expression))
        if isinstance(tree, _ARITHMETIC):
            return is_number(tree) and all(sure(side) for side in _operands(tree))
        if isinstance(tree, exp.Case):
            results = [branch.args["true"] for branch in tree.args["ifs"]]
            last = tree.args.get("default")
            return last is not None and all(sure(result) for result in (*results, last))
        if isinstance(tree, exp.Anonymous) and str(tree.this).upper() in _FIRST_VALUE:
            return any(sure(argument) for argument in tree.expressions)
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

    return sure(scalar.tree)


def _operands(tree: Tree) -> list[Tree]:
    return [tree.this] if isinstance(tree, exp.Neg) else [tree.this, tree.expression]


def _plain(tree: Tree) -> bool:
    """Whether a comparison with this side compares two values, and not rows or sets of values."""
    tree = unwrapped(tree)
    if isinstance(tree, exp.Anonymous) and isinstance(tree.this, str):
        return tree.this.upper() not in ("ROW", "ALL", "ANY")
    return not isinstance(tree, exp.Any | exp.All | exp.Tuple | exp.Subquery | exp.Parameter)


def _equated(conjunct: Scalar) -> tuple[Scalar, Scalar] | None:
    tree = unwrapped(conjunct.tree)
    if isinstance(tree, exp.EQ) and _plain(tree.this) and _plain(tree.expression):
        return conjunct.part(tree.this), conjunct.part(tree.expression)
    return None


def _null_tested(conjunct: Scalar) -> Column | None:
    tree = unwrapped(conjunct.tree)
    if _is_null_test(tree) and not tree.args.get("negate"):
        column = conjunct.part(tree.this).as_column
        # A row of nothing but NULLs IS NULL and still differs from NULL.
        if column is not None and not (column.equality or "record").startswith("record"):
            return column
    return None


def _is_null_test(tree: Tree) -> bool:
    return isinstance(tree, exp.Is) and isinstance(tree.expression, exp.Null)


def _refusing_null(conjunct: Scalar) -> Iterator[Column]:
    """The columns that are not NULL where the conjunct is true."""
    tree = unwrapped(conjunct.tree)
    inner = unwrapped(tree.this) if isinstance(tree, exp.Not) else None
    sides: list[Tree] = []
    if _is_null_test(tree):
        sides = [tree.this] if tree.args.get("negate") else []
    elif isinstance(tree, _COMPARISONS) and isinstance(tree.expression, exp.Any):
        # `x = ANY (...)` is true of some element; `x <> ALL (...)` is also true of none.
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
    """Whether a tree compares two values, so that it is neither true nor false of a NULL."""
    if isinstance(tree, _COMPARISONS):
        return _plain(tree.this) and _plain(tree.expression)
    return isinstance(tree, _MATCHES)
