"""The SQL that captures the changes of one table: source view, log, triggers, net effect.

No text here names a column of the user's table but the source view and the functions that turn a
row of the table into a row of that view. PostgreSQL stores both as parse trees, so that a rename
in the table needs no repair, and inlines both, so that they cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from orchestrator.deltascript.plan import SourceColumn

SEGMENT_BITS = 32
"""A statement's number shifted right by this many bits tells, by its lowest bit, the log segment."""

LOOK_EVERY = 1024
"""Once in so many statements a writer looks whether the log has grown beyond what views may keep."""


PLACEHOLDER = "present"


@dataclass(frozen=True)
class Captured:
    """A source as installed: its id, its table and the names its columns have in the source view."""

    id: int
    relation: Composable
    columns: tuple[tuple[SourceColumn, str], ...]
    placeholder: bool = False
    """Whether the source view begins with a column that stands for none, as for count(*)."""

    @property
    def keyed(self) -> bool:
        """Whether the source has a key."""
        return any(column.in_key for column, _ in self.columns)

    @property
    def base(self) -> str:
        """The name that all objects of the source begin with."""
        return f"s{self.id}"

    @property
    def view(self) -> Identifier:
        """The source view."""
        return Identifier("idivm_def", self.base)

    def arguments(self, number: int) -> tuple[str, ...]:
        """What the C form of capture is told of a table: source, number, the key's columns."""
        key = (str(column.attnum) for column, _ in self.columns if column.in_key)
        return (str(self.id), str(number), *key)

    def log(self, suffix: str = "") -> Identifier:
        """An object in the log schema."""
        return Identifier("idivm_log", self.base + suffix)


def create_source(source: Captured) -> Iterator[Composed]:
    """The statements that create the source view, the log and the function of net effect."""
    yield SQL("CREATE VIEW {} AS SELECT {} FROM {} AS t").format(
        source.view, _view_columns(source), source.relation
    )
    for segment in ("_a", "_b"):
        yield SQL(
            "CREATE TABLE {} AS SELECT 0::bigint AS seq, '0'::xid8 AS xid, 'T'::\"char\" AS op{} WITH NO DATA"
        ).format(
            source.log(segment),
            _joined(
                SQL(", NULL::{} AS {}").format(_type(column), Identifier(f"{side}_{column.attnum}"))
                for side in "on"
                for column, _ in source.columns
            ),
        )
    yield SQL("CREATE SEQUENCE {}").format(source.log("_seq"))
    yield from read_side(source)


def widen_source(source: Captured, added: Sequence[SourceColumn]) -> Iterator[Composed]:
    """The statements that add columns to a source that exists; `source` has them already."""
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


def capture_member(
    source: Captured, member: Composable, number: int, partitioned: bool = False
) -> Iterator[Composed]:
    """The functions that log the changes of one table: the source itself, a partition or an heir.

    Of a row that a MERGE moves from one partition to another, transition tables hold a part or
    nothing; the log then says of the table what it says after a TRUNCATE: compute it again.
    """
    yield SQL(
        "CREATE OR REPLACE FUNCTION {}(t {}) RETURNS {} LANGUAGE sql IMMUTABLE\n"
        "BEGIN ATOMIC SELECT ROW({})::{}; END"
    ).format(source.log(f"_pick_{number}"), member, source.view, _row_values(source), source.view)
    for operation, body in _capture_bodies(source, number, partitioned).items():
        yield SQL(
            "CREATE OR REPLACE FUNCTION {}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER\n"
            "SET search_path = pg_catalog, pg_temp AS {}"
        ).format(source.log(f"_{operation}_{number}"), function_body(body))


OPERATIONS = ("insert", "update", "delete", "truncate")


def detach_triggers(source: Captured, member: Composable) -> Iterator[Composed]:
    """The statements that take capture off a table."""
    for operation in OPERATIONS:
        yield SQL("DROP TRIGGER IF EXISTS {} ON {}").format(
            Identifier(f"idivm_{source.id}_{operation}"), member
        )


def drop_member(source: Captured, number: int) -> Iterator[Composed]:
    """The statements that drop a table's capture functions."""
    for operation in (*OPERATIONS, "pick"):
        yield SQL("DROP FUNCTION IF EXISTS {}").format(source.log(f"_{operation}_{number}"))


