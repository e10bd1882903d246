"""The bodies of the capture functions, which log the changes of a statement or of a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from orchestrator.deltascript.capture.segments import (
    NOTHING,
    by_segment,
    either,
    executed,
    into_segment,
    trigger_body,
)
from orchestrator.deltascript.capture.table import (
    Captured,
    Layout,
    first_key,
    keys,
    skip,
)
from orchestrator.sqltext import fresh_name

ROWS = "rows"
"""The name of the row trigger of replica sessions, used like the name of an operation."""


def _joined(parts: Iterator[Composed]) -> Composed:
    return SQL("").join(parts)


def _log_columns(source: Captured, sides: str) -> Composed:
    return _joined(
        SQL(", {}").format(Identifier(f"{side}_{column.attnum}"))
        for side in sides
        for column, _ in source.columns
    )


def _image_columns(source: Captured, sides: str) -> Composed:
    row = {"o": SQL("o.old"), "n": SQL("n.new")}
    return _joined(
        SQL(", ({}).{}").format(row[side], Identifier(name))
        for side in sides
        for _, name in source.columns
    )


@dataclass(frozen=True)
class _Rows:
    """The expressions for the images of the rows and for the number of the statement."""

    old: Composable
    new: Composable
    number: Composable

    def of(self, side: str) -> Composable:
        return self.old if side == "old" else self.new


_TABLES = (SQL("old_rows"), SQL("new_rows"))


_RECORDS = (SQL("(SELECT OLD.*)"), SQL("(SELECT NEW.*)"))
"""The old and the new row in a row trigger; `_TABLES` has them for a statement trigger."""


def _counted(source: Captured, layout: Layout, tables: tuple[SQL, SQL] = _TABLES) -> _Rows:
    """Return images that find columns by position, for a table whose columns are unchanged."""
    positions = {name: position for position, (_, name) in enumerate(layout.columns, start=1)}
    used = [positions[column.name] for column, _ in source.columns]
    # The columns after the last used one keep their names, which must not clash.
    taken = set(positions)
    names = []
    for position in range(1, max(used, default=0) + 1):
        names.append(Identifier(fresh_name(f"idivm column {position}", taken)))
    aliases = SQL(" ({})").format(SQL(", ").join(names)) if names else SQL("")
    values = [SQL("t.{}").format(names[position - 1]) for position in used]
    image = SQL("ROW({})::{}").format(
        SQL(", ").join([SQL("true"), *values][skip(source) :]), source.image
    )
    old, new = (
        SQL("(SELECT {} AS {} FROM {} AS t{})").format(image, SQL(side), rows, aliases)
        for side, rows in zip(("old", "new"), tables, strict=True)
    )
    return _Rows(old, new, SQL("stmt"))


_NAMED = _Rows(
    SQL("(SELECT image AS old FROM old_images)"),
    SQL("(SELECT image AS new FROM new_images)"),
    SQL("$1"),
)
"""The images by the current names of the columns, as `idivm.images` writes them."""


def _is_as_counted(source: Captured, layout: Layout) -> Composed:
    """Return the condition that the columns up to the last used one are still the same.

    A used column cannot be dropped. `has_column_privilege` is NULL for a dropped column. It uses no
    snapshot, which might be older than the columns.
    """
    used_names = {column.name for column, _ in source.columns}
    last = max((n for n, (_, name) in enumerate(layout.columns) if name in used_names), default=-1)
    conditions = [SQL("TG_RELID = {}").format(Literal(layout.oid))]
    for attnum, name in layout.columns[: last + 1]:
        if name not in used_names:
            conditions.append(
                SQL("has_column_privilege(TG_RELID, {}::smallint, 'SELECT') IS NOT NULL").format(
                    Literal(attnum)
                )
            )
    return SQL(" AND ").join(conditions)


def _appended(
    source: Captured, segment: Identifier, sides: str, operation: Composable, number: Composable
) -> Composed:
    return SQL(
        "        INSERT INTO {} (seq, xid, op{})\n        SELECT {}, pg_current_xact_id(), {}{}\n"
    ).format(segment, _log_columns(source, sides), number, operation, _image_columns(source, sides))


def _inserted(source: Captured, segment: Identifier, rows: _Rows) -> Composed:
    into = _appended(source, segment, "n", Literal("I"), rows.number)
    return SQL("{}        FROM {} AS n").format(into, rows.new)


def _deleted(source: Captured, segment: Identifier, rows: _Rows) -> Composed:
    into = _appended(source, segment, "o", Literal("D"), rows.number)
    return SQL("{}        FROM {} AS o").format(into, rows.old)


def bodies(source: Captured, layout: Layout, number: int) -> dict[str, Composed]:
    """Return the bodies of a table's capture functions, by the names of the functions."""
    counted, by_name = _counted(source, layout), _NAMED
    condition = _is_as_counted(source, layout)

    def logging(statement: Callable[[Identifier, _Rows], Composed]) -> Composed:
        return into_segment(
            source,
            lambda segment: statement(segment, counted),
            (condition, lambda segment: statement(segment, by_name)),
            first,
        )

    def inserted(segment: Identifier, rows: _Rows) -> Composed:
        return _inserted(source, segment, rows)

    def deleted(segment: Identifier, rows: _Rows) -> Composed:
        return _deleted(source, segment, rows)

    def truncated(segment: Identifier, rows: _Rows) -> Composed:
        return _appended(source, segment, "", Literal("T"), rows.number)

    def moved(segment: Identifier, rows: _Rows, table: Composable) -> Composed:
        return SQL("{}        WHERE idivm.merge_may_have_moved_rows({})").format(
            truncated(segment, rows), table
        )

    first: Composable = NOTHING
    if layout.partitioned:
        first = SQL(
            "    IF (SELECT count(*) FROM pg_inherits AS i JOIN idivm.source_members AS m ON m.member = i.inhparent\n"
            "        WHERE m.source = {0})\n"
            "       <> (SELECT count(*) - 1 FROM idivm.source_members AS m WHERE m.source = {0}) THEN\n"
            # A statement that changed no row may not have a transaction number yet, which must come
            # first.
            "        PERFORM pg_current_xact_id();\n        stmt := nextval({2});\n"
            "{1}    END IF;\n"
        ).format(
            Literal(source.id),
            by_segment(source, lambda segment: truncated(segment, counted)),
            Literal(source.log("_seq").as_string(None)),
        )

    def updated(segment: Identifier) -> Composed:
        before = [moved(segment, counted, SQL("TG_RELID"))] if layout.partitioned else []
        if source.keyed:
            return SQL(";\n").join([*before, _paired_update(source, counted, segment)])
        return SQL(";\n").join([*before, deleted(segment, counted), inserted(segment, counted)])

    def updated_by_name(segment: Identifier) -> Composed:
        statements = [moved(segment, by_name, SQL("$2"))] if layout.partitioned else []
        if source.keyed:
            statements.append(_all_pairs(source, by_name, segment, numbered=True))
        else:
            statements += [deleted(segment, by_name), inserted(segment, by_name)]
        *before, last = statements
        also = [
            SQL(", {} AS (\n{}) ").format(Identifier(f"also{n}"), statement)
            for n, statement in enumerate(before)
        ]
        return _joined(iter([*also, SQL("\n").format(), last]))

    bodies = {
        "insert": logging(inserted),
        "update": into_segment(
            source, updated, (condition, updated_by_name), first, compared=source.keyed
        ),
        "delete": logging(deleted),
        "truncate": SQL("BEGIN\n    RETURN NULL;\nEND").format()
        if layout.stream
        else into_segment(source, lambda segment: truncated(segment, counted)),
    }
    return bodies if layout.partitioned else {**bodies, ROWS: _row_body(source, layout)}


