"""Queries near PostgreSQL's own limits: they are planned once, and in the simplest way that works."""

import itertools

import pytest

from orchestrator.algebra.columns import Column
from orchestrator.algebra.dependencies import Dependencies
from orchestrator.algebra.operators.base import Operator
from orchestrator.engine import width
from orchestrator.errors import UnsupportedError
from orchestrator.frontend import analysis
from orchestrator.planning import facts
from orchestrator.strategies import choose
from orchestrator.strategies.idiff import compose


def wide_table(orc, columns):
    listed = ", ".join(f"c{n} int" for n in range(columns - 1))
    orc.connection.execute(f"CREATE TABLE wide (id int PRIMARY KEY, {listed})")
    orc.connection.execute("INSERT INTO wide (id, c0) VALUES (1, 1), (2, 2)")


def assert_followed(orc, views="v"):
    orc.connection.execute("UPDATE wide SET c1 = 5 WHERE id = 1")
    orc.connection.execute("INSERT INTO wide (id) VALUES (3)")
    orc.connection.execute("DELETE FROM wide WHERE id = 2")
    assert [report.equal for report in orc.check()] == [True for _ in views]
    assert orc.connection.execute("SELECT id, c1 FROM v ORDER BY id").fetchall() == [
        (1, 5),
        (3, None),
    ]


@pytest.mark.slow
@pytest.mark.sampled(4)
def test_a_table_of_many_columns_is_followed(orc):
    wide_table(orc, analysis.MOST_CAPTURED)
    assert orc.create_view("v", "SELECT * FROM wide").strategy == "id"
    assert_followed(orc)


@pytest.mark.slow
@pytest.mark.parametrize("columns", [1598, 1600])
def test_a_table_of_more_columns_than_a_change_has_room_for_is_computed_anew(orc, columns):
    wide_table(orc, columns)
    assert orc.create_view("v", "SELECT * FROM wide").strategy == "recompute"
    assert "as a row of its log has no room for all columns that views read" in orc.explain("v").why
    assert_followed(orc)


@pytest.mark.slow
def test_views_that_read_more_columns_together_than_a_log_has_room_for(orc):
    wide_table(orc, 1200)
    for name, first, strategy in (("v", 0, "id"), ("w", 500, "recompute")):
        read = ", ".join(f"c{n}" for n in range(first, first + 600))
        assert orc.create_view(name, f"SELECT id, {read} FROM wide").strategy == strategy
    assert_followed(orc, "vw")


def test_no_row_is_too_long_for_a_log(orc):
    """A short text is not stored apart from its row, and a change has each twice."""
    columns = [f"c{n}" for n in range(300)]
    listed = ", ".join(f"{column} text" for column in columns)
    orc.connection.execute(f"CREATE TABLE long (id int PRIMARY KEY, {listed})")
    assert orc.create_view("v", "SELECT * FROM long").strategy == "recompute"
    assert orc.create_view("w", "SELECT id, c1, c2 FROM long").strategy == "id"
    texts = ", ".join(["repeat('x', 22)"] * len(columns))
    orc.connection.execute(f"INSERT INTO long SELECT 1, {texts}")
    orc.connection.execute("UPDATE long SET c1 = 'y'")
    assert [report.equal for report in orc.check()] == [True, True]


def chain(orc, tables):
    for n in range(tables):
        orc.connection.execute(f"CREATE TABLE t{n} (id int PRIMARY KEY, n int)")
        orc.connection.execute(f"INSERT INTO t{n} VALUES (1, 1)")
    joins = " ".join(f"JOIN t{n} ON t{n}.id = t{n - 1}.n" for n in range(1, tables))
    return f"SELECT t0.id, t{tables - 1}.n FROM t0 {joins}"


def test_too_long_a_join_is_planned_in_another_way_and_says_why(orc, monkeypatch):
    monkeypatch.setattr(width, "MOST_JOINED", 4)
    query = chain(orc, 5)
    assert orc.create_view("v", query).strategy == "viewtree"
    below = query.replace("SELECT t0.id", "SELECT t0.id + t1.n AS id")
    assert orc.create_view("w", below).strategy == "recompute"
    assert (
        "a join of more than 4 tables has a query over all of them for each" in orc.explain("v").why
    )
    orc.create_view("shorter", query.replace(" JOIN t4 ON t4.id = t3.n", "").replace("t4", "t3"))
    assert orc.view("shorter").strategy == "id"
    # Joins below a union or a group are joins of their own.
    orc.create_view(
        "apart",
        "SELECT t0.id FROM t0 JOIN t1 ON t1.id = t0.n JOIN t2 ON t2.id = t1.n UNION ALL"
        " SELECT t0.id FROM t0 JOIN t1 ON t1.id = t0.n JOIN t3 ON t3.id = t1.n",
    )
    assert orc.view("apart").strategy in ("id", "tuple")


