"""What refreshes took: how it is noted, and what planning makes of it."""

from __future__ import annotations

import psycopg
import pytest
from costs import measured

from orchestrator.catalog import readers as catalog_readers
from orchestrator.deltascript.plan import ChangeKind
from orchestrator.runtime.diagnosis import inspection
from orchestrator.runtime.installation import replanning
from orchestrator.strategies import plan_cost

TABLES = """
    CREATE TABLE r (id int PRIMARY KEY, k int NOT NULL, n int);
    CREATE TABLE s (id int PRIMARY KEY, k int NOT NULL, v int);
    INSERT INTO s SELECT g, g % 20, g FROM generate_series(1, 100) AS g;
    INSERT INTO r SELECT g, g % 20, g FROM generate_series(1, 400) AS g;
    CREATE INDEX ON r (k); CREATE INDEX ON s (k);
    ANALYZE r, s
"""
JOIN = "SELECT r.id, r.n, s.id AS sid, s.v FROM r JOIN s USING (k)"
"""The model expects three quarters of the accesses of `tuple` of `id`."""

SUMS = "SELECT r.id, sum(s.v) AS v FROM r JOIN s USING (k) GROUP BY r.id"
"""It expects as many of both, and some more with a cache."""


@pytest.fixture
def tables(orc):
    orc.execute(TABLES)
    return orc


def noted(orc, what):
    return orc.execute(f"SELECT {what} FROM idivm.costs")[0].rows


def measure(orc, variant, microseconds, *, name="v", refreshes=5):
    """Puts into the catalog what refreshes of a view took."""
    view = orc.view(name).id
    orc.execute(
        f"DELETE FROM idivm.costs WHERE view = {view}; INSERT INTO idivm.costs"
        f" (view, variant, price, refreshes) VALUES ({view}, '{variant}', {microseconds} * 1e-6, {refreshes})"
    )


def replanned(orc):
    """The strategy of a view after it was planned again."""
    replanning.replan(orc.connection, orc.view("v"))
    assert inspection.installed_plan(orc.connection, orc.view("v")) is not None
    return orc.view("v").strategy


def estimates(orc):
    reasons = orc.explain("v").to_json()["why"]
    return {reason["strategy"]: reason["estimate"] for reason in reasons if reason["estimate"]}


def test_a_refresh_that_is_large_enough_notes_what_it_took(tables):
    tables.create_view("v", JOIN)
    assert "no refresh since planning was large enough" in tables.explain("v").why
    assert tables.explain("v").to_json()["measured"] is None
    # The first one of a session plans its statements.
    for _ in range(2):
        tables.execute("UPDATE r SET k = (k + 1) % 20 WHERE id <= 40")
        tables.refresh()
    [(variant, refreshes, *before)] = noted(tables, "variant, refreshes, ctid::text, price > 0")
    assert variant == "id" and refreshes in (1, 2) and before[1]
    for change in ("UPDATE r SET n = n + 1 WHERE id = 1", "SELECT 1"):
        tables.execute(change)
        tables.refresh()
        assert noted(tables, "ctid::text, price > 0") == [tuple(before)]
    plan = tables.explain("v")
    assert " µs each, measured in " in plan.why
    side_by_side = plan.why.partition("an average change, expected and measured:\n")[2].splitlines()
    assert [line.split(":")[0] for line in side_by_side] == [
        *("  id", "  viewtree (next best)", "  recompute")
    ]
    assert side_by_side[0].endswith(" µs") and side_by_side[1].endswith("| not measured")
    assert plan.to_json()["measured"]["refreshes"] == refreshes
    assert plan.to_json()["measured"]["access_microseconds"] > 0
    assert all(report.equal for report in tables.check())


