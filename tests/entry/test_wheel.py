"""The wheel: what a user gets who installs idivm from it."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_wheel_works_where_there_is_no_checkout(tmp_path: Path, plain_dsn: str) -> None:
    build = ["pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"]
    command = [sys.executable, "-m", *build, str(tmp_path), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    [wheel] = tmp_path.glob("idivm-*.whl")
    # The packages that idivm needs come from the environment of the tests; idivm itself does not.
    folder = tmp_path / "venv"
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    [site] = (folder / "lib").glob("python*/site-packages")
    install = ["pip", "--python", str(python), "install", "--quiet", "--no-deps", str(wheel)]
    subprocess.run([sys.executable, "-m", *install], check=True, capture_output=True)
    import psycopg

    (site / "tests.pth").write_text(str(Path(psycopg.__file__).parents[1]))

    def run(*command: str) -> str:
        surroundings = {**os.environ, "PYTHONPATH": ""}
        done = subprocess.run(
            [str(python), *command], cwd=tmp_path, env=surroundings, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    program = str(folder / "bin" / "idivm")
    modules = "idivm, idivm.sqlalchemy, idivm.alembic, orchestrator.demo"
    assert str(site) in run("-c", f"import {modules}; print(idivm.connect, idivm.__file__)")
    assert run(program, "--version").startswith("idivm ")
    # The catalog comes from files in the wheel.
    script = "CREATE VIEW v AS SELECT 1 AS one; TABLE v"
    assert "strategy id" in run(program, "sql", "--dsn", plain_dsn, "-c", script)