def attach_triggers(
    source: Captured, member: Composable, number: int, in_c: bool
) -> Iterator[Composed]:
    """The triggers on one table, new or in their other form; they fire in every replication role.

    The C form calls the functions of the table for what it does not do by itself.
    """
    transitions = {
        "insert": SQL("REFERENCING NEW TABLE AS new_rows"),
        "update": SQL("REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows"),
        "delete": SQL("REFERENCING OLD TABLE AS old_rows"),
        "truncate": SQL(""),
    }
    arguments = SQL(", ").join(map(Literal, source.arguments(number)))
    for operation, transition in transitions.items():
        trigger = Identifier(f"idivm_{source.id}_{operation}")
        call = (
            SQL("idivm.capture_rows({})").format(arguments)
            if in_c and operation != "truncate"
            else SQL("{}()").format(source.log(f"_{operation}_{number}"))
        )
        yield SQL(
            "CREATE OR REPLACE TRIGGER {} AFTER {} ON {} {} FOR EACH STATEMENT EXECUTE FUNCTION {}"
        ).format(trigger, SQL(operation.upper()), member, transition, call)
        yield SQL("ALTER TABLE {} ENABLE ALWAYS TRIGGER {}").format(member, trigger)


def attach_routing(source: Captured, member: Composable, number: int) -> Iterator[Composed]:
    """What makes PostgreSQL hand a partitioned table's capture the right rows after a MERGE.

    Having routed a row to its partition, a MERGE takes that row for the new image of every row that
    it updates afterwards, unless the partition has a trigger like this one. It never fires; the
    table's partitions inherit it.
    """
    yield SQL(
        "CREATE TRIGGER {} BEFORE INSERT ON {} FOR EACH ROW WHEN (false) EXECUTE FUNCTION {}()"
    ).format(Identifier(f"idivm_{source.id}_routing"), member, source.log(f"_truncate_{number}"))


def function_body(body: Composable) -> Literal:
    """A function's body as a string constant, so that no name in it can end it."""
    return Literal("\n" + body.as_string(None) + "\n")


def _joined(parts: Iterator[Composed]) -> Composed:
    return SQL("").join(parts)


def _type(column: SourceColumn) -> SQL:
    # PostgreSQL's own format_type wrote it; quoted where it must be.
    return SQL(column.plain_type)


def _view_columns(source: Captured) -> Composable:
    columns = [
        SQL("t.{} AS {}").format(Identifier(column.name), Identifier(name))
        for column, name in source.columns
    ]
    return SQL(", ").join(
        [SQL("true AS {}").format(Identifier(PLACEHOLDER)), *columns][_skip(source) :]
    )


def _row_values(source: Captured) -> Composable:
    columns = [SQL("t.{}").format(Identifier(column.name)) for column, _ in source.columns]
    return SQL(", ").join([SQL("true"), *columns][_skip(source) :])


def _skip(source: Captured) -> int:
    return 0 if source.placeholder else 1


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


def _into_segment(source: Captured, insert: Callable[[Identifier], Composed]) -> Composed:
    return SQL(
        "#variable_conflict use_column\n"
        "DECLARE\n"
        "    stmt bigint := nextval({});\n"
        "BEGIN\n"
        "    IF (stmt >> {}) & 1 = 0 THEN\n{};\n"
        "    ELSE\n{};\n"
        "    END IF;\n"
        "    IF stmt & {} = 0 THEN\n"
        "        PERFORM idivm.look_after_log({});\n"
        "    END IF;\n"
        "    RETURN NULL;\n"
        "END"
    ).format(
        Literal(source.log("_seq").as_string(None)),
        Literal(SEGMENT_BITS),
        insert(source.log("_a")),
        insert(source.log("_b")),
        Literal(LOOK_EVERY - 1),
        Literal(source.id),
    )


def _appended(source: Captured, segment: Identifier, sides: str, operation: Composable) -> Composed:
    return SQL(
        "        INSERT INTO {} (seq, xid, op{})\n        SELECT stmt, pg_current_xact_id(), {}{}\n"
    ).format(segment, _log_columns(source, sides), operation, _image_columns(source, sides))


def _capture_bodies(source: Captured, number: int, partitioned: bool) -> dict[str, Composed]:
    pick = source.log(f"_pick_{number}")
    old = SQL("(SELECT {}(old_rows.*) AS old FROM old_rows) AS o").format(pick)
    new = SQL("(SELECT {}(new_rows.*) AS new FROM new_rows) AS n").format(pick)

    def one_sided(side: str, operation: str, rows: Composed) -> Callable[[Identifier], Composed]:
        return lambda segment: SQL("{}        FROM {}").format(
            _appended(source, segment, side, Literal(operation)), rows
        )

    inserted = one_sided("n", "I", new)
    deleted = one_sided("o", "D", old)

    def truncated(segment: Identifier) -> Composed:
        return _appended(source, segment, "", Literal("T"))

    def updated(segment: Identifier) -> Composed:
        if source.keyed:
            logged = _paired_update(source, pick, segment, old, new)
        else:
            logged = SQL("{};\n{}").format(deleted(segment), inserted(segment))
        if not partitioned:
            return logged
        return SQL("{}        WHERE idivm.merge_may_have_moved_rows(TG_RELID);\n{}").format(
            truncated(segment), logged
        )

    return {
        "insert": _into_segment(source, inserted),
        "update": _into_segment(source, updated),
        "delete": _into_segment(source, deleted),
        "truncate": _into_segment(source, truncated),
    }


