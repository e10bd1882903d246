"""Triangle queries over heavy and light parts: measure costs as the data grow.

The measures are the cost of each kind of change, the cost of a result row, and the stored rows. They follow
theorem 3 of papers/ivm-eps-triangle-queries.txt. Each measure uses the data on which it is largest.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from fractions import Fraction
from itertools import islice, pairwise
from typing import Any

from orchestrator.api import Orchestrator
from orchestrator.bench.contenders import Contender, refreshing, require, require_equal
from orchestrator.bench.measure import states_touched
from orchestrator.bench.report import Bar
from orchestrator.bench.skew import slopes
from orchestrator.bench.skew.rebalancing import Light, rebalanced
from orchestrator.bench.workload import Workload, vacuum
from orchestrator.runtime.enumeration import hop, ordered
from orchestrator.runtime.enumeration.order import order_of
from orchestrator.runtime.installation import names as view_names

CYCLES = Workload("cycles")
NAMES = {"triangles": "count", "unary": "unary", "binary": "binary", "ternary": "ternary"}
"""Triangle queries by the number of free variables, and the files with their text."""
SIZES = (10_000, 100_000, 1_000_000)
"""The rows on which changes are measured."""
STORED = (10_000, 50_625, 160_000)
"""The rows on which stored rows and delays are measured: fourth powers of 10, 15 and 20.

At an ε of 3/4, a row meets as many values as the fourth root allows: two, three and four. At other
sizes, rounding to whole numbers would look like growth.
"""
MOST_READ = 100_000
"""The rows of a result that are read; only results with three free variables have more."""
EPSILONS = ("1/4", "1/2", "3/4")
BLOCKS, STARS, SQUARE, OWN = range(4)
"""Data sets, by the measure that is largest on them."""
MOST_STORED = {"triangles": OWN, "ternary": SQUARE}
"""The data on which a query stores most rows, if not the blocks."""
LIGHT = Light(
    "SELECT count(*) FROM s WHERE b = 12",
    "INSERT INTO s SELECT 12, n FROM unnest(%s::bigint[]) AS n",
)
RELATIONS = {"r": ("a", "b"), "s": ("b", "c"), "t": ("c", "a")}
CHANGES = (
    slopes.row_of("a row that meets nothing", "r", {"a": -1, "b": -1}, slopes.constant),
    *(
        slopes.row_of(
            f"{kind} of {table}",
            table,
            dict(zip(columns, values, strict=True)),
            exponent,
            **{columns[open_to]: nothing},
        )
        for table, columns in RELATIONS.items()
        for kind, values, open_to, nothing, exponent in (
            ("rows of a light value", (3_000_001, 2), 1, -2, slopes.light),
            ("heavy values", (8, -3), 0, -4, slopes.heavy),
        )
    ),
)
"""The most expensive changes of each relation: rows that meet a light value's rows, or all heavy values."""

_CALLED = {
    "stored": "rows stored",
    "largest state": "rows of the largest state",
    "delay": "buffers to the next row",
    "longest delay": "buffers to the next row at most",
}

Growth = dict[str, Any]


def measured(
    orchestrator: Orchestrator,
    name: str,
    size: int,
    epsilon: str,
    updates: int,
    say: Callable[[str], None],
) -> Iterator[Growth]:
    """Yield a row of the report for each kind of change."""
    share = Fraction(epsilon)
    yield from changed(
        orchestrator, CYCLES, name, NAMES[name], size, share, STARS, CHANGES, LIGHT, updates, say
    )


def filled(
    orchestrator: Orchestrator, name: str, size: int, epsilon: str, say: Callable[[str], None]
) -> Growth:
    """Return a row of the report with the stored rows and the delays."""
    share, query = Fraction(epsilon), NAMES[name]
    growth = slopes.row_for(name, size, share)
    if name != "triangles":
        with view(orchestrator, CYCLES, query, size, share, BLOCKS, say) as named:
            growth |= stored(orchestrator, named)
            mean, longest = delays(orchestrator, named)
            growth |= {"delay": round(mean, 2), "longest delay": longest}
    if name in MOST_STORED:
        with view(orchestrator, CYCLES, query, size, share, MOST_STORED[name], say) as named:
            growth |= stored(orchestrator, named)
    return growth


def stored(orchestrator: Orchestrator, name: str) -> Growth:
    """Return the columns of a row of the report on what a view stores."""
    return {
        "stored": slopes.stored(orchestrator, name),
        "largest state": slopes.largest(orchestrator, name),
    }


