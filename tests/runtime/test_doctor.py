"""What a person can break, idivm doctor finds, mends and says; what it did not make it leaves."""

import pytest
from stepping import differences

from orchestrator.catalog.objects import orphans
from orchestrator.errors import UsageError
from orchestrator.frontend.options import parse_options
from orchestrator.runtime.diagnosis.doctor import examine
from orchestrator.runtime.installation import replanning


@pytest.fixture(params=["deferred", "eager"])
def mode(request):
    return request.param


@pytest.fixture
def shop(orc, mode):
    orc.execute(
        """
        CREATE TABLE items (id int PRIMARY KEY, kind text NOT NULL, price numeric);
        CREATE TABLE sold (id int PRIMARY KEY, item int NOT NULL, n int NOT NULL);
        INSERT INTO items SELECT i, chr(97 + i % 3), i FROM generate_series(1, 9) AS i;
        INSERT INTO sold SELECT i, 1 + i % 9, i FROM generate_series(1, 30) AS i
        """
    )
    orc.create_view(
        "totals",
        "SELECT kind, sum(price * n) AS total, count(*) AS n FROM items i JOIN sold s ON s.item = i.id"
        " GROUP BY kind",
        maintain=mode,
        shared="off",
        strategy="id",
        cache="on",
    )
    orc.create_view(
        "dear",
        "SELECT id, upper(kind) AS kind FROM items WHERE price > 3",
        maintain=mode,
        shared="off",
    )
    orc.create_view("bag", "SELECT item % 2 AS odd FROM sold", strategy="recompute")
    return orc


def wrong(findings):
    return [f for f in findings if not f.fine]


def examined(orc):
    """What was found; afterwards all is well, and a second look finds nothing."""
    findings = wrong(examine(orc.connection))
    assert wrong(examine(orc.connection)) == []
    orc.execute(
        "UPDATE items SET price = price + 1 WHERE id = 4;"
        "INSERT INTO sold SELECT max(id) + 1, 4, 5 FROM sold; DELETE FROM items WHERE id = 2"
    )
    orc.refresh()
    assert all(differences(orc.connection, v) == [] for v in ("totals", "dear", "bag"))
    assert orphans(orc.connection) == []
    return findings


def test_a_clock_belongs_to_its_view(orc):
    orc.execute("CREATE TABLE t (id int PRIMARY KEY, at timestamptz)")
    orc.create_view("recent", "SELECT id, at FROM t WHERE at > now() - interval '1 day'")
    assert wrong(examine(orc.connection)) == []
    orc.connection.execute("DELETE FROM idivm.views")
    assert {"idivm_state.clock_1()", "idivm_def.c1", "idivm_def.k1"} <= {
        orphan.name for orphan in orphans(orc.connection) if orphan.drop is not None
    }


def only(findings, subject, *words):
    [finding] = findings
    assert finding.mended, finding
    assert finding.subject == subject
    for word in words:
        assert word in finding.sentence


@pytest.mark.integration
def test_nothing_is_found_where_nothing_is_wrong(shop):
    assert wrong(examine(shop.connection)) == []
    assert wrong(examine(shop.connection, contents=False)) == []


@pytest.mark.parametrize(
    "breaking",
    [
        "ALTER TABLE items DISABLE TRIGGER idivm_1_update",
        "ALTER TABLE items DISABLE TRIGGER USER",
        "ALTER TABLE items DISABLE TRIGGER USER; UPDATE items SET price = 0 WHERE id = 8;"
        "ALTER TABLE items ENABLE TRIGGER USER",
        "DROP TRIGGER idivm_1_delete ON items",
        "ALTER TABLE items DISABLE TRIGGER idivm_1_rows",
        "ALTER TABLE items ENABLE TRIGGER idivm_1_rows",
        "ALTER TABLE items ENABLE ALWAYS TRIGGER idivm_1_update",
        "DROP FUNCTION idivm_log.s1_update_1() CASCADE",
    ],
)
@pytest.mark.sampled(3)
def test_capture_that_was_switched_off(shop, breaking):
    shop.execute(breaking)
    shop.execute("UPDATE items SET price = 1000 WHERE id = 5; DELETE FROM items WHERE id = 9")
    # It is slow and right until then.
    shop.refresh()
    assert differences(shop.connection, "dear") == []
    shop.execute("UPDATE items SET price = 2000 WHERE id = 5")
    findings = examined(shop)
    assert all(f.mended for f in findings)
    assert "triggers of items are missing or disabled" in findings[0].sentence


