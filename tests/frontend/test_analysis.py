"""What analysis finds behind a definition view: functions, relations, columns, keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.sql import SQL

from orchestrator.frontend import catalog
from orchestrator.frontend.analysis import INTERNAL, Analysis, analyse
from orchestrator.frontend.constraints import unique_indexes
from orchestrator.frontend.facts import Relation

Connection = psycopg.Connection[Any]

SETUP = """
CREATE TABLE t (id integer PRIMARY KEY, a integer, b text, at timestamptz, day date, j jsonb);
CREATE SEQUENCE numbers;
CREATE FUNCTION shaky(integer) RETURNS integer LANGUAGE sql VOLATILE AS 'SELECT $1';
CREATE FUNCTION lookup(integer) RETURNS integer LANGUAGE sql STABLE AS 'SELECT max(id) FROM t WHERE a = $1';
CREATE FUNCTION steady(integer) RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT $1';
CREATE FUNCTION shaky_equal(integer, integer) RETURNS boolean LANGUAGE sql VOLATILE AS 'SELECT $1 = $2';
CREATE OPERATOR === (FUNCTION = shaky_equal, LEFTARG = integer, RIGHTARG = integer);
CREATE FUNCTION shaky_add(integer, integer) RETURNS integer LANGUAGE sql VOLATILE AS 'SELECT $1 + coalesce($2, 0)';
CREATE AGGREGATE shaky_sum(integer) (sfunc = shaky_add, stype = integer, initcond = '0');
CREATE FUNCTION late_cast(text) RETURNS integer LANGUAGE sql STABLE AS 'SELECT length($1)';
CREATE TYPE wrapped AS (w integer);
CREATE FUNCTION unwrap(wrapped) RETURNS integer LANGUAGE sql VOLATILE AS 'SELECT ($1).w';
CREATE CAST (wrapped AS integer) WITH FUNCTION unwrap(wrapped);
"""


@pytest.fixture
def connection(plain_dsn: str) -> Iterator[Connection]:
    with psycopg.connect(plain_dsn, autocommit=True) as opened:
        opened.execute(SETUP)
        yield opened


def analysed(connection: Connection, query: str, name: str = "v") -> Analysis:
    """The analysis of a query as a view."""
    connection.execute(SQL(f"CREATE VIEW {name} AS {query}"))  # type: ignore[arg-type]
    row = connection.execute("SELECT to_regclass(%s)::oid", [name]).fetchone()
    assert row is not None
    analysis = analyse(connection, row[0])
    assert not any(obstacle.reason.startswith(INTERNAL) for obstacle in analysis.unsupported)
    return analysis


def relation(connection: Connection, name: str) -> Relation:
    row = connection.execute("SELECT to_regclass(%s)::oid", [name]).fetchone()
    assert row is not None
    return catalog.relations(connection, [row[0]])[row[0]]


VOLATILE = {
    "SELECT random() AS r FROM t": {"random()"},
    "SELECT id FROM t WHERE clock_timestamp() > at": {"clock_timestamp()"},
    "SELECT nextval('numbers') AS n FROM t": {"nextval()"},
    "SELECT public.shaky(a) AS s FROM t": {"public.shaky()"},
    "SELECT id FROM t WHERE a === 1": {"operator public.=== (function public.shaky_equal())"},
    "SELECT public.shaky_sum(a) AS s FROM t": {"public.shaky_sum()"},
    "SELECT public.shaky_sum(a) OVER (ORDER BY id) AS s FROM t": {"public.shaky_sum()"},
    "SELECT ROW(a)::wrapped::integer AS c FROM t": {"public.unwrap()"},
    "SELECT id FROM t TABLESAMPLE bernoulli (50)": {"TABLESAMPLE"},
    "SELECT id FROM t WHERE a = ANY (ARRAY[floor(random())::integer])": {"random()"},
    "SELECT (SELECT count(*) FROM t u WHERE u.id > t.id AND random() < 0.5) AS c FROM t": {
        "random()"
    },
    "SELECT id FROM t ORDER BY random() LIMIT 1": {"random()"},
    "WITH w AS (SELECT random() AS r) SELECT r FROM w": {"random()"},
    "SELECT gen_random_uuid() AS u": {"gen_random_uuid()"},
}

TIME_DEPENDENT = {
    "SELECT now() AS n FROM t": {"now()"},
    "SELECT id FROM t WHERE day > current_date": {"CURRENT_DATE"},
    "SELECT current_timestamp(3) AS a, localtime AS b": {"CURRENT_TIMESTAMP", "LOCALTIME"},
    "SELECT current_user AS u, session_user AS s": {"CURRENT_USER", "SESSION_USER"},
    "SELECT age(at) AS a FROM t": {"age()"},
    "SELECT public.lookup(a) AS l FROM t": {"public.lookup()"},
    "SELECT public.late_cast(b) AS c FROM t": {"public.late_cast()"},
    "SELECT ctid, tableoid FROM t": {"ctid of public.t"},
    "SELECT id FROM t TABLESAMPLE system (50) REPEATABLE (1)": {"TABLESAMPLE"},
    "SELECT current_setting('work_mem') AS s": {"current_setting()"},
    "SELECT id, 'x'::text AS x FROM t GROUP BY id HAVING max(at) < now()": {"now()"},
}

SETTINGS = {
    "SELECT at::date AS d FROM t": {"date()"},
    "SELECT to_char(at, 'YYYY') AS y FROM t": {"to_char()"},
    "SELECT date_trunc('day', at) AS d FROM t": {"date_trunc()"},
    "SELECT at::text AS a FROM t": {"cast through timestamptz_out()"},
    "SELECT b::date AS d FROM t": {"cast through date_in()"},
    "SELECT concat(a, b) AS c, format('%s', a) AS f FROM t": {"concat()", "format()"},
    "SELECT jsonb_build_object('a', a) AS o FROM t": {"jsonb_build_object()"},
    "SELECT at + '1 day'::interval AS n FROM t": {
        "operator + (function timestamptz_pl_interval())",
        "constants of interval",
    },
    "SELECT id FROM t WHERE at > day": {"operator > (function timestamptz_gt_date())"},
    "SELECT json_agg(a) AS j FROM t": {"json_agg()"},
    "SELECT sum(a) OVER (ORDER BY at RANGE '1 day' PRECEDING) AS s FROM t": {
        "in_range()",
        "constants of interval",
    },
    "SELECT id FROM t WHERE day > '2024-02-01'": {"constants of date"},
    "SELECT public.steady(a) AS z FROM t": {"public.steady()"},
    "SELECT array_agg(at::date) AS d FROM t": {"date()"},
}

IMMUTABLE = (
    "SELECT a + 1 AS x, upper(b) AS y, a::numeric AS n, a::text AS s FROM t",
    "SELECT sum(a) AS s, count(DISTINCT b) AS c, max(at) AS m, string_agg(b, ',') AS g FROM t",
    "SELECT id, rank() OVER (ORDER BY a) AS r, day + 1 AS d, age(day::timestamp, day::timestamp) AS g FROM t",
    "SELECT b || 'x' AS c, b LIKE 'a%' AS l, j -> 'k' AS k, a::bigint AS g, '1'::integer AS o FROM t",
)


@pytest.mark.integration
@pytest.mark.parametrize("query", VOLATILE)
def test_volatile_functions_are_found(connection: Connection, query: str) -> None:
    analysis = analysed(connection, query)
    assert set(analysis.volatile) == VOLATILE[query]
    assert analysis.plan is None
    assert {obstacle.where for obstacle in analysis.unsupported} == VOLATILE[query]


@pytest.mark.integration
@pytest.mark.parametrize("query", TIME_DEPENDENT)
def test_moving_functions_are_found(connection: Connection, query: str) -> None:
    analysis = analysed(connection, query)
    assert set(analysis.time_dependent) == TIME_DEPENDENT[query]
    assert not analysis.volatile


@pytest.mark.integration
@pytest.mark.parametrize("query", SETTINGS)
def test_functions_of_settings_are_no_moving_ones(connection: Connection, query: str) -> None:
    analysis = analysed(connection, query)
    assert set(analysis.settings) == SETTINGS[query]
    assert (analysis.volatile, analysis.time_dependent) == ((), ())
    assert analysis.plan is not None


@pytest.mark.integration
@pytest.mark.parametrize("query", IMMUTABLE)
def test_immutable_functions_are_none_of_these(connection: Connection, query: str) -> None:
    analysis = analysed(connection, query)
    assert (analysis.volatile, analysis.time_dependent, analysis.settings) == ((), (), ())


def test_functions_are_found_through_plain_views(connection: Connection) -> None:
    connection.execute("CREATE VIEW one AS SELECT id, random() AS r FROM t")
    connection.execute("CREATE VIEW two AS SELECT id, now() AS n FROM one")
    analysis = analysed(connection, "SELECT id FROM two")
    assert analysis.volatile == ("random()",)
    assert analysis.time_dependent == ("now()",)
    assert [view.name for view in analysis.inlined] == ["two", "one"]
    assert [source.relation.name for source in analysis.sources] == ["t"]


def test_text_has_names_resolved_and_the_search_path_stays(connection: Connection) -> None:
    connection.execute("SET search_path = public, pg_temp")
    analysis = analysed(connection, 'SELECT *, a AS "A b" FROM t')
    assert "public.t" in analysis.text and '"A b"' in analysis.text and "*" not in analysis.text
    assert not analysis.text.endswith(";")
    assert connection.execute("SHOW search_path").fetchone() == ("public, pg_temp",)
    types = {column.name: column.type for column in analysis.columns}
    assert types["at"] == "timestamp with time zone" and types["A b"] == "integer"


def test_analysis_inside_a_transaction_leaves_it_as_it_was(connection: Connection) -> None:
    with connection.transaction():
        connection.execute("SET LOCAL search_path = public, pg_catalog")
        assert analysed(connection, "SELECT id FROM t").plan is not None
        assert connection.execute("SHOW search_path").fetchone() == ("public, pg_catalog",)
        written = connection.execute("SELECT pg_current_xact_id_if_assigned() IS NOT NULL")
        assert written.fetchone() == (True,), "the view above is written in this transaction"


def test_analysis_writes_nothing(connection: Connection) -> None:
    connection.execute("CREATE VIEW v AS SELECT id FROM t")
    row = connection.execute("SELECT 'v'::regclass::oid").fetchone()
    assert row is not None
    with connection.transaction():
        connection.execute("SET TRANSACTION READ ONLY")
        analyse(connection, row[0])
        assigned = connection.execute("SELECT pg_current_xact_id_if_assigned()").fetchone()
        assert assigned == (None,)


@pytest.mark.integration
def test_used_columns(connection: Connection) -> None:
    connection.execute("CREATE TABLE u (x integer, y integer, z integer)")

    def used(query: str) -> dict[str, list[str]]:
        with connection.transaction(force_rollback=True):
            analysis = analysed(connection, query)
            return {s.relation.name: [c.name for c in s.columns] for s in analysis.sources}

    assert used("SELECT x FROM u") == {"u": ["x"]}
    assert used("SELECT count(*) AS n FROM u") == {"u": []}
    assert used("SELECT x FROM u WHERE y > 1 ORDER BY z") == {"u": ["x", "y", "z"]}
    assert used("SELECT t.b FROM t JOIN u ON u.x = t.id") == {"t": ["id", "b"], "u": ["x"]}
    assert used("SELECT row_to_json(u) AS j FROM u") == {"u": ["x", "y", "z"]}
    assert used("SELECT x, u AS whole FROM u") == {"u": ["x", "y", "z"]}
    assert used("SELECT count(j.*) AS n FROM (u CROSS JOIN t) AS j") == {
        "u": ["x", "y", "z"],
        "t": ["id", "a", "b", "at", "day", "j"],
    }
    assert used("SELECT id FROM t JOIN (SELECT x AS id FROM u) s USING (id)") == {
        "t": ["id"],
        "u": ["x"],
    }
    assert used("SELECT id, b FROM t GROUP BY id") == {"t": ["id", "b"]}
    assert used("SELECT (SELECT max(y) FROM u WHERE x = t.a) AS m FROM t") == {
        "t": ["a"],
        "u": ["x", "y"],
    }


def test_a_source_captures_its_key_too(connection: Connection) -> None:
    [source] = analysed(connection, "SELECT b FROM t").sources
    assert source.key is not None and source.key.primary
    assert [column.name for column in source.captured] == ["id", "b"]


@pytest.mark.integration
def test_which_unique_indexes_are_keys(connection: Connection) -> None:
    connection.execute("""
        CREATE TABLE k (
            a integer NOT NULL, b integer, c text NOT NULL, d bigint NOT NULL,
            UNIQUE (d, a), UNIQUE (b), UNIQUE (c) DEFERRABLE
        );
        CREATE UNIQUE INDEX k_partial ON k (a) WHERE b > 0;
        CREATE UNIQUE INDEX k_expression ON k (abs(a));
        CREATE UNIQUE INDEX k_covering ON k (a) INCLUDE (c);
        CREATE UNIQUE INDEX k_pattern ON k (c text_pattern_ops);
    """)
    table = relation(connection, "k")
    assert keys_of(table) == [["a"], ["d", "a"]]
    assert not any(key.primary for key in table.keys)


def keys_of(table: Relation) -> list[list[str]]:
    """The columns of a relation's usable keys, by name."""
    return [[table.column(attnum).name for attnum in key.columns] for key in table.usable_keys]


