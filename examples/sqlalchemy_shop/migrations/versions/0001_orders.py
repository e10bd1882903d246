"""Orders, and the total of each customer."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table and the view."""
    op.create_table(
        "orders",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("customer", sa.String(), nullable=False),
        sa.Column("amount", sa.Numeric(), nullable=False),
    )
    op.create_maintained_view(
        "totals",
        "SELECT customer, sum(amount) AS total FROM orders WHERE customer <> '100% test' GROUP BY customer",
        maintain="eager",
    )


def downgrade() -> None:
    """Drop the view and the table."""
    op.drop_maintained_view("totals")
    op.drop_table("orders")
