"""Capture's C form logs what the plpgsql form logs, and is used where it may be."""

from random import Random

import psycopg
import pytest
from psycopg.errors import InsufficientPrivilege

import orchestrator
from orchestrator.runtime.installation import sources

pytestmark = pytest.mark.integration


@pytest.fixture
def capture_form():
    return "c"


SCENARIOS = {
    "rows of every operation": """
        INSERT INTO t SELECT i, 'new', 'u', '{}', i FROM generate_series(10, 14) AS i;
        UPDATE t SET a = 'x' WHERE id = 1;
        UPDATE t SET a = 'y' WHERE id > 2;
        UPDATE t SET unused = 'changed';
        UPDATE t SET a = CASE id WHEN 3 THEN a ELSE 'z' END, unused = a;
        DELETE FROM t WHERE id IN (1, 2, 10);
        DELETE FROM t WHERE false;
    """,
    "keys": """
        UPDATE t SET id = 50 WHERE id = 5;
        UPDATE t SET id = id + 100;
        UPDATE t SET id = -id WHERE id > 103;
        UPDATE t SET id = id, a = 'k';
    """,
    "values that are equal and not the same": """
        UPDATE t SET n = 1.00 WHERE id = 1;
        UPDATE t SET j = '{ }' WHERE id = 2;
        UPDATE t SET n = 'NaN', a = NULL WHERE id = 3;
        UPDATE t SET n = 'NaN', a = NULL WHERE id = 3;
        UPDATE t SET a = '' WHERE id = 3;
    """,
    "no key": """
        INSERT INTO b VALUES (1, 'x'), (1, 'x'), (2, 'y');
        UPDATE b SET y = 'w' WHERE x = 2;
        UPDATE b SET y = y;
        DELETE FROM b WHERE x IS NULL;
    """,
    "more than a batch": """
        INSERT INTO t SELECT i, repeat('long', 50), 'u', NULL, i FROM generate_series(100, 1700) AS i;
        UPDATE t SET n = n + 1, a = CASE WHEN id % 2 = 0 THEN a ELSE 'odd' END WHERE id >= 100;
        UPDATE t SET n = n + 1 WHERE id % 3 = 0;
        DELETE FROM t WHERE id > 500;
    """,
    "large values": """
        ALTER TABLE t ALTER a SET STORAGE EXTERNAL;
        INSERT INTO t SELECT i, repeat('0123456789', 1000 * i), 'u', '{}', 1 FROM generate_series(10, 12) AS i;
        UPDATE t SET n = 7 WHERE id >= 10;
        UPDATE t SET unused = 'v' WHERE id >= 10;
        UPDATE t SET a = repeat('9876543210', 1000 * id) WHERE id >= 10;
        UPDATE t SET a = a || '' WHERE id >= 10;
        DELETE FROM t WHERE id >= 10;
    """,
    "savepoints": """
        BEGIN;
        UPDATE t SET a = 'kept' WHERE id = 1;
        SAVEPOINT s;
        UPDATE t SET a = 'gone' WHERE id = 2;
        ROLLBACK TO s;
        UPDATE t SET a = 'kept too' WHERE id = 3;
        COMMIT;
    """,
    "columns that come and go": """
        ALTER TABLE t DROP COLUMN unused;
        ALTER TABLE t ADD COLUMN fresh int;
        UPDATE t SET a = 'k' WHERE id = 1;
        ALTER TABLE t RENAME n TO m;
        ALTER TABLE t RENAME a TO n;
        ALTER TABLE t RENAME TO "T";
        UPDATE "T" SET n = 'after', m = 3 WHERE id < 3;
        INSERT INTO "T" VALUES (77, 'all');
    """,
    "partitions": """
        INSERT INTO p VALUES ('a', 1, 1), ('b', 2, 2), ('b', 3, 3);
        UPDATE p SET v = v + 1;
        UPDATE p_b SET v = v + 1;
        UPDATE p SET kind = 'a' WHERE id = 2;
        DELETE FROM p_b;
        INSERT INTO p_b VALUES (5, 5, 'b');
        TRUNCATE p_a;
    """,
    "inheritance children": """
        INSERT INTO up VALUES (1, 'one'); INSERT INTO down VALUES (2, 'two', 'further');
        UPDATE up SET v = v || '!';
        UPDATE down SET v = v || '?', more = NULL;
        DELETE FROM up;
    """,
    "cascades": """
        INSERT INTO staff VALUES (1, 1, 'one'), (2, 1, 'two');
        UPDATE staff SET name = name || '!';
        UPDATE staff SET id = id + 10 WHERE id = 1;
        UPDATE staff SET id = id + 10, name = 'moved' WHERE id = 11;
    """,
    "generated columns": """
        INSERT INTO g (id, a) VALUES (1, 5), (2, 6);
        UPDATE g SET a = a + 1;
        DELETE FROM g WHERE id = 1;
    """,
    "types": """
        INSERT INTO types VALUES (1, 'x', '{1,2}', '(1,a)', '[1,5)', 'happy', 1.5, '0.0', 'c', B'101');
        UPDATE types SET f = '-0.0';
        UPDATE types SET d = d, arr = arr || 3;
        UPDATE types SET pair = '(1,b)', mood = 'sad', r = 'empty', b = NULL, c = 'd ';
    """,
}

