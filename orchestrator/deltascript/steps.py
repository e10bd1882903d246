"""Renders the steps of a Δ-script over i-diffs as plpgsql.

A diff is held in a variable, an array of rows, and read with unnest. The planner takes such an
array for ten rows, unless it plans for the very values: then it knows the size. Small diffs share
one plan of index probes; from where one is large on, statements are planned for what their diffs are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from psycopg.sql import SQL, Composable, Composed, Identifier, Literal
from sqlglot import exp

from orchestrator.algebra import dialect
from orchestrator.algebra.dialect import Tree, identifier, reference
from orchestrator.deltascript import changes
from orchestrator.deltascript.identity import add_key
from orchestrator.deltascript.leaves import PROGRAM, SOURCE, STATE
from orchestrator.deltascript.names import Names
from orchestrator.deltascript.nulls import without_nulls
from orchestrator.deltascript.plan import (
    Analyse,
    Apply,
    Assign,
    BagTable,
    MaintenancePlan,
    Nulls,
    Query,
    ReadChanges,
    Replan,
    StateTable,
    Step,
)

_NAMES_AND_STRINGS = (exp.Identifier, exp.Literal, exp.National, exp.RawString, exp.ByteString)

SMALL = 2000
"""Diffs up to so many rows share a plan."""

_NOTHING = SQL("")

LARGE = 4_000_000
"""A diff of more rows is not held: what it would be applied to is recomputed."""

CHEAP = 1000
"""A refresh of so few changed rows is compared with recomputing by what was measured, not by the model,
and does not tell what those of large diffs cost."""

MANY = 100
"""A refresh that expects so few accesses is not weighed against recomputing."""

LONG = SQL("interval '20 milliseconds'")
"""A refresh that takes no longer is not compared with what recomputing takes."""

TELLING = 1000
"""What a refresh takes that expects so few accesses is more a matter of its statements."""


_FREELY = ("enable_seqscan", "enable_hashjoin", "enable_mergejoin", "enable_material")
"""Settings that are off where small diffs go through indexes whatever the statistics say."""


_HASHING = (
    ("enable_nestloop", "off", "on"),
    ("enable_mergejoin", "off", "on"),
    ("cpu_operator_cost", "0", "0.0025"),
)
"""Settings where a large diff is joined by hashing, and elsewhere. PostgreSQL expects that most values of
a diff are the same, and would rather hash all that it is joined with."""


FEW = 32
"""Rows up to which a diff meets the rows of a state one by one."""

_GATHERING = ("enable_nestloop", "enable_mergejoin", "enable_indexscan", "enable_seqscan")
"""Settings that are off where the rows of a state that more of a diff meets are gathered first."""

_LOOKING_UP = ("enable_hashjoin", "enable_mergejoin", "enable_seqscan")
"""Settings that are off where many rows are merged: each is looked up by the key, in its order. To read
all that there is, as PostgreSQL would rather, costs more even where a tenth of it is met."""


def analyse_states(plan: MaintenancePlan, names: Names) -> Iterator[Composed]:
    """The statements after which the planner knows the sizes of the state tables."""
    for state in plan.states:
        if isinstance(state, BagTable | StateTable):
            yield SQL("ANALYZE {}").format(names.state(state.role))


def plan_mode(plan: MaintenancePlan, names: Names) -> SQL:
    """The settings under which a program begins; reading a large diff changes them."""
    reads = any(isinstance(step, ReadChanges) for step in plan.script)
    settings = ["plan_cache_mode = force_generic_plan"] if reads else []
    # What fills a variable or a table does not run in parallel, but would be planned to.
    settings.append("max_parallel_workers_per_gather = 0")
    if reads and names.sorts_before:
        # Reading a log counts its keys, which are a fraction of its rows.
        settings.append("enable_presorted_aggregate = off")
    if plan.by_lookups:
        # What is switched off counts as very dear, and what is dear would be compiled.
        # Values that many rows have make more rows to hash than statistics expect.
        settings += ["join_collapse_limit = 1", "jit = off", "hash_mem_multiplier = 8"]
        settings += [f"{name} = {value}" for name, _, value in _HASHING if name not in _FREELY]
        settings += [f"{one} = off" for one in _FREELY]
    else:
        applied = [step for step in plan.script if isinstance(step, Apply)]
        switched: list[str] = []
        if any(_gathers(plan, one, names) for one in applied):
            switched += _GATHERING
        if any(_looks_up(plan, one) for one in applied):
            switched += _LOOKING_UP
        settings += [f"{one} = on" for one in dict.fromkeys(switched)]
    return SQL("".join(f"SET {one}\n" for one in settings))


def _replan(plan: MaintenancePlan) -> SQL:
    """What has the statements that follow planned for the very values, in any way."""
    settings = [("plan_cache_mode", "force_custom_plan")]
    if plan.by_lookups:
        settings += [(one, "on") for one in _FREELY]
    return _switched(settings)


def _switched(settings: Iterable[tuple[str, str]]) -> SQL:
    """What changes settings for the statements that follow, until the program ends."""
    calls = ", ".join(f"set_config('{name}', '{value}', true)" for name, value in settings)
    return SQL(f"PERFORM {calls};\n")


def declarations(plan: MaintenancePlan, names: Names) -> Composed:
    """The variables that hold the diffs."""
    return SQL(
        "{}    budget double precision;\n"
        # The first refresh of a session plans its statements.
        "    late timestamptz := begun + interval '500 milliseconds';\n{}"
    ).format(
        changes.declarations(),
        SQL("").join(
            SQL("    {} {}[];\n").format(Identifier(variable), names.state(shape))
            for variable, shape in plan.variables
        ),
    )


def query_text(
    query: Query, names: Names, shapes: Mapping[str, str] | None = None, indent: str = ""
) -> SQL:
    """A query with the real names of states and variables; with `shapes`, of empty variables."""

    def named(node: Tree) -> Tree:
        if isinstance(node, exp.Table) and node.db == STATE:
            node.set("this", identifier(names.table(node.name)))
            node.set("db", identifier("idivm_state"))
        if isinstance(node, exp.Table) and node.db == SOURCE:
            source = names.sources[int(node.name.partition("\0")[2])]
            node.set("this", identifier(f"s{source.id}"))
            node.set("db", identifier("idivm_def"))
        if isinstance(node, exp.Column) and "\0" in node.name:
            oid, _, attnum = node.name.partition("\0")[2].partition(".")
            return reference(names.sources[int(oid)].columns[int(attnum)], node.table)
        if isinstance(node, exp.Column) and node.table == PROGRAM:
            if shapes is None:
                return reference(node.name, names.program)
            kind = names.state(shapes[node.name]).as_string(None) + "[]"
            return exp.Cast(this=exp.Null(), to=exp.DataType(this=exp.DType.USERDEFINED, kind=kind))
        return node

    tree = query.tree.transform(named, copy=False)
    # Written by the generator from a tree: every name in it is quoted where it must be. Where a line
    # ends within a name or a string, all lines stay as they are.
    if any("\n" in str(node.args.get("this")) for node in tree.find_all(*_NAMES_AND_STRINGS)):
        return SQL(dialect.write(tree, own=True))
    return SQL(dialect.write(tree, pretty=True, own=True).replace("\n", "\n" + indent))


def index_state(state: StateTable, names: Names) -> Iterator[Composed]:
    """A unique index on the key, and one for every other way in which the script looks for rows."""
    table = names.state(state.role)
    if state.key and not state.nullable:
        yield add_key(table, *state.key)
    elif state.key:
        yield SQL("CREATE UNIQUE INDEX ON {} ({}) NULLS NOT DISTINCT").format(
            table, _listed(state.key)
        )
    else:
        yield SQL("CREATE UNIQUE INDEX ON {} ((true))").format(table)
    for columns in state.probes:
        yield SQL("CREATE INDEX ON {} ({})").format(table, _listed(columns))


def rebuild(plan: MaintenancePlan, names: Names) -> Composed:
    """Recomputes the states where that was asked for, and applies only the difference."""
    states = [state for state in plan.states if isinstance(state, StateTable)]
    if not states:
        return SQL("").format()
    sources = [
        names.sources[step.source.oid].id
        for step in plan.script
        if isinstance(step, ReadChanges) and step.source.keyed
    ]
    stops: list[Composable] = [
        _stop(
            "a part was dropped of what captures the changes of a table that % reads",
            SQL(
                "SELECT FROM idivm.view_sources AS vs\n"
                "            WHERE vs.view = {} AND idivm.capture_is_broken(vs.source)"
            ).format(Literal(names.id)),
            names,
        ),
        _stop(
            "a table that % reads has lost its key",
            SQL(
                "SELECT FROM idivm.view_sources AS vs JOIN idivm.sources AS s ON s.id = vs.source\n"
                "            JOIN pg_class AS c ON c.oid = s.relation\n"
                "            WHERE vs.view = {} AND vs.source = ANY ({})\n"
                "              AND (NOT s.keyed OR idivm.key_is_gone(s.id)\n"
                "                   OR c.relkind <> 'p' AND EXISTS (\n"
                "                       SELECT FROM pg_inherits AS i WHERE i.inhparent = c.oid))"
            ).format(Literal(names.id), Literal(sources)),
            names,
        ),
        _stop(
            "a table that % reads has lost a key or a NOT NULL that its plan relies on",
            SQL("SELECT FROM idivm.broken_promises AS b WHERE b.view = {}").format(
                Literal(names.id)
            ),
            names,
        ),
    ]
    if any(source.virtual for source in plan.sources):
        stops.append(
            _stop(
                "a virtual generated column that % reads has another expression",
                SQL(
                    "SELECT FROM idivm.changed_expressions AS c WHERE c.view = {} AND c.in_plan"
                ).format(Literal(names.id)),
                names,
            )
        )
    if plan.inlined:
        # The script has their definitions in it.
        changed = SQL(
            "SELECT FROM idivm.inlined_views AS i WHERE i.view = {}\n"
            "              AND i.signature IS DISTINCT FROM idivm.signature(i.relation)"
        ).format(Literal(names.id))
        stops.insert(
            0,
            _stop(
                "a plain view that % reads was replaced, or a table altered whose rows it reads as values",
                changed,
                names,
            ),
        )
    return SQL(
        "    IF rebuild THEN\n{}{}"
        # A few rows tell nothing but what a statement costs.
        "        IF clock_timestamp() > begun + interval '10 milliseconds' THEN\n"
        "            PERFORM idivm.note_recompute({}, idivm.query_work({}), begun, {});\n        END IF;\n"
        "        RETURN;\n    END IF;\n"
    ).format(
        SQL("").join(stops),
        SQL("").join(
            _recomputed(state, names, state.role in plan.shown_states) for state in states
        ),
        Literal(names.id),
        _definition(names),
        Literal(plan.way),
    )


def _definition(names: Names) -> Composed:
    return SQL("{}::regclass").format(Literal(names.definition.as_string(None)))


def _stop(message: str, found: Composable, names: Names) -> Composed:
    """Ends a rebuild where the program is no longer one for the view."""
    return SQL(
        "        IF EXISTS (\n            {}\n        ) THEN\n"
        "            RAISE EXCEPTION {}, {}\n"
        "                USING ERRCODE = 'object_not_in_prerequisite_state',\n"
        "                      HINT = 'Refresh it once by idivm refresh, which plans it again.';\n"
        "        END IF;\n"
    ).format(found, Literal(message), Literal(names.view))


def refill(state: StateTable, names: Names, query: Composable | None = None) -> Composed:
    """Return the statement that gives a state the rows of its query, or of another one."""
    if query is None:
        query = query_text(state.query, names, indent="            ")
    # PostgreSQL finds the table by the name within the string.
    return SQL("SELECT idivm.recompute_state({}::regclass, {}, {}, {}, {})").format(
        Literal(names.state(state.role).as_string(None)),
        *(_names(one) for one in (state.key, state.nullable, state.together)),
        Literal(query.as_string(None)),
    )


def _names(columns: Iterable[str]) -> Composed:
    return SQL("ARRAY[{}]::text[]").format(SQL(", ").join(map(Literal, columns)))


def _recomputed(state: StateTable, names: Names, counts: bool) -> Composed:
    return SQL("        {} INTO applied;\n{}").format(
        refill(state, names),
        SQL("        changed := changed + applied;\n") if counts else SQL(""),
    )


def step_text(plan: MaintenancePlan, names: Names, step: Step) -> Composed:
    """A step of the script."""
    if isinstance(step, Assign):
        assigned = _assigned(step, names)
        plain = without_nulls(step.query)
        if plain is not None:
            query, fields = plain
            assigned = SQL(
                "IF {} THEN\n        {}        ELSE\n        {}        END IF;\n"
            ).format(
                _has_no_nulls(fields, names),
                _assigned(replace(step, query=query), names),
                assigned,
            )
        if step.hashed:
            assigned = _switched_where_large(step, assigned, _HASHING)
        size = SQL("cardinality({})").format(Identifier(step.variable))
        given_up = _given_up(step)
        if _most(step) < SMALL:
            planned = SQL("{}{}").format(given_up, _planned_for(plan, size))
        else:
            planned = _planned_for(plan, size, given_up)
        weighed = _weighed(plan, names, step)
        return _guarded(step.needs, SQL("{}        {}{}").format(weighed, assigned, planned))
    if isinstance(step, Apply):
        counts = step.state in plan.shown_states
        applied = _applied(plan, step, names, counts)
        if _gathers(plan, step, names):
            applied = SQL(
                "IF {size} > {few} AND {size} <= {small} THEN\n        {off}        {gathered}"
                "        {on}        ELSE\n        {applied}        END IF;\n"
            ).format(
                size=_size(step.needs),
                few=Literal(FEW),
                small=Literal(SMALL),
                off=_switched((one, "off") for one in _GATHERING),
                gathered=_applied(plan, step, names, counts, gathers=True),
                on=_switched((one, "on") for one in _GATHERING),
                applied=applied,
            )
        elif _has_nullable_keys(step):
            applied = SQL("IF {} THEN\n        {}        ELSE\n        {}        END IF;\n").format(
                _has_many_without_nulls(step, names),
                _applied(plan, _with_plain_keys(step), names, counts),
                applied,
            )
        if _looks_up(plan, step):
            settings = [(one, "off", "on") for one in _LOOKING_UP]
            applied = _switched_where_large(step, applied, settings)
        return _guarded(step.needs, applied)
    if isinstance(step, Replan):
        return _guarded(step.needs, _replan(plan))
    if isinstance(step, Analyse):
        return _guarded(step.needs, _statements(analyse_states(plan, names)))
    raise TypeError(f"no SQL for {type(step).__name__}")


def _assigned(step: Assign, names: Names) -> Composed:
    return SQL(
        "SELECT {rows}\n        INTO {variables}\n"
        "        FROM (SELECT * FROM (\n            {query}\n        ) AS d LIMIT {limit}) AS d;\n"
    ).format(
        limit=Literal(_most(step) + 1),
        rows=_collected(step, names),
        variables=_listed([step.variable, *(variable for variable, _ in step.apart)]),
        query=query_text(step.query, names, indent="            "),
    )


def _has_no_nulls(fields: Iterable[tuple[str, str]], names: Names) -> Composed:
    """Whether fields of variables hold no NULL."""
    by_variable: dict[str, list[str]] = {}
    for variable, name in sorted(fields):
        by_variable.setdefault(variable, []).append(name)
    return SQL(" AND ").join(
        SQL("NOT EXISTS (SELECT FROM unnest({}) AS d WHERE {})").format(
            _qualified(names, variable),
            SQL(" OR ").join(SQL("d.{} IS NULL").format(Identifier(name)) for name in fields),
        )
        for variable, fields in by_variable.items()
    )


def _has_nullable_keys(step: Apply) -> bool:
    """Whether many rows of a diff are worth asking whether their keys hold any NULL."""
    return (
        step.kind in ("delete", "update")
        and bool(step.needs)
        and any(nulls == "some" for _, _, nulls in step.keys)
        and _reads_variables_alone(step)
    )


def _has_many_without_nulls(step: Apply, names: Names) -> Composed:
    nullable = [name for _, name, nulls in step.keys if nulls == "some"]
    return SQL(
        "{} > {} AND NOT EXISTS (SELECT FROM (\n            {}\n        ) AS d WHERE {})"
    ).format(
        _size(step.needs),
        Literal(FEW),
        query_text(step.query, names, indent="            "),
        SQL(" OR ").join(SQL("d.{} IS NULL").format(Identifier(name)) for name in nullable),
    )


def _with_plain_keys(step: Apply) -> Apply:
    keys = tuple((k, d, "none" if nulls == "some" else nulls) for k, d, nulls in step.keys)
    return replace(step, keys=keys)


def _statements(statements: Iterable[Composable]) -> Composed:
    return SQL("").join(SQL("{};\n        ").format(one) for one in statements)


def _collected(step: Assign, names: Names) -> Composed:
    """The rows of a diff as an array, and again those that a condition sets apart."""
    rows = SQL("array_agg(ROW({})::{})").format(_fields_of(step.query), names.state(step.shape))
    apart = [SQL("{} FILTER (WHERE {})").format(rows, SQL(where)) for _, where in step.apart]
    return SQL(",\n            ").join([rows, *apart])


def _switched_where_large(
    step: Assign | Apply, statement: Composable, settings: Sequence[tuple[str, str, str]]
) -> Composed:
    """A statement under settings that are different where the step meets a large diff: name, there, here."""
    large = SQL("{} > {}").format(_size(step.needs), Literal(SMALL))
    there, here = (
        SQL("IF {} THEN\n            {}        END IF;\n").format(large, _switched(values))
        for values in (
            [(name, value) for name, value, _ in settings],
            [(name, value) for name, _, value in settings],
        )
    )
    return SQL("{}        {}        {}").format(there, statement, here)


def _size(variables: Iterable[str]) -> Composed:
    """How many rows some variables hold."""
    return SQL(" + ").join(map(_held, variables))


def _held(variable: str) -> Composed:
    return SQL("coalesce(cardinality({}), 0)").format(Identifier(variable))


def _guarded(needs: Iterable[str], statement: Composable) -> Composed:
    # A variable holds rows or NULL, never an empty array.
    held = [SQL("{} IS NOT NULL").format(Identifier(variable)) for variable in needs]
    if not held:
        return SQL("    {}").format(statement)
    return SQL("    IF {} THEN\n        {}    END IF;\n").format(SQL(" OR ").join(held), statement)


def _planned_for(plan: MaintenancePlan, size: Composable, then: Composable = _NOTHING) -> Composed:
    """From where a diff is large on, statements are planned for what their diffs are."""
    return SQL("    IF {} > {} THEN\n        {}{}    END IF;\n").format(
        size, Literal(SMALL), _replan(plan), then
    )


def _given_up(step: Assign) -> Composed:
    """Begins once more, with a rebuild, where a diff is too large to be held."""
    return SQL("        IF cardinality({}) > {} THEN\n{}        END IF;\n").format(
        Identifier(step.variable), Literal(_most(step)), _BEGIN_RECOMPUTE
    )


_BEGIN_RECOMPUTE = SQL(
    "            rebuild := true;\n            kind := 'R';\n            changed := 0;\n            CONTINUE;\n"
)


def _weighed(plan: MaintenancePlan, names: Names, step: Assign) -> Composable:
    """Begins once more, with a rebuild, where what is left of a refresh takes longer than that.

    By now the diffs that the step reads have a size, and the time since the refresh began is known. Past
    half of what a rebuild takes, no further diff is computed: a refresh that loses does so once, and by half.
    """
    if plan.by_lookups:
        return _NOTHING
    accesses = SQL(" + ").join(
        SQL("{} * {}").format(Literal(round(each, 1)), _held(variable))
        for variable, each in step.lookups
    )
    dear = (
        SQL(
            "        IF pending > {cheap} AND {cheaper} THEN\n{recomputed}        END IF;\n",
        ).format(
            cheap=Literal(CHEAP),
            cheaper=_recompute_is_cheaper(names, accesses),
            recomputed=_BEGIN_RECOMPUTE,
        )
        if step.lookups
        else _NOTHING
    )
    late = (
        SQL(
            "        IF clock_timestamp() > late THEN\n"
            "            IF budget IS NULL THEN\n"
            "                budget := idivm.recompute_seconds({view}, idivm.query_work({definition}));\n"
            "                late := greatest(late, begun + make_interval(secs => budget / 2));\n"
            "            END IF;\n"
            "            IF clock_timestamp() > late THEN\n"
            "                PERFORM idivm.note_loss({view}, accesses, {way});\n"
            "    {recomputed}            END IF;\n        END IF;\n"
        ).format(
            view=Literal(names.id),
            definition=_definition(names),
            way=Literal(plan.way),
            recomputed=_BEGIN_RECOMPUTE,
        )
        if step != next(one for one in plan.script if isinstance(one, Assign))
        else _NOTHING
    )
    return SQL("{}{}").format(dear, late)


def _recompute_is_cheaper(names: Names, accesses: Composable) -> Composed:
    """Whether a rebuild takes less time; what PostgreSQL expects of the query is asked where it may matter."""
    return SQL(
        # Within parentheses, as what follows IF ends at the first THEN outside of them.
        "(CASE WHEN idivm.recompute_is_cheaper({view}, {accesses})\n"
        "                THEN idivm.recompute_is_cheaper({view}, {accesses}, idivm.query_work({definition}))\n"
        "                ELSE false END)"
    ).format(view=Literal(names.id), accesses=accesses, definition=_definition(names))


def _most(step: Assign) -> int:
    return LARGE if step.at_most is None else min(LARGE, step.at_most)


def in_attempts(plan: MaintenancePlan, attempt: Composable) -> Composable:
    """What a program does after it has read the changes, once more if it is given up."""
    if not any(isinstance(step, Assign) for step in plan.script):
        return attempt
    return SQL("    LOOP\n{}    RETURN;\n    END LOOP;\n").format(attempt)


def read_changes(plan: MaintenancePlan, names: Names) -> Composed:
    """Looks what has changed since the watermark, reads it, weighs it if it is much, and plans for it.

    A program that finds nothing to do ends there, before it has written anything.
    """
    reads = [step for step in plan.script if isinstance(step, ReadChanges)]
    looked = SQL(
        "    IF NOT rebuild THEN\n{}    END IF;\n"
        "    kind := CASE WHEN rebuild THEN 'R' WHEN pending > 0 THEN 'C' END;\n"
        "{}"
        "    IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN\n"
        "        PERFORM idivm.claim_watermark({});\n    END IF;\n"
    ).format(
        changes.look(plan, names, _definition(names)),
        SQL(
            "    IF kind IS NULL THEN\n        RETURN;\n    END IF;\n"
            if not plan.time_dependent
            else ""
        ),
        Literal(names.id),
    )
    if not reads:
        if plan.time_dependent:
            return looked
        return SQL(
            "{}    IF kind = 'C' AND idivm.pending_cancels({}) THEN\n        RETURN;\n    END IF;\n"
        ).format(looked, Literal(names.id))
    variables = [(step.source.oid, one.variable) for step in reads for one in step.classes]
    sizes = [_held(one) for _, one in variables]
    accesses = [
        SQL("{} * {}").format(Literal(round(plan.accesses(one), 1)), size)
        for (oid, one), size in zip(variables, sizes, strict=True)
        if oid not in plan.applied
    ]
    return SQL(
        "{looked}"
        "    IF NOT rebuild THEN\n"
        "        accesses := {accesses};\n"
        "        IF accesses > {many} AND (CASE WHEN pending > {cheap} THEN {cheaper}\n"
        "                ELSE idivm.has_lost({view}, accesses) END) THEN\n"
        "            rebuild := true;\n            kind := 'A';\n"
        "        END IF;\n    END IF;\n"
        "{planned}"
    ).format(
        looked=looked,
        accesses=SQL(" + ").join(accesses) if accesses else SQL("0"),
        many=Literal(MANY),
        cheap=Literal(CHEAP),
        view=Literal(names.id),
        cheaper=_recompute_is_cheaper(names, SQL("accesses")),
        planned=_planned_for(plan, SQL("greatest({})").format(SQL(", ").join(sizes)))
        if sizes
        else SQL(""),
    )


def note_cost(plan: MaintenancePlan, names: Names) -> Composed:
    """Remembers how long a refresh took that was large enough to tell."""
    if not any(isinstance(step, ReadChanges) for step in plan.script):
        return SQL("").format()
    return SQL(
        "    IF accesses > {telling} AND pending > {few} THEN\n"
        "        PERFORM idivm.note_diff({view}, accesses, begun, {way}, pending > {cheap});\n    END IF;\n"
        "    IF clock_timestamp() > begun + {long} THEN\n"
        "        PERFORM idivm.note_long({view}, accesses, idivm.query_work({definition}), begun, {way});\n"
        "    END IF;\n"
    ).format(
        telling=Literal(TELLING),
        few=Literal(_few(plan)),
        view=Literal(names.id),
        way=Literal(plan.way),
        cheap=Literal(CHEAP),
        long=LONG,
        definition=_definition(names),
    )


def _few(plan: MaintenancePlan) -> int:
    """Up to so many changed rows a refresh does not tell what accesses cost."""
    dearest = max((one.accesses for one in plan.costs), default=1.0)
    return min(CHEAP, int(TELLING / max(dearest, 1.0)))


def _gathers(plan: MaintenancePlan, step: Apply, names: Names) -> bool:
    """Whether a row of the diff meets many of a state that can be gathered by one column.

    PostgreSQL reads the pages of rows that it has gathered with more than one of them under way; of
    rows that it meets one by one, it waits for each. Where they are met by their keys they are fewer,
    and the system reads ahead.
    """
    state = plan.state(step.state)
    return (
        step.kind in ("update", "delete")
        and not plan.by_lookups
        and bool(step.needs)
        and isinstance(state, StateTable)
        and [nulls for _, _, nulls in step.keys] == ["none"]
        and state.key != tuple(column for column, _, _ in step.keys)
        and _reads_variables_alone(step)
        and not _looks_twice(step, names)
    )


def _looks_up(plan: MaintenancePlan, step: Apply) -> bool:
    """Whether many rows that are merged are looked up by their key, rather than met by reading all.

    They lie in one variable: if they are many, the statement is planned for them.
    """
    return (
        step.kind == "merge"
        and not plan.by_lookups
        and len(step.needs) == 1
        and {nulls for _, _, nulls in step.keys} == {"none"}
        and _reads_variables_alone(step)
    )


def _reads_variables_alone(step: Apply) -> bool:
    return not any(table.db for table in step.query.tree.find_all(exp.Table))


def _looks_twice(step: Apply, names: Names) -> bool:
    """Whether an update finds the rows as they were with a second look at them."""
    return bool(step.collect) and _overwrites(step) and not names.returns_old


def _overwrites(step: Apply) -> bool:
    """Whether what is kept of an update has values that are in no diff and are overwritten."""
    return any(_is_overwritten(step, *field) for field in step.fields)


def _applied(
    plan: MaintenancePlan, step: Apply, names: Names, counts: bool, gathers: bool = False
) -> Composed:
    table = names.state(step.state)
    query: Composable = query_text(step.query, names, indent="            ")
    ahead: list[Composable] = []
    if gathers:
        ahead = [SQL("diff AS MATERIALIZED (\n            {}\n        )").format(query)]
        query = SQL("SELECT * FROM diff")
    else:
        query = _in_order(plan, step, query)
    columns = step.columns
    same = SQL(" AND ").join(
        _equal(SQL("t.{}").format(Identifier(k)), SQL("d.{}").format(Identifier(d)), nulls)
        for k, d, nulls in step.keys
    )
    conditions = [same] if step.keys else []
    conditions += [
        SQL("t.{} = ANY (ARRAY(SELECT {} FROM diff))").format(Identifier(k), Identifier(d))
        for k, d, _ in step.keys
        if gathers
    ]
    if step.where:
        conditions.append(SQL("({})").format(SQL(step.where)))
    where = SQL(" AND ").join(conditions) if conditions else SQL("true").format()
    if step.kind == "insert":
        statement = SQL(
            "INSERT INTO {} AS t ({})\n            {}\n        ON CONFLICT DO NOTHING"
        ).format(table, _listed(columns), query)
    elif step.kind == "merge":
        statement = _merged(step, table, query)
    elif step.kind == "delete":
        statement = SQL(
            "DELETE FROM {} AS t USING (\n            {}\n        ) AS d\n        WHERE {}"
        ).format(table, query, where)
    else:
        before: Composable = SQL("")
        if _looks_twice(step, names):
            # At the same row version.
            before = SQL(", {} AS b").format(table)
            where = SQL("{} AND b.ctid = t.ctid").format(where)
        statement = SQL(
            "UPDATE {} AS t SET {} FROM (\n            {}\n        ) AS d{}\n        WHERE {}"
        ).format(
            table,
            _assignments(step),
            query,
            before,
            where,
        )
    if step.collect is None:
        statement = SQL("{}{}").format(_with(ahead), statement)
        done = SQL("{};\n        GET DIAGNOSTICS applied = ROW_COUNT;\n").format(statement)
        return (
            SQL("{}        changed := changed + applied;\n").format(done)
            if counts
            else SQL("{};\n").format(statement)
        )
    assert step.shape is not None
    variable = Identifier(step.collect)
    both = SQL("WITH (OLD AS b) " if _overwrites(step) and names.returns_old else "")
    done = SQL("done AS (\n        {} RETURNING {}ROW({})::{} AS change\n        )").format(
        statement,
        both,
        SQL(", ").join(_kept(step, side, name) for side, name in step.fields),
        names.state(step.shape),
    )
    return SQL("{}        SELECT {} || array_agg(done.change) INTO {} FROM done;\n{}").format(
        _with([*ahead, done]),
        _qualified(names, step.collect),
        variable,
        _planned_for(plan, SQL("cardinality({})").format(variable)),
    )


def _with(tables: Sequence[Composable]) -> Composed:
    """What stands before a statement that reads the rows of others, by name."""
    if not tables:
        return SQL("").format()
    return SQL("WITH {}\n").format(SQL(", ").join(tables))


def _in_order(plan: MaintenancePlan, step: Apply, query: Composable) -> Composable:
    """The rows of a diff in the order in which the state has its rows, as far as that is known.

    What lies side by side is met one after the other then: in pages that were just read, or that the
    system reads ahead.
    """
    state = plan.state(step.state)
    tree = step.query.tree
    plain = isinstance(tree, exp.Select) and not (tree.args.get("order") or tree.args.get("limit"))
    if not isinstance(state, StateTable) or not plain:
        return query
    stored = step.columns
    if step.kind in ("update", "delete"):
        called = {name: diff for name, diff, _ in step.keys}
        stored = tuple(item.alias_or_name for item in tree.expressions)
        by = [called[name] for name in (*state.together, *state.key, *called) if name in called]
    else:
        by = [*state.together, *state.key]
    # By a NULL nothing is put in order, and it would be taken for a text.
    nothing = [isinstance(one.unalias().unnest(), exp.Null) for one in tree.expressions]
    places = dict.fromkeys(place + 1 for name in by if not nothing[place := stored.index(name)])
    if not places:
        return query
    return SQL("{}\n            ORDER BY {}").format(
        query, SQL(", ").join(SQL(str(place)) for place in places)
    )


def _merged(step: Apply, table: Composable, query: Composable) -> Composed:
    """Adds rows to those that are there, or beside them; what is counted and becomes none goes."""
    if any(nulls != "none" for _, _, nulls in step.keys):
        # No join looks for several columns that may be NULL; the unique index does.
        return SQL(
            "INSERT INTO {table} AS t ({columns})\n            {query}\n"
            "        ON CONFLICT ({key}) DO UPDATE SET {sets}"
        ).format(
            table=table,
            columns=_listed(step.columns),
            query=query,
            key=_listed(name for name, _, _ in step.keys),
            sets=_assignments(step),
        )
    count = Identifier(step.counted) if step.counted else None
    same = SQL(" AND ").join(
        SQL("t.{0} = excluded.{0}").format(Identifier(name)) for name, _, _ in step.keys
    )
    return SQL(
        "MERGE INTO {table} AS t USING (\n            {query}\n        ) AS excluded ({columns})\n"
        "        ON {same}\n{goes}"
        "        WHEN MATCHED THEN UPDATE SET {sets}\n"
        "        WHEN NOT MATCHED{comes} THEN INSERT ({columns}) VALUES ({values})"
    ).format(
        table=table,
        query=query,
        columns=_listed(step.columns),
        same=same if step.keys else SQL("true"),
        goes=SQL("        WHEN MATCHED AND t.{0} + excluded.{0} = 0 THEN DELETE\n").format(count)
        if count
        else SQL(""),
        sets=_assignments(step),
        comes=SQL(" AND excluded.{} <> 0").format(count) if count else SQL(""),
        values=_listed(step.columns, "excluded"),
    )


def _kept(step: Apply, side: str, name: str) -> Composable:
    """A column of a changed row, before or after."""
    if (step.kind, side) in (("insert", "old"), ("delete", "new")):
        return SQL("NULL")
    if side == "old" and name in dict(step.before):
        return SQL("d.{}").format(Identifier(dict(step.before)[name]))
    table = "b" if _is_overwritten(step, side, name) else "t"
    return SQL("{}.{}").format(SQL(table), Identifier(name))


def _is_overwritten(step: Apply, side: str, name: str) -> bool:
    """Whether a column before the change is neither as it is afterwards nor in the diff."""
    changed = dict(step.sets).keys() - dict(step.before).keys()
    return step.kind == "update" and side == "old" and name in changed


def _assignments(step: Apply) -> Composed:
    return SQL(", ").join(
        SQL("{} = {}").format(Identifier(name), SQL(text)) for name, text in step.sets
    )


def _qualified(names: Names, variable: str) -> Identifier:
    return Identifier(names.program, variable)


def _equal(stored: Composable, diff: Composable, nulls: Nulls) -> Composed:
    """Whether two values are the same; for NULLs in words that leave an index of use."""
    if nulls == "none":
        return SQL("{} = {}").format(stored, diff)
    if nulls == "all":
        return SQL("{} IS NULL").format(stored)
    return SQL("({0} = {1} OR {0} IS NULL AND {1} IS NULL)").format(stored, diff)


def _fields_of(query: Query) -> Composed:
    return SQL(", ").join(
        SQL("d.{}").format(Identifier(item.alias_or_name)) for item in query.tree.expressions
    )


def _listed(names: Iterable[str], table: str | None = None) -> Composed:
    prefix = SQL(f"{table}.") if table else SQL("")
    return SQL(", ").join(SQL("{}{}").format(prefix, Identifier(name)) for name in names)
