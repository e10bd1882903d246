r"""CSV by the rules of PostgreSQL's COPY.

A quote opens or closes a quoted part anywhere in a field. Two quotes within a quoted part stand for one
quote. A field without quotes and characters is NULL; `""` is an empty string. Lines end with `\n` or `\r\n`.
If only COPY reads the lines, PostgreSQL parses them itself. Otherwise `take_apart` parses whole blocks by
array arithmetic: a character is quoted if the number of quotes before it is odd.
`idivm bench load --matrix` compares both with COPY.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from orchestrator.caching import cached_property
from orchestrator.spark.errors import LoadError
from orchestrator.spark.formats.arrow import pa
from orchestrator.spark.formats.blocks import Block, Rows, Torn, local_path

_LINE_BREAK = (
    "a quote is not closed in this line: give --options multiLine=true if fields hold line breaks, "
    "or multiLine=false if each line is a row"
)
_UNCLOSED = "a quote is not closed before the end of the file"
_RETURN = "unquoted carriage return found in data"
_NEWLINE, _RETURN_BYTE = ord("\n"), ord("\r")


@dataclass(frozen=True)
class CsvReader:
    """Parses lines of CSV."""

    width: int
    """The number of fields of a row."""
    separator: bytes = b","
    quote: bytes = b'"'
    null: bytes = b""
    """The text for NULL, unless it is quoted."""
    multiline: bool | None = None
    """Whether a row may span several lines; None if the user has not said so."""
    header: bytes | None = None
    """The first line of each file, if it names the columns."""
    escape: bytes | None = None
    """The character that makes a quote part of a quoted field, if it is not another quote."""
    encoding: str | None = None

    @property
    def spans_lines(self) -> bool:
        """Whether a row may span several lines."""
        return self.multiline is True

    def plainly(self, data: bytes) -> bytes:
        r"""Return lines in UTF-8, with quotes in COPY's form.

        >>> CsvReader(2, escape=b"\\").plainly(b'"a\\"b\\\\",c\\d\n')
        b'"a""b\\",c\\d\n'
        """
        if self.encoding is not None:
            data = data.decode(self.encoding).encode()
        if self.escape is not None and self.escape in data:
            data = self._quoted.sub(self._doubled, data)
        return data

    @property
    def _blank(self) -> bytes:
        return b" \t\r\n".replace(self.separator, b"")

    @cached_property
    def _quoted(self) -> re.Pattern[bytes]:
        quote, escape = re.escape(self.quote), re.escape(self.escape or b"")
        end = b"" if self.multiline else b"\n"
        inner = b"(?:%b[%b%b]|[^%b%b])*" % (escape, escape, quote, quote, end)
        return re.compile(b"%b(%b)(%b?)" % (quote, inner, quote))

    def _doubled(self, match: re.Match[bytes]) -> bytes:
        escape = self.escape or b""
        inner = re.sub(
            re.escape(escape) + b"([%b%b])" % (re.escape(escape), re.escape(self.quote)),
            lambda item: self.quote * 2 if item[1] == self.quote else escape,
            match[1],
        )
        return self.quote + inner + match[2]

    @property
    def whole_files(self) -> bool:
        """Whether the end of a row depends on everything before it in the file."""
        return self.escape is not None

    def whole(self, data: bytes) -> int:
        """Return how many bytes at the beginning are whole rows."""
        ends = np.flatnonzero(self._ends(np.frombuffer(data, np.uint8)))
        return int(ends[-1]) + 1 if len(ends) else 0

    def _ends(self, characters: Any) -> Any:
        ends = characters == _NEWLINE
        quotes = np.cumsum(characters == self.quote[0], dtype=np.uint8) & 1
        return ends & (quotes == 0)

    def count(self, block: Block) -> int:
        """Return the number of rows of a block; its last row may be incomplete."""
        characters = np.frombuffer(block.data, np.uint8)
        ends = self._ends(characters) if self.spans_lines else characters == _NEWLINE
        return int(np.count_nonzero(ends)) - len(self._left_out(block.data, block))

    def first_record(self, data: bytes) -> bytes | None:
        r"""Return the first row of a file that is not blank, unparsed.

        >>> CsvReader(0, multiline=True).first_record(b'\n "a\nb",c\r\nd')
        b' "a\nb",c'
        """
        record = b""
        for line in data.split(b"\n"):
            if not record and not line.strip(self._blank):
                continue
            record += line
            if not self.spans_lines or record.count(self.quote) % 2 == 0:
                return record.removesuffix(b"\r")
            record += b"\n"
        return record or None

    def fields(self, record: bytes) -> list[str | None]:
        """Return the fields of one row.

        >>> CsvReader(0).fields(b'a,"b ""c"",",,""')
        ['a', 'b "c",', None, '']
        """
        characters = np.frombuffer(record, np.uint8)
        quotes = np.cumsum(characters == self.quote[0]) & 1
        width = np.count_nonzero((characters == self.separator[0]) & (quotes == 0)) + 1
        reader = replace(self, width=int(width), header=None, multiline=True, null=b"")
        rows = reader.take_apart(Block("", 0, record + b"\n", False))
        if rows.torn:
            raise LoadError(rows.torn[0].reason)
        return [column[0].as_py() for column in rows.columns]

    def lines(self, block: Block) -> tuple[bytes, int] | Torn:
        r"""Return the lines of a block that are rows, for COPY to parse, and their number.

        >>> CsvReader(2, header=b"a,b").lines(Block("t.csv", 0, b'a,b\r\n\r\n1,"x"\r\n \n2,y\n', True))
        (b'1,"x"\n2,y\n', 2)
        """
        data = _without(block.data, self._left_out(block.data, block))
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n")
        characters = np.frombuffer(data, np.uint8)
        ends = characters == _NEWLINE
        if self.quote in data:
            # The count modulo 256 is odd if and only if the count is odd.
            quotes = np.cumsum(characters == self.quote[0], dtype=np.uint8) & 1
            if quotes[ends].any():
                return self._torn(block)
        if b"\r" in data:
            returns = characters == _RETURN_BYTE
            if self.quote in data:
                returns &= quotes == 0
            if returns.any():
                return self._torn(block)
        if data.startswith(b"\\.\n") or b"\n\\.\n" in data:
            # Servers before version 18 treat this line as the end of the data.
            if self.width > 1:
                return self._torn(block)
            data = re.sub(rb"^\\\.$", self.quote + b"\\." + self.quote, data, flags=re.MULTILINE)
        return data, int(np.count_nonzero(ends))

    def line_starts(self, block: Block) -> Any:
        r"""Return the bytes of a block at which the lines returned by `lines` begin.

        >>> CsvReader(2, header=b"a,b").line_starts(Block("t.csv", 0, b'a,b\r\n\r\n1,2\r\n3,4\n', True)).tolist()
        [7, 12]
        """
        ends = np.flatnonzero(np.frombuffer(block.data, np.uint8) == _NEWLINE)
        starts = np.concatenate([[0], ends[:-1] + 1])[: len(ends)]
        left_out = [start for start, _ in self._left_out(block.data, block)]
        return np.delete(starts, np.searchsorted(starts, left_out)) if left_out else starts

    @property
    def takes_numbers(self) -> bool:
        """Whether a number before a line is a field of its own."""
        return not set(self.separator + self.quote) & set(b"0123456789")

    def _torn(self, block: Block) -> Torn:
        return min(self.take_apart(block).torn, key=lambda torn: torn.at)

    def _left_out(self, data: bytes, block: Block) -> list[tuple[int, int]]:
        """Return where blank lines and the header begin and end."""
        characters = np.frombuffer(data, np.uint8)
        header = self.header if block.first else None
        spans: list[tuple[int, int]] = []
        if self.width > 1 or header is not None:
            # Only lines that begin with white space can be blank, so few lines are checked.
            begins = (characters[:-1] == _NEWLINE) & (characters[1:] <= ord(" "))
            if self.spans_lines:
                begins &= self._ends(characters)[:-1]
            for start in [0, *(np.flatnonzero(begins) + 1).tolist()]:
                end = data.find(b"\n", start) + 1 or len(data)
                if not data[start:end].strip(self._blank):
                    spans.append((start, end))
        if header is None:
            return spans
        start = 0
        for blank_line, end in spans:
            start = end if blank_line == start else start
        record = self.first_record(data[start:])
        if self.width == 1:
            spans = [span for span in spans if span[0] < start]  # the others are values
        if record is None:
            return spans
        if record != header and self.fields(record) != self.fields(header):
            raise LoadError(
                f"{local_path(block.path) or block.path} begins with the line {record.decode(errors='replace')!r}, and "
                f"another file with {header.decode()!r}: load files with different headers apart."
            )
        end = data.find(b"\n", start + len(record)) + 1 or len(data)
        return sorted([*spans, (start, end)])

    def take_apart(self, block: Block) -> Rows:
        """Return the fields of a block as columns of text."""
        data = block.data
        characters = np.frombuffer(data, np.uint8)
        ends = np.flatnonzero(characters == _NEWLINE)
        reasons: dict[int, str] = {}
        quotes = quoted = None
        rest = len(data)
        if self.quote in data:
            quotes = characters == self.quote[0]
            quoted = np.cumsum(quotes, dtype=np.uint8) & 1
            odd = quoted[ends]
            if self.multiline:
                ends = ends[odd == 0]
                rest = int(ends[-1]) + 1 if len(ends) else 0
            elif odd.any() and self.multiline is None:
                first = int(np.flatnonzero(odd)[0])
                rest = int(ends[first - 1]) + 1 if first else 0
                ends = ends[:first]
            elif odd.any():
                torn = np.flatnonzero(np.diff(odd, prepend=0))
                reasons = dict.fromkeys(torn.tolist(), "a quote is not closed in this line")
                for row in torn.tolist():
                    quotes[(int(ends[row - 1]) + 1 if row else 0) : int(ends[row])] = False
                quoted = np.cumsum(quotes, dtype=np.uint8) & 1
        starts = np.concatenate([[0], ends[:-1] + 1])[: len(ends)]
        stops = ends - ((ends > starts) & (characters[ends - 1] == _RETURN_BYTE))
        separators = characters == self.separator[0]
        returns = characters == _RETURN_BYTE if b"\r" in data else None
        if quoted is not None:
            separators &= quoted == 0
            returns = returns if returns is None else returns & (quoted == 0)
        cuts = np.flatnonzero(separators[:rest])
        counts = np.diff(np.searchsorted(cuts, ends), prepend=0)
        if returns is not None:
            returns[stops[stops < ends]] = False
            at = np.flatnonzero(returns[:rest])
            reasons |= dict.fromkeys(np.searchsorted(ends, at).tolist(), _RETURN)
        left_out = self._left_out(data[:rest], block) if rest else []
        skipped = np.searchsorted(starts, [start for start, _ in left_out]).astype(np.int64)
        wrong = counts != self.width - 1
        wrong[skipped] = False
        for row in np.flatnonzero(wrong).tolist():
            if row not in reasons:
                fields = int(counts[row]) + 1
                reasons[row] = (
                    f"the line has {fields} field{'s' * (fields > 1)} instead of {self.width}"
                )
        try:
            data[:rest].decode()
        except UnicodeDecodeError:
            for number in range(len(ends)):
                row = data[starts[number] : stops[number]]
                try:
                    row.decode()
                except UnicodeDecodeError as error:
                    before = cuts[np.searchsorted(cuts, starts[number]) :]
                    wrong_field = np.searchsorted(before, starts[number] + error.start) + 1
                    reasons[number] = f"{not_utf_8(row)} in field {wrong_field}"
        for row in skipped.tolist():
            reasons.pop(row, None)
        sound = np.ones(len(ends), bool)
        sound[skipped] = False
        sound[list(reasons)] = False
        columns = self._columns(
            characters, quotes, quoted, starts, ends, stops, cuts, counts, sound
        )
        torn_rows = [
            Torn(int(starts[row]), reason, data[starts[row] : stops[row]].decode(errors="replace"))
            for row, reason in sorted(reasons.items())
        ]
        if rest < len(data):
            opened = data[rest : data.find(b"\n", rest)].decode(errors="replace")
            why = _UNCLOSED if self.multiline else _LINE_BREAK
            torn_rows.append(Torn(rest, why, opened, ends=True))
        return Rows(columns, starts[sound].tolist(), torn_rows)

    def _columns(
        self,
        characters: Any,
        quotes: Any,
        quoted: Any,
        starts: Any,
        ends: Any,
        stops: Any,
        cuts: Any,
        counts: Any,
        sound: Any,
    ) -> list[Any]:
        """Return the fields of the sound rows, column by column."""
        kept = np.zeros(len(characters) + 1, np.int8)
        rows = int(np.count_nonzero(sound))
        if not sound.all():
            cuts = cuts[: int(counts.sum())][np.repeat(sound, counts)]
            starts, ends, stops = starts[sound], ends[sound], stops[sound]
        inner = cuts[: rows * (self.width - 1)].reshape(rows, self.width - 1)
        begins = np.concatenate([starts[:, None], inner + 1], axis=1).ravel()
        finishes = np.concatenate([inner, stops[:, None]], axis=1).ravel()
        # A field's characters are those between its begin and its finish.
        kept[begins] += 1
        kept[finishes] -= 1
        keep = np.cumsum(kept[:-1], dtype=np.int8) > 0
        if quotes is not None:
            # Of two consecutive quotes within a quoted part, the second is kept.
            literal = quotes & (quoted == 1)
            literal[1:] &= quotes[:-1]
            literal[:1] = False
            keep &= ~quotes | literal
        values = characters[keep]
        before = np.concatenate([[0], np.cumsum(keep)])
        offsets = np.append(before[begins], len(values)).astype(np.int64)
        valid = ~self._nulls(characters, begins, finishes)
        fields = pa.LargeStringArray.from_buffers(
            len(begins),
            pa.py_buffer(offsets.tobytes()),
            pa.py_buffer(values.tobytes()),
            pa.py_buffer(np.packbits(valid, bitorder="little").tobytes()),
        )
        if self.width == 1:
            return [fields]
        return [
            fields.take(pa.array(np.arange(number, len(begins), self.width)))
            for number in range(self.width)
        ]

    def _nulls(self, characters: Any, begins: Any, finishes: Any) -> Any:
        nulls = finishes - begins == len(self.null)
        for offset, byte in enumerate(self.null):
            at = np.flatnonzero(nulls)
            nulls[at] = characters[begins[at] + offset] == byte
        return nulls


def not_utf_8(data: bytes) -> str | None:
    r"""Return why bytes are not UTF-8 text, in PostgreSQL's words; None if they are.

    >>> not_utf_8(b"a\xff")
    'invalid byte sequence for encoding "UTF8": 0xff'
    """
    try:
        data.decode()
    except UnicodeDecodeError as error:
        wrong = " ".join(f"0x{byte:02x}" for byte in data[error.start : error.end])
        return f'invalid byte sequence for encoding "UTF8": {wrong}'
    return None


def _without(data: bytes, spans: list[tuple[int, int]]) -> bytes:
    if not spans:
        return data
    kept = []
    at = 0
    for start, end in spans:
        kept.append(data[at:start])
        at = end
    return b"".join([*kept, data[at:]])
