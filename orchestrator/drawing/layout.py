"""Places the nodes of a graph in layers, with few crossings (Sugiyama's method).

Components of a graph are placed one after another, in rows of about the same width.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from orchestrator.drawing.graph import Edge, Graph, Node

LETTER = 7.3
"""The width of a character."""

LINE = 17.0
PADDING = 10.0
BETWEEN = 22.0
"""The space between neighbors in a layer."""

LAYERS = 44.0
"""The space between layers."""

SWEEPS = 6
WIDTH = 1100.0
"""The width at which another row of components begins."""


@dataclass(frozen=True)
class Box:
    """Where a node is."""

    x: float
    y: float
    width: float
    height: float

    def moved(self, x: float, y: float) -> Box:
        """Return the box at another place."""
        return Box(self.x + x, self.y + y, self.width, self.height)


Point = tuple[float, float]


@dataclass
class Layout:
    """The places of nodes, and the points through which edges pass."""

    boxes: dict[str, Box] = field(default_factory=dict)
    paths: dict[Edge, list[Point]] = field(default_factory=dict)
    width: float = 0.0
    height: float = 0.0


def size(node: Node) -> tuple[float, float]:
    """Return the width and height of a node."""
    longest = max(len(line) for line in (node.title, *node.lines))
    return longest * LETTER + 2 * PADDING, (1 + len(node.lines)) * LINE + PADDING


def layout(graph: Graph) -> Layout:
    """Return the places of all nodes and edges."""
    result = Layout()
    x = y = row = 0.0
    for nodes, edges in _components(graph):
        part = _component(nodes, edges, graph.direction)
        if x and x + part.width > WIDTH:
            x, y, row = 0.0, y + row + LAYERS, 0.0
        result.boxes.update((name, box.moved(x, y)) for name, box in part.boxes.items())
        result.paths.update(
            (edge, [(px + x, py + y) for px, py in path]) for edge, path in part.paths.items()
        )
        result.width = max(result.width, x + part.width)
        x, row = x + part.width + 2 * BETWEEN, max(row, part.height)
        result.height = max(result.height, y + part.height)
    return result


def _components(graph: Graph) -> Iterable[tuple[list[Node], list[Edge]]]:
    beside: dict[str, set[str]] = {node.id: set() for node in graph.nodes}
    for edge in graph.edges:
        beside[edge.source].add(edge.target)
        beside[edge.target].add(edge.source)
    seen: set[str] = set()
    for node in graph.nodes:
        if node.id in seen:
            continue
        reached, pending = {node.id}, [node.id]
        while pending:
            for name in beside[pending.pop()] - reached:
                reached.add(name)
                pending.append(name)
        seen |= reached
        yield (
            [each for each in graph.nodes if each.id in reached],
            [edge for edge in graph.edges if edge.source in reached],
        )


def _component(nodes: Sequence[Node], edges: Sequence[Edge], direction: str) -> Layout:
    """Place connected nodes: downwards first, then turned into the direction."""
    sizes = {node.id: size(node) for node in nodes}
    if direction == "right":
        sizes = {name: (height, width) for name, (width, height) in sizes.items()}
    ranks = _ranks([node.id for node in nodes], edges, from_result=direction == "up")
    last = max(ranks.values())
    links: list[tuple[str, str]] = []
    bends: dict[Edge, list[str]] = {}
    for number, edge in enumerate(edges):
        between = [f"{number} {rank}" for rank in range(ranks[edge.source] + 1, ranks[edge.target])]
        for rank, name in enumerate(between, ranks[edge.source] + 1):
            ranks[name], sizes[name] = rank, (2.0, 2.0)
        bends[edge] = between
        chain = [edge.source, *between, edge.target]
        links += pairwise(chain)
    layers: list[list[str]] = [[] for _ in range(last + 1)]
    for name, rank in ranks.items():
        layers[rank].append(name)
    above: dict[str, list[str]] = {name: [] for name in ranks}
    below: dict[str, list[str]] = {name: [] for name in ranks}
    for source, target in links:
        below[source].append(target)
        above[target].append(source)
    _order(layers, above, below)
    centers = _centers(layers, sizes, above, below)
    return _places(nodes, edges, bends, layers, sizes, centers, direction)


def _ranks(names: Sequence[str], edges: Sequence[Edge], *, from_result: bool) -> dict[str, int]:
    """Number the layers, from the inputs to the results.

    A tree is counted from its result, so that the depth of a node is its layer. Otherwise each node comes right
    behind its last input, and inputs right before their first reader.
    """
    inputs: dict[str, list[str]] = {name: [] for name in names}
    readers: dict[str, list[str]] = {name: [] for name in names}
    for edge in edges:
        inputs[edge.target].append(edge.source)
        readers[edge.source].append(edge.target)
    ordered: list[str] = []
    waiting = {name: len(inputs[name]) for name in names}
    ready = [name for name in names if not waiting[name]]
    while ready:
        name = ready.pop(0)
        ordered.append(name)
        for reader in readers[name]:
            waiting[reader] -= 1
            if not waiting[reader]:
                ready.append(reader)
    ranks: dict[str, int] = {}
    if from_result:
        for name in reversed(ordered):
            ranks[name] = max((ranks[reader] + 1 for reader in readers[name]), default=0)
        last = max(ranks.values())
        return {name: last - ranks[name] for name in names}
    for name in ordered:
        ranks[name] = max((ranks[each] + 1 for each in inputs[name]), default=0)
    for name in names:
        if not inputs[name] and readers[name]:
            ranks[name] = min(ranks[reader] for reader in readers[name]) - 1
    return {name: ranks[name] for name in names}


Neighbors = Mapping[str, Sequence[str]]


def _order(layers: list[list[str]], above: Neighbors, below: Neighbors) -> None:
    """Order each layer by the mean place of the neighbors, down and up again."""
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        beside = above if down else below
        for layer in layers if down else reversed(layers):
            places = {
                name: place / max(1, len(each) - 1)
                for each in layers
                for place, name in enumerate(each)
            }
            means = {
                name: sum(places[each] for each in beside[name]) / len(beside[name])
                if beside[name]
                else places[name]
                for name in layer
            }
            layer.sort(key=means.__getitem__)


def _centers(
    layers: list[list[str]],
    sizes: Mapping[str, tuple[float, float]],
    above: Neighbors,
    below: Neighbors,
) -> dict[str, float]:
    """Return the place of each node within its layer, near its neighbors and apart from others."""
    centers: dict[str, float] = {}
    for layer in layers:
        centers.update(_apart(layer, sizes, [0.0] * len(layer)))
    for sweep in range(2 * SWEEPS):
        beside = above if sweep % 2 == 0 else below
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            wanted = [
                sum(centers[each] for each in beside[name]) / len(beside[name])
                if beside[name]
                else centers[name]
                for name in layer
            ]
            centers.update(_apart(layer, sizes, wanted))
    left = min(centers[name] - sizes[name][0] / 2 for layer in layers for name in layer)
    return {name: center - left for name, center in centers.items()}


def _apart(
    layer: Sequence[str], sizes: Mapping[str, tuple[float, float]], wanted: Sequence[float]
) -> dict[str, float]:
    """Return the places nearest to the wanted ones at which neighbors do not overlap.

    Without the widths before it, each place must be at least the place before it. Places that would be out of
    order share their mean (the pool-adjacent-violators algorithm).
    """
    offsets = [0.0]
    for left, right in pairwise(layer):
        offsets.append(offsets[-1] + (sizes[left][0] + sizes[right][0]) / 2 + BETWEEN)
    pools: list[tuple[float, int]] = []
    for place, offset in zip(wanted, offsets, strict=False):
        total, count = place - offset, 1
        while pools and pools[-1][0] / pools[-1][1] > total / count:
            before, number = pools.pop()
            total, count = total + before, count + number
        pools.append((total, count))
    means = [total / count for total, count in pools for _ in range(count)]
    return {name: mean + offset for name, mean, offset in zip(layer, means, offsets, strict=False)}


def _places(
    nodes: Sequence[Node],
    edges: Sequence[Edge],
    bends: Mapping[Edge, Sequence[str]],
    layers: Sequence[Sequence[str]],
    sizes: Mapping[str, tuple[float, float]],
    centers: Mapping[str, float],
    direction: str,
) -> Layout:
    tops: dict[str, float] = {}
    heights: dict[str, float] = {}
    top = 0.0
    for layer in layers:
        height = max(sizes[name][1] for name in layer)
        tops.update(dict.fromkeys(layer, top))
        heights.update(dict.fromkeys(layer, height))
        top += height + LAYERS
    total = top - LAYERS

    def turned(x: float, y: float) -> Point:
        """Turn a point of a picture that goes down."""
        return (x, y) if direction == "down" else (x, total - y) if direction == "up" else (y, x)

    result = Layout()
    for node in nodes:
        width, height = sizes[node.id]
        y = tops[node.id] + (0 if direction == "right" else (heights[node.id] - height) / 2)
        item, other = (
            turned(centers[node.id] - width / 2, y),
            turned(centers[node.id] + width / 2, y + height),
        )
        left, upper = min(item[0], other[0]), min(item[1], other[1])
        result.boxes[node.id] = Box(left, upper, abs(item[0] - other[0]), abs(item[1] - other[1]))
    for edge in edges:
        source, target = sizes[edge.source], sizes[edge.target]
        start = tops[edge.source] + (heights[edge.source] + source[1]) / 2
        end = tops[edge.target] + (heights[edge.target] - target[1]) / 2
        if direction == "right":
            start, end = tops[edge.source] + source[1], tops[edge.target]
        between = [
            point
            for name in bends[edge]
            for point in (
                (centers[name], tops[name]),
                (centers[name], tops[name] + heights[name]),
            )
        ]
        path = [(centers[edge.source], start), *between, (centers[edge.target], end)]
        result.paths[edge] = [turned(*point) for point in path]
    width = max(centers[name] + sizes[name][0] / 2 for layer in layers for name in layer)
    result.width, result.height = (total, width) if direction == "right" else (width, total)
    return result
