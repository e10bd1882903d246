"""The planning request of a view: its plan, tables, types and statistics, read from the database."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from psycopg import Connection

from orchestrator import catalog
from orchestrator.algebra import printer
from orchestrator.algebra.column_type import ColumnType
from orchestrator.algebra.ids import infer_ids
from orchestrator.algebra.lowering import lower
from orchestrator.algebra.passes.complete_orders import with_numbers
from orchestrator.algebra.plan import Plan
from orchestrator.algebra.recognition import recognize
from orchestrator.algebra.recognition.first_rows import FirstRows, first_rows_of
from orchestrator.algebra.unsupported import Unsupported
from orchestrator.catalog.streams import stream_tables
from orchestrator.deltascript.plan import (
    ChangeKind,
    Column,
    Source,
    SourceColumn,
    Statistics,
    Strategy,
)
from orchestrator.errors import UsageError
from orchestrator.frontend.analysis import Analysis, SourceUse
from orchestrator.frontend.facts import RelationColumn
from orchestrator.frontend.options import ParsedOptions, epsilons, is_open
from orchestrator.frontend.statistics import indexes_on, statistics
from orchestrator.planning.cascades import as_captured
from orchestrator.planning.column_types import types_of
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
"""Settings that results may depend on; a refresh uses the values of the view's creator."""

AS_WRITTEN = {"standard_conforming_strings": "on"}
"""The setting under which a backslash in a string constant is an ordinary character."""


def request_for(
    connection: Connection[Any],
    analysis: Analysis,
    options: ParsedOptions,
    known: Sequence[Statistics | None],
) -> PlanningRequest:
    """Return the planning request of a view.

    `known` has the statistics of an earlier plan, if the same plan is to be made again.
    """
    used = {use.relation.oid: _source(connection, use) for use in analysis.sources}
    sources = tuple(source for source, _ in used.values())
    plan = None if analysis.plan is None else as_captured(analysis.plan, used)
    lowered = None if plan is None else lower(plan)
    recognized = None if lowered is None else recognize(lowered)
    first_rows = None if lowered is None else first_rows_of(lowered)
    identified = None if lowered is None else infer_ids(lowered)
    if isinstance(identified, Plan):
        identified = with_numbers(identified)
    typed = identified if isinstance(identified, Plan) else lowered
    if options.strategy == Strategy.RECOMPUTE:
        # This strategy needs no types, and finding them takes a query for each operator.
        typed = None
    further = [recognized, first_rows.query if isinstance(first_rows, FirstRows) else None]
    types = {} if typed is None else types_of(connection, typed, *filter(None, further))
    rows = [name for name, type_ in types.items() if type_.name in _RECORDS and "(" not in name]
    if rows:
        refused = Unsupported("a row as a column, which no table can store", rows[0])
        return request_for(
            connection, replace(analysis, plan=None, unsupported=(refused,)), options, known
        )
    if lowered is not None:
        algebra, tree = printer.print_plan(lowered), printer.to_json(lowered)
    else:
        missing = [str(unsupported) for unsupported in analysis.unsupported]
        algebra, tree = "not modelled: " + "; ".join(missing), {"unsupported": missing}
    epsilon, own = epsilons(options.epsilon)
    streams = stream_tables(connection, used)
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
        settings=_settings(
            connection, PINNED if _depends_on_settings(analysis, sources, types) else ()
        ),
        algebra=algebra,
        algebra_tree=tree,
        maintain=options.maintain,
        may_be_shared=options.may_be_shared,
        plan=plan,
        lowered=lowered,
        recognized=recognized,
        first_rows=first_rows,
        identified=identified,
        types=types,
        cache=options.cache != "off",
        cache_is_open=options.cache == "auto",
        minimise=options.minimise == "on",
        statistics=_statistics(connection, analysis.sources, sources, known),
        static=_static(analysis, sources, options),
        factorizable=_named(analysis, sources, "factorizable", options.factorizable),
        streams=frozenset(streams),
        growing=_named(analysis, sources, "append_only", options.append_only).union(
            oid for oid, table in streams.items() if table.op is None
        ),
        factorized=options.is_factorized,
        inputs=_inputs(analysis, options),
        ranked=options.ranked,
        feed=options.feed == "on",
        table=options.relation == "table",
        variable_order=options.variable_order,
        epsilon=epsilon,
        epsilons=own,
        epsilon_is_open=is_open(options.epsilon),
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
            source.oid: item
            for source, item in zip(sources, known, strict=True)
            if item is not None
        }
    tables = [source.oid for source in sources]
    first = {(item.table, item.first_column) for item in indexes_on(connection, tables)}
    foreign_keys = {
        use.relation.oid: tuple(
            (key.columns, key.target, key.target_columns)
            for key in use.relation.foreign_keys
            if key.validated and not key.period and key.target in tables
        )
        for use in uses
    }
    read = {source.oid: {column.attnum for column in source.columns} for source in sources}
    return {
        statistic.table: Statistics(
            statistic.rows,
            {int(number): values for number, values in statistic.distinct_values.items()},
            {
                ChangeKind.INSERT: statistic.inserted,
                ChangeKind.UPDATE: statistic.updated,
                ChangeKind.DELETE: statistic.deleted,
            },
            frozenset(column for table, column in first if table == statistic.table),
            {
                int(number): shares
                for number, shares in statistic.common_values.items()
                if int(number) in read[statistic.table]
            },
            foreign_keys.get(statistic.table, ()),
            {int(number): share for number, share in statistic.null_shares.items()},
        )
        for statistic in statistics(connection, tables)
    }


