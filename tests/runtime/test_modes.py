"""Eager views follow each statement, on_commit views each commit, whatever changes the tables."""

import psycopg
import pytest
from psycopg import sql
from stepping import differences

from orchestrator.errors import IdivmError, UnsupportedError, UsageError

pytestmark = pytest.mark.integration

STRATEGIES = ("recompute", "id")


@pytest.fixture(params=STRATEGIES)
def shop(request, orc, older):
    """Two tables, joined by an eager view and by one kept at commit."""
    if older and request.param == "recompute":
        pytest.skip("older versions run one strategy, unless they are asked for")
    orc.execute(
        """
        CREATE TABLE grp (g text PRIMARY KEY, factor int NOT NULL);
        CREATE TABLE item (id int PRIMARY KEY, g text REFERENCES grp ON DELETE CASCADE ON UPDATE CASCADE, n int);
        INSERT INTO grp VALUES ('a', 1), ('b', 2), ('c', 3);
        INSERT INTO item SELECT i, chr(97 + i % 3), i FROM generate_series(1, 12) AS i
        """
    )
    query = (
        "SELECT g, sum(n * factor) AS total, count(*) AS c FROM item JOIN grp USING (g) GROUP BY g"
    )
    for name, mode in (("soon", "eager"), ("late", "on_commit")):
        orc.create_view(name, query, maintain=mode, strategy=request.param)
    return orc


def total(connection, view, g="a"):
    row = connection.execute(
        sql.SQL("SELECT total FROM {} WHERE g = {}").format(sql.SQL(view), sql.Literal(g))
    ).fetchone()
    return row and int(row[0])


def pending(orc):
    return {view.name: view.pending for view in orc.views()}


def test_a_writer_reads_its_own_writes(shop):
    connection = shop.connection
    before = total(connection, "late")
    with connection.transaction():
        connection.execute("UPDATE item SET n = n + 100 WHERE id = 3")
        assert (total(connection, "soon"), total(connection, "late")) == (before + 100, before)
        connection.execute("UPDATE grp SET factor = 2 WHERE g = 'a'")
        assert total(connection, "soon") == 2 * (before + 100)
        assert total(connection, "late") == before
    assert total(connection, "late") == 2 * (before + 100)
    assert pending(shop) == {"soon": 0, "late": 0}


def test_sessions_in_the_replica_role_keep_views(shop):
    """Foreign keys and users' triggers do not fire there; statements begin and end as elsewhere."""
    connection = shop.connection
    connection.execute("SET session_replication_role = replica")
    with connection.transaction():
        connection.execute("UPDATE item SET n = n + 100 WHERE id < 5")
        connection.execute("UPDATE grp SET factor = 3 WHERE g = 'a'")
        assert differences(connection, "soon") == []
        connection.execute("SET LOCAL session_replication_role = origin")
        connection.execute("DELETE FROM item WHERE id = 7")
        connection.execute("SET LOCAL session_replication_role = replica")
        with connection.cursor().copy("COPY item FROM STDIN") as copy:
            copy.write_row((70, "b", 1))
            copy.write_row((71, "c", 1))
        assert differences(connection, "soon") == []
    assert differences(connection, "late") == []
    connection.execute("TRUNCATE item")
    assert differences(connection, "soon") == differences(connection, "late") == []
    assert pending(shop) == {"soon": 0, "late": 0}


def test_a_materialized_view_whose_function_writes(shop):
    """PostgreSQL forbids deferred triggers there."""
    connection = shop.connection
    connection.execute(
        """
        CREATE FUNCTION noted() RETURNS int LANGUAGE plpgsql SET search_path = public AS
        $$ BEGIN INSERT INTO item VALUES ((SELECT max(id) + 1 FROM item), 'a', 5); RETURN 1; END $$;
        CREATE MATERIALIZED VIEW stored AS SELECT noted() AS n;
        REFRESH MATERIALIZED VIEW stored
        """
    )
    assert differences(connection, "soon") == differences(connection, "late") == []
    assert pending(shop) == {"soon": 0, "late": 0}


