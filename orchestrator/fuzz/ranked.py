"""Compare the rows that a ranked view yields one after the other with its content and its order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from psycopg import Connection
from psycopg.sql import SQL, Identifier

from orchestrator.fuzz.outcome import CaseError

_COMPARISON = """
WITH listed AS (SELECT r::text AS line, row_number() OVER () AS place FROM {ranked} AS r),
     content AS (SELECT v::text AS line, dense_rank() OVER (ORDER BY {order}) AS rank FROM {view} AS v),
     both_sides AS (
         SELECT place, rank, lag(rank) OVER (ORDER BY place) AS before
         FROM listed FULL JOIN content USING (line))
SELECT coalesce(bool_or(place IS NULL OR rank IS NULL), false), coalesce(bool_or(rank < before), false)
FROM both_sides
"""


def compare(connection: Connection[Any], names: Iterable[str]) -> int:
    """Compare the ranked views among some views with their content; return their number."""
    compared = 0
    for name in names:
        row = connection.execute(
            "SELECT 'r' || id, idivm.ranked_by(relation), relation::regclass::text FROM idivm.views"
            " WHERE relation = %s::regclass AND idivm.ranked_by(relation) IS NOT NULL",
            [name],
        ).fetchone()
        if row is None:
            continue
        relation, order, view = row
        query = SQL(_COMPARISON).format(
            ranked=Identifier("idivm_feed", relation), order=SQL(order), view=SQL(view)
        )
        result = connection.execute(query).fetchone()
        assert result is not None
        for differs, what in zip(result, ("has other rows", "is not sorted"), strict=True):
            if differs:
                raise CaseError("difference", "", f"{name}, read in the order {order}, {what}")
        compared += 1
    return compared
