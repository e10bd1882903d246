"""What is translated for Spark and what is refused, without Spark."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")

from sqlglot import exp

from orchestrator.algebra import dialect
from orchestrator.algebra.dialect import Tree
from orchestrator.spark.initial.kinds import InexactError, Value, named
from orchestrator.spark.initial.scalars import Scalars

COLUMNS = {
    "a": "integer",
    "b": "bigint",
    "n": "numeric(12,2)",
    "s": "text",
    "f": "double precision",
}


class Names:
    def column(self, node: exp.Column) -> Value:
        kind = named(COLUMNS[node.name])
        assert kind is not None
        return Value(exp.column(node.name), kind)

    def exists(self, node: exp.Exists) -> Tree:
        raise InexactError("a subquery")


def value(text: str) -> Value:
    def fold(constant: str) -> tuple[str, str | None]:
        raise InexactError(f"the constant {constant}")

    tree = dialect.parse(f"SELECT {text}").expressions[0]
    return Scalars(Names(), fold, frozenset()).value(tree)


@pytest.mark.parametrize(
    ("text", "written", "kind"),
    [
        ("sum(a)", "SUM(a)", "bigint"),
        ("sum(b)", "SUM(CAST(b AS DECIMAL(19, 0)))", "numeric"),
        ("count(a IS NOT NULL)", "COUNT(NOT (a IS NULL))", "bigint"),
        ("sum(n) FILTER (WHERE NOT a > b)", "SUM(CAST(n AS DECIMAL(12, 2))) FILTER(WHERE NOT (a > b))", "numeric"),
    ],
)  # fmt: skip
def test_what_is_translated(text: str, written: str, kind: str) -> None:
    translation = value(text)
    assert (translation.tree.sql("spark"), translation.kind.name) == (written, kind)


@pytest.mark.parametrize(
    "text",
    [
        *("max(s)", "sum(f)", "avg(a)", "array_agg(a)", "sum(a ORDER BY b)", "public.sum(a)", "a"),
        *("sum(n / n)", "count(s || a)", "sum(a) OVER ()", "count(DISTINCT f)", "max(a IN (SELECT 1))"),
    ],
)  # fmt: skip
def test_what_is_refused(text: str) -> None:
    with pytest.raises(InexactError):
        value(text)


def test_numbers_that_differ_in_their_scale_carry_it() -> None:
    translation = value("sum(CASE WHEN a > b THEN n ELSE n * n END)")
    assert translation.kind.scale == 4 and translation.scales == (2, 4)
    assert translation.scale is not None and "MAX" in translation.scale.sql("spark")
