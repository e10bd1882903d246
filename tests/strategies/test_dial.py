"""`epsilon = auto` of hierarchical queries: the dial, its turns, and the curve that explain shows."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import pytest
from hierarchies import LEADING, VIEWS, batches
from hierarchies import TABLES as WIDE
from parted import epsilon_of, plan_of, require_enumeration, require_right, single_row, turn
from psycopg.sql import SQL, Identifier, Literal

from orchestrator.catalog.parts import dial_of

TABLES = """
CREATE TABLE r (id int PRIMARY KEY, a int, b int, x int);
CREATE TABLE s (b int, c int);
CREATE INDEX ON r (b);
CREATE INDEX ON s (b);
INSERT INTO r SELECT n, n % 20, n % 41, 1 FROM generate_series(1, 400) AS n;
INSERT INTO s SELECT n % 41, n % 30 FROM generate_series(1, 400) AS n
"""
PAIRS = "SELECT r.a, s.c, count(*) AS n, sum(r.x) AS x FROM r JOIN s ON s.b = r.b GROUP BY r.a, s.c"


def content(orc) -> list[tuple[object, ...]]:
    return orc.connection.execute("SELECT * FROM v ORDER BY a, c").fetchall()


def look_again(orc, plan, names) -> None:
    """Let the next refresh compare costs, as after a second."""
    dial = dial_of(plan)
    observed = Identifier(dial.observed)
    orc.connection.execute("SELECT pg_stat_force_next_flush()")
    orc.connection.execute(
        SQL("UPDATE {} SET {} = {} || %s").format(
            names.state(dial.observations), observed, observed
        ),
        ['{"work": 1000000}'],
    )
    orc.connection.execute(
        SQL("UPDATE {} SET {} = '-infinity'").format(
            names.state(dial.dial), Identifier(dial.counted[-1])
        )
    )


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.parametrize(
    ("maintain", "names"),
    [
        ("deferred", ("pairs", "nested")),
        ("eager", ("branches", "itself")),
        ("on_commit", ("one_side", "apart")),
    ],
)
@pytest.mark.sampled(1)
def test_content_and_parts_follow_every_turn(orc, maintain, names):
    orc.execute(WIDE)
    for name in names:
        orc.create_view(name, VIEWS[name], strategy="skew", maintain=maintain)
    plans = [plan_of(orc, name) for name in names]
    rng = Random(maintain)
    for number, change in enumerate(batches(rng, 12, 40)):
        turned = rng.choice((None, 0, 0.125, 0.25, 0.5, 0.75, 1))
        if turned is not None:
            for plan in plans:
                turn(orc, *plan, turned)
        # Each view has a change, and so divides its values.
        orc.execute(f"{change}; INSERT INTO r VALUES ({5_000 + number}, 0, {number % 2}, 'p', 1)")
        orc.refresh()
        require_right(orc, plans, (turned, change))
    for name in names:
        require_enumeration(orc, name, LEADING.get(name, ()))


@pytest.mark.integration
@pytest.mark.parametrize("epsilon", [0, 1])
@pytest.mark.sampled(1)
def test_readers_see_no_difference_while_values_are_divided_again(orc, connect, epsilon):
    orc.execute(TABLES)
    orc.create_view("v", PAIRS, strategy="skew")
    plan, names = plan_of(orc, "v")
    before = content(orc)
    turn(orc, plan, names, epsilon)
    # The change leaves all degrees as they are.
    orc.execute("UPDATE r SET x = 5 WHERE id = 1")
    with connect() as other, orc.connection.transaction():
        orc.connection.execute("SELECT idivm.refresh('v')")
        other.execute("SET lock_timeout = '10s'")
        assert other.execute("SELECT * FROM v ORDER BY a, c").fetchall() == before
        assert content(orc) != before
    require_right(orc, [(plan, names)], epsilon)
    parts = orc.parts(orc.view("v"))
    assert parts.relations[0].epsilon == str(epsilon)
    assert bool(parts.relations[0].light_values) == (epsilon == 1)
    orc.execute("UPDATE r SET x = 1 WHERE id = 1")
    orc.refresh()
    assert content(orc) == before


@pytest.mark.integration
def test_the_dial_follows_changes_and_reads(orc):
    orc.execute(TABLES)
    orc.create_view("v", PAIRS, strategy="skew")
    plan, names = plan_of(orc, "v")
    assert epsilon_of(orc, plan, names) == 0.5
    turned = [0.5]

    def after(act, times: int) -> float:
        """What the dial shows after many acts and a comparison; its first look only notes where counters stand."""
        for _ in range(2):
            for number in range(times):
                act(number)
            look_again(orc, plan, names)
            insert(0)
            orc.refresh("v")
        turned.append(epsilon_of(orc, plan, names))
        return turned[-1]

    def insert(number: int) -> None:
        orc.execute("INSERT INTO r SELECT max(id) + 1, 1, 1, 1 FROM r")

    def change(number: int) -> None:
        orc.execute("UPDATE r SET b = (b + 1) % 41 WHERE id <= 40")
        orc.refresh("v")

    def read(number: int) -> None:
        with orc.connection.transaction():
            orc.connection.execute("SELECT idivm.enumerate('v')")
            orc.connection.execute("FETCH 50 FROM idivm_rows").fetchall()

    assert after(change, 10) < 0.5
    assert after(read, 30) > turned[-2]
    insert(0)
    orc.refresh("v")
    assert {report.equal for report in orc.check()} == {True}
    curve = orc.explain("v").curve
    assert [point.epsilon for point in curve if point.chosen] == [str(Fraction(turned[-1]))]
    assert {point.epsilon for point in curve if point.measured} >= {str(Fraction(turned[-1]))}


@pytest.mark.integration
def test_expected_costs_name_the_best_epsilon(orc):
    orc.execute(TABLES)
    orc.create_view("v", PAIRS, strategy="skew")
    plan, names = plan_of(orc, "v")
    dial = dial_of(plan)
    (base,) = single_row(
        orc, SQL("SELECT {} FROM {}").format(Identifier(dial.base), names.state(dial.state))
    )

    def best(changes: int, reads: int, each: int) -> float:
        (epsilon,) = single_row(
            orc,
            SQL(
                "SELECT epsilon FROM idivm.dial_costs({base}, 0.5, ARRAY[{degrees}]::regclass[], ARRAY[{column}],"
                " ARRAY[2], 1, 2, {changes}, {reads}, {steps}, '{{}}') ORDER BY cost, epsilon LIMIT 1"
            ).format(
                base=Literal(base),
                degrees=Literal(names.state(dial.degrees[0][0]).as_string(None)),
                column=Literal(dial.degrees[0][1]),
                changes=Literal(changes),
                reads=Literal(reads),
                steps=Literal(reads * each),
            ),
        )
        return epsilon

    assert best(1_000, 0, 0) == 0
    assert best(1_000, 1_000, 2_000) == 0.5


@pytest.mark.integration
def test_explain_shows_the_curve(orc):
    orc.execute(TABLES)
    orc.create_view("v", PAIRS, strategy="skew")
    explanation = orc.explain("v")
    [chosen] = [point for point in explanation.curve if point.chosen]
    assert (chosen.epsilon, chosen.update, chosen.space, chosen.delay) == (
        "1/2",
        "O(N^1/2)",
        "O(N^3/2)",
        "O(N^1/2)",
    )
    assert (chosen.expected.heavy_values, explanation.curve[0].expected.heavy_values) == (0, 41)
    assert chosen.measured is None
    assert "epsilon, chosen by the changes and reads" in explanation.why
    orc.execute("INSERT INTO s VALUES (1, 1)")
    orc.refresh()
    [chosen] = [point for point in orc.explain("v").curve if point.chosen]
    assert chosen.measured.changes == 1
    # Changes are shown before the next look at the counters.
    orc.execute("INSERT INTO s VALUES (1, 2), (1, 3)")
    orc.refresh()
    assert orc.explain("v").to_json()["curve"][4]["measured"]["changes"] == 3
    triangle = "SELECT r.a, count(*) AS n FROM r JOIN s ON s.b = r.b JOIN s AS t ON t.c = s.c AND t.b = r.a GROUP BY r.a"
    assert orc.explain_query(triangle, strategy="skew").curve[4].delay == "O(N)"
    assert orc.explain_query("SELECT a FROM r").curve == []


def test_a_fixed_epsilon_has_no_dial(orc):
    orc.execute(TABLES)
    view = orc.create_view("v", PAIRS, strategy="skew", epsilon="1/4")
    assert dial_of(view.plan) is None
    assert orc.parts(view).relations[0].epsilon == "1/4"
    assert [point.epsilon for point in orc.explain("v").curve if point.chosen] == ["1/4"]
