"""The step of a program that reads the net changes of a source into its variables.

Of a source with a key the log is read column by column, those alone that the view uses. Most keys
have one pending change, which is their net effect. Where a key has more, the images between the
first and the last cancel, whatever the order in which the triggers of nested statements wrote them,
and at most one old and one new image remain. Images are compared in the columns that are read: what
changed in others is no change here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from psycopg.sql import SQL, Composable, Composed, Identifier, Literal
from sqlglot import exp

from orchestrator.algebra import dialect
from orchestrator.algebra.dialect import Tree, reference
from orchestrator.deltascript.names import Names, SourceNames
from orchestrator.deltascript.plan import ChangeClass, ReadChanges


def fields(step: ReadChanges, names: Names) -> Composed:
    """The fields of a source's diffs, with their collations, and types without constraints."""
    if not step.fields:
        return SQL("NULL::boolean AS present").format()
    types = {column.attnum: column.plain_type for column in step.source.columns}
    source = names.sources[step.source.oid]
    view = Identifier("idivm_def", f"s{source.id}")
    return _listed(
        SQL("(NULL::{}).{}::{} AS {}").format(
            view,
            Identifier(source.columns[attnum]),
            SQL(types[attnum]),
            Identifier(f"{side}_{name}"),
        )
        for side in ("old", "new")
        for attnum, name in step.fields
    )


def read(step: ReadChanges, names: Names) -> Composed:
    """The statement that reads the changes; without classes, the one that asks for a rebuild."""
    source = names.sources[step.source.oid]
    if not step.classes:
        return SQL("    rebuild := rebuild OR EXISTS (SELECT FROM {}(since));\n").format(
            _net(source)
        )
    keyed = any(column.in_key for column in step.source.columns)
    reading = _by_key if keyed else _by_content
    expressions, rows, conditions = reading(step, source, names)
    # What is in no class does not become a row.
    image = SQL("ROW({})::{}").format(_listed(_fields(step)), names.state(step.shape))
    return SQL("    {}SELECT {}\n    INTO {}\n    FROM (\n{}\n    ) AS c;\n").format(
        expressions,
        SQL(",\n        ").join(
            SQL("array_agg({}) FILTER (WHERE {})").format(
                image, SQL(" AND ").join([condition, *_relevant(one)])
            )
            for one, condition in zip(step.classes, conditions, strict=True)
        ),
        SQL(", ").join(Identifier(one.variable) for one in step.classes),
        rows,
    )


Reading = tuple[Composable, Composable, list[Composed]]
"""Common table expressions, the query for the fields, and what tells the classes apart."""


def _fields(step: ReadChanges) -> list[Composed]:
    names = [f"{side}_{name}" for side in ("old", "new") for _, name in step.fields]
    return [SQL("c.{}").format(Identifier(name)) for name in names or ["present"]]


def _by_content(step: ReadChanges, source: SourceNames, names: Names) -> Reading:
    fields = [
        SQL("(n.{}).{} AS {}").format(
            SQL(side), Identifier(source.columns[number]), Identifier(f"{side}_{name}")
        )
        for side in ("old", "new")
        for number, name in step.fields
    ]
    rows = SQL(
        "        SELECT n.old IS DISTINCT FROM NULL AS minus, n.new IS DISTINCT FROM NULL AS plus,\n"
        "               {}\n"
        "        FROM {}(since) AS n CROSS JOIN generate_series(1, n.times)"
    ).format(_listed(fields or [SQL("true AS present")]), _net(source))
    return SQL(""), rows, [SQL("c.{}").format(Identifier(one.kind)) for one in step.classes]


def _by_key(step: ReadChanges, source: SourceNames, names: Names) -> Reading:
    numbers = [number for number, _ in step.fields]
    called = dict(step.fields)
    key = [column for column in step.source.columns if column.in_key]

    def field(side: str, number: int) -> Composed:
        return SQL("c.{}").format(Identifier(f"{side}_{called[number]}"))

    def image(side: str, columns: Iterable[int]) -> Composed:
        return SQL("ROW({})::record").format(_listed(field(side, number) for number in columns))

    def present(side: str) -> Composed:
        return SQL("{} IS NOT NULL").format(field(side, key[0].attnum))

    # A key may be equal by `=` and yet look different; that is no update.
    coarse = [column.attnum for column in key if column.equality != "exact"]
    kept = SQL("{} AND {}").format(present("old"), present("new"))
    if coarse:
        kept = SQL("{} AND {} *= {}").format(kept, image("old", coarse), image("new", coarse))

    def condition(one: ChangeClass) -> Composed:
        if one.kind == "update":
            touched = sorted(one.touched)
            return SQL("{} AND {} *<> {}").format(
                kept, image("old", touched), image("new", touched)
            )
        side, other = ("old", "new") if one.kind == "minus" else ("new", "old")
        if not coarse:
            return SQL("{} AND NOT {}").format(present(side), present(other))
        return SQL("{} AND NOT ({})").format(present(side), kept)

    expressions, query = _net_columns(source, numbers)
    # The branch without rows names the columns, and gives them the collations of the table's.
    rows = SQL("            SELECT {} WHERE false\n            UNION ALL\n{}").format(
        fields(step, names), query
    )
    return expressions, rows, [condition(one) for one in step.classes]


