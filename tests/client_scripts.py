"""The scripts of docs/how-to/clients.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "how-to" / "clients.md"

ORDERS = """
    CREATE TABLE orders (id int PRIMARY KEY, customer text, amount numeric);
    INSERT INTO orders VALUES (1, 'ann', 10), (2, 'bob', 20), (3, 'ann', 5);
"""


def scripts() -> dict[str, str]:
    """Return the script of each client."""
    blocks = re.findall(r"^## (\S+)\n.*?^```\w+\n(.*?)^```", DOCUMENT.read_text(), re.M | re.S)
    return dict(blocks)


def run(script: str, names: dict[str, Any]) -> None:
    """Run a script in Python with the names that it takes for granted."""
    exec(compile(script, str(DOCUMENT), "exec"), names)
