"""Views with maintain = on_read: a read shows the query's own rows, whatever is pending."""

from __future__ import annotations

import psycopg
import pytest
from bank import CHANGES, TABLES, VIEWS, kind, wrong
from psycopg.sql import SQL, Identifier, Literal

from orchestrator.errors import UnsupportedError

pytestmark = pytest.mark.integration


@pytest.fixture(params=["plpgsql", "c"])
def capture_form(request):
    return request.param


@pytest.fixture
def bank(orc):
    orc.execute(TABLES)
    for name, query in VIEWS.items():
        orc.create_view(name, query, maintain="on_read")
    return orc


def test_every_read_is_current(bank, connect):
    connection = connect(autocommit=True)
    assert {kind(connection, name) for name in VIEWS} == {"N"}
    for number, change in enumerate(CHANGES):
        connection.execute(change)
        assert wrong(connection) == {}, change
        if number % 4 == 3:
            bank.refresh()
            assert wrong(connection) == {}, change
    assert kind(connection, "sums") == "C"
    assert all(report.equal for report in bank.check())


@pytest.mark.parametrize("capture_form", ["c"])
def test_c_answers_without_a_query_until_something_changes(bank, connect):
    """In C, a session remembers that nothing has drifted. In doubt, the function asks in SQL."""
    connection, other = connect(autocommit=True), connect(autocommit=True)
    role = f"stranger_{connection.info.dbname}"
    [(source,)] = other.execute(
        "SELECT id FROM idivm.sources WHERE relation = 'teller'::regclass"
    ).fetchall()
    asked = SQL("SELECT idivm.usual_read({}, ARRAY[{}], '{{}}', 4194304)").format(
        Literal(bank.view("sums").id), Literal(source)
    )

    def answers() -> tuple[str | None, str]:
        row = connection.execute(asked).fetchone()
        assert row is not None
        return row[0], kind(connection, "sums")

    def change(statement: str) -> None:
        other.execute(statement.encode())

    assert answers() == ("N", "N")
    change("UPDATE teller SET balance = 3 WHERE tid = 9")
    assert answers() == ("C", "C")
    bank.refresh()
    assert answers() == ("N", "N")
    with connection.transaction():
        connection.execute("UPDATE teller SET balance = 4 WHERE tid = 9")
        assert answers() == (None, "C")
    assert answers() == ("C", "C")
    change("TRUNCATE teller")
    assert answers() == (None, "R")
    bank.refresh()
    assert answers() == ("N", "N")
    change(f"UPDATE idivm.views SET status = 'invalid' WHERE id = {bank.view('sums').id}")
    assert answers() == (None, "R")
    bank.refresh()
    assert answers() == ("N", "N")
    trigger = f"idivm_{source}_insert"
    change(f"ALTER TABLE teller DISABLE TRIGGER {trigger}")
    assert answers() == (None, "R")
    change(f"ALTER TABLE teller ENABLE TRIGGER {trigger}")
    bank.refresh()
    assert answers() == ("N", "N")
    change(
        f"CREATE ROLE {role}; GRANT USAGE ON SCHEMA idivm, idivm_log, idivm_def, idivm_state TO {role};"
        f" GRANT SELECT ON ALL TABLES IN SCHEMA idivm TO {role}"
    )
    try:
        connection.execute(f"SET ROLE {role}")
        for rights, answer in {
            "SELECT": None,
            "GRANT SELECT (note) ON teller TO {}": "N",
            "ALTER TABLE teller ENABLE ROW LEVEL SECURITY": None,
            "ALTER TABLE teller DISABLE ROW LEVEL SECURITY": "N",
            "REVOKE SELECT (note) ON teller FROM {}": None,
        }.items():
            change(rights.format(role))
            assert connection.execute(asked).fetchone() == (answer,), rights
    finally:
        connection.execute("RESET ROLE")
        change(f"DROP OWNED BY {role}; DROP ROLE {role}")
    assert wrong(connection) == {}


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_a_transaction_reads_its_own_changes_in_its_own_snapshot(bank, connect, level):
    writer, reader = connect(autocommit=True), connect(autocommit=True)
    with writer.transaction(), reader.transaction():
        for session in (writer, reader):
            session.execute(SQL("SET TRANSACTION ISOLATION LEVEL {}").format(SQL(level)))
            session.execute("SELECT count(*) FROM teller")
        before = reader.execute("SELECT * FROM sums ORDER BY bid").fetchall()
        for change in CHANGES[:4]:
            writer.execute(change)
            assert wrong(writer) == {}, change
        assert reader.execute("SELECT * FROM sums ORDER BY bid").fetchall() == before
        with pytest.raises(ZeroDivisionError), writer.transaction():
            writer.execute("DELETE FROM teller WHERE tid > 10")
            assert wrong(writer) == {}
            raise ZeroDivisionError
        assert wrong(writer) == {}
    assert wrong(reader) == {}


