"""Materialized views, and views of pg_ivm, become maintained views and back, and lose nothing."""

from __future__ import annotations

from typing import Any

import pytest
from psycopg.errors import SyntaxError as SqlSyntaxError
from psycopg.sql import SQL

from orchestrator import catalog
from orchestrator.api import Orchestrator
from orchestrator.catalog import take_over as catalog_take_over
from orchestrator.catalog.objects import orphans
from orchestrator.cli.main import main
from orchestrator.deltascript.plan import StateTable
from orchestrator.errors import IdivmError, NotFoundError
from orchestrator.runtime import side_by_side
from orchestrator.runtime.diagnosis.doctor import examine
from orchestrator.runtime.installation.names import bound, names_of

SHOP = """
    CREATE TABLE sales (id int PRIMARY KEY, shop int, day date, amount numeric(10, 2));
    INSERT INTO sales SELECT i, i % 7, date '2024-01-01' + i % 30, i FROM generate_series(1, 500) AS i;
    CREATE MATERIALIZED VIEW "Per shop" WITH (fillfactor = 70) AS
        SELECT shop, sum(amount) AS total, count(*) AS n FROM sales GROUP BY shop;
    CREATE UNIQUE INDEX "By shop" ON "Per shop" (shop);
    CREATE INDEX totals ON "Per shop" (abs(total) DESC NULLS LAST) INCLUDE (n) WHERE n > 1;
    COMMENT ON INDEX totals IS 'for the report';
    COMMENT ON MATERIALIZED VIEW "Per shop" IS 'what each shop sells';
    COMMENT ON COLUMN "Per shop".total IS 'in euros';
    CREATE ROLE {reader}; CREATE ROLE {heir}; CREATE ROLE {owner};
    GRANT SELECT ON sales TO {owner}; GRANT TRIGGER ON sales TO {owner}; GRANT CREATE ON SCHEMA public TO {owner};
    ALTER MATERIALIZED VIEW "Per shop" OWNER TO {owner};
    GRANT SELECT ON "Per shop" TO {reader} WITH GRANT OPTION; GRANT SELECT (shop) ON "Per shop" TO {heir};
    CREATE VIEW best WITH (security_barrier) AS SELECT shop FROM "Per shop" ORDER BY total DESC LIMIT 1;
    GRANT SELECT ON best TO {heir};
    CREATE MATERIALIZED VIEW above AS SELECT max(p.total) AS most, min(b.shop) AS best FROM "Per shop" p, best b;
    CREATE INDEX above_most ON above (most); GRANT SELECT ON above TO {reader};
    COMMENT ON MATERIALIZED VIEW above IS 'the best';
    CREATE VIEW far AS SELECT most FROM above;
    CREATE MATERIALIZED VIEW empty AS SELECT total FROM "Per shop" WITH NO DATA;
    CREATE FUNCTION of_shop(wanted int) RETURNS numeric STABLE
        BEGIN ATOMIC SELECT total FROM "Per shop" WHERE shop = wanted; END;
    ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO PUBLIC;
"""

FACTS = {
    "rights": """
        SELECT c.relname, c.relowner::regrole::text, a.grantee::regrole::text, a.privilege_type, a.is_grantable, NULL
        FROM pg_class c CROSS JOIN LATERAL aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) AS a
        WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('v', 'm')
        UNION ALL
        SELECT c.relname, NULL, a.grantee::regrole::text, a.privilege_type, a.is_grantable, t.attname
        FROM pg_class c JOIN pg_attribute t ON t.attrelid = c.oid CROSS JOIN LATERAL aclexplode(t.attacl) AS a
        WHERE c.relnamespace = 'public'::regnamespace ORDER BY 1, 3, 4, 5, 6""",
    "comments": """
        SELECT c.relname, d.objsubid, d.description FROM pg_description d JOIN pg_class c ON c.oid = d.objoid
        WHERE d.classoid = 'pg_class'::regclass AND c.relkind IN ('v', 'm')
          AND c.relnamespace = 'public'::regnamespace ORDER BY 1, 2""",
    "indexes": """
        SELECT coalesce((SELECT relation::text FROM idivm.views WHERE state = i.indrelid), i.indrelid::regclass::text),
               substring(pg_get_indexdef(i.indexrelid) FROM 'USING (.*?)(?: NULLS NOT DISTINCT)?$'), i.indisunique,
               obj_description(i.indexrelid, 'pg_class')
        FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relkind = 'm' OR n.nspname = 'idivm_state' ORDER BY 1, 2""",
    "columns": """
        SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod) FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
        WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('v', 'm') AND a.attnum > 0 ORDER BY 1, 2""",
    "options": "SELECT relname, reloptions FROM pg_class WHERE relname IN ('best', 'above', 'far') ORDER BY 1",
    "rows": 'SELECT * FROM best, far, of_shop(3), (SELECT sum(n) FROM "Per shop") AS s',
}


