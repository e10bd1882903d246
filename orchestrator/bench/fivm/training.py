"""Train a linear regression as the data changes (papers/fivm.txt, section 9.2, figure 22).

After each batch, the benchmark trains a model of all features on the covariance in a view. It does
so by gradient descent from the last model, by gradient descent from scratch, and in closed form. At
the end, it compares the model with numpy's least squares over the rows of the join.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from statistics import median
from typing import Any

from psycopg import sql

from orchestrator.api import Orchestrator
from orchestrator.bench.contenders import (
    SETTLE,
    TREE,
    Series,
    in_turn,
    refreshing,
    require,
    row,
    statement,
)
from orchestrator.bench.fivm.datasets import (
    CLOSED,
    FAVORITA,
    FLIGHTS,
    HOUSING,
    RESUMED,
    RETAILER,
    SCRATCH,
    Dataset,
)
from orchestrator.bench.measure import Execution
from orchestrator.bench.report import Bar
from orchestrator.bench.workload import vacuum
from orchestrator.errors import UsageError

BATCH = 1_000
OF_MAINTENANCE_BELOW = 0.5
COEFFICIENTS_WITHIN = 1e-6


def measure(
    orchestrator: Orchestrator,
    rows: int,
    most: int | None,
    repeat: int,
    seed: int,
    say: Callable[[str], None],
) -> tuple[list[dict[str, Any]], list[Bar]]:
    """Measure training after each batch, relative to the maintenance of the covariance."""
    result: list[dict[str, Any]] = []
    bars: list[Bar] = []
    for data in (HOUSING, RETAILER, FAVORITA, FLIGHTS):
        say(f"training on {data.workload.name}")
        with data.tables_of(orchestrator, rows, seed):
            more, further = _on(orchestrator, data, rows, most, repeat)
        result += more
        bars += further
    return result, bars


def _on(
    orchestrator: Orchestrator, data: Dataset, rows: int, most: int | None, repeat: int
) -> tuple[list[dict[str, Any]], list[Bar]]:
    # The first feature is the label.
    connection, features = orchestrator.connection, data.features(orchestrator)[:most]
    query = f"SELECT idivm.covar({', '.join(features)}) AS c {data.source}"
    view = require(orchestrator, "covar", query, TREE)
    place = features.index(data.label) + 1
    connection.execute("CREATE TABLE model (weights double precision[], steps integer)")
    connection.execute("INSERT INTO model VALUES (NULL, 0)")
    vacuum(orchestrator)
    known = {
        "view": sql.Identifier(*view.split(".")),
        "label": sql.Literal(place),
    }

    def training(text: str) -> Callable[[], Execution]:
        return statement(connection, sql.SQL(text).format(**known))

    resumed = training(
        "UPDATE model SET (weights, steps) ="
        " (SELECT t.weights, t.iterations FROM {view}, idivm.train(c, model.weights, {label}) AS t)"
    )
    steps: dict[str, list[int]] = {RESUMED: [], SCRATCH: []}

    def resume() -> Execution:
        run = resumed()
        steps[RESUMED].append(_value(orchestrator, sql.SQL("SELECT steps FROM model")))
        return run

    sides = {
        "viewtree": refreshing(connection, [view]),
        RESUMED: resume,
        SCRATCH: training("SELECT idivm.train(c, NULL, {label}) FROM {view}"),
        CLOSED: training("SELECT idivm.linreg(c, {label}) FROM {view}"),
    }
    starts = count(rows, BATCH)

    def batch() -> None:
        data.insert(orchestrator, next(starts), BATCH)
        # Training follows the refresh, whatever the order of the other measurements.
        runs.append(sides["viewtree"]())

    runs: list[Execution] = []
    trained = {side: run for side, run in sides.items() if side != "viewtree"}
    series = in_turn(trained, batch, repeat, SETTLE)
    kept = Series(tuple(runs[-repeat:]))
    text = sql.SQL("SELECT t.iterations FROM {view}, idivm.train(c, NULL, {label}) AS t")
    steps[SCRATCH].append(_value(orchestrator, text.format(**known)))
    name = f"{data.workload.name}, a model of {len(features) - 1} features"
    result = [row(name, rows, "viewtree, no training", kept, batch=BATCH)]
    for side, item in series.items():
        ratio = round(1 + item.times_slower_than(kept), 3)
        line = row(
            name, rows, side, item, rounds=median(steps[side][-repeat:]) if side in steps else None
        )
        result.append(line | {"ratio": ratio, "paper": data.paper.get(side)})
    share = series[RESUMED].times_slower_than(kept)
    off = _distance(orchestrator, data, features)
    return result, [
        Bar(
            f"{data.workload.name}, training resumed beside maintenance",
            round(share, 3),
            "<",
            OF_MAINTENANCE_BELOW,
        ),
        Bar(
            f"{data.workload.name}, coefficients beside numpy's",
            off,
            "<=",
            COEFFICIENTS_WITHIN,
        ),
    ]


def _value(orchestrator: Orchestrator, query: sql.SQL | sql.Composed) -> Any:
    answer = orchestrator.connection.execute(query).fetchone()
    assert answer is not None
    return answer[0]


def _distance(orchestrator: Orchestrator, data: Dataset, features: Sequence[str]) -> float:
    """Return the distance of the last model from numpy's, relative to the largest coefficient."""
    try:
        import numpy as np
    except ImportError as error:
        raise UsageError(
            "The coefficients are compared with numpy's: pip install 'idivm[bench]'."
        ) from error
    listed = sql.SQL(", ").join(map(sql.Identifier, features))
    query = sql.SQL("SELECT {} {}").format(listed, sql.SQL(data.source))
    rows = np.array(orchestrator.connection.execute(query).fetchall(), dtype=float)
    # Skip rows in which a number is missing.
    rows = rows[~np.isnan(rows).any(axis=1)]
    place = features.index(data.label)
    design = np.column_stack([np.ones(len(rows)), np.delete(rows, place, axis=1)])
    wanted, *_ = np.linalg.lstsq(design, rows[:, place], rcond=None)
    model = np.array(_value(orchestrator, sql.SQL("SELECT weights FROM model")))
    return float(np.abs(model - wanted).max() / np.abs(wanted).max())
