"""User-defined rings whose sums view trees maintain; they are exact, and equal elements look equal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

if TYPE_CHECKING:
    from typing_extensions import LiteralString


@dataclass(frozen=True)
class Ring:
    """A ring by the bodies of its functions of a and b, or x and place; `{0}` is the schema."""

    name: str
    element: LiteralString
    argument: LiteralString
    plus: LiteralString
    times: LiteralString
    negate: LiteralString
    zero: LiteralString
    one: LiteralString
    lift: LiteralString
    type: LiteralString | None = None
    """The statement that creates the type of the elements."""
    placed: bool = False
    """Whether the position of an argument matters."""
    families: tuple[str, ...] = ("int",)
    """The families of its arguments, which are cast to the type of the argument."""
    as_json: LiteralString = "to_jsonb({})"


RINGS = (
    Ring(
        "moments",
        "{0}.moment",
        "numeric",
        "ROW((a).n + (b).n, (a).s + (b).s, (a).q + (b).q)::{0}.moment",
        "ROW((a).n * (b).n, (a).n * (b).s + (a).s * (b).n,"
        " (a).n * (b).q + 2 * (a).s * (b).s + (a).q * (b).n)::{0}.moment",
        "ROW(-(a).n, -(a).s, -(a).q)::{0}.moment",
        "ROW(0, 0, 0)::{0}.moment",
        "ROW(1, 0, 0)::{0}.moment",
        "ROW(1, x, x * x)::{0}.moment",
        type="CREATE TYPE {0}.moment AS (n numeric, s numeric, q numeric)",
    ),
    Ring(
        "gaussian",
        "numeric[]",
        "numeric",
        "ARRAY[a[1] + b[1], a[2] + b[2]]",
        "ARRAY[a[1] * b[1] - a[2] * b[2], a[1] * b[2] + a[2] * b[1]]",
        "ARRAY[-a[1], -a[2]]",
        "ARRAY[0, 0]::numeric[]",
        "ARRAY[1, 0]::numeric[]",
        "ARRAY[x, place]::numeric[]",
        placed=True,
    ),
    # Its sums and products can be zero although rows exist.
    Ring(
        "residues",
        "bigint",
        "text",
        "(a + b) % 12",
        "a * b % 12",
        "(12 - a) % 12",
        "0::bigint",
        "1::bigint",
        "length(x)::bigint % 12",
        families=("text", "int", "bool", "uuid"),
        as_json="{}",
    ),
)


def call(ring: Ring, schema: str, arguments: Iterable[Composable], tail: Composable) -> Composed:
    """Return the aggregate over some columns, with FILTER as its tail."""
    given = SQL(", ").join(SQL("({})::{}").format(item, SQL(ring.argument)) for item in arguments)
    result = SQL("{}({}){}").format(Identifier(schema, ring.name), given, tail)
    return SQL(ring.as_json).format(result)


def statements(ring: Ring, schema: str) -> Iterator[str]:
    """Yield the statements that create a ring in a schema."""
    where = Identifier(schema)

    def text(part: LiteralString) -> Composed:
        return SQL(part).format(where)

    element, argument = text(ring.element), SQL(ring.argument)
    both: dict[LiteralString, Composable] = {"a": element, "b": element}
    lifted: dict[LiteralString, Composable] = {"x": argument}
    if ring.placed:
        lifted["place"] = SQL("integer")
    # The parts have the order of register_ring's parameters.
    parts: dict[str, tuple[dict[LiteralString, Composable], LiteralString]] = {
        "plus": (both, ring.plus),
        "times": (both, ring.times),
        "negate": ({"a": element}, ring.negate),
        "zero": ({}, ring.zero),
        "one": ({}, ring.one),
        "lift": (lifted, ring.lift),
    }
    if ring.type is not None:
        yield text(ring.type).as_string(None)
    called = [Literal(Identifier(schema, ring.name).as_string(None))]
    for role, (arguments, body) in parts.items():
        name = Identifier(schema, f"{ring.name}_{role}")
        named = SQL(", ").join(SQL("{} {}").format(SQL(n), t) for n, t in arguments.items())
        strict = SQL(" STRICT" if arguments else "")
        sql = SQL("CREATE FUNCTION {}({}) RETURNS {} LANGUAGE sql IMMUTABLE{} RETURN {}")
        yield sql.format(name, named, element, strict, text(body)).as_string(None)
        signature = SQL("{}({})").format(name, SQL(", ").join(arguments.values()))
        called.append(Literal(signature.as_string(None)))
    yield SQL("SELECT idivm.register_ring({})").format(SQL(", ").join(called)).as_string(None)
