"""Check asks the user's own query: it finds what is wrong, and does not call a correct answer wrong."""

from __future__ import annotations

import json
import re

import pytest
from psycopg.sql import SQL

from orchestrator.cli.main import main
from orchestrator.errors import DatabaseError, UnsupportedError
from orchestrator.runtime.diagnosis import answers

pytestmark = pytest.mark.integration

TABLES = """
CREATE TABLE t (id int PRIMARY KEY, k int, x text, f float8);
CREATE TABLE s (a int, b int);
CREATE AGGREGATE listed(text) (sfunc = textcat, stype = text);
INSERT INTO t SELECT i, i % 3, 'x' || i % 4, i * 0.1 FROM generate_series(1, 30) AS i;
INSERT INTO s SELECT i % 5, i % 3 FROM generate_series(1, 20) AS i
"""

NUMBERED = "SELECT id, x, row_number() OVER (ORDER BY x) AS nth FROM t"

# An answer of each can be another one, as soon as PostgreSQL meets the rows in another order.
OPEN = {
    "members": "SELECT k, array_agg(x) AS v FROM t GROUP BY k",
    "joined": "SELECT k, string_agg(x, ',') AS v FROM t GROUP BY k",
    "ties": "SELECT k, string_agg(x, ',' ORDER BY x, k) AS v FROM t GROUP BY k",
    "document": "SELECT k, coalesce(json_agg(x), '[]') AS v FROM t GROUP BY k",
    "pairs": "SELECT json_object_agg(id, x) AS v FROM t",
    "own": "SELECT k, listed(x) AS v FROM t GROUP BY k",
    "filtered": "SELECT k, array_agg(x) FILTER (WHERE id > 5) AS v FROM t GROUP BY k",
    "subquery": "SELECT k, ARRAY(SELECT q.x FROM t AS q WHERE q.k = p.k) AS v FROM t AS p",
    "sorted_below": "SELECT k, array_agg(x) AS v FROM (SELECT k, x FROM t ORDER BY f DESC) AS q GROUP BY k",
    "scalar": "SELECT id, (SELECT array_agg(q.x) FROM t AS q WHERE q.k = p.k) AS v FROM t AS p",
    "rolled_up": "SELECT k, array_agg(x) AS v FROM t GROUP BY ROLLUP (k)",
    "no_key": "SELECT a, array_agg(b) AS v FROM s GROUP BY a",
    "no_key_below": "SELECT id, ARRAY(SELECT b FROM s WHERE s.a = t.k) AS v FROM t",
    "no_key_document": "SELECT a, coalesce(jsonb_agg(b), '[]') AS v FROM s GROUP BY a",
    "limited": "SELECT k, x FROM t ORDER BY k LIMIT 4",
    "numbered": NUMBERED,
    "floats": "SELECT k, sum(f) AS v, avg(f)::text AS w FROM t GROUP BY k",
    "rounded": "SELECT k, round(sum(f)::numeric, 3) AS v FROM t GROUP BY k",
    "printed": "SELECT json_build_object('s', sum(f), 'v', var_pop(f)) AS v FROM t",
}

REORDERED = (
    # The same rows, each at another place.
    "CREATE TABLE kept AS SELECT * FROM t; DELETE FROM t;"
    "INSERT INTO t SELECT * FROM kept ORDER BY md5(id::text); DROP TABLE kept",
    "CREATE TABLE kept AS SELECT * FROM s; DELETE FROM s;"
    "INSERT INTO s SELECT * FROM kept ORDER BY b DESC, a; DROP TABLE kept",
)


def reports(orc):
    return {report.view: report for report in orc.check()}


def different(orc):
    return {
        report.view: (report.missing_rows, report.surplus_rows)
        for report in orc.check()
        if not report.equal
    }


def plant(orc, view, change):
    """Changes what a view stores behind its back."""
    state = orc.view(view).state
    assert orc.connection.execute(SQL(change.format(state))).rowcount > 0