@pytest.fixture
def caseless(connection: Connection) -> str:
    """A collation under which different texts are equal."""
    try:
        connection.execute(
            "CREATE COLLATION caseless"
            " (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
        )
    except psycopg.errors.FeatureNotSupported:
        pytest.skip("this server is built without ICU")
    return "public.caseless"


@pytest.mark.integration
def test_a_bytewise_unique_index_is_no_key_of_a_caseless_column(
    connection: Connection, caseless: str
) -> None:
    connection.execute("""
        CREATE TABLE k (e text COLLATE caseless NOT NULL, d bigint NOT NULL);
        CREATE UNIQUE INDEX k_bytes ON k (e COLLATE "C");
        CREATE UNIQUE INDEX k_words ON k (e, d);
    """)
    table = relation(connection, "k")
    assert keys_of(table) == [["e", "d"]]
    words = table.columns[0]
    assert (words.collation, words.deterministic, words.exact) == (caseless, False, False)


@pytest.mark.integration
def test_the_primary_key_goes_before_a_narrower_one(connection: Connection) -> None:
    connection.execute("CREATE TABLE k (a text PRIMARY KEY, b smallint NOT NULL UNIQUE)")
    assert [key.primary for key in relation(connection, "k").usable_keys] == [True, False]


@pytest.mark.integration
def test_keys_do_not_hold_across_heirs(connection: Connection) -> None:
    connection.execute("""
        CREATE TABLE parent (id integer PRIMARY KEY, name text NOT NULL);
        CREATE TABLE child () INHERITS (parent);
    """)
    parent = relation(connection, "parent")
    assert parent.has_children and parent.keys and not parent.usable_keys
    assert relation(connection, "child").parents == (parent.oid,)
    [source] = analysed(connection, "SELECT id FROM parent").sources
    assert source.key is None
    [only] = analysed(connection, "SELECT id FROM ONLY parent", "w").sources
    assert only.relation.keys


