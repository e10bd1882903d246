"""The documentation lists the commands and options that the program has, and links to files that exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import idivm
from orchestrator.documentation.__main__ import files
from orchestrator.documentation.command_reference import choices, commands
from orchestrator.documentation.python_reference import public_members
from orchestrator.documentation.sql_reference import SECTIONS, routines, tables, views
from orchestrator.frontend.options import _ALLOWED, ParsedOptions

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))]
DOCS = ROOT / "docs"
COMMON_OPTIONS = {"-h", "--help", "--dsn", "--json"}


def table(text: str, header: str) -> list[list[str]]:
    """Return the cells of the Markdown table with this header."""
    rows = text.partition(header)[2].lstrip("\n").partition("\n\n")[0].splitlines()[1:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]


def test_the_generated_pages_are_fresh() -> None:
    stale = [name for name, text in files().items() if (DOCS / name).read_text() != text]
    assert stale == [], "run ./run docs"


def test_the_reference_lists_every_command_and_option() -> None:
    page = (DOCS / "reference" / "commands.md").read_text()
    missing = []
    for name, (parser, text) in commands().items():
        section = page.partition(f"\n## idivm {name}\n")[2].partition("\n## ")[0]
        missing += [name] * (not section or text not in page)
        options = [word for action in parser._actions for word in action.option_strings]
        missing += [o for o in options if o not in section and o not in COMMON_OPTIONS]
    assert missing == []


def test_commands_and_options_that_pages_mention_exist() -> None:
    parsers = {name: parser for name, (parser, _) in commands().items()}
    parsers |= {f"bench {name}": parser for name, (parser, _) in choices(parsers["bench"]).items()}
    mention = re.compile(r"(?:`|\$ (?:\./run )?)idivm ((?:bench )?[a-z]+)((?:[ \n][^`\s]+)*)")
    missing = []
    for name, arguments in mention.findall("\n".join(path.read_text() for path in DOCUMENTS)):
        command = name if name in parsers else name.split()[0]
        defined = (
            {o for a in parsers[command]._actions for o in a.option_strings}
            if command in parsers
            else ()
        )
        options = re.findall(r"(?<!\S)--[a-z-]+", arguments.partition("\n$ ")[0])
        missing += [f"{command} {option}" for option in options if option not in defined]
        missing += [command] * (command not in parsers)
    assert missing == []


def test_the_citation_names_the_version() -> None:
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == idivm.__version__


def test_the_reference_lists_every_function_and_view_for_users() -> None:
    page = (DOCS / "reference" / "sql.md").read_text()
    pages = [path for path in DOCUMENTS if "internals" not in path.parts]
    documents = [path.read_text() for path in pages if path.name != "catalog.md"]
    mentioned = set(re.findall(r"idivm\.(\w+)\(", "\n".join(documents)))
    routine_names = {routine.name for routine in routines()}
    listed = {name for names in SECTIONS.values() for name in names}
    assert sorted(mentioned & routine_names - listed) == []
    assert [name for name in sorted(listed) if f"### {name}\n" not in page] == []
    assert [name for name in views() if f"| `idivm.{name}` |" not in page] == []
    catalog = (DOCS / "reference" / "catalog.md").read_text()
    assert [name for name in tables() if f"## idivm.{name}\n" not in catalog] == []


def test_the_reference_lists_the_public_names_of_python() -> None:
    page = (DOCS / "reference" / "api.md").read_text()
    errors = (DOCS / "reference" / "errors.md").read_text()
    names = [name for name in idivm.__all__ if not name.startswith("__")]
    methods = [
        f"{cls.__name__}.{name}"
        for cls in (idivm.Orchestrator, idivm.AsyncOrchestrator)
        for name in public_members(cls)
    ]
    missing = [n for n in names if f"## {n}\n" not in page and f"`{n}`" not in errors]
    assert missing + [name for name in methods if f"### {name}\n" not in page] == []


def test_the_site_builds_without_warnings_and_without_a_network(tmp_path: Path) -> None:
    # With --quiet, mkdocs does not count warnings.
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--site-dir",
        tmp_path,
    ]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pages = {path.name: path.read_text() for path in tmp_path.rglob("*.html")}
    fetched = r"<(?:script|img|iframe)[^>]* src=\"?(?:https?:)?//|<link[^>]*stylesheet[^>]*href=\"?(?:https?:)?//"
    assert [name for name, text in pages.items() if re.search(fetched, text)] == []
    assert "index.html" in pages


def test_the_table_of_view_options_lists_all_options_with_values_and_defaults() -> None:
    text = (ROOT / "docs" / "reference" / "options.md").read_text()
    rows = table(text, "| option | values | default | meaning |")
    assert [row[0].strip("`") for row in rows] == list(_ALLOWED)
    defaults = ParsedOptions()
    for name, values, default, _ in rows:
        choices = _ALLOWED[name.strip("`")]
        assert not choices or values == ", ".join(f"`{value}`" for value in choices)
        expected = getattr(defaults, name.strip("`"))
        assert expected is None or default == f"`{expected}`"


def test_every_exception_is_documented() -> None:
    text = (ROOT / "docs" / "reference" / "errors.md").read_text()
    documented = [row[0].strip("`") for row in table(text, "| exception | raised if |")]
    assert sorted(documented) == [name for name in sorted(idivm.__all__) if name.endswith("Error")]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_and_paths_lead_to_files(document: Path) -> None:
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.DOTALL | re.MULTILINE)
    links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text)
    paths = re.findall(
        r"`((?:orchestrator|tests|sql|migrations|pg_extension|docs|docker)/[\w./-]*)`", text
    )
    missing = [link for link in links if not (document.parent / link).exists()]
    assert (
        missing + [path for path in paths if "NAME" not in path and not (ROOT / path).exists()]
        == []
    )
