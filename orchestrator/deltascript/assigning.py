"""Statements that compute a diff into a variable (step `Assign`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from psycopg.sql import SQL, Composed, Literal
from sqlglot import exp

from orchestrator.deltascript import sizes
from orchestrator.deltascript.costing import (
    compare_step_costs,
    ended_late,
    largest_shared,
    planned_for,
    size,
    switch,
    within_time,
)
from orchestrator.deltascript.names import Names
from orchestrator.deltascript.nulls import lookups, split_by_nulls, with_records, without_nulls
from orchestrator.deltascript.plan import Apply, Assign, Program, Query
from orchestrator.deltascript.query import query_code, stored
from orchestrator.deltascript.writer import (
    Code,
    Lines,
    branches,
    dotted,
    filled,
    listed,
    merged,
    name,
    when,
)

HASHING = (
    ("enable_nestloop", "off", "on"),
    ("cpu_operator_cost", "0", "0.0025"),
)
"""Settings, with their values for hash joins of large diffs and for other statements.

PostgreSQL expects that most values of a diff are equal, and would hash the joined tables instead."""


def assigned(program: Program, names: Names, step: Assign) -> Code:
    """Return the statements of the step."""
    before = step.query
    if not program.by_lookups:
        step = replace(step, query=within_time(before, names.id))
    code = _by_nulls(names, step, step.query)
    if step.hashed:
        code = switched_where_large(program, step, code, HASHING)
    else:
        several = _by_nulls(names, step, with_records(step.query))
        code = hashed_where_several(program, step.query, code, several)
    if step.query != before:
        code = ended_late(program, names, code)
    return [
        *compare_step_costs(program, names, step),
        *code,
        *planned_for(program, step.variable),
        SQL("CONTINUE WHEN cardinality({}) > {};").format(
            name(step.variable), Literal(_most(step))
        ),
    ]


def switched_where_large(
    program: Program, step: Assign | Apply, code: Code, settings: Sequence[tuple[str, str, str]]
) -> Lines:
    """Return a statement with settings that differ if the diff is large.

    `settings` has the name, the value for a large diff, and the value for a small diff.
    """
    large = SQL("{} > {}").format(size(step.needs), Literal(largest_shared(program)))
    for_large = switch((setting, value) for setting, value, _ in settings)
    for_small = switch((setting, value) for setting, _, value in settings)
    return [*when(large, for_large), *code, *when(large, for_small)]


def _by_nulls(names: Names, step: Assign, query: Query) -> Code:
    """Return the statement for a query of the step, and a simpler one for diffs without NULLs."""
    code = _assigned(replace(step, query=split_by_nulls(query)), names)
    simplified = without_nulls(step.query)
    if simplified is None:
        return code
    plain, fields = simplified
    hashable = _assigned(replace(step, query=plain), names)
    return branches([(has_no_nulls(fields, names), hashable)], code)


def hashed_where_several(program: Program, query: Query, code: Code, for_several: Code) -> Code:
    """Return a statement that looks rows up in variables by hashing if the variables hold several.

    PostgreSQL expects few rows on both sides, and would go through a variable for each row.
    """
    variables = looked_up(query)
    if program.by_lookups or not variables:
        return code
    several = SQL("{} > {}").format(size(variables), Literal(sizes.FEW))
    off, on = (switch([("enable_nestloop", value)]) for value in ("off", "on"))
    return branches([(several, [*off, *for_several, *on])], code)


def looked_up(query: Query) -> tuple[str, ...]:
    """Return the variables in which a query looks rows up by EXISTS or NOT EXISTS.

    >>> from orchestrator.algebra.columns import Column
    >>> from orchestrator.algebra.examples import PARTS, PID
    >>> from orchestrator.algebra.operators.antisemijoin import Antisemijoin
    >>> from orchestrator.algebra.rendering import Renderer
    >>> from orchestrator.algebra.scalar import Scalar
    >>> from orchestrator.deltascript.leaves import DiffScan
    >>> old = Column("old")
    >>> diff = DiffScan("gone", "d", ((old, "pid"),))
    >>> rest = Antisemijoin(PARTS, diff, Scalar.read("pid = old", [PID, old]))
    >>> looked_up(Query(Renderer(rest).query(rest, {}, (PID,))))
    ('gone',)
    """
    tables = (select.args["from_"].this.this for select in lookups(query.tree))
    return tuple(dict.fromkeys(table.expressions[0].name for table in tables))


def _assigned(step: Assign, names: Names) -> Lines:
    columns = [item.alias_or_name for item in step.query.tree.expressions]
    fields = [dotted("d", column) for column in columns]
    shape = stored(names, step.shape)
    row = filled("SELECT array_agg(ROW(", fields, f")::{shape.as_string(None)})")
    into = filled("INTO ", map(name, [step.variable, *(variable for variable, _ in step.apart)]))
    query = _limited(step, names)
    if not step.apart:
        return [*merged([*row, *into]), SQL("FROM ("), query, SQL(") AS d;")]
    apart = [
        SQL("array_agg(d.change) FILTER (WHERE {})").format(SQL(where)) for _, where in step.apart
    ]
    change = filled("SELECT d.*, ROW(", fields, f")::{shape.as_string(None)} AS change")
    return [
        *filled("SELECT ", [SQL("array_agg(d.change)"), *apart]),
        *into,
        SQL("FROM ("),
        [*change, SQL("FROM ("), query, SQL(") AS d")],
        SQL(") AS d;"),
    ]


def _limited(step: Assign, names: Names) -> Lines:
    """Return the query with a limit: one row more than allowed shows that there are too many."""
    query = query_code(step.query, names)
    limit = SQL("LIMIT {}").format(Literal(_most(step) + 1))
    tree = step.query.tree
    if isinstance(tree, exp.Query) and not any(
        tree.args.get(k) for k in ("order", "limit", "offset")
    ):
        return [*query, limit]
    return [SQL("SELECT * FROM ("), query, SQL(") AS d {}").format(limit)]


def has_no_nulls(fields: Iterable[tuple[str, str]], names: Names) -> Composed:
    """Return the condition that fields of variables hold no NULL."""
    by_variable: dict[str, list[str]] = {}
    for variable, field in sorted(fields):
        by_variable.setdefault(variable, []).append(field)
    return listed(
        (
            SQL("NOT EXISTS (SELECT FROM unnest({}) AS d WHERE {})").format(
                dotted(names.program, variable),
                listed((SQL("{} IS NULL").format(dotted("d", field)) for field in fields), " OR "),
            )
            for variable, fields in by_variable.items()
        ),
        " AND ",
    )


def _most(step: Assign) -> int:
    return sizes.LARGE if step.at_most is None else min(sizes.LARGE, step.at_most)
