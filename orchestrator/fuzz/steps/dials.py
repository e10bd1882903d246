"""Turn the dials of views over heavy and light values, which otherwise turn only after many changes and reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from psycopg.sql import SQL, Identifier

from orchestrator.api import Orchestrator
from orchestrator.catalog.parts import dial_of
from orchestrator.fuzz.case import View
from orchestrator.runtime.installation.names import names_of


def turn(orchestrator: Orchestrator, views: Iterable[View], counts: Counter[str]) -> None:
    """Turn the dials of some views to an epsilon that depends on the number of refreshes, and count them."""
    for view in views:
        if dict(view.options).get("strategy") != "skew":
            continue
        known = orchestrator.view(view.name)
        dial = dial_of(known.plan)
        if dial is not None:
            orchestrator.connection.execute(
                SQL("UPDATE {} SET {} = %s").format(
                    names_of(known).state(dial.dial), Identifier(dial.epsilon)
                ),
                [counts["refreshes"] * 5 % 9 / 8],
            )
            counts["dials turned"] += 1