@pytest.mark.slow
@pytest.mark.integration
def test_functions_of_capture_that_were_edited_or_dropped(shop):
    shop.execute("DROP FUNCTION idivm_log.s1_net(idivm.watermark)")
    only(examined(shop), "capture", "idivm_log.s1_net")
    shop.execute(
        "CREATE OR REPLACE FUNCTION idivm_log.s2_insert_1() RETURNS trigger LANGUAGE plpgsql"
        " AS $$ BEGIN RETURN NULL; END $$"
    )
    only(examined(shop), "capture", "idivm_log.s2_insert_1()", "edited")


@pytest.mark.parametrize(
    "breaking",
    [
        "DROP TABLE idivm_log.s1_a CASCADE",
        "DROP VIEW idivm_def.s1 CASCADE",
        "DROP VIEW idivm_log.s1 CASCADE",
        "ALTER TABLE idivm_log.s1_b DROP COLUMN seq CASCADE",
        "DROP SEQUENCE idivm_log.s1_seq",
    ],
)
@pytest.mark.sampled(3)
def test_logs_that_lack_a_part(shop, breaking):
    shop.execute(breaking)
    only(examined(shop), "capture", "change log of items lacks a part")


def state_tables(orc, view_id):
    rows = orc.connection.execute(
        "SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'idivm_state'::regnamespace"
        " AND c.relkind = 'r' AND c.relname LIKE %s AND c.oid NOT IN (SELECT state FROM idivm.views)"
        " ORDER BY 1",
        [f"%_{view_id}"],
    )
    return [row[0] for row in rows.fetchall()]


@pytest.mark.slow
@pytest.mark.sampled(3)
def test_state_tables_that_were_dropped(shop):
    for table in state_tables(shop, 1):
        shop.execute(f'DROP TABLE idivm_state."{table}" CASCADE')
        only(examined(shop), "view totals", table, "rebuilt")


def test_a_content_that_was_dropped(shop):
    shop.execute("DROP TABLE idivm_state.totals_1 CASCADE")
    assert [view.name for view in shop.views()] == ['"public"."totals"', "dear", "bag"]
    only(examined(shop), 'view "public"."totals"', "content is gone", "rebuilt")


def test_a_view_that_an_older_version_planned_is_planned_as_today(shop):
    plan = shop.view("totals").plan
    shop.execute(
        "UPDATE idivm.views SET plan = jsonb_set(plan, '{program,variables}', '[]')"
        " WHERE relation = 'totals'::regclass"
    )
    only(examined(shop), "view totals", "this version of idivm plans it otherwise", "planned again")
    assert shop.view("totals").plan == plan


def test_a_plan_in_the_form_of_another_version_is_planned_again(shop):
    plan = shop.view("totals").plan
    shop.execute(
        """UPDATE idivm.views SET plan = '{"version": 0}' WHERE relation = 'totals'::regclass"""
    )
    with pytest.raises(UsageError, match="Another version of idivm planned"):
        shop.explain("totals")
    shop.refresh("totals")
    assert shop.view("totals").plan == plan
    shop.execute(
        """UPDATE idivm.views SET plan = '{"version": 0}' WHERE relation = 'totals'::regclass"""
    )
    only(examined(shop), "view totals", "another version of idivm planned it", "planned again")
    assert shop.view("totals").plan == plan


def test_a_view_dropped_in_plain_sql_stays_dropped(shop):
    shop.connection.execute("DROP VIEW totals")
    assert wrong(examine(shop.connection)) == []
    assert [view.name for view in shop.views()] == ["dear", "bag"]


@pytest.mark.parametrize(
    "breaking",
    [
        "UPDATE idivm_state.totals_1 SET total = total + 1 WHERE kind = 'a'",
        "DELETE FROM idivm_state.totals_1",
        "INSERT INTO idivm_state.bag_3 SELECT * FROM idivm_state.bag_3 WHERE false;"
        "DELETE FROM idivm_state.bag_3",
    ],
)
def test_an_edited_content(shop, breaking):
    shop.execute(breaking)
    [finding] = examined(shop)
    assert finding.mended
    assert finding.sentence.startswith("the view")
    assert "rebuilt" in finding.sentence


def test_an_edited_state_that_no_reader_sees(shop):
    shop.execute("DELETE FROM idivm_state.totals_cache_1 WHERE kind = 'a'")
    only(examined(shop), "view totals", "totals_cache_1")


