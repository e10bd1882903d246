"""What programs look for before they do anything."""

import pytest
from psycopg import IsolationLevel
from stepping import differences

pytestmark = pytest.mark.integration


both_forms = pytest.mark.parametrize("capture_form", ["plpgsql", "c"])
"""In C, a session remembers what it has found."""


@pytest.fixture
def shop(orc):
    """Two tables, joined by an eager view and by a deferred one, changed a few times."""
    orc.execute(
        """
        CREATE TABLE grp (g text PRIMARY KEY, factor numeric(6, 2));
        CREATE TABLE item (id int PRIMARY KEY, g text REFERENCES grp, n numeric(8, 2));
        INSERT INTO grp VALUES ('a', 1), ('b', 2), ('c', 3);
        INSERT INTO item SELECT i, chr(97 + i % 3), i FROM generate_series(1, 12) AS i
        """
    )
    query = "SELECT g, sum(n) AS total, avg(factor) AS f, count(*) AS c FROM item JOIN grp USING (g) GROUP BY g"
    orc.create_view("soon", query, maintain="eager", strategy="id")
    orc.create_view("late", query, strategy="id")
    for _ in range(3):
        orc.execute("UPDATE item SET n = n + 1 WHERE id < 4; UPDATE grp SET factor = factor + 1")
    orc.refresh()
    return orc


CUT = {
    "triggers that were off": (
        "ALTER TABLE grp DISABLE TRIGGER ALL",
        "UPDATE grp SET factor = 100 WHERE g = 'b'",
        "ALTER TABLE grp ENABLE TRIGGER ALL",
    ),
    "a trigger that is gone": (
        "DROP TRIGGER idivm_{grp}_update ON grp",
        "UPDATE grp SET factor = 100 WHERE g = 'b'",
    ),
}


@both_forms
@pytest.mark.parametrize("way", CUT)
@pytest.mark.parametrize(
    ("level", "elsewhere"),
    [
        (IsolationLevel.READ_COMMITTED, False),
        (IsolationLevel.READ_COMMITTED, True),
        (IsolationLevel.REPEATABLE_READ, True),
    ],
    ids=["here", "elsewhere", "elsewhere, lasting snapshot"],
)
@pytest.mark.sampled(3)
def test_capture_that_was_off_is_noticed_by_the_next_writer(shop, connect, way, level, elsewhere):
    writer = connect()
    writer.isolation_level = level
    writer.execute("UPDATE item SET n = n + 1 WHERE id = 1")
    other = connect() if elsewhere else writer
    (source,) = other.execute(
        "SELECT id FROM idivm.sources WHERE relation = 'grp'::regclass"
    ).fetchone()
    for statement in CUT[way]:
        other.execute(statement.format(grp=source))
    writer.execute("UPDATE item SET n = n + 1 WHERE id = 1")
    assert differences(writer, "soon") == []
    writer.execute("UPDATE item SET n = n + 1 WHERE id = 1")
    assert differences(writer, "soon") == []


@both_forms
def test_an_heir_that_comes_is_noticed(shop, connect):
    writer = connect()
    writer.execute("UPDATE item SET n = n + 1 WHERE id = 1")
    shop.connection.execute("CREATE TABLE child () INHERITS (grp)")
    writer.execute("UPDATE item SET n = n + 1 WHERE id = 1")
    assert "lost its key" in shop.view("soon").error
    shop.refresh()
    writer.execute("INSERT INTO child VALUES ('b', 100)")
    assert differences(writer, "soon") == []


@both_forms
def test_triggers_that_went_back_with_a_savepoint_are_taken_as_they_are(shop, connect):
    writer = connect(autocommit=False)
    writer.execute("SAVEPOINT a; ALTER TABLE grp DISABLE TRIGGER ALL")
    writer.execute("UPDATE item SET n = n + 1 WHERE id = 1")
    writer.execute("ROLLBACK TO a")
    writer.execute("UPDATE item SET n = n + 1 WHERE id = 1")
    assert writer.execute(
        "SELECT status FROM idivm.views WHERE relation = 'soon'::regclass"
    ).fetchone() == ("ready",)
    writer.execute("ALTER TABLE grp DISABLE TRIGGER ALL; UPDATE grp SET factor = 9")
    writer.execute("SAVEPOINT b; ALTER TABLE grp ENABLE TRIGGER ALL")
    writer.execute("UPDATE item SET n = n + 1 WHERE id = 1")
    writer.execute("ROLLBACK TO b; UPDATE item SET n = n + 1 WHERE id = 1")
    assert differences(writer, "soon") == []
    writer.rollback()
    assert differences(shop.connection, "soon") == []


