"""The example projects of SQLAlchemy with Alembic and of Django, run with the real packages."""

from __future__ import annotations

import importlib
import io
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import alembic.command
import pytest
import sqlalchemy as sa
from alembic.config import Config
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.orm import Session

import idivm

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def url_of(dsn: str) -> str:
    parts = conninfo_to_dict(dsn)
    return (
        f"postgresql://{parts['user']}@/{parts['dbname']}?host={parts['host']}&port={parts['port']}"
    )


@pytest.fixture
def project(
    plain_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Path:
    """A copy of an example whose database has never seen idivm."""
    folder = tmp_path / "project"
    shutil.copytree(EXAMPLES / request.param, folder)
    monkeypatch.setenv("DATABASE_URL", url_of(plain_dsn))
    return folder


def strategies(dsn: str) -> dict[str, str]:
    with idivm.connect(dsn) as database:
        database.plan()
        assert all(report.equal for report in database.check())
        return {view.name: view.strategy for view in database.views()}


@pytest.mark.parametrize("project", ["sqlalchemy_shop"], indirect=True)
def test_alembic_creates_replaces_and_drops_views(
    project: Path, plain_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(project)
    monkeypatch.delitem(sys.modules, "models", raising=False)
    models = importlib.import_module("models")
    output = io.StringIO()
    config = Config(project / "alembic.ini", output_buffer=output, stdout=output)
    alembic.command.upgrade(config, "head", sql=True)
    assert "SELECT CAST(idivm.create_view('totals', 'SELECT customer" in output.getvalue()
    assert "100% test" in output.getvalue()

    alembic.command.upgrade(config, "head")
    alembic.command.check(config)
    engine = sa.create_engine(url_of(plain_dsn).replace(":", "+psycopg:", 1))
    with Session(engine) as session:
        session.add(models.Order(id=1, customer="ann", amount=5))
        session.flush()
        assert session.get_one(models.Total, "ann").total == 5
        session.commit()
    assert strategies(plain_dsn) == {"totals": "id"}
    # Planned or not, an unchanged query is no change.
    alembic.command.check(config)

    totals = models.Total.__table__
    totals.query = totals.query.replace("sum(", "max(")
    revision: Any = alembic.command.revision(config, "greatest", autogenerate=True)
    generated = Path(revision.path).read_text()
    assert generated.count("op.replace_maintained_view(") == 2
    alembic.command.upgrade(config, "head")
    with Session(engine) as session:
        session.add(models.Order(id=2, customer="ann", amount=3))
        session.flush()
        assert session.get_one(models.Total, "ann").total == 5
        session.rollback()
    alembic.command.downgrade(config, "0001")
    with engine.connect() as connection:
        query = connection.scalar(sa.text("SELECT pg_get_viewdef('totals'::regclass)"))
        assert "sum(" in str(query)
    alembic.command.downgrade(config, "base")
    with pytest.raises(alembic.util.CommandError, match="not up to date"):
        alembic.command.check(config)
    alembic.command.upgrade(config, "head")
    del models.Base.metadata.info["idivm"]["totals"]
    revision = alembic.command.revision(config, "none", autogenerate=True)
    assert "op.drop_maintained_view('totals')" in Path(revision.path).read_text()


@pytest.mark.parametrize("project", ["sqlalchemy_shop"], indirect=True)
def test_create_all_and_drop_all_know_views(
    project: Path, plain_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(project)
    monkeypatch.delitem(sys.modules, "models", raising=False)
    models = importlib.import_module("models")
    engine = sa.create_engine(url_of(plain_dsn).replace(":", "+psycopg:", 1))
    models.Base.metadata.create_all(engine)
    models.Base.metadata.create_all(engine)
    with idivm.connect(engine) as database, Session(engine) as session:
        assert [report.strategy for report in database.plan()] == ["id"]
        session.add(models.Order(id=1, customer="ann", amount=5))
        session.flush()
        models.Total.__table__.refresh(session)
        assert session.scalars(sa.select(models.Total.total)).all() == [5]
        borrowed = idivm.Orchestrator(session.connection())
        assert [view.name for view in borrowed.views()] == ["totals"]
    models.Base.metadata.drop_all(engine)
    assert sa.inspect(engine).get_view_names() == []


@pytest.mark.parametrize("project", ["django_shop"], indirect=True)
def test_django_migrates_views_forth_and_back(project: Path, plain_dsn: str) -> None:
    steps = Path(__file__).with_name("django_steps.py")
    done = subprocess.run(
        [sys.executable, str(steps)], cwd=project, env=os.environ, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
