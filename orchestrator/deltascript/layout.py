"""The layout of queries: as few lines as possible, broken at the outermost structure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from psycopg.sql import SQL

from orchestrator.algebra import dialect
from orchestrator.deltascript.writer import WIDTH, Lines

_CLAUSES = frozenset(
    {
        *("SELECT", "FROM", "JOIN", "WHERE", "GROUP", "HAVING", "WINDOW", "ORDER", "LIMIT"),
        *("OFFSET", "WITH", "VALUES", "PARTITION", "RETURNING", "FETCH"),
    }
)

_SET_OPERATIONS = frozenset({"UNION", "EXCEPT", "INTERSECT"})

_SIDES = frozenset({"LEFT", "RIGHT", "FULL", "INNER", "CROSS", "NATURAL", "OUTER"})

_QUERIES = frozenset({"SELECT", "WITH", "VALUES", "PARTITION", "ORDER", "WHERE"})
"""The first keywords of groups that consist of clauses."""

_OPERATORS = (
    frozenset({"OR"}),
    frozenset({"AND"}),
    frozenset({"=", "<>", "<", ">", "<=", ">="}),
    frozenset({"+", "-", "||"}),
    frozenset({"*", "/", "%"}),
)
"""Operators, those with the lowest precedence first."""

_HUGGED = 24
"""The most characters that may precede and follow a long argument on its first and last line."""


@dataclass
class Group:
    """The tokens between two parentheses, or between CASE and END."""

    opening: str
    closing: str = ")"
    items: list[Item] = field(default_factory=list)
    blank: bool = False
    """Whether a blank precedes the group."""


@dataclass(frozen=True)
class Word:
    """A token."""

    text: str
    blank: bool

    @property
    def upper(self) -> str:
        """The first keyword of the token, for example of GROUP BY."""
        return self.text.upper().partition(" ")[0]


Item: TypeAlias = "Word | Group"
Items: TypeAlias = "Sequence[Item]"


def laid_out(text: str, width: int = WIDTH) -> Lines:
    """Return the lines of a query or expression, given on a single line.

    >>> from orchestrator.deltascript.writer import written
    >>> print(written(laid_out("SELECT a, b FROM t WHERE a = 1 AND b = 2", 20)), end="")
    SELECT a, b
    FROM t
    WHERE
        a = 1 AND b = 2
    >>> text = "coalesce(sum(CASE WHEN t.a > 1 THEN t.a ELSE 0 END), 0)::bigint AS n"
    >>> print(written(laid_out(text, 36)), end="")
    coalesce(sum(CASE
        WHEN t.a > 1 THEN t.a
        ELSE 0
    END), 0)::bigint AS n
    """
    items = _grouped(text)
    return _lines(items, width) if _flat(items) == text else [SQL(text)]


def _grouped(text: str) -> list[Item]:
    root = Group("")
    open_groups = [root]
    end = 0
    for start, stop in dialect.tokens(text):
        blank, word, end = start > end, text[start:stop], stop
        if word == "(" or word.upper() == "CASE":
            group = Group(word, ")" if word == "(" else "END", blank=blank)
            open_groups[-1].items.append(group)
            open_groups.append(group)
        elif len(open_groups) > 1 and word.upper() == open_groups[-1].closing:
            open_groups.pop()
        else:
            open_groups[-1].items.append(Word(word, blank))
    return root.items


def _flat(items: Items) -> str:
    text = ""
    for item in items:
        own = item.text if isinstance(item, Word) else _flat_group(item)
        text += f" {own}" if item.blank and text else own
    return text


def _flat_group(group: Group) -> str:
    inside = _flat(group.items)
    return f"({inside})" if group.closing == ")" else f"CASE {inside} END"


def _lines(items: Items, width: int) -> Lines:
    text = _flat(items)
    if len(text) <= width or (len(items) < 2 and isinstance(items[0], Word)):
        return [SQL(text)]
    separators: list[Callable[[Items, int], bool]] = [_set_operation, _clause, _after_comma]
    separators += [partial(_operates, operators) for operators in _OPERATORS]
    for begins in separators:
        parts = list(_split(items, begins))
        if len(parts) > 1:
            lines = _clause_lines if begins is _clause else _lines
            return [line for part in parts for line in lines(part, width)]
    return _around_group(items, width)


def _clause_lines(items: Items, width: int) -> Lines:
    """Return the lines of a clause: its keywords, and its content below them."""
    if len(_flat(items)) <= width:
        return [SQL(_flat(items))]
    first = items[0]
    head = 1
    while head < len(items) - 1 and _belongs_to_head(items[head]):
        head += 1
    if isinstance(first, Group) or first.upper in (
        "FROM",
        "JOIN",
        "WITH",
        *_SIDES,
        *_SET_OPERATIONS,
    ):
        return _around_group(items, width)
    return [SQL(_flat(items[:head])), _lines(items[head:], width - 4)]


def _belongs_to_head(item: Item) -> bool:
    return isinstance(item, Word) and item.upper in ("BY", "DISTINCT", "ALL")


def _around_group(items: Items, width: int) -> Lines:
    """Return lines that are broken within the longest group."""
    groups = [n for n, item in enumerate(items) if isinstance(item, Group) and item.items]
    if not groups:
        return [SQL(_flat(items))]
    position = max(groups, key=lambda n: len(_flat([items[n]])))
    group = items[position]
    assert isinstance(group, Group)
    before, after = _flat(items[:position]), _flat(items[position + 1 :])
    if group.blank and before:
        before += " "
    if after and items[position + 1].blank:
        after = f" {after}"
    if group.closing == "END":
        inside = [
            line for part in _split(group.items, _branch) for line in _branch_lines(part, width - 4)
        ]
        return [SQL(f"{before}CASE"), inside, SQL(f"END{after}")]
    parts = list(_split(group.items, _after_comma))
    long = max(parts, key=lambda part: len(_flat(part)))
    rest = sum(len(_flat(part)) for part in parts if part is not long)
    if rest <= _HUGGED and _is_call(long) and not _is_query(group.items):
        inner = _lines(long, width - 4)
        first, last = parts.index(long), len(parts)
        opening = "".join(f"{_flat(part)} " for part in parts[:first])
        closing = "".join(f" {_flat(part)}" for part in parts[first + 1 : last])
        return _wrapped(f"{before}({opening}", inner, f"{closing}){after}")
    return [SQL(f"{before}("), _lines(group.items, width - 4), SQL(f"){after}")]


def _wrapped(before: str, lines: Lines, after: str) -> Lines:
    """Return lines with texts before the first line and after the last line."""
    first, last = lines[0], lines[-1]
    assert isinstance(first, SQL) and isinstance(last, SQL)
    if len(lines) == 1:
        return [SQL(before + first.as_string(None) + after)]
    return [
        SQL(before + first.as_string(None)),
        *lines[1:-1],
        SQL(last.as_string(None) + after),
    ]


def _branch_lines(items: Items, width: int) -> Lines:
    """Return the lines of a branch of CASE."""
    if len(_flat(items)) <= width:
        return [SQL(_flat(items))]
    parts = list(_split(items, lambda items, n: _is(items[n], "THEN")))
    lines: Lines = []
    for part in parts:
        word, *rest = part
        text = _flat(part)
        lines += (
            [SQL(text)] if len(text) <= width else [SQL(_flat([word])), _lines(rest, width - 4)]
        )
    return lines


def _is_call(items: Items) -> bool:
    """Return whether an argument is a call with parentheses or CASE, without any operator."""
    groups = [item for item in items if isinstance(item, Group)]
    return (
        len(groups) == 1
        and all(isinstance(item, Group) or item.upper not in _all_operators() for item in items)
        and not _is_query(groups[0].items)
    )


def _all_operators() -> frozenset[str]:
    return frozenset().union(*_OPERATORS)


def _is_query(items: Items) -> bool:
    return bool(items) and isinstance(items[0], Word) and items[0].upper in _QUERIES


def _split(items: Items, begins: Callable[[Items, int], bool]) -> Iterator[list[Item]]:
    """Yield the items in parts; `begins` returns whether a part begins at a position."""
    part: list[Item] = []
    for n, item in enumerate(items):
        if part and begins(items, n):
            yield part
            part = []
        part.append(item)
    if part:
        yield part


def _is(item: Item, *words: str) -> bool:
    return isinstance(item, Word) and item.upper in words


def _after_comma(items: Items, n: int) -> bool:
    return n > 0 and _is(items[n - 1], ",")


def _branch(items: Items, n: int) -> bool:
    return _is(items[n], "WHEN", "ELSE")


def _set_operation(items: Items, n: int) -> bool:
    if not (_is_query(items) or isinstance(items[0], Group)):
        return False
    if _is(items[n], *_SET_OPERATIONS):
        return True
    return (
        n > 0 and _is(items[n], "SELECT", "VALUES") and _is(items[n - 1], "ALL", *_SET_OPERATIONS)
    )


def _clause(items: Items, n: int) -> bool:
    if not _is_query(items) or not _is(items[n], *_CLAUSES, *_SIDES):
        return False
    before = items[n - 1] if n else None
    if before is None:
        return True
    if _is(items[n], "FROM") and _is(before, "DISTINCT"):
        return False
    if _is(items[n], "GROUP") and _is(before, "WITHIN"):
        return False
    if _is(items[n], *_SIDES):
        # LEFT and RIGHT are also functions.
        after = items[n + 1] if n + 1 < len(items) else None
        return after is not None and _is(after, "JOIN", "OUTER") and not _is(before, *_SIDES)
    return not (_is(items[n], "JOIN") and _is(before, *_SIDES))


def _operates(operators: frozenset[str], items: Items, n: int) -> bool:
    if not _is(items[n], *operators):
        return False
    # The AND of BETWEEN is not an operator.
    return not (
        _is(items[n], "AND") and any(_is(item, "BETWEEN") for item in items[max(0, n - 2) : n])
    )
