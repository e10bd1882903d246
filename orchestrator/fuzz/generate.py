"""Generate a case from a seed; the same seed always gives the same case."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from psycopg.sql import Identifier

from orchestrator.fuzz.case import Case, View, maintained
from orchestrator.fuzz.options import (
    APPEND_ONLY,
    CACHES,
    COMMON_JOIN,
    DEFERRED_IN_WAL,
    EPSILONS,
    FEEDS,
    GROUP,
    GROUPED,
    INPUTS,
    MODES,
    OPEN,
    RANKED,
    RELATIONS,
    REPRESENTATIONS,
    SHARED,
    STEPS_IN_WAL,
    STRATEGIES,
    TEMPORAL_SHARE,
)
from orchestrator.fuzz.queries.expressions import TEMPORAL
from orchestrator.fuzz.queries.forms import COMMON, DIVIDED, FORMS, SORTED
from orchestrator.fuzz.queries.grammar import Grammar, Query
from orchestrator.fuzz.queries.rings import statements
from orchestrator.fuzz.queries.sources import Field, Relation
from orchestrator.fuzz.schemas.names import Names
from orchestrator.fuzz.schemas.schema import Model, Schema
from orchestrator.fuzz.schemas.tables import make_schema
from orchestrator.fuzz.steps.captures import Captures
from orchestrator.fuzz.steps.choose import Story
from orchestrator.fuzz.steps.rows import Writer
from orchestrator.fuzz.steps.times import ZONES, Times

SETTINGS = (
    ("SET TimeZone = 'America/New_York'", "SET TimeZone = 'Asia/Kathmandu'"),
    ("SET DateStyle = 'German'", "SET DateStyle = 'SQL, DMY'"),
    ("SET IntervalStyle = 'iso_8601'", "SET IntervalStyle = 'sql_standard'"),
    ("SET extra_float_digits = -15", "SET extra_float_digits = 0"),
    ("SET bytea_output = 'escape'",),
    ("SET search_path = ''", "SET search_path = idivm_log, idivm_def, idivm"),
    ("SET plan_cache_mode = force_generic_plan",),
    ("SET enable_hashjoin = off", "SET enable_sort = off", "SET enable_nestloop = off"),
    ("SET standard_conforming_strings = off",),
    ("SET default_transaction_isolation = 'repeatable read'",),
    ("SET constraint_exclusion = on",),
    ("SET transform_null_equals = on",),
)
"""Settings of the writer that must not affect its changes and refreshes."""


def generate(
    seed: int,
    strategies: Sequence[str] = STRATEGIES,
    modes: Sequence[str] = tuple(MODES),
    loads: bool = False,
    temporal_share: float = TEMPORAL_SHARE,
    wal: bool = False,
) -> Case:
    """Return the case of a seed; its views use various strategies and modes, and its steps may load files.

    With `wal`, tables are captured from the WAL.
    `temporal_share` is the share of cases, among those without loads, whose views compare rows with a time that moves.

    >>> generate(7) == generate(7)
    True
    """
    return drafted(seed, strategies, modes, loads, temporal_share, wal)[0]


def drafted(
    seed: int,
    strategies: Sequence[str] = STRATEGIES,
    modes: Sequence[str] = tuple(MODES),
    loads: bool = False,
    temporal_share: float = TEMPORAL_SHARE,
    wal: bool = False,
) -> tuple[Case, Sequence[Model]]:
    """Return the case of a seed, and the models of its tables, from which changes can be made."""
    rng = Random(seed)
    # Other generators decide about the WAL, so that all other cases do not depend on it.
    capturing = Random(f"{seed} wal")
    if wal and "deferred" in modes and capturing.random() < DEFERRED_IN_WAL:
        modes = ("deferred",)
    # A separate random generator keeps the schema, queries and changes independent of the lists.
    options = Random(f"{seed} options")
    names = Names(rng, rng.choice((0.0, 0.0, 0.1, 0.5)))
    taken: set[str] = set()
    # Another generator decides whether the time moves, so that all other cases do not depend on it.
    clock = Random(f"{seed} time")
    temporal = not loads and clock.random() < temporal_share
    schema = make_schema(rng, names, taken, temporal)
    common = rng.random() < 0.4
    forms = COMMON if common else FORMS
    if len(set(strategies)) == 1:
        forms = {"skew": DIVIDED, "viewtree": SORTED}.get(strategies[0], forms)
    grammar = Grammar(rng, names, schema.enum, schema.schemas[0], forms)
    grammar.sources.common = common
    if temporal:
        grammar.make.templates = (*grammar.make.templates, *TEMPORAL, *TEMPORAL)
    tables = [_relation(model) for model in schema.models]
    grammar.sources.relations = [*tables]
    maker = _ViewMaker(rng, options, names, taken, schema, grammar, strategies, modes)
    tower = rng.random() < 0.2
    for number in range(rng.choice((4, 5, 6) if tower else (1, 2, 2, 3, 4))):
        maker.add()
        if tower and number > 0:
            # A tower has views over views: several over one view, and one over several views.
            grammar.sources.relations = [*maker.relations * 2, rng.choice(tables)]
    if not maintained(maker.views):
        maker.add(plain=False)
    read = {name for view in maker.views for name in maker.names_in(view.query)}
    free = [view for view in maintained(maker.views) if view.name not in read]
    grammar.sources.relations = [*tables]
    story = Story(rng, Writer(rng, schema.models), maintained(maker.views), free, maker.other)
    times = Times(clock) if temporal else None
    begun = times.text if times else ""
    steps = story.steps_with_loads() if loads else story.steps(STEPS_IN_WAL if wal else 1)
    if wal:
        steps = Captures(capturing, schema.models).between(steps)
    by_name = sorted(grammar.rings, key=lambda ring: ring.name)
    rings = (text for ring in by_name for text in statements(ring, grammar.schema))
    case = Case(
        seed,
        schema.schemas,
        (*schema.types, *rings),
        schema.tables,
        tuple(maker.views),
        tuple(times.between(steps)) if times else tuple(steps),
        tuple(rng.choice(values) for values in rng.sample(SETTINGS, rng.choice((0, 0, 1, 2, 3)))),
        rng.choice(("api", "api", "api", "sql", "schemas")),
        time=begun,
        zone=clock.choice(ZONES) if temporal else "",
        reserve=Random(f"{seed} reserve").choice((None, 0, 1, 3)),
    )
    return case, schema.models


def _relation(model: Model) -> Relation:
    fields = tuple(
        Field(column.name, column.type.family, column.type.keyable) for column in model.columns
    )
    primary = model.key_kind == "primary" and not model.inherited
    return Relation(model.name, fields, model.unique, primary)


class _ViewMaker:
    def __init__(
        self,
        rng: Random,
        options: Random,
        names: Names,
        taken: set[str],
        schema: Schema,
        grammar: Grammar,
        strategies: Sequence[str],
        modes: Sequence[str],
    ) -> None:
        self.rng = rng
        self.options = options
        self.names = names
        self.schema = schema
        self.grammar = grammar
        self.strategies = strategies
        self.modes = modes
        self.taken = taken
        self.grouped = "deferred" in modes and options.random() < GROUPED
        """Whether all views are deferred, and most of them belong to a refresh group."""
        self.views: list[View] = []
        self.relations: list[Relation] = []

    def add(self, plain: bool | None = None) -> None:
        """Add a view; later views may read it."""
        plain = self.rng.random() < 0.15 if plain is None else plain
        name = Identifier(self.rng.choice(self.schema.schemas), self.names.relation(self.taken))
        query = self.grammar.query()
        fields, columns = query.fields, None
        if not plain and self.rng.random() < 0.1:
            taken: set[str] = set()
            columns = tuple(self.names.column(f.family, taken) for f in fields)
            fields = tuple(replace(f, name=c) for f, c in zip(fields, columns, strict=True))
        self.views.append(
            View(
                name.as_string(None),
                query.sql.as_string(None),
                () if plain else self._options(replace(query, fields=fields)),
                columns,
                plain,
            )
        )
        relation = Relation(name, fields)
        self.relations.append(relation)
        self.grammar.sources.relations += [relation] * self.rng.choice((0, 1, 1, 2))

    def other(self, view: View) -> View:
        """Return a different definition for a view, over tables only."""
        query = self.grammar.query()
        text = query.sql.as_string(None)
        return replace(view, query=text, columns=None, options=self._options(query))

    def names_in(self, query: str) -> list[str]:
        """Return the views that a query reads."""
        return [view.name for view in self.views if view.name in query]

    def _epsilon(self, query: Query) -> str:
        """Return an epsilon for all tables, or an epsilon for each of some tables."""
        item = self.options.choice(EPSILONS)
        if query.divided and self.options.random() < OPEN:
            return EPSILONS[0]
        tables = [model.name.as_string(None) for model in self.schema.models]
        names = [
            source.alias.as_string(None).strip('"')
            for source in query.parted
            if source.relation.sql.as_string(None) in tables
        ]
        plain = [name for name in names if not set(name) & set('",:') and name == name.strip()]
        if not plain or self.options.random() < 0.5:
            return item
        return ", ".join(f"{name}: {self.options.choice(EPSILONS[1:])}" for name in plain)

    def _append_only(self, query: Query) -> list[tuple[str, str]]:
        """Return the option that names some of the tables that a query reads."""
        text = query.sql.as_string(None)
        read = [model.path[1] for model in self.schema.models if model.name.as_string(None) in text]
        names = [name for name in read if "," not in name and name == name.strip()]
        chosen = ", ".join(name for name in names if self.options.random() < 0.7)
        return [("append_only", chosen)] if chosen else []

    def _inputs(self, query: Query) -> str:
        """Return some of the columns of a query, whose values readers give."""
        names = [field.name for field in query.fields]
        plain = [name for name in names if "," not in name and name == name.strip() != ""]
        return ", ".join(self.options.sample(plain, min(len(plain), self.options.randint(1, 3))))

    def _ranked(self, query: Query) -> str:
        """Return an order over the columns of a query: columns, and sums of numbers."""
        terms = []
        for _ in range(self.options.randint(1, 3)):
            numbers = [field for field in query.fields if field.family in ("int", "num")]
            some = self.options.sample(numbers, min(len(numbers), self.options.randint(2, 3)))
            if len(some) < 2 or self.options.random() < 0.5:
                some = [self.options.choice(query.fields)]
            text = Identifier(some[0].name).as_string(None)
            for field in some[1:]:
                name = Identifier(field.name).as_string(None)
                text += self.options.choice((" + {}", " - {}", " + coalesce({}, 1)")).format(name)
            terms.append(
                text + self.options.choice(("", "", " DESC", " DESC NULLS LAST", " NULLS FIRST"))
            )
        return ", ".join(terms)

    def _options(self, query: Query) -> tuple[tuple[str, str], ...]:
        strategy, mode = self.options.choice(self.strategies), self.options.choice(self.modes)
        mode = "deferred" if self.grouped else mode
        cache = self.options.choice(CACHES)
        feed = "off" if mode == "on_read" else self.options.choice(FEEDS)
        relation = "view" if mode == "on_read" else self.options.choice(RELATIONS)
        if mode == "eager" and self.options.random() < 0.6:
            # Writers may share such a view.
            feed, relation = "off", "view"
        result: tuple[tuple[str, str], ...] = (
            *(("strategy", strategy), ("maintain", mode), ("cache", cache), ("feed", feed)),
        )
        if mode == "eager":
            result = (*result, ("shared", self.options.choice(SHARED)))
        if self.grouped and self.options.random() < 0.7:
            result = (*result, ("refresh_group", GROUP))
        if mode != "on_read" and self.options.random() < APPEND_ONLY:
            result = (*result, *self._append_only(query))
        if strategy == "viewtree" and query.first:
            return (*(item for item in result if item[0] != "feed"), ("relation", "view"))
        if strategy == "viewtree":
            inputs = self._inputs(query)
            if inputs and mode != "on_read" and self.options.random() < INPUTS:
                return (*(item for item in result if item[0] != "feed"), ("inputs", inputs))
            if query.fields and mode != "on_read" and self.options.random() < RANKED:
                ranked = self._ranked(query)
                return (*(item for item in result if item[0] != "feed"), ("ranked", ranked))
            representation = self.options.choice(REPRESENTATIONS)
            relation = relation if representation == "listing" else "view"
            return (*result, ("representation", representation), ("relation", relation))
        if strategy == "skew":
            return (*result, ("epsilon", self._epsilon(query)), ("relation", relation))
        if self.options.random() < COMMON_JOIN:
            result = (*result, ("common_join", "on"))
        return (*result, ("relation", relation))
