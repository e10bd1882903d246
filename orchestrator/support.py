"""What SQL is maintained how: docs/sql-support.md, made from examples that are really created.

python -m orchestrator.support > docs/sql-support.md
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from orchestrator.api import Orchestrator, connect
from orchestrator.bench.measure import durable_server
from orchestrator.engine.recompute_parts import AFTER, PARTS
from orchestrator.resources import resource_folder
from orchestrator.server import installations

RECOMPUTE = "recompute"
BELOW = "order_counts"
"""The maintained view that one of the examples reads."""

_PARTNERS = {"Semijoin", "Antisemijoin", "LeftJoin", "FullJoin"}

_INTRODUCTION = """\
# SQL that is maintained

Any query that PostgreSQL takes as a view can be maintained, except one that calls volatile
functions or reads temporary tables. This table says how; each line is an example that has been
created, with what the product then said of it. `idivm explain VIEW --why` says the same of a view of
your own.

The file is made by `python -m orchestrator.support`, and a test fails when it is stale. The tables are
those of `sql/support/schema.sql`.

*By* names the strategy and the operators whose rules are at work: selection σ, projection π, join ⋈,
cross product ×, left join ⟕, full join ⟗, semijoin ⋉, antisemijoin ▷, lateral join and subquery ⋈→,
union ∪, grouping γ, duplicate elimination δ, the first of equal rows δ1, window ω, first rows of an
order λ, sorting τ, numbering of equal rows ν. *A refresh costs* what is said, and not what the tables
hold, but where it says that the whole view is recomputed; then only the rows that differ are written.
"""


@dataclass(frozen=True)
class Example:
    """A construct with a query that has it."""

    section: str
    construct: str
    query: str

    @property
    def view(self) -> str:
        """The name that its view gets."""
        return re.sub(r"\W+", "_", self.construct.lower()).strip("_")

    @property
    def since(self) -> int:
        """The version of PostgreSQL that brought the construct, if its name says one.

        >>> Example("Expressions", "JSON_ARRAY (PostgreSQL 16)", "SELECT 1").since
        16
        """
        found = re.search(r"\(PostgreSQL (\d+)\)", self.construct)
        return int(found[1]) if found else 0


def text(file: str) -> str:
    """The SQL in `sql/support/<file>.sql`."""
    return (resource_folder("sql") / "support" / f"{file}.sql").read_text()


def examples() -> Iterator[Example]:
    """Every example, in the order of the table."""
    parts = re.split(r"^-- (# )?(.+)\n", text("constructs"), flags=re.MULTILINE)
    section = ""
    # What stands before the first section is a comment of its own.
    for heading, title, query in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        if heading:
            section = title
        elif section:
            yield Example(section, title, " ".join(query.split()))


def changes() -> list[str]:
    """Scripts of changes after each of which the examples are compared."""
    return re.split(r"^-- next\n", text("changes"), flags=re.MULTILINE)


def create(orchestrator: Orchestrator) -> None:
    """Creates the tables and a maintained view of every example that the server's version takes."""
    connection = orchestrator.connection
    connection.execute(text("schema").encode())
    orchestrator.create_view(BELOW, text("below"))
    for example in examples():
        if example.since <= connection.info.server_version // 10000:
            orchestrator.create_view(example.view, example.query)


def document(orchestrator: Orchestrator) -> str:
    """The table, from views that have been created."""
    lines = [_INTRODUCTION]
    section = ""
    for example in examples():
        if example.section != section:
            section = example.section
            lines += [f"\n## {section}\n", "| construct | by | a refresh costs | example |"]
            lines.append("|---|---|---|---|")
        plan = orchestrator.view(example.view).plan
        cells = (example.construct, _by(plan), cost(plan), f"`{example.query}`")
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines) + "\n"


def _by(plan: dict[str, Any]) -> str:
    if plan["strategy"] == RECOMPUTE:
        return RECOMPUTE
    symbols = dict.fromkeys(one["symbol"] for one in _operators(plan) if one["inputs"])
    return " ".join([f"{plan['strategy']}:", *reversed(symbols)]) if symbols else plan["strategy"]


def cost(plan: dict[str, Any]) -> str:
    """What a refresh costs, in words, from a view's plan.

    >>> cost({"strategy": "recompute", "reasons": [
    ...     {"strategy": "recompute", "taken": True, "because": "it applies to every query"},
    ...     {"strategy": "id", "taken": False, "because": "a table has no key: t"}]})
    'the whole view: a table has no key: t'
    """
    if plan["strategy"] == RECOMPUTE:
        because = [one["because"] for one in plan["reasons"] if not one["taken"]]
        return f"the whole view: {because[0]}" if because else "the whole view"
    parts = ["the changed rows"]
    operators = {one["operator"] for one in _operators(plan)}
    if operators & _PARTNERS:
        parts.append("the rows that they match")
    assigned = [one["variable"] for one in plan["script"] if one["step"] == "Assign"]
    if "Limit" in operators:
        parts.append("the first rows, which are kept with a reserve")
    elif any(name.startswith(PARTS) for name in assigned):
        parts.append("the groups, partitions or rows that they affect")
    elif any(name.endswith(AFTER) for name in assigned):
        parts.append("all rows of the one group that they are in")
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _operators(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    pending = [plan["algebra_tree"]["root"]]
    while pending:
        one = pending.pop(0)
        yield one
        pending += one["inputs"]


def main() -> None:
    """Prints the table, from a server that is started for it."""
    newest = max(one.version for one in installations())
    with durable_server(newest) as dsn, connect(dsn) as orchestrator:
        create(orchestrator)
        sys.stdout.write(document(orchestrator))


if __name__ == "__main__":
    main()
