"""Views over tables that a subscription writes: the apply worker fires no triggers for statements."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from harness import TestServer, found_versions
from replication import LOGICAL, Pair, pair
from stepping import differences

import orchestrator

pytestmark = pytest.mark.integration

TABLES = """
CREATE TABLE items (id int PRIMARY KEY, kind text, price numeric, note text);
CREATE TABLE visits (item int, place text);
ALTER TABLE visits REPLICA IDENTITY FULL
"""

VIEWS = """
CREATE VIEW totals AS SELECT kind, sum(price) AS total, count(*) AS n FROM items GROUP BY kind;
CREATE VIEW rows AS SELECT i.id, i.price, v.place FROM items i JOIN visits v ON v.item = i.id;
"""


@pytest.fixture(scope="module")
def logical(scratch: Any, pg_version: int) -> Iterator[TestServer]:
    """A server that publishes and subscribes."""
    server = TestServer(found_versions()[pg_version], scratch / f"logical{pg_version}", LOGICAL)
    yield server
    server.stop()


@pytest.fixture
def replicated(logical: TestServer) -> Iterator[Pair]:
    with pair(logical) as databases:
        yield databases


def right(databases: Pair) -> bool:
    """Every view, refreshed in plain SQL, holds what its query answers."""
    databases.subscriber.execute("CALL idivm.refresh_all()")
    names = databases.subscriber.execute("SELECT relation::text FROM idivm.views").fetchall()
    return all(differences(databases.subscriber, name) == [] for (name,) in names)


CHANGES = {
    "insert": "INSERT INTO items VALUES (100, 'a', 1), (101, 'b', 2); INSERT INTO visits VALUES (100, 'x')",
    "update": "UPDATE items SET price = price + 1, kind = 'c' WHERE id % 2 = 0",
    "key": "UPDATE items SET id = id + 1000 WHERE id < 5",
    "delete": "DELETE FROM items WHERE id % 3 = 0; DELETE FROM visits WHERE item = 1",
    "truncate": "TRUNCATE items; INSERT INTO items VALUES (1, 'z', 9)",
    "unused": "UPDATE items SET note = 'n'",
}

ROWS = """
INSERT INTO items SELECT n, chr(97 + n % 3), n FROM generate_series(1, 30) n;
INSERT INTO visits SELECT n % 7, 'p' || n % 2 FROM generate_series(1, 30) n
"""


@pytest.mark.slow
@pytest.mark.parametrize(("first", "form"), [("view", "plpgsql"), ("subscription", "c")])
def test_changes_of_a_publisher_reach_the_views(
    replicated: Pair, first: str, form: str, request: pytest.FixtureRequest
) -> None:
    if form == "c":
        replicated.use_module(request.getfixturevalue("module"))
    replicated.both(TABLES)
    replicated.publisher.execute(ROWS)
    with orchestrator.connect(replicated.dsn) as orc:
        if first == "subscription":
            replicated.subscribe()
        orc.execute(VIEWS)
        if first == "view":
            replicated.subscribe()
            assert right(replicated)
        for statements in CHANGES.values():
            replicated.write(statements)
            assert right(replicated), statements


KEPT = """
CREATE VIEW kept WITH (maintain = eager) AS SELECT kind, sum(price) AS total FROM items GROUP BY kind;
CREATE VIEW later WITH (maintain = on_commit) AS SELECT i.id, v.place FROM items i JOIN visits v ON v.item = i.id;
CREATE VIEW above WITH (maintain = on_commit) AS SELECT sum(total) AS s FROM kept;
"""


def kept_up(databases: Pair) -> bool:
    """Eager and on_commit views hold what their queries answer, though nobody refreshes them."""
    names = databases.subscriber.execute(
        "SELECT relation::text FROM idivm.views WHERE maintain <> 'deferred'"
    ).fetchall()
    return all(differences(databases.subscriber, name) == [] for (name,) in names)


@pytest.mark.parametrize("owner", ["subscription", "another"])
def test_kept_views_follow_a_publisher(replicated: Pair, owner: str) -> None:
    """A subscription writes a table that is another's in a security-restricted operation."""
    replicated.both(TABLES)
    if owner == "another":
        role = f"owner_{replicated.slot}"
        replicated.subscriber.execute(f"CREATE ROLE {role}")
        replicated.subscriber.execute(f"ALTER TABLE items OWNER TO {role}")
        replicated.subscriber.execute(f"ALTER TABLE visits OWNER TO {role}")
    replicated.publisher.execute(ROWS)
    with orchestrator.connect(replicated.dsn) as orc:
        orc.execute(KEPT)
    replicated.subscribe()
    assert kept_up(replicated)
    for statements in CHANGES.values():
        replicated.write(statements)
        assert kept_up(replicated), statements
    if owner == "subscription":
        before = refreshes(replicated)
        replicated.write("INSERT INTO items SELECT n, 'many', n FROM generate_series(5001, 5100) n")
        assert refreshes(replicated) == {name: n + 1 for name, n in before.items()}
        assert kept_up(replicated)