def replace_definition(orc, view, query):
    """Gives a view a definition that is not its query."""
    definition = orc.view(view).definition
    orc.connection.execute(SQL(f"CREATE OR REPLACE VIEW {definition} AS {query}"))


@pytest.fixture
def tables(orc):
    orc.execute(TABLES)
    return orc


@pytest.mark.sampled(5)
@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["auto", "tuple", "recompute"])
def test_another_order_of_the_rows_is_no_difference(tables, strategy, older):
    if older and strategy != "auto":
        pytest.skip("older versions run what is chosen")
    for name, query in OPEN.items():
        try:
            tables.create_view(name, query, strategy=strategy)
        except UnsupportedError:
            assert strategy == "tuple"
    assert len(tables.views()) > 10
    assert different(tables) == {}
    for change in REORDERED:
        tables.execute(change)
        assert different(tables) == {}, change
    tables.execute(
        "UPDATE t SET x = 'y' || x, f = f + 0.7 WHERE id % 4 = 1; DELETE FROM s WHERE a = 1"
    )
    assert different(tables) == {}
    assert [finding.sentence for finding in tables.doctor() if not finding.fine] == []


def test_a_content_in_another_order_than_the_settled_one(tables):
    """Where nothing settles the order, any is right; where the keys do, only one is."""
    for name in ("no_key", "members", "no_key_document"):
        tables.create_view(name, OPEN[name])
    for name in ("no_key", "members"):
        plant(
            tables,
            name,
            "UPDATE {} SET v = (SELECT array_agg(e ORDER BY e DESC) FROM unnest(v) AS e)",
        )
    by_view = reports(tables)
    assert by_view["no_key"].equal
    assert by_view["no_key"].notes == (
        "v was compared without the order, which the query leaves open",
    )
    assert not by_view["members"].equal
    assert by_view["no_key_document"].notes == ()


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("no_key", "UPDATE {} SET v = v || 1 WHERE a = 2"),
        ("no_key", "UPDATE {} SET v[1] = 7 WHERE a = 2"),
        ("no_key", "DELETE FROM {} WHERE a = 2"),
        ("no_key_below", "UPDATE {} SET v = v[2:]"),
        ("no_key_document", "UPDATE {} SET v = v || '[2]' WHERE a = 2"),
        ("members", "UPDATE {} SET v[1] = 'other' WHERE k = 1"),
        ("joined", "UPDATE {} SET v = v || ',x1' WHERE k = 1"),
        ("own", "UPDATE {} SET v = reverse(v) WHERE k = 1"),
        ("subquery", "UPDATE {} SET v = NULL WHERE k = 1"),
        ("limited", "UPDATE {} SET x = 'other' WHERE k = 0"),
        ("numbered", "UPDATE {} SET nth = nth + 1"),
        ("floats", "UPDATE {} SET v = v + 1e-6 WHERE k = 1"),
        ("floats", "UPDATE {} SET w = (w::float8 + 0.001)::text WHERE k = 1"),
        ("rounded", "UPDATE {} SET v = v + 0.002 WHERE k = 1"),
        ("printed", "UPDATE {} SET v = json_build_object('s', 1, 'v', v -> 'v')"),
    ],
)
def test_a_real_difference_is_found_all_the_same(tables, name, change):
    tables.create_view(name, OPEN[name])
    plant(tables, name, change)
    assert set(different(tables)) == {name}


def test_last_digits_of_floats_that_are_printed(tables):
    tables.create_view("floats", OPEN["floats"])
    tables.create_view("rounded", OPEN["rounded"])
    plant(
        tables, "floats", "UPDATE {} SET v = v * (1 + 1e-14), w = (w::float8 * (1 + 1e-14))::text"
    )
    plant(tables, "rounded", "UPDATE {} SET v = v + 0.001")
    by_view = reports(tables)
    assert by_view["floats"].equal and by_view["rounded"].equal
    assert by_view["floats"].notes == (
        "v, w were compared within a tolerance, as sums of floats depend on the order of the rows",
    )


