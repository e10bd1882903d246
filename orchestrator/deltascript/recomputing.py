"""Statements that recompute states and write only the differences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from psycopg.sql import SQL, Composable, Composed, Literal
from sqlglot import exp

from orchestrator.algebra.dialect import Tree, identifier
from orchestrator.deltascript.costing import completed, note_long, note_recomputed
from orchestrator.deltascript.leaves import STATE
from orchestrator.deltascript.names import Names
from orchestrator.deltascript.plan import (
    Apply,
    Assign,
    BagTable,
    Program,
    Query,
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
    dotted,
    filled,
    listed,
    name,
    when,
    written,
)


def recompute(program: Program, names: Names, may_restart: bool) -> Code:
    """Return code that recomputes the states if a recomputation was requested.

    With `may_restart`, a refresh may restart. The rows that it wrote before belong to the same
    transaction and are not counted. States that it had already completed are kept.
    """
    states = [state for state in program.states if isinstance(state, StateTable)]
    if not states:
        return []
    code: Lines = [SQL("PERFORM {};").format(_requirement(program, names))]
    if program.merged is not None and program.reads_log_alone:
        code.insert(0, SQL("PERFORM idivm.require_fixed_tables(since);"))
    if may_restart:
        code.append(SQL("changed := 0; kind := coalesce(nullif(kind, 'C'), 'R');"))
    if program.content_stands_alone:
        code += _leave_states(program, names)
    order = {role: number for number, role in enumerate(completed(program), start=1)}
    for state in states:
        head = "changed := changed +" if state.role in program.shown_states else "PERFORM"
        call: Code = _recomputed(head, state, names, query_code(state.query, names))
        call = _if_affected(program, state.role, call)
        if state.kept:
            empty = SQL("NOT EXISTS (SELECT FROM {})").format(stored(names, state.role))
            call = when(empty, call)
        if state.role in order:
            call = when(SQL("kept < {}").format(Literal(order[state.role])), call)
        code += call
    noted = note_recomputed(program, names)
    code += branches([(SQL("kept > 0"), note_long(program, names))], noted) if order else noted
    code.append(SQL("RETURN;"))
    return branches([(SQL("rebuild"), code)])


def _requirement(program: Program, names: Names) -> Composed:
    """Return the call that refuses to compute states if the plan relies on a promise that is broken."""
    keyed = [
        str(names.sources[step.source.oid].id)
        for step in program.script
        if isinstance(step, ReadChanges) and step.source.keyed
    ]
    return SQL("idivm.require_valid_plan({}, {}, {})").format(
        Literal(names.id), Literal(names.view), Literal(f"{{{','.join(keyed)}}}")
    )


def _leave_states(program: Program, names: Names) -> Code:
    """Return code that computes the content alone if the states behind it are not worth their time.

    If they are already behind, the code after it computes all of them.
    """
    view, variant = Literal(names.id), Literal(program.variant)
    noted = "PERFORM idivm.note_content({}, work, content_only, kind, accesses, begun, {});"
    others = {s.role for s in program.states if isinstance(s, StateTable)} - {program.content}
    reaching = frozenset[str]().union(*(variables_reaching(program, role) for role in others))
    code: Lines = [
        SQL("work := idivm.query_work({});").format(Literal(defined(names).as_string(None))),
        *when(
            SQL("idivm.content_is_enough({}, work, content_only, kind, accesses)").format(view),
            [
                SQL("begun := clock_timestamp();"),
                SQL("changed := {}();").format(dotted("idivm_state", names.content_program)),
                SQL(noted).format(view, variant),
                SQL("kind := 'O';"),
                SQL("RETURN;"),
            ],
        ),
    ]
    if others and (reached := _reached(program, reaching)):
        # If the other states are current and stay so, the content is best computed from them.
        code = [*filled("IF content_only OR ", reached, " THEN", " OR "), code, SQL("END IF;")]
    return [
        *when(SQL("NOT requested"), code),
        *when(SQL("content_only"), [SQL("kind := 'R';")]),
    ]


def fill_content(program: Program, names: Names) -> Iterator[Composed]:
    """Yield the statements that fill the content alone, while the other states stay empty."""
    yield SQL("SELECT {}").format(_requirement(program, names))
    yield SQL("SELECT {}()").format(names.computing)


def compute_content(program: Program, names: Names) -> str:
    """Return the body of the function that computes the content alone."""
    content = program.state(program.content)
    assert isinstance(content, StateTable)
    call = _recomputed("RETURN", content, names, *_content_alone(program, content, names))
    return written([SQL("BEGIN"), call, SQL("END")]).rstrip("\n")


def _content_alone(
    program: Program, content: StateTable, names: Names
) -> tuple[Code, Sequence[str]]:
    """Return a query of the content that reads no state, and the columns that it computes if not all.

    The view's own query is the fastest. It lacks the hidden columns, which only diffs need. If these identify rows, the
    plan may have the query with the key.
    """
    visible = program.column_names
    if set(content.key) <= set(visible):
        columns = listed(map(name, visible))
        return [SQL("SELECT {} FROM {}").format(columns, defined(names))], visible
    if content.written is not None:
        return query_code(content.written, names), tuple(dict.fromkeys((*visible, *content.key)))
    return query_code(Query(_without_states(program, content)), names), ()


def content_share(
    program: Program, names: Names, expected: Callable[[str], tuple[float, float]]
) -> float:
    """Return the expected part of a recompute that computing the content alone takes.

    `expected` returns PostgreSQL's estimates of a query: its cost, and its rows.
    """

    def cost(query: Code, state: StateTable) -> float:
        each, rows = expected(written(query))
        # The estimates of groups by several columns are far too low.
        _, filled_rows = expected(written([SQL("SELECT FROM {}").format(names.state(state.role))]))
        return each + max(rows, filled_rows) * _WRITING

    content = program.state(program.content)
    assert isinstance(content, StateTable)
    tables = (state for state in program.states if isinstance(state, StateTable))
    query, _ = _content_alone(program, content, names)
    alone = cost(query, content)
    return alone / max(alone, sum(cost(query_code(state.query, names), state) for state in tables))


_WRITING = 0.25
"""The cost of writing or comparing a row of a state, in PostgreSQL's units; reading it costs 0.01."""


