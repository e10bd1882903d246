"""Random schemas: tables with keys and references, partitions, inheritance children, user types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from orchestrator.fuzz.case import Table
from orchestrator.fuzz.schemas.names import Names
from orchestrator.fuzz.schemas.schema import (
    ENFORCED,
    Column,
    Model,
    Reference,
    Row,
    Schema,
    any_value,
    insert_head,
    listed,
    literal,
    row_values,
)
from orchestrator.fuzz.schemas.values import (
    INTEGER,
    TEMPORAL,
    TEXT,
    TYPES,
    UUID,
    ColumnType,
    domain_type,
    enum_type,
)

if TYPE_CHECKING:
    from typing_extensions import LiteralString

_PARTITION_BY = {
    "RANGE": SQL(" PARTITION BY RANGE ({})"),
    "LIST": SQL(" PARTITION BY LIST ({})"),
    "HASH": SQL(" PARTITION BY HASH ({})"),
}

_BOUNDS = {
    "RANGE": (
        SQL("FOR VALUES FROM (MINVALUE) TO (2)"),
        SQL("FOR VALUES FROM (2) TO (4)"),
        SQL("DEFAULT"),
    ),
    "LIST": (SQL("FOR VALUES IN (0, 1)"), SQL("FOR VALUES IN (2, 4, NULL)"), SQL("DEFAULT")),
    "HASH": (
        SQL("FOR VALUES WITH (MODULUS 2, REMAINDER 0)"),
        SQL("FOR VALUES WITH (MODULUS 2, REMAINDER 1)"),
    ),
}


def make_schema(rng: Random, names: Names, relations: set[str], temporal: bool = False) -> Schema:
    """Return a random schema with its first rows; add the names of its relations to `relations`.

    With `temporal`, many columns hold times around those of the case.
    """
    # PostgreSQL reserves names that begin with pg_ for its own schemas.
    taken = {"public", "pg_class"}
    schemas = tuple(names.relation(taken) for _ in range(rng.choice((1, 1, 2, 3))))

    def qualified() -> tuple[str, str]:
        return rng.choice(schemas), names.relation(relations)

    enum_ddl, enum = enum_type(Identifier(*qualified()))
    domain_ddl, domain = domain_type(Identifier(*qualified()), rng)
    maker = _TableMaker(rng, names, (*TYPES, enum, domain))
    if temporal:
        known = [
            each for each in maker.types if each.family not in ("date", "timestamp", "timestamptz")
        ]
        maker.types = [*known, *TEMPORAL, TEMPORAL[0]]
    for number in range(rng.choice((1, 2, 2, 3, 3, 4, 5))):
        maker.add(qualified, number)
    return Schema(
        schemas,
        tuple(ddl.as_string(None) for ddl in (enum_ddl, domain_ddl)),
        enum,
        tuple(maker.models),
        tuple(maker.tables),
    )


class _TableMaker:
    def __init__(self, rng: Random, names: Names, types: Sequence[ColumnType]) -> None:
        self.rng = rng
        self.names = names
        # If a single table has no key, the views that read it are recomputed.
        self.keyed = rng.random() < 0.6
        # With few types in a case, columns of different tables can be joined.
        self.types = rng.sample(types, rng.randint(3, 7))
        self.models: list[Model] = []
        self.tables: list[Table] = []

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def add(self, qualified: Callable[[], tuple[str, str]], number: int) -> None:
        """Add a table with its partitions or children, and its rows."""
        taken: set[str] = set()
        key_kind = self.rng.choice(
            ("primary", "primary", "primary", "unique", "index")
            if self.keyed
            else ("primary", "primary", "unique", "index", "deferrable", "none", "none")
        )
        key = self._key(taken) if key_kind != "none" else ()
        shape = self.rng.choice(
            ("plain",) * 5 + (("partitioned",) if self.keyed else ("partitioned", "inherited"))
        )
        others = [self._column(taken) for _ in range(self.rng.randint(1, 4))]
        model = Model(qualified(), (*key, *others), key, key_kind)
        if shape == "partitioned":
            model = self._partitionable(model, taken)
        model = self._with_references(model, taken)
        if shape != "partitioned" and self.chance(0.15):
            model = replace(model, columns=(*model.columns, self._computed(model, taken)))
        model = replace(model, rows=tuple(self._rows(model)))
        ddl = [self._create(model).as_string(None)]
        if model.partitioned_by:
            parts = [qualified() for _ in range(3)]
            ddl += [s.as_string(None) for s in self._partitions(model, parts)]
            bounds = _BOUNDS[model.partitioned_by or ""]
            model = replace(model, parts=tuple(parts[: len(bounds)]), bounds=bounds)
        if key_kind == "index":
            by = listed([column.sql for column in model.key])
            unique = SQL("CREATE UNIQUE INDEX {} ON {} ({})").format(model.key_name, model.name, by)
            ddl.insert(1, unique.as_string(None))
        if self.chance(0.3):
            ddl.append(self._index(model).as_string(None))
        if self.models and self.chance(0.12):
            ddl += [s.as_string(None) for s in self._trigger(model, Identifier(*qualified()))]
        children: list[Table] = []
        if shape == "inherited":
            model, child = self._child(model, qualified())
            children.append(child)
        self.models.append(model)
        self.tables += [_table(model.name, ddl, model.columns, model.rows), *children]

    def _key(self, taken: set[str]) -> tuple[Column, ...]:
        types = [INTEGER, INTEGER, INTEGER, TEXT, UUID]
        columns = []
        for _ in range(self.rng.choice((1, 1, 1, 2))):
            kind = self.rng.choice(types)
            identity = None
            if kind is INTEGER and self.chance(0.2):
                identity = self.rng.choice(("ALWAYS", "BY DEFAULT"))
            columns.append(Column(self.names.column(kind.family, taken), kind, False, identity))
        return tuple(columns)

    def _column(self, taken: set[str]) -> Column:
        kind = self.rng.choice(self.types)
        return Column(self.names.column(kind.family, taken), kind, self.chance(0.75))

    def _computed(self, model: Model, taken: set[str]) -> Column:
        base = next((c for c in model.columns if c.type.family == "int"), None)
        if base is not None:
            return Column(
                self.names.column("int", taken),
                replace(INTEGER, sql=SQL("bigint")),
                computed=SQL("{}::bigint * 2").format(base.sql),
            )
        return Column(self.names.column("int", taken), INTEGER, computed=SQL("1 + 1"))

    def _partitionable(self, model: Model, taken: set[str]) -> Model:
        """Return the model with a column to partition by, which is part of the key if there is one."""
        if not any(c.type is INTEGER and not c.identity for c in model.key or model.columns):
            added = Column(self.names.column("int", taken), INTEGER, not model.key)
            model = replace(
                model,
                columns=(added, *model.columns),
                key=(added, *model.key) if model.key else (),
            )
        return replace(model, partitioned_by=self.rng.choice(tuple(_BOUNDS)))

    def _with_references(self, model: Model, taken: set[str]) -> Model:
        itself = replace(model, rows=())
        for _ in range(self.rng.choice((0, 1, 1, 2))):
            known = [m for m in self.models if m.key_kind in ENFORCED]
            if (
                model.key_kind in ("primary", "unique")
                and not model.partitioned_by
                and self.chance(0.2)
            ):
                known = [itself]
            if not known:
                break
            target = self.rng.choice(known)
            columns = tuple(
                Column(self.names.column(c.type.family, taken), c.type, self.chance(0.8))
                for c in target.key
            )
            actions: tuple[LiteralString, ...] = (
                "",
                "ON DELETE CASCADE",
                "ON DELETE SET NULL",
                "ON DELETE CASCADE ON UPDATE CASCADE",
                "ON UPDATE CASCADE ON DELETE SET NULL",
            )
            model = replace(
                model,
                columns=(*model.columns, *columns),
                references=(
                    *model.references,
                    Reference(columns, target, self.rng.choice(actions)),
                ),
            )
        return model

    def _create(self, model: Model) -> Composed:
        lines = [self._definition(column) for column in model.columns]
        if model.key and model.key_kind != "index":
            kind = SQL("UNIQUE" if model.key_kind == "unique" else "PRIMARY KEY")
            deferrable = SQL(" DEFERRABLE" if model.key_kind == "deferrable" else "")
            columns = listed([column.sql for column in model.key])
            lines.append(
                SQL("CONSTRAINT {} {} ({}){}").format(model.key_name, kind, columns, deferrable)
            )
        lines += [
            SQL("FOREIGN KEY ({}) REFERENCES {} ({}) {}").format(
                listed([column.sql for column in reference.columns]),
                reference.table.name,
                listed([column.sql for column in reference.table.key]),
                SQL(reference.actions),
            )
            for reference in model.references
        ]
        tail: Composable = SQL("")
        if model.partitioned_by:
            tail = _PARTITION_BY[model.partitioned_by].format(_partition_column(model).sql)
        return SQL("CREATE TABLE {} ({}){}").format(model.name, listed(lines), tail)

    def _definition(self, column: Column) -> Composed:
        extra: list[Composable] = []
        if not column.nullable:
            extra.append(SQL(" NOT NULL"))
        if column.identity:
            # Start above the numbers of the first rows.
            kind = SQL(
                " GENERATED ALWAYS" if column.identity == "ALWAYS" else " GENERATED BY DEFAULT"
            )
            extra.append(SQL("{} AS IDENTITY (START WITH 200)").format(kind))
        if column.computed is not None:
            extra.append(SQL(" GENERATED ALWAYS AS ({}) STORED").format(column.computed))
        return SQL("{} {}{}").format(column.sql, column.type.sql, SQL("").join(extra))

    def _partitions(self, model: Model, paths: Sequence[tuple[str, str]]) -> list[Composed]:
        assert model.partitioned_by
        return [
            SQL("CREATE TABLE {} PARTITION OF {} {}").format(Identifier(*path), model.name, bound)
            for path, bound in zip(paths, _BOUNDS[model.partitioned_by], strict=False)
        ]

    def _index(self, model: Model) -> Composed:
        column = self.rng.choice([c for c in model.columns if c.type.family != "json"] or [None])
        if column is None:
            return SQL("ANALYZE {}").format(model.name)
        return SQL("CREATE INDEX ON {} ({})").format(model.name, column.sql)

    def _trigger(self, model: Model, name: Identifier) -> list[Composed]:
        """Return the statements of a user's trigger that changes an earlier table."""
        other = self.rng.choice(self.models)
        column = self.rng.choice(other.columns)
        acts = [SQL("DELETE FROM {} WHERE {} IS NULL").format(other.name, column.sql)]
        if column.computed is None and not column.identity and column not in other.key:
            value = literal(any_value(self.rng, column))
            acts.append(SQL("UPDATE {} SET {} = {}").format(other.name, column.sql, value))
        body = SQL("BEGIN {}; RETURN NEW; END").format(self.rng.choice(acts))
        when = SQL(self.rng.choice(("AFTER INSERT", "AFTER UPDATE", "AFTER INSERT OR UPDATE")))
        each = SQL(self.rng.choice(("ROW", "STATEMENT")))
        return [
            SQL("CREATE FUNCTION {}() RETURNS trigger LANGUAGE plpgsql AS {}").format(
                name, Literal(body.as_string(None))
            ),
            SQL("CREATE TRIGGER own {} ON {} FOR EACH {} EXECUTE FUNCTION {}()").format(
                when, model.name, each, name
            ),
        ]

    def _child(self, model: Model, path: tuple[str, str]) -> tuple[Model, Table]:
        name = Identifier(*path)
        rows = self._rows(model, keys_known=False)
        columns = tuple(c for c in model.columns if c.computed is None)
        ddl = [SQL("CREATE TABLE {} (own_col text) INHERITS ({})").format(name, model.name)]
        child = _table(name, [s.as_string(None) for s in ddl], columns, rows)
        return replace(model, inherited=True, parts=(path,)), child

    def _rows(self, model: Model, keys_known: bool = True) -> list[Row]:
        """Return rows that satisfy the keys and references of the table."""
        rows: list[Row] = []
        keys: set[tuple[str | None, ...]] = set()
        for _ in range(self.rng.choice((0, 1, 3, 5, 6, 8, 8, 10, 10, 12, 12, 14))):
            if rows and not model.key and self.chance(0.3):
                rows.append(dict(self.rng.choice(rows)))
                continue
            row: Row = {}
            for column in model.columns:
                if column.computed is None:
                    row[column.name] = any_value(self.rng, column)
            key = tuple(row[column.name] for column in model.key)
            if model.key and keys_known and key in keys:
                continue
            if all(self._resolved(model, reference, row, rows) for reference in model.references):
                keys.add(key)
                rows.append(row)
        return rows

    def _resolved(self, model: Model, reference: Reference, row: Row, own: list[Row]) -> bool:
        targets: Sequence[Row] = own if reference.table.name == model.name else reference.table.rows
        if targets and not (reference.columns[0].nullable and self.chance(0.1)):
            target = self.rng.choice(targets)
            for column, key in zip(reference.columns, reference.table.key, strict=True):
                row[column.name] = target[key.name]
            return True
        nullable = next((column for column in reference.columns if column.nullable), None)
        if nullable is None:
            return False
        row[nullable.name] = None
        return True


def _partition_column(model: Model) -> Column:
    return next(c for c in model.key or model.columns if c.type is INTEGER and not c.identity)


def _table(
    name: Identifier, ddl: Sequence[str], columns: Sequence[Column], rows: Sequence[Row]
) -> Table:
    given = [column for column in columns if column.computed is None]
    overriding = any(column.identity == "ALWAYS" for column in given)
    return Table(
        name.as_string(None),
        tuple(ddl),
        SQL("{} VALUES").format(insert_head(name, given, overriding)).as_string(None),
        tuple(row_values(given, row).as_string(None) for row in rows),
    )
