"""Writers of eager and on_commit views: what they rely on cannot be set by hand, and they wait in no circle."""

import threading

import pytest
from psycopg import IsolationLevel
from psycopg.errors import InsufficientPrivilege, LockNotAvailable, SerializationFailure
from stepping import Session, differences, until

pytestmark = pytest.mark.integration

SETTINGS = ("open", "pending", "later", "queued")


@pytest.fixture(params=["plpgsql", "c"])
def capture_form(request):
    return request.param


@pytest.fixture
def session(connect):
    return lambda level=None: Session(connect(), level)


@pytest.fixture
def pair(orc):
    """Two tables, each with an eager and an on_commit view of its own."""
    orc.execute(
        """
        CREATE TABLE a (id int PRIMARY KEY, n int); INSERT INTO a SELECT i, i FROM generate_series(1, 9) AS i;
        CREATE TABLE b (id int PRIMARY KEY, n int); INSERT INTO b SELECT i, i FROM generate_series(1, 9) AS i
        """
    )
    for table in "ab":
        orc.create_view(
            f"soon_{table}", f"SELECT sum(n) AS s FROM {table}", maintain="eager", shared="off"
        )
        orc.create_view(f"late_{table}", f"SELECT sum(n) AS s FROM {table}", maintain="on_commit")
    return orc


VIEWS = ("soon_a", "late_a", "soon_b", "late_b")


def right(orc):
    return all(differences(orc.connection, view) == [] for view in VIEWS)


@pytest.mark.parametrize("value", ["5", "-7", "{1,2,3,4}", "{}", "nonsense"])
def test_settings_of_a_session_decide_nothing(pair, session, value):
    writer = session()
    for name in SETTINGS:
        writer(f"SET idivm.{name} = '{value}'")
    writer("UPDATE a SET n = 100 WHERE id = 1")
    assert differences(writer.connection, "soon_a") == []
    writer("UPDATE b SET n = 100 WHERE id = 1")
    writer.commit()
    assert right(pair)


def test_views_that_are_brought_up_before_the_commit_take_all_locks(pair, session):
    """A worker of a subscription goes on to other tables while it holds the locks of views."""
    pair.connection.execute(
        """
        CREATE FUNCTION noted() RETURNS int LANGUAGE plpgsql SET search_path = public AS
        $$ BEGIN INSERT INTO a VALUES ((SELECT max(id) + 1 FROM a), 5); RETURN 1; END $$;
        CREATE MATERIALIZED VIEW stored AS SELECT noted() AS n
        """
    )
    pair.alter_view("soon_a", maintain="deferred")
    restricted, other = session(), session()
    restricted("REFRESH MATERIALIZED VIEW stored")
    free = (
        "SELECT count(*) FROM (SELECT id FROM idivm.synchronous_views() AS id UNION SELECT -2147483648) AS lock (id)"
        " WHERE pg_try_advisory_xact_lock(idivm.lock_class(), id)"
    )
    assert other(free) == [(0,)]
    other.commit()
    restricted.commit()
    assert other(free) == [(4,)]


def test_a_trigger_cannot_end_the_statement_that_it_is_part_of(orc):
    """Views are not brought up while rows are in a table and not yet in its log."""
    orc.execute(
        """
        CREATE TABLE a (id int PRIMARY KEY, n int); INSERT INTO a VALUES (1, 1), (2, 2);
        CREATE TABLE b (id int PRIMARY KEY, n int); INSERT INTO b VALUES (1, 10), (2, 20);
        CREATE FUNCTION forged() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            SET LOCAL idivm.open = '0'; SET LOCAL idivm.pending = '{}';
            UPDATE b SET n = n + 1 WHERE id = new.id;
            RETURN new;
        END $$;
        CREATE TRIGGER forged AFTER UPDATE ON a FOR EACH ROW EXECUTE FUNCTION forged()
        """
    )
    orc.create_view(
        "v",
        "SELECT sum(a.n * b.n) AS s FROM a JOIN b USING (id)",
        maintain="eager",
        strategy="tuple",
    )
    orc.execute("UPDATE a SET n = n + 100")
    assert differences(orc.connection, "v") == []


