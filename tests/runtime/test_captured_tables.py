"""No writer meets a deadlock while views over several of its tables are created, changed or dropped."""

from __future__ import annotations

import pytest
from stepping import Session

from orchestrator.api import connect as connect_orchestrator
from orchestrator.errors import IdivmError

pytestmark = pytest.mark.integration

QUERY = "SELECT a.id, a.n + b.n AS n FROM a JOIN b USING (id) JOIN c USING (id)"

ACTS = {
    "create": lambda orc: orc.create_view("v", QUERY),
    "create an eager view": lambda orc: orc.create_view("v", QUERY, maintain="eager"),
    "create in SQL": lambda orc: (
        orc.connection.execute("SELECT idivm.create_view('v', %s)", [QUERY]),
        orc.plan(),
    ),
    "replace": lambda orc: orc.create_view("old", "SELECT sum(m) AS n FROM c", replace=True),
    "widen": lambda orc: orc.create_view("v", QUERY.replace("a.n", "a.m + b.m + c.m")),
    "drop": lambda orc: orc.drop_view("old"),
    "drop with the views above": lambda orc: orc.drop_view("lower", cascade=True),
    "drop in SQL": lambda orc: orc.connection.execute("SELECT idivm.drop_view('old')"),
    "drop in plain SQL": lambda orc: (orc.connection.execute("DROP VIEW old"), orc.views()),
    "capture again": lambda orc: orc.refresh(),
    "capture again by the doctor": lambda orc: orc.doctor(),
    "another mode": lambda orc: orc.alter_view("old", maintain="on_commit"),
    "no longer on_read": lambda orc: orc.alter_view("old", maintain="deferred"),
    "on_read": lambda orc: orc.alter_view("old", maintain="on_read"),
}

WITH_A_VIEW = [
    name for name in ACTS if name not in ("create", "create an eager view", "create in SQL")
]


class Actor(Session):
    """A session of its own in which the orchestrator acts."""

    def __init__(self, orc):
        super().__init__(orc.connection)
        self.orc = orc

    def does(self, act, watcher):
        def action():
            try:
                act(self.orc)
            except IdivmError as error:
                raise error.__cause__ or error from None

        self._begin(action, watcher)


@pytest.mark.parametrize("last", ["a", "b", "c"])
@pytest.mark.parametrize("act", ACTS)
def test_a_writer_that_writes_the_tables_in_another_order_goes_on(orc, dsn, connect, act, last):
    orc.execute(
        "; ".join(
            f"CREATE TABLE {table} (id int PRIMARY KEY, n int, m int);"
            f" INSERT INTO {table} SELECT i, i, i FROM generate_series(1, 9) AS i"
            for table in "abc"
        )
    )
    if act in WITH_A_VIEW:
        orc.create_view("old", QUERY, maintain="on_read" if "no longer" in act else "deferred")
    if act == "drop with the views above":
        orc.create_view("lower", "SELECT id, n FROM a")
        orc.create_view(
            "upper", "SELECT v.n + b.n AS n FROM lower v JOIN b USING (id) JOIN c USING (id)"
        )
        orc.drop_view("old")
    if "again" in act:
        orc.connection.execute("CREATE TYPE feeling AS ENUM ('glad')")
        for table in "abc":
            orc.connection.execute(f"ALTER TABLE {table} ADD COLUMN f feeling")
            orc.create_view(f"feelings_{table}", f"SELECT id, f FROM {table}")
        orc.connection.execute("DROP TYPE feeling CASCADE")
    writer = Session(connect())
    writer(f"UPDATE {last} SET n = n + 1 WHERE id = 1")
    with connect_orchestrator(dsn) as other:
        other.connection.execute("SET deadlock_timeout = '10ms'")
        actor = Actor(other)
        other.connection.autocommit = True
        actor.does(ACTS[act], orc.connection)
        # Others that change what is captured could wait for this table, too.
        bystander = Session(connect())
        bystander("LOCK TABLE idivm.sources IN SHARE ROW EXCLUSIVE MODE NOWAIT")
        bystander.rollback()
        writer("SET LOCAL deadlock_timeout = '100ms'")
        for table in "cba":
            writer(f"UPDATE {table} SET n = n + 1 WHERE id = 2")
        writer.commit()
        assert actor.ends() is None
    for dropped in orc.dropped_views():
        orc.drop_view(dropped.name)
    assert all(report.equal for report in orc.check())


PARTED = {
    "create": lambda orc: orc.create_view("v", "SELECT id, n FROM p"),
    "drop": lambda orc: orc.drop_view("old"),
    "another mode": lambda orc: orc.alter_view("old", maintain="eager"),
    "on_read": lambda orc: orc.alter_view("old", maintain="on_read"),
    "refresh": lambda orc: orc.connection.execute("SELECT * FROM idivm.refresh('old')"),
}


@pytest.mark.parametrize("kind", ["partitions", "children"])
@pytest.mark.parametrize("act", PARTED)
def test_a_writer_of_partitions_goes_on(orc, dsn, connect, act, kind):
    """It writes them directly, the last one first."""
    orc.execute(
        "CREATE TABLE p (id int, n int) PARTITION BY RANGE (id)"
        if kind == "partitions"
        else "CREATE TABLE p (id int, n int)"
    )
    for number in range(1, 4):
        bounds = f"PARTITION OF p FOR VALUES FROM ({number}0) TO ({number}9)"
        orc.execute(
            f"CREATE TABLE p{number} {bounds if kind == 'partitions' else '() INHERITS (p)'}"
        )
        orc.execute(
            f"INSERT INTO p{number} SELECT {number}0 + i, i FROM generate_series(0, 8) AS i"
        )
    if act != "create":
        orc.create_view("old", "SELECT id, n FROM p")
        orc.execute("UPDATE p SET n = 7 WHERE id = 11")
    writer = Session(connect())
    writer("UPDATE p3 SET n = n + 1 WHERE id = 31")
    with connect_orchestrator(dsn) as other:
        other.connection.execute("SET deadlock_timeout = '10ms'")
        actor = Actor(other)
        other.connection.autocommit = True
        actor.does(PARTED[act], orc.connection)
        writer("SET LOCAL deadlock_timeout = '100ms'")
        for number in (3, 2, 1):
            writer(f"UPDATE p{number} SET n = n + 1 WHERE id = {number}2")
        writer.commit()
        assert actor.ends() is None
    assert all(report.equal for report in orc.check())
