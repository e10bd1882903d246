"""Any DDL that PostgreSQL allows on what views read: writes go on, and no view is stale without saying so.

Nothing here tells idivm of the DDL: a plain session changes the table and writes to it. Then each view
that writers keep is right or says that it is not, a refresh mends all of them, and so does the doctor.
"""

from __future__ import annotations

import pytest
from psycopg.sql import SQL, Identifier

from orchestrator.errors import IdivmError

pytestmark = pytest.mark.integration


@pytest.fixture(params=["plpgsql", "c"])
def capture_form(request):
    return request.param


SCHEMA = """
    CREATE TYPE mood AS ENUM ('low', 'high');
    CREATE TYPE pair AS (x int, y int);
    CREATE TYPE typed AS (x int, y text);
    CREATE DOMAIN positive AS numeric(12, 2) CHECK (VALUE > 0);
    CREATE SEQUENCE numbers;
    CREATE FUNCTION stamp() RETURNS text LANGUAGE sql IMMUTABLE AS $$SELECT 'stamp'$$;
    CREATE TABLE parent (g int PRIMARY KEY, label text);
    CREATE TABLE t (
        junk text DEFAULT stamp(), id int PRIMARY KEY DEFAULT nextval('numbers') + 100, g int REFERENCES parent,
        c int NOT NULL, d int CHECK (d < 100000), m mood DEFAULT 'low', p pair, price positive DEFAULT 1,
        gen int GENERATED ALWAYS AS (d + 1) STORED, extra int UNIQUE
    );
    CREATE TABLE b (x int, y text);
    CREATE TABLE parted (k int, w int, PRIMARY KEY (k)) PARTITION BY RANGE (k);
    CREATE TABLE low PARTITION OF parted FOR VALUES FROM (0) TO (100);
    CREATE TABLE high PARTITION OF parted FOR VALUES FROM (100) TO (200);
    CREATE TABLE family (k int, w int);
    CREATE TABLE child () INHERITS (family);
    INSERT INTO parent SELECT i, 'l' || i FROM generate_series(0, 4) AS i;
    INSERT INTO t (id, g, c, d, p) SELECT i, i % 5, i, i, ROW(i, i)::pair FROM generate_series(1, 20) AS i;
    INSERT INTO b VALUES (1, 'a'), (1, 'a'), (2, 'b');
    INSERT INTO parted SELECT i, i FROM generate_series(50, 149, 10) AS i;
    INSERT INTO family VALUES (1, 1), (2, 2);
    INSERT INTO child VALUES (3, 3);
"""

TABLE_VIEWS = {
    "used": ("deferred", "SELECT id, c FROM t"),
    "other": ("deferred", "SELECT id, d FROM t"),
    "recomputed": ("deferred", "SELECT count(*), max(label) FROM t JOIN parent USING (g)"),
    "used_eager": ("eager", "SELECT g, sum(c) AS s FROM t GROUP BY g"),
    "other_eager": ("eager", "SELECT g, sum(d) AS s FROM t GROUP BY g"),
    "typed_columns": ("eager", "SELECT id, m, price, p FROM t"),
    "joined": ("on_commit", "SELECT t.id, parent.label FROM t JOIN parent USING (g)"),
    "above": ("eager", "SELECT sum(s) AS total FROM other_eager"),
    "bag": ("eager", "SELECT x, y FROM b"),
    "read_sums": ("on_read", "SELECT g, sum(c) AS s, count(*) AS n FROM t GROUP BY g"),
    "read_join": ("on_read", "SELECT t.id, parent.label FROM t JOIN parent USING (g)"),
}
PARTITION_VIEWS = {
    "parts": ("eager", "SELECT k, w FROM parted"),
    "parts_later": ("on_commit", "SELECT sum(w) AS w FROM parted"),
    "parts_at_last": ("deferred", "SELECT k, w FROM parted WHERE w > 0"),
}
INHERITANCE_VIEWS = {
    "all_family": ("eager", "SELECT k, w FROM family"),
    "other": ("deferred", "SELECT id, d FROM t"),
    "other_eager": ("eager", "SELECT g, sum(d) AS s FROM t GROUP BY g"),
    "joined": ("on_commit", "SELECT t.id, parent.label FROM t JOIN parent USING (g)"),
}

