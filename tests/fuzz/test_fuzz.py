"""Random cases against the product, cases that failed once, and faults planted on purpose."""

from __future__ import annotations

import secrets
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from harness import TestServer
from psycopg.sql import SQL, Identifier
from small_cases import holds, small_case

import orchestrator
from orchestrator.fuzz.campaign import examined, run_cases
from orchestrator.fuzz.case import (
    Alone,
    Case,
    Crash,
    Late,
    LateEnd,
    Refresh,
    Statement,
    Storm,
    Table,
    Time,
    Transaction,
    View,
    from_json,
    to_json,
)
from orchestrator.fuzz.encodings import combinations, in_database
from orchestrator.fuzz.generate import generate
from orchestrator.fuzz.runner import Runner
from orchestrator.fuzz.script import script

REGRESSIONS = sorted((Path(__file__).parent / "regressions").glob("*.json"))


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [range(start, start + 3) for start in range(0, 15, 3)], ids=str)
@pytest.mark.sampled(4)
def test_fixed_seeds(runner: Runner, seeds: range) -> None:
    for seed in seeds:
        holds(runner, generate(seed))


@pytest.mark.slow
@pytest.mark.integration
def test_a_fresh_seed(runner: Runner, older: bool) -> None:
    seeds = [secrets.randbelow(10**9) for _ in range(1 if older else 3)]
    print(f"seeds {seeds}")
    for seed in seeds:
        holds(runner, generate(seed))


@pytest.mark.integration
@pytest.mark.parametrize("path", REGRESSIONS, ids=lambda path: path.stem)
def test_what_failed_once(runner: Runner, path: Path) -> None:
    holds(runner, from_json(path.read_text()))


@pytest.mark.slow
@pytest.mark.integration
def test_databases_of_other_encodings(pg: TestServer) -> None:
    dsn = pg.conninfo("postgres")
    with psycopg.connect(dsn, autocommit=True) as connection:
        kinds = combinations(connection, ["LATIN1", "SQL_ASCII"], ["C", "no such locale"])
    assert kinds == [("LATIN1", "C"), ("SQL_ASCII", "C")]
    cases = iter([in_database(generate(seed), *kind) for seed, kind in enumerate(kinds, 3)])
    totals = run_cases(dsn, cases, lambda totals: True)
    assert totals.counts["cases"] == 2
    assert [finding.script for finding in totals.findings] == []


GOOD = {
    "nothing happens": (),
    "changes and a refresh": ("UPDATE shop.orders SET price = price + 1", Refresh()),
    "a refused statement": ("INSERT INTO shop.orders VALUES (1, 'again', 1)",),
    "copy": (
        Transaction(
            (Statement("COPY shop.orders (id, what) FROM STDIN", copy="7\t\\N\n8\ta\\\\b\n"),)
        ),
        Refresh(how="check"),
    ),
    "a refresh inside": (
        Transaction(
            (
                Statement("DELETE FROM shop.orders WHERE id = 1"),
                Statement("SELECT * FROM idivm.refresh('shop.both')", refreshes="shop.both"),
                Statement("INSERT INTO shop.orders VALUES (9, 'b', 9)"),
            )
        ),
        Refresh(how="call"),
    ),
    "a late commit": (
        Late((Statement("UPDATE shop.orders SET what = 'late'"),)),
        Refresh(),
        "DELETE FROM shop.orders",
        LateEnd(),
        Refresh(("shop.sums",)),
    ),
    "a check that cannot plan again": (
        Late((Statement("UPDATE shop.orders SET what = 'late'"),)),
        Alone(Statement("CREATE TABLE shop.more () INHERITS (shop.orders)")),
        Refresh(how="check"),
        LateEnd(),
        Refresh(how="check"),
    ),
    "a crash": (
        Transaction((Statement("DELETE FROM shop.orders WHERE id = 1"),), "crash"),
        "UPDATE shop.orders SET price = 10 WHERE id = 2",
        Crash("terminate", 0),
        Crash("timeout", 1),
        Refresh(),
    ),
}


@pytest.mark.integration
@pytest.mark.parametrize("name", GOOD)
def test_a_case_that_holds(runner: Runner, name: str) -> None:
    outcome = runner.run(small_case(*GOOD[name]))
    assert outcome.failure is None
    assert outcome.counts["views"] == 2
    assert outcome.counts["comparisons"] >= 4


