"""Explain how a view is maintained, for people and programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

from psycopg import Connection

from orchestrator import screenful
from orchestrator.catalog import ViewInfo
from orchestrator.catalog import costs as catalog_costs
from orchestrator.catalog.parts import dial_of
from orchestrator.deltascript import reads
from orchestrator.deltascript.names import Names
from orchestrator.deltascript.plan import (
    BagTable,
    ChangeKind,
    Cost,
    MaintenancePlan,
    Reason,
    Shape,
    StateTable,
    StateView,
)
from orchestrator.drawing import Graph, graphs_of
from orchestrator.planning import notices
from orchestrator.planning.view import plan_view
from orchestrator.runtime.curve import CurvePoint, curve_of, planned_curve
from orchestrator.runtime.curve import lines as curve_lines
from orchestrator.runtime.installation import indexes, install
from orchestrator.runtime.installation.names import names_of
from orchestrator.runtime.installation.new_view import NewView


@dataclass(frozen=True)
class Explanation:
    """A view's plan, the SQL that maintains it, and the reasons."""

    def __repr__(self) -> str:
        """Return at most a screenful: the plan and the reasons."""
        return screenful.first_lines(str(self))

    def __str__(self) -> str:
        """Return the plan and the reasons."""
        return (
            f"{self.view}: strategy {self.strategy}, {self.maintain}\n\n{self.plan}\n\n{self.why}"
        )

    def _repr_html_(self) -> str:
        """Return a text for notebooks."""
        return f"<pre>{escape(repr(self))}</pre>"

    view: str
    strategy: str
    maintain: str
    plan: str
    script: str
    """The Δ-script in relational notation."""
    sql: str
    """The definition and the statements of the refresh function."""
    why: str
    missing_indexes: list[indexes.MissingIndex]
    """The indexes that the program would use, the most important first."""
    details: dict[str, Any]
    summary: str
    """A sentence with the cost of a change and the cost of recomputing the view."""
    graphs: dict[str, Graph]
    """Pictures of the plan, of the stored states (tree) and of the script."""
    measured: dict[str, Any] | None = None
    """The measured cost of its refreshes since it was planned, if a refresh was large enough to measure."""
    recompute: dict[str, Any] | None = None
    """The expected cost of recomputing it, if the plan does not always recompute it."""
    curve: Sequence[CurvePoint] = ()
    """Update time, space and delay for each epsilon, with the chosen one; for the strategy `skew`."""

    def to_json(self) -> dict[str, Any]:
        """Return the explanation as plain values."""
        return {
            "view": self.view,
            "strategy": self.strategy,
            "maintain": self.maintain,
            "summary": self.summary,
            "plan": self.details,
            "script": self.script,
            "sql": self.sql,
            "missing_indexes": [asdict(missing_index) for missing_index in self.missing_indexes],
            "why": self.details["evidence"]["reasons"],
            "measured": self.measured,
            "recompute": self.recompute,
            "curve": [asdict(point) for point in self.curve],
        }


def explain_view(connection: Connection[Any], view: ViewInfo) -> Explanation:
    """Return the explanation of an installed view, from its catalog row and its functions."""
    wanted = indexes.missing_for(connection, view.plan)
    measured = _measured(connection, view)
    recompute = _recompute_estimate(connection, view)
    tables = sources_shown(view)
    summary = _summary(view.plan, tables)
    curve = curve_of(connection, view)
    why = [summary, _why(view.plan, measured, recompute), *_curve(curve, view.plan)]
    return Explanation(
        view=view.name,
        strategy=view.strategy,
        maintain=view.maintain,
        plan=_plan(view.plan, tables, wanted),
        script=_script(view.plan),
        sql=_sql(connection, view),
        why="\n".join(why),
        missing_indexes=wanted,
        details=view.plan.to_json(),
        summary=summary,
        graphs=graphs_of(view.plan, view.name, tables),
        measured=measured,
        recompute=recompute,
        curve=curve,
    )


def sources_shown(view: ViewInfo) -> list[str]:
    """Return the names of all sources of a view's plan. A clock, which users do not see, is the current time."""
    names = iter(view.sources)
    return [
        "the current time" if source.is_clock else next(names)
        for source in view.plan.program.sources
    ]


def explain_query(connection: Connection[Any], new: NewView) -> Explanation:
    """Return the explanation of the view that a query would become. Roll back everything."""
    names = Names(0, new.name.name)
    with connection.transaction(force_rollback=True):
        install.define(connection, new, names)
        plan = plan_view(connection, names, new.options, notify=True)
        notice = notices.recompute_notice("it", plan, new.options)
        wanted = indexes.missing_for(connection, plan)
        definition = connection.execute(
            "SELECT pg_get_viewdef(%s::regclass)", [names.definition.as_string(connection)]
        ).fetchone()
    assert definition is not None
    tables = [str(source) for source in plan.program.sources]
    summary = _summary(plan, tables)
    curve = planned_curve(plan)
    return Explanation(
        view="the query",
        strategy=plan.strategy,
        maintain=plan.maintain,
        plan=_plan(plan, tables, wanted),
        script=_script(plan),
        sql=definition[0],
        why="\n".join(
            filter(None, [summary, _why(plan, None, None), *_curve(curve, plan), notice])
        ),
        missing_indexes=wanted,
        details=plan.to_json(),
        summary=summary,
        graphs=graphs_of(plan, "the query", tables),
        curve=curve,
    )


