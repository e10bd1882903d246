"""Which of many views a refresh has anything to do for."""

import psycopg
import pytest

from orchestrator.errors import IdivmError
from orchestrator.runtime.refresh import RefreshError

pytestmark = pytest.mark.integration


@pytest.fixture
def many(orc):
    """Seven views: over two tables, over each of them, over a plain view, with a function, over a view."""
    orc.execute(
        """
        CREATE TABLE a (id int PRIMARY KEY, n int NOT NULL, v int GENERATED ALWAYS AS (n + 1) STORED);
        CREATE TABLE b (id int PRIMARY KEY, n int NOT NULL);
        CREATE UNLOGGED TABLE u (id int PRIMARY KEY, n int);
        INSERT INTO a SELECT i, i FROM generate_series(1, 9) AS i;
        INSERT INTO b SELECT i, i FROM generate_series(1, 9) AS i;
        CREATE FUNCTION twice(n int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT 2 * n';
        CREATE VIEW plain WITH (strategy = recompute) AS SELECT id, n, v FROM a;
        CREATE VIEW in_a AS SELECT n % 3 AS g, sum(n) AS total FROM a GROUP BY 1;
        CREATE VIEW in_b AS SELECT n % 3 AS g, sum(n) AS total FROM b GROUP BY 1;
        CREATE VIEW pair AS SELECT a.id, b.n FROM a JOIN b ON b.id = a.n;
        CREATE VIEW called AS SELECT id, twice(n) AS n FROM b;
        CREATE VIEW above AS SELECT count(*) AS n FROM in_a WHERE total > 10;
        CREATE VIEW in_u AS SELECT id, n FROM u
        """
    )
    orc.connection.execute("CREATE VIEW below AS SELECT id, n FROM b WHERE n > 2")
    orc.execute("CREATE VIEW inlined AS SELECT id, n FROM below")
    orc.refresh()
    return orc


def names(orc, query):
    rows = orc.connection.execute(
        f"SELECT v.relation::text FROM idivm.views v WHERE {query} ORDER BY 1"
    ).fetchall()
    return {name.rpartition(".")[2].strip('"') for (name,) in rows}


def due(orc):
    return names(orc, "v.id = ANY ((idivm.work_of(ARRAY(SELECT id FROM idivm.views))).due)")


def refreshed(orc, statement):
    """Run a statement and a refresh; return the views whose watermark moved."""
    orc.connection.execute(
        "CREATE TEMP TABLE IF NOT EXISTS known AS SELECT view, refreshes FROM idivm.watermarks"
    )
    orc.connection.execute(
        "TRUNCATE known; INSERT INTO known SELECT view, refreshes FROM idivm.watermarks"
    )
    orc.connection.execute(statement)
    orc.connection.execute("CALL idivm.refresh_all()")
    return names(
        orc,
        "EXISTS (SELECT FROM known k JOIN idivm.watermarks w USING (view) WHERE w.view = v.id AND w.refreshes > k.refreshes)",
    )


CHECKED = {"called", "inlined"}
"""Views whose rights are checked in each refresh."""


def test_nothing_is_due_where_nothing_changed(many):
    assert due(many) == CHECKED
    assert refreshed(many, "SELECT") == set()


def test_only_the_views_of_a_changed_table_are_refreshed(many):
    assert refreshed(many, "UPDATE a SET n = n + 1 WHERE id = 9") == {
        "in_a",
        "pair",
        "plain",
        "above",
    }
    assert refreshed(many, "UPDATE b SET n = n + 1 WHERE id = 9") == {
        "in_b",
        "pair",
        "called",
        "inlined",
    }
    assert refreshed(many, "DELETE FROM a WHERE id = 9") >= {"in_a", "plain"}
    assert refreshed(many, "TRUNCATE b") >= {"in_b", "called", "inlined"}
    assert refreshed(many, "SELECT") == set()
    assert all(report.equal for report in many.check())


def test_a_refresh_of_named_views_looks_at_these_alone(many):
    many.connection.execute("UPDATE a SET n = n + 1; UPDATE b SET n = n + 1")
    many.connection.execute("CALL idivm.refresh_all('above', 'in_b', 'pair', 'called')")
    assert due(many) == {"plain", "inlined", "called"}
    assert many.refresh("plain")[0].changed > 0


DRIFTS = {
    "a trigger is disabled": "ALTER TABLE a DISABLE TRIGGER idivm_1_update",
    "a key is gone": "ALTER TABLE a DROP CONSTRAINT a_pkey",
    "a NOT NULL is gone": "ALTER TABLE b ALTER n DROP NOT NULL",
    "a function has another body": "CREATE OR REPLACE FUNCTION twice(n int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT 3 * n'",
    "a plain view has another query": "CREATE OR REPLACE VIEW below AS SELECT id, n FROM b WHERE n > 4",
    "a child was added": "CREATE TABLE c () INHERITS (b)",
    "a table has another file": "ALTER TABLE a SET UNLOGGED; DELETE FROM idivm.witnesses",
    "a crash emptied a table": "DELETE FROM idivm.witnesses",
    "a stored column has another expression": "ALTER TABLE a ALTER v DROP EXPRESSION",
    "the log is gone": "DROP VIEW idivm_log.s1_image CASCADE",
    "nothing": "SELECT",
}