def _net_columns(source: SourceNames, numbers: Sequence[int]) -> tuple[Composed, Composed]:
    """Common table expressions, and the query over them with the columns `o_<n>` and `n_<n>`.

    An image that is not there is NULL in all columns.
    """

    def columns(table: str, side: str) -> Composed:
        return _listed(_column(table, side, number) for number in numbers)

    def image(table: str, side: str) -> Composed:
        return _listed(
            SQL("{} AS {}").format(_column(table, "i", number), Identifier(f"{side}_{number}"))
            for number in numbers
        )

    key = _listed(
        SQL("coalesce({}, {})").format(_column("p", "n", number), _column("p", "o", number))
        for number in source.key
    )
    expressions = SQL(
        "WITH pending AS MATERIALIZED (\n"
        "        SELECT c.op, {both} FROM {log} AS c\n"
        # What was consumed long ago, as most of a log may be, one comparison tells.
        "        WHERE c.xid >= (SELECT pg_snapshot_xmin((since).snapshot))\n"
        "          AND idivm.is_pending(c.xid, c.seq, since, {id}) AND c.op <> 'T'\n"
        "    ), repeated AS MATERIALIZED (\n"
        "        SELECT {key} FROM pending AS p GROUP BY {key} HAVING count(*) > 1\n"
        "    ), images AS (\n"
        "        SELECT i.*, sum(i.sign) OVER same AS net, row_number() OVER same AS nth\n"
        "        FROM pending AS p CROSS JOIN LATERAL (\n"
        "            VALUES ('I'::\"char\", -1, {key}, {old}), ('D', 1, {key}, {new})\n"
        "        ) AS i (lacking, sign, {keys}, {images})\n"
        # A lookup in a hash table, whatever the planner believes of the sizes.
        "        WHERE (({key}) IN (SELECT * FROM repeated)) IS TRUE AND p.op <> i.lacking\n"
        "        WINDOW same AS (PARTITION BY {by}, ROW({image})::text)\n"
        "    )\n    "
    ).format(
        both=_listed([columns("c", "o"), columns("c", "n")]),
        log=Identifier("idivm_log", f"s{source.id}"),
        id=Literal(source.id),
        key=key,
        old=columns("p", "o"),
        new=columns("p", "n"),
        keys=_listed(Identifier(f"k_{number}") for number in source.key),
        images=_listed(Identifier(f"i_{number}") for number in numbers),
        by=_listed(_column("i", "k", number) for number in source.key),
        image=columns("i", "i"),
    )
    query = SQL(
        "            SELECT {both} FROM pending AS p\n"
        "            WHERE ({key}) NOT IN (SELECT * FROM repeated)\n"
        "            UNION ALL\n"
        "            SELECT {old}, {new}\n"
        "            FROM (SELECT * FROM images WHERE net < 0 AND nth = 1) AS o\n"
        "            FULL JOIN (SELECT * FROM images WHERE net > 0 AND nth = 1) AS n ON {same}"
    ).format(
        both=_listed([columns("p", "o"), columns("p", "n")]),
        key=key,
        old=image("o", "o"),
        new=image("n", "n"),
        same=SQL(" AND ").join(
            SQL("{} = {}").format(_column("o", "k", number), _column("n", "k", number))
            for number in source.key
        ),
    )
    return expressions, query


def _relevant(one: ChangeClass) -> list[SQL]:
    """The condition on the rows of a class, in terms of the fields."""
    if one.where is None:
        return []

    def field(node: Tree) -> Tree:
        return reference(node.name, "c") if isinstance(node, exp.Column) else node

    return [SQL(dialect.write(exp.Paren(this=one.where.tree.transform(field))))]


def _net(source: SourceNames) -> Identifier:
    return Identifier("idivm_log", f"s{source.id}_net")


def _column(table: str, side: str, number: int) -> Composed:
    return SQL("{}.{}").format(SQL(table), Identifier(f"{side}_{number}"))


def _listed(parts: Iterable[Composable]) -> Composed:
    return SQL(", ").join(parts)
