"""Code blocks of Markdown pages, and how they run."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt

from orchestrator.cli import main as command_line

ROOT = Path(__file__).resolve().parent.parent


@dataclass
class Block:
    """A code block of a page, the output that the page shows, and the comment before the block."""

    language: str
    text: str
    lines: tuple[int, int]
    comment: str = ""
    output: Block | None = None


def blocks(page: Path) -> list[Block]:
    """Return the code blocks and the hidden set-up of a page, in order."""
    result: list[Block] = []
    comment, after_block = "", False
    for token in MarkdownIt().parse(page.read_text()):
        if token.map is None or token.nesting < 0:
            continue
        lines = (token.map[0], token.map[1])
        if token.type == "html_block" and token.content.startswith("<!--"):
            comment = token.content.strip().removeprefix("<!--").removesuffix("-->").strip()
            if comment.startswith("setup"):
                result.append(Block("setup", comment.removeprefix("setup"), lines))
        elif token.type in ("fence", "code_block"):
            block = Block(token.info.split(" ")[0] or "indented", token.content, lines, comment)
            if block.language == "text" and after_block:
                result[-1].output = block
            else:
                result.append(block)
        after_block = token.type == "fence" and result[-1].output is None
        if token.type != "html_block":
            comment = ""
    return result


@dataclass
class Commands:
    """The commands of a console block, each with the lines that it prints."""

    commands: list[tuple[str, str]] = field(default_factory=list)

    @classmethod
    def parse(cls, text: str) -> Commands:
        """Read a console block: a command starts with `$ ` and goes on until its quotes are closed."""
        parsed, lines = cls(), iter(text.splitlines())
        for line in lines:
            if not line.startswith("$ "):
                command, output = parsed.commands[-1]
                parsed.commands[-1] = (command, f"{output}{line}\n")
                continue
            command = line[2:]
            while not _is_complete(command):
                command += "\n" + next(lines)
            parsed.commands.append((command, ""))
        return parsed


def _is_complete(command: str) -> bool:
    try:
        shlex.split(command, comments=True)
    except ValueError:
        return False
    return not command.endswith("\\")


def run_command(command: str) -> str:
    """Run a command line of idivm and return what it prints."""
    words = shlex.split(command, comments=True)
    assert words[0] in ("idivm", "./run"), f"not run by a test: {command}"
    return printed(words[2:] if words[0] == "./run" else words[1:])


def printed(arguments: list[str]) -> str:
    """Return what a command of idivm prints, errors included."""
    output = io.StringIO()
    with (
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(output),
        contextlib.suppress(SystemExit),
    ):
        command_line.main(arguments)
    return output.getvalue()


def run_python(text: str, names: dict[str, Any]) -> str:
    """Run a block of Python and return what it prints."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(text, "documentation", "exec", dont_inherit=True), names)
    return output.getvalue()


_VARYING = [
    (re.compile(r"\b\d[\d.,]* ?(µs|ms|s|kB|MB|bytes)\b"), r"N \1"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.\d]*([+-]\d\d(:\d\d)?)?"), "TIME"),
    (re.compile(r"\d+:\d\d:\d\d\.\d+"), "N s"),
    (re.compile(r"─+"), "─"),
    (re.compile(r"[ \t]+"), " "),
]


def settled(text: str) -> str:
    """Return a text without times, sizes and the widths of columns."""
    for pattern, replacement in _VARYING:
        text = pattern.sub(replacement, text)
    return "\n".join(line.strip() for line in text.strip().splitlines())


def matches(expected: str, actual: str) -> bool:
    """Return whether a page shows what a block printed; `...` stands for anything.

    >>> matches("a\\n...\\nd  12 ms", "a\\nb\\nc\\nd 3.5 ms\\n"), matches("a", "b")
    (True, False)
    """
    pattern = ".*".join(map(re.escape, settled(expected).split("...")))
    return re.fullmatch(pattern, settled(actual), re.DOTALL) is not None
