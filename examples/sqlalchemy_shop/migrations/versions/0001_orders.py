"""Orders, and the total of each customer."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# Alembic adds the operations of idivm at run time, so type checkers do not know them.


def upgrade() -> None:
    """Create the table and the view."""
    op.create_table(
        "orders",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("customer", sa.String(), nullable=False),
        sa.Column("amount", sa.Numeric(), nullable=False),
    )
    op.create_maintained_view(  # type: ignore[attr-defined]
        "totals",
        "SELECT customer, sum(amount) AS total FROM orders WHERE customer <> '100% test' GROUP BY customer",
        maintain="eager",
    )


def downgrade() -> None:
    """Drop the view and the table."""
    op.drop_maintained_view("totals")  # type: ignore[attr-defined]
    op.drop_table("orders")