@pytest.mark.slow
def test_indexes_that_were_dropped(shop):
    rows = shop.connection.execute(
        "SELECT i.indexrelid::regclass::text, i.indrelid::regclass::text, k.conname FROM pg_index i"
        " JOIN pg_class c ON c.oid = i.indrelid LEFT JOIN pg_constraint k ON k.conindid = i.indexrelid"
        " WHERE c.relnamespace = 'idivm_state'::regnamespace AND c.relkind = 'r'"
    ).fetchall()
    assert len(rows) >= 3
    for index, table, constraint in rows:
        shop.execute(
            f"ALTER TABLE {table} DROP CONSTRAINT {constraint}"
            if constraint
            else f"DROP INDEX {index}"
        )
        [finding] = examined(shop)
        assert finding.mended
        assert table.removeprefix("idivm_state.") in finding.sentence


def test_what_is_known_of_the_tables_by_now_hides_no_damage(orc):
    orc.execute(
        "CREATE TABLE a (id int PRIMARY KEY);"
        "CREATE TABLE b (id int PRIMARY KEY, a int NOT NULL);"
        "CREATE TABLE c (id int PRIMARY KEY, b int NOT NULL, kind int NOT NULL)"
    )
    joined = "FROM a JOIN b ON b.a = a.id JOIN c ON c.b = b.id"
    orc.create_view("v", f"SELECT a.id, b.id AS b, c.id AS c, kind {joined}", strategy="id")
    orc.execute(
        "INSERT INTO a SELECT generate_series(1, 3);"
        "INSERT INTO b SELECT n, n % 3 + 1 FROM generate_series(1, 300) AS n;"
        "INSERT INTO c SELECT n, n, n FROM generate_series(1, 300) AS n;"
        "ANALYZE a, b, c"
    )
    view = orc.view("v")
    plan = replanning.current_plan(orc.connection, view, parse_options(view.options.items()))
    assert len(plan.program.script) != len(view.plan.program.script)
    rows = orc.connection.execute(
        "SELECT indexrelid::regclass::text FROM pg_index i JOIN pg_class c ON c.oid = indrelid"
        " WHERE relnamespace = 'idivm_state'::regnamespace AND relkind = 'r' AND NOT indisprimary"
    ).fetchall()
    orc.execute(f"DROP INDEX {rows[0][0]}")
    only(wrong(examine(orc.connection)), "view v", "indexes of its tables")
    assert differences(orc.connection, "v") == []


def test_a_unique_index_that_was_dropped_and_missed(shop):
    shop.execute(
        "ALTER TABLE idivm_state.bag_3 DROP CONSTRAINT bag_3_pkey;"
        "INSERT INTO idivm_state.bag_3 SELECT * FROM idivm_state.bag_3"
    )
    only(examined(shop), "view bag", "bag_3")


def test_indexes_of_the_users_own_stay(shop):
    shop.execute("CREATE INDEX mine ON idivm_state.totals_1 (total)")
    assert wrong(examine(shop.connection)) == []
    assert shop.connection.execute("SELECT to_regclass('idivm_state.mine')").fetchone() != (None,)


def test_a_state_table_that_was_altered(shop):
    shop.execute("ALTER TABLE idivm_state.dear_2 ADD COLUMN note text")
    only(examined(shop), "view dear", "altered")


@pytest.mark.parametrize(
    "breaking",
    [
        "DROP FUNCTION idivm_state.refresh_1(idivm.watermark, boolean, boolean)",
        "CREATE OR REPLACE FUNCTION idivm_state.refresh_1(since idivm.watermark, rebuild boolean,"
        " content_only boolean DEFAULT false, OUT changed bigint, OUT kind \"char\", OUT marks jsonb) LANGUAGE plpgsql AS 'BEGIN END'",
        "DROP FUNCTION idivm_state.refresh_1(idivm.watermark, boolean, boolean);"
        "CREATE FUNCTION idivm_state.refresh_1(since idivm.watermark, rebuild boolean, content_only boolean)"
        " RETURNS bigint LANGUAGE sql RETURN 0",
        "ALTER FUNCTION idivm_state.refresh_1(idivm.watermark, boolean, boolean) SET timezone = 'Asia/Tokyo'",
    ],
)
def test_a_program_that_was_dropped_or_edited(shop, breaking):
    shop.execute(breaking)
    only(examined(shop), "view totals", "refresh function")


