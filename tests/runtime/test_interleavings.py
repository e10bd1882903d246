"""Transactions taken step by step: writers of one view take turns, and no order corrupts it."""

import psycopg
import pytest
from psycopg import IsolationLevel
from psycopg.errors import LockNotAvailable, SerializationFailure
from stepping import Session, differences

from orchestrator.catalog.serving import look
from orchestrator.errors import NotFoundError
from orchestrator.runtime.installation import replanning

pytestmark = pytest.mark.integration

READ_COMMITTED = IsolationLevel.READ_COMMITTED
FIXED = (IsolationLevel.REPEATABLE_READ, IsolationLevel.SERIALIZABLE)
LEVELS = (READ_COMMITTED, *FIXED)


@pytest.fixture(params=["recompute", "id"])
def strategy(request):
    return request.param


@pytest.fixture
def base(orc):
    """Two tables with a row for each writer."""
    orc.execute(
        """
        CREATE TABLE a (id int PRIMARY KEY, k int, n int);
        CREATE TABLE b (k int PRIMARY KEY, m int);
        INSERT INTO a SELECT i, i % 3, i FROM generate_series(1, 9) AS i;
        INSERT INTO b SELECT i, 10 FROM generate_series(0, 2) AS i
        """
    )
    return orc


QUERY = "SELECT a.id, k, n, m FROM a JOIN b USING (k)"


@pytest.fixture
def below(base):
    """An eager view that others may read."""
    base.create_view("v", QUERY, maintain="eager", strategy="recompute")
    return base


@pytest.fixture
def eager(base, strategy):
    base.create_view("v", QUERY, maintain="eager", strategy=strategy)
    return base


@pytest.fixture
def at_commit(base, strategy):
    base.create_view("v", QUERY, maintain="on_commit", strategy=strategy)
    return base


@pytest.fixture
def session(connect):
    return lambda level=None: Session(connect(), level)


def right(orc, *views):
    return all(differences(orc.connection, view) == [] for view in views or ("v",))


def single_value(session, statement):
    return session(statement)[0][0]


def test_the_second_writer_waits_and_sees_the_first(eager, session):
    first, second = session(), session()
    first("UPDATE a SET n = 100 WHERE k = 1")
    second.starts("UPDATE b SET m = 20 WHERE k = 1", eager.connection)
    first.commit()
    assert second.ends() is None
    assert single_value(second, "SELECT sum(n * v.m) FROM v WHERE k = 1") == 3 * 100 * 20
    assert differences(second.connection, "v") == []
    second.commit()
    assert right(eager)


@pytest.mark.parametrize("level", FIXED)
def test_the_second_writer_fails_in_a_fixed_snapshot(eager, session, level):
    first, second = session(), session(level)
    single_value(second, "SELECT count(*) FROM a")
    first("UPDATE a SET n = 100 WHERE k = 1")
    second.starts("UPDATE b SET m = 20 WHERE k = 1", eager.connection)
    first.commit()
    assert isinstance(second.ends(), SerializationFailure)
    second.rollback()
    assert right(eager)
    second("UPDATE b SET m = 20 WHERE k = 1")
    second.commit()
    assert right(eager)


@pytest.mark.parametrize("level", LEVELS)
def test_the_second_writer_goes_on_when_the_first_gives_up(eager, session, level):
    first, second = session(), session(level)
    single_value(second, "SELECT count(*) FROM a")
    first("DELETE FROM a WHERE k = 1")
    second.starts("UPDATE b SET m = 20 WHERE k = 1", eager.connection)
    first.rollback()
    assert second.ends() is None
    second.commit()
    assert right(eager)


@pytest.mark.parametrize("level", FIXED)
def test_a_snapshot_older_than_another_writer(eager, session, level):
    late = session(level)
    single_value(late, "SELECT count(*) FROM v")
    eager.execute("UPDATE a SET n = 50 WHERE id = 1")
    with pytest.raises(SerializationFailure):
        late("INSERT INTO b VALUES (7, 7)")
    late.rollback()
    assert right(eager)


