"""The paper's running example: its tables, its two views in all variants, and its price updates."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

import sqlglot
from sqlglot import exp

from orchestrator.api import Orchestrator
from orchestrator.bench.parts.formula import Costs, accesses
from orchestrator.bench.workload import Workload

WORKLOAD = Workload("parts")
FILES = {"V": "v", "V'": "v_prime"}


@dataclass(frozen=True)
class Dataset:
    """The parameters of the tables' content."""

    parts: int
    fanout: int
    selectivity: int
    joins: int
    seed: int = 1

    def settings(self) -> dict[str, int]:
        """Return the parameters as settings of `load.sql`."""
        return {
            "parts": self.parts,
            "fanout": self.fanout,
            "selectivity": self.selectivity,
            "joins": self.joins,
            "seed": self.seed,
        }


def query(view: str, joins: int = 2, *, selective: bool = True) -> str:
    """Return V or the aggregate V', joined with further tables, with or without its selection.

    >>> print(query("V'", joins=3, selective=False))  # doctest: +NORMALIZE_WHITESPACE
    SELECT did, SUM(price) AS cost
    FROM parts NATURAL JOIN devices_parts NATURAL JOIN devices NATURAL JOIN r1
    GROUP BY did
    """
    tree = sqlglot.parse_one(WORKLOAD.text(FILES[view]), dialect="postgres").assert_is(exp.Select)
    for number in range(1, joins - 1):
        tree = tree.join(exp.Join(this=exp.to_table(f"r{number}"), method="NATURAL"))
    if not selective:
        tree.set("where", None)
    return tree.sql(dialect="postgres", pretty=True)


@dataclass(frozen=True)
class Prices:
    """Price updates of `d` parts at a time, with different parts each time."""

    orchestrator: Orchestrator
    d: int
    rounds: Iterator[int] = field(default_factory=itertools.count)

    def change(self) -> None:
        """Raise the prices of d parts, and store their keys in the table `changed`."""
        connection = self.orchestrator.connection
        connection.execute("DELETE FROM changed")
        connection.execute(
            WORKLOAD.text("change").encode(), {"round": next(self.rounds), "d": self.d}
        )

    def costs(self, joins: int, *, selective: bool = True) -> Costs:
        """Return the parameters of the analysis for the last change."""
        row = self.orchestrator.connection.execute(
            "SELECT count(*), count(*) FILTER (WHERE kept), count(DISTINCT did) FILTER (WHERE kept)"
            " FROM (SELECT did, category = 'phone' OR NOT %s AS kept"
            "       FROM changed JOIN devices_parts USING (pid) JOIN devices USING (did)) AS joined",
            [selective],
        ).fetchone()
        assert row is not None
        joined, kept, groups = row
        return Costs(
            a=accesses(joined / self.d, joins),
            p=kept / self.d,
            g=groups / kept if kept else 0.0,
        )