def _without_states(program: Program, state: StateTable) -> Tree:
    """Return the query of a state with the queries of other states in their places."""

    def replaced(node: Tree) -> Tree:
        if not isinstance(node, exp.Table) or node.db != STATE:
            return node
        other = program.state(node.name)
        assert isinstance(other, StateTable)
        columns = [identifier(column.name) for column in other.columns]
        return exp.Subquery(
            this=_without_states(program, other),
            alias=exp.TableAlias(this=identifier(node.alias_or_name), columns=columns),
            # A join in parentheses belongs to its first table.
            joins=[join.transform(replaced) for join in node.args.get("joins") or ()],
        )

    return state.query.tree.transform(replaced, copy=False)


def _if_affected(program: Program, role: str, call: Code) -> Code:
    """Return the call, under the condition that pending changes affect the state, unless all of
    them do.

    If a refresh decides by the sizes of all diffs (kind A), a state that none of them affects is
    already correct.
    """
    conditions = _reached(program, variables_reaching(program, role))
    if not conditions:
        return call
    return [*filled("IF ", conditions, " THEN", " OR "), call, SQL("END IF;")]


def _reached(program: Program, reaching: frozenset[str]) -> list[Composable]:
    """Return conditions of which one holds if a variable in `reaching` has pending changes.

    Return no conditions if `reaching` has all variables.
    """
    reads = [step for step in program.script if isinstance(step, ReadChanges)]
    every = [change.variable for step in reads for change in step.classes]
    if reaching.issuperset(every):
        return []
    held = (
        SQL("{} IS NOT NULL").format(name(variable)) for variable in every if variable in reaching
    )
    return [SQL("kind IS DISTINCT FROM 'A'"), *held]


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


def _recomputed(
    head: str, state: StateTable, names: Names, query: Code, visible: Sequence[str] = ()
) -> Lines:
    """Return the call that recomputes a state, with the dollar-quoted query. `visible` are its columns, if not all."""
    together = [column for column in state.together if not visible or column in visible]
    columns = (list(state.key), list(state.nullable), together)
    table, tag = Literal(stored(names, state.role).as_string(None)), SQL(dollar_tag(written(query)))
    return [
        SQL("{} idivm.recompute_state({}, {}, {}").format(
            SQL(head), table, listed(map(Literal, columns)), tag
        ),
        query,
        SQL("{}{});").format(
            tag, SQL(", {}").format(Literal(list(visible))) if visible else SQL("")
        ),
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
