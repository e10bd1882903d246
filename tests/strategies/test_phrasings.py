"""Different writings of a query have one plan.

Each file in `phrasings` holds a query in several writings, and perhaps an option of its views; a comment of one line
names each writing. The first is the canonical one. The name of a writing that has no such plan begins with `refused:`, and ends with a part of
the sentence that says why.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from orchestrator.deltascript.plan import StateTable
from orchestrator.errors import UnsupportedError

FOLDER = Path(__file__).parent / "phrasings"
TABLES = (FOLDER / "tables.sql").read_text()
RING = re.findall(
    r"```sql\n(.*?)```",
    (Path(__file__).parents[2] / "docs" / "rings.md").read_text().partition("## Example")[2],
    re.DOTALL,
)[0]
FILES = sorted(path for path in FOLDER.glob("*.sql") if path.name != "tables.sql")

REFUSED_AT_MOST = 0.05
"""The share of writings that may be refused."""


@dataclass(frozen=True)
class Writing:
    """A writing of a query."""

    name: str
    query: str
    obstacle: str | None


def strategy_of(path: Path) -> str:
    match = re.search(r"^-- strategy: (\w+)$", path.read_text(), re.MULTILINE)
    assert match, f"{path.name} names no strategy"
    return match[1]


def options_of(path: Path) -> dict[str, str]:
    match = re.search(r"^-- options: (\w+) = (.*)$", path.read_text(), re.MULTILINE)
    return {match[1]: match[2]} if match else {}


def writings_of(path: Path) -> list[Writing]:
    blocks = re.findall(r"^-- ([^\n]+)\n((?:SELECT|WITH)[^;]*);", path.read_text(), re.MULTILINE)
    result = []
    for name, query in blocks:
        obstacle = name.rpartition(": ")[2] if name.startswith("refused: ") else None
        result.append(Writing(name, query, obstacle))
    return result


def structure(plan) -> tuple[object, ...]:
    """The strategy, the class and guarantee, and the numbers of keys of the stored states."""
    [because] = [reason.because for reason in plan.evidence.reasons if reason.taken]
    # Keys complete an order, and there may be several.
    guarantee = re.sub("ranked by [^:]*", "ranked", because.partition("it is ")[2])
    keys = Counter(len(s.key) for s in plan.program.states if isinstance(s, StateTable))
    return plan.program.strategy, guarantee, tuple(sorted(keys.items()))


def test_there_are_enough_writings_and_few_are_refused():
    every = [writing for path in FILES for writing in writings_of(path)]
    refused = [writing for writing in every if writing.obstacle]
    assert len(FILES) >= 25 and len(every) >= 200
    assert len(refused) <= REFUSED_AT_MOST * len(every)


def value(rng: Random, column: tuple[str, bool]) -> str:
    kind, nullable = column
    if nullable and rng.random() < 0.1:
        return "NULL"
    number = rng.choice((0, 0, 0, 1, 1, 2, rng.randrange(3, 9)))
    return f"'{number}'" if kind in ("text", "character varying") else str(number)


def changes(rng: Random, tables: dict[str, list[tuple[str, str, bool]]], count: int) -> list[str]:
    """Inserts, updates and deletes of rows with few values; a column named id or k is a key."""
    result = []
    for _ in range(count):
        table = rng.choice(sorted(tables))
        keys = [name for name, _, _ in tables[table] if name in ("id", "k")]
        others = [(n, (kind, nulls)) for n, kind, nulls in tables[table] if n not in keys]
        if rng.random() < 0.6:
            rows = []
            for _ in range(rng.choice((1, 3, 9))):
                values = {name: value(rng, column) for name, column in others}
                values |= {key: str(rng.randrange(12 if key == "k" else 400)) for key in keys}
                rows.append(f"({', '.join(values[name] for name, _, _ in tables[table])})")
            result.append(
                f"INSERT INTO {table} VALUES {', '.join(rows)}"
                + (" ON CONFLICT DO NOTHING" if keys else "")
            )
            continue
        name, column = rng.choice(others)
        test, to = rng.choice(others)[0], value(rng, column)
        if rng.random() < 0.6:
            result.append(f"UPDATE {table} SET {name} = {to} WHERE {test} = '{rng.randrange(3)}'")
        else:
            result.append(f"DELETE FROM {table} WHERE {test} = '{rng.randrange(9)}'")
    return result


COLUMNS = """
SELECT c.relname::text, a.attname::text, format_type(a.atttypid, NULL), NOT a.attnotnull
FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND a.attnum > 0 ORDER BY 1, a.attnum
"""


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
@pytest.mark.sampled(9)
def test_all_writings_have_one_plan_and_the_right_rows(orc, path, older):
    if older:
        pytest.skip("plans do not depend on the version")
    orc.execute(TABLES)
    if "moments(" in path.read_text():
        orc.execute(RING)
    tables: dict[str, list[tuple[str, str, bool]]] = {}
    for table, *column in orc.connection.execute(COLUMNS).fetchall():
        tables.setdefault(table, []).append(tuple(column))
    rng = Random(path.stem)
    for change in changes(rng, tables, 30):
        orc.execute(change)
    strategy, options, canonical = strategy_of(path), options_of(path), None
    for number, writing in enumerate(writings_of(path)):
        if writing.obstacle is not None:
            with pytest.raises(UnsupportedError, match=re.escape(writing.obstacle)):
                orc.create_view(f"v{number}", writing.query, strategy=strategy, **options)
            continue
        view = orc.create_view(f"v{number}", writing.query, strategy=strategy, **options)
        plan = structure(view.plan)
        canonical = canonical or plan
        assert plan == canonical, writing.name
    used = {source.name for source in orc.view("v0").plan.program.sources}
    tables = {name: columns for name, columns in tables.items() if name in used}
    for _ in range(5):
        for change in changes(rng, tables, 4):
            orc.execute(change)
        reports = orc.check()
        assert {r.view: r for r in reports if not r.equal} == {}
