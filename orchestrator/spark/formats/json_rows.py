r"""JSON documents, in which every part keeps the text that it is written with.

A document's keys fill columns like PostgreSQL's `json_populate_record`. null is NULL. A column of type `json`
or `jsonb` gets the value as it is written. The elements of an array go into a column of an array type. A string
goes to the type's input function without its quotes, anything else as it is written. So no number is parsed,
and no string loses its quotes on the way into `jsonb`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]
from typing import Any

from orchestrator.caching import cached_property
from orchestrator.spark.formats.arrow import pa
from orchestrator.spark.formats.blocks import Block, Rows, Torn
from orchestrator.spark.formats.csv_rows import not_utf_8

_SPACE = re.compile(r"[ \t\n\r]*").match
_SURROGATE = re.compile("[\ud800-\udfff]").search
_ESCAPED = "surrogateescape"
_DEEP = "the document is nested too deep"
_MORE = "there is more in the line"


@dataclass(frozen=True)
class JsonColumn:
    """A column, and the keys that fill it."""

    name: str
    keys: tuple[str, ...]
    """All spellings of the key, which differ in upper and lower case."""
    as_json: bool = False
    """Whether values, or the elements of arrays, go into `json` or `jsonb`."""
    array: bool = False
    """Whether the column has an array type."""
    depth: int = 0
    """The depth of Spark's arrays; 0 if Spark gets texts."""


@dataclass(frozen=True)
class JsonReader:
    """Parses documents, one document a line unless `multiline`."""

    columns: tuple[JsonColumn, ...]
    multiline: bool = False
    encoding: str | None = None

    @property
    def spans_lines(self) -> bool:
        """Whether a document may span several lines."""
        return self.multiline

    @property
    def whole_files(self) -> bool:
        """Whether only the end of a file tells where a document ends."""
        return self.multiline

    def whole(self, data: bytes) -> int:
        """Return how many bytes are whole documents, given whole lines."""
        return len(data)

    def plainly(self, data: bytes) -> bytes:
        """Return lines in UTF-8."""
        return data if self.encoding is None else data.decode(self.encoding).encode()

    def count(self, block: Block) -> int:
        """Return the number of documents of a block."""
        return sum(1 for _ in pieces(block.data, self.multiline))

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {key: n for n, column in enumerate(self.columns) for key in column.keys}

    def take_apart(self, block: Block) -> Rows:
        """Return the values of a block's documents as columns of text."""
        rows: list[list[Any]] = []
        starts: list[int] = []
        torn: list[Torn] = []
        for at, text, start, end, reason in pieces(block.data, self.multiline):
            if reason is None:
                try:
                    row = self._row(text, start, end)
                except ValueError as error:
                    reason = _reason(error, start)
                except RecursionError:
                    reason = _DEEP
            if reason is None:
                rows.append(row)
                starts.append(at)
            else:
                torn.append(Torn(at, reason, _as_text(text[start:end])))
        return Rows(self._columns(rows), starts, torn)

    def _columns(self, rows: list[list[Any]]) -> list[Any]:
        return [
            pa.array([row[position] for row in rows], _arrow(column.depth))
            for position, column in enumerate(self.columns)
        ]

    def _row(self, text: str, start: int, stop: int) -> list[Any]:
        row: list[Any] = [None] * len(self.columns)
        filled: dict[int, str] = {}
        for key, begin, end, value in members(text, start, stop):
            position = self._positions.get(key)
            if position is None:
                raise ValueError(f"the key {key} was not there when the load began")
            if filled.setdefault(position, key) != key:
                raise ValueError(f"the keys {filled[position]} and {key} name the same column")
            column = self.columns[position]
            if column.array and text[begin] == "[":
                listed = _elements(text, begin, column.as_json)
                row[position] = _in_depth(listed, column) if column.depth else _literal(listed)
            else:
                row[position] = _text(text, begin, end, value, column.as_json)
        if not text.isascii() or "\\u" in text:
            _characters(row)
        return row


def pieces(data: bytes, multiline: bool) -> Iterator[tuple[int, str, int, int, str | None]]:
    """Yield for each document its byte, a text, its bounds in the text, and why it is invalid, if so."""
    lines: list[tuple[int, bytes]] = []
    if multiline:
        lines.append((0, data))
    else:
        at = 0
        for line in data.split(b"\n"):
            lines.append((at, line))
            at += len(line) + 1
    for at, line in lines:
        if not line or line.isspace():
            continue
        # A byte that is not UTF-8 becomes a surrogate, so that only its own document is refused.
        yield from _documents(at, line.decode(errors=_ESCAPED), multiline)


def _encoded(text: str) -> bytes:
    """Return the bytes that a text from a file stands for, including bytes that are not UTF-8."""
    return text.encode(errors=_ESCAPED)


