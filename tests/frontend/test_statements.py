"""Splitting scripts and recognising the statements that the orchestrator takes."""

import pytest

from orchestrator.errors import UsageError
from orchestrator.frontend.statements import (
    CreateView,
    DropView,
    Other,
    QualifiedName,
    RefreshView,
    parse_name,
    parse_script,
)


def single_statement(script: str):
    (statement,) = parse_script(script)
    return statement


def test_a_view_is_taken_apart_and_its_query_left_as_written():
    statement = single_statement(
        'create or replace view Sales."Big Orders" (a, "B") with (maintain = deferred, strategy=recompute)'
        " as select  1 as x, ';' /* kept; */ from t;"
    )
    assert statement == CreateView(
        text=statement.text,
        name=QualifiedName("Big Orders", "sales"),
        query="select  1 as x, ';' /* kept; */ from t",
        columns=("a", "B"),
        options=(("maintain", "deferred"), ("strategy", "recompute")),
        replace=True,
    )


@pytest.mark.parametrize("tail", ["", " WITH DATA", " with no data"])
def test_a_materialized_view_is_a_view(tail):
    statement = single_statement(f"CREATE MATERIALIZED VIEW IF NOT EXISTS v AS SELECT 1{tail}")
    assert isinstance(statement, CreateView)
    assert (statement.query, statement.if_not_exists) == ("SELECT 1", True)


def test_a_recursive_view_becomes_a_recursive_query():
    statement = single_statement(
        "CREATE RECURSIVE VIEW r (n) AS VALUES (1) UNION ALL SELECT n + 1 FROM r WHERE n < 5"
    )
    assert statement.query.startswith('WITH RECURSIVE "r" ("n") AS (VALUES (1)')


def test_option_values_may_be_quoted_and_may_hold_anything():
    statement = single_statement("create view v with (order = 'a - { b, c }', cache) as select 1")
    assert statement.options == (("order", "a - { b, c }"), ("cache", "on"))


def test_drop_and_refresh_take_lists():
    assert single_statement("drop materialized view if exists a, s.b cascade") == DropView(
        "drop materialized view if exists a, s.b cascade",
        (QualifiedName("a"), QualifiedName("b", "s")),
        if_exists=True,
        cascade=True,
    )
    assert single_statement("refresh materialized view concurrently a, b").names == (
        QualifiedName("a"),
        QualifiedName("b"),
    )
    assert isinstance(single_statement("REFRESH VIEW a"), RefreshView)


@pytest.mark.parametrize(
    "text",
    [
        "do $$begin perform 1; perform 2; end$$",
        "do $x$ ;$$; $x$",
        "select ';', E'\\';', \"a;b\", $1, 'it''s;'",
        "create function f() returns int begin atomic select case when true then 1 end; select 2; end",
        "create temporary view v as select 1",
        "/* ; /* ; */ ; */ select 1",
        "begin",
        "select a *<> b, c #>> '{x;y}', d ?| e",
    ],
)
def test_a_semicolon_inside_a_statement_does_not_end_it(text):
    statements = parse_script(f"{text}; select 2")
    assert [type(statement) for statement in statements] == [Other, Other]
    assert statements[0].text in text
    assert statements[1].text == "select 2"


def test_nothing_is_no_statement():
    assert parse_script(" ; ;; -- nothing\n /* at all */") == []


@pytest.mark.parametrize(
    "text",
    [
        "create view v",
        "create view v as",
        "create view as select 1",
        "create view v with (a = 1 as select 1",
        "create view v (a b) as select 1",
        "drop view",
        "drop view a b",
        "create recursive view r as select 1",
        "select 'unfinished",
    ],
)
def test_a_malformed_statement_is_said_in_one_sentence(text):
    with pytest.raises(UsageError) as caught:
        parse_script(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "a.b.c", "a b", "1", "a.", '"unfinished'])
def test_a_name_is_a_name(text):
    with pytest.raises(UsageError):
        parse_name(text)


def test_names_fold_as_in_sql():
    assert parse_name('Sales."Über""view"') == QualifiedName('Über"view', "sales")
    assert str(parse_name('Sales."Über""view"')) == '"sales"."Über""view"'
