r"""Arrow batches in COPY's text format, encoded column by column.

PostgreSQL's own input functions read text, so every type can be loaded and nothing is lost. A row is one
line, because a newline within a value is written as `\n`. So the line that an error names is the row.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from orchestrator.spark.formats.arrow import pa, pc
from orchestrator.spark.formats.documents import documents

_ESCAPES = (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"))
_HEX = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), dtype="<u2")
_ODD_YEAR = re.compile(r"(-?\d+)(-.*)", re.DOTALL)


@dataclass(frozen=True)
class Lines:
    """Encoded rows, each with its newline; any range of rows is available without a copy."""

    array: Any

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.array)

    def data(self, start: int, end: int) -> memoryview:
        """Return the bytes of the rows from `start` up to, and without, `end`."""
        _, offsets, values = self.array.buffers()
        bounds = np.frombuffer(offsets, dtype=np.int64)[self.array.offset :]
        return memoryview(values)[bounds[start] : bounds[end]] if end > start else memoryview(b"")

    def first_with(self, byte: bytes) -> int | None:
        """Return the first row that contains a byte."""
        match = re.search(re.escape(byte), self.data(0, len(self)))
        if match is None:
            return None
        _, offsets, _ = self.array.buffers()
        bounds = np.frombuffer(offsets, dtype=np.int64)[self.array.offset :]
        return int(np.searchsorted(bounds, bounds[0] + match.start(), side="right")) - 1

    def text(self, row: int) -> str:
        """Return a row without its newline."""
        return bytes(self.data(row, row + 1)[:-1]).decode()


NONE: Mapping[str, int] = MappingProxyType({})


def encode(
    batch: Any,
    row_places: Any = None,
    as_json: Collection[str] = (),
    as_double: Collection[str] = (),
    places: Mapping[str, int] = NONE,
) -> Lines:
    r"""Return a batch in COPY's text format; `row_places` are numbers to put before the rows.

    Arrays of the columns in `as_json` become JSON; structs and maps always do. Single precision numbers of
    the columns in `as_double` get all digits. `places` limits the decimal places of the seconds of a column.

    >>> batch = pa.record_batch({"a": [1, None], "b": ["x\ty", ""], "c": [[1, None], []]})
    >>> lines = encode(batch, row_places=np.array([7, 8]))
    >>> lines.text(0), lines.text(1)
    ('7\t1\tx\\ty\t{1,NULL}', '8\t\\N\t\t{}')
    """
    columns = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name in as_double:
            column = column.cast(_as_double(column.type))
        text = documents(column, texts) if name in as_json else texts(column)
        columns.append(_escaped(_at_most(text, places[name]) if name in places else text))
    if row_places is not None:
        columns = [pa.array(row_places).cast(pa.large_string()), *columns]
    joined = pc.binary_join_element_wise(
        *columns, _text("\t"), null_handling="replace", null_replacement="\\N"
    )
    return Lines(_joined(joined, _text("\n")))


def numbered(data: bytes, row_places: Any, separator: bytes) -> memoryview:
    r"""Return lines of CSV with a number before each line.

    >>> bytes(numbered(b"a\nb,c\n", np.array([5, 12]), b","))
    b'5,a\n12,b,c\n'
    """
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))
    offsets = np.concatenate([[0], ends + 1]).astype(np.int64)
    lines = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
    heads = pa.array(row_places).cast(pa.large_string()).cast(pa.large_binary())
    joined = pc.binary_join_element_wise(heads, lines, pa.scalar(separator, lines.type))
    return Lines(joined).data(0, len(ends))


def texts(column: Any) -> Any:
    r"""Return the values of a column as PostgreSQL's input functions read them; NULL stays NULL.

    >>> texts(pa.array([b"\x00\xff", None])).to_pylist()
    ['\\x00ff', None]
    >>> texts(pa.array([["a,b", 'c"', None], None])).to_pylist()
    ['{"a,b","c\\"",NULL}', None]
    """
    kind = column.type
    types = pa.types
    if types.is_large_string(kind):
        return column
    if types.is_timestamp(kind):
        zone = "" if kind.tz is None else "+00"
        return _calendar(column.cast(pa.timestamp("us")).cast(pa.large_string()), zone)
    if types.is_date(kind):
        return _calendar(column.cast(pa.large_string()), "")
    if types.is_binary(kind) or types.is_large_binary(kind):
        return _hex(column)
    if types.is_list(kind) or types.is_large_list(kind):
        return _array_literals(column)
    if types.is_struct(kind) or types.is_map(kind):
        return documents(column, texts)
    if types.is_null(kind):
        return pa.nulls(len(column), pa.large_string())
    return column.cast(pa.large_string())


def _as_double(kind: Any) -> Any:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_as_double(kind.value_type))
    return pa.float64() if pa.types.is_float32(kind) else kind


def _at_most(column: Any, places: int) -> Any:
    """Return times; a time with more decimal places is changed so that PostgreSQL refuses it."""
    finer = pc.match_substring_regex(column, rf"[.][0-9]{{{places}}}[0-9]*[1-9]")
    if not pc.any(finer).as_py():
        return column
    return pc.if_else(
        finer, _joined(column, _text(f" (more than {places} decimal places)")), column
    )


def _text(value: str | None) -> Any:
    return pa.scalar(value, pa.large_string())


def _joined(*parts: Any) -> Any:
    return pc.binary_join_element_wise(*parts, _text(""))


def _escaped(column: Any) -> Any:
    data = _data(column)
    for character, escape in _ESCAPES:
        if character.encode() in data:
            column = pc.replace_substring(column, character, escape)
    return column


def _data(column: Any) -> bytes:
    """Return the characters of a text column as one piece."""
    _, offsets, values = column.buffers()
    if values is None or len(column) == 0:
        return b""
    bounds = np.frombuffer(offsets, dtype=np.int64)[column.offset :]
    return bytes(memoryview(values)[bounds[0] : bounds[len(column)]])


def _calendar(column: Any, zone: str) -> Any:
    """Return dates in PostgreSQL's form, which writes years before 1 as BC and has no year 0."""
    odd = pc.or_kleene(pc.starts_with(column, "-"), pc.starts_with(column, "0000"))
    if zone:
        column = _joined(column, _text(zone))
    if not pc.any(odd).as_py():
        return column
    values = column.to_pylist()
    for index in np.flatnonzero(odd.fill_null(False).to_numpy(zero_copy_only=False)):
        match = _ODD_YEAR.fullmatch(values[index])
        assert match is not None
        values[index] = f"{1 - int(match[1]):04}{match[2]} BC"
    return pa.array(values, pa.large_string())


