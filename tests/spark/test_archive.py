"""The archive of classes that makes Spark start faster."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark
import pytest

from orchestrator.spark import archive
from orchestrator.spark.java import Java, find_java
from orchestrator.spark.session import Life, spark_session

PACKAGE = Path(pyspark.__file__).parent


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(archive, "cache_directory", lambda: tmp_path)
    monkeypatch.setattr(os, "nice", lambda _: 0)
    (tmp_path / "java").mkdir()
    return tmp_path / "java"


def records(content: bytes) -> Callable[[Path, Path], None]:
    def record(_: Path, created: Path) -> None:
        created.write_bytes(content)

    return record


def test_an_archive_that_exists_is_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = Java(folder / "bin" / "java", 17, frozenset())
    path = archive.archive_path(java, PACKAGE)
    assert archive.archive_options(java, PACKAGE) == []
    monkeypatch.setattr(archive, "_record", records(b"classes"))
    archive.create(path)
    assert archive.archive_options(java, PACKAGE)[0] == f"-XX:SharedArchiveFile={path}"
    assert archive.create_in_background(java, PACKAGE) is None
    newer = Java(folder / "other" / "java", 21, frozenset())
    assert archive.archive_options(newer, PACKAGE) == []


def test_an_archive_that_cannot_be_created_is_not_tried_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Path) -> None:
        raise OSError

    java = Java(folder / "bin" / "java", 17, frozenset())
    path = archive.archive_path(java, PACKAGE)
    monkeypatch.setattr(archive, "_record", fail)
    archive.create(path)
    assert archive.archive_options(java, PACKAGE) == []
    assert archive.create_in_background(java, PACKAGE) is None
    assert sorted(folder.iterdir()) == sorted([folder / "lock", path])


def test_one_process_creates_an_archive_and_few_are_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "_record", records(b"classes"))
    with (folder / "lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        archive.create(folder / "spark-0.jsa")
    assert not (folder / "spark-0.jsa").exists()
    for number in range(5):
        archive.create(folder / f"spark-{number}.jsa")
        os.utime(folder / f"spark-{number}.jsa", (number, number))
    archive.create(folder / "spark-5.jsa")
    left = sorted(path.name for path in folder.glob("*.jsa"))
    assert left == ["spark-3.jsa", "spark-4.jsa", "spark-5.jsa"]


def test_a_cache_that_cannot_be_written_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(archive, "cache_directory", lambda: tmp_path / "file")
    java = Java(tmp_path / "java", 17, frozenset())
    assert archive.create_in_background(java, PACKAGE) is None


@pytest.mark.sampled(6)
@pytest.mark.slow
def test_java_uses_the_archive(folder: Path) -> None:
    java = find_java()
    path = archive.archive_path(java, PACKAGE)
    archive.create(path)
    if not archive.archive_options(java, PACKAGE):
        pytest.skip("this Java cannot write archives")
    settings: dict[str, Any] = {"spark.driver.memory": "1g"}
    with spark_session("local[1]", "a job", Life(short=True), **settings) as session:
        process = session.sparkContext._gateway.proc.pid
        assert str(path) in Path(f"/proc/{process}/maps").read_text()
        assert session.range(3).count() == 3
