"""Operations of Alembic on maintained views, with support for autogenerate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from alembic.autogenerate import comparators, renderers
from alembic.autogenerate.api import AutogenContext
from alembic.operations import MigrateOperation, Operations
from alembic.operations.ops import DropTableOp, UpgradeOps
from sqlalchemy.dialects import postgresql

from orchestrator.catalog import OWN_SCHEMAS
from orchestrator.integrations.sqlalchemy import (
    VIEWS,
    create_view,
    drop_view,
    prepare,
    replace_view,
)


class _ViewOp(MigrateOperation):
    """An operation on a view with a query and options, and their former values if there are any."""

    def __init__(
        self,
        relation: str,
        query: str,
        options: Mapping[str, str] | None = None,
        before: tuple[str, Mapping[str, str]] | None = None,
    ) -> None:
        self.relation = relation
        self.query = query
        self.options = dict(options or {})
        self.before = before


@Operations.register_operation("create_maintained_view")
class CreateMaintainedViewOp(_ViewOp):
    """Create a maintained view."""

    @classmethod
    def create_maintained_view(
        cls, operations: Operations, view: str, query: str, **options: str
    ) -> None:
        """Create a maintained view of a query, with options such as `maintain="eager"`."""
        operations.invoke(cls(view, query, options))

    def reverse(self) -> MigrateOperation:
        """Return the operation that drops the view."""
        return DropMaintainedViewOp(self.relation, self.query, self.options)


@Operations.register_operation("replace_maintained_view")
class ReplaceMaintainedViewOp(_ViewOp):
    """Change the query or the options of a maintained view."""

    @classmethod
    def replace_maintained_view(
        cls, operations: Operations, view: str, query: str, **options: str
    ) -> None:
        """Change the query of a maintained view. Options that are not given stay."""
        operations.invoke(cls(view, query, options))

    def reverse(self) -> MigrateOperation:
        """Return the operation that restores the view's former query and options."""
        assert self.before is not None
        return ReplaceMaintainedViewOp(
            self.relation, *self.before, before=(self.query, self.options)
        )


@Operations.register_operation("drop_maintained_view")
class DropMaintainedViewOp(_ViewOp):
    """Drop a maintained view."""

    @classmethod
    def drop_maintained_view(cls, operations: Operations, relation: str) -> None:
        """Drop a maintained view."""
        operations.invoke(cls(relation, ""))

    def reverse(self) -> MigrateOperation:
        """Return the operation that creates the view again."""
        return CreateMaintainedViewOp(self.relation, self.query, self.options)


@Operations.implementation_for(CreateMaintainedViewOp)
def _create(operations: Operations, op: CreateMaintainedViewOp) -> None:
    context = operations.get_context()
    if not context.as_sql and context.connection is not None:
        prepare(context.connection)
    operations.execute(create_view(op.relation, op.query, op.options))


@Operations.implementation_for(ReplaceMaintainedViewOp)
def _replace(operations: Operations, op: ReplaceMaintainedViewOp) -> None:
    operations.execute(replace_view(op.relation, op.query, op.options))


@Operations.implementation_for(DropMaintainedViewOp)
def _drop(operations: Operations, op: DropMaintainedViewOp) -> None:
    operations.execute(drop_view(op.relation))


@renderers.dispatch_for(CreateMaintainedViewOp)
def _render_create(context: AutogenContext, op: CreateMaintainedViewOp) -> str:
    return _rendered("create_maintained_view", op)


@renderers.dispatch_for(ReplaceMaintainedViewOp)
def _render_replace(context: AutogenContext, op: ReplaceMaintainedViewOp) -> str:
    return _rendered("replace_maintained_view", op)


@renderers.dispatch_for(DropMaintainedViewOp)
def _render_drop(context: AutogenContext, op: DropMaintainedViewOp) -> str:
    return f"op.drop_maintained_view({op.relation!r})"


def _rendered(name: str, op: _ViewOp) -> str:
    options = "".join(f",\n    {name}={value!r}" for name, value in op.options.items())
    return f"op.{name}(\n    {op.relation!r},\n    {op.query!r}{options},\n)"


_EXISTING = sa.text("""
    SELECT c.oid::regclass::text, pg_get_viewdef(coalesce(to_regclass('idivm_def.q' || v.id), v.definition)), v.options
    FROM idivm.views v JOIN pg_class c ON c.oid = v.relation
    UNION ALL
    SELECT c.oid::regclass::text, pg_get_viewdef(c.oid), u.options
    FROM idivm.unplanned_views u JOIN pg_class c ON c.oid = u.relation
""")


@comparators.dispatch_for("schema")
def _compare(context: AutogenContext, upgrade: UpgradeOps, schemas: Any) -> None:
    """Compare the views of the metadata with the views of the database."""
    connection, metadata = context.connection, context.metadata
    assert connection is not None
    wanted = dict(metadata.info.get(VIEWS, {})) if isinstance(metadata, sa.MetaData) else {}
    has_catalog = sa.select(sa.cast(sa.func.to_regclass("idivm.views"), sa.Text))
    existing: dict[str, tuple[str, dict[str, str]]] = {}
    if connection.scalar(has_catalog):
        existing = {row[0]: (row[1], row[2]) for row in connection.execute(_EXISTING)}
    # The relations of idivm are not tables of the user.
    upgrade.ops[:] = [op for op in upgrade.ops if not _is_ours(op, existing)]
    for relation in [relation for relation in existing if relation not in wanted]:
        upgrade.ops.insert(0, DropMaintainedViewOp(relation, *existing[relation]))
    for relation, view in wanted.items():
        if relation not in existing:
            upgrade.ops.append(CreateMaintainedViewOp(relation, view.query, view.options))
            continue
        _, options = existing[relation]
        changed = any(options.get(name) != value for name, value in view.options.items())
        if changed or not _has_query(connection, relation, view.query):
            upgrade.ops.append(
                ReplaceMaintainedViewOp(
                    relation, view.query, view.options, before=existing[relation]
                )
            )


def _is_ours(op: MigrateOperation, existing: Mapping[str, Any]) -> bool:
    return isinstance(op, DropTableOp) and (
        op.schema in OWN_SCHEMAS
        or (op.table_name if op.schema is None else f"{op.schema}.{op.table_name}") in existing
    )


def _has_query(connection: sa.Connection, relation: str, query: str) -> bool:
    """Return whether a view has this query, whatever the layout of its text."""
    view = sa.cast(sa.literal(relation), postgresql.REGCLASS)
    savepoint = connection.begin_nested()
    try:
        return bool(connection.scalar(sa.select(sa.func.idivm.has_query(view, query))))
    except sa.exc.DBAPIError:
        # The query reads an object that the migration has yet to create.
        return False
    finally:
        savepoint.rollback()