def _as_text(text: str) -> str:
    return _encoded(text.strip()).decode(errors="replace")


def _documents(
    at: int, text: str, multiline: bool
) -> Iterator[tuple[int, str, int, int, str | None]]:
    """Yield the documents of a text: one, several if lines do not matter, or the elements of arrays."""
    begin = _after_space(text, 0)
    counted, number = begin, 0
    place = at + len(_encoded(text[:begin])) if begin else at
    sound = text.isascii() or _SURROGATE(text) is None
    while begin < len(text):
        try:
            if text[begin] == "[":
                spans = [(start, stop) for start, stop, _ in elements(text, begin)]
                end = _end(text, begin)
            else:
                # The members of a line are parsed later, so that they are parsed only once.
                end = _end(text, begin) if multiline else len(text)
                spans = [(begin, end)]
            if _after_space(text, end) < len(text) and not multiline:
                raise JSONDecodeError(_MORE, text, end)
        except (ValueError, RecursionError) as error:
            reason = _DEEP if isinstance(error, RecursionError) else _reason(error, 0)
            reason = (None if sound else not_utf_8(_encoded(text[begin:]))) or reason
            if multiline:
                place += len(_encoded(text[counted:begin]))
                reason += "; it and the rest of the file count as a single row"
            yield place, text, begin, len(text), reason
            return
        for start, stop in spans:
            if multiline:
                place += len(_encoded(text[counted:start]))
                counted = start
            wrong = None if sound else not_utf_8(_encoded(text[start:stop]))
            yield place + (0 if multiline else number), text, start, stop, wrong
            number += 1
        begin = _after_space(text, end)


def members(text: str, start: int, stop: int) -> Iterator[tuple[str, int, int, Any]]:
    """Yield key, begin, end and value of each member of the object between two positions.

    >>> list(members('{"a": 1.50, "b": "x"} ', 0, 22))
    [('a', 6, 10, '1.50'), ('b', 17, 20, 'x')]
    """
    if text[start] != "{":
        raise JSONDecodeError("it is no object", text, start)
    at = _after_space(text, start + 1)
    if text[at : at + 1] == "}":
        if _after_space(text, at + 1) < stop:
            raise JSONDecodeError(_MORE, text, at + 1)
        return
    while True:
        if text[at : at + 1] != '"':
            raise JSONDecodeError("a key is expected", text, at)
        key, at = scanstring(text, at + 1, True)
        at = _after_space(text, at)
        if text[at : at + 1] != ":":
            raise JSONDecodeError("a colon is expected", text, at)
        begin = _after_space(text, at + 1)
        value, end = _scanned(text, begin)
        yield key, begin, end, value
        at = _after_space(text, end)
        mark = text[at : at + 1]
        if mark == "}":
            if _after_space(text, at + 1) < stop:
                raise JSONDecodeError(_MORE, text, at + 1)
            return
        if mark != ",":
            raise JSONDecodeError("a comma or a closing brace is expected", text, at)
        at = _after_space(text, at + 1)


def elements(text: str, start: int) -> Iterator[tuple[int, int, Any]]:
    """Yield begin, end and value of each element of the array that begins at `start`."""
    at = _after_space(text, start + 1)
    if text[at : at + 1] == "]":
        return
    while True:
        value, end = _scanned(text, at)
        yield at, end, value
        at = _after_space(text, end)
        mark = text[at : at + 1]
        if mark == "]":
            return
        if mark != ",":
            raise JSONDecodeError("a comma or a closing bracket is expected", text, at)
        at = _after_space(text, at + 1)


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is no value of JSON")


# Numbers stay as they are written.
_scan_once: Any = json.scanner.make_scanner(  # type: ignore[attr-defined]
    json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_constant)
)


def _scanned(text: str, at: int) -> tuple[Any, int]:
    try:
        value, end = _scan_once(text, at)
    except StopIteration as stop:
        raise JSONDecodeError("a value is expected", text, stop.value) from None
    return value, end


def _end(text: str, at: int) -> int:
    return _scanned(text, at)[1]


def _after_space(text: str, at: int) -> int:
    match = _SPACE(text, at)
    assert match is not None
    return match.end()


def _reason(error: ValueError, start: int) -> str:
    if isinstance(error, JSONDecodeError):
        return f"the document is not JSON: {error.msg} (character {error.pos - start + 1})"
    if isinstance(error, UnicodeEncodeError):
        return "the document has half a surrogate pair, which is no character"
    return str(error)


def _text(text: str, begin: int, end: int, value: Any, as_json: bool) -> str | None:
    """Return the text for the input function of the column's type."""
    if value is None:
        return None
    if text[begin] == '"' and not as_json:
        return str(value)
    return text[begin:end]


