"""What capture logs, and what net effect remains of it."""

import pytest

pytestmark = pytest.mark.integration


@pytest.fixture(params=["plpgsql", "c"])
def capture_form(request):
    return request.param


@pytest.fixture(params=["origin", "replica"])
def role(request, older):
    """In which replication role the changes are made: statement triggers capture or a row trigger."""
    if older and request.param == "replica":
        pytest.skip("the newest version is enough")
    return request.param


@pytest.fixture
def net(orc, role):
    """A keyed table `t`, a keyless table `b`, a view over each; gives the net effect on either."""
    orc.execute(
        """
        CREATE TABLE t (id int PRIMARY KEY, a text, unused text, j json, n numeric);
        CREATE TABLE b (x int, y text);
        INSERT INTO t SELECT i, 'a' || i, 'u', '{}', i FROM generate_series(1, 5) AS i;
        INSERT INTO b VALUES (1, 'x'), (1, 'x'), (NULL, NULL);
        CREATE VIEW vt AS SELECT id, a, j, n FROM t;
        CREATE VIEW vb AS SELECT x, y FROM b;
        """
    )
    orc.execute(f"SET session_replication_role = {role}")

    def net_of(table):
        source, view = orc.connection.execute(
            "SELECT s.id, vs.view FROM idivm.sources s JOIN idivm.view_sources vs ON vs.source = s.id"
            " WHERE s.relation = %s::regclass",
            [table],
        ).fetchone()
        rows = orc.connection.execute(
            f"SELECT to_jsonb(old), to_jsonb(new), times FROM idivm_log.s{source}_net("
            "(SELECT mark FROM idivm.watermarks WHERE view = %s))",
            [view],
        ).fetchall()
        return sorted(paired(rows) if table == "t" else rows, key=str)

    return net_of


def paired(rows):
    """The net effect with old and new row of a key together."""
    sides = [{image["id"]: image for *images, _ in rows if (image := images[n])} for n in (0, 1)]
    assert len(sides[0]) + len(sides[1]) == len(rows)
    return [(*(side.get(key) for side in sides), 1) for key in sides[0].keys() | sides[1].keys()]


def ids(rows):
    """The net effect as (old id, new id) pairs."""
    pick = lambda image: image and image["id"]  # noqa: E731
    return sorted(((pick(old), pick(new)) for old, new, _ in rows), key=str)


def test_each_operation_has_its_images(orc, net):
    orc.execute(
        "INSERT INTO t VALUES (9, 'nine'); UPDATE t SET a = 'z' WHERE id = 1; DELETE FROM t WHERE id = 2"
    )
    assert ids(net("t")) == [(1, 1), (2, None), (None, 9)]
    ((old, new, _),) = [row for row in net("t") if row[0] and row[1]]
    assert (old["a"], new["a"]) == ("a1", "z")
    assert "unused" not in new


def test_an_update_of_an_unused_column_is_not_logged(orc, net):
    orc.execute("UPDATE t SET unused = 'changed'; UPDATE t SET a = a")
    assert {view.name: view.pending for view in orc.views()}["vt"] == 0


def test_values_that_are_equal_but_not_the_same_are_a_change(orc, net):
    orc.execute("UPDATE t SET n = 1.00 WHERE id = 1; UPDATE t SET j = '{ }' WHERE id = 2")
    assert ids(net("t")) == [(1, 1), (2, 2)]


def test_a_changed_key_is_a_delete_and_an_insert(orc, net):
    orc.execute("UPDATE t SET id = 50 WHERE id = 5")
    assert ids(net("t")) == [(5, None), (None, 50)]


def test_keys_that_move_along_pair_with_the_row_that_had_them(orc, net):
    orc.execute("DELETE FROM t WHERE id = 1; UPDATE t SET id = 1 WHERE id = 2")
    assert ids(net("t")) == [(1, 1), (2, None)]


def test_changes_that_take_each_other_back_leave_nothing(orc, net):
    orc.execute(
        "UPDATE t SET a = 'x' WHERE id = 1; UPDATE t SET a = 'a1' WHERE id = 1;"
        "INSERT INTO t VALUES (7, 'seven'); DELETE FROM t WHERE id = 7;"
        "DELETE FROM t WHERE id = 3; INSERT INTO t VALUES (3, 'a3', 'v', '{}', 3)"
    )
    assert net("t") == []
    assert {view.name: view.pending for view in orc.views()}["vt"] == 6