def _paired_update(
    source: Captured, pick: Identifier, segment: Identifier, old: Composed, new: Composed
) -> Composed:
    """Old and new rows paired by key; a key that changed leaves both sides without a partner.

    A pair that is the same to the bit is not logged: the update changed no used column. One row
    that kept its key, as most updates have it, needs no join: to start one is what takes time.
    What foreign keys do to the table in the wake of a statement shares its transition tables, so
    that a row may be there more than once; then the pairs must not share a row.
    """
    same, changed = source.log("_same"), source.log("_changed")
    keys = {
        side: SQL(", ").join(
            SQL("(r.{}).{}").format(SQL(side), Identifier(name)) for _, name in _keys(source)
        )
        for side in ("old", "new")
    }
    numbered = [
        SQL("(SELECT r.{}, row_number() OVER (PARTITION BY {}) AS nth FROM {}) AS {}").format(
            SQL(side),
            keys[side],
            SQL("(SELECT {}({}.*) AS {} FROM {}) AS r").format(
                pick, Identifier(f"{side}_rows"), SQL(side), Identifier(f"{side}_rows")
            ),
            SQL(alias),
        )
        for side, alias in (("old", "o"), ("new", "n"))
    ]
    paired = _appended(
        source,
        segment,
        "on",
        SQL(
            "CASE WHEN {old} IS NULL THEN 'I' WHEN {new} IS NULL THEN 'D' ELSE 'U' END::\"char\""
        ).format(old=_first_key(source, SQL("o.old")), new=_first_key(source, SQL("n.new"))),
    )
    return SQL(
        "{one}"
        "        FROM {old} CROSS JOIN {new}\n"
        "        WHERE NOT EXISTS (SELECT FROM old_rows OFFSET 1)\n"
        "          AND {same}(o.old, n.new) IS TRUE AND {changed}(o.old, n.new);\n"
        "        IF NOT FOUND THEN\n"
        "        IF EXISTS (SELECT FROM pg_constraint AS f WHERE f.conrelid = TG_RELID AND f.contype = 'f'\n"
        "                   AND (f.confupdtype IN ('c', 'n', 'd') OR f.confdeltype IN ('n', 'd'))) THEN\n"
        "{paired}"
        "        FROM {old_numbered} FULL JOIN {new_numbered} ON {same}(o.old, n.new) AND o.nth = n.nth\n"
        "        WHERE {changed}(o.old, n.new);\n"
        "        ELSE\n"
        "{paired}"
        "        FROM {old} FULL JOIN {new} ON {same}(o.old, n.new)\n"
        "        WHERE {changed}(o.old, n.new);\n"
        "        END IF;\n"
        "        END IF"
    ).format(
        one=_appended(source, segment, "on", Literal("U")),
        paired=paired,
        old=old,
        new=new,
        old_numbered=numbered[0],
        new_numbered=numbered[1],
        same=same,
        changed=changed,
    )


def _keys(source: Captured) -> list[tuple[SourceColumn, str]]:
    return [(column, name) for column, name in source.columns if column.in_key]


def _first_key(source: Captured, row: Composable) -> Composed:
    return SQL("({}).{}").format(row, Identifier(_keys(source)[0][1]))


def _compare_images(source: Captured) -> Iterator[Composed]:
    """The functions that tell whether two images have the same key, and whether they differ.

    Both are inlined, so that a join by the first still hashes and merges.
    """
    if not source.keyed:
        return
    for suffix, condition in (
        ("_same", SQL(" AND ").join(_same(column, name) for column, name in _keys(source))),
        ("_changed", _changed(source)),
    ):
        yield SQL(
            "CREATE OR REPLACE FUNCTION {}(o {}, n {}) RETURNS boolean LANGUAGE sql IMMUTABLE\n"
            "BEGIN ATOMIC SELECT {}; END"
        ).format(source.log(suffix), source.view, source.view, condition)


def _same(column: SourceColumn, name: str) -> Composed:
    if column.equality:
        return SQL("(o).{0} = (n).{0}").format(Identifier(name))
    return SQL("ROW((o).{0}) *= ROW((n).{0})").format(Identifier(name))