TABLES = """
    CREATE TABLE t (id int PRIMARY KEY, a text, unused text, j json, n numeric);
    CREATE TABLE b (x int, y text);
    INSERT INTO t SELECT i, 'a' || i, 'u', '{}', i FROM generate_series(1, 5) AS i;
    ALTER TABLE t ADD COLUMN late int DEFAULT 7;
    INSERT INTO b VALUES (1, 'x'), (1, 'x'), (NULL, NULL);
    CREATE TABLE p (kind text, id int, v int, PRIMARY KEY (kind, id)) PARTITION BY LIST (kind);
    CREATE TABLE p_a PARTITION OF p FOR VALUES IN ('a');
    CREATE TABLE p_b (gone int, v int, id int NOT NULL, kind text NOT NULL, PRIMARY KEY (kind, id));
    ALTER TABLE p_b DROP COLUMN gone;
    ALTER TABLE p ATTACH PARTITION p_b FOR VALUES IN ('b');
    CREATE TABLE up (id int, v text);
    CREATE TABLE down (more text) INHERITS (up);
    CREATE TABLE staff (id int PRIMARY KEY, boss int REFERENCES staff ON UPDATE CASCADE, name text);
    CREATE TABLE g (id int PRIMARY KEY, a int, twice int GENERATED ALWAYS AS (a * 2) STORED);
    CREATE TYPE pair AS (x int, y text);
    CREATE TYPE mood AS ENUM ('happy', 'sad');
    CREATE DOMAIN filled AS text NOT NULL CHECK (value <> '');
    CREATE TABLE types (id int PRIMARY KEY, d filled, arr int[], pair pair, r int4range, mood mood,
                        n numeric(6, 2), f float8, c char(3), b bit(3));
    CREATE VIEW vt AS SELECT id, a, j, n, late FROM t;
    CREATE VIEW vb AS SELECT x, y FROM b;
    CREATE VIEW vp AS SELECT id, v, kind FROM p;
    CREATE VIEW vup AS SELECT v FROM up;
    CREATE VIEW team AS SELECT boss, name FROM staff;
    CREATE VIEW vg AS SELECT id, twice FROM g;
    CREATE VIEW vtypes AS SELECT * FROM types;
    CREATE VIEW how_many AS SELECT count(*) AS c FROM b;
"""


def logs(connection):
    """What all logs hold: statements by their order, as their numbers may have gaps."""
    contents = []
    ids = connection.execute("SELECT id FROM idivm.sources ORDER BY id").fetchall()
    for (source,) in ids:
        rows = connection.execute(
            "SELECT dense_rank() OVER (ORDER BY seq), dense_rank() OVER (ORDER BY xid::text::numeric),"
            f" to_jsonb(s) - 'seq' - 'xid' FROM idivm_log.s{source} AS s"
        ).fetchall()
        contents.append(sorted(rows, key=repr))
    return contents