@pytest.fixture
def shop(orc: Orchestrator) -> Any:
    names = {part: f"{part}_{orc.connection.info.dbname}" for part in ("reader", "heir", "owner")}
    orc.connection.execute(SHOP.format(**names))
    yield orc
    roles = ", ".join(names.values())
    orc.connection.execute(f"DROP OWNED BY {roles} CASCADE; DROP ROLE {roles}")


def facts(orc: Orchestrator) -> dict[str, list[Any]]:
    return {name: orc.connection.execute(query).fetchall() for name, query in FACTS.items()}


@pytest.mark.integration
@pytest.mark.parametrize("mode", ["deferred", "eager"])
def test_a_materialized_view_keeps_all_that_belongs_to_its_name(
    shop: Orchestrator, mode: str
) -> None:
    before = facts(shop)
    [report] = shop.adopt('"Per shop"', dry_run=True)
    assert (report.strategy, report.refusal) == ("id", None)
    assert report.lost[1:] == ("the storage parameters fillfactor=70",)
    assert report.lost[0].startswith('the check that public."By shop" is unique')
    assert "a change" in report.cost
    assert facts(shop) == before
    [report] = shop.adopt('"Per shop"', maintain=mode)
    assert (report.strategy, report.refusal) == ("id", None)
    assert facts(shop) == before
    view = shop.view('"Per shop"')
    assert view.maintain == mode
    shop.execute("UPDATE sales SET amount = 1000000 WHERE id = 10")
    shop.refresh()
    assert shop.execute("TABLE best")[0].rows == [(3,)]
    assert shop.check('"Per shop"')[0].equal
    assert shop.execute("REFRESH MATERIALIZED VIEW above; TABLE far")[1].rows[0][0] > 1000000
    shop.execute("UPDATE sales SET amount = 10 WHERE id = 10")
    shop.refresh()
    shop.execute("REFRESH MATERIALIZED VIEW above")
    assert facts(shop) == before
    shop.connection.execute('ALTER VIEW "Per shop" SET (security_barrier)')
    shop.execute('ALTER VIEW "Per shop" SET (strategy = tuple)')
    assert facts(shop) == before
    assert shop.execute("SELECT reloptions FROM pg_class WHERE relname = 'Per shop'")[0].rows == [
        (["security_barrier=true"],)
    ]
    shop.release('"Per shop"')
    assert facts(shop) == before
    assert (shop.views(), orphans(shop.connection)) == ([], [])
    shop.execute("DROP MATERIALIZED VIEW empty")


