"""The curve of a view over heavy and light parts: update time, space and delay for each ε, and what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from psycopg import Connection
from psycopg.sql import SQL, Identifier

from orchestrator.catalog import ViewInfo
from orchestrator.catalog.parts import dial_of, parts_of
from orchestrator.deltascript.names import Names
from orchestrator.deltascript.plan import MaintenancePlan, TurnDial
from orchestrator.runtime.installation.names import names_of


@dataclass(frozen=True)
class Expected:
    """What an ε leads to for the values that the view has now."""

    rows_met: float
    """How many rows an average change meets."""
    rows_stored: float
    """How many rows are stored for light values, at most."""
    heavy_values: int


@dataclass(frozen=True)
class Measured:
    """What was measured while a view had an ε."""

    changes: int
    milliseconds: float | None
    """The mean time of a change."""
    reads: int
    read_steps: float | None
    """The mean number of index scans and rows of a read."""
    rows_stored: int
    """The rows that the content was computed from when the view was last looked at."""


@dataclass(frozen=True)
class CurvePoint:
    """A point of the curve: the guarantees for an ε, and what is expected and measured."""

    epsilon: str
    update: str
    """The bound of the theory for a changed row, as all bounds here."""
    space: str
    delay: str
    chosen: bool
    expected: Expected | None = None
    measured: Measured | None = None


def curve_of(connection: Connection[Any], view: ViewInfo) -> list[CurvePoint]:
    """Return the curve of an installed view; it is empty if its plan has none."""
    plan, names = view.plan, names_of(view)
    parts = parts_of(connection, names, plan)
    if parts is None or plan.partitioning is None:
        return []
    dial = dial_of(plan)
    expected = dict(_expected(connection, names, dial)) if dial else {}
    measured = _measured(connection, names, dial) if dial else {}
    return [
        _point(bounds, parts.relations[0].epsilon, expected, measured)
        for bounds in plan.partitioning.curve
    ]


def planned_curve(plan: MaintenancePlan) -> list[CurvePoint]:
    """Return the curve of a plan that is not installed."""
    if plan.partitioning is None:
        return []
    return [
        _point(bounds, plan.partitioning.partitions[0].epsilon, {}, {})
        for bounds in plan.partitioning.curve
    ]


def _point(
    bounds: tuple[str, str, str, str],
    chosen: str,
    expected: Mapping[str, Expected],
    measured: Mapping[str, Measured],
) -> CurvePoint:
    epsilon = bounds[0]
    return CurvePoint(*bounds, epsilon == chosen, expected.get(epsilon), measured.get(epsilon))


def _expected(
    connection: Connection[Any], names: Names, dial: TurnDial
) -> Iterator[tuple[str, Expected]]:
    roles, columns, atoms = zip(*dial.degrees, strict=True)
    rows = connection.execute(
        SQL(
            "SELECT c.epsilon, c.met, c.light_rows, c.heavy_values FROM {} AS p, {} AS d,"
            " LATERAL idivm.dial_curve(p.{}, d.{}, %s::text[]::regclass[], %s, %s, %s, %s) AS c"
        ).format(
            names.state(dial.state),
            names.state(dial.dial),
            Identifier(dial.base),
            Identifier(dial.epsilon),
        ),
        [
            [names.state(role).as_string(connection) for role in roles],
            list(columns),
            list(atoms),
            dial.delta,
            dial.width,
        ],
    )
    for epsilon, met, light, heavy in rows:
        yield str(Fraction(epsilon)), Expected(met, light, heavy)


def _measured(connection: Connection[Any], names: Names, dial: TurnDial) -> dict[str, Measured]:
    _, _, changes, *_, passed, _ = map(Identifier, dial.counted)
    row = connection.execute(
        SQL(
            "SELECT o.{} -> 'points', d.{}, d.{}, extract(epoch FROM d.{}) FROM {} AS o, {} AS d"
        ).format(
            Identifier(dial.observed),
            Identifier(dial.epsilon),
            changes,
            passed,
            names.state(dial.observations),
            names.state(dial.dial),
        )
    ).fetchone()
    if row is None:
        return {}
    points = {str(Fraction(float(key))): point for key, point in (row[0] or {}).items()}
    present, since = str(Fraction(row[1])), {"changes": row[2], "seconds": float(row[3])}
    if present in points:
        # Changes since the last look.
        points[present] |= {key: points[present][key] + value for key, value in since.items()}
    return {epsilon: _of_point(point) for epsilon, point in points.items()}


def _of_point(point: Mapping[str, float]) -> Measured:
    changes, reads = int(point["changes"]), int(point["reads"])
    return Measured(
        changes,
        1_000 * point["seconds"] / changes if changes else None,
        reads,
        point["read steps"] / reads if reads else None,
        int(point["rows"]),
    )


def lines(curve: Sequence[CurvePoint], *, is_open: bool) -> Iterator[str]:
    """Yield the curve as a table."""
    if not curve:
        return
    how = "chosen by the changes and reads" if is_open else "as asked for"
    yield f"epsilon, {how}: bounds for a change | stored rows | the next row"
    for point in curve:
        mark = "*" if point.chosen else " "
        bounds = f"{point.update:<10} | {point.space:<10} | {point.delay:<10}"
        yield f"{mark} {point.epsilon:<4} {bounds}{''.join(_noted(point))}".rstrip()


def _noted(point: CurvePoint) -> Iterator[str]:
    if point.expected is not None:
        expected = point.expected
        yield (
            f"  expected: {expected.rows_met:,.3g} rows met, {expected.rows_stored:,.0f} stored,"
            f" {expected.heavy_values:,} heavy values"
        )
    if point.measured is not None:
        measured = point.measured
        yield f"; measured: {measured.rows_stored:,} rows"
        if measured.milliseconds is not None:
            yield f", {measured.changes:,} changes of {measured.milliseconds:,.3g} ms"
        if measured.read_steps is not None:
            yield f", {measured.reads:,} reads of {measured.read_steps:,.3g} steps"
