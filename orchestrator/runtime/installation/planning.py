"""From a definition view in the database to its maintenance plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import psycopg
from psycopg import Connection
from psycopg.sql import SQL, Literal

from orchestrator.algebra import (
    Operator,
    Projection,
    Sort,
    Unsupported,
    dialect,
    printer,
)
from orchestrator.algebra.lowering import lower
from orchestrator.algebra.passes.complete_orders import determined
from orchestrator.algebra.rendering import to_sql
from orchestrator.deltascript.names import Names
from orchestrator.deltascript.plan import (
    ChangeKind,
    Column,
    Evidence,
    MaintenancePlan,
    Source,
    SourceColumn,
    Statistics,
)
from orchestrator.engine.column_types import ColumnType
from orchestrator.errors import RightsError, UnsupportedError, UsageError
from orchestrator.frontend.analysis import Analysis, SourceUse, analyse
from orchestrator.frontend.catalog import indexes_on, statistics
from orchestrator.frontend.facts import RelationColumn
from orchestrator.frontend.options import ViewOptions, epsilons
from orchestrator.runtime import catalog
from orchestrator.runtime.catalog import ViewInfo
from orchestrator.runtime.catalog import costs as catalog_costs
from orchestrator.runtime.installation.cascades import as_captured
from orchestrator.runtime.installation.column_types import types_of
from orchestrator.strategies import recompute
from orchestrator.strategies.choose import choose
from orchestrator.strategies.request import PlanningRequest

PINNED = (
    "DateStyle",
    "IntervalStyle",
    "TimeZone",
    "bytea_output",
    "default_text_search_config",
    "lc_monetary",
    "lc_numeric",
    "lc_time",
    "xmlbinary",
)
"""Settings that results may depend on; a refresh has them as the view's creator had."""

AS_WRITTEN = {"standard_conforming_strings": "on"}
"""The setting with which a backslash in a string is one."""


def plan_view(
    connection: Connection[Any],
    names: Names,
    options: ViewOptions,
    notify: bool = False,
    known: Evidence | None = None,
    before: ViewInfo | None = None,
) -> MaintenancePlan:
    """Analyses the definition view of some names and chooses how to maintain it.

    With `notify`, the session is told what of the query has no effect. `known` is what
    was known when the plan in the catalog was made, which leads to the same plan. Without it, what is known
    today is taken, also of the view that has maintained the same query `before`.
    """
    oid = catalog.relation_oid(connection, names.definition)
    assert oid is not None
    # PostgreSQL prints strings as the session reads them.
    catalog.take_settings(connection, AS_WRITTEN)
    analysis = analyse(connection, oid)
    _refuse(analysis)
    # From here on PostgreSQL plans parts of the query, and may call its functions.
    if reason := catalog.distrusted(connection, oid, analysis.types):
        raise RightsError(f"The query may not be maintained: {reason}.")
    if notify and analysis.plan is not None and _is_sorted(analysis.plan.root):
        say(connection, UNSORTED)
    settled = _determined(connection, names, analysis)
    if notify and settled is not analysis:
        say(connection, SETTLED)
    analysis = settled
    request = replace(
        _problem(connection, analysis, options, () if known is None else known.statistics),
        prices=(
            catalog_costs.prices(connection, before)
            if known is None
            else catalog_costs.earlier(known)
        ),
    )
    plan = choose(request, options.strategy)
    reads = tuple((one.through, one.relation, one.columns) for one in analysis.reads)
    definition = replace(plan.definition, reads=reads, types=tuple(sorted(analysis.types)))
    return replace(plan, definition=definition)


UNSORTED = Literal(
    "The ORDER BY of the query has no effect, because a stored view has no order; write it where the"
    " view is read."
)


def _is_sorted(root: Operator) -> bool:
    """Whether a query ends in an order that selects no rows."""
    while isinstance(root, Projection):
        root = root.input
    return isinstance(root, Sort)