def test_after_the_first_few_one_refresh_of_many_is_noted(tables):
    tables.create_view("v", JOIN)

    def refreshed(seconds, large=False, variant="id"):
        tables.execute(
            f"SELECT idivm.note_diff(id, 1e6, clock_timestamp() - interval '{seconds} s', '{variant}', {large})"
            " FROM idivm.views"
        )
        return [row for row in noted(tables, "refreshes, access_seconds IS NOT NULL") if row[0]]

    # The first one of a session is not, unless it took long.
    assert refreshed(0) == []
    assert refreshed(10) == [(1, False)]
    measure(tables, "id", 10, refreshes=8)
    assert refreshed(0) == [(9, False)]
    assert refreshed(0) == [(9, False)]
    assert refreshed(10) == [(10, False)]
    assert refreshed(0, large=True) == [(11, True)]
    assert refreshed(0) == [(11, True)]
    tables.execute("UPDATE idivm.costs SET noted_at = noted_at - interval '1 hour'")
    # Until the minute is over the session does not look.
    assert refreshed(0) == [(11, True)]
    tables.execute("SELECT set_config('idivm.noted_' || id, '0 id', false) FROM idivm.views")
    assert refreshed(0) == [(12, True)]
    # What a session writes there by hand neither fails nor lasts longer than that minute.
    for forged in ("nonsense id", " id", "NaN id", "999999999999 id"):
        tables.execute("UPDATE idivm.costs SET noted_at = noted_at - interval '1 hour'")
        [[before]] = noted(tables, "refreshes")
        tables.connection.execute(
            "SELECT set_config('idivm.noted_' || id, %s, false) FROM idivm.views", [forged]
        )
        assert refreshed(0) == [(before + 1, True)]
    # Of another variant of maintaining the view nothing stands.
    assert refreshed(10, variant="tuple") == [(1, False)]


def test_what_is_measured_rises_slowly_and_falls_quickly(tables):
    tables.create_view("v", JOIN)
    prices = []
    for seconds in (64, 1e6, 0, 0):
        tables.execute(
            f"SELECT idivm.note_diff(id, 1e6, clock_timestamp() - interval '{seconds} s', 'id', true)"
            " FROM idivm.views"
        )
        prices += [price for (price,) in noted(tables, "round(price * 1e6)")]
    assert prices == [64, 72, 36, 18]


@pytest.mark.slow
def test_the_choice_follows_what_its_own_refreshes_took(tables):
    tables.create_view("v", JOIN)
    assert {estimate["access_microseconds"] for estimate in estimates(tables).values()} == {None}
    assert "+ id: a change costs 76.2 lookups and rows on average; their time was not" in (
        tables.explain("v").why
    )
    # Of the other nothing is known, so it is taken to be as dear, and nothing turns.
    measure(tables, "id", 40)
    assert replanned(tables) == "id"
    assert "3.05e+03 µs at 40 µs each (measured by its own refreshes)" in tables.explain("v").why
    assert "40 µs each (assumed, because no such plan was measured)" in tables.explain("v").why
    # Two refreshes say nothing, and others say it only of a variant that they have measured too.
    replanning.replan(tables.connection, tables.view("v"))
    for number in range(3):
        for variant, each in (("id", 5), ("tuple", 4)):
            tables.create_view(f"{variant}{number}", JOIN, strategy=variant)
            measure(tables, variant, each, name=f"{variant}{number}")
    assert replanned(tables) == "id"
    expected = estimates(tables)
    assert expected["tuple"]["access_microseconds"] == pytest.approx(32)
    assert expected["tuple"]["price"]["views"] == 3
    tables.execute("UPDATE r SET k = (k + 1) % 20; ANALYZE r")
    assert all(report.equal for report in tables.check())