def changed(
    orchestrator: Orchestrator,
    workload: Workload,
    name: str,
    query: str,
    size: int,
    epsilon: Fraction,
    kind: int,
    changes: Sequence[slopes.Change],
    light: Light | None,
    updates: int,
    say: Callable[[str], None],
) -> Iterator[Growth]:
    """Yield a row of the report for each kind of change of a view, and one for rebalancing."""
    known = slopes.row_for(name, size, epsilon)
    with view(orchestrator, workload, query, size, epsilon, kind, say) as named:
        say(f"{name}, {size:,} rows, ε = {epsilon}: {updates} changes of each kind")
        yield from slopes.measured(orchestrator, named, changes, updates, known)
        if light is not None:
            say(f"{name}, {size:,} rows, ε = {epsilon}: rebalancing")
            refresh = refreshing(orchestrator.connection, [named])
            yield {**known, "kind": "rebalancing"} | rebalanced(orchestrator, named, refresh, light)
            require_equal(orchestrator, [named])


@contextmanager
def view(
    orchestrator: Orchestrator,
    workload: Workload,
    query: str,
    size: int,
    epsilon: Fraction,
    kind: int,
    say: Callable[[str], None],
) -> Iterator[str]:
    """Create a view over data of a kind; yield its name."""
    settings = {"rows": size, "epsilon": int(epsilon * 1000), "kind": kind}
    with workload.tables(orchestrator, settings):
        say(f"{workload.name}, {query}, {size:,} rows: creating a view with ε = {epsilon}")
        side = Contender(f"skew {epsilon}", "skew", (("epsilon", str(epsilon)),))
        name = require(orchestrator, "v", workload.text(query), side)
        vacuum(orchestrator)
        yield name


def delays(orchestrator: Orchestrator, name: str) -> tuple[float, int]:
    """Return the buffers touched between two rows of the result: the mean over all rows, and the maximum.

    With three free variables, the result has tens of millions of rows in blocks that are alike. Its first rows suffice.
    """
    connection, stored = orchestrator.connection, orchestrator.view(name)
    order = order_of(connection, view_names.names_of(stored), stored.plan)
    assert order is not None
    with connection.transaction():
        ordered.by_lookups(connection)
        touched = [states_touched(connection)]
        with closing(hop.distinct(connection, order, ahead=1)) as rows:
            touched += (states_touched(connection) for _ in islice(rows, MOST_READ))
        touched.append(states_touched(connection))
    steps = [after - before for before, after in pairwise(touched)]
    return statistics.mean(steps), max(steps)


def _exponents(name: str, epsilon: Fraction) -> dict[str, Fraction]:
    """Return the exponents with which the measures grow according to theorem 3 and table 1."""
    least = min(epsilon, 1 - epsilon)
    delay = {"unary": 2 * least, "binary": least}.get(name, Fraction(0))
    stored = Fraction(3, 2) if name == "ternary" else 1 + least
    return {"stored": stored, "largest state": stored, "delay": delay, "longest delay": delay}


def bars(rows: Sequence[Growth]) -> Iterator[Bar]:
    """Yield bars that compare the growth of each measure with its exponent."""
    for name in NAMES:
        for epsilon, own in by_epsilon(rows, name):
            called = f"{name}, skew {epsilon}"
            yield from slopes.exponents(own, CHANGES, epsilon, called)
            yield from rebalancing_bars(own, called, Fraction(1), max(epsilon, 1 - epsilon))
            for measure, theory in _exponents(name, epsilon).items():
                title = f"{called}, slope of {_CALLED[measure]}"
                yield from slopes.of_measure(title, own, measure, theory)


def by_epsilon(rows: Sequence[Growth], name: str) -> Iterator[tuple[Fraction, list[Growth]]]:
    """Yield the rows of the report about a query, for each ε."""
    of_query = [row for row in rows if row["graph"] == name]
    for epsilon in dict.fromkeys(row["epsilon"] for row in of_query):
        yield Fraction(epsilon), [row for row in of_query if row["epsilon"] == epsilon]


def rebalancing_bars(
    rows: Sequence[Growth], called: str, move: Fraction | None, update: Fraction
) -> Iterator[Bar]:
    """Yield bars on a value that changes its part, and on the share of rebalancing in a change.

    Of a value's rows each meets as many rows as a change may, but no relation has more than N rows. The theorems bound
    the share from above.
    """
    noted = [row for row in rows if "share of rebalancing" in row]
    if len(noted) < 2:
        return
    if move is not None:
        yield slopes.near(f"{called}, slope of a value that moves", noted, "a value moves", move)
    yield slopes.at_most(
        f"{called}, slope of rebalancing, by change", noted, "share of rebalancing", update
    )
