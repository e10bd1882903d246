"""Views that users read as a table: whatever they put on it works, and all plans keep it."""

from __future__ import annotations

import items
import psycopg
import pytest
from psycopg.errors import ObjectNotInPrerequisiteState

from orchestrator.catalog.objects import orphans
from orchestrator.errors import UnsupportedError, UsageError
from orchestrator.runtime.refresh import RefreshError

pytestmark = pytest.mark.integration

QUERIES = {
    **items.QUERIES,
    "unhashable": "SELECT json_build_object('n', n) AS j, point(n, 1) AS p FROM item",
    "domains": "SELECT i.id, p.g::word AS w FROM item i LEFT JOIN grp p ON p.g = i.g AND i.n > 4",
}

CHANGES = (
    *items.CHANGES,
    "INSERT INTO item SELECT i, 'a', i FROM generate_series(200, 400) AS i",
)


@pytest.fixture
def shop(orc):
    orc.execute("CREATE DOMAIN word AS text CHECK (length(VALUE) < 9);" + items.TABLES)
    return orc


def rows(orc, query):
    return orc.connection.execute(query).fetchall()


def assert_right(orc):
    for report in orc.check():
        assert report.equal, report


def assert_nothing_is_left(orc):
    assert orphans(orc.connection) == []
    left = """
        SELECT relname FROM pg_class WHERE relnamespace = 'idivm_feed'::regnamespace AND relname ~ '^t[0-9]'
        UNION ALL SELECT relname FROM pg_class WHERE relname ~ '^w[0-9]'
        UNION ALL SELECT proname FROM pg_proc WHERE pronamespace = 'idivm_feed'::regnamespace AND proname ~ '^t[0-9]'"""
    assert rows(orc, left) == []


@pytest.mark.parametrize("maintain", ["deferred", "eager", "on_commit"])
@pytest.mark.parametrize("strategy", ["auto", "recompute"])
def test_the_table_has_the_rows_of_the_query(shop, maintain, strategy):
    for name, query in QUERIES.items():
        shop.create_view(name, query, relation="table", maintain=maintain, strategy=strategy)
    assert_right(shop)
    for change in CHANGES:
        with shop.connection.transaction():
            shop.connection.execute(change)
        shop.refresh()
        assert_right(shop)
    assert rows(
        shop,
        "SELECT DISTINCT relkind FROM pg_class WHERE oid IN (SELECT relation FROM idivm.views)",
    ) == [("r",)]


OBJECTS = """
CREATE INDEX by_total ON v (total DESC);
ALTER TABLE v ADD PRIMARY KEY (g);
ALTER TABLE v ADD CONSTRAINT one_total UNIQUE (total);
ALTER TABLE v ADD CHECK (total >= 0);
CREATE STATISTICS pair ON g, total FROM v;
CREATE TABLE seen (what text, g text);
CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS
  'BEGIN INSERT INTO public.seen VALUES (tg_op, coalesce(new.g, old.g)); RETURN NULL; END';
CREATE TRIGGER see AFTER INSERT OR UPDATE OR DELETE ON v FOR EACH ROW EXECUTE FUNCTION see();
COMMENT ON COLUMN v.total IS 'what they owe';
ALTER TABLE v ENABLE ROW LEVEL SECURITY;
CREATE POLICY few ON v FOR SELECT USING (g < 'c');
CREATE PUBLICATION told FOR TABLE v;
CREATE VIEW above AS SELECT g FROM v
"""
ALL = """
SELECT pg_describe_object(d.classid, d.objid, 0) FROM pg_depend d
WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = 'v'::regclass AND d.deptype IN ('n', 'a')
  AND pg_describe_object(d.classid, d.objid, 0) !~ 'RI_Constraint|toast|idivm|view sums'
UNION SELECT description FROM pg_description WHERE objoid = 'v'::regclass AND objsubid > 0
UNION SELECT 'published' FROM pg_publication_tables WHERE tablename = 'v'
UNION SELECT 'oid ' || 'v'::regclass::oid
ORDER BY 1
"""


@pytest.fixture
def laden(shop):
    """A table with all that users can put on one."""
    shop.create_view(
        "v",
        "SELECT g, sum(n) AS total FROM item WHERE g IS NOT NULL GROUP BY g",
        relation="table",
        strategy="id",
    )
    shop.connection.execute(OBJECTS)
    return shop