def _row_body(source: Captured, layout: Layout) -> Composed:
    """Return the body that logs one row, as the statement triggers log the rows of a statement."""
    counted, by_name = _counted(source, layout, _RECORDS), _NAMED

    def changed(segment: Identifier, rows: _Rows) -> Composed:
        if source.keyed and rows is by_name:
            return _all_pairs(source, rows, segment, numbered=False)
        if source.keyed:
            return _changed_row(source, rows, segment)
        # Two statements; the images precede the second one.
        delete = _deleted(source, segment, rows)
        insert = _inserted(source, segment, rows)
        if rows is by_name:
            return SQL(", gone AS (\n{}) {}").format(delete, insert)
        return SQL("{};\n{}").format(delete, insert)

    def logged(
        sides: str, statement: Callable[[Identifier, _Rows], Composed]
    ) -> tuple[Composed, Composed]:
        records = [("old", SQL("($3).*"), SQL("OLD")), ("new", SQL("($3).*"), SQL("NEW"))]
        if sides == "on":
            records[1] = ("new", SQL("($4).*"), SQL("NEW"))
        chosen = [record for record in records if record[0][0] in sides]
        images = SQL("'WITH {}, ' || substr(idivm.images({}, TG_RELID, TG_OP), 6)").format(
            SQL(", ").join(
                SQL("{} AS (SELECT {})").format(SQL(f"{side}_rows"), row) for side, row, _ in chosen
            ),
            Literal(source.id),
        )
        using = SQL(", ").join([SQL("stmt, TG_RELID"), *(record for _, _, record in chosen)])
        return (
            by_segment(source, lambda segment: statement(segment, counted)),
            executed(source, images, lambda segment: statement(segment, by_name), using),
        )

    statements = (
        logged("n", lambda segment, rows: _inserted(source, segment, rows)),
        logged("o", lambda segment, rows: _deleted(source, segment, rows)),
        logged("on", changed),
    )
    condition = _is_as_counted(source, layout)
    insert, delete, update = (either(condition, *variants) for variants in statements)
    return trigger_body(
        source,
        SQL(
            "    IF TG_OP = 'INSERT' THEN\n{}    ELSIF TG_OP = 'DELETE' THEN\n{}    ELSE\n{}    END IF;\n"
        ).format(insert, delete, update),
        compared=source.keyed,
    )


