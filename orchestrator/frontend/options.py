"""The options of `CREATE VIEW ... WITH (...)`: names, allowed values, defaults."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from fractions import Fraction
from typing import Literal, TypedDict, get_args, get_origin, get_type_hints

from orchestrator.errors import UsageError
from orchestrator.frontend.schedules import OFF, parse_schedule


class ViewOptions(TypedDict, total=False):
    """The options of a view as keywords of `create_view` and `alter_view`; docs/reference/options.md explains them."""

    maintain: Literal["deferred", "eager", "on_commit", "on_read"]
    strategy: Literal["auto", "id", "tuple", "recursive", "viewtree", "skew", "recompute"]
    cache: Literal["auto", "on", "off"]
    minimise: Literal["on", "off"]
    create_indexes: Literal["on", "off"]
    updatable: str
    staleness: str
    schedule: str
    refresh_group: str
    gate: str
    feed: Literal["on", "off"]
    feed_keep: str
    feed_hold: str
    log_limit: str
    on_log_limit: Literal["warn", "refresh", "rebuild"]
    representation: Literal["listing", "factorized"]
    inputs: str
    ranked: str
    relation: Literal["view", "table"]
    variable_order: str
    epsilon: str | float
    partition: Literal["single", "double"]
    static: str
    append_only: str
    factorizable: str
    initialise: Literal["postgresql", "spark"]
    on_drop: Literal["note", "restore"]
    on_error: Literal["continue", "raise"]
    shared: Literal["auto", "off"]
    common_join: Literal["on", "off"]


_ALLOWED: dict[str, tuple[str, ...]] = {
    name: get_args(hint) if get_origin(hint) is Literal else ()
    for name, hint in get_type_hints(ViewOptions).items()
}

MODES = _ALLOWED["maintain"]
"""When a view is updated: by refreshes, after each statement, at each commit, or by refreshes and reads."""

_FREE = (
    *("updatable", "refresh_group", "gate", "inputs", "ranked", "variable_order"),
    *("epsilon", "static", "append_only", "factorizable"),
)
"""Options whose values are only checked when the view is planned, for example names of tables."""

_UNITS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "day": 86400.0, "days": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?) ?(ms|s|min|h|days?)")
_DURATIONS = ("staleness", "feed_keep", "feed_hold")
_SIZE = re.compile(r"\d+ ?(kb|mb|gb|tb)", re.IGNORECASE)


@dataclass(frozen=True)
class ParsedOptions:
    """How the user wants a view to be maintained."""

    maintain: str = "deferred"
    strategy: str = "auto"
    cache: str = "auto"
    minimise: str = "on"
    """Whether programs avoid lookups of rows that a diff already has; `off` shows what that
    saves."""
    create_indexes: str = "off"
    """Whether indexes are created on tables if the program needs them and they are missing."""
    updatable: str | None = None
    """The tables that change; a change of any other table recomputes the view."""
    staleness: str | None = None
    """The staleness that `idivm serve` allows for a deferred view, for example 500ms."""
    schedule: str | None = None
    """When the view is refreshed, for example 10 s or 0 3 * * *."""
    refresh_group: str | None = None
    """The views of the same owner with which it is refreshed together, or not at all."""
    gate: str | None = None
    """The tables, for example orders, customers, whose complete batches its refreshes wait for."""
    feed: str = "off"
    """Whether each refresh appends its changes of the content to a feed."""
    feed_keep: str | None = None
    """How long a feed keeps changes for any reader, for example 1 day."""
    feed_hold: str | None = None
    """How long a feed keeps changes for registered consumers that have not read them."""
    log_limit: str | None = None
    """The largest size of the change logs that are kept for the view, for example 500MB."""
    on_log_limit: str | None = None
    """The action if the limit is exceeded: a warning, a refresh together with other views, or a
    rebuild."""
    representation: str = "listing"
    """Whether a table holds the rows, or several views of a view tree whose join they are."""
    inputs: str | None = None
    """The columns whose values readers give, for example user_id. The rows are factorized for such lookups."""
    ranked: str | None = None
    """The order in which readers get the rows, for example price + fee DESC. The rows are factorized for it."""
    relation: str = "view"
    """Whether users read the rows in a view over the content, or in a table of their own, on which they can put
    whatever PostgreSQL allows for tables."""
    variable_order: str | None = None
    """The variable order of a view tree, for example a - { b, c - d }."""
    epsilon: str = "auto"
    """For the strategy `skew`: values with at least N^epsilon rows are heavy. Tables may have
    separate values, as in `r: 0, s: 1`. `auto` is 0.5, or what makes changes of the query cheapest."""
    partition: str = "single"
    """For triangles: whether all tables are partitioned by two columns, or only where necessary."""
    static: str | None = None
    """Tables that rarely change, for example item, census. A change of such a table recomputes the
    view."""
    append_only: str | None = None
    """Tables to which rows are only added. A change or a deletion of their rows recomputes the view."""
    factorizable: str | None = None
    """Matrices that change by whole rows or outer products; a view tree stores such changes as
    factors."""

    initialise: str = "postgresql"
    """Where the first content is computed, as far as the result is identical."""
    on_drop: str | None = None
    """What happens if DROP ... CASCADE drops the view: the next command records it, or also
    recreates the view as soon as its tables exist again."""

    on_error: str = "continue"
    """What happens to a write that an eager or on_commit view cannot apply: the write succeeds, and
    the view keeps its content and reports that; or the write fails."""
    shared: str = "auto"
    """Whether the writers of an eager view share it if the plan allows this: none of them waits for another, and reads
    merge the changes that are not in the content yet."""
    common_join: str = "off"
    """Whether the view reads the join of its tables from a maintained view that stores it once, for all views of the
    owner with this option and the same join."""

    @property
    def may_be_shared(self) -> bool:
        """Whether writers may share an eager view, as nothing asks for a content that each of them writes."""
        if self.maintain != "eager" or self.shared != "auto":
            return False
        writes = self.feed == "on" or self.relation == "table" or self.on_error == "raise"
        return not (writes or self.append_only or self.is_factorized)

    @property
    def is_factorized(self) -> bool:
        """Whether no table holds the rows, but views whose join they are."""
        return self.representation == "factorized" or bool(self.inputs or self.ranked)

    def to_json(self) -> dict[str, str]:
        """Return the options as the catalog stores them."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def is_option(name: str) -> bool:
    """Return whether an option with this name belongs to idivm, and not to PostgreSQL."""
    return name in _ALLOWED


