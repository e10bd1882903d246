"""Compare the objects of a view with those that its plan requires, and repair them.

To find the required objects, install them in a transaction that is rolled back, beside or over the existing
objects. So this module does not depend on what a strategy stores.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from psycopg import Connection
from psycopg.errors import UniqueViolation
from psycopg.sql import SQL, Composable, Composed, Identifier

from orchestrator import catalog
from orchestrator.catalog import ViewInfo
from orchestrator.catalog import objects as catalog_objects
from orchestrator.deltascript import emit, program
from orchestrator.deltascript.names import Names
from orchestrator.deltascript.plan import MaintenancePlan, ReadChanges, StateTable, StateView
from orchestrator.deltascript.query import query_text
from orchestrator.errors import UnsupportedError
from orchestrator.frontend import catalog as facts
from orchestrator.frontend.options import parse_options
from orchestrator.runtime import refresh
from orchestrator.runtime.diagnosis import answers, check
from orchestrator.runtime.enumeration import ranked, relations
from orchestrator.runtime.enumeration.gate import relation_of
from orchestrator.runtime.installation import names as view_names
from orchestrator.runtime.installation import replanning, shown, sources
from orchestrator.runtime.refresh import RefreshError

_TWIN = "idivm_twin"
"""The prefix of the tables that are created for comparison."""


@dataclass(frozen=True)
class Damage:
    """The damage of the objects of a view."""

    sentence: str
    statements: tuple[tuple[Composable, Composed], ...] = ()
    """The statements that recreate missing parts, each with its relation, if they repair the damage."""
    content: bool = False
    """Whether the table that holds the content is damaged."""
    replaced: bool = False
    """Whether the relation that users read shows another query."""
    recomputed: bool = False
    """Whether nothing is damaged, but the view would be planned otherwise today."""

    @property
    def remedy(self) -> str:
        """Return how the damage is repaired."""
        if self.replaced:
            return "it shows the maintained content again"
        if self.recomputed:
            return "it was planned again and rebuilt"
        return "made again" if self.statements else "made again, and the view was rebuilt"


def in_order(connection: Connection[Any]) -> list[ViewInfo]:
    """Return all views, each after the views that it reads."""
    views = {view.id: view for view in catalog.all_views(connection)}
    order = catalog.refresh_order(connection, list(views))
    return [views[view_id] for view_id in order if view_id in views]


def damaged_routines(connection: Connection[Any], source_id: int) -> list[str]:
    """Return the capture functions of a source that are missing or differ from the installed text."""
    before = catalog_objects.routines(connection, source_id)
    with connection.transaction(force_rollback=True):
        sources.renew(connection, source_id, ())
        wanted = catalog_objects.routines(connection, source_id)
    return sorted(name for name, text in wanted.items() if before.get(name) != text)


def damage(connection: Connection[Any], view: ViewInfo) -> Damage | None:
    """Return what is missing from a view or was edited, if anything."""
    if view.state is None or view.base is None:
        return Damage("the table that holds its content is gone", content=True)
    if not catalog_objects.is_shown(connection, view.id):
        query = " ".join(catalog_objects.query_of(connection, SQL(view.relation)).split())
        return Damage(
            f"CREATE OR REPLACE VIEW in plain SQL gave it another query ({query})", replaced=True
        )
    if view.options.get("relation") == "table" and not catalog_objects.table_is_whole(
        connection, view.id
    ):
        return Damage(
            "parts are gone by which refreshes reach the table that users read", replaced=True
        )
    if not view.stored_plan or catalog_objects.lacks_watermark(connection, view.id):
        return Damage("its rows in idivm's catalog are gone or were edited")
    if not view.is_planned:
        return Damage("another version of idivm planned it", recomputed=True)
    planned = view.plan.program
    if catalog_objects.count_sources(connection, view.id) != len(planned.sources):
        return Damage("the catalog has lost a table that it reads")
    names = installed_names(connection, view)
    wanted = [names.table(state.role) for state in planned.states]
    wanted += [names.table(step.shape) for step in planned.script if isinstance(step, ReadChanges)]
    lost = sorted(set(wanted) - catalog_objects.standing(connection, wanted))
    if lost:
        return Damage(f"of idivm_state the tables {', '.join(lost)} are gone")
    if not catalog_objects.program(connection, names):
        return Damage("its refresh function is gone")
    with connection.transaction(force_rollback=True):
        plan = installed_plan(connection, view)
        if plan is None:
            # The stored facts name tables by oid, and a dump does not keep oids.
            if not catalog_objects.knows_its_tables(connection, view.id):
                return None
            if named := _with_new_keys(connection, view):
                tables = ", ".join(catalog.visible_names(connection, named))
                return Damage(f"it was planned before {tables} had a key", recomputed=True)
            return Damage("this version of idivm plans it otherwise", recomputed=True)
        if not catalog_objects.is_guarded(connection, view.relation):
            again = shown.statements(connection, plan, names, SQL(view.relation))
            return Damage(
                "the trigger is gone that refuses to write to it",
                tuple((SQL(view.relation), statement) for statement in again),
            )
        return _compared(connection, plan, names) or _not_enumerated(connection, plan, names)


def _with_new_keys(connection: Connection[Any], view: ViewInfo) -> list[str]:
    """Return the tables that have a key, and had none when the view was planned."""
    keyless = {
        source.oid: source
        for source in view.plan.program.sources
        if not (source.keyed or source.is_own)
    }
    tables = facts.relations(connection, list(keyless))
    return [str(keyless[oid]) for oid, table in tables.items() if table.usable_keys]


def _not_enumerated(
    connection: Connection[Any], plan: MaintenancePlan, names: Names
) -> Damage | None:
    if plan.ranking is not None and plan.ranking.excerpt is not None:
        # The content is gone too if something is gone that it reads.
        return None
    relation = relation_of(names)
    statements = tuple(
        (relation, statement)
        for statement in relations.statements(connection, names, plan)
        if not catalog.exists(connection, relation)
    )
    return (
        Damage("the relation by which SQL enumerates it is gone", statements)
        if statements
        else None
    )


def mend(connection: Connection[Any], view: ViewInfo, damage: Damage) -> None:
    """Repair damage. The next refresh rebuilds a content that may be wrong."""
    if damage.replaced:
        with connection.transaction():
            shown.show_content(connection, view)
        return
    if not damage.statements:
        catalog_objects.invalidate(connection, view.id)
        catalog_objects.restore_watermark(connection, view.id)
        replanning.replan(connection, view, afresh=damage.content)
        return
    for relation, statement in damage.statements:
        try:
            with connection.transaction():
                connection.execute(statement)
        except UniqueViolation:
            # Without its unique index, the table took rows twice. Views above see these rows deleted and
            # inserted.
            with connection.transaction():
                connection.execute(SQL("DELETE FROM {}").format(relation))
                connection.execute(statement)
                catalog_objects.invalidate(connection, view.id)


def wrong_states(connection: Connection[Any], view: ViewInfo) -> list[str]:
    """Return the objects whose rows differ from their queries, in one snapshot after a refresh."""
    names = installed_names(connection, view)

    def differing() -> list[str]:
        reports = refresh.refresh_here(connection, [view.id])
        if any(report.error for report in reports):
            raise RefreshError(reports)
        refresh.pin_tables(connection, [view.id])
        catalog.refuse_forbidden(connection, view.id, view.name)
        catalog.take_settings(connection, view.settings)
        wrong = []
        if not answers.check_view(connection, SQL(view.relation), view.id).equal:
            wrong.append("the view")
        if catalog_objects.has_content_only(connection, view.id):
            return wrong
        with connection.transaction(force_rollback=True):
            plan = installed_plan(connection, view)
            for state in plan.program.states if plan is not None else ():
                if not isinstance(state, StateTable) or state.historic:
                    continue
                if not _holds(connection, state, names):
                    # The later states are computed from this state.
                    wrong.append(f"its table {names.table(state.role)}")
                    break
        return wrong

    return refresh.in_one_cut(connection, [view.id], differing)


def installed_names(connection: Connection[Any], view: ViewInfo) -> Names:
    """Return the names of the objects of a view."""
    return view_names.bound(connection, view_names.names_of(view))


def installed_plan(connection: Connection[Any], view: ViewInfo) -> MaintenancePlan | None:
    """Return the plan of a view as it was installed, or None if it would be planned differently today."""
    try:
        options = parse_options(view.options.items())
        plan = replanning.current_plan(connection, view, options, view.plan.evidence)
    except UnsupportedError:
        return None
    # Compare queries in their readable form, because a dump does not keep the oids of tables.
    today, stored = plan.to_json()["program"], view.plan.to_json()["program"]
    parts = ("states", "script", "content", "variables")
    if not all(today[part] == stored[part] for part in parts):
        return None
    return replace(plan, program=replace(plan.program, costs=view.plan.program.costs))


def _compared(connection: Connection[Any], plan: MaintenancePlan, names: Names) -> Damage | None:
    """Install the objects of the plan for comparison, and return how the existing objects differ."""
    twin = replace(names, view=_TWIN)
    for statement in emit.create_states(plan.program, twin):
        connection.execute(statement)
    missing: list[tuple[Composable, Composed]] = []
    lacking: list[str] = []
    for state in plan.program.states:
        table, wanted = names.state(state.role), twin.state(state.role)
        if catalog_objects.columns(connection, table) != catalog_objects.columns(
            connection, wanted
        ):
            content = state.role == plan.program.content
            return Damage(f"its table {names.table(state.role)} was altered", content=content)
        if isinstance(state, StateView):
            connection.execute(ranked.create_state_view(names, plan, state, wanted))
            asked, actual = (catalog_objects.query_of(connection, item) for item in (wanted, table))
            if asked != actual:
                return Damage(f"the query of {names.table(state.role)} was edited", content=True)
            continue
        present = catalog_objects.indexes(connection, table)
        alone = replace(plan.program, states=(state,))
        for statement, like in zip(
            emit.index_states(alone, names),
            emit.index_states(alone, twin),
            strict=True,
        ):
            before = catalog_objects.indexes(connection, wanted)
            connection.execute(like)
            added = catalog_objects.indexes(connection, wanted)[len(before) :]
            if any(index not in present for index in added):
                missing.append((table, statement))
                lacking.append(names.table(state.role))
    if missing:
        tables = ", ".join(dict.fromkeys(lacking))
        return Damage(f"indexes of its tables {tables} are gone", tuple(missing))
    installed = catalog_objects.program(connection, names)
    for statement in program.create_program(plan.program, names):
        connection.execute(statement)
    if catalog_objects.program(connection, names) != installed:
        return Damage(
            "its refresh function was edited, or made for another version of PostgreSQL or idivm"
        )
    return None


def _holds(connection: Connection[Any], state: StateTable, names: Names) -> bool:
    """Return whether a state table holds the rows of its query. A stored sum may show more trailing zeros."""
    columns = [column.name for column in state.columns]
    stored, wanted = Identifier("pg_temp", "idivm_stored"), Identifier("pg_temp", "idivm_wanted")
    types = dict(catalog_objects.columns(connection, names.state(state.role)))
    selected = SQL(", ").join(
        SQL("trim_scale(r.{0}) AS {0}" if types[name] == "numeric" else "r.{0}").format(
            Identifier(name)
        )
        for name in columns
    )
    listed = SQL(", ").join(map(Identifier, columns))
    with connection.transaction(force_rollback=True):
        for view, rows in (
            (stored, SQL("TABLE {}").format(names.state(state.role))),
            (wanted, query_text(state.query, names)),
        ):
            connection.execute(
                SQL("CREATE VIEW {} AS WITH r ({}) AS ({}) SELECT {} FROM r").format(
                    view, listed, rows, selected
                )
            )
        if check.compare(connection, view=stored, definition=wanted).equal:
            return True
        return any(
            check.compare(connection, view=stored, definition=wanted, kinds=kinds).equal
            for kinds in answers.wide_kinds(connection, names, len(columns))
        )
