"""Names for everything in a case: mostly plain ones, and some as difficult as PostgreSQL allows."""

from __future__ import annotations

from random import Random

from orchestrator.sqltext import fitted_name

_PLAIN = (
    "orders",
    "items",
    "parts",
    "people",
    "events",
    "links",
    "notes",
    "stock",
    "trips",
    "tags",
)

_NASTY = (
    "Order",
    "select",
    'quo"te',
    "it's",
    "two words",
    "täble",
    "数",
    "t.dot",
    "100%",
    "%s",
    "{}",
    "$1",
    "semi;colon",
    "back\\slash",
    "-- no comment",
    "views",
    "s1_a",
    "pg_class",
    "$$",
    "n" * 63,
    "n" * 62 + "m",
    "é" * 31,
)

_COLUMNS: dict[str, tuple[str, ...]] = {
    "int": ("a", "b", "c", "qty", "grp"),
    "text": ("s", "t", "label"),
    "num": ("price", "amount"),
    "date": ("day", "due"),
    "bool": ("done", "ok"),
    "float": ("x", "y"),
}

# Names that generated SQL may also use.
_COLLIDING = (
    "old",
    "new",
    "op",
    "xid",
    "seq",
    "row",
    "nth",
    "times",
    "key",
    "kept",
    "fresh",
    "since",
    "changed",
    "applied",
    "rebuild",
    "stmt",
    "tx",
    "idivm_row",
    "idivm_nth",
    "old_rows",
    "new_rows",
    "d",
    "o",
    "n",
    "q",
    "k0",
    "o_1",
    "n_1",
    "image",
    "sign",
    "count",
    "oid",
    "present",
)


class Names:
    """Provides names that are unique within a scope; `nasty` is the share of difficult names."""

    def __init__(self, rng: Random, nasty: float) -> None:
        """Draw random numbers only from `rng`."""
        self.rng = rng
        self.nasty = nasty

    def _unused(self, pool: tuple[str, ...], taken: set[str]) -> str:
        free = [name for name in pool if name not in taken]
        name = self.rng.choice(free) if free else self._numbered(self.rng.choice(pool), taken)
        taken.add(name)
        return name

    def _numbered(self, base: str, taken: set[str]) -> str:
        numbers = range(1, len(taken) + 2)
        return next(n for i in numbers if (n := fitted_name(base, str(i))) not in taken)

    def relation(self, taken: set[str]) -> str:
        """Return a name for a table, view, type, schema or alias."""
        return self._unused(_NASTY if self.rng.random() < self.nasty else _PLAIN, taken)

    def column(self, family: str, taken: set[str]) -> str:
        """Return a name for a column; each plain name has one family, so that columns can join."""
        if self.rng.random() < self.nasty:
            return self._unused(self.rng.choice((_NASTY, _COLLIDING)), taken)
        return self._unused(_COLUMNS.get(family, (f"{family.strip('[]')}_val",)), taken)