VALUES = {
    "id": "i",
    "g": "i % 5",
    "c": "i",
    "cc": "i",
    "d": "i",
    "k": "i",
    "w": "i",
    "x": "i",
    "y": "'y' || i",
}
TABLES = {
    "t": "id",
    "b": "x",
    "parted": "k",
    "family": "k",
    "parent": "g",
    "low": "k",
    "loose": "k",
}


def columns(plain, table):
    rows = plain.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0"
        " AND NOT attisdropped AND attgenerated = ''",
        [table],
    )
    return {row[0] for row in rows.fetchall()}


def write(plain):
    """Every kind of write on every table that is there, each of which must succeed."""
    for table, key in TABLES.items():
        there = [column for column in columns(plain, table) if column in VALUES]
        name = Identifier(table)
        if not there or table == "parent":
            continue
        listed = SQL(", ").join(map(Identifier, there))
        values = SQL(", ").join(SQL(VALUES[column]) for column in there)
        numbers = {"low": (7, 9), "loose": (207, 209), "parted": (20, 25)}.get(table, (1020, 1027))
        for first, last in ((numbers[0], numbers[0]), (numbers[0] + 1, numbers[1])):
            plain.execute(
                SQL("INSERT INTO {} ({}) SELECT {} FROM generate_series({}, {}) AS i").format(
                    name, listed, values, first, last
                )
            )
        with plain.cursor().copy(SQL("COPY {} ({}) FROM STDIN").format(name, listed)) as copy:
            copy.write_row([{"y": "copied", "g": 1}.get(c, numbers[1] + 1) for c in there])
        for column in {"c", "d", "w"} & set(there):
            plain.execute(
                SQL("UPDATE {0} SET {1} = {1} + 1 WHERE {1} % 3 = 0").format(
                    name, Identifier(column)
                )
            )
        if key in there:
            plain.execute(
                SQL("UPDATE {0} SET {1} = {1} WHERE {1} % 2 = 0").format(name, Identifier(key))
            )
            plain.execute(
                SQL("DELETE FROM {} WHERE {} BETWEEN {} AND {}").format(
                    name, Identifier(key), numbers[0], numbers[1] + 1
                )
            )
        else:
            plain.execute(SQL("DELETE FROM {} WHERE {} >= 1020").format(name, Identifier(there[0])))
    if columns(plain, "parent") >= {"g", "label"}:
        plain.execute("UPDATE parent SET label = label || '.' WHERE g = 1")
        plain.execute("INSERT INTO parent VALUES (99, 'x'); DELETE FROM parent WHERE g = 99")
    ruled = plain.execute(
        "SELECT FROM pg_class WHERE oid = to_regclass('t') AND relhasrules"
    ).fetchone()
    if {"id", "g"} <= columns(plain, "t") and ruled is None:
        plain.execute(
            "MERGE INTO t USING (VALUES (3), (99)) AS q (i) ON t.id = q.i"
            " WHEN MATCHED THEN UPDATE SET g = (g + 1) % 5 WHEN NOT MATCHED THEN DO NOTHING"
        )


def differing(plain):
    """The views that are not what their definitions answer, by their names as they were created."""
    names = set()
    for name, relation, definition in plain.execute(
        "SELECT v.name, c.oid::regclass::text, d.oid::regclass::text FROM idivm.views v"
        " JOIN pg_class c ON c.oid = v.relation JOIN pg_class d ON d.oid = v.definition"
    ).fetchall():
        content, asked = (
            sorted(
                repr(row) for row in plain.execute(SQL("TABLE {}").format(SQL(source))).fetchall()
            )
            for source in (relation, definition)
        )
        if content != asked:
            names.add(name)
    return names


