"""The text of a program: indented lines, folded to the width.

A program is a tree of lines, and each line is composed of typed parts. Only `written` indents.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from psycopg.sql import SQL, Composable, Composed

from orchestrator.algebra import dialect
from orchestrator.algebra.dialect import identifier

Code: TypeAlias = "Sequence[Composable | Code]"
"""Lines; the lines of a nested sequence are indented further."""

Lines: TypeAlias = "list[Composable | Code]"

WIDTH = 104
"""The maximal length of a line without its indentation."""

_INDENT = "    "

# Words that PL/pgSQL does not accept as names of variables.
_RESERVED_IN_PLPGSQL = frozenset(
    {"begin", "by", "declare", "execute", "foreach", "if", "loop", "strict", "while"}
)


def name(text: str) -> SQL:
    """Return a name, in quotes where PostgreSQL needs them.

    >>> [name(text).as_string(None) for text in ("parts_deleted", "Parts", "loop")]
    ['parts_deleted', '"Parts"', '"loop"']
    """
    tree = identifier(text)
    if text in _RESERVED_IN_PLPGSQL:
        tree.set("quoted", True)
    return SQL(dialect.write(tree, own=True))


def dotted(*parts: str) -> Composed:
    """Return a qualified name.

    >>> dotted("idivm_state", "v_1").as_string(None)
    'idivm_state.v_1'
    """
    return SQL(".").join(map(name, parts))


def names(texts: Iterable[str], table: str | None = None) -> list[Composable]:
    """Return names, qualified by a table if one is given."""
    return [dotted(table, text) if table else name(text) for text in texts]


def listed(parts: Iterable[Composable], separator: str = ", ") -> Composed:
    """Return parts as one line."""
    return SQL(separator).join(parts)


def written(code: Code, depth: int = 0) -> str:
    """Return the text of some lines.

    >>> print(written([SQL("IF a THEN"), [SQL("b;")], SQL("END IF;")]), end="")
    IF a THEN
        b;
    END IF;
    """
    texts = []
    for line in code:
        if isinstance(line, Composable):
            texts.append(f"{_INDENT * depth}{line.as_string(None)}\n")
        else:
            texts.append(written(line, depth + 1))
    return "".join(texts)


def filled(
    head: str,
    parts: Iterable[Composable],
    tail: str = "",
    separator: str = ", ",
    width: int = WIDTH,
) -> Lines:
    """Return parts after a head, as many as fit on each line; further lines are indented.

    >>> numbers = [SQL(str(number)) for number in range(100_000, 100_020)]
    >>> print(written(filled("SELECT ", numbers, ";")), end="")
    SELECT 100000, 100001, 100002, 100003, 100004, 100005, 100006, 100007, 100008, 100009, 100010, 100011,
        100012, 100013, 100014, 100015, 100016, 100017, 100018, 100019;
    """
    texts = [part.as_string(None) for part in parts]
    endings = [*[separator] * (len(texts) - 1), tail]
    lines = [head]
    for text, ending in zip(texts, endings, strict=False):
        room = width - len(text) - len(ending.rstrip())
        # A long part gets a line of its own, also after the head.
        if lines[-1] and len(lines[-1]) > room and (lines[-1] != head or room > 0):
            lines.append("")
        lines[-1] += text + ending
    if not texts:
        lines[-1] += tail
    first, *rest = [SQL(line.rstrip()) for line in lines]
    return [first, rest] if rest else [first]


def flat(code: Code) -> SQL | None:
    """Return lines as a single line, or None if they are too long for it."""
    if not all(isinstance(line, Composable) for line in code):
        return None
    texts = [line.as_string(None) for line in code if isinstance(line, Composable)]
    line = " ".join(texts)
    return SQL(line) if len(line) <= WIDTH else None


def merged(code: Code) -> Lines:
    """Return lines with each line appended to the previous one if it fits.

    >>> print(written(merged([SQL("DELETE FROM t"), SQL("WHERE a = 1;"), SQL("x" * 100)])), end="")
    DELETE FROM t WHERE a = 1;
    xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
    """
    lines: Lines = []
    for line in code:
        single = flat([lines[-1], line]) if lines else None
        if single is None:
            lines.append(line)
        else:
            lines[-1] = single
    return lines


def around(head: Composable, inner: Code, tail: Composable) -> Lines:
    """Return lines between a head and a tail, as a single line if they fit.

    >>> print(written(around(SQL("f("), [SQL("SELECT 1"), SQL("FROM t")], SQL(")"))), end="")
    f(SELECT 1 FROM t)
    """
    single = flat(inner)
    if single is not None:
        line = SQL("").join([head, single, tail])
        if len(line.as_string(None)) <= WIDTH:
            return [line]
    return [head, inner, tail]


def when(condition: Composable, code: Code) -> Lines:
    """Return a conditional statement."""
    return branches([(condition, code)])


def branches(cases: Sequence[tuple[Composable, Code]], otherwise: Code = ()) -> Lines:
    """Return a conditional statement with several cases, as a single line if it is short.

    >>> print(written(branches([(SQL("a"), [SQL("b;")])])), end="")
    IF a THEN b; END IF;
    """
    [(condition, code), *_] = cases
    single = flat(code)
    if len(cases) == 1 and not otherwise and len(code) == 1 and single is not None:
        line = SQL("IF {} THEN {} END IF;").format(condition, single)
        if len(line.as_string(None)) <= WIDTH:
            return [line]
    lines: Lines = []
    for word, (condition, code) in zip(["IF", *["ELSIF"] * len(cases)], cases, strict=False):
        lines += [SQL("{} {} THEN").format(SQL(word), condition), code]
    if otherwise:
        lines += [SQL("ELSE"), otherwise]
    return [*lines, SQL("END IF;")]


def dollar_tag(text: str) -> str:
    """Return a dollar-quoting delimiter that does not occur in a text.

    >>> dollar_tag("SELECT 1"), dollar_tag("SELECT $query$a$query$")
    ('$query$', '$query_$')
    """
    tag = "query"
    while f"${tag}$" in text:
        tag += "_"
    return f"${tag}$"
