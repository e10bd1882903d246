"""A workload of `sql/`: its tables in a schema of their own, its queries and its changes by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from psycopg import sql

from orchestrator.api import Orchestrator
from orchestrator.errors import NameTakenError
from orchestrator.resources import resource_folder

SCHEMA = "idivm_bench"


@dataclass(frozen=True)
class Workload:
    """The files of one folder under `sql/`."""

    name: str

    def text(self, file: str) -> str:
        """The SQL in `<file>.sql`."""
        return (resource_folder("sql") / self.name / f"{file}.sql").read_text()

    @contextmanager
    def tables(self, orchestrator: Orchestrator, settings: Mapping[str, int]) -> Iterator[None]:
        """Loads the tables, sized by settings `bench.*`; drops them and their views afterwards."""
        connection = orchestrator.connection
        if connection.execute("SELECT to_regnamespace(%s)", [SCHEMA]).fetchone() != (None,):
            raise NameTakenError(
                f"The database has a schema {SCHEMA} already: drop it (DROP SCHEMA {SCHEMA} "
                "CASCADE) if an earlier measurement left it, or measure in another database."
            )
        schema = sql.Identifier(SCHEMA)
        path = connection.execute("SELECT current_setting('search_path')").fetchone()
        try:
            connection.execute(sql.SQL("CREATE SCHEMA {}").format(schema))
            for name, value in {"search_path": SCHEMA, **_named(settings)}.items():
                connection.execute("SELECT set_config(%s, %s, false)", [name, value])
            connection.execute(self.text("load").encode())
            vacuum(orchestrator)
            yield
        finally:
            if not connection.closed:
                assert path is not None
                connection.execute("SELECT set_config('search_path', %s, false)", path)
                drop_views(orchestrator)
                connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(schema))


def drop_views(orchestrator: Orchestrator) -> None:
    """Drops the maintained views of the benchmark's schema."""
    for view in orchestrator.views():
        if view.name.startswith(f"{SCHEMA}."):
            orchestrator.drop_view(view.name)


def _named(settings: Mapping[str, int]) -> dict[str, str]:
    return {f"bench.{name}": str(value) for name, value in settings.items()}


def vacuum(orchestrator: Orchestrator) -> None:
    """Brings tables, logs and states to the same shape before something is measured."""
    tables = orchestrator.connection.execute(
        "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.relkind = 'r' AND n.nspname = ANY (%s)",
        [[SCHEMA, "idivm", "idivm_log", "idivm_state"]],
    ).fetchall()
    for names in tables:
        orchestrator.connection.execute(
            sql.SQL("VACUUM (ANALYZE) {}").format(sql.Identifier(*names))
        )
