"""The import table of docs/architecture.md holds for every module, and names say what they hold."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "orchestrator"
SHARED = {"caching", "errors", "interpreted", "resources", "screenful", "session_locks", "sqltext"}


def table() -> dict[str, set[str]]:
    """Each package with the packages that it may import."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    rows = text.partition("| package | may import |")[2].lstrip("\n").partition("\n\n")[0]
    cells = [line.strip("|").split("|") for line in rows.splitlines() if "---" not in line]
    return {
        package.strip(): set(re.findall(r"\w+", allowed))
        for package, allowed in cells
        if package.strip()
    }


def package_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def modules() -> list[Path]:
    return [path for path in sorted(PACKAGE.rglob("*.py")) if path != PACKAGE / "__init__.py"]


ALL_PACKAGES = {package_of(path) for path in modules()}


def imported_packages(source: str, package: str) -> Iterator[str]:
    """The packages that a module imports, wherever in it; `package` is the one it lies in.

    The package itself offers what `api` does.

    >>> code = "import os, orchestrator.api\\nfrom ..algebra import keys\\nfrom . import plan"
    >>> list(imported_packages(code, "orchestrator.strategies"))
    ['api', 'algebra', 'strategies']
    >>> list(imported_packages("from orchestrator import errors, spark", "orchestrator.cli"))
    ['errors', 'spark']
    >>> list(imported_packages("import orchestrator\\nfrom orchestrator import connect", ""))
    ['api', 'api']
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join(above if node.level else []) + (
                f".{node.module}" if node.level and node.module else node.module or ""
            )
            names = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] == "orchestrator":
                known = len(parts) > 1 and parts[1] in ALL_PACKAGES
                yield parts[1] if known else "api"


def test_every_package_is_in_the_table() -> None:
    missing = ALL_PACKAGES - SHARED - set(table())
    assert not missing


def test_the_table_names_only_packages_and_no_circle() -> None:
    allowed = table()
    assert {package for packages in allowed.values() for package in packages} <= set(allowed)
    left = dict(allowed)
    while left:
        free = {package for package, packages in left.items() if not packages & set(left)}
        assert free, f"a circle among {sorted(left)}"
        left = {package: packages for package, packages in left.items() if package not in free}


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_imports_only_packages_it_may(path: Path) -> None:
    own = package_of(path)
    parent = ".".join(("orchestrator", *path.relative_to(PACKAGE).parts[:-1]))
    may = SHARED if own in SHARED else SHARED | {own} | table().get(own, set())
    assert set(imported_packages(path.read_text(), parent)) <= may


MOST_LINES = 450
MOST_MODULES = 16
MANY = {"algebra/operators", "strategies/idiff/rules"}
"""Packages with a module for each operator."""


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_is_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MOST_LINES


def test_a_package_has_few_modules() -> None:
    sizes = Counter(
        path.parent.relative_to(PACKAGE).as_posix()
        for path in modules()
        if path.name != "__init__.py"
    )
    large = {name: n for name, n in sizes.items() if n > MOST_MODULES and name not in MANY}
    assert not large


VAGUE = {"found", "made", "one", "shown", "those", "told"}
"""Words that are no names: a name says what the thing is, or what a function returns or does."""
RIGHT = {
    # A field of stored plans: the variables that the columns of a view show.
    ("deltascript/plan/enumeration.py", "shown"),
    # The unit of a ring.
    ("algebra/ring.py", "one"),
    ("fuzz/queries/rings.py", "one"),
    # The number 1 in expressions.
    ("strategies/idiff/shifts.py", "_ONE"),
    ("strategies/viewtree/sums.py", "ONE"),
}


def given_names(source: str) -> Iterator[tuple[int, str]]:
    """Yield the names that a module gives to functions, classes, parameters, variables and attributes.

    >>> code = "def f(a, *b):\\n  for c, d.e in a: pass\\n  return [g for g in b]\\nclass H:\\n  i: int = 0"
    >>> sorted(name for _, name in given_names(code))
    ['H', 'a', 'b', 'c', 'e', 'f', 'g', 'i']
    >>> code = "import a as b\\ntry: pass\\nexcept E as c: pass\\nmatch x:\\n  case [d, *e]: pass"
    >>> sorted(name for _, name in given_names(code))
    ['b', 'c', 'd', 'e']
    """
    for node in ast.walk(ast.parse(source)):
        match node:
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
            ):
                yield node.lineno, name
            case (
                ast.ExceptHandler(name=str(name))
                | ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
            ):
                yield node.lineno, name
            case ast.arg(arg=name):
                yield node.lineno, name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name
            case ast.alias(asname=str(name)):
                yield node.lineno, name


@pytest.mark.slow
def test_no_name_is_a_vague_word() -> None:
    vague = [
        f"{where}:{line}: {name}"
        for folder in (PACKAGE, ROOT / "tests")
        for path in sorted(folder.rglob("*.py"))
        if (where := path.relative_to(folder).as_posix())
        for line, name in given_names(path.read_text())
        if name.strip("_").lower() in VAGUE and (where, name) not in RIGHT
    ]
    assert not vague
