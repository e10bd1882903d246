"""Maintained views as tables of SQLAlchemy."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

DIALECT = postgresql.dialect()  # type: ignore[no-untyped-call]
VIEWS = "idivm"
"""The key of the maintained views in `MetaData.info`."""


class MaintainedView(sa.Table):
    """A maintained view that queries and mapped classes use like a table.

    `metadata.create_all` creates it after the tables, and `drop_all` drops it before the tables.
    """

    inherit_cache = True
    query: str
    """The SQL of the view."""
    options: dict[str, str]

    def __new__(
        cls,
        name: str,
        metadata: sa.MetaData,
        query: sa.SelectBase | str,
        *columns: sa.Column[Any],
        key: Iterable[str] = (),
        schema: str | None = None,
        **options: Any,
    ) -> MaintainedView:
        """Describe a view. `key` names the columns that identify a row, which a mapped class needs.

        The columns come from the query, or are listed if the query is a string. `options` are those of a
        view, such as `maintain="eager"`.
        """
        if isinstance(query, str):
            text = query
        else:
            text = str(query.compile(dialect=DIALECT, compile_kwargs={"literal_binds": True}))
            # The text goes to the database as a value, where a percent sign is not escaped.
            text = text.replace("%%", "%")
            columns = columns or tuple(
                sa.Column(column.name, column.type, primary_key=column.name in set(key))
                for column in query.selected_columns
            )
        # The view has its own metadata, because `create_all` would create it as a table.
        apart = sa.MetaData(schema=metadata.schema)
        create: Any = super().__new__
        view: MaintainedView = create(cls, name, apart, *columns, schema=schema)
        view.query = text
        view.options = {name: str(value) for name, value in options.items()}
        views = metadata.info.setdefault(VIEWS, {})
        if not views:
            sa.event.listen(metadata, "after_create", _create_all)
            sa.event.listen(metadata, "before_drop", _drop_all)
        views[view.relation] = view
        return view

    def __init__(self, *arguments: Any, _no_init: bool = True, **options: Any) -> None:
        """Initialize the table. Python calls this a second time, with the arguments of the view."""
        if not _no_init:
            super().__init__(*arguments, _no_init=False, **options)

    @property
    def relation(self) -> str:
        """Return the name of the view in SQL."""
        return str(DIALECT.identifier_preparer.format_table(self))

    def refresh(self, connection: Any) -> None:
        """Refresh the view inside the transaction of a connection or session."""
        connection.execute(sa.select(sa.func.idivm.refresh(self.relation)))


def prepare(connection: sa.Connection) -> None:
    """Install idivm's catalog over a separate connection if the database has none."""
    catalog = sa.func.to_regclass("idivm.views")
    if connection.scalar(sa.select(sa.cast(catalog, sa.Text))) is None:
        # Importing here keeps programs that create no views from waiting for this import.
        from orchestrator.api import connect

        connect(connection.engine).close()


def create_view(
    relation: str, query: str, options: Mapping[str, str], *, if_not_exists: bool = False
) -> sa.Select[Any]:
    """Return the statement that creates a view."""
    null = sa.null()
    call = sa.func.idivm.create_view(
        relation, query, null, null, null, _json(options), sa.literal(if_not_exists)
    )
    return _as_text(call)


def replace_view(relation: str, query: str, options: Mapping[str, str]) -> sa.Select[Any]:
    """Return the statement that changes the query of a view."""
    null = sa.null()
    view = sa.cast(sa.literal(relation), postgresql.REGCLASS)
    return _as_text(sa.func.idivm.replace_view(view, query, null, null, null, _json(options)))


def drop_view(relation: str, *, if_exists: bool = False) -> sa.Select[Any]:
    """Return the statement that drops a view."""
    return sa.select(sa.func.idivm.drop_view(relation, sa.literal(if_exists)))


def _json(options: Mapping[str, str]) -> sa.Cast[Any]:
    return sa.cast(sa.literal(json.dumps(dict(options)), sa.Text), postgresql.JSONB)


def _as_text(call: Any) -> sa.Select[Any]:
    return sa.select(sa.cast(call, sa.Text))


def _create_all(target: sa.MetaData, connection: sa.Connection, **_: Any) -> None:
    prepare(connection)
    for view in target.info[VIEWS].values():
        statement = create_view(view.relation, view.query, view.options, if_not_exists=True)
        connection.execute(statement)


def _drop_all(target: sa.MetaData, connection: sa.Connection, **_: Any) -> None:
    prepare(connection)
    for view in reversed(target.info[VIEWS].values()):
        connection.execute(drop_view(view.relation, if_exists=True))
