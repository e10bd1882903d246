"""The dialect of the queries that PostgreSQL prints. It reads and writes without translating."""

from __future__ import annotations

from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.generators.postgres import PostgresGenerator
from sqlglot.parsers.postgres import PostgresParser
from sqlglot.tokenizer_core import TokenType

SPELLED = frozenset({TokenType.IDENTIFIER, TokenType.STRING, TokenType.NUMBER})
"""Kinds of tokens whose text the user chose."""

_REGEXPS: dict[type[exp.Expr], str] = {exp.RegexpLike: "~", exp.RegexpILike: "~*"}

_INTERVAL_FIELDS = frozenset({"YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND", "TO"})

SQL_JSON = frozenset(
    {
        "JSON",
        "JSON_ARRAY",
        "JSON_EXISTS",
        "JSON_OBJECT",
        "JSON_QUERY",
        "JSON_SCALAR",
        "JSON_SERIALIZE",
        "JSON_VALUE",
    }
)
"""Functions with a special grammar for their arguments."""

SQL_JSON_AGGREGATES = frozenset({"JSON_ARRAYAGG", "JSON_OBJECTAGG"})


class Canonical(Postgres):
    """The dialect of `pg_get_viewdef`."""

    class Parser(PostgresParser):
        """Parses queries without translating them."""

        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: PostgresParser.FUNCTION_PARSERS[name]
            for name in ("CAST", "EXTRACT", "SUBSTRING", "TRIM", "POSITION", "OVERLAY")
        } | {
            name: lambda self, name=name: exp.Anonymous(
                this=name, expressions=self._parse_csv(self._parse_phrase)
            )
            for name in SQL_JSON | SQL_JSON_AGGREGATES
        }

        UNARY_PARSERS: ClassVar[dict[Any, Any]] = {
            **PostgresParser.UNARY_PARSERS,
            TokenType.OPERATOR: lambda self: self._parse_prefix(),
        }

        def _parse_function(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
            # A quoted name never starts special syntax: "substring"(a, 1).
            if self._curr and self._curr.token_type == TokenType.IDENTIFIER:
                kwargs["anonymous"] = True
            return super()._parse_function(*args, **kwargs)

        def _parse_unnest(self, with_alias: bool = True) -> exp.Unnest | None:
            return None

        def _parse_types(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
            # In a column definition list the type follows the name. Elsewhere, a type only follows
            # a double colon.
            if kwargs.get("schema"):
                ends = (TokenType.COMMA, TokenType.R_PAREN)
                return None if self._curr.token_type in ends else self._parse_dcolon()
            return super()._parse_types(*args, **kwargs)

        def _parse_table_alias(self, *args: Any, **kwargs: Any) -> exp.TableAlias | None:
            # In ROWS FROM, a function may have a column definition list without a name.
            if self._match_pair(TokenType.ALIAS, TokenType.L_PAREN):
                columns = self._parse_csv(self._parse_function_parameter)
                self._match_r_paren()
                return exp.TableAlias(columns=columns)
            return super()._parse_table_alias(*args, **kwargs)

        def _parse_phrase(self) -> exp.Expr | None:
            # An argument of SQL/JSON may have keywords before, between and after its operands.
            bare = self._curr.token_type not in SPELLED and self._match_text_seq("RETURNING")
            if bare:
                self._retreat(self._index - 1)
            this = None if bare else self._parse_disjunction()
            while self._is_inside():
                words, operand = [], None
                while operand is None and self._is_inside():
                    words.append(self._next_word().upper())
                    operand = self._parse_operand(words)
                this = exp.Operator(this=this, operator=" ".join(words), expression=operand)
            return this

        def _is_inside(self) -> bool:
            ends = (TokenType.COMMA, TokenType.R_PAREN)
            return bool(self._curr) and self._curr.token_type not in ends

        def _parse_operand(self, words: list[str]) -> exp.Expr | None:
            # The operand that the keywords announce.
            if words[-1] == "RETURNING":
                return self._parse_dcolon()
            if words[-1] == "AS":
                return self._parse_id_var(any_token=True)
            if words[-1] in (":", "VALUE", "PASSING", "DEFAULT"):
                return self._parse_disjunction()
            if words[-2:] == ["ORDER", "BY"]:
                del words[-2:]
                return exp.Order(expressions=self._parse_csv(self._parse_ordered))
            return None

        def _parse_dcolon(self) -> exp.Expr | None:
            return exp.DataType(this=exp.DType.USERDEFINED, kind=self._type_text())

        def _type_text(self) -> str:
            # The output of format_type: a name, sizes, time zone or interval fields, brackets.
            words = [self._next_word()]
            while self._match(TokenType.DOT):
                words[-1] += "." + self._next_word()
            if words[0].upper() == "DOUBLE" and self._match_text_seq("PRECISION"):
                words.append("precision")
            elif words[0].upper() in ("CHARACTER", "BIT") and self._match_text_seq("VARYING"):
                words.append("varying")
            while self._curr and words[0].upper() == "INTERVAL" and self._is_interval_field():
                words.append(self._next_word())
            if self._match(TokenType.L_PAREN):
                sizes = [self._next_word()]
                while self._match(TokenType.COMMA):
                    sizes.append(self._next_word())
                self._match_r_paren()
                words[-1] += f"({','.join(sizes)})"
            for zone in ("WITH", "WITHOUT"):
                if self._match_text_seq(zone, "TIME", "ZONE"):
                    words += [zone.lower(), "time", "zone"]
            while self._match_pair(TokenType.L_BRACKET, TokenType.R_BRACKET):
                words[-1] += "[]"
            return " ".join(words)

        def _is_interval_field(self) -> bool:
            return self._curr.text.upper() in _INTERVAL_FIELDS

        def _parse_prefix(self) -> exp.Expr | None:
            if self._prev.text.lower() == "operator" and self._curr.token_type != TokenType.L_PAREN:
                # The name of a column.
                self._retreat(self._index - 1)
                return self._parse_type()
            return self._parse_operator(None)

        def _parse_operator(self, this: exp.Expr | None) -> exp.Expr | None:
            # An operator before or between its operands, for example of an extension. `_operators`
            # in `dialect` makes its token.
            symbol = self._prev.text
            if symbol == "OPERATOR" and self._match(TokenType.L_PAREN):
                words = []
                while self._curr and not self._match(TokenType.R_PAREN):
                    words.append(self._next_word())
                symbol += f"({''.join(words)})"
            return exp.Operator(this=this, operator=symbol, expression=self._parse_bitwise())

        def _next_word(self) -> str:
            token = self._curr
            if not token:
                self.raise_error("A word is missing")
            self._advance()
            if token.token_type == TokenType.IDENTIFIER:
                return '"' + token.text.replace('"', '""') + '"'
            return token.text.lower()

    class Generator(PostgresGenerator):
        """Writes a tree as it was read."""

        MULTI_ARG_DISTINCT = True
        TRANSFORMS: ClassVar[dict[Any, Any]] = {
            kind: write
            for kind, write in PostgresGenerator.TRANSFORMS.items()
            if kind not in (exp.Operator, exp.Trim)
        }

        def __init__(self, **options: Any) -> None:
            """Take sqlglot's options; keep the case of function names."""
            super().__init__(**{"normalize_functions": False, **options})

        def cast_sql(self, expression: exp.Cast, safe_prefix: str | None = None) -> str:
            """Write a cast with the double colon."""
            return f"{self.sql(expression, 'this')}::{self.sql(expression, 'to')}"

        def like_sql(self, expression: exp.Like) -> str:
            """Write `~~` or `!~~`."""
            return self._match_sql(expression)

        def ilike_sql(self, expression: exp.ILike) -> str:
            """Write `~~*` or `!~~*`."""
            return self._match_sql(expression)

        def operator_sql(self, expression: exp.Operator) -> str:
            """Write the operands and the symbol, or OPERATOR with a schema."""
            parts = (expression.this, expression.args["operator"], expression.expression)
            return " ".join(self.sql(part) for part in parts if part)

        def trim_sql(self, expression: exp.Trim) -> str:
            """Write TRIM with LEADING, TRAILING or BOTH and FROM, as PostgreSQL does."""
            words = [str(expression.args["position"]), self.sql(expression, "expression"), "FROM"]
            return f"TRIM({' '.join(filter(None, words))} {self.sql(expression, 'this')})"

        def not_sql(self, expression: exp.Not) -> str:
            """Write NOT, or an operator that sqlglot reads as NOT: `!~`, IS NOT TRUE."""
            # PostgreSQL writes NOT with parentheses around its operand.
            if type(expression.this) in _REGEXPS:
                return self.binary(expression.this, "!" + _REGEXPS[type(expression.this)])
            if isinstance(expression.this, exp.Is):
                test = expression.this
                return f"{self.sql(test, 'this')} IS NOT {self.sql(test, 'expression')}"
            return super().not_sql(expression)

        def table_sql(self, expression: exp.Table, sep: str = " AS ") -> str:
            """Write WITH ORDINALITY of a function before the joins that follow it in parentheses."""
            joins = self.expressions(expression, key="joins", sep="", flat=True)
            if not joins or not expression.args.get("ordinality"):
                return super().table_sql(expression, sep)
            without_joins = expression.copy()
            without_joins.set("joins", None)
            return super().table_sql(without_joins, sep) + self.indent(joins, skip_first=True)

        def tablealias_sql(self, expression: exp.TableAlias) -> str:
            """Write a column definition list without a name."""
            if expression.this:
                return super().tablealias_sql(expression)
            return f"({self.expressions(expression, key='columns', flat=True)})"

        def windowspec_sql(self, expression: exp.WindowSpec) -> str:
            """Write a frame, with BETWEEN only if its end is written."""
            written = super().windowspec_sql(expression)
            if expression.args.get("end"):
                return written
            return written.replace(" BETWEEN ", " ", 1).replace(" AND CURRENT ROW", "", 1)

        def offset_limit_modifiers(
            self, expression: exp.Expr, fetch: bool, limit: exp.Fetch | exp.Limit | None
        ) -> list[str]:
            """Write OFFSET before LIMIT."""
            return [self.sql(expression, "offset"), self.sql(limit)]

        def _match_sql(self, expression: exp.Like | exp.ILike) -> str:
            symbol = "~~" if isinstance(expression, exp.Like) else "~~*"
            return self.binary(
                expression, "!" + symbol if expression.args.get("negate") else symbol
            )