def test_what_is_put_on_the_table_works_and_survives_other_plans(laden):
    before = rows(laden, ALL)
    assert len(before) >= 8
    laden.execute("UPDATE item SET n = n + 1 WHERE id = 1; DELETE FROM item WHERE g = 'c'")
    laden.refresh()
    assert sorted(rows(laden, "TABLE seen")) == [("DELETE", "c"), ("UPDATE", "b")]
    for statement in (
        "ALTER VIEW v SET (strategy = recompute)",
        "ALTER VIEW v SET (strategy = viewtree)",
        "ALTER VIEW v SET (maintain = eager)",
        "CREATE OR REPLACE VIEW v WITH (relation = table) AS SELECT g, sum(n + 1) AS total FROM item WHERE g IS NOT NULL GROUP BY g",
        "ALTER TABLE item DROP CONSTRAINT item_pkey",
        "UPDATE idivm.views SET status = 'invalid'",
    ):
        laden.execute("TRUNCATE seen")
        laden.execute(statement)
        laden.execute("INSERT INTO item SELECT max(id) + 1, 'a', 1 FROM item")
        laden.refresh()
        assert rows(laden, ALL) == before, statement
        assert ("UPDATE", "a") in rows(laden, "TABLE seen"), statement
        assert_right(laden)
    assert orphans(laden.connection) == []
    assert [finding for finding in laden.doctor() if not finding.fine] == []


def test_other_columns_take_along_what_was_theirs_alone(laden):
    laden.connection.execute("DROP VIEW above")
    notices = []
    laden.connection.add_notice_handler(lambda diag: notices.append(diag.message_primary))
    laden.execute(
        "CREATE OR REPLACE VIEW v WITH (relation = table) AS"
        " SELECT count(*) AS c, g, max(n)::text AS most FROM item WHERE g IS NOT NULL GROUP BY g"
    )
    assert rows(laden, "SELECT g, c, most FROM v ORDER BY g") == [
        ("a", 4, "12"),
        ("b", 4, "10"),
        ("c", 4, "11"),
    ]
    left = " ".join(row[0] for row in rows(laden, ALL))
    for name in ("v_pkey", "policy few", "trigger see", "published"):
        assert name in left
    for name in ("by_total", "one_total", "statistics object pair", "v_total_check"):
        assert name not in left
        assert any(
            name.split()[-1] in notice and "no longer has the column total" in notice
            for notice in notices
        ), name
    laden.execute("INSERT INTO item VALUES (50, 'a', 99)")
    laden.refresh()
    assert_right(laden)
    # A view above reads the columns by name, in whatever order they are.
    laden.execute("CREATE VIEW w AS SELECT most, sum(c) AS c FROM v GROUP BY most")
    laden.execute("INSERT INTO item VALUES (51, 'a', 100), (52, 'd', 100)")
    laden.refresh()
    assert_right(laden)
    # The type of a column may change, too.
    laden.execute("DROP VIEW w")
    laden.execute(
        "CREATE OR REPLACE VIEW v WITH (relation = table) AS"
        " SELECT count(*) AS c, g, max(n) AS most FROM item WHERE g IS NOT NULL GROUP BY g"
    )
    assert_right(laden)


def test_nobody_else_writes_to_the_table(shop):
    shop.create_view("v", QUERIES["per_group"], relation="table")
    for statement in (
        "DELETE FROM v",
        "INSERT INTO v (g) VALUES ('x')",
        "UPDATE v SET total = 0",
        "TRUNCATE v",
        "MERGE INTO v USING item ON v.g = item.g WHEN MATCHED THEN DELETE",
    ):
        with pytest.raises(
            ObjectNotInPrerequisiteState, match=r"public\.v is maintained from its query"
        ):
            shop.connection.execute(statement)
    with pytest.raises(psycopg.errors.DependentObjectsStillExist):
        shop.connection.execute("ALTER TABLE v DROP COLUMN total")
    with pytest.raises(psycopg.Error, match="trigger"):
        shop.connection.execute("ALTER TABLE v ALTER COLUMN total TYPE text")
    # Nor does a trigger of the table.
    shop.connection.execute(
        "CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN DELETE FROM public.v; RETURN NULL; END';"
        "CREATE TRIGGER meddle AFTER UPDATE ON v FOR EACH ROW EXECUTE FUNCTION meddle();"
        "UPDATE item SET n = 0"
    )
    with pytest.raises(RefreshError, match="maintained from its query"):
        shop.refresh()
    shop.connection.execute("DROP TRIGGER meddle ON v")
    shop.refresh()
    assert_right(shop)
    # Columns of the table may get other names.
    shop.connection.execute(
        "ALTER TABLE v RENAME total TO sum; ALTER TABLE v RENAME TO renamed; UPDATE item SET n = 2"
    )
    shop.refresh()
    assert rows(shop, "SELECT DISTINCT sum FROM renamed") == [(8,)]
    assert_right(shop)


