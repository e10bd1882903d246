"""Change feeds: what a feed tells, replayed, is the content after every refresh."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter

import items
import psycopg
import pytest

from orchestrator import AsyncOrchestrator
from orchestrator.errors import IdivmError, UnsupportedError, UsageError
from orchestrator.runtime import feeds

pytestmark = pytest.mark.integration


class Replica:
    """The rows of a view, kept by its feed alone."""

    def __init__(self, connection, view):
        self.connection, self.view = connection, view
        self.rows: Counter[str] = Counter()
        self.position = None
        self.kinds: list[str] = []
        for refresh, _, kind, _, _, new in self.read("snapshot => true"):
            assert kind == "snapshot"
            self.position = refresh
            self.rows[_text(new)] += 1
        if self.position is None:
            self.position = self.head()

    def read(self, arguments):
        return self.connection.execute(
            f"SELECT * FROM idivm.changes('{self.view}', {arguments})"
        ).fetchall()

    def head(self):
        return self.connection.execute(
            f"SELECT position FROM idivm.feeds WHERE view = '{self.view}'::regclass"
        ).fetchone()[0]

    def follow(self):
        """Apply what is new, and check the order and that each change fits."""
        self.kinds, last = [], (self.position, 0)
        for refresh, seq, kind, _, old, new in self.read(f"since => {self.position}"):
            assert (refresh, seq) > last
            last = refresh, seq
            self.kinds.append(kind)
            if kind == "restart":
                self.rows.clear()
                continue
            assert (old is None) == (kind == "insert") and (new is None) == (kind == "delete")
            if old is not None:
                assert self.rows[_text(old)] > 0, (kind, old)
                self.rows[_text(old)] -= 1
            if new is not None:
                self.rows[_text(new)] += 1
        self.position = last[0]
        return self.kinds

    def agrees(self):
        rows = self.connection.execute(f"SELECT to_jsonb(v) FROM {self.view} AS v").fetchall()
        return +self.rows == Counter(_text(row) for (row,) in rows)


def _text(row):
    return json.dumps(row, sort_keys=True)


QUERIES = {
    **items.QUERIES,
    "large": "SELECT g, count(*) AS c FROM item GROUP BY g HAVING count(*) > 3",
}


@pytest.fixture
def shop(orc):
    orc.execute(items.TABLES)
    return orc


CHANGES = (
    *items.CHANGES,
    "UPDATE grp SET g = 'd' WHERE g = 'a'; INSERT INTO grp VALUES ('a', 9)",
)


@pytest.mark.parametrize("maintain", ["deferred", "eager", "on_commit"])
@pytest.mark.parametrize("strategy", ["auto", "id", "recompute"])
@pytest.mark.sampled(4)
def test_replaying_a_feed_gives_the_content(shop, maintain, strategy):
    replicas = []
    for name, query in QUERIES.items():
        shop.create_view(name, query, feed="on", maintain=maintain, strategy=strategy)
        replicas.append(Replica(shop.connection, name))
    for change in CHANGES:
        with shop.connection.transaction():
            shop.connection.execute(change)
        shop.refresh()
        for replica in replicas:
            replica.follow()
            assert replica.agrees(), (replica.view, change)
    assert all(report.equal for report in shop.check())


def test_an_update_tells_old_and_new_values(shop):
    shop.create_view("v", "SELECT id, n FROM item", feed="on")
    start = Replica(shop.connection, "v").position
    shop.execute("UPDATE item SET n = 50 WHERE id = 5")
    shop.refresh("v")
    rows = shop.connection.execute("SELECT kind, old, new FROM idivm.changes('v', %s)", [start])
    assert rows.fetchall() == [("update", {"id": 5, "n": 5}, {"id": 5, "n": 50})]


def test_without_changes_there_is_nothing_to_tell(shop):
    shop.create_view("v", "SELECT g, sum(n) AS s FROM item GROUP BY g", feed="on")
    replica = Replica(shop.connection, "v")
    shop.execute("UPDATE item SET n = n + CASE id WHEN 3 THEN 1 ELSE -1 END WHERE id IN (3, 6)")
    shop.refresh("v")
    assert (replica.follow(), replica.head()) == ([], replica.position)


def test_two_refreshes_have_two_numbers_and_a_transaction_has_one(shop):
    shop.create_view("v", "SELECT id, n FROM item", feed="on", maintain="eager")
    replica = Replica(shop.connection, "v")
    with shop.connection.transaction():
        shop.connection.execute("UPDATE item SET n = 0 WHERE id = 1")
        shop.connection.execute("UPDATE item SET n = 9 WHERE id = 1")
    shop.connection.execute("UPDATE item SET n = 8 WHERE id = 1")
    rows = replica.read(f"since => {replica.position}")
    numbers = [row[0] for row in rows]
    assert numbers[0] == numbers[1] < numbers[2]
    assert replica.read(f"since => {numbers[0]}, upto => {numbers[2]}") == rows[2:]
    replica.follow()
    assert replica.agrees()


def test_what_is_rolled_back_is_not_told(shop):
    shop.create_view("v", "SELECT id, n FROM item", feed="on", maintain="eager")
    replica = Replica(shop.connection, "v")
    with shop.connection.transaction():
        shop.connection.execute("UPDATE item SET n = 1 WHERE id = 1")
        with shop.connection.transaction(force_rollback=True):
            shop.connection.execute("UPDATE item SET n = 2 WHERE id = 2")
        shop.connection.execute("UPDATE item SET n = 3 WHERE id = 3")
    with shop.connection.transaction(force_rollback=True):
        shop.connection.execute("DELETE FROM item")
    replica.follow()
    assert replica.agrees()


def test_a_feed_survives_other_plans_and_repairs(shop):
    shop.create_view("v", "SELECT g, sum(n) AS s FROM item GROUP BY g", feed="on", strategy="id")
    replica = Replica(shop.connection, "v")
    for statement in (
        "ALTER VIEW v SET (strategy = recompute)",
        "ALTER VIEW v SET (strategy = viewtree)",
        "ALTER VIEW v SET (maintain = on_commit)",
        "UPDATE item SET n = n * 2 WHERE id = 4",
        "CREATE OR REPLACE VIEW v WITH (feed = on) AS SELECT g, sum(n + 1) AS s FROM item WHERE g <> 'a' GROUP BY g",
        "INSERT INTO item VALUES (30, 'b', 30)",
        "SELECT idivm.replace_view('v', 'SELECT g, sum(n) AS s FROM item GROUP BY g')",
        "UPDATE item SET n = n * 2 WHERE id = 5",
    ):
        shop.execute(statement)
        shop.plan()
        shop.refresh()
        replica.follow()
        assert replica.agrees(), statement
        assert "restart" not in replica.kinds
    state = shop.connection.execute("SELECT state::text FROM idivm.views").fetchone()[0]
    shop.execute(f"DELETE FROM {state}; UPDATE idivm.views SET status = 'invalid'")
    shop.doctor()
    replica.follow()
    assert replica.agrees()


def test_a_plan_with_another_table_for_the_content_goes_on(shop):
    shop.create_view("v", "SELECT id, n FROM item", feed="on", strategy="id")
    replica = Replica(shop.connection, "v")
    shop.execute("ALTER TABLE item DROP CONSTRAINT item_pkey; UPDATE item SET n = 0 WHERE id = 3")
    shop.refresh()
    replica.follow()
    assert replica.agrees()
    assert len(replica.kinds) <= 2


def test_a_view_that_waits_for_its_plan_keeps_its_feed(shop):
    shop.create_view("v", "SELECT id, n FROM item", feed="on")
    replica = Replica(shop.connection, "v")
    shop.execute("SELECT idivm.replace_view('v', 'SELECT id, g AS word FROM item')")
    shop.plan()
    assert replica.follow() == ["restart", *["insert"] * 12]
    assert replica.agrees()
    shop.execute("SELECT idivm.replace_view('v', 'SELECT id, g AS word FROM item WHERE id > 1')")
    shop.execute("SELECT idivm.drop_view('v')")
    left = "SELECT count(*) FROM pg_class WHERE relnamespace = 'idivm_feed'::regnamespace AND relname ~ '^f[0-9]'"
    assert shop.connection.execute(left).fetchone() == (0,)


def test_a_view_whose_reads_are_ahead_of_its_refreshes_has_no_feed(shop):
    with pytest.raises(UsageError, match="feed = on is not available with maintain = on_read"):
        shop.create_view("v", "SELECT id, n FROM item", feed="on", maintain="on_read")
    with pytest.raises(
        psycopg.errors.InvalidParameterValue, match="not available with maintain = on_read"
    ):
        shop.connection.execute(
            """SELECT idivm.create_view('v', 'SELECT id, n FROM item', maintain => 'on_read', options => '{"feed": "on"}')"""
        )


def test_other_columns_restart_a_feed(shop):
    shop.create_view("v", "SELECT id, n FROM item", feed="on")
    replica = Replica(shop.connection, "v")
    shop.execute("UPDATE item SET n = 0 WHERE id = 3")
    shop.refresh()
    shop.execute("CREATE OR REPLACE VIEW v WITH (feed = on) AS SELECT id, n, g FROM item")
    kinds = replica.follow()
    assert kinds == ["update", "restart", *["insert"] * 12]
    assert replica.agrees()
    row = replica.read(f"since => {replica.position - 1}")[0]
    assert row[2:3] + row[4:] == ("restart", ["id", "n"], ["id", "n", "g"])
    shop.execute("UPDATE item SET g = 'q' WHERE id = 3")
    shop.refresh()
    assert replica.follow() == ["update"]
    assert replica.agrees()


def test_a_feed_above_a_view_without_rows_and_without_a_log(shop):
    shop.execute(
        "CREATE TABLE r (a int PRIMARY KEY, b int); CREATE TABLE s (b int, c int, PRIMARY KEY (b, c))"
    )
    query = "SELECT a, b, c FROM r JOIN s USING (b)"
    with pytest.raises(UnsupportedError, match="feed"):
        shop.create_view("f", query, representation="factorized", feed="on")
    shop.create_view("f", query, representation="factorized")
    with pytest.raises(UnsupportedError, match="feed"):
        shop.alter_view("f", feed="on")
    shop.create_view("v", "SELECT * FROM f", feed="on")
    replica = Replica(shop.connection, "v")
    shop.execute("INSERT INTO r VALUES (1, 1), (2, 1); INSERT INTO s VALUES (1, 5), (1, 6)")
    shop.refresh()
    assert replica.follow() == ["insert"] * 4
    shop.execute("DELETE FROM s WHERE c = 5")
    shop.refresh()
    assert replica.follow() == ["delete"] * 2
    assert replica.agrees()


def test_a_feed_begins_and_ends_with_its_option(shop):
    shop.create_view("v", "SELECT id, n FROM item")
    with pytest.raises(psycopg.Error, match="has no feed"):
        shop.connection.execute("SELECT * FROM idivm.changes('v')")
    shop.alter_view("v", feed="on")
    replica = Replica(shop.connection, "v")
    shop.execute("DELETE FROM item WHERE id = 1")
    shop.refresh()
    assert replica.follow() == ["delete"]
    shop.alter_view("v", feed="off")
    left = "SELECT count(*) FROM pg_class WHERE relnamespace = 'idivm_feed'::regnamespace AND relname ~ '^f[0-9]'"
    assert shop.connection.execute(left).fetchone() == (0,)
    shop.execute("SELECT idivm.alter_view('v', options => '{\"feed\": \"on\"}')")
    with pytest.raises(psycopg.Error, match="no longer has all changes after"):
        replica.follow()
    shop.drop_view("v")
    assert shop.connection.execute(left).fetchone() == (0,)


def test_old_changes_go_unless_a_consumer_needs_them(shop):
    shop.create_view("v", "SELECT id, n FROM item", feed="on", feed_keep="1 h", feed_hold="2 days")
    connection = shop.connection
    first = Replica(connection, "v")
    connection.execute("SELECT idivm.advance('slow', 'v', %s)", [first.position])

    def change(n):
        shop.execute(f"UPDATE item SET n = {n} WHERE id = 1")
        shop.refresh()

    def age(interval):
        connection.execute("UPDATE idivm_feed.refreshes SET at = at - %s::interval", [interval])
        shop.refresh()

    change(90)
    age("1 day")
    assert first.follow() == ["update"]
    connection.execute("SELECT idivm.advance('slow', 'v', %s)", [first.position])
    behind = Replica(connection, "v")
    behind.position = first.position - 1
    change(91)
    with pytest.raises(psycopg.Error, match="no longer has all changes after") as caught:
        behind.follow()
    assert "snapshot => true" in (caught.value.diag.message_hint or "")
    age("1 day")
    assert first.follow() == ["update"]
    first.position -= 1
    age("2 days")
    change(92)
    with pytest.raises(psycopg.Error, match="no longer has all changes"):
        first.follow()


def test_who_may_not_read_the_view_may_not_read_its_feed(shop):
    role = f"reader_{shop.connection.info.dbname}"
    shop.create_view("v", "SELECT id, n FROM item", feed="on")
    shop.execute("UPDATE item SET n = 0 WHERE id = 1")
    shop.refresh()
    feed = shop.connection.execute("SELECT feed FROM idivm.feeds").fetchone()[0]
    shop.execute(f"CREATE ROLE {role}; GRANT USAGE ON SCHEMA idivm TO {role}")
    try:
        for grant in ("", f"GRANT SELECT (id) ON v TO {role};"):
            shop.execute(f"{grant} SET ROLE {role}")
            for query in (
                "SELECT * FROM idivm.changes('v')",
                "SELECT * FROM idivm.changes('v', snapshot => true)",
                "SELECT idivm.advance('me', 'v')",
                f"SELECT * FROM idivm_feed.f{feed}_1",
                "SELECT * FROM idivm_feed.feeds",
                "SELECT idivm.set_feed(1)",
                "INSERT INTO idivm.consumers VALUES ('me', 'v', 1)",
            ):
                with pytest.raises(psycopg.Error) as caught:
                    shop.connection.execute(query)
                assert caught.value.sqlstate in ("42501", "55000"), query
            assert shop.connection.execute("SELECT * FROM idivm.feeds").fetchall() == []
            assert shop.connection.execute(f"SELECT * FROM idivm_feed.f{feed}").fetchall() == []
            shop.execute("RESET ROLE")
        shop.execute(
            f"GRANT SELECT ON v TO {role}; SELECT idivm.advance('mine', 'v'); SET ROLE {role}"
        )
        assert len(shop.connection.execute("SELECT * FROM idivm.changes('v')").fetchall()) == 1
        shop.connection.execute("SELECT idivm.advance('me', 'v')")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            shop.connection.execute("SELECT idivm.forget_consumer('mine', 'v')")
        shop.connection.execute("SELECT idivm.forget_consumer('me', 'v')")
        shop.connection.execute("SELECT idivm.advance('left', 'v')")
    finally:
        shop.execute(f"RESET ROLE; DROP OWNED BY {role}; DROP ROLE {role}")
    shop.drop_view("v")
    assert shop.connection.execute("SELECT count(*) FROM idivm.consumers").fetchone() == (0,)


def test_a_feed_shows_nothing_that_a_policy_of_the_view_hides(shop):
    role = f"reader_{shop.connection.info.dbname}"
    shop.create_view("v", "SELECT id, n FROM item", feed="on", relation="table")
    shop.execute("UPDATE item SET n = 0 WHERE id = 1")
    shop.refresh()
    feed = shop.connection.execute("SELECT feed FROM idivm.feeds").fetchone()[0]
    shop.execute(
        f"CREATE ROLE {role}; GRANT USAGE ON SCHEMA idivm TO {role}; GRANT SELECT ON v TO {role};"
        "ALTER TABLE v ENABLE ROW LEVEL SECURITY; CREATE POLICY few ON v USING (id > 1)"
    )
    try:
        shop.execute(f"SET ROLE {role}")
        assert shop.connection.execute("SELECT min(id) FROM v").fetchone() == (2,)
        assert shop.connection.execute("SELECT * FROM idivm.feeds").fetchall() == []
        assert shop.connection.execute(f"SELECT * FROM idivm_feed.f{feed}").fetchall() == []
        for query in (
            "SELECT * FROM idivm.changes('v')",
            "SELECT * FROM idivm.changes('v', snapshot => true)",
            "SELECT idivm.advance('me', 'v')",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
                shop.connection.execute(query)
        shop.execute("RESET ROLE; ALTER TABLE v DISABLE ROW LEVEL SECURITY")
        shop.execute(f"SET ROLE {role}")
        assert len(shop.connection.execute("SELECT * FROM idivm.changes('v')").fetchall()) == 1
    finally:
        shop.execute(f"RESET ROLE; DROP OWNED BY {role}; DROP ROLE {role}")


def test_a_subscriber_survives_lost_connections(shop):
    """Kill the reader's sessions, and the refresher's in the middle of a refresh: no change is lost or repeated."""
    shop.create_view("v", "SELECT id, n FROM item", feed="on")
    stop = threading.Event()
    changes = shop.subscribe("v", snapshot=True, stop=stop)
    rows, seen = {}, [(0, 0)]

    def take(until):
        for change in changes:
            if change.kind != "snapshot":
                assert (change.refresh, change.seq) > seen[-1]
                seen.append((change.refresh, change.seq))
            if change.old is not None:
                assert rows.pop(change.old["id"]) == change.old["n"]
            if change.new is not None:
                rows[change.new["id"]] = change.new["n"]
            if until(change):
                return

    take(lambda change: len(rows) == 12)
    for step in range(1, 6):
        shop.execute(
            f"UPDATE item SET n = {100 * step} + id; DELETE FROM item WHERE id = {step};"
            f" INSERT INTO item VALUES ({1000 + step}, 'a', 0)"
        )
        with psycopg.connect(shop._dsn()) as dying:
            dying.execute("SELECT idivm.refresh('v')")
            pid = dying.info.backend_pid
            shop.connection.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
            with pytest.raises(psycopg.OperationalError):
                dying.execute("COMMIT")
        shop.refresh("v")
        taken = iter(range(20))
        # Lose the connection in the middle of the changes of a refresh.
        take(lambda change, taken=taken: next(taken) == 2)
        shop.connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        take(lambda change, step=step: change.new is not None and change.new["id"] == 1000 + step)
        now = shop.connection.execute("SELECT id, n FROM v").fetchall()
        if len(rows) != len(now):
            take(lambda change, now=now: len(rows) == len(now))
        assert rows == dict(now)
    stop.set()
    assert list(changes) == []


def test_a_consumer_goes_on_where_it_was(shop):
    shop.create_view("v", "SELECT id, n FROM item", feed="on")
    assert list(shop.subscribe("v", consumer="mail", live=False)) == []
    for n in (50, 60):
        shop.execute(f"UPDATE item SET n = {n} WHERE id = 1")
        shop.refresh("v")
        changes = list(shop.subscribe("v", consumer="mail", live=False))
        assert [change.new["n"] for change in changes] == [n]
    with pytest.raises(IdivmError, match="has not come to"):
        list(shop.subscribe("v", since=10**6, live=False))
    shop.create_view("w", "SELECT id FROM item")
    with pytest.raises(IdivmError, match="has no feed"):
        list(shop.subscribe("w", live=False))


def test_an_asynchronous_subscriber(shop):
    shop.create_view("v", "SELECT id, n FROM item", feed="on")

    async def follow():
        orc = AsyncOrchestrator(shop)
        seen = []
        async for change in orc.subscribe("v", snapshot=True):
            seen.append(change)
            if len(seen) == 12:
                await orc.execute("DELETE FROM item WHERE id = 1")
                await orc.refresh("v")
            if change.kind == "delete":
                return seen
        return seen

    seen = asyncio.run(follow())
    assert len(seen) == 13 and seen[-1].old == {"id": 1, "n": 1}


def test_concurrent_writers_of_an_eager_view_are_read_in_order(shop):
    """A reader who polls never finds a change before one that it has read already."""
    shop.create_view(
        "v", "SELECT g, sum(n) AS s FROM item GROUP BY g", feed="on", maintain="on_commit"
    )
    replica = Replica(shop.connection, "v")
    dsn = shop._dsn()

    def write(number):
        with psycopg.connect(dsn, autocommit=True) as connection:
            for i in range(15):
                with connection.transaction(force_rollback=i % 5 == 4):
                    connection.execute("UPDATE item SET n = n + 1 WHERE id = %s", [number + 1])

    threads = [threading.Thread(target=write, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        replica.follow()
    for thread in threads:
        thread.join()
    replica.follow()
    assert replica.agrees()


@pytest.mark.parametrize("mode", ["deferred", "eager"])
def test_a_content_that_numbers_equal_rows_has_a_feed(orc, mode):
    """Its hidden columns have the names that the triggers of feeds use, too."""
    orc.execute(
        "CREATE TABLE a (n int); CREATE TABLE b (x int); INSERT INTO a VALUES (1), (1); INSERT INTO b VALUES (1)"
    )
    orc.create_view(
        "v", "SELECT (SELECT max(x) FROM b) AS m FROM a", maintain=mode, feed="on", strategy="id"
    )
    orc.execute("UPDATE b SET x = 2")
    orc.refresh()
    assert orc.check("v")[0].equal
    feed = "SELECT kind, new FROM idivm.changes('v') WHERE kind = 'update'"
    assert orc.connection.execute(feed).fetchall() == [("update", {"m": 2})] * 2


def test_columns_may_have_the_names_of_the_rows_in_queries(orc):
    orc.execute("CREATE TABLE a (x int PRIMARY KEY, t int)")
    orc.create_view("v", "SELECT x, t, x AS c, t AS n, x AS o FROM a", feed="on")
    orc.execute("INSERT INTO a VALUES (1, 2)")
    orc.refresh()
    row = {"x": 1, "t": 2, "c": 1, "n": 2, "o": 1}
    changes = "SELECT new FROM idivm.changes('v', snapshot => {})"
    assert orc.connection.execute(changes.format("true")).fetchall() == [(row,)]
    assert orc.connection.execute(changes.format("false")).fetchall() == [(row,)]


@pytest.mark.parametrize("options", [{"feed": "on"}, {"relation": "table"}])
def test_columns_may_have_percent_signs(orc, options):
    """Triggers are written by `format`, which finds its arguments by this sign."""
    orc.execute('CREATE TABLE t (id int PRIMARY KEY, "100%" int, "%s" int)')
    orc.create_view("v", 'SELECT id, "100%", "%s" FROM t', **options)
    orc.execute("INSERT INTO t VALUES (1, 2, 3), (2, 3, 4)")
    orc.refresh()
    orc.execute('UPDATE t SET "%s" = 5 WHERE id = 1; DELETE FROM t WHERE id = 2')
    orc.refresh()
    assert orc.check("v")[0].equal
    assert orc.connection.execute(b"TABLE v").fetchall() == [(1, 2, 5)]


def test_only_feeds_that_changed_lately_are_announced(shop):
    for name, table in (("items_seen", "item"), ("groups_seen", "grp")):
        shop.create_view(name, f"SELECT count(*) AS n FROM {table}", feed="on")
    connection = shop.connection
    feeds = dict(connection.execute("SELECT view::text, feed::text FROM idivm.feeds").fetchall())
    connection.execute("UPDATE idivm_feed.feeds SET at = now() - interval '1 hour'")
    connection.execute("LISTEN idivm_feed")
    connection.execute("CALL idivm.refresh_all()")
    assert list(connection.notifies(timeout=0)) == []
    connection.execute("INSERT INTO grp VALUES ('new', 9)")
    connection.execute("CALL idivm.refresh_all()")
    announced = {note.payload.split()[0] for note in connection.notifies(timeout=0)}
    assert announced == {feeds["groups_seen"]}


@pytest.fixture
def replaced(orc):
    """A view with a feed, and a function that replaces its content."""
    orc.execute("CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 1), (2, 2)")
    orc.create_view("v", "SELECT n, count(*) AS c FROM t GROUP BY n", strategy="id", feed="on")
    return lambda: orc.alter_view("v", strategy="recompute")


def test_a_snapshot_of_a_view_whose_content_is_replaced_is_refused(connect, replaced):
    reader = connect(autocommit=False)
    reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    reader.execute("SELECT FROM idivm.feeds")
    replaced()
    with pytest.raises(psycopg.errors.SerializationFailure, match="was replaced"):
        reader.execute("SELECT * FROM idivm.changes('v', snapshot => true)")
    reader.rollback()
    assert len(reader.execute("SELECT * FROM idivm.changes('v', snapshot => true)").fetchall()) == 2


def test_a_reader_takes_another_snapshot_if_the_content_is_replaced(dsn, replaced):
    class Connection(psycopg.Connection):
        def execute(self, query, *arguments, **options):
            result = super().execute(query, *arguments, **options)
            if "feed_of" in str(query) and not done:
                done.append(replaced())
            return result

    done: list[object] = []
    rows = [
        change.new
        for change in feeds.read(
            lambda: Connection.connect(dsn), "v", None, snapshot=True, live=False
        )
        if isinstance(change, feeds.Change)
    ]
    assert done and rows == [{"n": 1, "c": 1}, {"n": 2, "c": 1}]
