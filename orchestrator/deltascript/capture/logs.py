"""The source view, the log, and the functions that read it: images, net changes, and changed
columns.

Only the source view names columns of the user's table. PostgreSQL stores it as a parse tree, so
that a renamed column of the table needs no repair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from orchestrator.deltascript.capture.images import differ
from orchestrator.deltascript.capture.table import (
    PLACEHOLDER,
    Captured,
    first_key,
    function_body,
    identify_rows,
    keys,
    skip,
)
from orchestrator.deltascript.names import changed_column
from orchestrator.deltascript.plan import SourceColumn


def create_source(source: Captured) -> Iterator[Composed]:
    """Yield the statements that create the source view, the log and the function of net changes."""
    yield SQL("CREATE VIEW {} AS SELECT {} FROM {} AS t").format(
        source.view, _view_columns(source), source.relation
    )
    for segment in ("_a", "_b"):
        yield SQL(
            "CREATE TABLE {} AS SELECT 0::bigint AS seq, '0'::xid8 AS xid, 'T'::\"char\" AS op{} WITH NO DATA"
        ).format(
            source.log(segment),
            SQL("").join(
                SQL(", NULL::{} AS {}").format(_type(column), Identifier(f"{side}_{column.attnum}"))
                for side in "on"
                for column, _ in source.columns
            ),
        )
        yield identify_rows(source.log(segment))
    yield SQL("CREATE SEQUENCE {}").format(source.log("_seq"))
    yield from read_side(source)


def widen_source(source: Captured, added: Sequence[SourceColumn]) -> Iterator[Composed]:
    """Yield the statements that add columns to an existing source; `source` already has these
    columns.
    """
    yield SQL("CREATE OR REPLACE VIEW {} AS SELECT {} FROM {} AS t").format(
        source.view, _view_columns(source), source.relation
    )
    for segment in ("_a", "_b"):
        yield SQL("ALTER TABLE {} {}").format(
            source.log(segment),
            SQL(", ").join(
                SQL("ADD COLUMN {} {}").format(Identifier(f"{side}_{column.attnum}"), _type(column))
                for side in "on"
                for column in added
            ),
        )
    yield from read_side(source)


def _type(column: SourceColumn) -> SQL:
    # Written by PostgreSQL's format_type, with quotes where necessary.
    return SQL(column.plain_type)


def _view_columns(source: Captured) -> Composable:
    columns = [
        SQL("t.{} AS {}").format(Identifier(column.name), Identifier(name))
        for column, name in source.columns
    ]
    return SQL(", ").join(
        [SQL("true AS {}").format(Identifier(PLACEHOLDER)), *columns][skip(source) :]
    )


def _image_types(source: Captured) -> Composable:
    columns = [
        SQL("s.{0}::{1} AS {0}").format(Identifier(name), _type(column))
        for column, name in source.columns
    ]
    return SQL(", ").join([SQL("s.{}").format(Identifier(PLACEHOLDER)), *columns][skip(source) :])


def _compare_images(source: Captured) -> Iterator[Composed]:
    """Yield the functions that compare images: whether keys are equal, and whether images differ.

    PostgreSQL inlines both, so that joins by the first one can still hash and merge.
    """
    if not source.keyed:
        return
    for suffix, condition in (
        ("_same", SQL(" AND ").join(_same(column, name) for column, name in keys(source))),
        ("_changed", _changed(source)),
    ):
        yield SQL(
            "CREATE OR REPLACE FUNCTION {}(o {}, n {}) RETURNS boolean LANGUAGE sql IMMUTABLE\n"
            "BEGIN ATOMIC SELECT {}; END"
        ).format(source.log(suffix), source.image, source.image, condition)


def _same(column: SourceColumn, name: str) -> Composed:
    if column.equality:
        return SQL("(o).{0} = (n).{0}").format(Identifier(name))
    return SQL("record_image_eq(ROW((o).{0}), ROW((n).{0}))").format(Identifier(name))


def _changed(source: Captured) -> Composed:
    """Return the condition that a pair lacks a side or differs in a used column, to the bit."""
    sides = (
        {
            column: SQL("({}).{}").format(SQL(row), Identifier(name))
            for column, name in source.columns
        }
        for row in "on"
    )
    old, new = (side.__getitem__ for side in sides)
    # In a pair with equal keys, key columns with exact equality cannot differ.
    compared = [
        column for column, _ in source.columns if not (column.in_key and column.equality == "exact")
    ]
    return SQL(" OR ").join(
        [
            *(SQL("{} IS NULL").format(first_key(source, SQL(row))) for row in ("o", "n")),
            *differ(compared, old, new),
        ]
    )


def read_side(source: Captured) -> Iterator[Composed]:
    """Yield the statements that create or replace images and their readers: comparison, net
    changes.

    Images have no domains, as the log has none. PostgreSQL refuses a new constraint on a domain
    while a function takes rows that contain it, and an image may be older than the constraint.
    """
    yield SQL("CREATE OR REPLACE VIEW {} AS SELECT {} FROM {} AS s").format(
        source.image, _image_types(source), source.view
    )
    yield from _compare_images(source)
    yield SQL("CREATE OR REPLACE VIEW {} AS SELECT * FROM {} UNION ALL SELECT * FROM {}").format(
        source.log(), source.log("_a"), source.log("_b")
    )
    yield SQL("SELECT idivm.create_pending({})").format(Literal(source.id))
    yield from _read_changes(source)
    images = {
        side: SQL("ROW({})::{}").format(
            SQL(", ").join(
                [
                    SQL("true"),
                    *(
                        SQL("c.{}").format(Identifier(f"{side}_{column.attnum}"))
                        for column, _ in source.columns
                    ),
                ][skip(source) :]
            ),
            source.image,
        )
        for side in "on"
    }
    pending = SQL(
        "SELECT c.op, CASE WHEN c.op IN ('D', 'U') THEN {old} END AS old,"
        " CASE WHEN c.op IN ('I', 'U') THEN {new} END AS new{group}\n"
        "        FROM {log} AS c WHERE idivm.is_pending(c.xid, c.seq, since, {id}) AND c.op <> 'T'"
    )
    group: Composable
    if source.keyed:
        key = SQL(", ").join(
            SQL("coalesce(c.{}, c.{})").format(
                Identifier(f"n_{column.attnum}"), Identifier(f"o_{column.attnum}")
            )
            for column, _ in source.columns
            if column.in_key
        )
        group = SQL(
            ", dense_rank() OVER (ORDER BY {keys}) AS key, count(*) OVER (PARTITION BY {keys}) AS times"
        ).format(keys=key)
        body = SQL(
            "WITH pending AS (\n        {pending}\n    )\n"
            "    -- A key with one change has it as its net effect.\n"
            "    SELECT CASE WHEN i.sign < 0 THEN i.image END, CASE WHEN i.sign > 0 THEN i.image END, 1::bigint\n"
            "    FROM pending AS p CROSS JOIN LATERAL (VALUES (-1, p.old), (1, p.new)) AS i (sign, image)\n"
            "    WHERE p.times = 1 AND (i.sign < 0 AND p.op <> 'I' OR i.sign > 0 AND p.op <> 'D')\n"
            "    UNION ALL\n"
            "    -- With more, the images between the first and the last cancel, whatever the order\n"
            "    -- in which the triggers of nested statements wrote them. Before the table had its key,\n"
            "    -- several rows may have had the same.\n"
            "    SELECT CASE WHEN sum(i.sign) < 0 THEN (array_agg(i.image))[1] END,\n"
            "           CASE WHEN sum(i.sign) > 0 THEN (array_agg(i.image))[1] END, abs(sum(i.sign))\n"
            "    FROM pending AS p CROSS JOIN LATERAL (VALUES (-1, p.old), (1, p.new)) AS i (sign, image)\n"
            "    WHERE p.times > 1 AND (i.sign < 0 AND p.op <> 'I' OR i.sign > 0 AND p.op <> 'D')\n"
            "    GROUP BY p.key, i.image::text HAVING sum(i.sign) <> 0"
        )
    else:
        group = SQL("")
        body = SQL(
            "-- Without a key a row is its content: equal images cancel, the rest has a multiplicity. A writer that\n"
            "    -- began when there was a key has logged updates.\n"
            "    SELECT CASE WHEN sum(i.sign) < 0 THEN (array_agg(i.image))[1] END,\n"
            "           CASE WHEN sum(i.sign) > 0 THEN (array_agg(i.image))[1] END, abs(sum(i.sign))\n"
            "    FROM (\n        {pending}\n    ) AS p\n"
            "    CROSS JOIN LATERAL (VALUES (-1, p.old), (1, p.new)) AS i (sign, image)\n"
            "    WHERE i.sign < 0 AND p.op <> 'I' OR i.sign > 0 AND p.op <> 'D'\n"
            "    GROUP BY i.image::text HAVING sum(i.sign) <> 0"
        )
    yield SQL(
        "CREATE OR REPLACE FUNCTION {}(since idivm.watermark) RETURNS TABLE (old {}, new {}, times bigint)\n"
        "LANGUAGE sql STABLE\nBEGIN ATOMIC\n    {};\nEND"
    ).format(
        source.log("_net"),
        source.image,
        source.image,
        body.format(
            pending=pending.format(
                old=images["o"],
                new=images["n"],
                group=group,
                log=source.log(),
                id=Literal(source.id),
            )
        ),
    )


def _read_changes(source: Captured) -> Iterator[Composed]:
    """Yield the view of the logged changes, column by column, and the functions that programs call.

    The branch of the view that returns no rows gives its columns the collations of the table. For a
    source with a key, a program first assumes a single change for every key; a row of the log is
    then a net change.
    """

    def columns(table: str, named: Callable[[str, SourceColumn, str], Composable]) -> Composed:
        return SQL("").join(
            SQL(", {}.{}").format(SQL(table), named(side, column, name))
            for column, name in source.columns
            for side in ("old", "new")
        )

    def changed(side: str, column: SourceColumn, name: str) -> Composable:
        return Identifier(changed_column(side, column.attnum, name))

    typed = SQL("").join(
        SQL(", (NULL::{}).{} AS {}").format(
            source.image, Identifier(name), changed(side, column, name)
        )
        for column, name in source.columns
        for side in ("old", "new")
    )
    logged = columns("c", lambda side, column, _: Identifier(f"{side[0]}_{column.attnum}"))
    view = source.log("_changes")
    yield SQL(
        "CREATE OR REPLACE VIEW {} AS\n"
        'SELECT NULL::bigint AS seq, NULL::xid8 AS xid, NULL::"char" AS op{} WHERE false\n'
        "UNION ALL SELECT c.seq, c.xid, c.op{} FROM {} AS c"
    ).format(view, typed, logged, source.log())
    # Comparisons quickly exclude most rows: those consumed long ago, and those of transactions that
    # had not begun. Looking into the snapshot takes longer.
    yield SQL(
        "CREATE OR REPLACE FUNCTION {}(since idivm.watermark, floor xid8, ceiling xid8, consumer xid8)\n"
        "RETURNS SETOF {} LANGUAGE sql STABLE\nBEGIN ATOMIC\n"
        "    SELECT c.seq, c.xid, c.op{} FROM {} AS c\n"
        "    WHERE c.xid >= floor AND (c.xid >= ceiling AND c.xid IS DISTINCT FROM consumer\n"
        "                              AND idivm.is_within(c.xid, since.upto)\n"
        "                              OR idivm.is_pending(c.xid, c.seq, since, {}));\nEND"
    ).format(source.log("_pending_changes"), view, columns("c", changed), view, Literal(source.id))
    yield _signed_images(source)
    if source.keyed:
        yield _net_changes(source, changed)


def _signed_images(source: Captured) -> Composed:
    """Return the view of the logged images: old rows with the sign -1, and new rows with the sign 1.

    Each branch reads a segment without a condition, so that PostgreSQL looks up the rows of both segments by an
    index. Whether a log row has an image of this side is a column. The branch that returns no rows gives the
    columns their types.
    """
    typed = SQL("").join(
        SQL(", (NULL::{}).{} AS {}").format(
            source.image, Identifier(name), Identifier(f"i_{column.attnum}")
        )
        for column, name in source.columns
    )

    def branch(segment: str, side: str, sign: int, without: str) -> Composed:
        values = SQL("").join(
            SQL(", c.{}").format(Identifier(f"{side}_{column.attnum}"))
            for column, _ in source.columns
        )
        return SQL("SELECT c.seq, c.xid, {}, {}, c.op NOT IN ('T', {}){} FROM {} AS c").format(
            Literal(source.id), Literal(sign), Literal(without), values, source.log(segment)
        )

    branches = [
        branch(segment, side, sign, without)
        for side, sign, without in (("o", -1, "I"), ("n", 1, "D"))
        for segment in ("_a", "_b")
    ]
    return SQL(
        "CREATE OR REPLACE VIEW {} AS\n"
        "SELECT NULL::bigint AS seq, NULL::xid8 AS xid, 0 AS source, 0 AS sign, false AS held{} WHERE false\n"
        "UNION ALL {}"
    ).format(source.log("_images"), typed, SQL("\nUNION ALL ").join(branches))


def _net_changes(
    source: Captured, changed: Callable[[str, SourceColumn, str], Composable]
) -> Composed:
    """Return the function of net changes, for keys with several pending changes.

    The images between the first and the last cancel each other, in whatever order the triggers of
    nested statements wrote them. At most one old and one new image remain. PL/pgSQL is used because
    it caches plans.
    """

    def images(side: str, table: str = "p") -> Composed:
        return SQL(", ").join(
            SQL("{}.{}").format(SQL(table), changed(side, column, name))
            for column, name in source.columns
        )

    def numbered(table: str, letter: str, columns: Iterable[SourceColumn]) -> list[Composed]:
        return [
            SQL("{}.{}").format(SQL(table), Identifier(f"{letter}_{column.attnum}"))
            for column in columns
        ]

    columns = [column for column, _ in source.columns]
    keyed = [column for column in columns if column.in_key]
    key = SQL(", ").join(
        SQL("coalesce(p.{}, p.{})").format(
            changed("new", column, name), changed("old", column, name)
        )
        for column, name in keys(source)
    )
    sides = zip(numbered("o", "i", columns), numbered("n", "i", columns), strict=True)
    body = SQL(
        "DECLARE\n"
        "    floor xid8 := pg_snapshot_xmin(since.snapshot);\n"
        "    ceiling xid8 := pg_snapshot_xmax(since.snapshot);\n"
        "    consumer xid8 := since.own_xid;\n"
        "BEGIN\n"
        "    RETURN QUERY WITH pending AS MATERIALIZED (\n"
        "        SELECT c.* FROM {pending}(since, floor, ceiling, consumer) AS c WHERE c.op <> 'T'\n"
        "    ), repeated AS MATERIALIZED (\n"
        "        SELECT {key} FROM pending AS p GROUP BY {key} HAVING count(*) > 1\n"
        "    ), images AS (\n"
        "        SELECT i.*, sum(i.sign) OVER same AS net, row_number() OVER same AS nth\n"
        "        FROM pending AS p CROSS JOIN LATERAL (\n"
        "            VALUES ('I'::\"char\", -1, {key}, {old}), ('D', 1, {key}, {new})\n"
        "        ) AS i (lacking, sign, {keys}, {images})\n"
        # This becomes a lookup in a hash table, regardless of the planner's estimates.
        "        WHERE (({key}) IN (SELECT * FROM repeated)) IS TRUE AND p.op <> i.lacking\n"
        "        WINDOW same AS (PARTITION BY {by}, ROW({image})::text)\n"
        "    )\n"
        "    SELECT p.* FROM pending AS p WHERE ({key}) NOT IN (SELECT * FROM repeated)\n"
        "    UNION ALL\n"
        "    SELECT NULL, NULL,\n"
        "           CASE WHEN n.sign IS NULL THEN 'D' WHEN o.sign IS NULL THEN 'I' ELSE 'U' END::\"char\", {both}\n"
        "    FROM (SELECT * FROM images WHERE net < 0 AND nth = 1) AS o\n"
        "    FULL JOIN (SELECT * FROM images WHERE net > 0 AND nth = 1) AS n ON {same};\n"
        "END"
    ).format(
        pending=source.log("_pending_changes"),
        key=key,
        old=images("old"),
        new=images("new"),
        keys=SQL(", ").join(Identifier(f"k_{column.attnum}") for column in keyed),
        images=SQL(", ").join(Identifier(f"i_{column.attnum}") for column in columns),
        by=SQL(", ").join(numbered("i", "k", keyed)),
        image=SQL(", ").join(numbered("i", "i", columns)),
        both=SQL(", ").join(side for pair in sides for side in pair),
        same=SQL(" AND ").join(
            SQL("{} = {}").format(*pair)
            for pair in zip(numbered("o", "k", keyed), numbered("n", "k", keyed), strict=True)
        ),
    )
    return SQL(
        "CREATE OR REPLACE FUNCTION {}(since idivm.watermark) RETURNS SETOF {} LANGUAGE plpgsql STABLE\n"
        "SET search_path = pg_catalog, pg_temp AS {}"
    ).format(source.log("_net_changes"), source.log("_changes"), function_body(body))
