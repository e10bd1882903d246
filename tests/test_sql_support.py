"""docs/sql-support.md says what the product does, and its examples are right after every change."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from harness import TestServer
from psycopg.conninfo import make_conninfo

from orchestrator import support
from orchestrator.api import Orchestrator, connect

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "sql-support.md"


@pytest.mark.slow
def test_the_document_is_fresh_and_its_examples_are_maintained(
    orc: Orchestrator, pg: TestServer, pg_version: int
) -> None:
    support.create(orc)
    # An older version has not all of them.
    if all(example.since <= pg_version for example in support.examples()):
        assert support.document(orc) == DOCUMENT.read_text(), (
            "stale: python -m orchestrator.support > docs/sql-support.md"
        )
    with psycopg.connect(orc.connection.info.dsn, autocommit=True) as plain:
        for change in support.changes():
            plain.execute(change.encode())
            different = {r.view: (r.missing_rows, r.surplus_rows) for r in orc.check()}
            assert {k: v for k, v in different.items() if v != ((), ())} == {}, change
    # PostgreSQL writes the views and functions that idivm made for the dump in its own way.
    with pg.database(migrated=False) as restored:
        # An older pg_dump does not know the options of a newer library.
        pg.restore(make_conninfo(restored, dbname=orc.connection.info.dbname), restored)
        with connect(restored) as copy:
            copy.refresh()
            assert all(report.equal for report in copy.check())


def test_every_example_has_a_name_of_its_own() -> None:
    names = [example.view for example in support.examples()]
    assert len(set(names)) == len(names) > 70
    assert not {"order_counts", "open_orders"} & set(names)