def test_sums_of_floats_that_cancel_each_other_out(orc):
    orc.execute(
        "CREATE TABLE t (id int PRIMARY KEY, a int, f float8); INSERT INTO t"
        " SELECT i, 1, CASE i % 2 WHEN 0 THEN 1e8 + i * 0.1 ELSE -1e8 - (i + 1) * 0.1 END"
        " FROM generate_series(1, 1000) AS i; INSERT INTO t VALUES (2000, 1, 0.25)"
    )
    orc.create_view("v", "SELECT a, sum(f) AS s FROM t GROUP BY a", strategy="viewtree")
    assert different(orc) == {}
    orc.execute(
        "CREATE TABLE kept AS SELECT * FROM t; DELETE FROM t; INSERT INTO t SELECT * FROM kept ORDER BY f"
    )
    assert different(orc) == {}
    plant(orc, "v", "UPDATE {} SET s = s + 0.1")
    assert set(different(orc)) == {"v"}


@pytest.mark.parametrize(
    "definition",
    [
        "SELECT id, x, row_number() OVER (ORDER BY x, id) AS nth FROM t WHERE id > 1",
        "SELECT id, upper(x) AS x, row_number() OVER (ORDER BY x, id) AS nth FROM t",
        "SELECT id, x, row_number() OVER (ORDER BY x, id) AS nth FROM t UNION ALL SELECT 1, 'x1', 99",
    ],
)
def test_a_wrong_rewriting_of_the_query_is_found(tables, definition):
    """The content follows the definition, so only the query as it was written tells."""
    tables.create_view("v", NUMBERED, strategy="recompute")
    replace_definition(tables, "v", definition)
    tables.execute("UPDATE t SET x = 'z' WHERE id = 30")
    [report] = tables.check("v")
    assert not report.equal
    assert report.notes == ("nth was not compared, as the query leaves the choice open",)


def test_the_query_as_it_was_written_follows_renames(tables):
    tables.create_view("v", NUMBERED, strategy="recompute")
    tables.execute(
        "ALTER TABLE t RENAME TO items; ALTER TABLE items RENAME x TO label;"
        "CREATE SCHEMA apart; ALTER TABLE items SET SCHEMA apart;"
        "UPDATE apart.items SET label = 'z' WHERE id = 30"
    )
    assert tables.check("v")[0].equal
    wrong = "SELECT id, label AS x, 1::bigint AS nth FROM apart.items WHERE id > 1"
    replace_definition(tables, "v", wrong)
    tables.execute("UPDATE apart.items SET label = 'w' WHERE id = 30")
    assert not tables.check("v")[0].equal


def test_only_a_query_that_is_settled_is_kept_beside_its_definition(tables):
    def installed():
        rows = tables.connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'idivm_def'::regnamespace"
            " AND relname !~ '^s' ORDER BY 1"
        )
        return [row[0] for row in rows.fetchall()]

    said = []
    tables.on_notice = said.append
    plain = tables.create_view("plain", "SELECT id, x FROM t")
    assert said == []
    first = tables.create_view("v", NUMBERED)
    assert [message for message in said if "leaves the order of some rows open" in message] == said
    assert installed() == [f"q{first.id}", f"v{plain.id}", f"v{first.id}"]
    second = tables.create_view("v", NUMBERED, replace=True)
    assert installed() == [f"q{second.id}", f"v{plain.id}", f"v{second.id}"]
    assert [finding.sentence for finding in tables.doctor() if not finding.fine] == []
    tables.drop_view("v")
    assert installed() == [f"v{plain.id}"]


