"""Load files: several tables in one job, written in TOML.

    on_bad_row = "quarantine"          # what stands above holds for every table

    [[table]]
    into = "parts"
    source = ["parts/*.csv"]

    [[table]]
    into = "devices_parts"
    source = "devices_parts.parquet"
    where = "did > 0"

Paths are relative to the file. The order of the tables does not matter: foreign keys decide it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from orchestrator.errors import NotFoundError, UsageError
from orchestrator.spark.loading.report import TableLoad
from orchestrator.spark.loading.sources import Source
from orchestrator.spark.options import TableOptions

_SOURCE = ("format", "options", "where", "select", "partitions")
"""The options of a table that describe its source."""
_KINDS = {"create": bool, "add_columns": bool, "partitions": int, "max_bad_rows": int}
"""The types of options that are no texts."""
_KNOWN = {*TableOptions.__annotations__, "into", "source"}


def tables_of(source: Any, into: str | None, settings: Mapping[str, Any]) -> list[TableLoad]:
    """Return the table loads that a call of `Orchestrator.load` requests."""
    if into is None:
        if isinstance(source, (str, Path)) and Path(source).suffix == ".toml":
            return read_job(Path(source), settings)
        raise UsageError("Name the table to load, or give a load file (.toml).")
    here = Path()
    if hasattr(source, "sparkSession"):
        return [replace(_table(here, {**settings, "into": into, "source": "frame:"}), frame=source)]
    paths = [source] if isinstance(source, (str, Path)) else list(source)
    return [_table(here, {**settings, "into": into, "source": [str(path) for path in paths]})]


def read_job(path: Path, defaults: Mapping[str, Any] | None = None) -> list[TableLoad]:
    """Return the table loads of a load file; `defaults` apply where the file sets nothing."""
    try:
        parsed = _toml().loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise NotFoundError(f"Cannot read {path}: {error.strerror}.") from error
    except ValueError as error:
        raise UsageError(f"{path} is not TOML: {error}.") from error
    tables = parsed.pop("table", None)
    if not isinstance(tables, list) or not tables:
        raise UsageError(f"{path} names no table: each begins with a line [[table]].")
    shared = {**(defaults or {}), **parsed}
    return [_table(path, {**shared, **table}) for table in tables]


def _table(path: Path, settings: Mapping[str, Any]) -> TableLoad:
    for name in settings:
        if name not in _KNOWN:
            raise UsageError(
                f"The load has an unknown entry {name}; take {', '.join(sorted(_KNOWN))}."
            )
    for name in settings.keys() - {"source", "key", "options"}:
        if not isinstance(settings[name], kind := _KINDS.get(name, str)):
            raise UsageError(f"The value of {name} must be a {kind.__name__}.")
    if "into" not in settings or "source" not in settings:
        raise UsageError("Each table of a load needs both into and source.")
    given = {
        **settings,
        "options": {name: _option(value) for name, value in settings.get("options", {}).items()},
        "key": tuple(_listed("key", settings.get("key", []))),
    }
    paths = tuple(_beside(path, item) for item in _listed("source", given.pop("source")))
    source = Source(paths, **{name: given.pop(name) for name in _SOURCE if name in given})
    return TableLoad(source=source, **given)


def _beside(path: Path, source: str) -> str:
    if re.match(r"[a-z][a-z0-9+.-]+:", source):
        return source
    return str(path.parent / source)


def _listed(name: str, value: Any) -> Sequence[str]:
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, (list, tuple)) or not all(isinstance(item, str) for item in values):
        raise UsageError(f"The value of {name} must be a text or a list of texts.")
    return values


def _option(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _toml() -> Any:
    for name in ("tomllib", "tomli"):
        try:
            return import_module(name)
        except ImportError:
            continue
    raise UsageError("Reading TOML needs Python 3.11 or newer, or the package tomli.")
