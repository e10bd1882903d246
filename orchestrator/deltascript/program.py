"""The refresh function of a view: its Δ-script as PL/pgSQL.

A diff is an array of rows in a variable, and is read with unnest. The planner expects ten rows in
such an array, unless it plans for the actual values, whose number it then knows. Small diffs share
plans that look up rows by indexes. If a diff is large, statements are planned for their diffs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from orchestrator.deltascript import sizes
from orchestrator.deltascript.applying import (
    GATHERING,
    LOOKING_UP,
    MERGING,
    applied,
    gathers,
    is_unmerged,
    looks_up,
)
from orchestrator.deltascript.assigning import HASHING, assigned, looked_up
from orchestrator.deltascript.capture.table import function_body
from orchestrator.deltascript.costing import (
    FREELY,
    NEVER,
    compare_costs,
    completed,
    note_cost,
    replan_statements,
)
from orchestrator.deltascript.names import Names
from orchestrator.deltascript.notation import comment
from orchestrator.deltascript.plan import (
    Analyse,
    Apply,
    Assign,
    BagTable,
    Program,
    ReadChanges,
    ReplaceContent,
    Replan,
    StateTable,
    Step,
    TurnDial,
)
from orchestrator.deltascript.query import defined, stored
from orchestrator.deltascript.reading import read_logs
from orchestrator.deltascript.recomputing import compute_content, recompute, replaced
from orchestrator.deltascript.writer import (
    Code,
    Lines,
    branches,
    filled,
    listed,
    name,
    when,
    written,
)
from orchestrator.sqltext import SEARCH_PATH


def create_program(program: Program, names: Names, block: str | None = None) -> Iterator[Composed]:
    """Yield the statements that create or replace the refresh function. `block` is its block if it is known.

    It runs with the settings of the view's creator. It returns the number of rows that it changed,
    the kind of the refresh (NULL if there were no changes), and which of the transaction's own
    statements it consumed.
    """
    yield SQL("SELECT idivm.replace_program({})").format(Literal(names.id))
    settings = SQL("").join(
        SQL("SET {} = {}\n").format(Identifier(setting), Literal(value))
        for setting, value in program.settings
    )
    own = SQL("".join(f"SET {setting} = {value}\n" for setting, value in _settings(program, names)))
    yield SQL(
        "CREATE FUNCTION {}(since idivm.watermark, rebuild boolean, content_only boolean DEFAULT false,\n"
        '    OUT changed bigint, OUT kind "char", OUT marks jsonb)\n'
        "LANGUAGE plpgsql SECURITY DEFINER\nSET search_path = {}\n"
        "{}{}AS {}"
    ).format(
        names.refresh,
        SQL(SEARCH_PATH),
        own,
        settings,
        function_body(SQL(_PRAGMA + (block or program_block(program, names)))),
    )
    if program.content_stands_alone:
        yield SQL(
            "CREATE FUNCTION {}() RETURNS bigint LANGUAGE plpgsql SET search_path = {} AS {}"
        ).format(
            names.computing,
            SQL(SEARCH_PATH),
            function_body(SQL(compute_content(program, names))),
        )


def fill_states(
    program: Program, names: Names, block: str | None = None
) -> tuple[dict[str, str], Composed]:
    """Return settings, and a statement that computes the states with them as a requested rebuild does.

    A session keeps the plans of a function until it ends, and each DDL statement then goes through all of them. The
    plans of this statement end with it.
    """
    arguments = (
        "since idivm.watermark; rebuild boolean := true; content_only boolean := false;",
        'changed bigint; kind "char"; marks jsonb;',
    )
    text = SQL(_PRAGMA + "DECLARE\n{}\nBEGIN\n{};\nEND\n").format(
        SQL("\n").join(map(SQL, arguments)), SQL(block or program_block(program, names))
    )
    settings = {**dict(_settings(program, names)), **dict(program.settings)}
    return settings, SQL("DO {}").format(function_body(text))


_PRAGMA = "#variable_conflict use_column\n"


def program_block(program: Program, names: Names) -> str:
    """Return the block that is the body of the refresh function."""
    attempts = any(isinstance(step, Assign) for step in program.script)
    body: Lines = [*recompute(program, names, attempts)]
    if attempts:
        body.append(SQL("rebuild := true;  -- for CONTINUE"))
    kept = {place: number for number, place in enumerate(completed(program).values(), start=1)}
    for place, step in enumerate(program.script):
        if not isinstance(step, ReadChanges):
            body += step_code(program, names, step)
        if place in kept:
            body.append(SQL("kept := {};").format(Literal(kept[place])))
    body += note_cost(program, names)
    if attempts:
        body = [SQL("LOOP"), [*body, SQL("RETURN;")], SQL("END LOOP;")]
    content, definition = stored(names, program.content), defined(names)
    return written(
        [
            SQL("-- Keeps {} equal to the rows of {}; strategy {}.").format(
                _in_a_comment(content), _in_a_comment(definition), SQL(program.strategy)
            ),
            SQL("<<{}>>").format(name(names.program)),
            SQL("DECLARE"),
            _declarations(program, names),
            SQL("BEGIN"),
            [SQL("changed := 0;"), *_read_changes(program, names), *body],
            SQL("END"),
        ]
    ).rstrip("\n")


def step_code(program: Program, names: Names, step: Step) -> Code:
    """Return the statements of a step after a comment that describes it."""
    notation = getattr(step, "notation", "")
    return [*map(SQL, comment(notation)), *_STATEMENTS[type(step)](program, names, step)]


def analyse_states(
    program: Program, names: Names, *, content_only: bool = False
) -> Iterator[Composed]:
    """Yield the statements that update the planner's statistics of the state tables."""
    for state in program.states:
        if content_only and state.role != program.content:
            continue
        if isinstance(state, BagTable | StateTable):
            yield SQL("ANALYZE {}").format(stored(names, state.role))


