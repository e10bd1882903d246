"""Interpret the options of CSV and JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from orchestrator.errors import UsageError
from orchestrator.spark.formats.csv_rows import CsvReader


def csv_reader(paths: Sequence[str], options: Mapping[str, str]) -> tuple[CsvReader, bool]:
    """Return a reader that does not know the columns yet, and whether files have a header."""
    tabs = all(re.search(r"\.tsv(\.\w+)?$", path) for path in paths)
    multiline = options.get("multiline")
    quote = _byte("quote", options.get("quote", '"'))
    escape = _byte("escape", options["escape"]) if "escape" in options else quote
    reader = CsvReader(
        width=0,
        separator=_byte("sep", options.get("sep", options.get("delimiter", "\t" if tabs else ","))),
        quote=quote,
        null=options.get("nullvalue", "").encode(),
        multiline=None if multiline is None else truth("multiLine", multiline),
        escape=None if escape == quote else escape,
        encoding=encoding(options),
    )
    if len({reader.separator, reader.quote, b"\n", b"\r"}) < 4 or set(reader.null) & set(
        reader.separator + reader.quote + b"\r\n"
    ):
        raise UsageError("The options sep, quote and nullValue of CSV have to differ.")
    return reader, truth("header", options.get("header", "true"))


def _byte(name: str, value: str) -> bytes:
    value = {"\\t": "\t"}.get(value, value)
    if len(value) != 1 or not value.isascii():
        raise UsageError(f"The option {name} is {value!r}, and has to be one ASCII character.")
    return value.encode()


def truth(name: str, value: str) -> bool:
    """Return the value of a Boolean option."""
    if value.lower() not in ("true", "false"):
        raise UsageError(f"The option {name} is {value!r}: take true or false.")
    return value.lower() == "true"


def encoding(options: Mapping[str, str]) -> str | None:
    """Return an encoding other than UTF-8 in which ASCII characters are single bytes; None for UTF-8."""
    name = options.get("encoding", options.get("charset", "UTF-8"))
    try:
        plain = '",\n\\'.encode(name) == b'",\n\\'
        if "\u00e4\n".encode(name, "replace") == "\u00e4\n".encode():
            return None
    except LookupError:
        raise UsageError(f"There is no encoding {name}.") from None
    if not plain:
        raise UsageError(
            f"Files in {name} cannot be read: convert them to UTF-8 (iconv -f {name} -t UTF-8)."
        )
    return name