def test_a_column_that_only_the_written_query_reads_protects_it(tables):
    tables.create_view("v", "SELECT k FROM (SELECT k, f FROM t ORDER BY k LIMIT 3) AS q")
    with pytest.raises(DatabaseError, match="view v depends on it"):
        tables.execute("ALTER TABLE t DROP COLUMN f")
    tables.execute("ALTER TABLE t DROP COLUMN f CASCADE")
    assert tables.views() == []
    assert tables.connection.execute("SELECT to_regclass('v')").fetchone() == (None,)
    tables.connection.execute("SELECT idivm.drop_orphans()")
    rows = tables.connection.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = 'idivm_def'::regnamespace"
    )
    assert rows.fetchall() == []


def test_a_catalog_row_that_was_lost_comes_back_with_the_query_as_it_was_written(tables):
    view = tables.create_view("v", NUMBERED)
    tables.execute(f"DELETE FROM idivm.views WHERE id = {view.id}")
    tables.doctor()
    assert re.search(r"ORDER BY (t\.)?x\)", tables.view("v").query)
    assert tables.check("v")[0].equal


def test_a_key_that_no_row_shows_is_found(orc):
    orc.execute(
        "CREATE TABLE t (id int PRIMARY KEY, m int, n numeric);"
        "INSERT INTO t VALUES (1, 1, 1.0), (2, 1, 1.00), (3, 2, 1.000), (4, 2, 2)"
    )
    orc.create_view("v", "SELECT m, n, count(*) AS c FROM t GROUP BY m, n")
    plant(orc, "v", "UPDATE {} SET n = CASE n::text WHEN '1.0' THEN 1.00 ELSE 1.0 END WHERE m = 1")
    [report] = orc.check("v")
    assert report.equal
    assert report.notes == ("n was compared by =, as equal values may look different",)
    assert [finding.sentence for finding in orc.doctor() if not finding.fine] == []
    # Another group has a row that shows this, but not this one.
    plant(orc, "v", "UPDATE {} SET n = 1.000 WHERE m = 1")
    [report] = orc.check("v")
    assert not report.equal and report.surplus_rows == ("(1,1.000)",)


def test_the_command_line_says_what_it_did_not_compare(tables, dsn, capsys):
    tables.create_view("no_key", OPEN["no_key"])
    plant(
        tables,
        "no_key",
        "UPDATE {} SET v = (SELECT array_agg(e ORDER BY e DESC) FROM unnest(v) AS e)",
    )
    assert main(["check", "--dsn", dsn]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "no_key: equal",
        "  v was compared without the order, which the query leaves open",
    ]
    plant(tables, "no_key", "UPDATE {} SET v = v || 5 WHERE a = 2")
    assert main(["check", "--dsn", dsn, "--json"]) == 1
    [report] = json.loads(capsys.readouterr().out)
    assert report["equal"] is False
    assert report["notes"] == ["v was compared without the order, which the query leaves open"]


def test_a_function_that_is_replaced_during_the_comparison(tables, connect, monkeypatch):
    """No snapshot hides it from the query, while the view shows what it gave a moment ago."""
    function = "CREATE OR REPLACE FUNCTION times(i int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT i * {}'"
    tables.execute(function.format(2))
    tables.create_view("multiplied", "SELECT id, times(k) AS v FROM t")
    plain, compare, changes = connect(), answers.check_view, [function.format(3)]

    def replaced(*given):
        while changes:
            plain.execute(changes.pop())
        return compare(*given)

    monkeypatch.setattr(answers, "check_view", replaced)
    assert different(tables) == {}
    assert not changes


def test_time_dependent_views_are_compared_at_one_moment(tables):
    tables.connection.execute(
        "CREATE FUNCTION at() RETURNS timestamptz LANGUAGE sql STABLE AS 'SELECT statement_timestamp()'"
    )
    tables.create_view("moment", "SELECT id, statement_timestamp() AS at, now() AS n FROM t")
    tables.create_view("own", "SELECT k, at() AS at, sum(f) AS f FROM t GROUP BY k")
    tables.create_view("above", "SELECT count(at) AS n, max(at) AS at FROM moment")
    tables.execute("UPDATE t SET k = k + 1")
    assert different(tables) == {}
