"""Statements that recompute states and write only the differences."""

from __future__ import annotations

from psycopg.sql import SQL, Composable, Composed, Literal

from orchestrator.deltascript.costing import completed, note_long, note_recomputed
from orchestrator.deltascript.names import Names
from orchestrator.deltascript.plan import (
    Apply,
    Assign,
    BagTable,
    Program,
    ReadChanges,
    ReplaceContent,
    StateTable,
)
from orchestrator.deltascript.query import defined, query_code, stored
from orchestrator.deltascript.writer import (
    Code,
    Lines,
    branches,
    dollar_tag,
    filled,
    listed,
    name,
    when,
    written,
)


def recompute(program: Program, names: Names, again: bool) -> Code:
    """Return code that recomputes the states if a recomputation was requested.

    With `again`, a refresh may restart. The rows that it wrote before belong to the same
    transaction and are not counted. States that it had already completed are kept.
    """
    states = [state for state in program.states if isinstance(state, StateTable)]
    if not states:
        return []
    keyed = [
        str(names.sources[step.source.oid].id)
        for step in program.script
        if isinstance(step, ReadChanges) and step.source.keyed
    ]
    code: Lines = [
        SQL("PERFORM idivm.require_valid_plan({}, {}, {});").format(
            Literal(names.id), Literal(names.view), Literal(f"{{{','.join(keyed)}}}")
        )
    ]
    if again:
        code.append(SQL("changed := 0; kind := coalesce(nullif(kind, 'C'), 'R');"))
    order = {role: number for number, role in enumerate(completed(program), start=1)}
    for state in states:
        head = "changed := changed +" if state.role in program.shown_states else "PERFORM"
        call: Code = _recomputed(head, state, names, query_code(state.query, names))
        call = _if_affected(program, state.role, call)
        if state.role in order:
            call = when(SQL("kept < {}").format(Literal(order[state.role])), call)
        code += call
    noted = note_recomputed(program, names)
    code += branches([(SQL("kept > 0"), note_long(program, names))], noted) if order else noted
    code.append(SQL("RETURN;"))
    return branches([(SQL("rebuild"), code)])


def _if_affected(program: Program, role: str, call: Code) -> Code:
    """Return the call, under the condition that pending changes affect the state, unless all of
    them do.

    If a refresh decides by the sizes of all diffs (kind A), a state that none of them affects is
    already correct.
    """
    reads = [step for step in program.script if isinstance(step, ReadChanges)]
    every = [change.variable for step in reads for change in step.classes]
    reaching = variables_reaching(program, role)
    if reaching.issuperset(every):
        return call
    held = [
        SQL("{} IS NOT NULL").format(name(variable)) for variable in every if variable in reaching
    ]
    conditions = [SQL("kind IS DISTINCT FROM 'A'"), *held]
    return [*filled("IF ", conditions, " THEN", " OR "), call, SQL("END IF;")]


def variables_reaching(program: Program, role: str) -> frozenset[str]:
    """Return the variables whose rows may lead to changes of a state, through any steps."""
    result: set[str] = set()
    for step in reversed(program.script):
        if isinstance(step, Apply):
            reaches = step.state == role or step.collect in result
        else:
            reaches = isinstance(step, Assign) and not result.isdisjoint(
                (step.variable, *(each for each, _ in step.apart))
            )
        if reaches and isinstance(step, Apply | Assign):
            result.update(step.needs)
    return frozenset(result)


def refill(state: StateTable, names: Names, query: Composable | None = None) -> Composed:
    """Return a complete statement that gives a state the rows of its query, or of another query."""
    text = [query] if query else query_code(state.query, names)
    return SQL("{}").format(SQL(written(_recomputed("SELECT", state, names, text))))


def _recomputed(head: str, state: StateTable, names: Names, query: Code) -> Lines:
    """Return the call that recomputes a state, with the dollar-quoted query."""
    columns = (list(state.key), list(state.nullable), list(state.together))
    table, tag = Literal(stored(names, state.role).as_string(None)), SQL(dollar_tag(written(query)))
    return [
        SQL("{} idivm.recompute_state({}, {}, {}").format(
            SQL(head), table, listed(map(Literal, columns)), tag
        ),
        query,
        SQL("{});").format(tag),
    ]


def replaced(program: Program, names: Names, step: ReplaceContent) -> Code:
    """Return the call that gives a bag table the rows of the definition."""
    state = program.state(step.state)
    assert isinstance(state, BagTable)
    identity = state.identity
    arguments = [
        Literal(stored(names, state.role).as_string(None)),
        Literal(defined(names).as_string(None)),
        Literal(identity.row if identity else None),
        Literal(identity.nth if identity else None),
        # If a recomputation was requested, the key that made rows unique may be gone.
        SQL("NOT rebuild" if identity and identity.distinct else "false"),
    ]
    return filled("changed := changed + idivm.recompute_bag(", arguments, ");")
