"""How sqlglot reads and writes the queries that PostgreSQL prints.

sqlglot's own PostgreSQL dialect translates: it interprets functions and types so that it can write
them in other dialects. Here a query must be written exactly as it was read. Each function stays a
name with arguments, each type the text that PostgreSQL wrote, each operator its symbol.

>>> write(parse('SELECT (t.a)::timestamp(3) without time zone AS x, (b !~~ "My f"(1))'))
'SELECT (t.a)::timestamp(3) without time zone AS x, (b !~~ "My f"(1))'
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from orchestrator.algebra.canonical import SPELLED, Canonical

Tree: TypeAlias = exp.Expr
"""A sqlglot tree. Trees are mutable, so an object that stores a tree hands out copies."""

_DIALECT = Canonical()

_SILENT = frozenset({TokenType.ALIAS, TokenType.LATERAL})
"""Words that only PostgreSQL or only sqlglot writes, without a difference in meaning."""


class UnreadableError(Exception):
    """sqlglot cannot read a text, or would write it differently."""

    def __init__(self, where: str) -> None:
        """Keep the fragment that could not be read."""
        super().__init__(where)
        self.where = where


def parse(text: str) -> Tree:
    """Return the tree of a query, without checking that it can be written again."""
    tokens = [token for token in _DIALECT.tokenize(text) if token.token_type != TokenType.LATERAL]
    [tree] = _DIALECT.parser().parse(_operators(tokens, text), text)
    if tree is None:
        raise UnreadableError(text[:80])
    return tree.transform(_bare_values).transform(_filtered_calls)


_OPERATOR_SIGNS = frozenset("+-*/<>=~!@#%^&|`?")

_TRANSLATED = frozenset({TokenType.CARET, TokenType.CARET_AT, TokenType.NULLSAFE_EQ})

_SIGNS = frozenset({TokenType.DASH, TokenType.TILDE, TokenType.RLIKE})

_DENIED = frozenset({TokenType.RLIKE, TokenType.IRLIKE, TokenType.LIKE, TokenType.ILIKE})
"""Operators that sqlglot knows with a preceding exclamation mark."""


def _operators(tokens: list[Token], text: str) -> list[Token]:
    """Return the tokens with a single token for each operator.

    sqlglot splits some operators, takes some for function names, and does not know others.
    PostgreSQL writes a blank before and after an operator, and a parenthesis before an operator
    with a single operand.

    >>> [token.text for token in _operators(_DIALECT.tokenize("(@ a) |&> b"), "(@ a) |&> b")]
    ['(', '@', 'a', ')', '|&>', 'b']
    """
    result: list[Token] = []
    for token, after in zip(tokens, [*tokens[1:], None], strict=True):
        before = result[-1] if result else None
        if text[token.start] not in _OPERATOR_SIGNS:
            result.append(token)
        elif (
            before
            and text[before.start] in _OPERATOR_SIGNS
            and before.end + 1 == token.start
            and not (before.token_type == TokenType.NOT and token.token_type in _DENIED)
        ):
            result[-1] = _operator(text[before.start : token.end + 1], before.start, token.end)
        elif token.token_type in _TRANSLATED or (
            token.token_type not in _SIGNS
            and before
            and before.token_type == TokenType.L_PAREN
            and after
            and after.token_type != TokenType.R_PAREN
        ):
            result.append(_operator(token.text, token.start, token.end))
        else:
            result.append(token)
    return result


def _operator(symbol: str, start: int, end: int) -> Token:
    return Token(TokenType.OPERATOR, symbol, start=start, end=end)


def _filtered_calls(node: Tree) -> Tree:
    """Repair a call with schema and FILTER or WITHIN GROUP, which sqlglot reads as a column.

    >>> type(parse("SELECT s.f(a) FILTER (WHERE b)").expressions[0]).__name__
    'Filter'
    """
    clause = node.this
    if not isinstance(node, exp.Column) or not isinstance(clause, exp.Filter | exp.WithinGroup):
        return node
    inner = clause
    while isinstance(inner.this, exp.Filter | exp.WithinGroup):
        inner = inner.this
    inner.set("this", exp.Dot(this=node.args["table"], expression=inner.this))
    return clause


def _bare_values(node: Tree) -> Tree:
    """Unwrap VALUES beside a set operation, which sqlglot wraps into a SELECT."""
    if not isinstance(node, exp.Select) or not isinstance(node.parent, exp.SetOperation):
        return node
    clause = node.args.get("from_")
    if clause is None or not isinstance(clause.this, exp.Values) or clause.this.alias != "_values":
        return node
    values: Tree = clause.this.copy()
    values.set("alias", None)
    return values


def read(text: str) -> Tree:
    """Return the tree of a query that PostgreSQL printed, if sqlglot understands each of its
    tokens.

    The tree is written again and compared token by token. This detects constructs that sqlglot
    drops or changes, which would otherwise give wrong results.

    LATERAL is left out. PostgreSQL gives each alias a name that is unique where it is visible, so a
    reference to a table further left cannot mean anything else.

    >>> read("SELECT t.ts AT LOCAL AS x FROM s.t")
    Traceback (most recent call last):
    orchestrator.algebra.dialect.UnreadableError: SELECT t.ts AT LOCAL AS x FROM s.t
    """
    try:
        tree = parse(text)
        written = list(_signature(write(tree)))
    except (SqlglotError, ValueError, AttributeError) as error:
        raise UnreadableError(_around(text, error)) from error
    original = list(_signature(text))
    for (token, start), (other, _) in zip(original, written, strict=False):
        if token != other:
            raise UnreadableError(" ".join(text[max(0, start - 20) : start + 60].split()))
    if len(original) != len(written):
        raise UnreadableError(" ".join(text[-80:].split()))
    return tree


_ATTRIBUTES = {"args", "parent", "arg_key", "index", "comments", "_type", "_meta", "_hash"}

_new: Any = object.__new__ if set(exp.Expression.__slots__) == _ATTRIBUTES else lambda kind: kind()
"""Creates a node without attributes. Planning copies many nodes, and a constructor takes as long as the rest."""


def copied(tree: Tree) -> Tree:
    """Return a copy of a tree without the source positions, which would make copying slower.

    >>> tree = parse("SELECT a + 1 FROM t")
    >>> copied(tree) == tree, copied(tree) is tree
    (True, False)
    """
    new, tree_class = _new, exp.Expr
    root: Tree = new(type(tree))
    root.parent = root.arg_key = root.index = None
    stack = [(tree, root)]
    while stack:
        node, copy = stack.pop()
        copy._type, copy.comments = node._type, node.comments
        copy._meta = copy._hash = None
        arguments = copy.args = {}
        for name, value in node.args.items():
            if isinstance(value, tree_class):
                child = arguments[name] = new(type(value))
                child.parent, child.arg_key, child.index = copy, name, None
                stack.append((value, child))
            elif type(value) is list:
                items = arguments[name] = []
                for item in value:
                    if isinstance(item, tree_class):
                        child = new(type(item))
                        child.parent, child.arg_key, child.index = copy, name, len(items)
                        items.append(child)
                        stack.append((item, child))
                    else:
                        items.append(item)
            else:
                arguments[name] = value
    return root


def write(tree: Tree, pretty: bool = False, own: bool = False) -> str:
    """Return the text of a tree. With `own`, writing may change the tree, which saves a copy."""
    return (
        tree.sql(dialect=_DIALECT, pretty=pretty, copy=False)
        if own
        else copied(tree).sql(dialect=_DIALECT, pretty=pretty, copy=False)
    )


def tokens(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of each token of a text.

    >>> list(tokens('a + "b c"'))
    [(0, 1), (2, 3), (4, 9)]
    """
    for token in _DIALECT.tokenize(text):
        yield token.start, token.end + 1


