"""Skewed tables that change, and what must hold of heavy and light parts, whatever has changed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from math import log
from random import Random

import pytest
from psycopg.sql import SQL, Composable, Identifier

from orchestrator.catalog.parts import dial_of
from orchestrator.deltascript.names import Names
from orchestrator.deltascript.plan import MaintenancePlan, Partition, StateTable
from orchestrator.deltascript.query import query_text
from orchestrator.runtime.diagnosis import inspection

TABLES = """
CREATE TABLE r (id int PRIMARY KEY, a int, b int, x numeric);
CREATE TABLE s (b int, c bigint, y int);
CREATE TABLE t (id int PRIMARY KEY, c bigint, a int, z numeric(8, 2), label text)
"""

RST = "r JOIN s ON s.b = r.b JOIN t ON t.c = s.c AND t.a = r.a"


def batches(rng: Random, count: int, rows: int) -> Iterator[str]:
    """Changes over skewed values that grow and shrink degrees and sizes, one row or many at a time."""
    number = 1000

    def value() -> str:
        return rng.choice(("0", "0", "0", "1", "2", str(rng.randrange(3, 30)), "NULL"))

    for turn in range(count):
        new: dict[str, list[str]] = {}
        for _ in range(rng.choice((1, 1, 2, rows))):
            number += 1
            x, y = rng.choice(("1", "2.50", "-1", "0", "NULL", "'NaN'")), rng.randrange(9)
            far = str(rng.randrange(100)) if rng.random() < 0.5 else value()
            table, row = rng.choice(
                (
                    ("r", f"({number}, {value()}, {far}, {x})"),
                    ("s", f"({value()}, {far}, {y})"),
                    ("t", f"({number}, {value()}, {far}, {y}, 'x')"),
                )
            )
            new.setdefault(table, []).append(row)
        statements = [
            f"INSERT INTO {table} VALUES {', '.join(some)}" for table, some in new.items()
        ]
        if turn % 3 == 2:
            hub, divisor = rng.randrange(3), rng.randrange(2, 5)
            statements.append(
                rng.choice(
                    (
                        f"DELETE FROM r WHERE a = {hub} AND id % {divisor} = 0",
                        f"DELETE FROM s WHERE b = {hub} AND y % {divisor} = 0",
                        f"DELETE FROM t WHERE c = {hub}",
                        f"UPDATE r SET a = b, b = a WHERE id % {divisor} = 0",
                        f"UPDATE t SET z = z + 1, label = NULL WHERE id % {divisor} = 0",
                        f"UPDATE s SET c = {hub} WHERE y < {divisor}",
                        f"DELETE FROM r WHERE id % 10 <> {hub}",
                        "DELETE FROM s",
                        "TRUNCATE t",
                    )
                )
            )
        yield "; ".join(statements)


def plan_of(orc, name: str) -> tuple[MaintenancePlan, Names]:
    view = orc.view(name)
    plan = inspection.installed_plan(orc.connection, view)
    assert plan is not None
    return plan, inspection.installed_names(orc.connection, view)


def single_row(orc, query: Composable) -> tuple[object, ...]:
    row = orc.connection.execute(query).fetchone()
    assert row is not None
    return row


def require_invariants(orc, plan: MaintenancePlan, names: Names) -> None:
    """The size invariant, the conditions of both parts, and that every state holds its query."""
    known = plan.partitioning
    assert known is not None
    columns = [Identifier(name) for name in (known.base, known.size)]
    base, size = single_row(
        orc, SQL("SELECT {} FROM {}").format(SQL(", ").join(columns), names.state(known.state))
    )
    assert base // 4 <= size < base
    tops = [p for p in known.partitions if not any(set(o.on) < set(p.on) for o in known.partitions)]
    # Each relation counts once, as far as it is not divided with others in several ways.
    sized, counted = [], set[str]()
    for part in sorted(tops, key=lambda part: -len(part.relation.split(", "))):
        if not counted.issuperset(part.relation.split(", ")):
            counted.update(part.relation.split(", "))
            sized.append(part)
    assert size == sum(sum(degrees_of(orc, names, part).values()) for part in sized)
    for part in known.partitions:
        (threshold,) = single_row(
            orc,
            SQL("SELECT {} FROM {}").format(Identifier(part.threshold), names.state(known.state)),
        )
        epsilon = float(Fraction(part.epsilon))
        if dial_of(plan) is not None:
            # The refresh may have turned the dial after it had divided the values.
            epsilon = round(8 * log(threshold, base)) / 8
        assert threshold == pytest.approx(base**epsilon)
        require_parts(orc, names, part, threshold, epsilon == 0)
    for state in plan.program.states:
        if isinstance(state, StateTable) and not state.historic:
            require_query(orc, names, state)


def epsilon_of(orc, plan: MaintenancePlan, names: Names) -> float:
    """The epsilon that the dial of a plan shows."""
    dial = dial_of(plan)
    (epsilon,) = single_row(
        orc, SQL("SELECT {} FROM {}").format(Identifier(dial.epsilon), names.state(dial.dial))
    )
    return epsilon


def turn(orc, plan: MaintenancePlan, names: Names, epsilon: float) -> None:
    """Turn the dial of a plan; the next refresh divides the values again."""
    dial = dial_of(plan)
    orc.connection.execute(
        SQL("UPDATE {} SET {} = %s").format(names.state(dial.dial), Identifier(dial.epsilon)),
        [epsilon],
    )


def require_right(orc, plans: Iterable[tuple[MaintenancePlan, Names]], change: object) -> None:
    """The invariants of some plans, and that every view shows what its query says, after a change."""
    for plan in plans:
        require_invariants(orc, *plan)
    different = {r.view: (r.missing_rows, r.surplus_rows) for r in orc.check() if not r.equal}
    assert different == {}, change


def degrees_of(orc, names: Names, part: Partition) -> dict[tuple[object, ...], int]:
    rows = orc.connection.execute(
        SQL("SELECT {}, {} FROM {}").format(
            SQL(", ").join(map(Identifier, part.values)),
            Identifier(part.degree),
            names.state(part.degrees),
        )
    ).fetchall()
    return {tuple(row[:-1]): row[-1] for row in rows}


def require_parts(orc, names: Names, part: Partition, threshold: float, all_heavy: bool) -> None:
    value = SQL(", ").join(map(Identifier, part.values))
    kept = degrees_of(orc, names, part)
    heavy = set(
        orc.connection.execute(
            SQL("SELECT {} FROM {}").format(value, names.state(part.heavy_values))
        ).fetchall()
    )
    assert heavy <= kept.keys()
    assert all(kept[key] >= threshold / 2 for key in heavy)
    assert all(degree < threshold * 3 / 2 for key, degree in kept.items() if key not in heavy)
    assert not (all_heavy and kept.keys() - heavy)
    if not part.parts:
        return

    def values(role: str) -> set[tuple[object, ...]]:
        query = SQL("SELECT DISTINCT {} FROM {}").format(value, names.state(role))
        return set(orc.connection.execute(query).fetchall())

    of_heavy, of_light = map(values, part.parts)
    assert (of_heavy, of_light) == (heavy, kept.keys() - heavy)


def require_query(orc, names: Names, state: StateTable) -> None:
    """That a state holds what its query says of the tables and of the other states."""
    columns = SQL(", ").join(Identifier(column.name) for column in state.columns)
    query = SQL("SELECT {} FROM {}").format(columns, names.state(state.role))
    wanted = SQL("SELECT * FROM ({}) AS q").format(query_text(state.query, names))
    for left, right in ((query, wanted), (wanted, query)):
        more = orc.connection.execute(SQL("{} EXCEPT ALL {}").format(left, right)).fetchall()
        assert more == [], state.role


def require_enumeration(orc, name: str, leading: Iterable[str] = ()) -> None:
    """That enumerating gives every row once, also of those with a value of one of some columns."""
    cursor = orc.connection.execute(SQL("SELECT * FROM {}").format(Identifier(name)))
    columns, wanted = [column.name for column in cursor.description], cursor.fetchall()
    assert Counter(map(repr, orc.enumerate(name))) == Counter(map(repr, wanted)), name
    assert Counter(map(repr, in_sql(orc, name))) == Counter(map(repr, wanted)), name
    for column in leading:
        place = columns.index(column)
        # If there is NULL, it is the last value.
        values = sorted({row[place] for row in wanted}, key=repr)
        for value in {*values[:1], *values[-1:]}:
            listed = Counter(map(repr, orc.enumerate(name, {column: value})))
            like = Counter(repr(row) for row in wanted if row[place] == value)
            assert listed == like, (name, column, value)
            text = None if value is None else str(value)
            assert Counter(map(repr, in_sql(orc, name, {column: text}))) == like, (column, value)


def in_sql(orc, name: str, prefix: Mapping[str, object] | None = None) -> list[tuple[object, ...]]:
    """The rows of the cursor that idivm.enumerate opens."""
    with orc.connection.transaction():
        orc.connection.execute("SELECT idivm.enumerate(%s, %s)", [name, json.dumps(prefix or {})])
        return list(orc.connection.execute("FETCH ALL FROM idivm_rows").fetchall())
