"""A shop: orders in a table, and the total of each customer in a maintained view."""

from decimal import Decimal

from sqlalchemy import func, select
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from idivm.sqlalchemy import MaintainedView


class Base(DeclarativeBase):
    """What all models have in common."""


class Order(Base):
    """An order of a customer."""

    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]
    amount: Mapped[Decimal]


class Total(Base):
    """The total of a customer, up to date at the end of each statement."""

    __table__ = MaintainedView(
        "totals",
        Base.metadata,
        select(Order.customer, func.sum(Order.amount).label("total"))
        .where(Order.customer != "100% test")
        .group_by(Order.customer),
        key=["customer"],
        maintain="eager",
    )