SETTLED = Literal(
    "The query leaves the order of some rows open, as equal ones may come in any order. The view orders"
    " them by the keys of their tables, so that its content does not change by itself."
)


def say(connection: Connection[Any], notice: Literal) -> None:
    """Send a notice to whoever listens to those of a connection."""
    text = Literal(f"BEGIN RAISE NOTICE USING MESSAGE = {notice.as_string(connection)}; END")
    connection.execute(SQL("DO {}").format(text))


def _determined(connection: Connection[Any], names: Names, analysis: Analysis) -> Analysis:
    """Return the analysis of the definition with orders that leave nothing open.

    The definition view itself has them then, so that every strategy finds the same answer among those
    that the query allows. The query as it was written stays beside it, for `check` to ask.
    """
    # A definition with the text of the views below would not be replanned when they are replaced, nor
    # with the expressions of virtual columns when these are altered.
    virtual = any(c.expression for use in analysis.sources for c in use.generated)
    if analysis.plan is None or analysis.inlined or virtual:
        return analysis
    plan = determined(analysis.plan, catalog.rings(connection))
    if plan is analysis.plan:
        return analysis
    statement = SQL("CREATE OR REPLACE VIEW {} AS {}")
    try:
        with connection.transaction():
            if not catalog.exists(connection, names.written):
                connection.execute(statement.format(names.written, SQL(analysis.text)))
                catalog.give_to_owner_of(connection, names.written, names.definition)
            query = SQL(dialect.write(to_sql(plan)))
            connection.execute(statement.format(names.definition, query))
    except psycopg.Error:
        # Not all that identifies rows can be sorted by. Then the answer stays open.
        return analysis
    return analyse(connection, analysis.definition)


def _refuse(analysis: Analysis) -> None:
    if analysis.volatile:
        names = ", ".join(analysis.volatile)
        raise UnsupportedError(
            f"The query calls {names}, whose result changes with every call, so that no stored"
            " content can be right; leave it out or compute it when the view is read."
            f"{_declaration(analysis.volatile)}"
        )
    if analysis.temporary:
        names = ", ".join(relation.name for relation in analysis.temporary)
        raise UnsupportedError(
            f"The query reads the temporary table {names}, which no other session can see;"
            " make it a permanent one."
        )


def _declaration(volatile: Sequence[str]) -> str:
    """Say how to declare functions of users, which are volatile unless they are declared otherwise."""
    own = [name.partition("(")[0] for name in volatile if "." in name.partition("(")[0]]
    if not own:
        return ""
    return (
        f" If the result of {own[0]} depends on its arguments alone, declare that:"
        f" ALTER FUNCTION {own[0]} IMMUTABLE."
    )


def recompute_notice(name: str, plan: MaintenancePlan, options: ViewOptions) -> str | None:
    """Say that each refresh of a view recomputes it, why, and what would make the view incremental."""
    if plan.strategy != recompute.NAME or options.strategy == recompute.NAME:
        return None
    reasons = [reason.because for reason in plan.evidence.reasons if not reason.taken]
    because = (
        plan.program.time_dependent[0]
        if plan.program.time_dependent
        else reasons[0]
        if reasons
        else ""
    )
    remedy = "docs/sql-support.md lists the queries that are incremental."
    for words, advice in _REMEDIES.items():
        if words in because:
            remedy = advice
    return f"Each refresh of {name} recomputes it: {because}. {remedy}"


_REMEDIES = {
    "changes by itself": "Leave that out of the query, and filter or compute it where the view is read.",
    "cannot be captured": "Read ordinary tables instead, or copy the rows into one.",
    "a row that is read as one value": "List the columns instead of the whole row.",
}


