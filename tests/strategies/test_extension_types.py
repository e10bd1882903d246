"""Columns of types that extensions bring: shown, compared and grouped as PostgreSQL does."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from orchestrator.api import Orchestrator
from orchestrator.errors import UnsupportedError


@dataclass(frozen=True)
class Kind:
    """A type, some of its values, and an expression and a condition over a column `v`."""

    extension: str
    values: tuple[str, ...]
    expression: str
    condition: str
    type: str = ""


KINDS = (
    Kind("citext", ("Ab", "aB", "b", "B ", ""), "upper(v)", "v LIKE 'a%'"),
    Kind("hstore", ("a=>1", "a=>2, b=>NULL", "b=>3", "", "a=>1"), "v -> 'a'", "v ? 'b'"),
    Kind("ltree", ("Top", "Top.A", "Top.A.B", "Top.C", "Top.A"), "nlevel(v)", "v <@ 'Top.A'"),
    Kind("pg_trgm", ("word", "words", "other", "", "Word"), "similarity(v, 'word')", "similarity(v, 'word') > 0.5", "text"),
    Kind("intarray", ("{1,2}", "{2,1}", "{}", "{3}", "{1,2}"), "sort(v)", "v && '{1,3}'", "integer[]"),
    Kind("vector", ("[1,2]", "[2,1]", "[0,0]", "[3,4]", "[1,2]"), "v <-> '[0,0]'", "(v <-> '[1,1]') < 2"),
    Kind("cube", ("(1,2)", "(2,1)", "(0,0)", "(1,2),(3,4)", "(1,2)"), "cube_dim(v)", "v && '(0,0),(1,2)'"),
    Kind("isn", ("0-393-04002-X", "0-393-04002-X", "1-56619-909-3", "0-306-40615-2", "1-56619-909-3"),
         "v::isbn13", "v > '0-393-04002-X'", "isbn"),
    Kind("seg", ("1 .. 2", "1", "2 .. 3", "~1", "1.0"), "seg_upper(v)", "v && '2'"),
)  # fmt: skip

QUERIES = {
    "shown": "SELECT id, v, {expression} AS e FROM t",
    "kept": "SELECT id, v FROM t WHERE {condition}",
    "joined": "SELECT x.id, y.id AS other, x.v FROM t x JOIN t y ON x.v = y.v AND x.id < y.id",
    "grouped": "SELECT v, count(*) AS n, sum(id) AS s FROM t GROUP BY v",
    "distinct_ones": "SELECT DISTINCT v FROM t WHERE {condition}",
    "counted": "SELECT count(DISTINCT v) AS n, count(*) FILTER (WHERE {condition}) AS m FROM t",
    "computed": "SELECT {expression} AS e, count(*) AS n FROM t GROUP BY 1",
    "least": "SELECT g, min(v::text) AS low, string_agg(v::text, ';' ORDER BY id) AS every FROM t GROUP BY g",
}

CHANGES = (
    "INSERT INTO t SELECT id + 10, g, v FROM t WHERE id < 3",
    "UPDATE t SET v = (SELECT v FROM t AS other WHERE other.id = 1) WHERE id IN (2, 4)",
    "UPDATE t SET v = NULL WHERE id = 3",
    "DELETE FROM t WHERE id = 1",
)


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.extension)
def test_columns_of_an_extensions_type_are_followed(orc: Orchestrator, kind: Kind) -> None:
    connection = orc.connection
    known = connection.execute(
        "SELECT FROM pg_available_extensions WHERE name = %s", [kind.extension]
    )
    if known.fetchone() is None:
        pytest.skip(f"the server has no extension {kind.extension}")
    orc.execute(f"CREATE EXTENSION {kind.extension}")
    orc.execute(
        f"CREATE TABLE t (id int PRIMARY KEY, g int NOT NULL, v {kind.type or kind.extension})"
    )
    for number, value in enumerate(kind.values, start=1):
        connection.execute(
            "INSERT INTO t VALUES (%s, %s, %s)", [number, number % 2, value], prepare=False
        )
    taken = set()
    for strategy in ("id", "tuple"):
        for name, query in QUERIES.items():
            text = query.format(expression=kind.expression, condition=kind.condition)
            try:
                orc.create_view(f"{name}_{strategy}", text, strategy=strategy)
            except UnsupportedError:
                orc.create_view(f"{name}_{strategy}", text)
            taken.add((name, orc.view(f"{name}_{strategy}").strategy))
    assert {("shown", "id"), ("kept", "id")} <= taken, taken
    for change in CHANGES:
        orc.execute(change)
        reports = orc.check()
        assert [(r.view, r.missing_rows, r.surplus_rows) for r in reports if not r.equal] == []
