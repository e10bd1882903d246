"""Write the generated files of the documentation; `files` is compared with them by a test."""

from __future__ import annotations

from pathlib import Path

from orchestrator.documentation import command_reference, python_reference, sql_reference
from orchestrator.documentation.drawings import all_drawings

DOCS = Path(__file__).resolve().parents[2] / "docs"


def files() -> dict[str, str]:
    """Return each generated file under its path in docs/."""
    return {
        **{f"drawings/{name}": drawing for name, drawing in all_drawings().items()},
        "reference/commands.md": command_reference.page(),
        "reference/api.md": python_reference.page(),
        "reference/sql.md": sql_reference.functions_page(rights()),
        "reference/catalog.md": sql_reference.catalog_page(),
    }


def rights() -> dict[str, str]:
    """Return who may call each function, as docs/rights.md says."""
    lines = (DOCS / "rights.md").read_text().splitlines()
    rows = lines[lines.index("| function | who may call it |") + 2 :]
    return {row.split("`")[1]: row.split("|")[2].strip() for row in rows if row.startswith("| `")}


if __name__ == "__main__":
    for path, text in files().items():
        (DOCS / path).write_text(text)
