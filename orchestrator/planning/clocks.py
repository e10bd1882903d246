"""The clock of a view with temporal filters: a table with one row, and the function that moves it.

The definition view then compares rows with this table instead of `now()`, so that its answer changes only when
the clock moves. Everything else, such as states, `check` and recomputing, follows from the definition.
"""

from __future__ import annotations

from typing import Any

from psycopg import Connection
from psycopg.sql import SQL, Composed, Identifier, Literal
from sqlglot import exp

from orchestrator.algebra import Plan, Unsupported, dialect
from orchestrator.algebra.analysis.clock_columns import Compared, compared_columns, is_steady
from orchestrator.algebra.dialect import Tree
from orchestrator.algebra.passes import clocks
from orchestrator.algebra.rendering import to_sql
from orchestrator.deltascript.names import Names
from orchestrator.frontend.analysis import Analysis, analyse
from orchestrator.planning.facts import PINNED

_NOW = "idivm.clock()"

_GIVEN = "$1"
"""The time that a function gets."""

_TYPES = {
    "CURRENT_DATE": "date",
    "LOCALTIMESTAMP": "timestamp without time zone",
    "LOCALTIME": "time without time zone",
}
"""The types of the expressions of the time that are no timestamp with time zone."""


def with_clock(
    connection: Connection[Any], names: Names, analysis: Analysis
) -> tuple[Analysis, Unsupported | None]:
    """Return the analysis of a definition that reads the time from a clock, or why this is not possible.

    The definition view is replaced accordingly.
    """
    if not analysis.time_dependent or not set(analysis.time_dependent) <= clocks.TIMES:
        return analysis, None
    if analysis.plan is None:
        return analysis, None
    if analysis.inlined or any(c.expression for use in analysis.sources for c in use.generated):
        # The definition would contain a copy of the text of a view, and not follow when it is replaced.
        return analysis, Unsupported(
            "the current time in a query over plain views or virtual columns",
            ", ".join(relation.qualified for relation in analysis.inlined),
        )
    schema, name = names.clock.as_string(connection).replace('"', "").split(".")
    clocked = clocks.with_clock(analysis.plan, schema, name)
    if isinstance(clocked, Unsupported):
        return analysis, clocked
    # A CTE that nothing reads may have the only comparison. The definition then has no time in it.
    if clocked.expressions:
        for statement in _create(connection, names, clocked.expressions, clocked.plan):
            connection.execute(statement)
    query = SQL(dialect.write(to_sql(clocked.plan)))
    connection.execute(SQL("CREATE OR REPLACE VIEW {} AS {}").format(names.definition, query))
    return analyse(connection, analysis.definition), None


def _create(
    connection: Connection[Any],
    names: Names,
    expressions: tuple[tuple[str, str], ...],
    plan: Plan,
) -> list[Composed]:
    """Return the statements that create a clock, at the current time."""
    columns = [Identifier(column) for column, _ in expressions]
    values = [
        SQL("{} AS {}").format(SQL(_by_clock(text)), Identifier(column))
        for column, text in expressions
    ]
    settings = connection.execute(
        "SELECT name, setting FROM pg_settings WHERE name = ANY (%s) ORDER BY name", [list(PINNED)]
    ).fetchall()
    pinned = SQL(" ").join(
        SQL("SET {} = {}").format(Identifier(key), Literal(value)) for key, value in settings
    )
    row = connection.execute(
        "SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname = 'idivm'"
    ).fetchone()
    assert row is not None
    own = [SQL("{}.{}").format(Identifier(side), column) for side in "ck" for column in columns]
    head = SQL(
        " LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp {} BEGIN ATOMIC "
    ).format(pinned)
    functions = SQL("{}(), {}()").format(names.tick, names.ticked)
    compared = _of_tables(connection, compared_columns(plan))
    quiet = [] if compared is None else _quiet(names, expressions, compared, pinned)
    if quiet:
        functions = SQL("{}, {}(timestamptz)").format(functions, names.quiet)
    return [
        SQL("CREATE VIEW {} AS SELECT true AS one, {} AS at, {}").format(
            names.time, SQL(_NOW), SQL(", ").join(values)
        ),
        SQL("CREATE TABLE {} AS SELECT * FROM {}").format(names.clock, names.time),
        SQL("ALTER TABLE {} ADD PRIMARY KEY (one), ALTER at SET NOT NULL").format(names.clock),
        SQL(
            "CREATE FUNCTION {}() RETURNS void {}UPDATE {} AS c SET at = k.at, {} FROM {} AS k; END"
        ).format(
            names.tick,
            head,
            names.clock,
            SQL(", ").join(SQL("{0} = k.{0}").format(column) for column in columns),
            names.time,
        ),
        SQL(
            "CREATE FUNCTION {}() RETURNS boolean STABLE {}SELECT ROW({}) IS DISTINCT FROM ROW({})"
            " FROM {} AS c, {} AS k; END"
        ).format(
            names.ticked,
            head,
            SQL(", ").join(own[: len(columns)]),
            SQL(", ").join(own[len(columns) :]),
            names.clock,
            names.time,
        ),
        *quiet,
        SQL("REVOKE ALL ON FUNCTION {} FROM PUBLIC").format(functions),
        SQL("GRANT EXECUTE ON FUNCTION {} TO {}").format(functions, Identifier(row[0])),
        SQL("GRANT SELECT ON {} TO {}").format(names.clock, Identifier(row[0])),
    ]