@pytest.mark.integration
def test_partitioned_tables(connection: Connection) -> None:
    connection.execute("""
        CREATE TABLE p (id integer, part integer, PRIMARY KEY (id, part)) PARTITION BY LIST (part);
        CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1);
        CREATE TABLE refers (id integer, part integer, FOREIGN KEY (id, part) REFERENCES p);
    """)
    parent, child = relation(connection, "p"), relation(connection, "p1")
    assert parent.kind == "partitioned table" and parent.children == (child.oid,)
    assert child.is_partition and child.parents == (parent.oid,)
    assert [key.columns for key in parent.usable_keys] == [(1, 2)]
    [reference] = relation(connection, "refers").foreign_keys
    assert reference.target == parent.oid and reference.target_columns == (1, 2)


@pytest.mark.integration
def test_columns(connection: Connection) -> None:
    connection.execute("""
        CREATE DOMAIN inner_domain AS numeric(8, 2) NOT NULL;
        CREATE DOMAIN outer_domain AS inner_domain CHECK (VALUE > 0);
        CREATE TABLE c (
            plain integer, sure integer NOT NULL, domained outer_domain, number numeric,
            words text COLLATE "C", name varchar(5), made integer GENERATED ALWAYS AS (plain + 1) STORED,
            id integer GENERATED BY DEFAULT AS IDENTITY, box box, list integer[], dropped integer
        );
        ALTER TABLE c DROP COLUMN dropped;
    """)
    columns = {column.name: column for column in relation(connection, "c").columns}
    assert "dropped" not in columns and len(columns) == 10
    assert (columns["plain"].not_null, columns["sure"].not_null) == (False, True)
    assert (
        columns["domained"].type == "outer_domain"
        or columns["domained"].type == "public.outer_domain"
    )
    assert columns["domained"].plain_type == "numeric(8,2)"
    assert columns["name"].plain_type == "character varying(5)"
    assert columns["made"].generated == "s" and columns["id"].identity == "d"
    assert columns["words"].collation == 'pg_catalog."C"' and columns["words"].deterministic
    assert {name for name, column in columns.items() if column.exact} == {
        "plain", "sure", "name", "made", "id", "words",
    }  # fmt: skip
    assert columns["box"].equality is None and not columns["box"].builtin_equality
    assert columns["list"].builtin_equality and columns["number"].builtin_equality
    assert columns["plain"].equality == "integer_ops"


