"""The protocol as a model: all interleavings of small programs are explored, and PostgreSQL is seen to follow them."""

import threading

import psycopg
import pytest
from protocol import Model, Rules, View, WrongError
from psycopg import sql
from stepping import differences, until

EAGER = (View("u", "a", "eager"), View("v", "b", "eager"))
AT_COMMIT = (View("w", "ab", "on_commit"), View("x", "ab", "on_commit"))
DEFERRED = (View("d", "ab"),)
VIEWS = (*EAGER, *AT_COMMIT, *DEFERRED)


def writes(tables, row, *rest):
    """A transaction that writes its own row of each table in turn."""
    return [*(("write", table, row) for table in tables), *(rest or [("commit",)])]


REFRESH, REFRESH_ALL = [("refresh", "d")], [("refresh_fixed", "d")]
CRASH = [("crash",)]

PROGRAMS = {
    "writers in opposite orders": [writes("ab", 1), writes("ba", 2)],
    "three writers": [writes("a", 1), writes("b", 2), writes("ba", 3)],
    "a writer that gives up": [writes("ab", 1, ("rollback",)), writes("ba", 2)],
    "savepoints": [
        [("savepoint",), ("write", "a", 1), ("rollback_to",), *writes("ba", 1)],
        writes("ba", 2),
    ],
    "a prepared transaction": [
        writes("ab", 1, ("prepare",), ("finish_prepared",)),
        writes("ba", 2),
    ],
    "statements within statements": [
        [("write", "a", 1, ("b", 1)), ("commit",)],
        [("write", "b", 2, ("a", 2)), ("commit",)],
    ],
    "a late committer, refreshed over": [writes("a", 1), REFRESH_ALL, REFRESH_ALL],
    "a refresh that reads each statement's snapshot": [writes("ba", 1), writes("a", 2), REFRESH],
    "a view that becomes eager": [writes("ab", 1), [("set_mode", "d", "eager")], writes("b", 2)],
    "a view that becomes deferred": [
        writes("ab", 1),
        [("set_mode", "u", "deferred")],
        writes("a", 2),
    ],
    "a crash": [writes("ab", 1), writes("ba", 2, ("prepare",), ("finish_prepared",)), CRASH],
    "a crash in a refresh": [writes("a", 1), REFRESH_ALL, CRASH],
}


@pytest.mark.parametrize("programs", PROGRAMS.values(), ids=PROGRAMS.keys())
@pytest.mark.parametrize("views", [VIEWS, DEFERRED, (*AT_COMMIT, *DEFERRED)], ids=len)
def test_no_interleaving_is_wrong(views, programs):
    known = {view.name for view in views}
    used = {op[1] for ops in programs for op in ops if op[0] == "set_mode"}
    if used <= known:
        assert Model(views).explore(*programs) > 10


BOTH, OTHER = View("u", "ab", "eager"), View("v", "c", "eager")


def empties(*tables):
    return [*(("truncate", table) for table in tables), ("commit",)]


@pytest.mark.parametrize(
    ("views", "programs"),
    [
        (AT_COMMIT, [empties("a"), writes("ba", 1)]),
        (AT_COMMIT, [empties("a"), empties("b"), writes("b", 1)]),
        (AT_COMMIT, [[*empties("a")[:1], *writes("b", 1)], writes("ba", 2)]),
        ((BOTH, OTHER), [empties("a"), writes("cb", 1)]),
        ((BOTH,), [empties("a"), empties("b")]),
        (DEFERRED, [empties("a"), writes("ab", 1), REFRESH]),
    ],
)
def test_truncations_and_writers_wait_in_no_circle(views, programs):
    assert Model(views).explore(*programs) > 10


FIXED = [("snapshot",), ("truncate", "a"), ("refresh_inside", "d"), *writes("a", 2)]
"""A transaction with one snapshot that truncates a table and refreshes a view."""

