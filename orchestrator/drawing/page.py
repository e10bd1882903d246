"""A plan as a page of its own: every picture, with the legend."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape

from orchestrator.drawing.graph import Graph
from orchestrator.drawing.svg import STYLE, svg

_PAGE_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; }
figure { margin: 0; overflow-x: auto; }
pre { overflow-x: auto; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; }
dt { font-family: ui-monospace, monospace; }
dd { margin: 0; }
"""


def html_page(title: str, graphs: Iterable[Graph], texts: Mapping[str, str]) -> str:
    """Return a page with graphs and further texts. It loads nothing from elsewhere."""
    parts = [
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
        f"<title>{escape(title)}</title><style>{_PAGE_STYLE}{STYLE}</style></head><body>",
        f"<h1>{escape(title)}</h1>",
    ]
    for graph in graphs:
        parts.append(f"<h2>{escape(graph.title.capitalize())}</h2>")
        parts.append(f"<figure>{svg(graph, standalone=False)}</figure>{legend(graph)}")
    for heading, content in texts.items():
        parts.append(f"<h2>{escape(heading)}</h2><pre>{escape(content)}</pre>")
    return "\n".join([*parts, "</body></html>"])


def legend(graph: Graph) -> str:
    """Return the legend of a graph as HTML."""
    rows = (f"<dt>{escape(s)}</dt><dd>{escape(meaning)}</dd>" for s, meaning in graph.legend())
    return f"<details><summary>Legend</summary><dl>{''.join(rows)}</dl></details>"