def said_to_be_stale(plain):
    return {
        row[0]
        for row in plain.execute(
            "SELECT v.name FROM idivm.views v WHERE v.status <> 'ready' OR idivm.trouble(v.id) IS NOT NULL"
            " OR v.maintain <> 'on_read' AND idivm.pending_changes(v.id) > 0"
            " OR EXISTS (SELECT FROM idivm.refresh_order(ARRAY[v.id]) AS id JOIN idivm.view_errors e ON e.view = id)"
        ).fetchall()
    }


# Each line is one step, and the steps of a chain follow each other on the same tables.
CHAINS = {
    "columns": """
        ALTER TABLE t DROP COLUMN junk
        ALTER TABLE t ADD COLUMN e1 int DEFAULT 3, ADD COLUMN e2 timestamptz DEFAULT clock_timestamp()
        ALTER TABLE t ALTER extra TYPE bigint
        ALTER TABLE t RENAME c TO cc
        ALTER TABLE t RENAME cc TO c
        ALTER TABLE t ALTER c SET STATISTICS 5, ALTER c SET (n_distinct = 5), ALTER e1 SET DEFAULT 4
        ALTER TABLE t ALTER m SET STORAGE PLAIN
        ALTER TABLE t ALTER gen DROP EXPRESSION
        ALTER TABLE t DROP COLUMN gen
        ALTER TABLE t ALTER id DROP DEFAULT
        ALTER TABLE t ALTER id ADD GENERATED BY DEFAULT AS IDENTITY
        ALTER TABLE t ALTER id SET GENERATED BY DEFAULT SET START 100000 RESTART
        ALTER TABLE t ALTER id DROP IDENTITY
        ALTER TABLE t ALTER c DROP NOT NULL
        ALTER TABLE t ALTER c SET NOT NULL
        ALTER TABLE t ALTER d SET NOT NULL
        ALTER TABLE t DROP COLUMN c CASCADE
        ALTER TABLE t ADD COLUMN c int
        ALTER TABLE t DROP COLUMN p CASCADE
        ALTER TABLE t DROP COLUMN g CASCADE
        ALTER TABLE t DROP COLUMN id CASCADE
        ALTER TABLE t DROP COLUMN d CASCADE
    """,
    "constraints and indexes": """
        DROP FUNCTION stamp() CASCADE
        DROP SEQUENCE numbers CASCADE
        ALTER TABLE t ADD CONSTRAINT small CHECK (c < 1000000) NOT VALID
        ALTER TABLE t VALIDATE CONSTRAINT small
        ALTER TABLE t RENAME CONSTRAINT small TO little
        ALTER TABLE t DROP CONSTRAINT little
        ALTER TABLE t ADD CONSTRAINT own UNIQUE (id, c)
        ALTER TABLE t ALTER CONSTRAINT t_g_fkey DEFERRABLE INITIALLY DEFERRED
        ALTER TABLE t CLUSTER ON t_pkey
        CLUSTER t
        ALTER TABLE t SET WITHOUT CLUSTER
        ALTER TABLE t REPLICA IDENTITY FULL
        ALTER TABLE t REPLICA IDENTITY USING INDEX own
        ALTER TABLE t REPLICA IDENTITY DEFAULT
        ALTER INDEX t_pkey RENAME TO renamed
        REINDEX TABLE t
        CREATE INDEX made ON t (c)
        DROP INDEX made
        ALTER TABLE t DROP CONSTRAINT t_g_fkey
        ALTER TABLE parent DROP CONSTRAINT parent_pkey CASCADE
        ALTER TABLE parent ADD PRIMARY KEY (g)
        ALTER TABLE t DROP CONSTRAINT own
        ALTER TABLE t DROP CONSTRAINT IF EXISTS renamed, DROP CONSTRAINT IF EXISTS t_pkey CASCADE
        ALTER TABLE t ADD PRIMARY KEY (id)
    """,
    "types": """
        ALTER TYPE mood ADD VALUE 'mid' BEFORE 'high'
        ALTER TYPE mood RENAME VALUE 'low' TO 'lowest'
        ALTER TYPE mood RENAME TO feeling
        CREATE SCHEMA away
        ALTER TYPE feeling SET SCHEMA away
        ALTER TYPE pair ADD ATTRIBUTE z int
        ALTER TYPE pair DROP ATTRIBUTE y
        ALTER TYPE pair RENAME ATTRIBUTE x TO xx
        ALTER TYPE pair RENAME TO pairs
        ALTER DOMAIN positive ADD CONSTRAINT few CHECK (VALUE < 1000000)
        ALTER DOMAIN positive DROP CONSTRAINT few
        ALTER DOMAIN positive SET DEFAULT 7
        ALTER DOMAIN positive SET NOT NULL
        ALTER DOMAIN positive DROP NOT NULL
        ALTER DOMAIN positive RENAME TO above_zero
        ALTER DOMAIN above_zero SET SCHEMA away
        DROP TYPE away.feeling CASCADE
        DROP DOMAIN away.above_zero CASCADE
        DROP TYPE pairs CASCADE
    """,
    "storage, rights and triggers": """
        ALTER TABLE t SET UNLOGGED
        ALTER TABLE t SET LOGGED
        ALTER TABLE b SET ACCESS METHOD heap
        ALTER TABLE t SET (fillfactor = 70)
        ALTER TABLE t RESET (fillfactor)
        ALTER TABLE t SET TABLESPACE pg_default
        ALTER TABLE b OF typed
        ALTER TABLE b NOT OF
        CREATE POLICY own_rows ON t USING (true)
        ALTER TABLE t ENABLE ROW LEVEL SECURITY
        ALTER TABLE t FORCE ROW LEVEL SECURITY
        ALTER TABLE t NO FORCE ROW LEVEL SECURITY, DISABLE ROW LEVEL SECURITY
        CREATE RULE also AS ON UPDATE TO t DO ALSO NOTHING
        ALTER TABLE t DISABLE RULE also
        ALTER TABLE t ENABLE ALWAYS RULE also
        DROP RULE also ON t
        ALTER TABLE t DISABLE TRIGGER ALL
        ALTER TABLE t ENABLE TRIGGER ALL
        ALTER TABLE t DISABLE TRIGGER USER
        ALTER TABLE t ENABLE TRIGGER USER
        ALTER TABLE t OWNER TO CURRENT_USER
        VACUUM FULL t
        TRUNCATE t CASCADE
        INSERT INTO t (id, g, c, d) SELECT i, i % 5, i, i FROM generate_series(1, 20) AS i
    """,
    "names": """
        ALTER TABLE t RENAME TO moved
        ALTER TABLE moved RENAME TO t
        CREATE SCHEMA away
        ALTER TABLE t SET SCHEMA away
        ALTER TABLE away.t SET SCHEMA public
        ALTER SCHEMA public RENAME TO shown
        ALTER SCHEMA shown RENAME TO public
        ALTER TABLE parent RENAME g TO gg
        ALTER TABLE parent RENAME gg TO g
        ALTER VIEW other RENAME TO others
        ALTER VIEW other_eager SET SCHEMA away
        DROP VIEW used_eager CASCADE
        DROP TABLE parent CASCADE
        DROP SCHEMA away CASCADE
        DROP TABLE t CASCADE
    """,
    "partitions": """
        CREATE TABLE loose (w int, k int NOT NULL)
        INSERT INTO loose VALUES (1, 201), (2, 202)
        ALTER TABLE parted ATTACH PARTITION loose FOR VALUES FROM (200) TO (300)
        ALTER TABLE parted DETACH PARTITION high
        ALTER TABLE parted DETACH PARTITION loose
        ALTER TABLE parted ATTACH PARTITION loose FOR VALUES FROM (200) TO (300)
        CREATE TABLE rest PARTITION OF parted DEFAULT
        ALTER TABLE parted DETACH PARTITION low
        ALTER TABLE parted ATTACH PARTITION low FOR VALUES FROM (0) TO (100)
        ALTER TABLE low RENAME TO lower
        ALTER TABLE lower RENAME TO low
        ALTER TABLE parted DROP CONSTRAINT parted_pkey
        ALTER TABLE parted ADD COLUMN extra int
        ALTER TABLE parted DROP COLUMN extra
        DROP TABLE rest
        DROP TABLE parted CASCADE
    """,
    "inheritance": """
        CREATE TABLE second () INHERITS (family)
        INSERT INTO second VALUES (9, 9)
        ALTER TABLE child NO INHERIT family
        ALTER TABLE child INHERIT family
        ALTER TABLE second ADD COLUMN own int
        CREATE TABLE grandchild () INHERITS (t)
        INSERT INTO grandchild (id, g, c, d) VALUES (77, 1, 1, 1)
        ALTER TABLE grandchild NO INHERIT t
        DROP TABLE second
    """,
}


