"""Scalar expressions: names become columns with identities, and queries become subplans."""

from __future__ import annotations

from sqlglot import exp

from orchestrator.algebra import Column, Scalar, Subquery, dialect
from orchestrator.algebra.dialect import Tree, identifier, reference
from orchestrator.frontend.translate.context import Context, Named, Scope, called, not_modelled
from orchestrator.frontend.translate.unnest import bare

QUERIES = (exp.Select, exp.SetOperation, exp.Values)


_OF_ROWS = frozenset(
    f"{kind}{name}"
    for kind in ("json", "jsonb")
    for name in ("_agg", "_agg_strict", "_build_array", "_build_object", "_object_agg")
) | {"count", "num_nonnulls", "num_nulls", "row_to_json", "to_json", "to_jsonb"}
"""Functions whose result depends only on the values and field names of a row, and not on its type."""
_ROW = "idivm row"
"""The alias of a row. No column may have this name, because a column would take precedence over the row."""

_SYSTEM_COLUMNS = frozenset({"ctid", "xmin", "xmax", "cmin", "cmax", "tableoid"})


def scalar(context: Context, tree: Tree, scope: Scope) -> Scalar:
    """Return an expression of the query's text over the columns in scope."""
    columns: list[Column] = []
    subqueries: list[Subquery] = []

    def column(target: Column | None, node: Tree) -> Tree:
        if target is None and node.name in _SYSTEM_COLUMNS:
            raise not_modelled("a system column", node)
        if target is None:
            raise not_modelled("a name that cannot be resolved", node)
        columns.append(target)
        return reference(target.symbol)

    def row(node: exp.Column) -> Tree:
        source = scope.row(node.table) if node.table and _takes_rows(node) else None
        named = {
            item.name for relation in context.facts.relations.values() for item in relation.columns
        }
        if source is None or _ROW in named:
            raise not_modelled("a row that is read as one value", node)
        columns.extend(item for _, item in source.named)
        record = _record(source.named)
        if source.present is None:
            return record
        there = exp.Is(this=reference(source.present.symbol), expression=exp.Null())
        return exp.Case(ifs=[exp.If(this=exp.Not(this=there), true=record)])

    def resolved(node: Tree) -> Tree:
        if isinstance(node, exp.Subquery) and not isinstance(node.this, QUERIES):
            raise not_modelled("an unknown form of subquery", node)
        if isinstance(node, QUERIES):
            plan = context.query(context, node, scope.inner())
            in_exists = isinstance(node.parent, exp.Exists)
            rows, outputs = (bare(plan.root), ()) if in_exists else (plan.root, plan.columns)
            subqueries.append(Subquery(rows, outputs))
            return exp.Parameter(this=exp.Literal.number(len(subqueries)))
        if isinstance(node, exp.Subquery) and node.args.get("with_"):
            raise not_modelled("WITH around a subquery in parentheses", node)
        if not isinstance(node, exp.Column):
            return node
        if isinstance(node.this, exp.Star):
            return row(node)
        if not node.this.args.get("quoted") and node.name != node.name.lower():
            # PostgreSQL quotes names with capitals, so this is a keyword.
            raise not_modelled("a keyword where a column is expected", node.parent or node)
        return column(scope.column(node.table or None, node.name), node)

    result = tree.copy()
    for wrapped in result.find_all(exp.Subquery):
        while isinstance(wrapped.this, exp.Subquery) and wrapped.this.is_wrapper:
            wrapped.set("this", wrapped.this.this)
    result = result.transform(resolved)
    return Scalar.of(result, columns, tuple(subqueries))


def _takes_rows(node: exp.Column) -> bool:
    """Return whether the reader of a row uses its values and field names, and not its type."""
    above = node.parent
    while isinstance(above, exp.Paren | exp.Distinct | exp.Order | exp.Ordered):
        above = above.parent
    if isinstance(above, exp.Cast | exp.Is):
        return isinstance(above, exp.Is) or dialect.write(above.to) == "text"
    name = called(above) if above is not None else None
    return name is not None and name[0] == "pg_catalog" and name[1] in _OF_ROWS


def _record(named: Named) -> Tree:
    """Return a row of some columns as a single value.

    >>> dialect.write(_record([("id", Column("a")), ("Name", Column("b"))]))
    '(SELECT "idivm row" FROM (SELECT a AS id, b AS "Name") AS "idivm row")'
    """
    values: list[Tree] = [
        exp.Alias(this=reference(column.symbol), alias=identifier(name)) for name, column in named
    ]
    inner = exp.Subquery(
        this=exp.Select(expressions=values),
        alias=exp.TableAlias(this=identifier(_ROW)),
    )
    # Use a variable, because the row must not be mistaken for a column.
    return exp.Subquery(
        this=exp.Select(expressions=[exp.Var(this=f'"{_ROW}"')], from_=exp.From(this=inner))
    )
