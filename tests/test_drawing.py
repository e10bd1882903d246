"""Pictures of plans: every strategy, every format, and names that no format may take for its own."""

import json
import re
from collections.abc import Iterator
from xml.etree import ElementTree

import pytest

from orchestrator.algebra import operators
from orchestrator.algebra.operators.base import Operator
from orchestrator.cli.main import main
from orchestrator.drawing import Edge, Graph, Node, dot, html_page, mermaid, svg, text
from orchestrator.drawing.graph import KINDS, SYMBOLS
from orchestrator.drawing.layout import layout

SVG = "{http://www.w3.org/2000/svg}"
EVIL = 'e"vil</text><script>alert(1)</script>]--> & \\n `x`'


@pytest.fixture
def shop(orc):
    orc.execute(
        f"""
        CREATE TABLE c (id int PRIMARY KEY, city text NOT NULL);
        CREATE TABLE o (id int PRIMARY KEY, customer int NOT NULL);
        CREATE TABLE i (id int PRIMARY KEY, o int NOT NULL, price int NOT NULL);
        CREATE TABLE e (a int, b int, PRIMARY KEY (a, b));
        CREATE TABLE "{EVIL.replace('"', '""')}" (id int PRIMARY KEY, n int);
        INSERT INTO c SELECT x, 'c' || x % 7 FROM generate_series(1, 50) x;
        INSERT INTO o SELECT x, x % 50 FROM generate_series(1, 400) x;
        INSERT INTO i SELECT x, x % 400, x FROM generate_series(1, 2000) x;
        ANALYZE c, o, i;
        CREATE VIEW totals WITH (strategy = viewtree) AS
            SELECT city, sum(price) FROM c, o, i WHERE c.id = customer AND o = o.id GROUP BY city;
        CREATE VIEW triangles WITH (strategy = skew) AS
            SELECT count(*) FROM e r, e s, e t WHERE r.b = s.a AND s.b = t.a AND t.b = r.a;
        CREATE VIEW above AS SELECT max(sum) FROM totals;
        CREATE VIEW plain WITH (strategy = recompute) AS SELECT count(*) FROM "{EVIL.replace('"', '""')}"
        """
    )
    return orc


def classes(root: type = Operator) -> Iterator[type]:
    for each in root.__subclasses__():
        yield each
        yield from classes(each)


def test_the_legend_explains_every_symbol_of_the_algebra():
    names = {"scan", "state", "diff", "pending", "cte", "values", "function", "recursion"}
    symbols = {c.symbol for c in classes() if isinstance(getattr(c, "symbol", None), str)}
    assert operators and symbols - names <= SYMBOLS.keys()


def test_graphs_show_the_plan_the_tree_and_the_script(shop):
    explained = {name: shop.explain(name) for name in ("totals", "triangles", "above", "plain")}
    tree = explained["totals"].graphs["tree"]
    below = {
        (edge.source.split()[0], edge.target): tree.node(edge.source).title for edge in tree.edges
    }
    assert len(tree.edges) == len(tree.nodes) - 1, "the states of a view tree form a tree"
    assert below["table", "state content"] in ("c", "i")
    parts = explained["triangles"].graphs["tree"]
    assert {edge.source for edge in parts.edges if edge.target == "state r_h"} == {
        "state r_heavy_values"
    }
    assert [n.title for n in explained["above"].graphs["tree"].nodes if n.kind == "table"] == [
        "totals"
    ]
    script = explained["totals"].graphs["script"]
    assert {"changes", "diff", "apply"} == {node.kind for node in script.nodes}
    assert explained["totals"].summary == (
        "viewtree: a change of one row of i is expected to touch 19 rows; recomputing the view reads 2,450 rows."
    )
    assert explained["totals"].why.startswith(explained["totals"].summary)
    assert explained["plain"].summary.startswith("recompute: a refresh runs the query, which reads")
    for explanation in explained.values():
        for graph in explanation.graphs.values():
            assert_drawn(graph)


def assert_drawn(graph):
    titles = [node.title for node in graph.nodes]
    picture = ElementTree.fromstring(svg(graph))
    drawn = [e.text for e in picture.iter(f"{SVG}text") if e.get("class") == "title"]
    assert drawn == titles
    assert not list(picture.iter(f"{SVG}script"))
    assert all(symbol in SYMBOLS or symbol in KINDS for symbol, _ in graph.legend())
    page = html_page("t", [graph], {EVIL: EVIL})
    assert "<script" not in page and not re.search(r"(src|href)=", page)
    quoted = re.findall(r'"(?:[^"\\]|\\.)*"', dot(graph))
    assert len(quoted) == len(titles) + 3, "title, font, nodes and legend"
    lines = mermaid(graph).splitlines()
    assert all(line.count('"') in (0, 2) and "<script" not in line for line in lines)
    assert all(title in text(graph) for title in titles)


def test_boxes_do_not_overlap_and_arrows_point_one_direction():
    nodes = tuple(Node(str(n), f"operator {n}", "operator", ("line",) * (n % 3)) for n in range(60))
    tree = (Edge(str(n), str(n // 2)) for n in range(1, 60))
    edges = (*tree, Edge("59", "0"), Edge("40", "3"))
    for direction in ("up", "down", "right"):
        places = layout(Graph("g", nodes, edges, direction))
        boxes = list(places.boxes.values())
        assert len(boxes) == 60
        for number, a in enumerate(boxes):
            assert a.x >= -0.01 and a.y >= -0.01
            assert a.x + a.width <= places.width + 0.01 and a.y + a.height <= places.height + 0.01
            for b in boxes[:number]:
                assert (
                    a.x + a.width <= b.x + 0.01
                    or b.x + b.width <= a.x + 0.01
                    or a.y + a.height <= b.y + 0.01
                    or b.y + b.height <= a.y + 0.01
                )
        for edge, path in places.paths.items():
            axis, sign = (0, 1) if direction == "right" else (1, -1 if direction == "up" else 1)
            steps = [point[axis] * sign for point in path]
            assert steps == sorted(steps), edge


def test_the_command_prints_each_format(shop, dsn, capsys):
    def explain(*arguments):
        status = main(["explain", "--dsn", dsn, *arguments])
        return status, capsys.readouterr().out

    assert explain("totals", "--format", "mermaid")[1].startswith("flowchart BT\n")
    assert explain("totals", "--format", "dot", "--script")[1].startswith("digraph ")
    assert explain("totals", "--format", "svg", "--tree")[1].startswith("<svg ")
    assert explain("totals", "--format", "html")[1].count("<svg ") == 3
    assert set(json.loads(explain("totals", "--format", "json")[1])) == {"plan", "tree", "script"}
    assert "grouping" in explain("--query", "SELECT count(*) FROM o", "--format", "text")[1]
    assert "totals (content)" in explain("totals", "--tree")[1]
    assert explain("totals", "--format", "svg", "--tree", "--plan")[0] == 2
