"""Maintained views as models of Django, and operations for its migrations."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from django.db import models
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ModelState, ProjectState
from django.db.models.base import ModelBase

Query: TypeAlias = Any
"""SQL, a QuerySet, or a function from the `apps` of a migration to a QuerySet."""

OPTION = "maintained_view"
"""The key of the view in a model's options, in the state of migrations."""


class _ViewBase(ModelBase):
    """Removes `maintained_view` and `maintained_options` from `class Meta`, where Django allows only its own
    options.
    """

    def __new__(cls, name: str, bases: tuple[type, ...], attributes: Any, **rest: Any) -> Any:
        meta = attributes.get("Meta")
        given = {}
        if meta is not None:
            names = {OPTION, "maintained_options"} & set(vars(meta))
            given = {name: vars(meta)[name] for name in names}
            kept = {k: v for k, v in vars(meta).items() if k not in names}
            attributes["Meta"] = type("Meta", meta.__bases__, {"managed": False, **kept})
        model = super().__new__(cls, name, bases, attributes, **rest)
        model._maintained = given
        return model


class MaintainedView(models.Model, metaclass=_ViewBase):
    """A model whose rows are the rows of a maintained view.

    `class Meta` may have `maintained_view`, a query as SQL or QuerySet, and `maintained_options`.
    """

    _maintained: dict[str, Any]

    if not TYPE_CHECKING:
        # Type checkers would demand that the Meta of a model inherits from this one.
        class Meta:
            """This class has no table."""

            abstract = True

    @classmethod
    def view_query(cls) -> str:
        """Return the SQL of the query in `class Meta`, for a migration."""
        from django.apps import apps

        return _sql(cls._maintained[OPTION], apps)

    @classmethod
    def refresh(cls, using: str | None = None) -> None:
        """Refresh the view inside the current transaction."""
        from django.db import connections, router

        connection = connections[using or router.db_for_write(cls)]
        with connection.cursor() as cursor:
            relation = connection.ops.quote_name(cls._meta.db_table)
            cursor.execute("SELECT idivm.refresh(%s)", [relation])


class _ViewOperation(Operation):
    """An operation on a view. The state of the migrations holds the view's query and options."""

    reduces_to_sql = True

    def __init__(
        self,
        name: str,
        query: Query,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.query = query
        self.options = dict(options or {})

    @property
    def migration_name_fragment(self) -> str:
        return f"{type(self).__name__.lower()}_{self.name.lower()}"

    def references_model(self, name: str, app_label: str) -> bool:
        # A query may read any model.
        return True

    def _note(self, app_label: str, state: ProjectState) -> None:
        model = state.models[app_label, self.name.lower()]
        model.options[OPTION] = {"query": self.query, "options": self.options}
        state.reload_model(app_label, self.name.lower(), delay=True)

    def _run(self, editor: Any, statement: str, values: Sequence[str]) -> None:
        # sqlmigrate quotes the values itself.
        editor.execute(statement, list(values))

    def _create(self, app_label: str, editor: Any, state: ProjectState) -> None:
        relation, view = _view_of(app_label, self.name, editor, state)
        if not editor.collect_sql:
            # Importing here keeps Django's other commands from waiting for this import.
            from orchestrator.api import Orchestrator

            Orchestrator(editor.connection).prepare()
        self._run(
            editor,
            "SELECT idivm.create_view(%s, %s, options => %s)",
            [relation, _sql(view["query"], state.apps), json.dumps(view["options"])],
        )

    def _replace(self, app_label: str, editor: Any, state: ProjectState) -> None:
        relation, view = _view_of(app_label, self.name, editor, state)
        self._run(
            editor,
            "SELECT idivm.replace_view(%s, %s, options => %s)",
            [relation, _sql(view["query"], state.apps), json.dumps(view["options"])],
        )

    def _drop(self, app_label: str, editor: Any, state: ProjectState) -> None:
        relation, _ = _view_of(app_label, self.name, editor, state)
        self._run(editor, "SELECT idivm.drop_view(%s)", [relation])


class CreateMaintainedView(_ViewOperation):
    """Create a maintained view and the model that shows it."""

    def __init__(
        self,
        name: str,
        query: Query,
        options: Mapping[str, str] | None = None,
        *,
        fields: Sequence[tuple[str, Any]],
        db_table: str | None = None,
    ) -> None:
        """Describe the view of the model `name`. A query is SQL or a function from `apps` to a QuerySet."""
        super().__init__(name, query, options)
        self.fields = list(fields)
        self.db_table = db_table

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        """Add the model and its view to the state."""
        options: dict[str, Any] = {"managed": False}
        if self.db_table:
            options["db_table"] = self.db_table
        state.add_model(ModelState(app_label, self.name, self.fields, options, (MaintainedView,)))
        self._note(app_label, state)

    def database_forwards(
        self, app_label: str, schema_editor: Any, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        """Create the view."""
        self._create(app_label, schema_editor, to_state)

    def database_backwards(
        self, app_label: str, schema_editor: Any, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        """Drop the view."""
        self._drop(app_label, schema_editor, from_state)

    def describe(self) -> str:
        """Return what `migrate` does, as text."""
        return f"Create maintained view {self.name}"


class ReplaceMaintainedView(_ViewOperation):
    """Change the query of a maintained view. Options that are not given stay."""

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        """Change the view in the state."""
        before = state.models[app_label, self.name.lower()].options[OPTION]
        self.options = {**before["options"], **self.options}
        self._note(app_label, state)

    def database_forwards(
        self, app_label: str, schema_editor: Any, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        """Replace the query."""
        self._replace(app_label, schema_editor, to_state)

    def database_backwards(
        self, app_label: str, schema_editor: Any, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        """Restore the view's former query and options."""
        self._replace(app_label, schema_editor, to_state)

    def describe(self) -> str:
        """Return what `migrate` does, as text."""
        return f"Replace the query of maintained view {self.name}"


class DeleteMaintainedView(Operation):
    """Drop a maintained view and its model."""

    reduces_to_sql = True
    _drop, _create, _run = _ViewOperation._drop, _ViewOperation._create, _ViewOperation._run

    def __init__(self, name: str) -> None:
        """Take the name of the view's model."""
        self.name = name

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        """Remove the model from the state."""
        state.remove_model(app_label, self.name.lower())

    def database_forwards(
        self, app_label: str, schema_editor: Any, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        """Drop the view."""
        self._drop(app_label, schema_editor, from_state)

    def database_backwards(
        self, app_label: str, schema_editor: Any, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        """Create the view again."""
        self._create(app_label, schema_editor, to_state)

    def describe(self) -> str:
        """Return what `migrate` does, as text."""
        return f"Delete maintained view {self.name}"


def _view_of(
    app_label: str, name: str, editor: Any, state: ProjectState
) -> tuple[str, dict[str, Any]]:
    """Return the relation of a view as an SQL name, and the view's query and options."""
    model = state.apps.get_model(app_label, name)
    relation = editor.connection.ops.quote_name(model._meta.db_table)
    return relation, state.models[app_label, name.lower()].options[OPTION]


def _sql(query: Query, apps: Any) -> str:
    """Return the text of a query. A function gets the models of the migration's state."""
    if callable(query):
        query = query(apps)
    if isinstance(query, str):
        return query
    from django.db import connections

    text, values = query.query.sql_with_params()
    composed: str = connections[query.db].ops.compose_sql(text, values)
    return composed
