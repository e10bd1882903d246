"""Each script of docs/how-to/clients.md runs as it is printed. That for JDBC runs in tests/spark/test_load.py."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import django
import django.conf
import django.db
import pandas
import psycopg
import pytest
import sqlalchemy
from alembic.migration import MigrationContext
from alembic.operations import Operations
from client_scripts import ORDERS, run, scripts
from psycopg.conninfo import conninfo_to_dict

import idivm
import idivm.alembic
import idivm.sqlalchemy
from orchestrator.server.paths import cache_directory

SCRIPTS = scripts()


@pytest.fixture
def url(dsn: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a database with orders."""
    with psycopg.connect(dsn) as connection:
        connection.execute(ORDERS)
    parts = conninfo_to_dict(dsn)
    url = (
        f"postgresql://{parts['user']}@/{parts['dbname']}?host={parts['host']}&port={parts['port']}"
    )
    monkeypatch.setenv("DATABASE_URL", url)
    return url


@pytest.fixture
def engine(url: str) -> Iterator[sqlalchemy.Engine]:
    engine = sqlalchemy.create_engine(url.replace(":", "+psycopg:", 1))
    yield engine
    engine.dispose()


def run_shell(script: str) -> str:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-ec", script], env={**os.environ, "PATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def psql(url: str, engine: sqlalchemy.Engine) -> str:
    if shutil.which("psql") is None:
        pytest.skip("psql is not installed here")
    return run_shell(SCRIPTS["psql"])


def command_line(url: str, engine: sqlalchemy.Engine) -> str:
    return run_shell(SCRIPTS["idivm"])


def python(url: str, engine: sqlalchemy.Engine) -> None:
    run(SCRIPTS["Python"], {"idivm": idivm, "os": os})


def driver(url: str, engine: sqlalchemy.Engine) -> None:
    run(SCRIPTS["psycopg"], {"psycopg": psycopg, "os": os})


def orm(url: str, engine: sqlalchemy.Engine) -> None:
    run(SCRIPTS["SQLAlchemy"], {"sqlalchemy": sqlalchemy, "idivm": idivm, "engine": engine})


def migrations(url: str, engine: sqlalchemy.Engine) -> str:
    with engine.begin() as connection:
        op = Operations(MigrationContext.configure(connection))
        create, replace, drop = SCRIPTS["Alembic"].splitlines()
        run(create, {"op": op})
        rows = connection.exec_driver_sql("SELECT * FROM totals").all()
        run(f"{replace}\n{drop}", {"op": op})
    return str(rows)


def django_cursor(url: str, engine: sqlalchemy.Engine) -> None:
    parts = conninfo_to_dict(url)
    names = {"NAME": "dbname", "HOST": "host", "PORT": "port", "USER": "user"}
    settings = {name: parts[part] for name, part in names.items()}
    databases = {"default": {"ENGINE": "django.db.backends.postgresql", **settings}}
    handler = django.db.utils.ConnectionHandler(databases)
    if not django.conf.settings.configured:
        django.conf.settings.configure()
        django.setup()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(django.db, "connection", handler["default"])
        run(SCRIPTS["Django"], {"django": django})
    handler.close_all()


def frames(url: str, engine: sqlalchemy.Engine) -> None:
    run(SCRIPTS["pandas"], {"pandas": pandas, "engine": engine})


def node(url: str, engine: sqlalchemy.Engine) -> str:
    folder = cache_directory() / "node"
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("Node.js is not installed here")
    if not (folder / "node_modules" / "pg").exists():
        folder.mkdir(parents=True, exist_ok=True)
        install = ["npm", "install", "--silent", "--prefix", str(folder), "pg@8"]
        if subprocess.run(install, capture_output=True).returncode:
            pytest.skip("the package pg cannot be installed from the registry of this machine")
    script = folder / f"script-{os.getpid()}.mjs"
    script.write_text(f'import pg from "pg"\n{SCRIPTS["Node.js"]}')
    try:
        done = subprocess.run(["node", str(script)], capture_output=True, text=True)
    finally:
        script.unlink()
    assert done.returncode == 0, done.stderr
    return done.stdout


CLIENTS: dict[str, Callable[[str, sqlalchemy.Engine], str | None]] = {
    "psql": psql,
    "idivm": command_line,
    "Python": python,
    "psycopg": driver,
    "SQLAlchemy": orm,
    "Alembic": migrations,
    "Django": django_cursor,
    "pandas": frames,
    "Node.js": node,
}


@pytest.mark.parametrize("client", CLIENTS)
def test_the_documented_script_of_a_client(
    client: str, url: str, engine: sqlalchemy.Engine, capsys: pytest.CaptureFixture[Any]
) -> None:
    printed = CLIENTS[client](url, engine) or capsys.readouterr().out
    assert "ann" in printed
    assert "15" in printed
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "SELECT to_regclass('totals'), count(*) FROM idivm.views"
        ).fetchone()
        assert row == (None, 0)


def test_every_script_is_short_and_runs() -> None:
    assert set(SCRIPTS) == {*CLIENTS, "JDBC", "dbt"}
    assert max(script.count("\n") for script in SCRIPTS.values()) < 10
