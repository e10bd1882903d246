"""A task's part of a load, without Spark: attempts that repeat, overlap or are killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import Connection

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from orchestrator.catalog import loads as catalog_loads  # noqa: E402
from orchestrator.frontend.constraints import check_columns  # noqa: E402
from orchestrator.frontend.statements import parse_name  # noqa: E402
from orchestrator.runtime.diagnosis.doctor import examine  # noqa: E402
from orchestrator.runtime.migrate import migrate  # noqa: E402
from orchestrator.spark.errors import LoadError  # noqa: E402
from orchestrator.spark.formats.blocks import Range  # noqa: E402
from orchestrator.spark.formats.csv_rows import CsvReader  # noqa: E402
from orchestrator.spark.loading import ledger  # noqa: E402
from orchestrator.spark.loading.commit_load import (  # noqa: E402
    IncompleteError,
    MissingTableError,
    commit_loads,
    in_order,
)
from orchestrator.spark.loading.copying import BadRowError, CopyTask, copy_partition, copy_ranges  # noqa: E402
from orchestrator.spark.reading import plan_read, read_part  # noqa: E402
from orchestrator.spark.types import Column  # noqa: E402

pytestmark = pytest.mark.integration

Begin = Callable[..., tuple[ledger.Load, CopyTask]]


@pytest.fixture
def db(dsn: str) -> Iterator[Connection[Any]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


@pytest.fixture
def begin(db: Connection[Any], dsn: str) -> Begin:
    """Begins a load of all columns of a table."""

    def begun(
        table: str, mode: str = "append", quarantine: bool = False, command: str = "c"
    ) -> tuple[ledger.Load, CopyTask]:
        target = ledger.target_named(db, parse_name(table))
        assert target.relation is not None
        load = ledger.begin(
            db,
            target,
            mode=mode,
            columns=tuple(Column(c.name, c.name, c.type) for c in target.relation.columns),
            key=ledger.key_columns(target, None),
            quarantine=quarantine,
            command=command + table,
        )
        checks = check_columns(db, target.relation.oid)
        names = tuple(column.name for column in load.columns)
        return load, CopyTask(dsn, load.id, names, quarantine, checks=checks)

    return begun


def end(db: Connection[Any], *loads: tuple[ledger.Load, int]) -> dict[int, Any]:
    with db.transaction():
        return commit_loads(db, loads)


def batch(**columns: list[Any]) -> Any:
    return pa.record_batch({name: pa.array(values) for name, values in columns.items()})


def rows(db: Connection[Any], query: str) -> list[tuple[Any, ...]]:
    return db.execute(query).fetchall()  # type: ignore[arg-type]


def test_a_partition_is_written_once(db: Connection[Any], begin: Begin) -> None:
    db.execute("CREATE TABLE t (a int PRIMARY KEY, b text)")
    load, task = begin("t")
    first = copy_partition(task, 0, 1, [batch(a=[1, 2], b=["x", None])])
    assert copy_partition(task, 0, 2, [batch(a=[1, 2], b=["x", None])]) == first
    copy_partition(task, 1, 3, [batch(a=[3], b=[""])])
    assert rows(db, "SELECT * FROM t") == []
    moved = end(db, (load, 2))[load.id]
    assert (moved.read, moved.loaded, moved.rejected) == (3, 3, 0)
    assert rows(db, "SELECT * FROM t ORDER BY a") == [(1, "x"), (2, None), (3, "")]
    assert rows(db, "SELECT status, parts, rows_loaded FROM idivm.loads") == [("done", 2, 3)]
    assert rows(db, "SELECT * FROM idivm.load_parts") == []


def test_two_attempts_at_the_same_time_leave_one(db: Connection[Any], begin: Begin) -> None:
    db.execute("CREATE TABLE t (a int)")
    load, task = begin("t")
    both = threading.Barrier(2)

    def slow(number: int) -> Iterator[Any]:
        yield batch(a=[1])
        both.wait()  # now both are in the middle of their copies
        yield batch(a=[2])

    attempts = [
        threading.Thread(target=copy_partition, args=(task, 0, n, slow(n))) for n in range(2)
    ]
    for attempt in attempts:
        attempt.start()
    for attempt in attempts:
        attempt.join()
    end(db, (load, 1))
    assert rows(db, "SELECT a FROM t ORDER BY a") == [(1,), (2,)]


KILLED = """
import sys
import pyarrow as pa
from orchestrator.spark.loading.copying import CopyTask, copy_partition