def _analysed(program: Program, names: Names, step: Analyse) -> Code:
    statements = [SQL("{};").format(statement) for statement in analyse_states(program, names)]
    return branches([(_holds_any(step.needs), statements)])


def _replanned(program: Program, names: Names, step: Replan) -> Code:
    return branches([(_holds_any(step.needs), replan_statements(program))])


def _dials(program: Program) -> list[TurnDial]:
    return [step for step in program.script if isinstance(step, TurnDial)]


def _relations(names: Names, roles: Iterable[str]) -> Composed:
    """Return an array of states."""
    each = (
        SQL("{}::regclass").format(Literal(stored(names, role).as_string(None))) for role in roles
    )
    return SQL("ARRAY[{}]").format(SQL(", ").join(each))


def _count(sign: str) -> Lines:
    """Return code that adds to two variables, or subtracts from them, the steps and scans that this session has counted
    and not reported yet.
    """
    return [
        SQL("FOREACH relation IN ARRAY coalesce(relations, '{}') LOOP"),
        [
            SQL(
                f"steps := steps {sign} pg_stat_get_xact_numscans(relation)"
                f" {sign} pg_stat_get_xact_tuples_returned(relation);"
            )
        ],
        SQL("END LOOP;"),
        SQL("FOREACH relation IN ARRAY coalesce(scanned, '{}') LOOP"),
        [SQL(f"scans := scans {sign} pg_stat_get_xact_numscans(relation);")],
        SQL("END LOOP;"),
    ]


def _begun(names: Names, step: TurnDial) -> Code:
    """Return code that notes what this session has counted before the refresh."""
    relations, scanned = (SQL("c.{}").format(Identifier(column)) for column in step.counted[:2])
    return [
        SQL("SELECT {}, {} INTO relations, scanned FROM {} AS c;").format(
            relations, scanned, stored(names, step.dial)
        ),
        *_count("-"),
    ]


def _turned(program: Program, names: Names, step: TurnDial) -> Code:
    """Return code that counts the changes and what they took, and looks at the counts about once a second."""
    block = name(names.program)
    sums = (
        SQL("{} + {}.pending"),
        SQL("{} + {}.steps"),
        SQL("{} + {}.scans"),
        SQL("{} + (clock_timestamp() - {}.begun)"),
    )
    sets = [
        SQL("{} = {}").format(name(column), value.format(SQL("c.{}").format(name(column)), block))
        for column, value in zip(step.counted[2:-1], sums, strict=True)
    ]
    due = SQL("c.{}").format(name(step.counted[-1]))
    code: Lines = [
        *_count("+"),
        SQL("UPDATE {} AS c").format(stored(names, step.dial)),
        *filled("SET ", sets),
        SQL(
            "RETURNING clock_timestamp() NOT BETWEEN {} - interval '1 second' AND {} INTO looks;"
        ).format(due, due),
    ]
    roles, columns, atoms = zip(*step.degrees, strict=True)
    arguments = [
        Literal(stored(names, step.dial).as_string(None)),
        _texts([step.epsilon, *step.counted]),
        Literal(stored(names, step.observations).as_string(None)),
        Literal(step.observed),
        Literal(stored(names, step.state).as_string(None)),
        Literal(step.base),
        _relations(names, step.read),
        _relations(names, step.scanned),
        _relations(names, roles),
        _texts(columns),
        SQL("ARRAY[{}]").format(SQL(", ").join(map(Literal, atoms))),
        Literal(step.delta),
        Literal(step.width),
    ]
    return [*code, *when(SQL("looks"), filled("PERFORM idivm.turn_dial(", arguments, ");"))]


def _texts(values: Iterable[str]) -> Composed:
    return SQL("ARRAY[{}]").format(SQL(", ").join(map(Literal, values)))


def _assigned(program: Program, names: Names, step: Assign) -> Code:
    code = assigned(program, names, step)
    return branches([(_holds_any(step.needs), code)]) if step.needs else code


