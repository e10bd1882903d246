"""Simplify queries by leaving out parts that do not affect whether the result is deterministic."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

Cut = Callable[[exp.Expr], None]


def simpler_queries(query: str) -> Iterator[str]:
    """Yield the query with one part left out, in all possible ways; PostgreSQL may refuse some.

    >>> for simpler in simpler_queries("SELECT a, b FROM t JOIN u ON a = c WHERE a > 1 AND b"):
    ...     print(simpler)
    SELECT a, b FROM t JOIN u ON a = c
    SELECT b FROM t JOIN u ON a = c WHERE a > 1 AND b
    SELECT a FROM t JOIN u ON a = c WHERE a > 1 AND b
    SELECT a, b FROM t WHERE a > 1 AND b
    SELECT a, b FROM t JOIN u ON a = c WHERE a > 1
    SELECT a, b FROM t JOIN u ON a = c WHERE b
    """
    try:
        tree = sqlglot.parse_one(query, read="postgres")
        for place, node in enumerate(tree.walk()):
            for cut in _cuts(node):
                copied = tree.copy()
                root = exp.Paren(this=copied)
                cut(list(copied.walk())[place])
                yield root.this.sql("postgres")
    except SqlglotError:
        return


def _cuts(node: exp.Expr) -> Iterator[Cut]:
    # Every part of an order may be needed to distinguish rows and so to make the result unique.
    if node.find_ancestor(exp.Order, exp.Window, exp.AggFunc) is not None:
        return
    if isinstance(node, exp.Select):
        yield from _cuts_of_select(node)
    elif isinstance(node, exp.SetOperation | exp.And | exp.Or):
        yield lambda n: _replace(n, n.this)
        yield lambda n: _replace(n, n.expression)
    elif isinstance(node, exp.Case | exp.Coalesce | exp.Filter) and isinstance(node.this, exp.Expr):
        yield lambda n: _replace(n, n.this)


def _cuts_of_select(node: exp.Select) -> Iterator[Cut]:
    for name in ("where", "having", "with_"):
        if node.args.get(name):
            yield lambda n, name=name: n.set(name, None)  # type: ignore[misc]
    if node.args.get("order"):
        yield _unordered
    if node.args.get("distinct") and not node.args["distinct"].args.get("on"):
        yield lambda n: n.set("distinct", None)
    for name in ("expressions", "joins", "laterals"):
        parts = node.args.get(name) or []
        if len(parts) > (name == "expressions"):
            for at in range(len(parts)):
                yield lambda n, name=name, at=at: n.args[name].pop(at)  # type: ignore[misc]


def _unordered(node: exp.Expr) -> None:
    for name in ("order", "limit", "offset", "distinct"):
        node.set(name, None)


def _replace(node: exp.Expr, by: exp.Expr) -> None:
    node.replace(by.unnest())
