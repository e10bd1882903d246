"""The columns of a state: what Spark computes for them, and how PostgreSQL completes them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from sqlglot import exp

from orchestrator.algebra import dialect
from orchestrator.algebra.dialect import Tree, reference
from orchestrator.algebra.scalar import unwrapped
from orchestrator.spark.initial.kinds import BIGINT, INTEGER, InexactError, Kind, Value
from orchestrator.spark.initial.scalars import Fold, Scalars
from orchestrator.spark.initial.words import has_aggregate, is_constant, shown_as, spark

ROW = "r"
"""The alias of the rows computed by Spark in PostgreSQL's statement."""


@dataclass(frozen=True)
class Staged:
    """A column that Spark returns, and the type with which PostgreSQL takes it."""

    name: str
    type: str


_NODES = (
    *(exp.Paren, exp.Cast, exp.Case, exp.If, exp.Neg, exp.And, exp.Or, exp.Not, exp.Is),
    *(exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod),
    *(exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE),
)
_FUNCTIONS = ("coalesce", "nullif", "round", "trunc", "ceil", "floor", "abs", "sign", "length")
"""The functions that PostgreSQL may compute from Spark's results; they read nothing else."""


@dataclass
class StateColumns:
    """Collects the columns of one query."""

    fold: Fold
    exact: bool = False
    """Whether Spark must compute everything, because a surrounding query reads the columns."""
    staged: list[Staged] = field(default_factory=list)
    outputs: list[Tree] = field(default_factory=list)
    values: list[Value | None] = field(default_factory=list)
    _trees: list[Tree] = field(default_factory=list)

    def items(self) -> list[Tree]:
        """Return the SELECT list."""
        return [
            exp.alias_(tree.copy(), staged.name)
            for tree, staged in zip(self._trees, self.staged, strict=True)
        ]

    def add(self, scalars: Scalars, tree: Tree) -> None:
        """Add a column."""
        try:
            value = scalars.value(tree)
        except InexactError:
            if self.exact:
                raise
            self.outputs.append(self._assemble(scalars, tree))
            self.values.append(None)
            return
        if value.scale is not None and not self.exact and not _is_whole(tree):
            # Its parts may have a fixed scale; then PostgreSQL computes the rest.
            try:
                self.outputs.append(self._assemble(scalars, tree))
                self.values.append(None)
                return
            except InexactError:
                pass
        self.outputs.append(self._reference(value))
        staged_value = replace(value, tree=exp.column(self._name_of(value.tree)))
        if value.scale is not None:
            staged_value = replace(staged_value, scale=exp.column(self._name_of(value.scale)))
        self.values.append(staged_value)

    def _reference(self, value: Value) -> Tree:
        """Return a value that Spark computes as a PostgreSQL expression over Spark's rows."""
        tree: Tree = reference(self._stage(value.tree, value.kind), ROW)
        if value.scale is not None:
            scale = reference(self._stage(value.scale, INTEGER), ROW)
            tree = exp.Anonymous(this="round", expressions=[tree, scale])
        return tree

    def _stage(self, tree: Tree, kind: Kind) -> str:
        for staged_tree, staged in zip(self._trees, self.staged, strict=True):
            if staged_tree == tree:
                return staged.name
        name = f"x{len(self.staged)}"
        self._trees.append(tree.copy())
        self.staged.append(Staged(name, kind.postgresql))
        return name

    def _name_of(self, tree: Tree) -> str:
        return next(s.name for t, s in zip(self._trees, self.staged, strict=True) if t == tree)

    def _assemble(self, scalars: Scalars, tree: Tree) -> Tree:
        """Return an expression in PostgreSQL's SQL over Spark's results."""
        node = unwrapped(tree)
        if is_constant(node):
            return exp.Paren(this=node.copy())
        if _is_aggregate(node):
            return self._aggregate(scalars, node)
        if isinstance(node, exp.Column):
            value = scalars.value(node)
            if value.kind.text:
                raise InexactError(f"{shown_as(tree)}, of a text whose collation counts")
            return self._reference(value)
        is_function = isinstance(node, exp.Anonymous) and node.name.lower() in _FUNCTIONS
        if not is_function and not isinstance(node, _NODES):
            raise InexactError(shown_as(tree))
        if not has_aggregate(node):
            # The largest part that Spark can compute is one column.
            try:
                value = scalars.value(node)
                if value.scale is None and not value.kind.text:
                    return self._reference(value)
            except InexactError:
                pass
        result = node.copy()
        for name, part in node.args.items():
            if isinstance(part, list):
                result.set(name, [self._part(scalars, item) for item in part])
            elif isinstance(part, exp.Expr):
                result.set(name, self._part(scalars, part))
        return exp.Paren(this=result)

    def _part(self, scalars: Scalars, part: Tree) -> Tree:
        if isinstance(part, (exp.DataType, exp.Identifier)):
            return part.copy()
        if isinstance(part, exp.If):
            return exp.If(
                this=self._assemble(scalars, part.this),
                true=self._assemble(scalars, part.args["true"]),
            )
        return self._assemble(scalars, part)

    def _aggregate(self, scalars: Scalars, node: Tree) -> Tree:
        try:
            return self._reference(scalars.value(node))
        except InexactError:
            call, condition = node, None
            if isinstance(node, exp.Filter):
                call, condition = node.this, node.expression.this
            if (
                scalars.grouped is None
                or not isinstance(call, exp.Anonymous)
                or len(call.expressions) != 1
            ):
                raise
            if call.name.lower() == "avg":
                return self._average(scalars, call, condition)
            if call.name.lower() == "sum":
                sum_by_scales = self._sum_by_scales(scalars, call, condition)
                if sum_by_scales is not None:
                    return sum_by_scales
            raise

    def _average(self, scalars: Scalars, call: exp.Anonymous, condition: Tree | None) -> Tree:
        """Return an average as avg() computes it: one division of the sum by the count."""
        total, count = (
            self._reference(
                scalars.value(
                    _filtered(exp.Anonymous(this=name, expressions=_copies(call)), condition)
                )
            )
            for name in ("sum", "count")
        )
        text = "CASE WHEN n > 0 THEN (s)::numeric / (n)::numeric END"
        return _filled(text, s=total, n=count)

    def _sum_by_scales(
        self, scalars: Scalars, call: exp.Anonymous, condition: Tree | None
    ) -> Tree | None:
        """Return the sum of an expression that depends only on the scale of a number.

        The sum is a constant for each possible scale, times the number of rows with this scale, plus the
        same for NULL.
        """
        [argument] = call.expressions
        inside = scalars.inside
        calls = [node for node in argument.find_all(exp.Anonymous) if node.name.lower() == "scale"]
        if not calls or len({dialect.write(item) for item in calls}) > 1:
            return None
        number = inside.value(calls[0].expressions[0])
        if not number.kind.decimal:
            return None
        parts: list[tuple[str, Tree]] = []
        for scale in (*number.possible, None):
            constant = _with_scale(argument, scale)
            if not is_constant(constant):
                return None
            type_, text = self.fold(dialect.write(constant))
            if type_ != "numeric":
                return None
            if text is None:
                continue
            test = spark("x IS NULL", x=number.tree)
            if scale is not None:
                test = spark("x IS NOT NULL", x=number.tree)
                if number.scale is not None:
                    has_scale = spark("s = n", s=number.scale, n=exp.Literal.number(scale))
                    test = exp.And(this=test, expression=has_scale)
            if condition is not None:
                translated = inside.condition(condition)
                test = exp.And(this=exp.Paren(this=test), expression=exp.Paren(this=translated))
            rows = exp.Filter(
                this=exp.Anonymous(this="COUNT", expressions=[exp.Star()]),
                expression=exp.Where(this=test),
            )
            parts.append((text, self._reference(Value(rows, BIGINT))))
        if not parts:
            return None
        names = [f"n{number}" for number in range(len(parts))]
        counts = " + ".join(names)
        terms = " + ".join(
            f"'{text}'::numeric * ({name})::numeric"
            for name, (text, _) in zip(names, parts, strict=True)
        )
        text = f"CASE WHEN ({counts}) > 0 THEN {terms} END"
        return _filled(text, **dict(zip(names, (count for _, count in parts), strict=True)))