def test_a_large_query_is_planned_in_one_way(orc, monkeypatch):
    query = chain(orc, 4)
    orc.create_view("weighed", query)
    assert "- tuple" in orc.explain("weighed").why
    monkeypatch.setattr(choose, "MOST_COMPARED", 4)
    orc.create_view("v", query)
    assert orc.view("v").strategy == "id"
    assert (
        "the query has more than 4 operators, so that no other was weighed" in orc.explain("v").why
    )
    orc.connection.execute("UPDATE t0 SET n = 2; UPDATE t3 SET n = 7")
    assert {report.view: report.equal for report in orc.check()} == {"weighed": True, "v": True}


def test_a_program_of_many_steps_is_planned_in_one_way(orc, monkeypatch):
    monkeypatch.setattr(choose, "MOST_STEPS", 4)
    orc.create_view("v", chain(orc, 4))
    assert orc.view("v").strategy == "id"
    assert "the program has more than 4 steps, so that no other was weighed" in orc.explain("v").why


@pytest.mark.parametrize("levels", [70, 250])
@pytest.mark.sampled(3)
def test_a_query_of_many_levels_is_computed_anew_and_says_why(orc, levels):
    """Python's own limit of nested calls ends planning at either of two places."""
    orc.execute("CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 1), (2, 2)")
    level = "SELECT a.id, b.n FROM @ AS a LEFT JOIN (SELECT id, sum(n) AS n FROM @ GROUP BY id) AS b ON b.id = a.id"
    parts = ["c0 AS (SELECT id, n FROM t)"]
    parts += [
        f"c{n} AS ({level.replace('@', f'c{n - 1}', 1).replace('@', 't')})"
        for n in range(1, levels)
    ]
    query = f"WITH {', '.join(parts)} SELECT id, n FROM c{levels - 1}"
    assert orc.create_view("v", query).strategy == "recompute"
    assert "a program for a query with so many levels" in orc.explain("v").why
    with pytest.raises(UnsupportedError, match="with so many levels"):
        orc.create_view("w", query, strategy="id")
    orc.connection.execute("UPDATE t SET n = 7 WHERE id = 1")
    assert [report.equal for report in orc.check()] == [True]


def test_what_is_refused_is_tried_once(orc, monkeypatch):
    tried = []
    for name, planner in list(choose.STRATEGIES.items()):

        def counted(request, name=name, planner=planner):
            tried.append(name)
            return planner(request)

        monkeypatch.setitem(choose.STRATEGIES, name, counted)
    first = compose.plan
    monkeypatch.setattr(compose, "plan", lambda request: tried.append("id") or first(request))
    orc.execute("CREATE TABLE t (id int PRIMARY KEY, n xml)")
    assert orc.create_view("v", "SELECT count(*), n::text FROM t GROUP BY GROUPING SETS (n::text)")
    orc.connection.execute("SELECT 1")
    assert len(tried) == len(set(tried))


def test_plans_are_hashed_once(orc, monkeypatch):
    """An operator that is looked up in a dictionary is not hashed with all that is below it again."""
    query = chain(orc, 6)
    hashed = []
    inner = Operator.__dict__["_hash"].func
    made_again = type(Operator.__dict__["_hash"])(
        lambda self: hashed.append(id(self)) or inner(self)
    )
    made_again.__set_name__(Operator, "_hash")
    monkeypatch.setattr(Operator, "_hash", made_again)
    kept = []
    lowered = facts.lower
    monkeypatch.setattr(facts, "lower", lambda plan: kept.append(plan) or lowered(plan))
    orc.create_view("v", query)
    assert hashed
    assert hash(kept[0].root) == hash(kept[0].root)
    before = len(hashed)
    assert hash(kept[0].root) and len(hashed) == before


@pytest.mark.parametrize("size", [3, 40])
def test_what_is_known_of_many_columns(size):
    columns = [Column(f"c{n}") for n in range(size)]
    chained = Dependencies.of(
        [({column}, {other}) for column, other in itertools.pairwise(columns)],
        [(columns[0], Column("other"))],
    )
    assert chained.closure([columns[0]]) == {*columns, Column("other")}
    assert chained.closure([columns[-1]]) == {columns[-1]}
    assert chained.same(Column("other")) == {columns[0], Column("other")}
    assert chained.minimal(columns) == {columns[0]}
    twice = chained | Dependencies.of([({columns[0]}, {columns[-1]})])
    assert twice.tidied().closure([columns[0]]) == {*columns, Column("other")}
    equal = Dependencies.of([], itertools.pairwise(columns))
    assert equal.same(columns[0]) == frozenset(columns)