@pytest.mark.slow
def test_other_views_tell_how_ways_compare(tables, monkeypatch):
    # Only variants that were measured compete.
    monkeypatch.setattr(plan_cost, "MUCH_MORE", 0.0)
    for number in range(3):
        for variant, each in (("id", 9), ("tuple", 1)):
            tables.create_view(f"{variant}{number}", SUMS, strategy=variant, cache="off")
            measure(tables, variant, each, name=f"{variant}{number}")
    tables.create_view("v", SUMS)
    assert tables.view("v").strategy == "tuple"
    expected = estimates(tables)
    # They are other views: no difference counts more than twice.
    assert expected["id without a cache"]["access_microseconds"] == pytest.approx(2)
    assert expected["id without a cache"]["price"]["seconds"] == pytest.approx(9e-6)
    assert "+ tuple: " in tables.explain("v").why
    assert "each (1 µs in the median of 3 other views)" in tables.explain("v").why
    # Two views are not several.
    tables.drop_view("tuple0")
    tables.execute(f"CREATE OR REPLACE VIEW v AS {SUMS}")
    assert tables.view("v").strategy == "id"


@pytest.mark.slow
def test_what_was_measured_of_a_view_earlier_is_remembered(tables):
    tables.create_view("v", JOIN, strategy="tuple")
    measure(tables, "tuple", 1)
    tables.execute("ALTER VIEW v SET (strategy = auto)")
    assert tables.view("v").strategy == "id"
    measure(tables, "id", 100, refreshes=2)
    assert replanned(tables) == "id"
    measure(tables, "id", 100)
    assert replanned(tables) == "tuple"
    assert "305 µs at 4 µs each (measured by its own refreshes, measured 100 µs)" in (
        tables.explain("v").why
    )
    assert replanned(tables) == "tuple"
    measure(tables, "tuple", 300)
    assert replanned(tables) == "id"
    tables.execute("UPDATE r SET k = (k + 1) % 20")
    assert all(report.equal for report in tables.check())
    # Another query is another view.
    tables.execute(f"CREATE OR REPLACE VIEW v AS {JOIN} WHERE true")
    assert {estimate["access_microseconds"] for estimate in estimates(tables).values()} == {None}


def test_what_a_change_took_counts_and_not_what_was_expected_of_it(tables):
    tables.execute("DELETE FROM r; DELETE FROM s; VACUUM ANALYZE r, s")
    tables.create_view("v", JOIN)
    measure(tables, "id", 10)
    before = estimates(tables)["id"]["accesses"]
    tables.execute(
        "INSERT INTO s SELECT g, g % 20, g FROM generate_series(1, 100) AS g;"
        "INSERT INTO r SELECT g, g % 20, g FROM generate_series(1, 400) AS g; ANALYZE r, s"
    )
    assert replanned(tables) == "id"
    estimate = estimates(tables)["id"]
    assert estimate["accesses"] > 3 * before
    assert estimate["access_microseconds"] < 5


def test_what_a_query_goes_through_counts_where_it_is_computed_anew(orc):
    orc.execute(
        "CREATE TABLE r (id int PRIMARY KEY, k int); CREATE TABLE s (id int PRIMARY KEY, k int);"
        "INSERT INTO s SELECT g, g FROM generate_series(1, 50) AS g;"
        "INSERT INTO r SELECT g, g FROM generate_series(1, 30000) AS g; ANALYZE r, s"
    )
    orc.create_view(
        "v", "SELECT r.id, count(*) AS n FROM r JOIN s ON s.k < r.k GROUP BY r.id", cache="off"
    )
    measured(orc, access_seconds=1)
    orc.execute("UPDATE r SET k = k + 1 WHERE id <= 1100")
    asked = (
        "idivm.recompute_is_cheaper(id, 1.2e5)",
        "idivm.recompute_is_cheaper(id, 1.2e5, idivm.query_work(definition))",
    )
    assert orc.execute(f"SELECT {', '.join(asked)} FROM idivm.views")[0].rows == [(True, False)]
    orc.refresh("v")
    # It was applied, although the tables have fewer rows than that finds.
    assert noted(orc, "access_seconds < 1, row_seconds") == [(True, None)]
    assert all(report.equal for report in orc.check())


def test_a_load_knows_what_a_row_that_comes_costs(tables):
    tables.create_view("v", JOIN)
    [(oid,)] = tables.execute("SELECT 's'::regclass::oid::int")[0].rows
    [reader] = catalog_readers.readers(tables.connection, [oid])
    expected = {
        cost.source: cost.accesses
        for cost in tables.view("v").plan.program.costs
        if cost.kind is ChangeKind.INSERT
    }
    assert reader.accesses == expected and expected["public.s"] > 20


