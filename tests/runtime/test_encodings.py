"""Databases and clients of other encodings than UTF-8: everything of ours in a database is ASCII."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from harness import TestServer
from psycopg import sql
from psycopg.conninfo import make_conninfo

import orchestrator
from orchestrator.cli.main import main
from orchestrator.runtime.diagnosis.doctor import examine

ENCODINGS = {
    "LATIN1": "Größe",
    "EUC_JP": "大きさ",
    "WIN1251": "размер",
    "SQL_ASCII": "Größe",
    "UTF8": "大きさ Größe",
}

VIEWS = {
    "viewtree": "SELECT k, sum({n} * w) AS {s} FROM {t} JOIN u USING (k) GROUP BY k",
    "id": "SELECT k, max({n}) AS {s}, {c} AS c FROM {t} WHERE label <> {c} GROUP BY k",
    "tuple": "SELECT {t}.id, {n} + w AS {s}, label FROM {t} JOIN u USING (k)",
    "recompute": "SELECT upper(label) AS {s}, count(*) FROM {t} GROUP BY label",
    "skew": "SELECT k, u.w, sum({n}) AS {s} FROM {t} JOIN u USING (k) GROUP BY k, u.w",
    "recursive": "SELECT {t}.id, w AS {s} FROM {t} JOIN u USING (k) WHERE label = {c}",
}


def longest_name(word: str, codec: str) -> str:
    """Return a name of as many bytes as the encoding allows; in UTF-8, it may have more."""
    return ("s " + word * 40).encode(codec)[:63].decode(codec, errors="ignore")


@contextmanager
def database_in(pg: TestServer, encoding: str) -> Iterator[str]:
    name = f"in_{encoding.lower()}"
    with psycopg.connect(pg.conninfo("postgres"), autocommit=True) as admin:
        admin.execute(
            sql.SQL(
                "CREATE DATABASE {} ENCODING {} LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
            ).format(sql.Identifier(name), sql.Literal(encoding))
        )
        try:
            yield pg.conninfo(name)
        finally:
            admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.parametrize("maintain", ["deferred", "eager"])
@pytest.mark.parametrize(("encoding", "word"), ENCODINGS.items(), ids=ENCODINGS)
@pytest.mark.sampled(3)
def test_names_and_constants_of_any_encoding(
    pg: TestServer, encoding: str, word: str, maintain: str, older: bool
) -> None:
    if older and maintain == "eager":
        pytest.skip("the newest version is enough for both modes")
    client = "UTF8" if encoding == "SQL_ASCII" else encoding
    with (
        database_in(pg, encoding) as dsn,
        orchestrator.connect(make_conninfo(dsn, client_encoding=client)) as orc,
    ):
        plain = orc.connection
        names = {
            "t": sql.Identifier(f"t {word}"),
            "n": sql.Identifier(f"n {word}"),
            "s": sql.Identifier(longest_name(word, plain.info.encoding)),
            "c": sql.Literal(f"'{word}' \\ {word}"),
        }

        def run(text: str) -> None:
            plain.execute(sql.SQL(text).format(**names))

        run("CREATE TABLE {t} (id int PRIMARY KEY, k int, {n} int, label text)")
        run(
            "CREATE TABLE u (k int PRIMARY KEY, w int); INSERT INTO u SELECT i, i FROM generate_series(1, 5) i"
        )
        run(
            "INSERT INTO {t} SELECT i, i % 6, i, CASE i % 3 WHEN 0 THEN {c} ELSE 'x' END FROM generate_series(1, 30) i"
        )
        queries = {}
        for strategy, template in VIEWS.items():
            queries[strategy] = sql.SQL(template).format(**names).as_string(plain)
            orc.create_view(
                f'"v {word} {strategy}"', queries[strategy], strategy=strategy, maintain=maintain
            )
        # The notice that this view is recomputed names the operator.
        orc.create_view(
            "first",
            "SELECT w FROM (SELECT w FROM u UNION ALL SELECT w FROM u) AS q ORDER BY w LIMIT 3",
        )
        orc.drop_view("first")
        run(
            "UPDATE {t} SET {n} = {n} + 1, label = {c} || label WHERE id < 9; DELETE FROM {t} WHERE id = 12"
        )
        run("INSERT INTO {t} VALUES (100, 2, 3, {c})")
        orc.refresh()
        for strategy, query in queries.items():
            view = sql.Identifier(f"v {word} {strategy}")
            content = plain.execute(sql.SQL("SELECT * FROM {}").format(view))
            wanted = plain.execute(query)  # type: ignore[arg-type]
            assert [c.name for c in content.description or ()] == [
                c.name for c in wanted.description or ()
            ]
            assert sorted(map(repr, content)) == sorted(map(repr, wanted))
        assert all(report.equal for report in orc.check())
        assert [finding for finding in examine(plain) if not finding.fine] == []
        plain.execute("SELECT idivm.refresh_views(array_agg(id)) FROM idivm.views")
        assert {view.name for view in orc.views()} == {f'"v {word} {s}"' for s in VIEWS}
        assert word in orc.explain(f'"v {word} tuple"').plan


@pytest.mark.parametrize("client", ["LATIN1", "WIN1252", "SQL_ASCII"])
def test_clients_of_other_encodings(
    dsn: str, client: str, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", client)
    with orchestrator.connect(dsn) as orc:
        orc.execute("CREATE TABLE t (id int PRIMARY KEY, label text)")
        orc.create_view(
            "größe", "SELECT label, count(*) AS n FROM t WHERE label <> 'ä' GROUP BY label"
        )
        orc.execute("INSERT INTO t VALUES (1, 'ä'), (2, 'ö'), (3, 'ö')")
        orc.refresh()
        assert all(report.equal for report in orc.check())
    assert main(["sql", "--dsn", dsn, "-c", 'SELECT * FROM "größe"']) == 0
    assert "ö" in capsys.readouterr().out