CHANGES = {
    "insert": "INSERT INTO item SELECT i, 'a', i FROM generate_series(20, 40) AS i",
    "update of a key": "UPDATE item SET id = id + 100, g = 'b' WHERE id < 5",
    "delete": "DELETE FROM item WHERE id % 2 = 0",
    "truncate": "TRUNCATE item",
    "truncate of both": "TRUNCATE grp, item",
    "a cascade of deletes": "DELETE FROM grp WHERE g <> 'b'",
    "a cascade of updates": "UPDATE grp SET g = g || g, factor = factor + 1",
    "both in one statement": "WITH x AS (UPDATE grp SET factor = factor + 1 RETURNING g), y AS (DELETE FROM item"
    " WHERE id < 4 RETURNING id) INSERT INTO item SELECT y.id + 50, 'a', 1 FROM y",
    "on conflict": "INSERT INTO item SELECT i, 'a', 7 FROM generate_series(10, 15) AS i"
    " ON CONFLICT (id) DO UPDATE SET n = excluded.n, g = excluded.g",
    "merge": "MERGE INTO item USING generate_series(10, 15) AS i ON id = i WHEN MATCHED AND i = 10 THEN DELETE"
    " WHEN MATCHED THEN UPDATE SET n = 0 WHEN NOT MATCHED THEN INSERT VALUES (i, 'b', i)",
    "nothing": "UPDATE item SET n = n + 1 WHERE false",
    "a function": "DO $$ BEGIN UPDATE item SET n = 1; BEGIN DELETE FROM grp WHERE g = 'a'; RAISE division_by_zero;"
    " EXCEPTION WHEN division_by_zero THEN UPDATE grp SET factor = 9 WHERE g = 'b'; END; INSERT INTO item VALUES (99, 'b', 1); END $$",
}


@pytest.mark.parametrize("role", ["origin", "replica"])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.sampled(4)
def test_whatever_changes_the_tables(shop, change, role):
    connection = shop.connection
    connection.execute(sql.SQL("SET session_replication_role = {}").format(sql.Literal(role)))
    with connection.transaction():
        connection.execute("UPDATE item SET n = n + 1 WHERE id = 7")
        connection.execute(CHANGES[change])
        assert differences(connection, "soon") == []
        connection.execute("INSERT INTO grp VALUES ('z', 26)")
        assert differences(connection, "soon") == []
    assert differences(connection, "soon") == differences(connection, "late") == []
    assert pending(shop) == {"soon": 0, "late": 0}


def test_copy(shop):
    with shop.connection.cursor() as cursor, cursor.copy("COPY item FROM STDIN") as copy:
        copy.write("50\ta\t1000\n51\tb\t1000\n")
    assert differences(shop.connection, "soon") == differences(shop.connection, "late") == []
    assert total(shop.connection, "soon") > 1000


def test_statements_within_statements(shop):
    """Users' triggers run before capture's and after it, by row and by statement."""
    connection = shop.connection
    connection.execute("CREATE TABLE audit (n int)")
    connection.execute(
        """
        CREATE FUNCTION more() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF pg_trigger_depth() = 1 THEN
                UPDATE grp SET factor = factor + 1;
                INSERT INTO item SELECT max(id) + 1, 'a', 5 FROM item;
                INSERT INTO audit SELECT count(*) FROM soon;
            END IF;
            RETURN NULL;
        END $$
        """
    )
    for name, level in (("aaa", "ROW"), ("zzz", "ROW"), ("aab", "STATEMENT"), ("zzy", "STATEMENT")):
        connection.execute(
            sql.SQL(
                "CREATE TRIGGER {} AFTER UPDATE ON item FOR EACH {} EXECUTE FUNCTION more()"
            ).format(sql.Identifier(name), sql.SQL(level))
        )
    connection.execute(
        "CREATE TRIGGER first BEFORE UPDATE ON item FOR EACH STATEMENT EXECUTE FUNCTION more()"
    )
    with connection.transaction():
        connection.execute("UPDATE item SET n = n + 1 WHERE id < 4")
        assert differences(connection, "soon") == []
    assert differences(connection, "soon") == differences(connection, "late") == []


