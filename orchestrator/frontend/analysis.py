"""The analysis of a definition view, as a value that needs no connection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from psycopg import Connection

from orchestrator.algebra import Plan, Unsupported
from orchestrator.algebra.dependencies import has_key
from orchestrator.frontend import catalog
from orchestrator.frontend.facts import (
    FunctionUse,
    Key,
    OutputColumn,
    Read,
    Relation,
    RelationColumn,
    StoredView,
    UsedRelation,
    Volatility,
)
from orchestrator.frontend.translate import QueryFacts, build


@dataclass(frozen=True)
class SourceUse:
    """A relation whose changes can be captured, and the parts of it that the view reads."""

    relation: Relation
    columns: tuple[RelationColumn, ...]
    """The columns that the view reads, in the order of the relation."""
    key: Key | None
    """The key by which the relation is captured. If it is not captured yet, this is the primary
    key, or else the narrowest unique key without NULLs."""
    whole_row: bool = False
    """Whether the view reads a row as a single value."""
    generated: tuple[RelationColumn, ...] = ()
    """The generated columns that the view reads. Virtual ones are not captured, because plans
    contain their expressions."""

    @property
    def captured(self) -> tuple[RelationColumn, ...]:
        """The columns to capture: the columns that the view reads and the key."""
        attnums = {column.attnum for column in self.columns}
        attnums |= set(self.key.columns) if self.key else set()
        return tuple(column for column in self.relation.columns if column.attnum in attnums)

    @property
    def logged(self) -> tuple[RelationColumn, ...]:
        """The captured columns, including those that other views read."""
        attnums = {column.attnum for column in self.captured} | self.relation.captured_columns
        return tuple(column for column in self.relation.columns if column.attnum in attnums)


@dataclass(frozen=True)
class Analysis:
    """The facts about a definition view."""

    definition: int
    text: str
    """The canonical text: with resolved names, expanded `*` and explicit casts."""
    columns: tuple[OutputColumn, ...]
    sources: tuple[SourceUse, ...]
    inlined: tuple[Relation, ...]
    """Plain views that are expanded in the plan."""
    uncaptured: tuple[Relation, ...]
    """Relations that change without firing triggers: foreign tables, materialized views,
    catalogs."""
    crowded: frozenset[int]
    """The oids of those uncaptured tables whose changes do not fit into a row of a log."""
    temporary: tuple[Relation, ...]
    volatile: tuple[str, ...]
    """Functions that may return another result at every call."""
    time_dependent: tuple[str, ...]
    """Functions that may return another result in the next statement although no table changed:
    `now()`."""
    settings: tuple[str, ...]
    """Functions that depend only on settings such as the time zone. A user-defined function may
    depend on them even if it is declared immutable."""
    plan: Plan | None
    unsupported: tuple[Unsupported, ...] = ()
    """The reasons if there is no plan."""
    row_types: frozenset[int] = frozenset()
    """The composite types, as relations, whose rows functions return."""
    reads: tuple[Read, ...] = ()
    """The relations and columns that the definition and each plain view below it read."""
    types: frozenset[int] = frozenset()
    """The types of the columns that a program reads."""

    @property
    def fixed(self) -> tuple[int, ...]:
        """The relations, by oid, on whose definitions the answer depends, and not only on their
        rows.
        """
        whole = {use.relation.oid for use in self.sources if use.whole_row} | self.row_types
        return (*(relation.oid for relation in self.inlined), *sorted(whole))

    @property
    def distinct(self) -> bool:
        """Whether the view is known to have no equal rows."""
        if self.plan is None:
            return False
        root = self.plan.root
        return has_key(root.keys, root.dependencies, self.plan.columns)


MOST_CAPTURED = (1600 - 3) // 2
"""The largest number of captured columns of a table. A change has the old and the new value of each, and
a table of PostgreSQL has at most 1,600 columns."""

_ROW = 8160
"""The maximal size of a row in bytes; a row must fit on a page."""

_HEADER = 24 + 24
"""The bytes of a row header, and of the fields of a change other than images."""

_INLINE = 24
"""The bytes that a value of variable length always takes in its row."""


def fits_log_row(columns: Sequence[RelationColumn]) -> bool:
    """Return whether a change with these columns fits into a row of a log, whatever the values are.

    A write whose change did not fit would fail.
    """
    size = _HEADER + len(columns) // 4 + 1
    aligned = 8
    for column in (*columns, *columns):
        if column.length < 0:
            size, aligned = size + _INLINE, 1
            continue
        size += max(column.alignment - aligned, 0) + column.length
        aligned = min(max(column.alignment, aligned), column.length & -column.length)
    return len(columns) <= MOST_CAPTURED and size <= _ROW


def analyse(connection: Connection[Any], definition: int) -> Analysis:
    """Return all facts about a definition view, given by its oid, that planning needs. Writes
    nothing.
    """
    views, relations = _collect(connection, definition)
    reads = _reads(views, relations)
    views, relations = _as_stored(views, relations)
    own = views[definition]
    used = _merged(use for view in views.values() for use in view.uses)
    called = [
        *(f for view in views.values() for f in view.functions),
        *(f for oid in used for f in relations[oid].functions),
    ]
    functions = tuple(dict.fromkeys(called))
    # A composite type counts as used if one of its fields is, but it holds no rows.
    leaves = [relations[oid] for oid in used if oid not in views and relations[oid].relkind != "c"]
    temporary = tuple(r for r in leaves if r.persistence == "t")
    persistent = [relation for relation in leaves if relation.persistence != "t"]
    sources = [
        _source(relation, used[relation.oid]) for relation in persistent if _captures(relation)
    ]
    captured = tuple(source for source in sources if fits_log_row(source.logged))
    followed = {source.relation.oid for source in captured}
    uncaptured = tuple(relation for relation in persistent if relation.oid not in followed)
    volatile = _names(functions, Volatility.VOLATILE)
    plan, unsupported = _plan(own, views, relations, functions, volatile)
    return Analysis(
        definition=definition,
        text=own.text,
        columns=own.columns,
        sources=captured,
        inlined=tuple(relations[oid] for oid in views if oid != definition),
        uncaptured=uncaptured,
        crowded=frozenset(use.relation.oid for use in sources) - followed,
        temporary=temporary,
        volatile=volatile,
        time_dependent=(
            *_names(functions, Volatility.TIME_DEPENDENT),
            *_system_columns(used, relations),
        ),
        settings=(
            *_names(functions, Volatility.SETTINGS),
            *_names([use for use in functions if use.schema != "pg_catalog"], Volatility.IMMUTABLE),
        ),
        plan=plan,
        unsupported=unsupported,
        row_types=frozenset(oid for use in functions for oid in use.row_types),
        reads=reads,
        types=frozenset(
            column.type_oid
            for columns in (
                *(source.captured for source in captured),
                *(relation.columns for relation in uncaptured),
            )
            for column in columns
        ),
    )


def _reads(views: Mapping[int, StoredView], relations: Mapping[int, Relation]) -> tuple[Read, ...]:
    """Return the columns for which PostgreSQL requires the SELECT right, for each view.

    If a row is read as a single value, these are all columns.
    """
    return tuple(
        Read(
            view.oid,
            use.oid,
            tuple(column.attnum for column in relations[use.oid].columns)
            if use.whole_row
            else tuple(sorted(use.columns)),
        )
        for view in views.values()
        for use in view.uses
        if relations[use.oid].relkind != "c"
    )


def _collect(
    connection: Connection[Any], definition: int
) -> tuple[dict[int, StoredView], dict[int, Relation]]:
    """Return the definition view with the plain views below it, and all relations that they use."""
    views: dict[int, StoredView] = {}
    relations: dict[int, Relation] = {}
    pending = [definition]
    while pending:
        batch = [catalog.stored_view(connection, oid) for oid in pending]
        views.update((view.oid, view) for view in batch)
        new = {use.oid for view in batch for use in view.uses} - relations.keys()
        relations.update(catalog.relations(connection, new))
        pending = [
            oid
            for oid in sorted(new)
            if relations[oid].relkind == "v"
            and relations[oid].maintained is None
            and not relations[oid].system
        ]
    return views, relations


def _as_stored(
    views: Mapping[int, StoredView], relations: Mapping[int, Relation]
) -> tuple[dict[int, StoredView], dict[int, Relation]]:
    """Number the columns of maintained views that users read as tables as their contents do.

    Such a table may have its columns in another order than the query, because columns that a new query adds
    come last.
    """
    numbers = {
        oid: {attnum: place for place, attnum in enumerate(relation.query_order, 1)}
        for oid, relation in relations.items()
        if relation.query_order
    }
    if not numbers:
        return dict(views), dict(relations)
    renumbered = {
        oid: replace(
            relations[oid],
            columns=tuple(
                sorted(
                    (
                        replace(column, attnum=places[column.attnum], not_null=False)
                        for column in relations[oid].columns
                        if column.attnum in places
                    ),
                    key=lambda column: column.attnum,
                )
            ),
        )
        for oid, places in numbers.items()
    }
    uses = {
        oid: tuple(
            replace(
                use,
                columns=frozenset(
                    numbers[use.oid][n] for n in use.columns if n in numbers[use.oid]
                ),
            )
            if use.oid in numbers
            else use
            for use in view.uses
        )
        for oid, view in views.items()
    }
    return (
        {oid: replace(view, uses=uses[oid]) for oid, view in views.items()},
        {**relations, **renumbered},
    )


def _merged(uses: Iterable[UsedRelation]) -> dict[int, UsedRelation]:
    merged: dict[int, UsedRelation] = {}
    for use in uses:
        earlier = merged.get(use.oid, use)
        merged[use.oid] = UsedRelation(
            oid=use.oid,
            columns=earlier.columns | use.columns,
            whole_row=earlier.whole_row or use.whole_row,
            system_columns=earlier.system_columns | use.system_columns,
        )
    return merged


def _captures(relation: Relation) -> bool:
    """Return whether triggers can report the relation's changes; a maintained view reports its own.

    The triggers of a partition or inheritance child do not fire when its rows change through the
    parent.
    """
    if relation.maintained is not None:
        return not relation.computed
    return relation.relkind in ("r", "p") and not relation.system and not relation.parents


def _source(relation: Relation, use: UsedRelation) -> SourceUse:
    read = [c for c in relation.columns if use.whole_row or c.attnum in use.columns]
    needed = {attnum for column in read for attnum in (column.attnum, *column.reads)}
    columns = tuple(c for c in relation.columns if c.attnum in needed and c.expression is None)
    keys = relation.plan_keys
    key = keys[0] if keys else None
    generated = tuple(column for column in read if column.generated)
    return SourceUse(relation, columns, key, use.whole_row, generated)


def _names(functions: Iterable[FunctionUse], volatility: Volatility) -> tuple[str, ...]:
    return tuple(sorted({f.name for f in functions if f.volatility is volatility}))


def _system_columns(
    used: Mapping[int, UsedRelation], relations: Mapping[int, Relation]
) -> tuple[str, ...]:
    # The position and the transaction ids of a row change when VACUUM or an update rewrites it.
    return tuple(
        f"{name} of {relations[oid].qualified}"
        for oid, use in used.items()
        for name in sorted(use.system_columns - {"tableoid"})
    )


def _plan(
    own: StoredView,
    views: Mapping[int, StoredView],
    relations: Mapping[int, Relation],
    functions: tuple[FunctionUse, ...],
    volatile: tuple[str, ...],
) -> tuple[Plan | None, tuple[Unsupported, ...]]:
    if volatile:
        return None, tuple(Unsupported("a volatile function", name) for name in volatile)
    if lost_casts := [use.name for use in functions if use.is_lost_cast]:
        # The text of the query would now use another cast.
        return None, tuple(
            Unsupported("a cast that was dropped or replaced", name) for name in lost_casts
        )
    if calls_by_domain := [use.name for use in functions if use.is_by_domain]:
        return None, tuple(Unsupported(BY_DOMAIN, name) for name in calls_by_domain)
    facts = QueryFacts(
        relations={(r.schema, r.name): r for r in relations.values()},
        views={oid: view for oid, view in views.items() if oid != own.oid},
        functions=functions,
    )
    try:
        plan = build(own.text, facts)
    except RecursionError:
        return None, (TOO_DEEP,)
    except Exception as error:
        # If the algebra fails for any reason, the view can still be recomputed.
        return None, (Unsupported(f"{INTERNAL} ({type(error).__name__}: {error})", own.text[:80]),)
    if isinstance(plan, Unsupported):
        return None, (plan,)
    return replace(plan, names=tuple(column.name for column in own.columns)), ()


BY_DOMAIN = (
    "a call with an argument of a domain type, for which a program could call another overload"
)

TOO_DEEP = Unsupported("a program for a query with so many levels", "its nested operators")
"""Planning would exceed the recursion limit of Python."""

INTERNAL = "the plan builder failed"
"""The prefix of reasons that are bugs of the plan builder, and not limits of it."""
