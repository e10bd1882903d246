"""Queries in PostgreSQL's own print are read and written without a change."""

from __future__ import annotations

import pytest

from orchestrator.algebra.dialect import UnreadableError, identifier, read, write

KEPT = (
    "SELECT (t.a)::timestamp(3) without time zone AS x, (t.b)::character varying(10)[] AS y",
    'SELECT (t.a)::"char" AS x, (t.b)::s."My type"[] AS y, (t.c)::interval day to second(3) AS z',
    'SELECT "My f"(1) AS a, s.f(x) AS b, "substring"(a, 1, 2) AS c, "left"(a, 1) AS d',
    "SELECT (a !~~ b), (a !~ b), (a ~~* b), (a !~* b), (NOT (a ~ b)), (a IS NOT TRUE), (a <@ b)",
    "SELECT (a OPERATOR(public.=) b), (a -> 'k'::text), ((a -> 'b.c'::text) ->> 1), (a #>> '{x}'::text[])",
    "SELECT (a ^ ((b)::integer ^ c)), (@ a), (+ a), (|/ a), (||/ (a)::numeric), (!! a), (# (a)[1]), (- (@ a)), (~ a)",
    "SELECT (a |&> b), (a ^@ 'b'::text), ((a <=> b) < 3), (a <<% f(b)), (a &&& ANY (b)), (OPERATOR(s.@@@) a)",
    "SELECT operator, t.operator, (operator ^ operator), '(@'::text, (\"@\" ~ '^'::text), count(*), (a - (-1)) FROM t",
    "SELECT TRIM(BOTH FROM a), TRIM(LEADING 'x'::text FROM a), TRIM(TRAILING FROM (a)::text)",
    "SELECT to_char(a, 'YYYY-MM'::text), date_part('year'::text, a), mod(a, b), log(a), strpos(a, b)",
    "SELECT sum(DISTINCT a ORDER BY b DESC) FILTER (WHERE (c > 0)), string_agg(DISTINCT a, ','::text ORDER BY a)",
    "SELECT sum(a) OVER (PARTITION BY b ORDER BY c ROWS BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE TIES)",
    "SELECT sum(a) OVER (ORDER BY c RANGE '1 day'::interval PRECEDING), rank() OVER w FROM t WINDOW w AS (ORDER BY a)",
    "SELECT 1 FROM (unnest(s.a) k(k) JOIN ROWS FROM(f(1), g(2)) WITH ORDINALITY x(a, b, c) ON (true))",
    "SELECT 1 FROM json_to_recordset('[]'::json) r(a timestamp(3) without time zone, b text)",
    "WITH RECURSIVE n(i) AS ( VALUES (1) UNION ALL SELECT (n_1.i + 1) FROM n n_1) SELECT n.i FROM n",
    "SELECT a FROM t ORDER BY a DESC NULLS LAST OFFSET 1 LIMIT 2",
    'SELECT 1 FROM (ROWS FROM(f(1) AS (a integer, b text COLLATE "C"), g(2)) WITH ORDINALITY x(a, b, c, d) JOIN t ON true)',
    'SELECT JSON_VALUE(a, \'$."b"\' PASSING (b + 1) AS x, c AS "Y" RETURNING numeric(5,2) DEFAULT (- 1) ON EMPTY ERROR ON ERROR)',
    "SELECT JSON_QUERY(a FORMAT JSON, '$' RETURNING text FORMAT JSON ENCODING UTF8 WITH CONDITIONAL WRAPPER KEEP QUOTES EMPTY ARRAY ON EMPTY)",
    "SELECT JSON_EXISTS(t.a, '$'::text UNKNOWN ON ERROR), JSON_OBJECT(RETURNING json), JSON_OBJECT('value' : value, 'returning' : \"returning\")",
    "SELECT JSON_OBJECT('a' : ( SELECT 1), b : c ABSENT ON NULL WITH UNIQUE KEYS RETURNING jsonb), JSON_ARRAY(a, b NULL ON NULL RETURNING json)",
    "SELECT JSON_ARRAYAGG(a ORDER BY b DESC, c NULL ON NULL RETURNING jsonb) FILTER (WHERE (a > 1)), JSON_OBJECTAGG(a : b WITH UNIQUE KEYS RETURNING json)",
    "SELECT JSON(a WITH UNIQUE KEYS), JSON_SCALAR(a), JSON_SERIALIZE(a RETURNING bytea), (a)::json, (a IS JSON OBJECT WITH UNIQUE KEYS)",
    "SELECT a FROM t ORDER BY a FETCH FIRST 2 ROWS WITH TIES",
    "SELECT 'a\\b'::text, '\\x00'::bytea, 'it''s'::text, '-1'::integer, 1.50, NULL::text[]",
    "SELECT (ARRAY[1, 2])[1], (x)[1:2], ((row_).field).other, t.*::s.t AS t, count(t.*)",
)


@pytest.mark.parametrize("text", KEPT)
def test_kept(text: str) -> None:
    tree = read(text)
    assert write(read(write(tree))) == write(tree)


LOST = {
    "SELECT t.ts AT LOCAL AS x FROM s.t": "LOCAL",
    "SELECT a FROM t1 JOIN t2 USING (a) AS j": "AS j",
    "SELECT x.id FROM JSON_TABLE(a, '$' AS p COLUMNS (id FOR ORDINALITY)) x": "COLUMNS",
    "SELECT xmlelement(NAME a) AS x": "NAME a",
}


@pytest.mark.parametrize("text", LOST)
def test_a_loss_is_found_and_shown(text: str) -> None:
    with pytest.raises(UnreadableError) as caught:
        read(text)
    assert LOST[text] in caught.value.where


@pytest.mark.parametrize("name", ["User", "order", "a b", 'a"b', "été", "1a", "a$", "select"])
def test_names_that_need_quotes_get_them(name: str) -> None:
    written = write(identifier(name))
    assert written == '"' + name.replace('"', '""') + '"'
