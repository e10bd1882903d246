"""Files of text cut anywhere, and the rows that readers make of their lines."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from orchestrator.spark.errors import LoadError
from orchestrator.spark.formats import blocks as module
from orchestrator.spark.formats.blocks import (
    Block,
    Range,
    Reader,
    Torn,
    blocks,
    cut,
    in_rows,
    places,
)
from orchestrator.spark.formats.csv_rows import CsvReader
from orchestrator.spark.formats.json_rows import JsonColumn, JsonReader, first_problem

HEADER = "a,b"
LINES = [
    *("", HEADER, "1,x", "", "22,'y'", '333,"z, ""q"""', " \t", "4,é", ",", "5,last"),
]
ROWS = [line for line in LINES if line.strip() and line != HEADER]
FIELDS = [
    *(["1", "x"], ["22", "'y'"], ["333", 'z, "q"'], ["4", "é"], [None, None], ["5", "last"]),
]
READER = CsvReader(2, header=HEADER.encode())


def written(path: Path, end: str, last: str = "", bom: bool = False) -> Path:
    text = end.join(LINES) + last
    path.write_bytes((b"\xef\xbb\xbf" if bom else b"") + text.encode())
    return path


def sent(path: Path, size: int) -> list[str]:
    """Return the rows of all partitions of a file."""
    rows = []
    for part in cut([(str(path), path.stat().st_size)], size):
        for piece in part:
            for block in blocks(piece):
                lines = READER.lines(block)
                assert not isinstance(lines, Torn)
                data, number = lines
                listed = data.decode().split("\n")
                assert listed.pop() == "" and len(listed) == number == READER.count(block)
                rows += listed
    return rows


