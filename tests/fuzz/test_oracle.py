"""The oracle finds every kind of difference, and nothing else."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import psycopg
import pytest
from harness import TestServer
from psycopg.sql import SQL, Identifier

from orchestrator.runtime.diagnosis.check import CheckResult, _unmatched, compare

pytestmark = pytest.mark.integration

Database = psycopg.Connection[Any]


@pytest.fixture(scope="module")
def database(pg: TestServer) -> Iterator[Database]:
    with (
        pg.database(migrated=False) as dsn,
        psycopg.connect(dsn, autocommit=True) as connection,
    ):
        yield connection


def against(database: Database, definition: str, view: str) -> CheckResult:
    """What the oracle says of two queries."""
    with database.transaction(force_rollback=True):
        for name, query in (("wanted", definition), ("shown", view)):
            database.execute(
                SQL("CREATE TEMP TABLE {} AS {}").format(Identifier(name), SQL(query))  # type: ignore[arg-type]
            )
        return compare(database, view=Identifier("shown"), definition=Identifier("wanted"))


EQUAL = {
    "no rows": ("SELECT 1 AS a WHERE false", "SELECT 1 AS a WHERE false"),
    "no columns": ("SELECT FROM generate_series(1, 3)", "SELECT FROM generate_series(1, 3)"),
    "another order": (
        "VALUES (1, 'a'), (2, 'b'), (1, 'a')",
        "VALUES (1, 'a'), (1, 'a'), (2, 'b')",
    ),
    "nulls": ("VALUES (NULL::int, 'a'), (NULL, NULL)", "VALUES (NULL::int, NULL), (NULL, 'a')"),
    "types without equality": (
        "SELECT '{\"a\":  1}'::json, '(1,2)'::point",
        "SELECT '{\"a\":  1}'::json, '(1,2)'::point",
    ),
    "a drifted sum": ("SELECT 0.3::float8", "SELECT 0.1::float8 + 0.2::float8"),
    "a sum that drifted from zero": ("SELECT 0::float8", "SELECT 1e-12::float8"),
    "negative zero": ("SELECT '0'::float8", "SELECT '-0'::float8"),
    "not a number": ("SELECT 'NaN'::float8, '-Infinity'::float4",) * 2,
    "a drifted float4": ("SELECT 1000000::float4", "SELECT 1000001::float4"),
    "drift inside an array": (
        "SELECT ARRAY[1, NULL, 0.3]::float8[]",
        "SELECT ARRAY[1, NULL, 0.1::float8 + 0.2::float8]",
    ),
    "drift inside a point and a path": (
        "SELECT '(0.3,1)'::point, '[(0.3,1)]'::path",
        "SELECT '(0.30000000000000004,1)'::point, '[(0.30000000000000004,1)]'::path",
    ),
    "drift, crossed": (
        "VALUES (1::float8, 5::float8), (1 + 1e-12, 7)",
        "VALUES (1::float8, 7::float8), (1 + 1e-12, 5)",
    ),
    "drift of some of many duplicates": (
        "SELECT 'x', 0.3::float8 FROM generate_series(1, 3000)",
        "SELECT 'x', CASE WHEN g % 2 = 0 THEN 0.3 ELSE 0.1::float8 + 0.2 END"
        " FROM generate_series(1, 3000) AS g",
    ),
}


@pytest.mark.parametrize("name", EQUAL)
def test_equal(database: Database, name: str) -> None:
    assert against(database, *EQUAL[name]) == CheckResult(True, 0, 0)


DIFFERENT = {
    "a row too few": ("VALUES (1), (2)", "VALUES (1)", 1, 0),
    "a row too many": ("VALUES (1)", "VALUES (1), (2)", 0, 1),
    "a duplicate too few": ("VALUES (1), (1), (1)", "VALUES (1)", 2, 0),
    "a duplicate too many": ("VALUES (1)", "VALUES (1), (1), (1), (1)", 0, 3),
    "a value": ("VALUES (1, 'a'), (2, 'b')", "VALUES (1, 'a'), (2, 'c')", 1, 1),
    "null and empty": ("VALUES (NULL::text)", "VALUES (''::text)", 1, 1),
    "null and no row": ("VALUES (NULL::int)", "SELECT 1 WHERE false", 1, 0),
    "an empty row": (
        "SELECT FROM generate_series(1, 3)",
        "SELECT FROM generate_series(1, 2)",
        1,
        0,
    ),
    "columns swapped": ("VALUES ('a', 'b')", "VALUES ('b', 'a')", 1, 1),
    "text that looks like two": ("VALUES ('a,b', 'c')", "VALUES ('a', 'b,c')", 1, 1),
    "the scale of a numeric": ("SELECT 1.0::numeric", "SELECT 1.00::numeric", 1, 1),
    "the spelling of json": ("SELECT '{\"a\":1}'::json", "SELECT '{\"a\": 1}'::json", 1, 1),
    "blanks at the end": ("SELECT 'a'::text", "SELECT 'a '::text", 1, 1),
    "inside nested arrays": (
        "SELECT '{{1,2},{3,4}}'::int[]",
        "SELECT '{{1,2},{3,5}}'::int[]",
        1,
        1,
    ),
    "the bounds of an array": ("SELECT '{1,2}'::int[]", "SELECT '[0:1]={1,2}'::int[]", 1, 1),
    "null inside an array": ("SELECT '{NULL}'::text[]", "SELECT '{\"NULL\"}'::text[]", 1, 1),
    "inside a composite": (
        "SELECT c FROM pg_language AS c WHERE lanname = 'sql'",
        "SELECT c FROM pg_language AS c WHERE lanname = 'c'",
        1,
        1,
    ),
    "a float": ("SELECT 1::float8", "SELECT 1.000001::float8", 1, 1),
    "a small float": ("SELECT 1e-6::float8", "SELECT 2e-6::float8", 1, 1),
    "a great float": ("SELECT 1e300::float8", "SELECT 1.001e300::float8", 1, 1),
    "a float4": ("SELECT 1::float4", "SELECT 1.001::float4", 1, 1),
    "null and a float": ("SELECT NULL::float8", "SELECT 0::float8", 1, 1),
    "not a number and infinity": ("SELECT 'NaN'::float8", "SELECT 'Infinity'::float8", 1, 1),
    "a float in an array": ("SELECT '{1,2}'::float8[]", "SELECT '{1,3}'::float8[]", 1, 1),
    "the length of an array of floats": (
        "SELECT '{1}'::float8[]",
        "SELECT '{1,1}'::float8[]",
        1,
        1,
    ),
    "a point": ("SELECT '(1,2)'::point", "SELECT '(1,3)'::point", 1, 1),
    "an exact column beside a drifted float": (
        "SELECT 1 AS a, 0.3::float8",
        "SELECT 2 AS a, 0.1::float8 + 0.2::float8",
        1,
        1,
    ),
    "a numeric beside a float": ("SELECT 1.0, 1::float8", "SELECT 1.00, 1::float8", 1, 1),
    "one duplicate more among drifted ones": (
        "SELECT 0.3::float8 FROM generate_series(1, 3)",
        "SELECT 0.1::float8 + 0.2::float8 FROM generate_series(1, 4)",
        0,
        1,
    ),
    "a type": ("SELECT 1::int AS a", "SELECT 1::bigint AS a", 1, 1),
    "a length": ("SELECT 'a'::varchar(3) AS a", "SELECT 'a'::varchar(4) AS a", 1, 1),
    "a collation": ("SELECT 'a' COLLATE \"C\" AS a", "SELECT 'a' AS a", 1, 1),
    "a column": ("SELECT 1 AS a, 2 AS b", "SELECT 1 AS a", 1, 1),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_different(database: Database, name: str) -> None:
    definition, view, missing, surplus = DIFFERENT[name]
    result = against(database, definition, view)
    assert (result.equal, result.missing, result.surplus) == (False, missing, surplus)
    assert bool(result.missing_samples) == bool(missing)
    assert bool(result.surplus_samples) == bool(surplus)


def test_samples_are_few_and_counts_are_whole(database: Database) -> None:
    result = against(
        database,
        "SELECT g, 'a' AS a FROM generate_series(1, 1000) AS g",
        "SELECT 1, 'a' AS a WHERE false",
    )
    assert result == CheckResult(
        False, 1000, 0, ("(1,a)", "(10,a)", "(100,a)", "(1000,a)", "(101,a)"), ()
    )


def test_xml(database: Database) -> None:
    try:
        database.execute("SELECT '<a/>'::xml")
    except psycopg.errors.FeatureNotSupported:
        pytest.skip("this server was built without xml")
    assert against(database, "SELECT '<a/>'::xml", "SELECT '<a/>'::xml").equal
    assert not against(database, "SELECT '<a/>'::xml", "SELECT '<a></a>'::xml").equal


def test_as_many_pairs_as_can_be(database: Database) -> None:
    """Of a chain in which each value is near its neighbours alone, only one way pairs them all."""
    chain = [1 + step * 0.8e-9 for step in range(8)]
    wanted = " UNION ALL ".join(f"SELECT {value!r}::float8" for value in chain[1::2] * 2)
    actual = " UNION ALL ".join(f"SELECT {value!r}::float8" for value in chain[0::2] * 2)
    assert against(database, wanted, actual).equal
    more = against(database, wanted, f"{actual} UNION ALL SELECT {chain[0]!r}")
    assert (more.missing, more.surplus) == (0, 1)
    crossed = "VALUES (1::float8, 1::float8), (1 + 0.9e-9, 1), (1, 1 + 0.9e-9)"
    moved = "VALUES (1::float8 + 0.9e-9, 1::float8 + 0.9e-9), (1 - 0.9e-9, 1), (1 + 1.8e-9, 1)"
    assert against(database, crossed, moved).equal


def test_domains_and_enums_of_floats_and_others(database: Database) -> None:
    database.execute("CREATE DOMAIN ratio AS float8")
    database.execute("CREATE TYPE pair AS (part ratio, name text)")
    database.execute("CREATE TYPE mood AS ENUM ('sad', 'glad')")
    drifted = "SELECT ROW({}, 'x')::pair, 'sad'::mood, {}::ratio"
    exact, off = "0.3::float8", "(0.1::float8 + 0.2::float8)"
    assert against(database, drifted.format(exact, exact), drifted.format(off, off)).equal
    assert not against(database, drifted.format(exact, exact), drifted.format("0.4", exact)).equal
    assert not against(database, "SELECT 'sad'::mood", "SELECT 'glad'::mood").equal


def test_quoted_names(database: Database) -> None:
    name = Identifier('a "b" %s {} é')
    database.execute(SQL("CREATE TABLE {} ({} int, {} float8)").format(name, name, Identifier("r")))
    database.execute(SQL("INSERT INTO {} VALUES (1, 2), (NULL, NULL)").format(name))
    with database.transaction(force_rollback=True):
        assert compare(database, view=name, definition=name).equal


def most_pairs(wanted: list[float], actual: list[float]) -> int:
    """By trying everything."""
    if not wanted:
        return 0
    first, *rest = wanted
    pairs = most_pairs(rest, actual)
    for at, value in enumerate(actual):
        if math.isclose(first, value, rel_tol=1e-9, abs_tol=1e-9):
            pairs = max(pairs, 1 + most_pairs(rest, actual[:at] + actual[at + 1 :]))
    return pairs


def test_pairing_against_trying_everything() -> None:
    rng = Random(1)
    for _ in range(300):
        sides = [[1 + rng.randint(0, 6) * 0.7e-9 for _ in range(rng.randint(0, 5))] for _ in "ws"]
        rows = [
            (f"{value!r}", "", [f"({value!r})"], sign * copies, 0)
            for sign, side in zip((1, -1), sides, strict=True)
            for value, copies in Counter(side).items()
        ]
        missing, surplus = _unmatched(rows, [1e-9])
        pairs = most_pairs(*sides)
        assert (len(missing), len(surplus)) == (len(sides[0]) - pairs, len(sides[1]) - pairs)