def in_c(connection, table):
    (arguments,) = connection.execute(
        "SELECT tgfoid = to_regprocedure('idivm.capture_rows()') FROM pg_trigger"
        " WHERE tgrelid = %s::regclass AND tgname ~ '_update$' AND tgname ~ '^idivm_'",
        [table],
    ).fetchone()
    return bool(arguments)


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("maintain", ["deferred", "eager"])
@pytest.mark.sampled(7)
def test_both_forms_give_the_same_log(pg, orc, name, maintain, older):
    if older and maintain == "eager":
        pytest.skip("older versions run one mode, unless they are asked for")
    tables = TABLES.replace(" AS SELECT", f" WITH (maintain = {maintain}) AS SELECT")
    with pg.database(migrated=True) as other, orchestrator.connect(other) as plain:
        for database in (orc, plain):
            database.execute(tables)
            database.connection.execute(SCENARIOS[name])
        assert in_c(orc.connection, "b") and not in_c(plain.connection, "b")
        assert logs(orc.connection) == logs(plain.connection)
        assert any(logs(orc.connection))
    assert all(report.equal for report in orc.check())


@pytest.mark.parametrize("maintain", ["deferred", "eager", "on_commit", "on_read"])
def test_no_mode_leaves_statements_to_plpgsql(orc, maintain):
    """The logs of on_read views have further indexes."""
    orc.execute(
        "CREATE TABLE t (id int PRIMARY KEY, g int, n int); INSERT INTO t SELECT i, i % 3, i FROM generate_series(1, 9) AS i;"
        f"CREATE VIEW v WITH (maintain = {maintain}) AS SELECT g, sum(n) AS s FROM t GROUP BY g"
    )
    for operation in ("insert", "update", "delete"):
        orc.connection.execute(
            f"CREATE OR REPLACE FUNCTION idivm_log.s1_{operation}_1() RETURNS trigger LANGUAGE plpgsql AS"
            " 'BEGIN RAISE ''left to plpgsql''; END'"
        )
    orc.connection.execute(
        "INSERT INTO t VALUES (10, 1, 1), (11, NULL, 2); UPDATE t SET n = 7, g = 2 WHERE id < 5; DELETE FROM t WHERE id = 10"
    )
    pending = 45 if maintain == "deferred" else 65
    assert orc.execute("SELECT sum(s) FROM v")[0].rows == [(pending,)]
    orc.refresh()
    assert orc.check("v")[0].equal


def test_a_log_that_was_changed_by_hand_is_left_to_plpgsql(orc):
    orc.execute("CREATE TABLE t (id int PRIMARY KEY, a int); CREATE VIEW v AS SELECT id, a FROM t")
    (source,) = orc.connection.execute("SELECT id FROM idivm.sources").fetchone()
    orc.connection.execute("INSERT INTO t VALUES (1, 1)")
    orc.connection.execute(
        f"ALTER TABLE idivm_log.s{source}_a ADD CHECK (n_1 <> 13), ADD COLUMN at timestamptz DEFAULT now()"
    )
    orc.connection.execute("INSERT INTO t VALUES (2, 2)")
    assert orc.connection.execute(
        f"SELECT count(*), count(at) FROM idivm_log.s{source}_a WHERE n_1 = 2"
    ).fetchone() == (1, 1)
    with pytest.raises(psycopg.errors.CheckViolation):
        orc.connection.execute("INSERT INTO t VALUES (13, 2)")


def test_a_table_loses_its_key_to_an_heir(orc):
    orc.execute(
        """
        CREATE TABLE t (id int PRIMARY KEY, a text);
        INSERT INTO t VALUES (1, 'a');
        CREATE VIEW v AS SELECT id, a FROM t;
        UPDATE t SET a = 'b';
        CREATE TABLE child () INHERITS (t);
        INSERT INTO child VALUES (1, 'again');
        """
    )
    orc.refresh()
    orc.connection.execute("UPDATE t SET a = a || '!'")
    assert orc.check("v")[0].equal
    assert in_c(orc.connection, "t") and in_c(orc.connection, "child")


def test_a_detached_partition_is_its_own_again(orc):
    orc.execute(
        TABLES
        + "INSERT INTO p VALUES ('a', 1, 1), ('b', 2, 2); ALTER TABLE p DETACH PARTITION p_b;"
        "UPDATE p_b SET v = 9; UPDATE p SET v = 8"
    )
    assert all(report.equal for report in orc.check())


