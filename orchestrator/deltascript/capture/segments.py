"""Common code of all capture functions: choose a segment of the log, and detect lost changes."""

from __future__ import annotations

from collections.abc import Callable

from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from orchestrator.deltascript.capture.table import (
    Captured,
)

SEGMENT_BITS = 32
"""The statement number, shifted right by this many bits, has the log segment in its lowest bit."""


LOOK_EVERY = 1024
"""After this many statements, a writer checks whether the log has exceeded its limit."""


NOTHING = SQL("")


def into_segment(
    source: Captured,
    insert: Callable[[Identifier], Composed],
    otherwise: tuple[Composable, Callable[[Identifier], Composed]] | None = None,
    first: Composable = NOTHING,
    compared: bool = False,
) -> Composed:
    """Return the body of a trigger that runs `insert`, or another statement if a condition is
    false.

    `otherwise` has the condition and the statement that uses the current names of the columns.
    `compared` says whether the statements compare images.
    """
    logged = by_segment(source, insert)
    if otherwise is not None:
        condition, by_name = otherwise
        images = SQL("idivm.images({}, TG_RELID, TG_OP)").format(Literal(source.id))
        logged = either(condition, logged, executed(source, images, by_name, SQL("stmt, TG_RELID")))
    return trigger_body(source, SQL("{}{}").format(first, logged), compared)


def either(condition: Composable, logged: Composed, otherwise: Composed) -> Composed:
    """Return a statement that depends on a condition."""
    return SQL("    IF {} THEN\n{}    ELSE\n{}    END IF;\n").format(condition, logged, otherwise)


def executed(
    source: Captured,
    images: Composable,
    statement: Callable[[Identifier], Composed],
    using: Composable,
) -> Composed:
    """Return the dynamic execution of a statement after a prefix; without a prefix, changes are
    lost.

    `images` is the expression for the prefix.
    """
    return SQL(
        "    images := {images};\n"
        "    IF images IS NULL THEN\n{lost}    END IF;\n"
        "    EXECUTE images || CASE (stmt >> {bits}) & 1 WHEN 0 THEN {a}\n    ELSE {b} END USING {using};\n"
    ).format(
        images=images,
        lost=_note_lost(source),
        bits=Literal(SEGMENT_BITS),
        a=Literal(statement(source.log("_a")).as_string(None)),
        b=Literal(statement(source.log("_b")).as_string(None)),
        using=using,
    )


def trigger_body(source: Captured, logging: Composable, compared: bool) -> Composed:
    """Return the body of a capture function around the statements that log."""
    return SQL(
        "#variable_conflict use_column\n"
        "DECLARE\n"
        "    stmt bigint;\n"
        "    images text;\n"
        "BEGIN\n"
        "    IF {missing} THEN\n{lost}    END IF;\n"
        "    stmt := nextval({numbers});\n"
        "{logging}"
        "    IF stmt & {look} = 0 AND to_regprocedure('idivm.look_after_log(integer)') IS NOT NULL THEN\n"
        "        PERFORM idivm.look_after_log({source});\n"
        "    END IF;\n"
        "    RETURN NULL;\n"
        "END"
    ).format(
        missing=_lacks_a_part(source, compared),
        lost=_note_lost(source),
        numbers=Literal(source.log("_seq").as_string(None)),
        logging=logging,
        look=Literal(LOOK_EVERY - 1),
        source=Literal(source.id),
    )


def _lacks_a_part(source: Captured, compared: bool) -> Composed:
    """Return the condition that DDL has removed an object that a capture function needs.

    Without this check, the function would raise an error. The view of the log has all columns of
    both segments, and the source view has those of the table. Dropping any of these columns drops
    the view.
    """

    def text(name: Identifier) -> Literal:
        return Literal(name.as_string(None))

    parts = [
        SQL("NOT coalesce(has_schema_privilege(to_regnamespace({}), 'USAGE'), false)").format(
            Literal(schema)
        )
        for schema in ("idivm_log", "idivm_def")
    ]
    parts += [
        SQL("to_regclass({}) IS NULL").format(text(item))
        for item in (source.view, source.image, source.log())
    ]
    parts += [
        SQL("has_table_privilege(to_regclass({}), 'INSERT') IS NOT TRUE").format(
            text(source.log(suffix))
        )
        for suffix in ("_a", "_b")
    ]
    parts.append(
        SQL("has_sequence_privilege(to_regclass({}), 'USAGE') IS NOT TRUE").format(
            text(source.log("_seq"))
        )
    )
    if compared:
        parts += [
            SQL("to_regproc({}) IS NULL").format(text(source.log(suffix)))
            for suffix in ("_same", "_changed")
        ]
    return SQL("\n       OR ").join(parts)


def _note_lost(source: Captured) -> Composed:
    """Return code that leaves the statement unlogged and requests a rebuild of the views that read
    the table.
    """
    return SQL(
        "        IF to_regprocedure('idivm.note_lost(integer)') IS NOT NULL THEN\n"
        "            PERFORM idivm.note_lost({});\n        END IF;\n        RETURN NULL;\n"
    ).format(Literal(source.id))


def by_segment(source: Captured, insert: Callable[[Identifier], Composed]) -> Composed:
    """Return an INSERT into the segment that the number of the statement selects."""
    return SQL("    IF (stmt >> {}) & 1 = 0 THEN\n{};\n    ELSE\n{};\n    END IF;\n").format(
        Literal(SEGMENT_BITS), insert(source.log("_a")), insert(source.log("_b"))
    )
