"""Databases of several encodings and locales, and cases with the characters of an encoding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

from psycopg import Connection, Error
from psycopg.sql import SQL, Composed, Identifier, Literal

from orchestrator.errors import UsageError
from orchestrator.fuzz.case import Case, from_json, to_json

_LETTERS = "éÉä数"
"""The non-ASCII letters that the generator uses in values and names."""

ENCODINGS = {
    "UTF8": _LETTERS,
    "LATIN1": "éÉäß",
    "EUC_JP": "アぁ表数",
    "WIN1251": "жЖяЩ",
    "SQL_ASCII": _LETTERS,
}
"""The replacements of these letters in each encoding; none has more bytes than in UTF-8."""


def in_database(case: Case, encoding: str, locale: str) -> Case:
    """Return the same case for a database of this encoding and locale.

    >>> case = Case(7, (), ("CREATE TYPE t AS ENUM ('é', 'tä')",), (), (), ())
    >>> in_database(case, "WIN1251", "C").types
    ("CREATE TYPE t AS ENUM ('ж', 'tя')",)
    """
    moved = from_json(in_encoding(to_json(case), encoding))
    return replace(moved, encoding=encoding, locale=locale)


def in_encoding(text: str, encoding: str) -> str:
    """Return a text of the generator, with letters that the encoding supports."""
    return text.translate(str.maketrans(_LETTERS, ENCODINGS.get(encoding, _LETTERS)))


def created_with(encoding: str, locale: str) -> Composed:
    """Return the options of CREATE DATABASE; without an encoding, there are none."""
    if not encoding:
        return SQL("").format()
    provider, _, name = locale.rpartition(":")
    options = {"ENCODING": encoding, "LC_COLLATE": name, "LC_CTYPE": name}
    if provider:
        options = {
            "ENCODING": encoding,
            "LOCALE_PROVIDER": provider,
            f"{provider}_LOCALE".upper(): name,
            "LC_COLLATE": "C",
            "LC_CTYPE": "C",
        }
    return SQL(" ").join(
        SQL("{} {}").format(SQL(option), Literal(value)) for option, value in options.items()
    )


def combinations(
    connection: Connection[object], encodings: Sequence[str], locales: Sequence[str]
) -> list[tuple[str, str]]:
    """Return the pairs of encoding and locale with which the server can create databases."""
    trial = Identifier(f"idivm_fuzz_trial_{connection.info.backend_pid}")
    taken, reasons = [], []
    for kind in product(encodings, locales):
        try:
            connection.execute(
                SQL("CREATE DATABASE {} TEMPLATE template0 {}").format(trial, created_with(*kind))
            )
        except Error as error:
            reasons.append(f"{' '.join(kind)}: {error.diag.message_primary}")
        else:
            connection.execute(SQL("DROP DATABASE {}").format(trial))
            taken.append(kind)
    if not taken:
        raise UsageError(f"The server makes no database of these kinds ({'; '.join(reasons)}).")
    return taken
