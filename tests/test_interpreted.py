"""idivm extends sqlglot's classes, and so needs them as Python sources."""

import importlib.machinery
import subprocess
import sys

import pytest

SUFFIX = importlib.machinery.EXTENSION_SUFFIXES[0]


@pytest.fixture
def compiled(tmp_path):
    """A folder with a sqlglot that has compiled modules, or what passes for them."""
    package = tmp_path / "sqlglot"
    (package / "parts").mkdir(parents=True)
    for folder in (package, package / "parts"):
        for module in ("__init__.py", "generator.py", f"generator{SUFFIX}"):
            (folder / module).touch()
    return tmp_path


def run(folder, script):
    return subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(folder)!r}); {script}"],
        capture_output=True,
        text=True,
    )


def test_sources_are_preferred_to_compiled_modules(compiled):
    imported = "import sqlglot.generator, sqlglot.parts.generator as g; print(g.__file__)"
    assert run(compiled, f"import orchestrator; {imported}").stdout.strip().endswith(".py")
    assert "ImportError" in run(compiled, imported).stderr


def test_a_compiled_one_that_is_loaded_is_refused(compiled):
    script = (
        "import types; m = sys.modules['sqlglot.generator'] = types.ModuleType('sqlglot.generator');"
        f" m.__file__ = 'generator{SUFFIX}'; import orchestrator"
    )
    assert "uninstall sqlglotc" in run(compiled, script).stderr
