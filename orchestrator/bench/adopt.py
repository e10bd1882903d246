"""Compare adopting materialized views with refreshing them, and check that adoption loses nothing.

The schema has sums, joins and filters over two tables. It also has indexes, rights, comments and
plain views that read the materialized views.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from psycopg import Connection
from psycopg.sql import SQL, Identifier, Literal

from orchestrator.api import Orchestrator, connect
from orchestrator.bench.measure import STEADY, machine, own_server, timed
from orchestrator.bench.report import Bar, Report, progress
from orchestrator.errors import DatabaseError, UsageError

SCHEMA = "idivm_bench"

RATIO_AT_MOST = 1.5

_TABLES = """
    CREATE SCHEMA idivm_bench;
    CREATE TABLE idivm_bench.customers (id int PRIMARY KEY, region int NOT NULL, name text NOT NULL);
    CREATE TABLE idivm_bench.orders (
        id int PRIMARY KEY, customer int NOT NULL REFERENCES idivm_bench.customers, day date NOT NULL,
        amount numeric(12, 2) NOT NULL, status text NOT NULL);
    CREATE INDEX ON idivm_bench.orders (customer);
"""

_ROWS = """
    INSERT INTO idivm_bench.customers SELECT i, i % 20, 'customer ' || i FROM generate_series(1, {customers}) AS i;
    INSERT INTO idivm_bench.orders
    SELECT i, 1 + i % {customers}, date '2024-01-01' + i % 365, i % 1000, (ARRAY['open', 'paid', 'sent'])[1 + i % 3]
    FROM generate_series(1, {orders}) AS i;
    ANALYZE idivm_bench.customers, idivm_bench.orders
"""

_QUERIES = (
    "SELECT customer, sum(amount) AS total, count(*) AS n FROM idivm_bench.orders"
    " WHERE id % 50 <> {n} GROUP BY customer",
    "SELECT c.region, o.day, sum(o.amount) AS total, count(*) AS n FROM idivm_bench.orders o"
    " JOIN idivm_bench.customers c ON c.id = o.customer WHERE o.id % 50 <> {n} GROUP BY c.region, o.day",
    "SELECT o.id AS customer, c.name, o.amount AS total FROM idivm_bench.orders o"
    " JOIN idivm_bench.customers c ON c.id = o.customer WHERE o.id % 10 = {n} % 10",
    "SELECT day, status, avg(amount) AS total, count(DISTINCT customer) AS customers FROM idivm_bench.orders"
    " WHERE customer % 50 <> {n} GROUP BY day, status",
    "SELECT customer, day, amount AS total FROM idivm_bench.orders WHERE amount > 900 AND id % 50 <> {n}",
)
"""Queries of the views; each view puts its own number into its query."""

_FACTS = """
    SELECT 'column', c.relname || '.' || a.attname, format_type(a.atttypid, a.atttypmod), a.attacl::text,
           col_description(c.oid, a.attnum)
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
    WHERE c.relnamespace = 'idivm_bench'::regnamespace AND c.relkind IN ('v', 'm')
    UNION ALL
    SELECT 'relation', c.relname, c.relowner::regrole::text,
           (SELECT string_agg(concat_ws(' ', a.grantee::regrole, a.privilege_type, a.is_grantable), ', '
                              ORDER BY a.grantee::regrole::text, a.privilege_type)
            FROM aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) AS a), obj_description(c.oid, 'pg_class')
    FROM pg_class c WHERE c.relnamespace = 'idivm_bench'::regnamespace AND c.relkind IN ('v', 'm')
    UNION ALL
    SELECT 'index', coalesce(v.relation, i.indrelid::regclass)::text,
           substring(pg_get_indexdef(i.indexrelid) FROM 'USING.*'), i.indisunique::text,
           obj_description(i.indexrelid, 'pg_class')
    FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
    LEFT JOIN idivm.views v ON v.state = i.indrelid
    WHERE c.relname LIKE 'idivm\\_bench\\_index%'
    UNION ALL
    SELECT 'reader', d.viewname, regexp_replace(d.definition, '\\s+', ' ', 'g'), d.viewowner, NULL
    FROM pg_views d WHERE d.schemaname = 'idivm_bench' AND d.viewname LIKE 'reader%'
    ORDER BY 1, 2, 3, 4