@pytest.mark.integration
def test_views_that_ddl_takes_along_are_forgotten(runner: Runner) -> None:
    case = small_case(Refresh(), "INSERT INTO shop.orders VALUES (4, 'd', 4)", Refresh())
    by_key = View("shop.by_key", "SELECT id, what FROM shop.orders GROUP BY id")
    over_it = View("shop.over_it", "SELECT count(*) FROM shop.by_key")
    dropped = Alone(Statement("ALTER TABLE shop.orders DROP CONSTRAINT orders_pkey CASCADE"))
    outcome = runner.run(
        replace(case, views=(*case.views, by_key, over_it), steps=(dropped, *case.steps))
    )
    assert outcome.failure is None
    assert outcome.counts["views gone by CASCADE"] == 2


@pytest.mark.integration
@pytest.mark.parametrize(
    "ddl",
    [
        "DROP INDEX shop.stock_key CASCADE",
        "ALTER TYPE shop.size RENAME VALUE 'small' TO 'little'",
    ],
)
def test_synchronous_views_wait_for_the_orchestrator_after_ddl(runner: Runner, ddl: str) -> None:
    # Without the key that its plan tells rows apart by, the lower view cannot follow a commit. A label that is renamed
    # changes what its query shows without a change of a row.
    case = small_case(Alone(Statement(ddl)), "DELETE FROM shop.stock WHERE id = 1", Refresh())
    stock = Table(
        "shop.stock",
        (
            "CREATE TABLE shop.stock (id integer NOT NULL, size shop.size)",
            "CREATE UNIQUE INDEX stock_key ON shop.stock (id)",
        ),
        "INSERT INTO shop.stock VALUES",
        ("(1, 'small')", "(2, 'small')"),
    )
    views = (
        View("shop.sizes", "SELECT id, size::text AS size FROM shop.stock"),
        View("shop.counts", "SELECT size, count(*) AS n FROM shop.sizes GROUP BY size"),
    )
    kept = tuple(replace(view, options=(("maintain", "on_commit"),)) for view in views)
    sizes = "CREATE TYPE shop.size AS ENUM ('small', 'large')"
    outcome = runner.run(replace(case, types=(sizes,), tables=(stock,), views=kept))
    assert outcome.failure is None


STATE = "(SELECT state FROM idivm.views WHERE relation = 'shop.sums'::regclass)"

UNSEEN = (
    "DO 'DECLARE one record; modes jsonb := (SELECT jsonb_object_agg(tgname, tgenabled) FROM pg_trigger"
    " WHERE tgrelid = ''shop.orders''::regclass AND NOT tgisinternal);"
    " BEGIN ALTER TABLE shop.orders DISABLE TRIGGER ALL; DELETE FROM shop.orders;"
    " FOR one IN SELECT * FROM jsonb_each_text(modes) LOOP EXECUTE ''ALTER TABLE shop.orders ENABLE '' ||"
    " CASE one.value WHEN ''A'' THEN ''ALWAYS '' WHEN ''R'' THEN ''REPLICA '' ELSE '''' END ||"
    " ''TRIGGER '' || quote_ident(one.key); END LOOP; END'"
)
"""Changes that are not captured, with capture as it should be before and afterwards."""