def test_who_may_not_read_a_view_does_not_learn_what_it_costs(tables):
    tables.create_view("v", JOIN)
    [(asked,)] = tables.execute("SELECT definition::oid FROM idivm.views")[0].rows
    tables.execute(
        "CREATE ROLE a_stranger; GRANT USAGE ON SCHEMA idivm TO a_stranger; SET ROLE a_stranger"
    )
    try:
        assert tables.execute(f"SELECT idivm.query_work({asked})")[0].rows == [(0,)]
    finally:
        tables.execute("RESET ROLE; DROP OWNED BY a_stranger; DROP ROLE a_stranger")
    assert tables.execute(f"SELECT idivm.query_work({asked}) > 100")[0].rows == [(True,)]


def test_a_diff_is_applied_where_a_recompute_would_write_the_states_anew(orc):
    orc.execute(
        "CREATE TABLE c (id int PRIMARY KEY, class int NOT NULL);"
        "CREATE TABLE s (id int PRIMARY KEY, c int NOT NULL, v int NOT NULL); CREATE INDEX ON s (c);"
        "INSERT INTO c SELECT g, g % 5 FROM generate_series(1, 1200) AS g;"
        "INSERT INTO s SELECT g, 1 + g % 1200, g FROM generate_series(1, 12000) AS g; ANALYZE c, s"
    )
    query = "SELECT c.class, sum(v) AS v FROM s JOIN c ON c.id = s.c GROUP BY c.class"
    orc.create_view("v", query, strategy="id", cache="on")
    measured(orc, row_seconds=1e-4)
    orc.execute("UPDATE c SET class = (class + 1) % 5 WHERE id <= 200")
    orc.refresh("v")
    recomputed = "SELECT recomputed FROM idivm.watermarks WHERE view = idivm.view_id('v')"
    assert orc.execute(recomputed)[0].rows == [(False,)]
    assert all(report.equal for report in orc.check())


def test_changes_are_read_only_if_reading_and_applying_them_pays_together(tables):
    tables.create_view("v", "SELECT k, sum(n) AS n FROM r GROUP BY k")
    measured(tables, row_seconds=1e-6, access_seconds=5e-6)
    # A change costs as much as 25 rows to read, and as much as 5 * 5 rows to apply.
    [(most, work)] = tables.execute(
        "SELECT idivm.most_pending(id, 1e6, 5), idivm.recompute_work(id, 1e6) FROM idivm.views"
    )[0].rows
    assert most == pytest.approx(work / 50, abs=1)


def test_an_access_takes_as_long_as_usual_until_a_large_diff_was_measured(tables):
    tables.create_view("v", JOIN, strategy="id")
    asked = "SELECT idivm.access_seconds(id) FROM idivm.views"
    # A creation that took little time has left no costs.
    tables.execute(
        "INSERT INTO idivm.costs (view) SELECT id FROM idivm.views ON CONFLICT DO NOTHING"
    )
    for costs, seconds in (
        ("row_seconds = 1e-8, price = 1e-9, access_seconds = NULL", 2e-6),
        ("row_seconds = 1e-4", 1e-4),
        ("access_seconds = 3e-7", 3e-7),
    ):
        tables.execute(f"UPDATE idivm.costs SET {costs}")
        assert tables.execute(asked)[0].rows == [(pytest.approx(seconds),)]
    tables.execute("DELETE FROM idivm.costs")
    assert tables.execute(asked)[0].rows == [(pytest.approx(2e-6),)]


def test_the_share_of_a_content_counts_the_rows_that_its_states_have(orc):
    """PostgreSQL expects a tenth of the rows of a table in groups by two columns."""
    orc.execute(
        "CREATE TABLE r (id int PRIMARY KEY, k int, v int);"
        "INSERT INTO r SELECT g, g % 100, g * 7919 % 65536 FROM generate_series(1, 20000) AS g; ANALYZE r"
    )
    orc.create_view("v", "SELECT k, count(DISTINCT v) AS n FROM r GROUP BY k", strategy="id")
    assert noted(orc, "content_share < 0.5") == [(True,)]


