"""The import table of docs/architecture.md holds for every module."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "orchestrator"
SHARED = {"errors", "interpreted", "resources", "sqltext"}


def table() -> dict[str, set[str]]:
    """Each room with the rooms that it may import."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    rows = text.partition("| room | may import |")[2].lstrip("\n").partition("\n\n")[0]
    cells = [line.strip("|").split("|") for line in rows.splitlines() if "---" not in line]
    return {
        room.strip(): set(re.findall(r"\w+", allowed)) for room, allowed in cells if room.strip()
    }


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def modules() -> list[Path]:
    return [path for path in sorted(PACKAGE.rglob("*.py")) if path != PACKAGE / "__init__.py"]


ALL_ROOMS = {room_of(path) for path in modules()}


def imported_rooms(source: str, package: str) -> Iterator[str]:
    """The rooms that a module imports, wherever in it; `package` is the one it lies in.

    The package itself offers what `api` does.

    >>> code = "import os, orchestrator.api\\nfrom ..algebra import keys\\nfrom . import plan"
    >>> list(imported_rooms(code, "orchestrator.strategies"))
    ['api', 'algebra', 'strategies']
    >>> list(imported_rooms("from orchestrator import errors, spark", "orchestrator.cli"))
    ['errors', 'spark']
    >>> list(imported_rooms("import orchestrator\\nfrom orchestrator import connect", ""))
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
                known = len(parts) > 1 and parts[1] in ALL_ROOMS
                yield parts[1] if known else "api"


def test_every_room_is_in_the_table() -> None:
    missing = ALL_ROOMS - SHARED - set(table())
    assert not missing


def test_the_table_names_only_rooms_and_no_circle() -> None:
    allowed = table()
    assert {room for rooms in allowed.values() for room in rooms} <= set(allowed)
    left = dict(allowed)
    while left:
        free = {room for room, rooms in left.items() if not rooms & set(left)}
        assert free, f"a circle among {sorted(left)}"
        left = {room: rooms for room, rooms in left.items() if room not in free}


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_imports_only_rooms_it_may(path: Path) -> None:
    room = room_of(path)
    package = ".".join(("orchestrator", *path.relative_to(PACKAGE).parts[:-1]))
    may = SHARED if room in SHARED else SHARED | {room} | table().get(room, set())
    assert set(imported_rooms(path.read_text(), package)) <= may