def _characters(values: Iterable[Any]) -> None:
    """Refuse halves of surrogate pairs, which are not characters."""
    for value in values:
        if isinstance(value, list):
            _characters(value)
        elif value is not None:
            value.encode()


def _elements(text: str, start: int, as_json: bool) -> list[Any]:
    return [
        _elements(text, begin, as_json)
        if text[begin] == "["
        else _text(text, begin, end, value, as_json)
        for begin, end, value in elements(text, start)
    ]


def _literal(values: Sequence[Any]) -> str:
    r"""Return an array as a PostgreSQL literal.

    >>> _literal(['a"b', None, ["\\"]])
    '{"a\\"b",NULL,{"\\\\"}}'
    """

    def element(value: Any) -> str:
        if value is None:
            return "NULL"
        if isinstance(value, list):
            return _literal(value)
        escaped: str = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'

    return "{" + ",".join(map(element, values)) + "}"


def _in_depth(values: list[Any], column: JsonColumn) -> list[Any]:
    if _depth(values) > column.depth:
        raise ValueError(f"the array of {column.name} is deeper than when the load began")
    return values


def _depth(values: Any) -> int:
    if not isinstance(values, list):
        return 0
    return 1 + max(map(_depth, values), default=0)


def _arrow(depth: int) -> Any:
    kind = pa.large_string()
    for _ in range(depth):
        kind = pa.list_(kind)
    return kind


def seen_kinds(documents: Iterable[bytes], multiline: bool, deeply: bool) -> dict[str, list[str]]:
    """Return the keys of documents and, with `deeply`, the kinds of values of each key."""
    kinds_of_key: dict[str, dict[str, None]] = {}
    for data in documents:
        for _, text, start, stop, reason in pieces(data, multiline):
            if reason is not None:
                continue
            try:
                listed = list(members(text, start, stop))
            except (ValueError, RecursionError):
                continue  # the load reports what is wrong with the document
            for key, begin, _, value in listed:
                kinds = kinds_of_key.setdefault(key, {})
                if deeply:
                    kinds.update(dict.fromkeys(_kinds(text, begin, value)))
    return {key: list(kinds) for key, kinds in kinds_of_key.items()}


def first_problem(data: bytes, multiline: bool) -> tuple[int, str] | None:
    """Return the byte of the first document that is not JSON, and the reason."""
    for at, text, start, stop, reason in pieces(data, multiline):
        if reason is not None:
            return at, reason
        try:
            list(members(text, start, stop))
        except ValueError as error:
            return at, _reason(error, start)
        except RecursionError:
            return at, _DEEP
    return None


def _kinds(text: str, begin: int, value: Any) -> list[str]:
    """Return the kind of a value; an array has the kinds of its elements, each after brackets."""
    if value is None:
        return []
    mark = text[begin]
    if mark == "[":
        inner = [
            kind for start, _, item in elements(text, begin) for kind in _kinds(text, start, item)
        ]
        return [f"[]{kind}" for kind in dict.fromkeys(inner)] or ["[]"]
    if mark == "{":
        return ["jsonb"]
    if mark == '"':
        return ["text"]
    if value.__class__ is bool:
        return ["boolean"]
    if re.fullmatch(r"-?\d{1,18}", value):
        return ["integer" if abs(int(value)) < 1 << 31 else "bigint"]
    return ["numeric"]


def type_of_kinds(kinds: Iterable[str]) -> str:
    """Return the PostgreSQL type for values of the given kinds.

    >>> type_of_kinds(["integer", "numeric"]), type_of_kinds(["[]", "[]text"]), type_of_kinds(["integer", "[]integer"])
    ('numeric', 'text[]', 'jsonb')
    """
    distinct_kinds: set[str] = set(kinds)
    arrays = {kind[2:] for kind in distinct_kinds if kind.startswith("[]")}
    if arrays:
        if not all(kind.startswith("[]") for kind in distinct_kinds):
            return "jsonb"
        inner = type_of_kinds(arrays - {""})
        return "jsonb" if inner == "jsonb" else f"{inner.removesuffix('[]')}[]"
    if "jsonb" in distinct_kinds:
        return "jsonb"
    numbers: list[str] = ["integer", "bigint", "numeric"]
    if distinct_kinds and distinct_kinds <= set(numbers):
        return numbers[max(map(numbers.index, distinct_kinds))]
    [kind, *others] = distinct_kinds or {"text"}
    return "text" if others else kind


def depth_of(kinds: Iterable[str]) -> int:
    """Return the depth of arrays if all values are arrays of the same depth; else 0.

    >>> depth_of(["[][]text", "[][]integer"]), depth_of(["[]text", "text"])
    (2, 0)
    """
    depths = {(len(kind) - len(kind.lstrip("[]"))) // 2 for kind in kinds}
    return depths.pop() if len(depths) == 1 else 0
