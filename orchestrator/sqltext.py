"""Small helpers for SQL made of typed parts, shared by every package."""

from __future__ import annotations

import hashlib
from typing import Final

SEARCH_PATH: Final = "pg_catalog, pg_temp"
"""The search path of a refresh. With it, functions such as regclass print names with their schemas."""

NAME_BYTES = 63
"""PostgreSQL cuts identifiers at this many bytes."""


def fitted_name(base: str, suffix: str = "") -> str:
    """`base` followed by `suffix`, with `base` cut so that the whole fits an identifier.

    >>> fitted_name("orders_by_day", "_12")
    'orders_by_day_12'
    >>> len(fitted_name("é" * 60, "_12").encode())
    63
    """
    room = NAME_BYTES - len(suffix.encode())
    cut = base.encode()[:room].decode(errors="ignore")
    return cut + suffix


def fresh_name(wanted: str, taken: set[str]) -> str:
    """`wanted`, or the first of `wanted_`, `wanted__`, ... that is not taken.

    >>> fresh_name("idivm_row", {"a", "idivm_row"})
    'idivm_row_'
    """
    while wanted in taken:
        wanted += "_"
    return wanted


def checksum(text: str) -> str:
    """The SHA-256 of a text, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()
