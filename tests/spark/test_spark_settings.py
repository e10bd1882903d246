"""What a Spark session is told, for this machine and for a cluster."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from orchestrator.spark.loading.progress import Clock
from orchestrator.spark.local_files import is_small
from orchestrator.spark.settings import SHORT, environment, settings

CLUSTER = "spark://somewhere:7077"


def test_a_local_session_listens_on_the_loopback_alone(tmp_path: Path) -> None:
    values = settings("local[2]", "app", tmp_path)
    assert values["spark.driver.bindAddress"] == values["spark.driver.host"] == "127.0.0.1"
    assert environment("local[2]", tmp_path, tmp_path, tmp_path)["SPARK_LOCAL_IP"] == "127.0.0.1"


def test_a_cluster_may_reach_the_session(tmp_path: Path) -> None:
    values = settings(CLUSTER, "app", tmp_path)
    assert not {"spark.driver.bindAddress", "spark.driver.host"} & set(values)
    assert "SPARK_LOCAL_IP" not in environment(CLUSTER, tmp_path, tmp_path, tmp_path)


def test_workers_run_this_python_unless_a_cluster_has_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/elsewhere/python")
    assert environment("local", tmp_path, tmp_path, tmp_path)["PYSPARK_PYTHON"] == sys.executable
    assert (
        environment(CLUSTER, tmp_path, tmp_path, tmp_path)["PYSPARK_PYTHON"] == "/elsewhere/python"
    )
    monkeypatch.delenv("PYSPARK_PYTHON")
    assert environment(CLUSTER, tmp_path, tmp_path, tmp_path)["PYSPARK_PYTHON"] == sys.executable


def test_spark_finds_a_python_whose_path_has_a_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spaced = tmp_path / "my idivm" / "python"
    spaced.parent.mkdir()
    spaced.write_text('#!/bin/sh\necho "$0 $#"')
    spaced.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(spaced))
    changes = environment("local", tmp_path, tmp_path, tmp_path)
    assert changes["PYSPARK_PYTHON"] == str(spaced)
    program = changes["PYSPARK_DRIVER_PYTHON"]
    # Spark looks for it in this way, and starts it without a shell.
    assert subprocess.run(f"command -v {program}", shell=True).returncode == 0
    output = subprocess.run([str(program), "a b", "c"], capture_output=True, text=True).stdout
    assert output == f"{spaced} 2\n"


def test_the_caller_has_the_last_word(tmp_path: Path) -> None:
    plain = settings("local", "app", tmp_path)
    assert plain["spark.ui.enabled"] == "false"
    values = settings(
        "local", "app", tmp_path, {"spark.ui.enabled": True, "spark.sql.shuffle.partitions": 3}
    )
    assert values == {**plain, "spark.ui.enabled": "true", "spark.sql.shuffle.partitions": "3"}


def test_memory_is_bounded(tmp_path: Path) -> None:
    memory = settings("local", "app", tmp_path)["spark.driver.memory"]
    assert memory.endswith("m")
    assert 1024 <= int(memory[:-1]) <= 4096


def test_every_file_of_a_session_lies_in_its_folder() -> None:
    folder = Path('/a folder/that\'s "new"')
    values = settings("local", "app", folder)
    options = shlex.split(values["spark.driver.defaultJavaOptions"])
    assert f"-Djava.io.tmpdir={folder}" in options
    assert values["spark.local.dir"] == str(folder)
    assert values["spark.sql.warehouse.dir"].startswith("file:///a%20folder/")


def test_the_log_configuration_is_part_of_the_package(tmp_path: Path) -> None:
    option = shlex.split(settings("local", "a", tmp_path)["spark.driver.defaultJavaOptions"])[0]
    name, _, uri = option.partition("=")
    assert name == "-Dlog4j2.configurationFile"
    # A folder's name may hold what a URI writes as an escape.
    assert Path(unquote(urlsplit(uri).path)).is_file()


def test_a_user_without_an_account_gets_a_name_and_a_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(uid: int) -> None:
        raise KeyError(uid)

    assert "SPARK_USER" not in environment("local", tmp_path, tmp_path, tmp_path)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    assert (
        f"-Duser.home={tmp_path}"
        in settings("local", "a", tmp_path)["spark.driver.defaultJavaOptions"]
    )
    assert environment("local", tmp_path, tmp_path, tmp_path)["SPARK_USER"]


def test_options_of_java_belong_to_the_session(tmp_path: Path) -> None:
    values = settings("local", "app", tmp_path, java_options=SHORT)
    options = shlex.split(values["spark.driver.defaultJavaOptions"])
    assert set(SHORT) < set(options)
    assert f"-Djava.io.tmpdir={tmp_path}" in options


def test_a_small_source_is_known_by_its_files(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a\n1\n")
    with (tmp_path / "big.csv").open("wb") as big:
        big.truncate(1 << 30)
    assert is_small((str(tmp_path / "a.csv"),))
    assert is_small((str(tmp_path / "a*.csv"),))
    for path in (tmp_path, tmp_path / "big.csv", "s3a://bucket/a.csv", "jdbc:postgresql://h/d"):
        assert not is_small((str(path),))
    assert not is_small((str(tmp_path / "missing.csv"),))


def test_the_time_of_a_stage_within_another_counts_once() -> None:
    clock = Clock()
    started = time.perf_counter()
    with clock.stage("outer"), clock.stage("inner"):
        pass
    with clock.stage("inner"):
        pass
    assert list(clock.stages) == ["inner", "outer"]
    assert sum(clock.stages.values()) <= time.perf_counter() - started
