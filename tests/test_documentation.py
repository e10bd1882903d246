"""The documentation lists the commands and options that the program has, and links to files that exist."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import idivm
from orchestrator.cli.main import build_parser
from orchestrator.frontend.options import _ALLOWED, ViewOptions

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
ABBREVIATED = {"load": "docs/spark.md", "bench": "docs/internals/bench.md"}
"""Commands with too many options for the README, and the pages that list them."""


def subcommands(parser: argparse.ArgumentParser) -> dict[str, tuple[argparse.ArgumentParser, str]]:
    """Return the parser and the help text of each subcommand."""
    choices = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    texts = {action.dest: action.help or "" for action in choices._choices_actions}
    return {name: (sub, texts[name]) for name, sub in choices.choices.items()}


def arguments(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the arguments of a command as the README writes them, without the common ones."""
    positional = []
    for action in parser._actions:
        value = action.metavar or ""
        if not action.option_strings:
            repeated = "..." if action.nargs in ("*", "+") else ""
            required = action.nargs in (None, "+") and action.required
            positional.append(f"{value}{repeated}" if required else f"[{value}{repeated}]")
        elif action.dest not in ("help", "dsn", "json"):
            value = value or ("" if action.nargs == 0 else action.dest.upper())
            yield f"[{action.option_strings[0]}{' ' if value else ''}{value}]"
    yield from positional


def table(text: str, header: str) -> list[list[str]]:
    """Return the cells of the Markdown table with this header."""
    rows = text.partition(header)[2].lstrip("\n").partition("\n\n")[0].splitlines()[1:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]


def test_the_readme_lists_the_commands_with_their_help() -> None:
    expected = []
    for name, (parser, text) in subcommands(build_parser()).items():
        words = list(arguments(parser))
        if name in ABBREVIATED:
            words = [word for word in words if not word.startswith("[-")] + ["[OPTION...]"]
        expected.append([f"`{' '.join(['idivm', name, *words])}`", text])
    expected[-1][0] = "`idivm bench NAME [OPTION...]`"
    readme = (ROOT / "README.md").read_text()
    assert table(readme, "| command | what it does |") == expected


def test_the_options_of_a_load_and_the_benchmarks_are_documented() -> None:
    commands = subcommands(build_parser())
    load = (ROOT / ABBREVIATED["load"]).read_text()
    bench = (ROOT / ABBREVIATED["bench"]).read_text()
    options = [word.strip("[]").split()[0] for word in arguments(commands["load"][0])]
    assert [option for option in options if option.startswith("-") and option not in load] == []
    assert [name for name in subcommands(commands["bench"][0]) if f"`{name}`" not in bench] == []


def test_the_table_of_view_options_lists_all_options_with_values_and_defaults() -> None:
    text = (ROOT / "docs" / "options.md").read_text()
    rows = table(text, "| option | values | default | meaning |")
    assert [row[0].strip("`") for row in rows] == list(_ALLOWED)
    defaults = ViewOptions()
    for name, values, default, _ in rows:
        choices = _ALLOWED[name.strip("`")]
        assert not choices or values == ", ".join(f"`{value}`" for value in choices)
        expected = getattr(defaults, name.strip("`"))
        assert expected is None or default == f"`{expected}`"


def test_every_exception_is_documented() -> None:
    text = (ROOT / "docs" / "python.md").read_text()
    documented = [row[0].strip("`") for row in table(text, "| exception | raised if |")]
    assert sorted(documented) == [name for name in sorted(idivm.__all__) if name.endswith("Error")]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_and_paths_lead_to_files(document: Path) -> None:
    text = document.read_text()
    links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text)
    paths = re.findall(
        r"`((?:orchestrator|tests|sql|migrations|pg_extension|docs|docker)/[\w./-]*)`", text
    )
    missing = [link for link in links if not (document.parent / link).exists()]
    assert (
        missing + [path for path in paths if "NAME" not in path and not (ROOT / path).exists()]
        == []
    )
