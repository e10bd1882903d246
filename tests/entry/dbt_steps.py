"""What tests/entry/test_dbt.py runs in a copy of examples/dbt_shop, with the Python that has dbt.

The arguments are the path of a Python that has idivm and the connection string of the database.
"""

import subprocess
import sys
from typing import Any

import psycopg2  # type: ignore[import-untyped]
from dbt.cli.main import dbtRunner  # type: ignore[import-not-found]

PYTHON, DSN = sys.argv[1:]
MAINTAINED = ("customers", "order_totals")


def dbt(*arguments: str, success: bool = True) -> dict[str, str]:
    """Run a command of dbt; return the message of each node."""
    done: Any = dbtRunner().invoke([*arguments, "--profiles-dir", ".", "--quiet"])
    nodes = getattr(done.result, "results", None) or []
    messages = {node.node.name: str(node.message) for node in nodes}
    assert done.success == success, (arguments, done.exception, messages)
    return messages


def rows(query: str) -> list[tuple[Any, ...]]:
    with psycopg2.connect(DSN) as connection, connection.cursor() as cursor:
        cursor.execute(query)
        return list(cursor.fetchall())


def run(*arguments: str) -> dict[str, str]:
    messages = dbt("run", *arguments)
    return {name: messages[name].split()[0] for name in MAINTAINED}


def plan() -> None:
    subprocess.run(
        [PYTHON, "-m", "orchestrator.cli.main", "plan", "--dsn", DSN],
        check=True,
        capture_output=True,
    )
    strategies = dict(rows("SELECT view::text, strategy FROM idivm.status"))
    assert strategies.keys() == {"shop.customers", "shop.order_totals"}
    assert not {None, "recompute"} & set(strategies.values()), strategies


def main() -> None:
    assert "unique_customers_customer_id" in dbt("build")
    customers = (
        "SELECT customer_id, orders, (lifetime_value * 100)::int FROM shop.customers ORDER BY 1"
    )
    everybody = [(1, 2, 1950), (2, 1, 9900), (3, 1, 300)]
    assert rows(customers) == everybody
    plan()
    oids = "SELECT 'shop.customers'::regclass::oid, 'shop.order_totals'::regclass::oid"
    before = rows(oids)

    # Nothing changed: nothing is done, and the views stay incremental.
    assert run() == dict.fromkeys(MAINTAINED, "UNCHANGED")
    assert rows("SELECT count(*) FROM idivm.unplanned_views") == [(0,)]
    assert rows(oids) == before
    assert rows("SELECT obj_description('shop.customers'::regclass)") == [
        ("What each customer spent",)
    ]
    assert rows("SELECT has_table_privilege('public', 'shop.customers', 'SELECT')") == [(True,)]

    # Other options change the view, or are refused.
    mode = "SELECT mode FROM idivm.status WHERE view = 'shop.customers'::regclass"
    dbt("run", "-s", "customers", "--vars", "{mode: eager, reaction: fail}", success=False)
    assert rows(mode) == [("deferred",)]
    assert run("--vars", "mode: eager")["customers"] != "UNCHANGED"
    assert rows(mode) == [("eager",)]

    # Another query replaces the old one.
    replaced = run("--vars", "{mode: eager, shipped_only: true}")
    assert (replaced["order_totals"], replaced["customers"]) == ("UNCHANGED", "SELECT")
    assert rows(customers) == [(1, 1, 1250), (2, 1, 9900)]
    plan()
    assert "UNCHANGED" not in run("--full-refresh").values()
    assert rows(customers) == everybody


# dbt starts processes that import this module.
if __name__ == "__main__":
    main()