def batches():
    yield pa.record_batch({"a": list(range(100_000))})
    print("copying", flush=True)
    sys.stdin.read()

copy_partition(CopyTask(sys.argv[1], int(sys.argv[2]), ("a",)), 0, 1, batches())
"""


def test_a_killed_task_leaves_nothing(
    db: Connection[Any], begin: Begin, dsn: str, tmp_path: Path
) -> None:
    db.execute("CREATE TABLE t (a int)")
    load, task = begin("t")
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    with subprocess.Popen(
        [sys.executable, script, dsn, str(load.id)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "copying\n"
        process.send_signal(signal.SIGKILL)
        process.wait()
    copy_partition(task, 0, 2, [batch(a=[7])])
    end(db, (load, 1))
    assert rows(db, "SELECT a FROM t") == [(7,)]


def test_a_missing_partition_is_noticed(db: Connection[Any], begin: Begin) -> None:
    db.execute("CREATE TABLE t (a int)")
    load, task = begin("t")
    copy_partition(task, 0, 1, [batch(a=[1])])
    with pytest.raises(IncompleteError, match="only 1 are in the database"):
        end(db, (load, 2))
    assert rows(db, "SELECT * FROM t") == []
    copy_partition(task, 1, 1, [batch(a=[2])])
    end(db, (load, 2))
    assert rows(db, "SELECT a FROM t ORDER BY a") == [(1,), (2,)]


def test_a_task_of_a_load_that_was_given_up_writes_nothing(
    db: Connection[Any], begin: Begin
) -> None:
    db.execute("CREATE TABLE t (a int)")
    load, task = begin("t")

    def late() -> Iterator[Any]:
        yield batch(a=[1])
        db.execute("DELETE FROM idivm.loads WHERE id = %s", [load.id])

    with pytest.raises(LoadError, match="given up"):
        copy_partition(task, 0, 1, late())
    assert rows(db, "SELECT * FROM idivm.load_parts") == []


def test_a_load_ends_once(db: Connection[Any], begin: Begin) -> None:
    db.execute("CREATE TABLE t (a int)")
    load, task = begin("t")
    copy_partition(task, 0, 1, [batch(a=[1])])
    end(db, (load, 1))
    with pytest.raises(LoadError, match="given up"):
        end(db, (load, 1))
    assert rows(db, "SELECT a FROM t") == [(1,)]


BAD = [
    ("int", ["1", "2x", "3", "4y"], "a", "invalid input syntax for type integer"),
    ("int NOT NULL", ["1", None, "3", None], "a", "violates not-null constraint"),
    ("int CHECK (a > 0)", ["1", "-2", "3", "0"], "a", "violates check constraint"),
    ("numeric(4,2)", ["1", "100", "3", "-100"], "a", "numeric field overflow"),
    ("varchar(1)", ["1", "22", "3", "\t\n"], "a", "too long"),
    ("text", ["1", "\0", "3", "4\0"], "a", "invalid byte sequence"),
]


@pytest.mark.parametrize("kind, values, column, reason", BAD, ids=[case[0] for case in BAD])
def test_bad_rows_are_named(
    db: Connection[Any], begin: Begin, kind: str, values: list[Any], column: str | None, reason: str
) -> None:
    db.execute(f"CREATE TABLE t (a {kind}, n int)")  # type: ignore[arg-type]
    data = [batch(a=values[:1], n=[1]), batch(a=values[1:], n=[2, 3, 4])]
    _, task = begin("t")
    with pytest.raises(BadRowError, match=reason):
        copy_partition(task, 0, 1, data)
    assert rows(db, "SELECT position, column_name FROM idivm.rejected_rows") == [(2, column)]

    load, task = begin("t", quarantine=True, command="quarantined")
    result = copy_partition(task, 0, 1, data)
    assert (result.rows_read, result.rows_rejected) == (4, 2)
    end(db, (load, 1))
    assert rows(db, "SELECT a::text, n FROM t ORDER BY n") == [
        (str(values[0]) + ".00" * (kind[0] == "n"), 1),
        (str(values[2]) + ".00" * (kind[0] == "n"), 3),
    ]
    rejected = rows(
        db,
        "SELECT position, column_name, reason FROM idivm.rejected_rows"
        f" WHERE load = {load.id} ORDER BY position",
    )
    assert [row[:2] for row in rejected] == [(2, column), (4, column)]
    assert all(reason in message for _, _, message in rejected)


def test_a_check_names_its_columns_and_their_values(
    db: Connection[Any], begin: Begin, tmp_path: Path
) -> None:
    db.execute("CREATE TABLE t (a int, b text, CONSTRAINT short CHECK (length(b) < a), c int)")
    (path := tmp_path / "t.csv").write_text('a,b,c\n9,"x,y",\n2,"long\n",3\n9,,\n')
    whole = [Range(str(path), 0, path.stat().st_size)]
    reader = CsvReader(3, header=b"a,b,c", multiline=True)
    rejected = []
    for number, quarantine in enumerate((False, True)):
        _, task = begin("t", quarantine=quarantine, command=str(number))
        with suppress(BadRowError):
            copy_ranges(task, reader, 0, 1, whole)
        _, task = begin("t", quarantine=quarantine, command=f"batch {number}")
        with suppress(BadRowError):
            copy_partition(task, 0, 1, [batch(a=["2"], b=["long"], c=[None])])
    rejected = rows(db, "SELECT column_name, reason FROM idivm.rejected_rows ORDER BY load")
    assert [column for column, _ in rejected] == ["a, b"] * 4
    violated = 'violates check constraint "short": '
    values = ["(2, long\n)", "(2, long)", r"(2, long\n)", "(2, long)"]
    assert [reason.partition(violated)[2] for _, reason in rejected] == values


UNIQUE = [
    ("a int UNIQUE DEFERRABLE INITIALLY DEFERRED", {"a": [1, 2, 2, None, None]}, [1, 3]),
    ("a int UNIQUE DEFERRABLE, b int", {"a": [1, 2, 2, 3, None]}, [1, 3]),
    ("a int UNIQUE, b int", {"a": [1, None, None, 2, 2]}, [1, 5]),
    ("a int UNIQUE NULLS NOT DISTINCT, b int", {"a": [1, None, 3, 3, None]}, [1, 4, 5]),
    ("a text, UNIQUE (a, b), b int", {"a": list("xxxyy"), "b": [1, 2, 2, None, None]}, [1, 3]),
]
INDEXES = [
    ("(lower(a))", {"a": ["X", "y", "Y", "z", None]}, [1, 3]),
    ("(a) WHERE b > 1", {"a": list("xyxyx"), "b": [2, 2, 1, 1, 3]}, [1, 5]),
    ('(a COLLATE "C", (b + 1))', {"a": list("xxyyy"), "b": [1, 1, 2, 2, None]}, [1, 2, 4]),
]


@pytest.mark.parametrize("definition, values, rejected", [*UNIQUE, *INDEXES])
def test_rows_that_a_unique_index_refuses_are_put_aside(
    db: Connection[Any],
    begin: Begin,
    definition: str,
    values: dict[str, list[Any]],
    rejected: list[int],
) -> None:
    if definition.startswith("("):
        db.execute("CREATE TABLE t (a text, b int)")
        db.execute(f"CREATE UNIQUE INDEX ON t {definition}")  # type: ignore[arg-type]
    else:
        db.execute(f"CREATE TABLE t ({definition})")  # type: ignore[arg-type]
    names = [
        name
        for (name,) in rows(
            db,
            "SELECT attname FROM pg_attribute WHERE attrelid ="
            " 't'::regclass AND attnum > 0 ORDER BY attnum",
        )
    ]
    values = {name: values.get(name, [None] * 5) for name in names}
    there = [str(values[name][0]).lower() if values[name][0] else None for name in names]
    marks = ", ".join(["%s"] * len(names))
    db.execute(f"INSERT INTO t VALUES ({marks})", there)  # type: ignore[arg-type]
    load, task = begin("t", quarantine=True)
    copy_partition(task, 0, 1, [batch(**values)])
    moved = end(db, (load, 1))[load.id]
    positions = rows(db, "SELECT position FROM idivm.rejected_rows ORDER BY position")
    assert [position for (position,) in positions] == rejected
    assert moved.loaded == 5 - len(rejected)


PARTITIONS = [
    ("LIST (b)", ["FOR VALUES IN (1, 2)", "FOR VALUES IN (3)"], "b"),
    ("RANGE (a, b)", ["FOR VALUES FROM (0, 0) TO (9, 4)"], "a, b"),
    ("LIST ((b % 5))", ["FOR VALUES IN (0, 1, 2, 3)"], None),
    ("LIST (b)", [], "b"),
]


@pytest.mark.parametrize("key, bounds, column", PARTITIONS)
def test_rows_without_a_partition_are_put_aside(
    db: Connection[Any], begin: Begin, key: str, bounds: list[str], column: str | None
) -> None:
    db.execute(f"CREATE TABLE t (a int, b int) PARTITION BY {key}")  # type: ignore[arg-type]
    for number, bound in enumerate(bounds):
        db.execute(f"CREATE TABLE t{number} PARTITION OF t {bound}")  # type: ignore[arg-type]
    tables = ["t", "t0"] if len(bounds) == 1 else ["t"]
    for table in tables:
        load, task = begin(table, quarantine=True)
        copy_partition(task, 0, 1, [batch(a=[9, 9, 9], b=[2, 4, 3])])
        moved = end(db, (load, 1))[load.id]
        query = "SELECT position, column_name, reason FROM idivm.rejected_rows WHERE load = "
        listed = rows(db, query + str(load.id) + " ORDER BY position")
        rejected = [2] if bounds else [1, 2, 3]
        assert [row[:2] for row in listed] == [(position, column) for position in rejected]
        assert all("no partition for the row" in row[2] for row in listed)
        assert moved.loaded == 3 - len(rejected)


def test_an_upsert_does_not_conflict_with_the_rows_that_it_replaces(
    db: Connection[Any], begin: Begin
) -> None:
    db.execute("CREATE TABLE t (k int PRIMARY KEY, name text NOT NULL UNIQUE, n int)")
    db.execute("INSERT INTO t VALUES (1, 'a', 0), (2, 'b', 0)")
    load, task = begin("t", mode="upsert", quarantine=True)
    copy_partition(task, 0, 1, [batch(k=[1, 2, 3, 4], name=["a", "c", "d", "a"], n=[7, 7, 7, 7])])
    moved = end(db, (load, 1))[load.id]
    assert (moved.loaded, moved.rejected) == (3, 1)
    assert rows(db, "SELECT * FROM t ORDER BY k") == [(1, "a", 7), (2, "c", 7), (3, "d", 7)]
    assert rows(db, "SELECT position, column_name FROM idivm.rejected_rows") == [(4, "name")]


def test_a_quarantine_holds_what_does_not_fit_beside_others(
    db: Connection[Any], begin: Begin
) -> None:
    db.execute("CREATE TABLE p (a int PRIMARY KEY); INSERT INTO p VALUES (1), (2)")
    db.execute(
        "CREATE TABLE t (k int PRIMARY KEY, a int REFERENCES p); INSERT INTO t VALUES (1, 1)"
    )
    load, task = begin("t", quarantine=True)
    copy_partition(task, 0, 1, [batch(k=[1, 2, 2, 3, 4], a=[1, 1, 2, 9, None])])
    moved = end(db, (load, 1))[load.id]
    assert (moved.loaded, moved.rejected) == (2, 3)
    assert rows(db, "SELECT * FROM t ORDER BY k") == [(1, 1), (2, 1), (4, None)]
    rejected = rows(db, "SELECT position, reason FROM idivm.rejected_rows ORDER BY position")
    assert rejected[0] == (1, "the table has a row with the same key: (1)")
    assert rejected[1] == (3, "the source has a row before it with the same key: (2)")
    assert rejected[2][0] == 4
    assert "missing (t_a_fkey): (9)" in rejected[2][1]


def test_replace_writes_only_what_differs(db: Connection[Any], begin: Begin) -> None:
    db.execute("CREATE TABLE t (k int PRIMARY KEY, n numeric)")
    db.execute("INSERT INTO t VALUES (1, 1.0), (2, 2.0), (3, 3.0)")
    db.execute("CREATE TABLE log (what text, k int)")
    db.execute(
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " INSERT INTO log VALUES (tg_op, coalesce(new.k, old.k)); RETURN NULL; END $$"
    )
    db.execute(
        "CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON t"
        " FOR EACH ROW EXECUTE FUNCTION note()"
    )
    load, task = begin("t", mode="replace")
    copy_partition(task, 0, 1, [batch(k=[1, 2, 4], n=["1.0", "2.00", "4"])])
    moved = end(db, (load, 1))[load.id]
    assert (moved.loaded, moved.removed) == (2, 1)
    assert rows(db, "SELECT k, n::text FROM t ORDER BY k") == [(1, "1.0"), (2, "2.00"), (4, "4")]
    assert rows(db, "SELECT * FROM log ORDER BY k") == [("UPDATE", 2), ("DELETE", 3), ("INSERT", 4)]


def test_replace_without_a_key_and_upsert(db: Connection[Any], begin: Begin) -> None:
    db.execute("CREATE TABLE bag (a int); INSERT INTO bag VALUES (1), (1)")
    load, task = begin("bag", mode="replace")
    copy_partition(task, 0, 1, [batch(a=[1, 2, 2])])
    end(db, (load, 1))
    assert rows(db, "SELECT a FROM bag ORDER BY a") == [(1,), (2,), (2,)]

    db.execute('CREATE TABLE "T" ("K" int PRIMARY KEY, j json); INSERT INTO "T" VALUES (1, \'[]\')')
    load, task = begin('"T"', mode="upsert")
    copy_partition(task, 0, 1, [batch(K=[1, 2], j=["{}", None])])
    assert end(db, (load, 1))[load.id].loaded == 2
    assert rows(db, 'SELECT * FROM "T" ORDER BY 1') == [(1, {}), (2, None)]


def test_tables_end_together_parents_first(db: Connection[Any], begin: Begin) -> None:
    db.execute("CREATE TABLE p (a int PRIMARY KEY)")
    db.execute("CREATE TABLE c (a int PRIMARY KEY REFERENCES p, up int REFERENCES c)")
    child, to_child = begin("c")
    parent, to_parent = begin("p")
    assert [load.target.name.name for load in in_order([child, parent])] == ["p", "c"]
    copy_partition(to_child, 0, 1, [batch(a=[1, 2], up=[2, None])])
    copy_partition(to_parent, 0, 1, [batch(a=[1])])
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        end(db, (child, 1), (parent, 1))
    assert rows(db, "SELECT * FROM p") == []
    copy_partition(to_parent, 1, 1, [batch(a=[2])])
    end(db, (child, 1), (parent, 2))
    assert rows(db, "SELECT * FROM c ORDER BY a") == [(1, 2), (2, None)]


@pytest.mark.parametrize("change", ["DROP TABLE t", "DROP TABLE t; CREATE TABLE t (a int)"])
def test_a_table_that_is_replaced_meanwhile_gets_no_rows(
    db: Connection[Any], begin: Begin, change: str
) -> None:
    db.execute("CREATE TABLE t (a int)")
    load, task = begin("t")
    copy_partition(task, 0, 1, [batch(a=[1])])
    db.execute(change)  # type: ignore[arg-type]
    with pytest.raises(MissingTableError, match=r"into public.t: the table was dropped, renamed"):
        end(db, (load, 1))


def test_lines_of_csv_are_copied_as_they_are(
    db: Connection[Any], begin: Begin, tmp_path: Path
) -> None:
    db.execute("CREATE TABLE t (a int CHECK (a < 100), b text)")
    (path := tmp_path / "t.csv").write_text('a,b\n1,x\n\n2,""\n3,\n4x,bad\n100,large\n')
    bounds = [0, 8, 17, 24, 34]
    parts = [[Range(str(path), *ends)] for ends in pairwise(bounds)]
    load, task = begin("t")
    reader = CsvReader(2, header=b"a,b")
    done = [copy_ranges(task, reader, part, 1, parts[part]) for part in range(2)]
    assert [result.rows_read for result in done] == [1, 2]
    for part, line, reason in ((2, 6, "invalid input syntax"), (3, 7, "violates check")):
        with pytest.raises(BadRowError, match=reason):
            copy_ranges(task, reader, part, 1, parts[part])
        where = f"WHERE part = {part}"
        rejected = rows(db, f"SELECT file, row_number, line FROM idivm.rejected_rows {where}")
        assert rejected == [(str(path), line - 2, line)]
    end(db, (load, 2))
    good = [(1, "x"), (2, ""), (3, None)]
    assert rows(db, "SELECT * FROM t ORDER BY a") == good

    # Lines with bad rows among them, and rows that a key refuses only beside the others.
    db.execute("TRUNCATE t; ALTER TABLE t ADD PRIMARY KEY (a)")
    path.write_text(path.read_text() + "5,a,b\n2,again\n6,z\n")
    load, task = begin("t", quarantine=True, command="quarantined")
    whole = [Range(str(path), 0, path.stat().st_size)]
    done = copy_ranges(task, reader, 0, 1, whole)
    assert (done.rows_read, done.rows_rejected) == (8, 3)
    assert end(db, (load, 1))[load.id].rejected == 4
    assert rows(db, "SELECT * FROM t ORDER BY a") == [*good, (6, "z")]
    positions = rows(
        db, f"SELECT position FROM idivm.rejected_rows WHERE load = {load.id} ORDER BY position"
    )
    text = path.read_bytes()
    assert [text[at:].split(b"\n")[0] for (at,) in positions] == [
        *(b"4x,bad", b"100,large", b"5,a,b", b"2,again"),
    ]


def test_texts_are_utf_8_whatever_the_database_is_in(pg: Any, tmp_path: Path) -> None:
    with psycopg.connect(pg.conninfo("postgres"), autocommit=True) as admin:
        admin.execute("CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
    try:
        dsn = pg.conninfo("latin")
        with psycopg.connect(dsn, autocommit=True) as latin:
            migrate(latin)
            latin.execute("CREATE TABLE t (a text, b int)")
            target = ledger.target_named(latin, parse_name("t"))
            columns = (Column("a", "a", "text"), Column("b", "b", "integer"))
            load = ledger.begin(
                *(latin, target),
                mode="append",
                columns=columns,
                key=(),
                quarantine=False,
                command="c",
            )
            task = CopyTask(dsn, load.id, ("a", "b"))
            (path := tmp_path / "t.csv").write_text("\u00e4,1\n")
            copy_ranges(task, CsvReader(2), 0, 1, [Range(str(path), 0, 5)])
            copy_partition(task, 1, 1, [batch(a=["\u00e4"], b=[2])])
            with latin.transaction():
                commit_loads(latin, [(load, 2)])
            assert rows(latin, "SELECT DISTINCT length(a), ascii(a) FROM t") == [(1, 0xE4)]
            plan = plan_read(dsn, table="t")
            assert [
                record_batch["a"].to_pylist() for record_batch in read_part(plan, plan.parts[0])
            ] == [["\u00e4"] * 2]
    finally:
        with psycopg.connect(pg.conninfo("postgres"), autocommit=True) as admin:
            admin.execute("DROP DATABASE latin WITH (FORCE)")


def staged(db: Connection[Any]) -> list[int]:
    return [
        row[0] for row in rows(db, "SELECT id FROM idivm.loads WHERE status = 'loading' ORDER BY 1")
    ]


def test_what_a_killed_program_leaves_is_removed(
    db: Connection[Any], begin: Begin, dsn: str
) -> None:
    """A program that writes by the data source holds no session of its own, only its tasks do."""
    db.execute("CREATE TABLE t (a int)")

    def killed(layout: str | None, ago: str) -> int:
        with psycopg.connect(dsn, autocommit=True) as other:
            target = ledger.target_named(other, parse_name("t"))
            load = ledger.begin(
                *(other, target),
                mode="append",
                columns=(Column("a", "a", "integer"),),
                key=(),
                quarantine=False,
                command=f"{layout} {ago}",
                layout=layout,
            )
            other.execute("UPDATE idivm.loads SET started_at = now() - %s::interval", [ago])
        copy_partition(CopyTask(dsn, load.id, ("a",), attended=False), 0, 1, [batch(a=[1])])
        # The server sees a little later that the session has ended.
        db.execute(wait, [load.id, load.id])
        return load.id

    wait = "SELECT pg_advisory_lock(1768187767, %s), pg_advisory_unlock(1768187767, %s)"
    frame, recent, old, resumable = (
        killed(None, "1 minute"),
        killed(catalog_loads.DATA_SOURCE, "23 hours"),
        killed(catalog_loads.DATA_SOURCE, "25 hours"),
        killed("a digest", "30 days"),
    )
    running, _ = begin("t")
    # Its last partition is a sign of life, and so is a task that is at one.
    assert catalog_loads.drop_orphans(db) == [frame]
    db.execute(
        "UPDATE idivm.load_parts SET ended_at = now() - interval '25 hours' WHERE load = %s", [old]
    )
    with psycopg.connect(dsn, autocommit=True) as task:
        catalog_loads.attend(task, old)
        assert catalog_loads.drop_orphans(db) == []
    db.execute(wait, [old, old])
    sentences = [finding.sentence for finding in examine(db) if finding.subject == "loads"]
    assert len(sentences) == 2
    assert f"load {resumable} into" in sentences[0] and "--resume" in sentences[0]
    assert sentences[1] == f"removed what was left of load {old}"
    assert staged(db) == [recent, resumable, running.id]
    tables = rows(db, "SELECT relname FROM pg_class WHERE relname ~ '^l[0-9]+$' ORDER BY 1")
    assert tables == [(f"l{number}",) for number in staged(db)]