def steps(chain):
    return [line.strip() for line in chain.strip().splitlines()]


VIEWS = {"partitions": PARTITION_VIEWS, "inheritance": INHERITANCE_VIEWS}


def create(orc, views):
    orc.execute(SCHEMA)
    for name, (mode, query) in views.items():
        orc.create_view(name, query, maintain=mode)


def settled(orc):
    """Refreshes as a user does who is told to do so once more."""
    try:
        orc.refresh()
    except IdivmError:
        orc.refresh()


@pytest.mark.slow
@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.sampled(5)
def test_writes_go_on_after_any_ddl(orc, connect, chain, capture_form, older):
    if older and capture_form == "c":
        pytest.skip("both forms are compared on the newest version")
    create(orc, VIEWS.get(chain, TABLE_VIEWS))
    plain = connect()
    for ddl in steps(CHAINS[chain]):
        plain.execute(ddl)
        write(plain)
        assert differing(plain) <= said_to_be_stale(plain), ddl
        settled(orc)
        assert differing(plain) == set(), ddl
    write(plain)
    assert differing(plain) <= said_to_be_stale(plain)
    for view in orc.dropped_views():
        # What CASCADE took along is the doctor's finding until somebody says that it was meant.
        orc.drop_view(view.name)
    findings = orc.doctor()
    assert [f for f in findings if not f.fine and not f.mended] == []
    assert differing(plain) == set()


