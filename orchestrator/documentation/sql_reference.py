"""The reference of SQL functions, views and catalog tables, read from the files that declare them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[2]

SECTIONS = {
    "Views": (
        "create_view",
        "create_view_now",
        "replace_view",
        "alter_view",
        "drop_view",
        "pause_view",
        "resume_view",
        "release",
        "explain",
    ),
    "Refreshes": ("refresh", "refresh_all", "allow_refreshes", "as_of", "clock"),
    "Schedules and gates": ("schedule", "unschedule", "gate"),
    "Streams whose rows stay in files": ("create_stream", "drop_stream"),
    "Reading rows one after the other": (
        "enumerate",
        "first_rows",
    ),
    "Change feeds": ("changes", "advance", "forget_consumer"),
    "Indexes of a view": ("create_index", "drop_index", "rename_index"),
    "Covariances and models": (
        "covar",
        "categorical",
        "linreg",
        "predict",
        "train",
        "covariance_matrix",
        "correlation",
        "mutual_information",
        "chow_liu",
        "one_hot",
        "one_hot_columns",
    ),
    "Rings and matrices": ("register_ring", "drop_ring", "apply_outer"),
    "Maintenance": ("collect", "drop_orphans"),
}
"""The functions for users. `docs/rights.md` lists all functions."""

EVERYBODY = "everybody, with their own rights"

_ROUTINE = re.compile(
    r"^CREATE OR REPLACE (FUNCTION|PROCEDURE|AGGREGATE) idivm\.(\w+)\s*\(", re.MULTILINE
)
_COMMENT = re.compile(
    r"^COMMENT ON (\w+) idivm\.([\w.]+)(\([^;]*?\))?\s+IS\s+'((?:[^']|'')*)';", re.MULTILINE
)
_TABLE = re.compile(
    r"^CREATE (?:UNLOGGED )?TABLE idivm\.(\w+) \((.*?)^\)", re.MULTILINE | re.DOTALL
)
_COLUMN = re.compile(r"^ALTER TABLE idivm\.(\w+) ADD COLUMN (\w+) ([\w ]+)", re.MULTILINE)
_VIEW = re.compile(r"^CREATE OR REPLACE VIEW idivm\.(\w+)", re.MULTILINE)


@dataclass(frozen=True)
class Routine:
    """A function, procedure or aggregate."""

    kind: str
    name: str
    arguments: tuple[str, ...]
    result: str

    @property
    def signature(self) -> str:
        """Return the call as users write it."""
        call = "CALL " if self.kind == "PROCEDURE" else ""
        result = f" → {self.result}" if self.result else ""
        arguments = ", ".join(self.arguments)
        if len(arguments) > 70:
            arguments = "\n    " + ",\n    ".join(self.arguments) + "\n"
        return f"{call}idivm.{self.name}({arguments}){result}"


def _texts() -> Iterator[str]:
    for folder in ("migrations", "sql/functions"):
        for path in sorted((SOURCES / folder).glob("*.sql")):
            yield path.read_text()


def routines() -> list[Routine]:
    """Return all routines in the order of their files."""
    result = []
    for text in _texts():
        for match in _ROUTINE.finditer(text):
            arguments, end = _balanced(text, match.end())
            result.append(
                Routine(match[1], match[2], _split(arguments), _result(text[end:], arguments))
            )
    return result


def _balanced(text: str, start: int) -> tuple[str, int]:
    """Return the text up to the parenthesis that closes, and the position after it."""
    depth, position = 1, start
    while depth:
        depth += {"(": 1, ")": -1}.get(text[position], 0)
        position += 1
    return " ".join(text[start : position - 1].split()), position


def _split(arguments: str) -> tuple[str, ...]:
    """Split arguments at the commas outside of parentheses and quotes, without those that return values.

    >>> _split("a integer, b text DEFAULT f('x, y'), OUT c text")
    ('a integer', "b text DEFAULT f('x, y')")
    """
    parts = re.findall(r"(?:[^,'(]|'[^']*'|\([^)]*\))+", arguments)
    return tuple(
        part.strip().replace("pg_catalog.current_setting('search_path')", "the search_path")
        for part in parts
        if not part.strip().startswith("OUT ")
    )


def _result(after: str, arguments: str) -> str:
    if outputs := re.findall(r"OUT (\w+ [\w ]+(?:\[\])?)", arguments):
        return f"({', '.join(outputs)})"
    match = re.match(
        r"\s*RETURNS\s+(TABLE\s*\([^)]*\)|[\w. ]+?(?:\[\])?)\s*\n?\s*(?:LANGUAGE|\()", after
    )
    result = " ".join(match[1].split()) if match else ""
    return "" if result == "void" else result


def comments() -> dict[tuple[str, str], str]:
    """Return the comments of the catalog by kind and name, as FUNCTION refresh or COLUMN views.name."""
    texts: dict[tuple[str, str], str] = {}
    for text in _texts():
        for kind, name, _, comment in _COMMENT.findall(text):
            texts.setdefault((kind, name), " ".join(comment.replace("''", "'").split()))
    return texts


def tables() -> dict[str, list[tuple[str, str]]]:
    """Return the tables of the catalog, each with names and types of its columns."""
    result = {}
    for text in _texts():
        for name, body in _TABLE.findall(text):
            columns = re.findall(
                r"^    (\w+) +((?:double precision|[a-z]\w*(?:\.\w+)?)(?:\[\])?)",
                body,
                re.MULTILINE,
            )
            result[name] = [pair for pair in columns if pair[1] != "KEY"]
        for name, column, kind in _COLUMN.findall(text):
            result[name].append((column, kind))
    return result


def views() -> list[str]:
    """Return the views of the schema idivm."""
    return [name for text in _texts() for name in _VIEW.findall(text)]


def functions_page(rights: dict[str, str]) -> str:
    """Return the page of functions and views for users."""
    all_routines, texts = routines(), comments()
    lines = [
        "# SQL functions and views",
        "",
        "Generated from `sql/functions/` by `./run docs`. [Views in SQL](sql-entry.md) explains how to use the",
        "functions, and the [catalog](catalog.md) has the tables. Everybody may call a function, with their own",
        "rights, unless its description says otherwise; [rights](../rights.md) also lists internal functions.",
        "",
    ]
    for section, names in SECTIONS.items():
        lines += [f"## {section}", ""]
        for name in names:
            forms = [routine for routine in all_routines if routine.name == name]
            comment = next(
                texts[kind, name]
                for kind in ("FUNCTION", "PROCEDURE", "AGGREGATE")
                if (kind, name) in texts
            )
            lines += [f"### {name}", "", "```text", *(form.signature for form in forms), "```", ""]
            callers = "" if rights[name] == EVERYBODY else f" May be called by {rights[name]}."
            lines += [f"{_sentence(comment)}{callers}", ""]
    lines += ["## Views of the schema", "", "| view | content |", "|---|---|"]
    lines += [f"| `idivm.{name}` | {texts['VIEW', name]} |" for name in views()]
    lines += [
        "",
        "[Status and history](sql-entry.md#status-and-history) lists the columns of `idivm.status`",
    ]
    lines += ["and `idivm.history`.", ""]
    return "\n".join(lines)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:].rstrip('.')}."


def catalog_page() -> str:
    """Return the page of catalog tables."""
    texts = comments()
    lines = [
        "# Catalog",
        "",
        "Generated from `migrations/` by `./run docs`. These tables belong to idivm: read them, do not write them.",
        "For monitoring use [`idivm.status` and `idivm.history`](sql-entry.md#status-and-history), whose columns are",
        "stable.",
        "",
    ]
    for name, columns in sorted(tables().items()):
        lines += [f"## idivm.{name}", ""]
        if comment := texts.get(("TABLE", name)):
            lines += [_sentence(comment), ""]
        lines += ["| column | type | meaning |", "|---|---|---|"]
        lines += [
            f"| `{column}` | `{kind}` | {texts.get(('COLUMN', f'{name}.{column}'), '')} |"
            for column, kind in columns
        ]
        lines.append("")
    return "\n".join(lines)