def _problem(
    connection: Connection[Any],
    analysis: Analysis,
    options: ViewOptions,
    known: Sequence[Statistics | None],
) -> PlanningRequest:
    used = {use.relation.oid: _source(connection, use) for use in analysis.sources}
    sources = tuple(source for source, _ in used.values())
    plan = None if analysis.plan is None else as_captured(analysis.plan, used)
    lowered = None if plan is None else lower(plan)
    # Recomputation asks for none, and each operator costs a query.
    types = {} if options.strategy == recompute.NAME else types_of(connection, lowered)
    rows = [name for name, one in types.items() if one.name in _RECORDS and "(" not in name]
    if rows:
        refused = Unsupported("a row as a column, which no table can store", rows[0])
        return _problem(
            connection, replace(analysis, plan=None, unsupported=(refused,)), options, known
        )
    if lowered is not None:
        algebra, tree = printer.print_plan(lowered), printer.to_json(lowered)
    else:
        missing = [str(unsupported) for unsupported in analysis.unsupported]
        algebra, tree = "not modelled: " + "; ".join(missing), {"unsupported": missing}
    epsilon, own = epsilons(options.epsilon)
    return PlanningRequest(
        columns=tuple(Column(column.name, column.type) for column in analysis.columns),
        sources=sources,
        unkeyed=tuple(str(source) for source in sources if not source.keyed),
        inlined=analysis.fixed,
        time_dependent=(
            *(f"{name} changes by itself" for name in analysis.time_dependent),
            *(
                f"changes of the {relation.kind} {relation.qualified} cannot be captured"
                + (
                    ", as a row of its log has no room for all columns that views read, before and after"
                    if relation.oid in analysis.crowded
                    else ""
                )
                for relation in analysis.uncaptured
            ),
        ),
        distinct=analysis.distinct,
        settings=_settings(connection, PINNED if _depends(analysis, sources, types) else ()),
        algebra=algebra,
        algebra_tree=tree,
        maintain=options.maintain,
        plan=plan,
        types=types,
        cache=options.cache != "off",
        cache_is_open=options.cache == "auto",
        minimise=options.minimise == "on",
        statistics=_statistics(connection, analysis.sources, sources, known),
        static=_static(analysis, sources, options),
        factorizable=_named(analysis, sources, "factorizable", options.factorizable),
        factorized=options.representation == "factorized",
        variable_order=options.variable_order,
        epsilon=epsilon,
        epsilons=own,
        rings=catalog.rings(connection),
        double=options.partition == "double",
        create_indexes=options.create_indexes == "on",
    )


def _statistics(
    connection: Connection[Any],
    uses: Sequence[SourceUse],
    sources: Sequence[Source],
    known: Sequence[Statistics | None],
) -> dict[int, Statistics]:
    if len(known) == len(sources):
        return {
            source.oid: one for source, one in zip(sources, known, strict=True) if one is not None
        }
    tables = [source.oid for source in sources]
    first = {(one.table, one.first_column) for one in indexes_on(connection, tables)}
    foreign_keys = {
        use.relation.oid: tuple(
            (key.columns, key.target, key.target_columns)
            for key in use.relation.foreign_keys
            if key.validated and key.target in tables
        )
        for use in uses
    }
    read = {source.oid: {column.attnum for column in source.columns} for source in sources}
    return {
        one.table: Statistics(
            one.rows,
            {int(number): values for number, values in one.distinct_values.items()},
            {
                ChangeKind.INSERT: one.inserted,
                ChangeKind.UPDATE: one.updated,
                ChangeKind.DELETE: one.deleted,
            },
            frozenset(column for table, column in first if table == one.table),
            {
                int(number): shares
                for number, shares in one.common_values.items()
                if int(number) in read[one.table]
            },
            foreign_keys.get(one.table, ()),
        )
        for one in statistics(connection, tables)
    }


def _static(
    analysis: Analysis, sources: tuple[Source, ...], options: ViewOptions
) -> frozenset[int]:
    """The sources that the user says hardly change, or leaves out of those that do."""
    every = frozenset(source.oid for source in sources)
    static = _named(analysis, sources, "static", options.static)
    if options.updatable is not None:
        static |= every - _named(analysis, sources, "updatable", options.updatable)
    return static