def test_values_may_move_between_rows_under_a_unique_constraint(shop):
    shop.create_view("v", "SELECT id, n FROM item", relation="table", maintain="eager")
    shop.connection.execute(
        "ALTER TABLE v ADD PRIMARY KEY (id); ALTER TABLE v ADD UNIQUE (n); CREATE TABLE detail (n int REFERENCES v (n));"
        "INSERT INTO detail VALUES (3)"
    )
    shop.connection.execute("UPDATE item SET n = 13 - n")
    assert rows(shop, "SELECT message FROM idivm.view_errors") == []
    assert_right(shop)


@pytest.mark.parametrize("maintain", ["deferred", "eager", "on_commit"])
def test_a_broken_constraint_stops_its_view_alone(shop, maintain):
    shop.create_view("v", "SELECT id, n FROM item", relation="table", maintain=maintain)
    shop.create_view("other", "SELECT id, n FROM item", maintain=maintain)
    shop.connection.execute("ALTER TABLE v ADD CONSTRAINT each_once UNIQUE (n)")
    shop.connection.execute("UPDATE item SET n = 1")
    if maintain == "deferred":
        with pytest.raises(
            RefreshError,
            match=r"the rows of public\.v break a constraint that was put on it: .*each_once",
        ):
            shop.refresh()
    assert rows(shop, "SELECT DISTINCT n FROM other") == [(1,)]
    [(message,)] = rows(shop, "SELECT last_error FROM idivm.status WHERE view = 'v'::regclass")
    assert "each_once" in message and "Drop the constraint" in message
    assert rows(shop, "SELECT count(DISTINCT n) FROM v") == [(12,)]
    shop.connection.execute("ALTER TABLE v DROP CONSTRAINT each_once")
    shop.refresh()
    assert_right(shop)
    assert rows(shop, "SELECT last_error FROM idivm.status WHERE view = 'v'::regclass") == [(None,)]


UNFIT = {
    "BEFORE each row": "CREATE TRIGGER x BEFORE INSERT ON v FOR EACH ROW EXECUTE FUNCTION skip()",
    "rule": "CREATE RULE x AS ON INSERT TO v DO ALSO NOTHING",
    "can be deferred": "CREATE CONSTRAINT TRIGGER x AFTER INSERT ON v DEFERRABLE FOR EACH ROW EXECUTE FUNCTION skip()",
    "is deferred to the commit": "ALTER TABLE v ADD UNIQUE (id) DEFERRABLE INITIALLY DEFERRED",
    "foreign key": "ALTER TABLE v ADD UNIQUE (id); CREATE TABLE f (id int REFERENCES v (id) ON DELETE CASCADE)",
}


def test_what_would_lead_rows_astray_is_refused_with_a_sentence(shop):
    shop.create_view("v", "SELECT id, n FROM item", relation="table")
    shop.connection.execute(
        "CREATE FUNCTION skip() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'"
    )
    for reason, statement in UNFIT.items():
        with shop.connection.transaction(force_rollback=True):
            shop.connection.execute(f"{statement}; DELETE FROM item WHERE id = 1")
            [(error,)] = rows(shop, "SELECT error FROM idivm.refresh('v')")
            assert reason in error, error
            assert rows(shop, "SELECT count(*) FROM v") == [(12,)]


def test_modes_and_plans_without_rows_have_no_table(shop):
    with pytest.raises(
        UsageError, match="relation = table is not available with maintain = on_read"
    ):
        shop.create_view("v", "SELECT id, n FROM item", relation="table", maintain="on_read")
    with pytest.raises(
        psycopg.errors.InvalidParameterValue, match="not available with maintain = on_read"
    ):
        shop.connection.execute(
            "SELECT idivm.create_view('v', 'SELECT id FROM item', maintain => 'on_read', relation => 'table')"
        )
    with pytest.raises(
        UnsupportedError, match="stores no rows, so that users cannot read them as a table"
    ):
        shop.create_view(
            "v",
            "SELECT * FROM item JOIN grp USING (g)",
            relation="table",
            representation="factorized",
        )
    shop.create_view("v", "SELECT id, n FROM item", relation="table")
    with pytest.raises(UsageError, match="not available with maintain = on_read"):
        shop.alter_view("v", maintain="on_read")


