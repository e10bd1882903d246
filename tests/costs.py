"""Costs as refreshes measure them, set by tests whose outcome depends on them, so that the machine's speed does not."""

from psycopg.sql import SQL, Identifier, Literal


def measured(orc, **costs: float) -> None:
    """Have these costs measured for all views, and no others."""
    orc.connection.execute("DELETE FROM idivm.costs")
    orc.connection.execute(
        SQL("INSERT INTO idivm.costs (view, {}) SELECT id, {} FROM idivm.views").format(
            SQL(", ").join(map(Identifier, costs)), SQL(", ").join(map(Literal, costs.values()))
        )
    )