"""


def run(
    *,
    dsn: str | None = None,
    views: int = 50,
    orders: int = 1_000_000,
    repeat: int = 3,
    pg: int | None = None,
    say: Callable[[str], None] = progress,
) -> Report:
    """Run the benchmark on its own server, or in schema idivm_bench of the database at `dsn`."""
    if views < 1 or orders < 100 or repeat < 1:
        raise UsageError("It needs --views of 1, --orders of 100 and --repeat of 1 or more.")
    if dsn is None:
        with own_server(pg, STEADY) as server:
            return run(dsn=server.up().dsn, views=views, orders=orders, repeat=repeat, say=say)
    with connect(dsn) as orchestrator:
        connection = orchestrator.connection
        try:
            connection.execute(_TABLES)
            connection.execute(_ROWS.format(customers=orders // 100, orders=orders).encode())
            say("creating materialized views")
            names = [_materialized_view(connection, number) for number in range(views)]
            rounds = [_round(orchestrator, names, say) for _ in range(repeat)]
            return Report(
                "adopt",
                machine(connection),
                tuple({"round": number, **row} for number, row in enumerate(rounds, start=1)),
                (
                    Bar(
                        "facts that differ afterwards", max(row["lost"] for row in rounds), "<=", 0
                    ),
                    Bar(
                        f"adopting {views} views, times refreshing them",
                        statistics.median(row["times"] for row in rounds),
                        "<=",
                        RATIO_AT_MOST,
                    ),
                ),
            )
        finally:
            for view in orchestrator.views():
                if view.relation.startswith(f"{SCHEMA}."):
                    orchestrator.drop_view(view.relation, cascade=True)
            connection.execute("DROP SCHEMA IF EXISTS idivm_bench CASCADE")


def _materialized_view(connection: Connection[Any], number: int) -> str:
    name = Identifier(SCHEMA, f"view{number}")
    query = _QUERIES[number % len(_QUERIES)].format(n=number)
    connection.execute(SQL("CREATE MATERIALIZED VIEW {} AS {}").format(name, SQL(query)))
    connection.execute(
        SQL("CREATE INDEX {} ON {} (total)").format(Identifier(f"idivm_bench_index{number}"), name)
    )
    connection.execute(SQL("GRANT SELECT ON {} TO PUBLIC").format(name))
    connection.execute(
        SQL("COMMENT ON MATERIALIZED VIEW {} IS {}").format(name, Literal(f"number {number}"))
    )
    connection.execute(SQL("COMMENT ON COLUMN {}.total IS 'in euros'").format(name))
    connection.execute(
        SQL("CREATE VIEW {} AS SELECT sum(total) AS total FROM {}").format(
            Identifier(SCHEMA, f"reader{number}"), name
        )
    )
    return name.as_string(connection)


def _round(
    orchestrator: Orchestrator, names: list[str], say: Callable[[str], None]
) -> dict[str, Any]:
    """Measure one round: refresh the materialized views, adopt them, release them."""
    before = set(orchestrator.connection.execute(_FACTS).fetchall())

    def lost() -> int:
        return len(before ^ set(orchestrator.connection.execute(_FACTS).fetchall()))

    def refresh() -> None:
        for name in names:
            orchestrator.execute(f"REFRESH MATERIALIZED VIEW {name}")

    def adopt() -> None:
        for report in orchestrator.adopt(*names):
            if report.refusal is not None:
                raise DatabaseError(f"{report.view} stays as it is: {report.refusal}")

    def release() -> None:
        for name in names:
            orchestrator.release(name)

    say("refreshing")
    refreshed = timed(refresh)
    say("adopting")
    adopted = timed(adopt)
    differences = lost()
    # The first refresh with changes also computes what the take-over left out.
    orchestrator.connection.execute(
        "UPDATE idivm_bench.orders SET amount = amount + 1 WHERE id = 1"
    )
    say("refreshing the adopted views")
    first = timed(lambda: orchestrator.refresh(*names))
    orchestrator.connection.execute(
        "UPDATE idivm_bench.orders SET amount = amount - 1 WHERE id = 1"
    )
    second = timed(lambda: orchestrator.refresh(*names))
    if not all(report.equal for report in orchestrator.check(*names)):
        raise DatabaseError("A view differs from its query: what was measured is wrong.")
    say("releasing")
    released = timed(release)
    return {
        "REFRESH MATERIALIZED VIEW, s": refreshed,
        "adopt, s": adopted,
        "times": adopted / refreshed,
        "first refresh of one change, s": first,
        "second, s": second,
        "release, s": released,
        "lost": max(differences, lost()),
    }