def test_not_null_of_a_domain_is_not_trusted(connection: Connection) -> None:
    connection.execute("CREATE DOMAIN sure AS integer NOT NULL; CREATE TABLE s (v sure)")
    connection.execute("INSERT INTO s SELECT (SELECT v FROM s WHERE false)")
    assert connection.execute("SELECT count(*) FROM s WHERE v IS NULL").fetchone() == (1,)
    assert not relation(connection, "s").columns[0].not_null


def test_an_unvalidated_not_null_promises_nothing(connection: Connection, pg_version: int) -> None:
    if pg_version < 18:
        pytest.skip("NOT NULL constraints can stay unvalidated from version 18 on")
    connection.execute("""
        CREATE TABLE n (a integer, b integer NOT NULL UNIQUE);
        INSERT INTO n VALUES (NULL, 1);
        ALTER TABLE n ADD CONSTRAINT n_a NOT NULL a NOT VALID;
        CREATE UNIQUE INDEX n_key ON n (a);
    """)
    table = relation(connection, "n")
    assert [column.not_null for column in table.columns] == [False, True]
    assert [key.columns for key in table.usable_keys] == [(2,)]


def test_constraints_on_ranges_are_neither_keys_nor_foreign_keys(
    connection: Connection, pg_version: int
) -> None:
    if pg_version < 18:
        pytest.skip("WITHOUT OVERLAPS and PERIOD exist from version 18 on")
    connection.execute("""
        CREATE TABLE p (id int4range, at daterange, PRIMARY KEY (id, at WITHOUT OVERLAPS));
        CREATE TABLE c (id int4range, at daterange NOT NULL, UNIQUE (id, at WITHOUT OVERLAPS),
                        FOREIGN KEY (id, PERIOD at) REFERENCES p (id, PERIOD at))
    """)
    tables = [relation(connection, name) for name in "pc"]
    assert [table.keys for table in tables] == [(), ()]
    assert [unique_indexes(connection, table.oid) for table in tables] == [[], []]
    [reference] = tables[1].foreign_keys
    assert reference.period and not reference.is_trusted
    connection.execute("ALTER TABLE p ADD UNIQUE (id, at)")
    assert [key.columns for key in relation(connection, "p").keys] == [(1, 2)]


