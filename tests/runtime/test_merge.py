"""MERGE into partitioned tables, of which PostgreSQL gives statement triggers wrong rows."""

import pytest

pytestmark = pytest.mark.integration

KEYS = {"with a key": "PRIMARY KEY (id)", "without a key": "UNIQUE (id, v)"}

GIVEN = "MERGE INTO p USING (VALUES {}) AS g (id) ON p.id = g.id WHEN MATCHED"

STAYING = {
    "inserted before it is updated": GIVEN.format("(2), (31), (32), (40)")
    + " THEN UPDATE SET v = 'merged' WHEN NOT MATCHED THEN INSERT VALUES (g.id, 'new')",
    "updated before it is inserted": GIVEN.format("(1), (40), (2), (31)")
    + " THEN UPDATE SET v = 'merged' WHEN NOT MATCHED THEN INSERT VALUES (g.id, 'new')",
    "moved by UPDATE": "UPDATE p SET id = id + 30 WHERE id = 1",
}

TIME_DEPENDENT = {
    "moved": GIVEN.format("(1), (40)") + " THEN UPDATE SET id = p.id + 20",
    "moved beside an insertion": GIVEN.format("(3), (4), (5), (1), (40)")
    + " THEN UPDATE SET id = p.id + 20 WHEN NOT MATCHED THEN INSERT VALUES (g.id, 'new')",
    "moved beside a deletion": GIVEN.format("(1), (40)")
    + " AND g.id = 40 THEN DELETE WHEN MATCHED THEN UPDATE SET id = p.id + 20",
}


@pytest.fixture(params=["deferred", "eager", "on_commit"])
def mode(request):
    return request.param


@pytest.fixture(params=KEYS)
def partitioned(orc, request):
    """A partitioned table `p`, one partition of which is older than the table."""
    orc.execute(
        f"""
        CREATE TABLE low (id int NOT NULL, v text);
        CREATE TABLE p (id int NOT NULL, v text, {KEYS[request.param]}) PARTITION BY RANGE (id);
        ALTER TABLE low ADD {KEYS[request.param]};
        ALTER TABLE p ATTACH PARTITION low FOR VALUES FROM (1) TO (20);
        CREATE TABLE high (v text, id int NOT NULL);
        ALTER TABLE high ADD {KEYS[request.param]};
        ALTER TABLE p ATTACH PARTITION high FOR VALUES FROM (20) TO (100);
        INSERT INTO p VALUES (1, 'a'), (8, 'h'), (40, 'z'), (41, 'y');
        CREATE FUNCTION hidden() RETURNS void LANGUAGE sql AS $$ {TIME_DEPENDENT["moved"]} $$;
        CREATE FUNCTION shown() RETURNS void LANGUAGE plpgsql AS $$ BEGIN {TIME_DEPENDENT["moved"]}; END $$;
        """
    )
    return orc


def truncations(orc):
    """How often the logs say that a table is to be read again."""
    [(source,)] = orc.connection.execute("SELECT id FROM idivm.sources").fetchall()
    row = orc.connection.execute(
        f"SELECT count(*) FROM idivm_log.s{source} WHERE op = 'T'"
    ).fetchone()
    return row[0]


@pytest.mark.parametrize("what", STAYING)
@pytest.mark.sampled(4)
def test_rows_that_stay_in_their_partition_are_captured(partitioned, mode, what):
    partitioned.create_view("held", "SELECT id, v FROM p", maintain=mode)
    partitioned.execute(STAYING[what])
    assert truncations(partitioned) == 0
    assert all(report.equal for report in partitioned.check())


@pytest.mark.parametrize(
    "statement",
    [
        *TIME_DEPENDENT.values(),
        "SELECT hidden()",
        "SELECT shown()",
        f"PREPARE p AS {TIME_DEPENDENT['moved']}; EXECUTE p",
    ],
    ids=[*TIME_DEPENDENT, "in a function in SQL", "in a function in plpgsql", "prepared"],
)
@pytest.mark.sampled(4)
def test_views_are_right_after_rows_have_moved(partitioned, mode, statement):
    partitioned.create_view("held", "SELECT v, count(*), sum(id) FROM p GROUP BY v", maintain=mode)
    partitioned.execute("SET standard_conforming_strings = off")
    partitioned.execute(statement)
    assert all(report.equal for report in partitioned.check())
    partitioned.execute("UPDATE p SET v = 'later'")
    assert all(report.equal for report in partitioned.check())


def test_nothing_is_left_on_the_partitions(partitioned):
    partitioned.create_view("held", "SELECT id, v FROM p")
    partitioned.execute("ALTER TABLE p DETACH PARTITION high")
    partitioned.refresh()
    partitioned.drop_view("held")
    left = partitioned.connection.execute(
        "SELECT tgname FROM pg_trigger WHERE tgname LIKE 'idivm%'"
    ).fetchall()
    assert left == []