def _changed(source: Captured) -> Composed:
    """Whether a pair lacks a side or differs in a used column, to the bit."""
    alternatives = [SQL("{} IS NULL").format(_first_key(source, SQL(row))) for row in ("o", "n")]
    by_image = []
    for column, name in source.columns:
        differs = SQL("(o).{0} IS DISTINCT FROM (n).{0}").format(Identifier(name))
        if column.equality == "exact":
            if not column.in_key:
                alternatives.append(differs)
        elif column.plain_type.startswith("numeric") and not column.plain_type.endswith("[]"):
            # Beside its value a numeric has the digits that it shows, and nothing else.
            alternatives.append(differs)
            alternatives.append(
                SQL("scale((o).{0}) IS DISTINCT FROM scale((n).{0})").format(Identifier(name))
            )
        else:
            by_image.append(Identifier(name))
    if by_image:
        # As records they are compared to the bit; as rows, column by column with `=`.
        images = [
            SQL("ROW({})::record").format(
                SQL(", ").join(SQL("({}).{}").format(row, name) for name in by_image)
            )
            for row in (SQL("o"), SQL("n"))
        ]
        alternatives.append(SQL("{} *<> {}").format(*images))
    return SQL(" OR ").join(alternatives)


def read_side(source: Captured) -> Iterator[Composed]:
    """The statements that create or replace what reads images: their comparison, the net effect."""
    yield from _compare_images(source)
    yield SQL("CREATE OR REPLACE VIEW {} AS SELECT * FROM {} UNION ALL SELECT * FROM {}").format(
        source.log(), source.log("_a"), source.log("_b")
    )
    yield SQL("SELECT idivm.create_due({})").format(Literal(source.id))
    images = {
        side: SQL("ROW({})::{}").format(
            SQL(", ").join(
                [
                    SQL("true"),
                    *(
                        SQL("c.{}").format(Identifier(f"{side}_{column.attnum}"))
                        for column, _ in source.columns
                    ),
                ][_skip(source) :]
            ),
            source.view,
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
        keys = SQL(", ").join(
            SQL("coalesce(c.{}, c.{})").format(
                Identifier(f"n_{column.attnum}"), Identifier(f"o_{column.attnum}")
            )
            for column, _ in source.columns
            if column.in_key
        )
        group = SQL(
            ", dense_rank() OVER (ORDER BY {keys}) AS key, count(*) OVER (PARTITION BY {keys}) AS times"
        ).format(keys=keys)
        body = SQL(
            "WITH pending AS (\n        {pending}\n    )\n"
            "    -- A key with one change has it as its net effect.\n"
            "    SELECT p.old, p.new, 1::bigint FROM pending AS p WHERE p.times = 1\n"
            "    UNION ALL\n"
            "    -- With more, the images between the first and the last cancel, whatever the order\n"
            "    -- in which the triggers of nested statements wrote them.\n"
            "    SELECT (array_agg(image.old) FILTER (WHERE image.net < 0))[1],\n"
            "           (array_agg(image.new) FILTER (WHERE image.net > 0))[1], 1::bigint\n"
            "    FROM (\n"
            "        SELECT p.key, (array_agg(i.image) FILTER (WHERE i.sign < 0))[1] AS old,\n"
            "               (array_agg(i.image) FILTER (WHERE i.sign > 0))[1] AS new, sum(i.sign) AS net\n"
            "        FROM pending AS p CROSS JOIN LATERAL (VALUES (-1, p.old), (1, p.new)) AS i (sign, image)\n"
            "        WHERE p.times > 1 AND (i.sign < 0 AND p.op <> 'I' OR i.sign > 0 AND p.op <> 'D')\n"
            "        GROUP BY p.key, i.image::text HAVING sum(i.sign) <> 0\n"
            "    ) AS image GROUP BY image.key"
        )
    else:
        group = SQL("")
        body = SQL(
            "-- Without a key a row is its content: equal images cancel, the rest has a multiplicity.\n"
            "    SELECT CASE WHEN sum(i.sign) < 0 THEN (array_agg(i.image))[1] END,\n"
            "           CASE WHEN sum(i.sign) > 0 THEN (array_agg(i.image))[1] END, abs(sum(i.sign))\n"
            "    FROM (\n        {pending}\n    ) AS p\n"
            "    CROSS JOIN LATERAL (VALUES (-1, p.old), (1, p.new)) AS i (sign, image)\n"
            "    WHERE i.sign < 0 AND p.op = 'D' OR i.sign > 0 AND p.op = 'I'\n"
            "    GROUP BY i.image::text HAVING sum(i.sign) <> 0"
        )
    yield SQL(
        "CREATE OR REPLACE FUNCTION {}(since idivm.watermark) RETURNS TABLE (old {}, new {}, times bigint)\n"
        "LANGUAGE sql STABLE\nBEGIN ATOMIC\n    {};\nEND"
    ).format(
        source.log("_net"),
        source.view,
        source.view,
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