def test_a_transaction_that_refreshes_between_its_changes_counts_none_twice(bank, connect):
    connection = connect(autocommit=True)
    with connection.transaction():
        connection.execute("UPDATE teller SET balance = balance + 1 WHERE tid < 9")
        connection.execute("SELECT idivm.refresh('sums', 'joined')")
        assert wrong(connection) == {}
        connection.execute("UPDATE teller SET balance = balance + 1 WHERE tid < 19")
        assert wrong(connection) == {}
    assert wrong(connection) == {}
    connection.execute("UPDATE teller SET balance = balance + 1")
    assert wrong(connection) == {}


def test_an_open_snapshot_sees_its_rows_over_refreshes_until_its_log_is_gone(bank, connect):
    writer, reader = connect(autocommit=True), connect(autocommit=True)
    with reader.transaction():
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT 1 FROM sums")
        for change in CHANGES[:6]:
            writer.execute(change)
            bank.refresh()
            assert wrong(reader, "sums", "joined") == {}
    writer.execute("UPDATE teller SET balance = 1")
    with reader.transaction():
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT count(*) FROM branch")
        for _ in range(3):
            writer.execute(
                "INSERT INTO teller SELECT 5000 + g, g % 9, 1 FROM generate_series(1, 9000) AS g"
            )
            writer.execute("DELETE FROM teller WHERE tid >= 5000")
            bank.refresh()
        with pytest.raises(psycopg.errors.SerializationFailure, match="collected"):
            reader.execute("SELECT * FROM sums")


def test_a_cursor_shows_one_snapshot(bank, connect):
    connection = connect(autocommit=True)
    connection.execute("UPDATE teller SET balance = balance + 1 WHERE tid < 9")
    with connection.transaction():
        expected = connection.execute("SELECT * FROM sums ORDER BY bid").fetchall()
        cursor = connection.cursor("rows")
        cursor.execute("SELECT * FROM sums ORDER BY bid")
        connection.execute("UPDATE teller SET balance = 0")
        connection.execute("SELECT idivm.refresh('sums')")
        assert cursor.fetchall() == expected
        assert wrong(connection, "sums") == {}


def test_truncate_and_what_else_rebuilds_a_view_lets_a_read_compute_the_query(bank, connect):
    connection = connect(autocommit=True)
    with connection.transaction():
        connection.execute("TRUNCATE teller")
        connection.execute("INSERT INTO teller VALUES (1, 1, 1, 'n2')")
        assert wrong(connection) == {}
    assert wrong(connection) == {}
    bank.refresh()
    assert wrong(connection) == {}
    connection.execute("ALTER TABLE teller DISABLE TRIGGER ALL")
    connection.execute("UPDATE teller SET balance = 5")
    assert kind(connection, "sums") == "R"
    assert wrong(connection) == {}
    connection.execute("ALTER TABLE teller ENABLE TRIGGER ALL")
    bank.execute("SELECT 1")
    connection.execute("UPDATE idivm.watermarks SET cluster = 1")
    assert wrong(connection) == {}


