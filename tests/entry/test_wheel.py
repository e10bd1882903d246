"""The wheel: what a user gets who installs idivm from it."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tarfile
import venv
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def built(folder: Path, target: str) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory"]
    done = subprocess.run([*command, str(folder)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    [file] = folder.iterdir()
    return file


def test_the_source_distribution_has_what_a_build_and_the_tests_need(tmp_path: Path) -> None:
    with tarfile.open(built(tmp_path, "sdist")) as archive:
        files = {name.partition("/")[2] for name in archive.getnames()}
    needed = [
        "run",
        "LICENSE",
        "README.md",
        "mkdocs.yml",
        "docker/compose.yaml",
        "examples/flights.ipynb",
    ]
    needed += ["pg_extension/Makefile", "packaging/idivm.service", "sql/flights/load.sql"]
    assert [name for name in needed if name not in files] == []
    assert not [name for name in files if "__pycache__" in name or name.startswith(".venv")]


def test_every_extra_is_documented_with_its_packages() -> None:
    import idivm as installed

    text = (ROOT / "docs" / "reference" / "packages.md").read_text()
    rows = [line.split("|") for line in text.splitlines() if line.startswith("| `")]
    documented = {row[1].strip(" `"): set(row[3].replace(",", " ").split()) for row in rows}
    package = distribution(installed.__name__)
    declared: dict[str, set[str]] = {
        extra: set() for extra in package.metadata.get_all("Provides-Extra") or []
    }
    for requirement in map(Requirement, package.requires or []):
        for extra in declared:
            with_it = requirement.marker is not None and any(
                requirement.marker.evaluate({"extra": extra, "python_version": version})
                for version in ("3.10", "3.13")
            )
            if with_it and not requirement.marker.evaluate({"extra": ""}):
                declared[extra].add(canonicalize_name(requirement.name))
    assert documented.keys() == declared.keys()
    for extra in declared.keys() - {"dev"}:
        assert set(map(canonicalize_name, documented[extra])) == declared[extra]


def test_the_bill_of_materials_lists_each_needed_package_once() -> None:
    command = [sys.executable, str(ROOT / "packaging" / "sbom.py"), "metrics"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    bill = json.loads(done.stdout)
    names = [component["name"] for component in bill["components"]]
    assert {"psycopg", "psycopg-binary", "rich", "sqlglot", "prometheus-client"} <= set(names)
    assert len(names) == len(set(names)) and "pyspark" not in names
    references = {component["bom-ref"] for component in bill["components"]}
    references.add(bill["metadata"]["component"]["bom-ref"])
    assert {entry["ref"] for entry in bill["dependencies"]} == references


@pytest.mark.slow
@pytest.mark.sampled(4)
def test_the_wheel_works_where_there_is_no_checkout(tmp_path: Path, plain_dsn: str) -> None:
    build = ["pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"]
    command = [sys.executable, "-m", *build, str(tmp_path), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    [wheel] = tmp_path.glob("idivm-*.whl")
    assert digest(wheel) == digest(built(tmp_path / "again", "wheel"))
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
