"""Lines of CSV that go to PostgreSQL as they are, cut anywhere."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("numpy")

from orchestrator.spark import plain
from orchestrator.spark.errors import LoadError
from orchestrator.spark.plain import Range, TornError, blocks, cut, place, rows

HEADER = "a,b"
LINES = [
    *("", HEADER, "1,x", "", "22,'y'", '333,"z, ""q"""', " \t", "4,é", ",", "5,last"),
]
ROWS = [line for line in LINES if line.strip() and line != HEADER]


def written(path: Path, end: str, last: str = "", bom: bool = False) -> Path:
    text = end.join(LINES) + last
    path.write_bytes((b"\xef\xbb\xbf" if bom else b"") + text.encode())
    return path


def sent(path: Path, size: int) -> list[str]:
    """The rows of all partitions of a file."""
    found = []
    for part in cut([(str(path), path.stat().st_size)], size):
        for one in part:
            for block in blocks(one):
                data, number = rows(block, HEADER.encode())
                lines = data.decode().split("\n")
                assert lines.pop() == "" and len(lines) == number
                found += lines
    return found


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_every_cut_gives_each_row_once(
    tmp_path: Path, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain, "_OPENING", 0)
    for last, bom in (("", False), (end, False), (end + end, False), ("", True)):
        path = written(tmp_path / "t.csv", end, last, bom)
        for size in range(1, path.stat().st_size + 2):
            assert sent(path, size) == ROWS, (size, last, bom)
    # With the header at the beginning, blocks may be as short as it.
    path.write_bytes(path.read_bytes().removeprefix(b"\xef\xbb\xbf" + end.encode()))
    for block in range(len(HEADER + end), 40):
        monkeypatch.setattr(plain, "_BLOCK", block)
        for size in (block - 1, block, block + 1, 1000):
            assert sent(path, size) == ROWS, (block, size)


def test_files_are_packed_and_empty_ones_passed_over() -> None:
    parts = cut([("a", 10 << 20), ("b", 0), ("c", 1), ("d", 1)], 4 << 20)
    assert [[one.path for one in part] for part in parts] == [["a"]] * 3 + [["c", "d"]]


def test_a_row_is_found_again(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", "\r\n", bom=True)
    seen = []
    for part in cut([(str(path), path.stat().st_size)], 9):
        for block in (block for one in part for block in blocks(one)):
            number = rows(block, HEADER.encode())[1]
            seen += [place(block, row, HEADER.encode()) for row in range(number)]
    assert [row for row, _, _ in seen] == list(range(1, len(ROWS) + 1))
    assert [LINES[line - 1] for _, line, _ in seen] == ROWS == [text for _, _, text in seen]


@pytest.mark.parametrize(
    ("text", "row", "reason"),
    [
        ('1,x\n2,"y\nz"\n3,w\n', 1, "line break"),
        ("1,x\n\n2,y\n\\.\n", 2, "1 field"),
        ('1,"x', 0, "not closed"),
    ],
)
def test_what_is_torn_is_refused(tmp_path: Path, text: str, row: int, reason: str) -> None:
    (path := tmp_path / "t.csv").write_text(text)
    (block,) = blocks(Range(str(path), 0, len(text)))
    with pytest.raises(TornError, match=reason) as torn:
        rows(block, None)
    assert torn.value.row == row


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
        rows(block, HEADER.encode())