def test_a_replaced_function_is_noticed_by_the_next_read(orc, connect):
    orc.execute(TABLES)
    orc.execute("CREATE FUNCTION f(n numeric) RETURNS numeric IMMUTABLE LANGUAGE sql RETURN n * 2")
    orc.create_view(
        "v", "SELECT bid, sum(f(balance)) AS s FROM teller GROUP BY bid", maintain="on_read"
    )
    connection = connect(autocommit=True)
    connection.execute("UPDATE teller SET balance = balance + 1")
    assert wrong(connection, "v") == {} and kind(connection, "v") == "C"
    orc.execute(
        "CREATE OR REPLACE FUNCTION f(n numeric) RETURNS numeric IMMUTABLE LANGUAGE sql RETURN n * 3"
    )
    assert kind(connection, "v") == "R"
    assert wrong(connection, "v") == {}


def test_an_inheritance_child_that_is_dropped_is_noticed_by_the_next_read(orc, connect):
    """PostgreSQL does not tell sessions that the parent has changed."""
    orc.execute(
        "CREATE TABLE parent (n int); CREATE TABLE child () INHERITS (parent); INSERT INTO parent VALUES (1)"
    )
    orc.create_view("pairs", "SELECT count(*) AS c FROM parent a, parent b", maintain="on_read")
    reader, other = connect(autocommit=True), connect(autocommit=True)

    def read() -> int:
        [(count,)] = reader.execute("SELECT c FROM pairs").fetchall()
        return count

    for connection in (reader, other):
        other.execute("INSERT INTO child VALUES (2)")
        assert read() == 4
        connection.execute("DROP TABLE child")
        assert read() == 1
        connection.execute("CREATE TABLE child () INHERITS (parent)")
        orc.refresh()
        assert read() == 1
    other.execute("INSERT INTO child VALUES (2)")
    assert read() == 4
    other.execute("ALTER TABLE child NO INHERIT parent")
    assert read() == 1


def test_a_read_is_part_of_a_statement_with_parallel_workers(orc, connect):
    orc.execute(
        "CREATE FUNCTION twice(n int) RETURNS int LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS 'BEGIN RETURN 2 * n; END';"
        "CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t SELECT i, i FROM generate_series(1, 1000) i;"
        "CREATE TABLE big AS SELECT i FROM generate_series(1, 50000) i; ANALYZE t; ANALYZE big"
    )
    orc.create_view("v", "SELECT n % 7 AS k, sum(twice(n)) FROM t GROUP BY 1", maintain="on_read")
    with connect() as reader:
        reader.execute("UPDATE t SET n = n + 1 WHERE id < 9")
        reader.execute(
            "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;"
            " SET enable_nestloop = off; SET enable_mergejoin = off"
        )
        query = "SELECT count(*) FROM big JOIN v ON v.k = big.i"
        plan = "\n".join(line for (line,) in reader.execute(f"EXPLAIN {query}"))
        assert "Gather" in plan
        assert reader.execute(query).fetchone() == (6,)


def test_a_lookup_of_one_group_reads_neither_other_groups_nor_the_table(bank, connect):
    connection = connect(autocommit=True)
    connection.execute(
        "INSERT INTO teller SELECT g, g % 5000, 1, 'x' FROM generate_series(2000, 40000) AS g"
    )
    bank.refresh()
    connection.execute("ANALYZE")
    connection.execute("UPDATE teller SET balance = balance + 1 WHERE bid = 17")
    plan = connection.execute(
        "EXPLAIN (ANALYZE, FORMAT TEXT, COSTS off) SELECT * FROM sums WHERE bid = 17"
    ).fetchall()
    lines = [line for (line,) in plan]
    content = Literal(bank.view("sums").state).as_string(None).strip("'").partition(".")[2]
    touched = [line for line in lines if content in line and "never executed" not in line]
    assert any("Index" in line for line in touched), lines
    scanned = [line for line in lines if " on teller" in line]
    assert scanned and all("never executed" in line for line in scanned), lines