def taken(path: Path, size: int, reader: Reader = READER) -> list[list[str | None]]:
    """Return the fields of all rows of a file."""
    fields: list[list[str | None]] = []
    for part in cut([(str(path), path.stat().st_size)], size):
        for piece in part:
            for block in in_rows(blocks(piece), reader):
                rows = reader.take_apart(block)
                assert not rows.torn
                fields += map(list, zip(*(each.to_pylist() for each in rows.columns), strict=True))
    return fields


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_every_cut_gives_each_row_once(
    tmp_path: Path, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_OPENING_COST", 0)
    for last, bom in (("", False), (end, False), (end + end, False), ("", True)):
        path = written(tmp_path / "t.csv", end, last, bom)
        for size in range(1, path.stat().st_size + 2):
            assert sent(path, size) == ROWS, (size, last, bom)
            assert taken(path, size) == FIELDS, (size, last, bom)
    # With the header at the beginning, blocks may be as short as it.
    path.write_bytes(path.read_bytes().removeprefix(b"\xef\xbb\xbf" + end.encode()))
    for block in range(len(HEADER + end), 40):
        monkeypatch.setattr(module, "_BLOCK", block)
        for size in (block - 1, block, block + 1, 1000):
            assert sent(path, size) == ROWS, (block, size)
            assert taken(path, size) == FIELDS, (block, size)


def test_rows_of_several_lines_end_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = b'a,b\r\n1,"x\r\ny"\r\n"2\n\n",",""\n"\r\n\r\n3,\r\n'
    (path := tmp_path / "t.csv").write_bytes(text)
    reader = CsvReader(2, header=b"a,b", multiline=True)
    starts = [text.index(row) for row in (b"1,", b'"2', b"3,")]
    for block in range(4, 30):
        monkeypatch.setattr(module, "_BLOCK", block)
        fields = [["1", "x\r\ny"], ["2\n\n", ',"\n'], ["3", None]]
        assert taken(path, len(text), reader) == fields, block
        located = places(str(path), starts, reader)
        assert [located[start] for start in starts] == [(1, 2), (2, 4), (3, 9)], block


def test_files_are_packed_and_empty_ones_passed_over() -> None:
    parts = cut([("a", 10 << 20), ("b", 0), ("c", 1), ("d", 1)], 4 << 20)
    assert [[piece.path for piece in part] for part in parts] == [["a"]] * 3 + [["c", "d"]]


def test_a_row_is_found_again(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", "\r\n", bom=True)
    starts = []
    for part in cut([(str(path), path.stat().st_size)], 9):
        for block in (block for piece in part for block in blocks(piece)):
            starts += [block.start + start for start in READER.take_apart(block).starts]
    located = places(str(path), starts, READER)
    assert [located[start][0] for start in starts] == list(range(1, len(ROWS) + 1))
    assert [LINES[located[start][1] - 1] for start in starts] == ROWS


@pytest.mark.parametrize(
    ("text", "row", "reason"),
    [
        ('1,x\n2,"y\nz"\n3,w\n', '2,"y', "multiLine=true"),
        ("1,x\n\n2,y\n\\.\n", "\\.", "1 field instead of 2"),
        ('1,"x', '1,"x', "not closed"),
        ("1,x\r2,y\n", "1,x\r2,y", "unquoted carriage return"),
    ],
)
def test_torn_lines_are_refused(tmp_path: Path, text: str, row: str, reason: str) -> None:
    (path := tmp_path / "t.csv").write_bytes(text.encode())
    (block,) = blocks(Range(str(path), 0, len(text)))
    torn = CsvReader(2).lines(block)
    assert isinstance(torn, Torn) and reason in torn.reason
    assert (torn.content, torn.at) == (row, text.index(row))


def test_each_line_is_a_row_if_that_is_said() -> None:
    block = Block("t.csv", 0, b'1,"x\n2,y\n"z",w"\n3,"v"\n', False)
    rows = CsvReader(2, multiline=False).take_apart(block)
    assert [column.to_pylist() for column in rows.columns] == [["2", "3"], ["y", "v"]]
    assert [torn.content for torn in rows.torn] == ['1,"x', '"z",w"']


def test_a_column_alone_keeps_its_blank_lines() -> None:
    block = Block("t.csv", 0, b'\na\n1\n\n  \n\\.\n""\n', True)
    reader = CsvReader(1, header=b"a")
    assert reader.take_apart(block).columns[0].to_pylist() == ["1", None, "  ", "\\.", ""]
    assert reader.lines(block) == (b'1\n\n  \n"\\."\n""\n', 5)


def test_blank_fields_between_tabs_are_a_row() -> None:
    block = Block("t.tsv", 0, b"\t\n \n\tx\n", False)
    rows = CsvReader(2, separator=b"\t").take_apart(block)
    assert [column.to_pylist() for column in rows.columns] == [[None, None], [None, "x"]]


def test_a_file_that_shrinks_meanwhile_is_noticed(tmp_path: Path) -> None:
    (path := tmp_path / "t.csv").write_text("1,2\n")
    with pytest.raises(LoadError, match="shorter"):
        next(blocks(Range(str(path), 0, 5)))
    with pytest.raises(LoadError, match="cannot read"):
        next(blocks(Range(str(tmp_path / "nowhere.csv"), 0, 5)))


def test_another_header_is_refused(tmp_path: Path) -> None:
    (path := tmp_path / "t.csv").write_text("b,a\n1,2\n")
    (block,) = blocks(Range(str(path), 0, 8))
    with pytest.raises(LoadError, match="different headers"):
        READER.lines(block)
    path.write_text('"a",b\n1,2\n')
    assert taken(path, 100) == [["1", "2"]]


def test_documents_keep_their_text() -> None:
    columns = (
        JsonColumn("j", ("j",), as_json=True),
        JsonColumn("t", ("t", "T")),
        JsonColumn("l", ("l",), array=True),
        JsonColumn("d", ("d",), array=True, as_json=True, depth=1),
    )
    lines = {
        '{"j": "5", "t": "5", "l": [1.50, null, ["a\\"b"]], "d": [{"k": 1.0}, "x"]}': [
            *('"5"', "5", '{"1.50",NULL,{"a\\"b"}}', ['{"k": 1.0}', '"x"']),
        ],
        ' {"j": [1,  2] , "T": {"a" : 1e400}, "l": 5}\r': ["[1,  2]", '{"a" : 1e400}', "5", None],
        '{"j": 1, "j": null, "t": true}': [None, "true", None, None],
        '{"t": 1, "T": 2}': "the keys t and T name the same column",
        '{"t": NaN}': "NaN is no value of JSON",
        '{"t": 01}': "a comma or a closing brace is expected (character 8)",
        '{"t": 1} 2': "there is more in the line",
        '{"t": "\\ud800"}': "half a surrogate pair",
        "[{}, 5]": "it is no object",
        '{"z": 1}': "the key z was not there",
    }
    data = ("\n".join(lines) + "\n").encode() + b'{"t": "\xff"}\n\n'
    reader = JsonReader(columns)
    rows = reader.take_apart(Block("t.json", 0, data, True))
    sound = [row for row in lines.values() if isinstance(row, list)]
    assert [
        list(row) for row in zip(*(column.to_pylist() for column in rows.columns), strict=True)
    ] == [
        *sound,
        [None] * 4,
    ]
    expected = [*(row for row in lines.values() if isinstance(row, str)), "0xff"]
    assert len(rows.torn) == len(expected)
    for torn, reason in zip(rows.torn, expected, strict=True):
        assert reason in torn.reason
    assert reader.count(Block("t.json", 0, data, True)) == len(lines) + 2
    several = JsonReader((JsonColumn("t", ("t",)),), multiline=True)
    (block,) = in_rows([Block("t.json", 0, '[{"t": "é"},\n {"t": 2}]\n{}'.encode(), True)], several)
    documents = several.take_apart(block)
    assert documents.columns[0].to_pylist() == ["é", "2", None]
    assert [block.data[start : start + 2] for start in documents.starts] == [b'{"', b'{"', b"{}"]


def test_a_document_with_bytes_that_are_no_text_is_refused_alone() -> None:
    reader = JsonReader((JsonColumn("t", ("t",)),), multiline=True)
    for text, values, bad in (
        (b'{"t": 1}\n{"t":\n"\xc3\xa9\xff"}\n{"t": 3}\n', ["1", "3"], [(1, "0xff")]),
        (
            b'[{"t": "\xed\xa0\x80"}, {"t": "\\ud83d\\ude00"}]\n',
            ["\N{GRINNING FACE}"],
            [(0, "0xed")],
        ),
        (b'{"t": 1}\n{"t":\xff}\n{"t": 3}\n', ["1"], [(1, "0xff; it and the rest of the file")]),
        (b'{"t": 1}\n{"t":,}\n{"t": 3}\n', ["1"], [(1, "; it and the rest of the file")]),
    ):
        rows = reader.take_apart(Block("t.json", 0, text, True))
        assert rows.columns[0].to_pylist() == values
        assert [text.count(b"\n", 0, torn.at) for torn in rows.torn] == [line for line, _ in bad]
        for torn, (_, reason) in zip(rows.torn, bad, strict=True):
            assert reason in torn.reason
            assert torn.content.encode()


def test_bytes_that_are_no_text_are_named_with_their_field() -> None:
    data = b'1,"x,\xff",2\n3,y,z\n\xe9,y,z\n'
    for multiline in (None, True):
        rows = CsvReader(3, multiline=multiline).take_apart(Block("t.csv", 0, data, False))
        assert [torn.reason[-15:] for torn in rows.torn] == ["0xff in field 2", "0xe9 in field 1"]


def test_the_first_document_that_is_not_json_is_named() -> None:
    lines = b'{"a": 1}\n{"a": 1, "b:2}\n{"\xff": 1}\n'
    at, reason = first_problem(lines, False) or (0, "")
    assert lines[at:].startswith(b'{"a": 1, "b')
    assert "the document is not JSON" in reason
    assert first_problem(lines[:9], False) is None
    assert first_problem(lines[-9:], True) == (0, 'invalid byte sequence for encoding "UTF8": 0xff')
