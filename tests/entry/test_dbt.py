"""The dbt package, with the real dbt, on the project in examples/dbt_shop."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from orchestrator.server.paths import cache_directory

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("dbt-core>=1.10,<1.12", "dbt-postgres>=1.9,<2")
"""Newer versions of dbt-core download a part of themselves from elsewhere than the package index."""


@pytest.fixture(scope="module")
def dbt_python() -> Path:
    """The Python of an environment that has dbt, which is installed once for each machine."""
    folder = cache_directory() / f"dbt-{sys.version_info[0]}.{sys.version_info[1]}"
    python, ready = folder / "bin" / "python", folder / "ready"
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder.parent, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.exists():
            pip = [python, "-m", "pip", "install", "--quiet", "--no-input", *PACKAGES]
            for command in ([sys.executable, "-m", "venv", "--clear", folder], pip):
                if subprocess.run(command, capture_output=True).returncode:
                    pytest.skip("dbt cannot be installed from the package index of this machine")
            ready.touch()
    finally:
        os.close(lock)
    return python


@pytest.mark.slow
@pytest.mark.sampled(4)
def test_dbt_builds_replaces_and_leaves_views(dbt_python: Path, dsn: str, tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(ROOT / "examples" / "dbt_shop", project)
    # As `dbt deps` installs it.
    (project / "packages.yml").unlink()
    shutil.copytree(ROOT / "dbt", project / "dbt_packages" / "idivm")
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE SCHEMA shop")
    parts = conninfo_to_dict(dsn)
    names = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "dbname": "PGDATABASE"}
    surroundings = {
        **os.environ,
        **{variable: str(parts[name]) for name, variable in names.items()},
        "DBT_SEND_ANONYMOUS_USAGE_STATS": "false",
        "PYTHONPATH": "",
    }
    steps = [dbt_python, Path(__file__).with_name("dbt_steps.py"), sys.executable, dsn]
    done = subprocess.run(steps, cwd=project, env=surroundings, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