FAULTS = {
    "a writer that waits for a table whose lock waits for it": (
        Rules(yields=False),
        AT_COMMIT,
        [empties("a"), writes("b", 1)],
        "deadlock",
    ),
    "the same with eager views": (
        Rules(yields=False),
        (BOTH, OTHER),
        [empties("a"), writes("cb", 1)],
        "deadlock",
    ),
    "each eager view locked after its statement": (
        Rules(eager_lock=False),
        VIEWS,
        PROGRAMS["writers in opposite orders"],
        "deadlock",
    ),
    "views locked at the commit in any order": (
        Rules(sorted_at_commit=False),
        AT_COMMIT,
        [writes("a", 1), writes("b", 2)],
        "deadlock",
    ),
    "a refresh that holds a table while it waits for another": (
        Rules(waits_free_handed=False),
        DEFERRED,
        [writes("a", 2), writes("ba", 1), REFRESH],
        "deadlock",
    ),
    "a view brought up within a statement": (
        Rules(counts_open=False),
        (View("u", "ab", "eager"),),
        [[("write", "a", 1, ("b", 1)), ("commit",)]],
        "instead of",
    ),
    "a watermark that is a number": (
        Rules(by_snapshot=False),
        DEFERRED,
        [writes("a", 1), writes("a", 2), REFRESH_ALL, REFRESH_ALL],
        "instead of",
    ),
    "a view brought up without its lock": (
        Rules(locks_views=False),
        AT_COMMIT,
        [writes("a", 1), writes("b", 2)],
        "instead of",
    ),
    "a truncation consumed with a snapshot from before it": (
        Rules(keeps_truncations=False),
        DEFERRED,
        [FIXED, writes("a", 1), REFRESH_ALL],
        "instead of",
    ),
    "a mode changed under open writers": (
        Rules(holds_writers=False),
        DEFERRED,
        [writes("ab", 1), [("set_mode", "d", "eager")]],
        "instead of",
    ),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_the_model_finds_what_would_be_wrong(fault):
    rules, views, programs, said = fault
    with pytest.raises(WrongError, match=said):
        Model(views, rules).explore(*programs)
    Model(views).explore(*programs)


# PostgreSQL beside the model ---------------------------------------------------------------------


class Actor:
    """A process of the model as a session of PostgreSQL."""

    def __init__(self, connection):
        self.connection = connection
        self.pid = connection.info.backend_pid
        self.thread = None
        self.error = None
        self.has_prepared = False

    def begins(self, op):
        statement = as_sql(op, self.pid)
        self.has_prepared = op == ("prepare",) or (self.has_prepared and op != ("finish_prepared",))

        def run():
            try:
                self.connection.execute(statement)
            except psycopg.Error as error:
                self.error = error

        self.error = None
        self.thread = threading.Thread(target=run)
        self.thread.start()

    def blocks(self, pids):
        # A prepared transaction has no process.
        return self.pid in pids or (self.has_prepared and 0 in pids)

    @property
    def is_busy(self):
        return self.thread is not None and self.thread.is_alive()


def settle(watcher, actors):
    """Who waits for whom, once nobody is at work."""
    waits = {}

    def rests():
        waits.clear()
        # Who is not at work by now has let go of its locks before they are looked at.
        for number in [number for number, actor in enumerate(actors) if actor.is_busy]:
            [pids] = watcher.execute("SELECT pg_blocking_pids(%s)", [actors[number].pid]).fetchone()
            waits[number] = {n for n, other in enumerate(actors) if other.blocks(pids)}
        return all(actors[number].is_busy and others for number, others in waits.items())

    until(rests)
    for number, actor in enumerate(actors):
        assert actor.error is None, f"{number}: {actor.error}"
    return waits


STATEMENTS = {
    "commit": "COMMIT",
    "rollback": "ROLLBACK",
    "savepoint": "SAVEPOINT s",
    "rollback_to": "ROLLBACK TO s",
    "prepare": "PREPARE TRANSACTION '{0}'",
    "finish_prepared": "COMMIT PREPARED '{0}'",
}


def as_sql(op, number):
    match op:
        case ("write", table, row):
            change = sql.SQL("UPDATE {} SET n = n + 1 WHERE id = {}")
            return change.format(sql.Identifier(table), sql.Literal(row))
        case ("refresh" | "refresh_fixed", name):
            return sql.SQL("DO $$ BEGIN PERFORM idivm.refresh({}); COMMIT; END $$").format(
                sql.Literal(name)
            )
        case (kind,):
            return sql.SQL(STATEMENTS[kind].format(number))
    raise ValueError(op)


@pytest.fixture(params=["plpgsql", "c"])
def capture_form(request):
    return request.param


@pytest.fixture
def modelled(orc):
    orc.execute(
        """
        CREATE TABLE a (id int PRIMARY KEY, n int); INSERT INTO a SELECT i, i FROM generate_series(1, 3) AS i;
        CREATE TABLE b (id int PRIMARY KEY, n int); INSERT INTO b SELECT i, i FROM generate_series(1, 3) AS i
        """
    )
    for view in VIEWS:
        query = (
            f"SELECT sum(n) AS s FROM {view.tables}"
            if len(view.tables) == 1
            else "SELECT id, a.n AS n, b.n AS m FROM a JOIN b USING (id)"
        )
        orc.create_view(view.name, query, maintain=view.mode, shared="off")
    return orc


FOLLOWED = (
    *(
        "writers in opposite orders",
        "a writer that gives up",
        "savepoints",
        "a prepared transaction",
    ),
    *("three writers", "a refresh that reads each statement's snapshot"),
)


@pytest.mark.integration
@pytest.mark.parametrize("name", FOLLOWED)
def test_the_real_system_waits_as_the_model_does(modelled, connect, name):
    programs = PROGRAMS[name]
    actors = [Actor(connect()) for _ in programs]
    schedules = list(Model(VIEWS).schedules(*programs))
    assert len(schedules) > 2
    for schedule in schedules:
        left = [list(ops) for ops in programs]
        for actor, ops in zip(actors, programs, strict=True):
            if ops != REFRESH:
                actor.connection.execute("BEGIN")
        for who, expected in schedule:
            actors[who].begins(left[who].pop(0))
            assert settle(modelled.connection, actors) == expected, schedule
        kept = [view.name for view in (*EAGER, *AT_COMMIT)]
        assert all(differences(modelled.connection, view) == [] for view in kept), schedule
        modelled.connection.execute("SELECT idivm.refresh('d')")
        assert differences(modelled.connection, "d") == [], schedule