def _curve(curve: Sequence[CurvePoint], plan: MaintenancePlan) -> Iterator[str]:
    return curve_lines(curve, is_open=dial_of(plan) is not None)


def _summary(plan: MaintenancePlan, tables: Sequence[str]) -> str:
    """Return a sentence with the cost of a changed row, for the most expensive table, and of recomputing."""
    known = [statistics.rows for statistics in plan.evidence.statistics if statistics is not None]
    rows = f"{_number(sum(known))} rows" if known else "all tables of the query"
    by_source: dict[str, list[float]] = {}
    clocks = {str(source) for source in plan.program.sources if source.is_clock}
    for cost in plan.program.costs:
        if cost.source not in clocks:
            by_source.setdefault(cost.source, []).append(cost.accesses)
    if not by_source:
        return f"{plan.strategy}: a refresh runs the query, which reads {rows}."
    means = {source: sum(accesses) / len(accesses) for source, accesses in by_source.items()}
    dearest = max(means, key=means.__getitem__)
    names = dict(zip(map(str, plan.program.sources), tables, strict=True))
    touched = _number(means[dearest])
    by_oid = dict(zip((source.oid for source in plan.program.sources), tables, strict=True))
    scanned = {
        by_oid[oid]
        for cost in plan.program.costs
        if cost.source == dearest
        for oid, _, _ in cost.scans
    }
    scans = f" and to scan {' and '.join(sorted(scanned))} for want of an index" if scanned else ""
    return (
        f"{plan.strategy}: a change of one row of {names.get(dearest, dearest)} is expected to touch {touched}"
        f" row{'' if touched == '1' else 's'}{scans}; recomputing the view reads {rows}."
    )