def refreshes(databases: Pair) -> dict[str, int]:
    return dict(
        databases.subscriber.execute(
            "SELECT v.relation::text, w.refreshes FROM idivm.watermarks w JOIN idivm.views v ON v.id = w.view"
        ).fetchall()
    )


@pytest.mark.slow
@pytest.mark.parametrize("streaming", ["off", "on", "parallel"])
def test_large_and_prepared_transactions(
    replicated: Pair, streaming: str, pg_version: int, older: bool
) -> None:
    """Large ones are sent before they commit, to a worker of their own where streaming is parallel."""
    if (streaming == "parallel" and pg_version < 16) or (older and streaming != "on"):
        pytest.skip("not of this version, or tested on the newest")
    replicated.both(TABLES)
    with orchestrator.connect(replicated.dsn) as orc:
        orc.execute(VIEWS + KEPT)
    replicated.subscribe(f"streaming = {streaming}", "two_phase = on")
    publisher = replicated.publisher
    large = (
        "INSERT INTO items SELECT n, 'k' || n % 9, n, repeat('x', 100) FROM generate_series({}) n"
    )
    streamed = "SELECT coalesce(sum(stream_txns), 0) FROM pg_stat_replication_slots"
    with publisher.transaction():
        publisher.execute(large.format("1, 2000"))
        publisher.execute("SAVEPOINT a")
        publisher.execute("UPDATE items SET price = -1 WHERE id > 1000")
        publisher.execute("ROLLBACK TO a")
        publisher.execute("DELETE FROM items WHERE id % 10 = 0; INSERT INTO visits VALUES (1, 'p')")
    replicated.catch_up()
    assert kept_up(replicated)
    assert right(replicated)
    publisher.execute(f"BEGIN; {large.format('3001, 5000')}; PREPARE TRANSACTION 'one'")
    replicated.catch_up()
    assert right(replicated)
    replicated.write("COMMIT PREPARED 'one'")
    assert kept_up(replicated)
    assert right(replicated)
    publisher.execute("BEGIN; UPDATE items SET kind = 'z'; PREPARE TRANSACTION 'two'")
    replicated.write("ROLLBACK PREPARED 'two'")
    assert right(replicated)
    assert replicated.subscriber.execute("SELECT count(*) FROM rows").fetchone() == (1,)
    if streaming != "off":
        assert publisher.execute(streamed).fetchone() != (0,)


@pytest.mark.parametrize(("owner", "form"), [("subscription", "plpgsql"), ("another", "c")])
def test_changes_beside_a_prepared_transaction(
    replicated: Pair, owner: str, form: str, request: pytest.FixtureRequest
) -> None:
    """The publisher ends it later: a worker that waited for its locks would wait for ever."""
    if form == "c":
        replicated.use_module(request.getfixturevalue("module"))
    replicated.both(TABLES)
    if owner == "another":
        role = f"owner_{replicated.slot}"
        replicated.subscriber.execute(
            f"CREATE ROLE {role}; ALTER TABLE items OWNER TO {role}; ALTER TABLE visits OWNER TO {role}"
        )
    replicated.publisher.execute(ROWS)
    with orchestrator.connect(replicated.dsn) as orc:
        orc.execute(KEPT)
        orc.execute(
            "CREATE VIEW places WITH (maintain = eager, shared = off) AS"
            " SELECT place, count(*) AS n FROM visits GROUP BY place"
        )
    replicated.subscribe("two_phase = on")
    replicated.publisher.execute(
        "BEGIN; UPDATE items SET price = price + 1 WHERE id < 9; PREPARE TRANSACTION 'one'"
    )
    replicated.write(
        "UPDATE items SET price = price + 2 WHERE id > 20; DELETE FROM visits WHERE item = 2"
    )
    replicated.write("TRUNCATE visits")
    replicated.write("BEGIN; INSERT INTO visits VALUES (9, 'y'); TRUNCATE visits; COMMIT")
    invalid = "SELECT count(*) FROM idivm.views WHERE status = 'invalid'"
    assert replicated.subscriber.execute(invalid).fetchone() == (4,)
    replicated.write("COMMIT PREPARED 'one'")
    replicated.write("INSERT INTO items VALUES (500, 'a', 1); INSERT INTO visits VALUES (500, 'x')")
    assert kept_up(replicated)
    assert replicated.subscriber.execute(invalid).fetchone() == (0,)
    assert right(replicated)


