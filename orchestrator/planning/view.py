"""From a definition view in the database to its maintenance plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import psycopg
from psycopg import Connection
from psycopg.sql import SQL

from orchestrator import catalog
from orchestrator.algebra import (
    Operator,
    Projection,
    Sort,
    Unsupported,
    dialect,
)
from orchestrator.algebra.passes.complete_orders import determined
from orchestrator.algebra.rendering import to_sql
from orchestrator.catalog import ViewInfo
from orchestrator.catalog import costs as catalog_costs
from orchestrator.deltascript.names import Names
from orchestrator.deltascript.plan import (
    Evidence,
    MaintenancePlan,
)
from orchestrator.errors import (
    VIEW_DROPPED,
    NotFoundError,
    RightsError,
    UnsupportedError,
    is_interruption,
)
from orchestrator.frontend.analysis import TOO_DEEP, Analysis, analyse
from orchestrator.frontend.facts import RelationColumn
from orchestrator.frontend.options import ParsedOptions
from orchestrator.planning import clocks, notices
from orchestrator.planning.cascades import with_visible_keys
from orchestrator.planning.facts import AS_WRITTEN, request_for
from orchestrator.strategies.choose import choose


def plan_view(
    connection: Connection[Any],
    names: Names,
    options: ParsedOptions,
    notify: bool = False,
    known: Evidence | None = None,
    before: ViewInfo | None = None,
) -> MaintenancePlan:
    """Analyze the definition view and choose how to maintain it.

    With `notify`, the session receives notices, for example about parts of the query without
    effect. `known` is the evidence of an earlier plan, which leads to the same plan again. Without
    it, current facts are used, including the measurements of the view that maintained the same
    query `before`.
    """
    oid = catalog.relation_oid(connection, names.definition)
    if oid is None:
        raise NotFoundError(VIEW_DROPPED)
    # PostgreSQL prints strings according to the settings of the session.
    catalog.take_settings(connection, AS_WRITTEN)
    analysis = analyse(connection, oid)
    _refuse(analysis)
    # From here on, PostgreSQL plans parts of the query and may call its functions.
    if reason := catalog.distrusted(connection, oid, analysis.types):
        raise RightsError(f"The query may not be maintained: {reason}.")
    if notify and analysis.plan is not None and _is_sorted(analysis.plan.root):
        notices.say(connection, notices.UNSORTED)
    untimed: Unsupported | None = None
    try:
        analysis, untimed = clocks.with_clock(connection, names, analysis)
        completed = _determined(connection, names, analysis)
        if notify and completed is not analysis:
            notices.say(connection, notices.OPEN_ORDER)
        analysis = completed
        plan = _chosen(connection, analysis, untimed, options, known, before)
    except RecursionError:
        # A query without a plan is recomputed, however deep it is.
        analysis = replace(analysis, plan=None, unsupported=(TOO_DEEP,))
        plan = _chosen(connection, analysis, untimed, options, known, before)
    reads = tuple((read.through, read.relation, read.columns) for read in analysis.reads)
    definition = replace(plan.definition, reads=reads, types=tuple(sorted(analysis.types)))
    return replace(plan, definition=definition)


def _chosen(
    connection: Connection[Any],
    analysis: Analysis,
    untimed: Unsupported | None,
    options: ParsedOptions,
    known: Evidence | None,
    before: ViewInfo | None,
) -> MaintenancePlan:
    request = request_for(connection, analysis, options, () if known is None else known.statistics)
    if untimed is not None and request.time_dependent:
        first, *others = request.time_dependent
        request = replace(request, time_dependent=(f"{first}: {untimed}", *others))
    request = replace(
        request,
        prices=(
            catalog_costs.prices(connection, before)
            if known is None
            else catalog_costs.earlier(known)
        ),
    )
    return choose(request, options.strategy)


def _is_sorted(root: Operator) -> bool:
    """Return whether a query ends with an order that does not select rows."""
    while isinstance(root, Projection):
        root = root.input
    return isinstance(root, Sort)


def _determined(connection: Connection[Any], names: Names, analysis: Analysis) -> Analysis:
    """Return the analysis of the definition with all open orders completed.

    The definition view is replaced accordingly, so that every strategy finds the same of several
    correct answers. The original query is stored in a second view, which `check` reads.
    """
    # A definition that contains the texts of views below it would not be planned again when they
    # are replaced. The same holds for expressions of virtual columns.
    virtual = any(c.expression for use in analysis.sources for c in use.generated)
    if analysis.plan is None or analysis.inlined or virtual:
        return analysis
    keyed = with_visible_keys(analysis.plan, _visible_keys(connection, analysis))
    plan = determined(keyed, catalog.rings(connection))
    if plan is keyed:
        return analysis
    statement = SQL("CREATE OR REPLACE VIEW {} AS {}")
    try:
        with connection.transaction():
            if not catalog.exists(connection, names.written):
                connection.execute(statement.format(names.written, SQL(analysis.text)))
                catalog.give_to_owner_of(connection, names.written, names.definition)
            query = SQL(dialect.write(to_sql(plan)))
            connection.execute(statement.format(names.definition, query))
    except psycopg.Error as error:
        if is_interruption(error):
            raise
        # Some columns that identify rows cannot be sorted. The order then stays open.
        return analysis
    return analyse(connection, analysis.definition)


def _visible_keys(
    connection: Connection[Any], analysis: Analysis
) -> dict[int, tuple[RelationColumn, ...]]:
    """Return the keys of the maintained views that a query reads, of those that show their keys."""
    keys = {}
    for use in analysis.sources:
        if use.relation.maintained is None:
            continue
        content, _ = catalog.stored_content(connection, use.relation.maintained)
        visible = {column.attnum: column for column in use.relation.columns}
        numbers = [column.attnum for column in content.columns]
        if numbers and visible.keys() >= set(numbers):
            keys[use.relation.oid] = tuple(visible[number] for number in numbers)
    return keys


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
    """Return how to declare user-defined functions, which are volatile by default."""
    own = [name.partition("(")[0] for name in volatile if "." in name.partition("(")[0]]
    if not own:
        return ""
    return (
        f" If the result of {own[0]} depends on its arguments alone, declare that:"
        f" ALTER FUNCTION {own[0]} IMMUTABLE."
    )