def test_many_changes_of_a_row_are_one(orc, net):
    orc.execute(
        "INSERT INTO t VALUES (7, 'a'); UPDATE t SET a = 'b' WHERE id = 7; UPDATE t SET a = 'c' WHERE id = 7;"
        "UPDATE t SET a = 'p' WHERE id = 1; UPDATE t SET a = 'q' WHERE id = 1; DELETE FROM t WHERE id = 1"
    )
    rows = net("t")
    assert ids(rows) == [(1, None), (None, 7)]
    assert [new["a"] for _, new, _ in rows if new] == ["c"]
    assert [old["a"] for old, _, _ in rows if old] == ["a1"]


def test_without_a_key_equal_rows_are_counted(orc, net):
    orc.execute(
        "INSERT INTO b VALUES (1, 'x'), (1, 'x'), (2, 'y'); DELETE FROM b WHERE x IS NULL; UPDATE b SET y = 'w' WHERE x = 2"
    )
    assert sorted(((old, new, times) for old, new, times in net("b")), key=str) == sorted(
        [
            ({"x": None, "y": None}, None, 1),
            (None, {"x": 1, "y": "x"}, 2),
            (None, {"x": 2, "y": "w"}, 1),
        ],
        key=str,
    )


def test_a_statement_nested_in_another_changes_the_row_last(orc, net):
    # The inner statement's trigger writes its log row before that of the outer one.
    orc.execute(
        """
        CREATE FUNCTION again() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF pg_trigger_depth() = 1 THEN
                UPDATE t SET a = a || '!' WHERE id = NEW.id;
            END IF;
            RETURN NULL;
        END $$;
        CREATE TRIGGER again AFTER UPDATE ON t FOR EACH ROW EXECUTE FUNCTION again();
        ALTER TABLE t ENABLE ALWAYS TRIGGER again;
        UPDATE t SET a = 'b' WHERE id = 1
        """
    )
    ((old, new, _),) = net("t")
    assert (old["a"], new["a"]) == ("a1", "b!")


def test_a_cascade_onto_the_same_table_changes_the_row_last(orc):
    orc.execute(
        """
        CREATE TABLE staff (id int PRIMARY KEY, boss int REFERENCES staff ON UPDATE CASCADE, name text);
        INSERT INTO staff VALUES (1, 1, 'one'), (2, 1, 'two');
        CREATE VIEW team AS SELECT boss, name FROM staff;
        UPDATE staff SET id = id + 10, name = name || '!'
        """
    )
    (report,) = orc.check("team")
    assert report.equal
    assert sorted(orc.execute("TABLE team")[0].rows) == [(11, "one!"), (11, "two!")]


@pytest.mark.parametrize(
    "statement",
    [
        "MERGE INTO t USING (VALUES (1), (2), (77)) AS s (id) ON t.id = s.id"
        " WHEN MATCHED AND s.id = 1 THEN DELETE WHEN MATCHED THEN UPDATE SET a = 'm'"
        " WHEN NOT MATCHED THEN INSERT (id, a) VALUES (s.id, 'new')",
        "INSERT INTO t VALUES (1, 'up'), (77, 'in') ON CONFLICT (id) DO UPDATE SET a = excluded.a",
        "WITH gone AS (DELETE FROM t WHERE id < 3 RETURNING *), moved AS (INSERT INTO b SELECT id, a FROM gone)"
        " UPDATE t SET a = 'w' WHERE id > 3",
        "TRUNCATE t",
        "TRUNCATE t, b",
        "UPDATE t SET id = id + 100",
    ],
)
@pytest.mark.sampled(3)
def test_every_kind_of_statement_reaches_the_views(orc, net, statement):
    orc.execute(statement)
    assert all(report.equal for report in orc.check())


def test_copy_is_captured(orc, net):
    with orc.connection.cursor().copy("COPY t (id, a) FROM STDIN") as copy:
        copy.write_row((20, "copied"))
        copy.write_row((21, None))
    assert ids(net("t")) == [(None, 20), (None, 21)]


def test_triggers_fire_in_the_replica_role(orc, net):
    orc.execute(
        "SET session_replication_role = replica; DELETE FROM t WHERE id = 1; RESET session_replication_role"
    )
    assert ids(net("t")) == [(1, None)]


def test_a_writer_needs_no_right_but_dml(orc, net):
    orc.execute(
        "DROP ROLE IF EXISTS idivm_test_writer; CREATE ROLE idivm_test_writer; GRANT SELECT, INSERT ON t TO idivm_test_writer;"
        "SET ROLE idivm_test_writer; INSERT INTO t VALUES (30, 'by another'); RESET ROLE"
    )
    assert ids(net("t")) == [(None, 30)]
    orc.execute("REVOKE ALL ON t FROM idivm_test_writer; DROP ROLE idivm_test_writer")