def _static(
    analysis: Analysis, sources: tuple[Source, ...], options: ParsedOptions
) -> frozenset[int]:
    """Return the sources that the user declares static, or leaves out of the updatable ones."""
    all_sources = frozenset(source.oid for source in sources)
    static = _named(analysis, sources, "static", options.static)
    if options.updatable is not None:
        static |= all_sources - _named(analysis, sources, "updatable", options.updatable)
    return static


def _named(
    analysis: Analysis, sources: tuple[Source, ...], option: str, text: str | None
) -> frozenset[int]:
    """Return the sources that an option names."""
    names = [use.relation for use in analysis.sources]
    result = set()
    for wanted in (name.strip() for name in (text or "").split(",") if name.strip()):
        matches = [n for n, item in enumerate(names) if wanted in (item.name, item.qualified)]
        if len(matches) != 1:
            known = ", ".join(item.qualified for item in names)
            request = "several tables" if matches else "no table"
            raise UsageError(
                f"{option} names {wanted!r}, which is {request} of the query; it reads {known}."
            )
        result.add(sources[matches[0]].oid)
    return frozenset(result)


def _inputs(analysis: Analysis, options: ParsedOptions) -> tuple[str, ...]:
    """Return the columns of the view whose values readers give."""
    known = [column.name for column in analysis.columns]
    wanted = tuple(name.strip() for name in (options.inputs or "").split(",") if name.strip())
    for name in wanted:
        if name not in known:
            raise UsageError(
                f"inputs names {name!r}, which is no column of the view; it shows {', '.join(known)}."
            )
    return wanted


def _source(connection: Connection[Any], use: SourceUse) -> tuple[Source, frozenset[int]]:
    """Return a captured relation, and the numbers of its columns that are never NULL.

    A maintained view is captured at the table that stores its content.
    """
    key = set(use.key.columns) if use.key else set()
    columns = tuple(_column(column, column.attnum in key) for column in use.captured)
    if use.relation.maintained is None:
        relation, captured = use.relation, {column.attnum for column in use.captured}
        never_null = frozenset(column.attnum for column in use.captured if column.not_null)
        others = (
            plan_key.columns for plan_key in relation.plan_keys if set(plan_key.columns) != key
        )
        further = tuple(other for other in others if captured.issuperset(other))
        source = Source(relation.oid, relation.schema, relation.name, columns)
        rewritten = tuple(c.attnum for c in use.generated if c.expression is None)
        virtual = tuple(c.attnum for c in use.generated if c.expression is not None)
        source = replace(source, stored=rewritten, virtual=virtual)
        return replace(source, not_null=tuple(sorted(never_null)), keys=further), never_null
    stored, never_null = catalog.stored_content(connection, use.relation.maintained)
    keys = {column.attnum for column in stored.columns}
    rest = tuple(column for column in columns if column.attnum not in keys)
    return replace(stored, columns=(*rest, *stored.columns)), never_null


def _column(column: RelationColumn, in_key: bool) -> SourceColumn:
    equality = ("exact" if column.exact else "coarse") if column.builtin_equality else ""
    return SourceColumn(column.attnum, column.name, in_key, column.plain_type, equality)


_RECORDS = frozenset({"record", "record[]"})

_SETTING_INDEPENDENT = frozenset(
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
"""Types whose text form depends on no setting, if floats are written with all digits."""


def _depends_on_settings(
    analysis: Analysis, sources: Iterable[Source], types: Mapping[str, ColumnType]
) -> bool:
    """Return whether stored data may depend on settings: results, or images that identify rows."""
    names = [
        *(column.type for column in analysis.columns),
        *(column.plain_type for source in sources for column in source.columns),
        *(column.name for column in types.values()),
    ]
    type_names = {"" if name.endswith("]") else name.partition("(")[0] for name in names}
    return (
        bool(analysis.settings or analysis.time_dependent) or not type_names <= _SETTING_INDEPENDENT
    )


def _settings(connection: Connection[Any], pinned: Sequence[str]) -> tuple[tuple[str, str], ...]:
    # Each setting costs every refresh at least half a microsecond.
    rows = connection.execute(
        "SELECT name, setting FROM pg_settings WHERE name = ANY (%s) ORDER BY name", [list(pinned)]
    ).fetchall()
    # Floats are written with all digits, so that equal images mean equal values. Backslashes are
    # ordinary characters, because any session may compile a program first.
    return (*rows, ("extra_float_digits", "1"), *AS_WRITTEN.items())