@both_forms
def test_a_snapshot_older_than_a_change_of_triggers_does_not_last(shop, connect):
    writer = connect(autocommit=False)
    writer.isolation_level = IsolationLevel.REPEATABLE_READ
    writer.execute("SELECT count(*) FROM item")
    for statement in CUT["triggers that were off"]:
        shop.connection.execute(statement)
    writer.execute("UPDATE item SET n = n + 1 WHERE id = 1")
    writer.commit()
    writer.isolation_level = IsolationLevel.READ_COMMITTED
    writer.execute("UPDATE item SET n = n + 1 WHERE id = 1")
    writer.commit()
    assert differences(writer, "soon") == []


@both_forms
def test_what_a_view_reads_since_it_was_replaced_is_watched(shop, connect):
    writer = connect()
    writer.execute(
        "CREATE TABLE rate (g text PRIMARY KEY, factor int); INSERT INTO rate VALUES ('a', 1), ('b', 2)"
    )
    writer.execute("UPDATE item SET n = n + 1 WHERE id = 1")
    query = "SELECT g, sum(n) AS total, avg(factor) AS f, count(*) AS c FROM item JOIN rate USING (g) GROUP BY g"
    shop.execute(f"CREATE OR REPLACE VIEW soon WITH (maintain = eager, strategy = id) AS {query}")
    for _ in range(2):
        writer.execute(
            "UPDATE item SET n = n + 1 WHERE id = 1; UPDATE rate SET factor = factor + 1"
        )
    other = connect()
    other.execute("ALTER TABLE rate DISABLE TRIGGER ALL; UPDATE rate SET factor = 50")
    writer.execute("UPDATE item SET n = n + 1 WHERE id = 1")
    assert differences(writer, "soon") == []


@both_forms
def test_a_plain_view_that_is_replaced_is_noticed(shop, connect):
    shop.connection.execute("CREATE VIEW factors AS SELECT g, factor FROM grp WHERE factor > 1")
    query = "SELECT id, n * factor AS p FROM item JOIN factors USING (g)"
    shop.create_view("over", query, maintain="eager", strategy="id")
    writer = connect()
    for _ in range(2):
        writer.execute("UPDATE item SET n = n + 1 WHERE id = 1; UPDATE grp SET factor = factor + 1")
    shop.connection.execute(
        "CREATE OR REPLACE VIEW factors AS SELECT g, factor FROM grp WHERE factor < 3"
    )
    writer.execute("UPDATE item SET n = n + 1 WHERE id = 1")
    assert "was replaced" in shop.view("over").error
    shop.refresh()
    writer.execute("UPDATE item SET n = n + 1 WHERE id = 1")
    assert differences(writer, "over") == []


def test_a_key_may_have_one_change_and_another_more(shop):
    shop.execute(
        """
        BEGIN;
        UPDATE item SET n = 50 WHERE id = 1;
        UPDATE item SET n = 51 WHERE id IN (1, 2);
        DELETE FROM item WHERE id = 3; INSERT INTO item VALUES (3, 'b', 7);
        INSERT INTO item VALUES (40, 'a', 1); DELETE FROM item WHERE id = 40;
        UPDATE item SET id = id + 100 WHERE id > 10;
        COMMIT
        """
    )
    shop.refresh()
    assert differences(shop.connection, "late") == differences(shop.connection, "soon") == []


def test_sums_of_numbers_with_a_scale_are_exact_in_value_and_scale(shop):
    for change in (
        "UPDATE item SET n = 'NaN' WHERE id IN (3, 6)",
        "UPDATE item SET n = 5 WHERE id = 3",
        "UPDATE item SET n = NULL WHERE id % 3 = 0",
        "UPDATE item SET n = 1.25 WHERE id = 9; UPDATE grp SET factor = NULL WHERE g = 'c'",
        "DELETE FROM item WHERE g = 'c'",
        "INSERT INTO item VALUES (50, 'c', NULL), (51, 'c', -0.5)",
    ):
        shop.execute(change)
        shop.refresh()
        for view in ("soon", "late"):
            assert differences(shop.connection, view) == []
            actual, wanted = (
                shop.connection.execute(
                    f"SELECT g, total::text, f::text FROM ({query}) AS q ORDER BY g".encode()
                ).fetchall()
                for query in (
                    f"TABLE {view}",
                    "SELECT g, sum(n) AS total, avg(factor) AS f FROM item JOIN grp USING (g) GROUP BY g",
                )
            )
            assert actual == wanted


def test_a_creation_leaves_no_plans_in_its_session(orc):
    """Each DDL statement goes through all plans of its session."""
    orc.execute("CREATE TABLE t (id int PRIMARY KEY, g int, n int)")

    def create(view):
        orc.create_view(
            view, f"SELECT g, sum(n), count(*) FROM t WHERE id <> {view[1:]} GROUP BY g"
        )
        return orc.connection.execute(
            "SELECT count(*) FROM pg_backend_memory_contexts WHERE name = 'CachedPlanSource'"
        ).fetchone()[0]

    # The driver prepares a statement that it executes for the sixth time.
    plans = [create(f"v{number}") for number in range(9)]
    assert plans[-1] == plans[-2]
