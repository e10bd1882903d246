"""A view to create, and how its first content is prepared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from psycopg import Connection

from orchestrator.catalog.take_over import Adoptable
from orchestrator.catalog.unplanned import UnplannedView
from orchestrator.deltascript.names import Names
from orchestrator.deltascript.plan import Initialised, MaintenancePlan
from orchestrator.frontend.options import ViewOptions
from orchestrator.frontend.statements import QualifiedName


@dataclass(frozen=True)
class NewView:
    """A view as it was asked for."""

    name: QualifiedName
    query: str
    columns: tuple[str, ...] | None
    options: ViewOptions
    replace: bool = False
    waiting: UnplannedView | None = None
    """The view that SQL created under this name, whose query the content replaces."""
    adopted: Adoptable | None = None
    """The materialized view in whose place this one comes."""


@dataclass(frozen=True)
class Prepared:
    """States that were computed beforehand, as of a snapshot."""

    snapshot: str | None
    """None if they were not, and are to be computed as usual."""
    initialised: tuple[Initialised, ...]
    finish: Callable[[], None]
    """Fills what is left to fill of the state tables, in the open transaction."""


Initialiser: TypeAlias = Callable[[Connection[Any], MaintenancePlan, Names], Prepared]
"""Makes the state tables and computes what they hold, by other means than the refresh function."""