@pytest.mark.parametrize("mode", ["eager", "on_commit"])
def test_state_goes_back_with_savepoints(pair, session, mode):
    writer = session()
    for end in ("ROLLBACK TO s", "RELEASE s"):
        writer("SAVEPOINT s; UPDATE a SET n = n + 1 WHERE id = 1")
        writer(
            "DO $$ BEGIN UPDATE b SET n = 1 / 0; EXCEPTION WHEN division_by_zero THEN NULL; END $$"
        )
        writer("SAVEPOINT t; UPDATE b SET n = n + 1 WHERE id = 2; RELEASE t")
        writer(end)
        writer("UPDATE a SET n = n + 1 WHERE id = 3")
        assert differences(writer.connection, "soon_a") == []
    writer.commit()
    assert right(pair)
    assert pair.execute("SELECT count(*) FROM idivm.writers")[0].rows == [(0,)]
    assert pair.execute("SELECT count(*) FROM idivm.commits")[0].rows == [(0,)]


def test_no_user_can_write_the_state(pair, connect):
    pair.connection.execute(
        "DROP ROLE IF EXISTS clerk; CREATE ROLE clerk; GRANT USAGE ON SCHEMA idivm TO clerk;"
        " GRANT SELECT, UPDATE ON a TO clerk"
    )
    clerk = connect()
    clerk.execute("SET ROLE clerk")
    for attempt in (
        "SELECT idivm.writer()",
        "SELECT idivm.note_writer(5, '{}', '{}', '{}')",
        "SELECT idivm.clear_writer()",
        "SELECT idivm.end_statement('{}', '{}')",
        "INSERT INTO idivm.writers (xid, open, pending, later) VALUES (pg_current_xact_id(), 5, '{}', '{}')",
        "CREATE TEMP TABLE t (); CREATE TRIGGER t BEFORE INSERT ON t EXECUTE FUNCTION idivm.statement_begins('{}')",
    ):
        with pytest.raises(InsufficientPrivilege):
            clerk.execute(attempt)
    clerk.execute("UPDATE a SET n = 50 WHERE id = 1")
    clerk.close()
    assert right(pair)
    pair.connection.execute("DROP OWNED BY clerk; DROP ROLE clerk")


def test_writers_in_opposite_orders_wait(pair, session):
    first, second = session(), session()
    first("UPDATE a SET n = 100 WHERE id = 1")
    second.starts("UPDATE b SET n = 200 WHERE id = 2", pair.connection)
    # Nobody has row 2 of b: the second waits before it locks anything.
    first("UPDATE b SET n = 300 WHERE id = 2")
    first.commit()
    assert second.ends() is None
    second("UPDATE a SET n = 400 WHERE id = 1")
    second.commit()
    assert right(pair)


def test_writers_at_commit_wait_for_commits_alone(orc, session):
    orc.execute("CREATE TABLE a (id int PRIMARY KEY, n int); INSERT INTO a VALUES (1, 1), (2, 2)")
    orc.create_view("late", "SELECT sum(n) AS s FROM a", maintain="on_commit")
    first, second = session(), session()
    first("UPDATE a SET n = 100 WHERE id = 1")
    second("UPDATE a SET n = 200 WHERE id = 2")
    second.commit()
    first.commit()
    assert differences(orc.connection, "late") == []


@pytest.fixture
def joined(orc):
    """Two tables and a synchronous view of both."""
    orc.execute(
        """
        CREATE TABLE a (id int PRIMARY KEY, n int); INSERT INTO a VALUES (1, 1), (2, 2);
        CREATE TABLE b (id int PRIMARY KEY, n int); INSERT INTO b VALUES (1, 10), (2, 20);
        CREATE TABLE c (id int PRIMARY KEY)
        """
    )
    orc.create_view("v", "SELECT id, a.n AS n, b.n AS m FROM a FULL JOIN b USING (id)")
    orc.create_view("over", "SELECT count(n) AS n, count(m) AS m FROM v")
    return orc


def both_right(orc):
    return all(differences(orc.connection, view) == [] for view in ("v", "over"))