def seconds(duration: str) -> float:
    """Return the length of a duration.

    >>> seconds("500ms"), seconds("2 min")
    (0.5, 120.0)
    """
    match = _DURATION.fullmatch(duration.strip())
    if match is None or not float(match[1]):
        raise UsageError(
            f"{duration!r} is not a duration; write a number with ms, s, min, h or days, as in 500ms."
        )
    return float(match[1]) * _UNITS[match[2]]


def fraction(text: str) -> Fraction:
    """Return a number from 0 to 1.

    >>> fraction("0.5") == fraction("1/2")
    True
    """
    try:
        number = Fraction(text.strip())
    except (ValueError, ZeroDivisionError):
        number = Fraction(-1)
    if not 0 <= number <= 1:
        raise UsageError(f"{text!r} is not a number from 0 to 1, as epsilon = 0.5 or 1/3 is.")
    return number


def epsilons(text: str) -> tuple[Fraction, tuple[tuple[str, Fraction], ...]]:
    """Return the default epsilon and the epsilons of single tables; `auto` is 1/2.

    >>> epsilons("1/4")
    (Fraction(1, 4), ())
    >>> epsilons("r: 0, s: 0.75")
    (Fraction(1, 2), (('r', Fraction(0, 1)), ('s', Fraction(3, 4))))
    """
    if ":" not in text:
        return fraction("1/2" if is_open(text) else text), ()
    own: dict[str, Fraction] = {}
    for item in text.split(","):
        name, colon, number = (part.strip() for part in item.rpartition(":"))
        if not name or not colon:
            raise UsageError(
                f"{item.strip()!r} gives no table its epsilon; write epsilon = 'r: 0, s: 0.75'."
            )
        if name in own:
            raise UsageError(f"The epsilon of {name} is given twice.")
        own[name] = fraction(number)
    return Fraction(1, 2), tuple(own.items())


def is_open(epsilon: str) -> bool:
    """Return whether the plan may choose epsilon."""
    return epsilon.strip().lower() == "auto"


def parse_options(given: Iterable[tuple[str, object]]) -> ParsedOptions:
    """Return the options given by name, after checks.

    >>> parse_options([("strategy", "recompute")]) == ParsedOptions(strategy="recompute")
    True
    >>> parse_options([("stratgy", "recompute")])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    orchestrator.errors.UsageError: There is no option 'stratgy'. Did you mean strategy? A maintained view takes ...
    """
    chosen: dict[str, str] = {}
    for name, value in given:
        if name not in _ALLOWED:
            known = ", ".join(_ALLOWED)
            near = get_close_matches(name, _ALLOWED, 1, 0.7)
            meant = f"Did you mean {near[0]}? A" if near else "A"
            raise UsageError(f"There is no option {name!r}. {meant} maintained view takes {known}.")
        if name in chosen:
            raise UsageError(f"The option {name!r} is given twice.")
        text = str(value) if name in _FREE else str(value).lower()
        if name in _DURATIONS:
            seconds(text)
        elif name == "schedule":
            parse_schedule(text)
        elif name == "epsilon":
            epsilons(text)
        elif name == "log_limit":
            if not _SIZE.fullmatch(text.strip()):
                raise UsageError(
                    f"{text!r} is not a size; write a whole number with kB, MB, GB or TB, as in 500MB."
                )
        elif name not in _FREE and text not in _ALLOWED[name]:
            allowed = " or ".join(_ALLOWED[name])
            raise UsageError(f"{name} = {value} is not available; it can be {allowed}.")
        chosen[name] = text
    options = ParsedOptions(**chosen)
    _refuse_waiting(options)
    if options.maintain == "on_read":
        for is_given, option, why in (
            (
                options.feed == "on",
                "feed = on",
                "show changes before a refresh adds them to the feed",
            ),
            (
                options.relation == "table",
                "relation = table",
                "show changes that no refresh has written to the table yet",
            ),
            (options.append_only, "append_only", "show pending updates and deletes too"),
            (options.inputs, "inputs", "merge pending changes with rows that are stored"),
            (options.ranked, "ranked", "merge pending changes with rows that are stored"),
        ):
            if is_given:
                raise UsageError(
                    f"{option} is not available with maintain = on_read, whose reads {why}; choose another mode."
                )
    return options


def _refuse_waiting(options: ParsedOptions) -> None:
    """Refuse options about the times of refreshes for a view that does not wait for refreshes."""
    mode = options.maintain
    given = [
        name for name in ("refresh_group", "gate") if getattr(options, name) and mode != "deferred"
    ]
    if options.schedule not in (None, OFF) and mode in ("eager", "on_commit"):
        given.append("schedule")
    if given:
        raise UsageError(
            f"{given[0]} is not available with maintain = {mode}, whose content does not wait for refreshes; leave"
            " it out, or choose maintain = deferred."
        )
