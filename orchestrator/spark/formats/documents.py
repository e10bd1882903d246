r"""Convert Arrow's structs, maps and arrays to JSON, column by column.

A value in a document equals the result of PostgreSQL's `to_jsonb`: numbers keep their digits, NULL fields
stay, times keep their microseconds and are in UTC, bytes are `\x` and hexadecimal digits.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from orchestrator.spark.formats.arrow import pa, pc

Texts = Callable[[Any], Any]
"""A function that returns the values of a column as PostgreSQL's input functions read them."""

_CONTROL = re.compile(r"[\x00-\x1f]")
_ESCAPES = (("\\", "\\\\"), ('"', '\\"'))


def documents(column: Any, texts: Texts) -> Any:
    """Return the values of a column as parts of JSON documents; NULL stays NULL.

    >>> from orchestrator.spark.loading.encode import texts
    >>> documents(pa.array([{"a": 1, "b": [None, 'x"y']}, None]), texts).to_pylist()
    ['{"a":1,"b":[null,"x\\\\"y"]}', None]
    """
    kind, types = column.type, pa.types
    if types.is_struct(kind):
        documents_of_column = _struct(column, texts)
    elif types.is_map(kind):
        documents_of_column = _map(column, texts)
    elif types.is_list(kind) or types.is_large_list(kind):
        values = _or_null(documents(column.flatten(), texts))
        documents_of_column = _gathered(column, values, "[", "]")
    elif types.is_boolean(kind) or types.is_integer(kind) or types.is_decimal(kind):
        return texts(column)
    elif types.is_floating(kind):
        return _numbers(texts(column))
    elif types.is_timestamp(kind):
        return _moments(texts(column), zone=kind.tz is not None)
    else:
        return _strings(texts(column))
    return pc.if_else(column.is_valid(), documents_of_column, pa.scalar(None, pa.large_string()))


def _text(value: str) -> Any:
    return pa.scalar(value, pa.large_string())


def _joined(*parts: Any) -> Any:
    return pc.binary_join_element_wise(*parts, _text(""))


def _or_null(column: Any) -> Any:
    return column.fill_null("null")


def _struct(column: Any, texts: Texts) -> Any:
    fields = [
        _joined(
            _text(("," if number else "{") + json.dumps(field.name) + ":"),
            _or_null(documents(values, texts)),
        )
        for number, (field, values) in enumerate(zip(column.type, column.flatten(), strict=True))
    ]
    if not fields:
        return pa.repeat(_text("{}"), len(column))
    return _joined(*fields, _text("}"))


def _map(column: Any, texts: Texts) -> Any:
    bounds = column.offsets.to_numpy()
    first, length = int(bounds[0]), int(bounds[-1] - bounds[0])
    keys, items = column.keys.slice(first, length), column.items.slice(first, length)
    entries = _joined(_keys(keys, texts), _text(":"), _or_null(documents(items, texts)))
    return _gathered(column, entries, "{", "}", np.diff(bounds))


def _keys(column: Any, texts: Texts) -> Any:
    keys = documents(column, texts)
    is_string = pc.starts_with(keys, '"')
    return pc.if_else(is_string, keys, _quoted(keys))


def _gathered(column: Any, values: Any, opening: str, closing: str, lengths: Any = None) -> Any:
    if lengths is None:
        lengths = pc.list_value_length(column).fill_null(0).to_numpy()
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    lists = pa.LargeListArray.from_arrays(pa.array(offsets), values)
    return _joined(_text(opening), pc.binary_join(lists, _text(",")), _text(closing))


def _numbers(result: Any) -> Any:
    """Return floats; those that JSON lacks become strings with PostgreSQL's names."""
    for short, name in (("nan", "NaN"), ("inf", "Infinity")):
        odd = pc.match_substring(result, short)
        result = pc.if_else(odd, _quoted(pc.replace_substring(result, short, name)), result)
    return result


def _moments(result: Any, zone: bool) -> Any:
    result = pc.replace_substring(result, " ", "T", max_replacements=1)
    for zeros, left in ((r"(\.\d*[1-9])0+(\D|$)", r"\1\2"), (r"\.0+(\D|$)", r"\1")):
        result = pc.replace_substring_regex(result, zeros, left)
    if zone:
        result = pc.replace_substring(result, "+00", "+00:00")
    return _quoted(result)


def _strings(result: Any) -> Any:
    for character, escape in _ESCAPES:
        result = pc.replace_substring(result, character, escape)
    if pc.any(pc.match_substring_regex(result, r"[\x00-\x1f]")).as_py():
        values = [
            None if item is None else _CONTROL.sub(lambda match: json.dumps(match[0])[1:-1], item)
            for item in result.to_pylist()
        ]
        result = pa.array(values, pa.large_string())
    return _quoted(result)


def _quoted(value: Any) -> Any:
    return _joined(_text('"'), value, _text('"'))
