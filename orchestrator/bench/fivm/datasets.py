"""The data sets of the covariance benchmarks (papers/fivm.txt, section 9.1) and their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import MappingProxyType

from psycopg import sql

from orchestrator.api import Orchestrator
from orchestrator.bench.contenders import statement
from orchestrator.bench.measure import Execution
from orchestrator.bench.workload import Workload
from orchestrator.demo import flights


@dataclass(frozen=True)
class Dataset:
    """A workload whose join has features; `from.sql` joins its tables."""

    workload: Workload
    tables: tuple[str, ...]
    joined: frozenset[str]
    """The join columns, which are not features."""
    label: str
    """The feature that a model predicts."""
    categorical: frozenset[str] = frozenset()
    """The categorical features."""
    chosen: tuple[str, ...] = ()
    """The features, unless all columns except the join columns are features."""
    texts: frozenset[str] = frozenset()
    """The categorical features with text values."""
    change: str = "change"
    """The SQL file that inserts into the largest table."""
    sized: Callable[[int], Mapping[str, int]] = lambda rows: {"rows": rows}
    """Returns the settings for a join of about this many rows."""
    paper: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """The ratio of the paper's view tree's throughput to that of a side (figures 20 and 22)."""

    @property
    def source(self) -> str:
        """The FROM clause of the join."""
        return self.workload.text("from")

    def features(self, orchestrator: Orchestrator) -> list[str]:
        """Return the features that are numbers or are encoded as numbers."""
        if self.chosen:
            return [name for name in self.chosen if name not in self.texts]
        columns: list[str] = []
        for table in self.tables:
            query = sql.SQL("SELECT * FROM {} LIMIT 0").format(sql.Identifier(table))
            described = orchestrator.connection.execute(query).description or ()
            columns += [column.name for column in described]
        return [name for name in columns if name not in self.joined]

    def tables_of(
        self, orchestrator: Orchestrator, rows: int, seed: int, *, skewed: bool = False
    ) -> AbstractContextManager[None]:
        """Return the context in which the tables exist, for a join of about `rows` rows.

        With `skewed`, some values of the join columns are frequent, as `load.sql` describes.
        """
        settings = {**self.sized(rows), "seed": seed, "skew": int(skewed)}
        return self.workload.tables(orchestrator, settings)

    def insert(self, orchestrator: Orchestrator, first: int, size: int) -> Execution:
        """Insert rows into the largest table."""
        text = sql.SQL(self.workload.text(self.change)).format(
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
    paper={"1-IVM": 133, "SDBT-streams": 420, RESUMED: 1.22, SCRATCH: 100},
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
    paper={"1-IVM": 7.8, "SDBT-streams": 43, CATEGORIES: 4, RESUMED: 1.02, SCRATCH: 1.72},
)

HOUSING = Dataset(
    Workload("housing"),
    ("house", "shop", "restaurant", "institution", "demographics", "transport"),
    frozenset({"postcode", "house_id", "shop_id", "restaurant_id", "institution_id"}),
    "price",
    change="arrivals",
    # Each postcode has two houses, two shops and two restaurants.
    sized=lambda rows: {"postcodes": max(rows // 8, 1), "scale": 2},
    paper={"1-IVM": 16_500, "SDBT-streams": 12.1},
)


def _fill_flights(orchestrator: Orchestrator) -> None:
    flights.fill(orchestrator.connection, flights.find())


FLIGHTS = Dataset(
    Workload("flights", _fill_flights),
    ("flights", "planes", "weather", "airports", "airlines"),
    frozenset({"tailnum", "time_hour"}),
    "arr_delay",
    frozenset({"origin", "carrier", "month"}),
    chosen=(
        *("arr_delay", "dep_delay", "air_time", "distance", "month", "hour", "plane_year", "seats"),
        *("engines", "temp", "dewp", "humid", "wind_speed", "precip", "pressure", "visib"),
        *("lat", "lon", "alt", "origin", "carrier"),
    ),
    texts=frozenset({"origin", "carrier"}),
)
