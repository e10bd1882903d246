"""Reads PostgreSQL's stored query trees (`pg_node_tree`), which have the oid of every function.

The dependency catalog does not: PostgreSQL records no dependencies on built-in objects.

>>> [node] = nodes("{FUNCEXPR :funcid 1299 :args ({CONST :constvalue 4 [ 1 0 ]}) :location -1}", "FUNCEXPR")
>>> node.oid("funcid")
1299
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias, Union

Value: TypeAlias = Union["Node", str, list["Value"]]

_TOKEN = re.compile(r"[(){}]|(?:\\.|[^\s(){}\\])+", re.DOTALL)


@dataclass
class Node:
    """A node of a query tree: its tag and its fields. A field holds all values that follow its
    name.
    """

    tag: str
    fields: dict[str, list[Value]] = field(default_factory=dict)

    def oid(self, name: str) -> int:
        """Return a field that holds an object identifier, or 0 if it is missing."""
        values = self.fields.get(name)
        return int(values[0]) if values and isinstance(values[0], str) else 0

    def oids(self, name: str) -> list[int]:
        """Return a field that holds a list of numbers, such as `(o 96 98)` or `(b 7 8)`."""
        values = self.fields.get(name) or [[]]
        elements = values[0] if isinstance(values[0], list) else []
        return [int(value) for value in elements if isinstance(value, str) and value.isdecimal()]

    def child(self, name: str) -> Node | None:
        """Return a field that holds a node."""
        values = self.fields.get(name)
        return values[0] if values and isinstance(values[0], Node) else None


def parse(text: str) -> Value:
    """Return the tree of a text."""
    stack: list[list[Value]] = [[]]
    opened: list[Node] = []
    tokens = _TOKEN.finditer(text)
    for match in tokens:
        token = match.group()
        if token == "{":
            opened.append(Node(next(tokens).group()))
            stack.append([])
        elif token == "}":
            stack.pop()
            stack[-1].append(opened.pop())
        elif token == "(":
            stack.append([])
        elif token == ")":
            stack[-2].append(stack.pop())
        elif token.startswith(":") and opened:
            # The values of a field go to its node; values collected before belong to another field.
            stack[-1] = opened[-1].fields.setdefault(token[1:], [])
        else:
            stack[-1].append(token)
    return stack[0]


def walk(value: Value) -> Iterator[Node]:
    """Yield every node of a tree, outer nodes first."""
    pending = [value]
    while pending:
        current = pending.pop()
        if isinstance(current, Node):
            yield current
            pending.extend(reversed(list(current.fields.values())))
        elif isinstance(current, list):
            pending.extend(reversed(current))


def nodes(text: str, *tags: str) -> Iterator[Node]:
    """Yield every node of a stored tree, or those with one of these tags."""
    for node in walk(parse(text)):
        if not tags or node.tag in tags:
            yield node
