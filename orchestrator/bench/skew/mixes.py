"""Mixes of changes and reads: measure `epsilon = auto` beside each fixed ε.

All views have the same query over the same tables. A change is a row like the others that comes or goes, and a read
fetches the first rows of the result. The automatic view sees a mix until its dial comes to rest; then changes and
reads are measured in all views in turn. The cost of the mix follows from both.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from time import monotonic, perf_counter
from typing import Any

from orchestrator.api import Orchestrator
from orchestrator.bench.contenders import Contender, require, require_equal
from orchestrator.bench.report import Bar
from orchestrator.bench.skew import slopes
from orchestrator.bench.workload import Workload, vacuum
from orchestrator.errors import DatabaseError

NAME = "mixes"
MIXES = Workload("mixes")
SIZES = (10_000, 31_623)
AUTO = Contender("skew auto", "skew")
FIXED = tuple(
    Contender(f"skew {item}", "skew", (("epsilon", item),)) for item in ("0", "1/4", "1/2", "3/4")
)
RATIOS = {"writes": (1_000, 1), "reads": (1, 50)}
"""How many changes and reads each mix has."""
PAGE = 100
"""The rows of a read."""
AT_REST, PATIENCE = 12.0, 240.0
"""After so many seconds without a turn a dial is at rest, and so many seconds it may take."""
AT_MOST = 1.25
"""The most that the automatic view may cost, as a multiple of the best fixed ε."""

Growth = dict[str, Any]


def measured(
    orchestrator: Orchestrator, size: int, updates: int, say: Callable[[str], None]
) -> Iterator[Growth]:
    """Yield a row of the report for each mix and each ε."""
    with MIXES.tables(orchestrator, {"rows": size}):
        names = {}
        for side in (*FIXED, AUTO):
            say(f"{NAME}, {size:,} rows: creating {side.label}")
            names[side.label] = require(orchestrator, "v", MIXES.text("pairs"), side)
        vacuum(orchestrator)
        changes = _changes(orchestrator)
        for mix in RATIOS:
            say(f"{NAME}, {size:,} rows, mostly {mix}: until the dial rests")
            chosen = _settled(orchestrator, names[AUTO.label], mix, changes)
            vacuum(orchestrator)
            say(f"{NAME}, {size:,} rows, mostly {mix}: {updates} changes and reads")
            costs = _costs(orchestrator, names, changes, updates)
            for label, (change, read) in costs.items():
                writes, reads = RATIOS[mix]
                yield {
                    "graph": NAME,
                    "rows": size,
                    "mix": mix,
                    "side": label,
                    "epsilon": chosen if label == AUTO.label else label.removeprefix("skew "),
                    "change, ms": round(change, 3),
                    "read, ms": round(read, 3),
                    "mix, ms": round(writes * change + reads * read, 1),
                    "stored": slopes.stored(orchestrator, names[label]),
                }
        require_equal(orchestrator, list(names.values()))


def _changes(orchestrator: Orchestrator) -> Iterator[None]:
    """Make a change at each step: a new row with a value of an old one, which then goes again."""
    connection = orchestrator.connection
    values = connection.execute("SELECT b FROM r ORDER BY a * 7919 % 1009, b").fetchall()
    for number in count():
        row = {"a": 5_000 + number, "b": values[number % len(values)][0]}
        connection.execute("INSERT INTO r VALUES (%(a)s, %(b)s)", row)
        yield
        connection.execute("DELETE FROM r WHERE a = %(a)s AND b = %(b)s", row)
        yield


def _read(orchestrator: Orchestrator, name: str) -> None:
    connection = orchestrator.connection
    with connection.transaction():
        connection.execute("SELECT idivm.enumerate(%s)", [name])
        connection.execute(f"FETCH {PAGE} FROM idivm_rows").fetchall()


def _settled(orchestrator: Orchestrator, name: str, mix: str, changes: Iterator[None]) -> str:
    """Run a mix until the dial of a view comes to rest; return the ε that it shows then."""
    start = turned = monotonic()
    before = ""
    while monotonic() - turned < AT_REST:
        writes, reads = RATIOS[mix]
        for _ in range(writes):
            next(changes)
            orchestrator.refresh(name)
        for _ in range(reads):
            _read(orchestrator, name)
        parts = orchestrator.parts(orchestrator.view(name))
        assert parts is not None
        now = parts.relations[0].epsilon
        if now != before:
            before, turned = now, monotonic()
        if monotonic() - start > PATIENCE:
            raise DatabaseError(f"The dial of {name} does not come to rest: it shows {now}.")
    return before


def _costs(
    orchestrator: Orchestrator, names: dict[str, str], changes: Iterator[None], updates: int
) -> dict[str, tuple[float, float]]:
    """Return the median milliseconds of a refresh after a change, and of a read, for each view."""
    labels = list(names)
    times: dict[str, tuple[list[float], list[float]]] = {label: ([], []) for label in labels}
    for number in range(updates + SETTLE):
        next(changes)
        first = number % len(labels)
        for label in labels[first:] + labels[:first]:
            begun = perf_counter()
            orchestrator.connection.execute("SELECT idivm.refresh(%s)", [names[label]])
            between = perf_counter()
            _read(orchestrator, names[label])
            if number >= SETTLE:
                times[label][0].append(1_000 * (between - begun))
                times[label][1].append(1_000 * (perf_counter() - between))
    return {
        label: (statistics.median(refreshes), statistics.median(reads))
        for label, (refreshes, reads) in times.items()
    }


SETTLE = 6
"""Rounds that do not count, because sessions plan their statements."""


def bars(rows: Sequence[Growth]) -> Iterator[Bar]:
    """Yield a bar for each mix: what the automatic view costs beside the best fixed ε."""
    for size in dict.fromkeys(row["rows"] for row in rows):
        for mix in RATIOS:
            costs = {
                row["side"]: row["mix, ms"]
                for row in rows
                if (row["rows"], row["mix"]) == (size, mix)
            }
            auto = costs.pop(AUTO.label)
            yield Bar(
                f"{NAME}, {size:,} rows, mostly {mix}: auto, in times of the best fixed ε",
                round(auto / min(costs.values()), 2),
                "<=",
                AT_MOST,
            )