def test_a_trigger_at_the_commit_may_change_more(shop):
    connection = shop.connection
    connection.execute(
        "CREATE FUNCTION at_commit() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN UPDATE grp SET factor = factor + 1 WHERE g = new.g; RETURN NULL; END $$"
    )
    connection.execute(
        "CREATE CONSTRAINT TRIGGER zzz AFTER UPDATE ON item DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION at_commit()"
    )
    for order in (
        "UPDATE item SET n = 5 WHERE id = 3",
        "DELETE FROM item WHERE id = 1; UPDATE item SET n = 6",
    ):
        with connection.transaction():
            connection.execute(order)
        assert differences(connection, "soon") == differences(connection, "late") == []


def test_constraints_may_be_made_immediate(shop):
    connection = shop.connection
    with connection.transaction():
        connection.execute("UPDATE item SET n = 100 WHERE id = 3")
        connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
        assert differences(connection, "late") == []
        connection.execute("DELETE FROM grp WHERE g = 'b'")
        assert differences(connection, "late") == []
        connection.execute("SET CONSTRAINTS ALL DEFERRED")
        connection.execute("UPDATE item SET n = 200 WHERE id = 3")
        assert differences(connection, "late") != []
    assert differences(connection, "late") == []


def test_deferred_foreign_keys(shop):
    connection = shop.connection
    connection.execute(
        "ALTER TABLE item DROP CONSTRAINT item_g_fkey,"
        " ADD FOREIGN KEY (g) REFERENCES grp DEFERRABLE INITIALLY DEFERRED"
    )
    with connection.transaction():
        connection.execute("INSERT INTO item VALUES (60, 'new', 60)")
        assert differences(connection, "soon") == []
        connection.execute("INSERT INTO grp VALUES ('new', 2)")
        assert total(connection, "soon", "new") == 120
    assert total(connection, "late", "new") == 120
    with pytest.raises(psycopg.errors.ForeignKeyViolation), connection.transaction():
        connection.execute("UPDATE item SET g = 'none'")
    assert differences(connection, "soon") == differences(connection, "late") == []


def test_savepoints_take_everything_back(shop):
    connection = shop.connection
    before = total(connection, "soon")
    with connection.transaction():
        with connection.transaction(force_rollback=True):
            connection.execute("UPDATE item SET n = 1000 WHERE id = 3")
            assert total(connection, "soon") > before
        assert total(connection, "soon") == before
        connection.execute("UPDATE item SET n = n + 1 WHERE id = 3")
        with connection.transaction(force_rollback=True):
            connection.execute("DELETE FROM grp")
        with pytest.raises(psycopg.errors.DivisionByZero), connection.transaction():
            connection.execute("UPDATE item SET n = 1 / 0")
        connection.execute("UPDATE item SET n = n + 1 WHERE id = 3")
        assert total(connection, "soon") == before + 2
    assert total(connection, "late") == before + 2
    with connection.transaction(force_rollback=True):
        connection.execute("TRUNCATE item")
    assert differences(connection, "soon") == differences(connection, "late") == []


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_prepared_transactions(shop, connect, end):
    connection = connect()
    before = total(connection, "late")
    connection.execute("BEGIN")
    connection.execute("UPDATE item SET n = n + 1000 WHERE id = 3")
    connection.execute("PREPARE TRANSACTION 'one'")
    assert total(connection, "late") == total(connection, "soon") == before
    shop.connection.execute(sql.SQL("{} PREPARED 'one'").format(sql.SQL(end)))
    assert total(connection, "late") == before + (1000 if end == "COMMIT" else 0)
    assert differences(connection, "soon") == differences(connection, "late") == []


def test_a_writer_needs_no_further_rights(shop, connect):
    shop.execute(
        "DROP ROLE IF EXISTS clerk; CREATE ROLE clerk; GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON item TO clerk"
    )
    writer = connect()
    writer.execute("SET ROLE clerk")
    writer.execute("SET search_path = ''")
    writer.execute("UPDATE public.item SET n = 77; DELETE FROM public.item WHERE id = 1")
    writer.execute("TRUNCATE public.item")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        writer.execute("SELECT idivm.refresh_one(1, true)")
    writer.close()
    assert differences(shop.connection, "soon") == differences(shop.connection, "late") == []
    shop.execute("DROP OWNED BY clerk; DROP ROLE clerk")