def test_domains_that_forbid_null_do_not_forbid_absence(orc):
    orc.execute(
        """
        CREATE DOMAIN filled AS text NOT NULL CHECK (value <> '');
        CREATE TABLE d (id filled PRIMARY KEY, v filled);
        CREATE VIEW vd AS SELECT v FROM d;
        INSERT INTO d VALUES ('k', 'v'); UPDATE d SET v = 'w'; DELETE FROM d; INSERT INTO d VALUES ('l', 'x')
        """
    )
    assert orc.check("vd")[0].equal


def test_a_second_view_widens_the_log(orc, net):
    orc.execute(
        "CREATE VIEW wide AS SELECT id, unused FROM t; UPDATE t SET unused = 'seen' WHERE id = 1"
    )
    assert {view.name: view.pending for view in orc.views()} == {"vt": 1, "vb": 0, "wide": 1}
    assert all(report.equal for report in orc.check())
    assert (1, "seen") in orc.execute("TABLE wide")[0].rows


def test_a_table_of_which_nothing_is_read_may_be_read_later(orc):
    orc.execute(
        """
        CREATE TABLE bare (present int, a text);
        CREATE VIEW how_many AS SELECT count(*) AS c FROM bare;
        INSERT INTO bare VALUES (1, 'a'), (1, 'a'), (2, 'b');
        """
    )
    assert orc.check("how_many")[0].equal
    orc.execute("CREATE VIEW what AS SELECT present, a FROM bare; DELETE FROM bare WHERE a = 'b'")
    assert all(report.equal for report in orc.check())
    orc.execute(
        "CREATE TABLE no_columns (); CREATE VIEW none AS SELECT count(*) AS c FROM no_columns"
    )
    orc.execute("INSERT INTO no_columns DEFAULT VALUES; INSERT INTO no_columns DEFAULT VALUES")
    assert orc.check("none")[0].equal
    assert orc.execute("TABLE none")[0].rows == [(2,)]


def test_renames_are_followed(orc, net):
    orc.execute(
        """
        CREATE SCHEMA moved;
        ALTER TABLE t RENAME COLUMN a TO "A new";
        ALTER TABLE t RENAME COLUMN unused TO a;
        ALTER TABLE t RENAME TO "T";
        ALTER TABLE "T" SET SCHEMA moved;
        UPDATE moved."T" SET "A new" = 'after' WHERE id = 1;
        DELETE FROM moved."T" WHERE id = 2
        """
    )
    assert orc.check("vt")[0].equal
    assert [row[1] for row in orc.execute("SELECT * FROM vt WHERE id = 1")[0].rows] == ["after"]
    orc.execute(
        'CREATE VIEW later AS SELECT a, "A new" FROM moved."T"; UPDATE moved."T" SET a = \'both\' WHERE id = 3'
    )
    assert all(report.equal for report in orc.check())


def test_unused_columns_may_come_and_go(orc, net):
    orc.execute(
        "ALTER TABLE t DROP COLUMN unused; ALTER TABLE t ADD COLUMN fresh int; UPDATE t SET a = 'k' WHERE id = 1"
    )
    assert orc.check("vt")[0].equal


LAYOUTS = (
    "ALTER TABLE changing ADD COLUMN fresh int DEFAULT 7, ADD COLUMN last text",
    "ALTER TABLE changing ALTER COLUMN unused TYPE bigint USING 1",
    "ALTER TABLE changing RENAME COLUMN a TO former; ALTER TABLE changing RENAME COLUMN other TO a;"
    "ALTER TABLE changing RENAME COLUMN former TO other",
    "ALTER TABLE changing DROP COLUMN unused",
    "CREATE SCHEMA moved; ALTER TABLE changing SET SCHEMA moved; SET search_path = moved;"
    "ALTER TABLE changing ADD COLUMN later text, DROP COLUMN fresh",
)