@pytest.mark.parametrize("drift", DRIFTS)
def test_sets_of_views_drift_as_each_view_does(many, drift):
    many.connection.execute(DRIFTS[drift])
    each = names(many, "idivm.looks_drifted(v.id)")
    assert (
        names(many, "v.id = ANY (idivm.drifted_views(ARRAY(SELECT id FROM idivm.views)))") == each
    )
    assert (
        names(many, "v.id = ANY (idivm.drifted_among(ARRAY(SELECT id FROM idivm.views)))") == each
    )
    assert bool(each) == (drift != "nothing")
    assert due(many) >= each
    listed = {view.name for view in many.views() if view.trouble is not None}
    assert listed == names(many, "idivm.trouble(v.id) IS NOT NULL")


def test_a_replaced_relation_drifts(many):
    many.connection.execute("CREATE OR REPLACE VIEW in_b AS SELECT 1 AS g, 2::bigint AS total")
    assert "in_b" in due(many)
    with pytest.raises(Exception, match="another query"):
        many.connection.execute("CALL idivm.refresh_all()")


def test_a_query_in_another_place_is_compared_and_does_not_drift(many):
    many.connection.execute("UPDATE idivm.views SET shown = 'elsewhere'")
    assert (
        names(many, "v.id = ANY (idivm.drifted_views(ARRAY(SELECT id FROM idivm.views)))") == set()
    )
    many.connection.execute("UPDATE idivm.views SET status = 'invalid'")
    many.connection.execute("CALL idivm.refresh_all()")
    assert names(many, "v.shown = 'elsewhere'") == set()


def test_a_view_that_failed_is_tried_again(many):
    many.execute("CREATE VIEW ratio AS SELECT id, 100 / n AS r FROM b")
    many.connection.execute("UPDATE b SET n = 0 WHERE id = 1")
    with pytest.raises(RefreshError, match="division by zero"):
        many.refresh()
    assert "ratio" in due(many)
    many.connection.execute("UPDATE b SET n = 1 WHERE id = 1")
    many.refresh()
    assert due(many) == CHECKED


def test_a_view_without_its_content_says_so_without_changes(many):
    many.connection.execute("DROP TABLE idivm_state.in_b_3 CASCADE")
    with pytest.raises(IdivmError, match="the table that holds"):
        many.refresh()


def test_a_log_of_many_transactions_is_compared_view_by_view(many):
    for _ in range(1100):
        many.connection.execute(
            "UPDATE b SET n = n WHERE id = 1; UPDATE b SET n = n + 1 WHERE id = 2"
        )
    assert due(many) == {"in_b", "pair"} | CHECKED
    many.refresh()
    assert due(many) == CHECKED


def test_settings_of_the_planner_stay_as_they_were(orc):
    """Questions about many views have settings of their own, which end with them."""
    ids = "array_fill(0, ARRAY[101])"
    with orc.connection.transaction():
        orc.connection.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off")
        for question in ("drifted_views", "pending_views", "work_of", "troubled_views"):
            orc.connection.execute(f"SELECT idivm.{question}({ids})")
            settings = (
                "SELECT current_setting('enable_seqscan'), current_setting('enable_hashjoin')"
            )
            assert orc.connection.execute(settings).fetchone() == ("off", "off"), question


@pytest.mark.parametrize(
    "statement, most_functions, most_queries",
    [("CALL idivm.refresh_all('sums')", 27, 47), ("SELECT idivm.refresh('sums')", 19, 33)],
)
def test_the_first_refresh_of_a_session_plans_few_statements(
    orc, dsn, statement, most_functions, most_queries
):
    orc.execute("CREATE TABLE a (id int PRIMARY KEY, g int NOT NULL, n int NOT NULL)")
    orc.execute("CREATE VIEW sums AS SELECT g, sum(n) AS total FROM a GROUP BY g")
    orc.refresh()
    counts = []
    for number in range(3):
        orc.execute(f"INSERT INTO a VALUES ({number}, 1, 1)")
        with psycopg.connect(dsn, autocommit=True) as session:
            session.execute(statement)
            # A session keeps each function and statement of PL/pgSQL that it has used in a memory context.
            row = session.execute(
                "SELECT count(*) FILTER (WHERE name ~ '^PL/?pgSQL function$'),"
                " count(*) FILTER (WHERE name = 'CachedPlanSource' AND ident ~ '\\m(FROM|UPDATE|INSERT)\\M')"
                " FROM pg_backend_memory_contexts"
            ).fetchone()
            counts.append(row)
            assert session.execute("SELECT total FROM sums").fetchall() == [(number + 1,)]
    # A refresh that takes long also notes its costs.
    functions, queries = min(counts)
    assert 0 < functions <= most_functions
    assert 0 < queries <= most_queries
