"""Every code block of the documentation runs, and prints what the page shows.

A page has a database of its own. Blocks run in order: `console` (commands of idivm with their output),
`sql` and `python`; a `text` block directly after a block is its output. A comment `<!-- setup ... -->`
holds SQL that a page needs and does not show; with `setup idivm` it runs through idivm, and `setup python`
holds Python. `<!-- not run: why -->` exempts the next block, and `<!-- from FILE -->` says where its lines
are tested.
With IDIVM_WRITE_DOCUMENTATION set, the pages are rewritten with the actual output.
"""

from __future__ import annotations

import functools
import json
import os
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from documents import ROOT, Block, Commands, blocks, matches, printed, run_command, run_python

import idivm
from orchestrator.cli import main as command_line

TESTED_ELSEWHERE = {
    "docs/how-to/clients.md": "tests/entry/test_clients.py",
}
"""Pages whose blocks need more than a database, and the tests that run them."""

PAGES = {
    str(path.relative_to(ROOT)): blocks(path)
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
}
PARSER = functools.cache(command_line.build_parser)
"""The parser of the command line, built once: pages run many commands."""

DATA: dict[str, Any] = {
    "ini": lambda text: ConfigParser(interpolation=None).read_string(text),
    "json": json.loads,
    "text": str,
    "toml": str,
    "yaml": yaml.safe_load,
}
"""Languages that are data: a block must be well-formed."""


@pytest.mark.parametrize(
    "page", [page for page, parts in PAGES.items() if parts and page not in TESTED_ELSEWHERE]
)
def test_the_blocks_of_a_page_run_and_print_what_it_shows(
    page: str, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IDIVM_DSN", dsn)
    monkeypatch.setattr(command_line, "build_parser", PARSER)
    names: dict[str, Any] = {"idivm": idivm}
    actual: list[tuple[Block, str]] = []
    for block in PAGES[page]:
        if block.comment.startswith("not run: "):
            continue
        if block.comment.startswith("from "):
            files = [ROOT / name for name in block.comment.removeprefix("from ").split()]
            lines = {line.strip() for file in files for line in file.read_text().splitlines()}
            assert {line.strip() for line in block.text.splitlines()} - lines == {""} - lines
            continue
        if block.language == "console":
            actual.append((block, console(block)))
        elif block.text.startswith(" python"):
            run_python(block.text.removeprefix(" python"), names)
        elif block.language == "setup" and not block.text.startswith(" idivm"):
            with psycopg.connect(dsn, autocommit=True) as connection:
                connection.execute(block.text.encode())
        elif block.language in ("sql", "setup"):
            output = printed(["sql", "-c", block.text.removeprefix(" idivm")])
            assert "idivm: " not in output or block.output, f"{block.text}\n{output}"
            if block.output:
                actual.append((block.output, output))
        elif block.language == "python":
            output = run_python(block.text, names)
            if block.output:
                actual.append((block.output, output))
        else:
            DATA[block.language](block.text)
    different = [(block, text) for block, text in actual if not matches(block.text, text)]
    if different and "IDIVM_WRITE_DOCUMENTATION" in os.environ:
        rewrite(ROOT / page, different)
    assert [(block.text, text) for block, text in different] == []


def console(block: Block) -> str:
    """Return a console block with the output that its commands print now."""
    written = ""
    for command, expected in Commands.parse(block.text).commands:
        output = run_command(command)
        written += (
            f"$ {command}\n{expected if matches(expected, output) else cut(output, expected)}"
        )
    return written


def cut(output: str, expected: str) -> str:
    """Return an output as the page should show it: as many lines as before, if these end with `...`."""
    lines, before = output.strip("\n").splitlines(), expected.splitlines()
    if before and before[-1] == "...":
        lines = [*lines[: len(before) - 1], "..."]
    return "".join(f"{line}\n" for line in lines)


def rewrite(page: Path, different: list[tuple[Block, str]]) -> None:
    """Replace the contents of fences, from the last to the first."""
    lines = page.read_text().splitlines()
    for block, text in sorted(different, key=lambda pair: -pair[0].lines[0]):
        content = [line.rstrip() for line in text.strip("\n").splitlines()]
        lines[block.lines[0] + 1 : block.lines[1] - 1] = content
    page.write_text("\n".join(lines) + "\n")
