"""Queries of plans over tables, states and variables, with names that cannot exist in a database."""

from __future__ import annotations

import re

from sqlglot import exp

from orchestrator.algebra import dialect
from orchestrator.algebra.dialect import Tree, identifier
from orchestrator.caching import cached_property
from orchestrator.deltascript.leaves import PENDING, PROGRAM, SOURCE, STATE

_QUALIFIER = re.compile(
    "|".join(re.escape(f'"{name}".') for name in (PENDING, PROGRAM, SOURCE, STATE))
)

_NUMBERED = re.compile('"((?:[^"\0]|"")*)\0[0-9.]*"')
"""A captured table or column, with its number after a zero byte."""

_ESCAPES = {"\0": "\1z", "\1": "\1e"}
"""Escapes for JSON, which cannot contain zero bytes in PostgreSQL."""


class Query:
    """A query over tables, states and variables; two queries are equal if their texts are equal."""

    def __init__(self, tree: Tree) -> None:
        """Keep a tree, which the caller must not change afterwards."""
        self.__dict__["_tree"] = tree

    @classmethod
    def of_stored(cls, stored: str) -> Query:
        """Return the query with this form in the catalog."""
        query = cls.__new__(cls)
        query.__dict__["_text"] = stored.replace("\1z", "\0").replace("\1e", "\1")
        return query

    @property
    def stored(self) -> str:
        r"""The form that the catalog stores.

        >>> query = Query(dialect.parse('SELECT a FROM "\0state".cache'))
        >>> Query.of_stored(query.stored) == query
        True
        """
        return re.sub("[\0\1]", lambda match: _ESCAPES[match[0]], self._text)

    @property
    def tree(self) -> Tree:
        """A copy of the tree."""
        return dialect.copied(self._tree)

    @property
    def states(self) -> frozenset[str]:
        """The roles of the states that the query reads."""
        return frozenset(t.name for t in self._tree.find_all(exp.Table) if t.db == STATE)

    @property
    def sources(self) -> frozenset[int]:
        r"""The captured tables that the query reads, by oid.

        >>> Query(dialect.parse('SELECT a FROM "\0source"."T\0007" AS t')).sources
        frozenset({7})
        """
        return frozenset(int(name.partition("\0")[2]) for name in self.names_behind(SOURCE))

    def names_behind(self, qualifier: str) -> frozenset[str]:
        r"""Return the names of states, variables or captured tables with a given qualifier.

        >>> sorted(Query(dialect.parse('SELECT a FROM "\0state".cache, "\0state"."B c"')).names_behind("\0state"))
        ['B c', 'cache']
        """
        names = re.findall(rf'"{re.escape(qualifier)}"\.(?:"((?:[^"]|"")*)"|(\w+))', self._text)
        return frozenset(quoted.replace('""', '"') or plain for quoted, plain in names)

    def __str__(self) -> str:
        r"""Return the query for people: states by their roles, variables by their names.

        >>> print(Query(dialect.parse('SELECT t."a\0007.1" FROM "\0source"."T\0007" AS t')))
        SELECT t.a FROM "T" AS t
        """
        text = _QUALIFIER.sub("", self._text)
        return _NUMBERED.sub(lambda match: _name(match[1].replace('""', '"')), text)

    def __eq__(self, other: object) -> bool:
        """Compare the texts."""
        return isinstance(other, Query) and self._text == other._text

    def __hash__(self) -> int:
        """Return the hash of the text."""
        return hash(self._text)

    @cached_property
    def _tree(self) -> Tree:
        return dialect.parse(self._text)

    @cached_property
    def _text(self) -> str:
        return dialect.write(self._tree)


def _name(name: str) -> str:
    return dialect.write(identifier(name), own=True)
