"""Statements that compare a refresh with a recomputation and record how long it took."""

from __future__ import annotations

from collections.abc import Iterable

from psycopg.sql import SQL, Composed, Literal
from sqlglot import exp

from orchestrator.algebra.dialect import Tree, reference
from orchestrator.deltascript import sizes
from orchestrator.deltascript.leaves import PROGRAM
from orchestrator.deltascript.names import Names
from orchestrator.deltascript.plan import Apply, Assign, Program, Query, ReadChanges
from orchestrator.deltascript.query import defined
from orchestrator.deltascript.writer import Code, Lines, branches, filled, listed, name, when

FREELY = ("enable_seqscan", "enable_hashjoin", "enable_material")
"""Settings that are off if small diffs use indexes regardless of the statistics."""

NEVER = "enable_mergejoin"
"""A setting that is also off for large diffs.

PostgreSQL expects few rows with a value, and would merge by the first columns of an index alone. A diff of many rows
with a frequent value would then be compared with all rows that have it.
"""


def held(variable: str) -> Composed:
    """Return an expression for the number of rows that a variable holds."""
    return SQL("coalesce(cardinality({}), 0)").format(name(variable))


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


def replan_statements(program: Program) -> Code:
    """Return code after which the following statements are planned for their actual numbers of
    rows.
    """
    freely = switch((setting, "on") for setting in FREELY) if program.by_lookups else ()
    return [SQL("PERFORM idivm.plan_again();"), *freely]


def planned_for(program: Program, variable: str) -> Lines:
    """Return code that plans statements for their diffs if a diff is large."""
    large = SQL("cardinality({}) > {}").format(name(variable), Literal(largest_shared(program)))
    return when(large, replan_statements(program))


def compare_costs(program: Program, names: Names) -> Code:
    """Return code that recomputes if applying the changes costs more, and plans for large diffs."""
    reads = [step for step in program.script if isinstance(step, ReadChanges)]
    variables = [(step.source.oid, change.variable) for step in reads for change in step.classes]
    terms = [
        _accesses(program, variable) for oid, variable in variables if oid not in program.applied
    ]
    # If the strategy guarantees a bound on the cost of a changed row, the bound is better than the
    # model.
    several = sizes.CHEAP if program.by_lookups else sizes.SEVERAL
    weighed = SQL("accesses > {}").format(Literal(sizes.WEIGHED_FROM))
    wins = SQL("idivm.recompute_wins({}, accesses, pending > {})").format(
        Literal(names.id), Literal(several)
    )
    recompute = [SQL("rebuild := true; kind := 'A';")]
    # The condition is nested, so that a session does not look up a function that few refreshes call.
    by_cost = when(weighed, when(wins, recompute))
    if program.content_stands_alone:
        by_cost = branches(
            [(SQL("content_only AND pending > 0"), recompute), (weighed, when(wins, recompute))]
        )
    hurried = SQL("pending > {} AND accesses > {}").format(Literal(several), Literal(sizes.MANY))
    impatient = SQL("late := least(late, clock_timestamp() + interval {});").format(
        Literal(sizes.IMPATIENCE)
    )
    code: Lines = [
        SQL("IF NOT rebuild THEN"),
        [
            *filled("accesses := ", terms or [SQL("0")], ";", " + "),
            *by_cost,
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
        code += [replan_statements(program), SQL("END IF;")]
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


def compare_step_costs(program: Program, names: Names, step: Assign) -> Code:
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
        deadline = SQL("late := {};").format(_deadline(program, names))
        # A guaranteed bound holds for each changed row, so many rows may still lose.
        late = f"pending > {sizes.CHEAP} AND " if program.by_lookups else ""
        late += "clock_timestamp() > late"
        code += when(SQL(late), [deadline])
        code.append(SQL(f"CONTINUE WHEN {late};"))
    return code


def _deadline(program: Program, names: Names) -> Composed:
    """Return the call that decides whether the refresh gives up now, and records that it does."""
    # What a refresh keeps of a recompute is of no use if the content is computed alone.
    keeps = completed(program) and not program.content_stands_alone
    lost = "CASE WHEN kept = 0 THEN accesses END" if keeps else "accesses"
    return SQL("idivm.refresh_deadline({}, begun, {}, {})").format(
        Literal(names.id), SQL(lost), Literal(program.variant)
    )


def within_time(query: Query, view_id: int) -> Query:
    """Return a query that ends with an error after the time at which the refresh gives up.

    The condition stands where rows of tables and states are joined, because only such a query may
    take long. The deadline is computed once, and only if `late` has passed.

    >>> from orchestrator.algebra import dialect
    >>> text = 'SELECT s.a FROM unnest("\\0program".d) AS d JOIN "\\0state".cache AS s ON s.a = d.a'
    >>> tree = within_time(Query(dialect.parse(text)), 7).tree
    >>> dialect.write(tree.args["where"].this)
    'idivm.in_time("\\x00program".late, (SELECT idivm.gives_up_at(7, "\\x00program".begun)))'
    """
    tree = query.tree.copy()
    _limit_time(tree, view_id)
    return Query(tree)


def _limit_time(tree: Tree | None, view_id: int) -> None:
    if isinstance(tree, exp.SetOperation):
        _limit_time(tree.this, view_id)
        _limit_time(tree.expression, view_id)
    elif isinstance(tree, exp.Subquery | exp.Paren):
        _limit_time(tree.this, view_id)
    elif isinstance(tree, exp.Select) and tree.args.get("from_"):
        for table in tree.ctes:
            _limit_time(table.this, view_id)
        items = [tree.args["from_"].this, *(join.this for join in tree.args.get("joins") or ())]
        if len(items) == 1 and isinstance(items[0], exp.Subquery):
            _limit_time(items[0], view_id)
        elif any(table.db for item in items for table in item.find_all(exp.Table)):
            tree.where(_in_time(view_id), copy=False)


def _in_time(view_id: int) -> exp.Expr:
    late, begun = (reference(variable, PROGRAM) for variable in ("late", "begun"))
    schema = exp.to_identifier("idivm")
    at = exp.Anonymous(this="gives_up_at", expressions=[exp.Literal.number(view_id), begun])
    deadline = exp.Subquery(this=exp.select(exp.Dot(this=schema, expression=at)))
    in_time = exp.Anonymous(this="in_time", expressions=[late, deadline])
    return exp.Dot(this=schema.copy(), expression=in_time)


def ended_late(program: Program, names: Names, code: Code) -> Code:
    """Return a statement that the time may end, and code that then recomputes.

    The statement writes nothing, so that its subtransaction takes no transaction number.
    """
    return [
        SQL("BEGIN"),
        code,
        SQL("EXCEPTION WHEN SQLSTATE 'IVT01' THEN"),
        [SQL("late := {}; CONTINUE;").format(_deadline(program, names))],
        SQL("END;"),
    ]


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
        SQL("PERFORM idivm.note_long({}, accesses, {}::regclass, begun, {});").format(
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
