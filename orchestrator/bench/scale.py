"""Check whether a run of a benchmark is as large as its bars assume, which is its default size."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

NOT_SIZES = frozenset(
    {"seed", "pg", "pause", "statements", "limit", "share", "kills", "clients", "repeat"}
)
"""Numeric options that do not make a measurement smaller."""


def assumed(run: Callable[..., Any], given: Mapping[str, Any]) -> str:
    """Return the options that make a run smaller than its defaults, or an empty text.

    >>> def run(*, rows: int = 1000, sizes: tuple[int, ...] = (10, 100), seed: int = 3): ...
    >>> assumed(run, {"rows": 1000, "sizes": [10, 100, 1000], "seed": 1})
    ''
    >>> assumed(run, {"rows": 50, "sizes": [10]})
    'rows 1,000 instead of 50, sizes up to 100 instead of 10'
    """
    smaller = []
    for name, parameter in inspect.signature(run).parameters.items():
        value, usual = given.get(name), parameter.default
        if name in NOT_SIZES or value is None:
            continue
        if value is True and name == "quick":
            smaller.append("tables and changes larger than those of --quick")
        elif _is_number(value) and _is_number(usual):
            if value < usual:
                smaller.append(f"{name} {usual:,} instead of {value:,}")
        elif largest := _largest(value):
            least = _largest(usual)
            if usual is None or (least is not None and largest < least):
                full = "the default" if least is None else f"up to {least:,.10g}"
                smaller.append(f"{name} {full} instead of {largest:,.10g}")
    return ", ".join(smaller)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _largest(value: Any) -> float | None:
    if isinstance(value, (list, tuple)) and value and all(map(_is_number, value)):
        return float(max(value))
    return None
