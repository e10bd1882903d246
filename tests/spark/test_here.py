"""Plain CSV on this machine: loads that start no Java."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from orchestrator.api import Orchestrator
from orchestrator.errors import NotFoundError, UsageError
from orchestrator.spark.errors import LoadError
from orchestrator.spark.loading import load as loading


class StartedError(Exception):
    """Spark would have been started."""


@pytest.fixture
def files(orc: Orchestrator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def started(*_: Any, **__: Any) -> Any:
        raise StartedError

    monkeypatch.setattr(loading, "spark_session", started)
    orc.execute("CREATE TABLE t (a int PRIMARY KEY, b text)")
    for number in range(3):
        (tmp_path / f"{number}.csv").write_text(f'a,b\n{number},x\n\n{number + 10},""\n')
    return tmp_path


def content(orc: Orchestrator) -> list[tuple[Any, ...]]:
    return orc.connection.execute("SELECT a, b FROM t ORDER BY a").fetchall()


def test_plain_files_are_loaded_without_spark(orc: Orchestrator, files: Path) -> None:
    both = [(number, text) for text in ("x", "") for number in range(3)]
    wanted = [(number + 10 * (text == ""), text) for number, text in both]
    for source in (files, files / "*.csv", [files / f"{number}.csv" for number in range(3)]):
        orc.execute("TRUNCATE t")
        report = orc.load(source, "t", again=True, partitions=2)
        assert (report.tables[0].loaded, content(orc)) == (6, wanted)
    assert orc.load(files, "t").tables[0].again
    (files / "bad.csv").write_text("a,b\n20,x\n1,again\n21x,bad\n")
    with pytest.raises(LoadError, match=r"bad.csv, line 4, column a: .*21x"):
        orc.load(files / "bad.csv", "t")
    (table,) = orc.load(files / "bad.csv", "t", on_bad_row="quarantine").tables
    assert [(row.line, row.column) for row in table.rejected_rows] == [(3, "a"), (4, "a")]
    assert content(orc) == [*wanted, (20, "x")]


def test_what_else_there_is_takes_spark(orc: Orchestrator, files: Path) -> None:
    for said in (
        *({"where": "a > 0"}, {"config": {"spark.ui.port": 1}}, {"master": "spark://host:7077"}),
        *({"options": {name: value}} for name, value in (("multiLine", "true"), ("escape", "!"))),
    ):
        with pytest.raises(StartedError):
            orc.load(files, "t", **said)
    with pytest.raises(StartedError):
        orc.load(files, "made", create=True)
    (files / "year=1").mkdir()
    with pytest.raises(StartedError):
        orc.load(files, "t")
    with pytest.raises(UsageError, match="no option comment"):
        orc.load(files, "t", options={"comment": "#"}, where="a > 0")
    with pytest.raises(NotFoundError, match="no file or folder"):
        orc.load(files / "missing.csv", "t")


def test_an_error_at_the_end_names_files_and_table(orc: Orchestrator, files: Path) -> None:
    (files / "2.csv").write_text("a,b\n1,x\n1,y\n")
    with pytest.raises(LoadError, match=r"2.csv, line 3, column a: .*same key: \(1\)") as raised:
        orc.load(files / "2.csv", "t", mode="replace")
    assert "--order" not in str(raised.value)  # which only upsert has
    orc.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$"
        " BEGIN RAISE EXCEPTION 'not today.'; END $$;"
        "CREATE TRIGGER refuse BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION refuse()"
    )
    with pytest.raises(LoadError, match=r"loaded into t from \S+/1.csv: not today. Correct the"):
        orc.load(files / "1.csv", "t")
    assert orc.connection.execute("SELECT count(*) FROM idivm.load_parts").fetchone() == (0,)
    orc.execute("DROP TRIGGER refuse ON t")
    assert orc.load(files / "1.csv", "t").tables[0].loaded == 2


def test_a_header_that_names_a_column_twice_is_refused(orc: Orchestrator, files: Path) -> None:
    (path := files / "twice.csv").write_text("a,b,a\n1,x,2\n")
    with pytest.raises(LoadError, match=r"twice.csv, line 1: .* column a several times: .* a0, a2"):
        orc.load(path, "t")
    path.write_text("a,a0,a\n1,x,2\n")
    with pytest.raises(LoadError, match=r"twice.csv, line 1: .* column a several times: correct"):
        orc.load(path, "t")


def test_keys_that_are_checked_at_the_commit_are_named(orc: Orchestrator, files: Path) -> None:
    orc.execute("CREATE TABLE d (a int UNIQUE DEFERRABLE INITIALLY DEFERRED, b text)")
    (path := files / "d.csv").write_text("a,b\n1,x\n2,y\n1,z\n")
    with pytest.raises(LoadError, match=r"d\.csv, line 4, column a: .* the same key: \(1\)"):
        orc.load(path, "d")
    (table,) = orc.load(path, "d", on_bad_row="quarantine").tables
    assert [(row.line, row.column) for row in table.rejected_rows] == [(4, "a")]


def test_rows_whose_period_is_not_covered_are_rejected(
    orc: Orchestrator, files: Path, pg_version: int
) -> None:
    if pg_version < 18:
        pytest.skip("PERIOD and NOT ENFORCED exist from version 18 on")
    orc.execute("""
        CREATE TABLE p (id int4range, at int4range, PRIMARY KEY (id, at WITHOUT OVERLAPS));
        CREATE TABLE c (id int4range, at int4range, n int REFERENCES t NOT ENFORCED,
                        FOREIGN KEY (id, PERIOD at) REFERENCES p (id, PERIOD at));
        INSERT INTO p VALUES ('[1,2)', '[1,3)'), ('[1,2)', '[3,5)')
    """)
    (path := files / "c.csv").write_text(
        'id,at,n\n"[1,2)","[2,4)",5\n"[1,2)","[4,6)",5\n,"[4,6)",5\n'
    )
    (table,) = orc.load(path, "c", on_bad_row="quarantine").tables
    assert [(row.line, row.column) for row in table.rejected_rows] == [(3, "id, at")]
    assert table.loaded == 2