@pytest.mark.parametrize("level", LEVELS)
def test_statement_by_statement(eager, session, level):
    """The lock is held to the end, and a transaction refreshes by each of its statements."""
    first, second = session(level), session()
    first("UPDATE a SET n = n + 1 WHERE id = 1")
    first("UPDATE b SET m = m + 1 WHERE k = 2")
    second.starts("UPDATE a SET n = n + 1 WHERE id = 2", eager.connection)
    first("UPDATE a SET n = n + 1 WHERE id = 1; DELETE FROM b WHERE k = 0")
    first("INSERT INTO b VALUES (0, 30)")
    assert differences(first.connection, "v") == []
    first.commit()
    assert second.ends() is None
    second("UPDATE b SET m = m + 1")
    assert differences(second.connection, "v") == []
    second.commit()
    assert right(eager)


def test_three_in_a_row(eager, session):
    first, second, third = session(), session(), session()
    first("UPDATE a SET n = 1 WHERE id = 1")
    second.starts("UPDATE a SET n = 2 WHERE id = 2", eager.connection)
    third.starts("DELETE FROM b WHERE k = 0", eager.connection)
    first.commit()
    for session_ in (second, third) if second_is_next(second) else (third, second):
        assert session_.ends() is None
        session_.commit()
    assert right(eager)


def second_is_next(second):
    second.thread.join(0.5)
    return not second.thread.is_alive()


def test_a_savepoint_that_is_given_up_gives_up_the_lock(eager, session):
    first, second = session(), session()
    first("SAVEPOINT s")
    first("UPDATE a SET n = 100")
    second.starts("UPDATE b SET m = 20", eager.connection)
    first("ROLLBACK TO s")
    assert second.ends() is None
    first.starts("UPDATE a SET n = 50 WHERE id = 1", eager.connection)
    second.commit()
    assert first.ends() is None
    assert differences(first.connection, "v") == []
    first.commit()
    assert right(eager)


@pytest.mark.parametrize("level", LEVELS)
def test_writers_at_commit_wait_for_the_commit_alone(at_commit, session, level):
    first, second = session(), session(level)
    first("UPDATE a SET n = 100 WHERE k = 1")
    second("UPDATE b SET m = 20 WHERE k = 1")
    third = session()
    third("UPDATE a SET n = 7 WHERE id = 2; SET CONSTRAINTS ALL IMMEDIATE")
    second.starts_commit(at_commit.connection)
    third.commit()
    error = second.ends()
    assert isinstance(error, SerializationFailure) if level in FIXED else error is None
    second.rollback()
    first.commit()
    assert right(at_commit)


def test_prepared_transactions_keep_the_lock(eager, session, connect):
    first, second = connect(), session()
    first.execute("BEGIN")
    first.execute("UPDATE a SET n = 100 WHERE k = 1")
    first.execute("PREPARE TRANSACTION 'step'")
    second.starts("UPDATE b SET m = 20 WHERE k = 1", eager.connection)
    first.execute("COMMIT PREPARED 'step'")
    assert second.ends() is None
    second.commit()
    assert right(eager)


def test_writers_prepared_at_commit_keep_the_lock(at_commit, session, connect):
    first, second = connect(), session()
    first.execute("BEGIN")
    first.execute("UPDATE a SET n = 100 WHERE k = 1")
    first.execute("PREPARE TRANSACTION 'step'")
    second("UPDATE b SET m = 20 WHERE k = 1")
    second.starts_commit(at_commit.connection)
    first.execute("COMMIT PREPARED 'step'")
    assert second.ends() is None
    assert right(at_commit)


