"""The script `run`, on a small project that needs no network, by real environments."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.server.unprivileged import server_account

RUN = Path(__file__).resolve().parent.parent / "run"

PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""

BACKEND = '''
"""Builds an editable wheel of this folder, and keeps count."""

import zipfile
from pathlib import Path


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    with open("built", "a") as built:
        built.write("once\\n")
    name, info = "idivm-1-py3-none-any.whl", "idivm-1.dist-info"
    extras = "Provides-Extra: embedded\\nProvides-Extra: dev\\n"
    files = {
        "idivm.pth": str(Path.cwd()),
        f"{info}/METADATA": f"Metadata-Version: 2.1\\nName: idivm\\nVersion: 1\\n{extras}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
        f"{info}/entry_points.txt": "[console_scripts]\\nidivm = orchestrator.cli:main\\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{file},,\\n" for file in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(Path(wheel_directory) / name, "w") as wheel:
        for file, text in files.items():
            wheel.writestr(file, text)
    return name
'''

SHOW = "import sys; print(*sys.argv[1:], flush=True)\n"

FILES = {
    "pyproject.toml": PYPROJECT,
    "backend.py": BACKEND,
    "orchestrator/__init__.py": "",
    "orchestrator/demo.py": "import os, sys\nprint('demo in', os.getcwd())\nsys.exit(3)\n",
    "orchestrator/cli.py": f"def main():\n    {SHOW}    return 4\n",
    # The tools of `run test`, which say how they were called.
    "ruff.py": SHOW,
    "mypy.py": "import os, sys\nprint('mypy complains')\nsys.exit('MYPY_FAILS' in os.environ)\n",
    "pytest.py": "import os\nprint('told of', os.environ.get('IDIVM_FAILED_STEPS'))\n" + SHOW,
}


class Checkout:
    """A project with the real `run` in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name, text in FILES.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        shutil.copy(RUN, folder)

    def start(self, *arguments: str, python: str = sys.executable, **options: Any) -> Any:
        environment = {**os.environ, "PIP_NO_INDEX": "1", **options.pop("env", {})}
        return subprocess.Popen(
            [python, str(self.folder / "run"), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            **options,
        )

    def run(self, *arguments: str, **options: Any) -> tuple[int, str, str]:
        process = self.start(*arguments, **options)
        out, err = process.communicate()
        return process.returncode, out, err

    @property
    def installs(self) -> int:
        built = self.folder / "built"
        return len(built.read_text().splitlines()) if built.exists() else 0


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    """A checkout whose environment is made, in a folder with a space in its name."""
    created = Checkout(tmp_path_factory.mktemp("with space"))
    status, out, err = created.run("demo", cwd="/")
    assert (status, out) == (3, "demo in /\n"), err
    assert "making a Python environment" in err
    assert created.installs == 1
    yield created


@pytest.mark.slow
def test_the_second_time_is_silent_and_installs_nothing(checkout: Checkout) -> None:
    before = checkout.installs
    assert checkout.run("demo", cwd="/") == (3, "demo in /\n", "")
    assert checkout.installs == before


def test_the_command_line_gets_its_arguments(checkout: Checkout) -> None:
    assert checkout.run("idivm", "sql", "-c", "SELECT 1; --") == (4, "sql -c SELECT 1; --\n", "")


@pytest.mark.slow
def test_a_changed_project_is_installed_again(checkout: Checkout) -> None:
    before = checkout.installs
    with (checkout.folder / "pyproject.toml").open("a") as project:
        project.write("\n")
    _, _, err = checkout.run("demo")
    assert "installing packages" in err
    assert "making a Python environment" not in err
    assert checkout.installs == before + 1


@pytest.mark.slow
def test_an_environment_that_no_longer_runs_is_made_again(checkout: Checkout) -> None:
    python = checkout.folder / ".venv" / "bin" / "python"
    python.unlink()
    python.symlink_to("/nowhere/python3")
    status, _, err = checkout.run("demo")
    assert status == 3, err
    assert "making a Python environment" in err


@pytest.mark.slow
def test_the_tests_come_last_and_know_what_failed_before(checkout: Checkout) -> None:
    status, out, _ = checkout.run("test", "-k", "word", env={"MYPY_FAILS": "1"})
    assert status == 1
    failures, arguments = out.splitlines()[-2:]
    assert failures == "told of mypy"
    assert arguments.endswith("-k word")
    assert "mypy complains" in out
    status, out, err = checkout.run("test", "tests/test_run.py", cwd=RUN.parent)
    assert status == 0
    assert out.splitlines()[0] == "told of None"
    assert out.splitlines()[-1].endswith(f" {RUN.parent}/tests/test_run.py")
    assert [line for line in err.splitlines() if line.startswith("run: ruff")] == [
        "run: ruff check: ok",
        "run: ruff format: ok",
    ]


@pytest.mark.slow
def test_two_at_once_make_one_environment(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path / "checkout")
    both = [checkout.start("demo") for _ in range(2)]
    for process in both:
        out, err = process.communicate()
        assert out.startswith("demo in"), err
        assert process.returncode == 3
    assert checkout.installs == 1


@pytest.mark.slow
def test_a_checkout_that_cannot_be_written_is_left_alone(scratch: Path) -> None:
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin:/bin")
    usable = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))"
    if not python or subprocess.run([python, "-c", usable], stderr=subprocess.PIPE).returncode:
        pytest.skip("no Python that every user may run")
    account = server_account()
    cache = scratch / "another user's cache"
    cache.mkdir()
    account.own(cache)
    checkout = Checkout(scratch / "read-only checkout")
    # The backend may count, but nothing else may be written.
    (checkout.folder / "built").touch(0o666)
    (checkout.folder / "built").chmod(0o666)
    for folder in (checkout.folder / "orchestrator", checkout.folder):
        folder.chmod(0o555)
    before = sorted(checkout.folder.rglob("*"))
    identity = {"user": account.uid, "group": account.gid} if os.geteuid() == 0 else {}
    surroundings = {"XDG_CACHE_HOME": str(cache), "PYTHONDONTWRITEBYTECODE": "1"}
    for _ in range(2):
        status, out, err = checkout.run(
            "demo", python=python, cwd="/", env=surroundings, **identity
        )
        assert (status, out) == (3, "demo in /\n"), err
    assert checkout.installs == 1
    assert sorted(checkout.folder.rglob("*")) == before


