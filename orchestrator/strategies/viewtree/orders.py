"""Variable orders (papers/fivm.txt, section 4): in which order variables are summed out.

An order is a forest of variables in which the variables of each atom lie on one path downwards.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from orchestrator.errors import UsageError
from orchestrator.strategies.viewtree.hypergraph import Hypergraph, Variables


@dataclass(frozen=True)
class Order:
    """A variable with the orders below it."""

    variable: str
    below: tuple[Order, ...] = ()

    @property
    def variables(self) -> Variables:
        """The variable and all variables below it."""
        return frozenset({self.variable}).union(*(item.variables for item in self.below))

    def __str__(self) -> str:
        """Return the order in the syntax of the option `variable_order`."""
        return self.variable + (f" - {written(self.below)}" if self.below else "")


Forest = tuple[Order, ...]


def written(forest: Forest) -> str:
    """Return a forest as text.

    >>> written(parsed("a - { b, c - {d, e} }"))
    'a - { b, c - { d, e } }'
    """
    if len(forest) == 1:
        return str(forest[0])
    return "{ " + ", ".join(map(str, forest)) + " }"


_TOKEN = re.compile(r'\s*(?:([{},-])|"((?:[^"]|"")+)"|([^\s{},"-]+))')


def parsed(text: str) -> Forest:
    """Return the forest of a text such as `a - { b, c - d }`."""
    tokens: list[str | None] = []
    position = 0
    while text[position:].strip():
        match = _TOKEN.match(text, position)
        if match is None:
            raise UsageError(
                f"The variable order {text!r} cannot be read from {text[position:]!r} on."
            )
        position = match.end()
        name = match[2].replace('""', '"') if match[2] else match[3]
        tokens += [match[1]] if match[1] else [None, name]

    def wrong() -> UsageError:
        return UsageError(
            f"The variable order {text!r} is malformed; write it like a - {{ b, c - d }}."
        )

    def take(wanted: str) -> bool:
        if tokens and tokens[0] == wanted:
            tokens.pop(0)
            return True
        return False

    def forest() -> Forest:
        if not take("{"):
            return (tree(),)
        trees = [tree()]
        while take(","):
            trees.append(tree())
        if not take("}"):
            raise wrong()
        return tuple(trees)

    def tree() -> Order:
        if len(tokens) < 2 or tokens.pop(0) is not None:
            raise wrong()
        name = tokens.pop(0)
        assert name is not None
        return Order(name, forest() if take("-") else ())

    result = forest()
    if tokens:
        raise wrong()
    return result


def dep(order: Order, graph: Hypergraph) -> Variables:
    """Definition 6: return the variables above an order that share an atom with a variable in it."""
    return graph.neighbours(order.variables)


def paths(forest: Forest, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield for each variable the path that leads to it."""
    for order in forest:
        path = (*above, order.variable)
        yield path
        yield from paths(order.below, path)


def check(forest: Forest, graph: Hypergraph) -> None:
    """Raise an error if a forest is not a variable order of a query (definition 6).

    >>> check(parsed("a - { b, c }"), Hypergraph.of({"R": "ab", "S": "bc"}))
    Traceback (most recent call last):
    orchestrator.errors.UsageError: In the variable order, the variables b, c of S must lie on one path downwards.
    """
    all_paths = list(paths(forest))
    ends = [path[-1] for path in all_paths]
    twice = sorted({name for name in ends if ends.count(name) > 1})
    unknown = sorted(set(ends) - graph.variables)
    missing = sorted(graph.variables - set(ends))
    for names, problem in (
        (twice, "has {} more than once"),
        (unknown, "has {}, which the query has not"),
        (missing, "lacks {}"),
    ):
        if names:
            known = ", ".join(sorted(graph.variables))
            what = problem.format(", ".join(names))
            raise UsageError(f"The variable order {what}; the query's variables are {known}.")
    for name, schema in graph.edges:
        if schema and not any(schema <= set(path) for path in all_paths):
            raise UsageError(
                f"In the variable order, the variables {', '.join(sorted(schema))} of {name}"
                " must lie on one path downwards."
            )


def is_top(part: Variables, forest: Forest) -> bool:
    """Return whether no other variable is above a variable of a part, such as the free variables."""
    return all(
        path[-1] not in part or all(variable in part for variable in path) for path in paths(forest)
    )


def canonical(graph: Hypergraph) -> Forest:
    """Return the canonical free-top order of a q-hierarchical query (section 7.2).

    The inputs are on top too if the query is input-dominant.

    >>> edges = {"R": "AB", "S": "ACE", "T": "ACD"}  # example 22, figure 12
    >>> written(canonical(Hypergraph.of(edges, "ABC")))
    'A - { B, C - { D, E } }'
    """

    def rank(name: str) -> tuple[int, bool, bool, str]:
        return (-len(graph.rels[name]), name not in graph.inputs, name not in graph.free, name)

    return _merge_paths((sorted(schema, key=rank) for _, schema in graph.edges))


def _merge_paths(listed: Iterable[list[str]]) -> Forest:
    """Return a forest of paths in which equal beginnings are merged."""
    groups: dict[str, list[list[str]]] = {}
    for path in listed:
        if path:
            groups.setdefault(path[0], []).append(path[1:])
    return tuple(Order(name, _merge_paths(rest)) for name, rest in sorted(groups.items()))
