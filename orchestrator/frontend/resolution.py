"""Calls whose function PostgreSQL resolves by the types of arguments.

Captured rows have base types instead of domains. A call with such a row may resolve to another
overload than in the query, and a polymorphic function receives another type. If PostgreSQL uses a
domain's value as its base type, both the stored tree and the text of the query have a cast. So only
calls that take the domain itself are ambiguous.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from orchestrator.frontend.node_tree import Node, Value

_ARGUMENTS = {
    "FUNCEXPR": ("funcid", "args"),
    "AGGREF": ("aggfnoid", "aggdirectargs", "args"),
    "WINDOWFUNC": ("winfnoid", "args"),
    "OPEXPR": ("opno", "args"),
    "DISTINCTEXPR": ("opno", "args"),
    "NULLIFEXPR": ("opno", "args"),
    "SCALARARRAYOPEXPR": ("opno", "args"),
}
"""The fields in which calls have the called object and the arguments."""

_FUNCTIONS = frozenset({"FUNCEXPR", "AGGREF", "WINDOWFUNC"})

_RESULTS = {
    "VAR": "vartype",
    "CONST": "consttype",
    "PARAM": "paramtype",
    "FUNCEXPR": "funcresulttype",
    "AGGREF": "aggtype",
    "WINDOWFUNC": "wintype",
    "OPEXPR": "opresulttype",
    "DISTINCTEXPR": "opresulttype",
    "NULLIFEXPR": "opresulttype",
    "RELABELTYPE": "resulttype",
    "COERCEVIAIO": "resulttype",
    "ARRAYCOERCEEXPR": "resulttype",
    "CONVERTROWTYPEEXPR": "resulttype",
    "COERCETODOMAIN": "resulttype",
    "COERCETODOMAINVALUE": "typeId",
    "CASEEXPR": "casetype",
    "CASETESTEXPR": "typeId",
    "SETTODEFAULT": "typeId",
    "ARRAYEXPR": "array_typeid",
    "ROWEXPR": "row_typeid",
    "COALESCEEXPR": "coalescetype",
    "MINMAXEXPR": "minmaxtype",
    "SUBSCRIPTINGREF": "refrestype",
    "FIELDSELECT": "resulttype",
    "FIELDSTORE": "resulttype",
    "XMLEXPR": "type",
    "SQLVALUEFUNCTION": "type",
}
"""The fields in which expressions have the types of their values."""

_CASTS = (1, 2)
"""COERCE_EXPLICIT_CAST and COERCE_IMPLICIT_CAST: PostgreSQL resolves casts by base types."""


@dataclass(frozen=True)
class TypedCall:
    """A call of a function or operator, and the types of its arguments."""

    is_operator: bool
    called: int
    passed: tuple[frozenset[int], ...]
    """For each argument: the oids of its type and of the types of its parts."""


def typed_calls(nodes: Iterable[Node]) -> Iterator[TypedCall]:
    """Yield the calls of a query that PostgreSQL resolves by the types of arguments.

    >>> from orchestrator.frontend.node_tree import nodes
    >>> [call] = typed_calls(nodes(
    ...     "{FUNCEXPR :funcid 7 :funcformat 0 :args "
    ...     "({RELABELTYPE :arg {VAR :vartype 8} :resulttype 23 :relabelformat 2})}"))
    >>> call
    TypedCall(is_operator=False, called=7, passed=(frozenset({23}),))
    """
    for node in nodes:
        if node.tag == "ROWCOMPAREEXPR":
            pairs = zip(_nodes_in(node, "largs"), _nodes_in(node, "rargs"), strict=True)
            for operator, pair in zip(node.oids("opnos"), pairs, strict=True):
                yield _call(True, operator, pair)
        elif node.tag in _ARGUMENTS and node.oid("funcformat") not in _CASTS:
            called, *fields = _ARGUMENTS[node.tag]
            arguments = [item for name in fields for item in _nodes_in(node, name)]
            yield _call(node.tag not in _FUNCTIONS, node.oid(called), arguments)


def _call(is_operator: bool, called: int, arguments: Iterable[Node]) -> TypedCall:
    return TypedCall(
        is_operator,
        called,
        tuple(frozenset(_types(argument)) for argument in arguments),
    )


def _nodes_in(node: Node, name: str) -> list[Node]:
    values = node.fields.get(name) or [[]]
    return [item for item in _as_list(values[0]) if isinstance(item, Node)]


def _as_list(value: Value) -> list[Value]:
    return value if isinstance(value, list) else [value]


def _types(node: Node) -> Iterator[int]:
    """Yield the type of an expression's value, and the types of the parts that determine its type."""
    if node.tag in _RESULTS:
        yield node.oid(_RESULTS[node.tag])
    if node.tag in ("TARGETENTRY", "COLLATEEXPR", "NAMEDARGEXPR"):
        inner = node.child("expr") or node.child("arg")
        if inner is not None:
            yield from _types(inner)
    elif node.tag in ("ROWEXPR", "ARRAYEXPR"):
        for item in _nodes_in(node, "args" if node.tag == "ROWEXPR" else "elements"):
            yield from _types(item)
    elif node.tag == "SUBLINK":
        query = node.child("subselect")
        outputs = [] if query is None else _nodes_in(query, "targetList")
        for item in outputs[:1]:
            yield from _types(item)