SHAPES = {
    "keyed": "CREATE TABLE changing (unused int, id int PRIMARY KEY, other text, a text, n numeric)",
    "unkeyed": "CREATE TABLE changing (unused int, id int, other text, a text, n numeric)",
    "partitioned": """
        CREATE TABLE changing (unused int, id int PRIMARY KEY, other text, a text, n numeric)
        PARTITION BY RANGE (id);
        CREATE TABLE low (gone int, n numeric, a text, other text, id int NOT NULL, unused int);
        ALTER TABLE low DROP COLUMN gone;
        ALTER TABLE changing ATTACH PARTITION low FOR VALUES FROM (MINVALUE) TO (10);
        CREATE TABLE high PARTITION OF changing FOR VALUES FROM (10) TO (MAXVALUE)
    """,
    "inherited": """
        CREATE TABLE changing (unused int, id int, other text, a text, n numeric);
        CREATE TABLE child (gone int, n numeric, a text, other text, id int, unused int);
        ALTER TABLE child DROP COLUMN gone;
        ALTER TABLE child INHERIT changing;
        INSERT INTO child SELECT n, 'h', 'o', 100 + n, n FROM generate_series(1, 5) AS n
    """,
}

WRITES = """
    DELETE FROM changing WHERE id > 30 AND id < 100;
    INSERT INTO changing (id, a, other, n) VALUES (31, 'one', 'two', 1);
    INSERT INTO changing (id, a, other, n)
    SELECT i, 'more', 'still more', i / 7.0 FROM generate_series(32, 40) AS i;
    UPDATE changing SET a = a || 1, other = other || 2 WHERE id = 3;
    UPDATE changing SET a = a || 3, other = other || 4, n = n + 1 WHERE id % 2 = 0;
    UPDATE changing SET id = -id WHERE abs(id) BETWEEN 4 AND 5;
    DELETE FROM changing WHERE id = (SELECT max(id) FROM changing);
    DELETE FROM changing WHERE id % 5 = 1;
"""


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.sampled(3)
def test_a_table_of_another_form_is_captured_as_before(orc, connect, shape, role):
    """At once, before idivm gets to see the table's new form, and afterwards."""
    orc.execute(shape)
    orc.execute(
        """
        INSERT INTO changing (unused, id, other, a, n)
        SELECT i, i, 'o', 'a' || i, i FROM generate_series(1, 30) AS i;
        CREATE VIEW seen AS SELECT id, a, n FROM changing
        """
    )
    plain = connect()
    plain.execute(f"SET session_replication_role = {role}")
    plain.execute(WRITES)
    for layout in LAYOUTS:
        plain.execute(layout)
        for _ in range(2):
            plain.execute(WRITES)
            assert all(report.equal for report in orc.check())


def test_a_transaction_older_than_the_form_of_a_table(orc, connect, net, role):
    plain = connect(autocommit=False)
    plain.execute(f"SET session_replication_role = {role}")
    plain.commit()
    plain.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM b")
    connect().execute(
        "ALTER TABLE t DROP COLUMN unused; ALTER TABLE t RENAME a TO c; ALTER TABLE t RENAME n TO a"
    )
    plain.execute(
        "UPDATE t SET a = a + 1 WHERE id = 1; UPDATE t SET c = 'both', a = 7 WHERE id < 4"
    )
    plain.execute("INSERT INTO t (id, c, a) VALUES (8, 'new', 1); DELETE FROM t WHERE id = 2")
    plain.commit()
    assert all(report.equal for report in orc.check())


def test_a_captured_partition_is_dropped_as_any_other(orc):
    orc.execute(SHAPES["partitioned"])
    orc.execute(
        "CREATE VIEW seen AS SELECT id, a FROM changing; INSERT INTO changing (id) VALUES (1), (20)"
    )
    orc.execute("DROP TABLE high")
    assert all(report.equal for report in orc.check())
    assert orc.execute("TABLE seen")[0].rows == [(1, None)]


def test_a_partition_that_nobody_saw(orc, connect):
    """Its rows were logged by the table above, and went with it."""
    orc.execute(SHAPES["partitioned"])
    orc.execute(
        """
        DROP TABLE high;
        CREATE VIEW seen AS SELECT id, a FROM changing; CREATE VIEW counted AS SELECT count(*) AS n FROM changing;
        INSERT INTO changing (id) VALUES (1)
        """
    )
    assert all(report.equal for report in orc.check())
    plain = connect()
    plain.execute("CREATE TABLE passing PARTITION OF changing FOR VALUES FROM (10) TO (20)")
    plain.execute("INSERT INTO changing (id) VALUES (2), (12); UPDATE changing SET a = 'x'")
    plain.execute("DROP TABLE passing")
    plain.execute("CALL idivm.refresh_all()")
    assert plain.execute("TABLE seen ORDER BY id").fetchall() == [(1, "x"), (2, "x")]
    plain.execute("INSERT INTO changing (id) VALUES (3)")
    assert {view.name: view.pending for view in orc.views()} == {"seen": 1, "counted": 1}
    assert all(report.equal for report in orc.check())