def test_a_slow_recompute_says_little(tables):
    """The machine may have been busy: the next large diff would look cheap beside it."""
    tables.create_view("v", JOIN, strategy="id")
    tables.execute("DELETE FROM idivm.costs")
    times = []
    for seconds in (1, 100, 0.1):
        tables.execute(
            f"SELECT idivm.note_recompute(id, 1e6, clock_timestamp() - interval '{seconds} s', 'id') FROM idivm.views"
        )
        times += noted(tables, "row_seconds, access_seconds")
    (first, _), (disturbed, access), (quick, _) = times
    assert first < disturbed < 1.2 * first
    assert access == pytest.approx(0.9 * 2e-6)
    assert quick < 0.7 * disturbed


def test_pending_rows_of_a_long_log_are_estimated(tables, dsn):
    tables.create_view("v", "SELECT k, sum(n) AS n FROM r GROUP BY k")
    more = (
        "SELECT idivm.has_more_pending(vs.source, w.mark, %s)"
        " FROM idivm.view_sources vs JOIN idivm.watermarks w ON w.view = vs.view"
    )

    def has_more(most: int) -> bool:
        return tables.connection.execute(more, [most]).fetchone() == (True,)

    def insert(connection, first: int, count: int) -> None:
        connection.execute(
            "INSERT INTO r SELECT i, 1, i FROM generate_series(%s::int, %s) AS i",
            [first, first + count - 1],
        )

    insert(tables.connection, 10_000, 9_000)
    assert has_more(1_000)
    assert has_more(8_000)
    assert not has_more(10_000)
    tables.connection.execute("SELECT idivm.refresh('v')")
    insert(tables.connection, 20_000, 500)
    assert not has_more(1_000)
    insert(tables.connection, 21_000, 3_000)
    assert has_more(1_000)
    tables.connection.execute("SELECT idivm.refresh('v')")
    # The rows of a long transaction lie before those of others, which ended before it.
    with psycopg.connect(dsn) as other:
        insert(other, 100_000, 20_000)
        insert(tables.connection, 25_000, 3_000)
        tables.connection.execute("CALL idivm.refresh_all()")
        assert not has_more(1_000)
        other.commit()
    assert has_more(1_000)


def test_the_query_is_not_planned_for_its_costs_while_the_tables_keep_their_size(orc):
    """Planning a query may take as long as running it."""
    orc.execute("CREATE TABLE t (id int PRIMARY KEY, g int, v int); ANALYZE t")
    orc.create_view("v", "SELECT g, count(DISTINCT v) AS n FROM t GROUP BY g")

    def work():
        return orc.execute("SELECT idivm.query_work('idivm_def.v1'), idivm.rows_to_read(1)")[
            0
        ].rows[0]

    orc.execute("INSERT INTO t SELECT i, i % 10, i FROM generate_series(1, 5000) i; ANALYZE t")
    asked = work()
    orc.execute("SELECT idivm.note_recompute(1, 5, clock_timestamp() - interval '1 second', 'id')")
    assert work() == (5, asked[1])
    orc.execute("UPDATE idivm.costs SET known_work = 7; UPDATE t SET v = 0 WHERE id = 1")
    orc.execute("SELECT idivm.note_recompute(1, 8, clock_timestamp() - interval '1 second', 'id')")
    assert work() == (7, asked[1])
    orc.execute("INSERT INTO t SELECT i, i % 10, i FROM generate_series(5001, 9000) i")
    assert work()[0] > asked[0] and work()[1] > asked[1]
    # Statistics change it as well, and no caller without rights leaves a 0.
    orc.execute("SELECT idivm.note_recompute(1, 0, clock_timestamp() - interval '1 second', 'id')")
    assert work()[0] > asked[0]
