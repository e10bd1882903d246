"""Enumerating the rows of views over buckets: content, what it touches, rights, and snapshots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

import psycopg
import pytest
from parted import require_enumeration
from psycopg import Connection
from psycopg.sql import SQL, Identifier

from orchestrator.api import Orchestrator
from orchestrator.bench.measure import states_touched

PAIRS = "SELECT a, c, count(*) AS n FROM r JOIN s USING (b) GROUP BY a, c"
TABLES = "CREATE TABLE r (a int {0}, b int); CREATE TABLE s (b int, c int {0})"


def heavy(orc: Orchestrator, values: int, fan: int = 20) -> None:
    """Pairs over `values` heavy values with disjoint rows."""
    orc.execute(TABLES.format("NOT NULL"))
    numbers = f"generate_series(1, {values}) AS b, generate_series(1, {fan}) AS g"
    orc.execute(f"INSERT INTO r SELECT b * 1000 + g, b FROM {numbers}")
    orc.execute(f"INSERT INTO s SELECT b, b * 1000 + g FROM {numbers}")
    orc.create_view("v", PAIRS, strategy="skew", epsilon="0.2")
    parts = orc.parts(orc.view("v"))
    assert parts is not None and parts.threshold < fan
    orc.connection.execute("VACUUM ANALYZE")


def touched_by(connection: Connection[Any], rows: int) -> int:
    with connection.transaction():
        before = states_touched(connection)
        connection.execute("SELECT idivm.enumerate('v')")
        fetched = connection.execute(SQL("FETCH {} FROM idivm_rows").format(SQL(str(rows))))  # type: ignore[arg-type]
        assert len(fetched.fetchall()) == rows
        return states_touched(connection) - before


def test_a_row_costs_the_buckets_that_contain_it(orc: Orchestrator) -> None:
    """With 16 times as many disjoint heavy values, many rows touch little more: each page opens the buckets once."""
    pages = {}
    for values in (20, 320):
        heavy(orc, values)
        pages[values] = touched_by(orc.connection, 4000)
        orc.drop_view("v")
        orc.execute("DROP TABLE r; DROP TABLE s")
    assert pages[320] < 2 * pages[20]


def test_a_page_ends_where_all_buckets_have_the_same_rows(orc: Orchestrator) -> None:
    orc.execute(TABLES.format("NOT NULL"))
    numbers = "generate_series(1, 20) AS b, generate_series(1, 40) AS g"
    orc.execute(f"INSERT INTO r SELECT g, b FROM {numbers}")
    orc.execute(f"INSERT INTO s SELECT b, g FROM {numbers}")
    orc.create_view("v", PAIRS, strategy="skew", epsilon="0.2")
    orc.connection.execute("VACUUM ANALYZE")
    assert touched_by(orc.connection, 1) < touched_by(orc.connection, 1600) / 20


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param("n, b", id="all have the same rows"),
        pytest.param("b + 1000 * n, b", id="their rows take turns"),
        pytest.param("n * (1 + b % 90), b", id="some share some rows"),
    ],
)
def test_more_buckets_than_a_heap_holds(orc: Orchestrator, rows: str) -> None:
    orc.execute(TABLES.format("NOT NULL"))
    orc.execute(
        f"INSERT INTO r SELECT {rows} FROM generate_series(1, 300) AS b, generate_series(1, 4) AS n"
    )
    orc.execute(
        "INSERT INTO s SELECT b, n FROM generate_series(1, 300) AS b, generate_series(1, 2) AS n"
    )
    orc.create_view("v", PAIRS, strategy="skew", epsilon="0.1")
    parts = orc.parts(orc.view("v"))
    assert parts is not None and parts.relations[0].heavy_values == 300
    require_enumeration(orc, "v", ("a",))


def test_the_first_row_touches_no_other_rows(orc: Orchestrator) -> None:
    heavy(orc, 40, 40)
    assert touched_by(orc.connection, 1) < 40 * 10
    assert touched_by(orc.connection, 40_000) > 40_000


@pytest.mark.slow
@pytest.mark.parametrize("null", ["NOT NULL", ""])
@pytest.mark.parametrize("having", ["", " HAVING count(*) > 2"])
def test_overlapping_buckets_give_each_row_once_with_all_its_derivations(
    orc: Orchestrator, null: str, having: str
) -> None:
    orc.execute(TABLES.format(null))
    orc.execute("INSERT INTO r SELECT g % 50, g % 13 FROM generate_series(1, 900) AS g")
    orc.execute("INSERT INTO s SELECT g % 13, g % 70 FROM generate_series(1, 900) AS g")
    orc.execute("INSERT INTO r SELECT 1000 + g, 100 + g % 40 FROM generate_series(1, 80) AS g")
    orc.execute("INSERT INTO s SELECT 100 + g % 40, g FROM generate_series(1, 80) AS g")
    if not null:
        orc.execute("INSERT INTO r VALUES (NULL, 1), (NULL, 2), (5, NULL), (NULL, 101)")
        orc.execute("INSERT INTO s VALUES (1, NULL), (2, NULL), (NULL, 7), (101, NULL)")
    orc.create_view("v", PAIRS + having, strategy="skew", epsilon="0.4")
    require_enumeration(orc, "v", ("a", "c"))
    # Values move between heavy and light.
    orc.execute(
        "DELETE FROM r WHERE b % 3 = 0; INSERT INTO s SELECT 105, g FROM generate_series(1, 90) AS g"
    )
    orc.refresh()
    assert orc.check("v")[0].equal
    require_enumeration(orc, "v", ("a", "c"))
    orc.execute("TRUNCATE s")
    orc.refresh()
    require_enumeration(orc, "v")


def test_a_cursor_shows_one_snapshot(orc: Orchestrator) -> None:
    heavy(orc, 20)
    other = orc.connection
    with psycopg.connect(other.info.dsn, autocommit=True) as reader, reader.transaction():
        wanted = Counter(reader.execute("TABLE v").fetchall())
        reader.execute("SELECT idivm.enumerate('v')")
        rows = reader.execute("FETCH 10 FROM idivm_rows").fetchall()
        orc.execute(
            "DELETE FROM r WHERE b > 3; INSERT INTO s SELECT 1, g FROM generate_series(1, 99) AS g"
        )
        orc.refresh()
        rows += reader.execute("FETCH ALL FROM idivm_rows").fetchall()
        assert Counter(rows) == wanted
    require_enumeration(orc, "v", ("a",))


@pytest.fixture
def stranger(orc: Orchestrator) -> Iterator[Connection[Any]]:
    """A connection of a role without rights except to the schema of the functions."""
    name = Identifier(f"stranger_{orc.connection.info.dbname}")
    orc.connection.execute(SQL("CREATE ROLE {}").format(name))
    orc.connection.execute(SQL("GRANT USAGE ON SCHEMA idivm TO {}").format(name))
    with psycopg.connect(orc.connection.info.dsn, autocommit=True) as connection:
        connection.execute(SQL("SET ROLE {}").format(name))
        yield connection
    orc.connection.execute(SQL("DROP OWNED BY {}").format(name))
    orc.connection.execute(SQL("DROP ROLE {}").format(name))


def test_a_reader_needs_the_right_to_read_the_view(
    orc: Orchestrator, stranger: Connection[Any]
) -> None:
    heavy(orc, 20)
    relation = SQL("SELECT * FROM idivm_feed.{} AS q").format(Identifier(f"r{orc.view('v').id}"))
    opening = SQL("SELECT idivm_feed.{}('mine')").format(Identifier(f"open_{orc.view('v').id}"))
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="cannot be enumerated"):
        stranger.execute("SELECT idivm.enumerate('v')")
    assert stranger.execute(relation).fetchall() == []
    # A condition that shows its argument is not evaluated below.
    stranger.execute(
        "CREATE FUNCTION pg_temp.tell(n bigint) RETURNS boolean LANGUAGE plpgsql COST 0.0001"
        " AS $$ BEGIN RAISE 'told %', n; END $$"
    )
    assert stranger.execute(SQL("{} WHERE pg_temp.tell(n)").format(relation)).fetchall() == []
    with stranger.transaction():
        stranger.execute(opening)
        assert stranger.execute("FETCH ALL FROM mine").fetchall() == []
    name = stranger.execute("SELECT current_user").fetchone()
    assert name is not None
    orc.connection.execute(SQL("GRANT SELECT (a) ON v TO {}").format(Identifier(name[0])))
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="all columns"):
        stranger.execute("SELECT idivm.enumerate('v')")
    assert stranger.execute(relation).fetchall() == []
    orc.connection.execute(SQL("GRANT SELECT ON v TO {}").format(Identifier(name[0])))
    with stranger.transaction():
        stranger.execute("""SELECT idivm.enumerate('v', '{"a": 1001}', 'mine')""")
        assert len(stranger.execute("FETCH ALL FROM mine").fetchall()) == 20
    orc.connection.execute(SQL("REVOKE SELECT ON v FROM {}").format(Identifier(name[0])))
    assert stranger.execute(relation).fetchall() == []


def test_every_view_can_be_enumerated_and_nothing_is_left_of_it(orc: Orchestrator) -> None:
    orc.execute("CREATE TABLE t (id int PRIMARY KEY, x text)")
    orc.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, NULL)")
    orc.create_view("plain", "SELECT id, x FROM t")
    connection = orc.connection
    for prefix, wanted in (("{}", {1, 2, 3}), ('{"x": "b"}', {2}), ('{"x": null}', {3})):
        with connection.transaction():
            connection.execute("SELECT idivm.enumerate('plain', %s)", [prefix])
            assert {row[0] for row in connection.execute("FETCH ALL FROM idivm_rows")} == wanted
    with pytest.raises(psycopg.errors.UndefinedColumn, match="by y, which is no column"):
        connection.execute("""SELECT idivm.enumerate('plain', '{"y": 1}')""")
    heavy(orc, 20)
    orc.create_view(
        "v", f"{PAIRS} HAVING count(*) > 0", strategy="skew", epsilon="0.2", replace=True
    )
    require_enumeration(orc, "v")
    orc.drop_view("v")
    left = connection.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = 'idivm_feed'::regnamespace AND relname ~ '^r\\d'"
        " UNION ALL SELECT proname FROM pg_proc WHERE pronamespace = 'idivm_feed'::regnamespace AND proname ~ '^open_'"
    ).fetchall()
    assert left == []


def test_python_reads_rows_as_they_are_requested(orc: Orchestrator) -> None:
    heavy(orc, 40, 40)
    rows = orc.enumerate("v")
    assert [row[:2] for row in islice(rows, 2)] == [(1001, 1001), (1001, 1002)]
    rows.close()  # type: ignore[attr-defined]


@pytest.mark.slow
def test_the_doctor_creates_the_relation_of_an_enumeration_again(orc: Orchestrator) -> None:
    heavy(orc, 20)
    relation = SQL("idivm_feed.{}").format(Identifier(f"r{orc.view('v').id}"))
    content = orc.connection.execute("SELECT state::text FROM idivm.views").fetchone()
    assert content is not None
    for breaking in (relation, SQL(content[0])):
        orc.connection.execute(SQL("DROP VIEW {} CASCADE").format(breaking))
        assert any(finding.mended for finding in orc.doctor())
        with orc.connection.transaction():
            orc.connection.execute(SQL("SELECT FROM {} LIMIT 1").format(relation))
        require_enumeration(orc, "v", ("a",))
        assert all(finding.fine for finding in orc.doctor() if "view" in finding.subject)
