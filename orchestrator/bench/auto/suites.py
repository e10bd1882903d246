"""Read the views of the benchmark: each suite has a folder in `sql/auto/` with a file `views.sql`.

A directive in `views.sql` is a comment line with a name and a text:

    -- tables: FOLDER             the folder of sql/ whose `load.sql` makes the tables (default: the suite's)
    -- quick: NAME = VALUE, ...   the sizes of the tables in a quick run
    -- whole: NAME = VALUE, ...   the sizes of the tables in a whole run
    -- also: STATEMENT            a statement to run after the tables are loaded
    -- statistics: WORD, ...      further states of PostgreSQL's statistics to measure
    -- update TABLE: ASSIGNMENTS  how an update changes rows of the table
    -- below: NAME                a maintained view that other views read; its query follows
    -- view: NAME [, changes TABLE] [, beside NAME]   a view; its query follows
    -- file: FOLDER/NAME          a view whose query is in that file
    -- constructs: support        the examples of docs/sql-support.md
    -- as: SUITE                  the directives of another suite

The largest table that a view reads changes, unless `changes` names another table. `beside` names a view
with which the cost of one changed row is compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from orchestrator.bench.tpch import data as tpch_data
from orchestrator.bench.workload import Workload
from orchestrator.errors import UsageError
from orchestrator.resources import resource_folder

NAMES = (
    *("groups", "star", "star_indexed", "joins", "graph", "parts", "transactions"),
    *("bsma", "shop", "tpch"),
)

GOOD = "good"
MISSING = "missing"
OFF = "off"
"""PostgreSQL estimates the tables at a hundredth of their size."""

_DIRECTIVE = re.compile(r"^-- (\w+)(?: (\w+))?: (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class View:
    """A query of a suite."""

    name: str
    query: str
    changes: str | None = None
    """The table that changes, if it is not the largest."""
    beside: str | None = None
    """The view of the same suite with which the cost for one changed row is compared."""


@dataclass(frozen=True)
class Suite:
    """Tables, the views over them, and how the rows of the tables change."""

    name: str
    tables: str
    quick: dict[str, str] = field(default_factory=dict)
    whole: dict[str, str] = field(default_factory=dict)
    also: tuple[str, ...] = ()
    statistics: tuple[str, ...] = ()
    updates: dict[str, str] = field(default_factory=dict)
    below: tuple[View, ...] = ()
    views: tuple[View, ...] = ()

    @property
    def transactions(self) -> str | None:
        """The SQL that changes the tables, or None if single rows of one table change."""
        path = resource_folder("sql") / "auto" / self.name / "change.sql"
        return path.read_text() if path.is_file() else None

    def workload(self, quick: bool) -> tuple[Workload, dict[str, int]]:
        """Return the workload that makes the tables, and its sizes."""
        sizes = self.quick if quick else self.whole
        if self.tables == "tpch":
            return tpch_data.workload(float(sizes["scale"])), {}
        return Workload(self.tables), {name: int(value) for name, value in sizes.items()}


def suites(server_version: int) -> list[Suite]:
    """Return every suite with the views that a server of this version accepts."""
    return [read(name, server_version) for name in NAMES]


def read(name: str, server_version: int) -> Suite:
    """Return a suite from its file.

    >>> read("star_indexed", 18).views[0].name, read("star_indexed", 18).tables
    ('star rows', 'auto/star')
    """
    return _extended(Suite(name, f"auto/{name}"), name, server_version)


def _extended(suite: Suite, name: str, server_version: int) -> Suite:
    """Return the suite extended by the directives of a file."""
    parts = _DIRECTIVE.split(Workload(f"auto/{name}").text("views"))[1:]
    for word, table, text, query in zip(
        parts[::4], parts[1::4], parts[2::4], parts[3::4], strict=True
    ):
        query = query.strip()
        if word == "tables":
            suite = replace(suite, tables=text)
        elif word == "quick":
            suite = replace(suite, quick=_settings(text))
        elif word == "whole":
            suite = replace(suite, whole=_settings(text))
        elif word == "also":
            suite = replace(suite, also=(*suite.also, text))
        elif word == "statistics":
            suite = replace(suite, statistics=tuple(text.split(", ")))
        elif word == "update":
            suite = replace(suite, updates={**suite.updates, table: text})
        elif word == "below":
            suite = replace(suite, below=(*suite.below, View(text, query)))
        elif word == "view":
            suite = replace(suite, views=(*suite.views, _view(text, query)))
        elif word == "file":
            folder, _, file = text.partition("/")
            suite = replace(
                suite, views=(*suite.views, View(f"{folder} {file}", Workload(folder).text(file)))
            )
        elif word == "constructs":
            suite = replace(suite, views=(*suite.views, *_constructs(server_version)))
        elif word == "as":
            suite = _extended(suite, text, server_version)
        else:
            raise UsageError(f"sql/auto/{name}/views.sql has an unknown directive {word!r}.")
    return suite


def _settings(text: str) -> dict[str, str]:
    """Return settings by name.

    >>> _settings("rows = 10, zipf = 1")
    {'rows': '10', 'zipf': '1'}
    """
    pairs = (pair.partition("=") for pair in text.split(","))
    return {name.strip(): value.strip() for name, _, value in pairs}


_VIEW = re.compile(r"(?P<name>.+?)(?:, changes (?P<changes>\w+))?(?:, beside (?P<beside>.+))?")


def _view(text: str, query: str) -> View:
    """Return a view from the text of its directive.

    >>> _view("largest ten, of all, changes big, beside sum", "SELECT 1")
    View(name='largest ten, of all', query='SELECT 1', changes='big', beside='sum')
    """
    match = _VIEW.fullmatch(text)
    assert match is not None
    return View(query=query, **match.groupdict())


_CONSTRUCT = re.compile(r"^-- (?!#)(.+)\n(?!-- )(.+)$", re.MULTILINE)
_SINCE = re.compile(r"\(PostgreSQL (\d+)\)")


def _constructs(server_version: int) -> Iterator[View]:
    """Return the examples of docs/sql-support.md that a server of this version accepts.

    >>> next(_constructs(18)).name
    'selection and projection'
    """
    _, _, text = Workload("support").text("constructs").partition("-- # ")
    for name, query in _CONSTRUCT.findall(text):
        since = _SINCE.search(name)
        if since is None or int(since[1]) <= server_version:
            yield View(name, query)