def test_changes_routed_to_partitions(replicated: Pair) -> None:
    """The publisher sends them as those of the root, and the apply worker writes the partitions."""
    replicated.both(
        """
        CREATE TABLE parted (id int PRIMARY KEY, kind text, n int) PARTITION BY RANGE (id);
        CREATE TABLE low (n int, kind text, id int NOT NULL) ;
        ALTER TABLE parted ATTACH PARTITION low FOR VALUES FROM (0) TO (100);
        CREATE TABLE high PARTITION OF parted FOR VALUES FROM (100) TO (200) PARTITION BY RANGE (id);
        CREATE TABLE higher PARTITION OF high FOR VALUES FROM (150) TO (200);
        CREATE TABLE lower PARTITION OF high FOR VALUES FROM (100) TO (150)
        """
    )
    with orchestrator.connect(replicated.dsn) as orc:
        orc.execute(
            """
            CREATE VIEW totals AS SELECT kind, sum(n) AS s, count(*) AS c FROM parted GROUP BY kind;
            CREATE VIEW kept WITH (maintain = eager) AS SELECT id, kind FROM parted WHERE n > 3
            """
        )
    replicated.publisher.execute(
        "INSERT INTO parted SELECT n, 'k' || n % 3, n % 9 FROM generate_series(0, 199, 7) n"
    )
    replicated.subscribe(
        publication="FOR TABLE parted WITH (publish_via_partition_root = true)",
    )
    assert right(replicated)
    for statement in (
        "INSERT INTO parted VALUES (1, 'a', 5), (101, 'a', 5), (160, 'b', 6)",
        "UPDATE parted SET n = n + 2 WHERE id % 2 = 0",
        "UPDATE parted SET id = id + 100 WHERE id BETWEEN 40 AND 60",
        "UPDATE parted SET id = id - 90 WHERE id BETWEEN 180 AND 199",
        "DELETE FROM parted WHERE id % 5 = 1",
        "TRUNCATE parted",
        "INSERT INTO parted VALUES (99, 'z', 5)",
    ):
        replicated.write(statement)
        assert kept_up(replicated), statement
        assert right(replicated), statement


@pytest.mark.parametrize(
    "published", ["ALL TABLES", "TABLES IN SCHEMA idivm_log, idivm_state, public"]
)
def test_a_publication_of_tables_behind_views(orc: Any, published: str) -> None:
    """Whoever creates a view is warned, and all goes on."""
    said: list[str] = []
    orc.on_notice = said.append
    orc.execute(
        "CREATE TABLE t (id int PRIMARY KEY, g int); CREATE PUBLICATION by_name FOR TABLE t"
    )
    orc.create_view("rows", "SELECT g FROM t")
    assert [line for line in said if "behind" in line] == []
    orc.execute(f"CREATE PUBLICATION everything FOR {published}")
    orc.create_view("groups", "SELECT g, count(*) FROM t GROUP BY g", maintain="eager")
    orc.create_view("total", "SELECT sum(id) AS s FROM t")
    orc.create_view("bag", "SELECT g + 1 AS h FROM t", strategy="recompute")
    assert [line for line in said if "behind total are published by everything" in line], said
    for change in (
        "INSERT INTO t VALUES (1, 1), (2, NULL), (3, 1)",
        "UPDATE t SET g = coalesce(g, 0) + 1",
        "DELETE FROM t WHERE id < 3",
    ):
        orc.execute(change)
        orc.refresh()
        assert all(report.equal for report in orc.check())


def test_a_subscriber_follows_a_view_that_users_read_as_a_table(replicated: Pair) -> None:
    """With a primary key, or with the whole old row, which identifies rows of a view without a key."""
    replicated.publisher.execute(TABLES)
    with orchestrator.connect(replicated.publisher.info.dsn) as orc:
        for name, query in QUERIES_TOLD.items():
            orc.create_view(name, query, relation="table")
            replicated.subscriber.execute(
                f"CREATE TABLE {name} AS {query} WITH NO DATA".replace(
                    "FROM items", "FROM (VALUES (1, 'a', 1.0)) AS i (id, kind, price)"
                )
            )
        orc.connection.execute(
            "ALTER TABLE totals ADD PRIMARY KEY (kind); ALTER TABLE totals REPLICA IDENTITY DEFAULT"
        )
        replicated.subscriber.execute("ALTER TABLE totals ADD PRIMARY KEY (kind)")
        replicated.subscribe(publication="FOR TABLE totals, kinds")
        for change in (
            ROWS,
            "UPDATE items SET price = price + 1, kind = 'd' WHERE id % 2 = 0",
            "DELETE FROM items WHERE id % 3 = 0",
        ):
            replicated.publisher.execute(change)
            orc.refresh()
            replicated.catch_up()
            for name, query in QUERIES_TOLD.items():
                wanted = orc.connection.execute(f"{query} ORDER BY 1, 2").fetchall()
                received = replicated.subscriber.execute(
                    f"SELECT * FROM {name} ORDER BY 1, 2"
                ).fetchall()
                assert received == wanted, (name, change)


QUERIES_TOLD = {
    "totals": "SELECT kind, sum(price) AS total, count(*) AS n FROM items GROUP BY kind",
    "kinds": "SELECT kind, price > 3 AS dear FROM items",
}
