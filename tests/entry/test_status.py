"""idivm.status and idivm.history: their columns, and what they say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import psycopg
import psycopg.conninfo
import pytest

from orchestrator.api import Orchestrator
from orchestrator.cli.main import main

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "sql-entry.md"


def columns(text: str, relation: str) -> list[str]:
    """The columns of a relation that the documentation lists."""
    table = text.partition(f"| column of `{relation}` |")[2].partition("\n\n")[0]
    return re.findall(r"^\| `(\w+)`", table, re.MULTILINE)


@pytest.fixture
def client(orc: Orchestrator, connect: Any) -> psycopg.Connection[Any]:
    connection: psycopg.Connection[Any] = connect()
    connection.execute(
        "CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 1), (2, 2)"
    )
    return connection


def states(client: psycopg.Connection[Any]) -> dict[str, Any]:
    rows = client.execute("SELECT view::text, state, pending_rows FROM idivm.status").fetchall()
    return {view: (state, pending) for view, state, pending in rows}


@pytest.mark.integration
def test_status_says_how_each_view_stands(
    orc: Orchestrator, client: psycopg.Connection[Any]
) -> None:
    orc.create_view("v", "SELECT id, 10 / n AS n FROM t")
    orc.create_view("e", "SELECT sum(n) AS s FROM t", maintain="eager")
    client.execute("SELECT idivm.create_view('w', 'SELECT n FROM t')")
    assert states(client) == {"e": ("fresh", 0), "v": ("fresh", 0), "w": ("not planned", 0)}
    client.execute("SELECT idivm.pause_view('e'); INSERT INTO t VALUES (3, 0)")
    assert states(client) == {"e": ("paused", 1), "v": ("behind", 1), "w": ("not planned", 0)}
    client.execute("SELECT FROM idivm.refresh('v')")
    assert states(client)["v"] == ("failed", 1)
    [row] = client.execute(
        "SELECT mode, fresh_as_of < now(), lag > '0', last_error, log_bytes > 0 FROM idivm.status WHERE view = 'v'::regclass"
    ).fetchall()
    assert row == ("deferred", True, True, "division by zero", True)
    text = DOCUMENT.read_text()
    for relation in ("idivm.status", "idivm.history"):
        listed = client.execute(f"SELECT * FROM {relation} LIMIT 0").description
        assert [column.name for column in listed or ()] == columns(text, relation)


@pytest.mark.integration
def test_a_view_above_a_stale_view_is_stale(
    orc: Orchestrator, client: psycopg.Connection[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    orc.create_view("below", "SELECT id, n FROM t")
    orc.create_view("middle", "SELECT id, n FROM below")
    orc.create_view("above", "SELECT sum(n) AS s FROM middle")
    orc.create_view("now", "SELECT id, now() AS at FROM t")
    client.execute("INSERT INTO t VALUES (3, 3)")
    assert states(client) == {
        "above": ("behind", 0),
        "below": ("behind", 1),
        "middle": ("behind", 0),
        "now": ("behind", 1),
    }
    stale = {view.name: view.stale_below for view in orc.views()}
    assert stale == {"above": ["below"], "below": [], "middle": ["below"], "now": []}
    info = orc.connection.info
    dsn = psycopg.conninfo.make_conninfo(info.dsn, password=info.password or None)
    assert main(["status", "above", "--dsn", dsn]) == 0
    assert "stale: it reads below, which is stale" in capsys.readouterr().out
    orc.refresh("above", "now")
    assert states(client)["above"] == ("fresh", 0)
    assert main(["status", "--dsn", dsn]) == 0
    out = capsys.readouterr().out
    assert out.count("up to date") == 3
    assert "as of its last refresh: its content changes with time" in out


@pytest.mark.integration
def test_history_has_each_refresh(orc: Orchestrator, client: psycopg.Connection[Any]) -> None:
    orc.create_view("v", "SELECT id, 10 / n AS n FROM t")
    for change in ("UPDATE t SET n = 5", "INSERT INTO t VALUES (3, 0)", "TRUNCATE t"):
        client.execute(change)
        client.execute("SELECT FROM idivm.refresh('v')")
    rows = client.execute(
        "SELECT rows_changed, recomputed, reason, error, role, milliseconds > 0 FROM idivm.history"
    ).fetchall()
    role = client.info.user
    truncated = "a table was truncated, or the changes were too many or took too long"
    assert rows == [
        (2, True, truncated, None, role, True),
        (None, False, None, "division by zero", role, None),
        (2, False, None, None, role, True),
    ]
    client.execute(f"ALTER DATABASE {client.info.dbname} SET idivm.history_refreshes = 1")
    client.execute("SELECT idivm.trim_history((SELECT id FROM idivm.views))")
    assert client.execute("SELECT count(*) FROM idivm.past_refreshes").fetchone() == (1,)
    client.execute("SELECT idivm.drop_view('v')")
    assert client.execute("SELECT count(*) FROM idivm.past_refreshes").fetchone() == (0,)