def test_a_lookup_reads_no_image_that_is_consumed(bank, connect):
    """A log keeps these images as long as another view has not consumed them."""
    connection = connect(autocommit=True)
    bank.create_view("behind", "SELECT count(*) AS n FROM teller")
    for _ in range(300):
        connection.execute("UPDATE teller SET balance = balance + 0.01")
    bank.refresh("sums")
    connection.execute("UPDATE teller SET balance = 1 WHERE bid = 3")
    connection.execute("ANALYZE")
    connection.execute("SET enable_seqscan = off")
    plan = connection.execute(
        "EXPLAIN (ANALYZE, FORMAT JSON, COSTS off) SELECT * FROM sums WHERE bid = 3"
    ).fetchall()[0][0]

    def scans(node):
        if node.get("Relation Name", "").endswith(("_a", "_b")) and node["Actual Loops"]:
            yield node
        for below in node.get("Plans", ()):
            yield from scans(below)

    segments = list(scans(plan[0]["Plan"]))
    assert segments and all(node.get("Rows Removed by Filter", 0) < 20 for node in segments), plan


def test_a_reader_needs_rights_on_the_view_alone_and_sees_no_log(bank, connect):
    connection = connect(autocommit=True)
    role = f"reader_{connection.info.dbname}"
    connection.execute(SQL("CREATE ROLE {}").format(Identifier(role)))
    try:
        connection.execute(SQL("GRANT SELECT ON sums, joined TO {}").format(Identifier(role)))
        connection.execute("UPDATE teller SET balance = 3 WHERE tid = 9")
        expected = connection.execute("SELECT * FROM joined ORDER BY tid").fetchall()
        connection.execute(SQL("SET ROLE {}").format(Identifier(role)))
        assert connection.execute("SELECT * FROM joined ORDER BY tid").fetchall() == expected
        connection.execute(
            "CREATE FUNCTION pg_temp.seen(text) RETURNS boolean LANGUAGE plpgsql COST 0.0001"
            " AS $$BEGIN RAISE NOTICE '%', $1; RETURN true; END$$"
        )
        seen: list[str] = []
        connection.add_notice_handler(lambda notice: seen.append(notice.message_primary or ""))
        connection.execute("SELECT * FROM joined WHERE pg_temp.seen(tid::text)")
        assert "9" not in seen and "10" in seen
        for hidden in ("teller", "idivm_log.s1", bank.view("joined").read_from):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(SQL("SELECT * FROM {}").format(SQL(hidden)))
        connection.execute("RESET ROLE")
    finally:
        connection.execute("RESET ROLE")
        connection.execute(SQL("DROP OWNED BY {0}; DROP ROLE {0}").format(Identifier(role)))


def test_a_read_inside_a_trigger_sees_the_rows_of_the_open_statement(bank, connect):
    connection = connect(autocommit=True)
    connection.execute(
        """
        CREATE TABLE seen (shown numeric, wanted numeric);
        CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
            INSERT INTO seen SELECT (SELECT sum(total) FROM cities),
                (SELECT sum(balance) FROM teller JOIN branch USING (bid));
            RETURN NULL;
        END$$;
        CREATE TRIGGER a_first AFTER UPDATE ON teller FOR EACH ROW EXECUTE FUNCTION look()
        """
    )
    connection.execute("UPDATE teller SET balance = balance + 1, bid = 1")
    rows = connection.execute("SELECT * FROM seen").fetchall()
    assert rows and all(actual == wanted for actual, wanted in rows)


