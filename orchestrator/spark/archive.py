"""An archive of the classes that Spark loads, with which a JVM starts Spark in half the time.

Java itself checks that an archive fits its own build and Spark's files; it starts without an archive that does
not fit. So an archive only saves time, and is absent if it cannot be created.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from orchestrator.server.paths import cache_directory
from orchestrator.spark.java import Java, find_java
from orchestrator.spark.settings import LONG, SHORT, own_java_options

_KEPT = 3
"""How many archives, for different versions of Java and Spark, are kept."""
_CONTENT = "classes, command"
"""What lies in the cache; another content has other names."""
_SECONDS = 600
"""The seconds that Java may take to write an archive."""


def archive_path(java: Java, package: Path) -> Path:
    """Return the archive's file for a Java and a package of Spark; nothing need be there."""
    library = java.program.parent.parent / "lib" / "modules"
    built = library.stat().st_mtime_ns if library.exists() else 0
    facts = [java.program, built, package, metadata.version("pyspark"), _CONTENT]
    digest = hashlib.sha256(repr([str(fact) for fact in facts]).encode()).hexdigest()
    return cache_directory() / "java" / f"spark-{digest[:16]}.jsa"


def archive_options(java: Java, package: Path) -> list[str]:
    """Return the options by which a JVM uses the archive, if there is an archive."""
    path = archive_path(java, package)
    # An empty file means that the archive could not be created.
    if not path.exists() or not path.stat().st_size:
        return []
    return [f"-XX:SharedArchiveFile={path}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]


def create_in_background(java: Java, package: Path) -> subprocess.Popen[bytes] | None:
    """Start a program that creates a missing archive and outlives this process; return None if none is missing."""
    path = archive_path(java, package)
    if path.exists():
        return None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return subprocess.Popen(
            [sys.executable, "-m", __name__, path],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd=path.parent,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
    except OSError:
        return None


def create(path: Path) -> None:
    """Create an archive of what an exemplary session loads; write an empty file if that fails."""
    with (path.parent / "lock").open("wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return
        if path.exists():
            return
        os.nice(19)
        with tempfile.TemporaryDirectory(dir=path.parent, ignore_cleanup_errors=True) as name:
            created = Path(name) / "created.jsa"
            created.touch()
            with suppress(Exception):
                _record(Path(name), created)
            if (command := created.with_suffix(".json")).exists():
                command.replace(path.with_suffix(".json"))
            created.replace(path)
        others = sorted(path.parent.glob("spark-*.jsa"), key=lambda file: file.stat().st_mtime)
        for file in others[:-_KEPT]:
            file.unlink(missing_ok=True)
            file.with_suffix(".json").unlink(missing_ok=True)


def _record(folder: Path, created: Path) -> None:
    """Run a session that writes its classes to a file when it ends."""
    from orchestrator.spark.launch import note_command
    from orchestrator.spark.session import Life, spark_session

    written = folder / "written.jsa"
    options = [f"-XX:ArchiveClassesAtExit={written}", *SHORT]
    with spark_session(
        "local[1]",
        "idivm archive",
        Life(exit_seconds=_SECONDS),
        **{"spark.driver.extraJavaOptions": " ".join(options)},
    ) as session:
        own = Path(session.conf.get("spark.local.dir") or "")
        note_command(
            find_java(),
            session._jvm,
            [*own_java_options(own), *LONG, *options],
            created.with_suffix(".json"),
        )
        _work(session, folder)
    if written.exists():
        written.replace(created)


def _work(session: Any, folder: Path) -> None:
    """Do what loads do: read files, filter and project rows, pass them through Python."""
    from pyspark.sql import functions as f

    rows = session.range(1000).select(
        "id",
        f.expr("cast(id AS decimal(10,2)) AS price"),
        f.expr("concat('row ', id) AS name"),
        f.expr("timestamp_micros(id) AS moment"),
        f.expr("named_struct('a', id) AS part"),
    )
    for kind in ("parquet", "orc", "json"):
        rows.write.format(kind).save(str(folder / kind))
    rows.select("id", "price", "name").write.option("compression", "gzip").csv(str(folder / "csv"))
    names = rows.columns
    for kind in ("parquet", "orc"):
        read = session.read.format(kind).load(str(folder / kind))
        session.sql("SELECT *, id + 1 AS n FROM {read} WHERE id >= 0", read=read)
        schema = read.schema
        read.where("id >= 0").select(*names).mapInArrow(
            lambda batches: batches, schema
        ).write.format("noop").mode("overwrite").save()
    for kind in ("json", "csv"):
        lines = session.read.format("text").load(str(folder / kind))
        lines = lines.select(f.col("value").cast("binary"), f.input_file_name())
        lines.mapInArrow(lambda batches: batches, lines.schema).where(
            "value IS NOT NULL"
        ).groupBy().count().collect()
    slices = session.sparkContext.parallelize(range(2), 2)
    slices.mapPartitionsWithIndex(lambda _, items: items).count()


if __name__ == "__main__":
    create(Path(sys.argv[1]))
