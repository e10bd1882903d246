"""The types of columns to create for CSV, whose values are texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_INFERRED = (
    ("integer", "try_cast({0} AS int) IS NOT NULL AND {0} RLIKE '^(0|-?[1-9][0-9]*)$'"),
    ("bigint", "try_cast({0} AS bigint) IS NOT NULL AND {0} RLIKE '^(0|-?[1-9][0-9]*)$'"),
    (
        "numeric",
        r"{0} RLIKE '^(?!-[0.]+([eE].*)?$)-?(0|[1-9][0-9]*)([.][0-9]+)?([eE][+-]?[0-9]{{1,3}})?$'",
    ),
    ("boolean", "lower({0}) IN ('true', 'false')"),
    (
        "date",
        "try_cast({0} AS date) IS NOT NULL AND {0} RLIKE '^[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}$'",
    ),
    (
        "timestamp without time zone",
        "try_cast({0} AS timestamp_ntz) IS NOT NULL AND {0} RLIKE"
        " '^[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}[ T][0-9]{{2}}:[0-9]{{2}}(:[0-9]{{2}}([.][0-9]{{1,6}})?)?$'",
    ),
    (
        "timestamp with time zone",
        "try_cast({0} AS timestamp) IS NOT NULL AND {0} RLIKE '^[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}[ T]"
        "[0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}([.][0-9]{{1,6}})?(Z|[+-][0-9]{{2}}(:?[0-9]{{2}})?)$'",
    ),
)
"""Types for a column of CSV, with the condition that a text equals the text of a value of the type."""


def inferred_types(rows: DataFrame, names: Sequence[str]) -> dict[str, str]:
    """Return types for CSV columns: the first type that represents all texts of a column."""
    from pyspark.sql import functions as f

    numbered = rows.toDF(*(f"c{number}" for number, _ in enumerate(rows.columns)))
    counts = [f.count(f"c{number}") for number, _ in enumerate(names)]
    counts += [
        f.expr(f"count_if({condition.format(f'c{number}')})")
        for number, _ in enumerate(names)
        for _, condition in _INFERRED
    ]
    results = list(
        numbered.agg(*(count.alias(str(n)) for n, count in enumerate(counts))).collect()[0]
    )
    result = {}
    for position, name in enumerate(names):
        fitting = results[len(names) + position * len(_INFERRED) :]
        result[name] = next(
            (
                kind
                for (kind, _), number in zip(_INFERRED, fitting, strict=False)
                if number == results[position] > 0
            ),
            "text",
        )
    return result