_STATEMENTS: dict[type[Any], Callable[[Program, Names, Any], Code]] = {
    Analyse: _analysed,
    Apply: applied,
    Assign: _assigned,
    Replan: _replanned,
    ReplaceContent: replaced,
    TurnDial: _turned,
}


def _holds_any(variables: tuple[str, ...]) -> Composed:
    # A variable holds rows or is NULL; it is never an empty array.
    return listed((SQL("{} IS NOT NULL").format(name(variable)) for variable in variables), " OR ")


def _settings(program: Program, names: Names) -> Iterator[tuple[str, str]]:
    """Yield the settings with which the function starts; reading a large diff changes them."""
    reads = any(isinstance(step, ReadChanges) for step in program.script)
    # If a policy hid rows from the owner, the stored content would be wrong for every reader.
    yield "row_security", "off"
    if reads:
        yield "plan_cache_mode", "force_generic_plan"
    # Statements that fill variables or tables do not run in parallel, but would be planned for it.
    yield "max_parallel_workers_per_gather", "0"
    if reads and names.sorts_before:
        # Reading a log counts its distinct keys, which are far fewer than its rows.
        yield "enable_presorted_aggregate", "off"
    if program.by_lookups:
        # A disabled method counts as very expensive, so its plans would be compiled just in time.
        # Frequent values make hash tables larger than statistics predict.
        yield from (("join_collapse_limit", "1"), ("jit", "off"), ("hash_mem_multiplier", "8"))
        yield from ((setting, value) for setting, _, value in HASHING if setting not in FREELY)
        yield from ((setting, "off") for setting in (*FREELY, NEVER))
    else:
        steps = [step for step in program.script if isinstance(step, Apply)]
        switched: list[str] = []
        if any(gathers(program, step, names) for step in steps):
            switched += GATHERING
        if any(looks_up(program, step) for step in steps):
            switched += LOOKING_UP
        if any(is_unmerged(program, step) for step in steps):
            switched += [setting for setting, _, _ in MERGING]
        if any(
            looked_up(step.query) for step in program.script if isinstance(step, Apply | Assign)
        ):
            # A disabled method counts as very expensive, as above.
            yield "jit", "off"
            switched.append("enable_nestloop")
        yield from ((setting, "on") for setting in dict.fromkeys(switched))


def _declarations(program: Program, names: Names) -> Code:
    """Return the declarations of the variables of the program, including those that hold diffs."""
    diffs = [
        SQL("{} {}[];").format(name(variable), stored(names, shape))
        for variable, shape in program.variables
    ]
    kept = [SQL("kept integer := 0;")] if completed(program) else []
    counted = [
        SQL("relations oid[]; scanned oid[]; relation oid; looks boolean;"),
        SQL("steps double precision := 0; scans double precision := 0;"),
    ]
    requested = SQL("requested boolean := rebuild; work double precision;")
    return [
        SQL("begun timestamptz := clock_timestamp();"),
        # The first refresh of a session plans its statements.
        SQL("late timestamptz := begun + interval {};").format(Literal(sizes.PATIENCE)),
        SQL(
            "floor xid8 := pg_snapshot_xmin(since.snapshot); ceiling xid8 := pg_snapshot_xmax(since.snapshot);"
        ),
        SQL("consumer xid8 := since.own_xid; own xid8 := pg_current_xact_id_if_assigned();"),
        SQL("accesses double precision := 0; pending bigint := 0; applied bigint; bytes bigint;"),
        SQL("taken bigint; keys bigint; last bigint; truncated boolean;"),
        *kept,
        *(counted if _dials(program) else []),
        *([requested] if program.content_stands_alone else []),
        *(_unnested(filled("", diffs, separator=" ")) if diffs else ()),
    ]


def _unnested(lines: Code) -> Code:
    """Return lines without nesting."""
    flattened: Lines = []
    for line in lines:
        flattened += [line] if isinstance(line, Composable) else line
    return flattened


def _read_changes(program: Program, names: Names) -> Code:
    """Return code that reads the changes since the watermark.

    A program without anything to do returns here, before it has written anything.
    """
    code: Lines = [
        *read_logs(program, names),
        SQL("kind := CASE WHEN rebuild THEN 'R' WHEN pending > 0 THEN 'C' END;"),
    ]
    if not program.time_dependent:
        code += when(SQL("kind IS NULL"), [SQL("RETURN;")])
    code += when(
        SQL("current_setting('transaction_isolation') IN ('repeatable read', 'serializable')"),
        [SQL("PERFORM idivm.claim_watermark({});").format(Literal(names.id))],
    )
    for dial in _dials(program):
        code += _begun(names, dial)
    if any(isinstance(step, ReadChanges) for step in program.script):
        code += compare_costs(program, names)
    elif not program.time_dependent:
        cancels = SQL("kind = 'C' AND idivm.pending_cancels({})").format(Literal(names.id))
        code += when(cancels, [SQL("RETURN;")])
    return code


def _in_a_comment(text: Composable) -> SQL:
    """Return a name for a comment; no part of it may end the line."""
    return SQL(" ".join(text.as_string(None).split()))
