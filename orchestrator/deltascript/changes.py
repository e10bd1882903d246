"""The steps of a program that look what the logs have for it, and read net changes into variables.

Of a source with a key the log is read column by column, those alone that the view uses. Mostly each
key has one pending change, which is its net effect: then nothing is grouped or joined. Where a key
has more, the images between the first and the last cancel, whatever the order in which the triggers
of nested statements wrote them, and at most one old and one new image remain. Images are compared
in the columns that are read: what changed in others is no change here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from psycopg.sql import SQL, Composable, Composed, Identifier, Literal
from sqlglot import exp

from orchestrator.algebra import dialect
from orchestrator.algebra.dialect import Tree, reference
from orchestrator.deltascript.images import differ
from orchestrator.deltascript.names import Names, SourceNames
from orchestrator.deltascript.plan import (
    ChangeClass,
    MaintenancePlan,
    ReadChanges,
    SourceColumn,
)

_NOTHING = SQL("")


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


def declarations() -> SQL:
    """The variables for what the logs have."""
    return SQL(
        "    floor xid8 := pg_snapshot_xmin(since.snapshot);\n"
        "    ceiling xid8 := pg_snapshot_xmax(since.snapshot);\n"
        "    consumer xid8 := since.own_xid;\n"
        "    own xid8 := pg_current_xact_id_if_assigned();\n"
        "    pending bigint := 0;\n    most bigint;\n    taken bigint;\n    keys bigint;\n    last bigint;\n"
        "    truncated boolean;\n"
    )


def look(plan: MaintenancePlan, names: Names, definition: Composable) -> Composed:
    """Return the statements that read the logs of all sources, and ask for a rebuild where they must."""
    steps = {step.source: step for step in plan.script if isinstance(step, ReadChanges)}
    return SQL(
        "        IF since.own_xid = own THEN\n            marks := since.own_marks;\n        END IF;\n{}"
    ).format(
        SQL("").join(
            _of_source(
                steps.get(one),
                names.sources[one.oid],
                names,
                _NOTHING
                if plan.by_lookups
                else _counted(names.sources[one.oid], names, definition),
            )
            for one in plan.sources
        ),
    )


SHORT = 256 * 1024
"""A log of so few bytes is read without counting first what is pending."""


def _counted(source: SourceNames, names: Names, definition: Composable) -> Composed:
    """Ask for a rebuild where reading what is pending takes longer, before any of it is read."""
    return SQL(
        "            IF pg_relation_size({a}::regclass) + pg_relation_size({b}::regclass) > {short} THEN\n"
        "                most := coalesce(most, idivm.most_pending({view}, idivm.query_work({definition})));\n"
        "                rebuild := rebuild OR idivm.has_more_pending({id}, since, most);\n"
        "            END IF;\n"
    ).format(
        a=Literal(f"idivm_log.s{source.id}_a"),
        b=Literal(f"idivm_log.s{source.id}_b"),
        short=Literal(SHORT),
        view=Literal(names.id),
        definition=definition,
        id=Literal(source.id),
    )


def _of_source(
    step: ReadChanges | None, source: SourceNames, names: Names, counted: Composable
) -> Composed:
    """What the log of a source has; without a step, no more than whether it has anything.

    Most tables hardly ever change: that their logs are empty is told without a query.
    """
    if step is not None and step.classes and source.key:
        looked, further = _by_key(step, source, names)
    else:
        looked = _into(_COUNTED, _pending_rows(source, SQL("c.seq, c.xid, c.op")))
        further = SQL("").format() if step is None else _by_content(step, source, names)
    return SQL(
        "        IF idivm.has_entries({a}, {b}) THEN\n"
        "{counted}"
        "            IF NOT rebuild THEN\n"
        "{looked}"
        "            IF taken > 0 THEN\n"
        "                pending := pending + taken;\n"
        "                rebuild := rebuild OR truncated;\n"
        "                IF last IS NOT NULL THEN\n"
        "                    marks := coalesce(marks, '{{}}') || jsonb_build_object({id}, last);\n"
        "                END IF;\n"
        "{further}"
        "            END IF;\n"
        "            END IF;\n"
        "        END IF;\n"
    ).format(
        a=Literal(f"idivm_log.s{source.id}_a"),
        b=Literal(f"idivm_log.s{source.id}_b"),
        counted=_NOTHING if step is None else counted,
        looked=looked,
        id=Literal(source.id),
        further=further,
    )


_COUNTED = (
    (SQL("count(*)"), "taken"),
    (SQL("max(c.seq) FILTER (WHERE c.xid = own)"), "last"),
    (SQL("bool_or(c.op = 'T')"), "truncated"),
)
"""What is asked of the pending rows of every log, and the variables that hold it."""


def _pending_rows(source: SourceNames, shown: Composable) -> Composed:
    return SQL("        SELECT {}\n        FROM {} AS c\n        WHERE {}").format(
        shown, Identifier("idivm_log", f"s{source.id}"), _pending(source)
    )


def _pending(source: SourceNames) -> Composed:
    """Whether a row `c` of a log is pending.

    Comparisons tell that most were consumed long ago, or written by transactions that had yet to
    begin; they are quicker than to look into the snapshot.
    """
    return SQL(
        "c.xid >= floor AND (c.xid >= ceiling AND c.xid IS DISTINCT FROM consumer"
        " OR idivm.is_pending(c.xid, c.seq, since, {}))"
    ).format(Literal(source.id))


def _into(
    wanted: Sequence[tuple[Composable, str]], rows: Composable, expressions: Composable = _NOTHING
) -> Composed:
    """Computes values of rows `c` into variables."""
    return SQL(
        "            {}SELECT {}\n            INTO {}\n            FROM (\n{}\n            ) AS c;\n"
    ).format(
        expressions,
        SQL(",\n                ").join(value for value, _ in wanted),
        _listed(Identifier(variable) for _, variable in wanted),
        rows,
    )


def _collected(
    step: ReadChanges, names: Names, conditions: Sequence[Sequence[Composable]]
) -> list[tuple[Composable, str]]:
    """The rows of each class, and the variables for them. What is in no class does not become one.

    Of the conditions of a class, the first say which images there are, and what else they say is
    dearer to find out than whether the row matters.
    """
    fields = [f"{side}_{name}" for side in ("old", "new") for _, name in step.fields]
    image = SQL("ROW({})::{}").format(
        _listed(SQL("c.{}").format(Identifier(name)) for name in fields or ["present"]),
        names.state(step.shape),
    )
    return [
        (
            SQL("array_agg({}) FILTER (WHERE {})").format(
                image, SQL(" AND ").join([present, *_relevant(one), *further])
            ),
            one.variable,
        )
        for one, (present, *further) in zip(step.classes, conditions, strict=True)
    ]


def _by_content(step: ReadChanges, source: SourceNames, names: Names) -> Composed:
    if not step.classes:
        return SQL("    rebuild := rebuild OR EXISTS (SELECT FROM {}(since));\n").format(
            _net(source)
        )
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
    kinds = [[SQL("c.{}").format(Identifier(one.kind))] for one in step.classes]
    return _into(_collected(step, names, kinds), rows)


def _by_key(step: ReadChanges, source: SourceNames, names: Names) -> tuple[Composed, Composed]:
    """The statement that takes every key to have changed once, and the one for where this is not so."""
    numbers = [number for number, _ in step.fields]
    called = dict(step.fields)
    in_key = [column for column in step.source.columns if column.in_key]

    def field(side: str, number: int) -> Composed:
        return SQL("c.{}").format(Identifier(f"{side}_{called[number]}"))

    def differing(columns: Iterable[SourceColumn]) -> Composed:
        old, new = (lambda one, side=side: field(side, one.attnum) for side in ("old", "new"))
        return SQL("({})").format(SQL(" OR ").join(differ(columns, old, new)))

    def present(side: str) -> Composed:
        return SQL("{} IS NOT NULL").format(field(side, in_key[0].attnum))

    # A key may be equal by `=` and yet look different; that is no update.
    coarse = [column for column in in_key if column.equality != "exact"]
    kept = SQL("{} AND {}").format(present("old"), present("new"))
    if coarse:
        kept = SQL("{} AND NOT {}").format(kept, differing(coarse))

    def condition(one: ChangeClass) -> list[Composable]:
        if one.kind == "update":
            return [kept, differing(c for c in step.source.columns if c.attnum in one.touched)]
        side, other = ("old", "new") if one.kind == "minus" else ("new", "old")
        if not coarse:
            return [SQL("{} AND NOT {}").format(present(side), present(other))]
        return [present(side), SQL("NOT ({})").format(kept)]

    conditions = [condition(one) for one in step.classes]

    def shaped(query: Composable, *further: str) -> Composed:
        # The branch without rows names the columns, and gives them the collations of the table's.
        return SQL("            SELECT {} WHERE false\n            UNION ALL\n{}").format(
            _listed([fields(step, names), *map(SQL, further)]), query
        )

    columns = (_column("c", side, number) for side in "on" for number in numbers)
    once = shaped(
        _pending_rows(source, SQL("{}, c.seq, c.xid, c.op").format(_listed(columns))),
        "NULL::bigint AS seq",
        "NULL::xid8 AS xid",
        'NULL::"char" AS op',
    )
    key = [
        SQL("coalesce({}, {})").format(field("new", one.attnum), field("old", one.attnum))
        for one in in_key
    ]
    keys = SQL("count(DISTINCT {})").format(_distinguishable(key, in_key))
    expressions, query = _net_columns(source, numbers)
    collected = _collected(step, names, conditions)
    return (
        _into((*collected, *_COUNTED, (keys, "keys")), once),
        SQL("            IF keys < taken AND NOT rebuild THEN\n{}            END IF;\n").format(
            _into(collected, shaped(query), expressions)
        ),
    )


_HASHED = frozenset(
    {
        *("smallint", "integer", "bigint", "numeric", "oid", "boolean", "bytea"),
        *("text", "character varying", "character", "real", "double precision"),
        *("uuid", "date", "timestamp", "timestamp without time zone", "timestamp with time zone"),
    }
)
"""Types whose values have hashes, which are equal where the values are."""

_INTEGERS = {
    "smallint": "hashint2extended",
    "integer": "hashint4extended",
    "bigint": "hashint8extended",
}
"""What makes hashes of numbers, one after the other, without a row around them."""


def _distinguishable(key: Sequence[Composable], columns: Sequence[SourceColumn]) -> Composable:
    """A value that keys which are equal share.

    Numbers are quicker to sort than rows; should two keys share one, they are looked at closer.
    """
    if len(key) == 1:
        return key[0]
    row = SQL("ROW({})").format(_listed(key))
    types = [one.plain_type.partition("(")[0].strip() for one in columns]
    if all(one in _INTEGERS for one in types):
        number: Composable = SQL("0")
        for part, type_ in zip(key, types, strict=True):
            number = SQL("{}({}, {})").format(SQL(_INTEGERS[type_]), part, number)
        return number
    if all(one in _HASHED for one in types):
        return SQL("hash_record_extended({}, 0)").format(row)
    return row


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
        "{pending} AND c.op <> 'T'\n"
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
        pending=_pending_rows(
            source, SQL("c.op, {}, {}").format(columns("c", "o"), columns("c", "n"))
        ),
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
