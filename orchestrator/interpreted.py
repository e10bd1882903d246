"""sqlglot from its sources: the compiled modules that the package sqlglotc adds cannot be extended."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
)
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

PACKAGE = "sqlglot"
EXTENDED = "generator"
"""A module that is compiled if any is."""


class Sources(MetaPathFinder):
    """Finds the sources of sqlglot's modules where there are compiled ones beside them."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Where a module of sqlglot's is; of others it knows nothing."""
        if path is None or not fullname.startswith(f"{PACKAGE}."):
            return None
        finders = (FileFinder(folder, (SourceFileLoader, SOURCE_SUFFIXES)) for folder in path)
        return next((spec for finder in finders if (spec := finder.find_spec(fullname))), None)


def prefer_sources() -> None:
    """Has sqlglot loaded from its sources, unless it never was compiled."""
    loaded = sys.modules.get(f"{PACKAGE}.{EXTENDED}")
    if loaded is not None:
        if str(loaded.__file__).endswith(tuple(EXTENSION_SUFFIXES)):
            raise ImportError(
                "sqlglot was loaded in compiled form (the package sqlglotc), which idivm cannot"
                " extend: import orchestrator before it, or uninstall sqlglotc."
            )
        return
    package = find_spec(PACKAGE)
    folder = Path(package.origin or "").parent if package else Path()
    if any((folder / f"{EXTENDED}{suffix}").exists() for suffix in EXTENSION_SUFFIXES):
        sys.meta_path.insert(0, Sources())