def _hex(column: Any) -> Any:
    column = column.cast(pa.large_binary())
    bounds = np.frombuffer(column.buffers()[1], dtype=np.int64)[column.offset :][: len(column) + 1]
    values = column.buffers()[2]
    raw = np.frombuffer(values, dtype=np.uint8) if values is not None else np.zeros(0, np.uint8)
    digits = _HEX[raw[bounds[0] : bounds[-1]]].tobytes()
    offsets = pa.py_buffer(((bounds - bounds[0]) * 2).astype(np.int64).tobytes())
    hexed = pa.LargeStringArray.from_buffers(len(column), offsets, pa.py_buffer(digits))
    return pc.if_else(column.is_valid(), _joined(_text("\\x"), hexed), _text(None))


def _array_literals(column: Any) -> Any:
    elements = column.flatten()
    values = texts(elements)
    kind = elements.type
    is_bare = (pa.types.is_integer, pa.types.is_boolean, pa.types.is_list, pa.types.is_large_list)
    if not any(is_kind(kind) for is_kind in is_bare):
        for character in ("\\", '"'):
            values = pc.replace_substring(values, character, "\\" + character)
        values = _joined(_text('"'), values, _text('"'))
    values = values.fill_null("NULL")
    lengths = pc.list_value_length(column).fill_null(0).to_numpy()
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    lists = pa.LargeListArray.from_arrays(pa.array(offsets), values)
    literals = _joined(_text("{"), pc.binary_join(lists, _text(",")), _text("}"))
    return pc.if_else(column.is_valid(), literals, _text(None))