def test_refreshes_do_not_wait_for_writers_nor_writers_for_refreshes(below, session, connect):
    below.execute("CREATE VIEW over AS SELECT k, sum(n) AS s FROM v JOIN b USING (k, m) GROUP BY k")
    writer, refresher = session(), session(IsolationLevel.REPEATABLE_READ)
    writer("UPDATE a SET n = 100 WHERE k = 1")
    impatient = connect()
    impatient.execute("SET lock_timeout = '1ms'")
    impatient.execute("SELECT idivm.refresh('v')")
    impatient.execute("CALL idivm.refresh_all()")
    refresher("SELECT idivm.refresh('over', 'v')")
    writer("UPDATE b SET m = 20 WHERE k = 1")
    writer.commit()
    refresher.commit()
    below.refresh()
    assert right(below, "v", "over")


def test_a_late_committer_of_another_table(below, session):
    """A deferred view over an below one takes what commits late when it comes."""
    below.execute(
        "CREATE VIEW over AS SELECT k, sum(n) AS s, count(*) AS c FROM v JOIN b USING (k, m) GROUP BY k"
    )
    below.execute("UPDATE a SET n = 3 WHERE id = 1")
    late = session()
    late("UPDATE a SET n = 1000 WHERE id = 2; UPDATE b SET m = 11 WHERE k = 0")
    below.refresh()
    late.commit()
    assert right(below)
    below.refresh()
    assert right(below, "v", "over")


def test_a_refresh_within_a_transaction_holds_the_view_below(below, session):
    below.execute(
        "CREATE VIEW over AS SELECT k, sum(n) AS s, count(*) AS c FROM v JOIN b USING (k, m) GROUP BY k"
    )
    below.execute("UPDATE a SET n = 3 WHERE id = 1")
    refresher, writer = session(), session()
    refresher("SELECT idivm.refresh('over')")
    writer.starts("UPDATE a SET n = 1000 WHERE id = 2", below.connection)
    assert differences(refresher.connection, "over") == []
    refresher.commit()
    assert writer.ends() is None
    writer.commit()
    below.refresh()
    assert right(below, "v", "over")


@pytest.mark.parametrize("mode", ["eager", "on_commit"])
def test_a_change_of_mode_waits_for_open_writers(base, strategy, session, connect, mode):
    base.create_view("v", QUERY, strategy=strategy)
    writer, old = session(), session(IsolationLevel.REPEATABLE_READ)
    single_value(old, "SELECT count(*) FROM a")
    writer("UPDATE a SET n = 100 WHERE k = 1")
    changer = Changer(connect(), f"SELECT idivm.set_mode(1, '{mode}')")
    changer.starts(base.connection)
    writer("UPDATE b SET m = 20 WHERE k = 1")
    writer.commit()
    assert changer.ends() is None
    assert right(base)
    with pytest.raises(SerializationFailure):
        old("INSERT INTO b VALUES (9, 9)")
        old.commit()
    old.rollback()
    old("INSERT INTO b VALUES (9, 9)")
    old.commit()
    assert right(base)


class Changer(Session):
    """A statement in a transaction of its own."""

    def __init__(self, connection, statement):
        super().__init__(connection)
        self.connection.autocommit = True
        self.statement = statement

    def starts(self, watcher):
        super().starts(self.statement, watcher)


class Looker(Session):
    """A session that looks at the logs as one does that keeps views fresh."""

    def __init__(self, connection):
        super().__init__(connection)
        self.connection.autocommit = True
        self.result = None

    def starts(self, watcher):
        def action():
            self.result = look(self.connection)

        self._begin(action, watcher)


@pytest.mark.parametrize("mode", ["eager", "on_commit"])
def test_a_snapshot_older_than_the_view(base, strategy, session, mode):
    old = session(IsolationLevel.REPEATABLE_READ)
    single_value(old, "SELECT count(*) FROM a")
    base.create_view("v", QUERY, strategy=strategy, maintain=mode)
    with pytest.raises(SerializationFailure, match="created after"):
        old("INSERT INTO a VALUES (90, 1, 9)")
        old.commit()
    old.rollback()
    assert right(base)


