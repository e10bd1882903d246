"""The running example of papers/idivm.txt (figures 1 and 5), for documentation and tests."""

from __future__ import annotations

from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.group import Aggregate, Grouping
from orchestrator.algebra.operators.join import Join
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.operators.scan import Scan, ScanColumn, Table
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.plan import Plan
from orchestrator.algebra.scalar import Scalar


def _integer_column(symbol: str) -> Column:
    return Column(symbol, "integer", "integer_ops", exact=True)


def _text_column(symbol: str) -> Column:
    return Column(symbol, "text", "text_ops", exact=True)


PID, DID, PRICE = (
    _integer_column("pid"),
    _integer_column("did"),
    Column("price", "numeric", "numeric_ops 1700"),
)
PART, DEVICE, CATEGORY = (
    _integer_column("part"),
    _integer_column("device"),
    _text_column("category"),
)


def _scan(oid: int, name: str, keys: int, *columns: tuple[Column, str]) -> Scan:
    key = tuple(range(1, keys + 1))
    table = Table(oid, "public", name, (key,), frozenset(key))
    outputs = [ScanColumn(column, n, called) for n, (column, called) in enumerate(columns, 1)]
    return Scan(table, name, tuple(outputs))


PARTS = _scan(1, "parts", 1, (PID, "pid"), (PRICE, "price"))
DEVICES_PARTS = _scan(2, "devices_parts", 2, (DEVICE, "did"), (PART, "pid"))
DEVICES = _scan(3, "devices", 1, (DID, "did"), (CATEGORY, "category"))


def joined() -> Operator:
    """Return parts ⋈ devices_parts ⋈ σ category = 'phone' devices."""
    phones = Selection(DEVICES, Scalar.read("category = 'phone'", [CATEGORY]))
    parts = Join(PARTS, DEVICES_PARTS, Scalar.read("part = pid", [PART, PID]))
    return Join(parts, phones, Scalar.read("device = did", [DEVICE, DID]))


def running_example(*names: str) -> Plan:
    """Return the view V of figure 1b with some of its columns, by default did, pid and price.

    >>> running_example().names
    ('did', 'pid', 'price')
    """
    known = {column.symbol: column for column in (DID, PID, PRICE)}
    columns = tuple(known[name] for name in names or ("did", "pid", "price"))
    items = tuple(Item.kept(column) for column in columns)
    return Plan(Projection(joined(), items), tuple(c.symbol for c in columns), columns)


def extended_example() -> Plan:
    """Return the view V' of figure 5b: the cost of the parts of each phone."""
    cost = Aggregate(Column("cost", "numeric"), Scalar.read("sum(price)", [PRICE]))
    grouped = Grouping(joined(), (DID,), (cost,))
    return Plan(grouped, ("did", "cost"), (DID, cost.column))
