"""Results as Python's shell and notebooks show them: at most a screenful."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import islice

ROWS, WIDTH = 20, 100
"""How many rows, and how many characters of a line, are shown."""


def cut(text: str, width: int = WIDTH) -> str:
    """Shorten a line.

    >>> cut("SELECT customer, sum(amount)", 12)
    'SELECT cus…'
    """
    line = " ".join(text.split("\n"))
    return line if len(line) <= width else f"{line[: width - 2].rstrip()}…"


def as_text(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return the first rows of a table as text.

    >>> print(as_text(["customer", "total"], [("ann", 15), ("bob", None)]))
    customer | total
    ann      | 15
    bob      |
    """
    cells = [[cut(name, 40) for name in columns]] + [
        ["" if value is None else cut(str(value), 40) for value in row] for row in rows[:ROWS]
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        cut(" | ".join(f"{cell:{width}}" for cell, width in zip(line, widths, strict=True)))
        for line in cells
    ]
    return "\n".join(line.rstrip() for line in [*lines, *_rest(rows)])


def as_html(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return the first rows of a table as HTML.

    >>> as_html(["a"], [("<b>",)])
    '<table><tr><th>a</th></tr><tr><td>&lt;b&gt;</td></tr></table>'
    """
    lines = [_line("th", columns)] + [_line("td", row) for row in rows[:ROWS]]
    rest = "".join(f"<p>{line}</p>" for line in _rest(rows))
    return f"<table>{''.join(lines)}</table>{rest}"


def first_lines(text: str) -> str:
    """Return the first lines of a text."""
    lines = text.splitlines()
    more = [f"... {len(lines) - ROWS} more lines"] if len(lines) > ROWS else []
    return "\n".join([*(cut(line) for line in islice(lines, ROWS)), *more])


def _rest(rows: Sequence[object]) -> list[str]:
    return [f"... {len(rows) - ROWS:,} more rows"] if len(rows) > ROWS else []


def _line(tag: str, values: Iterable[object]) -> str:
    cells = ("" if value is None else escape(cut(str(value))) for value in values)
    return "<tr>" + "".join(f"<{tag}>{cell}</{tag}>" for cell in cells) + "</tr>"
