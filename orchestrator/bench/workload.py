"""A workload of `sql/`: its tables in their own schema, and its queries and changes by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
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
    fill: Callable[[Orchestrator], None] | None = None
    """Fills the tables if `load.sql` only creates them; `keys.sql` runs afterwards."""

    def text(self, file: str) -> str:
        """Return the SQL in `<file>.sql`."""
        return (resource_folder("sql") / self.name / f"{file}.sql").read_text()

    def load(self, orchestrator: Orchestrator, settings: Mapping[str, int]) -> None:
        """Create the schema with its tables, whose sizes come from settings `bench.*`."""
        _require_free(orchestrator)
        connection = orchestrator.connection
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(SCHEMA)))
        enter(orchestrator)
        for name, value in settings.items():
            configure(orchestrator, f"bench.{name}", value)
        connection.execute(self.text("load").encode())
        if self.fill is not None:
            self.fill(orchestrator)
            connection.execute(self.text("keys").encode())
        vacuum(orchestrator)

    @contextmanager
    def tables(self, orchestrator: Orchestrator, settings: Mapping[str, int]) -> Iterator[None]:
        """Load the tables; drop them and their views afterwards."""
        connection = orchestrator.connection
        path = connection.execute("SELECT current_setting('search_path')").fetchone()
        assert path is not None
        _require_free(orchestrator)
        try:
            self.load(orchestrator, settings)
            yield
        finally:
            if not connection.closed:
                configure(orchestrator, "search_path", path[0])
                drop(orchestrator)


def _require_free(orchestrator: Orchestrator) -> None:
    row = orchestrator.connection.execute("SELECT to_regnamespace(%s)", [SCHEMA]).fetchone()
    if row != (None,):
        raise NameTakenError(
            f"The database has a schema {SCHEMA} already: drop it (DROP SCHEMA {SCHEMA} CASCADE) "
            "if an earlier measurement left it, or measure in another database."
        )


def enter(orchestrator: Orchestrator) -> None:
    """Set the search path, so that this session finds the tables by their plain names."""
    configure(orchestrator, "search_path", SCHEMA)


def configure(orchestrator: Orchestrator, name: str, value: object) -> None:
    """Set a setting in this session; changes read their values from settings `bench.*`."""
    orchestrator.connection.execute("SELECT set_config(%s, %s, false)", [name, str(value)])


def drop_views(orchestrator: Orchestrator) -> None:
    """Drop the maintained views of the benchmark's schema."""
    for view in orchestrator.views():
        if view.name.startswith(f"{SCHEMA}."):
            orchestrator.drop_view(view.name)


def drop(orchestrator: Orchestrator) -> None:
    """Drop the tables of the benchmark and their views."""
    drop_views(orchestrator)
    orchestrator.connection.execute(
        sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(SCHEMA))
    )


def vacuum(orchestrator: Orchestrator) -> None:
    """Vacuum and analyze tables, logs and states before a measurement."""
    tables = orchestrator.connection.execute(
        "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.relkind = 'r' AND n.nspname = ANY (%s)",
        [[SCHEMA, "idivm", "idivm_log", "idivm_state"]],
    ).fetchall()
    for names in tables:
        orchestrator.connection.execute(
            sql.SQL("VACUUM (ANALYZE) {}").format(sql.Identifier(*names))
        )
