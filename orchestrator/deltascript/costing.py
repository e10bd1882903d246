"""Statements that compare a refresh with a recomputation and record how long it took."""

from __future__ import annotations

from collections.abc import Iterable

from psycopg.sql import SQL, Composed, Literal

from orchestrator.deltascript import sizes
from orchestrator.deltascript.names import Names
from orchestrator.deltascript.plan import Apply, Assign, Program, ReadChanges
from orchestrator.deltascript.query import defined
from orchestrator.deltascript.writer import Code, Lines, filled, listed, name, when

FREELY = ("enable_seqscan", "enable_hashjoin", "enable_mergejoin", "enable_material")
"""Settings that are off if small diffs use indexes regardless of the statistics."""


def held(variable: str) -> Composed:
    """Return an expression for the number of rows that a variable holds."""
    return SQL("idivm.size({})").format(name(variable))


def size(variables: Iterable[str]) -> Composed:
    """Return an expression for the number of rows that some variables hold together."""
    return listed(map(held, variables), " + ")


def switch(settings: Iterable[tuple[str, str]]) -> Code:
    """Return code that changes settings for the following statements, until the program ends."""
    calls = [SQL(f"set_config('{setting}', '{value}', true)") for setting, value in settings]
    return filled("PERFORM ", calls, ";")


def largest_shared(program: Program) -> int:
    """Return the size up to which diffs share a plan."""
    return sizes.SMALL_BY_LOOKUPS if program.by_lookups else sizes.SMALL


def plan_again(program: Program) -> Code:
    """Return code after which the following statements are planned for their actual numbers of
    rows.
    """
    freely = switch((setting, "on") for setting in FREELY) if program.by_lookups else ()
    return [SQL("PERFORM idivm.plan_again();"), *freely]


def planned_for(program: Program, variable: str) -> Lines:
    """Return code that plans statements for their diffs if a diff is large."""
    large = SQL("cardinality({}) > {}").format(name(variable), Literal(largest_shared(program)))
    return when(large, plan_again(program))


def weigh_changes(program: Program, names: Names) -> Code:
    """Return code that recomputes if applying the changes costs more, and plans for large diffs."""
    reads = [step for step in program.script if isinstance(step, ReadChanges)]
    variables = [(step.source.oid, change.variable) for step in reads for change in step.classes]
    terms = [
        _accesses(program, variable) for oid, variable in variables if oid not in program.applied
    ]
    # If the strategy guarantees a bound on the cost of a changed row, the bound is better than the
    # model.
    several = sizes.CHEAP if program.by_lookups else sizes.SEVERAL
    wins = SQL("accesses > {} AND idivm.recompute_wins({}, accesses, pending > {})").format(
        Literal(sizes.WEIGHED_FROM), Literal(names.id), Literal(several)
    )
    hurried = SQL("pending > {} AND accesses > {}").format(Literal(several), Literal(sizes.MANY))
    impatient = SQL("late := least(late, clock_timestamp() + interval {});").format(
        Literal(sizes.IMPATIENCE)
    )
    code: Lines = [
        SQL("IF NOT rebuild THEN"),
        [
            *filled("accesses := ", terms or [SQL("0")], ";", " + "),
            *when(wins, [SQL("rebuild := true; kind := 'A';")]),
            *([] if program.by_lookups else when(hurried, [impatient])),
        ],
        SQL("END IF;"),
    ]
    if variables:
        # NULL means no rows, and `greatest` ignores it.
        sizes_of_diffs = (
            SQL("cardinality({})").format(name(variable)) for _, variable in variables
        )
        code += filled("IF greatest(", sizes_of_diffs, f") > {largest_shared(program)} THEN")
        code += [plan_again(program), SQL("END IF;")]
    return code


def _accesses(program: Program, variable: str) -> Composed:
    """Return an expression for the accesses that the rows of a variable with changes are expected to need.

    Many rows that share groups or partitions need fewer accesses than as many single rows.
    """
    cost = program.cost(variable)
    each, rows = round(cost.accesses if cost else 1.0, 1), held(variable)
    single = SQL("{} * {}").format(Literal(each), rows)
    bounds = [
        SQL("{} * greatest(1, {} / {})").format(Literal(round(accesses)), rows, Literal(together))
        for together, accesses in (cost.together if cost else ())
    ]
    return SQL("least({})").format(listed([single, *bounds], ", ")) if bounds else single