def test_cascades_of_views(orc):
    """A view that an eager one reads is kept with it; one kept at commit may read an eager one."""
    orc.execute(
        """
        CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t SELECT i, i FROM generate_series(1, 9) i;
        CREATE VIEW base WITH (strategy = recompute) AS SELECT id % 3 AS k, sum(n) AS s FROM t GROUP BY 1;
        CREATE VIEW top WITH (maintain = eager, strategy = recompute) AS SELECT k, s, n FROM base JOIN t ON id = k;
        CREATE VIEW over_top WITH (maintain = on_commit, strategy = recompute) AS SELECT count(*) AS c, sum(s) AS s FROM top;
        CREATE VIEW behind AS SELECT s FROM over_top
        """
    )
    connection = orc.connection
    with connection.transaction():
        connection.execute("UPDATE t SET n = n * 10 WHERE id IN (1, 3)")
        assert differences(connection, "base") == differences(connection, "top") == []
        assert differences(connection, "over_top") != []
    assert pending(orc) == {"base": 0, "top": 0, "over_top": 0, "behind": 2}
    assert [r.changed for r in orc.refresh("behind")][-1] == 2
    orc.execute("ALTER VIEW top SET (maintain = deferred)")
    orc.execute("DELETE FROM t WHERE id = 1")
    assert differences(connection, "over_top") == []
    orc.execute("ALTER VIEW over_top SET (maintain = deferred)")
    orc.execute("DELETE FROM t WHERE id = 2")
    assert pending(orc)["base"] == 1
    assert all(report.equal for report in orc.check())


def triggers(orc):
    return orc.execute("SELECT count(*) FROM pg_trigger WHERE tgname ~ '_(begin|upkeep)$'")[0].rows[
        0
    ][0]


def test_a_mode_may_be_changed_at_any_time(shop):
    assert triggers(shop) == 4
    shop.execute("ALTER VIEW soon SET (maintain = deferred, staleness = '2 s')")
    assert shop.view("soon").options["staleness"] == "2 s"
    shop.execute("UPDATE item SET n = 0 WHERE id = 3; ALTER VIEW late SET (maintain = deferred)")
    assert triggers(shop) == 0
    assert pending(shop) == {"soon": 1, "late": 0}
    shop.alter_view("soon", maintain="on_commit")
    assert shop.view("soon").maintain == shop.view("soon").options["maintain"] == "on_commit"
    shop.execute("UPDATE item SET n = 9 WHERE id = 3")
    assert differences(shop.connection, "soon") == []
    shop.execute(
        "CREATE OR REPLACE VIEW soon WITH (maintain = eager) AS SELECT count(*) AS c FROM item"
    )
    shop.execute("DELETE FROM item WHERE id = 4")
    assert shop.execute("TABLE soon")[0].rows == [(11,)]
    shop.execute(
        "CREATE OR REPLACE VIEW soon AS SELECT count(*) AS c FROM item; DELETE FROM item WHERE id = 5"
    )
    assert shop.execute("TABLE soon")[0].rows == [(11,)]
    assert triggers(shop) == 0


def test_another_strategy_keeps_columns_and_mode(shop):
    shop.create_view("named", "SELECT g, n FROM item", columns=["x", "y"], maintain="eager")
    for strategy in STRATEGIES:
        view = shop.alter_view("named", strategy=strategy)
        assert (view.strategy, view.maintain) == (strategy, "eager")
        shop.execute("UPDATE item SET n = n + 1")
        assert differences(shop.connection, "named") == []
        assert shop.execute("SELECT count(x) FROM named")[0].rows == [(12,)]


def test_what_goes_takes_its_triggers_along(shop):
    shop.drop_view("late")
    assert triggers(shop) == 4
    shop.connection.execute("DROP VIEW soon")
    shop.execute("UPDATE item SET n = 5")
    assert shop.views() == []
    assert triggers(shop) == 0
    shop.execute(
        "CREATE VIEW again WITH (maintain = eager) AS SELECT n FROM item JOIN grp USING (g)"
    )
    shop.execute("DROP TABLE grp CASCADE; UPDATE item SET n = 6")
    assert shop.views() == []
    assert triggers(shop) == 0
    shop.drop_view("again")
    assert [
        finding for finding in shop.doctor() if not finding.fine and finding.subject != "java"
    ] == []