def test_views_above_read_the_stored_content(bank, connect):
    connection = connect(autocommit=True)
    for mode in ("deferred", "eager"):
        bank.create_view(f"above_{mode}", "SELECT sum(total) AS t FROM sums", maintain=mode)
    connection.execute("UPDATE teller SET balance = balance + 1")
    expected = connection.execute("SELECT sum(balance) FROM teller").fetchone()
    assert connection.execute("SELECT t FROM above_eager").fetchone() == expected
    bank.refresh("above_deferred")
    assert connection.execute("SELECT t FROM above_deferred").fetchone() == expected
    assert wrong(connection) == {}
    connection.execute("TRUNCATE teller")
    bank.refresh()
    assert all(report.equal for report in bank.check())


@pytest.mark.slow
def test_an_on_read_view_above_another_shows_what_is_pending_below(bank, connect):
    connection = connect(autocommit=True)
    bank.create_view("upper", "SELECT n, sum(total) AS t FROM sums GROUP BY n", maintain="on_read")
    bank.create_view("top", "SELECT sum(t) AS t FROM upper", maintain="on_read")

    def assert_fresh() -> None:
        assert wrong(connection, "upper", "top") == {}
        expected = connection.execute("SELECT sum(balance) FROM teller").fetchone()
        assert connection.execute("SELECT t FROM top").fetchone() == expected

    connection.execute("UPDATE teller SET balance = balance + 1")
    assert_fresh()
    bank.refresh("sums")
    assert_fresh()
    connection.execute("DELETE FROM teller WHERE bid = 3")
    assert_fresh()
    bank.refresh()
    assert_fresh()
    bank.alter_view("sums", maintain="deferred")
    bank.alter_view("sums", maintain="on_read")
    connection.execute("UPDATE teller SET balance = balance + 2")
    assert_fresh()
    assert all(report.equal for report in bank.check())


def test_modes_change_to_and_from_on_read(bank, connect):
    connection = connect(autocommit=True)
    for mode in ("deferred", "on_read", "eager", "on_read", "on_commit"):
        assert bank.alter_view("sums", maintain=mode).maintain == mode
        connection.execute("UPDATE teller SET balance = balance + 1")
        if mode == "deferred":
            assert wrong(connection, "sums") != {}
        else:
            assert wrong(connection, "sums") == {}
    bank.drop_view("sums")
    bank.drop_view("joined")
    left = connection.execute(
        "SELECT count(*) FROM pg_class WHERE relnamespace = 'idivm_state'::regnamespace"
        " AND (relname LIKE 'sums%%' OR relname LIKE 'joined%%')"
    ).fetchone()
    assert left == (0,)
    for view in bank.views():
        bank.drop_view(view.name)
    left = connection.execute(
        "SELECT count(*) FROM pg_class WHERE relnamespace IN ('idivm_log'::regnamespace, 'idivm_def'::regnamespace)"
    ).fetchone()
    assert left == (0,)


def test_what_cannot_be_merged_says_why(orc):
    orc.execute(TABLES)
    with pytest.raises(UnsupportedError, match="cannot merge the pending changes of this query"):
        orc.create_view(
            "v", "SELECT max(balance) AS m, min(tid) AS t FROM teller", maintain="on_read"
        )
    assert orc.views() == []
    with pytest.raises(UnsupportedError, match="maintain = eager"):
        orc.create_view(
            "v", "SELECT tid FROM teller ORDER BY balance, tid LIMIT 3", maintain="on_read"
        )
    # The cast of `word` may fail, so changes that cancel are dropped before it.
    orc.execute("CREATE TABLE bag (tags int[], word varchar(9), n int)")
    with pytest.raises(UnsupportedError, match="arrays"):
        orc.create_view(
            "v", "SELECT n FROM bag WHERE word ILIKE '%b' OR tags > '{1}'", maintain="on_read"
        )


