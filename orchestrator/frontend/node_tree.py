"""Reads PostgreSQL's stored query trees (`pg_node_tree`), which name every function by its oid.

The dependency catalog does not: PostgreSQL records no dependency on what is built in.

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
    """One node of a query tree: its tag and its fields; a field holds all that follows its name."""

    tag: str
    fields: dict[str, list[Value]] = field(default_factory=dict)

    def oid(self, name: str) -> int:
        """A field that holds an object identifier; 0 when it is not there."""
        values = self.fields.get(name)
        return int(values[0]) if values and isinstance(values[0], str) else 0

    def oids(self, name: str) -> list[int]:
        """A field that holds a list of numbers, as `(o 96 98)` or `(b 7 8)`."""
        values = self.fields.get(name) or [[]]
        listed = values[0] if isinstance(values[0], list) else []
        return [int(value) for value in listed if isinstance(value, str) and value.isdecimal()]

    def child(self, name: str) -> Node | None:
        """A field that holds one node."""
        values = self.fields.get(name)
        return values[0] if values and isinstance(values[0], Node) else None


def parse(text: str) -> Value:
    """The tree that a text stands for."""
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
            # A field's values go to the node; whatever was collected before belongs to another field.
            stack[-1] = opened[-1].fields.setdefault(token[1:], [])
        else:
            stack[-1].append(token)
    return stack[0]


def walk(value: Value) -> Iterator[Node]:
    """Every node of a tree, outer nodes first."""
    pending = [value]
    while pending:
        current = pending.pop()
        if isinstance(current, Node):
            yield current
            pending.extend(reversed(list(current.fields.values())))
        elif isinstance(current, list):
            pending.extend(reversed(current))


def nodes(text: str, *tags: str) -> Iterator[Node]:
    """Every node of a stored tree, or those with one of these tags."""
    for node in walk(parse(text)):
        if not tags or node.tag in tags:
            yield node