def test_partitions_that_come_are_kept_as_well(orc):
    orc.execute(
        """
        CREATE TABLE p (id int, part int) PARTITION BY LIST (part);
        CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1);
        CREATE VIEW v WITH (maintain = eager, strategy = recompute) AS SELECT part, count(*) AS c FROM p GROUP BY part;
        CREATE VIEW pair WITH (maintain = eager, strategy = recompute) AS SELECT p.id, o.part FROM p JOIN p AS o USING (id);
        INSERT INTO p VALUES (1, 1); INSERT INTO p1 VALUES (2, 1)
        """
    )
    assert differences(orc.connection, "v") == differences(orc.connection, "pair") == []
    orc.execute("CREATE TABLE p2 PARTITION OF p FOR VALUES IN (2); INSERT INTO p VALUES (3, 2)")
    assert differences(orc.connection, "v") == []
    orc.refresh()
    orc.execute("INSERT INTO p2 VALUES (4, 2); INSERT INTO p1 VALUES (4, 1)")
    assert differences(orc.connection, "v") == differences(orc.connection, "pair") == []
    orc.execute("ALTER TABLE p DETACH PARTITION p2")
    assert all(report.equal for report in orc.check())
    assert triggers(orc) == 4


def test_content_that_moves_by_itself_stays_deferred(orc):
    orc.execute("CREATE TABLE t (id int); CREATE VIEW clock AS SELECT id, now() AS at FROM t")
    with pytest.raises(UnsupportedError, match="changes while no table does"):
        orc.execute("CREATE VIEW e WITH (maintain = eager) AS SELECT id, now() AS at FROM t")
    with pytest.raises(UnsupportedError, match="clock"):
        orc.execute("CREATE VIEW e WITH (maintain = on_commit) AS SELECT id FROM clock")
    with pytest.raises(UnsupportedError, match="clock"):
        orc.alter_view("clock", maintain="eager")
    assert [view.name for view in orc.views()] == ["clock"]


def test_what_cannot_be_altered_is_said(shop):
    for options, sentence in (
        ("maintain = never", "deferred or eager or on_commit"),
        ("staleness = 'soon'", "not a duration"),
        ("maintain = eager, colour = red", "no option 'colour'"),
    ):
        with pytest.raises(UsageError, match=sentence):
            shop.execute(f"ALTER VIEW soon SET ({options})")
    with pytest.raises(IdivmError, match=r"no view .nothing"):
        shop.execute("ALTER VIEW nothing SET (maintain = eager)")
    shop.execute("ALTER VIEW IF EXISTS nothing SET (maintain = eager)")
    shop.execute("ALTER VIEW soon SET (security_barrier = true); ALTER VIEW soon RENAME TO later")
    assert shop.view("later").maintain == "eager"


def test_writers_collect_where_nobody_refreshes(orc):
    orc.execute(
        "CREATE TABLE t (id int PRIMARY KEY, n text);"
        "CREATE VIEW v WITH (maintain = eager) AS SELECT count(*) AS c FROM t WHERE n > 'a'"
    )

    def fill(start):
        orc.execute(
            f"INSERT INTO t SELECT i, repeat('x', 200) FROM generate_series({start}, {start} + 5000) AS i"
        )
        return orc.view("v").log_bytes

    first = fill(1)
    # What a writer does now and then, and not where transactions may be prepared.
    queue = "INSERT INTO idivm.commits (views, logs) SELECT '{}', array_agg(id) FROM idivm.sources"
    orc.execute(queue)
    second = fill(10_000)
    orc.execute(queue)
    orc.execute("UPDATE t SET n = 'b' WHERE id = 1")
    orc.execute(queue)
    assert second < 1.5 * first
    assert orc.view("v").log_bytes < first / 2
    assert differences(orc.connection, "v") == []
    assert orc.execute("SELECT count(*) FROM idivm.commits")[0].rows == [(0,)]