def _number(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"


def _measured(connection: Connection[Any], view: ViewInfo) -> dict[str, Any] | None:
    measurement = catalog_costs.measured(connection, view)
    if measurement is None:
        return None
    price, refreshes = measurement
    return {"access_microseconds": price.seconds * 1e6, "refreshes": refreshes}


def _recompute_estimate(connection: Connection[Any], view: ViewInfo) -> dict[str, Any] | None:
    if not view.plan.program.costs:
        return None
    seconds, loses_from, measured = catalog_costs.recompute_cost(connection, view)
    return {"milliseconds": seconds * 1e3, "measured": measured, "loses_from": loses_from}


def _plan(
    plan: MaintenancePlan, sources: Sequence[str], missing: Sequence[indexes.MissingIndex]
) -> str:
    program = plan.program
    lines = [plan.definition.algebra, "", "captured:"]
    for source, name in zip(program.sources, sources, strict=True):
        columns = ", ".join(
            column.name + (" (key)" if column.in_key else "") for column in source.columns
        )
        keyless = "" if source.keyed else ", no key"
        lines.append(f"  {name} ({columns or 'no columns'}){keyless}")
    if not program.sources:
        lines.append("  nothing")
    lines.append("stored:")
    ranking = plan.ranking
    for state in program.states:
        if ranking is not None and ranking.excerpt is not None and state.role == program.content:
            columns = ", ".join(program.column_names)
            lines.append(
                f"  {state.role} ({columns}): not a table, but {ranking.excerpt} of {ranking.rows}, found by lookups"
            )
        elif not isinstance(state, Shape):
            lines.append(_state(state))
    if missing:
        lines.append("indexes that it looks for and that are missing:")
        lines += [f"  {index}" for index in missing]
    return "\n".join(lines)


def _state(state: BagTable | StateTable | StateView) -> str:
    if isinstance(state, BagTable):
        columns = ", ".join(f"{column.name} {column.type}" for column in state.columns)
        identity = state.identity
        hidden = f"; hidden: {identity.row}, {identity.nth}" if identity else ""
        return f"  {state.role} ({columns}{hidden})"
    if isinstance(state, StateView):
        columns = ", ".join(column.name for column in state.columns)
        return f"  {state.role} ({columns}): not a table, but a query over the others"
    visible = ", ".join(column.name for column in state.columns if not column.hidden)
    hidden = ", ".join(column.name for column in state.columns if column.hidden)
    key = ", ".join(state.key) or "at most one row"
    return f"  {state.role} ({visible}{'; hidden: ' + hidden if hidden else ''}; key: {key})"


_CHANGES = {
    ChangeKind.INSERT: "insertion into",
    ChangeKind.UPDATE: "update of",
    ChangeKind.DELETE: "deletion from",
}


def _why(
    plan: MaintenancePlan, measured: dict[str, Any] | None, recompute: dict[str, Any] | None
) -> str:
    lines = [
        f"{'+' if reason.taken else '-'} {reason.strategy}: {reason.because}"
        for reason in plan.evidence.reasons
    ]
    if plan.evidence.initialised:
        lines.append("initial states:")
        lines += [f"  {initialised}" for initialised in plan.evidence.initialised]
    if plan.program.costs:
        lines.append("expected lookups and rows of one change, by the statistics at planning:")
        lines += [f"  {_cost(cost)}" for cost in plan.program.costs]
        lines.append(_time_line(measured))
    if recompute is not None:
        lines.append(_recompute_line(recompute))
        lines += _side_by_side(plan.evidence.reasons, measured, recompute)
    return "\n".join(lines)


def _side_by_side(
    reasons: Sequence[Reason], measured: dict[str, Any] | None, recompute: dict[str, Any]
) -> Iterator[str]:
    """Yield the expected and measured cost of an average change: under the plan, under the next best plan,
    and recomputed.
    """
    estimates = [(reason, reason.estimate) for reason in reasons if reason.estimate is not None]
    if not any(reason.taken for reason, _ in estimates):
        return
    # The plan comes first.
    ordered = sorted(
        estimates,
        key=lambda each: (not each[0].taken, each[1].change_microseconds or each[1].accesses),
    )
    yield "an average change, expected and measured:"
    for reason, estimate in ordered[:2]:
        price = estimate.price if estimate.price and not estimate.price.views else None
        each = measured["access_microseconds"] if reason.taken and measured else None
        each = price.seconds * 1e6 if each is None and price else each
        duration = "not measured" if each is None else f"{estimate.accesses * each:,.3g} µs"
        name = f"{reason.strategy}{'' if reason.taken else ' (next best)'}"
        yield f"  {name}: {estimate.accesses:,.3g} lookups and rows | {duration}"
    work = f"{recompute['milliseconds'] * 1e3:,.3g} µs"
    yield f"  recompute: {work} | {work if recompute['measured'] else 'not measured'}"


def _time_line(measured: dict[str, Any] | None) -> str:
    if measured is None:
        return "their time: no refresh since planning was large enough to measure it"
    each, refreshes = measured["access_microseconds"], measured["refreshes"]
    by = "one refresh" if refreshes == 1 else f"{refreshes} refreshes"
    return f"their time: {each:,.3g} µs each, measured in {by} since planning"


def _recompute_line(recompute: dict[str, Any]) -> str:
    by = "as measured" if recompute["measured"] else "not measured yet"
    texts = f"a recompute takes about {recompute['milliseconds']:,.3g} ms, {by}"
    if recompute["loses_from"] is None:
        return f"{texts}; a refresh that expects to take longer recomputes the view"
    return (
        f"{texts}; a refresh that expects {recompute['loses_from']:,.3g} lookups and rows took longer, so such"
        " refreshes now recompute the view"
    )


def _cost(cost: Cost) -> str:
    columns = f" ({', '.join(cost.columns)})" if cost.columns else ""
    letters = ", ".join(f"{letter} = {getattr(cost, letter):,.3g}" for letter in "apgk")
    return f"{cost.accesses:,.3g} for {_CHANGES[cost.kind]} {cost.source}{columns}: {letters}"


def _script(plan: MaintenancePlan) -> str:
    notations = (getattr(step, "notation", "") for step in plan.program.script)
    return "\n".join(filter(None, notations))


def _sql(connection: Connection[Any], view: ViewInfo) -> str:
    rows = connection.execute(
        "SELECT pg_get_functiondef(oid) FROM pg_proc"
        " WHERE pronamespace = 'idivm_state'::regnamespace AND proname = 'refresh_' || %s::integer",
        [view.id],
    ).fetchall()
    definition = connection.execute(
        "SELECT pg_get_viewdef(definition) FROM idivm.views WHERE id = %s", [view.id]
    ).fetchone()
    assert definition is not None
    parts = [f"-- {view.definition}\n{definition[0]}\n", *(row[0] for row in rows)]
    return "\n".join([*parts, *_read_query(connection, view)])


def _read_query(connection: Connection[Any], view: ViewInfo) -> list[str]:
    """Return what a read of an on_read view runs: the choice of a branch, and the merged query."""
    if view.read_from is None:
        return []
    names = names_of(view)
    rows = connection.execute(
        "SELECT format(E'-- %%s\n%%s\n', r.name, pg_get_viewdef(r.name::regclass)) FROM unnest(%s::text[]) AS r(name)"
        " UNION ALL SELECT pg_get_functiondef(%s::regproc)",
        [
            [view.read_from, names.state(reads.MERGED).as_string(connection)],
            names.reading.as_string(connection),
        ],
    ).fetchall()
    return [row[0] for row in rows]