def pretending(preparation: str, *arguments: str, path: Path) -> tuple[int, str]:
    """Runs `run` in a Python that first does something to itself."""
    program = f"import sys, runpy; {preparation}; runpy.run_path({str(RUN)!r}, run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={"PATH": str(path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.returncode, done.stdout


def test_an_old_python_says_what_to_install(tmp_path: Path) -> None:
    status, said = pretending("sys.version_info = (3, 9, 2)", "demo", path=tmp_path)
    assert status == 2
    assert said.startswith("run: Python 3.10 or newer is needed, and this is 3.9: install")
    assert len(said.splitlines()) == 1


def test_an_old_python_steps_aside_for_a_newer_one(tmp_path: Path) -> None:
    newer = tmp_path / "python3.12"
    newer.write_text('#!/bin/sh\necho "newer: $@"\n')
    newer.chmod(0o755)
    status, said = pretending(
        f"sys.version_info = (3, 9, 2); sys.argv[0] = {str(RUN)!r}", "demo", path=tmp_path
    )
    assert (status, said) == (0, f"newer: {RUN} demo\n")


def test_a_python_without_venv_says_what_to_install(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path)
    preparation = f"sys.modules['ensurepip'] = None; RUN = {str(checkout.folder / 'run')!r}"
    program = f"import sys, runpy; {preparation}; runpy.run_path(RUN, run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", program, "demo"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == (
        "run: Python's venv is missing: install it (on Debian and Ubuntu the package "
        "python3-venv).\n"
    )


@pytest.mark.slow
def test_packages_that_cannot_be_had_are_explained(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path)
    (tmp_path / "pyproject.toml").write_text(PYPROJECT.replace("[]", '["a-package-to-be-had"]'))
    status, _, err = checkout.run("demo")
    assert status == 2
    assert "a-package-to-be-had" in err
    assert "the packages could not be installed, for the reason above" in err.splitlines()[-1]


def test_even_old_pythons_can_read_it() -> None:
    ast.parse(RUN.read_text(), feature_version=(3, 6))


@pytest.mark.parametrize(("arguments", "status"), [([], 2), (["dance"], 2), (["--help"], 0)])
def test_it_explains_itself(arguments: list[str], status: int) -> None:
    done = subprocess.run([RUN, *arguments], capture_output=True, text=True)
    assert done.returncode == status
    assert "./run demo" in (done.stderr if status else done.stdout)
