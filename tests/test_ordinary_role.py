"""Everything works for a role that may do nothing but create in its own database."""

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

import orchestrator
from orchestrator.catalog.objects import orphans

pytestmark = pytest.mark.integration


def test_the_whole_life_of_a_view(ordinary):
    with orchestrator.connect(ordinary) as orc:
        orc.execute(
            """
            CREATE SCHEMA shop;
            CREATE TABLE shop.items (id int PRIMARY KEY, kind text, price numeric);
            CREATE TABLE shop.sold (item int, day date) PARTITION BY RANGE (day);
            CREATE TABLE shop.sold_1 PARTITION OF shop.sold FOR VALUES FROM ('2026-01-01') TO ('2026-02-01');
            INSERT INTO shop.items VALUES (1, 'a', 1.50), (2, 'b', 2);
            CREATE VIEW shop.revenue AS
              SELECT i.kind, sum(i.price) AS revenue FROM shop.items i JOIN shop.sold s ON s.item = i.id GROUP BY i.kind;
            CREATE VIEW shop.best WITH (strategy = recompute) AS SELECT kind FROM shop.revenue WHERE revenue > 3;
            INSERT INTO shop.sold SELECT 1, '2026-01-05' FROM generate_series(1, 3);
            CREATE TABLE shop.sold_2 PARTITION OF shop.sold FOR VALUES FROM ('2026-02-01') TO ('2026-03-01');
            INSERT INTO shop.sold_2 VALUES (2, '2026-02-02');
            """
        )
        assert all(report.equal for report in orc.check())
        assert orc.execute("TABLE shop.best")[0].rows == [("a",)]
        orc.execute("TRUNCATE shop.sold; CALL idivm.refresh_all()")
        assert orc.execute("TABLE shop.best")[0].rows == []
        orc.execute("SELECT idivm.collect(0)")
        orc.create_view("shop.best", "SELECT kind, revenue FROM shop.revenue", replace=True)
        assert all(report.equal for report in orc.check())
        orc.drop_view("shop.revenue", cascade=True)
        assert orc.views() == []
        assert orphans(orc.connection) == []


def test_a_database_where_nothing_may_be_created_says_which_right_is_missing(plain_dsn, connect):
    admin = connect(plain_dsn)
    role = f"nothing_{admin.info.dbname}"
    admin.execute(psycopg.sql.SQL("CREATE ROLE {} LOGIN").format(psycopg.sql.Identifier(role)))
    with pytest.raises(orchestrator.IdivmError, match="GRANT CREATE ON DATABASE"):
        orchestrator.connect(make_conninfo(plain_dsn, user=role))
    admin.execute(psycopg.sql.SQL("DROP ROLE {}").format(psycopg.sql.Identifier(role)))
