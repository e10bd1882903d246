"""Graphs as SVG, for light and dark pages."""

from __future__ import annotations

from html import escape
from itertools import pairwise

from orchestrator.drawing.graph import Graph, Node
from orchestrator.drawing.layout import LINE, Box, Point, layout

_MARGIN = 12.0
_ROUND = {
    "operator": 4,
    "diff": 16,
    "apply": 2,
    "changes": 16,
    "table": 0,
    "state": 0,
    "content": 0,
}

STYLE = """
.graph { --ink: #1c2430; --soft: #5b6675; --paper: #ffffff; --line: #8793a3; --table: #e8f0fb; --view: #e7f6ec;
  --operator: #f6f7f9; --changes: #fdf3dc; --diff: #fdf8ec; --apply: #f3eafc; --state: #eaf3f3; --heavy: #fde3dc;
  --bad: #c62828; --late: #b26a00; }
@media (prefers-color-scheme: dark) { .graph { --ink: #e6eaf0; --soft: #a4afbd; --paper: #14181e; --line: #6f7b8b;
  --table: #1c2c44; --view: #173424; --operator: #232931; --changes: #3b2f14; --diff: #2f2a1b; --apply: #30243f;
  --state: #1c3333; --heavy: #4a2219; --bad: #ff8a80; --late: #ffc46b; } }
.graph text { font: 12px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: var(--ink); white-space: pre; }
.graph text.line { fill: var(--soft); }
.graph .box { fill: var(--operator); stroke: var(--line); stroke-width: 1; }
.graph .edge { fill: none; stroke: var(--line); stroke-width: 1.2; }
.graph .head { fill: var(--line); }
.graph .table .box { fill: var(--table); }
.graph .view .box, .graph .query .box, .graph .content .box { fill: var(--view); }
.graph .changes .box { fill: var(--changes); }
.graph .diff .box { fill: var(--diff); }
.graph .apply .box { fill: var(--apply); }
.graph .state .box { fill: var(--state); }
.graph .heavy .box { fill: var(--heavy); }
.graph .failed .box, .graph .invalid .box { stroke: var(--bad); stroke-width: 2.5; }
.graph .behind .box { stroke: var(--late); stroke-width: 2; stroke-dasharray: 5 3; }
.graph a:focus .box, .graph a:hover .box { stroke: var(--ink); stroke-width: 2.5; }
"""


def svg(graph: Graph, *, standalone: bool = True) -> str:
    """Return the picture of a graph. Without `standalone`, the page must have the style sheet."""
    places = layout(graph)
    width, height = places.width + 2 * _MARGIN, places.height + 2 * _MARGIN
    name = "".join(character for character in graph.title if character.isalnum())
    attributes = (
        f'class="graph" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}"'
        f' role="{"group" if any(node.link for node in graph.nodes) else "img"}" aria-label="{escape(graph.title)}"'
    )
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" {attributes}>']
    if standalone:
        lines.append(f"<style>{STYLE}.graph {{ background: var(--paper); }}</style>")
    lines.append(f"<title>{escape(graph.title)}</title>")
    lines.append(
        f'<defs><marker id="head{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"'
        ' orient="auto-start-reverse"><path class="head" d="M0 0L8 4L0 8z"/></marker></defs>'
    )
    lines.append(f'<g transform="translate({_MARGIN:.0f} {_MARGIN:.0f})">')
    horizontal = graph.direction == "right"
    lines += [
        f'<path class="edge" d="{_curve(path, horizontal)}" marker-end="url(#head{name})"/>'
        for path in places.paths.values()
    ]
    for node in graph.nodes:
        lines += _box(node, places.boxes[node.id])
    return "\n".join([*lines, "</g>", "</svg>"])


def _curve(path: list[Point], horizontal: bool) -> str:
    parts = [f"M{path[0][0]:.1f} {path[0][1]:.1f}"]
    for (x, y), (to_x, to_y) in pairwise(path):
        if horizontal:
            middle = (x + to_x) / 2
            parts.append(f"C{middle:.1f} {y:.1f} {middle:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}")
        else:
            middle = (y + to_y) / 2
            parts.append(f"C{x:.1f} {middle:.1f} {to_x:.1f} {middle:.1f} {to_x:.1f} {to_y:.1f}")
    return "".join(parts)


def _box(node: Node, box: Box) -> list[str]:
    classes = " ".join(filter(None, ["node", node.kind, node.mark.replace(" ", "-")]))
    lines = [f'<g class="{escape(classes)}">']
    if node.link is not None:
        lines.append(f'<a href="{escape(node.link)}">')
    lines.append(
        f'<rect class="box" x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}"'
        f' rx="{_ROUND.get(node.kind, 6)}"/>'
    )
    for number, text in enumerate((node.title, *node.lines)):
        style = ' class="line"' if number else ' class="title"'
        y = box.y + (number + 1) * LINE
        lines.append(
            f'<text{style} x="{box.x + box.width / 2:.1f}" y="{y:.1f}" text-anchor="middle">{escape(text)}</text>'
        )
    if node.link is not None:
        lines.append("</a>")
    return [*lines, "</g>"]