def completed(program: Program) -> dict[str, int]:
    """Return the states that a refresh keeps if it gives up later, with the steps that complete them.

    The first state is completed first. States that users see are not kept, because recomputing them
    counts their changed rows.
    """
    computed = [n for n, step in enumerate(program.script) if isinstance(step, Assign)]
    last = {step.state: n for n, step in enumerate(program.script) if isinstance(step, Apply)}
    # Parts of relations are recomputed together, by the same threshold.
    if program.by_lookups or not computed:
        return {}
    return {
        role: n
        for role, n in sorted(last.items(), key=lambda item: item[1])
        if role not in program.shown_states and n < computed[-1]
    }


def weigh_step(program: Program, names: Names, step: Assign) -> Code:
    """Return code that recomputes if the rest of the refresh would take longer than that.

    At this point the sizes of the diffs that the step reads are known, and so is the time since the
    refresh began. After half the time of a recomputation, no further diff is computed. A refresh
    that loses the comparison therefore wastes at most half that time, and only once. It is recorded
    as a loss at once if no state is kept, else if the rest takes too long.
    """
    code: Lines = []
    if step.lookups and not program.by_lookups:
        terms = [
            SQL("{} * {}").format(Literal(round(accesses, 1)), held(variable))
            for variable, accesses in step.lookups
        ]
        head = f"CONTINUE WHEN pending > {sizes.SEVERAL} AND idivm.recompute_pays({names.id}, "
        code += filled(head, terms, ");", " + ")
    if step != next(other for other in program.script if isinstance(other, Assign)):
        lost = "CASE WHEN kept = 0 THEN accesses END" if completed(program) else "accesses"
        deadline = SQL("late := idivm.refresh_deadline({}, begun, {}, {});").format(
            Literal(names.id), SQL(lost), Literal(program.variant)
        )
        # A guaranteed bound holds for each changed row, so many rows may still lose.
        late = f"pending > {sizes.CHEAP} AND " if program.by_lookups else ""
        late += "clock_timestamp() > late"
        code += when(SQL(late), [deadline])
        code.append(SQL(f"CONTINUE WHEN {late};"))
    return code


def note_cost(program: Program, names: Names) -> Code:
    """Return code that records the time of a refresh if it was large enough to be informative."""
    if not any(isinstance(step, ReadChanges) for step in program.script):
        return []
    view, variant = Literal(names.id), Literal(program.variant)
    return [
        *when(
            SQL("accesses > {} AND pending > {}").format(
                Literal(sizes.TELLING), Literal(_uninformative_rows(program))
            ),
            [
                SQL("PERFORM idivm.note_diff({}, accesses, begun, {}, pending > {});").format(
                    view, variant, Literal(sizes.CHEAP)
                )
            ],
        ),
        *when(
            SQL("clock_timestamp() > begun + interval {}").format(Literal(sizes.LONG)),
            note_long(program, names),
        ),
    ]


def note_long(program: Program, names: Names) -> Code:
    """Return code that records whether a long refresh took longer than a recomputation."""
    definition = Literal(defined(names).as_string(None))
    return [
        SQL("PERFORM idivm.note_long({}, accesses, idivm.query_work({}), begun, {});").format(
            Literal(names.id), definition, Literal(program.variant)
        )
    ]


def note_recomputed(program: Program, names: Names) -> Code:
    """Return code that records the time of a recomputation."""
    return [
        SQL("PERFORM idivm.note_recomputed({}, begun, {});").format(
            Literal(names.id), Literal(program.variant)
        )
    ]


def _uninformative_rows(program: Program) -> int:
    """Return the largest number of changed rows at which the time of a refresh says little about
    accesses.
    """
    dearest = max((cost.accesses for cost in program.costs), default=1.0)
    return min(sizes.CHEAP, int(sizes.TELLING / max(dearest, 1.0)))