@pytest.mark.integration
def test_all_are_adopted_from_below_and_refused_ones_stay(
    shop: Orchestrator, dsn: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.connection.execute(
        "CREATE MATERIALIZED VIEW dice AS SELECT random() AS r;"
        'CREATE VIEW whole AS SELECT p FROM "Per shop" AS p'
    )
    before = facts(shop)["rows"]
    assert main(["adopt", "--dsn", dsn, "--all"]) == 1
    out = capsys.readouterr().out
    assert "dice: stays as it is: The query calls random()" in out
    assert '"Per shop": stays as it is' in out
    assert "above: strategy" in out
    shop.connection.execute("DROP VIEW whole")
    assert main(["adopt", "--dsn", dsn, '"Per shop"']) == 0
    assert facts(shop)["rows"] == before
    assert shop.view("above").sources == ['"Per shop"']
    shop.execute("UPDATE sales SET amount = 1000000 WHERE id = 10")
    shop.refresh()
    assert all(report.equal for report in shop.check())
    with pytest.raises(IdivmError, match=r"maintained views public\.above, public\.empty read"):
        shop.release('"Per shop"')
    assert main(["release", "--dsn", dsn, "above"]) == 0
    assert main(["adopt", "--dsn", dsn]) == 2
    for nothing in ("nowhere", "sales", "best"):
        with pytest.raises(IdivmError):
            shop.adopt(nothing)


@pytest.mark.integration
@pytest.mark.parametrize("jobs", [1, 3])
def test_several_sessions_adopt_what_has_no_reader_in_common(orc: Orchestrator, jobs: int) -> None:
    orc.connection.execute(
        "CREATE TABLE sales (id int PRIMARY KEY, shop int, amount int);"
        "INSERT INTO sales SELECT i, i % 7, i FROM generate_series(1, 100) AS i"
    )
    names = [f"view{n}" for n in range(6)]
    for n, name in enumerate(names):
        orc.connection.execute(
            f"CREATE MATERIALIZED VIEW {name} AS SELECT shop, sum(amount + {n}) AS total"
            f" FROM sales WHERE id % 5 <> {n} GROUP BY shop"
        )
    orc.connection.execute(
        "CREATE VIEW pairs AS SELECT shop FROM view1 JOIN view4 USING (shop);"
        "CREATE FUNCTION totals() RETURNS bigint STABLE"
        " BEGIN ATOMIC SELECT count(*) FROM view0 JOIN view5 USING (shop); END;"
        "CREATE MATERIALIZED VIEW above AS SELECT max(total) AS m FROM view2"
    )
    oids = [catalog.relation_oid(orc.connection, SQL(name)) for name in names]
    above = catalog_take_over.objects_above(orc.connection, [oid for oid in oids if oid])
    groups = side_by_side.groups(above.items())
    assert sorted(sorted(oids.index(oid) for oid in group) for group in groups) == [
        [0, 5],
        [1, 4],
        [2],
        [3],
    ]
    with pytest.raises(NotFoundError, match='"nothing" does not exist'):
        orc.adopt("view0", "nothing", jobs=jobs)
    reports = orc.adopt(*names, "above", jobs=jobs)
    assert [(report.view, report.refusal) for report in reports] == [
        (name, None) for name in (*names, "above")
    ]
    orc.execute(
        "UPDATE sales SET amount = amount + 1 WHERE id < 20; DELETE FROM sales WHERE id > 90"
    )
    orc.refresh(jobs=jobs)
    checked = orc.check()
    assert len(checked) == 7
    assert all(report.equal for report in checked)
    assert orc.execute("SELECT count(*), totals() FROM pairs")[0].rows == [(7, 7)]


def test_a_view_of_pg_ivm_is_adopted_without_its_own_columns(orc: Orchestrator) -> None:
    orc.connection.execute(
        """
        CREATE TABLE t (id int PRIMARY KEY, k text, n int);
        INSERT INTO t SELECT i, chr(97 + i % 3), i FROM generate_series(1, 9) AS i;
        CREATE SCHEMA pgivm;
        CREATE TABLE pgivm.pg_ivm_immv (immvrelid regclass, viewdef text, ispopulated bool, lastivmupdate xid8);
        CREATE FUNCTION pgivm.get_immv_def(immvrelid regclass) RETURNS text STABLE LANGUAGE sql
        AS $$ SELECT viewdef FROM pgivm.pg_ivm_immv i WHERE i.immvrelid = get_immv_def.immvrelid $$;
        CREATE TABLE sums AS SELECT k, sum(n) AS s, count(*) AS __ivm_count__ FROM t GROUP BY k;
        CREATE UNIQUE INDEX sums_k ON sums (k);
        INSERT INTO pgivm.pg_ivm_immv VALUES ('sums', 'SELECT k, sum(n) AS s FROM public.t GROUP BY k', true);
        CREATE VIEW top AS SELECT max(s) AS s FROM sums;
        """
    )
    [report] = orc.adopt()
    assert (report.view, report.strategy, report.refusal) == ("sums", "id", None)
    assert orc.view("sums").maintain == "eager"
    orc.execute("INSERT INTO t VALUES (10, 'z', 100)")
    assert orc.execute("TABLE top")[0].rows == [(100,)]
    assert orc.execute("SELECT * FROM sums WHERE k = 'z'")[0].rows == [("z", 100)]


def test_unique_columns_may_swap_their_values(orc: Orchestrator) -> None:
    orc.connection.execute(
        """
        CREATE TABLE t (id int PRIMARY KEY, n int, w int);
        INSERT INTO t VALUES (1, 1, 1), (2, 2, 2), (3, 3, 3);
        CREATE MATERIALIZED VIEW m AS SELECT id, n, w FROM t;
        CREATE UNIQUE INDEX ON m (n); CREATE UNIQUE INDEX ON m (abs(w)); CREATE UNIQUE INDEX ON m (id, w)
        """
    )
    [report] = orc.adopt("m")
    assert report.refusal is None
    orc.execute("UPDATE t SET n = 3 - n WHERE id < 3")
    orc.refresh()
    assert orc.check("m")[0].equal
    orc.execute("DELETE FROM t WHERE id = 1; INSERT INTO t VALUES (7, 2, 1)")
    orc.refresh()
    assert orc.check("m")[0].equal
    orc.execute("UPDATE t SET n = 3")
    orc.refresh()
    assert orc.check("m")[0].equal
    orc.create_view("m", "SELECT id, n FROM t", replace=True)
    assert orc.execute("SELECT definition FROM idivm.view_indexes")[0].rows == [
        ("USING btree (n)",)
    ]


def test_indexes_on_a_view_survive_new_plans(orc: Orchestrator) -> None:
    notices: list[str] = []
    orc.on_notice = notices.append
    orc.execute(
        """
        CREATE TABLE t (id int PRIMARY KEY, k text, n int);
        CREATE SCHEMA s; CREATE VIEW s.v AS SELECT k, sum(n) AS total, count(*) AS c FROM t GROUP BY k;
        SET search_path = s, public;
        CREATE INDEX ON v (lower(k), total DESC) WHERE c > 1; CREATE INDEX "Named" ON s.v USING hash (total);
        CREATE INDEX t_n ON t (n)
        """
    )
    assert orc.execute(
        "SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = 't'::regclass"
    )[0].rows == [("t_pkey",), ("t_n",)]

    def indexes() -> list[str]:
        rows = orc.connection.execute(
            "SELECT substring(pg_get_indexdef(i.indexrelid) FROM 'USING.*') FROM pg_index i"
            " JOIN idivm.views v ON v.state = i.indrelid WHERE NOT i.indisunique ORDER BY 1"
        ).fetchall()
        return [text for (text,) in rows]

    expected = ["USING btree (lower(k), total DESC) WHERE (c > 1)", "USING hash (total)"]
    assert indexes() == expected
    orc.execute("ALTER VIEW v SET (strategy = tuple)")
    assert indexes() == expected
    orc.execute("ALTER TABLE t DROP CONSTRAINT t_pkey; INSERT INTO t VALUES (1, 'a', 1)")
    orc.refresh()
    assert indexes() == expected
    with pytest.raises(IdivmError, match="already"):
        orc.execute('CREATE INDEX "Named" ON v (k)')
    with pytest.raises(IdivmError, match="nothing"):
        orc.execute("CREATE INDEX ON v (nothing)")
    orc.execute("CREATE OR REPLACE VIEW v AS SELECT k, sum(n) AS total FROM t GROUP BY k")
    assert indexes() == ["USING hash (total)"]
    assert any("index v_lower_total_idx of s.v is dropped" in notice for notice in notices)
    orc.execute("SELECT idivm.drop_index('v', 'Named')")
    assert indexes() == []
    assert orc.check("v")[0].equal
    assert orphans(orc.connection) == []


@pytest.mark.parametrize("relation", ["view", "table"])
def test_indexes_that_exist_or_do_not(orc: Orchestrator, relation: str) -> None:
    notices: list[str] = []
    orc.on_notice = notices.append
    orc.execute("CREATE TABLE t (id int PRIMARY KEY, n int); CREATE INDEX ti ON t (n)")
    orc.execute(f"CREATE VIEW v WITH (relation = {relation}) AS SELECT id, n FROM t")

    def indexes() -> list[str]:
        rows = orc.connection.execute(
            "SELECT regexp_replace(indexname, '_[0-9]+$', '') FROM pg_indexes"
            " WHERE indexname ~ '^(vi|wi|ti)(_[0-9]+)?$' ORDER BY 1"
        )
        return [name for (name,) in rows]

    for _ in range(2):
        orc.execute("CREATE INDEX CONCURRENTLY IF NOT EXISTS vi ON v (n)")
        assert indexes() == ["ti", "vi"]
    assert notices[-1] == 'relation "vi" already exists, skipping'
    with pytest.raises(IdivmError, match="already"):
        orc.execute("CREATE UNIQUE INDEX vi ON v (n)")
    with pytest.raises(IdivmError, match="syntax error"):
        orc.execute("CREATE INDEX IF NOT EXISTS ON v (n)")
    orc.execute("ALTER INDEX vi RENAME TO wi; ALTER INDEX IF EXISTS vi RENAME TO x")
    assert indexes() == ["ti", "wi"]
    orc.execute(
        "CREATE OR REPLACE VIEW v WITH (relation = view) AS SELECT id, n, n + 1 AS m FROM t"
    )
    assert indexes() == ["ti", "wi"]
    orc.execute("DROP INDEX IF EXISTS nothing, public.wi, ti RESTRICT")
    assert indexes() == []
    assert 'index "nothing" does not exist, skipping' in notices
    orc.execute("DROP INDEX IF EXISTS wi")
    with pytest.raises(IdivmError, match='index "wi" does not exist'):
        orc.execute("DROP INDEX wi")
    orc.execute(
        "CREATE INDEX vi ON v (n); CREATE VIEW w AS SELECT n FROM t; CREATE INDEX vi ON w (n)"
    )
    with pytest.raises(IdivmError, match="Several maintained views have an index"):
        orc.execute("DROP INDEX vi")
    with orc.connection.transaction():
        orc.execute("SELECT idivm.drop_index('w', 'vi'); DROP INDEX vi")
    assert indexes() == []


def test_a_view_is_described_by_a_comment(orc: Orchestrator) -> None:
    def comment() -> str | None:
        text: str | None = orc.execute("SELECT obj_description('v'::regclass)")[0].rows[0][0]
        query, _, rest = (text or "").partition(" (maintained by idivm: ")
        return rest if query.startswith("SELECT ") and query.endswith(" FROM public.t") else text

    orc.execute("CREATE TABLE t (id int PRIMARY KEY, k text, n int)")
    orc.execute("SELECT idivm.create_view('v', 'SELECT id, k FROM t')")
    assert comment() == "deferred, not planned)"
    orc.plan()
    assert comment() == "deferred, strategy id)"
    orc.execute("ALTER VIEW v SET (maintain = eager)")
    assert comment() == "eager, strategy id)"
    orc.execute("ALTER VIEW v SET (strategy = tuple)")
    assert comment() == "eager, strategy tuple)"
    orc.execute("COMMENT ON VIEW v IS 'mine'; ALTER VIEW v SET (maintain = deferred)")
    assert comment() == "mine"
    orc.execute("COMMENT ON VIEW v IS NULL; ALTER VIEW v SET (strategy = id)")
    assert comment() == "deferred, strategy id)"
    orc.release("v")
    assert comment() is None


DAYS = """
    CREATE TABLE visits (id int PRIMARY KEY, day int NOT NULL, visitor int, seconds int);
    INSERT INTO visits SELECT i, i % 5, i % 37, i FROM generate_series(1, 400) AS i;
    CREATE MATERIALIZED VIEW days AS
        SELECT day, count(DISTINCT visitor) AS visitors, sum(seconds) AS seconds FROM visits GROUP BY day;
    CREATE MATERIALIZED VIEW sums AS SELECT day, sum(seconds) AS seconds FROM visits GROUP BY day;
    CREATE MATERIALIZED VIEW busy AS
        SELECT day FROM (SELECT day, count(DISTINCT visitor) AS n FROM visits GROUP BY day) AS d WHERE n > 36
"""


def stored_rows(orc: Orchestrator, name: str) -> dict[str, int]:
    """Return the number of rows in each table behind the content of a view."""
    view = orc.view(name)
    tables = [s.role for s in view.plan.program.states if isinstance(s, StateTable)]
    names = bound(orc.connection, names_of(view))
    counted = {}
    for role in tables:
        if role != view.plan.program.content:
            query = SQL("SELECT count(*)::integer FROM {}").format(names.state(role))
            [(counted[role],)] = orc.connection.execute(query).fetchall()
    return counted


@pytest.mark.slow
@pytest.mark.integration
def test_a_take_over_computes_the_content_and_the_first_changes_compute_the_rest(
    orc: Orchestrator,
) -> None:
    orc.connection.execute(DAYS)
    assert [report.strategy for report in orc.adopt("days", "sums", "busy")] == ["id", "id", "id"]
    assert set(stored_rows(orc, "days").values()) == set(stored_rows(orc, "busy").values()) == {0}
    assert [report.changed for report in orc.refresh()] == [0, 0, 0]
    assert all(finding.fine for finding in examine(orc.connection))
    assert all(report.equal for report in orc.check())
    assert sum(stored_rows(orc, "days").values()) == 0

    orc.execute("UPDATE visits SET visitor = 1000 WHERE id = 7; DELETE FROM visits WHERE id = 8")
    # The tables behind such small contents do not take long.
    orc.execute("UPDATE idivm.costs SET row_seconds = 1e-12")
    orc.refresh()
    assert all(report.equal for report in orc.check())
    assert orc.execute("SELECT visitors FROM days WHERE day = 2")[0].rows == [(38,)]
    assert all(rows > 0 for name in ("days", "busy") for rows in stored_rows(orc, name).values())
    reasons = orc.execute("SELECT view::text, reason FROM idivm.history ORDER BY 1")[0].rows
    because = "the tables behind the content were not current"
    assert reasons == [("busy", because), ("days", because), ("sums", None)]

    orc.execute("DELETE FROM visits WHERE id = 9")
    orc.refresh()
    assert all(report.equal for report in orc.check())
    assert orc.execute("SELECT count(*) FROM idivm.history WHERE recomputed")[0].rows == [(2,)]
    assert all(finding.fine for finding in examine(orc.connection))


@pytest.mark.integration
def test_writers_never_meet_a_view_that_is_only_taken_over(orc: Orchestrator) -> None:
    orc.connection.execute(DAYS)
    orc.adopt("days")
    orc.adopt("busy", maintain="eager")
    orc.execute("ALTER VIEW days SET (maintain = eager)")
    orc.connection.execute(
        "CREATE MATERIALIZED VIEW below AS SELECT day, count(DISTINCT visitor) AS n FROM visits GROUP BY day"
    )
    orc.adopt("below")
    orc.create_view("above", "SELECT max(n) AS n FROM below", maintain="eager")
    for name in ("days", "busy", "below"):
        assert all(rows > 0 for rows in stored_rows(orc, name).values())
    orc.connection.execute("UPDATE visits SET visitor = 1000 WHERE id = 7")
    assert orc.execute("SELECT visitors FROM days WHERE day = 2")[0].rows == [(38,)]
    assert all(report.equal for report in orc.check())


@pytest.mark.integration
@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ"])
def test_plain_sql_completes_a_take_over(orc: Orchestrator, isolation: str) -> None:
    orc.connection.execute(DAYS)
    orc.adopt("days")
    with orc.connection.transaction():
        orc.connection.execute(f"SET TRANSACTION ISOLATION LEVEL {isolation}")
        orc.connection.execute("INSERT INTO visits VALUES (500, 9, 9, 9), (501, 9, 9, 9)")
        orc.connection.execute("SELECT idivm.refresh('days')")
        orc.connection.execute("INSERT INTO visits VALUES (502, 9, 8, 9)")
        orc.connection.execute("SELECT idivm.refresh('days')")
    assert orc.execute("SELECT visitors FROM days WHERE day = 9")[0].rows == [(2,)]
    assert orc.check("days")[0].equal


@pytest.mark.integration
def test_the_text_of_an_index_that_cannot_be_read_is_refused_in_the_words_of_users(
    orc: Orchestrator,
) -> None:
    orc.execute("CREATE TABLE t (id int PRIMARY KEY)")
    orc.create_view("v", "SELECT id FROM t")
    with pytest.raises(SqlSyntaxError) as raised:
        orc.connection.execute("SELECT idivm.create_index('v', 'CREATE INDEX ON v (id)')")
    assert (raised.value.diag.message_primary or "").startswith("no index on v was created: ")
    assert "(shop)" in (raised.value.diag.message_hint or "")