def test_nobody_writes_the_log_of_a_table_that_is_not_theirs(orc, connect):
    orc.execute(
        """
        CREATE TABLE t (id int PRIMARY KEY, a int);
        CREATE VIEW v AS SELECT id, a FROM t;
        INSERT INTO t VALUES (1, 1);
        DROP ROLE IF EXISTS idivm_test_mallory; CREATE ROLE idivm_test_mallory;
        CREATE SCHEMA mallory AUTHORIZATION idivm_test_mallory;
        GRANT USAGE ON SCHEMA idivm TO idivm_test_mallory;
        """
    )
    (source,) = orc.connection.execute("SELECT id FROM idivm.sources").fetchone()
    before = logs(orc.connection)
    mallory = connect()
    mallory.execute(
        f"""
        SET ROLE idivm_test_mallory;
        CREATE TABLE mallory.t (id int PRIMARY KEY, a int);
        CREATE TRIGGER x AFTER INSERT ON mallory.t REFERENCING NEW TABLE AS new_rows
        FOR EACH STATEMENT EXECUTE FUNCTION idivm.capture_rows('{source}', '1', '1');
        CREATE TRIGGER y BEFORE DELETE ON mallory.t
        FOR EACH ROW EXECUTE FUNCTION idivm.capture_rows('{source}', '1', '1')
        """
    )
    with pytest.raises(psycopg.Error, match="does not belong to capture"):
        mallory.execute("INSERT INTO mallory.t VALUES (666, 666)")
    mallory.execute("DROP TRIGGER x ON mallory.t; INSERT INTO mallory.t VALUES (666, 666)")
    with pytest.raises(psycopg.Error, match="idivm itself makes"):
        mallory.execute("DELETE FROM mallory.t")
    with pytest.raises(psycopg.Error):
        mallory.execute("SELECT idivm.capture_rows()")
    assert logs(orc.connection) == before
    orc.execute("DROP SCHEMA mallory CASCADE; DROP OWNED BY idivm_test_mallory")
    orc.execute("DROP ROLE idivm_test_mallory")


def test_capture_changes_its_form_where_that_is_said(orc, connect):
    orc.execute("CREATE TABLE t (id int PRIMARY KEY, a int); CREATE VIEW v AS SELECT id, a FROM t")
    orc.execute("SET idivm.accelerate = off")
    assert in_c(orc.connection, "t")
    orc.execute("CREATE VIEW w AS SELECT a FROM t")
    assert not in_c(orc.connection, "t")
    orc.execute("RESET idivm.accelerate")
    findings = {finding.subject: finding.sentence for finding in orc.doctor()}
    assert findings["capture's form"] == "C, from now on, for 1 more tables"
    assert findings["capture"] == "every captured table has its triggers, enabled"
    assert in_c(orc.connection, "t")
    assert sources.switch_form(orc.connection) == 0
    orc.execute("INSERT INTO t VALUES (1, 1)")
    assert all(report.equal for report in orc.check())


def test_who_may_not_use_the_function_captures_in_plpgsql(orc, connect):
    orc.execute("REVOKE EXECUTE ON FUNCTION idivm.capture_rows() FROM PUBLIC")
    orc.execute("DROP ROLE IF EXISTS idivm_test_user; CREATE ROLE idivm_test_user")
    connection = connect()
    connection.execute("GRANT USAGE ON SCHEMA idivm TO idivm_test_user")
    connection.execute("SET ROLE idivm_test_user")
    with pytest.raises(InsufficientPrivilege):
        connection.execute("SELECT idivm.capture_rows()")
    assert not orchestrator.catalog.captures_in_c(connection)
    orc.execute("DROP OWNED BY idivm_test_user; DROP ROLE idivm_test_user")


def test_repeatable_read_transactions_that_are_older_than_the_view_capture(orc, connect):
    orc.execute("CREATE TABLE t (id int PRIMARY KEY, a int)")
    early = connect()
    early.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class")
    orc.execute("CREATE VIEW v AS SELECT id, a FROM t")
    early.execute("INSERT INTO t VALUES (1, 1); COMMIT")
    assert orc.check("v")[0].equal