def _of_tables(
    connection: Connection[Any], compared: tuple[Compared, ...] | None
) -> tuple[Compared, ...] | None:
    """Return what is compared with the clock, if these are columns of tables, or None."""
    if compared is None:
        return None
    oids = list({each.table.oid for each in compared})
    row = connection.execute(
        "SELECT bool_and(c.relkind = 'p' OR c.relkind = 'r' AND NOT c.relhassubclass)"
        " FROM unnest(%s::oid[]) AS t (oid) LEFT JOIN pg_class c USING (oid)",
        [oids],
    ).fetchone()
    return compared if row == (True,) else None


def _quiet(
    names: Names,
    expressions: tuple[tuple[str, str], ...],
    compared: tuple[Compared, ...],
    pinned: Composed,
) -> list[Composed]:
    """Return the statement that creates the function that says whether no row is due at a time.

    Its second result says whether this then holds for all times before.
    """
    values = [
        SQL("{} AS {}").format(SQL(_by_clock(text, _GIVEN)), Identifier(column))
        for column, text in expressions
    ]
    known = {each.clock_column for each in compared}
    if known != {column for column, _ in expressions}:
        return []
    conditions = [
        SQL(
            "(c.{e} = k.{e} OR coalesce((SELECT min(t.{column}) FROM {table} AS t"
            " WHERE t.{column} {lesser} least(c.{e}, k.{e})) {greater} greatest(c.{e}, k.{e}), true))"
        ).format(
            e=Identifier(each.clock_column),
            column=Identifier(each.column),
            table=Identifier(each.table.schema, each.table.name),
            lesser=SQL(each.after_lesser),
            greater=SQL(each.after_greater),
        )
        for each in compared
    ]
    # A dump cannot name a parameter without a name beside others that have one.
    return [
        SQL(
            "CREATE FUNCTION {}(asked timestamptz, OUT quiet boolean, OUT steady boolean)"
            " LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp {}"
            " BEGIN ATOMIC SELECT {}, {} FROM {} AS c, (SELECT {}) AS k; END"
        ).format(
            names.quiet,
            pinned,
            SQL(" AND ").join(conditions),
            Literal(all(is_steady(text) for _, text in expressions)),
            names.clock,
            SQL(", ").join(values),
        )
    ]


def _by_clock(text: str, now: str = _NOW) -> str:
    """Return an expression of the time with the clock, or another time, in place of `now()`.

    >>> _by_clock("(CURRENT_DATE - 7)"), _by_clock("now()")
    ('(((idivm.clock())::date) - 7)', '(idivm.clock())')
    """

    def replaced(node: Tree) -> Tree:
        if not clocks.is_time(node):
            return node
        type_ = _TYPES.get(dialect.write(node))
        written = now if type_ is None else f"({now})::{type_}"
        return exp.Paren(this=dialect.parse(f"SELECT {written}").expressions[0])

    tree = dialect.parse(f"SELECT {text}").expressions[0]
    return dialect.write(tree.transform(replaced))