def test_a_writer_and_a_truncation_of_another_table_of_an_eager_view(joined, session):
    joined.alter_view("over", maintain="eager")
    joined.create_view("alone", "SELECT id FROM c", maintain="eager", shared="off")
    writer, emptier = session(), session()
    writer("INSERT INTO c VALUES (1)")
    emptier.starts("TRUNCATE a", joined.connection)
    heard = []
    writer.connection.add_notice_handler(lambda notice: heard.append(notice.message_primary))
    # To read a, this would wait for the transaction that waits for its views.
    writer("UPDATE b SET n = 40 WHERE id = 1")
    writer.commit()
    assert emptier.ends() is None
    emptier.commit()
    assert "public.v, public.over cannot show this change yet" in heard[0]
    assert both_right(joined)


@pytest.mark.parametrize("other", ["TRUNCATE b", "INSERT INTO b VALUES (3, 30)"])
def test_truncations_at_the_commit(joined, session, other):
    joined.alter_view("over", maintain="on_commit")
    first, second = session(), session()
    first(other)
    second("TRUNCATE a")
    commits = threading.Thread(target=first.commit)
    commits.start()
    held = "SELECT FROM pg_locks WHERE pid = %s AND locktype = 'advisory' AND granted"
    pid = first.connection.info.backend_pid
    until(lambda: joined.connection.execute(held, [pid]).rowcount > 0)
    second.commit()
    commits.join(60)
    assert not commits.is_alive()
    assert both_right(joined)


def test_a_refresh_holds_no_table_while_it_waits_for_another(orc, session):
    orc.execute(
        """
        CREATE TABLE a (id int PRIMARY KEY, n int); INSERT INTO a VALUES (1, 1), (2, 2);
        CREATE TABLE b (id int PRIMARY KEY, n int); INSERT INTO b VALUES (1, 10), (2, 20)
        """
    )
    orc.create_view("d", "SELECT id, a.n AS n, b.n AS m FROM a JOIN b USING (id)")
    orc.execute("UPDATE a SET n = 5")
    # It locks tables in the order of their numbers, and this writer comes the other way.
    writer, refresher = session(), session()
    writer("SET LOCAL lock_timeout = '20s'; UPDATE b SET n = 11 WHERE id = 1")
    refresher.starts("SELECT idivm.refresh('d')", orc.connection)
    writer("UPDATE a SET n = 6 WHERE id = 2")
    writer.commit()
    assert refresher.ends() is None
    refresher.commit()
    assert differences(orc.connection, "d") == []


@pytest.mark.parametrize(
    "level", [IsolationLevel.READ_COMMITTED, IsolationLevel.REPEATABLE_READ], ids=["rc", "rr"]
)
def test_a_refresh_does_not_hold_a_view_that_became_synchronous_meanwhile(pair, session, level):
    pair.create_view("first", "SELECT max(n) AS m FROM a")
    pair.create_view("second", "SELECT max(n) AS m FROM b")
    lower, higher = pair.view("first").id, pair.view("second").id
    pair.alter_view("first", maintain="eager")
    holder, refresher, writer = session(), session(level), session()
    lock = "SELECT pg_try_advisory_xact_lock(idivm.lock_class(), {})"
    assert holder(lock.format(higher)) == [(True,)]
    # This refresh has looked at the modes before the change.
    refresher.starts(f"SELECT idivm.lock_apart(ARRAY[{lower}, {higher}], '{{}}')", pair.connection)
    writer("SET LOCAL lock_timeout = '20s'; UPDATE a SET n = 99 WHERE id = 1")
    holder.commit()
    error = refresher.ends()
    if level is IsolationLevel.READ_COMMITTED:
        assert error is None
        assert writer(lock.format(higher)) == [(False,)]
    else:
        assert isinstance(error, SerializationFailure)
    writer.commit()
    refresher.rollback()
    # Without a wait, it does not keep the lock either.
    refresher.connection.isolation_level = IsolationLevel.READ_COMMITTED
    assert refresher(f"SELECT idivm.lock_apart(ARRAY[{lower}, {higher}], '{{}}')") == [(True,)]
    assert writer(lock.format(lower)) == [(True,)]
    assert writer(lock.format(higher)) == [(False,)]


