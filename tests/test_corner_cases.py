"""Corner cases of SQL in `corner_cases/`, each compared with its query in plain SQL.

A file has tables, changes of them, and many views. A placeholder `{x}` in a view stands for each of the
alternatives of the last `-- each x:` line above it, and `-- from N` for the version of PostgreSQL that
brought what the next view needs. The comparison shares no code with `check`.

A default run takes a part of the cases, another one each day, and one strategy and mode for each case.
`--part N` repeats the part of a day; `--whole` takes every case with every strategy.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import psycopg
import pytest

from orchestrator.api import Orchestrator
from orchestrator.errors import IdivmError, UnsupportedError

FOLDER = Path(__file__).parent / "corner_cases"
FILES = sorted(FOLDER.glob("*.sql"))

PARTS = 24
"""A default run takes one of so many parts."""

WAYS = (
    ("auto", "deferred"),
    ("id", "eager"),
    ("tuple", "deferred"),
    ("recompute", "on_commit"),
    ("recursive", "deferred"),
    ("id", "deferred"),
    ("tuple", "on_commit"),
    ("viewtree", "deferred"),
)
"""Strategies and modes. A case that a strategy refuses is maintained by `auto`."""


@dataclass(frozen=True)
class Case:
    """One view, and the version of PostgreSQL that it needs."""

    query: str
    since: int


@dataclass(frozen=True)
class File:
    """Tables and changes that many cases share."""

    tables: str
    changes: tuple[str, ...]
    cases: tuple[Case, ...]


def read(path: Path) -> File:
    """Parse a file of cases."""
    parts = re.split(r"^-- (tables|change|views)$", path.read_text(), flags=re.MULTILINE)
    sections = [(kind, text.strip()) for kind, text in zip(parts[1::2], parts[2::2], strict=True)]
    [tables] = [text for kind, text in sections if kind == "tables"]
    [views] = [text for kind, text in sections if kind == "views"]
    changes = tuple(text for kind, text in sections if kind == "change")
    return File(tables, changes, tuple(_cases(views)))


def _cases(text: str) -> Iterator[Case]:
    choices: dict[str, list[str]] = {}
    for block in re.split(r";[ ]*\n", text + "\n"):
        since = 0
        lines = []
        for line in block.strip().splitlines():
            if match := re.fullmatch(r"-- each (\w+): (.*)", line):
                choices[match[1]] = [choice.strip() for choice in match[2].split(" | ")]
            elif match := re.fullmatch(r"-- from (\d+)", line):
                since = int(match[1])
            elif not line.startswith("--"):
                lines.append(line)
        query = "\n".join(lines)
        names = [name for name in choices if f"{{{name}}}" in query]
        for values in product(*(choices[name] for name in names)):
            filled = query
            for name, value in zip(names, values, strict=True):
                filled = filled.replace(f"{{{name}}}", value)
            if filled:
                yield Case(filled, since)


def bag(connection: psycopg.Connection, query: str) -> Counter[str | None]:
    """The rows of a query as text, with how often each is there."""
    rows = connection.execute(f"SELECT q::text FROM ({query}) AS q".encode()).fetchall()
    return Counter(text for (text,) in rows)


def create(orc: Orchestrator, name: str, query: str, strategy: str, maintain: str) -> bool:
    """Create a view, and return whether the strategy takes it."""
    try:
        orc.create_view(name, query, strategy=strategy, maintain=maintain)
    except UnsupportedError:
        return False
    return True


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "way" in metafunc.fixturenames:
        whole = metafunc.config.getoption("--whole")
        metafunc.parametrize("way", WAYS if whole else [None], ids=" ".join if whole else None)


def chosen(
    path: Path, way: tuple[str, str] | None, part: int, version: int
) -> Iterator[tuple[str, str, str, str]]:
    """The name, query, strategy and mode of each view of a run: all in one way, or a part in all."""
    for number, case in enumerate(read(path).cases):
        if case.since > version:
            continue
        if way:
            yield f"case_{number}", case.query, *way
        elif (number + part) % PARTS == 0:
            strategy, maintain = WAYS[(number + part) // PARTS % len(WAYS)]
            yield f"case_{number}", case.query, strategy, maintain


@pytest.mark.integration
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_view_shows_what_its_query_does(orc, dsn, path, way, older, pg_version, request):
    if older and not way:
        pytest.skip("older versions run the cases when they are asked for")
    file = read(path)
    part = request.config.getoption("--part")
    with psycopg.connect(dsn, autocommit=True) as plain:
        plain.execute(file.tables.encode())
        views: dict[str, str] = {}
        wrong: dict[str, str] = {}
        for name, query, strategy, maintain in chosen(path, way, part, pg_version):
            try:
                taken = create(orc, name, query, strategy, maintain)
                if taken or (not way and create(orc, name, query, "auto", maintain)):
                    views[name] = query
            except IdivmError as error:
                wrong[name] = f"{strategy}, {maintain}: {query}\n{error}"
        for change in ("", *file.changes):
            if change:
                for statement in change.split(";\n"):
                    plain.execute(statement.encode())
                orc.refresh()
            for name, query in views.items():
                wanted, content = bag(plain, query), bag(plain, f"TABLE {name}")
                if wanted != content and name not in wrong:
                    strategy = orc.view(name).strategy
                    wrong[name] = (
                        f"{strategy} after {change!r}: {query}\n"
                        f"missing {wanted - content}\nsurplus {content - wanted}"
                    )
        assert not wrong, "\n".join([f"--part {part}", *wrong.values()])


def test_there_are_cases_in_every_file():
    cases = {path.stem: len(read(path).cases) for path in FILES}
    assert min(cases.values()) > 5 and sum(cases.values()) > 300


def test_a_case_for_each_alternative(tmp_path):
    path = tmp_path / "some.sql"
    path.write_text(
        "-- Title.\n-- tables\nCREATE TABLE t (a int);\n-- change\nDELETE FROM t;\n-- views\n"
        "-- each x: a | b\n-- from 16\nSELECT {x} FROM t;\n-- each y: 1 | 2\nSELECT {x} + {y};\nSELECT a;\n"
    )
    file = read(path)
    assert file.changes == ("DELETE FROM t;",)
    assert [(case.query, case.since) for case in file.cases] == [
        *(("SELECT a FROM t", 16), ("SELECT b FROM t", 16)),
        *((f"SELECT {x} + {y}", 0) for x in "ab" for y in "12"),
        ("SELECT a", 0),
    ]
