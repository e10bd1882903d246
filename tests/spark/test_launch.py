"""The JVM of a short load: started by its own command, early, and ended if no load takes it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from orchestrator import catalog
from orchestrator.cli.load import expects_spark
from orchestrator.spark import archive, launch
from orchestrator.spark.errors import SparkError
from orchestrator.spark.java import Java, find_java
from orchestrator.spark.session import Life, spark_session
from orchestrator.spark.settings import LONG, own_java_options

PACKAGE = Path(pyspark.__file__).parent
WAITS = "exec cat"
"""A Java that, like Spark's, ends when its input ends."""


def program(folder: Path, text: str) -> Path:
    path = folder / "home" / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
    return path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(archive, "cache_directory", lambda: tmp_path)
    for name in list(os.environ):
        if name.startswith(launch.PREFIXES):
            monkeypatch.delenv(name)
    (tmp_path / "java").mkdir()
    return tmp_path


def note(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> launch.Command:
    """Note a command for a program of this text, which `JAVA_HOME` names."""
    java = Java(program(folder, text), 17, frozenset({"jdk.incubator.vector"}))
    monkeypatch.setenv("JAVA_HOME", str(java.program.parent.parent))
    facts = {
        "program": str(java.program),
        "version": java.version,
        "modules": sorted(java.modules),
        "options": ["-Da=b"],
        "class path": "a.jar",
    }
    archive.archive_path(java, PACKAGE).with_suffix(".json").write_text(json.dumps(facts))
    return launch.Command(java, ("-Da=b",), "a.jar")


def test_the_noted_command_is_used_only_where_nothing_changes_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = note(folder, WAITS, monkeypatch)
    assert launch.known_command() == command
    assert launch.known_command({**os.environ, "SPARK_CONF_DIR": "/etc/spark"}) is None
    assert launch.known_command({**os.environ, "SPARK_SUBMIT_OPTS": "-Da=c"}) is None
    assert launch.known_command({**os.environ, "HADOOP_CONF_DIR": "/etc/hadoop"}) is None
    other = program(folder / "other", WAITS)
    assert launch.known_command({"JAVA_HOME": str(other.parent.parent)}) is None
    noted = archive.archive_path(command.java, PACKAGE).with_suffix(".json")
    noted.write_text(noted.read_text()[:-1])
    assert launch.known_command() is None


def test_a_jvm_that_no_load_takes_is_ended(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    note(folder, WAITS, monkeypatch)
    with launch.launched_early():
        early = launch.waiting[0]
        assert early.process.poll() is None
        assert early.folder.is_dir()
    assert early.process.poll() is not None
    assert not early.folder.exists()


def test_a_long_load_ends_the_jvm_of_a_short_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note(folder, WAITS, monkeypatch)
    with launch.launched_early():
        early = launch.waiting[0]
        assert launch.launched(short=False) is None
        assert early.process.poll() is not None
        assert not early.folder.exists()


def test_a_jvm_that_does_not_start_says_why(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    note(folder, "echo 'Error: too little memory' >&2; exit 1", monkeypatch)
    before = dict(os.environ)
    with (
        pytest.raises(SparkError, match=r"^Spark does not start with .*too little memory"),
        spark_session("local[1]", "tests", Life(short=True)),
    ):
        pass
    assert dict(os.environ) == before


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["load", "a.csv", "--into", "t", "--where", "a > 1"], True),
        (["load", "a.csv", "--into", "t", "--select", "a", "--dsn", "dbname=x", "--json"], True),
        (["load", "a.parquet", "--into", "t"], True),
        (["load", "a.csv", "--into", "t"], False),
        (["load", "a.parquet", "--into", "t", "--config", "a=b"], False),
        (["load", "a.parquet", "--into", "t", "--master", "spark://host:7077"], False),
        (["load", "a.parquet", "--into", "t", "--views", "rebuild"], False),
        (["load", "a.parquet", "--into", "t", "--stream"], False),
        (["load", "missing.parquet", "--into", "t"], False),
        (["load", "a.parquet", "--nonsense"], False),
        (["load", "--help"], False),
        (["load"], False),
        (["sql", "-c", "SELECT 1"], False),
    ],
)
def test_java_starts_early_only_for_a_load_that_needs_it(
    arguments: list[str], expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("IDIVM_SPARK_MASTER", raising=False)
    monkeypatch.chdir(tmp_path)
    for name in ("a.csv", "a.parquet"):
        (tmp_path / name).write_text("a\n1\n")
    assert expects_spark(arguments) is expected


@pytest.mark.slow
def test_a_short_session_starts_by_the_noted_command(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = find_java()
    noted = archive.archive_path(java, PACKAGE).with_suffix(".json")
    with spark_session("local[1]", "tests") as session:
        own = Path(session.conf.get("spark.local.dir") or "")
        launch.note_command(java, session._jvm, [*own_java_options(own), *LONG], noted)
    assert str(own) not in noted.read_text()
    with launch.launched_early():
        early = launch.waiting[0].process
        with spark_session("local[2]", "tests", Life(short=True)) as session:
            assert session.sparkContext._gateway.proc is early
            assert session.sparkContext.defaultParallelism == 2
            homes = session.sparkContext.parallelize([0], 1).map(lambda _: pyspark.__file__)
            assert homes.collect() == [pyspark.__file__]
        assert early.poll() is not None
    # A JVM ends with the process that started it.
    orphan = launch.launch(launch.known_command() or pytest.fail("no command is known"))
    try:
        orphan.connection()
        assert orphan.process.stdin is not None
        orphan.process.stdin.close()
        assert orphan.process.wait(60) is not None
    finally:
        orphan.end()


def test_workers_import_little_and_nothing_from_archives() -> None:
    archives = sorted((PACKAGE / "python" / "lib").glob("*.zip"))
    script = (
        "import sys, orchestrator.spark.daemon as daemon; daemon.prepare(); "
        "print(sys.modules['pyspark'].__file__, 'pandas' in sys.modules, 'sqlglot' in sys.modules, sep='\\n');"
        "import pyarrow; pyarrow.array([0]); print('pandas' in sys.modules)"
    )
    path = os.pathsep.join(map(str, [*archives, *filter(None, sys.path)]))
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        check=True,
    )
    assert done.stdout.splitlines() == [pyspark.__file__, "False", "False", "False"]


def test_the_catalog_has_what_it_names() -> None:
    for name in catalog.__all__:
        assert getattr(catalog, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = catalog.nonsense  # type: ignore[attr-defined]
