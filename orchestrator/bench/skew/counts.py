"""Counts over heavy and light parts: measure the cost of a change and the stored rows as data grow.

The queries follow appendices F, G and H of papers/ivm-eps-counting-triangles.txt: Loomis-Whitney
counts, here of degree four, and counts over four and over three tables in a row. Each measure uses
the data on which it is largest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from fractions import Fraction

from orchestrator.api import Orchestrator
from orchestrator.bench.contenders import TUPLE, Contender
from orchestrator.bench.report import Bar
from orchestrator.bench.skew import pairs
from orchestrator.bench.skew.cycles import (
    BLOCKS,
    STARS,
    Growth,
    note_changes,
    note_rebalancing,
    slopes,
    views,
)
from orchestrator.bench.skew.rebalancing import Light
from orchestrator.bench.workload import Workload

SIZES = (31_623, 100_000, 316_228)
"""Sizes at which an index on the largest possible number of heavy values has more than one page.

A lookup in a smaller index touches half as many pages, which would look like growth.
"""
LIGHT = Light(
    "SELECT count(*) FROM s WHERE a = 2", "INSERT INTO s SELECT 2, n FROM unnest(%s::bigint[]) AS n"
)


@dataclass(frozen=True)
class Count:
    """A count, and the most expensive one-row changes on its data."""

    workload: Workload
    changes: tuple[str, ...]
    """Changes, each followed by the change that undoes it."""
    light: Light = LIGHT
    linear: bool = False
    """Whether the view stores no more rows than the relations have."""

    def exponents(self, epsilon: Fraction) -> dict[str, Fraction]:
        """Return the exponents with which the measures grow according to the theorems."""
        least = min(epsilon, 1 - epsilon)
        return {"with rebalancing": 1 - least, "stored": Fraction(1) if self.linear else 1 + least}


COUNTS = {
    "four_path": Count(
        Workload("four_path"),
        (
            "INSERT INTO r VALUES (1)",
            "DELETE FROM r WHERE a = 1",
            "INSERT INTO r VALUES (2)",
            "DELETE FROM r WHERE a = 2",
            "INSERT INTO s VALUES (3, 3)",
            "DELETE FROM s WHERE a = 3 AND b = 3",
        ),
    ),
    "loomis_whitney": Count(
        Workload("loomis_whitney"),
        ("INSERT INTO r VALUES (1, 2, 3)", "DELETE FROM r WHERE a = 1 AND b = 2 AND c = 3"),
        Light(
            "SELECT count(*) FROM s WHERE b = 2 AND c = 3",
            "INSERT INTO s SELECT 2, 3, n FROM unnest(%s::bigint[]) AS n",
            columns=3,
        ),
    ),
    "in_a_row": Count(
        Workload("in_a_row"),
        (
            "INSERT INTO r VALUES (2)",
            "DELETE FROM r WHERE a = 2",
            "INSERT INTO t VALUES (1)",
            "DELETE FROM t WHERE b = 1",
        ),
        linear=True,
    ),
}


def measured(
    orchestrator: Orchestrator,
    name: str,
    size: int,
    epsilon: str,
    updates: int,
    say: Callable[[str], None],
) -> Iterator[Growth]:
    """Yield a row of the report for `skew` at an ε, and one for `tuple` with the cost of a change."""
    share, count = Fraction(epsilon), COUNTS[name]
    skew, rows = pairs.beside_tuple(name, size, share)

    def created(
        kind: int, contenders: Sequence[Contender]
    ) -> AbstractContextManager[dict[str, str]]:
        return views(orchestrator, count.workload, "count", size, share, kind, contenders, say)

    with created(STARS, (skew, TUPLE)) as names:
        note_changes(orchestrator, rows, names, count.changes, updates)
        rows[skew.label]["stored"] = pairs.stored(orchestrator, names[skew.label])
        note_rebalancing(orchestrator, rows[skew.label], names[skew.label], count.light, say)
    if not count.linear:
        with created(BLOCKS, (skew,)) as names:
            rows[skew.label]["stored"] = pairs.stored(orchestrator, names[skew.label])
    yield from rows.values()


def bars(rows: Sequence[Growth]) -> Iterator[Bar]:
    """Yield bars that compare the growth of each measure with its exponent."""
    for name, count in COUNTS.items():
        yield from slopes([row for row in rows if row["graph"] == name], count.exponents)
