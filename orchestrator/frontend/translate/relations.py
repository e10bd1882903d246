"""FROM: tables, views, functions, derived tables, and the joins between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from orchestrator.algebra import (
    TRUE,
    Column,
    DependentJoin,
    FullJoin,
    FunctionScan,
    Item,
    Join,
    LeftJoin,
    Operator,
    Plan,
    Projection,
    Reference,
    Scalar,
    Scan,
    ScanColumn,
    Table,
    Values,
    conjunction,
    dialect,
)
from orchestrator.algebra.analysis.duplicate_columns import distinguishable
from orchestrator.algebra.dialect import Tree, reference
from orchestrator.frontend.facts import Relation, RelationColumn
from orchestrator.frontend.translate.context import (
    Context,
    Named,
    Row,
    Scope,
    called,
    not_modelled,
    only_known,
)
from orchestrator.frontend.translate.expressions import QUERIES, scalar

Rows = tuple[Operator, Scope]
"""An item of FROM: its rows, and a scope with its names."""


def from_clause(context: Context, query: exp.Select, scope: Scope) -> Rows:
    """Return the FROM of a query, or one row without columns if it is missing."""
    clause = query.args.get("from_")
    if clause is None:
        return Values(((),), ()), scope
    if query.args.get("laterals"):
        raise not_modelled("LATERAL VIEW", query)
    first = clause.this
    return _joined(context, first, query.args.get("joins") or [], scope)


def _joined(context: Context, first: Tree, joins: Sequence[exp.Join], scope: Scope) -> Rows:
    rows, names = _item(context, first, scope)
    names = scope.beside(names)
    for join in joins:
        rows, names = _join(context, rows, names, join, scope)
    return rows, names


def _join(context: Context, left: Operator, names: Scope, join: exp.Join, scope: Scope) -> Rows:
    """Return a join of the preceding items with another item, which may refer to them."""
    only_known(join, "this", "side", "kind", "on", "using")
    right, right_names = _item(context, join.this, names)
    both = names.beside(right_names)
    kind = (join.side or join.kind or "").upper()
    using = join.args.get("using")
    if using:
        conditions, merged = _using(context, names, right_names, using, kind)
        condition = conjunction(conditions)
    elif join.args.get("on") is not None:
        condition = scalar(context, join.args["on"], both)
    else:
        condition = TRUE
    if str(condition).upper() == "TRUE":
        condition = TRUE
    known = set(left.columns)
    if right.outer_columns & known:
        if kind not in ("", "INNER", "CROSS", "LEFT"):
            raise not_modelled("a lateral reference across this kind of join", join)
        rows: Operator = DependentJoin(left, right, condition, outer=kind == "LEFT")
    elif kind in ("", "INNER", "CROSS"):
        rows = Join(left, right, condition)
    elif kind == "LEFT":
        rows = LeftJoin(left, right, condition)
    elif kind == "RIGHT":
        rows = LeftJoin(right, left, condition)
    elif kind == "FULL":
        rows = FullJoin(left, right, condition)
    else:
        raise not_modelled("this kind of join", join)
    if kind in ("LEFT", "FULL"):
        both = both.padded(right_names, right.not_null)
    if kind in ("RIGHT", "FULL"):
        both = both.padded(names, left.not_null)
    if using:
        return _with_merged(context, rows, both, merged)
    return rows, both


MergedColumn = Column | Scalar


def _using(
    context: Context, left: Scope, right: Scope, using: Sequence[Tree], kind: str
) -> tuple[list[Scalar], list[tuple[str, MergedColumn]]]:
    """Return the equalities of USING, and the merged columns.

    A merged column is the column of the preserved side. For a full join, or for columns of
    different types, it is the first value that is not NULL, in the common type of both.
    """
    conditions = []
    merged: list[tuple[str, MergedColumn]] = []
    for item in using:
        name = item.name
        left_column, right_column = left.column(None, name), right.column(None, name)
        if left_column is None or right_column is None:
            raise not_modelled("a name that cannot be resolved", f"USING ({name})")
        if context.facts.own_equality and None in (left_column.equality, right_column.equality):
            raise not_modelled("USING over types of unknown equality", f"USING ({name})")
        pair = (reference(left_column.symbol), reference(right_column.symbol))
        conditions.append(
            Scalar.of(exp.EQ(this=pair[0], expression=pair[1]), [left_column, right_column])
        )
        if (
            kind != "FULL"
            and left_column.type is not None
            and left_column.type == right_column.type
        ):
            merged.append((name, right_column if kind == "RIGHT" else left_column))
        else:
            both = exp.Anonymous(this="COALESCE", expressions=[tree.copy() for tree in pair])
            merged.append((name, Scalar.of(both, [left_column, right_column])))
    return conditions, merged


def _with_merged(
    context: Context, rows: Operator, names: Scope, merged: list[tuple[str, MergedColumn]]
) -> Rows:
    computed = []
    known = dict(names.merged)
    for name, column in merged:
        if isinstance(column, Scalar):
            like = min(column.columns, key=lambda c: c.symbol)
            known_type = like.type is not None and len({c.type for c in column.columns}) == 1
            result = context.column(name, like=like if known_type else None)
            computed.append(Item(result, column))
            known[name] = result
        else:
            known[name] = column
    if computed:
        rows = Projection(rows, (*(Item.kept(column) for column in rows.columns), *computed))
    return rows, replace(names, merged=known)


def _item(context: Context, tree: Tree, scope: Scope) -> Rows:
    """Return an item of FROM; `scope` has the names that it may use."""
    only_known(tree, *_KNOWN)
    if isinstance(tree, exp.Subquery) and not isinstance(tree.this, QUERIES):
        return _parenthesized(context, tree, scope)
    if isinstance(tree, exp.Subquery | exp.Values):
        query = tree.this if isinstance(tree, exp.Subquery) else tree
        plan = _distinguishable(context, context.query(context, query, scope.inner()))
        named = tuple(zip(plan.names, plan.columns, strict=True))
        aliased = _aliased(tree, named)
        return plan.root, replace(aliased, rows=_as_rows(aliased))
    if isinstance(tree, exp.Table):
        if isinstance(tree.this, exp.Identifier):
            return _relation(context, tree, scope)
        if isinstance(tree.this, exp.Values):
            return _item(context, _with_alias(tree), scope)
        return _function(context, tree, scope)
    raise not_modelled("this item of FROM", tree)


def _distinguishable(context: Context, plan: Plan) -> Plan:
    """Return the plan with a separate column for each column that it shows.

    The surrounding query distinguishes two columns with the same expression: under ROLLUP, for
    example, they are NULL in different rows.
    """
    return distinguishable(plan, lambda name, column: context.column(name, like=column))


_KNOWN = (
    "this", "expressions", "db", "alias", "joins", "only", "ordinality", "rows_from", "order",
    "limit", "offset", "with_",
)  # fmt: skip


def _with_alias(tree: exp.Table) -> exp.Values:
    values: exp.Values = tree.this.copy()
    values.set("alias", tree.args["alias"].copy())
    return values


def _parenthesized(context: Context, tree: exp.Subquery, scope: Scope) -> Rows:
    inner = tree.this
    joins = inner.args.get("joins") or []
    bare = inner.copy()
    bare.set("joins", None)
    outside = Scope(parent=scope)
    rows, names = _joined(context, bare, joins, outside)
    alias = tree.args.get("alias")
    if alias is None:
        return rows, replace(names, parent=None)
    # An alias for the whole join hides the names inside. Merged columns come first.
    merged = [(name, column) for name, column in names.merged.items()]
    rest = [
        (name, column)
        for named in names.tables.values()
        for name, column in named
        if name not in names.merged
    ]
    return rows, _aliased(tree, tuple(merged + rest))


def _aliased(tree: Tree, named: Named) -> Scope:
    alias = tree.args.get("alias")
    if alias is None:
        raise not_modelled("a derived table without an alias", tree)
    return Scope(tables={alias.name: _renamed(named, alias)})


def _renamed(named: Named, alias: Tree) -> Named:
    names = [column.name for column in alias.args.get("columns") or []]
    return tuple(
        (names[position] if position < len(names) else name, column)
        for position, (name, column) in enumerate(named)
    )


def _relation(context: Context, tree: exp.Table, scope: Scope) -> Rows:
    schema, name = tree.db, tree.name
    alias = tree.args.get("alias")
    alias_name = alias.name if alias is not None else name
    shared = scope.cte(name) if not schema else None
    if shared is not None:
        rows, columns = shared.scan()
        named_scope = _named_scope(
            alias_name, tuple(zip(shared.names, columns, strict=True)), alias
        )
        return rows, replace(named_scope, rows=_as_rows(named_scope))
    relation = context.facts.relations.get((schema or "pg_catalog", name))
    if relation is None:
        raise not_modelled("a relation that the catalog does not show", tree)
    stored = context.facts.views.get(relation.oid)
    if stored is not None:
        plan = _distinguishable(context, context.query(context, dialect.read(stored.text), Scope()))
        names = [column.name for column in stored.columns]
        own = tuple(zip(names, plan.columns, strict=True))
        # The row has a type, whose field names an alias does not change. The same holds for tables.
        return plan.root, replace(_named_scope(alias_name, own, alias), rows={alias_name: Row(own)})
    if relation.row_security:
        raise not_modelled("row-level security decides which rows are seen", tree)
    wanted = _named_columns(context, relation, alias)
    scan = _scan(context, relation, alias_name, bool(tree.args.get("only")), wanted)
    names_of = {output.attnum: output.column for output in scan.outputs}
    rows = _with_virtual(context, relation, scan, wanted, names_of)
    named = tuple(
        (column.name, names_of[column.attnum])
        for column in relation.columns
        if column.attnum in names_of
    )
    return rows, replace(_named_scope(alias_name, named, alias), rows={alias_name: Row(named)})


def _as_rows(scope: Scope) -> dict[str, Row]:
    """Return the rows of tables without a row type: records with the names in this scope."""
    return {alias: Row(named) for alias, named in scope.tables.items()}


def _named_scope(name: str, named: Named, alias: Tree | None) -> Scope:
    return Scope(tables={name: _renamed(named, alias) if alias is not None else named})


_DEFAULT = 'pg_catalog."default"'


def _named_columns(
    context: Context, relation: Relation, alias: Tree | None
) -> list[RelationColumn]:
    """Return the columns of a table that a query may name."""
    renamed = alias is not None and alias.args.get("columns")
    return [
        column
        for column in relation.columns
        if renamed or context.mentioned is None or column.name in context.mentioned
    ]


def _with_virtual(
    context: Context,
    relation: Relation,
    scan: Scan,
    wanted: Sequence[RelationColumn],
    names_of: dict[int, Column],
) -> Operator:
    """Return the rows of a table with its virtual generated columns, which are computed when they
    are read.

    Their expressions only name columns of this table.
    """
    stored = ((c.name, names_of[c.attnum]) for c in relation.columns if c.attnum in names_of)
    own = Scope(tables={scan.alias: tuple(stored)})
    computed = []
    for column in wanted:
        if column.expression is None:
            continue
        text = f"({column.expression})::{column.type}"
        inside = {c.collation for c in relation.columns if c.attnum in column.reads} - {None}
        if column.collation is not None and inside | {_DEFAULT} != {column.collation}:
            # PostgreSQL omits the schema pg_catalog.
            text = f"({text}) COLLATE {column.collation.removeprefix('pg_catalog.')}"
        [tree] = dialect.read(f"SELECT {text}").expressions
        names_of[column.attnum] = _scan_column(context, column, scan.alias)
        computed.append(Item(names_of[column.attnum], scalar(context, tree, own)))
    if not computed:
        return scan
    return Projection(scan, (*map(Item.kept, scan.columns), *computed))


def _scan(
    context: Context, relation: Relation, alias: str, only: bool, wanted: Sequence[RelationColumn]
) -> Scan:
    keys = relation.keys if only and relation.has_children else relation.plan_keys
    read = {attnum for key in keys for attnum in key.columns}
    read |= {attnum for column in wanted for attnum in (column.attnum, *column.reads)}
    table = Table(
        oid=relation.oid,
        schema=relation.schema,
        name=relation.name,
        # Without columns, this key says that there is one row.
        keys=(*(key.columns for key in keys), *([()] if relation.is_clock else [])),
        not_null=frozenset(column.attnum for column in relation.columns if column.not_null),
        foreign_keys=tuple(
            Reference(key.columns, key.target, key.target_columns)
            for key in relation.foreign_keys
            # The rows of inheritance children need not satisfy it.
            if key.is_trusted and (only or not relation.has_children)
        ),
    )
    outputs = [
        ScanColumn(_scan_column(context, column, alias), column.attnum, column.name)
        for column in relation.columns
        if column.attnum in read and column.expression is None
    ]
    return Scan(table, context.symbols.fresh(alias), tuple(outputs), only)


def _scan_column(context: Context, column: RelationColumn, alias: str) -> Column:
    symbol = context.symbols.fresh(column.name, f"{alias}_{column.name}")
    equality = column.equality if column.builtin_equality else None
    return Column(symbol, column.type, equality, column.exact)


def _function(context: Context, tree: exp.Table, scope: Scope) -> Rows:
    alias = tree.args.get("alias")
    tables = tree.args.get("rows_from") or [tree]
    calls, definitions, returned_fields = [], [], []
    for table in tables:
        call = exp.Dot(this=table.args["db"], expression=table.this) if table.db else table.this
        own = None if table is tree else table.args.get("alias")
        if called(call) is None or (own is not None and own.this):
            raise not_modelled("this item of FROM", tree)
        calls.append(scalar(context, call, scope))
        definitions.append(_definitions(own))
        returned_fields.append(context.facts.row_returning.get(called(call) or ("", ""), ("",)))
    if alias is None or not alias.args.get("columns"):
        raise not_modelled("a function in FROM whose columns are not listed", tree)
    names = [item.name for item in alias.args["columns"]]
    columns = [context.column(name, f"{alias.name}_{name}") for name in names]
    defined = _definitions(alias)
    number = None
    if tree.args.get("ordinality"):
        number = replace(columns.pop(), type="bigint", equality="integer_ops", exact=True)
    if defined and (number is not None or len(defined) != len(names)):
        raise not_modelled("a column definition list beside other columns", tree)
    if all(returned_fields) and not defined and not any(definitions):
        # PostgreSQL's text does not list columns that were added to a type later.
        missing = [name for names in returned_fields for name in names][len(columns) :]
        if missing and (number is not None or len(calls) > 1):
            raise not_modelled("a function that returns more columns than are listed", tree)
        columns += [context.column(name, f"{alias.name}_{name}") for name in missing]
    name = context.symbols.fresh(alias.name)
    lists = (defined,) if defined else tuple(definitions)
    scan = FunctionScan(tuple(calls), name, tuple(columns), lists if any(lists) else (), number)
    # A column that is not listed has no name here. There are no such columns before an ordinal
    # number.
    named = tuple(zip(names, scan.columns, strict=False))
    return scan, Scope(tables={alias.name: named})


def _definitions(alias: Tree | None) -> tuple[exp.ColumnDef, ...]:
    """Return the column definition list of a function that returns `record`."""
    columns = alias.args.get("columns") if alias is not None else None
    return tuple(column for column in columns or [] if isinstance(column, exp.ColumnDef))