PLANTED = {
    "a lost row": (
        "difference",
        f"DO $$ BEGIN EXECUTE format('DELETE FROM %s WHERE what = ''a''', {STATE}); END $$",
    ),
    "a surplus row": (
        "difference",
        "DO $$ BEGIN EXECUTE format("
        "'INSERT INTO %s SELECT (jsonb_populate_record(s, ''{\"what\": \"zz\"}'')).* FROM %1$s AS s LIMIT 1',"
        f" {STATE}); END $$",
    ),
    "a wrong value": (
        "difference",
        f"DO $$ BEGIN EXECUTE format('UPDATE %s SET total = 1.000 WHERE what = ''a''', {STATE}); END $$",
    ),
    "changes that are not captured": ("difference", UNSEEN),
    "a leftover": ("leftover", "CREATE TABLE idivm_state.forgotten ()"),
    "a catalog without the view": ("catalog", "DELETE FROM idivm.views"),
    "a view that went by itself": ("error", "DROP VIEW shop.both"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found(runner: Runner, name: str) -> None:
    kind, statement = PLANTED[name]
    # With nothing else pending, nothing is recomputed that could mend it.
    change = "DELETE FROM shop.orders WHERE id = 3"
    outcome = runner.run(small_case(change, Refresh(), statement, Refresh()))
    assert outcome.failure is not None
    assert outcome.failure.kind == kind
    assert runner.run(small_case()).failure is None, "the next case starts afresh"


def timed_case(*steps: str | Refresh | Time) -> Case:
    """A case whose time moves, with a view of the orders of the last hour."""
    case = small_case(*steps)
    ddl = ("CREATE TABLE shop.orders (id integer PRIMARY KEY, at timestamptz)",)
    rows = ("(1, '2024-03-31 00:30:00+00')", "(2, '2024-03-31 01:30:00+00')")
    table = replace(case.tables[0], ddl=ddl, rows=rows)
    lately = "SELECT id FROM shop.orders WHERE at > now() - interval '1 hour' AND at <= now()"
    views = (View("shop.lately", lately), View("shop.n", "SELECT count(*) AS n FROM shop.lately"))
    begun = {"time": "2024-03-31 01:00:00+00", "zone": "Europe/Berlin"}
    return replace(case, tables=(table,), views=views, **begun)


def test_a_view_is_compared_with_its_query_at_the_time_of_the_case(runner: Runner) -> None:
    outcome = runner.run(timed_case(Time("2024-03-31 02:00:00+00"), Refresh()))
    assert outcome.failure is None
    # At the creation, after the refresh, and at the end.
    assert outcome.counts["comparisons in time"] == 3


def test_no_text_is_compared_whose_column_names_mean_other_columns_now(runner: Runner) -> None:
    case = timed_case(
        *(
            f"ALTER TABLE shop.orders RENAME COLUMN {old} TO {new}"
            for old, new in (("at", "other"), ("later", "at"), ("other", "later"))
        ),
        Refresh(),
    )
    ddl = ("CREATE TABLE shop.orders (id integer PRIMARY KEY, at timestamptz, later timestamptz)",)
    outcome = runner.run(replace(case, tables=(replace(case.tables[0], ddl=ddl),)))
    assert outcome.failure is None
    assert outcome.counts["comparisons in time"] == 1


@pytest.mark.slow
def test_a_clock_that_stands_still_is_found(runner: Runner) -> None:
    """The definition of the view takes the time from the clock, so that only its query shows the fault."""
    still = (
        "DO $$ BEGIN EXECUTE format('CREATE OR REPLACE FUNCTION idivm_state.%I() RETURNS void LANGUAGE sql RETURN"
        " NULL', 'clock_' || (SELECT id FROM idivm.views WHERE has_clock)); END $$"
    )
    outcome = runner.run(timed_case(still, Time("2024-03-31 02:00:00+00"), Refresh()))
    assert outcome.failure is not None
    assert outcome.failure.kind == "difference"
    assert "shop.lately at 2024-03-31 02:00:00+00: 1 rows missing, 1 rows" in str(outcome.failure)
    assert runner.run(timed_case()).failure is None, "the next case starts afresh"


@pytest.mark.slow
def test_a_fault_is_shrunk(runner: Runner) -> None:
    case = small_case("UPDATE shop.orders SET id = -id", Refresh(), UNSEEN, Refresh(how="check"))
    failure = runner.run(case).failure
    assert failure is not None
    finding = examined(runner, case, failure)
    assert len(finding.case.views) == 1
    assert len(finding.case.steps) == 1
    assert [len(table.rows) for table in finding.case.tables] == [1]
    assert UNSEEN in finding.script


@pytest.mark.slow
def test_a_script_replays(runner: Runner, dsn: str) -> None:
    """A script is for one connection: cases that need no more, nor settings that differ.

    Nor does plain SQL plan a view again whose table lost its key.
    """
    plain = [
        case
        for case in (generate(seed, ["auto", "recompute"]) for seed in range(25, 85))
        if not case.settings
        and not any(isinstance(step, Late | Crash | Storm) for step in case.steps)
        and "DROP CONSTRAINT" not in to_json(case)
    ]
    replayed = 0
    with orchestrator.connect(dsn) as orc:
        for case in plain[:3]:
            outcome = runner.run(case)
            assert outcome.failure is None
            orc.execute(script(case, outcome))
            reports = orc.check()
            assert all(report.equal for report in reports)
            replayed += len(reports)
            for view in reversed(orc.views()):
                orc.drop_view(view.name, cascade=True, if_exists=True)
            for schema in case.schemas:
                orc.connection.execute(SQL("DROP SCHEMA {} CASCADE").format(Identifier(schema)))
    assert replayed > 2
