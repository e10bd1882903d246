"""The tour behind `./run demo`: a small shop, its views, and what happens when its data changes."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from orchestrator.api import Orchestrator, connect
from orchestrator.errors import IdivmError

SCHEMA = """
CREATE TABLE customers (id int PRIMARY KEY, name text NOT NULL, country text NOT NULL);
CREATE TABLE products (id int PRIMARY KEY, name text NOT NULL, price numeric(8,2) NOT NULL);
CREATE TABLE orders (id int PRIMARY KEY, customer int NOT NULL REFERENCES customers, day date NOT NULL);
CREATE TABLE lines (order_id int REFERENCES orders, product int REFERENCES products,
                    quantity int NOT NULL, PRIMARY KEY (order_id, product));
"""

FILL = """
INSERT INTO customers
SELECT i, 'Customer ' || i, (ARRAY['Austria', 'Brazil', 'Canada', 'Denmark', 'Egypt', 'France'])[1 + i % 6]
FROM generate_series(1, 2000) AS i;
INSERT INTO products SELECT i, 'Product ' || i, 5 + i % 90 + 0.99 FROM generate_series(1, 500) AS i;
INSERT INTO orders SELECT i, 1 + (i * 7) % 2000, date '2026-01-01' + i % 90
FROM generate_series(1, 60000) AS i;
INSERT INTO lines SELECT i, 1 + (i * 13 + n * 101) % 500, 1 + (i + n) % 4
FROM generate_series(1, 60000) AS i, generate_series(1, 3) AS n;
ANALYZE;
"""

REVENUE_QUERY = """SELECT c.country, count(DISTINCT o.id) AS orders, sum(l.quantity * p.price) AS revenue
FROM customers c
JOIN orders o ON o.customer = c.id
JOIN lines l ON l.order_id = o.id
JOIN products p ON p.id = l.product
GROUP BY c.country"""

BEST_QUERY = """SELECT country, revenue FROM revenue
WHERE revenue > (SELECT avg(revenue) FROM revenue)"""


class Tour:
    """Prints each step with what it runs, what came of it and how long it took."""

    def __init__(self, orchestrator: Orchestrator) -> None:
        """Takes the connection to tour on."""
        self.orchestrator = orchestrator
        self.console = Console(highlight=False, soft_wrap=True)
        self.step = 0

    def say(self, title: str, text: str = "") -> None:
        """Begins a step."""
        self.step += 1
        self.console.print(f"\n[bold]{self.step}. {title}[/bold]")
        if text:
            self.console.print(text)

    def run(self, sql: str, show: bool = True) -> float:
        """Runs SQL, shown as typed, and gives the seconds it took."""
        if show:
            self.console.print(Text(_indented(sql), style="cyan"))
        started = time.perf_counter()
        self.orchestrator.execute(sql)
        return time.perf_counter() - started

    def table(self, sql: str) -> list[tuple[Any, ...]]:
        """Runs a query and prints its rows."""
        self.console.print(Text(_indented(sql), style="cyan"))
        result = self.orchestrator.execute(sql)[0]
        self._print(result.columns, result.rows)
        return result.rows

    def changes(self, before: Sequence[tuple[Any, ...]], after: Sequence[tuple[Any, ...]]) -> None:
        """Prints the rows that went and came."""
        for sign, rows, other, style in (
            ("-", before, after, "red"),
            ("+", after, before, "green"),
        ):
            for row in rows:
                if row not in other:
                    shown = " | ".join(str(value) for value in row)
                    self.console.print(Text(f"    {sign} {shown}", style=style))

    def _print(self, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
        table = Table(box=None, padding=(0, 3, 0, 1))
        for column in columns:
            table.add_column(column)
        for row in rows:
            table.add_row(
                *(f"{value:,}" if isinstance(value, int) else str(value) for value in row)
            )
        self.console.print(table)


def tour(orchestrator: Orchestrator) -> None:
    """The whole tour, on an empty database."""
    guide = Tour(orchestrator)
    connection = orchestrator.connection

    guide.say("A shop: four ordinary tables", "  60,000 orders with 180,000 lines.")
    guide.run(SCHEMA.strip())
    guide.run(FILL, show=False)

    guide.say(
        "A view that stays up to date",
        "  Ordinary SQL. idivm takes CREATE VIEW and keeps its content.",
    )
    seconds = guide.run(f"CREATE VIEW revenue AS\n{REVENUE_QUERY}")
    guide.console.print(f"  created and filled in {seconds * 1000:,.0f} ms")
    guide.table("SELECT * FROM revenue ORDER BY country")

    guide.say("A view over that view", "  Here countries with more revenue than the average.")
    guide.run(f"CREATE VIEW best AS\n{BEST_QUERY}")

    guide.say(
        "Change the data", "  Any client may do this, with plain SQL; nobody waits for the views."
    )
    before = {name: _rows(orchestrator, name) for name in ("revenue", "best")}
    guide.run(
        "UPDATE products SET price = price * 2 WHERE id <= 5;\n"
        "INSERT INTO orders VALUES (1000001, 6, '2026-04-01');\n"
        "INSERT INTO lines VALUES (1000001, 499, 100000);"
    )
    pending = {view.name: view.pending for view in orchestrator.views()}
    guide.console.print(f"  changes waiting in the log of 'revenue': {pending['revenue']}")

    guide.say("Refresh", "  Both views, in one snapshot, the lower one first.")
    for report in orchestrator.refresh():
        guide.console.print(
            f"  {report.view}: {report.changed} stored rows changed in {report.seconds * 1000:,.1f} ms"
        )
    for name, rows in before.items():
        guide.console.print(f"  {name}:")
        guide.changes(rows, _rows(orchestrator, name))

    guide.say("Against a materialized view", "  The same query, kept by PostgreSQL's own means.")
    connection.execute(f"CREATE MATERIALIZED VIEW plain AS {REVENUE_QUERY}")
    plain = _timed(orchestrator, "REFRESH MATERIALIZED VIEW plain")
    changed = guide.run("UPDATE lines SET quantity = quantity + 1 WHERE order_id = 17", show=False)
    ours = _timed(orchestrator, "SELECT idivm.refresh('revenue')")
    idle = min(_timed(orchestrator, "SELECT idivm.refresh('revenue')") for _ in range(5))
    guide.console.print(f"  the change itself, with capture       {changed * 1000:9,.1f} ms")
    guide.console.print(f"  REFRESH MATERIALIZED VIEW             {plain * 1000:9,.1f} ms, always")
    guide.console.print(f"  idivm, after a change                 {ours * 1000:9,.1f} ms")
    guide.console.print(f"  idivm, when nothing changed           {idle * 1000:9,.1f} ms")

    guide.say("Is it right?", "  check compares each view with its query's own answer.")
    for check in orchestrator.check():
        guide.console.print(f"  {check.view}: {'equal' if check.equal else 'DIFFERENT'}")

    guide.say("How is it kept?", "  explain shows the plan and the reasons.")
    explanation = orchestrator.explain("revenue")
    guide.console.print(Text(_indented(explanation.plan)))
    guide.console.print(Text(_indented(explanation.why)))

    guide.console.print("\nThat was the tour. Your own database: ./run idivm --help")


def _rows(orchestrator: Orchestrator, view: str) -> list[tuple[Any, ...]]:
    rows = orchestrator.execute(f"TABLE {view}")[0].rows
    return sorted(rows, key=str)


def _timed(orchestrator: Orchestrator, sql: str) -> float:
    started = time.perf_counter()
    orchestrator.connection.execute(sql.encode())
    return time.perf_counter() - started


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


def main() -> int:
    """Runs the tour on a server of its own, which is gone afterwards."""
    from orchestrator.server.embedded import EmbeddedServer

    print("idivm: a tour of about a minute, on a PostgreSQL server of its own.")
    with tempfile.TemporaryDirectory(prefix="idivm-demo-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)  # as root the server runs as another user, who must get in
        server = EmbeddedServer(Path(folder) / "home")
        try:
            with connect(server.up().dsn) as orchestrator:
                tour(orchestrator)
        except IdivmError as error:
            print(f"idivm: {error}", file=sys.stderr)
            return error.exit_status
        finally:
            server.down()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
