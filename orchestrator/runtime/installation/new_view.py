"""A view to create, and the preparation of its first content."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from psycopg import Connection

from orchestrator.catalog.take_over import Adoptable
from orchestrator.catalog.unplanned import UnplannedView
from orchestrator.deltascript.names import Names
from orchestrator.deltascript.plan import Initialised, MaintenancePlan
from orchestrator.frontend.options import ParsedOptions
from orchestrator.frontend.statements import QualifiedName


@dataclass(frozen=True)
class NewView:
    """A requested view."""

    name: QualifiedName
    query: str
    columns: tuple[str, ...] | None
    options: ParsedOptions
    replace: bool = False
    waiting: UnplannedView | None = None
    """The view that SQL created under this name, whose query the content replaces."""
    adopted: Adoptable | None = None
    """The materialized view that this view replaces."""


@dataclass(frozen=True)
class Prepared:
    """States that were computed beforehand, as of a snapshot."""

    snapshot: str | None
    """None if the states were not computed beforehand, so that the usual way computes them."""
    initialised: tuple[Initialised, ...]
    finish: Callable[[], None]
    """Fills the rest of the state tables, in the open transaction."""


Initialiser: TypeAlias = Callable[[Connection[Any], MaintenancePlan, Names], Prepared]
"""Creates the state tables and computes their content by other means than the refresh function."""
