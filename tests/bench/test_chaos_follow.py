"""The consumer of a chaos run goes on where it was killed, and notices changes that are lost or wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.api import Orchestrator
from orchestrator.bench.chaos import follow

WRONG = {
    "a lost change": "DELETE FROM idivm_feed.f1_1 WHERE kind = 'I'",
    "a repeated change": "INSERT INTO idivm_feed.f1_1 (refresh, kind, o_1, n_1, o_2, n_2)"
    " SELECT refresh, kind, o_1, n_1, o_2, n_2 FROM idivm_feed.f1_1",
}
"""Statements over the table that holds the changes of the first feed."""


@pytest.fixture
def followed(orc: Orchestrator) -> Orchestrator:
    orc.execute("CREATE TABLE t (id int PRIMARY KEY, k int, n numeric(9, 2))")
    orc.execute("INSERT INTO t SELECT i, i % 3, i / 4.0 FROM generate_series(1, 20) AS i")
    orc.create_view("v", "SELECT k, sum(n) AS s FROM t GROUP BY k", feed="on")
    return orc


def catch_up(orc: Orchestrator, dsn: str, folder: Path) -> list[str]:
    """Let the consumer read what there is, and return what it found wrong."""
    follow.follow_all(dsn, ["v"], folder, live=False)
    assert follow.reported(folder, follow.ERRORS) == []
    return follow.reported(folder, follow.DIFFERENCES)


def test_a_copy_goes_on_where_it_was_stored(
    followed: Orchestrator, dsn: str, tmp_path: Path
) -> None:
    for statement in (
        "INSERT INTO t VALUES (30, 7, 1.50)",
        "UPDATE t SET k = 8 WHERE id < 5",
        "DELETE FROM t WHERE k = 7",
        "CREATE OR REPLACE VIEW v WITH (feed = on) AS SELECT k, sum(n) AS s, count(*) AS c FROM t GROUP BY k",
        "TRUNCATE t",
    ):
        followed.execute(statement)
        followed.refresh()
        assert catch_up(followed, dsn, tmp_path) == [], statement
    assert len(follow.reported(tmp_path, follow.COUNTED)) == 5
    registered = followed.connection.execute(
        "SELECT name, position FROM idivm.consumers"
    ).fetchone()
    copy = follow.stored(tmp_path / "v.json")
    assert copy is not None
    assert registered == (follow.CONSUMER, copy.position)


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_feed_is_noticed(
    followed: Orchestrator, dsn: str, tmp_path: Path, kind: str
) -> None:
    assert catch_up(followed, dsn, tmp_path) == []
    followed.execute("INSERT INTO t VALUES (30, 7, 1.50); UPDATE t SET n = 5 WHERE id = 1")
    followed.refresh()
    followed.connection.execute(WRONG[kind].encode())
    [wrong] = catch_up(followed, dsn, tmp_path)
    assert wrong.startswith("the feed of v: ")