def _filled(text: str, **parts: Tree) -> Tree:
    """Return an expression in PostgreSQL's SQL, with parts in the place of names."""

    def replaced(node: Tree) -> Tree:
        return parts[node.name].copy() if isinstance(node, exp.Column) else node

    tree: Tree = dialect.parse(f"SELECT {text}").expressions[0]
    result: Tree = tree.transform(replaced)
    return result


def _with_scale(argument: Tree, scale: int | None) -> Tree:
    """Return an expression with a constant in the place of the scale."""

    def replaced(node: Tree) -> Tree:
        if isinstance(node, exp.Anonymous) and node.name.lower() == "scale":
            if scale is not None:
                return exp.Literal.number(scale)
            integer = exp.DataType(this=exp.DType.USERDEFINED, kind="integer")
            return exp.Cast(this=exp.Null(), to=integer)
        return node

    return argument.copy().transform(replaced)


def _is_aggregate(node: Tree) -> bool:
    call = node.this if isinstance(node, exp.Filter) else node
    return isinstance(call, exp.Anonymous) and has_aggregate(
        exp.Anonymous(this=call.this, expressions=[])
    )


def _is_whole(tree: Tree) -> bool:
    node = unwrapped(tree)
    return isinstance(node, exp.Column) or _is_aggregate(node)


def _filtered(call: Tree, condition: Tree | None) -> Tree:
    if condition is None:
        return call
    return exp.Filter(this=call, expression=exp.Where(this=condition.copy()))


def _copies(call: exp.Anonymous) -> list[Tree]:
    return [argument.copy() for argument in call.expressions]
