"""Write docs/sql-support.md, which lists how each SQL construct is maintained, from examples that it creates.

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
from orchestrator.deltascript.plan import Assign, MaintenancePlan, Strategy
from orchestrator.engine.recompute_parts import AFTER, PARTS, SPAN
from orchestrator.engine.representatives import LOST
from orchestrator.resources import resource_folder
from orchestrator.server import installations

BELOW = "order_counts"
"""The maintained view that an example reads."""

_PARTNERS = {"Semijoin", "Antisemijoin", "LeftJoin", "FullJoin"}

_INTRODUCTION = """\
# Supported SQL

Any query that PostgreSQL accepts in a view can be maintained, except queries that call volatile functions or
read temporary tables. This table says how. Each line is an example that was created, with the strategy that
idivm chose. `idivm explain VIEW --why` says the same about your own view.

`python -m orchestrator.support` writes this file, and a test fails when it is stale. The tables are those of
`sql/support/schema.sql`.

*By* names the strategy and the operators whose rules maintain the view: selection σ, projection π, join ⋈,
cross product ×, left join ⟕, full join ⟗, semijoin ⋉, antisemijoin ▷, lateral join and subquery ⋈→, union ∪,
grouping γ, duplicate elimination δ, `DISTINCT ON` δ1, window ω, `LIMIT` λ, sorting τ, numbering of equal rows
ν, recursion μ, shared common table expression cte. *A refresh costs* says which rows a refresh reads and
writes. If it says "the whole view", the refresh runs the query and writes only the rows that differ.
"""


@dataclass(frozen=True)
class Example:
    """An SQL construct and a query that uses it."""

    section: str
    construct: str
    query: str

    @property
    def view(self) -> str:
        """Return the name of its view."""
        return re.sub(r"\W+", "_", self.construct.lower()).strip("_")

    @property
    def since(self) -> int:
        """Return the first PostgreSQL version with the construct, if its name contains a version.

        >>> Example("Expressions", "JSON_ARRAY (PostgreSQL 16)", "SELECT 1").since
        16
        """
        match = re.search(r"\(PostgreSQL (\d+)\)", self.construct)
        return int(match[1]) if match else 0


def text(file: str) -> str:
    """Return the SQL in `sql/support/<file>.sql`."""
    return (resource_folder("sql") / "support" / f"{file}.sql").read_text()


def examples() -> Iterator[Example]:
    """Yield all examples in the order of the table."""
    parts = re.split(r"^-- (# )?(.+)\n", text("constructs"), flags=re.MULTILINE)
    section = ""
    # The text before the first section is a comment on the file.
    for heading, title, query in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        if heading:
            section = title
        elif section:
            yield Example(section, title, " ".join(query.split()))


def changes() -> list[str]:
    """Return scripts of changes. The test compares the examples after each of them."""
    return re.split(r"^-- next\n", text("changes"), flags=re.MULTILINE)


def create(orchestrator: Orchestrator) -> None:
    """Create the tables, and a maintained view for each example that the server supports."""
    connection = orchestrator.connection
    connection.execute(text("schema").encode())
    orchestrator.create_view(BELOW, text("below"))
    for example in examples():
        if example.since <= connection.info.server_version // 10000:
            orchestrator.create_view(example.view, example.query)


def document(orchestrator: Orchestrator) -> str:
    """Return the document for the created views."""
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


def _by(plan: MaintenancePlan) -> str:
    if plan.strategy == Strategy.RECOMPUTE:
        return Strategy.RECOMPUTE
    symbols = dict.fromkeys(node["symbol"] for node in _operators(plan) if node["inputs"])
    return " ".join([f"{plan.strategy}:", *reversed(symbols)]) if symbols else plan.strategy


def cost(plan: MaintenancePlan) -> str:
    """Return in words what a refresh costs, from a view's plan."""
    if plan.strategy == Strategy.RECOMPUTE:
        because = [reason.because for reason in plan.evidence.reasons if not reason.taken]
        return f"the whole view: {because[0]}" if because else "the whole view"
    parts = ["the changed rows"]
    operators = {node["operator"] for node in _operators(plan)}
    if operators & _PARTNERS:
        parts.append("the rows that match them")
    assigned = [step.variable for step in plan.program.script if isinstance(step, Assign)]
    if "Limit" in operators:
        parts.append("the stored first rows with their reserve")
    elif any(name.startswith(PARTS) for name in assigned):
        parts.append("the affected groups, partitions or rows")
    elif any(name.startswith(SPAN) for name in assigned):
        parts.append("the rows of a partition from the first change on")
    elif any(name.startswith(LOST) for name in assigned):
        parts.append("the groups that lose their minimum or maximum")
    elif any(name.endswith(AFTER) for name in assigned):
        parts.append("all rows of their only group")
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _operators(plan: MaintenancePlan) -> Iterator[dict[str, Any]]:
    pending = [plan.definition.algebra_tree["root"]]
    while pending:
        node = pending.pop(0)
        yield node
        pending += node["inputs"]


def main() -> None:
    """Print the document, using a temporary server."""
    newest = max(installation.version for installation in installations())
    with durable_server(newest) as dsn, connect(dsn) as orchestrator:
        create(orchestrator)
        sys.stdout.write(document(orchestrator))


if __name__ == "__main__":
    main()