def test_a_long_log_is_told_once_and_shown_by_status(orc, connect):
    orc.execute("CREATE TABLE t (id int PRIMARY KEY, g int, n int)")
    orc.execute("INSERT INTO t SELECT g, g % 5, 1 FROM generate_series(1, 100) AS g")
    orc.create_view("v", "SELECT g, sum(n) AS s FROM t GROUP BY g", maintain="on_read")
    connection = connect(autocommit=True)
    said: list[str] = []
    connection.add_notice_handler(lambda notice: said.append(notice.message_primary or ""))
    for _ in range(3):
        connection.execute("INSERT INTO t SELECT g, g % 5, 1 FROM generate_series(101, 30000) AS g")
        connection.execute("DELETE FROM t WHERE id > 100")
    connection.execute("VACUUM t")
    assert wrong(connection, "v") == {}
    assert wrong(connection, "v") == {}
    assert [line for line in said if "reads run its query" in line] == [
        "so many changes of public.v are pending that reads run its query"
    ]
    assert connection.execute("SELECT idivm.reads_by(id) FROM idivm.views").fetchone() == ("query",)
    orc.refresh()
    assert kind(connection, "v") == "N"
    assert wrong(connection, "v") == {}


def test_another_time_zone_lets_a_read_run_the_query(orc, connect):
    orc.execute(
        "CREATE TABLE t (id int PRIMARY KEY, at timestamptz);"
        "INSERT INTO t SELECT g, '2024-01-01 22:30Z'::timestamptz + g * interval '1 hour' FROM generate_series(1, 9) AS g"
    )
    orc.create_view(
        "v", "SELECT at::date AS day, count(*) AS n FROM t GROUP BY 1", maintain="on_read"
    )
    connection = connect(autocommit=True)
    for zone in ("Asia/Tokyo", "UTC"):
        connection.execute(SQL("SET TimeZone = {}").format(Literal(zone)))
        connection.execute("UPDATE t SET at = at + interval '5 hours' WHERE id < 4")
        assert wrong(connection, "v") == {}


def test_damage_is_repaired_and_plans_are_made_again(bank, connect):
    connection = connect(autocommit=True)
    connection.execute("DROP TABLE IF EXISTS nothing")
    bank.execute("ALTER TABLE teller RENAME COLUMN balance TO amount")
    connection.execute("UPDATE teller SET amount = amount + 1 WHERE tid < 9")
    assert wrong(connection) == {}
    bank.execute("ALTER TABLE branch DROP CONSTRAINT branch_pkey")
    connection.execute("UPDATE branch SET city = 'x' WHERE bid = 1")
    assert wrong(connection) == {}
    bank.refresh()
    assert wrong(connection) == {}
    connection.execute("UPDATE branch SET city = 'y' WHERE bid = 2")
    assert wrong(connection) == {}
    bank.execute("DROP TABLE teller CASCADE")
    assert {view.name for view in bank.views()} == {"visits", "kinds"}
    left = connection.execute(
        "SELECT count(*) FROM pg_proc WHERE pronamespace = 'idivm_state'::regnamespace AND proname LIKE 'read%%'"
    ).fetchone()
    assert left == (2,)


def test_an_expression_is_not_evaluated_for_images_that_cancel(orc, connect):
    orc.execute("CREATE TABLE t (id int PRIMARY KEY, g int, n int); INSERT INTO t VALUES (1, 1, 1)")
    orc.execute("CREATE TABLE bare (n int); INSERT INTO bare VALUES (1), (1), (2)")
    orc.create_view("rows", "SELECT id, 60 / n AS part FROM t", maintain="on_read")
    orc.create_view("sums", "SELECT g, sum(60 / n) AS s FROM t GROUP BY g", maintain="on_read")
    orc.create_view("bag", "SELECT 60 / n AS part FROM bare", maintain="on_read")
    connection = connect(autocommit=True)
    for table in ("t (id, g, n) VALUES (2, 1, 0), (3, 2, 0)", "bare VALUES (0), (0), (2)"):
        connection.execute(SQL("INSERT INTO {}").format(SQL(table)))
    connection.execute("UPDATE t SET n = 3 WHERE id = 2; DELETE FROM t WHERE id = 3")
    connection.execute("UPDATE bare SET n = 3 WHERE n = 0")
    assert wrong(connection, "rows", "sums", "bag") == {}
    with pytest.raises(UnsupportedError, match="may fail for pairs of rows"):
        orc.create_view(
            "pairs", "SELECT t.id, t.g / bare.n AS p FROM t JOIN bare USING (n)", maintain="on_read"
        )


