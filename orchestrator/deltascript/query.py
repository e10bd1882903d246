"""Queries of a program as text: with real names, short aliases and no needless parentheses."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from psycopg.sql import SQL, Composable, Composed
from sqlglot import exp

from orchestrator.algebra import dialect
from orchestrator.algebra.dialect import Tree, identifier, reference
from orchestrator.deltascript.layout import laid_out
from orchestrator.deltascript.leaves import MARK, PENDING, PROGRAM, SOURCE, STATE
from orchestrator.deltascript.names import Names
from orchestrator.deltascript.plan import Apply, ChangeKind, Program, Query, StateTable
from orchestrator.deltascript.writer import WIDTH, Lines, dotted, written

_NAMES_AND_STRINGS = (exp.Identifier, exp.Literal, exp.National, exp.RawString, exp.ByteString)

_HEAD = 16
"""The expected number of characters before an expression on its line."""

_ATOMS = (exp.Column, exp.Literal, exp.Cast, exp.Anonymous, exp.Case, exp.Boolean, exp.Null)

_DELIMITED = (exp.Where, exp.Having, exp.Alias, exp.Paren, exp.Anonymous, exp.If)
"""Nodes whose operand is delimited by a keyword, a comma or a parenthesis."""

_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)

_SUMS = (exp.Add, exp.Sub, exp.Mul)

_NEED_PARENTHESES = (exp.Dot, exp.Bracket, exp.Any, exp.All)
"""Nodes whose parentheses are part of the syntax: fields, subscripts, ANY and ALL."""


def query_text(query: Query, names: Names, shapes: Mapping[str, str] | None = None) -> SQL:
    """Return a query with the real names of states and variables.

    With `shapes`, variables are replaced by NULL arrays of their types.
    """
    return SQL(dialect.write(named(query, names, shapes), own=True))


def query_code(query: Query, names: Names) -> Lines:
    """Return the lines of a query.

    If a name or a string contains a line break, the query stays on a single line.
    """
    tree = _bare(_short_aliases(named(query, names)))
    if _has_lines(tree):
        return [SQL(dialect.write(tree, own=True))]
    return laid_out(dialect.write(tree, own=True))


def named(query: Query, names: Names, shapes: Mapping[str, str] | None = None) -> Tree:
    """Return the tree of a query with real names."""

    def rename(node: Tree) -> Tree:
        if isinstance(node, exp.Table) and node.db == STATE:
            node.set("this", identifier(names.table(node.name)))
            node.set("db", identifier("idivm_state"))
        if isinstance(node, exp.Table) and node.db == SOURCE:
            source = names.sources[int(node.name.partition("\0")[2])]
            node.set("this", identifier(f"s{source.id}"))
            node.set("db", identifier("idivm_def"))
        if isinstance(node, exp.Table) and node.db == PENDING:
            if node.name == MARK:
                return _mark(node, names)
            source = names.sources[int(node.name.partition("\0")[2])]
            node.set("this", identifier(f"s{source.id}_images"))
            node.set("db", identifier("idivm_log"))
        if isinstance(node, exp.Column) and "\0" in node.name:
            oid, _, attnum = node.name.partition("\0")[2].partition(".")
            return reference(names.sources[int(oid)].columns[int(attnum)], node.table)
        if isinstance(node, exp.Column) and node.table == PROGRAM:
            if shapes is None:
                return reference(node.name, names.program)
            kind = names.state(shapes[node.name]).as_string(None) + "[]"
            return exp.Cast(this=exp.Null(), to=exp.DataType(this=exp.DType.USERDEFINED, kind=kind))
        return node

    tree = query.tree.transform(rename, copy=False)
    assert isinstance(tree, exp.Expr)
    return tree


def _mark(table: exp.Table, names: Names) -> exp.Subquery:
    """Return the watermark of the view as a table of one row.

    Its fields are read once: a condition on each row of a log would read them again for each row.
    """
    mark = exp.Table(this=identifier("watermarks"), db=identifier("idivm"))
    view = exp.EQ(this=reference("view", "watermarks"), expression=exp.Literal.number(names.id))

    def field(name: str) -> exp.Dot:
        whole = exp.Paren(this=reference("mark", "watermarks"))
        return exp.Dot(this=whole, expression=identifier(name))

    floor = exp.Anonymous(this="pg_snapshot_xmin", expressions=[field("snapshot")])
    fields = [
        *map(field, ("snapshot", "own_xid", "own_marks")),
        exp.alias_(floor, identifier("floor")),
    ]
    query = exp.select(*fields).from_(mark).where(view).offset(0)
    return exp.Subquery(this=query, alias=table.args["alias"].copy())


def stored(names: Names, role: str) -> Composed:
    """Return the name of a state table or of a row type."""
    return dotted("idivm_state", names.table(role))


def defined(names: Names) -> Composed:
    """Return the name of the definition view."""
    return dotted("idivm_def", f"v{names.id}")


def bare_text(text: str, within: str = "") -> str:
    """Return an SQL expression without needless parentheses, alone or as an operand of AND.

    >>> bare_text("(((t.a) + d.b) = 0) IS TRUE"), bare_text("((a = 1)) OR (b = 2)")
    ('(t.a + d.b = 0) IS TRUE', 'a = 1 OR b = 2')
    >>> bare_text("((t.a) = ANY (d.xs)) AND t.b > ALL ((d.xs)) AND ((d.r).f = 1)")
    't.a = ANY(d.xs) AND t.b > ALL(d.xs) AND (d.r).f = 1'
    """
    tree = _bare(exp.Paren(this=dialect.parse(f"SELECT {text}").expressions[0]))
    if within and isinstance(tree, exp.Or):
        tree = exp.Paren(this=tree)
    text = dialect.write(tree)
    if len(text) <= WIDTH - _HEAD or _has_lines(tree):
        return text
    return written(laid_out(text), 3).strip()


def _bare(tree: Tree) -> Tree:
    """Return a tree without needless parentheses and aliases."""

    def simplify(node: Tree) -> Tree:
        if isinstance(node, exp.Alias) and isinstance(node.this, exp.Column):
            if node.this.name == node.alias and node.this.table:
                return node.this
            return node
        if not isinstance(node, exp.Paren):
            return node
        inner: Tree = node.this
        parent = node.parent
        while isinstance(inner, exp.Paren):
            inner = inner.this
        if isinstance(inner, exp.Subquery | exp.Select | exp.Tuple):
            return node
        whole = parent is None or isinstance(parent, _DELIMITED)
        whole = whole or (isinstance(parent, exp.Join) and node.arg_key == "on")
        whole = whole or (isinstance(parent, exp.Case) and node.arg_key == "default")
        weak = isinstance(parent, exp.And | exp.Or) and _is_test(inner)
        weak = weak or (isinstance(parent, _COMPARISONS) and isinstance(inner, _SUMS))
        atom = isinstance(inner, _ATOMS) and not isinstance(parent, _NEED_PARENTHESES)
        first = type(parent) is type(inner) and isinstance(inner, _SUMS) and node.arg_key == "this"
        same = type(parent) is type(inner) and isinstance(inner, exp.And | exp.Or)
        if whole or weak or atom or first or same:
            return inner
        node.set("this", inner)
        return node

    # Go from the leaves upward, so that outer parentheses see the simplified operand.
    for node in list(tree.find_all(exp.Paren, exp.Alias)):
        simple = simplify(node)
        if simple is not node:
            if node is tree:
                tree = simple
            else:
                node.replace(simple)
    return tree


def _has_lines(tree: Tree) -> bool:
    """Return whether a name or a string contains a line break."""
    return any("\n" in str(node.args.get("this")) for node in tree.find_all(*_NAMES_AND_STRINGS))


def _is_test(node: Tree) -> bool:
    """Return whether a condition has a higher precedence than AND."""
    inner = node.this if isinstance(node, exp.Not) else node
    return isinstance(inner, exp.Is) or isinstance(node, (*_COMPARISONS, *_ATOMS))


def _short_aliases(tree: Tree) -> Tree:
    """Return a tree in which aliases lose their numbers, unless another alias needs them.

    >>> text = "SELECT d_3.a FROM t AS d_3 UNION ALL SELECT d_4.a FROM t AS d_4 JOIN u AS d_5 ON d_5.a = d_4.a"
    >>> dialect.write(_short_aliases(dialect.parse(text)))
    'SELECT d.a FROM t AS d UNION ALL SELECT d_4.a FROM t AS d_4 JOIN u AS d_5 ON d_5.a = d_4.a'
    >>> dialect.write(_short_aliases(dialect.parse("SELECT 1 FROM t AS s_4_2 JOIN u AS s_4 ON TRUE")))
    'SELECT 1 FROM t AS s_4_2 JOIN u AS s ON TRUE'
    """
    for scope in _scopes(tree):
        others = [name for each in scope.related for name in each.names]
        shortened: dict[str, str] = {}
        for name in scope.names:
            base = _without_number(name)
            names = [*(shortened.get(each, each) for each in scope.names), *others]
            if base == name or base in names or names.count(name) > 1:
                continue
            if not any(other != name and _without_number(other) == base for other in names):
                shortened[name] = base
        if not shortened:
            continue
        scope.names = [shortened.get(name, name) for name in scope.names]
        for within in (scope, *scope.below):
            for column in within.columns:
                if column.table in shortened:
                    column.set("table", identifier(shortened[column.table]))
            for alias in within.aliases:
                if alias.name in shortened:
                    alias.set("this", identifier(shortened[alias.name]))
    return tree


@dataclass(eq=False)
class _Scope:
    """A SELECT with its aliases and columns, and the scopes above and below it."""

    above: tuple[_Scope, ...] = ()
    below: list[_Scope] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    """The aliases in its FROM, without those of its subqueries."""
    columns: list[exp.Column] = field(default_factory=list)
    aliases: list[exp.TableAlias] = field(default_factory=list)

    @property
    def related(self) -> tuple[_Scope, ...]:
        return *self.above, *self.below


def _scopes(tree: Tree) -> list[_Scope]:
    """Return a scope for each SELECT of a tree, outer queries first, from a single walk."""
    scopes: list[_Scope] = []
    outside = _Scope()
    waiting: deque[tuple[Tree, _Scope, bool]] = deque([(tree, outside, False)])
    while waiting:
        node, scope, in_from = waiting.popleft()
        if isinstance(node, exp.Select):
            inner = _Scope(() if scope is outside else (*scope.above, scope))
            for each in inner.above:
                each.below.append(inner)
            scopes.append(inner)
            waiting += (
                (child, inner, child.arg_key in ("from_", "joins"))
                for child in node.iter_expressions()
            )
            continue
        if isinstance(node, exp.Column):
            scope.columns.append(node)
        elif isinstance(node, exp.TableAlias):
            scope.aliases.append(node)
            if in_from and node.this:
                scope.names.append(node.name)
        waiting += ((child, scope, in_from) for child in node.iter_expressions())
    return scopes


def _without_number(alias: str) -> str:
    return re.sub(r"_\d+$", "", alias)


def order_of_rows(program: Program, step: Apply) -> list[Composable]:
    """Return an ORDER BY that sorts a diff in the order of the state's rows, as far as that is
    known.

    Neighboring rows are then processed one after the other: their pages were just read, or the
    operating system reads them ahead.
    """
    state = program.state(step.state)
    tree = step.query.tree
    plain = isinstance(tree, exp.Select) and not (tree.args.get("order") or tree.args.get("limit"))
    if not isinstance(state, StateTable) or not plain:
        return []
    columns: tuple[str, ...] = step.columns
    if step.kind in (ChangeKind.UPDATE, ChangeKind.DELETE):
        diff_of = {column: diff for column, diff, _ in step.keys}
        columns = tuple(item.alias_or_name for item in tree.expressions)
        by = [diff_of[c] for c in (*state.together, *state.key, *diff_of) if c in diff_of]
    else:
        by = [*state.together, *state.key]
    # NULL constants do not help to sort, and ORDER BY would take their type for text.
    is_null = [isinstance(item.unalias().unnest(), exp.Null) for item in tree.expressions]
    positions = dict.fromkeys(position + 1 for c in by if not is_null[position := columns.index(c)])
    return [SQL("ORDER BY " + ", ".join(map(str, positions)))] if positions else []


def reads_variables_alone(query: Query) -> bool:
    """Return whether a query reads rows of variables alone; a table that is joined ON FALSE has no rows."""
    return not any(
        table.db and not _is_joined_on_false(table) for table in query.tree.find_all(exp.Table)
    )


def _is_joined_on_false(table: exp.Table) -> bool:
    return isinstance(table.parent, exp.Join) and table.parent.args.get("on") == exp.false()