def test_a_view_dropped_under_its_writers(eager, session, connect):
    writer = session()
    writer("UPDATE a SET n = 100 WHERE k = 1")
    dropper = Changer(connect(), "DROP VIEW v; SELECT idivm.drop_orphans()")
    dropper.starts(eager.connection)
    writer("UPDATE b SET m = 20 WHERE k = 1")
    writer.commit()
    assert dropper.ends() is None
    eager.execute("UPDATE a SET n = 1")
    assert eager.views() == []


@pytest.mark.parametrize("level", FIXED)
def test_a_transaction_that_has_lost_may_be_run_again(eager, session, level):
    """Two that always meet, in both orders, come to the sum of both in the end."""
    for number in range(4):
        writers = [session(level), session(level)]
        ahead, behind = writers if number % 2 else reversed(writers)
        for writer in writers:
            single_value(writer, "SELECT count(*) FROM v")
        ahead("UPDATE a SET n = n + 1 WHERE id = 3")
        behind.starts("UPDATE b SET m = m + 1 WHERE k = 0", eager.connection)
        ahead.commit()
        assert isinstance(behind.ends(), SerializationFailure)
        behind.rollback()
        behind("UPDATE b SET m = m + 1 WHERE k = 0")
        behind.commit()
    assert eager.execute("SELECT n * m FROM v WHERE id = 3")[0].rows == [((3 + 4) * (10 + 4),)]
    assert right(eager)


def test_a_writer_that_will_not_wait(eager, session):
    first, second = session(), session()
    first("UPDATE a SET n = 100 WHERE k = 1")
    second("SET LOCAL lock_timeout = '1ms'; SAVEPOINT s")
    with pytest.raises(LockNotAvailable):
        second("UPDATE b SET m = 20")
    second("ROLLBACK TO s")
    first.commit()
    second("UPDATE b SET m = 30 WHERE k = 0")
    second.commit()
    assert right(eager)


def test_a_writer_that_is_terminated(eager, session):
    first, second = session(), session()
    first("UPDATE a SET n = 100 WHERE k = 1")
    second.starts("UPDATE b SET m = 20 WHERE k = 1", eager.connection)
    eager.connection.execute("SELECT pg_terminate_backend(%s)", [first.connection.info.backend_pid])
    assert second.ends() is None
    second.commit()
    with pytest.raises(psycopg.OperationalError):
        first("SELECT 1")
    assert right(eager)


def test_a_view_that_is_whole_by_the_time_it_is_locked_is_not_swept(base, session):
    base.create_view("made", "SELECT k, m FROM b")
    base.create_view("v", QUERY, maintain="eager")
    watcher = base.connection
    # As while its creator is at it; what was taken apart comes first, and waits for the reader.
    watcher.execute("UPDATE idivm.views SET status = 'building' WHERE relation = 'made'::regclass")
    [definition] = watcher.execute(
        "SELECT definition::text FROM idivm.views WHERE relation = 'v'::regclass"
    ).fetchone()
    watcher.execute(f"DROP VIEW {definition} CASCADE")
    reader, sweeper = session(), session()
    reader("SELECT count(*) FROM a")
    sweeper.starts("SELECT idivm.drop_orphans()", watcher)
    watcher.execute("UPDATE idivm.views SET status = 'ready' WHERE relation = 'made'::regclass")
    reader.commit()
    assert sweeper.ends() is None
    sweeper.commit()
    assert [view.name for view in base.views()] == ["made"]
    assert base.check("made")[0].equal


def test_logs_are_dropped_when_nobody_collects_them(base, session):
    base.create_view("v", QUERY)
    sources = [source for (source,) in base.connection.execute("SELECT id FROM idivm.sources")]
    collector, dropper = (
        session(),
        Changer(session().connection, "DROP VIEW v; SELECT idivm.drop_orphans()"),
    )
    for source in sources:
        collector(f"SELECT idivm.collect_source({source})")
    dropper.starts(base.connection)
    for source in sources:
        collector(f"SELECT idivm.collect_source({source})")
    collector.commit()
    assert dropper.ends() is None
    for source in sources:
        assert collector(f"SELECT idivm.collect_source({source})") == [(0,)]