def test_a_writer_that_began_with_a_key_is_not_lost(orc, connect, capture_form):
    """It logs updates, and the plan that reads them identifies rows by their content.

    Triggers in C name the key, so that they are attached again when the writer has ended.
    """
    orc.execute("CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 1), (2, 2)")
    orc.create_view("v", "SELECT n, count(*) AS c FROM t GROUP BY n")
    with connect(autocommit=False) as writer:
        writer.execute("UPDATE t SET n = 7 WHERE id = 1")
        orc.execute("CREATE TABLE more () INHERITS (t)")
        if capture_form == "plpgsql":
            assert [report.equal for report in orc.check()] == [True]
        writer.execute("UPDATE t SET n = 8 WHERE id = 2")
        writer.commit()
    assert [report.equal for report in orc.check()] == [True]
    assert orc.execute("SELECT n, c FROM v ORDER BY n")[0].rows == [(7, 1), (8, 1)]


@pytest.mark.parametrize("mend", ["refresh", "doctor"])
def test_two_tables_of_a_view_lose_a_captured_type(orc, mend):
    orc.execute(
        """
        CREATE TYPE feeling AS ENUM ('glad', 'sad');
        CREATE TABLE a (id int PRIMARY KEY, m feeling, n int); INSERT INTO a VALUES (1, 'sad', 1);
        CREATE TABLE b (id int PRIMARY KEY, m feeling, n int); INSERT INTO b VALUES (1, 'glad', 2)
        """
    )
    for table in "ab":
        orc.create_view(f"feelings_{table}", f"SELECT id, m FROM {table}")
        orc.create_view(f"numbers_{table}", f"SELECT id, n FROM {table}")
    orc.create_view(
        "joined", "SELECT id, a.n + b.n AS n FROM a JOIN b USING (id)", maintain="eager"
    )
    orc.create_view("above", "SELECT sum(v.n + b.n) AS s FROM numbers_a v JOIN b USING (id)")
    orc.connection.execute("DROP TYPE feeling CASCADE")
    orc.execute("INSERT INTO a VALUES (2, 3); INSERT INTO b VALUES (2, 4)")
    getattr(orc, mend)()
    orc.refresh()
    assert {view.name for view in orc.views()} == {"numbers_a", "numbers_b", "joined", "above"}
    assert all(view.status == "ready" for view in orc.views())
    assert all(report.equal for report in orc.check())
    orc.execute("UPDATE a SET n = 9; DELETE FROM b WHERE id = 1")
    assert all(report.equal for report in orc.check())
    for dropped in orc.dropped_views():
        orc.drop_view(dropped.name)
    assert all(finding.fine for finding in orc.doctor())