def test_a_view_that_sql_creates_is_right_before_and_after_it_is_planned(orc, connect):
    orc.execute(TABLES)
    connection = connect(autocommit=True)
    connection.execute(
        SQL("SELECT idivm.create_view('sums', {}, maintain => 'on_read')").format(
            Literal(VIEWS["sums"])
        )
    )
    connection.execute("UPDATE teller SET balance = balance + 1")
    expected = SQL("SELECT * FROM ({}) AS q ORDER BY bid").format(SQL(VIEWS["sums"]))
    content = "SELECT * FROM sums ORDER BY bid"
    assert connection.execute(content).fetchall() == connection.execute(expected).fetchall()
    orc.plan()
    assert orc.view("sums").maintain == "on_read"
    connection.execute("UPDATE teller SET balance = balance + 1")
    assert wrong(connection, "sums") == {} and kind(connection, "sums") == "C"
    connection.execute("SELECT idivm.pause_view('sums'), idivm.resume_view('sums')")
    assert wrong(connection, "sums") == {}
    connection.execute("SELECT idivm.alter_view('sums', maintain => 'deferred')")
    orc.plan()
    assert orc.view("sums").maintain == "deferred"
    connection.execute("SELECT idivm.drop_view('sums')")


def test_a_view_that_was_planned_again_can_be_dropped(orc):
    """Then the view that is read may be older than the one that it reads."""
    orc.execute("CREATE TABLE t (a int NOT NULL CONSTRAINT t_key UNIQUE, b int)")
    orc.create_view(
        "v", "SELECT a FROM t INTERSECT SELECT a FROM t", maintain="on_read", strategy="tuple"
    )
    orc.execute("ALTER TABLE t DROP CONSTRAINT t_key")
    orc.refresh()
    orc.drop_view("v")
    assert orc.views() == []


def test_a_view_whose_query_no_read_can_merge_any_more_shows_its_query(orc):
    """A plain view below it was replaced. It is planned again as soon as that is possible."""
    orc.execute("CREATE TABLE t (id int, n int); INSERT INTO t VALUES (1, 1), (2, 2)")
    orc.connection.execute("CREATE VIEW p AS SELECT id, n FROM t")
    orc.create_view("v", "SELECT id, sum(n) AS s FROM p GROUP BY id", maintain="on_read")
    orc.create_view("above", "SELECT max(s) AS m FROM v")
    orc.connection.execute("CREATE OR REPLACE VIEW p AS SELECT id, max(n) AS n FROM t GROUP BY id")
    orc.refresh()
    orc.refresh()
    assert [view.name for view in orc.views()] == ["above"]
    orc.execute("INSERT INTO t VALUES (1, 4)")
    assert orc.execute("SELECT id, s FROM v ORDER BY id")[0].rows == [(1, 4), (2, 2)]
    orc.connection.execute("CREATE OR REPLACE VIEW p AS SELECT id, n FROM t")
    orc.plan()
    assert orc.view("v").maintain == "on_read"
    orc.execute("INSERT INTO t VALUES (1, 4)")
    assert orc.execute("SELECT id, s FROM v ORDER BY id")[0].rows == [(1, 9), (2, 2)]
    assert all(report.equal for report in orc.check())
    assert all(finding.fine for finding in orc.doctor())