def _paired_update(source: Captured, rows: _Rows, segment: Identifier) -> Composed:
    """Return the statements that pair old and new rows by key; a changed key leaves both without a
    partner.

    A pair of identical images is not logged, because the update changed no used column. Most
    updates change a single row and keep its key; they need no join, which would take time to start.
    The actions of foreign keys that a statement triggers share its transition tables, so a row may
    occur there more than once. The pairs are then numbered, so that they do not share rows.
    """
    return SQL(
        "{single}"
        "        FROM {old} AS o CROSS JOIN {new} AS n\n"
        "        WHERE NOT EXISTS (SELECT FROM old_rows OFFSET 1)\n"
        "          AND {same}(o.old, n.new) IS TRUE AND {changed}(o.old, n.new);\n"
        "        IF NOT FOUND THEN\n"
        "        IF EXISTS (SELECT FROM pg_constraint AS f WHERE f.conrelid = TG_RELID AND f.contype = 'f'\n"
        "                   AND (f.confupdtype IN ('c', 'n', 'd') OR f.confdeltype IN ('n', 'd'))) THEN\n"
        "{numbered};\n"
        "        ELSE\n"
        "{paired};\n"
        "        END IF;\n"
        "        END IF"
    ).format(
        single=_appended(source, segment, "on", Literal("U"), rows.number),
        numbered=_all_pairs(source, rows, segment, numbered=True),
        paired=_all_pairs(source, rows, segment, numbered=False),
        old=rows.old,
        new=rows.new,
        same=source.log("_same"),
        changed=source.log("_changed"),
    )


def _changed_row(source: Captured, rows: _Rows, segment: Identifier) -> Composed:
    """Return the statements that log both images of a row; only a changed key needs a join of both
    sides.
    """
    return SQL(
        "{single}        FROM {old} AS o CROSS JOIN {new} AS n\n"
        "        WHERE {same}(o.old, n.new) IS TRUE AND {changed}(o.old, n.new);\n"
        "        IF NOT FOUND THEN\n{pairs};\n        END IF"
    ).format(
        single=_appended(source, segment, "on", Literal("U"), rows.number),
        old=rows.old,
        new=rows.new,
        same=source.log("_same"),
        changed=source.log("_changed"),
        pairs=_all_pairs(source, rows, segment, numbered=False),
    )


def _all_pairs(source: Captured, rows: _Rows, segment: Identifier, *, numbered: bool) -> Composed:
    def images(side: str) -> Composable:
        if not numbered:
            return rows.of(side)
        by = SQL(", ").join(
            SQL("(r.{}).{}").format(SQL(side), Identifier(name)) for _, name in keys(source)
        )
        return SQL("(SELECT r.{}, row_number() OVER (PARTITION BY {}) AS nth FROM {} AS r)").format(
            SQL(side), by, rows.of(side)
        )

    operation = SQL(
        "CASE WHEN {old} IS NULL THEN 'I' WHEN {new} IS NULL THEN 'D' ELSE 'U' END::\"char\""
    ).format(old=first_key(source, SQL("o.old")), new=first_key(source, SQL("n.new")))
    return SQL(
        "{into}        FROM {old} AS o FULL JOIN {new} AS n ON {same}(o.old, n.new){nth}\n"
        "        WHERE {changed}(o.old, n.new)"
    ).format(
        into=_appended(source, segment, "on", operation, rows.number),
        old=images("old"),
        new=images("new"),
        same=source.log("_same"),
        changed=source.log("_changed"),
        nth=SQL(" AND o.nth = n.nth" if numbered else ""),
    )
