"""Keys, foreign keys and static tables in the guarantees of `skew` and `viewtree`, and in their plans."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations
from random import Random

import pytest
from parted import plan_of, require_enumeration, require_right

from orchestrator.api import Orchestrator
from orchestrator.deltascript.plan import MaintenancePlan, StateTable
from orchestrator.strategies.skew.hierarchical import union
from orchestrator.strategies.skew.union_plan import UnionPlan
from orchestrator.strategies.viewtree.hypergraph import Constraints, Fd, ForeignKey, Hypergraph

TABLES = """
CREATE TABLE kinds (kind int PRIMARY KEY, label text, rate numeric);
CREATE TABLE items (item int PRIMARY KEY, code int NOT NULL UNIQUE, kind int, price int);
CREATE TABLE sold (id int PRIMARY KEY, shop int, item int, units int);
CREATE TABLE tags (item int, tag int)
"""

SOLD = "sold s JOIN items i USING (item)"
CHAIN = f"{SOLD} JOIN kinds k USING (kind)"

VIEWS = {
    "pairs": f"SELECT s.shop, i.kind, count(*) AS n, sum(s.units * i.price) AS v FROM {SOLD} GROUP BY 1, 2",
    "chain": f"SELECT s.id, s.units, i.item, i.price, k.kind, k.label FROM {CHAIN}",
    "labels": f"SELECT k.label, sum(s.units * k.rate) AS v, count(*) AS n FROM {CHAIN} GROUP BY 1",
    "whole": f"SELECT sum(s.units * i.price) AS v, count(*) AS n FROM {CHAIN}",
    "tagged": "SELECT s.id, t.tag, count(*) AS n FROM sold s JOIN tags t USING (item) GROUP BY 1, 2",
    "shops": "SELECT s.shop, count(*) AS n FROM sold s JOIN tags t ON t.item = s.id GROUP BY 1",
    "codes": "SELECT i.kind, s.shop, sum(s.units) AS u FROM sold s JOIN items i ON i.code = s.item"
    " JOIN kinds k ON k.kind = i.kind GROUP BY 1, 2",
    "cycle": "SELECT s.shop, count(*) AS n FROM sold s JOIN items i ON i.item = s.id AND i.kind = s.item"
    " JOIN tags t ON t.item = i.price AND t.tag = s.shop GROUP BY 1",
}
"""Pairs by a key; chains with all columns, with the last, and with none; a bound variable that a free
variable determines; a group that a key determines; a further key; a cycle."""

DIVIDED = {"pairs", "codes"}


def batches(rng: Random, count: int) -> Iterator[str]:
    """Changes of all tables, in which keys move, refer to nothing, and become frequent."""
    number = 0
    for _ in range(count):
        statements = []
        for _ in range(rng.choice((1, 2, 5))):
            number += 1
            key, other = rng.randrange(12), rng.choice((0, 0, 1, rng.randrange(12)))
            statements.append(
                rng.choice(
                    (
                        f"INSERT INTO kinds VALUES ({key}, 'l{other % 4}', {other} / 2.0)"
                        f" ON CONFLICT (kind) DO UPDATE SET label = excluded.label, rate = {key}",
                        f"INSERT INTO items VALUES ({key}, {other + 100 * number}, {other}, {number % 7})"
                        f" ON CONFLICT (item) DO UPDATE SET kind = excluded.kind, code = {key}",
                        f"INSERT INTO sold SELECT {number * 100} + g, g % 5, nullif({other}, 3), g"
                        f" FROM generate_series(1, {rng.choice((1, 3, 40))}) AS g",
                        f"INSERT INTO sold VALUES ({number * 100}, {other}, {key}, NULL)",
                        f"INSERT INTO tags VALUES ({other}, {key}), ({key}, 1), ({number * 100}, 2), (NULL, 1)",
                        f"DELETE FROM items WHERE item = {key}",
                        f"DELETE FROM kinds WHERE kind = {key}",
                        f"DELETE FROM sold WHERE item = {other} AND id % 3 > 0",
                        f"DELETE FROM tags WHERE tag = {key}",
                        f"UPDATE items SET item = item + 12 WHERE item = {key} AND NOT EXISTS"
                        f" (SELECT FROM items WHERE item = {key} + 12)",
                        "UPDATE items SET kind = kind + 1, price = price + 1 WHERE item < 5",
                        f"UPDATE kinds SET label = 'l{key}', rate = NULL WHERE kind = {other}",
                        f"UPDATE sold SET item = {key}, units = units + 1 WHERE id % 7 = 0",
                        f"UPDATE sold SET shop = NULL WHERE item = {key}",
                    )
                )
            )
        yield "; ".join(statements)


def reason(orc: Orchestrator, name: str) -> str:
    return orc.explain(name).why.splitlines()[1]


def states(plan: MaintenancePlan) -> int:
    return sum(isinstance(state, StateTable) for state in plan.program.states)


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.parametrize(
    ("maintain", "epsilon", "names"),
    [
        ("deferred", "1/2", ("pairs", "chain", "tagged", "codes", "cycle")),
        ("eager", "1/4", ("pairs", "labels", "whole")),
        ("on_commit", "3/4", ("shops", "codes", "tagged", "chain")),
    ],
)
def test_plans_by_keys_follow_every_change(orc, maintain, epsilon, names, older):
    if older and maintain != "deferred":
        pytest.skip("older versions run one mode, unless they are asked for")
    orc.execute(TABLES)
    for name in names:
        view = orc.create_view(
            name, VIEWS[name], strategy="skew", epsilon=epsilon, maintain=maintain
        )
        assert view.strategy == "skew"
    plans = {name: plan_of(orc, name) for name in names}
    assert {name for name, (plan, _) in plans.items() if plan.partitioning} == DIVIDED & {*names}
    for change in batches(Random(f"{maintain} {epsilon}"), 25):
        orc.execute(change)
        if maintain == "deferred":
            orc.refresh()
        require_right(orc, [plans[name] for name in DIVIDED & {*names}], change)
    for name in names:
        require_enumeration(orc, name, {"tagged": ("id", "tag"), "pairs": ("shop",)}.get(name, ()))


@pytest.mark.slow
@pytest.mark.parametrize("representation", ["listing", "factorized"])
def test_view_trees_by_keys_follow_every_change(orc, representation):
    orc.execute(TABLES)
    for name, query in VIEWS.items():
        orc.create_view(name, query, strategy="viewtree", representation=representation)
    for change in batches(Random(representation), 15):
        orc.execute(change)
        orc.refresh()
        require_right(orc, [], change)


def test_explain_names_the_keys_of_a_guarantee(orc):
    orc.execute(TABLES)
    for name in ("pairs", "chain", "labels", "whole", "tagged", "shops"):
        orc.create_view(name, VIEWS[name], strategy="skew")
    constant = "w = 1, δ = 0: a change of one row costs O(1) on average, the first content O(N), and a row is O(1)"
    for name, keys in {
        "chain": "items",
        "labels": "items and kinds",
        "whole": "items",
        "tagged": "sold",
        "shops": "sold",
    }.items():
        assert f"{constant} after the one before, by keys of {keys}" in reason(orc, name), name
        plan, _ = plan_of(orc, name)
        assert plan.partitioning is None
    # A change of an item meets all its sales. Without the key, the first content would be O(N^3/2).
    assert "w = 1, δ = 1: a change of one row costs O(N^1/2)" in reason(orc, "pairs")
    assert (
        "the first content O(N), and a row is O(N^1/2) after the one before, by keys of items"
        in (reason(orc, "pairs"))
    )
    assert "s by item: H_item *" in orc.explain("pairs").plan


def test_a_factorized_result_shows_what_its_columns_determine(orc):
    orc.execute(TABLES)
    orc.create_view("tagged", VIEWS["tagged"], representation="factorized")
    assert "kept factorized, the next row is found in constant time" in reason(orc, "tagged")
    assert "V@item(s, t)" in orc.explain("tagged").plan
    orc.execute("INSERT INTO sold SELECT g, 1, 1, 1 FROM generate_series(1, 500) AS g")
    orc.execute("INSERT INTO tags SELECT 1, g FROM generate_series(1, 200) AS g")
    assert orc.check("tagged")[0].equal
    assert orc.connection.execute("SELECT count(*) FROM tagged").fetchone() == (100_000,)
    assert orc.views()[0].bytes < 1_000_000


@pytest.mark.parametrize("strategy", ["skew", "viewtree"])
def test_static_tables_make_a_guarantee(orc, strategy):
    orc.execute(TABLES)
    orc.create_view("plain", VIEWS["pairs"], strategy=strategy)
    view = orc.create_view("v", VIEWS["pairs"], strategy=strategy, static="items")
    assert view.strategy == strategy
    assert "a change of one row costs O(1)" in reason(orc, "v")
    assert reason(orc, "v").rstrip().endswith("as items is static")
    assert "a change of one row costs O(1)" not in reason(orc, "plain")
    assert plan_of(orc, "v")[0].partitioning is None
    for change in batches(Random(strategy), 12):
        orc.execute(change)
        assert [report.view for report in orc.check() if not report.equal] == [], change


REFERRING = """
CREATE TABLE items (item int PRIMARY KEY, kind int, price int);
CREATE TABLE sold (id int PRIMARY KEY, shop int, item int REFERENCES items, units int);
INSERT INTO items SELECT g, g % 5, g FROM generate_series(1, 20) AS g;
INSERT INTO sold SELECT g, g % 7, g % 4 + 1, g FROM generate_series(1, 100) AS g
"""


@pytest.mark.parametrize(
    ("strategy", "update"), [("skew", "O(N^1/2) on average"), ("viewtree", "O(N)")]
)
def test_rows_that_no_row_refers_to_come_and_go_at_no_cost(orc, strategy, update):
    orc.execute(REFERRING)
    orc.create_view("v", VIEWS["pairs"], strategy=strategy)
    assert f"a change of one row costs {update}, an insert or a delete O(1)" in reason(orc, "v")
    assert "by keys of items, and by foreign keys of sold" in reason(orc, "v")
    view = orc.create_view("w", VIEWS["pairs"], strategy=strategy, append_only="items")
    assert view.strategy == strategy
    assert "a change of one row costs O(1)" in reason(orc, "w")
    assert plan_of(orc, "w")[0].partitioning is None
    for change in (
        "INSERT INTO items VALUES (30, 1, 1), (31, 2, 2)",
        "INSERT INTO items VALUES (32, 3, 3); INSERT INTO sold SELECT g, 3, 32, 1 FROM generate_series(200, 240) AS g",
        "DELETE FROM sold WHERE item = 1",
        "DELETE FROM sold WHERE item = 2; DELETE FROM items WHERE item IN (1, 2)",
        "UPDATE items SET kind = 9 WHERE item = 32",
    ):
        orc.execute(change)
        assert [report.view for report in orc.check() if not report.equal] == [], change


def test_tables_that_change_most_often_cost_least(orc):
    orc.execute("CREATE TABLE r (a int); CREATE TABLE s (a int, b int); CREATE TABLE t (b int)")
    orc.execute("INSERT INTO r VALUES (1); INSERT INTO s VALUES (1, 1); INSERT INTO t VALUES (1)")
    query = "SELECT count(*) AS n FROM r JOIN s USING (a) JOIN t USING (b)"
    for table, order, times in (("t", "b - a", 40), ("r", "a - b", 120)):
        for _ in range(times):
            orc.execute(f"DELETE FROM {table}; INSERT INTO {table} VALUES (1)")
        orc.execute("SELECT pg_stat_force_next_flush()")
        orc.create_view(f"v_{table}", query, strategy="viewtree")
        assert f"view tree over {order}" in orc.explain(f"v_{table}").plan


def test_inheritance_children_are_not_bound_by_foreign_keys(orc):
    orc.execute(REFERRING)
    orc.execute("CREATE TABLE more () INHERITS (sold)")
    orc.create_view("v", VIEWS["pairs"], strategy="viewtree")
    assert "foreign keys" not in reason(orc, "v")
    orc.execute("INSERT INTO more VALUES (1, 1, 77, 1)")
    orc.execute("INSERT INTO items VALUES (77, 7, 7)")
    assert orc.check("v")[0].equal


@pytest.mark.parametrize(
    ("strategy", "name", "lost"),
    [
        ("skew", "labels", "ALTER TABLE kinds DROP CONSTRAINT kinds_pkey"),
        ("skew", "whole", "ALTER TABLE items DROP CONSTRAINT items_pkey"),
        ("skew", "tagged", "ALTER TABLE sold DROP CONSTRAINT sold_pkey"),
        ("skew", "codes", "ALTER TABLE items DROP CONSTRAINT items_code_key"),
        ("viewtree", "codes", "ALTER TABLE items DROP CONSTRAINT items_code_key"),
    ],
)
def test_a_view_that_relies_on_a_lost_key_is_planned_again(orc, strategy, name, lost):
    orc.execute(TABLES)
    for change in batches(Random(1), 8):
        orc.execute(change)
    orc.create_view("v", VIEWS[name], strategy=strategy)
    before = reason(orc, "v")
    assert "by keys of" in before
    orc.execute(lost)
    orc.execute("INSERT INTO kinds SELECT kind, 'again', 1 FROM kinds ON CONFLICT DO NOTHING")
    orc.execute(
        "INSERT INTO items SELECT item, code, kind + 1, 1 FROM items ON CONFLICT DO NOTHING;"
        "INSERT INTO sold SELECT id, 9, item + 1, 1 FROM sold ON CONFLICT DO NOTHING"
    )
    if name == "whole":
        # Only with a key is the count over three tables a join of lookups.
        assert orc.view("v").plan.partitioning is None
    orc.refresh()
    assert orc.check("v")[0].equal
    assert reason(orc, "v") != before
    if name == "whole":
        assert orc.view("v").plan.partitioning is not None


def random_query(rng: Random) -> tuple[Hypergraph, Constraints]:
    edges = {
        name: rng.sample("ABCD", rng.choice((1, 2, 2, 3))) for name in "RSTU"[: rng.randint(2, 4)]
    }
    used = sorted({v for schema in edges.values() for v in schema})
    fds = []
    for name, schema in edges.items():
        if rng.random() < 0.6:
            key = rng.sample(schema, rng.randint(1, len(schema)))
            fds.append(Fd.of(name, key, set(schema) - set(key)))
    keys = [
        ForeignKey(fd.atom, other, fd.determinant)
        for fd in fds
        for other, schema in edges.items()
        if other != fd.atom and fd.determinant <= set(schema) and rng.random() < 0.3
    ]
    static = frozenset(name for name in edges if rng.random() < 0.2)
    free = [v for v in used if rng.random() < 0.5]
    return Hypergraph.of(edges, free), Constraints(tuple(fds), tuple(keys), static)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("strategy", ["skew", "viewtree"])
def test_random_queries_by_keys_follow_random_changes(orc, strategy, seed):
    rng = Random(seed)
    planned = 0
    while planned < 4:
        graph, known = random_query(rng)
        if not known.fds or not isinstance(union(graph, Fraction(1, 2), known), UnionPlan):
            continue
        planned += 1
        for name, variables in graph.edges:
            columns = ", ".join(f"{v} int" for v in sorted(variables))
            orc.execute(f"CREATE TABLE {name} ({columns}, x int)")
            for fd in known.fds_of({name}):
                key = ", ".join(sorted(fd.determinant))
                orc.execute(f"ALTER TABLE {name} ADD PRIMARY KEY ({key})")
        factors = " * ".join(f"{name}.x" for name, _ in graph.edges[:2])
        first = {v: f"{name}.{v}" for name, schema in reversed(graph.edges) for v in schema}
        equal = [
            f"{first[v]} = {name}.{v}"
            for name, variables in graph.edges
            for v in sorted(variables)
            if first[v] != f"{name}.{v}"
        ]
        tables = ", ".join(name for name, _ in graph.edges)
        free = [first[v] for v in sorted(graph.free)]
        query = (
            f"SELECT {', '.join([*free, 'count(*) AS n', f'sum({factors}) AS s'])} FROM {tables}"
            f" WHERE {' AND '.join(equal) or 'true'}"
            + (f" GROUP BY {', '.join(free)}" if free else "")
        )
        static = ", ".join(sorted(known.static)).lower()
        orc.create_view("v", query, strategy=strategy, static=static)
        for _ in range(8):
            for name, variables in rng.sample(graph.edges, rng.randint(1, len(graph.edges))):
                rows = ", ".join(
                    f"({', '.join(str(rng.choice((0, 0, rng.randrange(6)))) for _ in variables)}, {n})"
                    for n in range(rng.choice((1, 1, 12)))
                )
                changed = rng.choice(sorted(variables))
                orc.execute(
                    rng.choice(
                        (
                            f"INSERT INTO {name} VALUES {rows} ON CONFLICT DO NOTHING",
                            f"INSERT INTO {name} VALUES {rows} ON CONFLICT DO NOTHING",
                            f"DELETE FROM {name} WHERE {changed} = {rng.randrange(6)}",
                            f"UPDATE {name} SET x = x + 1 WHERE {changed} < 2",
                            f"UPDATE {name} SET {changed} = {changed} + 10 WHERE {changed} = {rng.randrange(3)}"
                            f" AND NOT EXISTS (SELECT FROM {name} WHERE {changed} > 9)",
                        )
                    )
                )
            assert orc.check("v")[0].equal, (graph, known)
        require_enumeration(orc, "v")
        orc.drop_view("v")
        orc.execute(f"DROP TABLE {tables}")


def test_constraints_never_make_a_guarantee_worse():
    rng, half = Random(28), Fraction(1, 2)
    better = 0
    for _ in range(400):
        graph, known = random_query(rng)
        plan, plain = union(graph, half, known), union(graph, half)
        if isinstance(plain, UnionPlan):
            assert isinstance(plan, UnionPlan)
            assert plan.guarantee.rank <= plain.guarantee.rank
            better += plan.guarantee.rank < plain.guarantee.rank
        elif isinstance(plan, UnionPlan):
            better += 1
        if isinstance(plan, UnionPlan) and not plan.divisions:
            # What is not divided is kept by lookups alone.
            assert plan.guarantee.update == plan.guarantee.delay == 0
    assert better > 40


def test_a_union_computes_the_query_whatever_its_keys():
    """The views join to the query for all data that satisfies the keys; each row of the content comes once."""
    rng = Random(3)
    seen = 0
    for _ in range(300):
        graph, known = random_query(rng)
        plan = union(graph, Fraction(1, 2), known)
        if not isinstance(plan, UnionPlan) or plan.divisions or not plan.variables:
            continue
        seen += 1
        atoms = {name: _random_rows(rng, schema, known, name) for name, schema in graph.edges}
        whole = _joined([(schema, atoms[name]) for name, schema in graph.edges])
        [trees] = plan.unions
        kept = [view for tree in trees for view in tree.frontier]
        rows = _joined([(view.keys, _rows(view, atoms)) for view in kept])
        visible = sorted(graph.free)
        content = [tuple(dict(row)[v] for v in visible) for row in rows]
        assert len(content) == len(set(content))
        assert set(content) == {tuple(dict(row)[v] for v in visible) for row in whole}
    assert seen > 30


def _random_rows(rng, schema, known, name):
    variables = sorted(schema)
    rows = {tuple((v, rng.randrange(3)) for v in variables) for _ in range(8)}
    for fd in known.fds_of({name}):
        kept = {}
        for row in sorted(rows):
            kept.setdefault(tuple(dict(row)[v] for v in sorted(fd.determinant)), row)
        rows = set(kept.values())
    return rows


def _rows(view, atoms):
    if not view.children:
        return atoms[view.atoms[0]]
    joined = _joined([(child.keys, _rows(child, atoms)) for child in view.children])
    return {tuple((v, dict(row)[v]) for v in sorted(view.keys)) for row in joined}


def _joined(relations):
    result = {()}
    for _, rows in relations:
        result = {
            tuple(sorted({**dict(left), **dict(right)}.items()))
            for left in result
            for right in rows
            if all(dict(left).get(v, value) == value for v, value in right)
        }
    return result


def test_needed_constraints_are_those_without_which_the_outcome_differs():
    fds = tuple(Fd.of(name, "A", "B") for name in "RST")
    known = Constraints(fds, static=frozenset("XY"))
    for some in combinations("RST", 2):
        needed = known.needed(lambda c, some=some: {fd.atom for fd in c.fds} >= set(some))
        assert {fd.atom for fd in needed.fds} == set(some)
        assert needed.static == frozenset()