def test_a_look_at_logs_that_are_dropped_meanwhile(base, session, connect):
    base.create_view("v", QUERY)
    base.create_view("w", "SELECT k, m FROM b")
    dropper, looker = session(), Looker(connect())
    dropper("DROP VIEW v")
    dropper("SELECT idivm.drop_orphans()")
    looker.starts(base.connection)
    dropper.commit()
    assert looker.ends() is None
    assert len(looker.result.logs) == 1


@pytest.mark.parametrize("level", [None, IsolationLevel.REPEATABLE_READ])
def test_a_refresh_that_waits_does_not_keep_the_lock_of_a_view_that_writers_keep_by_now(
    base, session, level
):
    base.create_view("v", QUERY)
    base.create_view("w", "SELECT k, m FROM b")
    first, second = (base.view(name).id for name in ("v", "w"))
    changer, creator, refresher, writer = session(), session(), session(level), session()
    lock_second = f"SELECT pg_advisory_xact_lock(idivm.lock_class(), {second})"
    changer(f"SELECT idivm.set_mode({first}, 'eager')")
    creator(lock_second)
    refresher.starts(f"SELECT idivm.refresh_views(ARRAY[{first}, {second}])", base.connection)
    changer.commit()
    if level is None:
        writer("SET lock_timeout = '20s'")
        writer("UPDATE a SET n = 100 WHERE k = 1")
        writer.commit()
        creator.rollback()
        assert refresher.ends() is None
        refresher.commit()
    else:
        assert isinstance(refresher.ends(), SerializationFailure)
        refresher.rollback()
    assert right(base)


def test_a_refresh_comes_to_partitions_by_their_table_as_everybody_does(base, session):
    base.execute(
        "CREATE TABLE later (k int PRIMARY KEY, n int);"
        " CREATE TABLE parted (k int PRIMARY KEY, n int) PARTITION BY RANGE (k);"
        " CREATE TABLE first PARTITION OF parted FOR VALUES FROM (0) TO (10);"
        " ALTER TABLE parted ATTACH PARTITION later FOR VALUES FROM (10) TO (20)"
    )
    base.create_view("sums", "SELECT count(*) AS c, sum(n) AS n FROM parted", strategy="id")
    base.execute("INSERT INTO parted VALUES (1, 1), (11, 1)")
    other, refresher = session(), session(IsolationLevel.REPEATABLE_READ)
    other("SET lock_timeout = '20s'")
    # What TRUNCATE does first.
    other("LOCK TABLE ONLY parted IN ACCESS EXCLUSIVE MODE")
    refresher.starts(f"SELECT idivm.refresh_views(ARRAY[{base.view('sums').id}])", base.connection)
    other("TRUNCATE parted")
    other.commit()
    assert isinstance(refresher.ends(), SerializationFailure)
    refresher.rollback()
    base.refresh("sums")
    assert base.check("sums")[0].equal


def test_a_view_stays_until_those_above_it_can_go(base, session):
    base.create_view("lower_view", "SELECT k, m FROM b")
    base.create_view("upper_view", "SELECT sum(m) AS s FROM lower_view")
    refresher = session()
    refresher(f"SELECT pg_advisory_xact_lock(idivm.lock_class(), {base.view('upper_view').id})")
    base.connection.execute("DROP VIEW lower_view CASCADE")
    swept = "SELECT idivm.drop_orphans()"
    assert base.connection.execute(swept).fetchone() == (0,)
    refresher.commit()
    assert base.connection.execute(swept).fetchone() == (2,)
    assert base.views() == []


def test_a_view_that_is_dropped_before_it_is_planned_again(base, connect):
    base.create_view("v", QUERY)
    view = base.view("v")
    connect().execute(f"DROP VIEW idivm_def.v{view.id} CASCADE")
    with pytest.raises(NotFoundError, match="dropped meanwhile"):
        replanning.replan(base.connection, view)
