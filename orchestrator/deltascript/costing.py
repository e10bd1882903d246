"""Statements that compare a refresh with a recomputation, and remember what it took."""

from __future__ import annotations

from collections.abc import Iterable

from psycopg.sql import SQL, Composed, Literal

from orchestrator.deltascript import sizes
from orchestrator.deltascript.names import Names
from orchestrator.deltascript.plan import Assign, Program, ReadChanges
from orchestrator.deltascript.query import defined
from orchestrator.deltascript.writer import Code, Lines, filled, listed, name, when

FREELY = ("enable_seqscan", "enable_hashjoin", "enable_mergejoin", "enable_material")
"""Settings that are off where small diffs go through indexes whatever the statistics say."""


def held(variable: str) -> Composed:
    """Return how many rows a variable holds."""
    return SQL("idivm.size({})").format(name(variable))


def size(variables: Iterable[str]) -> Composed:
    """Return how many rows some variables hold."""
    return listed(map(held, variables), " + ")


def switch(settings: Iterable[tuple[str, str]]) -> Code:
    """Return what changes settings for the statements that follow, until the program ends."""
    calls = [SQL(f"set_config('{setting}', '{value}', true)") for setting, value in settings]
    return filled("PERFORM ", calls, ";")


def plan_again(program: Program) -> Code:
    """Return what has the statements that follow planned for the rows that they meet."""
    freely = switch((setting, "on") for setting in FREELY) if program.by_lookups else ()
    return [SQL("PERFORM idivm.plan_again();"), *freely]


def planned_for(program: Program, variable: str) -> Lines:
    """Return what has statements planned for their diffs, from where a diff is large on."""
    large = SQL("cardinality({}) > {}").format(name(variable), Literal(sizes.SMALL))
    return when(large, plan_again(program))


def weigh_changes(program: Program, names: Names) -> Code:
    """Return what recomputes if applying the changes costs more, and plans for large diffs."""
    reads = [step for step in program.script if isinstance(step, ReadChanges)]
    variables = [(step.source.oid, change.variable) for step in reads for change in step.classes]
    terms = [
        SQL("{} * {}").format(Literal(round(program.accesses(variable), 1)), held(variable))
        for oid, variable in variables
        if oid not in program.applied
    ]
    # Where a bound on the cost of a changed row is promised, the model knows less than the bound says.
    several = sizes.CHEAP if program.by_lookups else sizes.SEVERAL
    wins = SQL("accesses > {} AND idivm.recompute_wins({}, accesses, pending > {})").format(
        Literal(sizes.WEIGHED_FROM), Literal(names.id), Literal(several)
    )
    large = SQL("pending > {} AND accesses > {}")
    impatient = SQL("late := least(late, clock_timestamp() + interval {});").format(
        Literal(sizes.IMPATIENCE)
    )
    code: Lines = [
        SQL("IF NOT rebuild THEN"),
        [
            *filled("accesses := ", terms or [SQL("0")], ";", " + "),
            *when(wins, [SQL("rebuild := true; kind := 'A';")]),
            *when(large.format(Literal(several), Literal(sizes.MANY)), [impatient]),
        ],
        SQL("END IF;"),
    ]
    if variables:
        # NULL is no size, and greatest leaves it out.
        each = (SQL("cardinality({})").format(name(variable)) for _, variable in variables)
        code += filled("IF greatest(", each, f") > {sizes.SMALL} THEN")
        code += [plan_again(program), SQL("END IF;")]
    return code


def weigh_step(program: Program, names: Names, step: Assign) -> Code:
    """Return what recomputes where the rest of a refresh takes longer than that.

    By now the diffs that the step reads have a size, and the time since the refresh began is known. Past
    half of what a recomputation takes, no further diff is computed: a refresh that loses does so once, and
    by half.
    """
    if program.by_lookups:
        return []
    code: Lines = []
    if step.lookups:
        terms = [
            SQL("{} * {}").format(Literal(round(each, 1)), held(variable))
            for variable, each in step.lookups
        ]
        head = f"CONTINUE WHEN pending > {sizes.SEVERAL} AND idivm.recompute_pays({names.id}, "
        code += filled(head, terms, ");", " + ")
    if step != next(other for other in program.script if isinstance(other, Assign)):
        deadline = SQL("late := idivm.refresh_deadline({}, begun, accesses, {});").format(
            Literal(names.id), Literal(program.variant)
        )
        code += when(SQL("clock_timestamp() > late"), [deadline])
        code.append(SQL("CONTINUE WHEN clock_timestamp() > late;"))
    return code


def note_cost(program: Program, names: Names) -> Code:
    """Return what remembers how long a refresh took that was large enough to tell."""
    if not any(isinstance(step, ReadChanges) for step in program.script):
        return []
    view, variant = Literal(names.id), Literal(program.variant)
    definition = Literal(defined(names).as_string(None))
    return [
        *when(
            SQL("accesses > {} AND pending > {}").format(
                Literal(sizes.TELLING), Literal(_untelling(program))
            ),
            [
                SQL("PERFORM idivm.note_diff({}, accesses, begun, {}, pending > {});").format(
                    view, variant, Literal(sizes.CHEAP)
                )
            ],
        ),
        *when(
            SQL("clock_timestamp() > begun + interval {}").format(Literal(sizes.LONG)),
            [
                SQL(
                    "PERFORM idivm.note_long({}, accesses, idivm.query_work({}), begun, {});"
                ).format(view, definition, variant)
            ],
        ),
    ]


def _untelling(program: Program) -> int:
    """Return up to how many changed rows a refresh does not tell what accesses cost."""
    dearest = max((cost.accesses for cost in program.costs), default=1.0)
    return min(sizes.CHEAP, int(sizes.TELLING / max(dearest, 1.0)))