def test_a_snapshot_takes_no_lock_of_a_view_without_work(pair, session):
    """Whether such a view became synchronous after the snapshot, only a lock on its watermark would show."""
    for name in ("one", "two", "three", "four"):
        pair.create_view(name, "SELECT max(n) AS m FROM a")
    pair.create_view("idle", "SELECT max(n) AS m FROM b")
    pair.execute("UPDATE a SET n = 99 WHERE id = 1")
    refresher, writer = session(IsolationLevel.REPEATABLE_READ), session()
    refresher("SELECT FROM a LIMIT 1")
    pair.alter_view("idle", maintain="eager")
    ids = [view.id for view in pair.views()]
    refresher(f"SELECT * FROM idivm.refresh_views(ARRAY{ids})")
    assert refresher("SELECT m FROM one") == [(99,)]
    writer("SET LOCAL lock_timeout = '20s'; UPDATE b SET n = 88 WHERE id = 1")
    writer.commit()
    refresher.commit()
    pair.refresh()
    assert right(pair)
    assert all(report.equal for report in pair.check())


@pytest.mark.parametrize(
    "level", [IsolationLevel.READ_COMMITTED, IsolationLevel.REPEATABLE_READ], ids=["rc", "rr"]
)
def test_a_trigger_may_refresh_a_view_that_its_statement_keeps(pair, session, level):
    """Such a refresh has nothing to do, so the statement goes on."""
    pair.connection.execute(
        "CREATE FUNCTION again() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN PERFORM idivm.refresh('soon_a'); RETURN NULL; END $$;"
        "CREATE TRIGGER again AFTER UPDATE ON a EXECUTE FUNCTION again()"
    )
    writer = session(level)
    writer("UPDATE a SET n = 99 WHERE id = 1")
    writer.commit()
    assert right(pair)


def test_removing_a_dropped_view_locks_no_other(pair, session):
    pair.create_view("gone", "SELECT max(n) AS m FROM a")
    pair.connection.execute("DROP VIEW gone")
    remover, writer = session(), session()
    assert remover("SELECT idivm.drop_orphans()") == [(1,)]
    for view in VIEWS:
        lock = f"SELECT pg_try_advisory_xact_lock(idivm.lock_class(), {pair.view(view).id})"
        assert writer(lock) == [(True,)]


@pytest.mark.parametrize(
    "level", [IsolationLevel.READ_COMMITTED, IsolationLevel.REPEATABLE_READ], ids=["rc", "rr"]
)
def test_a_writer_that_takes_all_locks_leaves_a_view_that_is_deferred_now(pair, session, level):
    """Its refresh may wait for the eager lock while it holds the view."""
    holder, writer, refresher = session(), session(level), session()
    writer("SELECT FROM a LIMIT 1")
    if level is IsolationLevel.READ_COMMITTED:
        holder("SELECT idivm.lock_eager()")
        writer.starts(
            "SELECT idivm.hold_still('{}', '', ARRAY(SELECT idivm.synchronous_views()), true)",
            pair.connection,
        )
    else:
        writer("SELECT idivm.lock_eager()")
    pair.alter_view("late_b", maintain="deferred")
    late = pair.view("late_b").id
    refresher(f"SELECT pg_advisory_xact_lock(idivm.lock_class(), {late})")
    if level is IsolationLevel.READ_COMMITTED:
        refresher.starts("SELECT idivm.lock_eager()", pair.connection)
        holder.commit()
        assert writer.ends() is None
        with pytest.raises(SerializationFailure, match="mode of these views was changed"):
            writer(f"SELECT idivm.hold_sources('{{}}', ARRAY[{late}])")
    else:
        refresher.starts("SELECT idivm.lock_eager()", pair.connection)
        with pytest.raises(SerializationFailure):
            writer(
                "SELECT idivm.hold_still('{}', '', ARRAY(SELECT idivm.synchronous_views()), true)"
            )
    writer.rollback()
    assert refresher.ends() is None
    refresher.commit()
    assert right(pair)


