"""Graphs as text, Mermaid and DOT."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.drawing.graph import Graph, Node


def text(graph: Graph) -> str:
    r"""Return a graph as an indented tree below each result, and its legend.

    >>> from orchestrator.drawing.graph import Edge
    >>> nodes = Node("t", "scan t", "table"), Node("g", "γ n", "operator", ("⟨n⟩",))
    >>> print(text(Graph("plan of v", nodes, (Edge("t", "g"),), "up")))
    plan of v
    └─ γ n  ⟨n⟩
       └─ scan t
    <BLANKLINE>
    γ         grouping: columns; aggregates → names
    ⟨         ⟨columns⟩: the IDs of the rows of a result
    table     a captured table
    operator  an operator of the algebra
    """
    targets = {edge.source for edge in graph.edges}
    results = [node for node in graph.nodes if node.id not in targets]
    lines = [graph.title]
    printed: set[str] = set()
    for number, node in enumerate(results, 1):
        lines += _tree(graph, node, "", number == len(results), printed)
    legend = graph.legend()
    width = max((len(symbol) for symbol, _ in legend), default=0)
    return "\n".join([*lines, "", *(f"{symbol:{width}}  {meaning}" for symbol, meaning in legend)])


def _tree(graph: Graph, node: Node, indent: str, last: bool, printed: set[str]) -> Iterator[str]:
    is_repeated = node.id in printed
    printed.add(node.id)
    inputs = [graph.node(edge.source) for edge in graph.edges if edge.target == node.id]
    more = "(see above)" if is_repeated and inputs else "  ".join(node.lines)
    yield f"{indent}{'└─ ' if last else '├─ '}{node.title}  {more}".rstrip()
    if not is_repeated:
        below = indent + ("   " if last else "│  ")
        for number, each in enumerate(inputs, 1):
            yield from _tree(graph, each, below, number == len(inputs), printed)


_MERMAID = {
    "table": ('[("', '")]'),
    "state": ('[("', '")]'),
    "content": ('[("', '")]'),
    "diff": ('(["', '"])'),
    "changes": ('(["', '"])'),
    "apply": ('[["', '"]]'),
}


def mermaid(graph: Graph) -> str:
    """Return a graph as a flowchart of Mermaid."""
    names = {node.id: f"n{number}" for number, node in enumerate(graph.nodes)}
    direction = {"up": "BT", "down": "TD", "right": "LR"}[graph.direction]
    lines = [f"flowchart {direction}"]
    for node in graph.nodes:
        before, after = _MERMAID.get(node.kind, ('["', '"]'))
        label = "<br/>".join(map(_for_mermaid, (node.title, *node.lines)))
        lines.append(f"    {names[node.id]}{before}{label}{after}")
    lines += [f"    {names[edge.source]} --> {names[edge.target]}" for edge in graph.edges]
    legend = "<br/>".join(
        _for_mermaid(f"{symbol}  {meaning}") for symbol, meaning in graph.legend()
    )
    lines += ["    subgraph legend", f'        legend_text["{legend}"]', "    end"]
    return "\n".join(lines)


def _for_mermaid(line: str) -> str:
    """Write characters that Mermaid or HTML would read as something else by their codes."""
    return "".join(
        f"#{ord(character)};" if character in '"#<>&;`\\{}[]()|*_~' else character
        for character in line
    )


_DOT = {
    "table": "cylinder",
    "state": "cylinder",
    "content": "cylinder",
    "diff": "ellipse",
    "changes": "ellipse",
}


def dot(graph: Graph) -> str:
    """Return a graph for Graphviz."""
    names = {node.id: f"n{number}" for number, node in enumerate(graph.nodes)}
    direction = {"up": "BT", "down": "TB", "right": "LR"}[graph.direction]
    lines = [
        f"digraph {_for_dot([graph.title])} {{",
        f'    rankdir={direction}; node [shape=box, fontname="monospace"];',
    ]
    for node in graph.nodes:
        label = _for_dot([node.title, *node.lines])
        lines.append(f"    {names[node.id]} [label={label}, shape={_DOT.get(node.kind, 'box')}];")
    lines += [f"    {names[edge.source]} -> {names[edge.target]};" for edge in graph.edges]
    legend = _for_dot([f"{symbol}  {meaning}" for symbol, meaning in graph.legend()], end="\\l")
    return "\n".join([*lines, f"    legend [shape=plaintext, label={legend}];", "}"])


def _for_dot(lines: list[str], end: str = "\\n") -> str:
    escaped = [line.replace("\\", "\\\\").replace('"', '\\"') for line in lines]
    return '"' + "".join(f"{line}{end}" for line in escaped).removesuffix("\\n") + '"'