def test_what_cannot_be_captured(connection: Connection) -> None:
    connection.execute("CREATE MATERIALIZED VIEW m AS SELECT 1 AS one")
    connection.execute("CREATE TEMPORARY TABLE temp_table (x integer)")
    analysis = analysed(connection, "SELECT m.one, c.relname FROM m, pg_class c, t")
    assert {table.qualified for table in analysis.uncaptured} == {"public.m", "pg_catalog.pg_class"}
    assert [source.relation.name for source in analysis.sources] == ["t"]
    temporary = analysed(connection, "SELECT x FROM temp_table", "w")
    assert [table.name for table in temporary.temporary] == ["temp_table"]
    assert not temporary.sources


def test_row_level_security_has_no_plan(connection: Connection) -> None:
    connection.execute("ALTER TABLE t ENABLE ROW LEVEL SECURITY")
    analysis = analysed(connection, "SELECT id FROM t")
    assert analysis.plan is None and "row-level security" in analysis.unsupported[0].reason
    assert analysis.sources[0].relation.row_security


def test_distinct_results_are_recognised(connection: Connection) -> None:
    assert analysed(connection, "SELECT id, b FROM t").distinct
    assert not analysed(connection, "SELECT b FROM t", "w").distinct
    assert analysed(connection, "SELECT DISTINCT b FROM t", "x").distinct
    assert analysed(connection, "SELECT a, count(*) AS n FROM t GROUP BY a", "y").distinct
    assert not analysed(connection, "SELECT count(*) AS n FROM t GROUP BY a", "z").distinct


def test_a_maintained_view_is_a_source_by_itself(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("""
            CREATE TABLE base (id integer PRIMARY KEY);
            CREATE VIEW lower_view AS SELECT id FROM base;
            CREATE VIEW definition AS SELECT id FROM base;
            CREATE TABLE state (id integer);
            INSERT INTO idivm.views (name, relation, definition, state, status, strategy, maintain, query)
            VALUES ('lower_view', 'lower_view', 'definition', 'state', 'ready', 'recompute', 'deferred', '');
        """)
        analysis = analysed(connection, "SELECT id FROM lower_view")
        [source] = analysis.sources
        assert source.relation.name == "lower_view" and source.relation.maintained is not None
        assert source.key is None and not analysis.inlined
        assert analysis.plan is not None and analysis.plan.root.label == "lower_view"