@pytest.mark.parametrize(
    "other", ["TRUNCATE b", "ALTER TABLE b ADD COLUMN m int; UPDATE b SET n = 0"]
)
def test_a_snapshot_does_not_wait_for_a_table_whose_holder_waits_for_its_views(
    pair, session, other
):
    reader, emptier = session(IsolationLevel.REPEATABLE_READ), session()
    # A refresh that found the views of a behind holds this lock, and a comparison reads all views.
    reader("SELECT idivm.lock_eager()")
    emptier.starts(other, pair.connection)
    with pytest.raises(SerializationFailure, match="waits for this one"):
        reader(f"SELECT idivm.pin_tables({pair.view('late_b').id})")
    reader.rollback()
    assert emptier.ends() is None
    emptier.rollback()
    reader.connection.isolation_level = IsolationLevel.READ_COMMITTED
    reader("SELECT idivm.lock_eager()")
    emptier.starts(other, pair.connection)
    with pytest.raises(LockNotAvailable):
        reader("SELECT idivm.lock_unqueued('b', 'ACCESS SHARE')")
    reader.rollback()
    assert emptier.ends() is None
    emptier.commit()
    assert right(pair)


def test_a_refresh_above_kept_views_holds_none_while_it_waits(pair, session):
    pair.create_view("over", "SELECT s.s AS x, t.s AS y FROM soon_a s, soon_b t")
    pair.execute("UPDATE a SET n = 5; UPDATE b SET n = 6")
    writer, refresher = session(), session()
    writer("SET LOCAL lock_timeout = '20s'; UPDATE b SET n = 11 WHERE id = 1")
    refresher.starts("SELECT idivm.refresh('over')", pair.connection)
    writer("UPDATE a SET n = 6 WHERE id = 2")
    writer.commit()
    assert refresher.ends() is None
    refresher.commit()
    pair.refresh("over")
    assert differences(pair.connection, "over") == []
    assert right(pair)


def test_a_change_of_mode_holds_no_table_while_it_waits_for_another(orc, session):
    orc.execute(
        """
        CREATE TABLE a (id int PRIMARY KEY, n int); INSERT INTO a VALUES (1, 1), (2, 2);
        CREATE TABLE b (id int PRIMARY KEY, n int); INSERT INTO b VALUES (1, 10), (2, 20)
        """
    )
    orc.create_view("d", "SELECT id, a.n AS n, b.n AS m FROM a JOIN b USING (id)")
    writer, changer = session(), session()
    writer("SET LOCAL lock_timeout = '20s'; UPDATE b SET n = 11 WHERE id = 1")
    changer.starts(f"SELECT idivm.set_mode({orc.view('d').id}, 'eager')", orc.connection)
    writer("UPDATE a SET n = 6 WHERE id = 2")
    writer.commit()
    assert changer.ends() is None
    changer.commit()
    orc.execute("UPDATE a SET n = 7")
    assert differences(orc.connection, "d") == []


@pytest.mark.parametrize("view", ["soon_a", "late_a"])
@pytest.mark.parametrize(
    "level", [IsolationLevel.READ_COMMITTED, IsolationLevel.REPEATABLE_READ], ids=["rc", "rr"]
)
def test_a_refresh_waits_for_a_truncation_before_it_holds_views(pair, session, view, level):
    """A view that fell behind is refreshed while its table is locked by a writer that empties it."""
    pair.connection.execute(
        "UPDATE idivm.views SET status = 'invalid' WHERE relation = %s::regclass", [view]
    )
    writer, refresher = session(), session(level)
    writer("SET LOCAL lock_timeout = '20s'; LOCK TABLE a IN ACCESS EXCLUSIVE MODE")
    refresher.starts(f"SELECT idivm.refresh('{view}')", pair.connection)
    writer("TRUNCATE a; INSERT INTO a VALUES (1, 5)")
    writer.commit()
    error = refresher.ends()
    assert error is None or isinstance(error, SerializationFailure)
    refresher.rollback()
    pair.refresh()
    assert right(pair)