def _signature(text: str) -> Iterator[tuple[tuple[str, str], int]]:
    for token in _DIALECT.tokenize(text):
        if token.token_type not in _SILENT:
            yield _meaning(token), token.start


def _meaning(token: Token) -> tuple[str, str]:
    if token.token_type in SPELLED:
        return token.token_type.name, token.text
    # sqlglot reads IS UNKNOWN as IS NULL, which means the same for a boolean.
    return "", "NULL" if token.token_type == TokenType.UNKNOWN else token.text.upper()


def _around(text: str, error: Exception) -> str:
    """Return the part of a text that an error of sqlglot points to."""
    errors = getattr(error, "errors", None)
    if errors and errors[0].get("highlight"):
        parts = (errors[0]["start_context"][-20:], errors[0]["highlight"], errors[0]["end_context"])
        return " ".join("".join(parts).split())[:80]
    return " ".join(text.split())[:80]


# Words that need quotes as names: the reserved words of PostgreSQL 18.
_RESERVED_WORDS = """
    all analyse analyze and any array as asc asymmetric authorization binary both case cast check
    collate collation column concurrently constraint create cross current_catalog current_date
    current_role current_schema current_time current_timestamp current_user default deferrable desc
    distinct do else end except false fetch for foreign freeze from full grant group having ilike in
    initially inner intersect into is isnull join lateral leading left like limit localtime
    localtimestamp natural not notnull null offset on only or order outer overlaps placing primary
    references returning right select session_user similar some symmetric system_user table
    tablesample then to trailing true union unique user using variadic verbose when where window
    with
    between bigint bit boolean char character coalesce dec decimal exists extract float greatest
    grouping inout int integer interval json json_array json_arrayagg json_exists json_object
    json_objectagg json_query json_scalar json_serialize json_table json_value least merge_action
    national nchar none normalize nullif numeric out overlay position precision real row setof
    smallint substring time timestamp treat trim values varchar xmlattributes xmlconcat xmlelement
    xmlexists xmlforest xmlnamespaces xmlparse xmlpi xmlroot xmlserialize xmltable
"""

_RESERVED = frozenset(_RESERVED_WORDS.split())


def identifier(name: str) -> exp.Identifier:
    """Return a name as a tree, in quotes where PostgreSQL needs them.

    >>> [write(identifier(name)) for name in ("price", "Price", "order", "a b", "day")]
    ['price', '"Price"', '"order"', '"a b"', 'day']
    """
    plain = name.isascii() and name.replace("_", "a").isalnum() and not name[0].isdigit()
    quoted = not (plain and name == name.lower() and name not in _RESERVED)
    return exp.Identifier(this=name, quoted=quoted)


def reference(name: str, table: str | None = None) -> exp.Column:
    """Return a column as a tree.

    >>> write(reference("Price", "p"))
    'p."Price"'
    """
    return exp.Column(this=identifier(name), table=identifier(table) if table else None)
