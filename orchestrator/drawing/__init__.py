"""Pictures of plans: one graph model, and a writer for each format."""

from orchestrator.drawing.graph import Edge, Graph, Node
from orchestrator.drawing.page import html_page
from orchestrator.drawing.plans import graphs_of, plan_graph, script_graph, states_graph
from orchestrator.drawing.svg import svg
from orchestrator.drawing.text import dot, mermaid, text

__all__ = [
    "Edge",
    "Graph",
    "Node",
    "dot",
    "graphs_of",
    "html_page",
    "mermaid",
    "plan_graph",
    "script_graph",
    "states_graph",
    "svg",
    "text",
]
