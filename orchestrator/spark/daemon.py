"""The process that forks Spark's Python workers on this machine.

It imports once what tasks of loads need, so that a worker starts in milliseconds instead of a second.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

_MODULES = (
    "pyspark.worker",
    "orchestrator.spark.formats.text",
    "orchestrator.spark.loading.copying",
)


def without_archives(path: Sequence[str]) -> list[str]:
    """Return a module path without the archives of PySpark, if PySpark is installed as well.

    Spark puts the archives first. Python compiles a module of an archive at each import.

    >>> without_archives(["/spark/python/lib/pyspark.zip", "/spark/python/lib/py4j-0.10-src.zip", "/own"])
    ['/own']
    """
    archives = [f"{os.sep}python{os.sep}lib{os.sep}{name}" for name in ("pyspark", "py4j")]
    return [
        entry
        for entry in path
        if not (entry.endswith(".zip") and any(archive in entry for archive in archives))
    ]


class _NoPandas(MetaPathFinder):
    """Finds no Pandas."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname)
        return None


@contextmanager
def without_pandas() -> Iterator[None]:
    """Let imports of Pandas fail for a block."""
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def prepare() -> None:
    """Import what tasks need."""
    before = sys.path[:]
    sys.path[:] = without_archives(before)
    if find_spec("pyspark") is None or find_spec("py4j") is None:
        sys.path[:] = before
    for module in _MODULES:
        import_module(module)
    from orchestrator.spark.formats.arrow import pa

    # With its first array, PyArrow imports Pandas, which tasks do not use.
    with without_pandas():
        pa.array([0])


if __name__ == "__main__":
    prepare()
    from pyspark.daemon import manager

    manager()