def random_statements(random):
    """Statements over the keyed, the keyless, the partitioned table and the one with cascades."""

    def where():
        return random.choice(
            [
                "",
                f" WHERE id = {random.randint(0, 30)}",
                f" WHERE id % {random.randint(2, 5)} = {random.randint(0, 2)}",
                f" WHERE id > {random.randint(0, 30)}",
            ]
        )

    number, first = random.randint(-3, 40), random.randint(0, 30)
    rows = f"generate_series({first}, {first + random.choice([0, 0, 3, 700])}) AS i"
    text = f"repeat(md5(i::text), {random.choice([0, 1, 200])})"
    return random.choice(
        [
            f"INSERT INTO t (id, a, n) SELECT i, {text}, i FROM {rows}",
            f"INSERT INTO t (id, a, n) SELECT i, {text}, i FROM {rows} ON CONFLICT (id) DO UPDATE SET a = excluded.a",
            f"INSERT INTO t (id, j) VALUES ({number}, '[1]') ON CONFLICT DO NOTHING",
            "UPDATE t SET n = n + 1" + where(),
            "UPDATE t SET unused = random()::text" + where(),
            "UPDATE t SET a = CASE WHEN id % 2 = 0 THEN a ELSE 'odd' END, j = NULL" + where(),
            f"UPDATE t SET id = id + {number}" + where(),
            f"UPDATE t SET id = {number}, n = round(n, 1)" + where(),
            "DELETE FROM t" + where(),
            f"MERGE INTO t USING (SELECT i FROM {rows}) AS s ON t.id = s.i WHEN MATCHED AND i % 2 = 0 THEN DELETE"
            " WHEN MATCHED THEN UPDATE SET n = 0 WHEN NOT MATCHED THEN INSERT (id, a) VALUES (i, 'merged')",
            f"INSERT INTO b SELECT i, 'y' FROM {rows}",
            f"UPDATE b SET y = y || 'z' WHERE x % 3 = {random.randint(0, 2)}",
            f"DELETE FROM b WHERE x = {number}",
            f"INSERT INTO p SELECT chr(97 + i % 2), i, i FROM {rows}",
            "UPDATE p SET v = v + 1" + where(),
            "UPDATE p SET kind = CASE kind WHEN 'a' THEN 'b' ELSE 'a' END" + where(),
            "UPDATE p_b SET v = v + 1" + where(),
            "DELETE FROM p_a" + where(),
            f"INSERT INTO staff SELECT i, i - i % 3, 'n' FROM {rows}",
            "UPDATE staff SET name = name || '!'" + where(),
            f"UPDATE staff SET id = id + 1000 WHERE id = {number}",
            f"UPDATE staff SET id = id + 1000, name = 'moved' WHERE id % 3 <> 0 AND id > {number}",
            f"WITH gone AS (DELETE FROM t WHERE id = {number} RETURNING id) INSERT INTO b SELECT id, 'gone' FROM gone",
        ]
    )


def outcomes(connection, statements):
    """What the statements of one transaction say, each in a savepoint that may be undone."""
    said = []
    with connection.transaction():
        for statement, undone in statements:
            try:
                with connection.transaction(force_rollback=undone):
                    said.append(connection.execute(statement).rowcount)
            except psycopg.Error as error:
                said.append(error.sqlstate)
    return said


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_random_statements_give_the_same_log(pg, orc, seed):
    random = Random(seed)
    said = []
    with pg.database(migrated=True) as other, orchestrator.connect(other) as plain:
        for database in (orc, plain):
            database.execute(TABLES)
        for _ in range(20):
            statements = [
                (random_statements(random), random.random() < 0.2)
                for _ in range(random.randint(1, 6))
            ]
            said += outcomes(orc.connection, statements)
            assert outcomes(plain.connection, statements) == said[-len(statements) :]
        assert sum(isinstance(outcome, int) and outcome > 0 for outcome in said) > 20
        assert logs(orc.connection) == logs(plain.connection)
    assert all(report.equal for report in orc.check())


def test_a_form_in_c_replaces_the_form_in_sql(orc):
    # Triggers call the first one, and the others keep a state that SQL has no type for.
    without = {"capture_rows", "mixed_lift_step", "mixed_sum_step", "mixed_sum_total"}
    rows = orc.connection.execute(
        "SELECT p.proname FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang"
        " WHERE l.lanname = 'c' AND p.pronamespace = 'idivm'::regnamespace"
        " AND p.oid::regprocedure::text <> ALL (SELECT unnest(d.routines) FROM idivm.declarations d)"
    ).fetchall()
    assert {name for (name,) in rows} == without
