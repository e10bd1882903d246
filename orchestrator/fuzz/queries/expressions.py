"""Random scalar expressions and conditions over the columns in scope.

The result of a query must not depend on the order in which PostgreSQL reads the rows. Therefore,
each expression has two properties:

- `keyable`: equal values have the same text (unlike 1.0 and 1.00). A query may group by the
  expression, make it distinct, or pass it to min();
- `exact`: no sum of floats is part of the expression. An inexact expression is only an argument of
  another sum, because a comparison could turn a tiny difference into a large one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from psycopg.sql import SQL, Composable

from orchestrator.fuzz.schemas.values import COMPARABLE, ColumnType, constant

if TYPE_CHECKING:
    from typing_extensions import LiteralString


@dataclass(frozen=True)
class Expr:
    """An expression: its SQL, its family of types, and its properties."""

    sql: Composable
    family: str
    keyable: bool = True
    exact: bool = True

    @property
    def safe(self) -> bool:
        """Whether the expression can distinguish rows."""
        return self.keyable and self.exact


@dataclass(frozen=True)
class Template:
    """A template for an expression of `family`; "*" is any family, the same in all places.

    The text uses `{}`, or `{0}`, `{1}` to repeat an argument.
    """

    family: str
    text: LiteralString
    arguments: tuple[str, ...]
    keyable: bool = True


def _templates(family: str, *rows: tuple[LiteralString, tuple[str, ...]]) -> tuple[Template, ...]:
    return tuple(Template(family, text, arguments) for text, arguments in rows)


TEMPLATES: tuple[Template, ...] = (
    *_templates(
        "*",
        ("COALESCE({}, {})", ("*", "*")),
        ("CASE WHEN {} THEN {} ELSE {} END", ("bool", "*", "*")),
        ("CASE WHEN {} THEN {} END", ("bool", "*")),
        ("CASE {} WHEN 1 THEN {} WHEN 2 THEN {} END", ("int", "*", "*")),
    ),
    *_templates(
        "=",
        ("NULLIF({}, {})", ("=", "=")),
        ("GREATEST({}, {})", ("=", "=")),
        ("LEAST({}, {})", ("=", "=")),
    ),
    *_templates(
        "int",
        ("({} + {})", ("int", "int")),
        ("({} - {})", ("int", "int")),
        ("({} * 2)", ("int",)),
        ("(- {})", ("int",)),
        ("abs({})", ("int",)),
        ("(@ (+ {}))", ("int",)),
        ("({} # 5)", ("int",)),
        ("mod({}, 3)", ("int",)),
        ("({} / 2)", ("int",)),
        ("({0} / NULLIF({1}, 0))", ("int", "int")),
        ("({})::bigint", ("int",)),
        ("length({})", ("text",)),
        ("strpos({}, 'a')", ("text",)),
        ("extract(year FROM {})::integer", ("date",)),
        ("extract(month FROM {})::integer", ("timestamp",)),
        ("({} - {})", ("date", "date")),
        ("cardinality({})", ("int[]",)),
        ("({})[1]", ("int[]",)),
        ("array_position({}, 'a')", ("text[]",)),
        ("({})::integer", ("bool",)),
        ("octet_length({})", ("bytea",)),
        ("jsonb_array_length(CASE jsonb_typeof({0}) WHEN 'array' THEN {0} END)", ("jsonb",)),
        ("num_nulls({}, {})", ("int", "text")),
    ),
    *_templates(
        "text",
        ("upper({})", ("text",)),
        ("({} || {})", ("text", "text")),
        ("substr({}, 1, 1)", ("text",)),
        ("replace({}, 'a', 'x%')", ("text",)),
        ("({})::text", ("int",)),
        ("({})::text", ("bool",)),
        ("({})::text", ("uuid",)),
        ("({} ->> 'a')", ("jsonb",)),
        ("({} ->> 'a')", ("json",)),
        ("json_typeof({})", ("json",)),
        ("({})[2]", ("text[]",)),
        ("encode({}, 'hex')", ("bytea",)),
        ("md5({})", ("text",)),
        ("translate({}, 'ab', 'ba')", ("text",)),
        ("trim({})", ("text",)),
        ("trim(LEADING 'a' FROM {})", ("text",)),
        ("trim(TRAILING FROM {})", ("text",)),
    ),
    *_templates("num", ("({} + {})", ("num", "num")), ("({} - {})", ("num", "num"))),
    Template("num", "({} * {})", ("num", "num"), keyable=False),
    Template("num", "({})::numeric", ("int",), keyable=False),
    Template("num", "round({}, 1)", ("num",), keyable=False),
    Template("num", "({} / NULLIF({}, 0))", ("num", "int"), keyable=False),
    *_templates(
        "float",
        ("({} * 2)", ("float",)),
        ("({} + {})", ("float", "float")),
        ("({})::double precision", ("int",)),
        ("abs({})", ("float",)),
        ("(@ {})", ("float",)),
        ("(({})::double precision ^ 2)", ("int",)),
    ),
    *_templates(
        "date",
        ("({} + 1)", ("date",)),
        ("({})::date", ("timestamp",)),
    ),
    *_templates(
        "timestamp",
        ("({} + '1 day'::interval)", ("timestamp",)),
        ("date_trunc('month', {})", ("timestamp",)),
        ("({} AT TIME ZONE 'UTC')", ("timestamptz",)),
        ("({})::timestamp", ("date",)),
    ),
    *_templates("timestamptz", ("({} AT TIME ZONE 'Europe/Paris')", ("timestamp",))),
    *_templates(
        "int[]",
        ("ARRAY[length({}), NULL, 1]", ("text",)),
        ("array_remove({}, 1)", ("int[]",)),
        ("({} || {})", ("int[]", "int[]")),
    ),
    *_templates(
        "text[]",
        ("ARRAY[{}, {}]", ("text", "text")),
        ("string_to_array({}, 'a')", ("text",)),
    ),
    *_templates(
        "jsonb",
        ("({} -> 'a')", ("jsonb",)),
        ("jsonb_build_object('k', {}, 't', {})", ("int", "text")),
    ),
    *_templates("bytea", ("decode(md5({}), 'hex')", ("text",))),
    *_templates("interval", ("make_interval(days => 1)", ())),
    *_templates(
        "bool",
        ("({} = {})", ("=", "=")),
        ("({} = {})", ("=", "=")),
        ("({} <> {})", ("=", "=")),
        ("({} < {})", ("=", "=")),
        ("({} >= {})", ("=", "=")),
        ("({} IS DISTINCT FROM {})", ("=", "=")),
        ("({} IS NOT DISTINCT FROM {})", ("=", "=")),
        ("({} BETWEEN {} AND {})", ("=", "=", "=")),
        ("({} IN ({}, {}, {}))", ("=", "=", "=", "=")),
        ("({} NOT IN ({}, {}))", ("=", "=", "=")),
        ("({} IS NULL)", ("*",)),
        ("({} IS NOT NULL)", ("*",)),
        ("(({}, {}) = ({}, {}))", ("=", "=", "=", "=")),
        ("(({}, {}) <= ({}, {}))", ("=", "=", "=", "=")),
        ("(({}, {}) NOT IN (({}, {}), (1, {})))", ("int", "=", "int", "=", "=")),
        ("({} LIKE 'a%')", ("text",)),
        ("({} ~ '^[ab]')", ("text",)),
        ("({} NOT ILIKE '%B')", ("text",)),
        ("({} = ANY ({}))", ("int", "int[]")),
        ("({} @> {})", ("int[]", "int[]")),
        ("({} && {})", ("text[]", "text[]")),
        ("({} @> {})", ("jsonb", "jsonb")),
        ("({} ? 'a')", ("jsonb",)),
        ("(NOT {})", ("bool",)),
        ("({} AND {})", ("bool", "bool")),
        ("({} OR {})", ("bool", "bool")),
        ("({} OR {})", ("bool", "bool")),
        ("({} IS TRUE)", ("bool",)),
        ("({} IS NOT FALSE)", ("bool",)),
        ("({} IS UNKNOWN)", ("bool",)),
        ("starts_with({}, {})", ("text", "text")),
        ("({} ^@ {})", ("text", "text")),
    ),
)
"""All templates; the family "=" stands for any comparable family."""

TIME_DEPENDENT: tuple[Template, ...] = (
    *_templates("date", ("current_date", ()), ("({})::date", ("timestamptz",))),
    *_templates(
        "text",
        ("({})::text", ("date",)),
        ("({})::text", ("timestamptz",)),
        ("({})::text", ("interval",)),
        ("to_char({}, 'TMDay')", ("timestamp",)),
        ("concat({}, '-', {})", ("text", "date")),
        ("format('%s %L', {}, {})", ("int", "bytea")),
    ),
    *_templates("bool", ("({} < now())", ("timestamptz",))),
    *_templates("jsonb", ("jsonb_build_object('k', {}, 't', {})", ("int", "date"))),
)
"""Expressions that depend on settings or on the date; only some cases use them."""


TEMPORAL: tuple[Template, ...] = _templates(
    "bool",
    ("({} > now())", ("timestamptz",)),
    ("({} <= now())", ("timestamptz",)),
    ("({} > (now() - '01:00:00'::interval))", ("timestamptz",)),
    ("((transaction_timestamp() - '1 day'::interval) < {})", ("timestamptz",)),
    ("({} >= (CURRENT_TIMESTAMP - '1 mon'::interval))", ("timestamptz",)),
    ("({} < (now() - '7 days'::interval))", ("timestamptz",)),
    ("({} BETWEEN (now() - '00:30:00'::interval) AND now())", ("timestamptz",)),
    ("({} >= date_trunc('day', now()))", ("timestamptz",)),
    ("({} < (date_trunc('month', now()) + '1 mon'::interval))", ("timestamptz",)),
    ("({} = date_bin('00:30:00', now(), '2024-01-01 00:00:00+00'::timestamptz))", ("timestamptz",)),
    ("(({} + {}) > now())", ("timestamptz", "interval")),
    ("(({} + '1 day'::interval) <= now())", ("timestamptz",)),
    ("(({})::date = CURRENT_DATE)", ("timestamptz",)),
    ("({} > (LOCALTIMESTAMP - '1 day'::interval))", ("timestamp",)),
    ("({} <= LOCALTIMESTAMP)", ("timestamp",)),
    ("({} < now())", ("timestamp",)),
    ("({} >= (now() AT TIME ZONE 'Europe/Paris'))", ("timestamp",)),
    ("(({})::time > LOCALTIME)", ("timestamp",)),
    ("({} = CURRENT_DATE)", ("date",)),
    ("({} >= (CURRENT_DATE - 7))", ("date",)),
    ("({} < CURRENT_DATE)", ("date",)),
    ("({} < now())", ("date",)),
    ("({} > date_trunc('month', now()))", ("date",)),
    # These are not maintained as the time moves, so that every refresh recomputes the view.
    ("((now() - {}) < '01:00:00'::interval)", ("timestamptz",)),
    ("({} IS DISTINCT FROM CURRENT_DATE)", ("date",)),
)
"""Comparisons with the current time; they are frequent in the cases whose time moves."""


class Expressions:
    """Makes expressions over the columns in scope."""

    def __init__(self, rng: Random, enum: ColumnType) -> None:
        """Draw random numbers from `rng`; `enum` is the enum type of the case."""
        self.rng = rng
        self.enum = enum
        self.templates = (*TEMPLATES, *TIME_DEPENDENT) if rng.random() < 0.15 else TEMPLATES

    def value(self, family: str, scope: Sequence[Expr], depth: int = 1) -> Expr:
        """Return an exact expression of a family: mostly a column, else a function or a constant."""
        columns = [e for e in scope if e.family == family and e.exact]
        roll = self.rng.random()
        if columns and roll < (0.6 if depth > 0 else 0.85):
            return self.rng.choice(columns)
        if depth > 0 and roll < 0.95:
            fitting = [t for t in self.templates if _gives(t, family) and _reads(t, scope)]
            if fitting:
                return self._filled(self.rng.choice(fitting), family, scope, depth - 1)
        if family == "bool" and scope:
            tests = [t for t in self.templates if _tests(t) and _reads(t, scope)]
            return self._filled(self.rng.choice(tests), family, scope, 0)
        return self.constant(family)

    def condition(self, scope: Sequence[Expr], depth: int = 1) -> Composable:
        """Return a condition."""
        fitting = [t for t in self.templates if t.family == "bool" and _reads(t, scope)]
        result = self._filled(self.rng.choice(fitting), "bool", scope, depth).sql
        if self.rng.random() < 0.3:
            # Without OR, most conditions would hold for few rows or none.
            other = self._filled(self.rng.choice(fitting), "bool", scope, 0).sql
            return SQL("({} OR {})").format(result, other)
        return result

    def constant(self, family: str) -> Expr:
        """Return a constant of a family."""
        return Expr(constant(family, self.rng, self.enum), family)

    def _filled(self, template: Template, family: str, scope: Sequence[Expr], depth: int) -> Expr:
        wild = family
        if template.family not in ("*", "="):
            # The families of the arguments are free; prefer families in scope to constants.
            present = sorted({e.family for e in scope if e.exact and e.family in COMPARABLE})
            wild = self.rng.choice(present or ["int"])
        arguments: list[Expr] = []
        for wanted in template.arguments:
            value = self.value(wild if wanted in ("*", "=") else wanted, scope, depth)
            # Comparing a column with itself tests little.
            if wanted == "=" and arguments and (self.rng.random() < 0.4 or value in arguments):
                value = self.constant(wild)
            arguments.append(value)
        return Expr(
            SQL(template.text).format(*(argument.sql for argument in arguments)),
            family,
            template.keyable and all(argument.keyable for argument in arguments),
        )


def _gives(template: Template, family: str) -> bool:
    if template.family == "*":
        return True
    return template.family == family or (template.family == "=" and family in COMPARABLE)


def _tests(template: Template) -> bool:
    return template.family == "bool" and "bool" not in template.arguments


def _reads(template: Template, scope: Sequence[Expr]) -> bool:
    """Return whether the template reads something in scope, and not only constants."""
    present = {e.family for e in scope if e.exact} or set(template.arguments)
    return any(family in ("*", "=") or family in present for family in template.arguments)