def test_a_view_becomes_a_table_and_a_view_again(shop):
    shop.create_view("v", "SELECT id, n FROM item")
    role = f"reader_{shop.connection.info.dbname}"
    shop.connection.execute(
        f"CREATE ROLE {role}; GRANT SELECT ON v TO {role}; COMMENT ON COLUMN v.n IS 'number'"
    )
    shop.execute("CREATE INDEX by_n ON v (n)")
    try:
        for relation, kind in (("table", "r"), ("view", "v"), ("table", "r")):
            shop.alter_view("v", relation=relation)
            shop.execute("UPDATE item SET n = n + 1 WHERE id = 1")
            shop.refresh()
            assert_right(shop)
            [row] = rows(
                shop,
                f"SELECT relkind, has_table_privilege('{role}', oid, 'SELECT'), col_description(oid, 2),"
                " obj_description(oid) FROM pg_class WHERE oid = 'v'::regclass",
            )
            assert row[:3] == (kind, True, "number")
            assert " FROM public.item (maintained by idivm: deferred, " in row[3]
            tables = [
                name
                for (name,) in rows(
                    shop, "SELECT tablename FROM pg_indexes WHERE indexname ~ '^by_n'"
                )
            ]
            assert len(tables) == 1 and (tables == ["v"]) == (kind == "r")
        shop.drop_view("v")
    finally:
        shop.connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
    assert_nothing_is_left(shop)


def test_sql_alone_creates_and_drops_one(shop):
    sql = shop.connection.execute
    sql(
        "SELECT idivm.create_view('v', 'SELECT g, sum(n) AS s FROM item GROUP BY g', relation => 'table')"
    )
    shop.plan()
    sql("CREATE UNIQUE INDEX ON v (g)")
    sql("UPDATE item SET n = n + 1")
    sql("CALL idivm.refresh_all()")
    assert_right(shop)
    sql("SELECT idivm.alter_view('v', maintain => 'eager', name => 'w')")
    sql("UPDATE item SET n = n + 1")
    assert_right(shop)
    sql("SELECT idivm.drop_view('w')")
    assert_nothing_is_left(shop)
    sql(
        "SELECT idivm.create_view('v', 'SELECT g, sum(n) AS s FROM item GROUP BY g', relation => 'table')"
    )
    shop.plan()
    sql("SELECT idivm.create_view('w', 'SELECT sum(n) FROM item', relation => 'table')")
    shop.plan()
    sql("SELECT idivm.replace_view('w', 'SELECT max(n) FROM item')")
    # The tables do not depend on what their queries read, so they stay, and say what happened.
    sql("DROP TABLE item CASCADE")
    for view in "vw":
        [(state, error, error_of_refresh)] = rows(
            shop,
            "SELECT s.state, s.last_error, (SELECT r.error FROM idivm.refresh(%s) AS r) FROM idivm.status s"
            " WHERE s.view = %s::regclass".replace("%s", f"'{view}'"),
        )
        assert state == "invalid"
        assert "was dropped with CASCADE" in error
        assert error_of_refresh == error
    sql("CALL idivm.refresh_all()")
    assert shop.views() == []
    assert rows(shop, "SELECT to_regclass('v'), to_regclass('w')") == [(None, None)]
    assert_nothing_is_left(shop)


REPLACED = "SELECT idivm.replace_view('v', 'SELECT count(*) AS c, g, max(n)::text AS total FROM item WHERE g IS NOT NULL GROUP BY g')"


