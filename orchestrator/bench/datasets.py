"""The data whose covariances are measured (papers/fivm.txt, section 9.1), and what the paper says of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from psycopg import sql

from orchestrator.api import Orchestrator
from orchestrator.bench.contenders import statement
from orchestrator.bench.measure import Execution
from orchestrator.bench.workload import Workload


@dataclass(frozen=True)
class Dataset:
    """A workload whose join has features: `from.sql` joins its tables, `change.sql` adds to the largest."""

    workload: Workload
    tables: tuple[str, ...]
    joined: frozenset[str]
    """The columns by which the tables are joined, which are no features."""
    label: str
    """The feature that a model predicts."""
    categorical: frozenset[str] = frozenset()
    """Features that stand for categories."""
    paper: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """How many times more throughput the paper's view tree has than each side (figures 20 and 22)."""

    @property
    def source(self) -> str:
        """The FROM clause."""
        return self.workload.text("from")

    def features(self, orchestrator: Orchestrator) -> list[str]:
        """Every column that is no join column."""
        found: list[str] = []
        for table in self.tables:
            query = sql.SQL("SELECT * FROM {} LIMIT 0").format(sql.Identifier(table))
            described = orchestrator.connection.execute(query).description or ()
            found += [column.name for column in described]
        return [name for name in found if name not in self.joined]

    def insert(self, orchestrator: Orchestrator, first: int, size: int) -> Execution:
        """Adds rows to the largest table."""
        text = sql.SQL(self.workload.text("change")).format(
            first=sql.Literal(first), last=sql.Literal(first + size - 1)
        )
        return statement(orchestrator.connection, text)()


CATEGORIES = "viewtree, categories"
RESUMED, SCRATCH, CLOSED = "training resumed", "training from scratch", "closed form"

RETAILER = Dataset(
    Workload("retailer"),
    ("inventory", "item", "weather", "location", "census"),
    frozenset({"locn", "dateid", "ksn", "zip"}),
    "units",
    paper={"tuple": 133, "SDBT-streams": 420, RESUMED: 1.22, SCRATCH: 100},
)

FAVORITA = Dataset(
    Workload("favorita"),
    ("sales", "stores", "items", "transactions", "holidays", "oil"),
    frozenset({"date", "store", "item"}),
    "unit_sales",
    frozenset(
        {
            *("on_promotion", "city", "state", "store_type", "store_cluster", "family", "class"),
            *("perishable", "holiday", "locale", "locale_name", "transferred"),
        }
    ),
    {"tuple": 7.8, "SDBT-streams": 43, CATEGORIES: 4, RESUMED: 1.02, SCRATCH: 1.72},
)
