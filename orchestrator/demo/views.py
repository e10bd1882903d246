"""The views of the demo: what a dashboard of an airport shows, and two views that gain little."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations_with_replacement

FEATURES = ("dep_delay", "distance", "wind_speed", "precip", "visib")
LABEL = "arr_delay"


@dataclass(frozen=True)
class DemoView:
    """A maintained view, and the materialized view beside it."""

    name: str
    shows: str
    query: str
    plain: str | None = None
    """The query of the materialized view, if PostgreSQL has a faster form of it."""


def _sums() -> str:
    """Return the sums that `idivm.covar` consists of, by PostgreSQL's own aggregates."""
    columns = (*FEATURES, LABEL)
    products = [" * ".join(pair) for pair in combinations_with_replacement(columns, 2)]
    sums = [f"sum({term}) AS s{number}" for number, term in enumerate([*columns, *products])]
    return ",\n       ".join(["count(*) AS n", *sums])


WITH_WEATHER = "FROM flights JOIN weather USING (origin, time_hour)"

VIEWS = (
    DemoView(
        "carriers",
        "each airline: delay, punctuality, fleet",
        """SELECT airline, count(*) AS flights, avg(arr_delay) AS delay,
       count(*) FILTER (WHERE arr_delay <= 15) AS punctual,
       count(DISTINCT tailnum) AS aircraft, count(DISTINCT dest) AS airports
FROM flights JOIN airlines USING (carrier)
GROUP BY airline""",
    ),
    DemoView(
        "skies",
        "delay by weather and airport",
        f"""SELECT origin,
       CASE WHEN visib < 2 THEN 'fog' WHEN precip > 0 THEN 'rain'
            WHEN wind_speed > 20 THEN 'wind' ELSE 'fine' END AS sky,
       count(*) AS flights, avg(dep_delay) AS delay,
       count(DISTINCT tailnum) AS aircraft, count(DISTINCT dest) AS airports
{WITH_WEATHER}
GROUP BY 1, 2""",
    ),
    DemoView(
        "makers",
        "each maker: aircraft, seats, seat miles",
        """SELECT manufacturer, count(DISTINCT tailnum) AS aircraft, count(DISTINCT dest) AS airports,
       count(*) AS flights, sum(seats) AS seats, sum(seats * distance) AS seat_miles
FROM flights JOIN planes USING (tailnum)
GROUP BY manufacturer""",
    ),
    DemoView(
        "days",
        "each day and airport: flights, fleet",
        """SELECT origin, month, day, count(*) AS flights, count(dep_delay) AS departed,
       avg(dep_delay) AS delay, count(DISTINCT tailnum) AS aircraft, count(DISTINCT dest) AS airports
FROM flights
GROUP BY origin, month, day""",
    ),
    DemoView(
        "routes",
        "each route: delay, airlines, aircraft",
        """SELECT origin, airport, count(*) AS flights, avg(arr_delay) AS delay,
       count(DISTINCT carrier) AS airlines, count(DISTINCT tailnum) AS aircraft
FROM flights JOIN airports USING (dest)
GROUP BY origin, airport""",
    ),
    DemoView(
        "legs",
        "where each plane goes next",
        """SELECT a, b, count(*) AS flights
FROM (SELECT lag(dest) OVER (PARTITION BY tailnum ORDER BY n) AS a, dest AS b
      FROM flights WHERE dep_delay IS NOT NULL) AS hops
WHERE a <> b
GROUP BY a, b""",
    ),
    DemoView(
        "tours",
        "triangles: tours over three airports",
        """SELECT count(*) / 3 AS tours
FROM legs AS r JOIN legs AS s ON s.a = r.b JOIN legs AS t ON t.a = s.b AND t.b = r.a""",
    ),
    DemoView(
        "model",
        "a regression of the delay on arrival",
        f"""SELECT idivm.linreg(idivm.covar({", ".join((*FEATURES, LABEL))})) AS weights
{WITH_WEATHER}""",
        plain=f"SELECT {_sums()}\n{WITH_WEATHER}",
    ),
    DemoView(
        "busiest",
        "the five busiest routes",
        """SELECT origin, airport, flights FROM routes
ORDER BY flights DESC, origin, airport LIMIT 5""",
    ),
    DemoView(
        "medians",
        "each airline: median delay",
        """SELECT carrier, percentile_cont(0.5) WITHIN GROUP (ORDER BY arr_delay) AS median
FROM flights
GROUP BY carrier""",
    ),
)

LITTLE_GAIN = {
    "busiest": "reads a view of 220 rows, and PostgreSQL also does that in a few milliseconds",
}
"""The views that gain little, and why."""
