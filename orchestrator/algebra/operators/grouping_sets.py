"""γ over several grouping sets at once: GROUPING SETS, ROLLUP and CUBE.

The result has a row for each set and each combination of values of its columns; columns outside the
set are NULL. ID = the grouping columns and a column that names the set of the row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from sqlglot import exp

from orchestrator.algebra import dialect
from orchestrator.algebra.columns import Column, Symbols
from orchestrator.algebra.dependencies import Columns, Dependencies, Keys
from orchestrator.algebra.dialect import Tree
from orchestrator.algebra.operators.base import Identified, listed
from orchestrator.algebra.operators.group import Aggregate, grouping_block
from orchestrator.algebra.operators.unary import Unary
from orchestrator.algebra.rendering import Block, Renderer
from orchestrator.algebra.scalar import Scalar
from orchestrator.algebra.unsupported import NotModelledError

_MOST_TAGGED = 31
"""The greatest number of arguments of GROUPING()."""


@dataclass(frozen=True)
class GroupingSets(Unary):
    """Groups by several sets of columns."""

    by: tuple[tuple[Column, Column], ...]
    """Output column and input column; they differ because the output may be NULL."""
    sets: tuple[tuple[int, ...], ...]
    """Positions in `by`."""
    aggregates: tuple[Aggregate, ...] = ()
    """Also calls of GROUPING, over input columns."""

    symbol: ClassVar[str] = "γ"

    @property
    def columns(self) -> tuple[Column, ...]:
        """The grouping columns and the aggregates."""
        return tuple(out for out, _ in self.by) + tuple(a.column for a in self.aggregates)

    @property
    def scalars(self) -> tuple[Scalar, ...]:
        """The calls of the aggregates."""
        return tuple(aggregate.call for aggregate in self.aggregates)

    def map_scalars(self, change: Callable[[Scalar], Scalar]) -> GroupingSets:
        """Return the operator with changed calls."""
        changed = tuple(replace(a, call=change(a.call)) for a in self.aggregates)
        return replace(self, aggregates=changed)

    @property
    def mentions(self) -> Columns:
        """The grouping columns of the input."""
        return frozenset(column for _, column in self.by)

    @property
    def label(self) -> str:
        """The symbol γ, the sets and the aggregates."""
        sets = listed(
            f"({listed(self.by[position][0] for position in set_)})" for set_ in self.sets
        )
        renamed = [f"{inner} → {out}" for out, inner in self.by]
        parts = [f"sets {sets}", listed(renamed), listed(self.aggregates)]
        return f"γ {'; '.join(part for part in parts if part)}"

    @property
    def distinct_sets(self) -> bool:
        """Whether all sets differ."""
        return len({frozenset(set_) for set_ in self.sets}) == len(self.sets)

    def identified(self, inputs: tuple[Identified, ...], symbols: Symbols) -> Identified:
        """Return ID = the grouping columns and, for several sets, a tag that distinguishes them."""
        [below] = inputs
        if not self.distinct_sets or len(self.by) > _MOST_TAGGED:
            raise NotModelledError("grouping sets that repeat have no IDs", self.label)
        outs = tuple(out for out, _ in self.by)
        tagged = replace(self, input=below.operator)
        if len(self.sets) == 1:
            return Identified(tagged, outs)
        tag = self._tag()
        if tag is None:
            tag = Column(symbols.fresh("set"), "integer", "integer_ops", exact=True)
            inner = [column for _, column in self.by]
            arguments = [dialect.reference(column.symbol) for column in inner]
            call = Scalar.of(exp.Anonymous(this="GROUPING", expressions=arguments), inner)
            tagged = replace(tagged, aggregates=(*self.aggregates, Aggregate(tag, call)))
        return Identified(tagged, (*outs, tag))

    def render(self, renderer: Renderer, outer: Mapping[Column, Tree]) -> Block:
        """Render as GROUP BY GROUPING SETS."""
        inner = tuple(column for _, column in self.by)
        block = grouping_block(renderer, self.input, inner, self.aggregates, outer)
        if len({dialect.write(block.outputs[column]) for column in inner}) < len(inner):
            # PostgreSQL takes equal expressions for one grouping column; a derived table separates
            # them.
            block = renderer.nested(block)
        names = {**outer, **block.outputs}
        outputs: dict[Column, Tree] = {out: names[column] for out, column in self.by}
        for aggregate in self.aggregates:
            outputs[aggregate.column] = renderer.tree(aggregate.call, names)
        sets = [
            exp.Tuple(expressions=[names[inner[position]].copy() for position in set_])
            for set_ in self.sets
        ]
        group = exp.Group(expressions=[exp.GroupingSets(expressions=sets)])
        return renderer.nested(replace(block, outputs=outputs, group=group))

    def _not_null(self) -> Columns:
        everywhere = {
            out
            for index, (out, column) in enumerate(self.by)
            if column in self.input.not_null and all(index in set_ for set_ in self.sets)
        }
        counts = {a.column for a in self.aggregates if a.function in ("count", "grouping")}
        return frozenset(everywhere | counts)

    def _dependencies(self) -> Dependencies:
        tags = [a.column for a in self.aggregates if a.function == "grouping"]
        return Dependencies.of([(key, tags) for key in self._keys()])

    def _keys(self) -> Keys:
        outs = {out for out, _ in self.by}
        if len(self.sets) == 1:
            return frozenset({frozenset(outs)})
        tag = self._tag()
        if not self.distinct_sets or tag is None:
            return frozenset()
        return frozenset({frozenset(outs | {tag})})

    def _tag(self) -> Column | None:
        """Return a column that distinguishes all sets: GROUPING of all grouping columns."""
        everything = frozenset(column for _, column in self.by)
        for aggregate in self.aggregates:
            if aggregate.function == "grouping" and aggregate.call.columns == everything:
                return aggregate.column
        return None
