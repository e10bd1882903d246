"""Splits a script into statements and recognizes those that the orchestrator executes.

The text of a query is passed on as the user wrote it. sqlglot's tokenizer finds the boundaries of
the parts of a statement; only PostgreSQL parses the query.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from psycopg import sql
from sqlglot.dialects.postgres import Postgres
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from orchestrator.errors import UsageError
from orchestrator.frontend.options import is_option


@dataclass(frozen=True)
class QualifiedName:
    """The name of a relation, with its schema if one was given."""

    name: str
    schema: str | None = None

    @property
    def identifier(self) -> sql.Identifier:
        """The name as a part of a psycopg statement."""
        return sql.Identifier(*([self.schema] if self.schema else []), self.name)

    def __str__(self) -> str:
        """Return the name as written in SQL."""
        return self.identifier.as_string(None)


@dataclass(frozen=True)
class CreateView:
    """`CREATE [OR REPLACE] [MATERIALIZED] VIEW name [(columns)] [WITH (options)] AS query`."""

    text: str
    name: QualifiedName
    query: str
    columns: tuple[str, ...] | None = None
    options: tuple[tuple[str, str], ...] = ()
    replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True)
class DropView:
    """`DROP [MATERIALIZED] VIEW [IF EXISTS] names [CASCADE | RESTRICT]`."""

    text: str
    names: tuple[QualifiedName, ...]
    if_exists: bool = False
    cascade: bool = False


@dataclass(frozen=True)
class RefreshView:
    """`REFRESH [MATERIALIZED] VIEW [CONCURRENTLY] names`."""

    text: str
    names: tuple[QualifiedName, ...]


@dataclass(frozen=True)
class AlterView:
    """`ALTER [MATERIALIZED] VIEW [IF EXISTS] name SET (options)`, with options of idivm."""

    text: str
    name: QualifiedName
    options: tuple[tuple[str, str], ...]
    if_exists: bool = False


@dataclass(frozen=True)
class CreateIndex:
    """`CREATE [UNIQUE] INDEX [CONCURRENTLY] [IF NOT EXISTS] [index] ON name definition`."""

    text: str
    name: QualifiedName
    definition: str
    index: str | None = None
    unique: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True)
class DropIndex:
    """`DROP INDEX [CONCURRENTLY] [IF EXISTS] names`."""

    text: str
    names: tuple[QualifiedName, ...]
    if_exists: bool = False
    cascade: bool = False


@dataclass(frozen=True)
class RenameIndex:
    """`ALTER INDEX [IF EXISTS] name RENAME TO renamed`."""

    text: str
    name: QualifiedName
    renamed: str


@dataclass(frozen=True)
class Other:
    """A statement for PostgreSQL; `verb` is its first word in capitals."""

    text: str
    verb: str


Statement: TypeAlias = (
    CreateView | AlterView | DropView | RefreshView | CreateIndex | DropIndex | RenameIndex | Other
)


def parse_script(script: str) -> list[Statement]:
    """Return the statements of a script, in order.

    >>> for statement in parse_script('create view v as select 1; insert into t values (\\';\\')'):
    ...     print(type(statement).__name__, '|', statement.text)
    CreateView | create view v as select 1
    Other | insert into t values (';')
    """
    script = script.removeprefix("\ufeff")
    before, nul, _ = script.partition("\0")
    if nul:
        raise UsageError(
            f"Line {before.count(chr(10)) + 1} of the SQL text has a NUL byte, which PostgreSQL does not "
            "take: save the text as UTF-8 if it is in another encoding."
        )
    return [_parse(script, tokens) for tokens in _split(_tokenize(script))]


def parse_name(text: str) -> QualifiedName:
    """Return the name of a relation from its SQL form: `v`, `s.v`, `"My view"`.

    >>> parse_name('Sales."My view"')
    QualifiedName(name='My view', schema='sales')
    """
    reader = _Reader(text, _tokenize(text))
    name = reader.qualified_name()
    if not reader.done:
        raise UsageError(
            f"{text!r} is not the name of a view; write schema.name, with quotes as in SQL."
        )
    return name


class _Script(Postgres):
    """PostgreSQL's lexical rules. sqlglot's own rules keep some commands as a single token."""

    class Tokenizer(Postgres.Tokenizer):
        COMMANDS: ClassVar[set[TokenType]] = set()


def _tokenize(text: str) -> list[Token]:
    try:
        return _Script().tokenize(text)
    except TokenError as error:
        raise UsageError(f"The SQL text cannot be read: {error}.") from error


def _split(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    statement: list[Token] = []
    atomic = 0
    for before, token in zip([None, *tokens], tokens, strict=False):
        opens = before is not None and _word(before) == "BEGIN" and _word(token) == "ATOMIC"
        if opens or (atomic and _word(token) == "CASE"):
            atomic += 1
        elif atomic and _word(token) == "END":
            atomic -= 1
        if token.token_type == TokenType.SEMICOLON and not atomic:
            if statement:
                yield statement
            statement = []
        else:
            statement.append(token)
    if statement:
        yield statement


def _word(token: Token) -> str:
    quoted = token.token_type in (TokenType.IDENTIFIER, TokenType.STRING, TokenType.HEREDOC_STRING)
    return "" if quoted else token.text.upper()


class _Reader:
    """Reads the tokens of a statement from left to right."""

    def __init__(self, script: str, tokens: Sequence[Token]) -> None:
        self.script = script
        self.tokens = tokens
        self.at = 0

    @property
    def done(self) -> bool:
        return self.at >= len(self.tokens)

    def text(self, start: int = 0, stop: int | None = None) -> str:
        """Return the original text from a token up to (and without) another token."""
        tokens = self.tokens[start:stop]
        return self.script[tokens[0].start : tokens[-1].end + 1] if tokens else ""

    def peek(self, *words: str) -> bool:
        """Return whether the next tokens are these words."""
        ahead = self.tokens[self.at : self.at + len(words)]
        return [_word(token) for token in ahead] == list(words)

    def take(self, *words: str) -> bool:
        """Skip these words if they come next, and return whether they did."""
        if self.peek(*words):
            self.at += len(words)
            return True
        return False

    def expect(self, word: str) -> None:
        if not self.take(word):
            actual = "the end" if self.done else repr(self.tokens[self.at].text)
            raise UsageError(f"Expected {word} but found {actual} in: {self.text()[:120]}")

    def name(self) -> str:
        if self.done:
            raise UsageError(f"A name is missing at the end of: {self.text()[:120]}")
        token = self.tokens[self.at]
        self.at += 1
        if token.token_type == TokenType.IDENTIFIER:
            return token.text
        if token.text[:1].isalpha() or token.text[:1] == "_":
            return token.text.lower()
        raise UsageError(f"{token.text!r} is not a name, in: {self.text()[:120]}")

    def qualified_name(self) -> QualifiedName:
        first = self.name()
        return QualifiedName(self.name(), first) if self.take(".") else QualifiedName(first)

    def qualified_names(self) -> tuple[QualifiedName, ...]:
        names = [self.qualified_name()]
        while self.take(","):
            names.append(self.qualified_name())
        return tuple(names)

    def options(self) -> Iterator[tuple[str, str]]:
        self.expect("(")
        while not self.take(")"):
            key = self.name()
            if self.take("="):
                start = self.at
                while not self.done and not (self.peek(",") or self.peek(")")):
                    self.at += 1
                value = (
                    self.tokens[start].text if self.at == start + 1 else self.text(start, self.at)
                )
            else:
                value = "on"
            yield key, value
            if not self.peek(")"):
                self.expect(",")


def _parse(script: str, tokens: list[Token]) -> Statement:
    reader = _Reader(script, tokens)
    text = reader.text()
    if reader.take("CREATE"):
        replace = reader.take("OR", "REPLACE")
        materialized = reader.take("MATERIALIZED")
        recursive = not materialized and reader.take("RECURSIVE")
        if reader.take("VIEW"):
            return _create_view(reader, text, replace, materialized, recursive)
        if index := _create_index(reader, text):
            return index
    elif reader.take("DROP"):
        if reader.take("INDEX"):
            return _drop_index(reader, text) or Other(text, "DROP")
        reader.take("MATERIALIZED")
        if reader.take("VIEW"):
            return _drop_view(reader, text)
    elif reader.take("ALTER"):
        if reader.take("INDEX"):
            return _rename_index(reader, text) or Other(text, "ALTER")
        reader.take("MATERIALIZED")
        if reader.take("VIEW") and (altered := _alter_view(reader, text)):
            return altered
    elif reader.take("REFRESH"):
        reader.take("MATERIALIZED")
        if reader.take("VIEW"):
            reader.take("CONCURRENTLY")
            names = reader.qualified_names()
            reader.take("WITH", "DATA")
            _expect_end(reader)
            return RefreshView(text, names)
    if reader.peek("COPY") and _WITH_CLIENT & {_word(token) for token in tokens}:
        raise UsageError(
            "COPY from STDIN or to STDOUT passes data through the client, which idivm does not do;"
            " use psql, cursor().copy() of psycopg, or a file on the server."
        )
    return Other(text, _word(tokens[0]))


_WITH_CLIENT = {"STDIN", "STDOUT"}


def _create_view(
    reader: _Reader, text: str, replace: bool, materialized: bool, recursive: bool
) -> CreateView:
    if_not_exists = reader.take("IF", "NOT", "EXISTS")
    name = reader.qualified_name()
    columns: tuple[str, ...] | None = None
    if reader.take("("):
        names = [reader.name()]
        while reader.take(","):
            names.append(reader.name())
        reader.expect(")")
        columns = tuple(names)
    options: tuple[tuple[str, str], ...] = ()
    if reader.take("WITH"):
        options = tuple(reader.options())
    reader.expect("AS")
    end = len(reader.tokens)
    if materialized:
        for tail in (("WITH", "NO", "DATA"), ("WITH", "DATA")):
            if [_word(token) for token in reader.tokens[-len(tail) :]] == list(tail):
                end -= len(tail)
                break
    query = reader.text(reader.at, end)
    if not query:
        raise UsageError(f"The query is missing after AS in: {text[:120]}")
    if recursive:
        if columns is None:
            raise UsageError(
                "CREATE RECURSIVE VIEW needs a list of column names after the view's name."
            )
        listing = sql.SQL(", ").join(map(sql.Identifier, columns))
        recursion = sql.SQL("WITH RECURSIVE {0} ({1}) AS ({2}) SELECT {1} FROM {0}")
        query = recursion.format(
            sql.Identifier(name.name),
            listing,
            sql.SQL(query),
        ).as_string(None)
    return CreateView(text, name, query, columns, options, replace, if_not_exists)


def _create_index(reader: _Reader, text: str) -> CreateIndex | None:
    unique = reader.take("UNIQUE")
    if not reader.take("INDEX"):
        return None
    reader.take("CONCURRENTLY")
    if_not_exists = reader.take("IF", "NOT", "EXISTS")
    index = None if reader.peek("ON") and not if_not_exists else reader.name()
    if not reader.take("ON"):
        return None
    reader.take("ONLY")
    name = reader.qualified_name()
    return CreateIndex(text, name, reader.text(reader.at), index, unique, if_not_exists)


def _drop_index(reader: _Reader, text: str) -> DropIndex | None:
    reader.take("CONCURRENTLY")
    if_exists = reader.take("IF", "EXISTS")
    if reader.done:
        return None
    names, cascade = _dropped(reader)
    return DropIndex(text, names, if_exists, cascade) if reader.done else None


def _rename_index(reader: _Reader, text: str) -> RenameIndex | None:
    if reader.peek("ALL"):
        return None
    reader.take("IF", "EXISTS")
    if reader.done:
        return None
    name = reader.qualified_name()
    if not reader.take("RENAME", "TO") or reader.done:
        return None
    renamed = reader.name()
    return RenameIndex(text, name, renamed) if reader.done else None


def _alter_view(reader: _Reader, text: str) -> AlterView | None:
    """Return the options that ALTER VIEW sets, or None if the statement is for PostgreSQL."""
    if_exists = reader.take("IF", "EXISTS")
    name = reader.qualified_name()
    if not reader.take("SET") or not reader.peek("("):
        return None
    options = tuple(reader.options())
    if not any(is_option(key) for key, _ in options):
        return None
    _expect_end(reader)
    return AlterView(text, name, options, if_exists)


def _drop_view(reader: _Reader, text: str) -> DropView:
    if_exists = reader.take("IF", "EXISTS")
    names, cascade = _dropped(reader)
    _expect_end(reader)
    return DropView(text, names, if_exists, cascade)


def _dropped(reader: _Reader) -> tuple[tuple[QualifiedName, ...], bool]:
    """Return the names of what is dropped, and whether what depends on it is dropped too."""
    names = reader.qualified_names()
    cascade = reader.take("CASCADE")
    if not cascade:
        reader.take("RESTRICT")
    return names, cascade


def _expect_end(reader: _Reader) -> None:
    if not reader.done:
        raise UsageError(f"Unexpected {reader.tokens[reader.at].text!r} in: {reader.text()[:120]}")
