"""Turn the dials of views over heavy and light values, which otherwise turn only after many changes and reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from psycopg.sql import SQL, Identifier, Literal

from orchestrator.api import Orchestrator
from orchestrator.catalog.parts import dial_of
from orchestrator.fuzz.case import View
from orchestrator.runtime.installation.names import names_of


def turn(orchestrator: Orchestrator, views: Iterable[View], counts: Counter[str]) -> None:
    """Turn the dials of some views by the number of refreshes, or have the next refresh compare costs; count this."""
    for view in views:
        if dict(view.options).get("strategy") != "skew":
            continue
        known = orchestrator.view(view.name)
        dial = dial_of(known.plan)
        if dial is None:
            continue
        names, number = names_of(known), counts["refreshes"]
        # Every other refresh compares costs itself, as after a second and much work.
        sets = [SQL("{} = '-infinity'").format(Identifier(dial.counted[-1]))]
        if number % 2 == 0:
            epsilon = Literal(number * 5 % 9 / 8)
            sets.append(SQL("{} = {}").format(Identifier(dial.epsilon), epsilon))
        observed = SQL("{0} = {0} || %s").format(Identifier(dial.observed))
        update = SQL("UPDATE {} SET {}")
        orchestrator.connection.execute(update.format(names.state(dial.dial), SQL(", ").join(sets)))
        orchestrator.connection.execute(
            update.format(names.state(dial.observations), observed), ['{"work": 1000000}']
        )
        counts["dials compared" if number % 2 else "dials turned"] += 1