def _named(
    analysis: Analysis, sources: tuple[Source, ...], option: str, text: str | None
) -> frozenset[int]:
    """The sources that an option names."""
    names = [use.relation for use in analysis.sources]
    found = set()
    for wanted in (name.strip() for name in (text or "").split(",") if name.strip()):
        fits = [n for n, one in enumerate(names) if wanted in (one.name, one.qualified)]
        if len(fits) != 1:
            known = ", ".join(one.qualified for one in names)
            request = "several tables" if fits else "no table"
            raise UsageError(
                f"{option} names {wanted!r}, which is {request} of the query; it reads {known}."
            )
        found.add(sources[fits[0]].oid)
    return frozenset(found)


def _source(connection: Connection[Any], use: SourceUse) -> tuple[Source, frozenset[int]]:
    """A captured relation; a maintained view is captured where its content is stored.

    And the numbers of columns that never hold NULL.
    """
    key = set(use.key.columns) if use.key else set()
    columns = tuple(_column(column, column.attnum in key) for column in use.captured)
    if use.relation.maintained is None:
        relation, captured = use.relation, {column.attnum for column in use.captured}
        sure = frozenset(column.attnum for column in use.captured if column.not_null)
        others = (one.columns for one in relation.plan_keys if set(one.columns) != key)
        further = tuple(one for one in others if captured.issuperset(one))
        source = Source(relation.oid, relation.schema, relation.name, columns)
        rewritten = tuple(c.attnum for c in use.generated if c.expression is None)
        virtual = tuple(c.attnum for c in use.generated if c.expression is not None)
        source = replace(source, stored=rewritten, virtual=virtual)
        return replace(source, not_null=tuple(sorted(sure)), keys=further), sure
    stored, sure = catalog.stored_content(connection, use.relation.maintained)
    keys = {column.attnum for column in stored.columns}
    rest = tuple(column for column in columns if column.attnum not in keys)
    return replace(stored, columns=(*rest, *stored.columns)), sure


def _column(column: RelationColumn, in_key: bool) -> SourceColumn:
    equality = ("exact" if column.exact else "coarse") if column.builtin_equality else ""
    return SourceColumn(column.attnum, column.name, in_key, column.plain_type, equality)


_RECORDS = frozenset({"record", "record[]"})

_SHOWN_ALIKE = frozenset(
    {
        *(
            "smallint",
            "integer",
            "bigint",
            "numeric",
            "real",
            "double precision",
            "boolean",
            "uuid",
        ),
        *("text", "character varying", "character"),
    }
)
"""Types whose values are written in one way, given all digits of floats."""


def _depends(
    analysis: Analysis, sources: Iterable[Source], types: Mapping[str, ColumnType]
) -> bool:
    """Whether what is stored may depend on settings: results, and images that rows are told apart by."""
    names = [
        *(column.type for column in analysis.columns),
        *(column.plain_type for source in sources for column in source.columns),
        *(column.name for column in types.values()),
    ]
    shown = {"" if name.endswith("]") else name.partition("(")[0] for name in names}
    return bool(analysis.settings or analysis.time_dependent) or not shown <= _SHOWN_ALIKE


def _settings(connection: Connection[Any], pinned: Sequence[str]) -> tuple[tuple[str, str], ...]:
    # Each costs every refresh half a microsecond or more.
    rows = connection.execute(
        "SELECT name, setting FROM pg_settings WHERE name = ANY (%s) ORDER BY name", [list(pinned)]
    ).fetchall()
    # All digits of a float, so that two values with the same image are the same; and a backslash that
    # is one, as programs are compiled by whatever session calls them first.
    return (*rows, ("extra_float_digits", "1"), *AS_WRITTEN.items())
