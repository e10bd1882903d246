"""γ_{Ḡ, f(M̄)→c}(R): one row for each combination of values of Ḡ, with aggregates over its rows.

ID(γ(R)) = Ḡ. Without grouping columns there is exactly one row, and the IDs are empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from sqlglot import exp

from orchestrator.algebra.canonical import SQL_JSON_AGGREGATES
from orchestrator.algebra.columns import Column, Symbols
from orchestrator.algebra.dependencies import Columns, Dependencies, Keys
from orchestrator.algebra.dialect import Tree
from orchestrator.algebra.operators.base import Identified, Operator, listed
from orchestrator.algebra.operators.unary import Unary
from orchestrator.algebra.rendering import Block, Renderer
from orchestrator.algebra.scalar import Scalar, unwrapped


@dataclass(frozen=True)
class Aggregate:
    """An aggregate function over the rows of a group, and the column of its results."""

    column: Column
    call: Scalar
    """The call, with DISTINCT, ORDER BY and FILTER."""

    @property
    def function(self) -> str:
        """The name of the function: in lower case, with its schema unless that is pg_catalog."""
        tree = self._core()
        name = tree.name.lower() if isinstance(tree.this, str) else tree.name
        return f"{tree.parent.this.name}.{name}" if isinstance(tree.parent, exp.Dot) else name

    @property
    def arguments(self) -> tuple[Scalar, ...]:
        """The arguments.

        `count(*)` has none. SQL/JSON aggregates have none either, because their arguments are more
        than values.

        >>> from orchestrator.algebra.scalar import Scalar
        >>> call = Scalar.read("sum(DISTINCT a ORDER BY b) FILTER (WHERE c)", map(Column, "abc"))
        >>> Aggregate(Column("s"), call).arguments, Aggregate(Column("s"), call).distinct
        ((Scalar(a),), True)
        """
        return tuple(
            self.call.part(tree) for tree in self._arguments() if not isinstance(tree, exp.Star)
        )

    @property
    def distinct(self) -> bool:
        """Whether equal arguments count once."""
        return self._core().find(exp.Distinct) is not None

    @property
    def ordered(self) -> bool:
        """Whether the aggregate has an ORDER BY that its result depends on."""
        tree = self.call.tree
        return tree.find(exp.WithinGroup) is not None or self._core().find(exp.Order) is not None

    @property
    def within(self) -> tuple[tuple[Scalar, bool], ...]:
        """The expressions of WITHIN GROUP, each with whether its order is descending.

        >>> call = Scalar.read("mode() WITHIN GROUP (ORDER BY a DESC)", map(Column, "a"))
        >>> Aggregate(Column("m"), call).within
        ((Scalar(a), True),)
        """
        clause = self.call.tree.find(exp.WithinGroup)
        keys = clause.expression.expressions if clause else ()
        return tuple((self.call.part(key.this), bool(key.args.get("desc"))) for key in keys)

    @property
    def filter(self) -> Scalar | None:
        """The condition that a row must satisfy to be counted."""
        clause = self.call.tree.find(exp.Filter)
        return self.call.part(unwrapped(clause.expression.this)) if clause else None

    def _core(self) -> Tree:
        tree = self.call.tree
        while isinstance(tree, exp.Filter | exp.WithinGroup | exp.Dot):
            tree = tree.expression if isinstance(tree, exp.Dot) else tree.this
        return tree

    def _arguments(self) -> list[Tree]:
        if self._core().name in SQL_JSON_AGGREGATES:
            return []
        arguments: list[Tree] = self._core().expressions
        while arguments and isinstance(arguments[-1], exp.Order | exp.Distinct):
            last = arguments.pop()
            inner = last.this if isinstance(last, exp.Order) else last.expressions
            arguments += inner if isinstance(inner, list) else [inner]
        return arguments

    def __str__(self) -> str:
        """Return the call and its column."""
        return f"{self.call} → {self.column}"


@dataclass(frozen=True)
class Grouping(Unary):
    """Groups of rows with equal values in some columns, with aggregates over each group."""

    by: tuple[Column, ...]
    aggregates: tuple[Aggregate, ...] = ()

    symbol: ClassVar[str] = "γ"

    @property
    def is_never_empty(self) -> bool:
        """Whether all rows are one group, which exists without rows."""
        return not self.by

    @property
    def columns(self) -> tuple[Column, ...]:
        """The grouping columns and the aggregates."""
        return self.by + tuple(aggregate.column for aggregate in self.aggregates)

    @property
    def scalars(self) -> tuple[Scalar, ...]:
        """The calls of the aggregates."""
        return tuple(aggregate.call for aggregate in self.aggregates)

    def map_scalars(self, change: Callable[[Scalar], Scalar]) -> Grouping:
        """Return the grouping with changed calls."""
        changed = tuple(replace(a, call=change(a.call)) for a in self.aggregates)
        return replace(self, aggregates=changed)

    @property
    def mentions(self) -> Columns:
        """The grouping columns."""
        return frozenset(self.by)

    @property
    def label(self) -> str:
        """The symbol γ, the grouping columns and the aggregates."""
        parts = [listed(part) for part in (self.by, self.aggregates) if part]
        return f"γ {'; '.join(parts)}".rstrip()

    def identified(self, inputs: tuple[Identified, ...], symbols: Symbols) -> Identified:
        """Return ID(γ(R)) = Ḡ."""
        [below] = inputs
        return Identified(replace(self, input=below.operator), self.by)

    def render(self, renderer: Renderer, outer: Mapping[Column, Tree]) -> Block:
        """Render as GROUP BY."""
        block = grouping_block(renderer, self.input, self.by, self.aggregates, outer)
        names = {**outer, **block.outputs}
        outputs: dict[Column, Tree] = {column: block.outputs[column] for column in self.by}
        for aggregate in self.aggregates:
            outputs[aggregate.column] = renderer.tree(aggregate.call, names)
        if self.by:
            group = exp.Group(expressions=[outputs[column].copy() for column in self.by])
        else:
            group = exp.Group(expressions=[exp.Tuple()])
        return replace(block, outputs=outputs, group=group)

    def _not_null(self) -> Columns:
        counts = {a.column for a in self.aggregates if a.function == "count"}
        return (self.input.not_null & frozenset(self.by)) | counts

    def _dependencies(self) -> Dependencies:
        return self.input.dependencies.restricted(self.by)

    def _keys(self) -> Keys:
        return frozenset({frozenset(self.by)})


def grouping_block(
    renderer: Renderer,
    source: Operator,
    by: Iterable[Column],
    aggregates: Iterable[Aggregate],
    outer: Mapping[Column, Tree],
) -> Block:
    """Return the block to group, in which all grouping columns are plain columns of FROM.

    PostgreSQL may not recognize a GROUP BY expression again in SELECT, and reads a number as a
    position. An aggregate over outer columns alone would belong to the surrounding query.
    """
    block = renderer.plain(source, outer)
    read = {column for aggregate in aggregates for column in aggregate.call.references} & set(
        block.outputs
    )
    ready = block.named(*by) and not block.foreign({*by, *read}, outer)
    return block if ready else renderer.nested(block)
