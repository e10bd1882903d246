"""Print the pictures of `idivm explain --format`."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from orchestrator.cli.output import print_json
from orchestrator.drawing import Graph, dot, html_page, mermaid, svg, text
from orchestrator.errors import UsageError
from orchestrator.runtime.explain import Explanation

_WRITERS: dict[str, Callable[[Graph], str]] = {
    "text": text,
    "mermaid": mermaid,
    "dot": dot,
    "svg": svg,
}

FORMATS = ("text", "json", "mermaid", "dot", "svg", "html")


def print_picture(explanation: Explanation, options: argparse.Namespace) -> None:
    """Print the chosen graphs of a plan in the chosen format."""
    chosen = [name for name in explanation.graphs if getattr(options, name)]
    if options.format == "html":
        texts = {"Why": explanation.why, "Script": explanation.script, "SQL": explanation.sql}
        print(html_page(explanation.view, explanation.graphs.values(), texts))
    elif options.format == "json":
        names = chosen or list(explanation.graphs)
        print_json({name: explanation.graphs[name].to_json() for name in names})
    elif len(chosen) > 1:
        raise UsageError(f"--format {options.format} draws one of --plan, --tree and --script.")
    else:
        (name,) = chosen or ["plan"]
        print(_WRITERS[options.format](explanation.graphs[name]))