def test_sql_alone_gives_a_table_another_query(laden):
    sql = laden.connection.execute
    laden.create_view("sums", "SELECT count(total) AS c FROM v", maintain="on_commit")
    laden.create_view("table_above", "SELECT max(g) AS g FROM v", relation="table")
    before = rows(laden, ALL)
    notices = []
    laden.connection.add_notice_handler(lambda diag: notices.append(diag.message_primary))
    # The query stays, and another plan is asked for.
    sql("SELECT idivm.alter_view('v', strategy => 'recompute')")
    assert rows(laden, ALL) == before
    for write in ("DELETE FROM v", "DELETE FROM table_above"):
        with pytest.raises(ObjectNotInPrerequisiteState, match="is maintained from its query"):
            sql(write)
    sql("INSERT INTO item VALUES (40, 'd', 40)")
    status = "SELECT state, fresh_as_of < clock_timestamp() - interval '1 us', pending_rows FROM idivm.status WHERE view = 'v'::regclass"
    assert rows(laden, status) == [("not planned", True, None)]
    assert "its rows are from" in rows(laden, "SELECT idivm.explain('v')")[0][0]
    assert rows(laden, "SELECT g FROM table_above") == [("c",)]
    assert rows(laden, "SELECT changed, error FROM idivm.refresh('v')") == [(1, None)]
    assert rows(laden, "SELECT total FROM v WHERE g = 'd'") == [(40,)]
    sql("CALL idivm.refresh_all()")
    assert rows(laden, "SELECT g FROM table_above") == [("d",)]
    laden.plan()
    assert {view.strategy for view in laden.views()} >= {"recompute"}
    assert rows(laden, ALL) == before
    laden.execute("INSERT INTO item VALUES (41, 'e', 41)")
    laden.refresh()
    assert_right(laden)
    # Another type, and another column, which comes last. Views that read a column keep its type.
    with pytest.raises(
        psycopg.Error, match=r"cannot lose, rename or retype columns while the maintained views"
    ):
        sql(REPLACED)
    laden.execute("DROP VIEW sums; DROP VIEW table_above")
    laden.connection.execute(
        "DROP VIEW above; DROP STATISTICS pair; ALTER TABLE v DROP CONSTRAINT v_total_check"
    )
    before = rows(laden, ALL)
    assert len(before) >= 8
    with laden.connection.transaction():
        sql(REPLACED)
        assert rows(laden, "SELECT g, total, c FROM v WHERE g = 'd'") == [("d", "40", 1)]
    sql(REPLACED.replace("count(*)", "2 * count(*)"))
    assert rows(laden, "SELECT DISTINCT c FROM v WHERE g IN ('d', 'e')") == [(2,)]
    assert rows(laden, ALL) == before
    laden.plan()
    assert rows(laden, ALL) == before
    laden.execute("INSERT INTO item VALUES (42, 'e', 50)")
    laden.refresh()
    assert_right(laden)
    # What was on a column that is gone goes with it.
    sql("SELECT idivm.replace_view('v', 'SELECT g FROM item WHERE g IS NOT NULL GROUP BY g')")
    assert any("by_total" in notice for notice in notices)
    assert rows(laden, "SELECT count(*) FROM v") == [(5,)]
    with pytest.raises(psycopg.Error, match=r"v cannot read itself"):
        sql("SELECT idivm.replace_view('v', 'SELECT * FROM v')")
    laden.plan()
    assert_right(laden)
    sql("SELECT idivm.alter_view('v', relation => 'view')")
    laden.plan()
    assert_right(laden)
    laden.drop_view("v")
    assert_nothing_is_left(laden)


def test_doctor_mends_the_table(shop):
    shop.create_view("v", "SELECT id, n FROM item", relation="table")
    sql = shop.connection.execute
    for damage in (
        "DROP TRIGGER idivm_maintained ON v; DELETE FROM v WHERE id < 4",
        "ALTER TABLE v DROP COLUMN n CASCADE",
        "ALTER TABLE v DISABLE TRIGGER ALL; UPDATE v SET n = 0; ALTER TABLE v ENABLE TRIGGER ALL",
        "DROP FUNCTION idivm_feed.t1_insert CASCADE; INSERT INTO item VALUES (70, 'x', 70); SELECT idivm.refresh('v')",
        "DROP VIEW idivm_feed.t1_rows",
    ):
        sql(damage)
        assert not all(finding.fine for finding in shop.doctor()), damage
        assert [finding for finding in shop.doctor() if not finding.fine] == [], damage
        assert_right(shop)
        sql("UPDATE item SET n = n + 1")
        shop.refresh()
        assert_right(shop)


def test_the_index_of_a_key_over_ranges_goes_along(orc, pg_version):
    if pg_version < 18:
        pytest.skip("WITHOUT OVERLAPS exists from version 18 on")
    orc.execute("CREATE TABLE t (id int4range, at int4range, n int)")
    orc.execute("INSERT INTO t VALUES ('[1,2)', '[1,3)', 1), ('[1,2)', '[3,5)', 2)")
    orc.create_view("v", "SELECT id, at, n FROM t", relation="table")
    orc.execute("ALTER TABLE v ADD CONSTRAINT apart PRIMARY KEY (id, at WITHOUT OVERLAPS)")
    indexes = "SELECT indexdef ~ '^CREATE INDEX apart.*USING gist' FROM pg_indexes WHERE indexname ~ '^apart'"
    for relation in ("view", "table"):
        orc.alter_view("v", relation=relation)
        assert rows(orc, indexes) == [(True,)]
    orc.execute(
        "DROP INDEX apart; ALTER TABLE v ADD CONSTRAINT apart UNIQUE (id, at WITHOUT OVERLAPS)"
    )
    orc.execute("UPDATE t SET n = n + 1")
    orc.refresh()
    assert all(report.equal for report in orc.check())
    orc.release("v")
    assert rows(orc, indexes) == [(True,)]