def test_a_factorized_view_whose_table_loses_its_key_becomes_a_listing(orc):
    orc.execute(
        """
        CREATE TABLE a (id int PRIMARY KEY, n int); INSERT INTO a VALUES (1, 1), (2, 2);
        CREATE TABLE b (id int PRIMARY KEY, a int, n int); INSERT INTO b VALUES (1, 1, 5), (2, 2, 7)
        """
    )
    orc.create_view(
        "v",
        "SELECT a.id, b.id AS b, a.n, b.n AS m FROM a JOIN b ON b.a = a.id",
        representation="factorized",
    )
    orc.create_view("above", "SELECT sum(m) AS s FROM v")
    orc.execute("ALTER TABLE a DROP CONSTRAINT a_pkey; INSERT INTO a VALUES (1, 1)")
    orc.refresh()
    assert len(orc.execute("SELECT FROM v")[0].rows) == 3
    orc.execute("INSERT INTO a VALUES (2, 1); UPDATE b SET n = 9")
    assert [report.equal for report in orc.check()] == [True, True]


def test_the_loss_of_a_table_view_takes_the_views_above_it_along(orc):
    """PostgreSQL drops the query of the table view with a column, and knows no table that depends on it."""
    orc.execute(
        """
        CREATE TABLE t (id int PRIMARY KEY, n int, m int); INSERT INTO t VALUES (1, 1, 1);
        CREATE TABLE u (id int PRIMARY KEY, n int); INSERT INTO u VALUES (1, 1)
        """
    )
    orc.create_view("v", "SELECT id, n FROM t", relation="table", maintain="on_commit")
    orc.create_view("w", "SELECT id, v.n + u.n AS n FROM v JOIN u USING (id)", relation="table")
    orc.create_view("x", "SELECT sum(n) AS s FROM w")
    orc.create_view("other", "SELECT id, m FROM t")
    orc.connection.execute("ALTER TABLE t DROP COLUMN n CASCADE")
    orc.execute("INSERT INTO t VALUES (2, 2)")
    orc.refresh()
    assert [view.name for view in orc.views()] == ["other"]
    assert [report.equal for report in orc.check()] == [True]
    dropped = {view.name.rpartition(".")[2] for view in orc.dropped_views()}
    assert dropped == {"v", "w", "x"}
    for name in dropped:
        assert orc.connection.execute("SELECT to_regclass(%s)", [name]).fetchone() == (None,)
