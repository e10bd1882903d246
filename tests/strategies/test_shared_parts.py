"""A self-join stores equal parts, degrees and views once."""

from __future__ import annotations

from random import Random

import pytest
from parted import plan_of, require_enumeration, require_right
from psycopg.sql import SQL

from orchestrator.deltascript.plan import StateTable

pytestmark = pytest.mark.integration

VIEWS = {
    "counted": "SELECT count(*) AS n FROM {p} p JOIN {q} q ON q.a = p.b JOIN {o} o ON o.a = q.b AND o.b = p.a",
    "of_c": "SELECT o.a AS c, count(*) AS n FROM {p} p JOIN {q} q ON q.a = p.b"
    " JOIN {o} o ON o.a = q.b AND o.b = p.a GROUP BY o.a",
    "listed": "SELECT DISTINCT p.a, p.b, q.b AS c FROM {p} p JOIN {q} q ON q.a = p.b"
    " JOIN {o} o ON o.a = q.b AND o.b = p.a",
    "walks": "SELECT count(*) AS n FROM {p} p JOIN {q} q ON q.a = p.b JOIN {o} o ON o.a = q.b",
}
UNDIRECTED = (
    "WITH e AS (SELECT a, b FROM r UNION ALL SELECT b, a FROM r) SELECT count(*) AS n"
    " FROM e p JOIN e q ON q.a = p.b JOIN e o ON o.a = q.b AND o.b = p.a"
)


def edges(rng: Random, count: int) -> str:
    ends = [(rng.choice((0, 0, 1, rng.randrange(60))), rng.randrange(60)) for _ in range(count)]
    return ", ".join(f"({rng.choice((f'{a}, {b}', f'{b}, {a}'))})" for a, b in ends)


def stored_rows(orc, name: str) -> int:
    plan, names = plan_of(orc, name)
    total = 0
    for state in plan.program.states:
        if isinstance(state, StateTable):
            query = SQL("SELECT count(*) FROM {}").format(names.state(state.role))
            total += orc.connection.execute(query).fetchone()[0]
    return total


@pytest.fixture
def graph(orc):
    orc.execute("CREATE TABLE r (id serial PRIMARY KEY, a int, b int)")
    orc.execute(f"INSERT INTO r (a, b) VALUES {edges(Random(7), 300)}")
    return orc


def test_a_self_join_stores_half_of_what_three_tables_store(graph):
    for name in ("r2", "r3"):
        graph.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, a int, b int)")
        graph.execute(f"INSERT INTO {name} SELECT * FROM r")
    graph.create_view("one", VIEWS["counted"].format(p="r", q="r", o="r"), strategy="skew")
    graph.create_view("three", VIEWS["counted"].format(p="r", q="r2", o="r3"), strategy="skew")
    assert 2 * stored_rows(graph, "one") <= stored_rows(graph, "three")
    [partition] = graph.view("one").plan.partitioning.partitions
    assert len(graph.view("three").plan.partitioning.partitions) == 3
    assert len(partition.parts) == 2


@pytest.mark.sampled(5)
@pytest.mark.parametrize("maintain", ["deferred", "eager"])
def test_shared_parts_follow_every_change(graph, maintain):
    rng = Random(maintain)
    names = [*VIEWS, "undirected"]
    for name in names:
        query = VIEWS[name].format(p="r", q="r", o="r") if name in VIEWS else UNDIRECTED
        graph.create_view(name, query, strategy="skew", maintain=maintain, epsilon="1/3")
    plans = [plan_of(graph, name) for name in names]
    for turn in range(12):
        graph.execute(f"INSERT INTO r (a, b) VALUES {edges(rng, rng.choice((1, 1, 8, 90)))}")
        # A single value grows and shrinks slowly, so that it changes its part by itself.
        hub, ends = 50 + turn % 3, range(7 * (turn % 4), 7 * (turn % 4) + 7)
        graph.execute(
            f"INSERT INTO r (a, b) VALUES {', '.join(f'({hub}, {end}), ({end}, {hub})' for end in ends)}"
        )
        if turn % 3 == 1:
            graph.execute(f"DELETE FROM r WHERE {hub} IN (a, b) OR id % 7 = {turn % 7}")
        if turn % 4 == 2:
            graph.execute(f"UPDATE r SET a = b, b = a WHERE id % {rng.randrange(2, 6)} = 0")
        if turn == 9:
            graph.execute("DELETE FROM r WHERE id % 10 <> 1")
        graph.refresh()
        require_right(graph, plans, turn)
    known = [graph.parts(graph.view(name)) for name in names]
    assert sum(item.major for item in known) > 0 and sum(item.minor for item in known) > 4
    # Each statement is a batch of its own here, so that the shared parts move alone.
    assert known[0].minor > 0 or maintain != "eager"
    for name in ("of_c", "listed"):
        require_enumeration(graph, name, ())


def rows_read(orc) -> int:
    """Return how many rows of states a refresh reads."""
    count = (
        "SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)) FROM pg_stat_xact_all_tables"
        " WHERE schemaname = 'idivm_state'"
    )
    with orc.connection.transaction():
        [before] = orc.connection.execute(count).fetchone()
        orc.connection.execute("SELECT idivm.refresh('v')")
        [after] = orc.connection.execute(count).fetchone()
    return after - before


def test_a_changed_atom_is_looked_up_although_it_is_read_with_its_change(orc):
    """A union with the rows of a variable has no index."""
    orc.execute("CREATE TABLE r (a int, b int, PRIMARY KEY (a, b))")
    orc.execute(
        "INSERT INTO r SELECT i % 100, (i % 100 + i / 100) % 100 FROM generate_series(0, 3999) i"
    )
    orc.execute("ANALYZE r")
    orc.create_view("v", VIEWS["counted"].format(p="r", q="r", o="r"), strategy="skew")
    for pair in ("(3, 90)", "(5, 95)"):
        orc.execute(f"INSERT INTO r VALUES {pair}")
        assert rows_read(orc) < 2000
    # So many rows may read all edges for each step, but not for each path of two edges.
    orc.execute("DELETE FROM r WHERE (a + b) % 5 = 0 AND a <> 3")
    assert rows_read(orc) < 400_000
    assert orc.check("v")[0].equal