@pytest.mark.slow
@pytest.mark.parametrize(
    "breaking",
    [
        "DELETE FROM idivm.watermarks WHERE view = 1",
        "DELETE FROM idivm.view_sources WHERE view = 1 AND source = 1",
        "UPDATE idivm.views SET plan = '{}' WHERE id = 1",
    ],
)
def test_rows_of_the_catalog_that_were_deleted(shop, breaking):
    shop.connection.execute(breaking)
    only(examined(shop), "view totals", "catalog")


@pytest.mark.slow
def test_a_view_that_the_catalog_forgot(shop):
    shop.connection.execute("DELETE FROM idivm.views WHERE id = 1")
    findings = examined(shop)
    assert all(finding.mended for finding in findings)
    assert findings[0].subject == "view totals"
    assert [view.name for view in shop.views()] == ["totals", "dear", "bag"]


def test_objects_of_no_view_go_and_those_of_others_stay(shop):
    shop.create_view("gone", "SELECT id FROM items")
    shop.connection.execute(
        "CREATE TABLE idivm_state.backup_2026 AS SELECT 1 AS a;"
        "CREATE VIEW idivm_def.mine AS SELECT 1 AS a; DROP VIEW gone"
    )
    shop.connection.execute("DELETE FROM idivm.views WHERE id = 4")
    mended, left = wrong(examine(shop.connection))
    assert mended.mended
    assert "idivm_state.gone_4" in mended.sentence
    assert not left.mended
    assert "idivm_state.backup_2026" in left.sentence
    assert "idivm_def.mine" in left.sentence
    assert shop.connection.execute("TABLE idivm_state.backup_2026").fetchall() == [(1,)]


def test_the_guard_of_a_view(shop):
    shop.execute("DROP TRIGGER idivm_maintained ON totals")
    only(examined(shop), "view totals", "refuses to write")


def test_the_triggers_of_the_modes(orc):
    orc.execute(
        "CREATE TABLE t (id int PRIMARY KEY, n int);"
        "CREATE VIEW v WITH (maintain = eager) AS SELECT sum(n) AS s FROM t"
    )
    for trigger in ("upkeep", "begin", "upkeep_rows"):
        orc.execute(f"ALTER TABLE t DISABLE TRIGGER idivm_1_{trigger}")
        orc.execute(f"INSERT INTO t VALUES ({len(trigger)}, 1)")
        only(wrong(examine(orc.connection)), "modes", "writers do not keep")
        assert differences(orc.connection, "v") == []
        orc.execute("UPDATE t SET n = n + 1")
        assert differences(orc.connection, "v") == []
    assert wrong(examine(orc.connection)) == []


@pytest.mark.slow
def test_a_damaged_view_that_others_read(shop):
    shop.create_view("above", "SELECT count(*) AS n FROM dear", strategy="recompute")
    shop.execute("DELETE FROM idivm_state.dear_2 WHERE id = 7")
    only(wrong(examine(shop.connection)), "view dear", "rebuilt")
    assert wrong(examine(shop.connection)) == []
    shop.execute("ALTER TABLE idivm_state.dear_2 ADD COLUMN note text")
    only(wrong(examine(shop.connection)), "view dear", "rebuilt")
    shop.execute("DELETE FROM items WHERE id < 3")
    shop.refresh()
    assert wrong(examine(shop.connection)) == []
    assert differences(shop.connection, "above") == []


def test_a_mended_relation_still_shows_pending_changes_under_the_names_of_its_owner(orc):
    orc.execute("CREATE TABLE t (id int PRIMARY KEY, g int, n int); INSERT INTO t VALUES (1, 1, 1)")
    orc.create_view("v", "SELECT g, sum(n) AS s FROM t GROUP BY g", maintain="on_read")
    orc.connection.execute(
        "ALTER VIEW v RENAME COLUMN s TO total; DROP TRIGGER idivm_maintained ON v"
    )
    assert any(finding.mended for finding in orc.doctor())
    orc.execute("INSERT INTO t VALUES (2, 1, 5)")
    assert orc.execute("SELECT g, total FROM v")[0].rows == [(1, 6)]
    assert all(finding.fine for finding in orc.doctor())


def test_a_view_that_waits_to_be_planned_is_no_view_that_the_catalog_lost(orc):
    orc.execute(
        "CREATE TABLE t (id int PRIMARY KEY); SELECT idivm.create_view('v', 'SELECT id FROM t')"
    )
    assert [finding for finding in examine(orc.connection) if not finding.fine] == []
